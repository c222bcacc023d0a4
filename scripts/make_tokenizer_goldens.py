#!/usr/bin/env python3
"""Trains small byte-level BPE tokenizers on tests/golden/tokenizers/sample.txt and writes, for each, NAME.json (the
tokenizer) and NAME.cases.json (texts with the ids and decoded texts of the `tokenizers` library).
    python3 scripts/make_tokenizer_goldens.py
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/tokenizers"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + SPACES
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES
)
# In the style of DeepSeek: no scanner knows these.
OTHER = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", r"[!-/][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+\s?"]

TRICKY = """
||  x|x  |\r\n|a\r\nb|\n\n\n|\t\tx|it'S IT'ſ|don't|'ſab|'LLama 'Re 're'|12345 ½ Ⅻ ٣|e\u0301|é|ắ|a\u0306\u0301|ﬁ\u0301
①㋿ﷺ～|ｶﾞ|\u1112\u1161\u11ab|\u1112\u1161 \u11ab|नमस्ते|你好，世界。|\u3000|a\u00a0b|a\u0085b|a\u180eb|a\u200bb
\ufeffx|\ufffd|a\u001cb|a\x00b|\u0378|\ue000|\U00031350|👨‍👩‍👧‍👦|<0x41>|▁x|</s>|<s>x|x </s> y|in<|im_end|>side
<|im_start|>user\n  hi<|im_end|>\n|<|im_end|>\u0301|e<|im_end|>|<extra_id_0>|[MASK] |  [MASK]  x|a  <left> \t<right>  b
word alone|sword|word|words word, _word word|byté\u0301|cafe\u0301s|café|a  b|a   \n  b|a \n\n  |   \r\n \r
HTMLParser camelCaseÉÀ ǅabc ʰAʰ ªb ÀÁ́a|_A_b/c//\r\n/|!!!\n\n|  !?\r\n a|\u2028\u2029 x|½½½½ 1234567|a1b22c333d4444
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
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return {
        "ids": ids,
        "special_ids": tokenizer.encode(text, add_special_tokens=True).ids,
        "decoded": tokenizer.decode(ids, skip_special_tokens=False),
        "skipped": tokenizer.decode(ids, skip_special_tokens=True),
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


def split(regex):
    return pre_tokenizers.Split(Regex(regex), "isolated")


def byte_level(prefix=False, regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def train(pre_tokenizer, vocab, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([str(FOLDER / "sample.txt")], trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def gpt2():
    tokenizer = train(byte_level(regex=True), 700)
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("[MASK]", lstrip=True, rstrip=True)])
    return tokenizer


def qwen2():
    tokenizer = train(pre_tokenizers.Sequence([split(QWEN2), byte_level()]), 900, normalizers.NFC())
    # One matched before normalising, one after, by its normalised form; a longer one that starts like another.
    tokenizer.add_tokens(
        [AddedToken("café", normalized=False), AddedToken("byte\u0301", normalized=True), "<|im_end|>\n\n", "\n\n"]
    )
    tokenizer.add_tokens([AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True)])
    return tokenizer


def qwen35():
    return train(pre_tokenizers.Sequence([split(QWEN35), byte_level()]), 600, normalizers.NFC())


def llama3():
    tokenizer = train(pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), 600)
    # Whole words that no merges reach: only ignore_merges finds them.
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    for token in data["added_tokens"]:
        token["id"] += 2
    data["model"]["vocab"] |= {"ĠViá»ĩt": 600, "camel": 601}
    tokenizer = Tokenizer.from_str(json.dumps(data))
    start = tokenizer.token_to_id("<|im_start|>")
    template = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def tekken():
    return train(pre_tokenizers.Sequence([split(TEKKEN), byte_level()]), 600, ignore_merges=True)


def other():
    stages = [split(OTHER[0]), split(OTHER[1]), split(OTHER[2]), pre_tokenizers.Digits(True)]
    stages += [pre_tokenizers.Split("_", "merged_with_next"), pre_tokenizers.Split("/", "contiguous"), byte_level(True, True)]
    return train(pre_tokenizers.Sequence(stages), 400, normalizers.Sequence([normalizers.NFD(), normalizers.NFKC()]))


def write(name, tokenizer, string_merges=False):
    data = json.loads(tokenizer.to_str())
    if string_merges:
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    tokenizer = Tokenizer.from_file(str(path))
    lines = (json.dumps(case, separators=(",", ":")) for case in cases(tokenizer))
    (FOLDER / f"{name}.cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    write("gpt2", gpt2(), string_merges=True)
    for make in (qwen2, qwen35, llama3, tekken, other):
        write(make.__name__, make())


if __name__ == "__main__":
    main()
