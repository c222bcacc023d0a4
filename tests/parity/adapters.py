"""Adapters as people set them, against PEFT: `make parity`.

    python -m tests.parity.adapters --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

For each way, of decoders, gated linear attention (the plain form of fla's model), T5 and BERT as a classifier: logits, loss and
every gradient of one effective batch through `plimsoll debug-dump`, answers through the adapter, the losses of ten optimizer
steps through `plimsoll train` from the same adapter, the saved folder loaded by PEFT with the logits of the model that PyTorch
trained, and the folder merged by `plimsoll merge` beside PEFT loaded over the base.
"""
import dataclasses
import json

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import save_file

from tests.parity import gla, oracle, scores, seq2seq
from tests.parity.cases import CASES
from tests.parity.compare import compare_fp32, compare_losses, relative_error
from tests.parity.run import load_file, our_dump, our_losses, plimsoll, write_recipe
from tests.parity.runs import run_all

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PHI_LINEARS = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
GLA_LINEARS = LINEARS + ["g_proj", "gk_proj.0", "gk_proj.1"]
T5_LINEARS = ["q", "k", "v", "o", "wi", "wo"]
BERT_LINEARS = ["query", "key", "value", "dense"]
TRAINED_LIMIT = 5e-4  # of logits after ten steps
MERGED_LIMIT = 2e-5
NEW_TOKENS = 8


@dataclasses.dataclass(frozen=True)
class Way:
    family: str
    config: dict                # of LoraConfig
    method: dict = dataclasses.field(default_factory=dict)  # of the recipe, beside what the folder says
    loraplus: float = 1.0
    qlora: bool = False
    start: str = ""  # PEFT's init_lora_weights: no adapter is there before the run


WAYS = {
    "patterns": Way("llama", dict(
        r=4, lora_alpha=8, target_modules=LINEARS, rank_pattern={"q_proj": 2, r".*layers\.1\.mlp.*": 6},
        alpha_pattern={r"layers\.0\.self_attn\.v_proj": 3, "down_proj": 1.5})),
    "layers": Way("qwen3", dict(r=4, lora_alpha=8, target_modules=LINEARS, layers_to_transform=[1],
                                layers_pattern=["layers"])),
    "saved": Way("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"],
                               modules_to_save=["embed_tokens", "lm_head", "post_attention_layernorm"])),
    "saved_tied": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=LINEARS, modules_to_save=["lm_head"])),
    "loraplus": Way("llama", dict(r=4, lora_alpha=8, target_modules=LINEARS), {"loraplus_ratio": 16}, 16.0),
    "dora": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_dora=True)),
    "dora_loraplus": Way("qwen3", dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], use_dora=True,
                                       use_rslora=True), {"loraplus_ratio": 4}, 4.0),
    "pissa": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=LINEARS), start="pissa"),
    "olora_rslora": Way("qwen3", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_rslora=True,
                                      rank_pattern={"q_proj": 2}), start="olora"),
    "embedding": Way("llama", dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "q_proj"])),
    "embedding_tied": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=["embed_tokens"])),
    "head": Way("llama", dict(r=4, lora_alpha=8, target_modules=["lm_head", "v_proj"], rank_pattern={"lm_head": 6})),
    "head_tied": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=["lm_head"])),
    "both_tied": Way("qwen2_tied", dict(r=4, lora_alpha=8, target_modules=LINEARS + ["embed_tokens", "lm_head"], use_rslora=True)),
    "saved_and_head": Way("llama_tied_biased", dict(r=4, lora_alpha=8, target_modules=["lm_head"], modules_to_save=["embed_tokens"])),
    "qlora_both": Way("llama", dict(r=4, lora_alpha=8, target_modules=LINEARS + ["embed_tokens", "lm_head"]), qlora=True),
    "qdora": Way("llama", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_dora=True), qlora=True),
    "gemma3_embedding_and_norms": Way("gemma3", dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "v_proj"],
                                                     modules_to_save=["post_feedforward_layernorm", "q_norm"])),
    "gemma3_dora": Way("gemma3", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_dora=True), qlora=True),
    "gemma3_wrapped": Way("gemma3_wrapped", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], exclude_modules=oracle.NOT_TEXT,
                                                 modules_to_save=["post_feedforward_layernorm"])),
    "ministral3_wrapped_head": Way("ministral3_wrapped", dict(r=4, lora_alpha=8, target_modules=LINEARS + ["lm_head"], exclude_modules=oracle.NOT_TEXT)),
    "gemma2_head": Way("gemma2_uncapped", dict(r=4, lora_alpha=8, target_modules=["lm_head", "o_proj"])),
    "gemma2_capped_head": Way("gemma2", dict(r=4, lora_alpha=8, target_modules=["lm_head", "down_proj"])),
    "gemma2_capped_dora": Way("gemma2", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_dora=True), qlora=True),
    "gemma3_wrapped_dora": Way("gemma3_wrapped", dict(r=4, lora_alpha=8, target_modules=LINEARS, exclude_modules=oracle.NOT_TEXT, use_dora=True)),
    "olmo2_dora": Way("olmo2", dict(r=4, lora_alpha=8, target_modules=LINEARS, use_dora=True)),
    "granite_head": Way("granite_biased", dict(r=4, lora_alpha=8, target_modules=["lm_head", "q_proj"])),
    "phi3_fused_dora": Way("phi3_longrope", dict(r=4, lora_alpha=8, target_modules=PHI_LINEARS, use_dora=True, rank_pattern={"qkv_proj": 6})),
    "phi3_fused_qdora": Way("phi3", dict(r=4, lora_alpha=8, target_modules=PHI_LINEARS, use_dora=True), qlora=True),
    "phi3_fused_pissa": Way("phi3", dict(r=4, lora_alpha=8, target_modules=PHI_LINEARS), start="pissa"),
    "gla_patterns": Way("gla", dict(r=4, lora_alpha=8, target_modules=GLA_LINEARS, rank_pattern={"q_proj": 2, r".*layers\.1\.mlp.*": 6},
                                    alpha_pattern={r"gk_proj\.1": 3}, modules_to_save=["attn_norm"]), {"loraplus_ratio": 16}, 16.0),
    "gla_dora": Way("gla", dict(r=4, lora_alpha=8, target_modules=GLA_LINEARS, use_dora=True, layers_to_transform=[1])),
    "gla_pissa": Way("gla", dict(r=4, lora_alpha=8, target_modules=["q_proj", "o_proj", "gate_proj"]), start="pissa"),
    "gla_table": Way("gla", dict(r=4, lora_alpha=8, target_modules=["embeddings", "lm_head", "k_proj"])),
    "t5_patterns": Way("t5", dict(r=4, lora_alpha=8, target_modules=T5_LINEARS, rank_pattern={r".*decoder\.block\.1.*": 6, "q": 2},
                                  alpha_pattern={r"EncDecAttention\.v": 3}, modules_to_save=["final_layer_norm"]),
                       {"loraplus_ratio": 4}, 4.0),
    "t5_layers": Way("t5", dict(r=4, lora_alpha=8, target_modules=["q", "wo"], layers_to_transform=[0, 2], layers_pattern=["block"])),
    "t5_decoder_only": Way("t5", dict(r=4, lora_alpha=8, target_modules=["EncDecAttention.q", "EncDecAttention.k"])),
    "t5_dora": Way("t5", dict(r=4, lora_alpha=8, target_modules=T5_LINEARS, use_dora=True, use_rslora=True)),
    "t5_olora": Way("t5", dict(r=4, lora_alpha=8, target_modules=T5_LINEARS), start="olora"),
    "t5_head": Way("t5_1.1_own_head", dict(r=4, lora_alpha=8, target_modules=["lm_head", "v"])),
    "bert_patterns": Way("bert", dict(r=4, lora_alpha=8, target_modules=BERT_LINEARS, rank_pattern={r".*layer\.1\.output.*": 6, "query": 2},
                                      alpha_pattern={"value": 3}, modules_to_save=["embeddings.LayerNorm"]), {"loraplus_ratio": 16}, 16.0),
    "bert_layers": Way("bert", dict(r=4, lora_alpha=8, target_modules=BERT_LINEARS, layers_to_transform=[1], layers_pattern=["layer"])),
    "bert_dora": Way("bert", dict(r=4, lora_alpha=8, target_modules=BERT_LINEARS, use_dora=True)),
    "bert_pissa": Way("bert", dict(r=4, lora_alpha=8, target_modules=BERT_LINEARS), start="pissa"),
    "bert_table": Way("bert", dict(r=4, lora_alpha=8, target_modules=["word_embeddings", "query"])),
}


# ---- what the ways are of: load() gives a model, forward() its logits and the mean loss of a batch

class Decoder:
    task_type = "CAUSAL_LM"
    compare_steps = staticmethod(compare_losses)

    def __init__(self, way):
        self.way = way
        if way.family == "gla":
            gla.use_plain_forms()
        case = (CASES | {case.name: case for case in gla.CASES})[way.family]
        self.case = oracle.with_whole_blocks(case) if way.qlora else case

    def write(self, folder):
        """(the batch, the rows of the steps)"""
        batch, rows, self.prompts = oracle.write_inputs(self.case, folder, "full")
        return batch, rows

    def load(self, folder, adapter=None):
        return oracle.load(folder, adapter, nf4=self.way.qlora and adapter is not None)

    def forward(self, model, batch):
        logits, loss = oracle.forward(model, batch)
        return logits, loss / oracle.target_count(batch)

    def write_recipe(self, folder):
        case = dataclasses.replace(self.case, lora={key: self.way.config[key] for key in ("r", "lora_alpha")})
        return write_recipe(case, folder, "qlora" if self.way.qlora else "lora", "fp32")

    def our_dump(self, program, folder, recipe, model):
        """(tensors, loss, messages)"""
        tensors, loss, generated = our_dump(program, folder, recipe, NEW_TOKENS)
        answers = oracle.greedy(model, self.prompts, NEW_TOKENS)
        return tensors, loss, [] if generated == answers else [f"greedy generation: {generated}, expected {answers}"]

    def check_answers(self, program, folder, batch):
        return []


class EncoderDecoder:
    task_type = "SEQ_2_SEQ_LM"
    compare_steps = staticmethod(compare_losses)

    def __init__(self, way):
        self.case = seq2seq.CASES[way.family]

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        seq2seq.make_model(self.case, folder / "model")
        return seq2seq.write_pairs(folder)

    def load(self, folder, adapter=None):
        return seq2seq.load(self.case, folder, adapter)

    def forward(self, model, batch):
        return seq2seq.forward(model, batch)

    def write_recipe(self, folder):
        return seq2seq.write_recipe(folder, "lora", "fp32")

    def our_dump(self, program, folder, recipe, model):
        return *seq2seq.our_dump(program, folder, recipe), []

    def check_answers(self, program, folder, batch):
        return seq2seq.check_answers(program, self.case, folder, True, batch)[0]


class Classifier:
    task_type = "SEQ_CLS"
    compare_steps = staticmethod(scores.compare_falling_losses)

    def __init__(self, way):
        self.case, self.task = scores.CASES[way.family], scores.TASKS["one_of"]

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        scores.make_model(self.case, self.task, folder / "model")
        return scores.write_samples(self.case, self.task, folder)

    def load(self, folder, adapter=None):
        return scores.load(self.task, folder, adapter)

    def forward(self, model, batch):
        logits = scores.scores_of(model, batch)
        return logits, scores.loss_of(self.task, logits, batch)

    def write_recipe(self, folder):
        return scores.write_recipe(self.case, self.task, folder, "lora", "fp32")

    def our_dump(self, program, folder, recipe, model):
        return *scores.our_dump(program, folder, recipe), []

    def check_answers(self, program, folder, batch):
        return []


def kind_of(way):
    if way.family in seq2seq.CASES:
        return EncoderDecoder(way)
    return Classifier(way) if way.family in scores.ENCODERS else Decoder(way)


# ---- the reference

def peft_config(way, kind):
    return LoraConfig(task_type=kind.task_type, lora_dropout=0.0, init_lora_weights=way.start or True, **way.config)


def make_adapter(way, kind, model_folder, folder):
    torch.manual_seed(oracle.SEED + 1)
    model = get_peft_model(kind.load(model_folder), peft_config(way, kind))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "lora_embedding_A" in name:
                parameter.normal_(0.0, 0.1)
            elif "lora_magnitude_vector" in name:
                parameter.mul_(1.1)  # not the lengths that the rows have
    model.save_pretrained(folder)


def named(name):
    return "grad." + oracle.checkpoint_name(name).replace("modules_to_save.", "").replace(
        "lora_magnitude_vector.weight", "lora_magnitude_vector")


def dump(kind, model, batch):
    model.zero_grad()
    logits, loss = kind.forward(model, batch)
    loss.backward()
    gradients = {named(name): p.grad.float().contiguous() for name, p in model.named_parameters() if p.requires_grad}
    return {"logits": logits.detach().float().contiguous(), **gradients}, loss.item()


def train(way, kind, model, rows):
    """As oracle.train, with the rates of LoRA+ where they are asked for."""
    groups = [{"params": [p for _, p in model.named_parameters() if p.requires_grad], "ratio": 1.0}]
    decay = oracle.OPTIMIZER["weight_decay"]
    if way.loraplus != 1.0:
        made = create_loraplus_optimizer(model, torch.optim.AdamW, lr=1.0, loraplus_lr_ratio=way.loraplus,
                                         loraplus_weight_decay=decay)
        kept = {id(p) for name, p in model.named_parameters() if p.dim() == 1 and "lora_magnitude" not in name}
        groups = [{"params": [p], "ratio": group["lr"], "weight_decay": 0.0 if id(p) in kept else decay}
                  for group in made.param_groups for p in group["params"]]
    elif not way.config.get("use_dora"):
        groups = [{**group, "ratio": 1.0} for group in oracle.decay_groups(model)]
    optimizer = torch.optim.AdamW(groups, **oracle.OPTIMIZER)
    losses = []
    for step, rate in enumerate(oracle.learning_rates()):
        batch = rows[step * oracle.STEP_ROWS:(step + 1) * oracle.STEP_ROWS]
        for group in optimizer.param_groups:
            group["lr"] = rate * group["ratio"]
        optimizer.zero_grad()
        loss = kind.forward(model, batch)[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], oracle.MAX_GRAD_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


# ---- the comparison

def logits_of(kind, model, batch):
    with torch.no_grad():
        return kind.forward(model.eval(), batch)[0].numpy()


def check_saved(program, folder, way, kind, run, model, batch):
    """What was trained here and there answers alike, loaded by PEFT and merged."""
    config = json.loads((run / "adapter_config.json").read_text())
    wanted = {key: value for key, value in way.config.items() if key not in ("target_modules", "modules_to_save")}
    messages = [f"adapter_config.json: {key} is {config.get(key)}" for key, value in wanted.items()
                if config.get(key) != value and not way.start]  # with what it began with it has twice the rank
    loaded = PeftModel.from_pretrained(kind.load(folder / "model"), run)
    ours = logits_of(kind, loaded, batch)
    trained = relative_error(ours, logits_of(kind, model, batch))
    if trained > TRAINED_LIMIT:
        messages.append(f"logits of the saved folder are off by {trained:.1e}")
    plimsoll(program, "merge", run, "--base", folder / "model", "--out", folder / "merged")
    merged = relative_error(logits_of(kind, kind.load(folder / "merged"), batch), ours)
    if merged > MERGED_LIMIT:
        messages.append(f"logits of the merged folder are off by {merged:.1e}")
    return messages + kind.check_answers(program, folder, batch), f"saved {trained:.1e}, merged {merged:.1e}"


def write_way(way, recipe):
    written = json.loads(recipe.read_text())
    written["method"] = {"type": written["method"]["type"], **way.method}
    if way.start:
        del written["adapter"]
        written["method"] |= {"r": 4, "alpha": 8, "init": way.start, "targets": way.config["target_modules"],
                              "rslora": way.config.get("use_rslora", False), "rank_pattern": way.config.get("rank_pattern", {})}
    recipe.write_text(json.dumps(written, indent=1))
    return recipe.parent / written["output"]


def run(program, folder, name):
    way = WAYS[name]
    kind = kind_of(way)
    batch, rows = kind.write(folder)
    torch.manual_seed(oracle.SEED + 1)
    if way.start:
        model = get_peft_model(kind.load(folder / "model"), peft_config(way, kind)).train()
    else:
        make_adapter(way, kind, folder / "model", folder / "adapter")
        model = kind.load(folder / "model", folder / "adapter")
    theirs, loss = dump(kind, model, batch)
    if way.start:  # singular vectors and columns of Q may have either sign
        theirs = {"logits": theirs["logits"]}
    save_file(theirs, folder / "expected.safetensors")
    recipe = kind.write_recipe(folder)
    out = write_way(way, recipe)
    tensors, our_loss, messages = kind.our_dump(program, folder, recipe, model)
    if way.start:
        tensors = {"logits": tensors["logits"]}
    found, worst = compare_fp32(tensors, load_file(folder / "expected.safetensors"))
    messages += found + compare_losses([our_loss], [loss])[0]
    expected = train(way, kind, model, rows)
    found, worst_step = kind.compare_steps(our_losses(program, recipe), expected)
    summary = f"tensors {worst:.1e}, step losses {worst_step:.1e}"
    if not way.qlora:  # its base is not the folder's, but the folder's in 4 bits
        saved, more = check_saved(program, folder, way, kind, out, model, batch)
        messages, summary = messages + saved, f"{summary}, {more}"
    return messages + found, summary


if __name__ == "__main__":
    run_all(__doc__.splitlines()[0], [(name,) for name in WAYS], run, "adapters")
