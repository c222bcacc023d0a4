#!/usr/bin/env python3
"""Cards that are not there, by a management library of our own (tests/fake_nvml.cc): plimsoll devices, the queue that packs
runs on them, and top. python3 tests/devices_test.py PLIMSOLL FAKE_NVML"""
import json
import os
import sys
import time
import unittest
from pathlib import Path

from command_run import output
from queue_case import MIB, SECONDS, QueueTest

LIBRARY = Path(sys.argv.pop(1)).resolve()
A, B = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "ab")
# Says where it is and waits until it is allowed to end.
WAITS = 'echo "$CUDA_VISIBLE_DEVICES" > {0}-started; while [ ! -e go-{0} ]; do sleep 0.02; done'


class DevicesTest(QueueTest):
    def setUp(self):
        super().setUp()
        self.cards = self.folder / "cards"
        self.environment |= {"PLIMSOLL_NVML": str(LIBRARY), "FAKE_NVML": str(self.cards), "PLIMSOLL_NVML_SECONDS": "60,0.1"}
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


if __name__ == "__main__":
    unittest.main()
