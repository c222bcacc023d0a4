"""Plimsoll's optimizers against PyTorch's, transformers' and bitsandbytes': `make parity`.

    python -m tests.parity.optimizers --tool build/src/ops/plimsoll_optimizer_tool [--golden FILE]

20 steps of one fp32 weight with random gradients through the ops that training runs. AdamW, SGD, Lion and Adafactor
have to follow their references within fp32 rounding; 8-bit AdamW has to give bitsandbytes' codes and scales bit for
bit. Its weights follow within rounding: PyTorch's square root is off by one unit in the last place for a fifth of all
values, Plimsoll's is exact.

bitsandbytes has two ways of finding the nearest code. Its CUDA kernels and its reference in PyTorch compare with the
midpoints of neighbours; its CPU library instead looks up a table of 65,536 equal steps over [-1, 1], too coarse for
the map's finest codes (1.5e-5, where they go down to 3e-7), which zeros end up in. Plimsoll has the former. So the
optimizer of the CPU build is run here with the reference in the library's place, and the library is held against
Plimsoll's codes where its table can tell them apart. Decoding is the library's own.

--golden writes the expectations of src/ops/optimizer/adamw8bit_golden_test.cc instead.
"""
import argparse
import pathlib
import subprocess
import sys

import bitsandbytes
import numpy
import torch
from bitsandbytes.backends.cpu import ops as bitsandbytes_cpu
from transformers.optimization import Adafactor

STEPS = 20
LIMIT = 2e-6  # largest difference of a weight or state over the largest value
BLOCK = 256
TABLE_STEP = 2.0 / 65535
QUANTIZE = torch.ops.bitsandbytes.quantize_blockwise.default
REFERENCE = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)


# ---- references

def use_reference_codes():
    """bitsandbytes' 8-bit optimizer on the CPU, its codes found as its CUDA kernels find them."""
    def quantize(values, code, absmax_out, codes_out, blocksize):
        codes, absmax = QUANTIZE.redispatch(REFERENCE, values, code, blocksize)
        codes_out.copy_(codes)
        absmax_out.copy_(absmax)
    bitsandbytes_cpu._quant_blockwise_fp32_direct = quantize


def adamw(parameter, o):
    return torch.optim.AdamW([parameter], lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                             weight_decay=o["weight_decay"])


def adamw8bit(parameter, o):
    return bitsandbytes.optim.AdamW8bit([parameter], lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                                        weight_decay=o["weight_decay"], min_8bit_size=BLOCK)


def lion(parameter, o):
    return bitsandbytes.optim.Lion32bit([parameter], lr=o["lr"], betas=(o["beta1"], o["beta2"]),
                                        weight_decay=o["weight_decay"])


def sgd(parameter, o):
    return torch.optim.SGD([parameter], lr=o["lr"], momentum=o["momentum"], weight_decay=o["weight_decay"])


def adafactor(parameter, o):
    return Adafactor([parameter], lr=o["lr"], weight_decay=o["weight_decay"], relative_step=False,
                     scale_parameter=False, warmup_init=False)


# By optimizer: what makes the reference, and its names of our states in the order of the op's outputs.
REFERENCES = {
    "adamw": (adamw, ["exp_avg", "exp_avg_sq"]),
    "adamw8bit": (adamw8bit, ["state1", "state2", "absmax1", "absmax2"]),
    "lion": (lion, ["state1"]),
    "sgd": (sgd, ["momentum_buffer"]),
    "adafactor": (adafactor, ["exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"]),
}
OPTIONS = dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1, momentum=0.0)
CASES = (  # name of the optimizer, shape, changed options
    ("adamw", (48, 128), {}),
    ("sgd", (48, 128), {}),
    ("sgd", (48, 128), {"momentum": 0.9}),
    ("lion", (48, 128), {"beta2": 0.99}),
    ("adafactor", (48, 128), {}),
    ("adafactor", (48, 128), {"weight_decay": 0.0}),
    ("adafactor", (512,), {"weight_decay": 0.0}),
    ("adamw8bit", (48, 128), {}),
    ("adamw8bit", (64, 320), {"beta1": 0.8, "beta2": 0.95, "weight_decay": 0.0}),
)


def reference_steps(name, weight, gradients, options):
    """A list of {what: array} after each step."""
    make, states = REFERENCES[name]
    parameter = torch.nn.Parameter(torch.from_numpy(weight.copy()))
    optimizer = make(parameter, options)
    steps = []
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        state = optimizer.state[parameter]
        found = {s: state[s].clone().numpy() for s in states if state.get(s) is not None}
        steps.append({"weight": parameter.detach().clone().numpy(), **found})
    return steps


# ---- Plimsoll

def our_steps(tool, name, weight, gradients, options, like):
    """The same from Plimsoll; `like` says which arrays each step has."""
    rows, columns = weight.shape if weight.ndim == 2 else (0, weight.size)
    arguments = [f"{key}={value!r}" for key, value in options.items()]
    done = subprocess.run([tool, name, str(rows), str(columns), str(len(gradients)), *arguments],
                          input=weight.tobytes() + gradients.tobytes(), capture_output=True, check=True)
    steps, at = [], 0
    for expected in like:
        step = {}
        for what, array in expected.items():
            step[what] = numpy.frombuffer(done.stdout, array.dtype, array.size, at).reshape(array.shape)
            at += array.nbytes
        steps.append(step)
    if at != len(done.stdout):
        raise ValueError(f"{name}: {len(done.stdout)} bytes of output, expected {at}")
    return steps


# ---- comparison

def compare(name, ours, theirs):
    """(messages, worst relative difference) over all steps."""
    messages, worst = [], 0.0
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True), 1):
        for what, expected in their.items():
            if name == "adamw8bit" and what != "weight":
                differing = int((our[what] != expected).sum())
                if differing:
                    messages.append(f"step {number}: {differing} of {expected.size} values of {what} differ")
                continue
            error = float(numpy.abs(our[what] - expected).max() / numpy.abs(expected).max())
            worst = max(worst, error)
            if not error <= LIMIT:
                messages.append(f"step {number}: {what} is off by {error:.1e}, above {LIMIT:.0e}")
    return messages, worst


def compare_library(step):
    """Messages where the CPU library's coding of the decoded states differs by more than its table explains."""
    messages = []
    for what, scales, signed in (("state1", "absmax1", True), ("state2", "absmax2", False)):
        code = bitsandbytes.functional.create_dynamic_map(signed=signed)
        codes, absmax = torch.from_numpy(step[what].copy()), torch.from_numpy(step[scales].copy())
        values = torch.ops.bitsandbytes.dequantize_blockwise(codes, absmax, code, BLOCK, torch.float32)
        by_hand = code[codes.long()].reshape(-1, BLOCK) * absmax[:, None]
        if not torch.equal(values.reshape(-1, BLOCK), by_hand):
            messages.append(f"{what}: decoded values differ")
        library = QUANTIZE(values, code, BLOCK)[0]
        apart = (code[library.long()] - code[codes.long()]).abs().max().item()
        if apart > TABLE_STEP:
            messages.append(f"{what}: the library's codes are {apart:.1e} apart")
    return messages


def run_case(tool, name, shape, changes):
    options = {**OPTIONS, **changes}
    generator = numpy.random.default_rng(7)
    weight = generator.standard_normal(shape, numpy.float32)
    # Magnitudes over six decades, so that blocks use all of the map; some elements never get a gradient.
    scale = numpy.float32(10) ** generator.uniform(-6, 0, shape).astype(numpy.float32)
    scale *= generator.random(shape, numpy.float32) > 0.02
    gradients = generator.standard_normal((STEPS, *shape), numpy.float32) * scale
    theirs = reference_steps(name, weight, gradients, options)
    ours = our_steps(tool, name, weight, gradients, options, theirs)
    messages, worst = compare(name, ours, theirs)
    if name == "adamw8bit":
        messages += compare_library(ours[-1])
    verdict = "; ".join(messages[:5]) or f"within {worst:.1e}"
    if name == "adamw8bit" and not messages:
        verdict = f"codes and scales equal, weights {verdict}"
    label = " ".join([name, "x".join(map(str, shape)), *(f"{k}={v}" for k, v in changes.items())])
    print(f"{'FAIL' if messages else 'ok'}  {label}: {STEPS} steps {verdict}")
    return bool(messages)


# ---- golden expectations

def golden_inputs(elements, steps):
    """Weights and gradients that a test can make again without a random generator; exact in fp32."""
    i = numpy.arange(elements, dtype=numpy.int64)
    weight = ((i * 7919) % 2003 - 1001) / 1024
    gradients = [((i * 104729 + s * 15485863) % 4001 - 2000) / (4096.0 * 2.0 ** (i % 13)) for s in range(steps)]
    return weight.astype(numpy.float32), numpy.stack(gradients).astype(numpy.float32)


def write_golden(path):
    weight, gradients = golden_inputs(3 * BLOCK, 3)
    step = reference_steps("adamw8bit", weight, gradients, OPTIONS)[-1]
    maps = [bitsandbytes.functional.create_dynamic_map(signed=signed).numpy() for signed in (True, False)]
    lines = ["# bitsandbytes: the signed and the unsigned dynamic map, then weight, codes (m, v) and scales (m, v)",
             "# after 3 steps of 8-bit AdamW; python -m tests.parity.optimizers --golden FILE"]
    for array in (*maps, *step.values()):
        lines.append(" ".join(str(x) if array.dtype == numpy.uint8 else float(x).hex() for x in array.flatten()))
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    arguments = parser.parse_args()
    use_reference_codes()
    if arguments.golden:
        return write_golden(arguments.golden)
    failed = sum(run_case(arguments.tool.resolve(), *case) for case in CASES)
    print(f"{len(CASES) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
