"""Tasks that score whole sequences against transformers and PEFT: `make parity`.

    python -m tests.parity.scores --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

Reward models and classifiers of each family, in full and with LoRA: scores, loss and every gradient of one effective
batch through `plimsoll debug-dump`, the losses of ten optimizer steps through `plimsoll train`, and the saved folder
loaded by transformers (with LoRA by PEFT), whose scores are those of the model that PyTorch trained. Sequences of the
reference are run one by one; some end with padding, which no score is read from and which encoders do not read. Encoders
and T5 are scored without dropout; half of each of BERT's sequences is a second text, and T5's end with its end-of-text
token. fla has no class of a GLA that scores: the one here is transformers' mixin over fla's model in its plain form. A value head
is TRL's, as LLaMA-Factory trains and saves it: a linear layer with a bias over the last hidden state of the last token.
Words are the logits of three tokens of a model that writes, at the last token that is no padding; T5's of the first that
its decoder would write.
"""
import dataclasses
import json
import shutil
import types

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file as load_tensors, save_file
from fla.models.gla import GLAConfig
from fla.models.gla.modeling_gla import GLAPreTrainedModel
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, BertConfig, BitsAndBytesConfig, ModernBertConfig, MT5Config, RobertaConfig, T5Config, XLMRobertaConfig)
from transformers.modeling_layers import GenericForSequenceClassification

from tests.parity import gla
from tests.parity.cases import CASES as DECODERS, Case, ENCODER, MODERN
from tests.parity.compare import compare_fp32, compare_losses, distance, relative_error, without_key_biases
from tests.parity.oracle import (checkpoint_name, decay_groups, learning_rates, LONG_STEPS, MAX_GRAD_NORM, nf4_config, OPTIMIZER, SEED, STEP_ROWS,
                                 STEPS, WARMUP_STEPS, with_whole_blocks, write_json, write_random_model)
from tests.parity.run import load_file, our_losses, plimsoll
from tests.parity.runs import run_all

PAD = 0
LENGTHS = (24, 9, 17, 3, 12, 30, 5, 8)  # of sequences, one after the other
BATCH = 16  # samples whose scores and gradients are compared: which of two roundings of a few is nearer is chance
DISTINCT_STEPS = 2
BF16_FAMILIES = ("mistral_window", "bert", "roberta", "modernbert")  # PyTorch's bf16 takes minutes on a CPU without it
BF16_LIMIT = 1.3
LONG_FAMILY = "modernbert"  # 30 steps; the others' code is that of decoders, of which run.py has such cases
TRAINED_LIMIT = 2e-4  # of scores after ten steps
CENTERING = 0.01


ENCODERS = {case.name: case for case in (
    Case("bert", BertConfig(**ENCODER)),
    Case("bert_gelu_new", BertConfig(**ENCODER, hidden_act="gelu_new", classifier_dropout=0.0)),
    Case("modernbert", ModernBertConfig(**MODERN)),
    # The mean of all tokens instead of the first, a last layer that slides, and every bias.
    Case("modernbert_mean_biased", ModernBertConfig(**MODERN, classifier_pooling="mean", layer_types=["full_attention", "full_attention", "sliding_attention"],
                                                    norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True)),
    Case("roberta", RobertaConfig(**ENCODER, type_vocab_size=1, layer_norm_eps=1e-5)),
    Case("xlm_roberta", XLMRobertaConfig(**ENCODER, type_vocab_size=1, layer_norm_eps=1e-5)))}
T5_SHAPE = dict(vocab_size=512, d_model=64, d_kv=16, d_ff=160, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
                relative_attention_max_distance=16, dropout_rate=0.0, classifier_dropout=0.0, decoder_start_token_id=0)
T5_END = 1
T5 = {case.name: case for case in (
    Case("t5", T5Config(**T5_SHAPE)),
    Case("mt5", MT5Config(**T5_SHAPE)))}
CASES = DECODERS | ENCODERS | T5 | {case.name: case for case in gla.CASES}


class GLAForSequenceClassification(GenericForSequenceClassification, GLAPreTrainedModel):
    pass


AutoModelForSequenceClassification.register(GLAConfig, GLAForSequenceClassification)


@dataclasses.dataclass(frozen=True)
class Task:
    name: str
    recipe: dict
    labels: int
    sequences: int = 1
    problem: str = "one-of"
    value: bool = False  # by a value head
    words: bool = False  # by logits of words

    @property
    def rows(self):
        """The task whose rows it has."""
        return "one_of" if self.words else self.name

    @property
    def wrapped(self):
        return self.value or self.words


TASKS = {task.name: task for task in (
    Task("reward", {"task": "reward", "reward": {"centering": CENTERING}}, 1, 2),
    Task("one_of", {"task": "classify"}, 3),
    Task("any_of", {"task": "classify", "classify": {"problem": "any-of"}}, 3, problem="any-of"),
    Task("numbers", {"task": "classify", "classify": {"problem": "numbers"}}, 2, problem="numbers"))}
TASKS["value"] = dataclasses.replace(TASKS["reward"], value=True,
                                     recipe={"task": "reward", "reward": {"centering": CENTERING, "head": "value"}})
WORDS = (7, 300, 511)  # the last one of the vocabulary among them
TASKS["words"] = dataclasses.replace(TASKS["one_of"], name="words", words=True,
                                     recipe={"task": "classify", "classify": {"words": [f"w{i}" for i in WORDS]}})
# Every family learns rewards; what is left of the losses does not depend on the family.
BOTH = ("full", "lora")
RUNS = [(family, "reward", method) for family in ("llama_tied_biased", "mistral_window", "qwen2_bf16_shards", "qwen3")
        for method in BOTH]
RUNS += [("mistral_window", "one_of", method) for method in BOTH] + [("llama", "any_of", "full"), ("llama", "numbers", "lora")]
RUNS += [(family, "one_of", method) for family in ("bert", "roberta") for method in BOTH]
RUNS += [("modernbert", "one_of", method) for method in (*BOTH, "qlora")] + [("modernbert_mean_biased", "one_of", "lora"), ("modernbert_mean_biased", "numbers", "full")]
RUNS += [("phi3_longrope", "reward", method) for method in BOTH]
RUNS += [("t5", "one_of", method) for method in BOTH] + [("t5", "reward", "full"), ("mt5", "numbers", "lora")]
RUNS += [("llama_tied_biased", "value", method) for method in BOTH] + [("llama", "value", "full")]  # a head that is not tied
RUNS += [("llama_tied_biased", "words", "full"), ("llama", "words", "full"), ("mistral_window", "words", "lora"), ("gla", "words", "lora")]
RUNS += [("gemma3", "reward", "lora"), ("gemma2", "words", "full"), ("granite", "words", "lora")]  # a cap and a factor of words' logits
RUNS += [("t5", "words", method) for method in BOTH] + [("mt5", "words", "lora")]
RUNS += [("gla", "reward", "lora"), ("gla_plain_norm", "one_of", "full")]  # a recurrence in Python: minutes each
RUNS += [("bert_gelu_new", "any_of", "full"), ("roberta", "numbers", "full"),
         ("xlm_roberta", "one_of", "full"), ("xlm_roberta", "any_of", "lora")]


# ---- inputs

def sample(case, task, number, generator):
    """{"sequences": [ids], "targets": [numbers of each]}, with padding behind every third sequence of a decoder; where a
    model has token types, "second" is where a second text begins."""
    sequences = []
    vocabulary = case.config.vocab_size
    for i in range(task.sequences):
        at = number * task.sequences + i
        of_t5 = case.name in T5
        ids = torch.randint(1 + of_t5, vocabulary, (LENGTHS[at % len(LENGTHS)],), generator=generator).tolist()
        ids[-1] = T5_END if of_t5 else ids[-1]
        sequences.append(ids + [PAD] * (2 if at % 3 == 0 and case.name not in ENCODERS | T5 else 0))
    draw = torch.rand(task.labels, generator=generator)
    targets = {"reward": [0.5 * draw[0].item(), 0.0], "one_of": [float(int(draw[0] * task.labels))],
               "any_of": [float(x > 0.5) for x in draw], "numbers": draw.tolist()}[task.rows]
    second = {"second": len(sequences[0]) // 2} if getattr(case.config, "type_vocab_size", 0) > 1 else {}
    return {"sequences": sequences, "targets": targets, **second}


def token_types(one, ids):
    second = one.get("second", len(ids))
    return [int(i >= second) for i in range(len(ids))]


def row(case, task, one):
    """The sample as a line of a data file, of an encoder with padding behind every row."""
    if task.name == "reward":
        return {"chosen_input_ids": one["sequences"][0], "rejected_input_ids": one["sequences"][1],
                "margin": one["targets"][0]}
    targets = one["targets"]
    label = {"one_of": int(targets[0]), "any_of": [i for i, x in enumerate(targets) if x], "numbers": targets}
    ids = one["sequences"][0]
    if case.name in T5:
        return {"input_ids": ids + [PAD] * 2, "label": label[task.rows]}
    if case.name not in ENCODERS:
        return {"input_ids": ids, "label": label[task.rows]}
    label["any_of"] = targets  # a 0.0 or 1.0 for each class, as transformers' rows have it
    return {"input_ids": ids + [PAD] * 2, "token_type_ids": token_types(one, ids) + [0] * 2, "label": label[task.name]}


def write_samples(case, task, folder, steps=STEPS):
    """(the batch, the rows of the steps)"""
    generator = torch.Generator().manual_seed(SEED + 3)
    batch = [sample(case, task, i, generator) for i in range(BATCH)]
    rows = [sample(case, task, i, generator) for i in range(STEP_ROWS * DISTINCT_STEPS)]
    rows = rows * (steps // DISTINCT_STEPS)
    write_json(folder / "batch.json", {"samples": batch})
    (folder / "train.jsonl").write_text("".join(json.dumps(row(case, task, one)) + "\n" for one in rows))
    return batch, rows


class ValueModel(torch.nn.Module):
    def __init__(self, pretrained_model, head):
        super().__init__()
        self.pretrained_model = pretrained_model
        self.v_head = torch.nn.Module()
        self.v_head.summary = torch.nn.Linear(head["v_head.summary.weight"].shape[1], 1)
        self.load_state_dict(head, strict=False)

    def forward(self, input_ids, use_cache):
        out = self.pretrained_model(input_ids=input_ids, use_cache=use_cache, output_hidden_states=True)
        return types.SimpleNamespace(logits=self.v_head.summary(out.hidden_states[-1][:, -1]))


class WordsModel(torch.nn.Module):
    def __init__(self, pretrained_model):
        super().__init__()
        self.pretrained_model = pretrained_model

    def forward(self, input_ids, use_cache):
        last, more = int((input_ids[0] != PAD).nonzero()[-1]), {}
        if self.pretrained_model.config.is_encoder_decoder:
            last, more = 0, {"decoder_input_ids": torch.tensor([[self.pretrained_model.config.decoder_start_token_id]])}
        logits = self.pretrained_model(input_ids=input_ids, use_cache=use_cache, **more).logits
        return types.SimpleNamespace(logits=logits[:, last, WORDS])


def writer(config):
    """transformers' class of a model that writes."""
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def make_model_of_words(case, folder):
    """A model that writes, with a tokenizer whose token i is called wi."""
    config = case.config.__class__.from_dict({**case.config.to_dict(), "pad_token_id": PAD})
    write_random_model(case, folder, writer(config), config)
    tokenizer = Tokenizer(WordPiece({f"w{i}": i for i in range(case.config.vocab_size)}, unk_token="w1", max_input_chars_per_word=100))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"eos_token": "w2", "tokenizer_class": "PreTrainedTokenizerFast"})


def make_value_model(case, folder):
    config = case.config.__class__.from_dict({**case.config.to_dict(), "summary_dropout_prob": 0.0})
    write_random_model(case, folder, AutoModelForCausalLM, config)
    generator = torch.Generator().manual_seed(SEED + 5)
    save_file({"v_head.summary.weight": torch.randn((1, case.config.hidden_size), generator=generator) * 0.2,
               "v_head.summary.bias": torch.randn((1,), generator=generator)}, folder / "value_head.safetensors")


def make_model(case, task, folder):
    if task.value:
        return make_value_model(case, folder)
    if task.words:
        return make_model_of_words(case, folder)
    config = case.config.__class__.from_dict({**case.config.to_dict(), "num_labels": task.labels, "pad_token_id": PAD})
    write_random_model(case, folder, AutoModelForSequenceClassification, config)


def load(task, folder, adapter=None, dtype=torch.float32, nf4=False):
    kind = writer(AutoConfig.from_pretrained(folder)) if task.wrapped else AutoModelForSequenceClassification
    quantised = BitsAndBytesConfig.from_dict({**nf4_config(dtype).to_dict(), "llm_int8_skip_modules": ["classifier"]}) if nf4 else None
    model = kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager", quantization_config=quantised)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    if task.value:
        model = ValueModel(model, load_tensors((adapter or folder) / "value_head.safetensors"))
    if task.words:
        model = WordsModel(model)
    return model.train()


def make_adapter(case, task, model_folder, folder):
    torch.manual_seed(SEED + 1)
    targets = "all-linear"  # PEFT knows the names of other heads than T5's
    if case.name in T5:
        targets = ["q", "k", "v", "o", "wo"] + (["wi_0", "wi_1"] if case.config.is_gated_act else ["wi"])
    writes = "SEQ_2_SEQ_LM" if case.name in T5 else "CAUSAL_LM"
    kind = writes if task.wrapped else "SEQ_CLS"
    config = LoraConfig(target_modules=targets, task_type=kind, lora_dropout=0.0, **case.lora,
                        modules_to_save=["classification_head"] if case.name in T5 and not task.wrapped else None)
    base = load(task, model_folder)
    model = get_peft_model(base.pretrained_model if task.wrapped else base, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.1)
    model.save_pretrained(folder)
    if task.value:
        shutil.copy(model_folder / "value_head.safetensors", folder)


# ---- the reference

def scores_of(model, samples):
    def inputs(one, ids):
        types = {"token_type_ids": torch.tensor([token_types(one, ids)])} if "second" in one else {}
        return {"input_ids": torch.tensor([ids]), "use_cache": False, **types}
    return torch.cat([model(**inputs(one, ids)).logits for one in samples for ids in one["sequences"]])


def loss_of(task, scores, samples):
    """The mean over samples, as TRL's RewardTrainer and transformers' classifiers have it."""
    scores = scores.float()
    targets = torch.tensor([one["targets"] for one in samples])
    if task.name == "reward":
        chosen, rejected = scores[0::2, 0], scores[1::2, 0]
        apart = -torch.nn.functional.logsigmoid(chosen - rejected - targets[:, 0])
        return (apart + CENTERING * (chosen + rejected) ** 2).mean()
    if task.problem == "one-of":
        return torch.nn.functional.cross_entropy(scores, targets[:, 0].long())
    if task.problem == "any-of":
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, targets)
    return torch.nn.functional.mse_loss(scores, targets)


def named_gradient(name, is_adapter):
    """`is_adapter`: everything that trains is named as what lies beside adapters, a value head too."""
    name = ("base_model.model." if is_adapter and name.startswith("v_head.") else "") + name.removeprefix("pretrained_model.")
    return "grad." + checkpoint_name(name).replace("modules_to_save.", "")


def dump(model, task, samples):
    model.zero_grad()
    scores = scores_of(model, samples)
    loss = loss_of(task, scores, samples)
    loss.backward()
    tensors = {"logits": scores.detach().float().contiguous()}
    is_adapter = any("lora_" in name for name, _ in model.named_parameters())
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.grad is not None:  # a value head does not ask the head for words
            tensors[named_gradient(name, is_adapter)] = parameter.grad.float().contiguous()
    return tensors, loss.item()


def train(model, task, samples):
    optimizer = torch.optim.AdamW(decay_groups(model), **OPTIMIZER)
    losses = []
    for step, rate in enumerate(learning_rates(len(samples) // STEP_ROWS)):
        batch = samples[step * STEP_ROWS:(step + 1) * STEP_ROWS]
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = loss_of(task, scores_of(model, batch), batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], MAX_GRAD_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


# ---- Plimsoll

def write_recipe(case, task, folder, method, precision):
    recipe = {**task.recipe, "model": "model", "data": {"train": "train.jsonl", "shuffle": False, "max_length": 64},
              "method": {"type": "full"}, "batch": {"effective": STEP_ROWS, "micro": 3}, "precision": precision,
              "optimizer": {"name": "adamw", **OPTIMIZER, "max_grad_norm": MAX_GRAD_NORM},
              "schedule": {"name": "cosine", "warmup": WARMUP_STEPS, "epochs": 1}, "output": f"run_{precision}"}
    if method != "full":
        recipe |= {"adapter": "adapter", "method": {"type": method, "r": case.lora["r"], "alpha": case.lora["lora_alpha"]}}
    path = folder / f"{precision}.json"
    write_json(path, recipe)
    return path


def our_dump(program, folder, recipe):
    out = folder / f"{recipe.stem}.safetensors"
    plimsoll(program, "debug-dump", recipe, "--ids", folder / "batch.json", "--out", out)
    tensors = load_file(out)
    return tensors, float(tensors.pop("loss").reshape(()))


def compare_falling_losses(ours, theirs):
    """As compare_losses; the error of a loss below a hundredth of the first one is told against that hundredth, as
    what is left there are differences of scores that agree to six digits."""
    floor = 0.01 * abs(theirs[0])
    return compare_losses([theirs[i] + (a - theirs[i]) * min(1.0, abs(theirs[i]) / floor) for i, a in enumerate(ours)], theirs)


def compare_bf16(ours, theirs, reference):
    """Scores and gradients together: a few dozen scores alone are too few for a ratio of two roundings."""
    names = sorted(without_key_biases(reference))
    ratio = distance(ours, reference, names) / distance(theirs, reference, names)
    return [f"{ratio:.2f} times as far from fp32 as transformers' bf16"] if not ratio <= BF16_LIMIT else [], ratio


def check_saved(task, folder, adapter, trained, samples, nf4=False):
    """The run's folder as transformers and PEFT load it, beside the model that PyTorch trained."""
    run = folder / "run_fp32"
    ours = load(task, folder / "model", run, nf4=nf4) if adapter else load(task, run)
    if not adapter and any(torch.isnan(p).any() for p in ours.parameters()):
        return ["a weight of the saved model is NaN"], float("inf")
    with torch.no_grad():
        error = relative_error(scores_of(ours, samples).numpy(), scores_of(trained, samples).numpy())
    return [f"saved model: scores are off by {error:.1e}"] if error > TRAINED_LIMIT else [], error


def run(program, folder, family, task_name, method):
    """(messages, summary)"""
    case, task, nf4 = CASES[family], TASKS[task_name], method == "qlora"
    if nf4:
        case = with_whole_blocks(case)
    folder.mkdir(parents=True, exist_ok=True)
    make_model(case, task, folder / "model")
    adapter = folder / "adapter" if method != "full" else None
    if adapter:
        make_adapter(case, task, folder / "model", adapter)
    batch, rows = write_samples(case, task, folder, LONG_STEPS if case.name == LONG_FAMILY else STEPS)
    model = load(task, folder / "model", adapter, nf4=nf4)
    expected, loss = dump(model, task, batch)
    save_file(expected, folder / "expected.safetensors")
    reference = load_file(folder / "expected.safetensors")
    recipe = write_recipe(case, task, folder, method, "fp32")
    tensors, our_loss = our_dump(program, folder, recipe)
    messages, worst = compare_fp32(without_key_biases(tensors), without_key_biases(reference))
    messages += compare_losses([our_loss], [loss])[0]
    step_messages, worst_step = compare_falling_losses(our_losses(program, recipe), train(model, task, rows))
    saved_messages, saved = check_saved(task, folder, adapter, model, batch, nf4)
    messages += step_messages + saved_messages
    summary = f"tensors {worst:.1e}, step losses {worst_step:.1e}, saved {saved:.1e}"
    if case.name not in BF16_FAMILIES:
        return messages, summary
    save_file(dump(load(task, folder / "model", adapter, torch.bfloat16, nf4), task, batch)[0], folder / "expected_bf16.safetensors")
    in_bf16 = our_dump(program, folder, write_recipe(case, task, folder, method, "bf16"))[0]
    bf16_messages, ratio = compare_bf16(in_bf16, load_file(folder / "expected_bf16.safetensors"), reference)
    return messages + bf16_messages, f"{summary}, bf16 {ratio:.2f} of transformers'"


if __name__ == "__main__":
    gla.use_plain_forms()
    run_all(__doc__.splitlines()[0], RUNS, run, "scores")
