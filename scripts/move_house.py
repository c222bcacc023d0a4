#!/usr/bin/env python3
"""Moves the files of src/ into the folders of their subjects, once: `python3 scripts/move_house.py` on a clean checkout.

    move_house.py            move, rewrite and write; nothing is committed
    move_house.py --list     print the table `old new` and stop
    move_house.py --check    verify that the places below cover every file of src/, and stop

What is done: files are moved; `#include` lines and paths in all texts follow; lists of sources of the folders that
were cut are written anew from those that they had; scripts/move_house/*.edits replace what names folders by patterns;
scripts/moved-paths.txt gets the table of old path to new. No code changes, but for cut_declarations() and RENAMED.

A file that no place covers, a statement in a CMakeLists.txt that is cut and that this script does not know, and an edit whose
text is not there are errors: nothing is guessed.
"""
import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = pathlib.Path(__file__).resolve().parent / "move_house"
CODE = (".cc", ".h", ".cu", ".def", ".inc")
# Not texts of ours: inputs and expectations, whose words may look like paths.
LEFT_ALONE = ("tests/golden/*", "tests/doctor/*", "tests/fuzz/corpus/*", "tests/fuzz/dictionaries/*", "bench/results/*", "demo/*",
              "tests/other_tools/*", "docs/other-tools*", "scripts/move_house*", "scripts/moved-paths.txt", "LICENSE", "tests/layout/*.csv")

# Where files go, by the folder that they are in. A word is a name without its suffix (`a` is a.h, a.cc, a.cu, a.def, a_test.cc)
# or a pattern; the first that fits decides, names before patterns. Folders that are not here stay as they are.
PLACES = {
    "io": {
        "files": "adopted_run append_file atomic event_file file json json_values kept_files manifest new_folder places run_folder "
                 "test_folder work_folder",
        "formats": "convert gguf load model_folder model_writer safetensors safetensors_format safetensors_writer",
    },
    "text": {
        "unicode": "grapheme lower_case regex scanners text_classes text_error unicode_after_14 unicode_classes utf8",
        "tokenizer/files": "affixes json_part piece_table protobuf sentence_piece_model tokenizer_file vocabulary_files",
        "tokenizer/models": "bpe bpe_* byte_level byte_trie code_point_map merge_table model piece_trie unigram unigram_* word_cache "
                            "word_piece",
        "tokenizer/steps": "added_tokens charsmap decoder decoder_steps metaspace normalizer normalizer_* pattern post_processor "
                           "pre_tokenizer pre_tokenizer_* split unicode_form",
        "tokenizer": "bounds sentence_piece special_tokens stop_strings stream_decoder tokenizer tokenizer_fuzz "
                     "tokenizer_golden tokenizer_parts",
        "infer": "answers bleu",
    },
    "template": {
        "jinja": "evaluate expression_parser filters functions interpreter json_text lexer library limits list_filters names operators "
                 "parser python_text runtime syntax template text_methods value",
        "chat": "builtin_templates chat_template conversation learnt_parts template_rules tool_arguments tool_templates",
    },
    "data": {
        "data/files": "arrow_error arrow_file arrow_json cell csv_file data_file data_files formats json_block json_file json_list "
                      "jsonl_file memory_pool parquet_block parquet_file scanned_file",
        "data/rows": "columns dataset evenly_spread labels permutation row_access row_order row_store row_subset test_data",
        "data/encode": "dialogue example labelled messages preference",
        "data/batch": "batch common_begin effective_batch loader longest_alike micro_batch micro_steps packer packing prefix_tree "
                      "row_facts row_reader samples shared_cut shared_rows statistics",
    },
    "plan": {
        "plan/program": "experiment graphs program_needs reference_program time_model train_graphs offload_bytes offload_layout "
                        "random_programs recompute_bytes",
        "plan/search": "depth_model filling fitting_plans graphs_of_plan micro_rooms plan run_time search search_oracle search_space "
                       "stacks words",
        "plan/report": "data_summary explain explain_text page_assets refusal report report_parts timeline timeline_page "
                       "timeline_text",
    },
    "recipe": {
        "recipe/document": "document problems read_json read_yaml",
        "recipe/translate": "combine combine_* foreign_value layer read_file translate",
        "recipe/load": "builder load errors",
        "recipe": "aliases data_options effective explain hub memory_options option option_* options recipe row_range "
                  "template_options unsupported values",
        "recipe/dialects": "dialects dialects_more",
    },
    "recipe/dialects": {
        "recipe/translate": "defaults sections",
        "recipe/dialects": "*",
    },
    "recipe/shell": {"recipe/shell": "*"},
    "fleet/queue": {
        "fleet/queue/processes": "attempt memory_group memory_history process_tree supervisor",
        "fleet/queue/packing": "card_room choose_plans ladder machine_ledger packing planned simulation simulation_* watched_cards "
                               "workload",
        "fleet/queue/store": "command config_copy database machine_record private_files row_values store sweep tables",
        "fleet/queue": "entry_steps log_reading outcome queue rescue torch_settings worker",
    },
    "train": {
        "weights": "adapter_config adapter_start low_rank_start persistent_state quantised_weights row_io test_machine weights",
        "runs": "agreement checkpoint identity loss_scale metrics model_card observer run_log run_record run_rows seen_targets "
                "state_on_disk stopped_batch trainer_state",
        "data/encode": "conversation_pieces conversations",
        "data/batch": "row_memory",
        "prepare": "allowed asked_device card_models data_setup device_choice dump_rows first_recipe fitting_plan memory_budget "
                   "model_paths order_words own_cards plan_run planned_card preview quantised_weights_test rendering_words resume row_counts run_steps "
                   "schedule setup shared_prefixes task_setup",
        "train": "batch_writer card_use emulated_run every_variant kept_rows loss_guard offload_run profile profile_text "
                 "profile_trace recompute_run references run run_output run_parts run_programs run_saves "
                 "run_signals step_loop test_bench",
        "infer": "answer_file answerer beam_search emulated_answer evaluate generate generator questions row_program sampling score "
                 "score_lines test_models",
        "tools": "convert_gguf convert_model gguf_tokenizer inspect merge",
    },
    "cli": {
        "cli": "cli commands completion help key_report little_memory machine_rates main older_glibc pages recipe_arguments "
               "run_result usage_text",
        "cli/advise": "doctor_plan plan_command plan_faster plan_max plan_savings plan_sweep plan_ways what_if",
        "cli/plan": "init plan plan_compare plan_explain preview preview_text recipe toy",
        "cli/queue": "queue queue_*",
        "cli/top": "top top_*",
        "cli/machine": "calibrate devices doctor doctor_input",
        "cli/model": "answer_arguments chat chat_terminal convert debug_dump describe describe_* eval fetch generate inspect "
                     "line_editor merge report score train",
    },
    "ops": {
        "ops": "binding cpu_dispatch cpu_elements cpu_kernel cpu_kernels dynamic_map gpu_dispatch gpu_kernel gpu_kernels gpu_launches "
               "gpu_norm_rows gpu_rows gpu_step host_fact kernel_test_util name_hash ops optimizer_kind optimizers parallel_memory "
               "parallel_memory_* philox philox_simd rule rules segments simd_matmul simd_rows step_values transfer transfer_*",
        "ops/attention": "attention attention_* gpu_attention gpu_attention_*",
        "ops/scan": "gla gla_* gpu_gla gpu_gla_* short_conv short_conv_*",
        "ops/linear": "linear linear_cpu linear_gpu linear_kernels linear_products linear_products_* matmul matmul_* gpu_matmul "
                      "gpu_matmul_* library_matmul library_matmul_* nf4 nf4_* dora dora_*",
        "ops/loss": "cpu_head_rows cross_entropy cross_entropy_* linear_cross_entropy linear_cross_entropy_* linear_log_prob "
                    "linear_log_prob_* loss_math preference_loss preference_loss_* sequence_loss sequence_loss_* sequence_losses "
                    "sequence_losses_* word_scores word_scores_*",
        "ops/optimizer": "adafactor adafactor_* adamw adamw_* adamw8bit adamw8bit_* gpu_optimizer gpu_optimizer_* grad_norm "
                         "grad_norm_* one_state one_state_* optimizer optimizer_*",
        "ops/pointwise": "activation activation_* activations activations_* dropout dropout_* elementwise elementwise_* embedding "
                         "embedding_* halve halve_* noise noise_* padding_row rope rope_* swiglu swiglu_*",
        "ops/norm": "layer_norm layer_norm_* rms_norm rms_norm_* norm norm_*",
    },
}
# Whole files that go elsewhere.
FILES = {
    "src/text/tools/tokenize_tool.cc": "tests/parity/tokenize_tool.cc",
    "src/text/tools/bleu_tool.cc": "tests/parity/bleu_tool.cc",
    "src/template/tools/template_tool.cc": "tests/parity/template_tool.cc",
}
TEST_SUFFIX = "_test"


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def fail(problems):
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(1)


def place_of(folder, name):
    """The folder below src/ that a file of `folder` goes to, or None where no rule covers it."""
    if folder not in PLACES:
        return folder
    stem = name.rpartition(".")[0]
    # A test goes with what it tests, unless it is named itself.
    for word in dict.fromkeys((stem, stem.removesuffix(TEST_SUFFIX))):
        for is_word in (lambda own: own == word, lambda own: "*" in own and fnmatch.fnmatch(word, own)):
            for target, words in PLACES[folder].items():
                if any(is_word(own) for own in words.split()):
                    return target
    return None


def moved(files):
    """({old: new} of all files that move, [files that no rule covers])."""
    moves, unknown = {}, []
    for file in files:
        path = pathlib.PurePath(file)
        prefix = "tests/toys/src" if file.startswith("tests/toys/src/") else "src"
        if not file.startswith(f"{prefix}/") or path.suffix not in CODE:
            continue
        if file in FILES:
            moves[file] = FILES[file]
            continue
        folder = str(path.parent.relative_to(prefix))
        target = place_of(folder, path.name)
        if target is None:
            unknown.append(file)
        elif target != folder:
            moves[file] = f"{prefix}/{target}/{path.name}"
    return moves, unknown


# --- texts --------------------------------------------------------------------------------------------------


def rewriter(moves):
    """A function that gives a text's paths their new names: "src/a/b.h", and "a/b.h" as includes and comments say it."""
    names = {old.removeprefix("src/"): new.removeprefix("src/") for old, new in moves.items() if old.startswith("src/")}
    names |= {old.removeprefix("tests/toys/src/"): new.removeprefix("tests/toys/src/") for old, new in moves.items()
              if old.startswith("tests/toys/src/")}
    longest = sorted(names, key=len, reverse=True)
    path = re.compile(r"(?<![\w.-])(src/|(?<!/))(" + "|".join(map(re.escape, longest)) + r")(?!\w)")

    def new_name(match):
        name = names[match[2]]
        return name if name.startswith("tests/") else match[1] + name
    return lambda text: path.sub(new_name, text)


def is_text(file):
    return not any(fnmatch.fnmatch(file, pattern) for pattern in LEFT_ALONE)


def rewrite_texts(moves):
    """Follows the moves in all texts; the C++ files that changed."""
    new_path, changed = rewriter(moves), []
    for file in git("ls-files").splitlines():
        path = ROOT / file
        if not is_text(file) or not path.is_file() or path.is_symlink():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        new = new_path(text)
        if new != text:
            path.write_text(new)
            if path.suffix in (".cc", ".h", ".cu"):
                changed.append(file)
    return changed


def apply_edits():
    """scripts/move_house/*.edits: `@@ FILE`, the text that is there, `==`, and what takes its place, up to `@@`."""
    problems = []
    for edits in sorted(HERE.glob("*.edits")):
        for block in re.split(r"^@@ ", edits.read_text(), flags=re.M)[1:]:
            name, _, rest = block.partition("\n")
            old, found, new = rest.partition("==\n")
            old, new = old.removesuffix("\n"), new.removesuffix("\n")  # parts of lines, too
            path = ROOT / name
            text = path.read_text() if path.is_file() else ""
            if not found or not old or text.count(old) != 1:
                problems.append(f"{edits.name}: {name} has this {text.count(old) if old else 0} times, not once:\n{old}")
                continue
            path.write_text(text.replace(old, new))
    return problems


# --- code that cannot be cut by moving files ------------------------------------------------------------------


def cut_declarations():
    """The shapes of sequences are needed by planning (prepare/) and stand with the programs of a run (train/)."""
    header, source, setup = (ROOT / f"src/{name}" for name in ("train/run_programs.h", "train/run_programs.cc", "prepare/setup.cc"))
    declared = re.search(r"// What a place of a micro-batch holds[^\n]*\n(?:SequenceShape [^\n]*\n)+", header.read_text())
    defined = re.search(r"SequenceShape eval_shape\(.*?\n}\n\nSequenceShape train_shape\(.*?\n}\n\n", source.read_text(), re.S)
    included = '#include "train/run_programs.h"\n'
    if not declared or not defined or included not in setup.read_text():
        return ["src/train/run_programs.*: eval_shape and train_shape are not where they were: cut_declarations() moves them"]
    header.write_text(header.read_text().replace(declared[0], "").replace(
        '#include "prepare/setup.h"\n', '#include "prepare/sequence_shape.h"\n#include "prepare/setup.h"\n'))
    source.write_text(source.read_text().replace(defined[0], ""))
    setup.write_text(setup.read_text().replace(included, '#include "prepare/sequence_shape.h"\n'))
    (ROOT / "src/prepare/sequence_shape.h").write_text(
        "// How long the sequences of an experiment are, and how many a place of a micro-batch takes.\n#pragma once\n\n"
        '#include "data/batch/packer.h"\n#include "plan/program/experiment.h"\n\nnamespace plimsoll {\n\n'
        f"{declared[0]}\n}}  // namespace plimsoll\n")
    (ROOT / "src/prepare/sequence_shape.cc").write_text(
        f'#include "prepare/sequence_shape.h"\n\n#include "tasks/task.h"\n\nnamespace plimsoll {{\n\n{defined[0]}}}  // namespace plimsoll\n')
    return []


# Names of files that get neighbours with the same: files of a folder are compiled several at a time.
RENAMED = {"src/data/encode/conversation_pieces.cc": {"Lengths": "PairLengths"},
           "src/data/encode/conversations.cc": {"is_blank": "is_space"}}


def rename_in_files():
    for file, names in RENAMED.items():
        path = ROOT / file
        for old, new in names.items():
            path.write_text(re.sub(rf"\b{old}\b", new, path.read_text()))


# --- lists of sources -----------------------------------------------------------------------------------------

FILE_WORD = re.compile(r"[\w./${}-]+\.(?:cc|cu)\b")
ALLOCATIONS = "base/test_allocations"


def skeleton(text):
    """A CMakeLists.txt without the files that it names, comments and blanks."""
    text = re.sub(r"#[^\n]*", "", text)
    return " ".join(re.sub(r"\s+", " ", FILE_WORD.sub("", text)).split())


class Lists:
    """The files that the CMakeLists.txt of folders that are cut name, in their order, by their new paths."""

    def __init__(self, moves):
        self.moves, self.problems, self.named = moves, [], []
        known = (HERE / "skeletons.txt").read_text()
        for folder in CUT:
            path = ROOT / f"src/{folder}/CMakeLists.txt"
            text = path.read_text()
            if f"{folder}: {skeleton(text)}\n" not in known:
                self.problems.append(f"src/{folder}/CMakeLists.txt: has statements that move_house.py does not know; see what changed, bring it "
                                     f"into scripts/move_house/, and give skeletons.txt its line:\n{folder}: {skeleton(text)}")
            for word in FILE_WORD.findall(re.sub(r"#[^\n]*", "", text)):
                if "$" in word:
                    continue
                old = pathlib.PurePath(f"src/{folder}") / word
                old = str(old).replace(f"src/{folder}/../", "src/")
                new = moves.get(old, old)
                if new not in self.named:
                    self.named.append(new)

    def of(self, folder):
        """Names below src/FOLDER, in their order."""
        return [name.removeprefix(f"src/{folder}/") for name in self.named if name.startswith(f"src/{folder}/")]


# Folders whose lists are cut; and what is written of them: (DEPS, tests that are programs of their own).
CUT = ("io", "text", "template", "data", "plan", "recipe", "fleet", "train", "cli", "ops", "ops_cpu", "ops_gpu")
JSON = "nlohmann_json::nlohmann_json"
ICU = "ICU::i18n ICU::uc ICU::data"
LIBRARIES = {
    "files": f"plimsoll_base {JSON}",
    "formats": f"plimsoll_files plimsoll_tensor {JSON}",
    "unicode": f"plimsoll_base {ICU} PkgConfig::PCRE2",
    "tokenizer": f"plimsoll_unicode {JSON} {ICU}",
    "jinja": f"plimsoll_unicode {JSON} {ICU}",
    "chat": f"plimsoll_jinja plimsoll_files {JSON}",
    "recipe": f"plimsoll_base plimsoll_tensor plimsoll_device plimsoll_tasks yaml-cpp {JSON}",
    "fleet": f"plimsoll_device plimsoll_files yaml-cpp {JSON} PkgConfig::PCRE2 SQLite::SQLite3 ${{CMAKE_DL_LIBS}}",
    "plan": f"plimsoll_layout plimsoll_passes plimsoll_tasks {JSON}",
    "data": f"plimsoll_tasks plimsoll_files plimsoll_chat plimsoll_tokenizer plimsoll_recipe Arrow::arrow Arrow::parquet {JSON} Threads::Threads",
    "weights": "plimsoll_formats plimsoll_recipe plimsoll_passes plimsoll_runtime",
    "runs": "plimsoll_weights plimsoll_plan plimsoll_data plimsoll_jinja",
    "prepare": "plimsoll_runs plimsoll_calibrate plimsoll_fleet plimsoll_data plimsoll_tokenizer plimsoll_cpu ${CMAKE_DL_LIBS}",
    "train": "plimsoll_prepare",
    "infer": "plimsoll_train",
    "tools": "plimsoll_infer",
}
COMMENTS = {"fleet": "# Many runs on few devices. Links no compute backend.\n"}
# Programs of their own: {folder: {program: its tests}}; the last ones have the emulated card in them.
OWN_TESTS = {"data": {"data_row_memory_test": ("row_memory_test",)}, "prepare": {"prepare_card_test": ("planned_card_test",)}}
FUZZED = {"data"}  # folders that the build of the fuzz targets has
EMULATED_TESTS = {"train": {"train_emulated_test": ("emulated_run_test",)}, "infer": {"infer_emulated_test": ("emulated_answer_test",)}}


def wrapped(head, words, indent, width=150):
    """`head` and the words, in lines."""
    lines, line = [], head
    for word in words:
        if len(line) + 1 + len(word) > width:
            lines.append(line)
            line = " " * indent + word
        else:
            line = f"{line} {word}"
    return "\n".join([*lines, line])


def with_allocations(folder, tests):
    """And the counter of allocations, where a test asks it."""
    asks = any(ALLOCATIONS in (ROOT / f"src/{folder}/{test}").read_text() for test in tests)
    return [*tests, "../base/test_allocations.cc"] if asks else tests


def library_text(folder, names):
    """The CMakeLists.txt of a folder."""
    tests = [name for name in names if name.endswith("_test.cc")]
    own = {**OWN_TESTS.get(folder, {}), **EMULATED_TESTS.get(folder, {})}
    apart = {program: [test for test in tests if pathlib.PurePath(test).stem in stems] for program, stems in own.items()}
    tests = [test for test in tests if not any(test in some for some in apart.values())]
    parts = [wrapped("  SOURCES", [name for name in names if not name.endswith("_test.cc")], 10),
             wrapped("  DEPS", LIBRARIES[folder].split(), 7)]
    if tests:
        parts.append(wrapped("  TESTS", with_allocations(folder, tests), 8))
    text = COMMENTS.get(folder, "") + f"plimsoll_library({folder}\n" + "\n".join(parts) + ")\n"
    for program, some in apart.items():
        line = f"plimsoll_test({program} SOURCES {' '.join(with_allocations(folder, some))} DEPS plimsoll_{folder})\n"
        if program in EMULATED_TESTS.get(folder, {}):
            line = f"# The emulated card's fibers are not told to the address sanitizer.\nif(NOT PLIMSOLL_SANITIZE)\n  {line}endif()\n"
        elif folder in FUZZED:
            line = f"if(NOT PLIMSOLL_FUZZ)\n  {line}endif()\n"
        text += line
    return text


def family_text(folder, names, whole):
    """The CMakeLists.txt of a family of ops, or the list of those that are of none."""
    below = [name.removeprefix(f"{folder}/").removeprefix("ops/") for name in names]
    without = [name for name in below if name in whole["without"]]
    tests = [name for name in below if name in whole["tests"]]
    alone = [name for name in below if name in whole["alone"]]
    below = sorted(name for name in below if name not in without + tests + alone)
    text = wrapped("plimsoll_op_family(" + below[0], below[1:], 2, 120)
    for keyword, some in (("WITHOUT_BF16", without), ("NVCC_ALONE", alone), ("TESTS", tests)):
        if some:
            text += "\n" + wrapped(f"  {keyword}", sorted(some), 4, 120)
    return text + ")\n"


NVCC_ALONE = {"attention_gpu.cu", "matmul_gpu.cu"}  # which take it longest


def write_ops(lists, old_cpu):
    """The families' lists, and what is made of them (scripts/move_house/ops.cmake, ops_lists.cmake)."""
    kernels = [str(path.relative_to(ROOT / "src/ops")) for path in (ROOT / "src/ops").rglob("*.cu")]
    names = [name for name in lists.of("ops") if not name.endswith(".cu")] + kernels  # lists may name kernels without their suffix
    without = set(re.findall(r"(\w+_simd\.cc)", re.search(r"plimsoll_simd\(plimsoll_ops_cpu\s+(\.\./[^)]*)\)", old_cpu)[1]))
    whole = {"without": without, "tests": {"optimizer_slices_test.cc"}, "alone": NVCC_ALONE}
    families = sorted({name.partition("/")[0] for name in names if "/" in name})
    for family in families:
        (ROOT / f"src/ops/{family}/CMakeLists.txt").write_text(
            family_text(f"{family}", [name for name in names if name.startswith(f"{family}/")], whole))
    own = family_text("", [name for name in names if "/" not in name], whole)
    text = (HERE / "ops_lists.cmake").read_text().replace("@OWN@\n", own).replace("@FAMILIES@", " ".join(families))
    (ROOT / "src/ops/CMakeLists.txt").write_text(text)
    (ROOT / "cmake/ops.cmake").write_text((HERE / "ops.cmake").read_text())


def write_lists(lists, old_cpu):
    for folder in LIBRARIES:
        names = lists.of(folder)
        if folder == "prepare":
            names.append("sequence_shape.cc")
        if not names:
            lists.problems.append(f"src/{folder}: no CMakeLists.txt names a file of it")
            continue
        (ROOT / f"src/{folder}/CMakeLists.txt").write_text(library_text(folder, names))
    names = [name for name in lists.of("cli") if name not in ("main.cc", "older_glibc.cc")]
    text = (HERE / "cli_lists.cmake").read_text()
    sources = wrapped("  SOURCES", [name for name in names if not name.endswith("_test.cc")], 10)
    (ROOT / "src/cli/CMakeLists.txt").write_text(
        text.replace("@SOURCES@", sources).replace("@TESTS@", " ".join(name for name in names if name.endswith("_test.cc"))))
    write_ops(lists, old_cpu)


def unnamed(lists):
    """Sources of cut folders that no list names."""
    named = set(lists.named)
    for path in sorted((ROOT / "src").rglob("*.c[cu]")):
        name = str(path.relative_to(ROOT))
        top = path.relative_to(ROOT / "src").parts[0]
        if top in {*LIBRARIES, "cli", "ops"} and name not in named and path.name != "sequence_shape.cc" and path.suffix != ".cu":
            yield f"{name}: no CMakeLists.txt named it"


FOLDERS = ("base files tensor device fleet cpu gpu graph ops models tasks autodiff passes layout plan runtime calibrate formats unicode "
           "tokenizer jinja chat recipe hub data weights runs prepare train infer tools report cli").split()
BECAME = {"io": ("files", "formats"), "text": ("unicode", "tokenizer"), "template": ("jinja", "chat"), "ops_cpu": ("ops",), "ops_gpu": ("ops",),
          "train": ("weights", "runs", "prepare", "train", "infer", "tools")}


def write_order():
    """PLIMSOLL_FOLDERS of the root CMakeLists.txt: the whole, and what the fuzz targets need."""
    path = ROOT / "CMakeLists.txt"
    text = path.read_text()
    whole, fuzzed = re.findall(r"set\(PLIMSOLL_FOLDERS\s+([^)]*)\)", text)
    old = {name for word in whole.split() for name in BECAME.get(word, (word,))}
    if old != set(FOLDERS):
        return [f"CMakeLists.txt: folders {sorted(old ^ set(FOLDERS))} are in one of PLIMSOLL_FOLDERS and FOLDERS of move_house.py alone"]
    needed = {name for word in fuzzed.split() for name in BECAME.get(word, (word,))}
    some = [name for name in FOLDERS if name in needed]
    text = text.replace(f"set(PLIMSOLL_FOLDERS {whole})", wrapped("set(PLIMSOLL_FOLDERS", FOLDERS, 4, 120) + ")")
    text = text.replace(f"set(PLIMSOLL_FOLDERS {fuzzed})", "set(PLIMSOLL_FOLDERS " + " ".join(some) + ")")
    path.write_text(text)
    return []


def rename_targets():
    """Libraries that the fuzz targets link."""
    path = ROOT / "tests/fuzz/CMakeLists.txt"
    text = path.read_text()
    for old, new in (("io", "formats"), ("text", "tokenizer"), ("template", "chat")):
        text = re.sub(rf"\bplimsoll_{old}\b", f"plimsoll_{new}", text)
    path.write_text(text)
    (ROOT / "tests/parity/CMakeLists.txt").write_text((HERE / "parity_tools.cmake").read_text())


def write_scripts():
    """check_layers.py, src/README.md and a decision's page anew; check_size.py with budgets of the folders that are new, a seventh above what they have."""
    (ROOT / "scripts/check_layers.py").write_text((HERE / "check_layers.py").read_text())
    (ROOT / "src/README.md").write_text((HERE / "README.md").read_text())
    decisions = ROOT / "docs/decisions"
    number = 1 + max(int(path.name[:2]) for path in decisions.glob("[0-9][0-9]-*.md"))
    page = (HERE / "decision.md").read_text()
    (decisions / f"{number}-folders.md").write_text(page)
    with (decisions / "README.md").open("a") as index:
        index.write(f"{number}. [{page.splitlines()[0].removeprefix('# ')}]({number}-folders.md)\n")
    path = ROOT / "scripts/check_size.py"
    text = path.read_text()
    found = re.search(r"BUDGETS = (\{[^}]*\})", text)
    budgets = eval(found[1])  # a table of numbers of this repository
    new = {}
    for folder in FOLDERS:
        files = [file for file in (ROOT / "src" / folder).rglob("*") if file.suffix in (".cc", ".h", ".cu")
                 and not file.name.endswith("_test.cc") and not file.name.startswith("test_")]
        size = sum(len(file.read_text().splitlines()) for file in files)
        was_cut = folder in {name for names in BECAME.values() for name in names} | {"plan", "recipe", "data", "cli"}
        new[folder] = max(budgets.get(folder, 0) if not was_cut else 0, -(-size * 8 // 700) / 10 if was_cut else 0)
    lines = wrapped("BUDGETS = {", [f'"{name}": {budget},' for name, budget in new.items()], 11, 120).replace("{ ", "{").rstrip(",") + "}"
    path.write_text(text.replace(found[0], lines))


def clean_up():
    for folder in ("io", "text", "template", "ops_cpu", "ops_gpu"):
        if (ROOT / f"src/{folder}/CMakeLists.txt").exists():
            git("rm", "-qf", f"src/{folder}/CMakeLists.txt")
    left = [str(path.relative_to(ROOT)) for folder in ("io", "text", "template", "ops_cpu", "ops_gpu") for path in (ROOT / f"src/{folder}").rglob("*")
            if path.is_file()]
    for folder in sorted((ROOT / "src").rglob("*"), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return [f"{name}: is left in a folder that goes" for name in left]


def unresolved():
    """Includes with quotes that name no file."""
    roots = {"src": ("src",), "tests": ("src", "tests", "tests/gpu", "tests/toys/src", "tests/fuzz"), "bench": ("src", ".")}
    for file in git("ls-files", "-co", "--exclude-standard", "*.cc", "*.h", "*.cu", "*.def").splitlines():
        path = ROOT / file
        if not path.is_file():
            continue
        places = [ROOT / place for place in (*roots.get(file.partition("/")[0], ("src",)), "tests")]
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(errors="replace"), re.M):
            if not any((place / name).is_file() for place in (*places, path.parent)):
                yield f'{file}: "{name}": no such file'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--format", default="clang-format-14")
    options = parser.parse_args()
    moves, unknown = moved(git("ls-files").splitlines())
    if unknown:
        fail(f"{name}: no word of PLACES covers it" for name in unknown)
    double = [new for new in moves.values() if list(moves.values()).count(new) > 1]
    if double:
        fail(f"{new}: two files go there" for new in set(double))
    if options.list:
        print("\n".join(f"{old} {new}" for old, new in sorted(moves.items())))
        return
    lists = Lists(moves)
    if lists.problems or options.check:
        fail(lists.problems) if lists.problems else print(f"{len(moves)} files move")
        return
    if git("status", "--porcelain", "--untracked-files=no"):
        fail(["there are changes that are not committed: this runs on a clean checkout"])
    old_cpu = (ROOT / "src/ops_cpu/CMakeLists.txt").read_text()
    for old, new in moves.items():
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / old).rename(ROOT / new)
    git("add", "-A", "src", "tests")
    problems = clean_up()
    changed = rewrite_texts(moves)
    problems += cut_declarations() + list(unnamed(lists))
    rename_in_files()
    write_lists(lists, old_cpu)
    rename_targets()
    problems += write_order() + apply_edits()
    write_scripts()
    (ROOT / "scripts/moved-paths.txt").write_text(
        "# Where files of src/ were before they were moved into the folders of their subjects: old new.\n"
        + "".join(f"{old} {new}\n" for old, new in sorted(moves.items())))
    changed += ["src/train/run_programs.h", "src/prepare/setup.cc", "src/prepare/sequence_shape.h", "src/prepare/sequence_shape.cc", *RENAMED]
    subprocess.run([options.format, "-i", *changed], cwd=ROOT, check=True)
    git("add", "-A", "src", "tests", "scripts", "cmake", "docs", "bench")
    problems += lists.problems + list(unresolved())
    if problems:
        fail(problems)
    print(f"{len(moves)} files moved; now: make check, and build")


if __name__ == "__main__":
    main()
