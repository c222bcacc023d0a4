#!/usr/bin/env python3
"""Cards that are not there, by a management library of our own (tests/fake_nvml.cc): plimsoll devices, the queue that packs
runs on them, and top. python3 tests/devices_test.py PLIMSOLL FAKE_NVML"""
import contextlib
import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import unittest
from pathlib import Path

from command_run import PLIMSOLL, built_library, not_sanitized, output
from queue_case import MIB, SECONDS, QueueTest
from shard import SuiteLoader
from small_models import LLAMA, tiny_recipe

LIBRARY = built_library("fake_nvml")
HAS_MPI = (PLIMSOLL.parent / "libplimsoll_mpi.so").exists() and shutil.which("mpirun")
# Copies between processes may be forbidden where tests run.
os.environ.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
A, B = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "ab")
# Says where it is and waits until it is allowed to end.
WAITS = 'echo "$CUDA_VISIBLE_DEVICES" > {0}-started; while [ ! -e go-{0} ]; do sleep 0.02; done'


class DevicesTest(QueueTest):
    def setUp(self):
        super().setUp()
        self.cards = self.folder / "cards"
        self.environment |= {"PLIMSOLL_NVML": str(LIBRARY), "FAKE_NVML": str(self.cards), "PLIMSOLL_NVML_SECONDS": "60,0.1", "COLUMNS": "250"}
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            self.environment.pop(name, None)
        self.tell()

    def tell(self, a="", b="", used_a=0, used_b=0, total=1000 * MIB, first=""):
        """What the driver says from now on: of two cards, with lines of their own."""
        new = self.folder / "cards.new"
        new.write_text(f"{first}\ncard {A} {total} {used_a}\nname Fake 9000\n{a}\ncard {B} {total} {used_b}\nname Fake 9000\n{b}\n")
        os.replace(new, self.cards)

    def devices(self, *words, **changes):
        return output("devices", *words, env={**self.environment, **changes}, cwd=self.folder)

    def waiting_run(self, name, mib):
        return self.add("sh", "-c", WAITS.format(name), name=name, devices=1, memory=f"{mib}MiB", host_memory="20MiB")

    def where(self, name):
        started = self.folder / f"{name}-started"
        self.eventually(lambda: started.exists() and started.read_text(), f"{name} never started")
        return started.read_text().strip()

    def process_of(self, entry):
        """One that the run started."""
        supervisor = self.supervisor(entry)
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
        return int(self.eventually(lambda: children.read_text().split(), "it started nothing")[0])

    def noted(self, entry, text):
        self.eventually(lambda: text in self.show(entry)["note"], f"the note of {entry} never said '{text}'")

    def top(self, *words):
        return output("top", "--once", *words, env=self.environment, cwd=self.folder)

    def device_in_top(self, name):
        return next(one for one in json.loads(self.top("--json"))["devices"] if one["name"] == name)


class Listed(DevicesTest):
    def test_cards_are_listed_with_who_has_them(self):
        self.tell(a=f"process {os.getpid()} {100 * MIB}\nprocess 1 -", b="mig", used_a=300 * MIB, first="driver 550.7")
        text = self.devices()
        for part in ("cpu:0", "NVIDIA driver 550.7", "GPU-aaaaaaaa", "Fake 9000", "1000 MiB", "300 MiB", "700 MiB", "100 MiB",
                     "unknown", "python3", "MIG"):
            self.assertIn(part, text)
        root = json.loads(self.devices("--json"))
        self.assertGreater(root["cpu"]["threads"], 0)
        self.assertGreater(root["cpu"]["memory_bytes"], root["cpu"]["free_bytes"])
        first, second = root["gpus"]
        self.assertEqual((first["uuid"], first["used_bytes"], first["free_bytes"]), (A, 300 * MIB, 700 * MIB))
        self.assertEqual(first["processes"], [{"pid": os.getpid(), "bytes": 100 * MIB}, {"pid": 1, "bytes": None}])
        self.assertTrue(second["mig"])

    def test_a_build_without_cuda_says_so_where_a_card_is(self):
        root = json.loads(self.devices("--json"))
        told = "this program was built without CUDA"
        self.assertEqual(told in self.devices(PLIMSOLL_EMULATED_CARDS="0"), not root["built_with_cuda"])
        self.assertNotIn(told, self.devices(PLIMSOLL_NVML="libno-such-library.so.1"))

    def test_without_a_driver_it_says_what_is_missing_and_names_the_cpu(self):
        text = self.devices(PLIMSOLL_NVML="libno-such-library.so.1")
        self.assertIn("no GPU: there is no NVIDIA driver", text)
        self.assertIn("The CPU is what there is", text)
        self.assertFalse(json.loads(self.devices("--json", PLIMSOLL_NVML="libno-such-library.so.1"))["installed"])
        self.tell(first="init 18")
        self.assertIn("restart the machine", self.devices())
        self.assertIn("restart the machine", self.run_all())

    def test_what_hangs_and_what_is_lost_is_said(self):
        self.tell(a="error 15", b="error 18")
        text = self.devices()
        self.assertIn("is lost", text)
        self.assertIn("does not answer: Fake Error", text)
        self.tell(a="hang 600")
        self.assertRegex(self.devices(PLIMSOLL_NVML_SECONDS="0.2"), "GPU-aaaaaaaa .* does not answer")
        self.tell(first="sleep 600")
        self.assertIn("no GPU: the NVIDIA driver does not answer", self.devices(PLIMSOLL_NVML_SECONDS="0.1"))
        self.assertIn("PLIMSOLL_NVML_SECONDS", output("devices", code=2, env={**self.environment, "PLIMSOLL_NVML_SECONDS": "x"}))

    def test_names_steer_no_terminal(self):
        self.tell(a="name \\x1b[2J\\x0aX\\xff")
        self.assertIn("\\u001b[2J\\nX\ufffd", self.devices())
        self.assertIn("\\u001b[2J\\nX", self.top())
        for text in (self.devices(), self.top()):
            self.assertNotIn("\033", text)


    def test_a_library_that_is_not_built_is_named_at_once(self):
        """No test could end: each would wait for cards that nobody reports."""
        for named, says in (([self.folder / "libfake_nvml.so"], "libfake_nvml.so is not there"), ([], "libfake_nvml.so is not named")):
            done = subprocess.run([sys.executable, __file__, PLIMSOLL, *named], text=True, capture_output=True, timeout=SECONDS)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertIn("ninja -C build fake_nvml", done.stderr)


class Packed(DevicesTest):
    def test_runs_are_packed_on_two_cards_by_uuid_with_their_peaks(self):
        first, second = self.waiting_run("first", 600), self.waiting_run("second", 600)
        third = self.waiting_run("third", 300)
        worker = self.worker("--until-done", "--memory", "1GiB", "--threads", 8)
        places = {name: self.where(name) for name in ("first", "second", "third")}
        self.assertEqual({places["first"], places["second"]}, {A, B})
        self.assertIn(places["third"], (A, B))
        pids = [self.process_of(one) for one in (first, second)]
        lines = {places["first"]: f"process {pids[0]} {500 * MIB}", places["second"]: f"process {pids[1]} {650 * MIB}\nprocess 1 -"}
        self.tell(a=lines[A], b=lines[B], used_a=700 * MIB, used_b=700 * MIB)
        self.eventually(lambda: self.show(second)["attempts"][0]["peak_device_bytes"] == 650 * MIB, "no peak was seen")
        self.assertEqual(self.show(first)["attempts"][0]["peak_device_bytes"], 500 * MIB)
        self.assertIn("took 650 MiB on a card, more than it reserved", self.queue("list"))
        self.assertIn("took 650 MiB on a card, more than it reserved", self.top())
        device = self.device_in_top(places["second"])
        self.assertEqual((device["used_bytes"], device["others_bytes"], device["memory_used_bytes"]), (650 * MIB, 50 * MIB, 700 * MIB))
        self.assertEqual([(one["pid"], one["bytes"]) for one in device["processes"]], [(1, None)])
        table = self.top()
        self.assertRegex(table, r"GPU-aaaaaaaa +950 MiB")
        self.assertRegex(table, r"1 +\S+ +GPU-\w+ +unknown")
        for name in places:
            (self.folder / f"go-{name}").touch()
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 0, text)
        self.assertIn("GPU-aaaaaaaa Fake 9000: 950 MiB of 1000 MiB", text)
        self.assertIn("on a card 650 MiB", text)
        self.assertEqual(self.show(third)["state"], "done")
        self.assertEqual(self.show(second)["attempts"][0]["peak_device_bytes"], 650 * MIB)
        # What it took there is reserved the next time.
        again = self.show(self.add("sh", "-c", WAITS.format("second"), devices=1, host_memory="20MiB"))
        self.assertEqual(again["device_bytes"], 650 * MIB + 65 * MIB)
        more = self.show(self.add("sh", "-c", WAITS.format("second"), devices=1, memory="100MiB", host_memory="20MiB"))
        self.assertEqual(more["device_bytes"], again["device_bytes"], "100 MiB have been too little")

    def test_after_memory_ran_out_a_run_has_what_others_leave_of_the_card_and_then_its_next_step(self):
        self.tell(a=f"process 1 {200 * MIB}", b="mig", used_a=200 * MIB)
        fails = 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB."; exit 1'
        entry = self.add("sh", "-c", f'test "$BS" = 2 || {{ {fails}; }}', devices=1, memory="600MiB", host_memory="20MiB",
                         env="BS=4", on_oom="BS=2")
        self.run_all("--memory", "1GiB")
        shown = self.show(entry)
        self.assertEqual((shown["state"], [one["device_bytes"] // MIB for one in shown["attempts"]]), ("done", [600, 750, 750]))

    def test_the_headroom_of_each_card_is_stated(self):
        entries = [self.add("sh", "-c", "true", name=name, devices=1, memory=f"{mib}MiB", host_memory="20MiB") for name, mib in (("a", 800), ("b", 990))]
        text = self.run_all("--memory", "1GiB", "--headroom", "20%,0")
        self.assertIn("GPU-aaaaaaaa Fake 9000: 800 MiB of 1000 MiB", text)
        self.assertEqual([self.show(one)["attempts"][0]["devices"] for one in entries], [[A], [B]])
        self.add("sh", "-c", "true", devices=1, memory="901MiB", host_memory="20MiB")
        self.run_all("--memory", "1GiB", "--headroom", "0.1")
        self.assertIn("the largest has 900 MiB", self.show(3)["note"])
        for wrong, why in (("1", "a share below 1"), ("x%", "a share below 1"), ("1%,2%,3%", "the machine has 2 cards")):
            self.assertIn(why, self.queue("run", "--until-done", "--headroom", wrong, code=2))
        self.assertIn("--device states", self.queue("run", "--headroom", "5%", "--device", "0=1GiB", code=2))
        self.assertIn('"--headroom" "20%%,0"', self.queue("unit", "--headroom", "20%,0"))

    def test_a_raised_reservation_moves_on_where_others_came_meanwhile_and_the_worker_ends(self):
        """Attempt 2 waits for a neighbour; when that is gone, others have the card."""
        fails = 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB."; exit 1'
        self.tell(b="mig")
        neighbour = self.waiting_run("neighbour", 350)
        steps = self.add("sh", "-c", f'test "$BS" = 2 || {{ {fails}; }}', devices=1, memory="550MiB", host_memory="20MiB", env="BS=4", on_oom="BS=2")
        ends = self.add("sh", "-c", fails, devices=1, memory="500MiB", host_memory="20MiB", after=neighbour, retries=5)
        asked = self.add("true", devices=1, memory="700MiB", host_memory="20MiB")
        worker = self.worker("--until-done", "--patience", "2s", "--memory", "1GiB", "--threads", 8)
        self.where("neighbour")
        self.eventually(lambda: self.show(steps)["device_bytes"] > 550 * MIB, "it was not raised")
        self.tell(a=f"process 1 {400 * MIB}", b="mig", used_a=400 * MIB)
        time.sleep(0.5)  # the driver is asked five times
        (self.folder / "go-neighbour").touch()
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 0, text)
        shown = self.show(steps)
        self.assertEqual((shown["state"], [one["device_bytes"] // MIB for one in shown["attempts"]]), ("done", [550, 550]), text)
        self.assertIn("others leave it no more than it ran out with; next attempt: --on-oom BS=2", shown["attempts"][0]["outcome"])
        self.assertEqual(self.show(asked)["state"], "held", "it was never raised: it waits until others are gone, as long as the worker does")
        self.assertRegex(self.show(asked)["note"], r"held after 2\.00 s: no device with 700 MiB beside what others use; plimsoll queue resume")
        shown = self.show(ends)
        self.assertEqual((shown["state"], [one["device_bytes"] // MIB for one in shown["attempts"]]), ("failed", [500, 550]), text)
        self.assertIn("there is no more to reserve", shown["note"])

    def test_what_others_use_is_taken_off_and_given_when_they_are_gone(self):
        self.tell(a=f"process 1 {800 * MIB}", b="no-processes", used_a=800 * MIB, used_b=900 * MIB)
        entry = self.waiting_run("late", 500)
        self.worker("--memory", "1GiB")
        self.noted(entry, "no device with 500 MiB beside what others use")
        self.assertEqual(self.show(entry)["state"], "waiting")
        self.tell(used_b=900 * MIB)
        self.assertEqual(self.where("late"), A)

    def test_a_card_that_does_not_answer_takes_nothing_new_and_is_used_again_when_it_does(self):
        self.environment["PLIMSOLL_NVML_SECONDS"] = "1,0.1"
        stays = self.waiting_run("stays", 600)
        worker = self.worker("--until-done", "--memory", "1GiB", "--threads", 8)
        kept = self.where("stays")
        self.assertIn(kept, (A, B))
        one_fails = {"a": {"a": "hang 2", "b": "error 15"}, "b": {"a": "error 15", "b": "hang 2"}}["a" if kept == A else "b"]
        self.tell(**one_fails)
        self.eventually(lambda: self.queue("list").count("nothing new starts there") == 2, "list never said so")
        waits = self.waiting_run("waits", 300)
        self.noted(waits, "is lost")
        self.noted(waits, "does not answer")
        self.assertEqual(self.show(stays)["state"], "running")
        self.assertRegex(self.queue("show", stays), f"device +{kept} does not answer")
        self.assertIn("does not answer; nothing new starts there", self.top())
        listed = json.loads(self.queue("list", "--json"))["devices"]
        self.assertTrue(all(one["problem"] for one in listed))
        self.assertEqual({one["name"] for one in listed}, {A, B})
        self.tell()
        self.assertIn(self.where("waits"), (A, B))
        for name in ("stays", "waits"):
            (self.folder / f"go-{name}").touch()
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 0, text)
        self.assertIn("answers again", text)

    def test_a_driver_that_answers_late_has_its_cards_used_when_it_does(self):
        self.environment["PLIMSOLL_NVML_SECONDS"] = "0.2,0.1"
        self.tell(first="sleep 600")
        entry = self.waiting_run("late", 300)
        worker = self.worker("--memory", "1GiB", "--until-done")
        self.noted(entry, "waits: no device with 300 MiB")
        self.environment["PLIMSOLL_NVML_SECONDS"] = "60,0.1"
        self.tell()
        self.assertIn(self.where("late"), (A, B))
        (self.folder / "go-late").touch()
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertIn("no GPU: the NVIDIA driver does not answer", text)
        self.assertEqual(self.show(entry)["state"], "done")

    def test_where_the_driver_does_not_say_who_has_what_the_greater_of_reserved_and_used_counts(self):
        self.tell(b="mig")
        first = self.waiting_run("first", 400)
        self.worker("--memory", "1GiB", "--threads", 8)
        self.where("first")
        self.tell(a=f"process {self.process_of(first)} -", b="mig", used_a=450 * MIB)
        self.eventually(lambda: self.device_in_top(A)["memory_used_bytes"] == 450 * MIB, "it was never in use")
        self.assertIsNone(self.device_in_top(A)["used_bytes"])
        time.sleep(0.5)
        large = self.waiting_run("large", 520)
        self.noted(large, "no room on 1 device")
        self.queue("cancel", large)
        self.waiting_run("fits", 500)
        self.assertEqual(self.where("fits"), A)
        self.assertIsNone(self.show(first)["attempts"][0]["peak_device_bytes"], "it is not known")

    def test_what_the_worker_may_see_and_what_is_stated_bounds_it(self):
        self.environment["CUDA_VISIBLE_DEVICES"] = "GPU-b"
        self.waiting_run("only", 300)
        (self.folder / "go-only").touch()
        text = self.run_all("--memory", "1GiB", "--gpu-plan", 1)
        self.assertEqual(self.where("only"), B)
        self.assertNotIn("GPU-aaaaaaaa", text)
        self.assertIn("1 runs at most", text)
        unit = self.queue("unit", "--gpu-plan", 1)
        self.assertIn('Environment="CUDA_VISIBLE_DEVICES=GPU-b"', unit)
        self.assertIn("one number for each device, 1 in all", self.queue("unit", "--gpu-plan", "1,1", code=2))
        self.waiting_run("stated", 300)
        (self.folder / "go-stated").touch()
        self.run_all("--memory", "1GiB", "--device", "0=400MiB")
        self.assertEqual(self.where("stated"), A, "numbers of the driver are UUIDs to the queue")
        large = self.waiting_run("large", 500)
        self.run_all("--memory", "1GiB", "--device", "0=400MiB")
        self.assertEqual(self.show(large)["state"], "held")
        self.environment["CUDA_VISIBLE_DEVICES"] = "7,0"
        self.assertIn("'7' is no card here", self.run_all("--memory", "1GiB"))

    def test_queues_of_a_machine_share_cards_by_uuid(self):
        self.tell(b="mig")
        self.waiting_run("mine", 600)
        self.worker("--memory", "1GiB")
        self.where("mine")
        own = self.environment
        self.environment = {**own, "PLIMSOLL_QUEUE_DIR": str(self.folder / "other"), "CUDA_VISIBLE_DEVICES": "0"}
        try:
            theirs, small = self.waiting_run("theirs", 500), self.waiting_run("small", 300)
            self.worker("--memory", "1GiB")
            self.assertEqual(self.where("small"), A)
            self.assertEqual(self.show(theirs)["state"], "waiting")
            for name in ("mine", "small", "theirs"):
                (self.folder / f"go-{name}").touch()
            self.eventually(lambda: self.show(theirs)["state"] == "done", "the room was never given back")
        finally:
            self.environment = own


def weights(folder):
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


class EmulatedCards(DevicesTest):
    """The stand-in library names cards, the emulated card computes in their place."""
    RTX, T4 = "NVIDIA GeForce RTX 3060", "Tesla T4"
    SIZE = {RTX: 12288 * MIB, T4: 15360 * MIB}

    def setUp(self):
        super().setUp()
        self.environment |= {"PLIMSOLL_EMULATED_CARDS": "1", "PLIMSOLL_NO_PROBE": "1", "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")}

    def cards_are(self, *cards):
        """Each a name, with lines of its own behind a comma; the first is A."""
        lines = []
        for uuid, card in zip((A, B), cards, strict=False):
            name, _, more = card.partition(",")
            used = 0
            for word, value in (one.split(" ", 1) for one in more.split(",") if one.startswith("used ")):
                used = int(value) * MIB
            lines += [f"card {uuid} {self.SIZE.get(name, 8192 * MIB)} {used}", f"name {name}",
                      *(one for one in more.split(",") if one and not one.startswith("used "))]
        new = self.folder / "cards.new"
        new.write_text("\n".join(lines) + "\n")
        os.replace(new, self.cards)

    def without_precision(self, name, **settings):
        path = tiny_recipe(self.folder, LLAMA, name, **{"schedule": {"max_steps": 2, "warmup": 1}, **settings})
        content = json.loads(path.read_text())
        del content["precision"]
        path.write_text(json.dumps(content))
        return path

    def told(self, *words, code=0, **changes):
        """What a command says on standard error; each line of it that names a card says that it is emulated."""
        done = subprocess.run([str(PLIMSOLL), *map(str, words)], env={**self.environment, **changes}, cwd=self.folder,
                              capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if {**self.environment, **changes}.get("PLIMSOLL_EMULATED_CARDS"):
            for line in (done.stdout + done.stderr).splitlines():
                if "RTX 3060" in line or "T4" in line:
                    self.assertIn("emulated", line)
        return done.stderr

    def kernels(self, name):
        return json.loads((self.folder / name / "run.json").read_text())["kernels"]


@not_sanitized("the emulated card's fibers")
class Trained(EmulatedCards):
    def test_auto_takes_the_card_with_the_most_free_memory_and_says_which(self):
        self.cards_are(self.RTX + ",used 9000", self.RTX + ",used 2000")
        recipe = self.without_precision("run")
        said = "device  cuda:1, NVIDIA GeForce RTX 3060 (emulated), 10.0 GiB free"
        self.assertIn(said, self.told("plan", recipe))
        self.assertEqual(json.loads(output("plan", recipe, "--json", env=self.environment))["device"]["gpu"], "RTX 3060 12GB (emulated)")
        self.assertIn(said, self.told("train", recipe))
        self.assertIn("emulated card", self.kernels("run"))
        self.assertEqual(json.loads((self.folder / "run/run.json").read_text())["card"]["name"], "RTX 3060 12GB (emulated)")
        self.assertRegex((self.folder / "run/recipe.yaml").read_text(), f'(?m)^device: "?cuda:{B}')
        self.assertFalse(list((self.folder / "cache").glob("card-*")), "what the emulated card takes is none of the real one's")
        self.assertIn("cuda:0, NVIDIA", self.told("plan", recipe, CUDA_VISIBLE_DEVICES=B))
        for hidden in ("", "-1"):
            self.assertEqual(self.told("plan", recipe, CUDA_VISIBLE_DEVICES=hidden), "")
        self.assertEqual(self.told("plan", recipe, "--device", "cpu"), "")
        self.assertEqual(self.told("plan", recipe, PLIMSOLL_NVML="libno-such-library.so.1"), "")
        # What is more than the card has was said for the CPU.
        self.assertIn(said, self.told("plan", recipe, "--memory", "64GiB"))

    def test_a_card_that_cannot_be_used_is_named_with_the_reason_and_the_cpu_trains(self):
        recipe = self.without_precision("run")
        for card, reason in ((self.RTX + ",error 15", "it is lost"), (self.RTX + ",mig", r"cut into instances \(MIG\)"),
                             ("GeForce GTX 1080", "GTX 1080")):
            self.cards_are(card)
            self.assertRegex(self.told("plan", recipe), f"device  cpu, as .* \\(emulated\\) cannot be used: .*{reason}")
        self.cards_are(self.RTX + ",mig", self.RTX + ",used 11000")
        self.assertIn("cuda:1, NVIDIA", self.told("plan", recipe))
        self.cards_are(self.RTX)
        self.assertRegex(self.told("plan", recipe, "--devices", "2"), r"device  cpu, as 2 processes need a card each, and of the RTX 3060 12GB \(emulated\) there is 1")
        # Without the stand-in for CUDA: no build of this machine can use a card that is not there.
        self.cards_are(self.RTX)
        self.assertRegex(self.told("train", recipe, PLIMSOLL_EMULATED_CARDS=""), f"device  cpu, as {self.RTX} cannot be used: (this program was built without|no NVIDIA driver)")
        self.assertNotIn("emulated", self.kernels("run"))
        self.told("train", recipe, "--device", "cuda", "--overwrite", code=2, PLIMSOLL_EMULATED_CARDS="")

    def test_a_card_without_room_leaves_the_run_to_the_cpu_and_device_cuda_refuses(self):
        self.cards_are(self.RTX + ",used 12200")
        recipe = self.without_precision("run")
        said = "device  cpu, as the recipe does not fit the card: device needs"
        self.assertIn(said, self.told("plan", recipe))
        self.assertIn(said, self.told("train", recipe))
        self.assertNotIn("emulated", self.kernels("run"))
        for command in ("plan", "train"):
            self.told(command, recipe, "--device", "cuda", "--set", "output=other", code=3)

    def test_a_run_goes_on_where_it_began(self):
        self.cards_are(self.RTX)
        longer = ("--resume", "--set", "schedule.max_steps=3")
        # As an earlier version began it, whose auto was the CPU.
        recipe = self.without_precision("old")
        self.told("train", recipe, CUDA_VISIBLE_DEVICES="")
        self.assertIn("device: auto", (self.folder / "old/recipe.yaml").read_text())
        told = self.told("train", recipe, *longer)
        self.assertIn("device  cpu, where the run began", told)
        self.assertNotIn("emulated", self.kernels("old"))
        self.assertNotIn("saved with", told)
        recipe = self.without_precision("new")
        self.told("train", recipe)
        self.assertIn("the run began on a card (RTX 3060 12GB)", self.told("train", recipe, *longer, code=2, CUDA_VISIBLE_DEVICES="", PLIMSOLL_EMULATED_CARDS=""))
        self.assertIn("device  cuda:0, NVIDIA", self.told("train", recipe, *longer))
        self.assertIn("emulated card", self.kernels("new"))
        self.assertIn("saved with emulated card", self.told("train", recipe, "--resume", "--set", "schedule.max_steps=4", "--device", "cpu"))

    def test_a_recipe_that_states_no_precision_takes_fp16_on_a_card_without_bf16(self):
        self.cards_are(self.T4)
        recipe = self.without_precision("run")
        said = "note    precision: fp16, as the T4 16GB (emulated) does not compute in bf16"
        self.assertIn(said, self.told("plan", recipe))
        self.assertIn(said, self.told("train", recipe))
        saved = (self.folder / "run/recipe.yaml").read_text()
        self.assertRegex(saved, r"(?m)^precision: fp16|weights: fp16")
        self.told("train", recipe, "--resume", "--set", "schedule.max_steps=3")
        # Stated, it is the recipe's.
        self.assertRegex(self.told("plan", recipe, "--precision", "bf16"), r"cpu, as Tesla T4 \(emulated\) cannot be used: .*does not compute in bf16")
        self.assertNotIn("fp16", self.told("plan", recipe, "--precision", "fp32"))
        # The same of a card elsewhere; with bf16 nothing is new.
        named = dict(CUDA_VISIBLE_DEVICES="", PLIMSOLL_EMULATED_CARDS="")
        self.assertIn("precision: fp16, as the RTX 2080 8GB does not", self.told("plan", recipe, "--gpu", "RTX 2080", **named))
        self.assertEqual(self.told("plan", recipe, "--gpu", "RTX 3060", **named), "")

    def test_train_takes_a_card_by_its_name_or_says_what_is_here(self):
        self.cards_are(self.T4, self.RTX)
        recipe = self.without_precision("run")
        self.assertIn("device  cuda:1, NVIDIA GeForce RTX 3060 (emulated)", self.told("train", recipe, "--gpu", "3060"))
        refused = self.told("train", recipe, "--gpu", "RTX 4090", "--overwrite", code=2)
        for part in ("no RTX 4090 24GB here", "Tesla T4 (emulated) (GPU-aaaaaaaa)", "`plimsoll plan` is for cards elsewhere"):
            self.assertIn(part, refused)
        command = shlex.split(refused.splitlines()[-1])
        self.assertEqual(command[:2], ["plimsoll", "train"])
        self.told(*command[1:], "--overwrite")
        self.assertIn("device: card describes a card that is elsewhere", self.told("train", recipe, "--device", "card", code=2))
        # Without a card, and with the name in the file.
        content = {**json.loads(recipe.read_text()), "memory": {"gpu": "RTX 4090"}}
        recipe.write_text(json.dumps(content))
        refused = self.told("train", recipe, "--overwrite", code=2, CUDA_VISIBLE_DEVICES="")
        self.assertIn("what is here: the CPU", refused)
        self.told(*shlex.split(refused.splitlines()[-1])[1:], "--overwrite", CUDA_VISIBLE_DEVICES="")


@not_sanitized("the emulated card's fibers")
class RecipesOnCards(EmulatedCards):
    """The queue plans recipes for cards, packs them by bytes and runs each on one card."""
    BESIDE = 150 * MIB  # that the stand-in driver has beside each arena

    def setUp(self):
        super().setUp()
        self.held_folder = self.folder / "held"
        self.held_folder.mkdir()
        self.environment["PLIMSOLL_EMULATED_MEMORY"] = str(self.held_folder)

    def cards_of(self, cards, lines=""):
        """UUIDs by the name of their models and MiB of memory, and what else the driver says of each card."""
        text, uuids = f"emulated {self.BESIDE}\n", []
        for number, (name, mib, *used) in enumerate(cards):
            uuids.append(f"GPU-{number:08d}-1111-2222-3333-444444444444")
            text += f"card {uuids[-1]} {mib * MIB} {sum(used) * MIB}\nname {name}\n{lines}\n"
        new = self.folder / "cards.new"
        new.write_text(text)
        os.replace(new, self.cards)
        return uuids

    def tiny(self, name, steps=2, **settings):
        return tiny_recipe(self.folder, LLAMA, name, **{"batch": {"effective": 2, "micro": 1}, "data": {"max_length": 16},
                                               "schedule": {"max_steps": steps, "warmup": 1}, **settings})

    def add_recipe(self, recipe, *words):
        return json.loads(self.queue("add", recipe, "--json", *words))

    def test_a_recipe_is_planned_for_each_unlike_card_and_runs_on_the_one_that_it_got(self):
        rtx, t4 = self.cards_of([(self.RTX, 12288), (self.T4, 15360)])
        recipe = self.tiny("run")
        said = self.queue("add", recipe, "--priority", 5)
        self.assertRegex(said, r"added 1 run: \d+ MiB on RTX 3060 12GB \(emulated\) or \d+ MiB on T4 16GB \(emulated\), \d+ MiB on the host, 1 thread")
        first = self.show(1)
        plan = json.loads(output("plan", recipe, "--gpu", "RTX 3060 12GB", "--memory", "11GiB", "--threads", 1, "--json", env=self.environment))
        self.assertEqual((first["devices"], first["card"], first["threads"]), (1, "RTX 3060 12GB", 1))
        self.assertEqual(first["device_bytes"], plan["device"]["arena_bytes"] + plan["device"]["outside_bytes"])
        self.assertEqual(first["host_bytes"], plan["host"]["planned_peak_bytes"])
        self.assertEqual([one["card"] for one in first["smaller_plans"]], ["T4 16GB"])
        self.assertIn("for RTX 3060 12GB", self.queue("show", 1))
        # One whose fastest card is taken off has its plan for the other one.
        self.add_recipe(recipe, "--set", f"output={self.folder / 'other'}", "--after", 1)
        self.run_all("--memory", "8GiB", "--threads", 2)
        first, second = self.show(1), self.show(2)
        self.assertEqual((first["state"], second["state"]), ("done", "done"), first["note"] + second["note"])
        self.assertEqual(first["attempts"][0]["devices"], [rtx])
        self.assertIn("emulated card", self.kernels("run"))
        self.assertRegex((self.folder / "run/recipe.yaml").read_text(), r'(?m)^device: cuda$')
        self.assertIn(f"memory.device={first['device_bytes']}", first["attempts"][0]["words"])
        self.add_recipe(recipe, "--set", f"output={self.folder / 'third'}")
        text = self.run_all("--memory", "8GiB", "--threads", 2, "--device", f"{t4}=2GiB")
        self.assertIn("its plan for the T4 16GB", text)
        third = self.show(3)
        self.assertEqual((third["state"], third["card"], third["attempts"][0]["devices"]), ("done", "T4 16GB", [t4]))
        self.assertEqual(weights(self.folder / "run"), weights(self.folder / "other"))

    def promised_and_held(self):
        """Of each card, what its runs have reserved and what they have; who runs for a moment is seen before or after."""
        promised = {}
        def look():
            with contextlib.closing(sqlite3.connect(f"file:{self.queue_folder}/queue.db?mode=ro", uri=True, timeout=60)) as database:
                rows = database.execute("SELECT a.entry, a.cards, a.device_bytes FROM attempts a JOIN entries e ON e.id = a.entry "
                                        "WHERE e.state = 3 AND a.number = e.attempts").fetchall()
            for entry, cards, device_bytes in rows:
                for card in json.loads(cards):
                    promised[entry, card] = device_bytes
        look()
        held = {}
        for file in self.held_folder.iterdir():
            with contextlib.suppress(OSError, ValueError):
                taken, visible = file.read_text().split()
                card = visible.partition(",")[0]
                if Path(f"/proc/{file.name}/environ").read_bytes():  # of one that was killed it is empty
                    held[card] = held.get(card, 0) + int(taken) + self.BESIDE
        look()
        sums = {}
        for (_, card), device_bytes in promised.items():
            sums[card] = sums.get(card, 0) + device_bytes
        return sums, held

    def test_14_runs_on_7_cards_of_two_sizes_stay_within_what_is_promised_and_keep_their_bits(self):
        sizes = [(self.RTX, 470)] * 4 + [(self.T4, 560)] * 2 + [(self.T4, 300)]
        uuids = self.cards_of(sizes)
        room = dict(zip(uuids, (int(mib * MIB * 0.95) for _, mib in sizes), strict=True))
        recipe = self.tiny("run", 4, save={"every": 1})
        names = [f"r{i}" for i in range(14)]
        added = json.loads(self.queue("add", recipe, "--json", "--retries", 5, "--sweep", "output=" + ",".join(str(self.folder / name) for name in names)))["entries"]
        self.assertEqual(len({one["device_bytes"] for one in added}), 1)
        need = added[0]["device_bytes"]
        self.assertLess(2 * need, room[uuids[0]])
        self.assertGreater(3 * need, room[uuids[0]])
        words = ("--memory", "16GiB", "--threads", 14)
        worker = self.worker(*words)
        looks, killed = 0, 0
        def look():
            nonlocal looks
            promised, held = self.promised_and_held()
            looks += bool(held)
            for card, device_bytes in held.items():
                self.assertLessEqual(device_bytes, promised.get(card, 0), f"{card} at look {looks}")
            for card, device_bytes in promised.items():
                self.assertLessEqual(device_bytes, room[card])
            return promised, held
        def begun():
            look()
            return [one for one in range(1, 15) if (self.folder / names[one - 1] / "checkpoint-1").exists() and self.show(one)["state"] == "running"]
        running = self.eventually(begun, "no run made a step")
        worker.kill()
        worker.wait()
        for entry in running[:3]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.supervisor(entry), signal.SIGKILL)
                killed += 1
        for pid in [int(file.name) for file in self.held_folder.iterdir()][-2:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        worker = self.worker("--until-done", *words)
        while worker.poll() is None:
            look()
            time.sleep(0.05)
        text = worker.stdout.read()
        self.assertEqual(worker.returncode, 0, text)
        self.assertGreater(looks, 3)
        shown = [self.show(one["id"]) for one in added]
        self.assertEqual({one["state"] for one in shown}, {"done"}, text)
        self.assertGreater(sum(len(one["attempts"]) for one in shown), 14, f"{killed} were killed")
        self.assertGreater(len({one["attempts"][-1]["devices"][0] for one in shown}), 4)
        alone = {}
        for one in shown:
            self.assertEqual(len({attempt["device_bytes"] for attempt in one["attempts"]}), 1, "a run that goes on keeps its plan")
            if one["card"] not in alone:
                folder = self.folder / f"alone{len(alone)}"
                self.told("train", recipe, "--set", f"output={folder}", "--gpu", one["card"], "--memory", f"{one['device_bytes']}", "--threads", 1)
                alone[one["card"]] = weights(folder)
            self.assertEqual(weights(Path(one["output"])), alone[one["card"]])
        report = json.loads(output("report", "--queue", "--json", env=self.environment))
        for device in report["devices"][1:]:
            self.assertLessEqual(device["most_reserved_bytes"], room[device["name"]])
        self.assertTrue(any(one["peak_device_bytes"] for one in report["attempts"]))

    def test_a_driver_that_lists_no_processes_bounds_runs_by_what_is_reserved_and_a_paused_one_goes_on(self):
        (card,) = self.cards_of([(self.RTX, 470)], "no-processes")
        recipe = self.tiny("run", 40, save={"every": 1})
        folders = [self.folder / f"r{i}" for i in range(3)]
        self.queue("add", recipe, "--sweep", "output=" + ",".join(map(str, folders)))
        worker = self.worker("--until-done", "--memory", "8GiB", "--threads", 8)
        running = self.eventually(lambda: [one for one in (1, 2, 3) if self.show(one)["state"] == "running"
                                           and (folders[one - 1] / "metrics.jsonl").exists()], "no run began")
        self.assertIn("saves and stops", self.queue("pause", running[0]))
        self.eventually(lambda: self.show(running[0])["state"] == "held", "it never stopped")
        self.queue("resume", running[0])
        text, _ = worker.communicate(timeout=SECONDS)
        shown = [self.show(one) for one in (1, 2, 3)]
        self.assertEqual({one["state"] for one in shown}, {"done"}, text)
        self.assertEqual(len(shown[running[0] - 1]["attempts"]), 2)
        self.assertEqual(len({str(weights(folder)) for folder in folders}), 1)
        device = json.loads(output("report", "--queue", "--json", env=self.environment))["devices"][1]
        self.assertEqual((device["name"], device["most_used_bytes"]), (card, None))
        self.assertEqual(device["most_reserved_bytes"], 2 * shown[0]["device_bytes"])
        # A cap of runs counts for recipes too.
        self.queue("add", recipe, "--set", "schedule.max_steps=1", "--sweep", "output=" + ",".join(str(self.folder / f"c{i}") for i in range(2)))
        self.run_all("--memory", "8GiB", "--threads", 8, "--gpu-plan", 1)
        (first,), (second,) = (self.show(one)["attempts"] for one in (4, 5))
        self.assertGreaterEqual(max(first["started"], second["started"]), min(first["ended"], second["ended"]))

    def test_a_run_takes_a_smaller_plan_beside_others_and_the_one_that_was_asked_for(self):
        large = {**LLAMA, "hidden_size": 64, "intermediate_size": 1024, "vocab_size": 8192}
        recipe = tiny_recipe(self.folder, large, "run", batch={"effective": 64}, schedule={"max_steps": 1, "warmup": 1})
        (card,) = self.cards_of([(self.RTX, 700)])
        own = self.add_recipe(recipe)
        others = int(700 * MIB * 0.95) - own["device_bytes"] + 10 * MIB
        self.cards_of([(self.RTX, 700, others // MIB)], f"process 1 {others}")
        plans = [one for one in own["smaller_plans"] if one["card"] == own["card"]]
        self.assertGreater(len(plans), 1)
        text = self.run_all("--memory", "8GiB", "--threads", 2)
        shown = self.show(1)
        self.assertEqual((shown["state"], shown["attempts"][0]["device_bytes"]), ("done", plans[0]["device_bytes"]), text)
        self.assertRegex(text, r"a smaller plan, \d+ MiB on the card: the largest that there is room for")
        # Of each kind of card the plan that was asked for, and no other.
        self.cards_of([(self.RTX, 12288), (self.T4, 15360)])
        answer = self.add_recipe(recipe, "--plan", "a", "--set", "output=other")
        self.assertEqual([one["card"] for one in answer["smaller_plans"]], ["T4 16GB"])
        a, fastest = (answer["presets"][name] for name in ("a", "fastest"))
        self.assertEqual(a, {key: answer[key] for key in ("device_bytes", "host_bytes", "threads", "predicted_seconds")})
        self.assertLessEqual(a["device_bytes"], fastest["device_bytes"])
        # A run computes in one precision wherever it is.
        said = self.told("queue", "add", self.without_precision("open"))
        self.assertIn("note    not on T4 16GB (emulated): the recipe states no precision", said)
        opened = self.show(answer["id"] + 1)
        self.assertEqual((opened["card"], [one["card"] for one in opened["smaller_plans"] if one["card"] != opened["card"]]), ("RTX 3060 12GB", []))
        stated = self.add_recipe(recipe, "--memory", f"{own['device_bytes'] // MIB}MiB", "--host-memory", "2GiB", "--set", "output=third")
        self.assertLessEqual(stated["device_bytes"], own["device_bytes"])
        self.assertEqual([one["card"] for one in stated["smaller_plans"]], ["T4 16GB"])

    def test_what_others_took_meanwhile_makes_a_run_wait_and_never_fail(self):
        (card,) = self.cards_of([(self.RTX, 1000)])
        full = self.folder / "full"
        full.write_text(f"card {card} {1000 * MIB} {990 * MIB}\nname {self.RTX}\n")
        self.add_recipe(self.tiny("run"), "--retries", 0, "--env", f"FAKE_NVML={full}")
        worker = self.worker("--until-done", "--memory", "4GiB", "--threads", 2)
        self.noted(1, "others had taken its room: ")
        self.assertIn("are free on the card", self.show(1)["note"])
        os.replace(self.cards, full)
        self.cards_of([(self.RTX, 1000)])
        text, _ = worker.communicate(timeout=SECONDS)
        shown = self.show(1)
        self.assertEqual((shown["state"], shown["retries"]), ("done", 0), text)
        self.assertGreater(len(shown["attempts"]), 1)

    def test_a_command_that_trains_goes_down_its_ladder_beside_others_and_computes_on_the_card(self):
        settings = {"batch": {"effective": 32, "micro": 1}, "memory": {"recompute": "none", "offload": "none"}, "data": {"max_length": 48}}
        recipe = self.tiny("run", 1, **settings)
        plan = json.loads(output("plan", recipe, "--gpu", "RTX 3060 12GB", "--memory", "11GiB", "--json", env=self.environment))
        left = (plan["device"]["arena_bytes"] + plan["device"]["outside_bytes"]) // MIB + 2
        self.cards_of([(self.RTX, 4096, 4096 - left)], f"process 1 {(4096 - left) * MIB}")
        entry = self.add(PLIMSOLL, "train", recipe, "--device", "cuda", devices=1, memory=f"{left - 1}MiB", host_memory="1GiB",
                         env="PLIMSOLL_SET=batch.micro=32", on_oom="PLIMSOLL_SET=batch.micro=1")
        text = self.run_all("--memory", "4GiB", "--threads", 2, "--headroom", "0")
        shown = self.show(entry)
        self.assertEqual(shown["state"], "done", text)
        self.assertRegex(shown["attempts"][-2]["outcome"], "are free for an arena now.*; next attempt: --on-oom PLIMSOLL_SET=batch.micro=1")
        self.assertIn("emulated card", self.kernels("run"))
        self.assertRegex((self.folder / "run/recipe.yaml").read_text(), r"(?m)^ +micro: 1$")

    def test_the_cpu_takes_what_no_card_can_and_a_card_that_is_asked_for_is_refused_with_the_reason(self):
        self.cards_of([(self.RTX, 12288)], "mig")
        recipe = self.tiny("run")
        self.assertEqual(self.add_recipe(recipe)["devices"], 0)
        self.assertIn("cannot be used", self.told("queue", "add", recipe, "--set", "output=other"))
        self.assertIn("cut into instances", self.told("queue", "add", recipe, "--set", "device=cuda", code=2))
        self.assertIn("and cannot train", self.queue("add", recipe, "--set", "device=card", code=2))
        pair = self.add_recipe(recipe, "--devices", "2", "--set", "output=pair")
        self.assertEqual((pair["devices"], pair["processes"]), (0, 2))
        self.cards_of([(self.RTX, 12288)])
        said = self.told("queue", "add", recipe, "--set", "output=third", PLIMSOLL_EMULATED_CARDS="")
        self.assertRegex(said, "cannot be used: (this program was built without|no NVIDIA driver)")
        self.assertNotIn("choose device: cpu", said)  # nobody asked for a card
        self.assertEqual(self.add_recipe(recipe, "--set", "device=cpu", "--devices", "1", "--set", "output=fourth")["card"], "RTX 3060 12GB")
        self.assertEqual(self.add_recipe(recipe, "--set", "device=cpu", "--set", "output=fifth")["devices"], 0)
        self.assertIn("does not fit", self.queue("add", recipe, "--devices", "1", "--memory", "20MiB", code=3))
        # A card that is elsewhere is waited for.
        far = self.add_recipe(recipe, "--gpu", "RTX 4090", "--set", "output=far")
        self.assertEqual(far["card"], "RTX 4090 24GB")
        self.queue("cancel", *range(1, far["id"]))
        self.run_all("--memory", "4GiB")
        self.assertIn("1 device (RTX 4090 24GB), the queue has 0", self.show(far["id"])["note"])

    def look(self, room):
        """Each process within what its run has reserved of its card, all runs of a card within the card."""
        promised, held = self.promised_and_held()
        for card, device_bytes in held.items():
            self.assertLessEqual(device_bytes, promised.get(card, 0), card)
        for card, device_bytes in promised.items():
            self.assertLessEqual(device_bytes, room[card])
        return held

    def watch(self, worker, room):
        """The cards that held something at once, each time, until the worker ends."""
        seen = set()
        while worker.poll() is None:
            seen.add(frozenset(self.look(room)))
            time.sleep(0.05)
        text = worker.stdout.read()
        self.assertEqual(worker.returncode, 0, text)
        return seen

    @unittest.skipUnless(HAS_MPI, "Open MPI is not installed: scripts/setup.sh --dev")
    def test_a_run_has_two_cards_at_once_beside_runs_on_one_and_goes_on_after_its_processes_are_killed(self):
        uuids = self.cards_of([(self.RTX, 470)] * 3)
        room = dict.fromkeys(uuids, int(470 * MIB * 0.95))
        pair = self.add_recipe(self.tiny("pair", 30, save={"every": 1}), "--devices", 2, "--retries", 5, "--priority", 1)
        self.assertEqual((pair["devices"], pair["processes"], pair["threads"], pair["card"]), (2, 2, 2, "RTX 3060 12GB"))
        singles = [self.add_recipe(self.tiny(f"one{i}", 4))["id"] for i in range(4)]
        words = ("--memory", "16GiB", "--threads", 8)
        worker = self.worker(*words)
        def begun():
            self.look(room)
            return (self.folder / "pair/checkpoint-2").exists()
        self.eventually(begun, "the pair made no step")
        shown = self.show(pair["id"])
        self.assertEqual(shown["attempts"][0]["devices"], uuids[:2], "reserved at once")
        ranks = {}
        for file in self.held_folder.iterdir():
            card = file.read_text().split()[1]
            if f"PLIMSOLL_QUEUE_RUN={self.queue_folder}/runs/{pair['id']}/1".encode() in Path(f"/proc/{file.name}/environ").read_bytes().split(b"\0"):
                ranks[card] = int(file.name)
        self.assertEqual(sorted(ranks), uuids[:2], "a card for each process")
        os.kill(ranks[uuids[1]], signal.SIGKILL)
        self.eventually(lambda: len(self.show(pair["id"])["attempts"]) > 1, "it is not begun again")
        worker.kill()
        worker.wait()
        self.watch(self.worker("--until-done", *words), room)
        done = self.show(pair["id"])
        self.assertEqual((done["state"], {len(one["devices"]) for one in done["attempts"]}), ("done", {2}), done)
        self.assertEqual({self.show(one)["state"] for one in singles}, {"done"})
        self.assertEqual(len(json.loads((self.folder / "pair/run.json").read_text())["ranks"]), 2)
        self.assertIn("resume", (self.folder / "pair/events.jsonl").read_text())
        self.assertIn("emulated card", self.kernels("pair"))
        self.told("train", self.tiny("alone", 30), "--devices", 2, "--device", "emulated", "--memory", f"{pair['device_bytes']}", "--threads", 1)
        self.assertEqual(weights(self.folder / "pair"), weights(self.folder / "alone"))

    @unittest.skipUnless(HAS_MPI, "Open MPI is not installed: scripts/setup.sh --dev")
    def test_the_number_of_cards_is_what_there_is_room_for(self):
        uuids = self.cards_of([(self.RTX, 470)] * 3 + [(self.T4, 560)])
        wide = {"batch": {"effective": 512}, "data": {"max_length": 16}}
        added = self.add_recipe(self.tiny("any", 2, **wide), "--devices", "1..3")
        self.assertEqual({one["processes"] for one in [added, *added["smaller_plans"]] if one["processes"]}, {1, 2, 3}, added)
        auto = self.add_recipe(self.tiny("auto", 2, **wide, devices="auto"))
        self.assertEqual({one["processes"] for one in [auto, *auto["smaller_plans"]] if one["processes"]}, {1, 2, 3}, auto)
        self.queue("cancel", auto["id"])
        self.watch(self.worker("--until-done", "--memory", "8GiB", "--threads", 8, "--device", f"{uuids[1]}=400MiB"), dict.fromkeys(uuids, 470 * MIB))
        shown = self.show(added["id"])
        self.assertEqual((shown["state"], shown["attempts"][0]["devices"]), ("done", [uuids[1]]), shown)

    def test_cards_that_a_recipe_names_are_the_workers_to_choose(self):
        uuids = self.cards_of([(self.RTX, 470)] * 3)
        recipe = self.tiny("run", devices=["cuda:0", "cuda:2"])
        text = self.queue("add", recipe, code=2)
        self.assertIn("devices: names cards, and in the queue the worker gives them out: state their number (plimsoll queue add", text)
        self.assertIn("--devices 2)", text)
        self.assertIn("plimsoll queue run --device", text)
        self.assertEqual(self.add_recipe(recipe, "--devices", 2)["processes"], 2)
        self.assertTrue(uuids)


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("devices_test"))
