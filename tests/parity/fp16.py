"""Training in fp16 against PyTorch's autocast and GradScaler: `make parity`.

    python -m tests.parity.fp16 --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

Logits and gradients of one batch, whose distance from fp32 is held to that of transformers in fp16; the losses of 30 optimizer steps
beside autocast's and GradScaler's, with its scale at each step. The loud model's gradients overflow at first: the same steps are skipped.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file

from tests.parity.cases import CASES
from tests.parity.compare import compare_bf16
from tests.parity.oracle import (decay_groups, forward, learning_rates, load, LONG_STEPS, MAX_GRAD_NORM, OPTIMIZER, STEP_ROWS,
                                 target_count, with_whole_blocks, write_inputs, dump)
from tests.parity.run import load_file, our_dump, our_losses, write_recipe
from tests.parity.runs import run_all

LOSS_LIMIT = 5e-3  # of the first step's loss: both round to fp16 in places of their own
LOUDER = 40.0


def autocast():
    return torch.autocast("cpu", dtype=torch.float16)


def train(model, rows):
    """Loss and scale of each step, and whether it was skipped; a skipped step is none of the schedule's."""
    optimizer = torch.optim.AdamW(decay_groups(model), **OPTIMIZER)
    scaler = torch.amp.GradScaler("cpu")
    rates, updates, steps = learning_rates(LONG_STEPS), 0, []
    for step in range(len(rates)):
        batch = rows[step * STEP_ROWS:(step + 1) * STEP_ROWS]
        for group in optimizer.param_groups:
            group["lr"] = rates[updates]
        optimizer.zero_grad()
        with autocast():
            loss = forward(model, batch)[1] / target_count(batch)
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        scaler.step(optimizer)
        scaler.update()
        skipped = scaler.get_scale() < scale
        updates += not skipped
        steps.append((loss.item(), scale, skipped))
    return steps


def run(program, folder, name, method):
    case = CASES["llama" if name == "loud" else name]
    case = with_whole_blocks(case) if method == "qlora" else case
    batch, rows, _ = write_inputs(case, folder, method, LONG_STEPS)
    adapter = folder / "adapter" if method != "full" else None
    if name == "loud":
        louder = load(folder / "model")
        with torch.no_grad():
            louder.model.norm.weight.mul_(LOUDER)
        louder.save_pretrained(folder / "model")
    nf4 = method == "qlora"
    model = load(folder / "model", adapter, nf4=nf4)
    save_file(dump(model, batch)[0], folder / "expected.safetensors")
    save_file(dump(load(folder / "model", adapter, torch.float16, nf4), batch)[0], folder / "expected_fp16.safetensors")
    recipe = write_recipe(case, folder, method, "fp16")
    ours = our_dump(program, folder, recipe, 1)[0]
    theirs, reference = (load_file(folder / f"expected{suffix}.safetensors") for suffix in ("_fp16", ""))
    # A loud model overflows without a scale below one: the steps tell.
    messages, ratio = ([], 0.0) if name == "loud" else compare_bf16(ours, theirs, reference)
    losses = our_losses(program, recipe)
    lines = [json.loads(line) for line in (pathlib.Path(folder) / f"run_{recipe.stem}" / "metrics.jsonl").read_text().splitlines()]
    wanted = train(model, rows)
    skipped = sum(skip for _, _, skip in wanted)
    if (skipped > 0) != (name == "loud"):
        messages.append(f"GradScaler skipped {skipped} steps")
    # Autocast keeps the sum of the layers in fp32, so that loud gradients overflow at other values: until the first update both
    # have the same weights.
    compared = skipped + 1 if name == "loud" else len(wanted)
    worst = max(abs(loss - want[0]) for loss, want in zip(losses[:compared], wanted)) / wanted[0][0]
    if not worst <= LOSS_LIMIT:
        messages.append(f"a step's loss is {worst:.1e} of the first from GradScaler's, above {LOSS_LIMIT:.0e}")
    scales, theirs = [line["loss_scale"] for line in lines][:compared], [want[1] for want in wanted][:compared]
    if scales != theirs:
        messages.append(f"scales {scales}, GradScaler's {theirs}")
    return messages, f"fp16 error {ratio:.2f} of transformers', steps {worst:.1e}, {skipped} skipped"


if __name__ == "__main__":
    run_all(__doc__.splitlines()[0],
            [("llama", "full"), ("qwen3", "full"), ("qwen2_tied", "lora"), ("mistral_window", "qlora"), ("loud", "full")], run)
