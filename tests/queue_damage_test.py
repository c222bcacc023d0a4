"""Queues whose database was damaged, edited, or is another program's: no crash, no bug, no loop; a damaged entry is held and can be canceled,
all others go on, and what can be read of a broken database can be kept.

Usage: queue_damage_test.py PLIMSOLL [--count N] [--seed N]: N databases with flipped bits, odd values and missing parts beside the
cases that are named. Standard library alone.
"""
import argparse
import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

USAGE, DAMAGED = 2, 4
COMMANDS = (["list", "--all"], ["top", "--once"], ["report", "--queue", "--html", "page.html"], ["run", "--until-done", "--memory", "200MiB"], ["cancel", "5"],
            ["list", "--json"])
# Entry 5 waits, 4 comes after 3, 1 and 2 have ended.
HELD = [  # what is done to the row of one like 5, and the column that is named
    ("state=99", "state"), ("state=-1", "state"), ("state=7", "state"), ("state='x'", "state"), ("words=''", "words"), ("words='[]'", "words"), ("words='{}'", "words"),
    ("environment='x'", "environment"), ("after='x'", "after"), ("after='[\"a\"]'", "after"), ("after='[3.5]'", "after"), ("after='[true]'", "after"), ("words='[[99.5]]'", "words"),
    ("words='[[300]]'", "words"), ("smaller='[[1.5,1]]'", "smaller"), ("smaller='[[1,1,1.5]]'", "smaller"), ("held_by=1.5", "held_by"), ("variants='[1]'", "variants"), ("smaller='[[1]]'", "smaller"),
    ("devices=-1", "devices"), ("card='x'", "card"), ("smaller='[[1,1,1,1,\"x\"]]'", "smaller"), ("host_bytes=9223372036854775807", "host_bytes"), ("threads='many'", "threads"), ("seconds=9e999", "seconds"),
    ("state=3, attempts=1", "attempts"), ("attempts=5", "attempts"), ("submitted='x'", "submitted"), ("priority=1e30", "priority")]
FOREIGN = ["DROP TABLE attempts", "DROP TABLE settings", "ALTER TABLE entries ADD COLUMN x", "ALTER TABLE attempts DROP COLUMN done", "PRAGMA user_version = 4",
           "PRAGMA user_version = 2", "PRAGMA user_version = 0", "PRAGMA user_version = -3",
           "CREATE TRIGGER t AFTER UPDATE ON entries BEGIN DELETE FROM entries; END"]
ODD = [None, -1, 0, 1, 7, 99, 2**63 - 1, -2**63, 2**53, 9e14, -9e14, 2**56, 1e308, float("inf"), "", "x", "[]", "{}", "[1]", "[[1]]", "[[[1]]]", '["a', '[{"a": 1}]', b"\0\xff", "[" * 5000,
       "[[300]]", "[-5]", "[99]", "[5]", "9" * 400]


class Problem(Exception):
    pass


class Bench:
    def __init__(self, plimsoll, folder):
        self.plimsoll, self.folder, self.place = plimsoll, folder, folder / "queue"
        self.environment = {**os.environ, "PLIMSOLL_QUEUE_DIR": str(self.place), "PLIMSOLL_MACHINE_DIR": str(folder / "machine"), "COLUMNS": "250"}
        add = ["add", "--memory", "10MiB", "--retries", "0"]
        for words in ([*add, "--", "true"], [*add, "--", "false"], ["run", "--until-done", "--memory", "200MiB"], [*add, "--", "true"],
                      [*add, "--after", "3", "--", "true"], [*add, "--on-oom", "a=1", "--", "true", "a=2"]):
            self.run(words, {0})
        self.start = folder / "start"
        shutil.copytree(self.place, self.start)

    def run(self, words, codes=(0, USAGE, DAMAGED, 5)):
        """Everything that it printed."""
        command = words if words[0] in ("top", "report") else ["queue", *words]
        try:
            done = subprocess.run([self.plimsoll, *command], env=self.environment, cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=90)
        except subprocess.TimeoutExpired:
            raise Problem(f"{command} does not end")
        told = done.stdout + done.stderr
        if done.returncode not in codes or "this is a bug" in told or "gives no more memory" in told:
            raise Problem(f"{command}: exit code {done.returncode}\n{told[-800:]}")
        return told

    def reset(self):
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.start, self.place)

    @contextlib.contextmanager
    def database(self):
        base = sqlite3.connect(self.place / "queue.db")
        base.execute("PRAGMA writable_schema = OFF")
        with base:
            yield base
        base.close()

    def states(self):
        return {one["id"]: one["state"] for one in json.loads(self.run(["list", "--all", "--json"], {0}))["entries"]}


def wait_until(holds, words):
    for _ in range(1000):
        if found := holds():
            return found
        time.sleep(0.1)
    raise Problem(words)


def check(holds, words):
    if not holds:
        raise Problem(words)


def held(bench):
    """Each damaged entry is held and says so, the others go on, and it can be canceled."""
    ids = {100 + number: case for number, case in enumerate(HELD)}
    with bench.database() as base:
        columns = ", ".join(row[1] for row in base.execute("PRAGMA table_info(entries)") if row[1] != "id")
        for entry, (change, _) in ids.items():
            base.execute(f"INSERT INTO entries(id, {columns}) SELECT {entry}, {columns} FROM entries WHERE id = 5")
            base.execute(f"UPDATE entries SET {change} WHERE id = {entry}")
    told = bench.run(["list", "--all"], {0})
    for entry, (change, column) in ids.items():
        line = next(line for line in told.splitlines() if line.split()[:1] == [str(entry)])
        check(f"damaged ({column})" in line and f"queue cancel {entry}" in line, f"{change}: list does not say so: {line}")
    bench.run(["top", "--once"], {0})
    bench.run(["report", "--queue"], {0})
    bench.run(["resume", "100"], {USAGE})
    bench.run(["run", "--until-done", "--memory", "200MiB"], {0})
    states = bench.states()
    check(states == {1: "done", 2: "failed", 3: "done", 4: "done", 5: "done", **dict.fromkeys(ids, "held")}, f"after the worker: {states}")
    bench.run(["cancel", *map(str, ids)], {0})
    check({bench.states()[entry] for entry in ids} == {"canceled"}, "not all are canceled")


def foreign(bench, change):
    """Exit 4 with a way to keep what can be read."""
    with bench.database() as base:
        base.executescript(change)
    every = (["list"], ["top", "--once"], ["report", "--queue"], ["run"], ["cancel", "5"], ["add", "--memory", "1MiB", "--", "true"])
    for words in every if change == FOREIGN[0] else every[:1]:
        check("plimsoll queue rescue" in bench.run(words, {DAMAGED}), f"{words} names no way out")
    check("kept 5 entries" in bench.run(["rescue"], {0}), "not all entries are kept")
    states = bench.states()
    check(states == {1: "done", 2: "failed", 3: "waiting", 4: "waiting", 5: "waiting"}, f"after the rescue: {states}")
    if change == FOREIGN[0]:
        bench.run(["run", "--until-done", "--memory", "200MiB"], {0})
        check(all(bench.states()[entry] == "done" for entry in (3, 4, 5)), "what was rescued does not go on")


def runs_on(bench):
    """A run whose row is damaged keeps its room until it ends, and ends when it is canceled."""
    bench.run(["cancel", "3", "4", "5"], {0})
    log = bench.place / "runs/6/1/log"
    bench.run(["add", "--memory", "60MiB", "--", "sh", "-c", "echo started; exec sleep 1000"], {0})
    worker = subprocess.Popen([bench.plimsoll, "queue", "run", "--until-done", "--memory", "100MiB", "--grace", "1"], env=bench.environment, cwd=bench.folder,
                              stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: log.exists() and "started" in log.read_text(), "it does not start")
        with bench.database() as base:
            base.execute("UPDATE entries SET attempts = 7, words = 'x' WHERE id = 6")
        check(bench.states()[6] == "held", "its row is not damaged")
        bench.run(["add", "--memory", "60MiB", "--", "true"], {0})
        note = wait_until(lambda: json.loads(bench.run(["show", "7", "--json"], {0}))["note"] or bench.states()[7] != "waiting", "nothing is said of what waits")
        check(note is not True and "short on the host" in note, f"another run has its room: {note}")
        bench.run(["cancel", "6"], {0})
        wait_until(lambda: worker.poll() is not None, "the worker does not end")
        check((bench.states()[6], bench.states()[7]) == ("canceled", "done"), f"after the worker: {bench.states()}")
    finally:
        worker.kill()
        worker.wait()


def special(bench):
    bench.reset()
    with bench.database() as base:
        base.execute("UPDATE entries SET after = '[5]' WHERE id = 3")
        base.execute("UPDATE entries SET after = '[4]' WHERE id = 5")
    bench.run(["run", "--until-done", "--memory", "200MiB"], {0})
    check(bench.run(["list"], {0}).count("it comes after itself") == 3, "a cycle is not held")
    bench.reset()
    with bench.database() as base:
        base.execute("UPDATE entries SET after = '[77]' WHERE id = 5")
    bench.run(["run", "--until-done", "--memory", "200MiB"], {0})
    check("77, which it comes after, is not in the queue" in bench.run(["list"], {0}), "what is missing is not named")
    bench.reset()
    with bench.database() as base:
        base.execute("UPDATE entries SET state = 2 WHERE id = 1")
    check("damaged (state)" in bench.run(["list"], {0}), "what no scheduler has is said to be submitted")
    bench.run(["run", "--until-done", "--memory", "200MiB"], {0})
    bench.run(["cancel", "1"], {0})
    check(bench.states()[1] == "canceled", "what no scheduler has cannot be canceled")
    bench.reset()
    with bench.database() as base:
        base.execute("UPDATE attempts SET entry = 99 WHERE entry = 1")
    for words in (["top", "--once"], ["report", "--queue"], ["report", "--queue", "--json"]):
        bench.run(words, {0})
    bench.reset()
    with bench.database() as base:
        base.execute("UPDATE attempts SET peak_bytes = 9223372036854775807 WHERE entry = 1")
    bench.run(["report", "--queue", "--html", "page.html"], {0})
    check("damaged (peak_bytes)" in bench.run(["show", "1"], {0}), "a damaged attempt is not named")
    bench.reset()
    bench.run(["add", "--devices", "1", "--memory", "10MiB", "--host-memory", "10MiB", "--", "true"], {0})
    bench.run(["pause"], {0})
    with bench.database() as base:
        base.execute("ALTER TABLE entries DROP COLUMN card")
    bench.run(["rescue"], {0})
    listed = json.loads(bench.run(["list", "--json"], {0}))
    check({one["card"] for one in listed["entries"]} == {""}, f"after the rescue entries are for cards: {listed}")
    check(listed["paused"], "a paused queue goes on after its rescue")
    check((bench.place / "queue.db").stat().st_mode & 0o077 == 0, "others may read the new database")
    bench.reset()
    (bench.place / "queue.db").write_bytes(b"x" * 5000)
    bench.run(["list"], {DAMAGED})
    check("kept 0 entries" in bench.run(["rescue"], {0}), "a file that is no database")
    check(bench.states() == {} and (bench.place / "queue.db.damaged").read_bytes() == b"x" * 5000, "the old file is not kept")
    bench.reset()
    (bench.place / "queue.db").unlink()
    os.mkfifo(bench.place / "queue.db")
    for words in (["rescue"], ["list"], ["add", "--memory", "10MiB", "--", "true"], ["run", "--until-done"]):
        check("is no regular file" in bench.run(words, {USAGE}), f"{words[0]}: a FIFO is waited for")
    (bench.place / "queue.db").unlink()
    (bench.place / "queue.db").symlink_to("elsewhere")
    check("is a symbolic link" in bench.run(["list"], {USAGE}), "a link is not named")
    (bench.place / "queue.db").unlink()


def flip(bench, dice):
    file = bench.place / "queue.db"
    content = bytearray(file.read_bytes())
    for _ in range(dice.choice((1, 4, 40, 400))):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    file.write_bytes(content)


def odd_value(bench, dice):
    with bench.database() as base:
        for _ in range(dice.choice((1, 1, 3))):
            table = dice.choice(("entries", "entries", "attempts", "settings"))
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
            with contextlib.suppress(sqlite3.Error, OverflowError):
                base.execute(f"UPDATE {table} SET {dice.choice(columns)} = ? WHERE rowid = ?", (dice.choice(ODD), dice.randint(1, 5)))


def missing(bench, dice):
    with bench.database() as base, contextlib.suppress(sqlite3.Error):
        table = dice.choice(("entries", "attempts", "settings"))
        column = dice.choice([row[1] for row in base.execute(f"PRAGMA table_info({table})")])
        base.executescript(dice.choice((f"DROP TABLE {table}", f"ALTER TABLE {table} DROP COLUMN {column}", f"ALTER TABLE {table} RENAME COLUMN {column} TO x",
                                        f"PRAGMA user_version = {dice.randint(-2, 8)}", f"DELETE FROM {table} WHERE rowid = {dice.randint(1, 5)}",
                                        f"ALTER TABLE {table} ADD COLUMN more", "CREATE VIEW v AS SELECT 1", f"DELETE FROM {table}")))


def cut(bench, dice):
    file = bench.place / dice.choice(("queue.db", "worker.json"))
    content = file.read_bytes()
    at = dice.randrange(len(content))
    file.write_bytes(dice.choice((content[:at], content[:at] + bytes(len(content) - at), b"", content + b"x" * 100)))
    if dice.random() < 0.3:
        (bench.place / "queue.db-wal").write_bytes(dice.randbytes(dice.randint(0, 9000)))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("plimsoll", type=Path)
    arguments.add_argument("--count", type=int, default=16)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.plimsoll.resolve(), Path(folder).resolve())
        cases = [("damaged rows", lambda: held(bench))]
        cases += [(change, lambda change=change: foreign(bench, change)) for change in FOREIGN]
        cases += [("special cases", lambda: special(bench)), ("a run whose row is damaged", lambda: runs_on(bench))]
        for number in range(options.count):
            kind = (flip, odd_value, odd_value, missing, cut)[number % 5]
            cases.append((f"{kind.__name__} {number}", lambda kind=kind, seed=f"{options.seed} {number}": (kind(bench, random.Random(seed)), [bench.run(words) for words in COMMANDS])))
        for name, case in cases:
            bench.reset()
            try:
                case()
            except Problem as problem:
                found.append(name)
                print(f"error: {name}: {problem}", file=sys.stderr, flush=True)
    print(f"{len(HELD)} damaged rows, {len(FOREIGN)} foreign databases, {options.count} at random; {len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
