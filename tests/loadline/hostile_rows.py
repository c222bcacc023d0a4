#!/usr/bin/env python3
"""Rows whose text takes far more memory than its bytes, each trained under a hard cap of the planned data bytes.

    hostile_rows.py [--plimsoll build/plimsoll] [--count 500] [--first 0] [--keep FOLDER]

Row N is made from the number alone: empty objects, deep lists, escapes, many keys, many messages, long texts, marks, numbers, in JSON Lines,
JSON, CSV, tab-separated texts, Parquet and Arrow, as text, prompt and response, Alpaca's columns, conversations, pairs and ids. It lies behind
ordinary rows, and one step reads all of them. It is learnt within RLIMIT_DATA of the planned bytes and a peak (VmHWM) below the plan, or
refused by its number. Standard library, and pyarrow where setup put it.
"""
import argparse
import json
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / ".deps/py"), str(Path(__file__).resolve().parent.parent)]
from shard import is_mine  # noqa: E402

ORDINARY = 4  # rows in front of the hostile one
USAGE, DAMAGED = 2, 4


class Problem(Exception):
    pass


class Raw(str):
    """JSON that is written as it is: json.dumps would make other text of it."""


def dump(value):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dump(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value)


def many(piece, size):
    return ",".join([piece] * max(1, size // (len(piece) + 1)))


# Values of keys that nobody reads, by the bytes that they take.
BESIDE = {
    "empty objects": lambda dice, size: f"[{many('{}', size)}]",
    "empty lists": lambda dice, size: f"[{many('[]', size)}]",
    "empty texts": lambda dice, size: "[" + many('""', size) + "]",
    "zeros": lambda dice, size: f"[{many('0', size)}]",
    "nulls": lambda dice, size: f"[{many('null', size)}]",
    "reals": lambda dice, size: f"[{many('-1.5e-300', size)}]",
    "deep lists": lambda dice, size: f"[{many('[' * 30 + ']' * 30, size)}]",
    "deep objects": lambda dice, size: "[" + many('{"a":' * 20 + "1" + "}" * 20, size) + "]",
    "keys": lambda dice, size: "{" + ",".join(f'"k{i}":0' for i in range(min(4000, size // 8))) + "}",
    "too many keys": lambda dice, size: "{" + ",".join(f'"{i}":0' for i in range(5000)) + "}",
    "small objects": lambda dice, size: "[" + many('{"a":{"b":[]}}', size) + "]",
    "blanks": lambda dice, size: "[" + " " * size + "]",
    "escapes": lambda dice, size: '"' + "\\u0041" * (size // 6) + '"',
    "a long key": lambda dice, size: '{"' + "k" * size + '":0}',
}
# Texts that are learnt.
TEXTS = {
    "letters": lambda dice, size: "a" * size,
    "words": lambda dice, size: "x," * (size // 2),
    "lines": lambda dice, size: "\n" * size,
    "blanks": lambda dice, size: " " * size,
    "quotes": lambda dice, size: '"' * size,
    "backslashes": lambda dice, size: "\\" * size,
    "pairs of surrogates": lambda dice, size: "😀" * (size // 12),
    "marks": lambda dice, size: "".join("e" + dice.choice("\u0301\u0327\u0345") * dice.randint(1, 20) for _ in range(size // 30)),
    "three bytes each": lambda dice, size: "語" * (size // 6),
    "digits": lambda dice, size: str(dice.getrandbits(8 * min(size, 1600)))[:4000] * (size // 4000 + 1),
    "random": lambda dice, size: "".join(chr(dice.choice((dice.randint(32, 126), dice.randint(160, 0x2FFF)))) for _ in range(size // 3)),
    "angle brackets": lambda dice, size: "<|endoftext|>" * (size // 13),
}
FORMATS = ("text", "pair", "alpaca", "messages", "preference", "ids")


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def row_of(form, text, beside, dice):
    """The row, of which a part is hostile."""
    more = {"x": beside} if beside and form != "messages" else {}
    if form == "text":
        return {"text": text, **more}
    if form == "pair":
        return {"prompt": text, "response": " b", **more} if dice.random() < 0.5 else {"prompt": "a", "response": text, **more}
    if form == "alpaca":
        return {"instruction": text, "input": "", "output": "b", **more}
    if form == "preference":
        return {"prompt": "a", "chosen": text, "rejected": " c", **more}
    if form == "ids":
        return {"input_ids": [len(text) % 7 + 1] * max(2, len(text) // 3), **more}
    talk = [turn("user", text), turn("assistant", "b")]
    if beside:
        place = dice.randrange(4)
        if place == 0:
            return {"messages": talk, "x": beside}
        if place == 1:
            talk[0]["x"] = beside
        if place == 2:
            call = {"type": "function", "function": {"name": "f", "arguments": beside}}
            talk[1] = turn("assistant", "", tool_calls=[call])
        if place == 3:
            return {"messages": talk, "tools": beside}
        return {"messages": talk}
    count = dice.choice((1, 50, 2000))
    return {"messages": [turn("user", text[: len(text) // count]), turn("assistant", "b")] * count}


PLAIN = {"text": {"text": "a b c"}, "pair": {"prompt": "a", "response": "b"}, "alpaca": {"instruction": "a", "input": "", "output": "b"},
         "messages": {"messages": [turn("user", "a"), turn("assistant", "b")]}, "preference": {"prompt": "a", "chosen": " b", "rejected": " c"},
         "ids": {"input_ids": [1, 2, 3]}}


def write_json(path, rows, kind):
    path.write_text("".join(dump(row) + "\n" for row in rows) if kind == "jsonl" else "[" + ",\n".join(map(dump, rows)) + "]")


def write_separated(path, rows, kind):
    mark = "\t" if kind == "tsv" else ","

    def cell(text):
        text = text if isinstance(text, str) and not isinstance(text, Raw) else dump(text)
        return text.translate({9: " ", 10: " ", 13: " "}) if kind == "tsv" else '"' + text.replace('"', '""') + '"'
    columns = list(rows[-1])
    lines = [mark.join(columns)] + [mark.join(cell(row.get(name, "")) for name in columns) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def write_columns(path, rows, kind):
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet
    names = list(rows[-1])
    table = pa.table({name: [json.loads(dump(row[name])) if name in row and not isinstance(row[name], Raw) else dump(row.get(name, "")) for row in rows]
                      for name in names})
    if kind == "parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.feather.write_feather(table, path, compression="uncompressed")


def case(number):
    """What row `number` is, in words, and its file's kind, format and rows."""
    dice = random.Random(f"hostile row {number}")
    form = dice.choice(FORMATS)
    size = int(4096 * 2 ** dice.uniform(0, 9.6))  # 4 KB to 3.2 MB
    text_name, beside_name = dice.choice(sorted(TEXTS)), None
    beside, text = None, "a b"
    if dice.random() < 0.6:
        beside_name = dice.choice(sorted(BESIDE))
        beside = Raw(BESIDE[beside_name](dice, size))
    else:
        text = TEXTS[text_name](dice, size)
    kinds = {"text": ("jsonl", "json", "csv", "tsv", "parquet", "feather"), "pair": ("jsonl", "json", "csv", "tsv", "parquet", "feather"),
             "alpaca": ("jsonl", "json", "csv"), "messages": ("jsonl", "json", "parquet"), "preference": ("jsonl", "json", "csv"),
             "ids": ("jsonl", "json", "parquet")}
    kind = dice.choice(kinds[form])
    if kind == "parquet" and form == "messages" and beside:
        kind = "jsonl"  # columns have one type, and turns no keys of their own
    rows = [PLAIN[form]] * ORDINARY + [row_of(form, text, beside, dice)]
    words = f"{beside_name} beside" if beside_name else f"a text of {text_name}"
    return f"row {number}: {form} in {kind}, {words}, {size} bytes", kind, form, rows


def write_recipe(folder, number):
    words, kind, form, rows = case(number)
    path = folder / f"rows.{kind}"
    writer = write_json if kind.startswith("json") else write_separated if kind in ("csv", "tsv") else write_columns
    writer(path, rows, kind)
    task = {"text": "pretrain", "ids": "pretrain", "preference": "dpo"}.get(form, "sft")
    settings = {"model": str(ROOT / "demo/model"), "init": "random", "task": task, "data": {"train": str(path), "max_length": 192},
                "method": {"type": "full"}, "batch": {"effective": ORDINARY + 1, "micro": 2}, "schedule": {"max_steps": 1, "warmup": 0},
                "precision": "fp32", "output": str(folder / "run")}
    if form == "messages":
        settings["data"]["template"] = "chatml"
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps(settings))
    return words, recipe


def call(plimsoll, words, limit=None):
    def cap():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return subprocess.run([str(plimsoll), *map(str, words)], capture_output=True, text=True, errors="replace", timeout=600, preexec_fn=cap)


def is_refusal(done):
    """Of the row, by its number: the fifth, on whatever line it stands."""
    return done.returncode in (USAGE, DAMAGED) and re.search(rf"(:|row |line ){ORDINARY + 1}\b|:{ORDINARY + 2}\b", done.stderr) and "bug" not in done.stderr


def check(plimsoll, folder, number):
    """Whether the row was learnt, and the larger share of the plan that the run took; None where it was refused."""
    words, recipe = write_recipe(folder, number)
    planned = call(plimsoll, ["plan", recipe, "--json", "--no-probe"])
    if planned.returncode != 0:
        if is_refusal(planned):
            return None
        raise Problem(f"{words}: plan: exit code {planned.returncode}: {planned.stderr.strip()[-600:]}")
    data = json.loads(planned.stdout)["process"]["planned_data_bytes"]
    done = call(plimsoll, ["train", recipe, "--quiet", "--no-probe"], data)
    if done.returncode != 0:
        if is_refusal(done):
            return None
        raise Problem(f"{words}: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    report = json.loads((folder / "run/run.json").read_text())
    share = 0
    for name in ("process_peak_rss_bytes", "process_data_bytes"):
        had, most = report["measured"][name], report["planned"][name]
        if had > most:
            raise Problem(f"{words}: {name}: planned {most}, had {had}")
        share = max(share, had / most)
    return share


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--plimsoll", type=Path, default=ROOT / "build/plimsoll")
    arguments.add_argument("--count", type=int, default=500)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--keep", type=Path)
    options = arguments.parse_args()
    found, shares, refused = [], [], 0
    for number in range(options.first, options.first + options.count):
        if not is_mine("hostile_rows", number):
            continue
        folder = options.keep / str(number) if options.keep else Path(tempfile.mkdtemp(prefix="hostile-row-"))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            share = check(options.plimsoll.resolve(), folder, number)
            refused += share is None
            shares += [] if share is None else [share]
        except (Problem, subprocess.TimeoutExpired) as problem:
            found.append(number)
            print(f"error: {problem}", file=sys.stderr, flush=True)
        finally:
            if not options.keep:
                shutil.rmtree(folder)
    print(f"{len(shares)} hostile rows learnt, at most {100 * max(shares, default=0):.1f} % of the plan taken; {refused} refused by their number; {len(found)} problems")
    sys.exit(1 if found or len(shares) < refused else 0)


if __name__ == "__main__":
    main()
