#!/usr/bin/env python3
"""What gpu-first's rows are predicted to be on a card before it is seen, at the rates that another one was measured at.

    scripts/predict_gpu.py --plimsoll build/plimsoll --gpu "H100 SXM" --rates bench/results/nvidia-h200-2026-11-26.json --rates-of H200 \\
      --out bench/results/predicted-h100.json

Products and attention are taken as measured where both cards have the same data sheet for them, else by the sheets' ratio; what moves
memory by the ratio of the memories. For each row: seconds, tokens/s, bytes and share by op, as `plimsoll plan` has them by these rates.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from gpu import STEPS  # noqa: E402
from gpu_cases import CASES, write_case  # noqa: E402

FORMS = {"forward": (False, True), "dx": (False, False), "dw": (True, False)}  # transposed: a, b


def sheet(name):
    """(memory GB/s, TFLOP/s of 16 bits, of f32) of a card's line in the catalogue."""
    for line in (ROOT / "src/device/catalogue.cc").read_text().splitlines():
        found = re.match(r'\s*Card\{"([^"]+)", \d+, \d+, \d+, \d+, ([\d.]+), ([\d.]+), ([\d.]+),', line)
        if found and found[1] == name:
            return tuple(float(part) for part in found.groups()[1:])
    sys.exit(f"--gpu, --rates-of: {name} is no card of src/device/catalogue.cc")


def grids_of(rates, ratios):
    found = {}
    for name, figures in rates.items():
        match = re.fullmatch(r"product (bf16|f32) (forward|dx|dw) (\d+) x (\d+) x (\d+)", name)
        if match:
            found.setdefault(match.group(1, 2), {})[tuple(int(part) for part in match.group(3, 4, 5))] = figures["rate"] * ratios[match[1]]
    grids = []
    for (dtype, form), by_size in found.items():
        m, n, k = (sorted({size[i] for size in by_size}) for i in range(3))
        a_transposed, b_transposed = FORMS[form]
        grids.append({"a": dtype, "b": dtype, "c": "f32" if form == "dw" else dtype, "a_transposed": a_transposed, "b_transposed": b_transposed,
                      "m": m, "n": n, "k": k, "flop_rates": [by_size[x, y, z] for x in m for y in n for z in k]})
    return grids


def curves_of(rates, ratios):
    found = {}
    for name, figures in rates.items():
        match = re.fullmatch(r"(attention(?:_grad)?) (bf16|f32), heads of (\d+), (\d+) tokens", name)
        # Kernels of f32 that took their places have no figure: plans guess those.
        if match and match[2] == "bf16":
            found.setdefault(match.group(1, 2, 3), []).append([float(match[4]), figures["rate"] * ratios[match[2]]])
    return [{"op": op, "dtype": dtype, "head_dim": int(dims), "points": sorted(points)} for (op, dtype, dims), points in found.items()]


def cache_of(measured, card, of_card, memory):
    """What calibrate's cache would hold of the card, had it been measured."""
    here, there = sheet(card), sheet(of_card)
    ratios = {"memory": here[0] / there[0], "bf16": here[1] / there[1], "f32": here[2] / there[2]}
    rates = measured["rates"]
    grids = grids_of(rates, ratios)
    best = {dtype: max(max(grid["flop_rates"]) for grid in grids if grid["a"] == dtype) for dtype in ("bf16", "f32")}
    curves = curves_of(rates, ratios)
    copied = min(rates["copy, host to card"]["rate"], rates["copy, card to host"]["rate"])
    plain = {"matmul_f32": best["f32"], "matmul_bf16": best["bf16"], "bandwidth": rates["memory, of additions"]["rate"] * ratios["memory"],
             "op_overhead": rates["smallest op"]["rate"], "host_copy": copied, "disk_read": 1.5e9, "disk_write": 1e9, "page_touch": 2e9,
             "vector_bf16": max(point[1] for curve in curves for point in curve["points"] if curve["op"] == "attention")}
    return {"format": 1, "card": f"{card} {memory}GB", "uuid": "GPU-predicted", "driver": 13000, "kernels": "predicted", "memory_bytes": None,
            "process_bytes": None, "host_bytes": None, "graph_node_bytes": None, "launch_seconds": None,
            "rates": {**plain, "matmuls": grids, "ops": curves}}, ratios


def predict(case, options, environment):
    with tempfile.TemporaryDirectory() as folder:
        recipe = write_case(case, pathlib.Path(folder), STEPS, False)
        done = subprocess.run([options.plimsoll, "plan", recipe, "--gpu", f"{options.gpu} {options.memory}GB", "--json"], capture_output=True,
                              text=True, env=environment)
    if done.returncode == 3:
        return {"case": case.name, "left_out": (done.stdout.strip() or done.stderr.strip()).splitlines()[0][:200]}
    if done.returncode != 0:
        sys.exit(f"{case.name}: {done.stderr.strip()}")
    plan = json.loads(done.stdout)
    if not plan["feasible"]:
        return {"case": case.name, "left_out": "does not fit"}
    seconds = plan["predicted"]["seconds_per_step"]
    ops = {op["op"]: round(op["seconds_per_step"] / seconds, 4) for op in plan["predicted"]["ops"]}
    return {"case": case.name, "seconds_per_step": seconds, "tokens_per_second": case.tokens / seconds, "arena_bytes": plan["device"]["arena_bytes"],
            "outside_bytes": plan["device"]["outside_bytes"], "variant": plan["variant"]["words"],
            "launches": sum(program["nodes"] for program in plan["device"]["graphs"]), "share_by_op": {op: part for op, part in ops.items() if part >= 0.01}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--gpu", default="H100 SXM")
    parser.add_argument("--memory", type=int, default=80, help="GB")
    parser.add_argument("--rates", default=str(ROOT / "bench/results/nvidia-h200-2026-11-26.json"))
    parser.add_argument("--rates-of", default="H200")
    parser.add_argument("--out", required=True)
    parser.add_argument("--cases", default="", help="rows whose names have this")
    options = parser.parse_args()
    card, ratios = cache_of(json.loads(pathlib.Path(options.rates).read_text()), options.gpu, options.rates_of, options.memory)
    with tempfile.TemporaryDirectory() as cache:
        (pathlib.Path(cache) / "card-GPU-predicted.json").write_text(json.dumps(card))
        environment = {**os.environ, "PLIMSOLL_CACHE_DIR": cache, "PLIMSOLL_NO_PROBE": "1"}
        rows = [predict(case, options, environment) for case in CASES if case.sections and options.cases in case.name]
    told = {"card": card["card"], "rates": pathlib.Path(options.rates).name, "rates_of": options.rates_of, "ratios": ratios, "rows": rows}
    pathlib.Path(options.out).write_text(json.dumps(told, indent=1) + "\n")
    for row in rows:
        print(f"{row['case']:<64}" + (row.get("left_out") or f"{row['tokens_per_second']:>9,.0f} tokens/s{row['arena_bytes'] / 2**30:>7.1f} GiB"))


if __name__ == "__main__":
    main()
