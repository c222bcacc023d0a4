#!/usr/bin/env python3
"""Real training files of other tools, put through the program: `make recipes CORPUS=FOLDER` (needs PyYAML).

FOLDER has a folder for each repository, and in it training files where the repository has them. Of each file in scope
the model is replaced by a tiny one of its family and the data by a few rows of the kind that the file asks for; what
remains must plan and take two steps. Beside it stands a reading of our own (recipes_reading.py): what it says of the
file must be what the program made of it, and token ids and labels must be those of the tool's own code where it is
installed (requirements-other-tools.txt). `--table FILE` writes the table, without any text of the files.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
import recipes_reading as reading  # noqa: E402

TOOLS = {"axolotl": "axolotl", "llama_factory": "LLaMA-Factory", "torchtune": "torchtune", "trl": "TRL"}
# Words of a model's name that put it into a family that exists; what is out comes first.
OUT = re.compile(
    r"gemma(?!-?[23](?!n))|phi|mixtral|moe|a3b|a22b|a10b|a17b|[-_/]vl|vision|llava|pixtral|falcon|pythia|cerebras|gpt|mpt|bloom|glm|"
    r"baichuan|internlm|jamba|mamba|dbrx|starcoder|stablelm|cohere|c4ai|a400m|a800m|olmo(?!-?[23])|smolvlm|deepseek-v|"
    r"deepseek-ai/deepseek-moe|minimax|llama-?4|scout|maverick|t5|bert|btlm|xgen-|replit|redpajama|lfm|nemotron|kimi|"
    r"apertus|hunyuan|seed-oss|next|qwen3\.5|qwen3_5|qwen-7b|qwen/qwen-|voxtral|mistral-small|mistral-medium|magistral|"
    r"ministral|devstral|afm|trinity|audio|omni|moss|paddle|internvl|mimo|step|ernie|gptq|awq|aqlm|nvfp4|bnb|prequant|"
    r"2of4|eurobert|skywork-reward|code_llama2|flux|clip|yi-|open_llama_3b_v2x")
FAMILIES = (("qwen3", re.compile(r"qwen3|cogito-v1-preview-qwen3|plano-orch")),
            ("qwen2", re.compile(r"qwen|deepcoder|cogito-v1-preview-qwen|distill-qwen|openr1-distill")),
            ("mistral", re.compile(r"mistral|zephyr|hermes.*mistral")),
            ("llama3", re.compile(r"llama-?_?3(?!\d)|orpheus|cogito-v1-preview-llama|distill-llama|smollm")),
            ("llama2", re.compile(r"llama|vicuna|alpaca|tulu|openchat")))
OTHER_TASKS = ("dpo", "ppo", "kto", "orpo", "grpo", "simpo", "reward", "ipo", "gkd", "rm", "mpo", "ebft", "opd", "bco")


def model_name(config):
    model = config.get("model")
    if isinstance(model, dict) and "_component_" in model:
        return model["_component_"]
    return config.get("base_model") or config.get("model_name_or_path")


def tool_of(config):
    if "base_model" in config:
        return "axolotl"
    if "_component_" in json.dumps(config, default=str):
        return "torchtune"
    if any(k in config for k in ("finetuning_type", "stage", "template", "cutoff_len", "dataset_dir", "lora_target",
                                 "quantization_bit")) and "dataset_mixture" not in config:
        return "llama_factory"
    return "trl" if "model_name_or_path" in config else None


def scope(path, config):
    """(tool, family, why it is out of scope or None)"""
    tool = tool_of(config)
    name = str(model_name(config) or "").lower()
    low = str(path).lower()
    if tool is None or not name:
        return tool, None, "no training file of a text model"
    if config.get("rl") or config.get("stage") in OTHER_TASKS or config.get("reward_model"):
        return tool, None, "another task"
    words = re.split(r"[/_.\-]", low)
    if any(w in words for w in OTHER_TASKS + ("distillation", "kd", "diffusion", "eval", "evaluation", "generation",
                                              "quantization", "inference", "merge", "infer", "predict", "export", "dev",
                                              "qat", "earlyexit", "prm", "cls", "classify", "mllm", "vision")):
        return tool, None, "another task"
    if config.get("reward_funcs"):
        return tool, None, "another task"
    if "moe" in words or "router_aux_loss_coef" in config:
        return tool, None, "another family"
    if config.get("do_predict") or config.get("do_train") is False or "export_dir" in config:
        return tool, None, "another task"
    if tool == "llama_factory" and not ("stage" in config or config.get("do_train")):
        return tool, None, "another task"
    if tool == "torchtune" and not isinstance(config.get("dataset"), (dict, list)):
        return tool, None, "another task"
    if tool == "axolotl" and (config.get("processor_type") or config.get("is_multimodal") or config.get("num_labels")):
        return tool, None, "another kind of model"
    if OUT.search(name):
        return tool, None, "another family"
    for family, pattern in FAMILIES:
        if pattern.search(name):
            return tool, family, None
    return tool, None, "another family"


# --- tiny models and rows --------------------------------------------------------------------------------

def make_models(folder, demo):
    """The demo's tokenizer with the special tokens that templates of the families print."""
    base = json.loads((demo / "tokenizer.json").read_text())
    config = json.loads((demo / "config.json").read_text())
    families = {
        "llama2": ("llama", ["<s>", "</s>", "<unk>"], "<s>", "</s>"),
        "mistral": ("mistral", ["<s>", "</s>", "<unk>"], "<s>", "</s>"),
        "llama3": ("llama", ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                             "<|im_start|>", "<|im_end|>", "<|finetune_right_pad_id|>"], "<|begin_of_text|>",
                   "<|end_of_text|>"),
        "qwen2": ("qwen2", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|endoftext|>"),
        "qwen3": ("qwen3", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|endoftext|>"),
    }
    for family, (kind, tokens, bos, eos) in families.items():
        out = folder / family
        out.mkdir()
        tokenizer = json.loads(json.dumps(base))
        vocab = tokenizer["model"]["vocab"]
        known = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
        next_id = max(list(vocab.values()) + [t["id"] for t in tokenizer["added_tokens"]]) + 1
        for token in tokens:
            if token in known:
                continue
            tokenizer["added_tokens"].append({"id": vocab.get(token, next_id), "content": token, "single_word": False,
                                              "lstrip": False, "rstrip": False, "normalized": False, "special": True})
            if token not in vocab:
                known[token] = next_id
                next_id += 1
            else:
                known[token] = vocab[token]
        if bos:
            tokenizer["post_processor"] = {
                "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}},
                                                         {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {bos: {"id": bos, "ids": [known[bos]], "tokens": [bos]}}}
        (out / "tokenizer.json").write_text(json.dumps(tokenizer))
        own = dict(config, model_type=kind, vocab_size=max(config["vocab_size"], next_id),
                   max_position_embeddings=1 << 20, architectures=[{"llama": "LlamaForCausalLM", "mistral":
                                                                    "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
                                                                    "qwen3": "Qwen3ForCausalLM"}[kind]])
        if kind == "mistral":
            own["sliding_window"] = None
        (out / "config.json").write_text(json.dumps(own))
        template = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
        (out / "tokenizer_config.json").write_text(json.dumps(
            {"bos_token": bos, "eos_token": eos, "unk_token": "<unk>" if "<unk>" in tokens else None,
             "chat_template": template}))


# --- one file --------------------------------------------------------------------------------------------

def run(plimsoll, *words, timeout=300):
    environment = {k: v for k, v in os.environ.items() if k != "PLIMSOLL_SET"}
    environment["HF_HUB_CACHE"] = "/nonexistent"
    try:
        return subprocess.run([str(plimsoll), *map(str, words)], capture_output=True, text=True, timeout=timeout,
                              env=environment)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", "timed out")


ANSWERS = {}  # what the tools' code said, by case


def ask_tool(case, model):
    """[(ids, labels)] of the tool's own code, or why it was not asked."""
    from tests.parity import other_tools as tools
    key = json.dumps([case, model.name], sort_keys=True)
    if key not in ANSWERS:
        try:
            ANSWERS[key] = [([int(i) for i in ids], [int(i) for i in labels]) for ids, labels in tools.TOOLS[case["tool"]](case, model)]
        except ImportError as error:
            ANSWERS[key] = f"not installed: {error.name}"
        except Exception as error:  # the tool's own complaint
            ANSWERS[key] = f"{type(error).__name__}: {error}"
    return ANSWERS[key]


def learnt(rows):
    return [(ids, labels[1:]) for ids, labels in rows if any(label != -100 for label in labels[1:])]


def compare_rows(plimsoll, path, words, case, model):
    """("same" | "differ" | why they were not compared, what differs)"""
    if case is None:
        return "no case for this class", ""
    theirs = ask_tool(case, model)
    if isinstance(theirs, str):
        return theirs[:80], ""
    done = run(plimsoll, "plan", path, "--dump", "rows", *words)
    if done.returncode:
        return "differ", done.stderr[-300:]
    mine = [(line["ids"], line["labels"]) for line in map(json.loads, done.stdout.splitlines()) if line["ids"]]
    if learnt(mine) != learnt(theirs):
        return "differ", f"{learnt(mine)[:1]} {learnt(theirs)[:1]}"
    return "same", ""


def try_file(plimsoll, path, config, tool, family, models, work):
    """{outcome: runs | refused | wrong, why, rows: how the rows compare}: only model and data are replaced."""
    try:
        settings, case = reading.READERS[tool](config)
    except (KeyError, TypeError, ValueError) as error:
        settings, case = {}, None
        if tool != "torchtune":  # a file that our own reading cannot read
            return {"outcome": "unread", "why": f"{type(error).__name__}: {error}"}
    rows = case["rows"] if case else reading.ALPACA
    data = work / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = ["--set", f"model={models / family}", "--set", f"data.train={data}"]
    done = run(plimsoll, "recipe", path, "--json", *base)
    if done.returncode and "data.eval" not in base:
        base += ["--set", f"data.eval={data}"]  # the recipe may name rows of their own to evaluate on
        done = run(plimsoll, "recipe", path, "--json", *base)
    if done.returncode:
        return {"outcome": "refused", "why": done.stderr.strip()}
    recipe = json.loads(done.stdout)["recipe"]
    evaluates = recipe["data"].get("eval")
    if isinstance(evaluates, str) and not evaluates.endswith("%") and "rows.jsonl" not in evaluates or isinstance(evaluates, dict):
        base += ["--set", f"data.eval={data}"]
    wrong = reading.differences(settings, recipe)
    # Rows that are held out would be missing from the comparison.
    without = [w for key in ("data.eval", "eval.every", "stop.patience", "save.best") for w in ("--set", f"{key}=null")]
    sets = [w for s in ("init=random", "memory=6GiB", "threads=1", f"output={work / 'run'}") for w in ("--set", s)]
    compared, difference = compare_rows(plimsoll, path, base + sets + without, case, models / family)
    if compared == "differ":
        wrong.append("rows: " + difference)
    # What a tiny model and eight rows cannot have: long sequences, large batches, many steps.
    small = ["schedule.max_steps=2", "batch.effective=2", "batch.micro=1"]
    if evaluates is not None:
        small.append(f"data.eval={data}")
    if recipe["data"]["max_length"] is None or recipe["data"]["max_length"] > 512:
        small.append("data.max_length=512")
    sets += [w for s in small for w in ("--set", s)]
    for command in (["plan"], ["train", "--overwrite"]):
        done = run(plimsoll, command[0], path, *command[1:], *base, *sets)
        if done.returncode:
            return {"outcome": "refused", "why": done.stderr.strip(), "rows": compared}
    kind = "/".join(str(recipe["data"][k]) for k in ("format", "template", "train_on_prompt"))
    return {"outcome": "wrong" if wrong else "runs", "why": "; ".join(wrong), "rows": compared, "kind": kind}


def reason_of(text):
    """What is missing, as the program says it: an unknown key only where nothing else is."""
    lines = [re.sub(r"^(error: )?(\S+?:\d+: |--set \S+ )?", "", line) for line in text.splitlines() if line and not line.startswith("note")]
    lines = [re.sub(r"/\S+/", "", line) for line in lines] or [text]
    return next((line for line in lines if not line.startswith("unknown key")), lines[0])[:110]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--plimsoll", type=Path, default=ROOT / "build" / "plimsoll")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--only", help="files whose path holds this text")
    parser.add_argument("--outcomes", type=Path, help="a file that keeps what became of each file; those in it are done")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    found, seen = [], set()
    for repository in sorted(p for p in options.corpus.iterdir() if p.is_dir()):
        for path in sorted(p for p in repository.rglob("*") if p.suffix in (".yaml", ".yml", ".json")):
            text = path.read_text(errors="replace")
            try:
                config = yaml.safe_load(text)
            except yaml.YAMLError:
                continue
            if not isinstance(config, dict) or text in seen:
                continue  # a fork's copy counts once
            seen.add(text)
            found.append((path, config, *scope(path.relative_to(repository), config)))
    inside = [f for f in found if f[4] is None and (not options.only or options.only in str(f[0]))]
    kept = options.outcomes.read_text().splitlines() if options.outcomes and options.outcomes.exists() else []
    outcomes = {Path(name): outcome for name, outcome in map(json.loads, kept)}
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        models.mkdir()
        make_models(models, ROOT / "demo" / "model")
        for path, config, tool, family, _ in inside:
            if path in outcomes:
                continue
            with tempfile.TemporaryDirectory() as work:
                outcome = outcomes[path] = try_file(options.plimsoll, path, config, tool, family, models, Path(work))
            if options.outcomes:
                with options.outcomes.open("a") as file:
                    file.write(json.dumps([str(path), outcome]) + "\n")
            if options.verbose:
                told = [line for line in outcome["why"].splitlines() if not line.startswith("note")]
                print(f"{outcome['outcome']}: {path.relative_to(options.corpus)} ({outcome.get('rows')})\n    "
                      + "\n    ".join(told)[-900:], file=sys.stderr, flush=True)
    lines = report(found, inside, outcomes)
    print("\n".join(lines))
    if options.table:
        options.table.write_text("\n".join(lines) + "\n")


def report(found, inside, outcomes):
    total = collections.Counter(TOOLS.get(f[2], "none") for f in found)
    table = ["| Tool | Files | In scope | Run | Refused | Wrong |", "|---|---|---|---|---|---|"]
    def count(mine, name):
        kinds = collections.Counter(outcomes[f[0]]["outcome"] for f in mine)
        share = f" ({100 * kinds['runs'] / max(1, len(mine)):.0f} %)"
        return f"| {name} | {len(mine)} | {kinds['runs']}{share} | {kinds['refused']} | {kinds['wrong'] + kinds['unread']} |"
    for tool, name in TOOLS.items():
        table.append(count([f for f in inside if f[2] == tool], f"{name} | {total[name]}"))
    table.append(count(inside, f"all | {len(found)}"))
    runs = [(f, outcomes[f[0]]) for f in inside if outcomes[f[0]]["outcome"] == "runs"]
    classes = collections.Counter((TOOLS[f[2]], o["kind"], o["rows"]) for f, o in runs)
    table += ["", "| What runs: tool | format, template, loss on the prompt | rows beside the tool's code | Files |", "|---|---|---|---|"]
    table += [f"| {tool} | {kind} | {rows} | {files} |" for (tool, kind, rows), files in sorted(classes.items())]
    refused = [(f, outcomes[f[0]]) for f in inside if outcomes[f[0]]["outcome"] == "refused"]
    reasons = collections.Counter((TOOLS[f[2]], reason_of(o["why"])) for f, o in refused)
    table += ["", "| What is refused: tool | what is missing | Files |", "|---|---|---|"]
    return table + [f"| {tool} | {reason.replace('|', '/')} | {files} |" for (tool, reason), files in reasons.most_common()]


if __name__ == "__main__":
    main()
