"""Data of every format, packing, bad rows and large files, by whole runs of the built binary.

Usage: data_test.py PLIMSOLL [--megabytes N] (from the repository's root); N: size of the large file.
Standard library, and pyarrow where setup put it.
"""
import gzip
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from shard import SuiteLoader, is_mine

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".deps/py"))
PLIMSOLL = ROOT / "build" / "plimsoll"
MIB = 1 << 20
LARGE_MB = 500
TEXTS = [f"Question {i}: what is {i} plus {i * i}? It is {'so ' * (i % 7)}{i + i * i}." for i in range(40)]


def run(*words, **options):
    return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600, **options)


def recipe(folder, train, **changes):
    settings = {"model": str(ROOT / "demo/model"), "init": "random", "task": "pretrain",
                "data": {"train": train, "max_length": 48}, "method": {"type": "full"},
                "batch": {"effective": 6, "micro": 3}, "optimizer": {"lr": 1e-3},
                "schedule": {"max_steps": 4, "warmup": 1}, "precision": "fp32", "output": str(folder / "run")}
    for key, value in changes.items():
        settings[key] = {**settings[key], **value} if isinstance(settings.get(key), dict) else value
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / "recipe.json"
    path.write_text(json.dumps(settings))
    return path


def metrics(output, key):
    return [json.loads(line)[key] for line in (output / "metrics.jsonl").read_text().splitlines()]


def tensors(path):
    """Floats by name of an f32 safetensors file."""
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    offsets = {name: (info["data_offsets"], info["dtype"]) for name, info in header.items()}
    return {name: struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
            for name, ((begin, end), dtype) in offsets.items() if dtype == "F32"}


def write_formats(folder):
    """The same rows in every format; paths by name."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.ipc
    import pyarrow.parquet
    folder.mkdir()
    table = pa.table({"n": list(range(len(TEXTS))), "text": TEXTS})
    pa.parquet.write_table(table, folder / "a.parquet")
    pa.feather.write_feather(table, folder / "a.feather")
    rows = [{"n": i, "text": text} for i, text in enumerate(TEXTS)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "a.json").write_text(json.dumps(rows, indent=1))
    (folder / "held.json").write_text(json.dumps({"version": 1, "data": rows}))
    (folder / "a.csv").write_text("n,text\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS)))
    (folder / "a.tsv").write_text("n\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(TEXTS)))
    saved = folder / "saved"
    saved.mkdir()
    with pa.OSFile(str(saved / "data-00000-of-00001.arrow"), "wb") as file, \
            pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=16)
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (saved / "dataset_info.json").write_text("{}")
    return [folder / name for name in ("a.parquet", "a.feather", "a.jsonl", "a.json", "held.json", "a.csv", "a.tsv", "saved")]


class DataTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def train(self, name, train, *words, **changes):
        done = run("train", recipe(self.folder / name, train, **changes), *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.log = done.stdout + done.stderr
        return self.folder / name / "run"

    def refusal(self, train, code, **changes):
        done = run("train", recipe(self.folder / "refused", train, **changes), "--overwrite")
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def lines(self, name, texts):
        path = self.folder / name
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return str(path)

    def test_every_format_gives_the_same_run_and_resumes_within_an_epoch(self):
        seen = None
        for path in write_formats(self.folder / "data"):
            name = path.name
            output = self.train(name, str(path), "--quiet", save={"every": 2, "keep": 3})
            losses = metrics(output, "loss")
            seen = seen or losses
            self.assertEqual(losses, seen, name)
            weights = (output / "model.safetensors").read_bytes()
            shutil.rmtree(output / "checkpoint-4")
            again = run("train", self.folder / name / "recipe.json", "--quiet", "--resume")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual((output / "model.safetensors").read_bytes(), weights, name)

    def test_texts_packed_by_gzip_train_as_they_do_unpacked_within_the_plan(self):
        """14 MB of rows: more than a window, so that the shuffle writes its scratch file."""
        plain, packed = self.folder / "a.jsonl", self.folder / "b.jsonl.gz"
        lines = [json.dumps({"text": f"{i} {TEXTS[i % 40]}" * 24}) + "\n" for i in range(14_000)]
        text = "".join(lines).encode()
        plain.write_bytes(text)
        self.assertGreater(len(text), 12 * MIB)
        packed.write_bytes(gzip.compress(text[:2_345_678], 1) + gzip.compress(text[2_345_678:], 1))
        seen = {}
        for shuffle in ("full", "window", False):
            for path in (plain, packed):
                output = self.train(f"{path.stem}-{shuffle}", str(path), "--quiet", data={"shuffle": shuffle}, seed=3)
                seen.setdefault(shuffle, []).append(metrics(output, "loss"))
                record = json.loads((output / "run.json").read_text())
                planned, measured = record["planned"], record["measured"]
                self.assertLessEqual(measured["process_peak_rss_bytes"], planned["process_peak_rss_bytes"], path)
                stored = shuffle and path != plain
                self.assertEqual(bool(planned["scratch_bytes"]), bool(stored), (path, shuffle))
                self.assertLessEqual(measured["scratch_bytes"], planned["scratch_bytes"] + 4096, path)
            self.assertEqual(seen[shuffle], [seen[shuffle][0]] * 2, shuffle)
        told = run("plan", recipe(self.folder / "plan", str(packed)), "--count").stdout
        self.assertRegex(told, r"scratch \d+\.\d MiB of disk")
        self.assertIn("b.jsonl.gz: is cut off", self.cut(packed))

    def cut(self, path):
        path.write_bytes(path.read_bytes()[:-100])
        return self.refusal(str(path), 4)

    def test_a_packed_text_that_grows_without_bound_takes_no_memory(self):
        """A GB of zeros in a MB."""
        (self.folder / "a.jsonl.gz").write_bytes(gzip.compress(bytes(MIB)) * 1024)
        small = self.folder / "small.jsonl"
        small.write_text('{"prompt": "a", "response": "b"}\n' * 8)
        usual, told = self.peak_of_plan(small)  # with pages of its files, of which some kernels map more than others
        self.assertTrue(told.startswith("0 "), told)
        for name in ("a.jsonl.gz", "a.json.gz", "a.csv.gz"):
            path = self.folder / name
            if not path.exists():
                os.link(self.folder / "a.jsonl.gz", path)
            peak, told = self.peak_of_plan(path)
            self.assertTrue(told.startswith("4 "), told)
            self.assertIn(name, told)
            self.assertLess(peak - usual, 125 * MIB)

    def peak_of_plan(self, path):
        """(bytes of the process that plans these rows, its exit code and errors)."""
        # A small Python starts it: what this one holds would count as the program's peak until its exec.
        code = ("import os, resource, subprocess, sys; done = subprocess.run(sys.argv[1:], capture_output=True, text=True);"
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); print(done.returncode, done.stderr)")
        words = [str(PLIMSOLL), "plan", recipe(self.folder / "bomb", str(path))]
        peak, told = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True).stdout.split("\n", 1)
        return int(peak) * 1024, told

    def test_patterns_and_weighted_sources(self):
        self.lines("part-1.jsonl", TEXTS[:10])
        self.lines("part-2.jsonl", TEXTS[10:20])
        recipe_of = {"schedule": {"max_steps": None}, "batch": {"effective": 5, "micro": 5}}
        output = self.train("pattern", str(self.folder / "part-*.jsonl"), "--quiet", **recipe_of)
        self.assertEqual(len(metrics(output, "loss")), 4)
        sources = [{"path": str(self.folder / "part-1.jsonl"), "weight": 2.5}, str(self.folder / "part-2.jsonl")]
        output = self.train("weights", sources, "--quiet", **recipe_of)
        self.assertEqual(len(metrics(output, "loss")), 7)
        self.assertIn("weight: expected a number above 0", self.refusal([{**sources[0], "weight": 0}], 2))
        self.assertIn("no data file matches", self.refusal(str(self.folder / "x-*.jsonl"), 2))

    def packed(self, name, train, documents, **changes):
        """One step an epoch, over all rows: packed into three sequences, or each in one of its own."""
        packing = documents == 1
        return self.train(name, train, "--quiet", data={"packing": packing, "shuffle": False},
                          batch={"effective": 3 if packing else 8, "micro": changes.pop("micro", 1)},
                          schedule={"max_steps": None, "epochs": changes.pop("epochs", 3), "warmup": 1}, **changes)

    def test_packing_changes_no_loss_and_no_gradient(self):
        rows = self.lines("rows.jsonl", [text[:17 + 3 * i] for i, text in enumerate(TEXTS[:8])])
        for method in ({"type": "full"}, {"type": "lora", "r": 4, "dropout": 0.2}):
            kind = method["type"]
            alone = self.packed(kind + "-alone", rows, 8, method=method)
            for micro in (1, 2, 3):
                packed = self.packed(f"{kind}-packed{micro}", rows, 1, method=method, micro=micro)
                for key in ("loss", "grad_norm"):
                    pairs = list(zip(metrics(alone, key), metrics(packed, key), strict=True))
                    self.assertEqual(len(pairs), 3)
                    for a, b in pairs:
                        self.assertLess(abs(a - b), 2e-5 * max(1, a), (kind, micro, key))
        # With plain SGD the change of the weights is the gradient, element by element.
        sgd = {"optimizer": {"name": "sgd", "lr": 0.1, "max_grad_norm": 0}, "epochs": 1}
        first = tensors(self.packed("sgd-alone", rows, 8, **dict(sgd)) / "model.safetensors")
        second = tensors(self.packed("sgd-packed", rows, 1, **dict(sgd)) / "model.safetensors")
        self.assertEqual(first.keys(), second.keys())
        self.assertLess(max(abs(a - b) for name in first for a, b in zip(first[name], second[name])), 2e-6)

    def test_packing_counts_its_steps_and_resumes_within_an_epoch(self):
        rows = self.lines("rows.jsonl", TEXTS)
        changes = {"data": {"packing": True, "max_length": 96}, "batch": {"effective": 2, "micro": 1},
                   "schedule": {"max_steps": None, "epochs": 2}, "save": {"every": 3, "keep": 9}}
        output = self.train("whole", rows, "--quiet", **changes)
        steps = len(metrics(output, "loss"))
        self.assertGreater(steps, 6)
        self.assertLess(steps, 2 * len(TEXTS) / 2 * 0.7)
        weights = (output / "model.safetensors").read_bytes()
        for checkpoint in output.glob("checkpoint-*"):
            if checkpoint.name != "checkpoint-3":
                shutil.rmtree(checkpoint)
        again = run("train", self.folder / "whole" / "recipe.json", "--quiet", "--resume")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual((output / "model.safetensors").read_bytes(), weights)

    def test_joined_texts_fill_sequences_and_a_run_resumes_within_a_text(self):
        rows = self.lines("rows.jsonl", [*TEXTS, " ".join(TEXTS)])
        changes = {"data": {"packing": "joined", "max_length": 64}, "batch": {"effective": 2, "micro": 1},
                   "schedule": {"max_steps": None, "epochs": 2}, "save": {"every": 3, "keep": 99}}
        output = self.train("whole", rows, "--quiet", **changes)
        dumped = run("plan", self.folder / "whole" / "recipe.json", "--dump", "rows")
        tokens = sum(len(json.loads(line)["ids"]) for line in dumped.stdout.splitlines())
        an_epoch = -(-(tokens // 64) // 2)
        self.assertEqual(len(metrics(output, "loss")), 2 * an_epoch, "no token but the last ones of an epoch is left out")
        weights = (output / "model.safetensors").read_bytes()
        states = [json.loads(path.read_text()) for path in sorted(output.glob("checkpoint-*/trainer_state.json"))]
        inside = [state["step"] for state in states if state.get("token", 0) > 0]
        self.assertTrue(inside, "no checkpoint lies within a text")
        for checkpoint in output.glob("checkpoint-*"):
            if checkpoint.name != f"checkpoint-{inside[0]}":
                shutil.rmtree(checkpoint)
        again = run("train", self.folder / "whole" / "recipe.json", "--quiet", "--resume")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual((output / "model.safetensors").read_bytes(), weights)
        few = self.lines("few.jsonl", TEXTS[:1])
        self.assertIn("fewer tokens than a sequence of data.packing: joined", self.refusal(few, 2, **changes))
        held = self.lines("held.jsonl", TEXTS[:1])
        short = recipe(self.folder / "short", rows, **{**changes, "data": {**changes["data"], "eval": held}, "eval": {"every": 2}})
        for command in ("plan", "train"):
            done = run(command, short)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("held.jsonl: all rows together have fewer tokens", done.stderr)
        self.assertIn("joined is for texts", self.refusal(rows, 2, task="sft", data={"packing": "joined"}))

    def test_bad_rows_end_the_run_or_are_skipped_and_counted(self):
        rows = self.folder / "rows.jsonl"
        good = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:20])
        rows.write_text(good + '{"text": "cut\n' + good + '{"text": 7}\n')
        self.assertIn(f"{rows}:21: is not valid JSON", self.refusal(str(rows), 4))
        output = self.train("skip", str(rows), data={"on_error": "skip"},
                            schedule={"max_steps": None}, batch={"effective": 7, "micro": 7})
        self.assertIn(f"{rows}:21: is not valid JSON", self.log)
        self.assertIn(f"{rows}:42: 'text' is a number", self.log)
        self.assertIn("2 damaged and skipped", self.log)
        self.assertEqual(json.loads((output / "run.json").read_text())["rows"]["damaged"], 2)

    def test_a_bad_first_row_is_a_row_like_others(self):
        rows = self.folder / "rows.jsonl"
        good = "".join(json.dumps({"prompt": text[:20], "response": text}) + "\n" for text in TEXTS[:20])
        for number, (first, problem) in enumerate((
                ('{"prompt": 3, "response": "a"}', "'prompt' is a number, a string is expected"),
                ('{"prompt": null, "response": "a"}', "'prompt' is null, a string is expected"), ('{"x": 3}', "has no 'prompt'"))):
            rows.write_text(first + "\n" + good)
            text = self.refusal(str(rows), 4, task="sft")
            self.assertIn(f"{rows}:1: {problem}", text)
            self.assertIn("data.on_error: skip leaves out such rows", text)
            output = self.train(f"skip{number}", str(rows), task="sft", data={"on_error": "skip"})
            self.assertIn(f"{rows}:1: {problem}", self.log)
            self.assertEqual(json.loads((output / "run.json").read_text())["rows"]["damaged"], 1)
        rows.write_text('{"prompt": 3, "response": "a"}\n' * 2)
        self.assertIn("column 'prompt' is a number, text is expected", self.refusal(str(rows), 2, task="sft", data={"on_error": "skip"}))

    def test_dialogues_are_known_behind_a_bad_first_row(self):
        rows = self.folder / "rows.jsonl"
        talk = "\\n\\nHuman: Hi.\\n\\nAssistant: "
        rows.write_text('{"chosen": null, "rejected": "b"}\n'
                        f'{{"chosen": "{talk}a", "rejected": "{talk}b"}}\n'
                        '{"chosen": "a", "rejected": "b"}\n')
        output = self.train("pairs", str(rows), task="dpo", schedule={"max_steps": 1},
                            data={"on_error": "skip", "template": "chatml", "max_length": 128},
                            batch={"effective": 3, "micro": 3})
        self.assertIn("is no dialogue that begins with", self.log)
        self.assertEqual(json.loads((output / "run.json").read_text())["rows"]["damaged"], 2)

    def test_rows_without_targets_or_beyond_the_limit_are_counted_and_none_left_is_refused(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"prompt": p, "response": r}) + "\n"
                                for p, r in [("a" * 400, "b"), ("c", "d"), ("e", "f" * 400)] * 4))
        output = self.train("some", str(rows), task="sft", schedule={"max_steps": 2})
        counts = json.loads((output / "run.json").read_text())["rows"]
        self.assertEqual(counts, {"truncated": 8, "without_targets": 4, "damaged": 0})
        # The other end keeps the response.
        output = self.train("left", str(rows), task="sft", schedule={"max_steps": 2}, data={"truncation": "left"})
        self.assertEqual(json.loads((output / "run.json").read_text())["rows"]["without_targets"], 0)
        rows.write_text(json.dumps({"prompt": "a" * 400, "response": "b"}) + "\n")
        self.assertIn("no row has a token to learn", self.refusal(str(rows), 2, task="sft"))
        self.assertFalse((self.folder / "refused" / "run" / "metrics.jsonl").exists())
        rows.write_text("")
        self.assertIn("has no rows", self.refusal(str(rows), 2))

    def test_statistics_come_before_the_run(self):
        rows = self.lines("rows.jsonl", TEXTS)
        self.train("run", rows)
        self.assertRegex(self.log, r"data +40 rows · [\d,]+ tokens · longest \d+ · ")
        done = run("plan", recipe(self.folder / "plan", rows), "--json")
        data = json.loads(done.stdout)["data"]
        self.assertEqual((data["rows"], data["estimated"]), (40, False))
        many = self.lines("many.jsonl", TEXTS * 400)
        data = json.loads(run("plan", recipe(self.folder / "plan", many), "--json").stdout)["data"]
        self.assertEqual((data["rows"], data["estimated"]), (16000, True))
        self.assertLessEqual(data["sampled_rows"], 2048)
        self.assertIn("estimated from", run("plan", recipe(self.folder / "plan", many)).stdout)

    def test_short_rows_cost_their_own_tokens_and_not_the_planned_ones(self):
        sys.path.insert(0, str(ROOT / "bench"))
        import lengths
        full, short = (lengths.step_seconds(PLIMSOLL, self.folder, [n] * 4) for n in (512, 32))
        self.assertLess(short, 0.5 * full)  # a 16th of the tokens; processor time of a busy machine varies

    def test_one_row_of_megabytes_has_its_place_in_the_plan(self):
        """Every byte a word and a token: the dearest row there is. All rows are read, and the run stays below its plan."""
        texts = [*TEXTS[:6], "x," * (MIB // 2), *TEXTS[6:11]]
        messages = [{"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes."}]} for text in texts]
        files = {"jsonl": "".join(json.dumps({"text": text}) + "\n" for text in texts), "json": json.dumps([{"text": text} for text in texts]),
                 "csv": "text\n" + "".join(f'"{text}"\n' for text in texts), "talk.jsonl": "".join(json.dumps(row) + "\n" for row in messages)}
        for kind, content in files.items():
            (self.folder / f"rows.{kind}").write_text(content)
        import pyarrow as pa
        import pyarrow.parquet
        pyarrow.parquet.write_table(pa.table({"text": texts}), self.folder / "rows.parquet")
        for kind in (*files, "parquet"):
            data = {"template": "chatml"} if kind == "talk.jsonl" else {}
            settings = recipe(self.folder / kind, str(self.folder / f"rows.{kind}"), data=data, schedule={"max_steps": 2})
            parts = json.loads(run("plan", settings, "--json").stdout)["host"]["components"]
            self.assertGreater({one["name"]: one["bytes"] for one in parts}["longest row"], 10 * MIB, kind)
            done = run("train", settings, "--quiet")
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads((settings.parent / "run" / "run.json").read_text())
            for bytes_of in ("process_peak_rss_bytes", "process_data_bytes"):
                self.assertLessEqual(report["measured"][bytes_of], report["planned"][bytes_of], f"{kind}: {bytes_of}")
            self.assertGreaterEqual(report["rows"]["truncated"], 1)
            for bytes_of in ("process_peak_rss_bytes", "process_data_bytes"):
                self.assertLess(report["measured"][bytes_of], report["planned"][bytes_of], f"{kind}: {bytes_of}")
        refused = run("plan", settings, "--memory", "60MiB")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("longest row", refused.stderr)

    def sorted_ids(self, rows, length=64):
        """Two kinds of rows, one after the other in one row group."""
        import pyarrow as pa
        import pyarrow.parquet
        values = pa.concat_arrays([pa.array([kind] * (rows // 2 * length), pa.int32()) for kind in (5, 9)])
        offsets = pa.array(range(0, rows * length + 1, length), pa.int32())
        path = self.folder / f"sorted{rows}.parquet"
        pa.parquet.write_table(pa.table({"input_ids": pa.ListArray.from_arrays(offsets, values)}), path, row_group_size=rows)
        return path

    def test_a_large_row_group_is_shuffled_fully_by_a_scratch_file_of_the_planned_bytes(self):
        path = self.sorted_ids(52_000)
        of_window = {"data": {"shuffle": "window"}}
        settings = recipe(self.folder / "full", str(path), save={"every": 2, "keep": 3}, task="sft")
        text = run("plan", settings)
        self.assertRegex(text.stdout, r"scratch 1\d\.\d MiB of disk\n")
        self.assertIn("rows are written once to a scratch file before the first step", " ".join(text.stdout.split()))
        planned = json.loads(run("plan", settings, "--json").stdout)["data"]["shuffle"]
        self.assertEqual((planned["order"], planned["rows_read"], planned["scratch_exact"]), ("full", "stored", True))
        output = self.train("full", str(path), save={"every": 2, "keep": 3}, task="sft")
        self.assertIn("written to a scratch file for the shuffle", self.log)
        report = json.loads((output / "run.json").read_text())
        self.assertEqual([report[part]["scratch_bytes"] for part in ("planned", "measured")], [planned["scratch_bytes"]] * 2)
        self.assertLess(report["measured"]["process_peak_rss_bytes"], report["planned"]["process_peak_rss_bytes"])
        weights = (output / "model.safetensors").read_bytes()
        shutil.rmtree(output / "checkpoint-4")
        again = run("train", settings, "--quiet", "--resume")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual((output / "model.safetensors").read_bytes(), weights)
        windows = json.loads(run("plan", recipe(self.folder / "windows", str(path), task="sft", **of_window), "--json").stdout)
        self.assertEqual((windows["data"]["shuffle"]["rows_read"], windows["data"]["shuffle"]["scratch_bytes"]), ("held", 0))

    def test_a_kind_of_rows_that_comes_late_is_named_and_the_state_is_kept(self):
        path = self.sorted_ids(600, 40)
        changes = {"task": "sft", "schedule": {"max_steps": 99}, "optimizer": {"lr": 3e-3}}
        settings = recipe(self.folder / "late", str(path), data={"shuffle": False}, **changes)
        done = run("train", settings)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, r"\(stop\.loss\): the loss rose from 0\.\d+ to \d+\.\d+ within one step, \d+ steps ago, with rows of a kind")
        self.assertIn("100 % of what they teach are target tokens that no earlier step had (0 % in the 20 steps before)", done.stderr)
        self.assertIn("data.shuffle: false visits them in parts", done.stderr)
        step = int(done.stderr.split("the state after step ")[1].split(" ")[0])
        self.assertTrue((self.folder / "late" / "run" / f"checkpoint-{step}").is_dir())
        self.assertGreater(step, 50)
        again = run("train", settings, "--resume", "--set", "stop.loss=1e9")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.train("mixed", str(path), "--quiet", **changes)

    def test_no_row_takes_more_than_planned_whatever_it_holds(self):
        """Rows of half a MiB whose JSON takes far more memory than its text. All are learnt, or refused by their number."""
        turn = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
        def many(text, size=MIB // 2):
            return ",".join([text] * (size // (len(text) + 1)))
        def talk(messages, more=""):
            return '{"messages":[%s]%s}' % (messages, more)
        pair = ",".join(map(json.dumps, turn))
        rows = {"empty objects beside": '{"prompt":"a b","response":"c","x":[%s]}' % many("{}"),
                "keys beside": '{"prompt":"a b","response":"c",%s}' % ",".join(f'"k{i}":0' for i in range(100_000)),
                "deep lists beside": '{"prompt":"a b","response":"c","x":[%s]}' % many("[" * 30 + "]" * 30),
                "escapes": '{"prompt":"%s","response":"c"}' % ("\\u0041" * (MIB // 6)),
                "empty objects of a message": talk('{"role":"user","content":"a","x":[%s]},%s' % (many("{}"), pair)),
                "empty messages": talk(many(json.dumps({"role": "user", "content": ""})) + "," + pair),
                "tools": talk(pair, ',"tools":[%s]' % many("{}")),
                "too many keys": talk("{%s}," % ",".join(f'"k{i}":0' for i in range(50_000)) + pair)}
        for name, row in rows.items():
            plain = {"messages": list(turn)} if row.startswith('{"messages') else {"prompt": "a", "response": "b"}
            path = self.folder / f"{name}.jsonl"
            path.write_text("".join(json.dumps(plain) + "\n" for _ in range(8)) + row + "\n")
            settings = recipe(self.folder / name, str(path), task="sft", data={"template": "chatml"} if "messages" in plain else {},
                              batch={"effective": 9, "micro": 3}, schedule={"max_steps": 2})
            done = run("train", settings, "--quiet", "--set", "data.on_error=skip")
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            report = json.loads((settings.parent / "run" / "run.json").read_text())
            for bytes_of in ("process_peak_rss_bytes", "process_data_bytes"):
                self.assertLessEqual(report["measured"][bytes_of], report["planned"][bytes_of], f"{name}: {bytes_of}")
        done = run("train", settings, "--quiet", "--overwrite")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("too many keys.jsonl:9: has an object of more than 4,096 keys", done.stderr)
        path.write_text(rows["keys beside"] + "\n" + '{"prompt":"a","response":"b"}\n' * 8)  # the names of a file's first row are kept
        settings = recipe(self.folder / "first", str(path), task="sft", batch={"effective": 8, "micro": 2}, schedule={"max_steps": 2})
        done = run("train", settings, "--quiet")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("too many keys.jsonl:1: has an object of more than 4,096 keys", done.stderr)

    def write_rows(self, kind, megabytes):
        """A file of so many MB of rows; it is the rows' number that differs, not their lengths."""
        path = self.folder / f"rows{megabytes}.{kind}"
        text = "".join(TEXTS)[:1000]
        if kind == "jsonl":
            row = json.dumps({"text": text}) + "\n"
            with open(path, "w") as file:
                for _ in range(megabytes // 5):
                    file.write(row * (5_000_000 // len(row)))
            return path
        import pyarrow as pa
        import pyarrow.parquet
        group = pa.table({"text": [f"{i}{text}" for i in range(5000)]})
        with pa.parquet.ParquetWriter(path, group.schema, compression="none", use_dictionary=False) as writer:
            for _ in range(megabytes // 5):
                writer.write_table(group)
        return path

    def test_the_size_of_the_file_does_not_matter_to_memory(self):
        """A small and a large file, each under a hard cap on the planned bytes."""
        def limit():
            resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
        for number, kind in enumerate(("jsonl", "parquet")):
            if not is_mine("data", number):
                continue
            peaks = []
            for megabytes in (5, LARGE_MB):
                path = self.write_rows(kind, megabytes)
                settings = recipe(self.folder / f"run-{path.name}", str(path.with_suffix(".*")), schedule={"max_steps": 3})
                cap = int(json.loads(run("plan", settings, "--json").stdout)["process"]["planned_data_bytes"] * 1.02) + 8 * MIB
                start = time.time()
                done = run("train", settings, "--quiet", preexec_fn=limit)
                self.assertEqual(done.returncode, 0, done.stderr)
                report = json.loads((settings.parent / "run" / "run.json").read_text())
                peaks.append(report["measured"]["process_peak_rss_bytes"])
                print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB, peak {peaks[-1] / MIB:.1f} MiB "
                      f"(planned {report['planned']['process_peak_rss_bytes'] / MIB:.1f}), {time.time() - start:.1f} s",
                      file=sys.stderr)
                path.unlink()
            self.assertLess(peaks[1] - peaks[0], 16 * MIB)


if __name__ == "__main__":
    PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    if "--megabytes" in sys.argv:
        at = sys.argv.index("--megabytes")
        LARGE_MB = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    unittest.main(testLoader=SuiteLoader("data_test", ("is_mine",)))
