#!/usr/bin/env python3
"""Operands are asked for by their names (src/ops/operands.h), never by a number that is written down.

A number is right until an operand is put before it; then it is the number of something else. Bindings and the tests'
references do not compile with an int. This finds the other places: rules, passes, plans, tests. A number that was found out
(`op.inputs[i]`) and the first of an op of any kind (`op.inputs.front()`) may stand.
"""
import pathlib
import re
import sys

ANYWHERE = (
    # op.input(2), b.input<T>(0), has_output(1), b.input_tensor(0)
    re.compile(r"\b(?:(?:has_)?(?:input|output)(?:_tensor)?|sent)(?:<[^()]*>)?\(\d+[,)]"),
    # op.inputs[0], graph.ops().back().outputs[1], emit(graph, std::move(op), name)[0]
    re.compile(r"\b(?:in|out)puts\[\d+\]|\bemit\([^;]*\)\[\d+\]"),
)
# Where ops are taken apart, and where these would mean something else elsewhere.
OF_OPS = ("src/ops/", "src/passes/", "src/autodiff/", "src/layout/", "src/models/", "tests/harness/", "tests/toys/src/")
IN_OPS = (
    # input_tensor(g, op, 1), gradient_dtype(g, op, 0), live_rows(b, 3), coded_state(b, 1, 3, map)
    re.compile(r"\((?:[\w.]+(?:\(\))?, )?(?:b|op|b\.op\(\)|\w+\.op), \d+[,)]"),
    # for (const size_t i : {1, 2}), .reuse = {{0, 4}}
    re.compile(r"\bsize_t \w+ : \{\d|\.reuse = \{\{\d"),
    # operands[1], made[0], constexpr size_t kBeforeSamples = 7
    re.compile(r"\b(?:operands|made)\[\d+\]|\bconstexpr size_t k(?:Before)?(?:Step|Bias|Parents|Samples|Master|State)\w* = \d"),
    # out[0] of `const auto out = ctx.emit(...)`, s.in(3) of a reference
    re.compile(r"\bout\[\d+\]\)|\bs\.(?:in|out|dim|integer|step_at|gradient)\(\d+[,)]"),
)


def problems(root):
    for path in sorted((*root.glob("src/**/*"), *root.glob("tests/**/*"), *root.glob("bench/**/*"))):
        if path.suffix not in {".cc", ".cu", ".h"}:
            continue
        name = str(path.relative_to(root))
        patterns = ANYWHERE + (IN_OPS if name.startswith(OF_OPS) else ())
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern in patterns:
                if found := pattern.search(line.partition("//")[0]):
                    yield f"{name}:{number}: an operand by its number, `{found[0]}`: src/ops/ops.def has its name"


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent))
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))
