#!/usr/bin/env python3
"""What small classifiers learn of three tasks like GLUE's: held-out figures, by the official metric of each.

    glue_like.py [--plimsoll build/plimsoll] [--only cola] [--out results.json]

Rows are made of words and a seed and written as GLUE's own files are. Acceptability (cola): sentences, half of which are
spoilt by two words in each other's place, or by a number that verb and noun do not share. Opinions (sst2): said by a word,
or by `not` before its contrary; of two the last counts. Likeness (stsb): how many of five parts two sentences share, by the
same words or others. No held-out row's first sentence says what a training one's does, parts for opinions aside. Models of
the demo's shape, from random weights, in full; one thing is tried, nothing tuned. Ten minutes or so; standard library only.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Parts of a sentence: what there may be, each in two words for the same. Nouns and verbs by number.
WHO = [(("captain", "captains"), ("skipper", "skippers")), (("sailor", "sailors"), ("seaman", "seamen")),
       (("pilot", "pilots"), ("guide", "guides")), (("merchant", "merchants"), ("trader", "traders")),
       (("boy", "boys"), ("lad", "lads")), (("doctor", "doctors"), ("surgeon", "surgeons"))]
DOES = [(("sees", "see"), ("watches", "watch")), (("buys", "buy"), ("purchases", "purchase")),
        (("mends", "mend"), ("repairs", "repair")), (("hides", "hide"), ("conceals", "conceal")),
        (("carries", "carry"), ("brings", "bring")), (("wants", "want"), ("desires", "desire"))]
KIND = [("old", "ancient"), ("big", "large"), ("quick", "fast"), ("cheap", "inexpensive"), ("fine", "good"), ("odd", "strange")]
WHAT = [("ship", "vessel"), ("map", "chart"), ("box", "chest"), ("rope", "line"), ("stone", "rock"), ("coat", "jacket")]
WHERE = [("at the harbour", "in the port"), ("at dawn", "in the early morning"), ("on the beach", "at the shore"),
         ("in the storm", "in bad weather"), ("at home", "in the house"), ("on the hill", "up the slope")]
PARTS = (WHO, DOES, KIND, WHAT, WHERE)


def draw(rng):
    return tuple(rng.randrange(len(part)) for part in PARTS)


def words(meaning, rng, plural, moved, other=None):
    """The sentence of a meaning: by the first or second words of each part, as `other` says or drawn."""
    chosen = [part[i][rng.randrange(2) if other is None else other] for part, i in zip(PARTS, meaning)]
    subject, verb = chosen[0][plural], chosen[1][plural]
    sentence = ["the", subject, verb, "the", chosen[2], chosen[3]]
    place = chosen[4].split()
    return place + sentence if moved else sentence + place


def cola(rng):
    meaning, plural = draw(rng), rng.randrange(2)
    sentence = words(meaning, rng, plural, False)
    acceptable = rng.randrange(2)
    if not acceptable and rng.randrange(2):
        at = rng.randrange(len(sentence) - 1)
        sentence[at], sentence[at + 1] = sentence[at + 1], sentence[at]
    elif not acceptable:
        sentence[2] = {v[n]: v[1 - n] for pair in DOES for v in pair for n in range(2)}[sentence[2]]
    return (meaning, plural), ["made", str(acceptable), "" if acceptable else "*", " ".join(sentence)]


def another(meaning, rng, parts):
    """The same but for so many parts."""
    result = list(meaning)
    for part in rng.sample(range(len(PARTS)), parts):
        result[part] = rng.choice([i for i in range(len(PARTS[part])) if i != meaning[part]])
    return tuple(result)


GOOD, BAD = ["fine", "good", "strong", "quick", "cheap"], ["odd", "bad", "weak", "slow", "dear"]


def opinion(rng, good):
    """A clause that says so: by a word, or by `not` before its contrary."""
    turned = rng.randrange(3) == 0
    return f"is {'not ' if turned else ''}{rng.choice(GOOD if good != turned else BAD)}"


def sst2(rng):
    meaning, good = draw(rng), rng.randrange(2)
    thing, place = WHAT[meaning[3]][rng.randrange(2)], WHERE[meaning[4]][rng.randrange(2)]
    sentence = f"the {KIND[meaning[2]][rng.randrange(2)]} {thing} of the {WHO[meaning[0]][rng.randrange(2)][0]} "
    if rng.randrange(2):  # what comes last counts
        sentence += f"{opinion(rng, rng.randrange(2))} {place} but "
    return (meaning, 0), [sentence + opinion(rng, bool(good)), str(good)]


def stsb(rng):
    meaning, plural, differ = draw(rng), rng.randrange(2), rng.randrange(len(PARTS) + 1)
    first = words(meaning, rng, plural, False)
    second = words(another(meaning, rng, differ), rng, plural, False)
    score = 5.0 * (len(PARTS) - differ) / len(PARTS)
    return (meaning, plural), ["0", "main", "made", "2026", "0", "none", "none", " ".join(first), " ".join(second), f"{score:.3f}"]


TASKS = {"cola": (cola, None, 8000, 10, "matthews_correlation"),
         "sst2": (sst2, ["sentence", "label"], 8000, 10, "accuracy"),
         "stsb": (stsb, ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"],
                  16000, 12, "pearson")}


def make_files(task, folder):
    """Training and held-out rows, told apart by what their first sentence says."""
    make, header, count, _, _ = TASKS[task]
    rng = random.Random(f"glue-like {task}")
    files = {"train": [], "dev": []}
    while len(files["train"]) < count or len(files["dev"]) < 1000:
        (meaning, plural), row = make(rng)
        held_out = sum(7 ** i * part for i, part in enumerate(meaning)) % 11 == 0
        rows = files["dev" if held_out else "train"]
        if len(rows) < (1000 if held_out else count):
            rows.append(row)
    for name, rows in files.items():
        lines = ([header] if header else []) + rows
        (folder / f"{name}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))


def learn(plimsoll, task, folder):
    make_files(task, folder)
    recipe = {"model": str(ROOT / "demo/model"), "init": "random", "task": "classify", "classify": {"glue": task},
              "data": {"train": str(folder / "train.tsv"), "eval": str(folder / "dev.tsv"), "max_length": 64},
              "method": {"type": "full"}, "batch": {"effective": 32}, "precision": "fp32",
              "optimizer": {"lr": 5e-4, "betas": [0.9, 0.99], "weight_decay": 0.1},
              "schedule": {"name": "cosine", "warmup": "5%", "epochs": TASKS[task][3]}, "save": {"every": 0}, "output": str(folder / "run")}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    subprocess.run([plimsoll, "train", folder / "recipe.json", "--quiet", "--overwrite"], check=True)
    told = json.loads(subprocess.run([plimsoll, "eval", folder / "run", "--json"], check=True, capture_output=True, text=True).stdout)
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=str(ROOT / "build/plimsoll"))
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    results = {}
    for task in TASKS:
        if arguments.only not in task:
            continue
        with tempfile.TemporaryDirectory() as folder:
            results[task] = learn(arguments.plimsoll, task, pathlib.Path(folder))
        print(task, json.dumps(results[task]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
