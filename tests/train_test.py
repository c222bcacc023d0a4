"""Whole runs of the built binary on the demo's small model: what no unit test can show.

Usage: train_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from shard import SuiteLoader

ROOT = Path(__file__).resolve().parent.parent
PLIMSOLL = ROOT / "build" / "plimsoll"
MIB = 1 << 20


def recipe(folder, **changes):
    """A short run from random weights; `changes` are further lines of the recipe by section."""
    settings = {
        "model": str(ROOT / "demo/model"), "init": "random",
        "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": 48},
        "method": {"type": "full"}, "batch": {"effective": 6, "micro": 3},
        "optimizer": {"lr": 1e-3}, "schedule": {"max_steps": 8, "warmup": 1}, "precision": "fp32",
        "output": str(Path(folder) / "run")}
    for key, value in changes.items():
        settings[key] = {**settings[key], **value} if isinstance(settings.get(key), dict) else value
    path = Path(folder) / "recipe.json"
    path.write_text(json.dumps(settings))
    return path


def run(*words, **options):
    return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600, **options)


def losses(output):
    return [json.loads(line)["loss"] for line in (Path(output) / "metrics.jsonl").read_text().splitlines()]


def tensors(path):
    """Bytes by name of a safetensors file."""
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: data[8 + size + info["data_offsets"][0]:8 + size + info["data_offsets"][1]]
            for name, info in header.items()}


class TrainTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def train(self, name, *words, **changes):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        done = run("train", recipe(folder, **changes), "--quiet", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return folder / "run"

    def test_planned_bytes_are_the_bytes_allocated_and_the_process_peak_is_predicted(self):
        for precision in ("fp32", "bf16", "bf16-master", "bf16-pure", "fp16"):
            output = self.train(precision, precision=precision, data={"eval": "2%"})
            report = json.loads((output / "run.json").read_text())
            planned, measured = report["planned"], report["measured"]
            self.assertEqual(planned["device_arena_bytes"], measured["device_arena_bytes"])
            peak = planned["process_peak_rss_bytes"]
            self.assertLessEqual(abs(peak - measured["process_peak_rss_bytes"]), max(0.03 * peak, 16 * MIB))
            self.assertLessEqual(measured["process_data_bytes"], planned["process_data_bytes"])

    def test_a_resumed_run_stays_below_its_plan(self):
        """Checking a checkpoint and loading it take no more than loading a model."""
        for precision in ("fp32", "bf16-master"):
            changes = {"precision": precision, "save": {"every": 4}}
            output = self.train(precision, **changes)
            shutil.rmtree(output / "checkpoint-8")
            output = self.train(precision, "--resume", **changes)
            report = json.loads((output / "run.json").read_text())
            self.assertLessEqual(report["measured"]["process_peak_rss_bytes"],
                                 report["planned"]["process_peak_rss_bytes"], precision)

    def test_every_micro_batch_split_gives_the_same_losses(self):
        whole = losses(self.train("whole", batch={"micro": 6}, schedule={"max_steps": 20}))
        for micro in (1, 2, 4, 5):
            split = losses(self.train(f"micro{micro}", batch={"micro": micro}, schedule={"max_steps": 20}))
            for a, b in zip(whole, split, strict=True):
                self.assertLess(abs(a - b), 1e-5, f"micro-batch {micro}")

    def test_dropout_is_the_same_in_every_split(self):
        lora = {"type": "lora", "r": 4, "dropout": 0.3}
        whole = losses(self.train("whole", method=lora, batch={"micro": 6}))
        split = losses(self.train("split", method=lora, batch={"micro": 2}))
        none = losses(self.train("none", method={**lora, "dropout": 0.0}))
        for a, b in zip(whole, split, strict=True):
            self.assertLess(abs(a - b), 1e-5)
        self.assertNotEqual(whole[-1], none[-1])  # B is zero at first, so the first losses agree

    def test_poison_and_no_reuse_give_the_same_bits(self):
        for precision in ("fp32", "bf16"):
            plain = self.train("plain" + precision, precision=precision)
            for option in ("--poison", "--no-reuse"):
                other = self.train(option.strip("-") + precision, option, precision=precision)
                self.assertEqual(tensors(plain / "model.safetensors"), tensors(other / "model.safetensors"), option)

    def test_lora_with_poison_gives_the_same_bits(self):
        method = {"type": "lora", "r": 4, "dropout": 0.1}
        plain = self.train("plain", method=method, precision="bf16")
        poison = self.train("poison", "--poison", method=method, precision="bf16")
        self.assertEqual(tensors(plain / "adapter_model.safetensors"), tensors(poison / "adapter_model.safetensors"))

    def test_resume_continues_bit_for_bit(self):
        for precision, method in (("fp32", {"type": "full"}), ("bf16", {"type": "full"}),
                                  ("bf16-master", {"type": "full"}), ("bf16", {"type": "lora", "r": 4})):
            name = f"{precision}-{method['type']}"
            straight = self.train(name, precision=precision, method=method, save={"every": 4, "keep": 3})
            weights = "adapter_model.safetensors" if method["type"] == "lora" else "model.safetensors"
            want, want_losses = tensors(straight / weights), losses(straight)
            # As if the run had died after the checkpoint of step 4.
            shutil.rmtree(straight / "checkpoint-8")
            again = run("train", straight.parent / "recipe.json", "--quiet", "--resume")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(tensors(straight / weights), want, name)
            self.assertEqual(losses(straight), want_losses, name)
        record = (straight / "run.json").read_bytes()
        over = run("train", straight.parent / "recipe.json", "--resume")
        self.assertEqual(over.returncode, 0, over.stderr)
        self.assertIn("all 8 steps were done before: nothing was trained", over.stdout + over.stderr)
        self.assertEqual((straight / "run.json").read_bytes(), record)

    def test_what_is_offloaded_changes_no_byte_of_a_run_and_may_change_in_the_middle_of_one(self):
        everything = {"disk": "1GiB", "offload": ["states", "gradients", "weights", "activations"]}
        for precision, method in (("bf16-master", {"type": "full"}), ("bf16", {"type": "lora", "r": 4})):
            memories = {name: {"loss_chunk": 64, **memory} for name, memory in  # which checkpoints tell
                        {"kept": {}, "away": everything, "states": {"disk": "1GiB", "offload": ["states"]}}.items()}
            runs = {name: self.train(f"{name}-{precision}", precision=precision, method=method, memory=memory,
                                     save={"every": 4, "keep": 3}) for name, memory in memories.items()}
            files = ["adapter_model.safetensors" if method["type"] == "lora" else "model.safetensors",
                     "optimizer.safetensors", "trainer_state.json"]
            want = [(runs["kept"] / "checkpoint-8" / name).read_bytes() for name in files]
            # As if each run had died after the checkpoint of step 4 and gone on with another choice.
            for name, other in (("away", "kept"), ("kept", "away")):
                shutil.rmtree(runs[name] / "checkpoint-8")
                recipe(runs[name].parent, precision=precision, method=method, memory=memories[other],
                       save={"every": 4, "keep": 3})
                again = run("train", runs[name].parent / "recipe.json", "--quiet", "--resume")
                self.assertEqual(again.returncode, 0, again.stderr)
            for name, output in runs.items():
                got = [(output / "checkpoint-8" / file).read_bytes() for file in files]
                self.assertEqual(got, want, f"{name}, {precision}")

    def test_planned_disk_bytes_are_claimed_and_leave_nothing_behind(self):
        output = self.train("away", memory={"disk": "1GiB", "offload": ["states", "gradients"]})
        report = json.loads((output / "run.json").read_text())
        planned, measured = report["planned"], report["measured"]
        self.assertEqual(planned["device_arena_bytes"], measured["device_arena_bytes"])
        self.assertLess(0, planned["disk_bytes"])
        self.assertEqual(planned["disk_bytes"], measured["disk_bytes"])
        peak = planned["process_peak_rss_bytes"]
        self.assertLessEqual(abs(peak - measured["process_peak_rss_bytes"]), max(0.03 * peak, 16 * MIB))
        self.assertFalse([path.name for path in output.iterdir()
                          if path.name.startswith("offload.") or path.stat().st_size == measured["disk_bytes"]])

    def test_a_disk_that_is_too_full_is_refused_before_the_run_and_stops_it_during_the_run(self):
        away = {"disk": "1GiB", "offload": ["states"]}
        path = recipe(self.folder, memory=away, schedule={"max_steps": 100000}, save={"every": 4})
        limit = 64 * 1024  # stands for a full disk; less than what is offloaded, more than the run's small files
        refused = run("train", path, "--quiet",
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("does not fit", refused.stderr)
        output = self.folder / "run"
        running = subprocess.Popen([str(PLIMSOLL), "train", str(path), "--quiet"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.kill)
        deadline = time.monotonic() + 600
        while not list(output.glob("checkpoint-*[0-9]")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (limit, limit))
        _, message = running.communicate(timeout=600)
        self.assertEqual(running.returncode, 5, message)
        step = json.loads(max(output.glob("checkpoint-*[0-9]"), key=lambda p: int(p.name.split("-")[1]))
                          .joinpath("trainer_state.json").read_text())["step"]
        recipe(self.folder, memory=away, schedule={"max_steps": 100000}, save={"every": 4})
        again = subprocess.Popen([str(PLIMSOLL), "train", str(path), "--quiet", "--resume"])
        self.addCleanup(again.kill)
        while not (output / f"checkpoint-{step + 4}").exists():
            self.assertLess(time.monotonic(), deadline + 600)
            time.sleep(0.01)
        again.send_signal(signal.SIGTERM)
        self.assertEqual(again.wait(timeout=600), 130)

    def test_a_merged_adapter_answers_as_the_adapter_does(self):
        base = self.train("base", schedule={"max_steps": 1})
        adapter = self.train("adapter", model=str(base), init="weights", method={"type": "lora", "r": 4},
                             optimizer={"lr": 2e-2}, schedule={"max_steps": 12})
        merged = self.folder / "merged"
        done = run("merge", adapter, "--out", merged, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(done.stdout)["merged_weights"], 0)
        ids = ("--ids", "5,17,29,3", "--max-new-tokens", "12", "--precision", "fp32")
        apart = run("generate", base, "--adapter", adapter, *ids)
        self.assertEqual(apart.returncode, 0, apart.stderr)
        self.assertEqual(run("generate", merged, *ids).stdout, apart.stdout)
        self.assertNotEqual(run("generate", base, *ids).stdout, apart.stdout)
        self.assertNotEqual(tensors(base / "model.safetensors"), tensors(merged / "model.safetensors"))

    def test_merge_refuses_what_does_not_belong_together(self):
        base = self.train("base", schedule={"max_steps": 1})
        adapter = self.train("adapter", model=str(base), init="weights", method={"type": "lora", "r": 4})
        for words, what in (((adapter, "--out", base), "exists already"),
                            ((base, "--out", self.folder / "m"), "it is a whole model, and there is nothing to merge"),
                            ((adapter, "--out", self.folder / "m", "--base", self.folder), "config.json")):
            done = run("merge", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)
        config = json.loads((adapter / "adapter_config.json").read_text())
        (adapter / "adapter_config.json").write_text(json.dumps({**config, "r": 8}))
        self.assertEqual(run("merge", adapter, "--out", self.folder / "m").returncode, 2)
        self.assertFalse((self.folder / "m").exists())

    def test_every_optimizer_resumes_bit_for_bit(self):
        for name, options in (("adamw8bit", {}), ("lion", {"lr": 1e-4}), ("sgd", {"lr": 0.1, "momentum": 0.9}),
                              ("sgd", {"lr": 0.1}), ("adafactor", {})):
            optimizer = {"name": name, **options}
            straight = self.train(f"{name}{len(options)}", optimizer=optimizer, precision="bf16",
                                  save={"every": 4, "keep": 3})
            want, want_losses = tensors(straight / "model.safetensors"), losses(straight)
            self.assertLess(want_losses[-1], want_losses[0], optimizer)
            shutil.rmtree(straight / "checkpoint-8")
            again = run("train", straight.parent / "recipe.json", "--quiet", "--resume", "--poison")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(tensors(straight / "model.safetensors"), want, optimizer)
            self.assertEqual(losses(straight), want_losses, optimizer)

    def test_allowed_means_that_change_the_result_are_taken_only_where_nothing_else_fits(self):
        least = json.loads(run("plan", recipe(self.folder, memory={"device": "1KiB", "offload": "none"}), "--json").stdout)
        process, arena = least["process"]["planned_peak_rss_bytes"], least["device"]["arena_bytes"]
        allow = ["nf4", "bf16-states", "adamw8bit"]
        kept = self.train("kept", precision="bf16", memory={"device": f"{process}B", "allow": allow})
        self.assertEqual(json.loads((kept / "run.json").read_text())["lossy"], [])
        small = {"device": f"{process - arena // 4}B", "offload": "none"}
        self.assertEqual(run("train", recipe(self.folder, precision="bf16", memory=small), "--quiet").returncode, 3)
        taken = self.train("taken", precision="bf16", memory={**small, "allow": allow})
        self.assertIn(json.loads((taken / "run.json").read_text())["lossy"], [["bf16-states"], ["adamw8bit"]])

    def test_a_profile_names_the_whole_step_and_its_trace_opens(self):
        folder = self.folder / "profiled"
        folder.mkdir()
        words = recipe(folder, batch={"effective": 6, "micro": 3}, memory={"offload": ["states"], "disk": "64MiB"})
        done = run("train", words, "--quiet", "--profile")
        self.assertEqual(done.returncode, 0, done.stderr)
        first = done.stdout.split("\n\n")[0].splitlines()
        self.assertRegex(first[0], "^profile 5 steps")
        told = json.loads((folder / "run/run.json").read_text())
        self.assertLessEqual(told["measured"]["process_peak_rss_bytes"], told["planned"]["process_peak_rss_bytes"])
        rows = [(line[2:26].strip(), float(re.search(r"([\d,]+\.\d)", line[24:])[0].replace(",", "")))
                for line in first[2:]]
        self.assertEqual(rows[-1][0], "step")
        self.assertAlmostEqual(sum(ms for _, ms in rows[:-1]), rows[-1][1], delta=0.06 * len(rows))
        events = json.loads((folder / "run/trace.json").read_text())["traceEvents"]
        tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.assertEqual(set(tracks.values()), {"steps", "compute", "I/O", "loader"})
        spans = {name: [e for e in events if e["ph"] == "X" and tracks[e["tid"]] == name] for name in tracks.values()}
        self.assertEqual(len(spans["steps"]), 5)
        self.assertTrue({"fetch", "store"} <= {e["name"] for e in spans["I/O"]})
        for name in ("compute", "I/O"):  # one thing after the other on each thread
            ordered = sorted(spans[name], key=lambda e: e["ts"])
            for a, b in zip(ordered, ordered[1:]):
                self.assertLessEqual(a["ts"] + a["dur"], b["ts"] + 0.01)
        # The same bytes as a run that nobody watched.
        plain = self.train("plain", batch={"effective": 6, "micro": 3})
        self.assertEqual(losses(plain), losses(folder / "run"))

    def test_updates_in_the_backward_pass_give_the_bits_of_updates_after_it(self):
        whole = {"effective": 3, "micro": 3}
        for precision in ("fp32", "bf16", "bf16-pure"):
            outputs = [self.train(f"{precision}-{norm}", precision=precision, batch=whole, optimizer={"max_grad_norm": norm})
                       for norm in (0, 1e9)]  # a norm that nothing reaches: the same steps, the update apart
            within, after = (json.loads((output / "run.json").read_text())["planned"] for output in outputs)
            self.assertLess(within["device_arena_bytes"], after["device_arena_bytes"])
            self.assertEqual(*(tensors(output / "model.safetensors") for output in outputs), precision)
            self.assertEqual(*([json.loads(line)["grad_norm"] for line in (output / "metrics.jsonl").read_text().splitlines()]
                               for output in outputs))

    def test_memory_taken_between_plan_and_start_leads_to_the_next_variant_that_fits_and_is_said(self):
        path = recipe(self.folder, memory={"headroom": "0%"}, batch={"effective": 24, "micro": "auto"})
        meminfo = self.folder / "meminfo"

        def free(mib):
            meminfo.write_text(f"MemAvailable: {mib * 1024} kB\n")
            return {**os.environ, "PLIMSOLL_MEMINFO": str(meminfo)}
        planned = json.loads(run("plan", path, "--json", env=free(4096)).stdout)
        self.assertTrue(planned["feasible"])
        # What another program leaves, beyond what the process holds already: between the plan and the smallest one.
        held = float(re.search(r"([\d.]+) MiB are free", run("train", path, env=free(1)).stderr)[1]) - 1
        middle = (planned["process"]["planned_peak_rss_bytes"] + planned["smallest"]["memory_bytes"]) / 2
        left = int(middle / MIB - held)
        done = run("train", path, env=free(left))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the fastest variant needs", done.stdout + done.stderr)
        report = json.loads((self.folder / "run/run.json").read_text())
        self.assertLess(report["planned"]["device_arena_bytes"], planned["device"]["arena_bytes"])
        self.assertEqual(run("train", path, "--overwrite", env=free(1)).returncode, 3)
        self.assertTrue((self.folder / "run/run.json").exists())  # what is refused removes nothing

    def test_what_contradicts_itself_or_has_no_place_is_refused(self):
        for memory, code, what in (
                ({"tier": "stage3", "offload": ["states"], "disk": "1GiB"}, 2, "both choose what is offloaded"),
                ({"offload": ["states"]}, 2, "memory.disk is 0"), ({"tier": "minimal"}, 2, "memory.disk is 0"),
                ({"offload": ["states"], "disk": "1MiB"}, 3, "--set memory.disk=")):
            done = run("train", recipe(self.folder, memory=memory), "--quiet")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(what, done.stderr)
            self.assertFalse((self.folder / "run").exists())
        smallest = done.stderr.split("--set ")[1].split()[0]
        done = run("train", self.folder / "recipe.json", "--quiet", "--set", smallest)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_interrupt_saves_and_exits_130(self):
        path = recipe(self.folder, schedule={"max_steps": 100000})
        process = subprocess.Popen([str(PLIMSOLL), "train", str(path), "--quiet"])
        metrics = self.folder / "run/metrics.jsonl"
        deadline = time.time() + 600
        while not (metrics.exists() and len(metrics.read_text().splitlines()) > 3) and time.time() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=600), 130)
        steps = len(losses(self.folder / "run"))
        self.assertTrue((self.folder / f"run/checkpoint-{steps}/model.safetensors").exists())

    def test_a_run_is_never_overwritten_silently(self):
        output = self.train("first")
        again = run("train", output.parent / "recipe.json", "--quiet")
        self.assertEqual(again.returncode, 2)
        self.assertIn("--resume", again.stderr)

    def test_resume_refuses_another_experiment(self):
        output = self.train("first", save={"every": 4})
        other = run("train", output.parent / "recipe.json", "--quiet", "--resume", "--set", "optimizer.lr=0.5")
        self.assertEqual(other.returncode, 2)
        self.assertIn("optimizer.lr", other.stderr)

    def test_resume_says_what_the_rows_held_out_were_and_are(self):
        output = self.train("first", save={"every": 4}, data={"eval": 3})
        held, path = output.parent / "recipe.json", output.parent / "eval.jsonl"
        path.write_text('{"prompt": "a", "response": "b"}\n')
        for now, said in (("null", "null"), (str(path), str(path)), ("4", "4")):
            other = run("train", held, "--quiet", "--resume", "--set", f"data.eval={now}")
            self.assertEqual(other.returncode, 2)
            self.assertIn(f"data.eval was 3, the recipe says {said}\n", other.stderr)
        output = self.train("second", save={"every": 4})
        other = run("train", output.parent / "recipe.json", "--quiet", "--resume", "--set", "data.eval=3")
        self.assertIn("data.eval was null, the recipe says 3\n", other.stderr)

    def test_too_small_a_budget_is_refused_before_anything_is_written(self):
        path = recipe(self.folder)
        refused = run("train", path, "--memory", "1MiB")  # the options of plan are those of train
        self.assertEqual(refused.returncode, 3)
        self.assertIn("does not fit", refused.stderr)
        self.assertFalse((self.folder / "run").exists())

    def test_a_larger_machine_can_be_planned_for_but_not_run_on(self):
        path = recipe(self.folder, memory={"device": "4TiB"},
                      batch={"effective": 500000, "micro": 500000})
        self.assertEqual(run("plan", path).returncode, 0)
        refused = run("train", path)
        self.assertEqual(refused.returncode, 3)
        self.assertIn("free on this machine", refused.stderr)
        self.assertFalse((self.folder / "run").exists())

    def test_the_load_line(self):
        """Under a hard cap of the planned data bytes it finishes; below them it refuses before step 0."""
        path = recipe(self.folder, data={"eval": "2%"}, save={"every": 4})
        planned = json.loads(run("plan", path, "--json").stdout)["process"]["planned_data_bytes"]
        cap = planned + max(planned // 50, 8 * MIB)

        def limit(bytes_):
            return lambda: resource.setrlimit(resource.RLIMIT_DATA, (bytes_, bytes_))

        done = run("train", path, "--quiet", preexec_fn=limit(cap))
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(self.folder / "run")
        refused = run("train", path, "--quiet", preexec_fn=limit(planned - 8 * MIB))
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertFalse((self.folder / "run").exists())

    def test_every_instruction_set_learns_the_same(self):
        reference = losses(self.train("avx2", "--max-isa", "avx2"))
        best = losses(self.train("best"))
        for a, b in zip(reference, best, strict=True):
            self.assertLess(abs(a - b), 1e-3)
        half = losses(self.train("avx2-bf16", "--max-isa", "avx2", precision="bf16"))
        for a, b in zip(reference, half, strict=True):
            self.assertLess(abs(a - b), 0.1)

    def test_other_inputs_are_refused_with_exit_2(self):
        for words in (["plan", "/nonexistent"], ["plan", ROOT / "demo"], ["train"], ["nonsense"],
                      ["plan", ROOT / "demo/model", "--set", "method.rank=8"],
                      ["plan", ROOT / "demo/model", "--max-isa", "sse9"],
                      ["plan", ROOT / "demo/model", "--method", "full", "--length", 64, "--set",
                       "precision.rounding=nearest"]):
            self.assertEqual(run(*words).returncode, 2, words)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    os.environ.pop("PLIMSOLL_SET", None)
    unittest.main(testLoader=SuiteLoader("train_test"))
