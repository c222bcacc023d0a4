#!/usr/bin/env python3
"""How long `plimsoll plan` takes on many rows: from a sample, counting every one, and with their counts kept.

    .deps/parity/bin/python3 bench/counting.py --work FOLDER [--rows 100000,1000000] [--threads 1,2] [--kinds chat,text] [--out results.json]

Rows of about 200 tokens: texts (`text`), and messages under the chatml template (`chat`), cut out of the Python standard library's
sources and shuffled. The tokenizer is a byte-level BPE of some 20,000 tokens, trained once on the same sources
(scripts/tokenizer_zoo.py). Nothing is probed; wall and processor seconds of the whole command. The counts must be the same for each number of
threads. Needs tokenizers.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
CONFIG = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
          "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
          "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "max_position_embeddings": 32768, "tie_word_embeddings": True,
          "torch_dtype": "bfloat16", "hidden_act": "silu"}
WORDS = 145  # of a row: about 200 tokens of such text


def sources():
    files = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    return "\n".join(file.read_text(errors="replace").replace("\0", " ") for file in files)


def make_model(folder):
    import tokenizer_zoo

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    if (folder / "tokenizer.json").exists():
        return
    tokenizer_zoo.SAMPLE, tokenizer_zoo.SCALE = folder / "sample.txt", 20
    tokenizer_zoo.SAMPLE.write_text(sources()[:4_000_000])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_zoo.ZOO["qwen2"](), ensure_ascii=False))


def write_rows(path, kind, rows):
    if path.exists():
        return
    lines = [line + "\n" for line in sources().split("\n") if line.strip()]
    starts, draw = range(len(lines)), random.Random(7)
    with open(path, "w") as out:
        for _ in range(rows):
            at, words, text = draw.choice(starts), 0, ""
            most = draw.randrange(WORDS // 2, WORDS * 3 // 2)
            while words < most:
                line = lines[at % len(lines)]
                words, text, at = words + 1 + len(line) // 6, text + line, at + 1
            cut = len(text) // 4
            row = {"text": text} if kind == "text" else {"messages": [{"role": "user", "content": text[:cut]},
                                                                       {"role": "assistant", "content": text[cut:]}]}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def measure(arguments, kind, rows):
    data = arguments.work / f"{kind}-{rows}.jsonl"
    write_rows(data, kind, rows)
    recipe = arguments.work / "recipe.json"
    settings = {"model": str(arguments.work / "model"), "data": {"train": str(data), "max_length": 1024},
                "method": {"type": "lora"}, "output": str(arguments.work / "run")}
    if kind == "chat":
        settings["data"]["template"] = "chatml"
    else:
        settings["task"] = "pretrain"
    recipe.write_text(json.dumps(settings))
    cache = arguments.work / "cache"
    environment = {**os.environ, "PLIMSOLL_CACHE_DIR": str(cache), "PLIMSOLL_NO_PROBE": "1"}
    result, counts = {}, []

    def take(name, *words):
        start, before = time.perf_counter(), os.times()
        done = subprocess.run([arguments.plimsoll, "plan", recipe, "--json", *words], capture_output=True, text=True, env=environment)
        if done.returncode not in (0, 3):
            sys.exit(done.stderr)
        wall, after = time.perf_counter() - start, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        result[name] = {"wall_s": round(wall, 2), "processor_s": round(cpu, 2)}
        print(f"{rows} rows of {kind}, {name}: {wall:.2f} s, {cpu:.2f} of processors", flush=True)
        return json.loads(done.stdout)["data"]

    shutil.rmtree(cache, ignore_errors=True)
    take("sampled")
    for threads in arguments.threads.split(","):
        shutil.rmtree(cache, ignore_errors=True)
        data = take(f"counting, {threads} threads", "--count", "--threads", threads)
        counts.append([data, [json.loads(file.read_text()) for file in sorted((cache / "rows").iterdir())]])
    take("counted")
    if any(each != counts[0] for each in counts):
        sys.exit("the counts are not the same for each number of threads")
    return {**result, "tokens_per_row": round(data["tokens"] / rows, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=str(ROOT / "build/plimsoll"))
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--kinds", default="chat,text")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.work = arguments.work.resolve()
    make_model(arguments.work / "model")
    results = {kind: {rows: measure(arguments, kind, int(rows)) for rows in arguments.rows.split(",")}
               for kind in arguments.kinds.split(",")}
    print(json.dumps(results, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
