"""plimsoll doctor over lines (doctor/wordings.tsv) and a corpus of logs (doctor/logs, expectations in doctor/expected.json), as they are and as logs
get cut, wrapped, prefixed and mixed on their way to a reader."""
import importlib.util
import json
import os
import pickle
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command_run import PLIMSOLL, ROOT, CommandTest, output, run
from shard import SuiteLoader

CORPUS = ROOT / "tests/doctor"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())
TRAPS = sorted(name for name in EXPECTED if name.startswith("trap-"))
MESSAGES = sorted(name for name in EXPECTED if not name.startswith("trap-"))
# What is one line of a table, a file or a screen by itself: a wrapped or prefixed one is no such thing any more.
LINES = {"memory-events", "real-cgroup-dmesg", "slurm-sacct", "docker-inspect", "kubectl-describe", "kubectl-json", "slurm-task-killed",
         "kubectl-get-pods", "torch-notebook-headline", "notebook-restarter", "library-mapping", "mps-array-4gib"}


LINES |= {name for name in EXPECTED if name.startswith(("words-", "names-"))}  # by the words of one line


def log(name):
    return (CORPUS / "logs" / f"{name}.log").read_text()


def diagnose(text, *options):
    """The JSON of a log given on standard input."""
    done = subprocess.run([str(PLIMSOLL), "doctor", "-", "--json", *options], input=text.encode(), capture_output=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def same(wanted, got):
    """A printed size stands for all that round to it."""
    if isinstance(wanted, list):
        return got is not None and len(got) == len(wanted) and all(
            a["pid"] == b["pid"] and abs(a["bytes"] - b["bytes"]) <= 1 for a, b in zip(wanted, got))
    if isinstance(wanted, int) and isinstance(got, int):
        return abs(wanted - got) <= 1
    return wanted == got


def field_faults(name, found):
    """Figures of the corpus that were not read, or read wrongly, as text."""
    wanted = EXPECTED[name]
    evidence = found["evidence"] or {"message": None, "line": None, "figures": {}}
    faults = []
    if wanted.get("message", evidence["message"]) != evidence["message"]:
        faults.append(f"{name}: message {evidence['message']}, not {wanted['message']}")
    faults += [f"{name}: {key} {evidence['figures'].get(key)}, not {value}"
               for key, value in wanted.get("figures", {}).items() if not same(value, evidence["figures"].get(key))]
    other = wanted.get("any_message")
    if other:
        all_of = [evidence] + found["supporting"]
        match = [m for m in all_of if m["message"] == other["message"]]
        if not match:
            return faults + [f"{name}: no {other['message']}"]
        faults += [f"{name}: {key} {match[0]['figures'].get(key)}, not {value}"
                   for key, value in other["figures"].items() if not same(value, match[0]["figures"].get(key))]
    return faults


def cause_faults(name, found):
    wanted = EXPECTED[name]
    if (found["out_of_memory"], found["cause"]) == (wanted["out_of_memory"], wanted["cause"]):
        return []
    return [f"{name}: {found['out_of_memory']}, {found['cause']}; not {wanted['out_of_memory']}, {wanted['cause']}"]


def wrapped_at_words(text, width=60):
    lines = []
    for line in text.splitlines():
        while len(line) > width and " " in line[1:width]:
            at = line.rindex(" ", 1, width)
            lines.append(line[:at])
            line = line[at + 1:]
        lines.append(line)
    return "\n".join(lines) + "\n"


def wrapped_in_words(text, width=72):
    return "".join(line[i:i + width] + "\n" for line in text.splitlines() for i in range(0, max(len(line), 1), width))


def prefixed(text, prefix):
    return "".join(prefix + line + "\n" for line in text.splitlines())


def docker_lines(text):
    return "".join(json.dumps({"log": line + "\n", "stream": "stderr", "time": "2024-01-01T00:00:00.1Z"},
                              separators=(",", ":"), ensure_ascii=False) + "\n" for line in text.splitlines())


def interleaved(text, other):
    """Two senders, line by line in turn."""
    a = [f"[rank0]: {line}" for line in text.splitlines()]
    b = [f"[rank1]: {line}" for line in other.splitlines()]
    out = []
    for i in range(max(len(a), len(b))):
        out += a[i:i + 1] + b[i:i + 1]
    return "\n".join(out) + "\n"


NOISE = "".join(f"INFO step {i} loss 2.{i} tokens per second 1500, memory 12.0 GiB of room left\n" for i in range(40))
COLOURED = "\x1b[31m{}\x1b[0m"


class Corpus(unittest.TestCase):
    def test_the_corpus_is_large_enough(self):
        self.assertGreaterEqual(len(MESSAGES), 80)
        self.assertGreaterEqual(len(TRAPS), 20)
        self.assertEqual(sorted(EXPECTED), sorted(path.stem for path in (CORPUS / "logs").iterdir()))

    def check(self, names, change, causes=1.0):
        """All fields are right, and at least that share of causes."""
        fields, wrong = [], []
        for name in names:
            found = diagnose(change(log(name)))
            fields += field_faults(name, found)
            wrong += cause_faults(name, found)
        self.assertEqual(fields, [], "\n".join(fields))
        self.assertLessEqual(len(wrong), (1 - causes) * len(names), "\n".join(wrong))

    def test_messages_as_they_are(self):
        self.check(MESSAGES, lambda text: text)
        for name in MESSAGES:
            if "line" in EXPECTED[name]:
                with self.subTest(name):
                    self.assertEqual(diagnose(log(name))["evidence"]["line"], EXPECTED[name]["line"])

    def test_traps_are_no_ooms(self):
        self.check(TRAPS, lambda text: text)

    def test_amid_other_lines(self):
        self.check(MESSAGES, lambda text: NOISE + text + NOISE, 0.95)

    def test_wrapped_at_words(self):
        self.check([name for name in MESSAGES if name not in LINES], wrapped_at_words, 0.95)

    def test_wrapped_in_the_middle_of_words_and_numbers(self):
        self.check([name for name in MESSAGES if name not in LINES], wrapped_in_words, 0.95)

    def test_prefixed(self):
        for prefix in ("[rank3]: ", "2024-01-01T00:00:00.123456789Z stderr F ", "[1,5]<stderr>:", "worker-2: ", "3: ",
                       "(TrainWorker pid=4410, ip=10.0.0.3) ", "[2024-01-01 10:00:00,123] ", "trainer-1  | "):
            with self.subTest(prefix):
                self.check([name for name in MESSAGES if name not in LINES][::6],
                           lambda text: prefixed(text, prefix), 0.95)

    def test_traps_in_other_clothes(self):
        for change in (lambda text: prefixed(text, "[rank3]: "), lambda text: NOISE + text, docker_lines,
                       wrapped_at_words):
            for name in TRAPS:
                found = diagnose(change(log(name)))
                with self.subTest(name):
                    self.assertEqual(found["out_of_memory"], "no", found["evidence"])

    def test_from_container_engines(self):
        self.check([name for name in MESSAGES if name not in LINES], docker_lines, 0.95)

    def test_coloured_and_after_a_bar(self):
        bar = "  1%|1         | 10/1000 [00:01<01:00, 9.9it/s]\r  2%|2         | 20/1000 [00:02<01:00, 9.9it/s]"
        self.check([name for name in MESSAGES if name not in LINES],
                   lambda text: bar + "".join(COLOURED.format(line) + "\r\n" for line in text.splitlines()), 0.95)

    def test_interleaved_with_another_rank(self):
        names = [name for name in MESSAGES if name.startswith("torch-2")]
        self.check(names, lambda text: interleaved(wrapped_at_words(text), NOISE), 0.95)

    def test_control_codes_never_reach_the_terminal(self):
        message = log("torch-1.4").replace("RuntimeError", "\x1b]0;title\x07\x1b[2J\x9b31m\x00\x08RuntimeError")
        for options in ([], ["--json"]):
            done = subprocess.run([str(PLIMSOLL), "doctor", "-", *options], input=message.encode("latin-1"), capture_output=True,
                                  timeout=600)
            self.assertEqual(done.returncode, 0)
            self.assertEqual([byte for byte in done.stdout if byte < 32 and byte != 10 or byte == 127], [])
            done.stdout.decode()  # is UTF-8

    def test_cut_off(self):
        """Wherever a message ends, what was read of it is right, and nothing is made up."""
        for name in ("torch-2.2-co-tenants", "torch-1.12-fragmentation", "torch-cpu", "kernel-old-two-lines"):
            text = log(name).strip()
            full = diagnose(text)["evidence"]["figures"]
            for end in range(10, len(text), 23):
                found = diagnose(text[:end])
                figures = (found["evidence"] or {"figures": {}})["figures"]
                for key, value in figures.items():
                    if key in full and not key.endswith("off_by") and end < len(text) and text[end - 1] == " ":
                        with self.subTest(f"{name} cut at {end}"):
                            self.assertTrue(same(full[key], value) if key != "processes" else True, key)


class Wordings(unittest.TestCase):
    """Lines of no program in particular, each by itself: whether memory ran out, the cause, and the line."""

    def test_each_is_read_by_its_words(self):
        for row in (CORPUS / "wordings.tsv").read_text().splitlines():
            verdict, cause, line = row.split("\t")
            found = diagnose(line + "\n")
            with self.subTest(line):
                self.assertEqual((found["out_of_memory"], found["cause"]), (verdict, cause), found["evidence"])


class Words(unittest.TestCase):
    """What people read, of logs whose figures alone would mislead."""

    def test_a_server_that_asks_for_too_large_a_share_gets_no_advice_on_training(self):
        steps = diagnose(log("vllm-startup"))["steps"]
        self.assertEqual(len(steps), 2, steps)
        self.assertEqual(steps[0]["command"], "--gpu-memory-utilization 0.41")
        self.assertIn("gpu_memory_utilization of 0.41 at most", steps[0]["what"])
        self.assertIn("free what others hold", steps[1]["what"])

    def test_a_request_that_wrapped_around_is_larger_than_any_device(self):
        found = diagnose(log("torch-wrapped-request"))
        self.assertIn("one allocation of 17179869172.00 GiB is larger than any device", found["reason"])

    def test_a_run_that_skipped_a_batch_and_came_to_its_end_went_on(self):
        skipped = f"epoch 1\nWARNING: {log('torch-1.4').strip()}: skipping batch\nepoch 2\n"
        for end in ("Training complete. saved model", "Training completed. Do not forget to share your model",
                    "{'train_runtime': 12.5, 'epoch': 1.0}", "`Trainer.fit` stopped: `max_steps=10` reached."):
            (note,) = [one for one in diagnose(skipped + end + "\n")["notes"] if "continued after it" in one]
            self.assertEqual(note, f"the run continued after it, and ended at line 4: {end}")
        for text in (skipped, "Training complete. saved model\n" + skipped):
            self.assertFalse([one for one in diagnose(text)["notes"] if "continued after it" in one])

    def test_a_line_that_several_rows_know_is_quoted_once(self):
        lines = ["RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate 687194767360 bytes.",
                 "RuntimeError: cuMemAlloc: CUDA error: CUDA_ERROR_OUT_OF_MEMORY", log("tf-device").splitlines()[0]]
        for line in lines:
            done = subprocess.run([str(PLIMSOLL), "doctor", "-"], input=line + "\n", capture_output=True, text=True, timeout=600)
            self.assertEqual(done.stdout.count("line 1: "), 1, done.stdout)

    def test_devices_are_named_by_their_family(self):
        for name, device in (("gaudi", "HPU"), ("ascend", "NPU"), ("neuron-device", "an accelerator"), ("metalium-bank", "an accelerator"),
                             ("cuda-malloc", "a GPU")):
            self.assertIn(device, diagnose(log(name))["headline"])

    def test_articles(self):
        self.assertTrue(diagnose(log("jax-tpu-hbm"))["headline"].endswith("on an accelerator"))
        self.assertTrue(diagnose(log("cupy"))["headline"].endswith("on a GPU"))


class Shapes(unittest.TestCase):
    """What a size is, where the log says the run's shapes; and steps that follow what it says."""

    def test_a_size_is_told_by_the_tensor_that_it_is(self):
        found = diagnose(log("torch-logits"))
        words = "4 rows x 2,048 tokens x 152,064 words x 4 bytes: the logits in fp32"
        self.assertEqual(found["tensor"], {"words": words, "bytes": 4 * 2048 * 152064 * 4, "certain": True})
        self.assertIn(f"4.64 GiB is {words}", found["notes"])
        self.assertIn("cross-entropy", found["steps"][0]["what"])
        other = diagnose(log("torch-logits").replace("--len 2048", "--len 1900"))
        self.assertNotIn("1,900", str(other["tensor"]))
        self.assertIsNone(diagnose(log("torch-logits").replace("4.64 GiB", "4.70 GiB"))["tensor"])

    def test_other_tensors_by_the_dimensions_that_the_log_prints(self):
        config = ('{"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, '
                  '"num_hidden_layers": 32, "vocab_size": 128256}\npython sft.py --batch 4 --len 1536\n')
        message = log("torch-2.2-co-tenants").replace("32.00 MiB", "{}")
        for size, words in (("168.00 MiB", "4 rows x 1,536 tokens x 14,336 values x 2 bytes: an activation of the MLP"),
                            ("576.00 MiB", "4 rows x 32 heads x 1,536 x 1,536 x 2 bytes: attention scores that are stored whole"),
                            ("768.00 MiB", "64 keys and values of layers x 4 rows x 1,536 tokens x 8 heads x 128 x 2 bytes: the cache"),
                            ("1.96 GiB", "128,256 words x 4,096 values x 4 bytes: the embedding or the head, its gradient"),
                            ("224.00 MiB", "14,336 x 4,096 x 4 bytes: a matrix of the MLP, its gradient")):
            with self.subTest(size):
                found = diagnose(config + message.replace("{}", size))["tensor"]
                self.assertTrue(found and found["words"].startswith(words), found)
                self.assertTrue(found["certain"], found)
        both = diagnose(config.replace("1536", "2048") + message.replace("{}", "224.00 MiB"))["tensor"]
        self.assertFalse(both["certain"], "two tensors have this size")
        self.assertIsNone(diagnose(config + message.replace("{}", "20.00 MiB"))["tensor"], "what the allocator asks for at once")

    def test_who_trains_adapters_is_not_told_to(self):
        self.assertFalse(any("LoRA" in step["what"] for step in diagnose(log("torch-logits"))["steps"]))
        without = "".join(line + "\n" for line in log("torch-logits").splitlines() if "trainable%" not in line)
        self.assertTrue(any("LoRA" in step["what"] for step in diagnose(without)["steps"]))

    def test_steps_fit_the_device_and_the_phase(self):
        """The monitor is that of the device's maker; no batch is too large while weights are loaded."""
        steps = lambda name: [step["what"] for step in diagnose(log(name))["steps"]]
        for name, tool in (("metal-insufficient", "Activity Monitor"), ("torch-mps", None), ("hip-code", "rocm-smi"), ("xpu-on-platform", "xpu-smi"),
                           ("ascend-code", "npu-smi info"), ("words-apply", "npu-smi info"), ("gaudi-status", "hl-smi"),
                           ("neuron-status-4", "neuron-top"), ("words-reserve", "nvidia-smi"), ("cuda-malloc", "nvidia-smi")):
            with self.subTest(name):
                self.assertEqual(any("nvidia-smi" in step for step in steps(name)), tool == "nvidia-smi", steps(name))
                self.assertTrue(tool is None or tool in steps(name)[0], steps(name))
        for name in ("accelerate-dispatched", "offload-dir", "offload-folder", "exllama-vram"):
            self.assertFalse(any("micro-batch" in step for step in steps(name)), steps(name))
        self.assertFalse(any("unchanged" in step for step in steps("zz-tpu-reservable")), "the same again fails the same way")

    def test_programs_that_answer_have_steps_of_their_own_options(self):
        """What a training would do helps none of them, in a log of its own and beside a training's words."""
        steps = lambda text: " ".join(step["what"] for step in diagnose(text)["steps"])
        of_training = re.compile("accumulation|checkpointing|optimizer|LoRA|loader processes|train in|PyTorch")
        for name, options in (("llamacpp", ("-ngl", "-c N", "-ctk")), ("llamacpp-load", ("-ngl", "-c N", "-ctk")), ("llamacpp-compute", ("-ngl", "-ub")),
                              ("llamacpp-vulkan", ("-ngl", "-c N")), ("ggml-error-2", ("-ngl",)), ("ggml-aligned", ("--no-mmap", "-c N")),
                              ("ggml-host-buffer", ("-c N",)), ("ollama", ("OLLAMA_",)), ("ollama-runner", ("num_gpu",)), ("ollama-cuda-buffer", ("num_gpu", "num_ctx")),
                              ("vllm-torch", ("--max-num-seqs", "--max-model-len")), ("exllama-vram", ("length",))):
            with self.subTest(name):
                for option in options:
                    self.assertIn(option, steps(log(name)))
                self.assertNotRegex(steps(log(name)), of_training)
        finetune = steps(log("llamacpp-finetune"))
        self.assertIn("-ngl", finetune)
        self.assertIn("--method lora", finetune)
        # A trainer that samples by a server and fails in its own backward pass.
        trainer = log("vllm-torch").replace("vllm/v1/worker/gpu_model_runner.py\", line 2412, in profile_run",
                                            "torch/autograd/__init__.py\", line 347, in backward")
        self.assertIn("gradient checkpointing", steps("INFO vllm/v1/engine/core.py: ready\n" + trainer))

    def test_programs_have_steps_of_their_own(self):
        for name, word in (("compiler-killed", "MAX_JOBS"), ("compiler-refused", "MAX_JOBS"), ("spark-result", "maxResultSize"),
                           ("deepspeed-buffer-size", "buffer_size"), ("deepspeed-buffer-count", "buffer_count"), ("wsl-gone", ".wslconfig"),
                           ("postgres-context", "work_mem"), ("elastic-limit", "-Xmx"), ("java-heap", "-Xmx"), ("node-heap", "--max-old-space-size"),
                           ("mlx-buffer", "in parts"), ("dask-budget", "memory_limit"), ("duckdb-limit", "memory_limit"), ("trap-jax-vmem", "blocks"),
                           ("opencl-object", "max_bin")):
            with self.subTest(name):
                (step,) = diagnose(log(name))["steps"]
                self.assertIn(word, step["what"])

    def test_settings_and_bars_of_loading_are_no_steps(self):
        found = diagnose(log("torch-settings-are-no-steps"))
        self.assertIsNone(found["evidence"]["step"])
        self.assertEqual(found["evidence"]["during"], "while the model was loaded")
        self.assertFalse(any("micro-batch" in step["what"] for step in found["steps"]), found["steps"])
        self.assertEqual(diagnose("step 12 of 60\n" + log("torch-logits"))["evidence"]["step"], 12)

    def test_joined_pieces_are_offered_where_they_would_do(self):
        segments = lambda text: any("expandable" in step["what"] for step in diagnose(text)["steps"])
        self.assertFalse(segments(log("torch-settings-are-no-steps")))
        self.assertFalse(segments(log("torch-logits")))
        self.assertTrue(segments(log("torch-logits").replace("402.15 MiB", "4.02 GiB").replace("21.70", "18.10")))


RECIPES = ROOT / "examples"


class Steps(unittest.TestCase):
    def plan(self, name, recipe, *options):
        done = subprocess.run([str(PLIMSOLL), "doctor", str(CORPUS / "logs" / f"{name}.log"), "--json", "--recipe", str(recipe),
                               *options], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check_planned(self, found):
        """Lossless ones first, each with bytes; what they say is what plan says of the same keys."""
        planned = [step for step in found["steps"] if (step["command"] or "").startswith("plimsoll plan")]
        self.assertGreaterEqual(len(planned), 4)
        self.assertEqual([s["lossless"] for s in planned], sorted((s["lossless"] for s in planned), reverse=True))
        for step in planned:
            self.assertGreater(step["saves_bytes"], 0)
        return planned

    def test_planned_for_a_recipe(self):
        found = self.plan("torch-2.5-class", RECIPES / "mistral-7b-lora/recipe.yaml")
        planned = self.check_planned(found)
        whole = int(subprocess.run([str(PLIMSOLL), "recipe", str(RECIPES / "mistral-7b-lora/recipe.yaml")], capture_output=True,
                                   text=True, check=True).stdout.split("effective: ")[1].split()[0].strip(",}"))
        least = [step for step in planned if "batch.micro=1" in step["command"] and "recompute=block" in step["command"]][0]
        self.assertIn(f"micro-batch 1 x {whole}", least["what"])
        words = shlex.split(least["command"])[1:]
        words[1] = str(ROOT / words[1])
        plan = json.loads(subprocess.run([str(PLIMSOLL), *words, "--json", "--no-probe", "--set",
                                          "memory.offload=[]"], capture_output=True, text=True, check=True, cwd=ROOT).stdout)
        self.assertEqual(plan["variant"]["micro_batch"], 1)
        text = re.search(r"\(([0-9.]+) GiB planned\)", least["what"]).group(1)
        self.assertAlmostEqual(float(text), plan["device"]["lower_bound_bytes"] / 2**30, delta=0.15)

    def test_planned_for_another_tools_file_whose_rows_are_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sft.yaml"
            path.write_text(f"model_name_or_path: {RECIPES / 'qwen2.5-0.5b-lora'}\nstage: sft\nfinetuning_type: full\n"
                            "dataset: alpaca_en_demo\ntemplate: qwen\ncutoff_len: 1024\nper_device_train_batch_size: 8\n"
                            "gradient_accumulation_steps: 2\nbf16: true\noutput_dir: out\n")
            found = self.plan("torch-1.4", path)
        planned = self.check_planned(found)
        self.assertTrue(any("micro-batch 4 x 4" in step["what"] for step in planned), planned)
        self.assertTrue(any("LoRA" in step["what"] and not step["lossless"] for step in planned), planned)
        self.assertTrue(any("micro-batch 8 x 2" in note for note in found["notes"]), found["notes"])

    def test_each_step_that_fits_has_its_seconds_on_the_card_that_the_recipe_names(self):
        case = RECIPES / "cases/1-gla-glue/recipe.yaml"
        found = self.plan("torch-2.2-co-tenants", case, "--set", "memory.gpu=RTX 4090", "--set", "memory.device=auto", "--set", "batch.micro=16")
        planned = [step for step in found["steps"] if (step["command"] or "").startswith("plimsoll plan")]
        timed = [step for step in planned if "fits" in step["what"] and "not fit" not in step["what"]]
        self.assertGreater(len(timed), 1)
        for step in planned:
            self.assertEqual(step["seconds_per_step"] is not None, step in timed, step)
            self.assertNotIn("memory.gpu=null", step["command"])
        answer = json.loads(output(*shlex.split(timed[-1]["command"])[1:], "--json", "--no-probe"))
        self.assertAlmostEqual(answer["predicted"]["seconds_per_step"], timed[-1]["seconds_per_step"], delta=1e-6)
        found = self.plan("torch-2.2-co-tenants", case)
        self.assertTrue(any("memory.gpu=RTX 4090" in note for note in found["notes"]), found["notes"])
        self.assertEqual({step["seconds_per_step"] for step in found["steps"]}, {None}, "of a card that nobody named nothing is known")

    def test_states_come_first_where_they_did_not_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "train.log"
            log.write_text('  File "/site-packages/torch/optim/adamw.py", line 100, in _init_group\n    state["exp_avg_sq"] = torch.zeros_like(\n'
                           "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacity of 63.52 GiB of which "
                           "28.25 MiB is free. Including non-PyTorch memory, this process has 61.25 GiB memory in use. Of the allocated memory 60.71 GiB is "
                           "allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but unallocated.\n")
            found = json.loads(output("doctor", log, "--json", "--recipe", RECIPES / "cases/5-mistral-7b/recipe.yaml"))
        planned = [step for step in found["steps"] if (step["command"] or "").startswith("plimsoll plan")]
        self.assertIn("this fits", planned[0]["what"])
        self.assertIn("optimizer states", planned[1]["what"])
        self.assertFalse(any("batch.micro=" in step["command"] for step in planned[1:]), "no batch is small enough for states")

    def test_adapters_in_the_place_of_frozen_parts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "axolotl.yaml"
            path.write_text(f"base_model: {RECIPES / 'qwen2.5-0.5b-lora'}\nsequence_len: 1024\nmicro_batch_size: 8\nbf16: true\n"
                            "unfrozen_parameters: ['model.layers.']\n"
                            "datasets: [{path: tatsu-lab/alpaca, type: alpaca}]\noutput_dir: out\n")
            found = self.plan("torch-1.4", path)
        lora = [step for step in self.check_planned(found) if "LoRA, rank" in step["what"]]
        self.assertIn("--set method.type=lora --set method.freeze=null", lora[0]["command"])

    def test_commands_repeat_what_the_recipe_was_read_with(self):
        options = ("--set", "data.max_length=512", "--set", "method.r=4", "--set", "memory.gpu=H100", "--set", "memory.device=9GiB")
        found = self.plan("torch-2.5-class", RECIPES / "mistral-7b-lora/recipe.yaml", *options)
        for step in self.check_planned(found):
            self.assertIn(" --set data.max_length=512 --set method.r=4", step["command"])
            self.assertNotIn("H100", step["command"])
            self.assertNotIn("9GiB", step["command"])

    def test_commands_are_of_the_logs_card_and_not_of_the_recipes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "recipe.yaml"
            text = (RECIPES / "qwen2.5-0.5b-lora/recipe.yaml").read_text().replace("model: .", f"model: {RECIPES / 'qwen2.5-0.5b-lora'}")
            for memory in ("{gpu: H100}", "{gpu: H100, device: 8GiB}"):
                path.write_text(text.replace("memory: 8GiB", f"memory: {memory}"))
                for name in ("torch-2.5-class", "bitsandbytes"):  # with the card's memory, and without
                    step = self.check_planned(self.plan(name, path))[0]
                    self.assertIn(" --set memory.gpu=null", step["command"])
                    done = run(*shlex.split(step["command"])[1:], "--no-probe")
                    self.assertEqual((done.returncode, done.stderr), (0, ""), step["command"])

    def test_the_first_step_fits_the_card_and_every_command_runs(self):
        """Also where the data set is not here. What is said of fitting is what plan answers."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sft.yaml"
            path.write_text(f"model_name_or_path: {RECIPES / 'qwen2.5-0.5b-lora'}\nstage: sft\nfinetuning_type: full\n"
                            "dataset: alpaca_en_demo\ntemplate: qwen\ncutoff_len: 1024\nper_device_train_batch_size: 16\n"
                            "gradient_accumulation_steps: 1\nbf16: true\noutput_dir: out\n")
            text = log("torch-settings-are-no-steps").replace("11.63 GiB", "7.80 GiB").replace("11.53", "7.70").replace("11.20", "7.40")
            planned = self.check_planned(diagnose(text, "--recipe", str(path)))
            self.assertIn("this fits", planned[0]["what"])
            for step in planned:
                with self.subTest(step["command"]):
                    fits = "this fits" in step["what"] or "this alone fits" in step["what"]
                    done = run(*shlex.split(step["command"])[1:], "--no-probe")
                    self.assertEqual(done.returncode, 0 if fits else 3, step["what"] + done.stderr)

    def test_every_command_that_it_prints_over_the_corpus_runs(self):
        """Of every log, and with a recipe for some of those of devices. Values of other programs' options are theirs."""
        commands = set()
        for name in MESSAGES:
            commands |= {step["command"] for step in diagnose(log(name))["steps"] if step["command"]}
        devices = [name for name in MESSAGES if EXPECTED[name]["cause"] in ("capacity", "other_processes", "fragmentation")]
        for name in devices[::16]:
            commands |= {step["command"] for step in self.plan(name, RECIPES / "qwen2.5-0.5b-lora/recipe.yaml")["steps"] if step["command"]}
        own = sorted(command for command in commands if command.startswith("plimsoll "))
        self.assertGreater(len(own), 20)
        for command in commands.difference(own):
            self.assertRegex(command, r"^(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True|--gpu-memory-utilization 0[.][0-9]+)$")
        with tempfile.TemporaryDirectory() as queue:
            environment = {**os.environ, "PLIMSOLL_QUEUE_DIR": queue}
            for command in own:
                words = shlex.split(command.replace(" -- COMMAND", " -- true"))[1:]
                with self.subTest(command):
                    done = run(*words, *(["--no-probe"] if words[0] == "plan" else []), env=environment)
                    self.assertIn(done.returncode, (0, 3) if words[0] == "plan" else (0,), done.stderr)

    def test_a_tensor_of_the_recipe(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sft.yaml"
            path.write_text(f"model_name_or_path: {RECIPES / 'qwen2.5-0.5b-lora'}\nstage: sft\nfinetuning_type: full\n"
                            "dataset: alpaca_en_demo\ntemplate: qwen\ncutoff_len: 1024\nper_device_train_batch_size: 16\n"
                            "gradient_accumulation_steps: 1\nbf16: true\noutput_dir: out\n")
            found = diagnose(log("torch-2.2-co-tenants").replace("32.00 MiB", "152.00 MiB"), "--recipe", str(path))
        self.assertIn("152 MiB is 16 rows x 1,024 tokens x 4,864 values x 2 bytes: an activation of the MLP", found["notes"])

    def test_nothing_is_planned_where_memory_is_not_the_matter(self):
        found = self.plan("trap-device-assert", RECIPES / "qwen2.5-0.5b-lora/recipe.yaml")
        self.assertEqual(found["steps"], [])


class Snapshots(unittest.TestCase):
    def read(self, name, code=0):
        done = subprocess.run([str(PLIMSOLL), "doctor", str(CORPUS / "snapshots" / f"{name}.pickle"), "--json"],
                              capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout) if code == 0 else done.stderr

    def test_fragmentation(self):
        found = self.read("fragmented")
        device = found["snapshot"]["devices"][0]
        self.assertEqual((found["out_of_memory"], found["cause"]), ("yes", "fragmentation"))
        self.assertEqual(found["evidence"]["figures"]["tried_bytes"], 320 << 20)
        self.assertEqual((device["reserved_bytes"], device["allocated_bytes"], device["idle_bytes"], device["largest_idle_bytes"]),
                         (1536 << 20, 1024 << 20, 512 << 20, 128 << 20))
        self.assertEqual(device["requested_bytes"], 1000 << 20)

    def test_the_peak_and_what_was_there(self):
        found = self.read("peaked")
        device = found["snapshot"]["devices"][0]
        self.assertEqual(found["out_of_memory"], "no")
        self.assertEqual((device["device"], device["peak_allocated_bytes"]), (1, 1280 << 20))
        self.assertEqual({site["place"]: site["bytes"] >> 20 for site in device["at_peak"]},
                         {"train.py:20:load": 512, "train.py:31:forward": 512, "train.py:77:step": 256})
        self.assertEqual([site["place"] for site in device["at_end"]], ["train.py:20:load"])

    def test_old_files(self):
        device = self.read("old")["snapshot"]["devices"][0]
        self.assertEqual((device["reserved_bytes"], device["allocated_bytes"], device["requested_bytes"]),
                         (20 << 20, 2 << 20, 1 << 20))
        self.assertEqual(device["at_end"][0]["place"], "train.py:20:load")

    def test_a_long_name_that_many_frames_share_is_not_copied_for_each(self):
        name = "n" * 5_000_000  # of which the pickle has one
        blocks = [{"address": i, "size": 512, "requested_size": 512, "state": "active_allocated",
                   "frames": [{"filename": name, "line": line, "name": name} for line in range(200)]} for i in range(100)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "long.pickle")
            path.write_bytes(pickle.dumps({"segments": [{"device": 0, "address": 0, "total_size": 51200, "allocated_size": 51200, "active_size": 51200, "stream": 0,
                                                         "segment_type": "large", "blocks": blocks}], "device_traces": [[]]}))
            self.assertLess(path.stat().st_size, 6_000_000)
            done = subprocess.run([str(PLIMSOLL), "doctor", str(path)], capture_output=True, text=True,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)))
        self.assertEqual(done.returncode, 0, done.stderr[-500:])
        self.assertIn("50.0 KiB", done.stdout)

    def test_nothing_of_a_file_is_executed(self):
        self.assertIn("only containers, numbers and texts are read", self.read("evil", 2))
        self.assertFalse(Path("evil-was-here").exists())
        self.assertIn("no memory snapshot of PyTorch", self.read("no-snapshot", 2))

    def test_the_files_are_what_their_script_makes(self):
        module = importlib.util.spec_from_file_location("make_snapshots", CORPUS / "make_snapshots.py")
        made = importlib.util.module_from_spec(module)
        module.loader.exec_module(made)
        for name, value in (("fragmented", made.fragmented()), ("peaked", made.peaked()), ("old", made.old())):
            self.assertEqual(pickle.loads((CORPUS / "snapshots" / f"{name}.pickle").read_bytes()), value, name)


class Runs(CommandTest):
    def test_a_run_that_was_killed(self):
        for name in ("run.json",):
            (self.run_folder / name).unlink()
        lines = (self.run_folder / "events.jsonl").read_text().splitlines(keepends=True)
        (self.run_folder / "events.jsonl").write_text("".join(line for line in lines if '"end"' not in line))
        found = json.loads(output("doctor", self.run_folder, "--json"))
        self.assertEqual((found["out_of_memory"], found["cause"]), ("possibly", "killed"))
        self.assertEqual(found["evidence"]["message"], "plimsoll.ended_without_a_word")
        self.assertEqual(found["evidence"]["step"], 40)
        self.assertGreater(found["evidence"]["figures"]["planned_process_bytes"], 0)
        self.assertTrue(any("memory.recompute=block" in (step["command"] or "") for step in found["steps"]), found["steps"])

    def test_logs_of_a_folder_are_named(self):
        (self.folder / "slurm-1.out").write_text("all is well\n")
        (self.folder / "slurm-1.err").write_text(log("slurm-event-new"))
        text = output("doctor", self.folder)
        self.assertIn("slurm-1.err:1: slurmstepd: error: Detected 2 oom_kill events", text)
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("no run of Plimsoll, and no log", output("doctor", empty, code=2))


class Real(unittest.TestCase):
    """What this machine's own programs say when memory ends."""

    def test_python_under_a_limit(self):
        for program in ("x = [bytearray(1 << 24) for _ in range(1000)]", "x = bytearray(1 << 40)"):
            done = subprocess.run(["bash", "-c", f"ulimit -v 400000; {sys.executable} -c '{program}'"], capture_output=True, text=True,
                                  timeout=600)
            self.assertNotEqual(done.returncode, 0)
            found = diagnose(done.stderr)
            self.assertEqual((found["out_of_memory"], found["cause"]), ("yes", "host_refused"), done.stderr)

    def test_a_killed_child_of_a_shell(self):
        done = subprocess.run(["bash", "-c", f"{sys.executable} -c 'import os; os.kill(os.getpid(), 9)'; true"], capture_output=True,
                              text=True, timeout=600)
        self.assertEqual(diagnose(done.stderr)["cause"], "killed", done.stderr)

    def test_its_own_refusal(self):
        done = run("plan", RECIPES / "qwen2.5-0.5b-lora/recipe.yaml", "--memory", "400MiB", "--no-probe")
        found = diagnose(done.stderr)
        self.assertEqual((found["out_of_memory"], found["cause"]), ("no", "refused_by_plan"))
        self.assertGreater(found["missing_bytes"], 0)


class Length(unittest.TestCase):
    def test_a_long_log_in_little_memory(self):
        """128 MiB of lines full of anchors, and one that has no end, under a limit of address space."""
        message = log("torch-1.4")
        line = b"step 12 exit code 0 137 Out of memory is what we avoid; CUDA error? oom_kill 0 [rank1]: 3 OOM -9\n" * 1000
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "long.log"
            with path.open("wb") as out:
                out.write(b"x" * (16 << 20) + b"\n")
                for _ in range((112 << 20) // len(line)):
                    out.write(line)
                out.write(message.encode())
            done = subprocess.run(["bash", "-c", f"ulimit -d 100000; exec {PLIMSOLL} doctor {path} --json"], capture_output=True,
                                  text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["cause"], "capacity")
        self.assertEqual(found["evidence"]["line"], found["lines"])


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("doctor_test"))
