#!/usr/bin/env python3
"""A toy of everything that CONTRIBUTING.md says how to add: the files that each adds and the lines that it puts into others.

tests/toys_test.py holds these files against those that CONTRIBUTING.md names, and runs a program that has all toys: the few
objects that see the lists are compiled again with the toys in them, the others are the program's own. Toys stand at
the end of lists, so that an object that knows nothing of them agrees with one that does.

Usage: toys.py files               names the files of the sources that have toys' lines in them
       toys.py overlay FOLDER      writes those, with the lines
"""
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEW = ROOT / "tests/toys/src"


@dataclass(frozen=True)
class Toy:
    section: str    # of CONTRIBUTING.md
    example: str    # what is followed there
    name: str       # the toy's, in its place
    new: tuple      # files
    lines: tuple    # (file, what stands before, the text behind that)


TOYS = (
    Toy("an op", "swiglu", "halve",
        ("src/ops/pointwise/halve.cc", "src/ops/pointwise/halve_kernels.h", "src/ops/pointwise/halve_simd.cc", "src/ops/pointwise/halve_cpu.cc"),
        (("src/ops/ops.def", "OP(adafactor, IN(step, MAYBE(norm), gradient), OUT(weight, MAYBE(row), column, MAYBE(master)))\n",
          "OP(halve, IN(x), OUT(y))  // x / 2; its own gradient\n"),
         ("src/ops/pointwise/CMakeLists.txt", "plimsoll_op_family(activations.cc", " halve.cc halve_cpu.cc halve_simd.cc"),
         ("tests/harness/reference.cc", "void ref_store_wait(const Site& s) { refuse_transfer(s); }\n", """
void ref_halve(const Site& s) {
  using at = operand::halve;
  for (size_t i = 0; i < s.in(at::x).size(); ++i) s.out(at::y)[i] = s.in(at::x)[i] / 2;
}
"""),
         ("src/ops/pointwise/elementwise_test.cc", "             \"s %[5,33] = relu(x) @m forward\\n\"},\n", """\
    {.name = "halve",
     .body = "tensor x %[5,33] input\\n"
             "y %[5,33] = halve(x) @m forward\\n"},
"""))),
    Toy("an optimizer", "NAME", "heavy", (),
        (("src/ops/optimizers.def", "OPTIMIZER(adafactor, false, false, false, true)\n",
          "OPTIMIZER(heavy, false, false, false, false)\n"),
         ("src/passes/optimizers.cc", "  update.emit_as(OpKind::adafactor);\n}\n", """
// SGD of one momentum; its op is that of sgd.
void add_heavy(Update update) {
  update.writer.state(".momentum_buffer");
  update.attrs["momentum"] = 0.5;
  update.emit_as(OpKind::sgd);
}
"""))),
    Toy("a pass", "lora", "fold_halves", ("src/passes/fold_halves.h", "src/passes/fold_halves.cc"),
        (("src/passes/pipeline.h", "  quantise,\n", "  fold_halves,\n"),
         ("src/passes/pipeline.cc", "#include \"ops/rule.h\"\n", "#include \"passes/fold_halves.h\"\n"),
         ("src/passes/pipeline.cc", "before differentiate, so that the backward pass reads codes\"},\n", """\
    Pass{PassId::fold_halves, "fold-halves", has_model,
         [](Graph graph, const Context&) { return fold_halves(graph); },
         "before differentiate, whose halves of gradients are fewer so"},
"""),
         ("src/passes/CMakeLists.txt", "choice_json.cc gather_weights.cc keep_frozen.cc", " fold_halves.cc"),
         ("docs/reference/formats.md", "`quantise`, ", "`fold-halves`, "))),
    Toy("a model family", "qwen3", "toy", ("src/models/toy.cc",),
        (("src/models/families.def", "FAMILY(xlm_roberta)\n", "FAMILY(toy)\n"),
         ("src/models/CMakeLists.txt", "SOURCES bert.cc", " toy.cc"))),
    Toy("a task", "reward", "parrot", ("src/tasks/parrot.cc",),
        (("src/tasks/tasks.def", "TASK(dpo, \"direct preference optimization and its variants (IPO, ORPO)\")\n",
          "TASK(parrot, \"what was said\")\n"),
         ("src/tasks/CMakeLists.txt", "SOURCES class_metrics.cc", " parrot.cc"))),
    Toy("a command", "recipe", "toy", ("src/cli/plan/toy.cc",),
        (("src/cli/commands.def", "COMMAND(debug_dump)\n", "COMMAND(toy)\n"),
         ("src/cli/CMakeLists.txt", "usage_text.cc", " plan/toy.cc"),
         ("src/cli/pages.cc", "       {3, 4, 5, 130},\n       \"README.md\"},\n",
          "      {\"toy\", \"Says that it is one.\", {{\"plimsoll toy\", \"a toy\"}}, {}, \"README.md\"},\n"))),
    # Static, so that objects that were compiled without it agree on the others' places.
    Toy("a key of the recipe", "", "", (),
        (("src/recipe/recipe.h", "  int64_t seed = 42;\n", "  inline static bool shallow = false;\n"),
         ("src/recipe/options.cc", "\"random seed: order of rows, dropout, rounding, new weights\")),\n",
          "      experiment(boolean(\"shallow\", FIELD(shallow), \"the first layer alone\")),\n"),
         ("src/prepare/setup.cc", "  experiment.model = resolved.model;\n",
          "  if (Recipe::shallow) experiment.model = experiment.model.with_stacks({1});\n"))),
    Toy("a backend", "emulated", "toy", ("src/runtime/toy_device.h", "src/runtime/toy_device.cc"),
        (("src/recipe/run_values.h", "enum class DeviceChoice : uint8_t { automatic, cpu, card, cuda, emulated", ", toy"),
         ("src/recipe/options.cc", "{\"emulated\", DeviceChoice::emulated}", ", {\"toy\", DeviceChoice::toy}"),
         ("src/runtime/CMakeLists.txt", "emulated_device.cc", " toy_device.cc"),
         ("src/prepare/setup.cc", "  if (recipe.device == DeviceChoice::emulated) device = as_emulated(device);\n",
          "  if (recipe.device == DeviceChoice::toy) device.kind = \"toy\";\n"),
         ("src/prepare/planned_card.cc", "#include \"runtime/emulated_device.h\"\n", "#include \"runtime/toy_device.h\"\n"),
         ("src/prepare/inference_device.cc", "#include \"runtime/emulated_device.h\"\n", "#include \"runtime/toy_device.h\"\n"),
         ("src/prepare/inference_device.cc", "                                    RunObserver& observer) {\n",
          "  if (device == DeviceChoice::toy) return std::make_unique<ToyDevice>(cpu);\n"),
         ("src/prepare/planned_card.cc", "std::string kernels_of(DeviceChoice device, const CpuSettings& cpu) {\n",
          "  if (device == DeviceChoice::toy) return toy_kernels_text(cpu);\n"))),
)


def with_toys(name, text):
    """The text of a file with all toys' lines in it."""
    for toy in TOYS:
        for file, before, line in toy.lines:
            if file != name:
                continue
            if text.count(before) != 1:
                sys.exit(f"error: {name}: the toy of {toy.section} goes behind a text that is there {text.count(before)} times, "
                         f"and must be there once: {before!r}; name another place in tests/toys/toys.py")
            text = text.replace(before, before + line)
    return text


def changed_files():
    return sorted({file for toy in TOYS for file, _, _ in toy.lines})


def write(path, text):
    """Leaves a file that says this already as it is: it need not be compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    what, *folder = sys.argv[1:]
    sources = [name for name in changed_files() if not name.endswith((".txt", ".md"))]
    if what == "files":
        print("\n".join(sources))
    else:
        for name in sources:
            write(Path(*folder) / name, with_toys(name, (ROOT / name).read_text()))


if __name__ == "__main__":
    main()
