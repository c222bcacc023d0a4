"""Preference training against transformers and PEFT: `make parity`.

    python -m tests.parity.dpo --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

Every loss of `task: dpo`, with adapters and in full: logits, loss and every gradient of one effective batch
through `plimsoll debug-dump`, the losses and metrics of ten optimizer steps through `plimsoll train`, and the saved folder
loaded by transformers and PEFT, whose log-probabilities are those of the model that PyTorch trained. The formulas are
those of TRL 1.16.0 (trl/trainer/dpo_trainer.py, _compute_loss; trl/experimental/orpo/orpo_trainer.py) and, of label
smoothing beside `sigmoid`, of TRL 0.16.1 (dpo_loss), written out in plain PyTorch: TRL itself is not installed beside
the rest. The reference is the same PEFT model with its adapter switched off, in full a copy from before the first step. Sequences are run one by one; a mean over
tokens is one of each pair, as TRL has it for batches of one pair.
"""
import contextlib
import copy
import dataclasses
import json
import shutil

import torch
from safetensors.torch import save_file
from torch.nn.functional import logsigmoid
from transformers import PreTrainedTokenizerFast

from tests.parity.cases import CASES
from tests.parity.compare import compare_fp32, compare_losses, relative_error
from tests.parity.oracle import (checkpoint_name, decay_groups, learning_rates, load, make_adapter, make_model, MAX_GRAD_NORM,
                                 OPTIMIZER, SEED, STEP_ROWS, STEPS, WARMUP_STEPS, write_json)
from tests.parity.run import load_file, plimsoll
from tests.parity.runs import run_all
from tests.parity.scores import compare_bf16, compare_falling_losses, our_dump

LENGTHS = (24, 9, 17, 4, 12, 30, 5, 8)  # of sequences, one after the other
PROMPTS = (3, 8, 1, 6)
BATCH = 6
DISTINCT_STEPS = 2
BF16_RUN = "mistral_window"
TRAINED_LIMIT = 2e-4  # of log-probabilities after ten steps
METRIC_LIMIT = 2e-3


@dataclasses.dataclass(frozen=True)
class Loss:
    name: str
    recipe: dict
    beta: float = 0.1
    smoothing: float = 0.0
    nll: float = 0.0
    learns_prompts: bool = False


LOSSES = {loss.name: loss for loss in (
    Loss("sigmoid", {"loss": "sigmoid", "beta": 0.1}),
    Loss("smoothed_ftx", {"loss": "sigmoid", "beta": 0.3, "label_smoothing": 0.1, "ftx": 0.5}, 0.3, 0.1, 0.5),
    Loss("sigmoid_norm", {"loss": "sigmoid_norm", "beta": 2.0}, 2.0),
    Loss("ipo", {"loss": "ipo", "beta": 0.2}, 0.2),
    Loss("orpo", {"loss": "orpo", "beta": 0.1}, nll=1.0),
    # TRL's ORPO: the likelihood of the prompt and the answer.
    Loss("orpo_prompts", {"loss": "orpo", "beta": 0.25}, 0.25, nll=1.0, learns_prompts=True))}
RUNS = [("llama_tied_biased", "sigmoid", "lora"), ("mistral_window", "smoothed_ftx", "lora"),
        ("qwen2_bf16_shards", "sigmoid_norm", "lora"), ("qwen3", "ipo", "lora"), ("llama", "orpo", "lora"),
        ("llama_tied_biased", "sigmoid", "full"), ("mistral_window", "orpo_prompts", "full"),
        ("gemma2", "sigmoid", "lora"), ("granite", "orpo", "full"),  # a cap and a factor of logits
        ("phi3_longrope", "sigmoid", "lora")]


# ---- inputs

def sample(number, generator, vocabulary):
    """A prompt and two answers of it."""
    def ids(length):
        return torch.randint(1, vocabulary, (length,), generator=generator).tolist()
    at = 2 * number
    return {"prompt": ids(PROMPTS[number % len(PROMPTS)]), "answers": [ids(LENGTHS[(at + i) % len(LENGTHS)]) for i in (0, 1)]}


def row(one):
    return {"prompt_input_ids": one["prompt"], "chosen_input_ids": one["answers"][0], "rejected_input_ids": one["answers"][1]}


def labelled(loss, one, reference=None):
    """The sample as `debug-dump` reads it; a prompt that is learnt has labels of its own. In full it comes with what the reference says."""
    sequences = [one["prompt"] + answer for answer in one["answers"]]
    hidden = [-100] * len(one["prompt"])
    learnt = [-101 - token for token in one["prompt"]] if loss.learns_prompts else hidden
    sample = {"sequences": sequences, "labels": [learnt + one["answers"][0], hidden + one["answers"][1]]}
    return sample if reference is None else {**sample, "targets": [x.item() for x in reference(one)]}


# ---- the reference

def token_logps(model, ids, logits=None):
    """Log-probabilities of the tokens behind the first one."""
    out = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    if logits is not None:
        logits.append(out.detach().float())
    return torch.log_softmax(out[:-1].float(), -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def log1mexp(x):
    return torch.log(-torch.expm1(x))


def reference_of(loss, model, adapter):
    """The log-probabilities of both answers by the model as it began; nothing for a loss that asks for none."""
    if loss.recipe["loss"] == "orpo":
        return None
    began = None if adapter else copy.deepcopy(model)

    known = {}  # the same pairs come in many steps

    @torch.no_grad()
    def say(one):
        key = json.dumps(one)
        if key not in known:
            with contextlib.nullcontext() if began else model.disable_adapter():
                known[key] = [token_logps(began or model, one["prompt"] + answer)[len(one["prompt"]) - 1:].sum()
                              for answer in one["answers"]]
        return known[key]
    return say


def pair_loss(loss, model, reference, one, logits=None):
    """(loss, metrics) of a pair."""
    prompt = len(one["prompt"])
    tokens = [token_logps(model, one["prompt"] + answer, logits) for answer in one["answers"]]
    answers = [logps[prompt - 1:] for logps in tokens]
    chosen, rejected = (logps.sum() for logps in answers)
    lengths = [len(logps) for logps in answers]
    kind = loss.recipe["loss"]
    nll = -(tokens[0] if loss.learns_prompts else answers[0]).mean()
    metrics = {}
    if kind == "orpo":
        chosen, rejected = chosen / lengths[0], rejected / lengths[1]
        odds = chosen - rejected - (log1mexp(chosen) - log1mexp(rejected))
        value = -loss.beta * logsigmoid(odds)
        rewards = loss.beta * chosen, loss.beta * rejected
        metrics = {"log_odds_ratio": logsigmoid(odds), "log_odds_chosen": odds}
    else:
        scores = [own - its for own, its in zip((chosen, rejected), reference(one))]
        rewards = loss.beta * scores[0], loss.beta * scores[1]
        ahead = scores[0] - scores[1] if kind == "sigmoid" else scores[0] / lengths[0] - scores[1] / lengths[1]
        if kind == "ipo":
            value = (ahead - 1 / (2 * loss.beta)) ** 2
        else:
            value = -(1 - loss.smoothing) * logsigmoid(loss.beta * ahead) - loss.smoothing * logsigmoid(-loss.beta * ahead)
    if loss.nll:
        metrics["nll_loss"] = nll
    metrics |= {"rewards/chosen": rewards[0], "rewards/rejected": rewards[1], "rewards/margins": rewards[0] - rewards[1],
                "rewards/accuracies": (rewards[0] > rewards[1]).float(), "logps/chosen": chosen, "logps/rejected": rejected}
    return value + loss.nll * nll, {name: value.item() for name, value in metrics.items()}


def batch_loss(loss, model, reference, samples, logits=None):
    pairs = [pair_loss(loss, model, reference, one, logits) for one in samples]
    metrics = {name: sum(of[name] for _, of in pairs) / len(pairs) for name in pairs[0][1]}
    return sum(value for value, _ in pairs) / len(pairs), metrics


def dump(loss, model, reference, samples):
    model.zero_grad()
    logits = []
    value = batch_loss(loss, model, reference, samples, logits)[0]
    value.backward()
    tensors = {"logits": torch.cat(logits).contiguous()}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            tensors["grad." + checkpoint_name(name)] = parameter.grad.float().contiguous()
    return tensors, value.item()


def train(loss, model, reference, samples):
    """Losses and metrics of each step, before its update."""
    optimizer = torch.optim.AdamW(decay_groups(model), **OPTIMIZER)
    losses, metrics = [], []
    for step, rate in enumerate(learning_rates()):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        value, told = batch_loss(loss, model, reference, samples[step * STEP_ROWS:(step + 1) * STEP_ROWS])
        value.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], MAX_GRAD_NORM)
        optimizer.step()
        losses.append(value.item())
        metrics.append(told)
    return losses, metrics


# ---- Plimsoll

def write_recipe(case, loss, folder, method, precision):
    recipe = {"task": "dpo", "dpo": loss.recipe, "model": "model",
              "data": {"train": "train.jsonl", "shuffle": False, "max_length": 64, "train_on_prompt": loss.learns_prompts},
              "method": {"type": "full"}, "batch": {"effective": STEP_ROWS, "micro": 3}, "precision": precision,
              "memory": {"loss_chunk": 48}, "optimizer": {"name": "adamw", **OPTIMIZER, "max_grad_norm": MAX_GRAD_NORM},
              "schedule": {"name": "cosine", "warmup": WARMUP_STEPS, "epochs": 1}, "output": f"run_{precision}"}
    if method == "lora":
        recipe |= {"adapter": "adapter", "method": {"type": "lora", "r": case.lora["r"], "alpha": case.lora["lora_alpha"]}}
    path = folder / f"{precision}.json"
    write_json(path, recipe)
    return path


def our_steps(program, recipe):
    plimsoll(program, "train", recipe)
    lines = (recipe.parent / f"run_{recipe.stem}" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def compare_metrics(ours, theirs):
    """Of the first step and of the last, each against the largest of its values."""
    messages = []
    for name in theirs[0]:
        largest = max(abs(step[name]) for step in theirs)
        for step in (0, len(theirs) - 1):
            apart = abs(ours[step][name] - theirs[step][name])
            if not apart <= METRIC_LIMIT * largest:
                messages.append(f"{name} of step {step + 1}: {ours[step][name]:.6g}, TRL's formula has {theirs[step][name]:.6g}")
    return messages


def check_saved(folder, adapter, trained, samples):
    run = folder / "run_fp32"
    ours = load(folder / "model", run) if adapter else load(run)
    with torch.no_grad():
        def of(model):
            return torch.cat([token_logps(model, one["prompt"] + answer) for one in samples for answer in one["answers"]]).numpy()
        error = relative_error(of(ours), of(trained))
    return [f"saved model: log-probabilities are off by {error:.1e}"] if not error <= TRAINED_LIMIT else [], error


def check_texts(program, folder):
    """Texts of pairs are the tokens that transformers makes of them by the model's chat template."""
    model, chat = folder / "chat", "{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token + '\n' }}{% endfor %}" \
        "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
    shutil.copytree("demo/model", model)
    (model / "chat_template.jinja").write_text(chat)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"), eos_token="<|endoftext|>", chat_template=chat)
    rows = [{"prompt": f"What is number {i}?", "chosen": f"It is {i}.", "rejected": "No idea."} for i in range(4)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(folder / "texts.json", {"model": "chat", "init": "random", "task": "dpo", "data": {"train": "texts.jsonl", "max_length": 128}})
    told, messages = plimsoll(program, "plan", folder / "texts.json", "--dump", "rows"), []
    def ids(prompt, *answer):
        talk = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), (prompt, *answer))]
        return tokenizer(tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=not answer), add_special_tokens=False).input_ids
    for row, line in zip(rows, map(json.loads, told.splitlines())):
        wanted = [ids(row["prompt"], row[key]) for key in ("chosen", "rejected")]
        hidden = [-100] * len(ids(row["prompt"]))
        labels = [label for one in wanted for label in hidden + one[len(hidden):]]
        if (line["ids"], line["labels"]) != (wanted[0] + wanted[1], labels):
            messages.append(f"{row}: {line} is not what apply_chat_template makes of it")
    return messages


def run(program, folder, family, name, method):
    """(messages, summary)"""
    case, loss = CASES[family], LOSSES[name]
    folder.mkdir(parents=True, exist_ok=True)
    make_model(case, folder / "model")
    adapter = folder / "adapter" if method == "lora" else None
    if adapter:
        make_adapter(case, folder / "model", adapter)
    generator = torch.Generator().manual_seed(SEED + 3)
    batch = [sample(i, generator, case.config.vocab_size) for i in range(BATCH)]
    rows = [sample(i, generator, case.config.vocab_size) for i in range(STEP_ROWS * DISTINCT_STEPS)]
    rows = rows * (STEPS // DISTINCT_STEPS)
    (folder / "train.jsonl").write_text("".join(json.dumps(row(one)) + "\n" for one in rows))

    model = load(folder / "model", adapter)
    reference = reference_of(loss, model, adapter)
    write_json(folder / "batch.json", {"samples": [labelled(loss, one, None if adapter else reference) for one in batch]})
    expected, value = dump(loss, model, reference, batch)
    save_file(expected, folder / "expected.safetensors")
    wanted = load_file(folder / "expected.safetensors")
    recipe = write_recipe(case, loss, folder, method, "fp32")
    tensors, our_value = our_dump(program, folder, recipe)
    messages, worst = compare_fp32(tensors, wanted)
    messages += compare_losses([our_value], [value])[0]
    steps = our_steps(program, recipe)
    losses, metrics = train(loss, model, reference, rows)
    step_messages, worst_step = compare_falling_losses([step["loss"] for step in steps], losses)
    saved_messages, saved = check_saved(folder, adapter, model, batch)
    messages += step_messages + compare_metrics(steps, metrics) + saved_messages
    if (family, name) == ("llama", "orpo"):
        messages += check_texts(program, folder)
    summary = f"tensors {worst:.1e}, step losses {worst_step:.1e}, saved {saved:.1e}"
    if case.name != BF16_RUN or method != "lora":
        return messages, summary
    rounded = load(folder / "model", adapter, torch.bfloat16)
    save_file(dump(loss, rounded, reference_of(loss, rounded, adapter), batch)[0], folder / "expected_bf16.safetensors")
    in_bf16 = our_dump(program, folder, write_recipe(case, loss, folder, method, "bf16"))[0]
    bf16_messages, ratio = compare_bf16(in_bf16, load_file(folder / "expected_bf16.safetensors"), wanted)
    return messages + bf16_messages, f"{summary}, bf16 {ratio:.2f} of transformers'"


if __name__ == "__main__":
    run_all(__doc__.splitlines()[0], RUNS, run, "dpo")
