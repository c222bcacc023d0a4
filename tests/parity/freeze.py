"""Full fine-tuning with frozen parts against transformers with requires_grad_(False): `make parity`.

    python -m tests.parity.freeze --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

For each way: logits, loss and the gradients of what trains, and of nothing else, through `plimsoll debug-dump`, the losses of 30
optimizer steps through `plimsoll train`, the saved folder as transformers loads it, and in it the frozen weights as they were.
"""
import json
import re

import torch
from safetensors.torch import save_file

from tests.parity.adapters import dump, kind_of, logits_of, train, TRAINED_LIMIT, Way
from tests.parity.compare import compare_fp32, compare_losses, relative_error
from tests.parity.run import load_file, our_losses
from tests.parity.runs import run_all
from tests.parity.scores import without_key_biases

WAYS = {
    "t5_encoder": ("t5", ["encoder", "shared"]),
    "t5_table": ("t5_1.1_own_head", ["shared", "relative_attention_bias"]),
    "t5_decoder": ("t5_1.1", ["decoder"]),
    "llama_lower": ("llama", ["embed_tokens", r"layers\.0"]),
    "qwen2_tied_table": ("qwen2_tied", ["embed_tokens"]),
    "qwen3_all_but_last": ("qwen3", [r"^(?!model\.layers\.1).*"]),
    "gla_gates": ("gla", ["gk_proj", r"layers\.0\.attn"]),
    "bert_lower": ("bert", ["embeddings", r"layer\.0"]),
}


def is_frozen(name, patterns):
    return any(re.match(rf"(?:.*\.)?(?:{pattern})(?:\..*)?$", name) for pattern in patterns)


def run(program, folder, name):
    family, patterns = WAYS[name]
    way = Way(family, {"r": 4, "lora_alpha": 8})
    kind = kind_of(way)
    batch, rows = kind.write(folder)
    model = kind.load(folder / "model").train()
    for parameter, values in model.named_parameters():
        values.requires_grad_(not is_frozen(parameter, patterns))
    frozen = {parameter: values.clone() for parameter, values in model.named_parameters() if not values.requires_grad}
    theirs, loss = dump(kind, model, batch)
    save_file(theirs, folder / "expected.safetensors")
    recipe = kind.write_recipe(folder)
    written = json.loads(recipe.read_text())
    del written["adapter"]
    recipe.write_text(json.dumps(written | {"method": {"type": "full", "freeze": patterns}}))
    tensors, our_loss, messages = kind.our_dump(program, folder, recipe, model)
    expected = load_file(folder / "expected.safetensors")
    found, worst = compare_fp32(without_key_biases(tensors), without_key_biases(expected))
    messages += found + compare_losses([our_loss], [loss])[0]
    found, worst_step = kind.compare_steps(our_losses(program, recipe), train(way, kind, model, rows))
    saved = kind.load(folder / written["output"])
    trained = relative_error(logits_of(kind, saved, batch), logits_of(kind, model, batch))
    if not trained <= TRAINED_LIMIT:
        messages.append(f"logits of the saved folder are off by {trained:.1e}")
    after = dict(saved.named_parameters())
    messages += [f"{parameter} has changed" for parameter, values in frozen.items() if not torch.equal(after[parameter], values)]
    return messages + found, f"{len(frozen)} frozen, tensors {worst:.1e}, step losses {worst_step:.1e}, saved {trained:.1e}"


if __name__ == "__main__":
    run_all(__doc__.splitlines()[0], [(name,) for name in WAYS], run)
