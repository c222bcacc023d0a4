#!/usr/bin/env python3
"""Faults planted in what several devices share, one at a time: sums, pieces, rows, words, files. Each must be noticed by a test.

Usage: ranks_mutants.py BUILD [NAME ...]   (from the repository's root; the program and the tests named below are built)
       ranks_mutants.py --texts            (only whether each fault's text is still there, once)

As planner_mutants.py; a fault that no test of a folder can see is linked into the program, and tests of whole runs look for it.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import gpu_mutants
from planner_mutants import unit_of

SUM, SUMS, WORDS = "src/ranks/ordered_sum.cc", "src/train/gradient_sums.cc", "src/ranks/run_ranks.cc"
STEP, ROWS, PIECES = "src/train/run_programs.cc", "src/data/batch/micro_steps.cc", "src/ops/optimizer/optimizer.cc"
# (test of the build, cases), or cases of a test of whole runs.
OF_SUMS, OF_WORDS = ("src/ranks/ranks_test", "OrderedSum.*"), ("src/ranks/ranks_test", "RunRanks.*")
OF_STEPS = ("src/train/train_test", "*RanksRun.stages*full_fp32:*RanksRun.stages*full_bf16_master")
OF_BACKWARD = ("src/train/train_test", "*RanksRun.updates*full_fp32")
OF_WEIGHTS = ("src/train/train_test", "*RanksRun.divided_weights*full_fp32")
OF_GRADIENTS = ("src/train/train_test", "*RanksRun.divided_gradients*full_fp32")
SEVERAL, DIVIDED = "tests/several_devices_test.py", "tests/divided_weights_test.py"
OF_HOST = "tests/node_copy_test.py"
WHOLE = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_SHARDS"}  # no slice of a test
OF_ROWS, OF_LOSSES = ("src/data/data_test", "MicroSteps.*"), ("src/train/train_test", "LossSums.*")
# name: (tests, library, file, text, what stands in its place). The text occurs once in the file.
MUTANTS = {
    "two pieces in each other's place": (OF_SUMS, "plimsoll_ranks", SUM, "if (rank != own) unpack(parts, place, rank, slice_.data() + rank * bytes);",
                                         "if (rank != own) unpack(parts, place, rank, slice_.data() + (ranks - 1 - rank) * bytes);"),
    "a sum in another order": (OF_SUMS, "plimsoll_ranks", SUM,
                               "(pieces + bytes);\n  for (size_t i = 0; i < count; ++i) to[i] = first[i] + second[i];\n  for (size_t r = 2; r < ranks; ++r) {\n"
                               "    const auto* next = reinterpret_cast<const T*>(pieces + r * bytes);",
                               "(pieces + (ranks - 1) * bytes);\n  for (size_t i = 0; i < count; ++i) to[i] = first[i] + second[i];\n  for (size_t r = 2; r < ranks; ++r) {\n"
                               "    const auto* next = reinterpret_cast<const T*>(pieces + (r - 1) * bytes);"),
    "a sum rounded at each rank": (OF_SUMS, "plimsoll_ranks", SUM, "sum += widened(from[r * count + i]);", "sum = widened(rounded(sum + widened(from[r * count + i])));"),
    "bytes that are sent and not counted": (OF_SUMS, "plimsoll_ranks", SUM, "sent_bytes_ += static_cast<int64_t>(2 * piece * (ranks - 1));",
                                            "sent_bytes_ += static_cast<int64_t>(piece * (ranks - 1));"),
    "a small tensor that is not added up": (OF_STEPS, "plimsoll_train", SUMS, "        parts_[gradient->dtype].push_back(bytes_of(*gradient));",
                                            "      { if (gradient->bytes > 1024) parts_[gradient->dtype].push_back(bytes_of(*gradient)); }"),
    "sums of squares of each rank alone": (OF_STEPS, "plimsoll_train", SUMS, "  group_.all_gather(std::as_writable_bytes(std::span(all_squares_)));\n", ""),
    "squares of whole tensors counted twice": ((SEVERAL, "test_full_fine_tuning_of_a_decoder"), "plimsoll_ops_cpu", "src/ops/optimizer/grad_norm_cpu.cc",
                                               "for (const double square : of_weight) sum += square;",
                                               "for (const double square : of_weight) sum += (of_weight.size() == 1 && squares.front().size() > 1 ? 2 : 1) * square;"),
    "gradients of a rank without rows kept": (OF_STEPS, "plimsoll_train", STEP, "    if (!any) gradients_.clear();\n", ""),
    "weights that are not gathered": (OF_STEPS, "plimsoll_train", STEP, "  if (update_ && divides_states()) send([this] { gradients_.gather_weights(); });\n", ""),
    "a weight that is not gathered in the backward pass": (OF_BACKWARD, "plimsoll_train", STEP, "send([&] { gradients_.gather_weight(weight); });", "(void)weight;"),
    "a divided weight that is not gathered": (OF_WEIGHTS, "plimsoll_train", STEP, "{ send([&] { gather_weight(train_, op, gradients_.sum()); }); }", "{}"),
    "a divided weight that is not gathered in an evaluation": ((DIVIDED, "test_full_fine_tuning_has_the_bits"), "plimsoll_train", STEP,
                                                               "return {.after = [this, sum, op] { gather_weight(executor_, op, *sum); }};", "return {.after = [] {}};"),
    "an evaluation that counts another's rows": ((DIVIDED, "test_full_fine_tuning_has_the_bits"), "plimsoll_train", STEP,
                                                 "  state_.write(*state_.find(kEvalLossTensor), 0, std::as_bytes(std::span(own)));\n", ""),
    "a divided weight gathered for the forward pass alone": (("src/passes/passes_test", "*PassCases*"), "plimsoll_passes", "src/passes/transfers.cc", "if (latest[i].stretch != stretch)", "if (latest[i].copy == kNoTensor)"),
    "a divided weight in another's place": (OF_WEIGHTS, "plimsoll_ops_cpu", "src/ops/optimizer/all_gather_cpu.cc", "parallel_copy(to + first, from,", "parallel_copy(to, from,"),
    "a gradient that is added to in every micro-step": (OF_GRADIENTS, "plimsoll_passes", "src/passes/reduce_gradients.cc",
                                                        "    op.attrs[attribute] = kOverwritesEach;\n", ""),
    "a piece of a gradient that is kept from step to step": (OF_GRADIENTS, "plimsoll_ops_cpu", "src/ops/optimizer/reduce_scatter_cpu.cc",
                                                             "StepValue::first_micro_step) == 1.0)", "StepValue::first_micro_step) == 2.0)"),
    "a divided weight that is also gathered behind its update": (OF_WEIGHTS, "plimsoll_train", SUMS, "piece == 0 || row.is_piece()", "piece == 0"),
    "the last piece one block long": (OF_STEPS, "plimsoll_ops", PIECES, "std::min(most, whole_elements(program, op) - first);",
                                      "whole_elements(program, op) - first < most ? int64_t{256} : most;"),
    "a piece with all that follows it": (OF_STEPS, "plimsoll_ops", PIECES, "std::min(most, whole_elements(program, op) - first)",
                                         "std::max(most, whole_elements(program, op) - first)"),
    "the first rank's piece at each": (OF_STEPS, "plimsoll_ops", PIECES, "const int64_t first = rank * piece + op", "const int64_t first = 0 * rank * piece + op"),
    "a row left out at one rank": (OF_ROWS, "plimsoll_data", ROWS, "if (std::cmp_equal(to, rank_.number)) own_", "if (std::cmp_equal(to, rank_.number) && sequence + rank_.number != 1) own_"),
    "a rank with more than its share": (OF_ROWS, "plimsoll_data", ROWS, "if (counts_[rank] < most && (counts_[to] == most || tokens_[rank] < tokens_[to]))",
                                        "if (tokens_[rank] < tokens_[to])"),
    "a word that one rank does not hear": (OF_WORDS, "plimsoll_ranks", WORDS, "    all.stops |= word.stops;\n", ""),
    "other rows at one rank": (OF_WORDS, "plimsoll_ranks", WORDS, "if (word.rows == all.rows) continue;", "if (word.rows >= 0) continue;"),
    "a loss of the largest rank": (OF_LOSSES, "plimsoll_train", SUMS, ": total + value;", ": std::max(total, value);"),
    "a range of a file one element off": ((SEVERAL, "test_divided_states_give_the_bits"), "plimsoll_weights", "src/weights/row_io.cc",
                                          "{ file->write(begin + start, piece); });", "{ file->write(begin + start + 4, piece.first(piece.size() - 4)); });"),
    "the first rank's share read by each": ((SEVERAL, "test_each_byte_of_the_weights"), "plimsoll_weights", "src/weights/rank_reader.cc",
                                            "ranks_.group().rank() * each);", "0 * ranks_.group().rank() * each);"),
    "one copy that a process could write": ((OF_HOST, "HostCopies.test_each_process_locks"), "plimsoll_runtime", "src/runtime/run_memory.cc", "  if (pages_) pages_->seal();\n", ""),
    "one copy that is not locked for a card": ((OF_HOST, "HostCopies.test_each_process_locks"), "plimsoll_runtime", "src/runtime/gpu_device.cc",
                                               "const std::string reason = card.lock_host(memory);", "(void)memory;\n    const std::string reason;"),
    "scales on a card where codes are on the host": ((OF_HOST, "HostCopies.test_quantised_bases"), "plimsoll_weights", "src/weights/nf4_weights.cc",
                                                     "if (!writes_codes && !state.writes(*rows.absmax)) return;", "if (!writes_codes) return;"),
}


def place_of(name):
    _, _, path, old, _ = MUTANTS[name]
    text = pathlib.Path(path).read_text()
    if text.count(old) != 1:
        sys.exit(f"error: ranks_mutants.py: {name}: its text occurs {text.count(old)} times in {path}")
    return path, text


def runs_notice(folder, unit, tests, build, compiling):
    """What tests of whole runs say of the program with the fault in it; empty: nothing."""
    place, words = compiling
    program, changed = f"{folder}/plimsoll", f"{folder}/changed.o"
    words = [*words]
    words[words.index("-o") + 1] = changed
    words[-1] = f"{folder}/{unit}"
    words[words.index("-o"):words.index("-o")] = ["-w"]
    gpu_mutants.compiled([words[0], f"-I{folder}/src", *words[1:]], place)
    linking = gpu_mutants.link_words(build, "plimsoll")
    linking[linking.index("-o"):linking.index("-o") + 2] = [changed, "-Wl,--allow-multiple-definition", "-o", program]
    gpu_mutants.compiled(linking, build)
    shutil.copy(build / "libplimsoll_mpi.so", folder)
    try:
        done = subprocess.run([sys.executable, tests[0], program, "-k", tests[1], "-f"], env=WHOLE, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "no end"
    if re.search(r"^Ran 0 tests|skipped=", done.stderr, re.MULTILINE):
        sys.exit(f"error: ranks_mutants.py: no test {tests[1]} ran:\n{done.stderr}")
    failed = re.search(r"^(?:FAIL|ERROR): (\w+)", done.stderr, re.MULTILINE)
    return "" if done.returncode == 0 else failed[1] if failed else "a crash"


def plant(name, build, compiling):
    tests, library, path, old, new = MUTANTS[name]
    text = place_of(name)[1]
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / path
        copy.parent.mkdir(parents=True)
        copy.write_text(text.replace(old, new))
        unit, way = unit_of(compiling[library], path, folder)
        if tests[0].endswith(".py"):
            said = runs_notice(folder, unit, tests, build, way)
        else:
            said = gpu_mutants.notices(folder, unit, tests[1], tests[0], build, way)
    print(f"{name:57} {said or 'nothing'}", flush=True)
    return bool(said)


if __name__ == "__main__":
    gpu_mutants.run("ranks_mutants.py", [*MUTANTS], place_of, plant)
