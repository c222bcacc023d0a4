"""The cases of compare_hf.py: models of known shapes with random weights, rows of random token ids, and what both cost."""
import json
import pathlib
from dataclasses import dataclass

VOCAB = 151936
QWEN = {"vocab_size": VOCAB, "tie_word_embeddings": True, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "bos_token_id": 151643, "eos_token_id": 151643}
GEMMA3 = {"vocab_size": 262144, "tie_word_embeddings": True, "max_position_embeddings": 32768, "sliding_window": 512, "num_attention_heads": 4,
          "num_key_value_heads": 1, "head_dim": 256, "query_pre_attn_scalar": 256}


def longrope(factors):
    return {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 4096,
            "short_factor": [1.0] * factors, "long_factor": [1.0 + i for i in range(factors)]}


# Name: class of the configuration, class of the model, what the configuration says.
SHAPES = {
    "qwen2.5-0.5b": ("Qwen2Config", "AutoModelForCausalLM",
                     {**QWEN, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
                      "num_attention_heads": 14, "num_key_value_heads": 2}),
    "qwen3-0.6b": ("Qwen3Config", "AutoModelForCausalLM",
                   {**QWEN, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}),
    "qwen1.5-0.5b": ("Qwen2Config", "AutoModelForCausalLM",
                     {**QWEN, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 24,
                      "num_attention_heads": 16, "num_key_value_heads": 16}),
    "chatlm-t5": ("T5Config", "AutoModelForSeq2SeqLM",
                  {"vocab_size": 29298, "d_model": 768, "d_ff": 3072, "num_heads": 12, "d_kv": 64, "num_layers": 10,
                   "num_decoder_layers": 10, "feed_forward_proj": "relu", "dropout_rate": 0.0, "pad_token_id": 0,
                   "eos_token_id": 1, "decoder_start_token_id": 0}),
    "mistral-small-reward": ("MistralConfig", "AutoModelForSequenceClassification",
                             {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 4,
                              "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 4096,
                              "sliding_window": None, "num_labels": 1, "pad_token_id": 0, "bos_token_id": 1,
                              "eos_token_id": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    # A vocabulary of 262k: two thirds of the smaller model is the embedding.
    "gemma3-270m": ("Gemma3TextConfig", "AutoModelForCausalLM",
                    {**GEMMA3, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18}),
    "gemma3-1b": ("Gemma3TextConfig", "AutoModelForCausalLM",
                  {**GEMMA3, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26}),
    # Phi-4-mini's kind with half a billion parameters.
    "phi4-mini-0.5b": ("Phi3Config", "AutoModelForCausalLM",
                       {"vocab_size": 200064, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 24, "num_attention_heads": 8,
                        "num_key_value_heads": 4, "head_dim": 128, "tie_word_embeddings": True, "max_position_embeddings": 131072,
                        "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75, "bos_token_id": 199999, "eos_token_id": 199999,
                        "pad_token_id": 199999, "rope_parameters": longrope(48)}),
    "bert-base": ("BertConfig", "AutoModelForSequenceClassification",
                  {"vocab_size": 30522, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
                   "num_labels": 2, "pad_token_id": 0}),
}
FIRST_ID = 3  # of the ids of rows, where a model has padding


@dataclass(frozen=True)
class Case:
    shape: str
    method: str
    length: int
    micro: int
    task: str = "sft"
    precision: str = "bf16"
    avx2: bool = False
    target: int = 0

    @property
    def name(self):
        lengths = f"{self.length}+{self.target}" if self.target else str(self.length)
        return f"{self.shape} {self.method} {lengths}x{self.micro}" + (" fp32 avx2" if self.avx2 else "")

    @property
    def tokens(self):
        """Of a step, counted as the rival computes them: both texts of a pair, sources and targets."""
        return self.micro * (2 * self.length if self.task == "reward" else self.length + self.target)


def both_types(shape, method, length, micro, precision="bf16", **more):
    return (Case(shape, method, length, micro, precision=precision, **more),
            Case(shape, method, length, micro, precision="fp32", avx2=True, **more))


CASES = (
    Case("qwen2.5-0.5b", "lora", 512, 1),
    Case("qwen2.5-0.5b", "lora", 512, 4),
    Case("qwen3-0.6b", "lora", 1024, 1),
    Case("qwen1.5-0.5b", "full", 512, 1, precision="bf16-pure"),
    Case("qwen2.5-0.5b", "lora", 512, 1, precision="fp32", avx2=True),
    *both_types("gemma3-270m", "full", 512, 1, precision="bf16-pure"),
    *both_types("gemma3-1b", "lora", 512, 1),
    *both_types("phi4-mini-0.5b", "lora", 512, 1),
    *both_types("chatlm-t5", "full", 256, 8, precision="bf16-pure", task="seq2seq", target=256),
    *both_types("mistral-small-reward", "lora", 384, 4, task="reward"),
    *both_types("bert-base", "lora", 128, 32, task="classify"),
)


def tiny(shape):
    """The same kind of model so small that a case takes seconds: to try the script, not to measure."""
    kind, auto, sizes = SHAPES[shape]
    if kind == "T5Config":
        return kind, auto, {**sizes, "vocab_size": 512, "d_model": 64, "d_ff": 128, "num_heads": 2, "d_kv": 32,
                            "num_layers": 2, "num_decoder_layers": 2}
    small = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "bos_token_id": 1, "eos_token_id": 2}
    if kind == "Phi3Config":
        small |= {"pad_token_id": 0, "rope_parameters": longrope(12)}
    return kind, auto, {**sizes, **{key: value for key, value in small.items() if key in sizes or kind == "BertConfig"}}


def with_layers(shape, layers):
    """The same shape with fewer layers, for a machine that has no time for all: each layer as large as before."""
    kind, auto, sizes = SHAPES[shape]
    counts = ("num_hidden_layers", "num_layers", "num_decoder_layers")
    return kind, auto, {**sizes, **{key: min(layers, sizes[key]) for key in counts if key in sizes}}


def shape_of(shape, small, layers):
    return tiny(shape) if small else with_layers(shape, layers) if layers else SHAPES[shape]


def work_folder(arguments):
    """Models that are not the whole ones are in folders of their own."""
    apart = "tiny" if arguments.tiny else f"layers-{arguments.layers}" if arguments.layers else ""
    folder = (arguments.work / apart).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_model(folder, shape, small=False, layers=0):
    """Random weights in bf16, which is all of them: fp32 cases read the same ones."""
    import torch
    import transformers
    if (folder / "model.safetensors").exists():
        return
    torch.manual_seed(1)
    kind, auto, sizes = shape_of(shape, small, layers)
    config = getattr(transformers, kind)(**sizes)
    getattr(transformers, auto).from_config(config).to(torch.bfloat16).save_pretrained(folder)


def make_rows(path, count, case, vocab):
    import numpy as np
    random = np.random.default_rng(1)

    def ids(length):
        return random.integers(0 if case.task == "sft" else FIRST_ID, vocab, size=length).tolist()

    columns = {"sft": lambda: {"input_ids": ids(case.length)},
               "seq2seq": lambda: {"input_ids": ids(case.length), "labels": ids(case.target)},
               "reward": lambda: {"chosen_input_ids": ids(case.length), "rejected_input_ids": ids(case.length)},
               "classify": lambda: {"input_ids": ids(case.length), "label": int(random.integers(2))}}[case.task]
    pathlib.Path(path).write_text("".join(json.dumps(columns()) + "\n" for _ in range(count)))


def read_rows(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def recipe_of(case, work, steps, memory=None):
    """What Plimsoll is given. `memory`: a budget in bytes."""
    length = {"source": case.length, "target": case.target} if case.target else case.length
    return {"model": str(work / case.shape), "precision": case.precision, "task": case.task,
            **({"memory": f"{memory >> 20}MiB"} if memory else {}),
            "data": {"train": str(work / "rows.jsonl"), "max_length": length, "shuffle": False},
            **({"classify": {"labels": ["no", "yes"]}} if case.task == "classify" else {}),
            "method": {"type": "full"} if case.method == "full" else {"type": "lora", "r": 16, "alpha": 32},
            "batch": {"effective": case.micro, "micro": case.micro}, "optimizer": {"lr": 1e-4}, "save": {"every": 0},
            "schedule": {"name": "constant", "warmup": 0, "max_steps": steps}, "output": str(work / "run")}
