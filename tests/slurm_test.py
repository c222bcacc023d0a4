#!/usr/bin/env python3
"""plimsoll queue run --backend slurm, and runs over two nodes: against a real Slurm, which scripts/slurm.sh starts."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from command_run import PLIMSOLL, ROOT, built_library, main, not_sanitized, output
from queue_case import MIB, PYTHON, SECONDS, QueueTest
from shard import SuiteLoader

LIBRARY = built_library("fake_nvml")
SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "slurm.sh"
HAS_SLURM = shutil.which("sbatch") and shutil.which("slurmctld") and shutil.which("munged") and os.geteuid() == 0
HAS_MPI = (PLIMSOLL.parent / "libplimsoll_mpi.so").exists() and shutil.which("mpirun")
# Copies between processes may be forbidden where tests run.
os.environ.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
TAKES = "import sys, time; block = bytearray(int(sys.argv[1]) << 20); time.sleep(float(sys.argv[2]))"


class SlurmCase(QueueTest):
    """One Slurm for all tests of a class: it takes a second to start."""
    NODES = 1
    GPUS = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slurm = Path(cls.enterClassContext(tempfile.TemporaryDirectory())) / "slurm"
        subprocess.run([SCRIPT, "start", cls.slurm], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "PLIMSOLL_SLURM_MIB": "1500", "PLIMSOLL_SLURM_NODES": str(cls.NODES), "PLIMSOLL_SLURM_GPUS": str(cls.GPUS)})
        cls.addClassCleanup(subprocess.run, [SCRIPT, "stop", cls.slurm], check=True)

    def setUp(self):
        super().setUp()
        self.environment["SLURM_CONF"] = str(self.slurm / "slurm.conf")

    def slurm_worker(self, *words):
        return self.worker("--backend", "slurm", "--poll", "0.5", *words)

    def run_all_there(self, *words):
        return self.run_all("--backend", "slurm", "--poll", "0.5", *words)

    def ask(self, *words):
        return subprocess.run([str(word) for word in words], env=self.environment, check=True, text=True,
                              capture_output=True).stdout

    def jobs(self):
        """State and name of everything of Slurm, by its id."""
        lines = self.ask("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%j|%m|%c|%l").splitlines()
        return {line.split("|")[0]: line.split("|")[1:] for line in lines}

    def shape(self, job):
        """Nodes and processors of a job."""
        return self.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%D %C").split()

    def ranks(self, name):
        return len(json.loads((self.folder / name / "run.json").read_text())["ranks"])


@unittest.skipUnless(HAS_SLURM, "no Slurm here, or not root: scripts/slurm.sh install")
class SlurmTest(SlurmCase):
    @unittest.skipUnless(HAS_MPI, "Open MPI is not installed")
    @not_sanitized("a training takes more memory than its plan")
    def test_a_run_of_two_processes_is_one_task_where_the_node_has_room_for_both(self):
        entry = json.loads(self.queue("add", self.recipe("run", 4), "--threads", 1, "--devices", 2, "--json"))["id"]
        self.run_all_there()
        shown = self.show(entry)
        self.assertEqual(shown["state"], "done", shown)
        self.assertEqual(self.shape(shown["attempts"][0]["job"]), ["1", "2"])
        self.assertEqual(self.ranks("run"), 2)

    def test_what_becomes_of_runs(self):
        good = self.add(PYTHON, "-c", "print('was here')", memory="64MiB", name="good", seconds=60)
        bad = self.add(PYTHON, "-c", "raise SystemExit(3)", memory="64MiB", retries=0)
        after = self.add("true", memory="16MiB", after=good)
        hungry = self.add(PYTHON, "-c", TAKES, 400, 2, memory="300MiB", retries=1)
        large = self.add("true", memory="3GiB")
        text = self.run_all_there("--time-limit", "1h")
        shown = {one: self.show(one) for one in (good, bad, after, hungry, large)}
        self.assertEqual([one["state"] for one in shown.values()], ["done", "failed", "done", "done", "held"], text)
        self.assertEqual(self.queue("logs", good), "was here\n")
        self.assertIn("exit code 3", shown[bad]["note"])
        self.assertGreaterEqual(shown[after]["attempts"][0]["started"], shown[good]["attempts"][0]["ended"] - 1)
        self.assertIn("1.43 GiB", shown[large]["note"])
        # Ran out of its memory, and got more: what it took is known.
        attempts = shown[hungry]["attempts"]
        self.assertEqual(len(attempts), 2, attempts)
        self.assertRegex(attempts[0]["outcome"], "more than its reservation|the kernel ended it")
        self.assertGreater(attempts[1]["host_bytes"], 400 * MIB)
        self.assertGreater(attempts[1]["peak_host_bytes"], 400 * MIB)
        # What was asked for.
        job = self.jobs()[shown[good]["attempts"][0]["job"]]
        self.assertEqual(job, ["COMPLETED", f"plimsoll-{good}", "96M", "1", "15:00"])
        self.assertEqual(self.jobs()[shown[after]["attempts"][0]["job"]][4], "1:00:00")

    def test_slurm_ends_what_takes_too_much(self):
        entry = self.add(PYTHON, "-c", TAKES, 300, 60, memory="500MiB", retries=0)
        self.run_all_there("--sbatch=--mem=100M")  # less than its supervisor would allow it
        shown = self.show(entry)
        self.assertEqual(shown["state"], "failed")
        self.assertIn("out of memory", shown["note"])
        if "task/cgroup" in (self.slurm / "slurm.conf").read_text():
            self.assertEqual(self.jobs()[shown["attempts"][0]["job"]][0], "OUT_OF_MEMORY")

    def test_a_sweep_is_an_array(self):
        self.queue("add", self.recipe("swept", 2), "--sweep", "optimizer.lr=1e-3,2e-3,3e-3", "--threads", "1")
        self.run_all_there()
        runs = json.loads(self.queue("list", "--json"))["entries"]
        self.assertEqual([one["state"] for one in runs], ["done"] * 3, runs)
        jobs = [one["attempts"][0]["job"] for one in runs]
        self.assertEqual([job.split("_")[1] for job in jobs], ["0", "1", "2"])
        self.assertEqual(len({job.split("_")[0] for job in jobs}), 1, "they are one array")
        for one in runs:
            self.assertTrue((Path(one["output"]) / "model.safetensors").exists(), one)

    def test_workers_come_and_go(self):
        runs = [self.add("sh", "-c", f"echo x >> {self.folder}/count-{i}; sleep 3", memory="16MiB") for i in range(6)]
        for _ in range(4):
            worker = self.slurm_worker()
            time.sleep(0.7)
            worker.kill()
            worker.wait()
        self.run_all_there()
        self.assertEqual([self.show(one)["state"] for one in runs], ["done"] * 6)
        for i in range(6):
            self.assertEqual((self.folder / f"count-{i}").read_text(), "x\n", "it ran twice")

    def test_a_job_that_sbatch_never_told_of_is_found_and_runs_once(self):
        tools = self.folder / "tools"
        tools.mkdir()
        sbatch = tools / "sbatch"
        sbatch.write_text(f"#!/bin/sh\n{shutil.which('sbatch')} \"$@\" >> {tools}/said || exit 1\n"
                          f"test -e {tools}/told || {{ touch {tools}/told; kill -9 $$; }}\ntail -n 1 {tools}/said\n")
        sbatch.chmod(0o755)
        self.environment["PATH"] = f"{tools}:{os.environ['PATH']}"
        entry = self.add("sh", "-c", f"echo x >> {self.folder}/count", memory="16MiB")
        text = self.run_all_there()
        shown = self.show(entry)
        self.assertEqual((shown["state"], len(shown["attempts"])), ("done", 1), text)
        self.assertEqual((tools / "said").read_text(), shown["attempts"][0]["job"] + "\n", "it was handed over twice")
        self.assertEqual((self.folder / "count").read_text(), "x\n", "it ran twice")

    def test_waiting_and_running_jobs_are_ended(self):
        running = self.add("sleep", "600", memory="900MiB")
        waiting = self.add("sleep", "600", memory="900MiB")
        there = self.add("sleep", "600", memory="100MiB")
        self.slurm_worker("--grace", "1")
        self.eventually(lambda: self.show(running)["state"] == "running", "it never ran")
        self.eventually(lambda: "Resources" in self.show(waiting)["note"] or "Priority" in self.show(waiting)["note"],
                        "why it waits is not told")
        self.assertEqual(self.show(waiting)["state"], "submitted")
        self.eventually(lambda: self.show(there)["state"] == "running", "it never ran")
        self.queue("pause", waiting)
        self.eventually(lambda: self.show(waiting)["state"] == "held", "it is not held")
        self.queue("cancel", running)
        self.ask("scancel", self.show(there)["attempts"][0]["job"])
        for one in (running, there):
            self.eventually(lambda one=one: self.show(one)["state"] == "canceled", "it never ended")
        self.assertEqual(self.marked(), [], "something goes on")

    def test_refusals_say_what_slurm_says(self):
        entry = self.add("true", memory="16MiB")
        self.slurm_worker("--sbatch=--partition=nowhere")
        note = self.eventually(lambda: self.show(entry)["state"] == "held" and self.show(entry)["note"], "never held")
        self.assertIn("nvalid partition", note)
        self.assertEqual(self.show(entry)["attempts"], [])

    def test_a_job_of_a_lost_supervisor_runs_again(self):
        entry = self.add("sh", "-c", f"test -e {self.folder}/again || {{ touch {self.folder}/again; sleep 600; }}",
                         memory="16MiB")
        self.slurm_worker()
        self.eventually(lambda: (self.folder / "again").exists(), "it never ran")
        os.kill(self.supervisor(entry), 9)
        self.eventually(lambda: self.show(entry)["state"] == "done", "it never ran again")
        self.assertIn("supervisor was lost", self.show(entry)["attempts"][0]["outcome"])


class SeveralTasksCase(SlurmCase):
    """Runs that are a task for each process, which find each other by PMIx."""
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        listed = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, env={**os.environ, "SLURM_CONF": str(cls.slurm / "slurm.conf")})
        if "pmix" not in listed.stdout + listed.stderr:
            raise unittest.SkipTest("this Slurm lacks its plug-in for PMIx")


@unittest.skipUnless(HAS_SLURM and HAS_MPI, "no Slurm here, not root, or no Open MPI")
@not_sanitized("a training takes more memory than its plan")
class TwoNodesTest(SeveralTasksCase):
    """Two nodes of two processors, which processes take for two machines, as each has a host name of its own."""
    NODES = 2

    def test_a_run_that_no_node_has_room_for_is_a_task_for_each_process(self):
        steps = 16
        output("train", self.recipe("here", steps), "--devices", 3, "--threads", 1, "--quiet")
        entry = json.loads(self.queue("add", self.recipe("there", steps), "--threads", 1, "--devices", 3, "--json"))["id"]
        worker = self.slurm_worker()
        metrics = self.folder / "there/metrics.jsonl"
        self.eventually(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 1, "it never begins")
        shown = self.show(entry)
        self.assertEqual(self.shape(shown["attempts"][0]["job"])[0], "2", shown)
        # All processes of both nodes save together.
        self.queue("pause", entry)
        self.eventually(lambda: self.show(entry)["state"] == "held", "it never stops")
        events = [json.loads(line)["event"] for line in (self.folder / "there/events.jsonl").read_text().splitlines()]
        self.assertEqual(events[-1], "save", events)
        worker.terminate()
        worker.wait()
        self.queue("resume", entry)
        text = self.run_all_there()
        self.assertEqual(self.show(entry)["state"], "done", text + self.queue("logs", entry))
        self.assertEqual(self.ranks("there"), 3)
        losses = [[json.loads(line)["loss"] for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()] for name in ("here", "there")]
        for own, other in zip(*losses, strict=True):
            self.assertAlmostEqual(own, other, delta=1e-4)

    def test_a_killed_process_ends_those_of_the_other_node_and_the_entry_is_repeated(self):
        entry = json.loads(self.queue("add", self.recipe("run", 200), "--threads", 1, "--devices", 3, "--set", "save.every=5", "--json"))["id"]
        self.slurm_worker()
        self.eventually(lambda: list((self.folder / "run").glob("checkpoint-*")), "no checkpoint")
        mark = f"PLIMSOLL_QUEUE_RUN={self.queue_folder}/runs/{entry}/1"
        ranks = [pid for pid in self.with_variable(mark) if b"SLURM_PROCID=2\0" in Path(f"/proc/{pid}/environ").read_bytes()]
        os.kill(ranks[0], 9)
        self.eventually(lambda: not self.with_variable(mark), "those of the other node go on")
        self.eventually(lambda: len(self.show(entry)["attempts"]) > 1, "it is not repeated")
        self.assertNotIn("exit code 0", self.show(entry)["attempts"][0]["outcome"])
        self.queue("cancel", entry)
        self.eventually(lambda: self.show(entry)["state"] == "canceled", "it never ends")

    def test_the_script_of_the_page_runs(self):
        page = (ROOT / "docs/howto/cards-and-clusters.md").read_text()
        script = page.split("```sh sbatch\n")[1].split("```")[0]
        for there, here in (("#SBATCH --gpus-per-task=1 --mem=60G", "#SBATCH --mem=1000M"), ("recipe.yaml", str(self.recipe("run", 4)))):
            self.assertIn(there, script)
            script = script.replace(there, here)
        path = self.folder / "script.sh"
        path.write_text(script)
        self.environment["PATH"] = f"{PLIMSOLL.parent}:{os.environ['PATH']}"
        done = subprocess.run(["sbatch", "--wait", f"--output={self.folder}/log", path], env=self.environment, text=True, capture_output=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr + (self.folder / "log").read_text())
        self.assertEqual(self.ranks("run"), 4)


class CardsCase(SeveralTasksCase):
    """GPUs as Slurm sees them; a stand-in of the driver names them, and the emulated card computes."""
    A, B = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "ab")

    def setUp(self):
        super().setUp()
        cards = self.folder / "cards"
        cards.write_text("".join(f"card {uuid} {12288 * MIB} 0\nname NVIDIA GeForce RTX 3060\n" for uuid in (self.A, self.B)))
        self.environment |= {"PLIMSOLL_NVML": str(LIBRARY), "FAKE_NVML": str(cards), "PLIMSOLL_EMULATED_CARDS": "1", "PLIMSOLL_NVML_SECONDS": "60,0.1", "PLIMSOLL_NO_PROBE": "1"}

    def done_there(self, *words, worker=()):
        """The only attempt of a recipe on two cards."""
        entry = json.loads(self.queue("add", self.recipe("run", 3), "--threads", 1, "--devices", 2, "--json", *words))
        self.assertEqual((entry["devices"], entry["processes"]), (2, 2))
        text = self.run_all_there(*worker)
        shown = self.show(entry["id"])
        self.assertEqual(shown["state"], "done", text + shown["note"])
        self.assertEqual(self.ranks("run"), 2)
        self.assertIn("emulated card", json.loads((self.folder / "run/run.json").read_text())["kernels"])
        return shown["attempts"][0]


@unittest.skipUnless(HAS_SLURM and HAS_MPI, "no Slurm or no Open MPI here, or not root")
class CardsTest(CardsCase):
    GPUS = 2

    def srun(self, *options, code=0):
        words = ["srun", "--mpi=pmix", "-K1", "--ntasks=2", "--mem=1500M", *options, PLIMSOLL, "train", self.recipe("run", 3), "--threads", 1, "--overwrite"]
        done = subprocess.run([str(word) for word in words], env=self.environment, text=True, capture_output=True, timeout=SECONDS)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_each_task_computes_on_the_card_that_slurm_shows_it(self):
        self.assertIn("devices GPU-aaaaaaaa,GPU-bbbbbbbb (RTX 3060 12GB, emulated)", self.srun("--gpus-per-task=1"))
        self.assertEqual(self.ranks("run"), 2)
        self.assertIn("devices cuda:0,cuda:1 (RTX 3060 12GB, emulated)", self.srun("--gres=gpu:2"))
        self.assertIn("ranks 0 and 1 both see RTX 3060 12GB (GPU-aaaaaaaa) first and no other card", self.srun("--gres=gpu:1", code=2))

    @not_sanitized("a training takes more memory than its plan")
    def test_an_entry_on_two_cards_is_one_task_with_both(self):
        """GPUs of this Slurm have no type: a name that states their size is none that a job could wait for."""
        self.assertEqual(self.shape(self.done_there(worker=("--device", "gpu=12GiB"))["job"])[0], "1")

    def test_types_are_refused_where_there_are_none_to_choose_from(self):
        worker = self.slurm_worker("--until-done", "--device", "l4=24GiB", "--device", "a100=80GiB")
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 2, text)
        self.assertIn("have no types to choose from: state one size", text)


@unittest.skipUnless(HAS_SLURM and HAS_MPI, "no Slurm or no Open MPI here, or not root")
class CardsOfTwoNodesTest(CardsCase):
    """A GPU on each."""
    NODES, GPUS = 2, 1

    @not_sanitized("a training takes more memory than its plan")
    def test_an_entry_on_two_cards_is_a_task_on_each_node(self):
        self.assertEqual(self.shape(self.done_there("--gpu", "RTX 3060 12GB")["job"])[0], "2")


class WithoutSlurmTest(QueueTest):
    def test_it_says_what_is_missing(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.environment["PATH"] = str(empty)
        worker = self.worker("--backend", "slurm", "--until-done")
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 2)
        self.assertIn("sinfo is not there", text)

    def test_options_that_do_not_go_together(self):
        for words in (["--backend", "slurm", "--memory", "1GiB"], ["--partition", "x"], ["--poll", "5"],
                      ["--backend", "slurm", "--time-limit", "soon"]):
            worker = self.worker(*words)
            text, _ = worker.communicate(timeout=SECONDS)
            self.assertEqual(worker.returncode, 2, text)


if __name__ == "__main__":
    main(testLoader=SuiteLoader("slurm_test"))
