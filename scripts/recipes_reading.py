"""What training files of other tools ask for, read once more and apart from the program: make recipes compares the two.

A reading is (settings, case). `settings` are keys of ours with the values that the tool would have, its defaults
included; `case` says what tests/parity/other_tools.py has to ask of the tool's own code: which rows, which format of
them. Only PyYAML's values come in here; nothing of src/ does.
"""
ALPACA = [{"instruction": f"Name the number {i}.", "input": f"a hint {i}" if i % 2 else "", "output": f"The number is {i}."}
          for i in range(8)]
CHATS = [{"messages": [{"role": "user", "content": f"Name the number {i}."}, {"role": "assistant", "content": f"It is {i}."}]
          + ([{"role": "user", "content": "And now?"}, {"role": "assistant", "content": "The same."}] if i % 2 else [])}
         for i in range(8)]
TEXTS = [{"text": f"The number {i} stands here for itself."} for i in range(8)]


def number(value, usual=None):
    if value is None or value == "":
        return usual
    return float(str(value).replace("_", ""))


def whole(value, usual=None):
    value = number(value, usual)
    return None if value is None else int(value)


def yes(value):
    return value is True or str(value).lower() in ("true", "yes", "on", "auto", "full", "1")


def processes(c):
    """Of all machines; those that hold one model together are one."""
    each = whole(c.get("nproc_per_node"))
    count = each * whole(c.get("nnodes"), 1) if each else whole(c.get("world_size") or c.get("num_processes"), 1)
    for key in ("tensor_parallel_size", "context_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size"):
        count //= whole(c.get(key), 1) if count > 1 else 1
    return count


def renamed(rows, names):
    return [{names.get(k, k): v for k, v in row.items()} for row in rows]


# --- what HF's trainer decides (LLaMA-Factory and TRL) ---------------------------------------------------

def schedule(name, ratio, steps):
    if name == "constant":
        return {"schedule.name": "constant", "schedule.warmup": 0}
    name = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}.get(name, name)
    steps, ratio = number(steps, 0), number(ratio, 0)
    if 0 < steps < 1:
        steps, ratio = 0, steps
    return {"schedule.name": name, "schedule.warmup": int(steps) if steps else f"{100 * ratio:g}%" if ratio else 0}


def optimizer(name, usual):
    name = str(name or usual)
    if "8bit" in name:
        return "adamw8bit"
    return {"adafactor": "adafactor", "sgd": "sgd"}.get(name, "lion" if "lion" in name else "adamw")


def trainer(c, lr):
    out = {"batch.effective": whole(c.get("per_device_train_batch_size"), 8) * whole(c.get("gradient_accumulation_steps"), 1)
           * processes(c), "save.keep": whole(c.get("save_total_limit")) or "all",
           "optimizer.lr": number(c.get("learning_rate"), lr), "optimizer.name": optimizer(c.get("optim"), "adamw_torch"),
           "optimizer.weight_decay": number(c.get("weight_decay"), 0.0), "optimizer.max_grad_norm":
           number(c.get("max_grad_norm"), 1.0), "schedule.epochs": number(c.get("num_train_epochs"), 3),
           **schedule(c.get("lr_scheduler_type") or "linear", c.get("warmup_ratio"), c.get("warmup_steps"))}
    if whole(c.get("max_steps"), -1) > 0:
        out["schedule.max_steps"] = whole(c["max_steps"])
    return out


# --- LLaMA-Factory (0.9.5: hparams/, data/template.py) -----------------------------------------------------

def llama_factory(c):
    method = c.get("finetuning_type") or "lora"
    four = whole(c.get("quantization_bit"), 0) == 4
    stage = c.get("stage", "sft")
    joined = stage == "pt" and c.get("packing") in (None, True)
    out = {**trainer(c, 5e-5), "task": {"pt": "pretrain", "rm": "reward", "dpo": "dpo"}.get(stage, "sft"), "data.max_length":
           whole(c.get("cutoff_len"), 2048), "data.truncation": "right", "data.train_on_prompt":
           yes(c.get("train_on_prompt")), "data.packing": "joined" if joined else yes(c.get("neat_packing")), "method.type":
           "qlora" if four else method}
    if method == "lora":
        rank = whole(c.get("lora_rank"), 8)
        targets = [t.strip() for t in str(c.get("lora_target", "all")).split(",")]
        out.update({"method.r": rank, "method.alpha": number(c.get("lora_alpha"), 2 * rank), "method.dropout":
                    0.0 if stage == "dpo" else number(c.get("lora_dropout"), 0.0), "method.targets":
                    "all-linear" if targets == ["all"] else targets})
    out["precision"] = ("fp16" if yes(c.get("fp16")) else "bf16" if method == "lora" else "bf16-pure" if yes(c.get("pure_bf16")) else
                        "bf16-master" if yes(c.get("bf16")) else "fp32")
    out["data.template"] = f"llama-factory/{c['template']}" if c.get("template") and stage != "pt" else "llama-factory" if stage == "sft" else None
    return out, {"tool": "llama_factory", "template": c.get("template", "empty"), "rows": ALPACA, "length":
                 out["data.max_length"], "train_on_prompt": out["data.train_on_prompt"]}


# --- axolotl (0.19.0: utils/schemas/, core/builders/) ------------------------------------------------------

def axolotl_rows(entry):
    kind = entry.get("type")
    if isinstance(kind, dict):
        names = {k: kind.get(f"field_{k}") or k for k in ("instruction", "input", "output")}
        return "user_defined", renamed(ALPACA, names)
    if kind == "completion":
        return kind, renamed(TEXTS, {"text": entry.get("field") or "text"})
    if kind == "chat_template":
        names = entry.get("message_property_mappings") or {}
        role = names.get("role") or entry.get("message_field_role") or "role"
        content = names.get("content") or entry.get("message_field_content") or "content"
        rows = [{entry.get("field_messages") or "messages": renamed(row["messages"], {"role": role, "content": content})}
                for row in CHATS]
        return kind, rows
    return kind, ALPACA if kind else [{"input_ids": [5, 6, 7 + i], "labels": [-100, 6, 7 + i]} for i in range(8)]


def axolotl(c):
    adapter = c.get("adapter") if c.get("adapter") in ("lora", "qlora") else None
    micro, times = whole(c.get("micro_batch_size"), 1), whole(c.get("gradient_accumulation_steps"), 1)
    out = {"data.max_length": whole(c.get("sequence_len"), 512), "batch.effective": (whole(c.get("batch_size")) or micro * times) * processes(c),
           "save.keep": whole(c.get("save_total_limit")) or 4,
           "optimizer.lr": number(c.get("learning_rate")), "optimizer.name": optimizer(c.get("optimizer"), "adamw_torch"),
           "optimizer.weight_decay": number(c.get("weight_decay"), 0.0), "optimizer.max_grad_norm":
           number(c.get("max_grad_norm"), 1.0), "schedule.epochs": number(c.get("num_epochs"), 1),
           "data.packing": yes(c.get("sample_packing")), "data.train_on_prompt": yes(c.get("train_on_inputs")),
           "method.type": ("qlora" if yes(c.get("load_in_4bit")) else adapter) if adapter else "full"}
    name = c.get("lr_scheduler") or "cosine"
    out["schedule.name"] = {"constant_with_warmup": "constant"}.get(name, name)
    if name != "constant":
        steps = whole(c.get("warmup_steps"))
        ratio = number(c.get("warmup_ratio"))
        out["schedule.warmup"] = ((2 if steps == 1 else steps) if steps else f"axolotl {100 * ratio:g}%" if ratio else
                                  0 if steps == 0 or ratio == 0 else "axolotl")
    if whole(c.get("max_steps"), 0) > 0:
        out["schedule.max_steps"] = whole(c["max_steps"])
    if adapter:
        targets = c.get("lora_target_modules")
        targets = [targets] if isinstance(targets, str) else targets
        out.update({"method.r": whole(c.get("lora_r")), "method.alpha": number(c.get("lora_alpha")), "method.dropout":
                    number(c.get("lora_dropout"), 0.0), "method.targets":
                    "all-linear" if yes(c.get("lora_target_linear")) else targets or ["q_proj", "v_proj"], "precision": "bf16"})
        if yes(c.get("fp16")):
            out["precision"] = "fp16"
    elif yes(c.get("bfloat16", c.get("bf16", "auto"))) and not yes(c.get("fp16")):
        eight = out["optimizer.name"] in ("adamw8bit", "adafactor")
        out["precision"] = {"weights": "bf16", "gradients": "bf16", "states": "fp32", "master": False, "rounding":
                            "stochastic"} if eight else "bf16-pure"
    entries = c.get("datasets") or [{}]
    kind, rows = axolotl_rows(entries[0])
    out["data.truncation"] = ("refuse" if kind == "completion" else
                              {"truncate": "right", "raise": "refuse"}.get(c.get("excess_length_strategy"), "drop"))
    if any(axolotl_rows(e)[0] != kind for e in entries):
        return out, None
    return out, {"tool": "axolotl", "type": kind, "rows": rows, "length": out["data.max_length"], "entry": entries[0],
                 "train_on_prompt": out["data.train_on_prompt"], "chat_template": c.get("chat_template"), "eot_tokens":
                 c.get("eot_tokens"), "jinja": c.get("chat_template_jinja"), "eos_token":
                 (c.get("special_tokens") or {}).get("eos_token")}


# --- torchtune (0.6.1: recipes/, datasets/, models/) -------------------------------------------------------

def torchtune(c):
    model, data, tokenizer = c["model"], c["dataset"], c.get("tokenizer") or {}
    builder = model["_component_"].rsplit(".", 1)[-1]
    method = "qlora" if builder.startswith("qlora") or yes(model.get("quantize_base")) else "lora" if "lora" in builder else "full"
    optim = c["optimizer"]
    kind = data["_component_"].rsplit(".", 1)[-1]
    length = tokenizer.get("max_seq_len")
    text = kind == "text_completion_dataset"
    out = {"method.type": method, "batch.effective": whole(c["batch_size"]) * whole(c.get("gradient_accumulation_steps"), 1) * processes(c),
           "optimizer.lr": number(optim.get("lr"), 1e-3), "optimizer.name": optimizer(optim["_component_"].rsplit(".", 1)[-1].lower(), ""),
           "optimizer.weight_decay": number(optim.get("weight_decay"), 0.01), "optimizer.max_grad_norm":
           number(c.get("clip_grad_norm"), 0.0), "data.max_length": None if length is None else whole(length) - text,
           "data.packing": yes(data.get("packed")), "data.train_on_prompt":
           yes(data.get("train_on_input", kind.startswith("alpaca"))), "schedule.epochs": number(c.get("epochs"), 1)}
    rate = c.get("lr_scheduler")
    out["schedule.name"] = "cosine" if rate else "constant"
    out["schedule.warmup"] = whole(rate.get("num_warmup_steps"), 0) if rate else 0
    if c.get("max_steps_per_epoch"):
        out["schedule.max_steps"] = whole(c["max_steps_per_epoch"])
    if method != "full":
        names = [{"output_proj": "o_proj"}.get(n, n) for n in model["lora_attn_modules"]]
        names += ["gate_proj", "up_proj", "down_proj"] if yes(model.get("apply_lora_to_mlp")) else []
        out.update({"method.r": whole(model.get("lora_rank"), 8), "method.alpha": number(model.get("lora_alpha"), 16),
                    "method.dropout": number(model.get("lora_dropout"), 0.0), "method.targets": names})
    if c.get("dtype") == "bf16":
        eight = out["optimizer.name"] in ("adamw8bit", "adafactor")
        out["precision"] = "bf16" if method != "full" else {"weights": "bf16", "gradients": "bf16", "states": "fp32", "master":
                                                            False, "rounding": "stochastic"} if eight else "bf16-pure"
    rows = renamed(TEXTS, {"text": data.get("column") or "text"}) if text else ALPACA
    known = kind in ("alpaca_dataset", "alpaca_cleaned_dataset", "text_completion_dataset")
    name = (tokenizer.get("_component_") or "").rsplit(".", 1)[-1].replace("_tokenizer", "")
    return out, {"tool": "torchtune", "rows": rows, "length": length, "tokenizer": name, "train_on_prompt":
                 out["data.train_on_prompt"], "prompt_template": tokenizer.get("prompt_template"), "column":
                 data.get("column") or "text"} if known else None


# --- TRL and the alignment-handbook (1.16.0: trainer/sft_config.py, trainer/base_config.py) ----------------

def trl(c):
    peft = yes(c.get("use_peft"))
    scripts = not peft and any(k in c for k in ("task_name", "train_file", "max_source_length", "max_target_length", "do_train"))
    out = {**trainer(c, 5e-5 if scripts else 2e-5), "data.max_length": whole(c.get("max_length", c.get("max_seq_length", 1024))), "data.packing":
           yes(c.get("packing", "dataset_mixer" in c)), "method.type": "full"}
    if peft:
        targets = c.get("lora_target_modules")
        targets = [targets] if isinstance(targets, str) else targets
        out.update({"method.type": "qlora" if yes(c.get("load_in_4bit")) else "lora", "method.r": whole(c.get("lora_r"), 16),
                    "method.alpha": number(c.get("lora_alpha"), 32), "method.dropout": number(c.get("lora_dropout"), 0.05),
                    "method.targets": "all-linear" if targets == ["all-linear"] else targets or ["q_proj", "v_proj"]})
    kind = str(c.get("dtype") or c.get("torch_dtype") or "")
    mixed = not scripts if c.get("bf16") is None else yes(c.get("bf16"))
    eight = out["optimizer.name"] in ("adamw8bit", "adafactor")
    parts = {"weights": "bf16", "gradients": "bf16", "states": "fp32", "master": False, "rounding": "stochastic"}
    out["precision"] = "bf16" if peft else (parts if eight else "bf16-pure") if "bfloat16" in kind else "bf16-master" if mixed else "fp32"
    text = c.get("dataset_text_field")
    rows = renamed(TEXTS, {"text": text}) if text else CHATS
    out["data.train_on_prompt"] = "messages" if not yes(c.get("assistant_only_loss")) else False
    return out, {"tool": "trl", "rows": rows, "length": out["data.max_length"], "chat_template": c.get("chat_template"),
                 "arguments": {k: c[k] for k in ("assistant_only_loss", "completion_only_loss", "dataset_text_field") if k in c}}


READERS = {"llama_factory": llama_factory, "axolotl": axolotl, "torchtune": torchtune, "trl": trl}


def same(found, wanted):
    found = 0 if found == "0%" else found
    if isinstance(wanted, float) or isinstance(found, float):
        return isinstance(found, (int, float)) and abs(found - wanted) <= 1e-9 * max(1.0, abs(wanted))
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(found.get(k) == v for k, v in wanted.items())
    return found == wanted


def differences(settings, recipe):
    """["optimizer.lr: 0.1, expected 0.2", ...]"""
    out = []
    for key, wanted in settings.items():
        if wanted is None and key != "data.max_length":
            continue
        found = recipe
        for part in key.split("."):
            found = found[part] if isinstance(found, dict) and part in found else None
        if not same(found, wanted):
            out.append(f"{key}: {found}, expected {wanted}")
    return out
