#!/usr/bin/env python3
"""Writes the tokenizers of scripts/tokenizer_zoo.py as tests/golden/tokenizers/NAME.json, and beside each NAME.cases.json:
texts with the ids and decoded texts of the `tokenizers` library. Trains two SentencePiece models too (`pip install
sentencepiece`), with cases from its own library.
    python3 scripts/make_tokenizer_goldens.py [NAME ...]
"""
import json
import sys

from tokenizers import Tokenizer

from tokenizer_zoo import FOLDER, SAMPLE, ZOO

TRICKY = """
||  x|x  |\r\n|a\r\nb|\n\n\n|\t\tx|it'S IT'ſ|don't|'ſab|'LLama 'Re 're'|12345 ½ Ⅻ ٣|e\u0301|é|ắ|a\u0306\u0301|ﬁ\u0301
①㋿ﷺ～|ｶﾞ|\u1112\u1161\u11ab|\u1112\u1161 \u11ab|नमस्ते|你好，世界。|\u3000|a\u00a0b|a\u0085b|a\u180eb|a\u200bb
\ufeffx|\ufffd|a\u001cb|a\x00b|\u0378|\ue000|\U00031350|👨‍👩‍👧‍👦|<0x41>|▁x|</s>|<s>x|x </s> y|in<|im_end|>side
<|im_start|>user\n  hi<|im_end|>\n|<|im_end|>\u0301|e<|im_end|>|<extra_id_0>|[MASK] |  [MASK]  x|a  <left> \t<right>  b
word alone|sword|word|words word, _word word|byté\u0301|cafe\u0301s|café|a  b|a   \n  b|a \n\n  |   \r\n \r
HTMLParser camelCaseÉÀ ǅabc ʰAʰ ªb ÀÁ́a|_A_b/c//\r\n/|!!!\n\n|  !?\r\n a|\u2028\u2029 x|½½½½ 1234567|\"\"\"\\\"\"\"\"|a1b22c333d4444
ΑΒγδ Ωω ﬀ ŉ 'K 'ß|https://x.y/z?a=b|\u0301\u0301a|x\u0301\u0301|ﾊﾟ|\u212b \u2126|\U0001d400\U0001d7ce|\u0600\u06dd
"""
REPEATED = [("a", 101), ("a", 50000), (" ", 3000), ("\u0301", 150), ("ab", 200), ("\n ", 150), ("'s", 100), ("1", 400)]
BROKEN = ["ff", "61ff62", "c080", "eda080", "f09f9184", "f09f91", "f09f9161", "e282", "f4908080", "80bf", "c3a9c3", "f0808080"]


def texts():
    # "|" separates, but not inside <|..|>.
    for line in TRICKY.strip("\n").replace("<|", "\ue100").replace("|>", "\ue101").split("\n"):
        for text in line.split("|"):
            yield text.replace("\ue100", "<|").replace("\ue101", "|>")
    for line in (FOLDER / "sample.txt").read_text().splitlines()[::3]:
        yield line[:120]


def runs(ids):
    """[[id, count], ...]"""
    out = []
    for i in ids:
        if out and out[-1][0] == i:
            out[-1][1] += 1
        else:
            out.append([i, 1])
    return out


def outcome(tokenizer, text):
    # The reference compares spellings to skip special tokens, and misses normalized ones that are spelled otherwise
    # than they are written. Plimsoll goes by the ids.
    special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return {
        "ids": ids,
        "special_ids": tokenizer.encode(text, add_special_tokens=True).ids,
        "decoded": tokenizer.decode(ids, skip_special_tokens=False),
        "skipped": tokenizer.decode([id for id in ids if id not in special], skip_special_tokens=False),
    }


def compact(case):
    """Drops what follows from the rest: special_ids equal to ids, decoded texts equal to the text."""
    if case["special_ids"] == case["ids"]:
        del case["special_ids"]
    if case["skipped"] == case["decoded"]:
        del case["skipped"]
    if case["decoded"] == case.get("text"):
        del case["decoded"]
    return case


def cases(tokenizer):
    for text in texts():
        yield compact({"text": text} | outcome(tokenizer, text))
    for data in BROKEN:
        yield compact({"hex": data} | outcome(tokenizer, bytes.fromhex(data).decode("utf-8", "replace")))
    for text, times in REPEATED:
        yield {"repeat": text, "times": times, "runs": runs(tokenizer.encode(text * times, add_special_tokens=False).ids)}


def write_lines(name, cases):
    lines = (json.dumps(case, separators=(",", ":")) for case in cases)
    (FOLDER / f"{name}.cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def write(name):
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(ZOO[name](), ensure_ascii=False, separators=(",", ":")) + "\n")
    write_lines(name, cases(Tokenizer.from_file(str(path))))


# A small character map: entries that start like others, that delete, that make spaces and several characters.
RULES = ["42 \t62", "1 \t", "9 \t20", "A \t20", "D \t20", "D A \t20", "A0 \t20", "3000 \t20", "65 301 \tE9",
         "61 306 301 \t1EAF", "FB01 \t66 69", "FB01 301 \t78", "2460 \t31", "FF5E \t7E", "200B \t", "FEFF \t20",
         "212B \tC5", "FDFA \t635 20 644"]
SENTENCE_PIECE = {
    "sp_unigram": dict(model_type="unigram", vocab_size=700, user_defined_symbols=["<sep>", "[MASK]"]),
    "sp_bpe": dict(
        model_type="bpe", vocab_size=1000, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, character_coverage=0.98, user_defined_symbols=["[MASK]"],
    ),
}


def write_sentence_piece(name):
    import sentencepiece

    options = dict(SENTENCE_PIECE[name])
    rules = FOLDER / "rules.tsv"
    if name == "sp_unigram":
        rules.write_text("".join(rule.replace(" \t", "\t") + "\n" for rule in RULES))
        options["normalization_rule_tsv"] = str(rules)
    sentencepiece.SentencePieceTrainer.train(
        input=str(SAMPLE), model_prefix=str(FOLDER / name), minloglevel=2, hard_vocab_limit=False, **options
    )
    (FOLDER / f"{name}.vocab").unlink()
    rules.unlink(missing_ok=True)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / f"{name}.model"))

    def cases():
        for text in texts():
            # A control piece in a text is text to SentencePiece, and a token to Plimsoll.
            if "<s>" not in text and "</s>" not in text:
                yield {"text": text, "ids": processor.encode(text)}

    write_lines(name, cases())


def main():
    names = sys.argv[1:] or [*SENTENCE_PIECE, *ZOO]
    for name in names:
        (write_sentence_piece if name in SENTENCE_PIECE else write)(name)


if __name__ == "__main__":
    main()
