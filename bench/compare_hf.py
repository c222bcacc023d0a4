#!/usr/bin/env python3
"""Plimsoll beside transformers + PEFT: the same model, the same token ids, equal types, in turn on one machine.

    compare_hf.py --plimsoll build/plimsoll --work FOLDER [--cases lora] [--rounds 5] [--steps 6] [--out results.json]

Each case is a model of a known shape with random weights. The rival runs at its best setting: bf16 adapters (equal types),
fused AdamW where everything trains, glibc told to keep its memory, and compiled or not, whichever is faster in the first
round. Figures of a round are medians over its steps without the first two; the table gives medians over the rounds, and the
range. TFLOP/s counts linear work alone: 4 FLOPs per frozen weight and token with LoRA, 6 where all train, the head included.
Its ceilings are the best product of oneDNN through PyTorch on the case's shapes, and what the registers do without memory
(--peak, bench/matmul_bench.cc). Cases "avx2" cap the instruction set of both. Needs torch, transformers, peft.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "34359738368", "MALLOC_TRIM_THRESHOLD_": "34359738368",
               "MALLOC_TOP_PAD_": "67108864"}
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
WARM_UP = 2
LENGTH = 512

SHAPES = {
    "qwen2.5-0.5b": ("Qwen2Config", {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
                                     "num_attention_heads": 14, "num_key_value_heads": 2}),
    "qwen3-0.6b": ("Qwen3Config", {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                                   "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}),
    "qwen1.5-0.5b": ("Qwen2Config", {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 24,
                                     "num_attention_heads": 16, "num_key_value_heads": 16}),
}
VOCAB = 151936


def case(shape, method, length, micro, precision="bf16", avx2=False):
    name = f"{shape} {method} {length}x{micro}" + (" fp32 avx2" if avx2 else "")
    return {"name": name, "shape": shape, "method": method, "length": length, "micro": micro, "precision": precision,
            "avx2": avx2}


CASES = (
    case("qwen2.5-0.5b", "lora", 512, 1),
    case("qwen2.5-0.5b", "lora", 512, 4),
    case("qwen3-0.6b", "lora", 1024, 1),
    case("qwen1.5-0.5b", "full", 512, 1, precision="bf16-pure"),
    case("qwen2.5-0.5b", "lora", 512, 1, precision="fp32", avx2=True),
)


def linear_weights(shape):
    """Weights of the layers' products and of the head."""
    s = SHAPES[shape][1]
    h, heads, kv = s["hidden_size"], s["num_attention_heads"], s["num_key_value_heads"]
    d = s.get("head_dim", h // heads)
    layer = h * d * (heads + 2 * kv) + heads * d * h + 3 * h * s["intermediate_size"]
    return s["num_hidden_layers"] * layer + h * VOCAB


def make_model(folder, shape):
    import torch
    import transformers
    if (folder / "model.safetensors").exists():
        return
    torch.manual_seed(1)
    kind, sizes = SHAPES[shape]
    config = getattr(transformers, kind)(
        vocab_size=VOCAB, tie_word_embeddings=True, max_position_embeddings=32768, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, bos_token_id=151643, eos_token_id=151643, **sizes)
    transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)


def make_rows(path, rows, length):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    ids = np.random.default_rng(1).integers(0, VOCAB, size=(rows, length), dtype=np.int32)
    pq.write_table(pa.table({"input_ids": pa.array(list(ids), pa.list_(pa.int32()))}), path)


def make_inputs(work, rows, length=LENGTH):
    """work/model of Qwen2.5-0.5B's shape and work/ids.parquet."""
    make_model(work / "model", "qwen2.5-0.5b")
    make_rows(work / "ids.parquet", rows, length)


def rival(arguments):
    """One run of the rival in this process; prints one JSON line."""
    import peft
    import pyarrow.parquet as pq
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(1)
    dtype = torch.float32 if arguments.precision == "fp32" else torch.bfloat16
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.work / arguments.shape, dtype=dtype)
    model.config.use_cache = False
    full = arguments.method == "full"
    if not full:
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                                           task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, **({"fused": True} if full else {}))
    forward = torch.compile(model) if arguments.compile else model
    rows = torch.tensor(pq.read_table(arguments.work / "ids.parquet")["input_ids"].to_pylist())
    seconds, losses = [], []
    for step in range(arguments.steps):
        start = time.perf_counter()
        ids = rows[step * arguments.micro:(step + 1) * arguments.micro]
        loss = forward(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    status = pathlib.Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps({"seconds": seconds, "losses": losses, "peak_bytes": peak}))


def onednn_rate(arguments):
    """Prints the FLOP/s of PyTorch's fastest linear layer among the case's."""
    import torch
    torch.set_num_threads(os.cpu_count())
    sizes = SHAPES[arguments.shape][1]
    h, m = sizes["hidden_size"], sizes["intermediate_size"]
    dtype = torch.float32 if arguments.precision == "fp32" else torch.bfloat16
    best = 0
    for inputs, outputs in ((h, h), (h, m), (m, h), (h, 8 * m)):
        x = torch.randn(2048, inputs).to(dtype)
        w = torch.randn(outputs, inputs).to(dtype)
        for _ in range(8):
            start = time.perf_counter()
            torch.nn.functional.linear(x, w)
            best = max(best, 2 * 2048 * inputs * outputs / (time.perf_counter() - start))
    print(best)


def this_script(case, work, *words):
    command = [sys.executable, __file__, "--work", str(work), "--shape", case["shape"], "--precision",
               case["precision"], "--method", case["method"], "--micro", str(case["micro"]), *words]
    done = subprocess.run(command, env={**os.environ, **KEEP_MEMORY, **(AVX2 if case["avx2"] else {})},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case['name']}: the rival failed: " + done.stderr.strip()[-600:])
    return done.stdout.splitlines()[-1]


def run_rival(case, arguments, setting):
    words = ["--rival", "--steps", str(arguments.steps), *(["--compile"] if setting == "compile" else [])]
    return {**json.loads(this_script(case, arguments.work, *words)), "setting": setting}


def try_settings(case, arguments, settings):
    """Runs of the settings that work; the reason of one that does not is printed, and it must not be the only one."""
    runs = []
    for setting in settings:
        try:
            runs.append(run_rival(case, arguments, setting))
        except SystemExit as failure:
            if len(settings) == 1:
                raise
            print(f"{case['name']}  without the setting '{setting}': {failure}", file=sys.stderr, flush=True)
    if not runs:
        raise SystemExit(f"{case['name']}: the rival failed in every setting")
    return runs


def run_plimsoll(case, arguments):
    recipe = arguments.work / "recipe.json"
    recipe.write_text(json.dumps({
        "model": str(arguments.work / case["shape"]), "precision": case["precision"],
        "data": {"train": str(arguments.work / "ids.parquet"), "max_length": case["length"], "shuffle": False},
        "method": {"type": "full"} if case["method"] == "full" else {"type": "lora", "r": 16, "alpha": 32},
        "batch": {"effective": case["micro"], "micro": case["micro"]},
        "optimizer": {"lr": 1e-4}, "save": {"every": 0},
        "schedule": {"name": "constant", "warmup": 0, "max_steps": arguments.steps},
        "output": str(arguments.work / "run")}))
    cap = ["--max-isa", "avx2"] if case["avx2"] else []
    subprocess.run([arguments.plimsoll, "train", str(recipe), "--quiet", "--overwrite", *cap], check=True)
    lines = [json.loads(line) for line in (arguments.work / "run/metrics.jsonl").read_text().splitlines()]
    report = json.loads((arguments.work / "run/run.json").read_text())
    return {"seconds": [line["seconds"] for line in lines], "losses": [line["loss"] for line in lines],
            "peak_bytes": report["measured"]["process_peak_rss_bytes"],
            "predicted_seconds": report["planned"]["seconds_per_step"]}


def rate(run, case):
    return case["micro"] * case["length"] / statistics.median(run["seconds"][WARM_UP:])


def register_peak(arguments, case):
    """FLOP/s of the registers; None where bench/matmul_bench is not there or has no such kernel."""
    if not arguments.peak or not pathlib.Path(arguments.peak).exists():
        return None
    for kernel in ["avx2-f32"] if case["avx2"] else ["amx-bf16", "avx512-bf16"]:
        text = subprocess.run([arguments.peak, str(os.cpu_count()), kernel], capture_output=True, text=True).stdout
        found = re.search(r"register peak (\d+)", text)
        if found:
            return float(found[1]) * 1e9
    return None


def summary(runs, case):
    rates = [rate(run, case) for run in runs]
    flops = (6 if case["method"] == "full" else 4) * linear_weights(case["shape"])
    return {"tokens_per_s": statistics.median(rates), "range": [min(rates), max(rates)],
            "linear_flops": flops * statistics.median(rates),
            "peak_bytes": statistics.median(run["peak_bytes"] for run in runs)}


def measure(case, arguments):
    make_model(arguments.work / case["shape"], case["shape"])
    make_rows(arguments.work / "ids.parquet", arguments.steps * case["micro"], case["length"])
    ours, theirs, settings = [], [], arguments.settings.split(",")
    for round_ in range(arguments.rounds):
        ours.append(run_plimsoll(case, arguments))
        tried = try_settings(case, arguments, settings)
        theirs.append(max(tried, key=lambda run: rate(run, case)))
        settings = [theirs[0]["setting"]]  # the first round chooses
        for name, run in (("plimsoll", ours[-1]), *(("rival, " + run["setting"], run) for run in tried)):
            print(f"{case['name']}  round {round_ + 1}  {name:16} {rate(run, case):7.1f} tokens/s  peak "
                  f"{run['peak_bytes'] / 2**30:.2f} GiB", file=sys.stderr, flush=True)
    return {"case": case, "plimsoll": summary(ours, case), "rival": summary(theirs, case),
            "rival_setting": settings[0], "predicted_seconds": ours[-1]["predicted_seconds"],
            "onednn_flops": float(this_script(case, arguments.work, "--onednn")),
            "register_flops": register_peak(arguments, case), "runs": {"plimsoll": ours, "rival": theirs}}


def share(part, whole):
    return f"{100 * part / whole:5.0f} %" if whole else "      -"


def show(results):
    print(f"{'case':34}{'':10}{'tokens/s':>9}{'range':>16}{'ratio':>7}{'TFLOP/s':>9}{'oneDNN':>8}{'registers':>10}"
          f"{'peak GiB':>10}{'ratio':>7}")
    for result in results:
        ours, theirs = result["plimsoll"], result["rival"]
        for name, row in (("plimsoll", ours), ("rival", theirs)):
            low, high = row["range"]
            first = name == "plimsoll"
            ratio = f"{ours['tokens_per_s'] / theirs['tokens_per_s']:7.2f}" if first else " " * 7
            memory = f"{ours['peak_bytes'] / theirs['peak_bytes']:7.2f}" if first else ""
            print(f"{result['case']['name'] if first else '':34}{name:10}{row['tokens_per_s']:9.1f}"
                  f"{f'{low:.0f} to {high:.0f}':>16}{ratio}{row['linear_flops'] / 1e12:9.3f}"
                  f"{share(row['linear_flops'], result['onednn_flops']):>8}"
                  f"{share(row['linear_flops'], result['register_flops']):>10}{row['peak_bytes'] / 2**30:10.2f}{memory}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--peak", default="build/bench/matmul_bench")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--cases", default="", help="those whose name contains one of these, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--settings", default="eager,compile", help="of the rival, to choose from in the first round")
    parser.add_argument("--out", type=pathlib.Path)
    for name in ("--rival", "--onednn", "--compile"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    for name in ("--shape", "--method", "--precision"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--micro", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"--steps: {arguments.steps} given; the first {WARM_UP} are not counted")
    if arguments.rival:
        return rival(arguments)
    if arguments.onednn:
        return onednn_rate(arguments)
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.work = arguments.work.resolve()
    results = []
    for one in CASES:
        if any(word in one["name"] for word in arguments.cases.split(",")):
            results.append(measure(one, arguments))
            if arguments.out:
                arguments.out.write_text(json.dumps({"results": results}, indent=1) + "\n")
    if not results:
        parser.error(f"--cases: {arguments.cases} names none of " + ", ".join(one["name"] for one in CASES))
    show(results)


if __name__ == "__main__":
    main()
