#!/usr/bin/env python3
"""Writes docs/reference/commands.md, supported.md, docs/llms.txt and docs/skill/SKILL.md from the program, so that no claim of support is written by hand.

    write_reference.py PLIMSOLL            compare with the pages, exit 1 where they differ
    write_reference.py PLIMSOLL --write    write them anew

Commands and options are those of `--help`. Values of recipe keys are those of `recipe --explain --json`. Which model learns
which task, by which method, is asked of `plan`, with a tiny model of each family. Names of data files and GPUs are read from their
tables in src/.
"""
import concurrent.futures
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = "docs/reference"
NOTE = "<!-- written by scripts/write_reference.py from the program, checked by a test: do not edit -->"

DECODER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
           "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
ENCODER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
           "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8,
      "is_encoder_decoder": True, "decoder_start_token_id": 0}
DELTA = DECODER | {"head_dim": 8, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}


def within(text_type, sizes):
    return {"text_config": {"model_type": text_type, "vocab_size": 512, **sizes}}


GLA = {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
# A tiny model of each model_type that the program reads; the check fails where one is missing.
TINY = {"gla": ("GLAForCausalLM", GLA), "llama": ("LlamaForCausalLM", DECODER), "mistral": ("MistralForCausalLM", DECODER),
        "qwen2": ("Qwen2ForCausalLM", DECODER), "qwen3": ("Qwen3ForCausalLM", DECODER), "smollm3": ("SmolLM3ForCausalLM", DECODER),
        "gemma2": ("Gemma2ForCausalLM", DECODER | {"head_dim": 8}), "gemma3_text": ("Gemma3ForCausalLM", DECODER | {"head_dim": 8}),
        "olmo2": ("Olmo2ForCausalLM", DECODER), "olmo3": ("Olmo3ForCausalLM", DECODER), "granite": ("GraniteForCausalLM", DECODER), "ministral": ("MinistralForCausalLM", DECODER),
        "ministral3": ("Ministral3ForCausalLM", DECODER | {"head_dim": 8}), "qwen3_5_text": ("Qwen3_5ForCausalLM", DELTA),
        "qwen3_next": ("Qwen3NextForCausalLM", DELTA | {"num_experts": 0}),
        "phi3": ("Phi3ForCausalLM", DECODER), "modernbert": ("ModernBertForMaskedLM", ENCODER),
        "gemma3": ("Gemma3ForConditionalGeneration", within("gemma3_text", DECODER | {"head_dim": 8})),
        "mistral3": ("Mistral3ForConditionalGeneration", within("ministral3", DECODER | {"head_dim": 8})),
        "qwen3_5": ("Qwen3_5ForConditionalGeneration", within("qwen3_5_text", DELTA)),
        "t5": ("T5ForConditionalGeneration", T5),
        "mt5": ("MT5ForConditionalGeneration", T5), "bert": ("BertForMaskedLM", ENCODER), "roberta": ("RobertaForMaskedLM", ENCODER),
        "xlm-roberta": ("XLMRobertaForMaskedLM", ENCODER)}
# Keys whose values are features that people look for: (heading, key).
FEATURES = (("Tasks", "task"), ("Methods", "method.type"), ("Initial values of adapters", "method.init"), ("Optimizers", "optimizer.name"),
            ("Data types", "precision"), ("Learning-rate schedules", "schedule.name"), ("Kinds of rows", "data.format"), ("Chat templates", "data.template"),
            ("Activation checkpointing", "memory.recompute"), ("Offloading", "memory.offload"), ("Lossy options, if allowed", "memory.allow"))


class Program:
    def __init__(self, path):
        self.path = str(pathlib.Path(path).resolve())
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PLIMSOLL")}
        self.environment |= {"COLUMNS": "100", "PLIMSOLL_NO_PROBE": "1", "OMP_WAIT_POLICY": "passive"}

    def run(self, *arguments):
        return subprocess.run([self.path, *map(str, arguments)], capture_output=True, text=True, env=self.environment, stdin=subprocess.DEVNULL)

    def out(self, *arguments):
        done = self.run(*arguments)
        if done.returncode != 0:
            sys.exit(f"error: plimsoll {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def sections(text):
    """{heading: lines} of a command's help."""
    found, current = {}, None
    for line in text.splitlines():
        if line and not line.startswith(" "):
            current = found.setdefault(line, [])
        elif current is not None:
            current.append(line)
    return found


def terms(lines):
    """(term, meaning) of a list in a help text: a term stands two columns in, its meaning beside or below it."""
    found = []
    for line in filter(str.strip, lines):
        if line[2] != " ":
            term, _, meaning = re.sub(r"^(.*?\S) {2,}", "\\1\0", line[2:], count=1).partition("\0")
            found.append([term.strip(), meaning.strip()])
        else:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    return found


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def code(text):
    return "`" + text.replace("|", "\\|") + "`"


def link_pages(text):
    """Pages that a text names, as links from FOLDER."""
    return re.sub(r"docs/[a-z0-9_/-]+\.md", lambda page: f"[{page[0].removeprefix('docs/')}]({os.path.relpath(page[0], FOLDER)})", text)


def commands_of(program, *group):
    """(words, help) of every command, those of a group behind it."""
    for name, _ in terms(sections(program.out(*group, "--help")).get("COMMANDS", [])):
        words = (*group, name)
        shown = sections(program.out(*words, "--help"))
        yield words, shown
        if "COMMANDS" in shown:
            yield from commands_of(program, *words)


def commands_page(program):
    all_of_them = list(commands_of(program))
    out = [NOTE, "", "# Commands", "", "`plimsoll COMMAND --help` prints the same, with examples. Options that set a key of the recipe are explained by",
           "`plimsoll recipe --explain` ([recipe](recipe.md)).", "", "| Command | What it does |", "|---|---|"]
    for words, shown in all_of_them:
        name = "plimsoll " + " ".join(words)
        summary = " ".join(line.strip() for line in shown["NAME"]).partition(" - ")[2].strip()
        out.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {cell(summary)} |")
    for words, shown in all_of_them:
        out += ["", f"## plimsoll {' '.join(words)}", "", "```", *(line.strip() for line in shown["SYNOPSIS"] if line.strip()), "```"]
        rows = [pair for heading in ("ARGUMENTS", "OPTIONS") for pair in terms(shown.get(heading, [])) if pair[0] != "-h, --help"]
        if rows:
            out += ["", "| Argument or option | Meaning |", "|---|---|", *(f"| {code(term)} | {link_pages(cell(meaning))} |" for term, meaning in rows)]
        more = " ".join(line.strip() for line in shown.get("SEE ALSO", []))
        if more:
            out += ["", f"More: {link_pages(more)}."]
    return "\n".join(out) + "\n"


def known_types(program, folder):
    """The model types that the program names when it meets another one."""
    (folder / "config.json").write_text('{"model_type": "none"}')
    told = program.run("plan", folder, "--memory", "1GiB", "--device", "cpu").stderr
    return re.search(r"supported: (.*)", told)[1].split(", ")


def plans(program, folder, task, method):
    """Whether the program plans a model for a task."""
    done = program.run("plan", folder, "--memory", "2GiB", "--device", "cpu", "--length", 32, "--method", method, "--set", f"task={task}",
                       *(["--set", "classify.labels=[a, b]"] if task == "classify" else []))
    if done.returncode not in (0, 2):
        sys.exit(f"error: planning a {folder.name} for {task} by {method} ended with {done.returncode}: {done.stderr.strip()}")
    return done.returncode == 0


def matrix(program, tasks, methods):
    """The table of models by tasks, as `plan` answers."""
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        types = known_types(program, place)
        if missing := set(types) ^ set(TINY):
            sys.exit(f"error: scripts/write_reference.py: TINY and the program differ in model types: {', '.join(sorted(missing))}")
        for name in types:
            (place / name).mkdir()
            architecture, sizes = TINY[name]
            (place / name / "config.json").write_text(json.dumps({"vocab_size": 512, "eos_token_id": 0, "pad_token_id": 0, "model_type": name,
                                                                  "architectures": [architecture], **sizes}))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            learns = {(name, task): pool.submit(plans, program, place / name, task, "lora") for name in types for task in tasks}
            first = {name: next(task for task in tasks if learns[name, task].result()) for name in types}
            by = {(name, method): pool.submit(plans, program, place / name, first[name], method) for name in types for method in methods}
        yield f"| `model_type` | Architecture | {' | '.join(f'`{one}`' for one in (*tasks, *methods))} |"
        yield "|---|---|" + ":---:|" * (len(tasks) + len(methods))
        for name in types:
            answers = [learns[name, task].result() for task in tasks] + [by[name, method].result() for method in methods]
            yield f"| {name} | {TINY[name][0]} | {' | '.join('yes' if one else '-' for one in answers)} |"


def data_files():
    """The endings of data files, from the message that names them."""
    parts = re.search(r'kFormats =\s*((?:"[^"]*"\s*)+);', (ROOT / "src/data/files/data_files.cc").read_text())[1]
    return re.sub(r'"\s*"', "", parts).strip('" \n')


def cards():
    """(name, gigabytes, compute capability, bandwidth) of the catalogue."""
    rows = re.findall(r'^\s*Card\{"([^"]+)", (\d+), \d+, (\d+), \d+, ([\d.]+),', (ROOT / "src/device/catalogue.cc").read_text(), re.M)
    return [(name, size, f"{int(capability) / 10:.1f}", bandwidth) for name, size, capability, bandwidth in rows]


def supported_page(program):
    keys = {key["key"]: key for key in json.loads(program.out("recipe", "--explain", "--json"))}
    words = {key: re.findall(r"[\w-]+", keys[key]["values"]) for key in ("task", "method.type")}
    out = [NOTE, "", "# What is supported", "", "Written from the program's own tables and answers. What is not in a list is refused by name.", "",
           "## Models, tasks and methods", "", "Whether `plimsoll plan` plans a model of the type for the task (with LoRA), and by the method:", ""]
    out += matrix(program, words["task"], words["method.type"])
    for heading, key in FEATURES:
        out += ["", f"## {heading}", "", f"`{key}`: {link_pages(keys[key]['values'].replace(' | ', ', '))}.", "", f"> {link_pages(keys[key]['meaning'])}"]
        if keys[key]["support"]:
            out += ["", f"Refused: {keys[key]['support']}."]
    exports = dict(terms(sections(program.out("export", "--help"))["OPTIONS"]))
    forms, kinds = (", ".join(next(term for term in exports if term.startswith(option)).split()[-1].split("|")) for option in ("--to", "--type"))
    out += ["", "## Exports", "", f"`plimsoll export --to`: {forms}; `--type`: {kinds} ([which models, what is checked](../howto/export.md)). llama.cpp",
            "and transformers read them in tests; Ollama and vLLM themselves have not been tried."]
    out += ["", "## Data files", "", f"{data_files()} ([data](../howto/data.md#files))."]
    found = cards()
    out += ["", "## GPUs by name", "", f"`plan --gpu NAME` knows {len(found)} GPUs, which need not be there. `train` runs on those of a machine from compute capability",
            "7.5 on ([devices](devices.md)). Below 8.0 a GPU does not compute in bf16. Of real GPUs only the H200 has been tried.", "",
            "| GPU | GB | Compute capability | GB/s |", "|---|---:|---:|---:|", *(f"| {' | '.join(row)} |" for row in found)]
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        sys.exit("usage: write_reference.py PLIMSOLL [--write]")
    program = Program(sys.argv[1])
    problems = []
    for name, text in ((f"{FOLDER}/commands.md", commands_page(program)), (f"{FOLDER}/supported.md", supported_page(program)),
                       ("docs/llms.txt", program.out("help", "--llms")),
                       ("docs/skill/SKILL.md", program.out("help", "--skill"))):
        page = ROOT / name
        if sys.argv[2:]:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text)
        elif (before := page.read_text() if page.exists() else "") != text:
            shown = difflib.unified_diff(before.splitlines(), text.splitlines(), name, "the program", n=0, lineterm="")
            problems += [f"{name} is not what the program says: write it anew by scripts/write_reference.py PLIMSOLL --write", *shown]
    if problems:
        sys.exit("error: " + "\n".join(problems[:40]))


if __name__ == "__main__":
    main()
