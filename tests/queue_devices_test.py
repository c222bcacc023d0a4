#!/usr/bin/env python3
"""Recipes on several devices in the queue: one entry, its processes together: python3 tests/queue_devices_test.py PLIMSOLL

Devices are processes on this machine's CPUs here, which MPI connects; skipped where Open MPI is not installed."""
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import unittest
from pathlib import Path

from command_run import PLIMSOLL, not_sanitized, output, run
from queue_case import MIB, QueueTest
from shard import SuiteLoader

HAS_MPI = (PLIMSOLL.parent / "libplimsoll_mpi.so").exists() and shutil.which("mpirun")
# Copies between processes may be forbidden where tests run.
os.environ.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
LAUNCHER = 8 * MIB  # that is reserved for the process that starts the others, and mpirun
FOUR_CARDS = {"machine": {"devices": [{"bytes": "24GiB"}] * 4}}


def words_of(pid):
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


class Simulated(QueueTest):
    def simulate(self, jobs, code=0):
        path = self.folder / "w.json"
        path.write_text(json.dumps({**FOUR_CARDS, "jobs": jobs}))
        return output("queue", "simulate", path, *([] if code else ["--json"]), code=code)

    def test_a_simulated_job_takes_the_number_of_devices_that_ends_all_sooner(self):
        job = {"seconds": 100, "bytes": "20GiB", "devices": 4, "plans": [{"bytes": "22GiB", "devices": 2, "seconds": 160}]}
        ends = [json.loads(self.simulate([job] * count))["policies"][0]["makespan_seconds"] for count in (1, 2)]
        self.assertEqual(ends, [100, 160])
        fixed = {key: value for key, value in job.items() if key != "plans"}
        self.assertEqual(json.loads(self.simulate([fixed] * 2))["policies"][0]["makespan_seconds"], 200)
        self.assertIn("'devices': expected how many it takes", self.simulate([{**job, "plans": [{"bytes": 1, "devices": 0, "seconds": 1}]}], code=2))

    def test_numbers_that_are_none_are_refused(self):
        for text, said in (("x", "expected a number"), ("4..2", "a smaller number"), ("0..2", "from 1 on"), ("1..40", "at most 16"), ("2..", "expected a number")):
            self.assertIn(said, self.queue("add", self.recipe("run", 1), "--devices", text, code=2))
        self.assertIn("a command takes as many", self.queue("add", "--devices", "2..4", "--memory", "1MiB", "--host-memory", "1MiB", "--", "true", code=2))
        self.assertEqual(json.loads(self.queue("list", "--json"))["entries"], [])

    def test_without_mpi_several_processes_are_refused_before_they_wait_for_their_turn(self):
        recipe, lacks = self.recipe("run", 1), {**self.environment, "PLIMSOLL_MPI": "nowhere.so", "PATH": "/nowhere"}
        def add(*words, code=0):
            result = run("queue", "add", recipe, "--json", *words, env=lacks, cwd=self.folder)
            self.assertEqual(result.returncode, code, result.stderr)
            return result.stdout + result.stderr
        for words in (("--devices", 2), ("--devices", "2..4"), ("--set", "devices=2")):
            refused = add(*words, code=2)
            self.assertIn("several processes need MPI", refused)
            self.assertIn("sudo apt install openmpi-bin", refused)
        self.assertEqual(json.loads(self.queue("list", "--json"))["entries"], [])
        said = add("--devices", "1..2", "--set", "output=one")
        self.assertIn("planned for one device: devices: several processes need MPI", said)
        self.assertNotIn("devices=2", said)
        add("--set", "output=two")
        # The nodes of a cluster may have what the machine lacks from which jobs are submitted.
        (self.folder / "sbatch").write_text("#!/bin/sh\n")
        (self.folder / "sbatch").chmod(0o755)
        lacks["PATH"] = str(self.folder)
        self.assertIn("for Slurm's nodes only: devices: several processes need MPI", add("--devices", 2, "--set", "output=three"))


@unittest.skipUnless(HAS_MPI, "Open MPI is not installed: scripts/setup.sh --dev")
@not_sanitized("a training takes more memory than its plan")
class SeveralDevices(QueueTest):
    def add_recipe(self, recipe, *words):
        return json.loads(self.queue("add", recipe, "--threads", 1, "--json", *words))

    def ranks_of(self, entry):
        """{rank: process} of the entry's run."""
        found = {}
        for pid in self.with_variable(f"PLIMSOLL_QUEUE_RUN={self.queue_folder}/runs/{entry}/"):
            with contextlib.suppress(OSError):
                for variable in (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0"):
                    if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                        found[int(variable.partition(b"=")[2])] = pid
        return found

    def begun(self, name, step=2):
        """Waits until the run has taken so many steps."""
        metrics = self.folder / name / "metrics.jsonl"
        self.eventually(lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= step, f"{name} takes no steps")

    def weights(self, name):
        return (self.folder / name / "model.safetensors").read_bytes()

    def events(self, name):
        return [json.loads(line)["event"] for line in (self.folder / name / "events.jsonl").read_text().splitlines()]

    def test_a_run_of_several_processes_is_one_entry_with_what_they_take_together(self):
        recipe = self.recipe("run", 12)
        plan = json.loads(output("plan", recipe, "--devices", 2, "--threads", 1, "--json"))
        for words in (["--devices", 2], ["--set", "devices=2", "--set", f"output={self.folder}/other"]):
            entry = self.add_recipe(recipe, *words)
            self.assertEqual((entry["processes"], entry["threads"], entry["devices"]), (2, 2, 0))
            self.assertEqual(entry["host_bytes"], plan["devices"]["bytes_together"] + LAUNCHER)
            self.assertEqual(plan["devices"]["seconds_per_step"], plan["predicted"]["seconds_per_step"])
        self.assertRegex(self.queue("list"), r"MiB \(2 processes\)")
        text = self.run_all("--memory", entry["host_bytes"] + MIB, "--threads", 2)
        for one, name in ((1, "run"), (2, "other")):
            shown = self.show(one)
            self.assertEqual((shown["state"], len(shown["attempts"])), ("done", 1), text)
            attempt = shown["attempts"][0]
            self.assertEqual(attempt["processes"], 2)
            self.assertLessEqual(attempt["peak_host_bytes"], attempt["host_bytes"])
            ranks = json.loads((self.folder / name / "run.json").read_text())["ranks"]
            self.assertEqual(len(ranks), 2)
            self.assertGreater(attempt["peak_host_bytes"], sum(rank["device_arena_bytes"] for rank in ranks), "the processes together")
        self.assertRegex(self.queue("show", 1), r"needs +\d+ MiB \(2 processes\), threads 2")
        self.assertRegex(output("report", self.folder / "run"), r"ranks +2 · \d+\.?\d* MiB at most \(rank [01]\), \d+ MiB together · waiting \d+ %")
        self.assertEqual(json.loads(self.queue_report())["attempts"][0]["processes"], 2)
        # Smaller plans, where the budget is open, are of both too.
        wide = self.add_recipe(self.recipe("wide", 8, 64, length=200, packed=True), "--devices", 2)
        self.assertTrue(wide["smaller_plans"])
        for one in wide["smaller_plans"]:
            self.assertEqual(one["processes"], 2)
            self.assertLess(one["host_bytes"], wide["host_bytes"])

    def test_frozen_weights_that_the_processes_hold_once_are_reserved_once(self):
        recipe = self.recipe("run", 4)
        lora = ("--devices", 2, "--set", "method.type=lora", "--set", "method.r=4")
        plan = json.loads(output("plan", recipe, *lora, "--threads", 1, "--json"))
        entry = self.add_recipe(recipe, *lora)
        self.assertGreater(plan["devices"]["shared_bytes"], 0)
        self.assertEqual(entry["host_bytes"], 2 * plan["process"]["planned_share_bytes"] + LAUNCHER)
        self.assertLess(entry["host_bytes"], 2 * plan["process"]["planned_peak_rss_bytes"] + LAUNCHER)
        with sqlite3.connect(self.queue_folder / "queue.db") as database:
            self.assertEqual(database.execute("SELECT shared_bytes FROM entries").fetchall(), [(plan["devices"]["shared_bytes"],)])
        text = self.run_all("--memory", entry["host_bytes"], "--threads", 2)
        shown = self.show(entry["id"])
        self.assertEqual(shown["state"], "done", text)
        self.assertLessEqual(shown["attempts"][0]["peak_host_bytes"], entry["host_bytes"])

    def queue_report(self):
        return output("report", "--queue", "--json", env=self.environment, cwd=self.folder)

    def test_the_packing_chooses_how_many_processes_there_are(self):
        # Of so many rows computing takes far longer than sending.
        text = self.queue("add", self.recipe("run", 2, 2048), "--threads", 1, "--devices", "1..3")
        self.assertRegex(text, r"threads for [23] processes together, .*; or on 1.* devices?;")
        entry = self.show(1)
        self.assertIn(1, [one["processes"] for one in entry["smaller_plans"]])
        self.assertEqual(len({(one["processes"], one["host_bytes"]) for one in entry["smaller_plans"]}), len(entry["smaller_plans"]))
        # One thread: one process, whatever is fastest.
        self.run_all("--memory", "2GiB", "--threads", 1)
        done = self.show(1)
        self.assertEqual((done["state"], done["processes"], done["attempts"][0]["processes"]), ("done", 1, 1))
        self.assertIn("devices=1", done["words"])
        self.assertNotIn("ranks", json.loads((self.folder / "run/run.json").read_text()))

    def test_a_paused_run_saves_as_one_and_continues_with_its_bits_or_on_fewer_devices(self):
        steps = 200  # far from its end when it is paused
        slowly = ("--set", "optimizer.lr=1e-4")  # differences by rounding stay small
        whole = self.add_recipe(self.recipe("whole", steps), "--devices", 2, *slowly)
        self.run_all("--memory", "2GiB", "--threads", 2)
        self.assertEqual(self.show(whole["id"])["state"], "done")
        for name, threads in (("same", 2), ("fewer", 1)):
            recipe = self.recipe(name, steps)
            added = self.add_recipe(recipe, "--devices", 2, *slowly)
            entry = added["id"]
            # As --devices 1..2 has it where two are faster, which is the machine's to say.
            alone = json.loads(output("plan", recipe, "--threads", 1, "--json"))["process"]["planned_peak_rss_bytes"]
            with sqlite3.connect(self.queue_folder / "queue.db") as database:
                database.execute("UPDATE entries SET smaller = ? WHERE id = ?", [json.dumps([[alone, 2 * added["predicted_seconds"], 1, 0, "", 1]]), entry])
            worker = self.worker("--memory", "2GiB", "--threads", 2)
            self.begun(name)
            self.assertEqual(sorted(self.ranks_of(entry)), [0, 1])
            self.queue("pause", entry)
            self.eventually(lambda entry=entry: self.show(entry)["state"] in ("held", "done"), "it never stops")
            self.assertEqual(self.show(entry)["state"], "held", "it ended before it could stop")
            self.assertEqual(self.marked(), [], "a process is left")
            held = self.show(entry)
            self.assertEqual(held["attempts"][0]["outcome"].split(";")[0], "exit code 130", held)
            # No second save of a step that was saved just then.
            self.assertEqual([event for event in self.events(name) if event != "signal"][-1], "save", "all processes saved together")
            worker.terminate()
            worker.wait()
            self.queue("resume", entry)
            text = self.run_all("--memory", "2GiB", "--threads", threads)
            done = self.show(entry)
            self.assertEqual((done["state"], [one["processes"] for one in done["attempts"]]), ("done", [2, threads]), text)
            self.assertIn("resume", self.events(name))
        self.assertEqual(self.weights("same"), self.weights("whole"))
        losses = [[json.loads(line)["loss"] for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()] for name in ("whole", "fewer")]
        for own, other in zip(*losses, strict=True):
            self.assertAlmostEqual(own, other, delta=1e-4)

    def test_whoever_is_killed_all_of_the_run_ends_and_it_continues(self):
        steps = 200
        entry = self.add_recipe(self.recipe("run", steps), "--devices", 2, "--retries", 3, "--set", "save.every=5")["id"]
        self.worker("--memory", "2GiB", "--threads", 2)
        attempts, newest = 0, 0
        def last():
            return max([int(path.name.partition("-")[2]) for path in (self.folder / "run").glob("checkpoint-*") if path.name.partition("-")[2].isdigit()], default=0)
        for victim in ("rank", "launcher", "supervisor"):
            attempts += 1
            self.eventually(lambda newest=newest: last() > newest or self.show(entry)["state"] == "done", "no checkpoint")
            if self.show(entry)["state"] == "done":
                self.fail("it ended before it could be killed")
            before = self.marked()
            if victim == "rank":
                target = self.ranks_of(entry)[1]
            elif victim == "launcher":
                target = next(pid for pid in before if b"train" in words_of(pid) and pid not in self.ranks_of(entry).values())
            else:
                target = self.supervisor(entry, attempts)
            os.kill(target, signal.SIGKILL)
            self.eventually(lambda before=before: not set(before) & set(self.marked()), f"after the {victim}'s end something goes on")
            newest = last()
            self.eventually(lambda attempts=attempts: len(self.show(entry)["attempts"]) > attempts, "it is not begun again")
        self.eventually(lambda: self.show(entry)["state"] in ("done", "failed"), "it never ends")
        shown = self.show(entry)
        self.assertEqual(shown["state"], "done", shown)
        outcomes = [one["outcome"] for one in shown["attempts"]]
        self.assertIn("exit code 5", outcomes[0])
        self.assertIn("ended by SIGKILL", outcomes[1])
        self.assertIn("its supervisor was lost", outcomes[2])
        self.assertEqual(self.events("run")[-1], "end")

    def test_a_canceled_run_leaves_no_process(self):
        entry = self.add_recipe(self.recipe("run", 3000), "--devices", 2)["id"]
        self.worker("--memory", "2GiB", "--threads", 2)
        self.begun("run")
        top = json.loads(output("top", "--once", "--json", env=self.environment, cwd=self.folder))["runs"][0]
        self.assertEqual((top["progress"]["ranks"], top["threads"]), (2, 2))
        self.assertGreater(top["used_host_bytes"], top["largest_process_bytes"])
        self.assertGreaterEqual(top["processes"], 4, "launcher, mpirun and two ranks")
        self.assertTrue(0 <= top["progress"]["waiting_share"] <= 1)
        wide = {**self.environment, "COLUMNS": "250"}
        self.assertRegex(output("top", "--once", env=wide, cwd=self.folder), r"2 ranks: largest \d+\.?\d* MiB, waiting \d+ %")
        self.queue("cancel", entry)
        self.eventually(lambda: self.show(entry)["state"] == "canceled", "it never ends")
        self.assertEqual(self.marked(), [])

    def test_a_sweep_of_budgets_is_one_of_all_processes_together(self):
        recipe = self.recipe("run", 4)
        plan = json.loads(output("plan", recipe, "--devices", 2, "--threads", 1, "--json"))
        most = plan["devices"]["bytes_together"]
        least = 2 * plan["smallest"]["memory_bytes"]
        swept = json.loads(output("plan", recipe, "--devices", 2, "--threads", 1, "--json", "--sweep", f"memory={least}B..{most}B"))
        self.assertEqual(swept["smallest_bytes"], least)
        self.assertTrue(all(point["memory_bytes"] <= point["budget_bytes"] for point in swept["points"]))
        self.assertGreater(swept["points"][-1]["memory_bytes"], most // 2, "of both")
        told = output("plan", recipe, "--devices", 2, "--threads", 1, "--sweep", f"memory={least}B..{most}B")
        self.assertRegex(told, r"budget +processes +s/step")
        self.assertEqual(run("train", recipe, "--devices", 2, "--threads", 1, "--memory", f"{least}B", "--quiet").returncode, 0)


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("queue_devices_test"))
