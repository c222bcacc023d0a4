"""Small tokenizers, one for each way that models put the parts of a tokenizer.json together, trained on
tests/golden/tokenizers/sample.txt (for the goldens) or another text. ZOO maps a name to a function that returns the content of the file."""
import base64
import io
import json
import pathlib

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/tokenizers"
# What the tokenizers are trained on, and by how much their vocabularies are larger than the goldens'.
SAMPLE = FOLDER / "sample.txt"
SCALE = 1
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
MARK = "\u2581"


def split(regex):
    return pre_tokenizers.Split(Regex(regex), "isolated")


def byte_level(prefix=False, regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def content(tokenizer):
    return json.loads(tokenizer.to_str())


def load(data):
    return Tokenizer.from_str(json.dumps(data))


# --- BPE over bytes


def train_bytes(pre_tokenizer, vocab, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab * SCALE, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([str(SAMPLE)], trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def gpt2():
    tokenizer = train_bytes(byte_level(regex=True), 700)
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("[MASK]", lstrip=True, rstrip=True)])
    data = content(tokenizer)
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return data


def qwen2():
    tokenizer = train_bytes(pre_tokenizers.Sequence([split(QWEN2), byte_level()]), 900, normalizers.NFC())
    # One matched before normalising, one after, by its normalised form; a longer one that starts like another.
    tokenizer.add_tokens(
        [AddedToken("café", normalized=False), AddedToken("byte\u0301", normalized=True), "<|im_end|>\n\n", "\n\n"]
    )
    tokenizer.add_tokens([AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True)])
    return content(tokenizer)


def qwen35():
    return content(train_bytes(pre_tokenizers.Sequence([split(QWEN35), byte_level()]), 600, normalizers.NFC()))


def llama3():
    tokenizer = train_bytes(pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), 600)
    # Whole words that no merges reach: only ignore_merges finds them.
    data = content(tokenizer)
    data["model"]["ignore_merges"] = True
    for token in data["added_tokens"]:
        token["id"] += 2
    data["model"]["vocab"] |= {"ĠViá»ĩt": 600, "camel": 601}
    tokenizer = load(data)
    start = tokenizer.token_to_id("<|im_start|>")
    template = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return content(tokenizer)


def tekken():
    return content(train_bytes(pre_tokenizers.Sequence([split(TEKKEN), byte_level()]), 600, ignore_merges=True))


def other():
    stages = [split(OTHER[0]), split(OTHER[1]), split(OTHER[2]), pre_tokenizers.Digits(True)]
    stages += [pre_tokenizers.Split("_", "merged_with_next"), pre_tokenizers.Split("/", "contiguous"), byte_level(True, True)]
    normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.NFKC()])
    return content(train_bytes(pre_tokenizers.Sequence(stages), 400, normalizer))


# --- BPE over characters, with byte fallback


def train_characters(vocab, bytes_known=range(256)):
    """The model of Llama 2 and the like: the trainer makes no byte pieces, so they are put before the others."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab * SCALE, special_tokens=["<unk>", "<s>", "</s>"], limit_alphabet=90 * SCALE, show_progress=False
    )
    tokenizer.train([str(SAMPLE)], trainer)
    data = content(tokenizer)
    pieces = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    pieces[3:3] = [f"<0x{byte:02X}>" for byte in bytes_known]
    # Runs of spaces, as published vocabularies have them.
    runs = [MARK * n for n in (2, 3, 4) if MARK * n not in pieces]
    data["model"]["vocab"] = {piece: i for i, piece in enumerate(pieces + runs)}
    data["model"]["merges"] += [[MARK, MARK], [MARK * 2, MARK], [MARK * 2, MARK * 2]][: len(runs)]
    data["model"] |= {"byte_fallback": True, "fuse_unk": True}
    data["pre_tokenizer"] = None
    return data


LLAMA2_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}


def with_template(data, single, tokens):
    ids = {t["content"]: t["id"] for t in data["added_tokens"]} | data["model"]["vocab"]
    tokenizer = load(data)
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=[(t, ids[t]) for t in tokens])
    return content(tokenizer)


def llama2():
    """The legacy form: a normaliser, no pre-tokeniser."""
    data = train_characters(700)
    data["decoder"] = LLAMA2_DECODER
    for token in data["added_tokens"]:
        token["normalized"] = token["content"] == "<s>"  # as early files had it
    return with_template(data, "<s> $A", ["<s>"])


def mistral():
    """The newer form: Metaspace; some bytes are missing, so that some characters stay unknown."""
    data = train_characters(700, [b for b in range(256) if b not in (0xE2, 0x07)])
    data["normalizer"] = None
    data["pre_tokenizer"] = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}
    data["decoder"] = LLAMA2_DECODER
    data["model"]["fuse_unk"] = False
    return with_template(data, "<s> $A", ["<s>"])


def gemma():
    data = train_characters(700)
    data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    data["pre_tokenizer"] = {
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False
    }
    data["decoder"] = {"type": "Sequence", "decoders": LLAMA2_DECODER["decoders"][:3]}
    data["added_tokens"][1]["lstrip"] = data["added_tokens"][2]["rstrip"] = True
    return with_template(data, "<s> $A </s>", ["<s>", "</s>"])


def chatlm():
    """BPE on characters with a pre-tokeniser, as ChatLM-mini-Chinese has it."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()])
    stages = [pre_tokenizers.Punctuation(), pre_tokenizers.Digits(True), pre_tokenizers.Metaspace()]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(stages)
    tokenizer.decoder = decoders.Metaspace()
    special = ["[PAD]", "[EOS]", "[SEP]", "[BOS]", "[CLS]", "[MASK]", "[UNK]"]
    trainer = trainers.BpeTrainer(vocab_size=600 * SCALE, special_tokens=special, limit_alphabet=250 * SCALE, show_progress=False)
    tokenizer.train([str(SAMPLE)], trainer)
    tokenizer.add_tokens(["\t", "\n"])
    data = content(tokenizer)
    data["pre_tokenizer"]["pretokenizers"][2] = {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}
    return data


def clip():
    """BPE with a suffix for the last symbol of a word, and a prefix for all but the first."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="@@"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=1500 * SCALE, special_tokens=["<unk>"], end_of_word_suffix="</w>", continuing_subword_prefix="@@",
        show_progress=False,
    )
    tokenizer.train([str(SAMPLE)], trainer)
    return content(tokenizer)


# --- Unigram


def train_unigram(vocab, normalizer, pre_tokenizer, special):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab * SCALE, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train([str(SAMPLE)], trainer)
    return tokenizer


def fields(message):
    """(number, value) of a protocol buffer whose fields are varints, 32-bit numbers or bytes."""
    i = 0

    def varint():
        nonlocal i
        value = shift = 0
        while True:
            byte = message[i]
            i += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while i < len(message):
        key = varint()
        size = {0: 0, 2: 0, 5: 4}[key & 7] or (varint() if key & 7 == 2 else 0)
        yield key >> 3, message[i : i + size] if key & 7 else varint()
        i += size


def charsmap():
    """SentencePiece's nmt_nfkc, the map of T5, mT5 and XLM-R; it comes inside of every model trained with it."""
    import sentencepiece

    file = io.BytesIO()
    lines = iter(SAMPLE.read_text().splitlines())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=file, vocab_size=700, hard_vocab_limit=False, minloglevel=2
    )
    normalizer_spec = dict(fields(file.getvalue()))[3]
    return base64.b64encode(dict(fields(normalizer_spec))[2]).decode()


def t5():
    normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), MARK)]
    )
    tokenizer = train_unigram(800, normalizer, pre_tokenizers.Metaspace(), ["<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([f"<extra_id_{i}>" for i in range(3)])
    return with_template_tokens(tokenizer, "$A </s>", ["</s>"])


def with_template_tokens(tokenizer, single, tokens):
    pairs = [(t, tokenizer.token_to_id(t)) for t in tokens]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=pairs)
    return content(tokenizer)


def mt5():
    """T5's older pre-tokeniser, and bytes for the unknown."""
    stages = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer = train_unigram(800, normalizers.NFC(), stages, ["<pad>", "</s>", "<unk>"])
    data = with_template_tokens(tokenizer, "$A </s>", ["</s>"])
    data["model"]["byte_fallback"] = True
    data["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256) if byte != 0xF0]
    data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Strip", "strip_left": True, "strip_right": False},
                          {"type": "Replace", "pattern": {"String": "a"}, "content": ""}]}
    data["pre_tokenizer"]["pretokenizers"][1]["prepend_scheme"] = "first"
    data["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace",
                       "replacement": MARK, "prepend_scheme": "always", "split": True}]}
    return data


def xlmr():
    data = t5()
    data["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap()}
    stages = [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": MARK, "str_rep": MARK, "add_prefix_space": True}]
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": stages}
    return data


# --- WordPiece and WordLevel


def train_bert(vocab, lowercase, **normalizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, **normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=vocab * SCALE, special_tokens=special, show_progress=False)
    tokenizer.train([str(SAMPLE)], trainer)
    return tokenizer


def bert():
    tokenizer = train_bert(1200, True)
    return with_template_tokens(tokenizer, "[CLS] $A [SEP]", ["[CLS]", "[SEP]"])


def bert_cased():
    tokenizer = train_bert(1600, False, handle_chinese_chars=False)
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return content(tokenizer)


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    stages = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(stages + [pre_tokenizers.CharDelimiterSplit("|")])
    trainer = trainers.WordLevelTrainer(vocab_size=500 * SCALE, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train([str(SAMPLE)], trainer)
    return content(tokenizer)


ZOO = {
    make.__name__: make
    for make in (gpt2, qwen2, qwen35, llama3, tekken, other, llama2, mistral, gemma, chatlm, clip, t5, mt5, xlmr,
                 bert, bert_cased, word_level)
}
