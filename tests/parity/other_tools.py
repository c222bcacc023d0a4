"""Recipes of other tools beside the tools' own code: the same rows must give the same token ids and labels, and the
first steps the same losses.

    python -m tests.parity.other_tools --plimsoll build/plimsoll [--only axolotl]

What each tool makes of the rows is asked of its installed package (scripts/requirements-other-tools.txt); the losses are
those of transformers' model with the tool's batches and optimizer, in fp32. A tool that is not installed is skipped and
said. The first label of a row is nobody's target and not compared.
"""
import argparse
import dataclasses
import importlib.machinery
import json
import pathlib
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
IGNORE = -100

ALPACA = [
    {"instruction": "Name a colour.", "input": "", "output": "Red is a colour."},
    {"instruction": "Add the numbers.", "input": "2 and 3", "output": " The sum is 5.\n"},
    {"instruction": "Say nothing new.\n", "input": "a line\nanother line", "output": "Nothing."},
    {"instruction": "Why?", "input": "", "output": "Because the sky is blue, the sea is, too. \u00e9\u00e8 \u4f60\u597d"},
]
CHATS = [
    {"messages": [{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": "Good day."}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"},
                  {"role": "assistant", "content": "\nWhy not?"}, {"role": "user", "content": " And now? "},
                  {"role": "assistant", "content": "Now is now. "}]},
]
TEXTS = [{"text": "One line of text."}, {"text": " Two lines\nof text. "}, {"text": "Three words here"}]
LONGER_TEXTS = TEXTS + [{"text": "A longer text goes on for more than one sequence, and then for some words more."}] + TEXTS[:2]
WITH_SYSTEM = [{"question": f"Why {i}?", "answer": f"Since {i}.", "rule": f"Rule {i}."} for i in range(3)]
PAIRS = [{"prompt": "The sky is", "completion": " blue."}, {"prompt": "A number: ", "completion": "7"},
         {"prompt": "word", "completion": "s and more words"}]


# --- the models ------------------------------------------------------------------------------------------

def make_models(folder):
    """Tiny models with the tokenizer of the demo; the same that make recipes takes."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from recipes_corpus import make_models as make
    make(folder, ROOT / "demo" / "model")
    config = folder / "llama2" / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "add_bos_token": True}))
    import torch
    from transformers import AutoModelForCausalLM, AutoConfig
    for model in folder.iterdir():
        torch.manual_seed(1)
        config = AutoConfig.from_pretrained(model)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(model)


def tokenizer_of(model):
    from transformers import PreTrainedTokenizerFast
    config = json.loads((model / "tokenizer_config.json").read_text())
    named = {k: v for k, v in config.items() if k.endswith("_token") and v}
    return PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"), chat_template=config["chat_template"], **named)


# --- what the tools make of rows -------------------------------------------------------------------------

def llama_factory(case, model):
    for name in ("torchaudio", "torchvision"):
        if name not in sys.modules:  # read for sounds and pictures only
            module = types.ModuleType(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
            sys.modules[name] = module
    if case["recipe"]["stage"] == "pt":
        yield from llama_factory_texts(case, tokenizer_of(model))
        return
    from llamafactory.data.processor.supervised import SupervisedDatasetProcessor
    from llamafactory.data.template import TEMPLATES
    tokenizer = tokenizer_of(model)
    # Those of models that see pictures ask for a processor, which does nothing to rows without any.
    template = dataclasses.replace(TEMPLATES[case["template"]], mm_plugin=TEMPLATES["default"].mm_plugin)
    arguments = types.SimpleNamespace(cutoff_len=case["length"], train_on_prompt=case.get("train_on_prompt", False),
                                      mask_history=False)
    processor = SupervisedDatasetProcessor(template=template, tokenizer=tokenizer, processor=None, data_args=arguments)
    for row in case["rows"]:
        if "messages" in row:
            messages = row["messages"]
            system = messages[0]["content"] if messages[0]["role"] == "system" else ""
            turns = [dict(m) for m in messages if m["role"] != "system"]
        else:
            query = [part for part in (row["instruction"], row.get("input")) if part]
            system, turns = "", [{"role": "user", "content": "\n".join(query)},
                                 {"role": "assistant", "content": row["output"]}]
        yield processor._encode_data_example(prompt=turns[:-1], response=turns[-1:], system=system, tools="", images=[],
                                             videos=[], audios=[])


def llama_factory_texts(case, tokenizer):
    from llamafactory.data.processor.pretrain import PretrainDatasetProcessor
    arguments = types.SimpleNamespace(cutoff_len=case["length"], template=case["template"], packing=case["joined"])
    processor = PretrainDatasetProcessor(template=None, tokenizer=tokenizer, processor=None, data_args=arguments)
    made = processor.preprocess_dataset({"_prompt": [[{"content": row["text"]}] for row in case["rows"]]})
    yield from ((ids, ids) for ids in made["input_ids"])


def axolotl_strategy(case, tokenizer, config):
    """(the strategy for a kind of rows, what makes its row of one of ours)"""
    from axolotl.prompt_strategies import chat_template, completion, load
    from axolotl.utils.chat_templates.base import get_chat_template
    entry, kind = case.get("entry") or {}, case["type"]
    if kind == "completion":
        field = entry.get("field") or "text"
        return completion.load(tokenizer, config, {"field": field}), lambda row: {field: [row[field]]}
    if kind == "user_defined":
        return load(kind, tokenizer, config, {k: v for k, v in entry["type"].items() if v is not None}), lambda row: row
    if kind.split(":")[0] in ("gpteacher", "oasst", "summarizetldr"):
        from axolotl import prompt_tokenizers, prompters
        base, _, style = kind.partition(":")
        made, tokenizing = {"gpteacher": ("GPTeacherPrompter", "GPTeacherPromptTokenizingStrategy"),
                            "oasst": ("AlpacaPrompter", "OpenAssistantPromptTokenizingStrategy"),
                            "summarizetldr": ("SummarizeTLDRPrompter", "SummarizeTLDRPromptTokenizingStrategy")}[base]
        prompter = getattr(prompters, made)(style or "instruct")
        return getattr(prompt_tokenizers, tokenizing)(prompter, tokenizer, config.train_on_inputs, config.sequence_len), lambda row: row
    if kind.split(":")[0] == "alpaca":
        from axolotl.prompt_tokenizers import AlpacaPromptTokenizingStrategy
        from axolotl.prompters import AlpacaPrompter
        style = kind.partition(":")[2] or "instruct"
        return AlpacaPromptTokenizingStrategy(AlpacaPrompter(style), tokenizer, config.train_on_inputs, config.sequence_len), lambda row: row
    if kind != "chat_template":
        return load(kind, tokenizer, config, {}), lambda row: row
    name = entry.get("chat_template") or case.get("chat_template") or "tokenizer_default"
    text = tokenizer.chat_template if name.startswith("tokenizer_default") else get_chat_template(name, case.get("jinja"))
    names = entry.get("message_property_mappings") or {
        "role": entry.get("message_field_role") or "role", "content": entry.get("message_field_content") or "content"}
    prompter = chat_template.ChatTemplatePrompter(tokenizer, chat_template=text, max_length=case["length"], roles=entry.get("roles"),
                                                  message_property_mappings=names,
                                                  field_messages=entry.get("field_messages") or "messages")
    return chat_template.ChatTemplateStrategy(
        prompter, tokenizer, config.train_on_inputs, case["length"], roles_to_train=entry.get("roles_to_train") or ["assistant"],
        train_on_eos=entry.get("train_on_eos") or "turn", eot_tokens=case.get("eot_tokens")), lambda row: row


def axolotl(case, model):
    if case["type"] is None:  # tokens that are ready
        yield from ((row["input_ids"], row["labels"]) for row in case["rows"])
        return
    from axolotl.utils.dict import DictDefault
    tokenizer = tokenizer_of(model)
    tokenizer.eos_token = case.get("eos_token") or tokenizer.eos_token
    config = DictDefault({"train_on_inputs": case.get("train_on_prompt", False), "sequence_len": case["length"]})
    strategy, row_of = axolotl_strategy(case, tokenizer, config)
    for row in case["rows"]:
        done = strategy.tokenize_prompt(row_of(row))
        if case["type"] == "completion":
            yield done["input_ids"][0], done["labels"][0]
        elif len(done["input_ids"]) <= case["length"]:
            yield done["input_ids"], done["labels"]


class HubTokenizer:
    """torchtune's TikTokenBaseTokenizer over a tokenizer.json: texts are encoded without special tokens."""

    def __init__(self, tokenizer, bos, eos):
        self.tokenizer, self.bos_id, self.eos_id = tokenizer, bos, eos

    encodes_whitespace = False

    def encode(self, text, add_bos=True, add_eos=True, **_):
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return ([self.bos_id] if add_bos else []) + ids + ([self.eos_id] if add_eos else [])


def torchtune_tokenizer(name, hub):
    """torchtune's tokenizer of a family over a tokenizer.json."""
    from torchtune.models import llama2, llama3, mistral, qwen2
    of = hub.convert_tokens_to_ids
    if name == "llama3":
        tokenizer = llama3.Llama3Tokenizer.__new__(llama3.Llama3Tokenizer)
        tokenizer.bos_id, tokenizer.eos_id = of("<|begin_of_text|>"), of("<|end_of_text|>")
        tokenizer.start_header_id, tokenizer.end_header_id = of("<|start_header_id|>"), of("<|end_header_id|>")
        tokenizer.eot_id = tokenizer.eom_id = of("<|eot_id|>")
        tokenizer.tt_model = HubTokenizer(hub, tokenizer.bos_id, tokenizer.eos_id)
        tokenizer.prompt_template = None
    elif name.startswith("qwen"):
        tokenizer = qwen2.Qwen2Tokenizer.__new__(qwen2.Qwen2Tokenizer)
        tokenizer.eos_id = tokenizer.im_end_id = of("<|im_end|>")
        tokenizer.im_start_id, tokenizer.bos_id = of("<|im_start|>"), None
        tokenizer.encode = HubTokenizer(hub, None, tokenizer.eos_id).encode
        tokenizer.prompt_template = None
    else:
        kind, tags = ((llama2.Llama2Tokenizer, llama2.Llama2ChatTemplate) if name == "llama2" else
                      (mistral.MistralTokenizer, mistral.MistralChatTemplate))
        tokenizer = kind.__new__(kind)
        tokenizer._spm_model = HubTokenizer(hub, hub.bos_token_id, hub.eos_token_id)
        tokenizer.prompt_template = tags()
    return tokenizer


def torchtune(case, model):
    from torchtune.data import AlpacaToMessages, Message
    limit = case["length"]
    tokenizer = torchtune_tokenizer(case["tokenizer"], tokenizer_of(model))
    tokenizer.max_seq_len = limit
    column = case.get("column", "text")
    if column in case["rows"][0]:
        for row in case["rows"]:
            ids = tokenizer.encode(text=row[column], add_bos=True, add_eos=True)
            ids = ids if limit is None else ids[:limit - 1]
            yield ids, list(ids)
        return
    transform = AlpacaToMessages(train_on_input=case.get("train_on_prompt", True))
    for row in case["rows"]:
        if "messages" in row:
            messages = [Message(role=m["role"], content=m["content"], masked=m["role"] != "assistant", eot=True)
                        for m in row["messages"]]
        else:
            messages = transform(row)["messages"]
        ids, mask = tokenizer.tokenize_messages(messages)
        yield ids, [IGNORE if hidden else i for i, hidden in zip(ids, mask)]


def trl(case, model):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer
    from transformers import AutoConfig, AutoModelForCausalLM
    tokenizer = tokenizer_of(model)
    net = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))  # its weights are not asked for
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = case.get("chat_template") or tokenizer.chat_template
    with tempfile.TemporaryDirectory() as out:
        config = SFTConfig(output_dir=out, max_length=case["length"], report_to=[], use_cpu=True, bf16=False,
                           **case.get("arguments", {}))
        trainer = SFTTrainer(net, args=config, processing_class=tokenizer,
                             train_dataset=Dataset.from_list(case["rows"]))
        for row in trainer.train_dataset:
            yield row["input_ids"], row["labels"]


# --- cases: the recipe as its tool reads it, and what its code is asked ------------------------------------

def lf(name, rows, model, template, length=64, **more):
    text = {"model_name_or_path": "", "stage": "sft", "do_train": True, "finetuning_type": "full", "dataset": "rows",
            "template": template, "cutoff_len": length, **{k: v for k, v in more.items() if k == "train_on_prompt"}}
    return {"tool": "llama_factory", "name": name, "rows": rows, "model": model, "recipe": text, "template": template,
            "length": length, **more}


def lf_texts(name, rows, model, template, length, joined):
    text = {"model_name_or_path": "", "stage": "pt", "do_train": True, "finetuning_type": "full", "dataset": "rows",
            "cutoff_len": length, **({} if joined else {"packing": False})}
    if template:
        text["template"] = template
    return {"tool": "llama_factory", "name": name, "rows": rows, "model": model, "recipe": text, "template": template,
            "length": length, "joined": joined}


def ax(name, rows, model, kind, length=96, **more):
    entry = {"path": "rows.jsonl", "type": kind, **more.get("entry", {})}
    if kind == "chat_template":
        entry["field_messages"] = "messages"
    text = {"base_model": "", "datasets": [entry], "sequence_len": length, "learning_rate": 1e-3,
            "optimizer": "adamw_torch", "train_on_inputs": more.get("train_on_prompt", False)}
    if "chat_template" in more:
        text["chat_template"] = more["chat_template"]
    return {"tool": "axolotl", "name": name, "rows": rows, "model": model, "recipe": text, "type": kind, "length": length,
            **more}


def tt(name, rows, model, tokenizer, length=None, component="alpaca_dataset", **more):
    data = {"_component_": f"torchtune.datasets.{component}", "source": "rows.jsonl"}
    if "train_on_prompt" in more:
        data["train_on_input"] = more["train_on_prompt"]
    if component == "chat_dataset":
        data["conversation_column"] = "messages"
    text = {"model": {"_component_": f"torchtune.models.{tokenizer}.{tokenizer}_8b"},
            "tokenizer": {"_component_": f"torchtune.models.{tokenizer}.{tokenizer}_tokenizer", "max_seq_len": length},
            "checkpointer": {"checkpoint_dir": ""}, "dataset": data, "batch_size": 4, "dtype": "fp32",
            "optimizer": {"_component_": "torch.optim.AdamW", "lr": 1e-3}}
    return {"tool": "torchtune", "name": name, "rows": rows, "model": model, "recipe": text, "tokenizer": tokenizer,
            "length": length, **more}


def tr(name, rows, model, length=64, arguments=None):
    text = {"model_name_or_path": "", "dataset_name": "rows.jsonl", "max_length": length, "learning_rate": 1e-3,
            "num_train_epochs": 1, **(arguments or {})}
    return {"tool": "trl", "name": name, "rows": rows, "model": model, "recipe": text, "length": length,
            "arguments": arguments or {}}


THREE, TWO = ("instruction", "input", "output"), ("instruction", "output")
SYSTEMS = [{**row, "system": "Be brief." if number % 3 else ""} for number, row in enumerate(ALPACA)]
ORCA = {"instruction": "question", "output": "response", "system": "system_prompt"}
# (type, rows, which of their columns, and what the type calls them)
NAMED_TYPES = [
    *((f"alpaca_w_system.{name}", SYSTEMS, (*THREE, "system"), {}) for name in ("load", "load_chat", "load_instruct")),
    *((f"alpaca_w_system.{name}", SYSTEMS, (*TWO, "system"), ORCA) for name in ("load_open_orca", "load_open_orca_chatml")),
    *((f"alpaca_{name}", ALPACA, THREE, {}) for name in ("chat.load_concise", "chat.load_no_prompt", "instruct.load", "instruct.load_no_prompt")),
    ("alpaca_chat.load_qa", ALPACA, TWO, {"instruction": "question", "output": "answer"}),
    ("alpaca_chat.load_camel_ai", ALPACA, TWO, {"instruction": "message_1", "output": "message_2"}),
    ("context_qa", ALPACA, THREE, {"instruction": "question", "input": "article", "output": "answer"}),
    ("context_qa.load_v2", ALPACA, THREE, {"instruction": "question", "input": "context", "output": "answer"}),
    ("gpteacher", ALPACA, THREE, {"output": "response"}), ("gpteacher:chat", ALPACA, THREE, {"output": "response"}),
    ("oasst", ALPACA, TWO, {"instruction": "INSTRUCTION", "output": "RESPONSE"}),
    ("summarizetldr", ALPACA, TWO, {"instruction": "article", "output": "summary"})]


CASES = [
    lf("alpaca rows, llama3", ALPACA, "llama3", "llama3"),
    lf("alpaca rows, qwen", ALPACA, "qwen2", "qwen"),
    lf("conversations, qwen3", CHATS, "qwen3", "qwen3"),
    lf("conversations, qwen3_nothink, cut", CHATS, "qwen3", "qwen3_nothink", length=24),
    lf("alpaca rows, mistral", ALPACA, "mistral", "mistral"),
    lf("alpaca rows, llama2, prompts", ALPACA, "llama2", "llama2", train_on_prompt=True),
    lf("conversations, default", CHATS, "llama2", "default"),
    lf("alpaca rows, vicuna", ALPACA, "llama2", "vicuna"),
    lf("alpaca rows, gemma's tags", ALPACA, "llama2", "gemma"),
    lf("alpaca rows, phi's tags", ALPACA, "llama2", "phi"),
    lf("alpaca rows, alpaca", ALPACA, "llama2", "alpaca"),
    lf("alpaca rows, empty", ALPACA, "llama2", "empty"),
    lf("conversations, zephyr", CHATS, "mistral", "zephyr"),
    lf("conversations, chatml", CHATS, "qwen2", "chatml"),
    lf("conversations, deepseek", CHATS, "llama2", "deepseek"),
    lf("conversations, phi4", CHATS, "llama2", "phi4"),
    lf("conversations, yi", CHATS, "llama2", "yi"),
    lf("conversations, deepseek3", CHATS, "llama2", "deepseek3"),
    *(lf(f"conversations, {name}", CHATS, "llama2", name, length=2048, losses=name == "gemma2")
      for name in ("breeze", "chatml_de", "deepseekcoder", "deepseekr1", "fewshot", "gemma2", "gemma3", "granite3", "granite4",
                   "llama2_zh", "llava", "mimo", "ministral", "ministral3", "mistral_small", "olmo", "openchat", "openchat-3.6",
                   "opencoder", "phi4_mini", "sailor", "seed_coder", "smollm2", "solar", "xuanyuan")),
    *(lf(f"conversations, {name}, cut to {length}", CHATS, "llama2", name, length=length, losses=False)
      for name, length in (("gemma2", 40), ("gemma2", 12), ("solar", 25), ("fewshot", 9))),
    *(lf_texts(f"texts, {model}, {'joined' if joined else 'apart'}", LONGER_TEXTS, model, template, 16, joined)
      for model, template in (("llama3", "llama3"), ("qwen2", None), ("llama2", "empty")) for joined in (True, False)),
    ax("alpaca rows", ALPACA, "llama3", "alpaca", length=160),
    *(ax(f"rows of its own format, {name}", rows, "llama2", "user_defined", length=160, entry={"type": kind})
      for name, rows, kind in (
          ("names alone", ALPACA, {"field_instruction": "instruction", "field_output": "output"}),
          ("formats", ALPACA, {"format": "[INST] {instruction}\n{input} {{}} [/INST]", "no_input_format": "[INST] {instruction} [/INST]",
                               "system_prompt": "Be \"brief\".", "system_format": "<<{system}>>\n"}),
          ("a system of the rows", WITH_SYSTEM, {"field_instruction": "question", "field_output": "answer",
                                                 "field_system": "rule", "format": "{instruction}", "no_input_format": "{instruction}"}))),
    *(ax(f"rows of axolotl's type {kind}", [{names.get(k, k): v for k, v in row.items() if k in keep} for row in rows], "llama2", kind,
         length=400, losses=kind == "alpaca_chat.load_qa")
      for kind, rows, keep, names in NAMED_TYPES),
    ax("alpaca rows that are too long go", ALPACA, "llama2", "alpaca", length=110),
    ax("alpaca rows, inputs", ALPACA, "qwen2", "alpaca", length=160, train_on_prompt=True),
    ax("completion", TEXTS, "llama3", "completion"),
    ax("conversations", CHATS, "qwen2", "chat_template", length=160),
    ax("conversations, llama", CHATS, "llama2", "chat_template", length=160),
    *(ax(f"conversations, {name}", CHATS[:1] if name == "gemma" else CHATS, "llama2", "chat_template", length=400,
         chat_template=name, losses=False)
      for name in ("deepseek_v2", "gemma", "gemma3", "metharme", "mistral_v1", "mistral_v2v3",
                   "mistral_v3_tekken", "phi_3", "phi_35", "qwen3", "qwen_25")),
    tt("alpaca rows, llama3", ALPACA, "llama3", "llama3"),
    tt("alpaca rows, llama3, answers, cut", ALPACA, "llama3", "llama3", length=110, train_on_prompt=False),
    tt("alpaca rows, qwen2", ALPACA, "qwen2", "qwen2"),
    tt("alpaca rows, qwen2, with a length", ALPACA, "qwen2", "qwen2", length=90, train_on_prompt=False),
    tt("texts, llama3", TEXTS, "llama3", "llama3", component="text_completion_dataset"),
    tr("texts", TEXTS, "llama3"),
    tr("conversations", CHATS, "qwen2"),
    tr("prompts and completions", PAIRS, "llama3"),
    tr("prompts and completions, cut", PAIRS, "qwen2", length=8),
]
TOOLS = {"llama_factory": llama_factory, "axolotl": axolotl, "torchtune": torchtune, "trl": trl}


# --- ours ------------------------------------------------------------------------------------------------

def write_recipe(case, folder, model):
    text = json.loads(json.dumps(case["recipe"]).replace('""', json.dumps(str(model)), 1))
    rows = case["rows"]
    if case["tool"] == "llama_factory":
        text["dataset_dir"] = str(folder)
        chat = "messages" in rows[0]
        texts = {"columns": {"prompt": "text"}} if "text" in rows[0] else {}
        entry = {"file_name": "rows.jsonl", **({"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": {
            "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
            "system_tag": "system"}} if chat else texts)}
        (folder / "dataset_info.json").write_text(json.dumps({"rows": entry}))
    if rows is PAIRS:
        text["data"] = {"columns": {"prompt": "prompt", "response": "completion"}}
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "recipe.json"
    path.write_text(json.dumps(text))
    return path


def run(plimsoll, *words):
    done = subprocess.run([str(plimsoll), *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def ours(plimsoll, case, folder, model):
    recipe = write_recipe(case, folder, model)
    lines = [json.loads(line) for line in run(plimsoll, "plan", recipe, "--dump", "rows").splitlines()]
    rows = [(line["ids"], line["labels"]) for line in lines if line["ids"]]
    if not case.get("joined"):
        return recipe, rows
    # The rows of the file in its order, cut as the loader cuts them; the first losses show what it did.
    ids = [token for row, _ in rows for token in row]
    begin = json.loads(run(plimsoll, "recipe", recipe, "--json"))["recipe"]["data"]["bos"] and tokenizer_start(model)
    blocks = [ids[at:at + case["length"]] for at in range(0, len(ids) - case["length"] + 1, case["length"])]
    blocks = [list(begin or []) + block[len(begin or []):] for block in blocks]
    return recipe, [(block, block) for block in blocks]


def tokenizer_start(model):
    return tokenizer_of(model)("")["input_ids"]


def losses_of(model, rows, steps):
    """AdamW over all rows at once, as every step's batch: the mean over the batch's targets."""
    import torch
    from transformers import AutoModelForCausalLM
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        total, count = 0.0, 0
        for ids, labels in rows:
            logits = net(torch.tensor([ids])).logits[0, :-1]
            target = torch.tensor(labels[1:])
            total = total + torch.nn.functional.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum")
            count += int((target != IGNORE).sum())
        loss = total / count
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return losses


def compare(plimsoll, case, model):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        recipe, mine = ours(plimsoll, case, folder, model)
        theirs = [(list(i), list(l)) for i, l in TOOLS[case["tool"]](case, model)]
        theirs = [row for row in theirs if any(x != IGNORE for x in row[1][1:])]
        mine = [row for row in mine if any(x != IGNORE for x in row[1][1:])]
        if [row[0] for row in mine] != [row[0] for row in theirs]:
            return f"ids differ: {mine} {theirs}", None
        if [row[1][1:] for row in mine] != [row[1][1:] for row in theirs]:
            return f"labels differ: {mine} {theirs}", None
        if not case.get("losses", True):
            return None, None
        output = folder / "run"
        run(plimsoll, "train", recipe, "--set", f"output={output}", "--set", "precision=fp32", "--set", "schedule.max_steps=3",
            "--set", f"batch.effective={len(theirs) if case.get('joined') else len(case['rows'])}", "--set", "batch.micro=1", "--set", "optimizer.name=adamw", "--set", "optimizer.lr=1e-3",
            "--set", "optimizer.weight_decay=0", "--set", "optimizer.max_grad_norm=1", "--set", "optimizer.eps=1e-8",
            "--set", "schedule.name=constant", "--set", "schedule.min_ratio=0", "--set", "schedule.warmup=0", "--set",
            "data.shuffle=false" if case.get("joined") else "data.packing=false", "--set", "save.every=0")
        measured = [json.loads(line)["loss"] for line in (output / "metrics.jsonl").read_text().splitlines()]
        expected = losses_of(model, theirs, len(measured))
        worst = max(abs(a - b) for a, b in zip(measured, expected))
        return (None if worst <= 1e-4 else f"losses {measured}, expected {expected}"), worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plimsoll", required=True, type=pathlib.Path)
    parser.add_argument("--only", help="a tool, or the name of a case")
    options = parser.parse_args()
    failed, missing, checked = 0, {}, {}
    with tempfile.TemporaryDirectory() as models:
        models = pathlib.Path(models)
        make_models(models)
        for case in CASES:
            if options.only and options.only not in (case["tool"], case["name"]) or case["tool"] in missing:
                continue
            try:
                problem, worst = compare(options.plimsoll, case, models / case["model"])
            except ImportError as error:
                missing[case["tool"]] = str(error).splitlines()[0]
                continue
            checked[case["tool"]] = checked.get(case["tool"], 0) + 1
            failed += problem is not None
            print(f"{'FAIL' if problem else 'ok  '} {case['tool']}: {case['name']}: " +
                  (problem or "ids and labels equal" + (f", losses within {worst:.1e}" if worst is not None else "")), flush=True)
    for tool, why in missing.items():
        print(f"skip {tool}: {why}")
    print(f"{sum(checked.values())} cases, {failed} failed: {checked}")
    return failed > 0 or not checked


if __name__ == "__main__":
    sys.exit(main())
