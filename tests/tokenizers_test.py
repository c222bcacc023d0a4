"""A model folder with any of the golden tokenizers trains and answers; what cannot be used is refused.

Usage: tokenizers_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/tokenizers"
PLIMSOLL = ROOT / "build" / "plimsoll"
# A golden file, what a model folder calls it, its end-of-text token.
FILES = [
    ("llama2.json", "tokenizer.json", "</s>"),
    ("t5.json", "tokenizer.json", "</s>"),
    ("bert.json", "tokenizer.json", "[SEP]"),
    ("word_level.json", "tokenizer.json", "[UNK]"),
    ("sp_bpe.model", "tokenizer.model", "</s>"),
    ("sp_unigram.model", "spiece.model", "</s>"),
]


def run(*words):
    return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600)


class TokenizersTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def recipe(self, content, name, end):
        """A one-step run of the demo's small model with another tokenizer."""
        model = self.folder / "model"
        model.mkdir()
        config = json.loads((ROOT / "demo/model/config.json").read_text()) | {"eos_token_id": None}
        (model / "config.json").write_text(json.dumps(config))
        (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
        (model / name).write_bytes(content)
        rows = [{"prompt": f"Which ship? Größe {i}", "response": "The ship 船 \U0001f6a2 sails."} for i in range(4)]
        data = self.folder / "train.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        path = self.folder / "recipe.json"
        path.write_text(json.dumps({
            "model": str(model), "init": "random", "method": {"type": "full"}, "data": {"train": str(data), "max_length": 96}, "precision": "fp32",
            "batch": {"effective": 4, "micro": 4}, "schedule": {"max_steps": 1}, "output": str(self.folder / "run")}))
        return path

    def test_a_run_with_each_kind_of_tokenizer_trains_keeps_the_file_and_answers(self):
        for file, name, end in FILES:
            with self.subTest(file):
                self.setUp()
                content = (GOLDEN / file).read_bytes()
                done = run("train", self.recipe(content, name, end), "--quiet")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((self.folder / "run" / name).read_bytes(), content)
                answer = run("generate", self.folder / "run", "--prompt", "Which ship?", "--max-new-tokens", "4", "--json")
                self.assertEqual(answer.returncode, 0, answer.stderr)
                self.assertGreater(len(json.loads(answer.stdout)["prompt_ids"]), 1)

    def test_a_part_that_is_not_supported_is_refused_with_its_key_and_name(self):
        tokenizer = json.loads((GOLDEN / "llama2.json").read_text())
        tokenizer["normalizer"]["normalizers"][1] = {"type": "Nmt"}
        done = run("train", self.recipe(json.dumps(tokenizer).encode(), "tokenizer.json", "</s>"), "--quiet")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("tokenizer.json: normalizer.normalizers[1]: the normalizer \"Nmt\"", done.stderr)

    def test_a_cut_off_sentence_piece_model_is_damage(self):
        content = (GOLDEN / "sp_bpe.model").read_bytes()[:5000]
        done = run("train", self.recipe(content, "tokenizer.model", "</s>"), "--quiet")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("tokenizer.model", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main()
