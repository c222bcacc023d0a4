"""Encoders and decoders against transformers and PEFT: `make parity`.

    python -m tests.parity.seq2seq --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

T5 as it was first (relu, tied), of version 1.1 (gated gelu, head not scaled; with a head of its own too) and mT5, in full
and with LoRA: logits, loss and every gradient of one effective batch through `plimsoll debug-dump`, the losses of 30
optimizer steps through `plimsoll train`, and the saved folder loaded by transformers (with LoRA by PEFT), whose logits
are those of the model that PyTorch trained; how far bf16 is from fp32, beside transformers' bf16; and answers, greedy and
by beam search with several penalties and ends, with the scores of the best ones, beside transformers'. Pairs of the reference are run one by one, without padding. Nothing is
dropped: the draws of dropout are this program's own.
"""
import dataclasses
import json
import statistics

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file as load_torch_file
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM, MT5Config, T5Config

from tests.parity.compare import compare_fp32, compare_losses, distance, relative_error
from tests.parity.oracle import (checkpoint_name, learning_rates, MAX_GRAD_NORM, OPTIMIZER, SEED, STEP_ROWS, STEPS, WARMUP_STEPS,
                                 write_json)
from tests.parity.run import load_file, our_losses, plimsoll
from tests.parity.runs import run_all

SHAPE = dict(vocab_size=256, d_model=48, d_kv=16, d_ff=80, num_layers=2, num_decoder_layers=3, num_heads=4, dropout_rate=0.0,
             relative_attention_num_buckets=8, relative_attention_max_distance=20, pad_token_id=0, eos_token_id=1,
             decoder_start_token_id=0)
# Sources longer than the distance that the buckets end at, targets longer and shorter than their source.
LENGTHS = ((40, 12), (7, 25), (3, 1), (1, 6), (18, 18))
DISTINCT_STEPS = 2
IGNORED = -100
# How much farther from fp32 than transformers' bf16: of one model that is chance (0.8 to 1.3), hence the mean of several.
BF16_LIMIT = 1.2
BF16_MODELS = 8
ANSWER = 12  # tokens
SCORE_LIMIT = 2e-4
TRAINED_LIMIT = 2e-4  # of logits after ten steps


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    config: object
    own_head: bool = False
    bf16: bool = False


CASES = {case.name: case for case in (
    Case("t5", T5Config(**SHAPE), bf16=True),
    Case("t5_1.1", T5Config(**SHAPE, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    Case("t5_1.1_own_head", T5Config(**SHAPE, feed_forward_proj="gated-gelu", tie_word_embeddings=False), own_head=True),
    Case("mt5", MT5Config(**SHAPE)))}
RUNS = [(name, method) for name in CASES for method in ("full", "lora")]


# ---- inputs

def pair(lengths, generator):
    source, target = (torch.randint(2, SHAPE["vocab_size"], (n,), generator=generator).tolist() for n in lengths)
    if len(target) > 4:
        target[1] = IGNORED
    return {"source": source, "target": target}


def write_pairs(folder):
    """(the batch, the rows of the steps)"""
    generator = torch.Generator().manual_seed(SEED + 3)
    pairs = [pair(lengths, generator) for lengths in LENGTHS]
    rows = [pair(lengths, generator) for lengths in LENGTHS[:STEP_ROWS] * DISTINCT_STEPS]
    rows = rows * (STEPS // DISTINCT_STEPS)
    write_json(folder / "batch.json", {"pairs": pairs})
    (folder / "train.jsonl").write_text("".join(
        json.dumps({"input_ids": one["source"], "labels": one["target"]}) + "\n" for one in rows))
    return pairs, rows


def make_model(case, folder, seed=SEED):
    torch.manual_seed(seed)
    model = AutoModelForSeq2SeqLM.from_config(case.config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # A start of T5's own would give logits of the order of 100 and no gradient.
            parameter.normal_(1.0, 0.1) if parameter.dim() == 1 else parameter.normal_(0.0, 0.1)
    if case.own_head:
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.1)
    folder.mkdir(parents=True)
    names = [name for name, _ in model.named_parameters()]
    save_file({name: p.detach().contiguous() for name, p in zip(names, model.parameters())}, folder / "model.safetensors",
              {"format": "pt"})
    config = json.loads(model.config.to_json_string()) | ({"tie_word_embeddings": False} if case.own_head else {})
    write_json(folder / "config.json", config)


def load(case, folder, adapter=None, dtype=torch.float32):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    if case.own_head:  # transformers 5 ties it whatever the folder says
        weights = load_torch_file(folder / "model.safetensors")
        model.lm_head.weight = torch.nn.Parameter(weights["lm_head.weight"].to(dtype))
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    return model.train()


def make_adapter(case, model_folder, folder, seed=SEED + 1):
    torch.manual_seed(seed)
    targets = ["q", "k", "v", "o", "wo"] + (["wi"] if case.name == "t5" else ["wi_0", "wi_1"])
    model = get_peft_model(load(case, model_folder), LoraConfig(target_modules=targets, task_type="SEQ_2_SEQ_LM", r=4,
                                                                lora_alpha=8, lora_dropout=0.0))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.1)
    model.save_pretrained(folder)


# ---- the reference

def forward(model, pairs):
    """(logits of all target tokens, summed loss)"""
    logits, loss = [], torch.zeros(())
    for one in pairs:
        labels = torch.tensor([one["target"]])
        out = model(input_ids=torch.tensor([one["source"]]), labels=labels, use_cache=False).logits[0]
        logits.append(out)
        loss = loss + torch.nn.functional.cross_entropy(out.float(), labels[0], ignore_index=IGNORED, reduction="sum")
    return torch.cat(logits), loss / sum(label != IGNORED for one in pairs for label in one["target"])


def dump(model, pairs):
    model.zero_grad()
    logits, loss = forward(model, pairs)
    loss.backward()
    tensors = {"logits": logits.detach().float().contiguous()}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            tensors[f"grad.{checkpoint_name(name)}"] = parameter.grad.float().contiguous()
    return tensors, loss.item()


def train(model, rows):
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    kept = [p for name, p in trainable if p.dim() == 1 or "bias" in name]  # as transformers' Trainer names them
    decayed = [p for name, p in trainable if not (p.dim() == 1 or "bias" in name)]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": kept, "weight_decay": 0.0}], **OPTIMIZER)
    losses = []
    for step, rate in enumerate(learning_rates()):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = forward(model, rows[step * STEP_ROWS:(step + 1) * STEP_ROWS])[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for _, p in trainable], MAX_GRAD_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


# ---- Plimsoll

def write_recipe(folder, method, precision):
    recipe = {"task": "seq2seq", "model": "model", "precision": precision, "output": f"run_{precision}",
              "data": {"train": "train.jsonl", "format": "input-ids", "shuffle": False,
                       "max_length": {"source": 40, "target": 25}},
              "method": {"type": "full"}, "batch": {"effective": STEP_ROWS, "micro": 3},
              "optimizer": {"name": "adamw", **OPTIMIZER, "max_grad_norm": MAX_GRAD_NORM},
              "schedule": {"name": "cosine", "warmup": WARMUP_STEPS, "epochs": 1}}
    if method == "lora":
        recipe |= {"adapter": "adapter", "method": {"type": "lora", "r": 4, "alpha": 8}}
    path = folder / f"{precision}.json"
    write_json(path, recipe)
    return path


def our_dump(program, folder, recipe):
    out = folder / f"{recipe.stem}.safetensors"
    plimsoll(program, "debug-dump", recipe, "--ids", folder / "batch.json", "--out", out)
    tensors = load_file(out)
    return tensors, float(tensors.pop("loss").reshape(()))


def check_saved(case, folder, adapter, trained, pairs):
    run = folder / "run_fp32"
    ours = load(case, folder / "model", run) if adapter else load(case, run)
    with torch.no_grad():
        error = relative_error(forward(ours, pairs)[0].numpy(), forward(trained, pairs)[0].numpy())
    return [f"saved model: logits are off by {error:.1e}"] if not error <= TRAINED_LIMIT else [], error


# Arguments of both sides.
SEARCHES = ({"num_beams": 1}, {"num_beams": 4, "num_return_sequences": 4}, {"num_beams": 3, "length_penalty": -1.0},
            {"num_beams": 4, "length_penalty": 2.0, "early_stopping": "never", "num_return_sequences": 2},
            {"num_beams": 4, "early_stopping": True, "num_return_sequences": 3})


def check_answers(program, case, folder, adapter, pairs):
    run = folder / "run_fp32"
    model = (load(case, folder / "model", run) if adapter else load(case, run)).eval()
    messages, count, worst = [], 0, 0.0
    for arguments in SEARCHES:
        options = [text for key, value in arguments.items() for text in (f"--{key.replace('_', '-')}", str(value).lower())]
        for one in pairs[:2]:
            with torch.no_grad():
                out = model.generate(input_ids=torch.tensor([one["source"]]), max_new_tokens=ANSWER, do_sample=False, output_scores=True,
                                     return_dict_in_generate=True, use_cache=False, **arguments)
            theirs = [row[1:row.index(1)] if 1 in row else row[1:] for row in out.sequences.tolist()]
            told = json.loads(plimsoll(program, "generate", run, "--ids", ",".join(map(str, one["source"])), "--max-new-tokens", ANSWER,
                                       "--json", *options))
            ours = [told] + told.get("next_best", [])
            count += len(ours)
            if [answer["response_ids"] for answer in ours] != theirs:
                messages.append(f"answers differ with {arguments}: {[answer['response_ids'] for answer in ours]}, {theirs}")
            elif arguments["num_beams"] > 1:
                worst = max(worst, *(abs(answer["score"] - score) for answer, score in zip(ours, out.sequences_scores.tolist())))
    return messages + ([f"scores are off by {worst:.1e}"] if not worst <= SCORE_LIMIT else []), count


def bf16_ratio(program, case, folder, method, seed):
    """How far our bf16 is from fp32 over how far transformers' is, for one model."""
    folder.mkdir()
    make_model(case, folder / "model", seed)
    adapter = folder / "adapter" if method == "lora" else None
    if adapter:
        make_adapter(case, folder / "model", adapter, seed + 1)
    pairs = write_pairs(folder)[0]
    dumps = {}
    for dtype in (torch.float32, torch.bfloat16):
        save_file(dump(load(case, folder / "model", adapter, dtype), pairs)[0], folder / "expected.safetensors")
        dumps[dtype] = load_file(folder / "expected.safetensors")
    ours = our_dump(program, folder, write_recipe(folder, method, "bf16"))[0]
    reference = dumps[torch.float32]
    names = sorted(reference)
    return distance(ours, reference, names) / distance(dumps[torch.bfloat16], reference, names)


def check_bf16(program, case, folder, method):
    ratios = [bf16_ratio(program, case, folder / f"bf16-{seed}", method, SEED + 1000 * seed) for seed in range(BF16_MODELS)]
    ratio = statistics.geometric_mean(ratios)
    return [f"{ratio:.2f} times as far from fp32 as transformers' bf16: {', '.join(f'{r:.2f}' for r in ratios)}"] \
        if not ratio <= BF16_LIMIT else [], ratio


def run(program, folder, name, method):
    """(messages, summary)"""
    case = CASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    make_model(case, folder / "model")
    adapter = folder / "adapter" if method == "lora" else None
    if adapter:
        make_adapter(case, folder / "model", adapter)
    pairs, rows = write_pairs(folder)
    model = load(case, folder / "model", adapter)
    expected, loss = dump(model, pairs)
    save_file(expected, folder / "expected.safetensors")
    reference = load_file(folder / "expected.safetensors")
    recipe = write_recipe(folder, method, "fp32")
    tensors, our_loss = our_dump(program, folder, recipe)
    messages, worst = compare_fp32(tensors, reference)
    messages += compare_losses([our_loss], [loss])[0]
    step_messages, worst_step = compare_losses(our_losses(program, recipe), train(model, rows))
    saved_messages, saved = check_saved(case, folder, adapter, model, pairs)
    answer_messages, answers = check_answers(program, case, folder, adapter, pairs)
    messages += step_messages + saved_messages + answer_messages
    summary = f"tensors {worst:.1e}, step losses {worst_step:.1e}, saved {saved:.1e}, {answers} answers the same"
    if case.bf16:
        bf16_messages, ratio = check_bf16(program, case, folder, method)
        messages, summary = messages + bf16_messages, f"{summary}, bf16 {ratio:.2f} of transformers'"
    return messages, summary


if __name__ == "__main__":
    run_all(__doc__.splitlines()[0], RUNS, run, "seq2seq")
