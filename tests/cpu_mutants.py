#!/usr/bin/env python3
"""Faults planted in what keeps packed rows apart, one at a time: each must be noticed by the tests of its row.

Usage: cpu_mutants.py BUILD [NAME ...]   (from the repository's root; ops_cpu_test, delta_rule_kernels_test and data_test of BUILD are built)
       cpu_mutants.py --texts           (only whether each fault's text is still there, once)

A fault is a text of a source and what stands in its place: convolution, state and positions begin anew at each row, and a gradient ends there. Kernels are
those for AVX2, which every machine runs. The source is compiled anew and linked before the library. gpu_mutants.py has the same of kernels for GPUs.
"""
import os
import pathlib
import sys
import tempfile

import gpu_mutants
import planner_mutants

KERNELS, BINDINGS, BATCHES = "plimsoll_ops_cpu_avx2", "plimsoll_ops_cpu", "plimsoll_data"
OPS, DELTA, DATA = "src/ops/ops_cpu_test", "src/ops/delta_rule_kernels_test", "src/data/data_test"
CONV, STATE, GRADIENT = "src/ops/scan/short_conv_simd.cc", "src/ops/delta/delta_rule_simd.cc", "src/ops/delta/delta_rule_backward_simd.cc"
CASES = {CONV: "*/short_conv*", STATE: "DeltaRuleKernels.*", GRADIENT: "DeltaRuleKernels.*", "src/ops/pointwise/rope_cpu.cc": "*/rope*",
         "src/data/batch/micro_batch.cc": "*"}
# name: (library, test, file, text, what stands in its place). The text occurs once in the file.
MUTANTS = {
    "a convolution that goes on behind a row": (
        KERNELS, OPS, CONV,
        "return reached(t - begin + count, taps); }\n  [[nodiscard]] int64_t row(int64_t t, int back) const {\n"
        "    return back <= t - begin ? t - back : before[back - (t - begin) - 1];",
        "return reached(t, taps); }\n  [[nodiscard]] int64_t row(int64_t t, int back) const {\n    return t - back;"),
    "a gradient of a convolution of the row behind": (KERNELS, OPS, CONV, "const int ahead = reached(path.end - 1 - t, a.taps);", "const int ahead = a.taps;"),
    "a text that goes on from the one before": (KERNELS, OPS, CONV, "a.fresh ? reached(t, a.taps) : a.taps", "a.taps"),
    "a state that goes on behind a row": (
        KERNELS, DELTA, STATE, "walk_chunk(a, chunk, head, chunk.first, chunk.last, b);", "walk_chunk(a, chunk, head, chunk.first && chunk.token == 0, false, b);"),
    "a state before a row, in its gradient": (
        KERNELS, DELTA, GRADIENT, "const float* const before = chunk.first ? nullptr : b.states", "const float* const before = chunk.token == 0 ? nullptr : b.states"),
    "a gradient of a state of the row behind": (KERNELS, DELTA, GRADIENT, "const float* const d_behind = chunk.last ? nullptr : d_state;", "const float* const d_behind = d_state;"),
    "angles of the tokens' places on the axis": (
        BINDINGS, OPS, "src/ops/pointwise/rope_cpu.cc", "rope_table(positions + begin, end - begin,", "rope_table(positions, end - begin,"),
    "positions that go on behind a row": (
        BATCHES, DATA, "src/data/batch/micro_batch.cc", "static_cast<std::ptrdiff_t>(ids.size()),\n            0);",
        "static_cast<std::ptrdiff_t>(ids.size()),\n            static_cast<int32_t>(offset));"),
}


def place_of(name):
    _, _, path, old, _ = MUTANTS[name]
    text = pathlib.Path(path).read_text()
    if text.count(old) != 1:
        sys.exit(f"error: cpu_mutants.py: {name}: its text occurs {text.count(old)} times in {path}")
    return path, text


def plant(name, build, compiling):
    library, test, path, old, new = MUTANTS[name]
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / path
        copy.parent.mkdir(parents=True)
        copy.write_text(place_of(name)[1].replace(old, new))
        unit, way = planner_mutants.unit_of(compiling[library], path, folder)
        said = gpu_mutants.notices(folder, unit, CASES[path], test, build, way)
    print(f"{name:57} {said or 'nothing'}", flush=True)
    return bool(said)


if __name__ == "__main__":
    os.environ["PLIMSOLL_MAX_ISA"] = "avx2"
    gpu_mutants.run("cpu_mutants.py", [*MUTANTS], place_of, plant)
