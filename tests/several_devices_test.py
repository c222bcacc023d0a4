"""Runs on several devices: processes on the CPUs of one machine, which MPI connects. The same experiment as on one, faults, refusals, resume.

Usage: several_devices_test.py PLIMSOLL (from the repository's root). Standard library only; skipped where Open MPI is not installed.
For another MPI, once in a while: PLIMSOLL_MPI names its plug-in, PATH has its mpiexec.hydra.
"""
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest
import zlib
from pathlib import Path

import command_run
from command_run import CommandTest, PLIMSOLL, losses_of, output, run
from shard import SuiteLoader, is_mine
from small_models import LLAMA, T5, steps, tiny_recipe

PLUGIN = PLIMSOLL.parent / "libplimsoll_mpi.so"
OPEN_MPI = "PLIMSOLL_MPI" not in os.environ
MPIRUN = (shutil.which("mpirun.openmpi") or shutil.which("mpirun")) if OPEN_MPI else shutil.which("mpiexec.hydra")
# Copies between processes may be forbidden where tests run.
os.environ.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
MAY_UNSHARE = os.geteuid() == 0 and subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True).returncode == 0
STEPS = 20
LONG = {"schedule": {"max_steps": STEPS, "warmup": 2}, "batch": {"effective": 8}, "optimizer": {"lr": 1e-3}}
EVALUATED = {**LONG, "eval": {"every": 10}, "data": {"eval": 7}}
PAIRS = {**EVALUATED, "data": {"eval": 3}}  # of eight
LORA = {"method": {"type": "lora", "r": 4, "dropout": 0.1}}
QLORA = {"precision": "bf16", "method": {"type": "qlora", "r": 4}}
# Matrices that several ranks divide, and vectors that they do not.
WIDE = {**LLAMA, "hidden_size": 64, "intermediate_size": 72}
# Weights that are worth a disk.
LARGE = {**LLAMA, "hidden_size": 192, "intermediate_size": 256}
CLASSES = {"task": "classify", "classify": {"labels": ["question", "order", "fact"]}}


def processes_of(folder):
    """Ids of the processes that run a recipe of this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if str(folder).encode() in b" ".join(words) and state != "Z":
                found.append((int(entry.name), words))
    return found


def ranks_of(folder):
    """{rank: process id} of a run."""
    ranks = {}
    for pid, _ in processes_of(folder):
        try:
            variables = (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")):
                ranks[int(variable.partition(b"=")[2])] = pid
    return ranks


def wait_for(condition):
    while not condition():
        time.sleep(0.02)


def is_my_cell(*cell):
    """Whether this pair of runs with equal bits is in the slice that runs (tests/shard.py)."""
    return is_mine("several_devices", zlib.crc32(repr(cell).encode()))


@unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
class SeveralDevices(CommandTest):
    needs_run = False

    def losses(self, config, name, devices, **settings):
        recipe = tiny_recipe(self.folder, config, name, **settings)
        done = output("train", recipe, "--devices", devices, "--threads", 1, "--quiet")
        self.assertEqual(done, "")
        return losses_of(self.folder / name)

    def assert_same_experiment(self, config, counts=(2, 3), **settings):
        """Loss of every step, and the evaluations, are those of one device."""
        for earlier in ("alone", *(f"on{count}" for count in counts)):
            shutil.rmtree(self.folder / earlier, ignore_errors=True)
        alone = self.losses(config, "alone", 1, **settings)
        self.assertEqual(len(alone), STEPS)
        for count in counts:
            name = f"on{count}"
            for own, other in zip(alone, self.losses(config, name, count, **settings), strict=True):
                self.assertAlmostEqual(own, other, delta=1e-5)
            self.compare_evaluations(name)
            self.compare_memory(name, count)

    def compare_evaluations(self, name):
        lines = [(self.folder / run_name / "eval.jsonl") for run_name in ("alone", name)]
        if not lines[0].exists():
            return
        for own, other in zip(*([json.loads(line) for line in path.read_text().splitlines()] for path in lines), strict=True):
            self.assertEqual(own["target_tokens"], other["target_tokens"])
            self.assertAlmostEqual(own["loss"], other["loss"], delta=1e-5)
            self.assertEqual({key for key in own if key != "time"}, {key for key in other if key != "time"})
            for key in set(own) - {"time", "seconds"}:
                if isinstance(own[key], (int, float)):
                    self.assertAlmostEqual(own[key], other[key], delta=1e-5 * max(1.0, abs(own[key])), msg=key)

    def compare_memory(self, name, count):
        """Planned is allocated at each rank, and each stays below its plan."""
        done = json.loads((self.folder / name / "run.json").read_text())
        self.assertEqual(len(done["ranks"]), count)
        for rank in done["ranks"]:
            self.assertEqual(rank["device_arena_bytes"], done["planned"]["device_arena_bytes"])
            self.assertGreater(rank["sent_bytes"], 0)
            if not command_run.SANITIZED:
                self.assertLess(rank["process_peak_rss_bytes"], done["planned"]["process_peak_rss_bytes"])
                self.assertLess(rank["process_data_bytes"], done["planned"]["process_data_bytes"])

    def test_full_fine_tuning_of_a_decoder_is_the_same_experiment(self):
        self.assert_same_experiment(LLAMA, **EVALUATED)

    def test_adapters_with_dropout_are_the_same_experiment(self):
        self.assert_same_experiment(LLAMA, **EVALUATED, **LORA)

    def test_a_t5_is_the_same_experiment(self):
        self.assert_same_experiment(T5, (3,), task="seq2seq", **EVALUATED)

    def test_a_classifier_has_the_scores_of_all_rows(self):
        self.assert_same_experiment(LLAMA, (3,), **CLASSES, **EVALUATED)
        scores = [json.loads((self.folder / name / "eval.jsonl").read_text().splitlines()[-1]) for name in ("alone", "on3")]
        self.assertIn("f1", scores[0])
        self.assertAlmostEqual(scores[0]["f1"], scores[1]["f1"], delta=1e-12)

    def test_rewards_of_pairs_are_the_same_experiment(self):
        self.assert_same_experiment(LLAMA, (2,), task="reward", **PAIRS)

    def test_preferences_beside_adapters_are_the_same_experiment(self):
        self.assert_same_experiment(LLAMA, (2,), task="dpo", **PAIRS, **LORA)

    def test_each_device_evaluates_rows_where_a_micro_batch_is_one(self):
        by_one = {"eval": {"every": 10, "micro": 1}}
        self.assert_same_experiment(LLAMA, (2, 3), **{**EVALUATED, **by_one})
        recipe = tiny_recipe(self.folder, LLAMA, "planned", **{**EVALUATED, **by_one})
        sizes = [next(part["bytes"] for part in json.loads(output("plan", recipe, "--devices", count, "--json"))["host"]["components"]
                      if part["name"] == "evaluation batches") for count in (1, 2, 3)]
        for count, size in zip((2, 3), sizes[1:], strict=True):  # a row for each
            self.assertAlmostEqual(size, count * sizes[0], delta=0.05 * size)

    def test_each_device_evaluates_rows_for_scores_preferences_and_divided_weights(self):
        by_one = {"eval": {"every": 10, "micro": 1}}
        for settings in ({**CLASSES, **EVALUATED}, {"task": "dpo", **PAIRS, **LORA}, {"memory": {"shard": "weights"}, **EVALUATED}):
            with self.subTest(settings):
                self.assert_same_experiment(LLAMA, (3,), **{**settings, **by_one})

    def test_quantised_bases_are_the_same_experiment(self):
        self.assert_same_experiment({**LLAMA, "hidden_size": 64, "intermediate_size": 64}, (2,), **LONG, method={"type": "qlora", "r": 4})
        self.assert_same_experiment({**LLAMA, "hidden_size": 64, "intermediate_size": 64}, (2,), **LONG, method={"type": "qlora", "bits": 8, "r": 4})

    def test_packed_rows_are_the_same_experiment(self):
        settings = {**LONG, "data": {"packing": True}}
        self.assert_same_experiment(LLAMA, (2,), **settings)

    def test_the_same_number_of_devices_gives_the_same_bits(self):
        weights = []
        for name in ("first", "second"):
            recipe = tiny_recipe(self.folder, LLAMA, name, precision="bf16", **LONG)
            output("train", recipe, "--devices", 3, "--threads", 1, "--quiet")
            weights.append((self.folder / name / "model.safetensors").read_bytes())
        self.assertEqual(*weights)

    def test_mpi_moves_the_bits_that_threads_of_one_process_exchange(self):
        tool = PLIMSOLL.parent / "src/train/train_test"
        if not tool.exists():
            self.skipTest(f"{tool} is not built")
        ranks, found = 3, []
        starts = [MPIRUN, "-bind-to", "none", *(["-q", "--oversubscribe"] if OPEN_MPI else []), *(["--allow-run-as-root"] if OPEN_MPI and os.geteuid() == 0 else []),
                  "-np", str(ranks)]
        for words in ([], starts):
            place = self.folder / f"bits{len(found)}"
            place.mkdir()
            done = subprocess.run([*words, str(tool), "--gtest_filter=RanksBits.*"], capture_output=True, text=True, timeout=600,
                                  env={**os.environ, "PLIMSOLL_TEST_BITS": str(place / "of"), "PLIMSOLL_MPI": str(PLUGIN)})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found.append({path.name: path.read_bytes() for path in place.iterdir()})
        self.assertEqual(sorted(found[0]), sorted(f"of-{shard}.{rank}" for shard in ("whole", "divided") for rank in range(ranks)))
        self.assertGreater(min(map(len, found[0].values())), 1 << 20)
        self.assertEqual([name for name in found[0] if found[0][name] != found[1].get(name)], [])

    def assert_same_files(self, count, config=WIDE, **settings):
        """A run that divides its states leaves the files of one that does not, byte for byte, and holds less."""
        if not is_my_cell(count, config, settings):
            return
        runs = {}
        for shard in ("none", "states"):
            recipe = tiny_recipe(self.folder, config, shard, **{**LONG, "schedule": {"max_steps": 6, "warmup": 2}, **settings, "memory": {"shard": shard}})
            done = run("train", recipe, "--devices", count, "--threads", 1, "--quiet", "--overwrite")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            files = sorted(path for path in (self.folder / shard / "checkpoint-6").iterdir() if path.suffix == ".safetensors")
            runs[shard] = ({path.name: path.read_bytes() for path in files}, [step["grad_norm"] for step in steps(self.folder / shard)],
                           json.loads((self.folder / shard / "run.json").read_text()))
        self.assertIn("optimizer.safetensors", runs["none"][0])
        for name, content in runs["none"][0].items():
            self.assertTrue(content == runs["states"][0][name], f"{name} of {count} devices: {settings}")
        self.assertEqual(runs["none"][1], runs["states"][1])
        (whole, *_), (cut, *others) = runs["none"][2]["ranks"], runs["states"][2]["ranks"]
        planned = runs["states"][2]["planned"]["device_arena_bytes"]
        self.assertEqual([rank["device_arena_bytes"] for rank in (cut, *others)], [planned] * count)
        self.assertLess(cut["device_arena_bytes"], whole["device_arena_bytes"])

    def test_divided_states_give_the_bits_of_whole_ones(self):
        for count, settings in ((2, {}), (3, {"precision": "bf16-master"}), (2, {"precision": "bf16", "optimizer": {"name": "adamw8bit", "lr": 1e-3}}),
                                (3, {"precision": "bf16-pure", "optimizer": {"name": "lion", "lr": 1e-4, "max_grad_norm": 0.1}}),
                                (2, {"optimizer": {"name": "sgd", "lr": 1e-2, "momentum": 0.9, "max_grad_norm": 0}})):
            self.assert_same_files(count, **settings)

    def test_divided_states_of_adapters_give_the_bits_of_whole_ones(self):
        for count, settings in ((2, {}), (3, {"precision": "bf16"}), (2, {"precision": "bf16", "method": {"type": "qlora", "r": 16}}),
                                (3, {"precision": "bf16", "method": {"type": "qlora", "bits": 8, "r": 16}})):
            self.assert_same_files(count, **{"method": {"type": "lora", "r": 32, "dropout": 0.1}, **settings})

    def test_divided_states_of_other_tasks_give_the_bits_of_whole_ones(self):
        self.assert_same_files(2, T5, task="seq2seq")
        self.assert_same_files(2, task="reward", precision="bf16-master")

    def test_fp16_skips_the_steps_that_one_device_skips(self):
        self.assert_same_files(2, precision="fp16")
        self.assert_same_files(3, method={"type": "lora", "r": 32}, precision="fp16")
        alone = self.losses(WIDE, "alone", 1, precision="fp16", **LONG)
        for own, other in zip(alone, self.losses(WIDE, "on2", 2, precision="fp16", **LONG), strict=True):
            self.assertAlmostEqual(own, other, delta=2e-3)
        scales = [[step["loss_scale"] for step in steps(self.folder / name)] for name in ("alone", "on2")]
        self.assertEqual(*scales)

    def assert_offload_keeps_bits(self, count, parts, config=LARGE, **settings):
        """Whatever is on the disk of each rank, a run leaves the files of one that keeps all in memory."""
        if not is_my_cell(count, parts, settings):
            return
        settings = {**LONG, "schedule": {"max_steps": 4, "warmup": 2}, **settings}
        found = []
        for offload in ([], parts):
            for shard in ("none", "states"):
                memory = {"shard": shard, "loss_chunk": 64, **({"offload": offload, "disk": "1GiB"} if offload else {})}
                recipe = tiny_recipe(self.folder, config, "offloaded", **settings, memory=memory)
                output("train", recipe, "--devices", count, "--threads", 1, "--quiet", "--overwrite")
                if offload:
                    self.assertGreater(json.loads((self.folder / "offloaded/run.json").read_text())["measured"]["disk_bytes"], 0)
                files = sorted(path for path in (self.folder / "offloaded/checkpoint-4").iterdir() if path.suffix == ".safetensors")
                found.append({path.name: path.read_bytes() for path in files})
        for other in found[1:]:
            for name, content in found[0].items():
                self.assertTrue(content == other[name], f"{name} of {count} devices, {parts}: {settings}")

    def test_offload_gives_the_bits_of_keeping_all(self):
        self.assert_offload_keeps_bits(2, ["states", "gradients", "weights", "activations"], precision="bf16-master")
        self.assert_offload_keeps_bits(3, ["states", "gradients"], precision="bf16", optimizer={"name": "adamw8bit", "lr": 1e-3})
        self.assert_offload_keeps_bits(2, ["states", "weights"], precision="bf16", method={"type": "lora", "r": 32})

    def test_an_offloaded_run_continues_on_any_number_of_devices(self):
        settings = {**LONG, "save": {"every": 5, "keep": "all"}, "memory": {"disk": "1GiB", "offload": ["states", "weights"]}}
        whole = self.losses(LARGE, "whole", 1, **settings)
        recipe = tiny_recipe(self.folder, LARGE, "moves", **settings)
        for last, devices in ((20, 3), (10, 1), (5, 2)):
            for checkpoint in (self.folder / "moves").glob("checkpoint-*"):
                if int(checkpoint.name.partition("-")[2]) > last:
                    shutil.rmtree(checkpoint)
            output("train", recipe, *(["--resume"] if last < 20 else []), "--devices", devices, "--threads", 1, "--quiet")
            for own, other in zip(whole, losses_of(self.folder / "moves"), strict=True):
                self.assertAlmostEqual(own, other, delta=1e-5)

    def test_updates_in_the_backward_pass_are_the_same_experiment(self):
        # 16 rows in batches of 3: the last has one.
        settings = {"batch": {"effective": 3}, "schedule": {"epochs": 2, "warmup": 1}, "optimizer": {"lr": 1e-3, "max_grad_norm": 0}}
        alone = self.losses(WIDE, "alone", 1, **settings)
        for shard in ("none", "states"):
            recipe = tiny_recipe(self.folder, WIDE, shard, **settings, memory={"shard": shard})
            self.assertIn("in the backward pass", output("plan", recipe, "--devices", 3, "--threads", 1, "--full"))
            output("train", recipe, "--devices", 3, "--threads", 1, "--quiet")
            for own, other in zip(alone, losses_of(self.folder / shard), strict=True):
                self.assertAlmostEqual(own, other, delta=1e-5)
        self.assertEqual(*((self.folder / shard / "model.safetensors").read_bytes() for shard in ("none", "states")))

    def test_preferences_in_full_share_the_work_of_their_reference(self):
        self.assert_same_experiment(LLAMA, (2, 3), task="dpo", save={"every": 10, "keep": "all"}, **PAIRS)
        lines = [sorted((self.folder / name / "reference.jsonl").read_text().splitlines()) for name in ("alone", "on2", "on3")]
        self.assertEqual([len(each) for each in lines], [len(lines[0])] * 3)
        rows = [[json.loads(line) for line in each if '"chosen"' in line] for each in lines]
        for other in rows[1:]:
            for one, two in zip(rows[0], other, strict=True):
                self.assertEqual((one["data"], one["row"]), (two["data"], two["row"]))
                self.assertAlmostEqual(one["chosen"], two["chosen"], delta=1e-4)
        # A run whose file lost lines computes these again, with the weights that it began with.
        recipe, out = self.folder / "on3.json", self.folder / "on3"
        shutil.rmtree(out / f"checkpoint-{STEPS}")
        content = (out / "reference.jsonl").read_text().splitlines(keepends=True)
        (out / "reference.jsonl").write_text("".join(content[:3]))
        before = losses_of(out)
        settings = ("--set", "schedule.max_steps=24")
        self.assertIn("they are recomputed", run("train", recipe, "--resume", "--devices", 2, "--threads", 1, *settings).stderr)
        self.assertEqual(losses_of(out)[:10], before[:10])
        self.assertEqual(len((out / "reference.jsonl").read_text().splitlines()), len(content))

    def test_each_byte_of_the_weights_is_read_by_one_rank(self):
        output("train", tiny_recipe(self.folder, WIDE, "made", schedule={"max_steps": 1}), "--quiet")
        made = self.folder / "made"
        content = (made / "model.safetensors").read_bytes()
        entries = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
        stored = sum(entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in entries.items() if name != "__metadata__")
        results = []
        for devices, settings in ((1, {}), (2, {}), (3, {"precision": "bf16-master"}), (3, LORA), (3, QLORA)):
            recipe = tiny_recipe(self.folder, WIDE, f"loaded{len(results)}", model=str(made), init="weights", **{**LONG, **settings})
            output("train", recipe, "--devices", devices, "--threads", 1, "--quiet")
            results.append(json.loads((self.folder / f"loaded{len(results)}/run.json").read_text()))
            if devices > 1:
                read = [rank["loaded_bytes"] for rank in results[-1]["ranks"]]
                self.assertEqual(sum(read), stored)
                self.assertLess(max(read), 1.1 * stored / devices)
        for own, other in zip(losses_of(self.folder / "loaded0"), losses_of(self.folder / "loaded1"), strict=True):
            self.assertAlmostEqual(own, other, delta=1e-5)
        # A value that is damaged in one rank's share ends all; nothing is left.
        damaged = bytearray(content)
        damaged[-2:] = b"\xff\xff"
        (made / "model.safetensors").write_bytes(damaged)
        recipe = tiny_recipe(self.folder, WIDE, "never", model=str(made), init="weights", **LONG)
        errors = output("train", recipe, "--devices", 3, "--threads", 1, "--quiet", code=4)
        self.assertIn("is NaN or infinite", errors)
        self.assertEqual(errors.count("error: "), 1, errors)
        self.assertFalse((self.folder / "never").exists())

    def test_logs_of_ranks_are_of_their_run(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", **LONG)
        logs = lambda: sorted(path.name for path in (self.folder / "run/.plimsoll").glob("rank-*.log"))  # noqa: E731
        output("train", recipe, "--devices", 3, "--threads", 1, "--quiet")
        self.assertEqual(logs(), ["rank-1.log", "rank-2.log"])
        output("train", recipe, "--devices", 2, "--threads", 1, "--quiet", "--overwrite")
        self.assertEqual(logs(), ["rank-1.log"])
        output("train", recipe, "--threads", 1, "--quiet", "--overwrite")
        self.assertEqual(logs(), [])

    def test_bytes_sent_are_those_of_the_plan(self):
        in_backward = {"optimizer": {"lr": 1e-3, "max_grad_norm": 0}, "batch": {"effective": 3}}
        for shard, settings in (("none", in_backward), ("states", in_backward), ("none", {}), ("states", {"precision": "bf16-master"}),
                                ("states", {"method": {"type": "lora", "r": 32}, "precision": "bf16"})):
            recipe = tiny_recipe(self.folder, WIDE, "sent", **{**LONG, "schedule": {"max_steps": 4, "warmup": 1}, **settings, "memory": {"shard": shard}})
            planned = json.loads(output("plan", recipe, "--devices", 3, "--threads", 1, "--json"))["devices"]["sent_bytes_per_step"]
            output("train", recipe, "--devices", 3, "--threads", 1, "--quiet", "--overwrite")
            ranks = json.loads((self.folder / "sent/run.json").read_text())["ranks"]
            self.assertEqual([rank["sent_bytes"] for rank in ranks], [4 * planned] * 3)
            self.assertTrue(all(rank["sending_seconds"] > 0 for rank in ranks))

    def test_the_folder_that_all_runs_of_a_user_share_is_not_taken(self):
        """Open MPI's: a run that ends removes it while another one begins."""
        recipe = tiny_recipe(self.folder, WIDE, "apart", **{**LONG, "schedule": {"max_steps": 1}})
        place = self.folder / "tmp"
        place.mkdir()
        shared = place / f"ompi.{socket.gethostname().split('.')[0]}.{os.getuid()}"
        shared.write_text("")  # where that folder would be
        output("train", recipe, "--devices", 2, "--threads", 1, "--quiet", env={**os.environ, "TMPDIR": str(place)})
        self.assertEqual(list(place.iterdir()), [shared])

    def test_calibration_between_devices_is_what_a_plan_counts_with(self):
        environment = {**os.environ, "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")}
        recipe = tiny_recipe(self.folder, WIDE, "run", **LONG)
        plan = lambda *words: json.loads(output("plan", recipe, "--devices", 2, "--no-probe", "--json", *words, env=environment))["devices"]  # noqa: E731
        guess = plan()
        said = output("calibrate", "--devices", 2, "--even-if-busy", env=environment)
        self.assertIn("between 2 processes ", said)
        measured, stated = plan(), plan("--link", "20GB/s")
        self.assertEqual([guess["link"], measured["link"], stated["link"]], ["guessed", "measured", "stated"])
        self.assertEqual(stated["link_bytes_per_second"], 2e10)
        for each in (guess, measured, stated):
            self.assertAlmostEqual(each["sending_seconds_per_step"], each["sent_bytes_per_step"] / each["link_bytes_per_second"], places=9)
        for words in (("--quick",), ("--threads", 1), ("--export", "rates.json"), ("--disk-folder", str(self.folder))):
            self.assertIn(f"so that {words[0]} has no effect", output("calibrate", "--devices", 2, *words, env=environment, code=2))
        self.assertIn("no number of bytes per second", output("plan", recipe, "--devices", 2, "--link", "20GB", code=2))

    def test_a_last_batch_of_fewer_rows_than_ranks_counts(self):
        # 16 rows in batches of 5: the last has one.
        settings = {"batch": {"effective": 5}, "schedule": {"epochs": 2, "warmup": 1}, "optimizer": {"lr": 1e-3}}
        alone = self.losses(LLAMA, "alone", 1, **settings)
        for own, other in zip(alone, self.losses(LLAMA, "on3", 3, **settings), strict=True):
            self.assertAlmostEqual(own, other, delta=1e-5)

    def test_one_rank_prints_and_the_files_are_those_of_one_device(self):
        recipe = tiny_recipe(self.folder, LLAMA, "alone", **EVALUATED)
        output("train", recipe, "--threads", 1)
        recipe = tiny_recipe(self.folder, LLAMA, "on2", **EVALUATED)
        done = run("train", recipe, "--devices", 2, "--threads", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("\ndone "), 1, done.stderr)
        log = self.folder / "on2/.plimsoll/rank-1.log"
        self.assertEqual(log.read_text().count("comm "), STEPS)
        files = [sorted(str(path.relative_to(self.folder / name)) for path in (self.folder / name).rglob("*") if path.is_file() and path != log)
                 for name in ("alone", "on2")]
        self.assertEqual(*files)
        sizes = [(self.folder / name / f"checkpoint-{STEPS}/optimizer.safetensors").stat().st_size for name in ("alone", "on2")]
        self.assertEqual(*sizes)

    def test_a_run_continues_on_any_number_of_devices(self):
        settings = {**LONG, "save": {"every": 5, "keep": "all"}}
        whole = self.losses(WIDE, "whole", 1, **settings)
        recipe = tiny_recipe(self.folder, WIDE, "moves", **settings)
        output("train", recipe, "--devices", 3, "--threads", 1, "--quiet")
        out = self.folder / "moves"
        for last, devices, shard, notes in ((15, 1, "auto", 1), (10, 2, "states", 1), (5, 2, "none", 1), (5, 3, "none", 0), (15, 3, "states", 0)):
            for checkpoint in out.glob("checkpoint-*"):
                if int(checkpoint.name.partition("-")[2]) > last:
                    shutil.rmtree(checkpoint)
            done = run("train", recipe, "--resume", "--devices", devices, "--threads", 1, "--set", f"memory.shard={shard}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("the same experiment, but sums are formed in another order"), notes, done.stderr)
            for own, other in zip(whole, losses_of(out), strict=True):
                self.assertAlmostEqual(own, other, delta=1e-5)

    def test_a_run_that_goes_on_has_the_bits_of_one_that_was_never_stopped(self):
        settings = {**LONG, "precision": "bf16-master", "save": {"every": 10, "keep": "all"}}
        output("train", tiny_recipe(self.folder, WIDE, "whole", **settings), "--devices", 3, "--threads", 1, "--quiet")
        recipe = tiny_recipe(self.folder, WIDE, "stopped", **settings)
        output("train", recipe, "--devices", 3, "--threads", 1, "--quiet")
        for shard in ("states", "none", "states"):
            shutil.rmtree(self.folder / f"stopped/checkpoint-{STEPS}")
            output("train", recipe, "--resume", "--devices", 3, "--threads", 1, "--quiet", "--set", f"memory.shard={shard}")
            for file in ("model.safetensors", "optimizer.safetensors"):
                own, other = ((self.folder / name / f"checkpoint-{STEPS}" / file).read_bytes() for name in ("whole", "stopped"))
                self.assertTrue(own == other, f"{file}, {shard}")

    def start(self, name, devices, *words, **settings):
        """A long run that has saved once."""
        recipe = tiny_recipe(self.folder, LLAMA, name, batch={"effective": 6}, schedule={"max_steps": 100000, "warmup": 2},
                             save={"every": 20, "keep": 2}, optimizer={"lr": 1e-4}, **settings)
        process = subprocess.Popen([str(PLIMSOLL), "train", str(recipe), "--devices", str(devices), "--threads", "1", "--quiet", *words],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        wait_for(lambda: process.poll() is not None or list((self.folder / name).glob("checkpoint-*")))
        self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
        return recipe, process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        for pid, _ in processes_of(self.folder):
            os.kill(pid, signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()

    def newest(self, name):
        return max(int(path.name.partition("-")[2]) for path in (self.folder / name).glob("checkpoint-*"))

    def continues(self, recipe, name):
        """No process is left, and the newest checkpoint is whole: two devices and one go on from it."""
        wait_for(lambda: not processes_of(self.folder))
        for devices in (2, 1):
            last = self.newest(name)
            process = subprocess.Popen([str(PLIMSOLL), "train", str(recipe), "--resume", "--devices", str(devices), "--threads", "1", "--quiet"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(self.end, process)
            wait_for(lambda: process.poll() is not None or self.newest(name) > last)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate()
            self.assertEqual(process.returncode, 130, errors)
            self.assertEqual([step["step"] for step in steps(self.folder / name)], list(range(1, self.newest(name) + 1)))

    def test_a_rank_that_is_killed_ends_all_with_one_code(self):
        for victim in (1, 0):
            name = f"killed{victim}"
            recipe, process = self.start(name, 3)
            os.kill(ranks_of(self.folder)[victim], signal.SIGKILL)
            _, errors = process.communicate()
            self.assertEqual(process.returncode, 5, errors)
            if OPEN_MPI:  # mpiexec of MPICH kills the others before one of them has said so
                self.assertIn(f"error: the process of rank {victim} ended: all processes of the run end", errors)
                self.assertIn("the last checkpoint is whole: ", errors)
                self.assertEqual(errors.count("error: "), 1, errors)
            self.continues(recipe, name)

    def test_a_rank_that_says_nothing_ends_all_after_the_stated_silence(self):
        for victim in (1, 0):
            name = f"stopped{victim}"
            recipe, process = self.start(name, 2, "--set", "stop.silence=10")
            os.kill(ranks_of(self.folder)[victim], signal.SIGSTOP)
            _, errors = process.communicate()
            self.assertEqual(process.returncode, 5, errors)
            self.assertIn(f"error: rank {victim} has said nothing for ", errors)
            self.continues(recipe, name)

    def test_a_signal_stops_all_after_a_save(self):
        recipe, process = self.start("signalled", 2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 130, errors)
        last = steps(self.folder / "signalled")[-1]["step"]
        self.assertTrue((self.folder / f"signalled/checkpoint-{last}").is_dir())
        self.continues(recipe, "signalled")

    def test_all_end_with_the_process_that_started_them(self):
        recipe = tiny_recipe(self.folder, LLAMA, "orphaned", batch={"effective": 6}, schedule={"max_steps": 100000, "warmup": 2},
                             save={"every": 20, "keep": 2}, optimizer={"lr": 1e-4})
        parent = subprocess.Popen(["sh", "-c", '"$@" --die-with-parent $$ & wait', "parent", str(PLIMSOLL), "train", str(recipe), "--devices", "2",
                                   "--threads", "1", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, parent)
        wait_for(lambda: parent.poll() is not None or list((self.folder / "orphaned").glob("checkpoint-*")))
        self.assertIsNone(parent.poll())
        parent.kill()
        self.continues(recipe, "orphaned")

    def test_a_signal_asks_for_a_checkpoint(self):
        _, process = self.start("asked", 2)
        process.send_signal(signal.SIGUSR1)
        events = self.folder / "asked/events.jsonl"
        wait_for(lambda: process.poll() is not None or '"SIGUSR1"' in events.read_text())
        self.assertIsNone(process.poll())

    def test_a_loss_that_is_lost_stops_all(self):
        recipe = tiny_recipe(self.folder, LLAMA, "lost", **{**LONG, "optimizer": {"lr": 1e-3}}, stop={"above": 0.001, "above_steps": 3})
        errors = output("train", recipe, "--devices", 2, "--threads", 1, "--quiet", code=5)
        self.assertIn("step 3: the loss is above 0.001000 in 3 steps in a row (stop.above)", errors)
        self.assertEqual(errors.count("error: "), 1, errors)

    def mpirun(self, *per_rank, last_within=()):
        """Each rank with its own words; rank 0 first. The last one is started by `last_within`."""
        words = [MPIRUN, "-bind-to", "none"]
        if OPEN_MPI:
            words += ["-q", "--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
        for number, own in enumerate(per_rank):
            within = last_within if number == len(per_rank) - 1 else ()
            words += ([":"] if number else []) + ["-np", "1", *within, str(PLIMSOLL), "train", *map(str, own), "--threads", "1"]
        return subprocess.run(words, capture_output=True, text=True, timeout=600)

    def test_mpirun_of_the_user_starts_ranks_too(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", **LONG)
        done = self.mpirun((recipe, "--quiet"), (recipe, "--quiet"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(json.loads((self.folder / "run/run.json").read_text())["ranks"]), 2)
        wrong = self.mpirun((recipe, "--overwrite", "--devices", 3), (recipe, "--overwrite", "--devices", 3))
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("devices: 3, but 2 processes were started", wrong.stderr)

    def test_ranks_that_differ_are_refused_before_the_folder_is_touched(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", **LONG)
        other = self.folder / "other.jsonl"
        other.write_text((self.folder / "rows.jsonl").read_text().replace("Thank", "Thunk"))
        shutil.copytree(self.folder / "model", self.folder / "model2")
        config = json.loads((self.folder / "model2/config.json").read_text())
        (self.folder / "model2/config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-4}))
        same, lesser = (recipe,), [("instruction set", ("--max-isa", "avx2"))]
        if json.loads(output("plan", recipe, "--json"))["variant"]["isa"] == "avx2":
            lesser = []  # this machine has no other
        for name, words in (("data.train (content)", ("--set", f"data.train={other}")), ("model (config)", ("--set", f"model={self.folder}/model2")),
                            ("optimizer.lr", ("--lr", "1e-5")), *lesser):
            done = self.mpirun(same, (recipe, *words))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"error: devices: rank 1 has another {name} than rank 0: ", done.stderr)
            self.assertEqual(done.stderr.count("error: "), 1, done.stderr)
            self.assertFalse((self.folder / "run").exists())

    @unittest.skipUnless(MAY_UNSHARE, "folders of its own take rights")
    def test_an_output_folder_that_is_not_shared_is_refused(self):
        (self.folder / "place").mkdir()
        recipe = tiny_recipe(self.folder, LLAMA, "run", output=str(self.folder / "place/run"), **LONG)
        done = self.mpirun((recipe,), (recipe,), last_within=("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{self.folder}/place" && exec "$@"', "sh"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("error: devices: rank 1 has another output folder (the process that holds it) than rank 0: none", done.stderr)
        self.assertFalse((self.folder / "place/run").exists())

    def test_an_error_of_all_is_said_once(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", **LONG)
        errors = output("train", recipe, "--devices", 3, "--memory", "60MiB", code=3)
        self.assertEqual(errors.count("does not fit   "), 1, errors)
        missing = self.mpirun((recipe, "--set", "data.train=none.jsonl"), (recipe, "--set", "data.train=none.jsonl"))
        self.assertEqual(missing.returncode, 2)
        self.assertEqual(missing.stderr.count("error: "), 1, missing.stderr)
        self.assertFalse((self.folder / "run").exists())

    @unittest.skipUnless(OPEN_MPI and MAY_UNSHARE, "another name of the machine takes its rights")
    def test_the_machine_with_most_processes_bounds_the_memory_of_each(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", **LONG)

        def started(memory):
            words = [MPIRUN, "-q", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]
            for number, (name, count) in enumerate((("one", 3), ("two", 1))):
                words += ([":"] if number else []) + ["-np", str(count), "unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"]
                words += [str(PLIMSOLL), "train", str(recipe), "--threads", "1", "--memory", memory]
            return subprocess.run(words, capture_output=True, text=True, timeout=600)

        refused = started("120MiB")
        self.assertIn("divided among its 3 processes", refused.stderr)
        self.assertNotIn("--nodes", refused.stderr)  # train has no such option
        done = started("600MiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" of 200 MiB", done.stdout + done.stderr)

    @unittest.skipUnless(OPEN_MPI, "another MPI waits for the launcher that the variable promises")
    def test_the_wrong_mpirun_is_noticed(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", **LONG)
        errors = output("train", recipe, code=2, env={**os.environ, "PMI_SIZE": "2"})
        self.assertIn("mpiexec (PMI) started 2 processes, and Open MPI", errors)
        self.assertFalse((self.folder / "run").exists())

    def test_srun_without_pmix_is_refused(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", **LONG)
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_NODELIST": "localhost", "SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_STEP_NUM_TASKS": "2",
                 "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
        protocol = "PMIx, by which Open MPI" if OPEN_MPI else "PMI, by which MPICH"
        for launcher, more in (("srun", {}), ("mpiexec (PMI)", {"PMI_SIZE": "2", "PMI_RANK": "0"}))[:1 + OPEN_MPI]:  # --mpi=none, --mpi=pmi2
            errors = output("train", recipe, code=2, env={**os.environ, **slurm, **more})
            self.assertIn(f"devices: {launcher} started 2 processes without {protocol}", errors)
        self.assertFalse((self.folder / "run").exists())


class Refused(CommandTest):
    """What needs no MPI."""
    needs_run = False

    def test_without_mpi_the_package_is_named(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run")
        for plugin in ("nowhere.so", __file__):
            errors = output("train", recipe, "--devices", 2, code=2, env={**os.environ, "PLIMSOLL_MPI": plugin})
            self.assertIn("devices: several processes need MPI", errors)
            self.assertIn("openmpi-bin", errors)
        if PLUGIN.exists():
            errors = output("train", recipe, "--devices", 2, code=2, env={**os.environ, "PATH": "/nowhere"})
            self.assertIn("mpirun, which is not in PATH: install Open MPI", errors)
        self.assertFalse((self.folder / "run").exists())

    @unittest.skipUnless(OPEN_MPI and PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
    def test_a_limit_on_files_is_refused_where_open_mpi_would_wait_without_an_end(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run")
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        errors = output("train", recipe, "--devices", 2, "--threads", 1, code=2, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard)))
        self.assertIn("a limit (ulimit -f) ends files at 1.00 MiB: raise it to 8.00 MiB or more (ulimit -f unlimited)", errors)
        self.assertFalse((self.folder / "run").exists())

    def test_the_program_itself_needs_no_mpi(self):
        if shutil.which("readelf") is None:
            self.skipTest("readelf is not here")
        needed = subprocess.run(["readelf", "-d", str(PLIMSOLL)], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("libmpi", needed)

    def test_what_several_devices_cannot_do_is_refused_by_name(self):
        for words, name in ((("--set", "memory.keep_frozen=on"), "memory.keep_frozen: on"),
                            (("--set", "memory.shard=states", "--set", "optimizer.name=adafactor"), "memory.shard: states with optimizer.name: adafactor")):
            recipe = tiny_recipe(self.folder, LLAMA, "run")
            errors = output("plan", recipe, "--devices", 2, *words, code=2)
            self.assertIn(f"devices: 2: {name} is not supported with several devices yet", errors)
        errors = output("plan", recipe, "--devices", 5, code=2)
        self.assertIn("devices: 5 processes share batch.effective: 4 sequences", errors)
        shared = output("plan", recipe, "--devices", 2, "--set", "data.share_prefixes=on", code=2)
        self.assertIn("data.share_prefixes: on, but devices: 2 deals rows by their length", shared)
        for words, said in ((("--events", "2"), "--events is of one device so far"),):
            self.assertIn(f"devices: 2: {said}", output("train", recipe, "--devices", 2, *words, code=2))
        self.assertIn("devices: 2: a recipe on standard input is of one device so far",
                      output("train", "-", "--devices", 2, code=2, input=Path(recipe).read_text()))
        started = {**os.environ, "OMPI_COMM_WORLD_SIZE": "1"}
        self.assertIn("devices: 2, but mpirun started 1 process", output("train", recipe, "--devices", 2, code=2, env=started))
        self.assertFalse((self.folder / "run").exists())

    def test_several_numbers_and_shards_are_compared(self):
        recipe = tiny_recipe(self.folder, WIDE, "run", batch={"effective": 8})
        rows = json.loads(output("plan", recipe, "--json", "--memory", "1GiB", "--threads", 1, "--compare", "devices=1,2", "shard=none,states"))["rows"]
        self.assertTrue(all(row["feasible"] and row["same_result"] for row in rows), rows)
        self.assertEqual([row["devices"] for row in rows], [1, 1, 2, 2])
        self.assertEqual(rows[0]["device_bytes"], rows[1]["device_bytes"])
        self.assertLess(rows[3]["device_bytes"], rows[2]["device_bytes"])
        self.assertLessEqual(rows[3]["sent_bytes_per_step"], rows[2]["sent_bytes_per_step"])
        self.assertIn("sent GiB", output("plan", recipe, "--compare", "devices=1,2"))

    def test_numbers_below_that_of_the_machines_have_one_for_each(self):
        recipe = tiny_recipe(self.folder, WIDE, "run", batch={"effective": 8})
        compared = lambda *words: json.loads(output("plan", recipe, "--json", "--memory", "1GiB", "--threads", 1, "--compare", "devices=1,2,4", *words))["rows"]  # noqa: E731
        apart, together = compared("--nodes", 2), compared()
        self.assertTrue(all(row["feasible"] and row["same_result"] for row in (*apart, *together)), apart)
        self.assertEqual(apart[0], together[0])  # one device has one machine
        self.assertEqual([row["devices"] for row in apart], [1, 2, 4])
        self.assertIn("--nodes 3: devices: 2 are fewer than one for each",
                      output("plan", recipe, "--devices", 2, "--nodes", 3, "--compare", "shard=none,states", code=2))
        # One device is looked at on one machine, and so is it suggested.
        slow = output("plan", recipe, "--devices", 4, "--nodes", 2, "--threads", 1, "--memory", "1GiB", "--link", "1KB/s")
        self.assertTrue(slow.startswith("one device is faster: "), slow[:200])
        refused = output("plan", recipe, "--devices", 4, "--nodes", 2, "--threads", 1, "--memory", "72MiB", "--set", "memory.headroom=0%", code=3)
        suggested = [line.strip() for line in refused.splitlines() if "plimsoll plan" in line and "--devices 1" in line]
        self.assertTrue(suggested, refused)
        self.assertNotIn("--nodes", suggested[0])

    def test_one_device_that_is_faster_is_the_first_line(self):
        recipe = tiny_recipe(self.folder, WIDE, "run", batch={"effective": 8})
        slow = output("plan", recipe, "--devices", 2, "--threads", 1, "--memory", "1GiB", "--link", "1KB/s")
        self.assertRegex(slow, r"^one device is faster: [\d.]+ m?s a step, 2 devices take ")
        fast = output("plan", recipe, "--devices", 2, "--threads", 1, "--memory", "1GiB", "--link", "1000GB/s")
        self.assertTrue(fast.startswith("fits "), fast)
        self.assertIn("(1 KB/s, as --link states", " ".join(slow.split()))
        self.assertIn("(1000 GB/s, as --link states", " ".join(fast.split()))

    def test_a_refusal_names_what_fits(self):
        recipe = tiny_recipe(self.folder, {**WIDE, "hidden_size": 256, "intermediate_size": 512}, "run", batch={"effective": 8})
        least = lambda *words: json.loads(output("plan", recipe, "--json", "--threads", 1, *words))["smallest"]["memory_bytes"]  # noqa: E731
        whole, cut = least("--devices", 2, "--set", "memory.shard=none"), least("--devices", 2)
        self.assertLess(cut, whole)
        budget = whole + cut  # of both processes
        errors = output("plan", recipe, "--threads", 1, "--devices", 2, "--set", "memory.shard=none", "--memory", f"{budget}B", "--set", "memory.headroom=0%", code=3)
        self.assertIn("memory.shard=states", errors)
        self.assertIn("--devices 1", errors)
        # What is suggested was planned for the program that it names: four processes fit with divided states alone.
        whole, cut = least("--devices", 4, "--set", "memory.shard=none"), least("--devices", 4)
        for budget in (4 * whole - 1, 4 * cut):
            words = ("--devices", 4, "--memory", f"{budget}B", "--set", "memory.headroom=0%")
            errors = output("plan", recipe, "--threads", 1, *words, "--set", "memory.shard=none", code=3)
            output("plan", recipe, "--threads", 1, *words)
            self.assertIn("memory.shard=states", errors)

    def test_weights_that_are_not_finite_are_saved_by_no_rank(self):
        output("train", tiny_recipe(self.folder, {**WIDE, "tie_word_embeddings": False}, "made", schedule={"max_steps": 1}), "--quiet")
        weights = self.folder / "made" / "model.safetensors"
        content = bytearray(weights.read_bytes())
        head = int.from_bytes(content[:8], "little")
        at = 8 + head + json.loads(content[8:8 + head])["model.embed_tokens.weight"]["data_offsets"][1]
        content[at - 4:at] = struct.pack("<f", 3e38)  # of a token that occurs nowhere
        weights.write_bytes(content)
        for shard in ("none", "states"):
            recipe = tiny_recipe(self.folder, {**WIDE, "tie_word_embeddings": False}, shard, model=str(self.folder / "made"), init="weights",
                                 optimizer={"lr": 10, "weight_decay": 1, "max_grad_norm": 0}, schedule={"max_steps": 4, "warmup": 0},
                                 save={"every": 1}, memory={"shard": shard})
            done = run("train", recipe, "--devices", 2, "--threads", 1, "--quiet")
            self.assertEqual((done.returncode, done.stderr.count("error:")), (5, 1), done.stderr)
            self.assertIn("holds NaN or infinity", done.stderr)
            self.assertEqual(len(list((self.folder / shard).glob("stopped-at-step-*.jsonl"))), 1)
            self.assertEqual(list((self.folder / shard).glob("checkpoint-*")), [])
            self.assertNotIn("signal", (self.folder / shard / ".plimsoll/rank-1.log").read_text())

    def test_a_plan_is_of_each_process_and_their_sum(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", batch={"effective": 8})
        one = json.loads(output("plan", recipe, "--json", "--memory", "1GiB", "--threads", 1))
        self.assertNotIn("devices", one)
        unmeasured = {**os.environ, "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")}
        plan = json.loads(output("plan", recipe, "--json", "--memory", "1GiB", "--threads", 1, "--devices", 2, env=unmeasured))
        each = plan["process"]["planned_peak_rss_bytes"]
        self.assertEqual([plan["devices"][key] for key in ("count", "bytes_each", "bytes_together", "shard", "link")], [2, each, 2 * each, "states", "guessed"])
        self.assertEqual(plan["process"]["budget_bytes"], 1 << 29)
        self.assertLessEqual(plan["variant"]["micro_batch"], 4)
        names = [part["name"] for part in plan["host"]["components"]]
        self.assertIn("between processes (MPI, sums)", names)
        self.assertIn("2 processes of ", output("plan", recipe, "--memory", "1GiB", "--devices", 2))

    def test_memory_is_of_each_node(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", batch={"effective": 8}, memory={"disk": "4GiB", "offload": ["states"]})
        plan = lambda *words, **options: output("plan", recipe, "--threads", 1, *words, **options)  # noqa: E731
        four = [json.loads(plan("--json", "--memory", "1GiB", "--devices", 4, *words)) for words in ((), ("--nodes", 2), ("--nodes", 4))]
        self.assertEqual([each["process"]["budget_bytes"] for each in four], [1 << 28, 1 << 29, 1 << 30])
        self.assertEqual([each["disk"]["budget_bytes"] for each in four], [1 << 30, 1 << 31, 1 << 32])
        self.assertEqual(len({each["process"]["planned_peak_rss_bytes"] for each in four}), 1)
        refused = plan("--devices", 4, "--nodes", 2, "--set", "memory.headroom=0%", "--memory", "40MiB", code=3)
        self.assertIn("of each of 2 nodes, divided among its 2 processes", refused)
        smallest = int(re.search(r"smallest possible: --set memory.disk=(\d+)B", plan("--devices", 2, "--disk", "4KiB", code=3))[1])
        plan("--devices", 2, "--disk", f"{smallest}B")
        self.assertIn("--nodes 3: devices: 2 are fewer than one for each", plan("--devices", 2, "--nodes", 3, code=2))


if __name__ == "__main__":
    command_run.main(testLoader=SuiteLoader("several_devices_test", ("assert_same_files", "assert_offload_keeps_bits")))
