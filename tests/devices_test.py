#!/usr/bin/env python3
"""Cards that are not there, by a management library of our own (tests/fake_nvml.cc): plimsoll devices, the queue that packs
runs on them, and top. python3 tests/devices_test.py PLIMSOLL FAKE_NVML"""
import json
import os
import shlex
import subprocess
import sys
import time
import unittest
from pathlib import Path

from command_run import PLIMSOLL, not_sanitized, output
from queue_case import MIB, SECONDS, QueueTest
from small_models import LLAMA, tiny_recipe

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


@not_sanitized("the emulated card's fibers")
class Trained(DevicesTest):
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
        # Without the stand-in for CUDA: no build of this machine can use a card that is not there.
        self.cards_are(self.RTX)
        self.assertRegex(self.told("train", recipe, PLIMSOLL_EMULATED_CARDS=""), f"device  cpu, as {self.RTX} cannot be used: (this build has no|no driver)")
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

    def test_the_queue_trains_a_recipe_on_the_cpu_and_prints_the_command_that_gets_a_card(self):
        self.cards_are(self.RTX)
        recipe = self.without_precision("run")
        refused = self.queue("add", "--devices", 1, recipe, code=2)
        self.assertIn("recipes in the queue train on the CPU so far", refused)
        command = shlex.split(refused.splitlines()[-1])
        self.assertEqual(command[:3], ["plimsoll", "queue", "add"])
        words = [str(PLIMSOLL) if word == "plimsoll" else word for word in command]
        self.assertIn("--device cuda", self.queue("add", recipe, "--set", "device=cuda", code=2).splitlines()[-1])
        subprocess.run(words, env=self.environment, cwd=self.folder, check=True, capture_output=True)
        self.run_all("--memory", "2GiB")
        self.assertIn("emulated card", self.kernels("run"))
        self.queue("add", recipe, "--set", f"output={self.folder / 'cpu'}")
        self.run_all("--memory", "2GiB")
        self.assertNotIn("emulated", self.kernels("cpu"))


if __name__ == "__main__":
    unittest.main()
