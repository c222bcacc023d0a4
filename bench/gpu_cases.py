"""The runs of gpu.py and of `make gpu-first`: shapes of known models, random weights (init: random), rows of random token ids. Standard library only."""
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

from hf_cases import QWEN, SHAPES

ROOT = Path(__file__).resolve().parent.parent
OF_QWEN2 = {**QWEN, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
OF_QWEN3_5 = {**QWEN, "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "head_dim": 256, "vocab_size": 248320, "full_attention_interval": 4,
              "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128}
OF_QWEN3 = {**QWEN, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128}


def example(name):
    return json.loads((ROOT / "examples/cases" / name / "config.json").read_text())


def qwen(base, hidden, mlp, layers, heads, kv_heads, **more):
    return {**base, "hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, **more}


MODELS = {
    "qwen3-0.6b": {**OF_QWEN3, **SHAPES["qwen3-0.6b"][2]},
    "qwen3-1.7b": qwen(OF_QWEN3, 2048, 6144, 28, 16, 8),
    "qwen2.5-0.5b": {**OF_QWEN2, **SHAPES["qwen2.5-0.5b"][2]},
    "qwen2.5-1.5b": qwen(OF_QWEN2, 1536, 8960, 28, 12, 2),
    "qwen3-8b": qwen(OF_QWEN3, 4096, 12288, 36, 32, 8, tie_word_embeddings=False),
    "qwen2.5-7b": qwen(OF_QWEN2, 3584, 18944, 28, 28, 4, vocab_size=152064, tie_word_embeddings=False),
    "mistral-7b": example("5-mistral-7b"),
    "qwen3.5-0.8b": qwen(OF_QWEN3_5, 1024, 3584, 24, 8, 2, linear_num_value_heads=16),
    "qwen3.5-9b": qwen(OF_QWEN3_5, 4096, 12288, 32, 16, 4, linear_num_value_heads=32, tie_word_embeddings=False),
    "chatlm-t5": {**SHAPES["chatlm-t5"][2], "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": True},
    "gla-1.3b": example("1-gla-glue"),
}
# For an emulated card: a few tokens of as small a model.
TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
        "num_heads": 2, "vocab_size": 256, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_decoder_layers": 1,
        "bos_token_id": 1, "eos_token_id": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}


@dataclass(frozen=True)
class Case:
    model: str
    method: str
    length: int
    micro: int
    accumulation: int = 1
    precision: str = "bf16"
    task: str = "sft"
    target: int = 0
    answers: bool = False  # the trained run is asked, too: one in full, as adapters of random weights lack their base
    host: str = ""  # what waits in the host's memory: memory.offload
    sections: str = ""  # of gpu-first that measure it: c and e trainings, d profiles, f what others do with it, h trainings and profiles of Qwen3.5
    bench: bool = True  # whether gpu-bench has it

    @property
    def name(self):
        length = f"{self.length}+{self.target}" if self.target else str(self.length)
        kind = f"{self.model} {self.task} {self.method}, {self.precision}, {length} x {self.micro} x {self.accumulation}"
        return kind + (f", {self.host} on the host" if self.host else "")

    @property
    def samples(self):
        return self.micro * self.accumulation

    @property
    def tokens(self):
        """Of a step: both texts of a pair, sources and targets."""
        return self.samples * (2 * self.length if self.task == "reward" else self.length + self.target)


# What the first minutes on a card should answer first, first.
CASES = (Case("qwen3-0.6b", "lora", 2048, 2, 4, sections="d"), Case("qwen3-1.7b", "lora", 2048, 2, 4, sections="d"),
         Case("qwen2.5-0.5b", "full", 1024, 8, 2, answers=True, sections="cd"),
         Case("qwen2.5-1.5b", "full", 1024, 4, 2, answers=True, sections="d"),
         Case("chatlm-t5", "full", 256, 32, task="seq2seq", target=256, sections="cdf"), Case("gla-1.3b", "lora", 1024, 4, sections="cdf"),
         Case("mistral-7b", "lora", 1024, 2, 2, task="reward"), Case("qwen2.5-7b", "full", 1024, 4, precision="bf16-pure", sections="ef"),
         # Of gpu-first alone.
         Case("qwen2.5-0.5b", "full", 1024, 8, 2, precision="fp16", sections="cf", bench=False),
         Case("qwen3-8b", "lora", 4096, 1, 2, sections="ef", bench=False), Case("qwen3-8b", "qlora", 4096, 1, 2, sections="ef", bench=False),
         Case("qwen2.5-1.5b", "full", 1024, 4, 2, host="states", sections="e", bench=False),
         Case("qwen2.5-1.5b", "full", 1024, 4, 8, host="states", sections="e", bench=False),
         Case("qwen3-8b", "lora", 1024, 4, 2, host="weights", sections="e", bench=False),
         Case("qwen3.5-0.8b", "lora", 2048, 2, 4, sections="fh", bench=False), Case("qwen3.5-9b", "lora", 2048, 1, 4, sections="h", bench=False))
BENCH_CASES = tuple(case for case in CASES if case.bench)


def tiny_case(case):
    return replace(case, length=16, target=16 if case.target else 0, micro=1, accumulation=min(case.accumulation, 2))


def config_of(case, tiny):
    config = MODELS[case.model]
    if not tiny:
        return config
    return {key: TINY[key] if key in TINY and value is not None else value for key, value in config.items()}


def make_rows(path, count, case, vocab):
    draw = random.Random(1)

    def ids(length):
        return [draw.randrange(3, vocab) for _ in range(length)]

    rows = {"sft": lambda: {"input_ids": ids(case.length)}, "seq2seq": lambda: {"input_ids": ids(case.length), "labels": ids(case.target)},
            "reward": lambda: {"chosen_input_ids": ids(case.length), "rejected_input_ids": ids(case.length)}}[case.task]
    path.write_text("".join(json.dumps(rows()) + "\n" for _ in range(count)))


def write_case(case, folder, steps, tiny):
    """Model, rows and recipe in `folder`; the recipe's path."""
    config = config_of(case, tiny)
    (folder / "model").mkdir(parents=True, exist_ok=True)
    (folder / "model/config.json").write_text(json.dumps(config))
    make_rows(folder / "rows.jsonl", steps * case.samples, case, config["vocab_size"])
    length = {"source": case.length, "target": case.target} if case.target else case.length
    methods = {"full": {"type": "full"}, "lora": {"type": "lora", "r": 16, "alpha": 32}, "qlora": {"type": "qlora", "r": 16, "alpha": 32}}
    recipe = {"model": str(folder / "model"), "init": "random", "task": case.task, "precision": case.precision,
              "data": {"train": str(folder / "rows.jsonl"), "max_length": length, "shuffle": False},
              "method": methods[case.method], **({"memory": {"offload": [case.host]}} if case.host else {}),
              "batch": {"effective": case.samples, "micro": case.micro}, "optimizer": {"lr": 1e-5}, "save": {"every": 0},
              "schedule": {"name": "constant", "warmup": 0, "max_steps": steps}, "output": str(folder / "run")}
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe))
    return path
