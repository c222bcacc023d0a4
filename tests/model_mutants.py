#!/usr/bin/env python3
"""Rules of families of models taken out, one at a time: each must be noticed by a unit test, and by the comparison with transformers.

Usage: python -m tests.model_mutants BUILD [NAME ...]   (from the repository's root, with PyTorch; BUILD has plimsoll and models_test)
       python3 tests/model_mutants.py --texts           (only whether each rule's text is still there, once)

A rule is a text of a source and what stands in its place. The source is compiled anew and linked before the library: into models_test (or another
test that the row names), which runs until a test fails, and into the program, which computes the row's case of `make parity`. A rule that only one of
both notices is noticed; the other says `nothing`.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    from tests import gpu_mutants
except ImportError:  # run as a script
    import gpu_mutants

DECODER, ROPE, MODEL, BUILDER = (f"src/models/{name}.cc" for name in ("dense_decoder", "rope", "model", "builder"))
GEMMA, OLMO, SMOLLM3, GRANITE, MODERN = (f"src/models/{name}.cc" for name in ("gemma", "olmo", "smollm3", "granite", "modernbert"))
BY_LAYER = "for (const bool one : sliding) spec.rope_of_layer.push_back(one ? 1 : 0);"
SIDES = "length > rope.original_length ? rope.long_factors : rope.short_factors;"
CAP_OF_LOSS = 'if (spec.logit_softcap > 0) attrs["softcap"] = spec.logit_softcap;'
CAP_OF_SCORES = 'if (spec_.attention_softcap > 0) attrs["softcap"] = spec_.attention_softcap;'
SCALE = 'spec.attention_scale = 1.0 / std::sqrt(in.number("query_pre_attn_scalar", 256.0, 1e-6, 1e9));'
WINDOWS = "windows[i] = sliding[i] ? window : 0;\n  return windows;\n}\n\n}  // namespace"
BEFORE = "return spec_.norms_before ? b_.norm(x_TH, scope + norm, spec_.hidden) : x_TH;"
BEHIND = "if (spec_.norms_behind) x_TH = b_.norm(x_TH, scope + norm, spec_.hidden);"
LIKE_LLAMA = ('if (spec_.norms_before) return b_.norm(x_TH, scope + norm, spec_.hidden);\n'
              '      return b_.norm(x_TH, scope + (std::string(norm) == ".input_layernorm" ? ".post_attention_layernorm" : ".post_feedforward_layernorm"), spec_.hidden);')
# name: (case of tests/parity, the texts and what stands in their place). A text occurs once in its file.
MUTANTS = {
    # Gemma 3's bases, windows by layer.
    "the full layers' base in sliding ones": ("gemma3", (ROPE, BY_LAYER, BY_LAYER.replace("one ? 1 : 0", "one ? 0 : 0"))),
    "the sliding layers' base in full ones": ("gemma3", (ROPE, BY_LAYER, BY_LAYER.replace("one ? 1 : 0", "one ? 1 : 1"))),
    "one base by default": ("gemma3_capped", (GEMMA, "ThetasByLayer{1e6, 1e4,", "ThetasByLayer{1e6, 1e6,")),
    "yarn in sliding layers too": ("olmo3", (ROPE, BY_LAYER, BY_LAYER.replace("one ? 1 : 0", "one ? 0 : 0"))),
    "no windows by layer": ("gemma3", (DECODER, WINDOWS, WINDOWS.replace("sliding[i] ? window : 0", "0"))),
    "windows in every layer": ("gemma3", (DECODER, WINDOWS, WINDOWS.replace("sliding[i] ? window : 0", "window"))),
    "a window of its every-sixth layer": ("gemma3_capped", (GEMMA, '"sliding_window_pattern", 1, kMostLayers, 6)', '"sliding_window_pattern", 1, kMostLayers, 5)')),
    # Caps.
    "no cap of logits in losses": ("gemma2", (MODEL, CAP_OF_LOSS, "")),
    "no cap of logits elsewhere": ("gemma2", (MODEL, "spec.logit_factor != 1.0 || spec.logit_softcap > 0; }", "spec.logit_factor != 1.0; }")),
    "no cap of attention's scores": ("gemma2", (DECODER, CAP_OF_SCORES, "")),
    "a cap of scores in Gemma 3": ("gemma3_capped", (GEMMA, 'spec.logit_softcap = cap(in, "final_logit_softcapping", 0.0);',
                                                      'spec.logit_softcap = cap(in, "final_logit_softcapping", 0.0);\n  spec.attention_softcap = cap(in, "attn_logit_softcapping", 0.0);')),
    "a cap of logits in the wrapped Gemma 3": ("gemma3_wrapped", ("src/models/wrapper.cc", ".ignores_logit_cap = true", ".ignores_logit_cap = false")),
    # Scales and factors.
    "a scale by the head's width": ("gemma3", (GEMMA, SCALE, "(void)in;")),
    "a scale by the head's width in Gemma 2": ("gemma2", (GEMMA, SCALE, "(void)in;")),
    "embeddings without Gemma's factor": ("gemma2", (GEMMA, "spec.embedding_factor = std::sqrt(static_cast<double>(spec.hidden));", "")),
    "Gemma's factor not rounded to the weights' type": ("gemma2", (GEMMA, "spec.rounds_embedding_factor = true;", "")),
    "queries that do not grow with their position": ("ministral3", (DECODER, "if (spec_.query_position_beta != 0)", "if (spec_.query_position_beta > 1e9)")),
    "no factor of embeddings": ("granite", (GRANITE, 'spec.embedding_factor = factor("embedding_multiplier");', "")),
    "no factor of scores": ("granite", (GRANITE, 'spec.attention_scale = factor("attention_multiplier");', "")),
    "no factor of residuals": ("granite", (GRANITE, 'spec.residual_factor = factor("residual_multiplier");', "")),
    "no factor of logits": ("granite", (GRANITE, 'spec.logit_factor = 1.0 / factor("logits_scaling");', "")),
    # Norms.
    "OLMo's norms before attention and MLP": ("olmo2", (DECODER, BEFORE, LIKE_LLAMA), (DECODER, BEHIND, BEHIND.replace("spec_.norms_behind", "spec_.norms_behind && spec_.norms_before"))),
    "OLMo's norms rounded first": ("olmo2", (OLMO, ".norm_form = NormForm::round_last,", ".norm_form = NormForm::round_first,")),
    "queries and keys of OLMo not normalised": ("olmo2", (OLMO, ".qk_norm_of_rows = true,", ".qk_norm_of_rows = false,")),
    "Gemma's factor is the weight": ("gemma3", (GEMMA, ".norm_form = NormForm::plus_one,", ".norm_form = NormForm::round_last,")),
    "Gemma's norms decay": ("gemma3", ("src/models/builder.h", "kNormAtZero{.init = Initialiser::zeros, .decays = false}", "kNormAtZero{.init = Initialiser::zeros, .decays = true}")),
    # RoPE.
    "RoPE in every layer": ("smollm3", (SMOLLM3, "push_back(one ? 0 : 1);", "push_back(one ? 0 : 0);")),
    "no RoPE where the list says it": ("smollm3_window", (SMOLLM3, "rotated[i] = list[i] == 1;", "rotated[i] = list[i] == 0;")),
    "short factors above the limit": ("phi3_longrope", (ROPE, SIDES, "length > rope.original_length ? rope.short_factors : rope.short_factors;")),
    "long factors below the limit": ("phi3_longrope", (ROPE, SIDES, "length > rope.original_length ? rope.long_factors : rope.long_factors;")),
    "long factors at the limit": ("phi3_longrope", (ROPE, SIDES, SIDES.replace("length > rope", "length >= rope"))),
    "no attention factor of longrope": ("phi3_longrope", (ROPE, "rope.type == RopeType::yarn || rope.type == RopeType::longrope;", "rope.type == RopeType::yarn;")),
    "whole heads turn": ("phi3_longrope", (ROPE, "static_cast<double>(spec.head_dim) * part);", "static_cast<double>(spec.head_dim) * std::max(part, 1.0));")),
    # Padding, heads, MLPs.
    "the padding's row learns": ("llama_padding", (BUILDER, "spec_.padding_row ? Attrs{{", "spec_.padding_row && *spec_.padding_row < 0 ? Attrs{{")),
    "silu in Gemma's MLP": ("gemma2", (GEMMA, ".gelu_gate = true,", ".gelu_gate = false,")),
    # ModernBERT.
    "ModernBERT's windows a token narrower": ("modernbert", (MODERN, "kMostPositions, 128) / 2 + 1;", "kMostPositions, 128) / 2;")),
    "ModernBERT's windows everywhere": ("modernbert", (MODERN, "spec.windows.push_back(one ? window : 0);", "spec.windows.push_back(one ? window : window);")),
    "one base in ModernBERT": ("modernbert", (ROPE, BY_LAYER, BY_LAYER.replace("one ? 1 : 0", "one ? 0 : 0"))),
    "ModernBERT's gelu by tanh": ("modernbert", (MODERN, 'EncoderSpec::Activation::gelu_tanh ? "tanh" : "none";', 'EncoderSpec::Activation::relu ? "none" : "tanh";')),
    "the first token instead of the mean": ("modernbert_mean_biased", (MODERN, 'encoder.pools_mean = pooling == "mean";', "encoder.pools_mean = false;")),
}


def place_of(name):
    """{file: what is in it with the rule taken out}"""
    changed = {}
    for path, old, new in MUTANTS[name][1:]:
        text = changed.get(path) or pathlib.Path(path).read_text()
        if text.count(old) != 1:
            sys.exit(f"error: model_mutants.py: {name}: its text occurs {text.count(old)} times in {path}")
        changed[path] = text.replace(old, new)
    return changed


def unit_of(files, path, folder):
    """What is compiled for the copy of `path` that lies in `folder`, and how: the copy, a unit of several sources that has it, or of a header any source."""
    original = str(pathlib.Path(path).resolve())
    for name, way in files.items():
        unit = pathlib.Path(way[1][-1])
        if name.startswith("unity_") and f'"{original}"' in (text := unit.read_text()):
            copy = pathlib.Path(folder) / name
            copy.write_text(text.replace(original, f"{folder}/{path}"))
            return copy, way
    if path.endswith(".h"):
        return unit_of(files, str(pathlib.Path(path).with_suffix(".cc")), folder)
    copy = pathlib.Path(folder) / path
    if not copy.exists():  # a source that sees the copy of a header
        copy.write_text(pathlib.Path(path).read_text())
    return copy, files[pathlib.Path(path).name]


def linked(folder, changed, target, build, compiling):
    """A program with the changed sources, which take the place of the library's."""
    objects = []
    for path in changed:
        unit, (place, words) = unit_of(compiling["plimsoll_models"], path, folder)
        objects.append(f"{unit}.o")
        words = [*words[:-1], "-w", str(unit)]
        words[words.index("-o") + 1] = objects[-1]
        gpu_mutants.compiled([words[0], f"-I{folder}/src", *words[1:]], place)
    words, program = gpu_mutants.link_words(build, target), f"{folder}/{pathlib.Path(target).name}"
    words[words.index("-o"):words.index("-o") + 2] = [*objects, "-Wl,--allow-multiple-definition", "-o", program]
    gpu_mutants.compiled(words, build)
    return program


def unit_test_that_fails(program):
    try:
        done = subprocess.run([program, "--gtest_fail_fast"], capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "no end"
    failed = re.search(r"^\[  FAILED  \] (\S+)", done.stdout, re.MULTILINE)
    return "" if done.returncode == 0 else failed[1] if failed else "a crash"


def messages_of(program, case, folder):
    """What the comparison of a case with transformers finds."""
    from tests.parity import oracle, run, scores
    if case in scores.ENCODERS:
        return scores.run(program, folder / case, case, "numbers" if "mean" in case else "one_of", "full")[0]
    place, case = folder / case, run.CASES[case]
    if not place.exists():
        oracle.write_case(case, place, "full", True)
    messages = run.check_fp32(program, case, place, "full")[0]
    return messages or run.check_bf16(program, case, place, "full")[0]


def plant(name, build, compiling, cases):
    changed = place_of(name)
    with tempfile.TemporaryDirectory() as folder:
        for path, text in changed.items():
            copy = pathlib.Path(folder) / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
        unit = unit_test_that_fails(linked(folder, changed, "src/models/models_test", build, compiling))
        try:
            found = messages_of(linked(folder, changed, "plimsoll", build, compiling), MUTANTS[name][0], cases)
        except RuntimeError as error:  # the program refused it
            found = [str(error)]
    print(f"{name:48} {unit or 'nothing'}; {MUTANTS[name][0]}: {found[0][:110] if found else 'nothing'}", flush=True)
    return bool(unit or found)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.model_mutants BUILD [NAME ...] | --texts")
    if sys.argv[1] == "--texts":
        for name in MUTANTS:
            place_of(name)
        return
    build = pathlib.Path(sys.argv[1]).resolve()
    compiling, chosen = gpu_mutants.compile_commands(build), sys.argv[2:] or [*MUTANTS]
    with tempfile.TemporaryDirectory() as cases:
        missed = [name for name in chosen if not plant(name, build, compiling, pathlib.Path(cases))]
    print(f"{len(chosen)} rules, {len(missed)} not noticed" + "".join(f"\n  {name}" for name in missed))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
