"""Adapters as people set them, against PEFT: `make parity`.

    python -m tests.parity.adapters --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

For each way: logits, loss and every gradient of one effective batch through `plimsoll debug-dump`, the losses of 30
optimizer steps through `plimsoll train` from the same adapter, the saved folder loaded by PEFT with the logits of the
model that PyTorch trained, and the folder merged by `plimsoll merge` beside PEFT loaded over the base.
"""
import dataclasses
import json

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from tests.parity import oracle
from tests.parity.cases import CASES
from tests.parity.compare import compare_fp32, compare_losses, relative_error
from tests.parity.run import load_file, our_dump, our_losses, plimsoll, write_recipe
from tests.parity.runs import run_all

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TRAINED_LIMIT = 2e-3  # of logits after 30 steps
MERGED_LIMIT = 2e-5


@dataclasses.dataclass(frozen=True)
class Way:
    family: str
    config: dict                # of LoraConfig
    method: dict = dataclasses.field(default_factory=dict)  # of the recipe, beside what the folder says
    loraplus: float = 1.0
    qlora: bool = False
    start: str = ""  # PEFT's init_lora_weights: no adapter is there before the run


WAYS = {
    "patterns": Way("llama", dict(
        r=4, lora_alpha=8, target_modules=LINEARS, rank_pattern={"q_proj": 2, r".*layers\.1\.mlp.*": 6},
        alpha_pattern={r"layers\.0\.self_attn\.v_proj": 3, "down_proj": 1.5})),
    "layers": Way("qwen3", dict(r=4, lora_alpha=8, target_modules=LINEARS, layers_to_transform=[1],
                                layers_pattern=["layers"])),
    "saved": Way("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"],
                               modules_to_save=["embed_tokens", "lm_head", "post_attention_layernorm"])),
    "saved_tied": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=LINEARS, modules_to_save=["lm_head"])),
    "loraplus": Way("llama", dict(r=4, lora_alpha=8, target_modules=LINEARS), {"loraplus_ratio": 16}, 16.0),
    "dora": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_dora=True)),
    "dora_loraplus": Way("qwen3", dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], use_dora=True,
                                       use_rslora=True), {"loraplus_ratio": 4}, 4.0),
    "pissa": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=LINEARS), start="pissa"),
    "olora_rslora": Way("qwen3", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_rslora=True,
                                      rank_pattern={"q_proj": 2}), start="olora"),
    "qdora": Way("llama", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_dora=True), qlora=True),
}


def peft_config(way):
    return LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, init_lora_weights=way.start or True, **way.config)


def make_adapter(way, model_folder, folder):
    torch.manual_seed(oracle.SEED + 1)
    model = get_peft_model(oracle.load(model_folder), peft_config(way))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.1)
            elif "lora_magnitude_vector" in name:
                parameter.mul_(1.1)  # not the lengths that the rows have
    model.save_pretrained(folder)


def prefixed(name):
    return "grad." + oracle.checkpoint_name(name).replace("modules_to_save.", "").replace(
        "lora_magnitude_vector.weight", "lora_magnitude_vector")


def dump(model, batch):
    tensors, loss = oracle.dump(model, batch)
    return {prefixed(n[len("grad."):]) if n.startswith("grad.") else n: t for n, t in tensors.items()}, loss


def train(way, model, rows):
    """As oracle.train, with the rates of LoRA+ where they are asked for."""
    groups = [{"params": [p for _, p in model.named_parameters() if p.requires_grad], "ratio": 1.0}]
    decay = oracle.OPTIMIZER["weight_decay"]
    options = {**oracle.OPTIMIZER, "weight_decay": decay}
    if way.loraplus != 1.0:
        made = create_loraplus_optimizer(model, torch.optim.AdamW, lr=1.0, loraplus_lr_ratio=way.loraplus,
                                         loraplus_weight_decay=decay)
        groups = [{"params": group["params"], "ratio": group["lr"]} for group in made.param_groups if group["params"]]
    elif not way.config.get("use_dora"):
        groups = [{**group, "ratio": 1.0} for group in oracle.decay_groups(model)]
    optimizer = torch.optim.AdamW(groups, **options)
    losses = []
    for step, rate in enumerate(oracle.learning_rates()):
        batch = rows[step * oracle.STEP_ROWS:(step + 1) * oracle.STEP_ROWS]
        for group in optimizer.param_groups:
            group["lr"] = rate * group["ratio"]
        optimizer.zero_grad()
        loss = oracle.forward(model, batch)[1] / oracle.target_count(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), oracle.MAX_GRAD_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


def logits_of(model, batch):
    with torch.no_grad():
        return oracle.forward(model.eval(), batch)[0]


def check_saved(program, folder, way, model, batch):
    """What was trained here and there answers alike, loaded by PEFT and merged."""
    run = folder / "run_model_fp32"
    config = json.loads((run / "adapter_config.json").read_text())
    wanted = {key: value for key, value in way.config.items() if key not in ("target_modules", "modules_to_save")}
    messages = [f"adapter_config.json: {key} is {config.get(key)}" for key, value in wanted.items()
                if config.get(key) != value and not way.start]  # with what it began with it has twice the rank
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(
        folder / "model", attn_implementation="eager", dtype=torch.float32), run)
    ours = logits_of(loaded, batch)
    trained = relative_error(ours.numpy(), logits_of(model, batch).numpy())
    if trained > TRAINED_LIMIT:
        messages.append(f"logits of the saved folder are off by {trained:.1e}")
    plimsoll(program, "merge", run, "--base", folder / "model", "--out", folder / "merged")
    merged = relative_error(logits_of(oracle.load(folder / "merged"), batch).numpy(), ours.numpy())
    if merged > MERGED_LIMIT:
        messages.append(f"logits of the merged folder are off by {merged:.1e}")
    return messages, f"saved {trained:.1e}, merged {merged:.1e}"


def run(program, folder, name):
    way = WAYS[name]
    case = CASES[way.family]
    if way.qlora:
        case = oracle.with_whole_blocks(case)
    batch, rows, _ = oracle.write_inputs(case, folder, "full")
    if way.start:
        model = get_peft_model(oracle.load(folder / "model"), peft_config(way)).train()
    else:
        make_adapter(way, folder / "model", folder / "adapter")
        model = oracle.load(folder / "model", folder / "adapter", nf4=way.qlora)
    theirs, loss = dump(model, batch)
    if way.start:  # singular vectors and columns of Q may have either sign
        theirs = {"logits": theirs["logits"]}
    save_file(theirs, folder / "expected.safetensors")
    case = dataclasses.replace(case, lora={key: way.config[key] for key in ("r", "lora_alpha")})
    recipe = write_recipe(case, folder, "qlora" if way.qlora else "lora", "fp32")
    written = json.loads(recipe.read_text())
    written["method"] = {"type": written["method"]["type"], **way.method}
    if way.start:
        del written["adapter"]
        written["method"] |= {"r": 4, "alpha": 8, "init": way.start, "rslora": way.config.get("use_rslora", False),
                              "rank_pattern": way.config.get("rank_pattern", {})}
    recipe.write_text(json.dumps(written, indent=1))
    tensors, our_loss, _ = our_dump(program, folder, recipe, 1)
    if way.start:
        tensors = {"logits": tensors["logits"]}
    messages, worst = compare_fp32(tensors, load_file(folder / "expected.safetensors"))
    messages += compare_losses([our_loss], [loss])[0]
    expected = train(way, model, rows)
    found, worst_step = compare_losses(our_losses(program, recipe), expected)
    summary = f"tensors {worst:.1e}, step losses {worst_step:.1e}"
    if not way.qlora:  # its base is not the folder's, but the folder's in 4 bits
        saved, more = check_saved(program, folder, way, model, batch)
        messages, summary = messages + saved, f"{summary}, {more}"
    return messages + found, summary


if __name__ == "__main__":
    run_all(__doc__.splitlines()[0], [(name,) for name in WAYS], run)
