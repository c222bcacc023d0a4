"""Frozen weights that the processes of a machine have once (memory.node_copy): the bits of copies of their own, in less memory.

With cards these are the frozen weights that are offloaded to the host; the cards are emulated.

Usage: node_copy_test.py PLIMSOLL (from the repository's root). Standard library only; skipped where Open MPI is not installed.
"""
import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

import command_run
from command_run import PLIMSOLL, losses_of, output, run
from divided_gradients_test import FEW, DividedTest, is_my_cell
from several_devices_test import LONG, LORA, MAY_UNSHARE, MPIRUN, OPEN_MPI, PLUGIN, QLORA, WIDE, processes_of, ranks_of, wait_for
from shard import SuiteLoader
from small_models import T5, steps, tiny_recipe

SHIM = PLIMSOLL.parent / "tests/libfailing_files.so"
MIB = 1 << 20
# Frozen weights of 33 MiB and more, beside which what a process takes by itself is known.
LARGE = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4}
# Weights that are worth moving off a card, and such codes of 4 bits.
MOVED = {**WIDE, "hidden_size": 192, "intermediate_size": 256}
LARGER = {**MOVED, "intermediate_size": 704}
PAIRS = {"eval": {"every": 3}, "data": {"eval": 3}}  # of eight


def proportional(pid):
    """Bytes of a process's memory, what it shares with others by its part: of a few pages a page or so too much."""
    fields = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return 1024 * int(fields["Pss"].split()[0])


def mapped_of(pid):
    """(bytes, rights, number of the file) of each map of the weights that a process has."""
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "plimsoll-weights" in line:
            place, rights, _, _, inode, *_ = line.split()
            begin, end = (int(part, 16) for part in place.split("-"))
            found.append((end - begin, rights, inode))
    return found


def holders_of(inode):
    """Ids of the processes of this machine that have the file in memory, mapped or open: the kernel keeps it for these alone."""
    holders = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            mapped = any(inode == other for _, _, other in mapped_of(process.name))
            opened = any("plimsoll-weights" in os.readlink(link) and str(link.stat().st_ino) == inode for link in (process / "fd").iterdir())
        except OSError:
            continue  # it has ended, or it is of another user
        if mapped or opened:
            holders.add(int(process.name))
    return holders


class OneCopyTest(DividedTest):
    """Runs with one copy, and what is read of them."""
    DEVICE = "cpu"
    STEPS = 6
    BATCH = FEW

    def assert_same_bits(self, count, config=WIDE, **settings):
        """Files, losses and norms are those of processes that have a copy each; the arenas are as large, and together they take less."""
        if not is_my_cell("node copy", count, config, settings, *([self.DEVICE] if self.DEVICE != "cpu" else [])):
            return
        found = []
        memory = settings.pop("memory", {})
        for name, node_copy in (("apart", False), ("once", True)):
            self.train(config, name, count, "--device", self.DEVICE, **{**self.BATCH, "schedule": {"max_steps": self.STEPS, "warmup": 1}, **settings},
                       memory={"loss_chunk": 64, **memory, "node_copy": node_copy})
            found.append((self.files_of(name, self.STEPS), [(step["loss"], step["grad_norm"]) for step in steps(self.folder / name)]))
        for name, content in found[0][0].items():
            self.assertTrue(content == found[1][0][name], f"{name} of {count} devices: {settings}")
        self.assertEqual(found[0][1], found[1][1])
        apart, once = (self.record_of(name, count) for name in ("apart", "once"))
        self.assertEqual({rank["shared_bytes"] for rank in apart["ranks"]}, {0})
        shared = once["planned"]["shared_bytes"]
        self.assertGreater(shared, 0)
        self.assertEqual([rank["shared_bytes"] for rank in once["ranks"]], [shared] * count)
        each = once["planned"]["process_peak_rss_bytes"]
        self.assertEqual(once["planned"]["bytes_together"], count * each - (count - 1) * shared)
        if not command_run.SANITIZED:
            self.assertLess(once["measured"]["bytes_together"], once["planned"]["bytes_together"])
        for record in (apart, once):
            self.assertEqual(record["measured"]["host_arena_bytes"], record["planned"]["host_arena_bytes"])
        return once

    def made_model(self):
        """A folder of weights, and the bytes of its tensors."""
        output("train", tiny_recipe(self.folder, {**WIDE, **LARGE}, "made", **{**LONG, "schedule": {"max_steps": 1}}), "--quiet")
        made = self.folder / "made"
        content = (made / "model.safetensors").read_bytes()
        entries = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
        return made, sum(entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in entries.items() if name != "__metadata__")

    def begin(self, recipe, count):
        """A run that has taken a few steps and goes on."""
        folder = Path(json.loads(recipe.read_text())["output"])
        shutil.rmtree(folder, ignore_errors=True)
        words = [str(PLIMSOLL), "train", str(recipe), "--devices", str(count), "--threads", "1", "--device", self.DEVICE]
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        metrics = folder / "metrics.jsonl"
        wait_for(lambda: process.poll() is not None or (metrics.exists() and len(metrics.read_text().splitlines()) >= 3))
        self.assertIsNone(process.poll(), "the run ended by itself")
        return process

    def end(self, process):
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 130)

    def assert_nothing_is_left(self, recipe, count):
        """Neither where one process is killed nor where all are."""
        folder = Path(json.loads(recipe.read_text())["output"])
        for who in ("one", "all"):
            process = self.begin(recipe, count)
            pids = list(ranks_of(folder).values())
            _, _, inode = mapped_of(pids[0])[0]
            self.assertEqual(holders_of(inode), set(pids))
            for pid in pids[:1] if who == "one" else [*pids, process.pid]:
                os.kill(pid, signal.SIGKILL)
            process.wait()
            wait_for(lambda: not processes_of(folder))
            self.assertEqual(holders_of(inode), set())


@unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
class NodeCopies(OneCopyTest):
    def test_adapters_have_the_bits_of_copies(self):
        self.assert_same_bits(2, **LORA)
        self.assert_same_bits(3, precision="bf16", **LORA, **PAIRS, memory={"shard": "gradients"})
        self.assert_same_bits(3, **LORA, memory={"shard": "none", "recompute": "block"})
        self.assert_same_bits(2, method={"type": "full", "freeze": ["layers.0"]})

    def test_quantised_bases_have_the_bits_of_copies(self):
        self.assert_same_bits(3, **QLORA)
        self.assert_same_bits(2, **{**QLORA, "method": {**QLORA["method"], "double_quant": False}})
        self.assert_same_bits(3, **{**QLORA, "method": {**QLORA["method"], "bits": 8}})

    def test_what_begins_by_the_weights_has_the_bits_of_copies(self):
        for count, method in ((2, {"dora": True}), (3, {"init": "pissa"}), (2, {"init": "olora"}), (2, {"type": "qlora", "dora": True})):
            self.assert_same_bits(count, method={"type": "lora", "r": 4, **method})

    def test_tasks_and_families_have_the_bits_of_copies(self):
        self.assert_same_bits(2, {**T5, "d_model": 64, "d_ff": 128}, task="seq2seq", **LORA, **PAIRS)
        self.assert_same_bits(3, task="dpo", **LORA, **PAIRS)
        self.assert_same_bits(2, task="reward", **LORA, memory={"loss_chunk": "auto"})

    def test_weights_on_disk_are_of_each_process(self):
        self.assert_same_bits(2, {**WIDE, "hidden_size": 192, "intermediate_size": 256}, precision="bf16", **LORA,
                              memory={"offload": ["weights", "states"], "disk": "1GiB"})

    @command_run.not_sanitized("memory is another")
    def test_a_machine_holds_them_once_and_each_byte_is_read_by_one_process(self):
        made, stored = self.made_model()
        shutil.rmtree(self.folder / "model")
        taken = {}
        for name, node_copy in (("apart", False), ("once", True)):
            recipe = tiny_recipe(self.folder, WIDE, name, model=str(made), init="weights", **{**LONG, "schedule": {"max_steps": 100_000}}, **LORA,
                                 memory={"node_copy": node_copy})
            planned = json.loads(output("plan", recipe, "--devices", 3, "--threads", 1, "--json"))["devices"]
            process = self.begin(recipe, 3)
            pids = sorted(ranks_of(self.folder / name).values())
            self.assertEqual(len(pids), 3)
            taken[name] = sum(map(proportional, pids))
            read = [int(Path(f"/proc/{pid}/io").read_text().split()[1]) for pid in pids]
            maps = [mapped_of(pid) for pid in pids]
            self.end(process)
            self.assertLess(taken[name], 1.01 * planned["bytes_together"])
            # The model's file, once; rows, tokenizer and libraries are the rest.
            self.assertGreater(sum(read), stored)
            self.assertLess(sum(read), 2 * stored, "the file was read by several")
            # Nobody can write what is shared.
            self.assertEqual(maps, [[(planned["shared_bytes"], "r--s", maps[0][0][2])]] * 3 if node_copy else [[]] * 3)
            self.assertEqual(planned["shared_bytes"] > 0, node_copy)
        self.assertGreater(planned["shared_bytes"], 0.9 * stored)
        self.assertAlmostEqual(taken["apart"] - taken["once"], 2 * planned["shared_bytes"], delta=0.1 * planned["shared_bytes"])

    def test_processes_that_are_killed_leave_no_memory(self):
        recipe = tiny_recipe(self.folder, {**WIDE, **LARGE}, "killed", **{**LONG, "schedule": {"max_steps": 100_000}}, **LORA)
        self.assert_nothing_is_left(recipe, 3)

    @command_run.not_sanitized("a limit on memory")
    def test_a_budget_that_copies_exceed_is_enough(self):
        recipe = tiny_recipe(self.folder, {**WIDE, **LARGE}, "run", **{**LONG, "schedule": {"max_steps": 2}}, **LORA, memory={"headroom": "0%", "shard": "states"})
        plan = lambda *words, **options: output("plan", recipe, "--devices", 3, "--threads", 1, *words, **options)  # noqa: E731
        own = ("--set", "memory.node_copy=false")
        once, apart = (json.loads(plan("--json", *words))["smallest"]["memory_bytes"] for words in ((), own))
        self.assertLess(once, apart)
        budget = ("--memory", f"{3 * (once + apart) // 2}B")
        refused = plan(*budget, *own, code=3)
        self.assertIn("memory.node_copy=true", refused)
        text = plan(*budget, "--full")
        self.assertRegex(text, r"3 processes of [\d.]+ MiB, [\d.]+ MiB of it shared")
        self.assertRegex(text, r"shared +[\d.]+ MiB +of it, once for 3 processes")
        # Private data that the kernel limits is less than with copies.
        planned = json.loads(plan("--json", *budget))
        self.assertLess(planned["process"]["planned_data_bytes"], planned["process"]["planned_peak_rss_bytes"] + 256 * MIB)
        output("train", recipe, "--devices", 3, "--threads", 1, "--quiet", *budget)
        done = json.loads((self.folder / "run/run.json").read_text())
        self.assertLessEqual(done["planned"]["bytes_together"], 3 * (once + apart) // 2)
        self.assertLess(done["measured"]["bytes_together"], 1.01 * done["planned"]["bytes_together"])
        columns = json.loads(plan("--json", "--compare", "memory.node_copy=true,false"))["rows"]
        self.assertLess(columns[0]["bytes_together"], columns[1]["bytes_together"])

    def test_divided_weights_below_adapters_are_one_copy(self):
        """Nothing is left to gather: the stage is that of gradients, and says so."""
        recipe = tiny_recipe(self.folder, WIDE, "run", **LONG, **LORA, memory={"shard": "weights"})
        plan = json.loads(output("plan", recipe, "--devices", 2, "--threads", 1, "--json"))
        self.assertEqual(plan["devices"]["shard"], "gradients")
        self.assertTrue(any("memory.shard: weights divides what gradients does" in note for note in plan["notes"]), plan["notes"])
        compared = ("plan", recipe, "--devices", 2, "--threads", 1, "--compare", "shard=gradients,weights")
        self.assertIn(" shard weights: memory.shard: weights divides what gradients does: the frozen weights are in memory once", " ".join(output(*compared).split()))
        rows = json.loads(output(*compared, "--json"))["rows"]
        self.assertEqual([row["shard"] for row in rows], ["gradients"] * 2)
        self.assertEqual(rows[0]["note"], "")
        self.assertIn("the frozen weights are in memory once", rows[1]["note"])
        self.assertNotIn("divides what gradients does", output(*compared, "--set", "memory.node_copy=false"))
        apart = json.loads(output("plan", recipe, "--devices", 2, "--threads", 1, "--json", "--set", "memory.node_copy=false"))
        two = json.loads(output("plan", recipe, "--devices", 2, "--nodes", 2, "--threads", 1, "--json"))
        self.assertEqual([each["devices"]["shard"] for each in (apart, two)], ["weights"] * 2)
        output("train", recipe, "--devices", 2, "--threads", 1, "--quiet")

    def test_a_run_goes_on_with_one_copy_and_without(self):
        settings = {**LONG, **FEW, "schedule": {"max_steps": 8, "warmup": 2}, "save": {"every": 4, "keep": "all"}, "method": {"type": "lora", "r": 4, "init": "pissa"}}
        recipe = tiny_recipe(self.folder, WIDE, "run", **settings)
        output("train", recipe, "--devices", 2, "--threads", 1, "--quiet")
        whole, losses = self.files_of("run", 8), losses_of(self.folder / "run")
        for node_copy in ("false", "true"):
            shutil.rmtree(self.folder / "run/checkpoint-8")
            output("train", recipe, "--resume", "--devices", 2, "--threads", 1, "--quiet", "--set", f"memory.node_copy={node_copy}")
            self.assertTrue(self.files_of("run", 8) == whole)
            self.assertEqual(losses_of(self.folder / "run"), losses)

    def test_memory_that_cannot_be_shared_is_refused_with_a_way_out(self):
        self.assertTrue(SHIM.exists(), "build the target failing_files")
        recipe = tiny_recipe(self.folder, WIDE, "run", **LONG, **LORA)
        instead = "set memory.node_copy to false, so that each process has a copy of its own"
        for call, path, errno, after, code, said in (("make", "plimsoll-weights", 1, 0, 2, "the system makes no memory that processes share (Operation not permitted); " + instead),
                                                     ("open", "/fd/", 13, 1, 2, "cannot be opened (Permission denied); " + instead),
                                                     ("claim", "plimsoll-weights", 28, 0, 3, "for the frozen weights of this machine's processes: No space left on device")):
            environment = {**os.environ, "LD_PRELOAD": str(SHIM), "FAIL_CALL": call, "FAIL_PATH": path, "FAIL_ERRNO": str(errno), "FAIL_AFTER": str(after)}
            errors = output("train", recipe, "--devices", 2, "--threads", 1, "--quiet", env=environment, code=code)
            self.assertIn(said, errors)
            self.assertEqual(errors.count(said), 1, errors)
            self.assertFalse((self.folder / "run").exists())
            if call == "make":
                output("train", recipe, "--devices", 2, "--threads", 1, "--quiet", "--set", "memory.node_copy=false", "--set", f"output={self.folder}/other", env=environment)

    @unittest.skipUnless(OPEN_MPI and MAY_UNSHARE, "another name of the machine takes its rights")
    def test_each_of_several_machines_holds_them_once(self):
        made, _ = self.made_model()
        shutil.rmtree(self.folder / "model")
        found = []
        for name, node_copy in (("apart", False), ("once", True)):
            for method in (LORA, QLORA):
                recipe = tiny_recipe(self.folder, WIDE, name, model=str(made), init="weights", **{**LONG, "schedule": {"max_steps": 3, "warmup": 1}}, **method,
                                     memory={"node_copy": node_copy})
                words = [MPIRUN, "-q", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]
                for number, (host, count) in enumerate((("one", 2), ("two", 1))):
                    words += ([":"] if number else []) + ["-np", str(count), "unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]
                    words += [str(PLIMSOLL), "train", str(recipe), "--threads", "1", "--quiet", "--overwrite"]
                done = subprocess.run(words, capture_output=True, text=True, timeout=600)
                self.assertEqual(done.returncode, 0, done.stderr)
                record = json.loads((self.folder / name / "run.json").read_text())
                self.assertEqual(all(rank["shared_bytes"] > 0 for rank in record["ranks"]), node_copy)
                self.assertEqual(record["planned"]["bytes_together"], 3 * record["planned"]["process_peak_rss_bytes"] - record["planned"]["shared_bytes"])
                self.assertLess(record["measured"]["bytes_together"], record["planned"]["bytes_together"])
                found.append((self.files_of(name, 3), losses_of(self.folder / name)))
        self.assertTrue(found[0] == found[2] and found[1] == found[3])


def locked_of(pid):
    """Bytes that a process has locked, as the kernel counts them."""
    return 1024 * int(re.search(r"^VmLck:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def may_lock(size):
    """For preexec_fn: a process without the right to lock more than its limit, and those that it starts."""
    def limit():
        ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_IPC_LOCK: fails where it has no such right
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (size, size))
    return limit


@unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
class HostCopies(OneCopyTest):
    """Frozen weights of several cards, offloaded to the host."""
    DEVICE = "emulated"
    STEPS = 2
    BATCH = {"batch": {"effective": 3, "micro": 1}}  # an emulated card takes long
    AWAY = {"offload": ["weights"]}

    def test_adapters_have_the_bits_of_copies(self):
        for count, more in ((2, {}), (3, {"precision": "bf16"})):
            self.assert_same_bits(count, MOVED, **LORA, **more, memory=self.AWAY)
        self.assert_same_bits(3, MOVED, **LORA, memory={**self.AWAY, "shard": "gradients", "recompute": "block"})

    def test_quantised_bases_have_the_bits_of_copies(self):
        for count in (2, 3):
            self.assert_same_bits(count, LARGER, **QLORA, memory=self.AWAY)
            self.assert_same_bits(count, LARGER, **{**QLORA, "method": {**QLORA["method"], "bits": 8}}, memory=self.AWAY)

    def test_what_begins_by_the_weights_has_the_bits_of_copies(self):
        for count in (2, 3):
            self.assert_same_bits(count, MOVED, method={"type": "lora", "r": 4, "dora": True}, memory=self.AWAY)
        self.assert_same_bits(2, MOVED, method={"type": "lora", "r": 4, "init": "pissa"}, memory=self.AWAY)

    def test_frozen_layers_have_the_bits_of_copies(self):
        for count in (2, 3):
            self.assert_same_bits(count, MOVED, method={"type": "full", "freeze": ["layers.0"]}, memory=self.AWAY)

    def test_tasks_and_families_have_the_bits_of_copies(self):
        for count in (2, 3):
            self.assert_same_bits(count, {**T5, "d_model": 192, "d_ff": 256}, task="seq2seq", **LORA, memory=self.AWAY)
            self.assert_same_bits(count, MOVED, task="dpo", **LORA, memory=self.AWAY)

    def test_what_ranks_divide_is_no_copy(self):
        """Divided weights are another part at each process, on the host too."""
        recipe = tiny_recipe(self.folder, MOVED, "run", **LONG, **LORA, memory={**self.AWAY, "shard": "weights"})
        plan = json.loads(output("plan", recipe, "--devices", 2, "--device", "emulated", "--threads", 1, "--json"))
        self.assertEqual((plan["devices"]["shard"], plan["devices"]["shared_bytes"]), ("weights", 0))

    @command_run.not_sanitized("memory is another")
    def test_each_process_locks_the_copy_and_can_only_read_it(self):
        recipe = tiny_recipe(self.folder, MOVED, "run", **{**LONG, "schedule": {"max_steps": 100_000}}, **LORA, memory=self.AWAY)
        planned = json.loads(output("plan", recipe, "--devices", 3, "--device", "emulated", "--threads", 1, "--json"))
        shared = planned["devices"]["shared_bytes"]
        part = [each["bytes"] for each in planned["host"]["components"] if each["name"] == "frozen weights, 1/3 of one copy"]
        self.assertAlmostEqual(part[0], shared / 3, delta=4096)
        process = self.begin(recipe, 3)
        pids = sorted(ranks_of(self.folder / "run").values())
        maps = [mapped_of(pid) for pid in pids]
        self.assertEqual(maps, [[(shared, "r--s", maps[0][0][2])]] * 3)
        self.assertEqual([locked_of(pid) for pid in pids], [shared] * 3)
        self.assertLess(sum(map(proportional, pids)), 1.01 * planned["devices"]["bytes_together"])
        self.end(process)
        self.assert_nothing_is_left(recipe, 3)

    def test_each_byte_is_read_by_one_process(self):
        self.train(MOVED, "made", 1, schedule={"max_steps": 1, "warmup": 0})
        stored = (self.folder / "made/model.safetensors").stat().st_size
        recipe = tiny_recipe(self.folder, MOVED, "run", model=str(self.folder / "made"), init="weights", **{**LONG, "schedule": {"max_steps": 1, "warmup": 0}}, **LORA, memory=self.AWAY)
        output("train", recipe, "--devices", 3, "--device", "emulated", "--threads", 1, "--quiet")
        read = [rank["loaded_bytes"] for rank in json.loads((self.folder / "run/run.json").read_text())["ranks"]]
        self.assertAlmostEqual(sum(read), stored, delta=65536)
        self.assertLess(max(read), 0.5 * stored)

    def test_memory_that_cannot_be_locked_is_refused_with_a_way_out(self):
        recipe = tiny_recipe(self.folder, MOVED, "run", **LONG, **LORA, memory=self.AWAY)
        words = ("train", recipe, "--devices", 2, "--device", "emulated", "--threads", 1, "--quiet", "--set", "schedule.max_steps=1", "--set", "schedule.warmup=0")
        errors = output(*words, code=3, preexec_fn=may_lock(65536))
        self.assertIn("of the host's memory cannot be locked for the card to copy from (Cannot allocate memory): a process may lock 64.0 KiB (ulimit -l); raise that, "
                      "or set memory.node_copy to false", errors)
        self.assertEqual(errors.count("memory.node_copy"), 2, errors)
        self.assertFalse((self.folder / "run/checkpoint-1").exists())
        output(*words, "--overwrite", "--set", "memory.node_copy=false", preexec_fn=may_lock(65536))


if __name__ == "__main__":
    command_run.main(testLoader=SuiteLoader("node_copy_test", ("assert_same_bits",)))
