"""Plimsoll against transformers and PEFT on every tiny model: `make parity`.

    python -m tests.parity.run --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

`debug-dump --recipe R --ids batch.json --out F --max-new-tokens N` runs one effective batch in the program that
training runs, without an update, and writes "loss", "logits" [T, V] and "grad.NAME" (fp32, Hugging Face names and
shapes; adapters by their PEFT names) and, for each prompt, the greedy tokens "generated.I" (int64).

For each case: logits, loss, every gradient and greedy tokens of one effective batch through `plimsoll debug-dump`,
and the losses of ten optimizer steps (30 of one case of most families: LONG_CASES) through `plimsoll train`, each for full fine-tuning and for LoRA; for one case of
each family also for QLoRA beside bitsandbytes' 4-bit weights, quantised by Plimsoll and read as bitsandbytes wrote them.
"""
import argparse
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import torch
from safetensors.torch import load_file as load_torch_file
from transformers.utils.logging import disable_progress_bar

from tests.parity.cases import CASES, MASKED
from tests.parity.compare import BF16_FACTOR, compare_bf16, compare_fp32, compare_losses, without_key_biases
from tests.parity.oracle import guesses, load, logits_of, LONG_STEPS, MAX_GRAD_NORM, OPTIMIZER, STEP_ROWS, STEPS, WARMUP_STEPS, write_case
from tests.shard import is_mine

MICRO_ROWS = 3  # two micro-steps a step, the second one partly empty
# One of each: in bf16 too, and QLoRA.
FAMILY_CASES = ("llama", "mistral_window", "qwen2_bf16_shards", "qwen3", "smollm3", "gemma3", "olmo2", "granite", "gemma2", "ministral3", "phi3_longrope", "gemma3_wrapped", "qwen3_5", "modernbert_words")
# PEFT 0.21 makes every adapter of such a model one of experts, even where all layers are dense.
FULL_CASES = ("qwen3_next",)
# As lesser machines run them, too; of the others' kernels ops_cpu_test runs each form on each instruction set.
LESSER_CASES = ("llama", "mistral_window", "qwen2_bf16_shards", "qwen3", "gemma2")
# As many steps as clipping and weight decay need: of llama, and in full of one model of each family.
LONG_CASES = FAMILY_CASES
LONG_CASES_OF_LORA = ("qwen3_5",)
# (limit of ten steps, of 30) in full, of models whose losses drift. transformers' own move by so much within ten and 30 steps if its weights change in
# their last bit, or if it computes in f64: Qwen3.5's 2.0e-5 and 5e-4, 1.7e-5 and 1.1e-3; with thirds of heads 4.0e-5 and 1.7e-4; SmolLM3's 1.6e-6 and
# 2.9e-4 (Llama's 3.4e-6 and 1.7e-5).
DRIFTING = {"qwen3_5": (1e-4, 2e-3), "qwen3_5_thirds": (1e-4, None), "smollm3": (None, 1e-3)}
# One draw of roundings is chance where bf16 is a tenth from fp32: of eight adapters a hundredth beside the case's Qwen3.5 has 0.73 to 0.96 of
# transformers' distance, and of the case's own 1.12 by AVX2's kernels, 1.00 by AVX512-BF16's.
BF16_FACTORS = {("qwen3_5", "lora"): 1.3}
# Beam search over layers with a state, of one key head for each value head and of one for two.
BEAM_CASES = ("qwen3_5", "qwen3_5_tied")
SEARCHES = ({"num_beams": 4, "num_return_sequences": 4}, {"num_beams": 3, "length_penalty": -1.0, "num_return_sequences": 3})
SCORE_LIMIT = 1e-5
# Of step losses, which are within 1e-6; an epsilon of 1e-6 for 1e-8 and a second moment's decay of 0.998 for 0.999 are farther off.
TEN_STEPS_LIMIT = 1e-5
ISAS = ("avx2", "avx512", "avx512-bf16", "amx")
# Of logits and gradients, from the last bit of the offset: changes of 1e-7 in Gemma 2's weights move transformers' own by 1.4e-5.
STORED_NF4_LIMIT = 2e-5


def write_recipe(case, folder, method, precision, model="model"):
    """The recipe that says what the oracle computed; returns its path."""
    recipe = {
        "model": model, "data": {"train": "train.jsonl", "format": "input-ids", "shuffle": False,
                                 "max_length": max(64, *case.lengths)},
        "method": {"type": "full"}, "batch": {"effective": STEP_ROWS, "micro": MICRO_ROWS}, "precision": precision,
        "optimizer": {"name": "adamw", **OPTIMIZER, "max_grad_norm": MAX_GRAD_NORM},
        "schedule": {"name": "cosine", "warmup": WARMUP_STEPS, "epochs": 1}, "output": f"run_{model}_{precision}"}
    if guesses(case.config):
        recipe["task"] = "mlm"
    if method != "full":
        recipe["adapter"] = "adapter"
        recipe["method"] = {"type": method, "r": case.lora["r"], "alpha": case.lora["lora_alpha"],
                            "rslora": case.lora.get("use_rslora", False), "targets": "all-linear"}
    path = folder / f"{model}_{precision}.json"
    path.write_text(json.dumps(recipe, indent=1))
    return path


def load_file(path):
    """{name: array}; bf16 becomes fp32, as numpy has no bf16."""
    return {name: (value.float() if value.is_floating_point() and value.element_size() < 4 else value).numpy()
            for name, value in load_torch_file(path).items()}


def plimsoll(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"plimsoll {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def our_dump(program, folder, recipe, new_tokens, *words):
    """({tensor name: array}, loss, generated tokens) of Plimsoll."""
    out = folder / f"{recipe.stem}.safetensors"
    if not json.loads((folder / "batch.json").read_text())["prompts"]:
        new_tokens = 0  # an encoder writes nothing
    plimsoll(program, "debug-dump", recipe, "--ids", folder / "batch.json", "--out", out,
             "--max-new-tokens", new_tokens, *words)
    tensors = load_file(out)
    loss = float(tensors.pop("loss").reshape(()))
    names = sorted((name for name in tensors if name.startswith("generated.")), key=lambda n: int(n.split(".")[1]))
    return tensors, loss, [tensors.pop(name).tolist() for name in names]


def our_losses(program, recipe):
    plimsoll(program, "train", recipe)
    lines = (recipe.parent / f"run_{recipe.stem}" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def check_fp32(program, case, folder, method):
    """(messages, summary) of the fp32 comparison."""
    expected = json.loads((folder / "expected.json").read_text())
    recipe = write_recipe(case, folder, method, "fp32")
    tensors, loss, generated = our_dump(program, folder, recipe, case.new_tokens)
    messages, worst = compare_fp32(without_key_biases(tensors), without_key_biases(load_file(folder / "expected.safetensors")))
    messages += compare_losses([loss], [expected["loss"]])[0]
    if generated != expected["generated"]:
        messages.append(f"greedy generation: {generated}, expected {expected['generated']}")
    ours, theirs = our_losses(program, recipe), expected["train"]["losses"]
    short, long = DRIFTING.get(case.name, (None, None)) if method == "full" else (None, None)
    step_messages, worst_step = compare_losses(ours[:STEPS], theirs[:STEPS], short or TEN_STEPS_LIMIT)
    summary = f"tensors {worst:.1e}, step losses {worst_step:.1e}"
    if len(theirs) > STEPS:
        long_messages, worst_step = compare_losses(ours, theirs, long)
        step_messages, summary = step_messages + long_messages, f"{summary}, of {len(theirs)} {worst_step:.1e}"
    return messages + step_messages, summary


def check_bf16(program, case, folder, method):
    recipe = write_recipe(case, folder, method, "bf16")
    ours = our_dump(program, folder, recipe, 1)[0]
    theirs, reference = (load_file(folder / f"expected{suffix}.safetensors") for suffix in ("_bf16", ""))
    messages, worst = compare_bf16(ours, theirs, reference, BF16_FACTORS.get((case.name, method), BF16_FACTOR))
    return messages, f"bf16 error {worst:.2f} of transformers'"


@functools.cache
def lesser_isas(program):
    """Sets below this machine's best, with kernels of their own."""
    plan = plimsoll(program, "plan", "demo/model", "--length", "64", "--no-probe", "--json")
    return ISAS[:min(2, ISAS.index(json.loads(plan)["variant"]["isa"]))]


def check_kernels(program, case, folder, method):
    """Both comparisons at their own tolerances with the kernels of each lesser instruction set."""
    theirs, reference = (load_file(folder / f"expected{suffix}.safetensors") for suffix in ("_bf16", ""))
    messages, worst = [], {"fp32": 0.0, "bf16": 0.0}
    lesser = lesser_isas(program)
    for isa in lesser:
        for precision in worst:
            recipe = write_recipe(case, folder, method, precision)
            ours = our_dump(program, folder, recipe, 1, "--max-isa", isa)[0]
            found, error = (compare_fp32(ours, reference) if precision == "fp32" else
                            compare_bf16(ours, theirs, reference))
            messages += [f"{isa}: {message}" for message in found]
            worst[precision] = max(worst[precision], error)
    if not lesser:
        return messages, "no lesser instruction set than this machine's"
    return messages, f"{', '.join(lesser)}: tensors {worst['fp32']:.1e}, bf16 {worst['bf16']:.2f}"


def check_merge(program, case, folder, _):
    """The adapter folded into the base, as transformers loads it, beside PEFT's."""
    plimsoll(program, "merge", folder / "adapter", "--base", folder / "model", "--out", folder / "merged")
    peft_model = load(folder / "model", folder / "adapter").merge_and_unload()
    our_model = load(folder / "merged")
    theirs, ours = peft_model.state_dict(), our_model.state_dict()
    # Both add in fp32; ours is then stored in the base's type.
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[case.storage]
    errors = {name: ((ours[name] - value).abs().max() / value.abs().max()).item() for name, value in theirs.items()}
    messages = [f"merged {name}: off by {error:.1e}" for name, error in errors.items() if error > tolerance]
    ids = json.loads((folder / "batch.json").read_text())["sequences"][0]["input_ids"]
    with torch.no_grad():
        expected, answered = logits_of(peft_model, ids), logits_of(our_model, ids)
    output_error = ((answered - expected).abs().max() / expected.abs().max()).item()
    if output_error > 20 * tolerance:  # a rounding of each weight, summed over a row's products and the layers
        messages.append(f"merged model: outputs are off by {output_error:.1e}")
    return messages, f"merged {max(errors.values()):.1e}, its outputs {output_error:.1e}"


def check_beams(program, case, folder, method):
    """Beams as transformers searches them, which reads each text anew: behind a prompt that fills no chunk, and behind a longer one."""
    adapter = ["--adapter", folder / "adapter"] if method == "lora" else []
    model = load(folder / "model", *adapter[1:])
    batch = json.loads((folder / "batch.json").read_text())
    messages, worst = [], 0.0
    for prompt in (batch["prompts"][0], max((row["input_ids"] for row in batch["sequences"]), key=len)):
        for search in SEARCHES:
            with torch.no_grad():
                out = model.generate(input_ids=torch.tensor([prompt]), max_new_tokens=case.new_tokens, do_sample=False, use_cache=False,
                                     output_scores=True, return_dict_in_generate=True, **search)
            words = [text for key, value in search.items() for text in (f"--{key.replace('_', '-')}", value)]
            told = json.loads(plimsoll(program, "generate", folder / "model", *adapter, "--ids", ",".join(map(str, prompt)), "--max-new-tokens",
                                       case.new_tokens, "--json", *words))
            ours = [told] + told.get("next_best", [])
            theirs = [row[len(prompt):] for row in out.sequences.tolist()]
            if [answer["response_ids"] for answer in ours] != theirs:
                messages.append(f"beams differ with {search}: {[answer['response_ids'] for answer in ours]}, {theirs}")
                continue
            worst = max(worst, *(abs(answer["score"] - score) / max(1.0, abs(score)) for answer, score in zip(ours, out.sequences_scores.tolist())))
    return messages + ([f"scores of beams are off by {worst:.1e}"] if not worst <= SCORE_LIMIT else []), f"beams {worst:.1e}"


def check_towers(_, case, folder, method):
    """A model of images and texts, trained in full: whatever is no text is as it was, under the names that the folder has, and transformers
    loads all of it."""
    made = folder / "run_model_fp32"
    before = {name: value for file in (folder / "model").glob("*.safetensors") for name, value in load_torch_file(file).items()}
    after = load_torch_file(made / "model.safetensors")
    towers = [name for name in before if "language_model" not in name and "lm_head" not in name]
    messages = [] if set(before) == set(after) else [f"other tensors than before: {sorted(set(before) ^ set(after))[:3]}"]
    messages += [f"{name} was changed" for name in towers
                 if before[name].dtype != after[name].dtype or not torch.equal(before[name].view(torch.uint8), after[name].view(torch.uint8))]
    unchanged = [name for name in set(before) - set(towers) if torch.equal(before[name].float(), after[name].float())]
    _, problems = type(load(made)).from_pretrained(made, output_loading_info=True)
    messages += [f"{what}: {list(names)[:3]}" for what, names in problems.items() if names]
    if unchanged:
        messages.append(f"not trained: {unchanged[:3]}")
    return messages, f"{len(towers)} tensors of towers kept"


def check_saved(program, case, folder, method):
    """An encoder that guesses words, trained in full: transformers loads all of what was saved and computes what Plimsoll computes of it."""
    made = folder / "run_model_fp32"
    model, problems = type(load(made)).from_pretrained(made, attn_implementation="eager", output_loading_info=True)
    messages = [f"{what}: {list(names)[:3]}" for what, names in problems.items() if names]
    ours = our_dump(program, folder, write_recipe(case, folder, method, "fp32", made.name), 0)[0]["logits"]
    with torch.no_grad():
        theirs = torch.cat([logits_of(model, row["input_ids"]) for row in json.loads((folder / "batch.json").read_text())["sequences"]]).numpy()
    found, worst = compare_fp32({"logits": ours}, {"logits": theirs})
    return messages + found, f"saved {worst:.1e}"


def check_stored_nf4(program, case, folder, method):
    """The weights that bitsandbytes quantised against those that Plimsoll quantised: the same codes, so the same
    bits but for the last one of the scales' offset."""
    dumps = [our_dump(program, folder, write_recipe(case, folder, method, "fp32", model), 1)[0]
             for model in ("model_nf4", "model")]
    messages, worst = compare_fp32(*dumps)
    if worst > STORED_NF4_LIMIT:
        messages.append(f"stored and own NF4 weights differ by {worst:.1e}")
    return messages, f"stored NF4 {worst:.1e}"


def steps_of(case, method):
    is_long = case.name == "llama" or case.name in {"full": LONG_CASES, "lora": LONG_CASES_OF_LORA}.get(method, ())
    return LONG_STEPS if is_long else STEPS


def run_case(program, case, folder, method, bf16):
    """Prints a line for the case and returns its number of failures."""
    write_case(case, folder, method, bf16, steps_of(case, method))
    checks = [check_fp32] + [check_bf16] * bf16 + [check_kernels] * (case.name in LESSER_CASES)
    towers = [check_towers] if hasattr(case.config, "text_config") else []
    checks += [check_beams] * (case.name in BEAM_CASES and method != "qlora")
    checks += [check_saved] * (guesses(case.config) and method == "full")
    checks += {"full": towers, "lora": [check_merge], "qlora": [check_stored_nf4]}[method]
    messages, summaries = [], []
    for check in checks:
        try:
            found, summary = check(program, case, folder, method)
        except (RuntimeError, OSError, KeyError, ValueError) as error:
            found, summary = [str(error)], "no result"
        messages += found
        summaries.append(summary)
    print(f"{'FAIL' if messages else 'ok':4} {case.name:24} {method:5}  {', '.join(summaries)}", flush=True)
    for message in messages[:5]:
        print(f"       {message}")
    return len(messages)


def methods_of(case):
    if case.name in FULL_CASES:
        return ("full",)
    return ("full", "lora", "qlora") if case.name in FAMILY_CASES else ("full", "lora")


def family_of(case):
    """As its file in src/models begins: qwen of Qwen2 and Qwen3."""
    return re.match("[a-z]+", case.name)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--keep", type=pathlib.Path, help="write the case folders here and keep them")
    arguments = parser.parse_args()
    if not arguments.plimsoll.is_file():
        sys.exit(f"error: {arguments.plimsoll}: no such program; `make` builds it")
    cells = [(case, method) for at, case in enumerate((CASES | MASKED).values()) for number, method in enumerate(methods_of(case))
             if arguments.only in case.name and (arguments.only or is_mine("run", at + number, family_of(case)))]
    if not cells:
        sys.exit(f"error: --only {arguments.only}: no case has this in its name (cases: {', '.join(CASES | MASKED)})")
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module="peft")
    disable_progress_bar()
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for case, method in cells:
            folder = (arguments.keep or pathlib.Path(scratch)) / case.name / method
            failed += run_case(arguments.plimsoll.resolve(), case, folder, method, case.name in FAMILY_CASES) > 0
    print(f"{len(cells) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
