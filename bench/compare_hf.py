#!/usr/bin/env python3
"""Plimsoll beside transformers + PEFT: the same model, the same token ids, equal types, in turn on one machine.

    compare_hf.py --plimsoll build/plimsoll --work FOLDER [--cases lora] [--rounds 5] [--steps 6] [--out results.json] [--tiny]
                  [--layers 6] [--length 256] [--share 0.33]

Each case is a model of a known shape with random weights. The rival runs at its best setting: bf16 adapters (equal types),
fused AdamW where everything trains, glibc told to keep its memory, and compiled or not, whichever is faster in the first
round. Figures of a round are medians over its steps without the first two; the table gives medians over the rounds, and the
range. TFLOP/s counts linear work alone, as transformers does it: 4 FLOPs per frozen weight and token with LoRA, 6 where all
train, the head included (Plimsoll leaves out what does not decide in the last layer of a model that scores). Its ceilings
are the best product of oneDNN through PyTorch on the case's shapes, and what the registers do without memory (--peak,
bench/matmul_bench.cc). Cases "avx2" cap the instruction set of both. Needs torch, transformers, peft.

Beside the seconds of a step stand those of the processors (user and system), which other programs of a busy machine change
less. For a machine without time --layers takes that many layers of each model and --length rows of so many tokens; the
results say it. --share measures Plimsoll a second time, with a
budget of that share of the rival's peak.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from hf_cases import CASES, SHAPES, VOCAB, Case, make_model, make_rows, read_rows, recipe_of, shape_of, work_folder

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "34359738368", "MALLOC_TRIM_THRESHOLD_": "34359738368",
               "MALLOC_TOP_PAD_": "67108864"}
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
WARM_UP = 2


def make_inputs(work, rows, length):
    """work/model of Qwen2.5-0.5B's shape and work/rows.jsonl."""
    make_model(work / "model", "qwen2.5-0.5b")
    make_rows(work / "rows.jsonl", rows, Case("qwen2.5-0.5b", "lora", length, 1), VOCAB)


def rival_model(case, work):
    import peft
    import torch
    import transformers
    auto = getattr(transformers, SHAPES[case.shape][1])
    model = auto.from_pretrained(work / case.shape, dtype=torch.float32 if case.precision == "fp32" else torch.bfloat16)
    model.config.use_cache = False
    if case.method == "lora":
        kind = {"sft": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM"}.get(case.task, "SEQ_CLS")
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                                           task_type=kind), autocast_adapter_dtype=False)
    return model.train()


def rival_loss(forward, rows, task):
    import torch
    columns = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    if task == "reward":
        ids = torch.cat((columns["chosen_input_ids"], columns["rejected_input_ids"]))
        scores = forward(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.squeeze(-1).float()
        return -torch.nn.functional.logsigmoid(scores[:len(rows)] - scores[len(rows):]).mean()
    ids = columns["input_ids"]
    labels = {"sft": "input_ids", "seq2seq": "labels", "classify": "label"}[task]
    return forward(input_ids=ids, attention_mask=torch.ones_like(ids), labels=columns[labels]).loss


def linear_flops(model, case):
    """Of the products of a step: 6 FLOPs per weight and token where the weight trains, 4 where it is frozen."""
    import torch
    flops = 0
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or "lora_" in name:
            continue
        tokens = case.tokens
        if case.target:
            written = "lm_head" in name or ("decoder" in name and not name.endswith(("EncDecAttention.k", "EncDecAttention.v")))
            tokens = case.micro * (case.target if written else case.length)
        elif any(part in name for part in ("score", "classifier", "pooler")):
            tokens //= case.length  # one row of each sequence
        flops += tokens * module.weight.numel() * (6 if module.weight.requires_grad else 4)
    return flops


def rival(arguments):
    """One run of the rival in this process; prints one JSON line."""
    import torch
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(1)
    case = numbered(arguments.rival, arguments)
    model = rival_model(case, arguments.work)
    trained = [p for p in model.parameters() if p.requires_grad]
    fused = {"fused": True} if case.method == "full" else {}
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, **fused)
    forward = torch.compile(model) if arguments.compile else model
    rows = read_rows(arguments.work / "rows.jsonl")
    seconds, processors, losses = [], [], []
    for step in range(arguments.steps):
        start, used = time.perf_counter(), time.process_time()
        loss = rival_loss(forward, rows[step * case.micro:(step + 1) * case.micro], case.task)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        processors.append(time.process_time() - used)
    status = pathlib.Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps({"seconds": seconds, "processor_seconds": processors, "losses": losses, "peak_bytes": peak, "linear_flops": linear_flops(model, case)}))


def onednn_rate(arguments):
    """Prints the FLOP/s of PyTorch's fastest linear layer among the case's."""
    import torch
    import transformers
    torch.set_num_threads(os.cpu_count())
    case = numbered(arguments.onednn, arguments)
    config = transformers.AutoConfig.from_pretrained(arguments.work / case.shape)
    h, m = config.hidden_size, getattr(config, "intermediate_size", None) or config.d_ff
    dtype = torch.float32 if case.precision == "fp32" else torch.bfloat16
    best = 0
    for inputs, outputs in ((h, h), (h, m), (m, h), (h, 8 * m)):
        x = torch.randn(2048, inputs).to(dtype)
        w = torch.randn(outputs, inputs).to(dtype)
        for _ in range(8):
            start = time.perf_counter()
            torch.nn.functional.linear(x, w)
            best = max(best, 2 * 2048 * inputs * outputs / (time.perf_counter() - start))
    print(best)


def numbered(number, arguments):
    """The case of that number, of rows as long as asked."""
    return dataclasses.replace(CASES[number], length=arguments.length) if arguments.length else CASES[number]


def this_script(case, arguments, what, *words):
    number = next(i for i in range(len(CASES)) if numbered(i, arguments) == case)
    command = [sys.executable, __file__, "--work", str(arguments.work), "--length", str(arguments.length), what, str(number), *words]
    done = subprocess.run(command, env={**os.environ, **KEEP_MEMORY, **(AVX2 if case.avx2 else {})},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case.name}: the rival failed: " + done.stderr.strip()[-600:])
    return done.stdout.splitlines()[-1]


def run_rival(case, arguments, setting):
    words = ["--steps", str(arguments.steps), *(["--compile"] if setting == "compile" else [])]
    return {**json.loads(this_script(case, arguments, "--rival", *words)), "setting": setting}


def try_settings(case, arguments, settings):
    """Runs of the settings that work; the reason of one that does not is printed, and it must not be the only one."""
    runs = []
    for setting in settings:
        try:
            runs.append(run_rival(case, arguments, setting))
        except SystemExit as failure:
            if len(settings) == 1:
                raise
            print(f"{case.name}  without the setting '{setting}': {failure}", file=sys.stderr, flush=True)
    if not runs:
        raise SystemExit(f"{case.name}: the rival failed in every setting")
    return runs


def processors_of(process, log, steps):
    """Seconds of processors of each step, from how much the process had used when each line of its log appeared."""
    used, ticks = [], os.sysconf("SC_CLK_TCK")
    while len(used) < steps and process.poll() is None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = log.read_bytes().count(b"\n")
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            used += [(int(fields[11]) + int(fields[12])) / ticks] * (lines - len(used))
        time.sleep(0.02)
    return [None, *(later - earlier for earlier, later in zip(used, used[1:]))][:len(used)]  # loading comes before the first one


def run_plimsoll(case, arguments, memory=None):
    recipe, log = arguments.work / "recipe.json", arguments.work / "run/metrics.jsonl"
    recipe.write_text(json.dumps(recipe_of(case, arguments.work, arguments.steps, memory)))
    cap = ["--max-isa", "avx2"] if case.avx2 else []
    log.unlink(missing_ok=True)
    process = subprocess.Popen([arguments.plimsoll, "train", str(recipe), "--quiet", "--overwrite", *cap])
    processors = processors_of(process, log, arguments.steps)
    if process.wait() != 0:
        raise SystemExit(f"{case.name}: Plimsoll failed")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    report = json.loads((arguments.work / "run/run.json").read_text())
    return {"seconds": [line["seconds"] for line in lines], "processor_seconds": processors, "losses": [line["loss"] for line in lines],
            "peak_bytes": report["measured"]["process_peak_rss_bytes"],
            "predicted_seconds": report["planned"]["seconds_per_step"]}


def rate(run, case):
    return case.tokens / statistics.median(run["seconds"][WARM_UP:])


def register_peak(arguments, case):
    """FLOP/s of the registers; None where bench/matmul_bench is not there or has no such kernel."""
    if not arguments.peak or not pathlib.Path(arguments.peak).exists():
        return None
    for kernel in ["avx2-f32"] if case.avx2 else ["amx-bf16", "avx512-bf16"]:
        text = subprocess.run([arguments.peak, str(os.cpu_count()), kernel], capture_output=True, text=True).stdout
        found = re.search(r"register peak (\d+)", text)
        if found:
            return float(found[1]) * 1e9
    return None


def summary(runs, case, flops):
    rates = [rate(run, case) for run in runs]
    return {"tokens_per_s": statistics.median(rates), "range": [min(rates), max(rates)],
            "processor_seconds": statistics.median(statistics.median(run["processor_seconds"][WARM_UP:]) for run in runs),
            "linear_flops": flops / case.tokens * statistics.median(rates),
            "peak_bytes": statistics.median(run["peak_bytes"] for run in runs)}


def check_losses(case, ours, theirs):
    """Both began with the same weights and rows: their first losses differ by rounding, or one did other work."""
    first, other = ours["losses"][0], theirs["losses"][0]
    if abs(first - other) > 0.02 * max(1.0, abs(other)):
        raise SystemExit(f"{case.name}: the first loss is {first:.4f}, the rival's {other:.4f}: this is not the same work")


def in_budget(case, arguments, peak):
    """Plimsoll in a share of the rival's peak; None where it says that this is too little."""
    memory = int(arguments.share * peak)
    try:
        return {**run_plimsoll(case, arguments, memory), "budget": memory}
    except SystemExit:
        return None


def measure(case, arguments):
    make_model(arguments.work / case.shape, case.shape, arguments.tiny, arguments.layers)
    vocab = shape_of(case.shape, arguments.tiny, arguments.layers)[2].get("vocab_size")
    make_rows(arguments.work / "rows.jsonl", arguments.steps * case.micro, case, vocab)
    ours, theirs, small, settings = [], [], [], arguments.settings.split(",")
    for round_ in range(arguments.rounds):
        ours.append(run_plimsoll(case, arguments))
        tried = try_settings(case, arguments, settings)
        theirs.append(max(tried, key=lambda run: rate(run, case)))
        check_losses(case, ours[-1], theirs[-1])
        settings = [theirs[0]["setting"]]  # the first round chooses
        tight = in_budget(case, arguments, theirs[-1]["peak_bytes"]) if arguments.share else None
        small += [tight] if tight else []
        for name, run in (("plimsoll", ours[-1]), *([("in the budget", tight)] if tight else []), *(("rival, " + run["setting"], run) for run in tried)):
            print(f"{case.name}  round {round_ + 1}  {name:16} {rate(run, case):7.1f} tokens/s  {statistics.median(run['processor_seconds'][WARM_UP:]):6.2f} "
                  f"s of processors a step  peak {run['peak_bytes'] / 2**30:.2f} GiB", file=sys.stderr, flush=True)
    flops = theirs[0]["linear_flops"]
    return {"case": {"name": case.name, **dataclasses.asdict(case)}, "plimsoll": summary(ours, case, flops),
            "rival": summary(theirs, case, flops),
            **({"plimsoll_in_budget": {**summary(small, case, flops), "share": arguments.share} if small else "refused"} if arguments.share else {}),
            **({"layers": arguments.layers} if arguments.layers else {}), "load_average": os.getloadavg(),
            "rival_setting": settings[0], "predicted_seconds": ours[-1]["predicted_seconds"],
            "onednn_flops": float(this_script(case, arguments, "--onednn")),
            "register_flops": register_peak(arguments, case), "runs": {"plimsoll": ours, "rival": theirs, **({"in_budget": small} if small else {})}}


def share(part, whole):
    return f"{100 * part / whole:5.0f} %" if whole else "      -"


def show(results):
    print(f"{'case':42}{'':10}{'tokens/s':>9}{'range':>16}{'ratio':>7}{'TFLOP/s':>9}{'oneDNN':>8}{'registers':>10}"
          f"{'peak GiB':>10}{'ratio':>7}{'processor s':>13}")
    for result in results:
        ours, theirs, tight = result["plimsoll"], result["rival"], result.get("plimsoll_in_budget")
        for name, row in (("plimsoll", ours), *([("in budget", tight)] if isinstance(tight, dict) else []), ("rival", theirs)):
            low, high = row["range"]
            first = name == "plimsoll"
            ratio = f"{row['tokens_per_s'] / theirs['tokens_per_s']:7.2f}" if row is not theirs else " " * 7
            memory = f"{row['peak_bytes'] / theirs['peak_bytes']:7.2f}" if row is not theirs else " " * 7
            title = result["case"]["name"] + (f", {result['layers']} layers" if "layers" in result else "")
            print(f"{title if first else '':42}{name:10}{row['tokens_per_s']:9.1f}"
                  f"{f'{low:.0f} to {high:.0f}':>16}{ratio}{row['linear_flops'] / 1e12:9.3f}"
                  f"{share(row['linear_flops'], result['onednn_flops']):>8}"
                  f"{share(row['linear_flops'], result['register_flops']):>10}{row['peak_bytes'] / 2**30:10.2f}{memory}{row['processor_seconds']:13.2f}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--peak", default="build/bench/matmul_bench")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--cases", default="", help="those whose name contains one of these, separated by commas")
    parser.add_argument("--without", default="", help="not those whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--settings", default="eager,compile", help="of the rival, to choose from in the first round")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=0, help="of each model, where it has more")
    parser.add_argument("--length", type=int, default=0, help="of rows in tokens, in place of the cases' own")
    parser.add_argument("--share", type=float, default=0, help="of the rival's peak, in which Plimsoll is measured too")
    parser.add_argument("--tiny", action="store_true", help="models that take seconds: to try this script, not to measure")
    for name in ("--rival", "--onednn"):  # a number of CASES, in a process of its own
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"--steps: {arguments.steps} given; the first {WARM_UP} are not counted")
    if arguments.rival is not None:
        return rival(arguments)
    if arguments.onednn is not None:
        return onednn_rate(arguments)
    arguments.work = work_folder(arguments)
    results = []
    for one in (numbered(i, arguments) for i in range(len(CASES))):
        if any(word in one.name for word in arguments.cases.split(",")) and not (arguments.without and arguments.without in one.name):
            results.append(measure(one, arguments))
            if arguments.out:
                arguments.out.write_text(json.dumps({"results": results}, indent=1) + "\n")
    if not results:
        parser.error(f"--cases: {arguments.cases} names none of " + ", ".join(one.name for one in CASES))
    show(results)


if __name__ == "__main__":
    main()
