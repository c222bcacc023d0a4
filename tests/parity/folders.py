"""Folders that other tools wrote, read as they read them or refused by name: `make parity`.

    python -m tests.parity.folders --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

nf4        folders that transformers and bitsandbytes wrote in 4 bits: with modules that stay whole (llm_int8_skip_modules, T5's
           wo), and classifiers whose head is in 4 bits; and T5s in 16 bits as transformers loads them in 4. Logits, loss, and
           beside an adapter every gradient, through `plimsoll debug-dump`.
int8       every weight that bitsandbytes' int8_vectorwise_quant made of a model's, in float32 and in bfloat16, in a folder: the same
           trained adapter, byte for byte, as over the plain folder that Plimsoll quantises itself.
start      adapters by every init_lora_weights that PEFT has here: `plimsoll merge` gives PEFT's model, or refuses.
keys       each key of PEFT's LoraConfig at a value that is not its default: likewise.
targets    adapters that Plimsoll wrote by its default targets, loaded by PEFT: the losses that Plimsoll has.
"""
import dataclasses
import json
import subprocess

import bitsandbytes
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file as load_tensors, save_file
from transformers import (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, BertConfig, MT5Config,
                          RobertaConfig, T5Config)

from tests.parity import gla, oracle, scores, seq2seq
from tests.parity.cases import CASES
from tests.parity.compare import compare_fp32, compare_losses, relative_error
from tests.parity.oracle import SEED, write_json
from tests.parity.run import load_file, plimsoll
from tests.parity.runs import run_all

LIMIT = 1e-4  # of logits
REFUSED = 2   # exit code


def run_program(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)


# ---- weights in 4 bits

T5_WHOLE = {**seq2seq.SHAPE, "d_model": 64, "d_ff": 128}  # rows that NF4's blocks of 64 divide
ENCODER_WHOLE = {**scores.ENCODER, "intermediate_size": 192}


@dataclasses.dataclass(frozen=True)
class Stored:
    config: object
    auto: object = AutoModelForCausalLM
    skipped: tuple = None  # llm_int8_skip_modules; None: transformers' own choice
    plain: bool = False    # Plimsoll reads the folder in 32 bits, and quantises it itself


def whole(name):
    return oracle.with_whole_blocks(CASES[name]).config


def labelled(config, **changes):
    return config(**ENCODER_WHOLE, num_labels=3, pad_token_id=0, **changes)


STORED = {
    "llama": Stored(whole("llama")),
    "llama_down": Stored(whole("llama"), skipped=("lm_head", "down_proj")),
    "llama_one": Stored(whole("llama"), skipped=("lm_head", "model.layers.1.self_attn.q_proj")),
    "llama_block": Stored(whole("llama"), skipped=("lm_head", "model.layers.0")),
    "llama_head_too": Stored(whole("llama"), skipped=()),
    "qwen3_one": Stored(whole("qwen3"), skipped=("lm_head", "layers.0.mlp.up_proj")),
    "t5": Stored(T5Config(**T5_WHOLE), AutoModelForSeq2SeqLM),
    "mt5": Stored(MT5Config(**T5_WHOLE), AutoModelForSeq2SeqLM),
    "t5_one": Stored(T5Config(**T5_WHOLE), AutoModelForSeq2SeqLM, ("lm_head", "encoder.block.0.layer.0.SelfAttention.q")),
    "t5_plain": Stored(T5Config(**T5_WHOLE), AutoModelForSeq2SeqLM, plain=True),
    "mt5_plain": Stored(MT5Config(**T5_WHOLE), AutoModelForSeq2SeqLM, plain=True),
    "bert": Stored(labelled(BertConfig), AutoModelForSequenceClassification, ()),
    "bert_one": Stored(labelled(BertConfig), AutoModelForSequenceClassification, ("bert.encoder.layer.0.attention.self.query",)),
    "roberta": Stored(labelled(RobertaConfig, type_vocab_size=1, layer_norm_eps=1e-5), AutoModelForSequenceClassification, ()),
}


def make_plain(stored, folder):
    if stored.auto is AutoModelForSeq2SeqLM:
        seq2seq.make_model(seq2seq.Case("made", stored.config), folder)
    else:
        oracle.write_random_model(dataclasses.replace(CASES["llama"], config=stored.config), folder, stored.auto, stored.config)


def load_nf4(stored, folder, adapter=None):
    quantisation = oracle.nf4_config(torch.float32)
    if stored.skipped is not None:
        quantisation.llm_int8_skip_modules = list(stored.skipped)
    model = stored.auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", quantization_config=quantisation)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    return model.train()


def make_adapter(stored, folder, task_type, to):
    torch.manual_seed(SEED + 1)
    targets = "all-linear" if stored.auto is AutoModelForCausalLM else ["q", "k", "v", "o", "wo"]
    model = get_peft_model(load_nf4(stored, folder), LoraConfig(task_type=task_type, target_modules=targets, r=4, lora_alpha=8))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.1)
    model.save_pretrained(to)


def nf4_batch(stored, folder):
    """(the batch, its forward pass: logits and loss)"""
    if stored.auto is AutoModelForSeq2SeqLM:
        return seq2seq.write_pairs(folder)[0], seq2seq.forward
    if stored.auto is AutoModelForSequenceClassification:
        case = dataclasses.replace(scores.ENCODERS["bert"], config=stored.config)
        task = scores.TASKS["one_of"]
        batch = scores.write_samples(case, task, folder)[0]

        def forward(model, samples):
            told = scores.scores_of(model, samples)
            return told, scores.loss_of(task, told, samples)
        return batch, forward
    batch = oracle.make_batch(CASES["llama"], CASES["llama"].lengths, SEED + 3)
    write_json(folder / "batch.json", {"sequences": batch, "prompts": []})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in batch))
    return batch, lambda model, rows: (lambda made: (made[0], made[1] / oracle.target_count(rows)))(oracle.forward(model, rows))


def nf4_recipe(stored, folder, model, adapter):
    recipe = {"model": model, "precision": "fp32", "output": "run", "method": {"type": "qlora", "r": 4, "alpha": 8},
              "data": {"train": "train.jsonl", "shuffle": False, "max_length": 64}, "batch": {"effective": 4, "micro": 2},
              "schedule": {"max_steps": 1}}
    if stored.auto is AutoModelForSeq2SeqLM:
        recipe |= {"task": "seq2seq"}
        recipe["data"] |= {"format": "input-ids", "max_length": {"source": 40, "target": 25}}
    elif stored.auto is AutoModelForSequenceClassification:
        recipe |= {"task": "classify"}
    else:
        recipe["data"] |= {"format": "input-ids"}
    if adapter:
        recipe |= {"adapter": "adapter"}
    path = folder / "fp32.json"
    write_json(path, recipe)
    return path


def check_nf4(program, folder, name):
    stored = STORED[name]
    folder.mkdir(parents=True, exist_ok=True)
    make_plain(stored, folder / "model")
    load_nf4(stored, folder / "model").save_pretrained(folder / "model_nf4")
    adapter = stored.auto is not AutoModelForSequenceClassification
    if adapter:
        task_type = "CAUSAL_LM" if stored.auto is AutoModelForCausalLM else "SEQ_2_SEQ_LM"
        make_adapter(stored, folder / "model", task_type, folder / "adapter")
    batch, forward = nf4_batch(stored, folder)
    model = load_nf4(stored, folder / "model", folder / "adapter" if adapter else None)
    logits, loss = forward(model, batch)
    theirs = {"logits": logits.detach().float().contiguous()}
    if adapter:
        loss.backward()
        theirs |= {f"grad.{oracle.checkpoint_name(name)}": p.grad.float().contiguous() for name, p in model.named_parameters()
                   if p.requires_grad}
    save_file(theirs, folder / "expected.safetensors")
    recipe = nf4_recipe(stored, folder, "model" if stored.plain else "model_nf4", adapter)
    out = folder / "ours.safetensors"
    plimsoll(program, "debug-dump", recipe, "--ids", folder / "batch.json", "--out", out)
    ours = load_file(out)
    our_loss = float(ours.pop("loss").reshape(()))
    if not adapter:
        ours = {"logits": ours["logits"]}
    messages, worst = compare_fp32(ours, load_file(folder / "expected.safetensors"))
    messages += compare_losses([our_loss], [loss.item()])[0]
    # What is planned is what is held, also of such a folder.
    plimsoll(program, "train", recipe)
    done = json.loads((folder / "run" / "run.json").read_text())
    if done["planned"]["device_arena_bytes"] != done["measured"]["device_arena_bytes"]:
        messages.append("planned and held bytes differ")
    # config.json alone says the same bytes.
    planned = json.loads(plimsoll(program, "plan", recipe, "--json", "--no-probe"))["device"]["arena_bytes"]
    weights = folder / ("model" if stored.plain else "model_nf4") / "model.safetensors"
    weights.rename(folder / "away.safetensors")
    alone = json.loads(plimsoll(program, "plan", recipe, "--json", "--no-probe"))["device"]["arena_bytes"]
    if planned != alone:
        messages.append(f"with the weights {planned} bytes are planned, with config.json alone {alone}")
    return messages, f"tensors {worst:.1e}"


# ---- weights in 8 bits

def check_int8(program, folder, name):
    stored = STORED["llama"]
    folder.mkdir(parents=True, exist_ok=True)
    make_plain(stored, folder / "model")
    tensors = {key: value.to(getattr(torch, name)) for key, value in load_tensors(folder / "model" / "model.safetensors").items()}
    save_file(tensors, folder / "model" / "model.safetensors", {"format": "pt"})
    (folder / "model_int8").mkdir(exist_ok=True)
    quantised = {}
    for key, value in tensors.items():
        if ".layers." not in key or value.dim() != 2:
            quantised[key] = value
            continue
        codes, largest, _ = bitsandbytes.functional.int8_vectorwise_quant(value.half())
        module = key.removesuffix(".weight")
        quantised |= {key: codes, f"{module}.SCB": largest, f"{module}.weight_format": torch.tensor(0, dtype=torch.uint8)}
    save_file(quantised, folder / "model_int8" / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "model" / "config.json").read_text())
    write_json(folder / "model_int8" / "config.json",
               config | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}})
    nf4_batch(stored, folder)  # the rows
    found = []
    for model in ("model", "model_int8"):
        recipe = json.loads(nf4_recipe(stored, folder, model, False).read_text()) | {"output": f"over {model}", "schedule": {"max_steps": 3, "warmup": 0}}
        recipe["method"] |= {"bits": 8}
        write_json(folder / f"{model}.json", recipe)
        plimsoll(program, "train", folder / f"{model}.json")
        found.append((folder / f"over {model}" / "adapter_model.safetensors").read_bytes())
    codes = sum(value.numel() for value in quantised.values() if value.dtype == torch.int8)
    return [] if found[0] == found[1] else ["the adapters over the plain and the quantised folder differ"], f"{codes} codes"


# ---- PEFT's folders

STARTS = (True, False, "gaussian", "orthogonal", "eva", "pissa", "pissa_niter_4", "olora", "loftq", "mica", "corda", "lora_ga")
PLAIN_STARTS = (True, False, "gaussian", "orthogonal", "eva")
TARGETS = ["q_proj", "v_proj", "down_proj"]


def base_of(folder):
    oracle.make_model(CASES["llama"], folder / "model")
    return AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager")


def logits_of(model, ids):
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].float().numpy()


IDS = list(range(3, 60, 2))


def merged_like_peft(program, folder):
    """(messages, summary): the adapter merged by both."""
    done = run_program(program, "merge", folder / "adapter", "--base", folder / "model", "--out", folder / "merged")
    if done.returncode:
        return [f"merge ended with {done.returncode}: {done.stderr.strip()}"], "no result"
    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager")
    theirs = logits_of(PeftModel.from_pretrained(base, folder / "adapter"), IDS)
    ours = logits_of(AutoModelForCausalLM.from_pretrained(folder / "merged", dtype=torch.float32, attn_implementation="eager"), IDS)
    error = relative_error(ours, theirs)
    return [f"the merged model is off by {error:.1e}"] if error > LIMIT else [], f"merged {error:.1e}"


def refused(program, folder, word):
    done = run_program(program, "merge", folder / "adapter", "--base", folder / "model", "--out", folder / "refused")
    if done.returncode != REFUSED or word not in done.stderr:
        return [f"not refused by {word}: exit code {done.returncode}, {done.stderr.strip()}"], "no result"
    return [], "refused by name"


def write_plain_adapter(folder, start=True):
    torch.manual_seed(SEED + 1)
    made = start if start in PLAIN_STARTS + ("pissa", "pissa_niter_4", "olora", "mica") else True
    model = get_peft_model(base_of(folder), LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=TARGETS,
                                                       init_lora_weights=made))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder / "adapter")


def change_config(folder, **changes):
    file = folder / "adapter" / "adapter_config.json"
    write_json(file, json.loads(file.read_text()) | changes)


def check_start(program, folder, name):
    start = next(start for start in STARTS if str(start) == name)
    write_plain_adapter(folder, start)
    change_config(folder, init_lora_weights=start)
    return merged_like_peft(program, folder) if start in PLAIN_STARTS else refused(program, folder, "init_lora_weights")


# A value of each key that is not its default. Of what changes nothing, PEFT's own model is the expectation.
SAME = {"auto_mapping": {"base_model_class": "LlamaForCausalLM", "parent_library": "transformers"}, "peft_version": "0.1.0",
        "base_model_name_or_path": "elsewhere", "revision": "main", "inference_mode": False, "lora_dropout": 0.25,
        "use_rslora": True, "rank_pattern": {}, "alpha_pattern": {"q_proj": 3}, "layers_pattern": None, "megatron_core": "other",
        "loftq_config": {"loftq_bits": 4}, "eva_config": {"rho": 2.0}, "qalora_group_size": 8, "task_type": None,
        "corda_config": {"corda_method": "kpm"}, "lora_ga_config": {"direction": "ArB2r"}, "lora_alpha": 3, "fan_in_fan_out": True}
OTHER = {"bias": "all", "lora_bias": True, "exclude_modules": ["v_proj"], "trainable_token_indices": [1], "target_parameters": ["w"],
         "layer_replication": [[0, 1]], "megatron_config": {"a": 1}, "alora_invocation_tokens": [5, 6], "use_qalora": True,
         "velora_config": {"a": 1}, "monteclora_config": {"a": 1}, "arrow_config": {"top_k": 1}, "use_bdlora": {"nblocks": 2},
         "kasa_config": {"beta": 1e-4}, "a_key_of_tomorrow": {"on": 1}, "another": 0.5, "target_modules": ".*q_proj"}
# Decided by other runs: the size, the tensors, the start; never saved.
ELSEWHERE = {"peft_type", "r", "modules_to_save", "init_lora_weights", "layers_to_transform", "use_dora", "ensure_weight_tying",
             "runtime_config"}


def check_keys(program, folder, _):
    folder.mkdir(parents=True)
    write_plain_adapter(folder)
    whole_config = (folder / "adapter" / "adapter_config.json").read_text()
    fields = {field.name for field in dataclasses.fields(LoraConfig)}
    messages = [f"a key of PEFT's that no run here tries: {key}" for key in sorted(fields - set(SAME) - set(OTHER) - ELSEWHERE)]
    for key, value in (SAME | OTHER).items():
        (folder / "adapter" / "adapter_config.json").write_text(whole_config)
        change_config(folder, **{key: value})
        found, _ = refused(program, folder, f"'{key}'") if key in OTHER else merged_like_peft(program, folder)
        messages += [f"{key}: {message}" for message in found]
        if (folder / "merged").exists():
            subprocess.run(["rm", "-r", folder / "merged"], check=True)
    return messages, f"{len(SAME)} keys change nothing or what PEFT changes, {len(OTHER)} refused"


# ---- adapters of Plimsoll's, by its default targets

TARGET_RUNS = {"gla": {}, "gla_dora": {"dora": True}, "gla_classes": {}, "gla_classes_dora": {"dora": True}}


def check_targets(program, folder, name):
    """PEFT loads the folder, and the loss of the trained adapter is that of `plimsoll eval`."""
    gla.use_plain_forms()
    classes = "classes" in name
    case = gla.CASES[0]
    folder.mkdir(parents=True)
    task = scores.TASKS["one_of" if classes else "reward"]
    recipe = {"model": "model", "precision": "fp32", "output": "run", "data": {"train": "train.jsonl", "max_length": 80},
              "method": {"type": "lora", "r": 4, "alpha": 8, **TARGET_RUNS[name]}, "batch": {"effective": 4, "micro": 2},
              "optimizer": {"lr": 1e-2}, "schedule": {"max_steps": 2, "warmup": 0}}
    if classes:
        case = scores.CASES["gla"]
        scores.make_model(case, task, folder / "model")
        batch = scores.write_samples(case, task, folder)[0]
        recipe |= {"task": "classify"}
    else:
        oracle.make_model(case, folder / "model")
        batch = oracle.make_batch(case, (17, 9, 33, 2), SEED + 3)
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in batch))
        write_json(folder / "batch.json", {"sequences": batch, "prompts": []})
        recipe["data"] |= {"format": "input-ids"}
    write_json(folder / "recipe.json", recipe)
    plimsoll(program, "train", folder / "recipe.json")
    targets = json.loads((folder / "run" / "adapter_config.json").read_text())["target_modules"]
    messages = [] if {"gk_proj.0", "gk_proj.1"} <= set(targets) else [f"target_modules are {targets}"]
    write_json(folder / "again.json", recipe | {"adapter": "run", "output": "again"})
    plimsoll(program, "debug-dump", folder / "again.json", "--ids", folder / "batch.json", "--out", folder / "ours.safetensors")
    ours = load_file(folder / "ours.safetensors")["logits"]
    base = scores.load(task, folder / "model") if classes else oracle.load(folder / "model")
    model = PeftModel.from_pretrained(base, folder / "run").train()
    with torch.no_grad():
        theirs = scores.scores_of(model, batch) if classes else oracle.forward(model, batch)[0]
    error = relative_error(ours, theirs.float().numpy())
    return messages + ([f"logits are off by {error:.1e}"] if error > LIMIT else []), f"loaded by PEFT, logits {error:.1e}"


CHECKS = {"nf4": check_nf4, "int8": check_int8, "start": check_start, "keys": check_keys, "targets": check_targets}
RUNS = ([("nf4", name) for name in STORED] + [("int8", name) for name in ("float32", "bfloat16")] + [("start", str(start)) for start in STARTS] + [("keys", "all")]
        + [("targets", name) for name in TARGET_RUNS])


def run(program, folder, kind, name):
    return CHECKS[kind](program, folder, name)


if __name__ == "__main__":
    run_all(__doc__.splitlines()[0], RUNS, run, "folders")
