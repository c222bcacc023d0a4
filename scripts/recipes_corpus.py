#!/usr/bin/env python3
"""Real training files of other tools, put through the program: `make recipes CORPUS=FOLDER` (needs PyYAML).

FOLDER has a folder for each repository (OWNER+NAME, with its commit in a file `.commit`), and in it training files
where the repository has them. Of each file in scope the model is replaced by a tiny one of its family and the data by
a few rows of the kind that the recipe asks for; what remains must plan and take two steps. `--table FILE` writes the
table and the list, without any text of the files.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
TOOLS = {"axolotl": "axolotl", "llama_factory": "LLaMA-Factory", "torchtune": "torchtune", "trl": "TRL"}
# Words of a model's name that put it into a family that exists; what is out comes first.
OUT = re.compile(
    r"gemma|phi|mixtral|moe|a3b|a22b|a10b|a17b|[-_/]vl|vision|llava|pixtral|falcon|pythia|cerebras|gpt|mpt|bloom|glm|"
    r"baichuan|internlm|jamba|mamba|dbrx|starcoder|stablelm|cohere|c4ai|granite|olmo|smollm3|smolvlm|deepseek-v|"
    r"deepseek-ai/deepseek-moe|minimax|llama-?4|scout|maverick|t5|bert|btlm|xgen-|replit|redpajama|lfm|nemotron|kimi|"
    r"apertus|hunyuan|seed-oss|next|qwen3\.5|qwen3_5|qwen-7b|qwen/qwen-|voxtral|mistral-small|mistral-medium|magistral|"
    r"ministral|devstral|afm|trinity|audio|omni|moss|paddle|internvl|mimo|step|ernie|gptq|awq|aqlm|nvfp4|bnb|prequant|"
    r"2of4|eurobert|skywork-reward|code_llama2|flux|clip|yi-|open_llama_3b_v2x")
FAMILIES = (("qwen3", re.compile(r"qwen3|cogito-v1-preview-qwen3|plano-orch")),
            ("qwen2", re.compile(r"qwen|deepcoder|cogito-v1-preview-qwen|distill-qwen|openr1-distill")),
            ("mistral", re.compile(r"mistral|zephyr|hermes.*mistral")),
            ("llama3", re.compile(r"llama-?_?3|orpheus|cogito-v1-preview-llama|distill-llama|smollm")),
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


def rows_for(recipe):
    data = recipe["data"]
    named = {str(k): str(v) for k, v in (data.get("columns") or {}).items()}
    column = lambda part, usual=None: named.get(part, usual or part)
    rows = []
    for i in range(24):
        if data["format"] == "alpaca":
            row = {column("instruction"): f"name the number {i}", column("output"): f"the number is {i}"}
            if "input" in named or "instruction" not in named:
                row[column("input")] = f"a hint {i}" if i % 2 else ""
        elif data["format"] == "text":
            row = {column("text"): f"the number {i} stands here for itself"}
        elif data["format"] == "prompt-response":
            row = {column("prompt"): f"name the number {i}", column("response"): f"the number is {i}"}
        else:
            role, content = named.get("message_role", "role"), named.get("message_content", "content")
            row = {column("messages"): [{role: "user", content: f"name the number {i}"},
                                        {role: "assistant", content: f"the number is {i}"}]}
        rows.append(json.dumps(row))
    return "\n".join(rows) + "\n"


# --- one file --------------------------------------------------------------------------------------------

def run(plimsoll, *words, timeout=120):
    environment = {k: v for k, v in os.environ.items() if k != "PLIMSOLL_SET"}
    environment["HF_HUB_CACHE"] = "/nonexistent"
    try:
        return subprocess.run([str(plimsoll), *map(str, words)], capture_output=True, text=True, timeout=timeout,
                              env=environment)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", "timed out")


SMALL = ("memory.device=2GiB", "memory.host=2GiB", "init=random", "method.r=4")


def try_file(plimsoll, path, family, models, work):
    """("runs" | "refused", the reason)"""
    data = work / "rows.jsonl"
    data.write_text("{}\n")
    sets = [f"model={models / family}", f"data.train={data}"]
    words = lambda: [w for s in sets for w in ("--set", s)]
    done = run(plimsoll, "recipe", path, "--json", *words())
    if done.returncode != 0 and "data.eval" in done.stderr + " eval_dataset test_datasets dataset_val: there is no":
        sets.append(f"data.eval={data}")  # the recipe names rows of their own to evaluate on
        done = run(plimsoll, "recipe", path, "--json", *words())
    if done.returncode != 0:
        return "refused", done.stderr.strip()
    answer = json.loads(done.stdout)
    recipe = answer["recipe"]
    data.write_text(rows_for(recipe))
    if isinstance(recipe["data"].get("eval"), (str, dict)) and not str(recipe["data"]["eval"]).endswith("%"):
        if f"data.eval={data}" not in sets:
            sets.append(f"data.eval={data}")
    elif recipe["data"].get("eval") is not None:
        sets.append(f"data.eval={data}")
    # What a tiny model cannot have: the memory of a large one, more rows than there are.
    sets += ["init=random", "memory.device=4GiB", "memory.host=4GiB", "schedule.max_steps=2", "batch.effective=4",
             "batch.micro=1", f"output={work / 'run'}", "threads=1"]
    if recipe["data"]["max_length"] and recipe["data"]["max_length"] > 512:
        sets.append("data.max_length=512")
    planned = run(plimsoll, "plan", path, *words())
    if planned.returncode != 0:
        return "refused", planned.stderr.strip()
    trained = run(plimsoll, "train", path, "--overwrite", *words())
    if trained.returncode != 0:
        return "refused", trained.stderr.strip()
    return "runs", "/".join(str(x) for x in (recipe["data"]["format"], recipe["data"]["template"],
                                             recipe["data"]["train_on_prompt"]))


REASONS = ((r"load_in_8bit|8-bit base", "8-bit base weights"), (r"DoRA|dora", "DoRA"), (r"modules_to_save|additional_target|whole modules", "modules_to_save"),
           (r"template '", "a template that does not exist here"), (r"attention across rows", "packing across rows"),
           (r"datasets.type|does not exist here; alpaca", "another row format"),
           (r"NEFT|neftune|label_smoothing|change of the loss", "NEFTune, label smoothing"),
           (r"optimizer|optim:", "another optimizer"), (r"unknown key", "an unknown key"),
           (r"pretraining_dataset", "an endless stream"), (r"joins all texts", "joined texts"),
           (r"different formats", "mixed formats"), (r"lr_scheduler", "another schedule"), (r"freeze", "freezing layers"))


def reason_of(text):
    lines = [line for line in text.splitlines() if line and not line.startswith("note")]
    first = lines[0] if lines else text
    for pattern, reason in REASONS:
        if re.search(pattern, first):
            return reason
    return re.sub(r"^\S+: ", "", first)[:90]


def job(arguments):
    plimsoll, path, family, models = arguments
    with tempfile.TemporaryDirectory() as work:
        return try_file(plimsoll, path, family, Path(models), Path(work))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--plimsoll", type=Path, default=ROOT / "build" / "plimsoll")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    found, seen = [], set()
    for repository in sorted(p for p in options.corpus.iterdir() if p.is_dir()):
        commit = (repository / ".commit").read_text().strip()
        for path in sorted(p for p in repository.rglob("*") if p.suffix in (".yaml", ".yml", ".json")):
            text = path.read_text(errors="replace")
            try:
                config = yaml.safe_load(text)
            except yaml.YAMLError:
                continue
            if not isinstance(config, dict) or text in seen:
                continue  # a fork's copy counts once
            seen.add(text)
            found.append((repository.name.replace("+", "/"), commit, path, path.relative_to(repository), *scope(path.relative_to(repository), config)))
    inside = [f for f in found if f[6] is None]
    outcomes = {}
    with tempfile.TemporaryDirectory() as models:
        make_models(Path(models), ROOT / "demo" / "model")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            jobs = [(options.plimsoll, f[2], f[5], models) for f in inside]
            for entry, outcome in zip(inside, pool.map(job, jobs)):
                outcomes[entry[2]] = outcome
                if options.verbose and outcome[0] != "runs":
                    print(f"{entry[0]}/{entry[3]}\n    {outcome[1][:400]}", file=sys.stderr)
    lines = report(found, inside, outcomes)
    print("\n".join(lines[0]))
    if options.table:
        options.table.write_text("\n".join(lines[0] + lines[1]) + "\n")


def report(found, inside, outcomes):
    total = collections.Counter(TOOLS.get(f[4], "none") for f in found)
    table = ["| Tool | Files | In scope | Run | Refused |", "|---|---|---|---|---|"]
    for tool, name in TOOLS.items():
        mine = [f for f in inside if f[4] == tool]
        runs = sum(outcomes[f[2]][0] == "runs" for f in mine)
        table.append(f"| {name} | {total[name]} | {len(mine)} | {runs} | {len(mine) - runs} |")
    runs = sum(o[0] == "runs" for o in outcomes.values())
    table.append(f"| all | {len(found)} | {len(inside)} | {runs} ({100 * runs / max(1, len(inside)):.0f} %) | {len(inside) - runs} |")
    classes = collections.Counter((TOOLS[f[4]], outcomes[f[2]][1]) for f in inside if outcomes[f[2]][0] == "runs")
    table += ["", "| What runs: tool | format, template, loss on the prompt | Files |", "|---|---|---|"]
    table += [f"| {tool} | {kind} | {count} |" for (tool, kind), count in sorted(classes.items())]
    refusals = collections.Counter((TOOLS[f[4]], reason_of(outcomes[f[2]][1])) for f in inside if outcomes[f[2]][0] != "runs")
    table += ["", "| What is refused: tool | what is missing, as the first line says it | Files |", "|---|---|---|"]
    table += [f"| {tool} | {reason.replace('|', '/')} | {count} |" for (tool, reason), count in refusals.most_common()]
    listing = ["", "## Files", ""]
    for repository in sorted({f[0] for f in inside}):
        mine = [f for f in inside if f[0] == repository]
        listing.append(f"- {repository} at {mine[0][1]}: " + ", ".join(
            f"{f[3]}" + ("" if outcomes[f[2]][0] == "runs" else " (refused)") for f in mine))
    return table, listing


if __name__ == "__main__":
    main()
