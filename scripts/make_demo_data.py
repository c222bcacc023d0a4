#!/usr/bin/env python3
"""Writes demo/data: two small question-and-answer tasks over facts that anybody can check, and pairs of answers.

  facts     asks for the answer of a fact ("What is the capital of France?")
  reverse   asks the other way round ("Paris is the capital of which country?"): the second task, learnt by LoRA
  judge     the questions of facts, with the right answer (chosen) and that of another fact of its kind (rejected)

Each task has train.parquet and heldout.parquet with the columns prompt and response, or prompt, chosen and rejected. A held-out question is a pair
of fact and phrasing that training never shows, while the fact (in other phrasings) and the phrasing (with other
facts) are both trained: it can only be answered by having understood which part of the question is which.

Training on facts also asks to repeat each subject and answer ("Repeat the word France."). Without that, no subject is
ever an answer and hardly an answer ever stands in a question; the embedding, shared with the head, learns only to
avoid such tokens, and no adapter on the frozen model can tell them apart later. These rows are easy, so none of them
counts in heldout.

The result depends on nothing but this file and demo_facts.py.
"""
import argparse
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / ".deps" / "py")]

import pyarrow  # noqa: E402  the wheel that the build uses
import pyarrow.parquet  # noqa: E402

from demo_facts import RELATIONS, REPEAT  # noqa: E402

SEED = 7  # of the row order only


def forward_questions(relation):
    return [(subject, answer, relation.questions) for subject, answer in relation.facts.items()]


def reverse_questions(relation):
    answers = list(relation.facts.values())
    assert not relation.reverse or len(set(answers)) == len(answers), "an answer with two subjects cannot be reversed"
    return [(answer, subject, relation.reverse) for subject, answer in relation.facts.items() if relation.reverse]


def repetitions():
    """Rows that ask to say a word again, one for each subject and answer."""
    words = dict.fromkeys(word for relation in RELATIONS.values() for fact in relation.facts.items() for word in fact)
    return [(REPEAT.replace("{}", word), word) for word in words]


def split(questions_of, extra):
    """(train, heldout) rows of a task; fact number i of a relation holds its phrasing i modulo their count out."""
    train, heldout = [], []
    for relation in RELATIONS.values():
        for i, (subject, answer, phrasings) in enumerate(questions_of(relation)):
            for k, phrasing in enumerate(phrasings):
                row = (phrasing.replace("{}", subject), answer)
                (heldout if k == i % len(phrasings) else train).append(row)
    train += extra
    assert not {q for q, _ in train} & {q for q, _ in heldout}, "a held-out question stands in training"
    for rows in (train, heldout):
        assert len({q for q, _ in rows}) == len(rows), "a question stands twice"
        random.Random(SEED).shuffle(rows)
    return train, heldout


def table(rows):
    prompts, responses = zip(*rows)
    return pyarrow.table({"prompt": pyarrow.array(prompts, pyarrow.string()),
                          "response": pyarrow.array(responses, pyarrow.string())})


def pairs(rows, wrong):
    prompts, responses = zip(*rows)
    text = pyarrow.string()
    return pyarrow.table({"prompt": pyarrow.array(prompts, text), "chosen": pyarrow.array(responses, text),
                          "rejected": pyarrow.array([wrong[row] for row in rows], text)})


def wrong_answers():
    """{(question, answer): an answer of another fact of the same kind}, each as likely to be one as to be right."""
    wrong = {}
    for relation in RELATIONS.values():
        facts = list(relation.facts.items())
        for i, (subject, answer) in enumerate(facts):
            for k, phrasing in enumerate(relation.questions):
                others = (facts[(i + step) % len(facts)][1] for step in range(1 + k, len(facts) + 1 + k))
                wrong[(phrasing.replace("{}", subject), answer)] = next(a for a in others if a != answer)
    return wrong


def tables():
    """{path below demo/data: table} of everything."""
    made = {}
    tasks = (("facts", forward_questions, repetitions()), ("reverse", reverse_questions, []))
    for task, questions_of, extra in tasks:
        for part, rows in zip(("train", "heldout"), split(questions_of, extra)):
            made[f"{task}/{part}.parquet"] = table(rows)
    for part, rows in zip(("train", "heldout"), split(forward_questions, [])):
        made[f"judge/{part}.parquet"] = pairs(rows, wrong_answers())
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "demo" / "data")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files differ from the facts")
    arguments = parser.parse_args()
    for name, rows in tables().items():
        path = arguments.out / name
        if arguments.check:
            if not path.is_file() or not pyarrow.parquet.read_table(path).equals(rows):
                sys.exit(f"error: {path} is not what scripts/make_demo_data.py makes: run it and commit the result")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        # Groups of 256 rows: the demo reads more than one, as real data sets do.
        pyarrow.parquet.write_table(rows, path, row_group_size=256, compression="zstd")
        print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}: {rows.num_rows:,} rows")


if __name__ == "__main__":
    main()
