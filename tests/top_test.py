#!/usr/bin/env python3
"""plimsoll top over a queue that runs: python3 tests/top_test.py PLIMSOLL"""
import fcntl
import json
import os
import pty
import resource
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import socket
import unittest
import urllib.error
import urllib.request

from command_run import main, PLIMSOLL, ROOT, not_sanitized, output, run
from queue_case import MIB, PYTHON, SECONDS, QueueTest

# Says so and waits until it is allowed to end.
WAITS = "touch {0}-started; echo here is {0}; while [ ! -e go ]; do sleep 0.05; done"


class TopTest(QueueTest):
    def setUp(self):
        super().setUp()
        self.addCleanup((self.folder / "go").touch)

    def top(self, *words, code=0):
        return output("top", *words, code=code, env=self.environment, cwd=self.folder)

    def once(self):
        return json.loads(self.top("--once", "--json"))

    def waiting_run(self, name, **options):
        return self.add("sh", "-c", WAITS.format(name), name=name, **options)


class Served(TopTest):
    def setUp(self):
        super().setUp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def serve(self, *words):
        server = subprocess.Popen([str(PLIMSOLL), "top", "--serve", str(self.port), "--interval", "0.2", *words], env=self.environment, cwd=self.folder,
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.page = server.stdout.readline().strip()
        self.token = self.page.partition("token=")[2]
        return server

    def get(self, path, token=None, **headers):
        address = f"http://127.0.0.1:{self.port}{path}?token={self.token if token is None else token}"
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=SECONDS) as answer:
            return answer.read().decode()

    def refused(self, *words, **options):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.get(*words, **options)
        caught.exception.close()
        return caught.exception.code

    def test_the_queue_is_a_page_data_and_metrics_for_who_has_the_token(self):
        self.add("true", memory="9MiB", name="</script><b>")
        self.serve()
        self.assertRegex(self.page, rf"^http://127\.0\.0\.1:{self.port}/\?token=[0-9a-f]{{32}}$")
        self.assertEqual(os.stat(self.queue_folder / "serve.token").st_mode & 0o777, 0o600)
        for token in ("", "0" * 32, self.token[:-1], self.token + "0"):
            for path in ("/", "/events", "/metrics", "/frame.json", "/x"):
                self.assertEqual(self.refused(path, token=token), 401)
        self.assertEqual(self.refused("/x"), 404)
        page = self.get("/")
        self.assertNotIn("</script><b>", page)
        self.assertNotIn("http://", page)
        self.assertNotIn("innerHTML", page)
        self.assertIn('id="from"', page)  # the time axis
        self.assertIn("plimsoll queue logs ID", page)
        self.assertIn(".more{display:none}", page)  # columns that narrow screens leave out
        self.assertEqual(json.loads(self.get("/frame.json"))["runs"][0]["name"], "</script><b>")
        self.assertIn('plimsoll_runs{state="waiting"} 1', self.get("/metrics", token="x", Authorization=f"Bearer {self.token}"))
        for method in ("POST", "PUT", "DELETE"):
            request = urllib.request.Request(self.page, method=method, data=b"a=b")
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=SECONDS)
            caught.exception.close()
            self.assertEqual((caught.exception.code, caught.exception.headers["Allow"]), (405, "GET, HEAD"))

    def test_strangers_who_hold_connections_keep_nobody_out(self):
        server = self.serve()
        files = (64, 64)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, files)
        reader = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        reader.sendall(f"GET /events?token={self.token} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self.assertTrue(reader.recv(100))
        strangers = []
        for i in range(200):  # silent ones, and half a line
            strangers.append(socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS))
            if i % 2:
                strangers[-1].sendall(b"GET / HT")
        self.assertIn("plimsoll_worker", self.get("/metrics"))
        seen = b""
        while seen.count(b"data: {") < 3:  # who looks at it goes on
            got = reader.recv(1 << 16)
            self.assertTrue(got, "the reader was ended")
            seen += got
        for one in (*strangers, reader):
            one.close()

    def test_connections_that_say_nothing_end(self):
        self.serve()
        for said in (b"", b"GET / HT"):
            with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as one:
                one.sendall(said)
                while one.recv(1 << 16):
                    pass  # an answer, and the end

    def test_events_are_a_look_at_a_time_and_readers_come_and_go(self):
        server = self.serve()
        first = self.page
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as reader:
                reader.sendall(f"GET /events?token={self.token} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                text = b""
                while text.count(b"data: {") < 3:
                    got = reader.recv(1 << 16)
                    self.assertTrue(got, "it ended")
                    text += got
                self.assertIn(b"text/event-stream", text)
        many = [socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) for _ in range(33)]
        for one in many:
            one.sendall(f"GET /events?token={self.token} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self.assertEqual(sorted(one.recv(12)[9:] for one in many), [b"200"] * 32 + [b"503"])
        for one in many:
            one.close()
        time.sleep(0.5)
        self.get("/metrics")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=SECONDS), 0)
        self.serve()
        self.assertEqual(self.page, first, "the token stays")

    @unittest.skipUnless(shutil.which("node"), "no node runs the page's script")
    def test_the_page_writes_bytes_and_times_as_the_program_does(self):
        """C's printf makes a number in the middle even; JavaScript's own rounding makes it larger: 1012 MiB here, 1013 there."""
        self.serve()
        page = self.get("/")
        script = page[page.index("function fixed"):page.index("function loss")]
        sizes = {1012.5 * MIB: "1012 MiB", 1013.5 * MIB: "1014 MiB", 999.6 * MIB: "1000 MiB", 9.996 * MIB: "10.0 MiB", 1.125 * MIB: "1.12 MiB",
                 512: "512 B", 1.5 * 1024: "1.50 KiB", 99.96 * MIB: "100 MiB"}
        times = {0.0004: "400 us", 0.0125: "12 ms", 1.125: "1.12 s", 2.675: "2.67 s", 90.5: "90 s", 125.7: "2:06", 3725.6: "1:02:06"}
        asked = f"{script}; console.log(JSON.stringify([{list(map(int, sizes))}.map(bytes), {list(times)}.map(duration)]))"
        done = subprocess.run(["node", "-e", asked], capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), [list(sizes.values()), list(times.values())])

    def test_what_cannot_be_served_says_why(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assertIn("cannot be opened", self.top("--serve", taken.getsockname()[1], code=2))
        for words in (["x"], ["0"], ["127.0.0.1:70000"], [":80"], ["8080", "--once"], ["8080", "--json"]):
            self.assertIn("--serve", self.top("--serve", *words, code=2))


class Tables(TopTest):
    def test_an_empty_queue_is_shown_with_its_machine(self):
        frame = self.once()
        self.assertEqual((frame["worker"], frame["runs"]), (False, []))
        self.assertGreater(frame["memory_bytes"], frame["available_bytes"])
        self.assertEqual([one["name"] for one in frame["devices"]], ["cpu:0"])
        table = self.top()
        self.assertIn("no worker runs", table)
        self.assertIn("the queue is empty", table)
        self.assertNotIn("s/step", table)

    def test_runs_are_shown_with_what_they_reserve_and_take(self):
        first = self.waiting_run("first", memory="200MiB", threads=2)
        held = self.add(PYTHON, "-c", "import os, time; x = bytearray(60 << 20); open('big-started', 'w')\nwhile not os.path.exists('go'): time.sleep(0.05)",
                        memory="300MiB", name="big\033[2J")
        waits = self.add("true", memory="900MiB", name="waits")
        worker = self.worker("--memory", "1GiB", "--threads", 4, "--until-done", "--device", "GPU-a=2GiB")
        for name in ("first", "big"):
            self.eventually((self.folder / f"{name}-started").exists, f"{name} never started")
        frame = self.once()
        runs = {one["id"]: one for one in frame["runs"]}
        self.assertTrue(frame["worker"])
        self.assertEqual([one["name"] for one in frame["devices"]], ["cpu:0", "GPU-a"])
        host = frame["devices"][0]
        self.assertEqual((host["capacity_bytes"], host["reserved_bytes"], host["threads"], host["threads_reserved"], host["runs"]),
                         (1 << 30, 500 * MIB, 4, 3, 2))
        self.assertIsNone(frame["devices"][1]["used_bytes"], "what a card uses is not known")
        self.assertEqual((runs[first]["state"], runs[waits]["state"]), ("running", "waiting"))
        self.assertGreater(runs[held]["used_host_bytes"], 60 * MIB)
        self.assertEqual(host["used_bytes"], sum(one["used_host_bytes"] or 0 for one in runs.values()))
        self.assertIsNone(runs[waits]["used_host_bytes"])
        table = self.top("--once")
        self.assertNotIn("\033", table)
        self.assertIn("3/4", table)
        (self.folder / "go").touch()
        worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 0)
        after = {one["id"]: one for one in self.once()["runs"]}
        self.assertEqual(after[held]["state"], "done")
        self.assertGreater(after[held]["peak_host_bytes"], 60 * MIB)

    def test_what_is_recorded_is_replayed(self):
        self.add("true", memory="1MiB", name="kept")
        self.assertEqual(self.top("--record", "night.jsonl", "--count", 3, "--interval", 0.1), "", "a recording prints nothing")
        self.queue("cancel", 1)
        lines = (self.folder / "night.jsonl").read_text().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual(os.stat(self.folder / "night.jsonl").st_mode & 0o077, 0)
        self.assertEqual(self.top("--replay", "night.jsonl", "--json").splitlines(), lines)
        self.assertEqual(json.loads(self.top("--replay", "night.jsonl", "--once", "--json")), json.loads(lines[-1]))
        self.assertIn("kept  waiting", self.top("--replay", "night.jsonl"))
        (self.folder / "night.jsonl").write_text(lines[0] + "\n{}\n")
        self.assertIn("night.jsonl:2", self.top("--replay", "night.jsonl", "--json", code=4))
        (self.folder / "night.jsonl").write_text(lines[0] + "\n{}")
        self.assertEqual(self.top("--replay", "night.jsonl", "--json").splitlines(), lines[:1])
        self.assertIn("exclude", self.top("--replay", "night.jsonl", "--record", "x", code=2))
        self.assertIn("none.jsonl", self.top("--replay", "none.jsonl", code=2))

    def test_what_a_full_disk_left_of_a_look_is_no_part_of_a_recording(self):
        self.add("true", memory="1MiB", name="kept")
        night = self.folder / "night.jsonl"
        self.top("--record", night, "--count", 1)
        line = night.read_text()
        largest = 8 << 20  # of a file, more than the queue's are
        night.write_text(line * (largest // len(line)))
        whole = night.stat().st_size
        words = [str(PLIMSOLL), "top", "--record", str(night), "--count", "1"]
        full = subprocess.run(words, env=self.environment, cwd=self.folder, capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest)))
        self.assertEqual(full.returncode, 5, full.stderr)
        self.assertRegex(full.stderr, r"night\.jsonl: cannot be written: File too large")
        self.assertEqual(night.stat().st_size, whole, "half a line is left")
        for torn in (line[:-1], line[:30], "{"):  # of one that was killed
            night.write_text(2 * line + torn)
            note = run("top", "--replay", night, "--json", env=self.environment, cwd=self.folder)
            kept = 3 if torn == line[:-1] else 2
            self.assertEqual((note.returncode, note.stdout), (0, kept * line), note.stderr)
            self.assertEqual("night.jsonl:3: an incomplete sample is left out" in note.stderr, kept == 2)
            self.top("--record", night, "--count", 1)
            self.assertEqual(len(self.top("--replay", night, "--json").splitlines()), kept + 1)
        night.write_text("my notes")
        self.assertIn("does not end with a recorded sample", self.top("--record", night, "--count", 1, code=2))
        self.assertEqual(night.read_text(), "my notes")

    def test_numbers_that_are_none_are_refused_with_a_range_that_can_be_read(self):
        for bad in ("nan", "inf", "0"):
            self.assertIn(f"--interval: expected a number from 0.1 to 3600, found '{bad}'", self.top("--interval", bad, code=2))
        self.assertIn("--count: expected a number from 0 on, found '-1'", self.top("--count=-1", code=2))

    @not_sanitized("a training takes more memory than its plan")
    def test_a_training_shows_its_steps_beside_its_plan(self):
        recipe = self.folder / "steps.yaml"
        recipe.write_text(json.dumps({
            "model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "precision": "fp32",
            "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": 48}, "batch": {"effective": 8},
            "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": 12, "warmup": 1}, "output": "steps"}))
        self.queue("add", recipe, "--threads", 1)
        self.run_all("--memory", "1GiB", "--threads", 1)
        run = self.once()["runs"][0]
        self.assertEqual((run["state"], run["progress"]["step"], run["progress"]["steps"]), ("done", 12, 12))
        self.assertLessEqual(run["progress"]["planned_bytes"], run["reserved_host_bytes"])
        self.assertGreater(run["progress"]["step_seconds"], 0)
        self.assertLessEqual(run["peak_host_bytes"], run["reserved_host_bytes"])
        self.assertIn("12/12", self.top())


class FullScreen(TopTest):
    def screen(self, *words, lines=30, columns=120):
        """The program at a terminal of that size: its process and the terminal's other end."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        process = subprocess.Popen([str(PLIMSOLL), "top", "--interval", "0.2", *words], stdin=theirs, stdout=theirs, cwd=self.folder,
                                   stderr=subprocess.PIPE, env={**self.environment, "TERM": "xterm", "LC_ALL": "C.UTF-8"}, start_new_session=True)
        os.close(theirs)
        self.addCleanup(os.close, ours)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        return process, ours

    def until(self, terminal, text):
        """Only what changes is drawn: Ctrl-L has all of it drawn again."""
        end, seen = time.monotonic() + SECONDS, ""
        while text not in seen and time.monotonic() < end:
            os.write(terminal, b"\x0c")
            seen, enough = "", time.monotonic() + 1
            while text not in seen and time.monotonic() < enough:
                if not select.select([terminal], [], [], 0.1)[0]:
                    continue
                try:
                    seen += os.read(terminal, 65536).decode(errors="replace")
                except OSError:  # its other end is closed
                    break
        self.assertTrue(text in seen, f"{text!r} was never on the screen: {seen[-3000:]!r}")

    def test_keys_choose_show_the_log_cancel_and_leave(self):
        self.waiting_run("chosen", memory="100MiB")
        self.addCleanup(self.worker("--memory", "500MiB").stdout.close)
        self.eventually((self.folder / "chosen-started").exists, "it never started")
        process, terminal = self.screen()
        self.until(terminal, "chosen")
        os.write(terminal, b"l")
        self.until(terminal, "here is chosen")
        os.write(terminal, b"q")
        self.until(terminal, "q: leave")
        os.write(terminal, b"/nothing\n")
        self.until(terminal, "no run has 'nothing'")
        os.write(terminal, b"/\x1b")
        self.until(terminal, "chosen")
        os.write(terminal, b"s")
        self.until(terminal, "s: sort (used)")
        os.write(terminal, b"c")
        self.until(terminal, "y/n")
        os.write(terminal, b"n")
        self.until(terminal, "q: leave")
        self.assertFalse(self.show(1)["state"] == "canceled")
        os.write(terminal, b"cy")
        self.eventually(lambda: self.show(1)["state"] == "canceled", "it was not canceled")
        os.write(terminal, b" q")
        self.assertEqual(process.wait(SECONDS), 0)

    def test_many_devices_leave_room_for_the_runs(self):
        self.add("true", memory="512MiB", host_memory="900MiB", devices=2, name="seen")
        cards = [word for i in range(8) for word in ("--device", f"GPU-{i}=1GiB")]
        self.addCleanup(self.worker("--memory", "500MiB", *cards).stdout.close)
        self.eventually(lambda: "GPU-7" in self.top(), "no worker came")
        self.assertIn("2 x 512 MiB + 900 MiB", self.top())
        process, terminal = self.screen(lines=18, columns=80)
        self.until(terminal, "seen")
        os.write(terminal, b"q")
        self.assertEqual(process.wait(SECONDS), 0)

    def test_a_recording_is_looked_at_on_the_screen_and_cancels_nothing(self):
        self.add("true", memory="1MiB", name="kept")
        self.top("--record", "night.jsonl", "--count", 2, "--interval", 0.1)
        process, terminal = self.screen("--replay", "night.jsonl")
        self.until(terminal, "kept")
        os.write(terminal, b"cyq")
        self.assertEqual(process.wait(SECONDS), 0)
        self.assertEqual(self.show(1)["state"], "waiting")

    def test_a_signal_puts_the_terminal_back(self):
        process, terminal = self.screen()
        self.until(terminal, "queue is empty")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(SECONDS), 0)
        seen = ""
        try:
            while select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # its other end is closed
            pass
        self.assertTrue("\033[?1049l" in seen, "the other screen is not left")


if __name__ == "__main__":
    main()
