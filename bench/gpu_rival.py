"""One run of transformers + PEFT on the card beside gpu.py's: the shape of FOLDER/model, FOLDER/rows.jsonl, CASES[INDEX], STEPS.

    gpu_rival.py FOLDER INDEX STEPS

Equal types: weights, gradients and AdamW's states as the recipe has them (bf16 weights; fused AdamW, whose states are of the weights'
type), attention by PyTorch's own (sdpa), gated linear attention by fla. fp16 is autocast over fp32 masters with a scale of the loss. Prints
one line of JSON.
"""
import contextlib
import importlib.metadata
import json
import sys
import time
from pathlib import Path

from gpu_cases import CASES


def model_of(case, config, torch, transformers):
    auto = {"seq2seq": "AutoModelForSeq2SeqLM", "reward": "AutoModelForSequenceClassification"}.get(case.task, "AutoModelForCausalLM")
    if case.task == "reward":
        config.num_labels, config.pad_token_id = 1, 0
    config.use_cache = False
    with torch.device("cuda"):
        model = getattr(transformers, auto).from_config(config, dtype=torch.float32 if case.precision == "fp16" else torch.bfloat16)
    if case.method == "lora":
        import peft
        kind = {"sft": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM"}.get(case.task, "SEQ_CLS")
        lora = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type=kind)
        model = peft.get_peft_model(model, lora, autocast_adapter_dtype=False)
    return model.train()


def loss_of(case, model, rows, torch):
    columns = {name: torch.tensor([row[name] for row in rows], device="cuda") for name in rows[0]}
    if case.task == "reward":
        ids = torch.cat((columns["chosen_input_ids"], columns["rejected_input_ids"]))
        scores = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.squeeze(-1).float()
        return -torch.nn.functional.logsigmoid(scores[:len(rows)] - scores[len(rows):]).mean()
    labels = columns["labels" if case.task == "seq2seq" else "input_ids"]
    return model(input_ids=columns["input_ids"], labels=labels).loss


def refuse_what_has_no_equal(case):
    if case.method == "qlora":
        sys.exit("QLoRA there needs bitsandbytes, which is not carried")
    if case.host:
        sys.exit("nothing there keeps the same on the host")


def versions():
    found = {}
    for name in ("torch", "transformers", "peft", "flash-linear-attention"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def main():
    folder, case, steps = Path(sys.argv[1]), CASES[int(sys.argv[2])], int(sys.argv[3])
    refuse_what_has_no_equal(case)
    import torch
    import transformers
    if case.model.startswith("gla"):
        import fla  # noqa: F401  tells transformers what a GLA is
    torch.manual_seed(1)
    model = model_of(case, transformers.AutoConfig.from_pretrained(folder / "model"), torch, transformers)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0, fused=True)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    half = case.precision == "fp16"
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    seconds = []
    for step in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for micro in range(case.accumulation):
            first = step * case.samples + micro * case.micro
            with torch.autocast("cuda", dtype=torch.float16, enabled=half):
                loss = loss_of(case, model, rows[first:first + case.micro], torch)
            scaler.scale(loss / case.accumulation).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "peak_bytes": torch.cuda.max_memory_reserved(), "versions": versions()}))


if __name__ == "__main__":
    main()
