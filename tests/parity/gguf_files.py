"""GGUF files as others read them: python3 -m tests.parity.gguf_files --plimsoll FILE

A model trained for a moment is exported. The `gguf` package's reader finds its tensors, types, metadata and tokenizer;
llama.cpp (the package xllamacpp brings a build of it) loads the file, cuts texts into the same tokens, and continues
them greedily with the same tokens as `plimsoll generate`, in f32 and f16; in f32 its log-probabilities are ours. Of `plimsoll export` in every type the reader
dequantises the tensors, and llama.cpp's loss over rows that are held out is the one that the export's own check found; merged adapters have the run's loss in
transformers too.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import safetensors.numpy
import xllamacpp

from tests.shard import is_mine

ROOT = Path(__file__).resolve().parent.parent.parent
PROMPTS = ["Which city is the capital of France?", "What is the capital of Japan?", "Repeat: blue stone",
           "In which country lies  Oslo?\n", "Größe, naïve café – 1,234.5 x\u00b2 \U0001f600!", "The capital"]
NEW_TOKENS = 24
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True,
                          env={**os.environ, "PLIMSOLL_NO_PROBE": "1"}).stdout


# What each family has beside the demo's config.json, as llama.cpp takes it to be.
FAMILIES = {"llama": ("LlamaForCausalLM", {}), "mistral": ("MistralForCausalLM", {}), "ministral": ("MinistralForCausalLM", {}), "qwen2": ("Qwen2ForCausalLM", {}),
            "qwen3": ("Qwen3ForCausalLM", {}), "smollm3": ("SmolLM3ForCausalLM", {}),
            "gemma3_text": ("Gemma3ForCausalLM", {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16, "rope_theta": 1e6}),
            "gemma2": ("Gemma2ForCausalLM", {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16, "tie_word_embeddings": True,
                                             "attn_logit_softcapping": 5.0, "final_logit_softcapping": 12.0}),
            "olmo2": ("Olmo2ForCausalLM", {"tie_word_embeddings": False}),
            "olmo3": ("Olmo3ForCausalLM", {"tie_word_embeddings": False, "sliding_window": 16, "rope_theta": 5e5}),
            # Answers stay below the original length: beyond it llama.cpp goes by its context, not by the text.
            "phi3": ("Phi3ForCausalLM", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                                                             "short_factor": [1.0, 1.05, 1.1, 1.2, 1.4, 1.8, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0],
                                                             "long_factor": [2.0] * 12}, "original_max_position_embeddings": 256, "max_position_embeddings": 512}),
            # Queries grow from position 16 on, and again at 32.
            "ministral3": ("Ministral3ForCausalLM", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                                                         "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.3}}),
            "granite": ("GraniteForCausalLM", {"embedding_multiplier": 6, "attention_multiplier": 0.125, "residual_multiplier": 0.5,
                                               "logits_scaling": 2})}


# Of the gated delta rule: two value heads to a key head, attention in every second layer.
FAMILIES["qwen3_5_text"] = ("Qwen3_5ForCausalLM", {"head_dim": 32, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                                                  "linear_key_head_dim": 32, "linear_value_head_dim": 32, "initializer_range": 0.05,
                                                  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}})

def model_of(plimsoll, folder, family, steps=120):
    """A model of the demo's shape that has learnt something, so that the likeliest token is no coin's toss."""
    base = folder / f"{family}-base"
    base.mkdir()
    for path in (ROOT / "demo/model").iterdir():
        (base / path.name).write_bytes(path.read_bytes())
    config = json.loads((base / "config.json").read_text())
    architecture, changes = FAMILIES[family]
    config.update({"model_type": family, "architectures": [architecture], **changes})
    config.pop("attention_bias", None) if family not in ("llama", "smollm3") else None
    (base / "config.json").write_text(json.dumps(config))
    run(plimsoll, "train", ROOT / "demo/recipes/full.yaml", "--quiet", "--set", f"model={base}", "--set",
        f"output={folder / family}", "--set", f"schedule.max_steps={steps}")
    return folder / family


def as_in_linear_layers(name, exact, config):
    """A tensor of a gated delta rule's layer as llama.cpp has it: the first value heads of all key heads, then their second ones."""
    keys, heads, size = config["linear_num_key_heads"], config["linear_num_value_heads"], config["linear_value_head_dim"]

    def tiled(values, rows):
        return values.reshape(keys, heads // keys, rows, -1).swapaxes(0, 1).reshape(values.shape)
    part = name.split(".linear_attn.")[1]
    if part == "A_log":
        return tiled(-np.exp(exact), 1)
    if part in ("dt_bias", "in_proj_a.weight", "in_proj_b.weight"):
        return tiled(exact, 1)
    if part == "in_proj_z.weight":
        return tiled(exact, size)
    if part == "out_proj.weight":
        return tiled(exact.T.copy(), size).T
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        first = 2 * keys * config["linear_key_head_dim"]
        return np.concatenate((exact[:first], tiled(exact[first:], size)))
    return exact


def read_problems(path, model, dtype):
    """What the gguf package's reader finds otherwise than the model folder has it."""
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = json.loads((model / "config.json").read_text())
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    arch = fields["general.architecture"]
    for key, wanted in ((f"{arch}.block_count", config["num_hidden_layers"]),
                        (f"{arch}.embedding_length", config["hidden_size"]),
                        (f"{arch}.attention.head_count_kv", config["num_key_value_heads"])):
        if fields[key] != wanted:
            yield f"{key} is {fields[key]}, not {wanted}"
    tokens = fields["tokenizer.ggml.tokens"]
    for piece, number in tokenizer["model"]["vocab"].items():
        if tokens[number] != piece:
            yield f"token {number} is {tokens[number]!r}, not {piece!r}"
    weights = safetensors.numpy.load_file(model / "model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch.upper()], config["num_hidden_layers"])
    stored = {tensor.name: tensor for tensor in reader.tensors}
    for name, exact in weights.items():
        tensor = stored.pop(names.get_name(name.replace("dt_bias", "dt_proj.bias"), try_suffixes=(".weight", ".bias")), None)
        if tensor is None:
            yield f"{name} is missing"
            continue
        expected_type = TYPES[dtype] if exact.ndim == 2 else TYPES["f32"]
        if tensor.tensor_type != expected_type:
            yield f"{tensor.name} is {tensor.tensor_type.name}, not {expected_type.name}"
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(exact.shape)
        if (arch.startswith("gemma") or arch == "qwen35") and name.endswith("norm.weight") and ".linear_attn." not in name:
            exact = exact + 1
        if ".linear_attn." in name:
            exact = as_in_linear_layers(name, exact, config)
        if arch in ("llama", "smollm3", "granite", "mistral3") and (".q_proj" in name or ".k_proj" in name):
            heads = config["num_attention_heads" if ".q_proj" in name else "num_key_value_heads"]
            values = values.reshape(heads, -1, 2, exact.shape[1]).swapaxes(1, 2).reshape(exact.shape)
        allowed = {"f32": 0, "f16": 2**-10, "bf16": 2**-7, "q8_0": 2**-6}[dtype] * np.abs(exact).max()
        if name.endswith("A_log"):
            allowed = 1e-6 * np.abs(exact).max()  # two exponential functions
        if not np.allclose(values, exact, rtol=0, atol=allowed):
            yield f"{name} differs by {np.abs(values - exact).max()}"
    for name in [name for name in stored if not name.startswith("rope_factors")]:
        yield f"{name} is in the file and not in the model"


def llama(path):
    """A server of the file."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.n_gpu_layers = 256, 1, False, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.verbosity = 0
    # Keys, values and their sums in f32, as f32 weights are compared: flash attention there rounds to f16.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(params)


def continued(server, prompt):
    """llama.cpp's greedy tokens, and its number of the prompt's tokens."""
    answer = server.handle_completions({"prompt": prompt, "n_predict": NEW_TOKENS, "temperature": 0, "top_k": 1,
                                        "return_tokens": True, "cache_prompt": False})
    answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
    return answer


def greedy_problems(plimsoll, model, path, dtype, folder):
    """Where llama.cpp goes on otherwise than the engine does with the same weights."""
    source = model
    if dtype != "f32":
        source = folder / f"{model.name}-{dtype}"
        run(plimsoll, "convert", model, "--dtype", dtype, "--out", source)
    server = llama(path)
    same = 0
    out = folder / "answers.jsonl"
    out.unlink(missing_ok=True)
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt, "response": "x"}) + "\n" for prompt in PROMPTS))
    run(plimsoll, "generate", source, "--data", folder / "prompts.jsonl", "--out", out, "--max-new-tokens", NEW_TOKENS)
    answers = [json.loads(line)["response"] for line in out.read_text().splitlines()]
    for prompt, ours in zip(PROMPTS, answers, strict=True):
        answer = continued(server, prompt)
        theirs = answer["choices"][0]["text"] if "choices" in answer else answer["content"]
        if theirs.strip() == ours.strip():
            same += 1
        else:
            yield f"{prompt!r}: {ours!r}, llama.cpp {theirs!r}"
    print(f"  {model.name:8} {dtype:5} {same} of {len(PROMPTS)} answers are llama.cpp's, letter for letter")


PLACES = (3, 15, 16, 17, 31, 33, 47)  # around windows and limits of 16, and of 32
LOG_PROBS_LIMIT = 1e-4
GELU_LIMIT = 5e-3  # llama.cpp reads Gemma's gelu from a table in f16, with which transformers is within LOG_PROBS_LIMIT of it


def gelu_of_table(x):
    """gelu by tanh as llama.cpp has it: a number in f16 for each number in f16, in between -10 and 10."""
    import torch
    half = x.half().float()
    tabled = torch.nn.functional.gelu(half, approximate="tanh").half().float()
    return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, tabled))


def log_probs_by_table(model, ids):
    """transformers' log-probabilities with that gelu."""
    import torch
    import transformers
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    for layer in loaded.model.layers:
        del layer.mlp.act_fn  # a module, which a function cannot replace
        layer.mlp.act_fn = gelu_of_table
    with torch.no_grad():
        return torch.log_softmax(loaded(torch.tensor([ids])).logits[0].double(), -1).numpy()


def log_prob_problems(plimsoll, model, path, folder):
    """Log-probabilities of every word at some places of a text of random ids, ours and llama.cpp's."""
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    ids = np.random.default_rng(3).integers(3, vocab, size=max(PLACES) + 1).tolist()
    sequences, dumped = folder / "batch.json", folder / "logits.safetensors"
    sequences.write_text(json.dumps({"sequences": [{"input_ids": ids, "labels": ids}], "prompts": []}))
    rows = folder / "ids.jsonl"
    rows.write_text(json.dumps({"input_ids": ids}) + "\n")
    recipe = folder / "logits.json"
    recipe.write_text(json.dumps({"model": str(model), "data": {"train": str(rows), "format": "input-ids", "max_length": 64}, "precision": "fp32",
                                  "method": {"type": "full"}, "batch": {"effective": 1, "micro": 1}, "output": str(folder / "unused")}))
    run(plimsoll, "debug-dump", recipe, "--ids", sequences, "--out", dumped, "--max-new-tokens", 1)
    logits = safetensors.numpy.load_file(dumped)["logits"].astype(np.float64)
    ours = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    # The token that it answers with: nothing is told of one that is a part of a letter, or ends a text.
    shown = next(token for piece, token in json.loads((model / "tokenizer.json").read_text())["model"]["vocab"].items() if piece.isascii() and piece.isalpha())
    tabled = log_probs_by_table(model, ids) if model.name.startswith("gemma") else ours
    server, worst, worst_of_table = llama(path), 0.0, 0.0
    for place in PLACES:
        said = server.handle_completions({"prompt": ids[:place + 1], "n_predict": 1, "temperature": 0, "logprobs": vocab, "cache_prompt": False,
                                          "ignore_eos": True, "logit_bias": [[shown, 1000.0]]})
        said = json.loads(said) if isinstance(said, (str, bytes)) else said
        theirs = {one["id"]: one["logprob"] for one in said["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
        if len(theirs) != vocab:
            yield f"llama.cpp told {len(theirs)} of {vocab} log-probabilities"
        worst = max(worst, *(abs(ours[place, token] - value) for token, value in theirs.items()))
        worst_of_table = max(worst_of_table, *(abs(tabled[place, token] - value) for token, value in theirs.items()))
    limit = LOG_PROBS_LIMIT if tabled is ours else GELU_LIMIT
    print(f"  {model.name:11} log-probabilities of {len(PLACES)} places are at most {worst:.1e} from llama.cpp's, by its own gelu {worst_of_table:.1e}")
    if not worst <= limit:
        yield f"log-probabilities are {worst:.1e} from llama.cpp's"
    if not worst_of_table <= LOG_PROBS_LIMIT:
        yield f"log-probabilities by llama.cpp's gelu are {worst_of_table:.1e} from its own"


# A model whose rows are whole blocks of 256, which Q4_K and others have.
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
# By export type: how far tensors are from the model's, as a part of their values, and llama.cpp's loss from ours. llama.cpp
# rounds what it multiplies with blocks to 8 bits.
EXPORTS = {"f32": (1e-6, 1e-4), "f16": (1e-3, 1e-3), "bf16": (4e-3, 2e-2), "q8_0": (0.01, 1e-2), "q5_k_m": (0.05, 2e-2), "q4_k_m": (0.1, 3e-2),
           "q4_0": (0.12, 3e-2)}


def dequantised_problems(path, model, most):
    """Tensors that the gguf package reads as other numbers than rounding explains."""
    config = json.loads((model / "config.json").read_text())
    weights = safetensors.numpy.load_file(model / "model.safetensors")
    reader = gguf.GGUFReader(path)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    stored = {tensor.name: tensor for tensor in reader.tensors}
    for name, exact in weights.items():
        tensor = stored[names.get_name(name, try_suffixes=(".weight", ".bias"))]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(exact.shape)
        if ".q_proj" in name or ".k_proj" in name:
            heads = config["num_attention_heads" if ".q_proj" in name else "num_key_value_heads"]
            values = values.reshape(heads, -1, 2, exact.shape[1]).swapaxes(1, 2).reshape(exact.shape)
        apart = np.linalg.norm(values - exact) / np.linalg.norm(exact)
        if apart > most:
            yield f"{name} ({tensor.tensor_type.name}) differs by {apart:.3g} of its values"


def transformers_loss(folder, cases):
    """The mean loss of the tokens by transformers, from a merged folder."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return sum(-torch.log_softmax(model(torch.tensor([before])).logits[0, -1], -1)[token].item() for before, token in cases) / len(cases)


def merged_problems(plimsoll, folder, model, rows, cases):
    """Adapters merged by an export, LoRA and QLoRA, as transformers reads them."""
    for method in ("lora", "qlora"):
        adapter = folder / method
        run(plimsoll, "train", ROOT / "demo/recipes/lora.yaml", "--quiet", "--set", f"model={model}", "--set", f"output={adapter}", "--set", "schedule.max_steps=20",
            "--set", f"method={{type: {method}, r: 8}}")
        out = folder / f"{method}-merged"
        run(plimsoll, "export", adapter, "--to", "merged", "--rows", rows, "--out", out)
        check = json.loads((out / "check.json").read_text())
        loss = transformers_loss(out, cases)
        print(f"  export {method:7} loss {check['loss_of_run']:.5f} of the run, {check['loss_of_export']:.5f} of the export, {loss:.5f} by transformers")
        if abs(loss - check["loss_of_run"]) > 1e-4:
            yield f"{method}: transformers' loss is {loss}, the run's {check['loss_of_run']}"


def llama_loss(path, cases):
    """llama.cpp's mean loss of the tokens, each after those before it."""
    server, total = llama(path), 0.0
    for before, token in cases:
        said = server.handle_completions({"prompt": before, "n_predict": 1, "temperature": 0, "logprobs": 2048, "cache_prompt": True})
        said = json.loads(said) if isinstance(said, (str, bytes)) else said
        top = said["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        total -= {one["id"]: one["logprob"] for one in top}[token]
    return total / len(cases)


def export_problems(plimsoll, folder):
    """Exports of a model in every type: as the gguf package and as llama.cpp read them."""
    FAMILIES["wide"] = ("LlamaForCausalLM", {**WIDE, "model_type": "llama"})
    model = model_of(plimsoll, folder, "wide", steps=40)
    rows = folder / "held-out.jsonl"
    rows.write_text("".join(json.dumps({"prompt": prompt, "response": answer}) + "\n"
                            for prompt, answer in zip(PROMPTS[:3], ["Paris", "Tokyo", "blue stone"])))
    dumped = run(plimsoll, "plan", model / "recipe.yaml", "--set", f"data.train={rows}", "--no-probe", "--dump", "rows")
    cases = [(ids[:at], label) for line in dumped.splitlines() for ids, labels in [(json.loads(line)["ids"], json.loads(line)["labels"])]
             for at, label in enumerate(labels) if label >= 0]
    yield from merged_problems(plimsoll, folder, model, rows, cases)
    for kind, (of_tensors, of_loss) in EXPORTS.items():
        out = folder / f"export-{kind}"
        run(plimsoll, "export", model, "--to", "gguf", "--type", kind, "--rows", rows, "--out", out)
        check = json.loads((out / "check.json").read_text())
        yield from (f"{kind}: {text}" for text in dequantised_problems(out / "model.gguf", model, of_tensors))
        if check["target_tokens"] != len(cases):
            yield f"{kind}: checked by {check['target_tokens']} tokens, not {len(cases)}"
        loss = llama_loss(out / "model.gguf", cases)
        print(f"  export {kind:7} loss {check['loss_of_run']:.5f} of the run, {check['loss_of_export']:.5f} of the export, {loss:.5f} by llama.cpp")
        if abs(loss - check["loss_of_export"]) > of_loss:
            yield f"{kind}: llama.cpp's loss is {loss}, ours {check['loss_of_export']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", type=Path, default=ROOT / "build/plimsoll")
    parser.add_argument("--only", choices=[*sorted(FAMILIES), "export"], help="one family, or what plimsoll export writes")
    arguments = parser.parse_args()
    plimsoll, only = arguments.plimsoll.resolve(), arguments.only
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, family in enumerate(FAMILIES):
            if family != only if only else not is_mine("gguf", number):
                continue
            model = model_of(plimsoll, folder, family)
            for dtype in TYPES:
                path = folder / f"{family}.{dtype}.gguf"
                run(plimsoll, "convert", model, "--to", "gguf", "--dtype", dtype, "--out", path)
                problems += [f"{path.name}: {text}" for text in read_problems(path, model, dtype)]
                if dtype == "f32":
                    problems += [f"{path.name}: {text}" for text in log_prob_problems(plimsoll, model, path, folder)]
                if dtype in ("f32", "f16"):
                    problems += [f"{path.name}: {text}" for text in greedy_problems(plimsoll, model, path, dtype, folder)]
        if only == "export" if only else is_mine("gguf", len(TYPES)):
            problems += export_problems(plimsoll, folder)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
