#!/usr/bin/env python3
"""Checks README.md and docs/: links and anchors lead somewhere, docs/README.md reaches every page, words that people search for are
there, files that they name exist, figures and numbers are those of bench/results and of the catalogue of GPUs, lines of prose
are short, and README.md is short and shows a picture. Pages that help, messages, comments and scripts name exist, and so does each section to which scripts/moved-sections.txt leads.
"""
import itertools
import json
import pathlib
import re
import sys

INDEX = "docs/README.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
# The field's words for what Plimsoll does: the page that describes it, the command whose --help names it, and the key of the recipe
# whose explanation does (an option of the command where no key is for it). tests/terms_test.py asks the program for the last two.
TERMS = {
    "gradient accumulation": ("docs/explanation/planner.md", "plan", "batch.micro"),
    "activation checkpointing": ("docs/explanation/recompute-and-offload.md", "plan", "memory.recompute"),
    "gradient clipping": ("docs/howto/train.md", "train", "optimizer.max_grad_norm"),
    "mixed precision": ("docs/howto/train.md", "train", "precision"),
    "early stopping": ("docs/howto/train.md", "train", "stop.patience"),
    "batch size": ("docs/howto/train.md", "plan", "batch.effective"),
    "throughput": ("docs/howto/train.md", "report", "memory.tie"),
    "peak memory": ("docs/howto/fit-into-memory.md", "plan", "memory.device"),
    "GPU memory": ("docs/explanation/memory-model.md", "devices", "memory.device"),
    "KV cache": ("docs/howto/answers.md", "generate", "--context"),
}
FIGURES = "<!-- figures: "
HEAD = "| Run (bf16) | Machine | tokens/s | transformers | peak memory | transformers |"
# Rows of README's table: the file in bench/results, and the run's name there.
RUNS = {
    "Qwen3-0.6B, LoRA, 2048 tokens": ("nvidia-h200-2026-11-26.json", "qwen3-0.6b sft lora, bf16, 2048 x 2 x 4"),
    "Qwen2.5-1.5B, full, 1024 tokens": ("nvidia-h200-2026-11-26.json", "qwen2.5-1.5b sft full, bf16, 1024 x 4 x 2"),
    "Mistral-7B, LoRA, reward model": ("nvidia-h200-2026-11-26.json", "mistral-7b reward lora, bf16, 1024 x 2 x 2"),
    "Qwen2.5-0.5B, LoRA, 512 tokens": ("compare-hf-epyc-zen4-2cores.json", "qwen2.5-0.5b lora 512x4"),
    "Qwen1.5-0.5B, full, 512 tokens": ("compare-hf-epyc-zen4-2cores.json", "qwen1.5-0.5b full 512x1"),
}


def has_term(text, term):
    return term.lower() in re.sub(r"\s+", " ", text).lower()


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]|\]\([^)]*\)|\[", "", title).lower()).replace(" ", "-") for title in titles}


def links(root, page, texts):
    """(target page or None, problem or None) of each link of a page to another file."""
    for target in LINK.findall(FENCE.sub("", texts[page])):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (root / page).parent / path if path else root / page
        name = str(file.resolve().relative_to(root.resolve())) if file.resolve().is_relative_to(root.resolve()) else path
        if not file.exists():
            yield None, f"{page}: links to {target}, which is not there"
        elif anchor and name in texts and anchor not in anchors(texts[name]):
            yield None, f"{page}: links to {target}, but {name} has no such heading"
        else:
            yield name, None


def unreached(reached, texts):
    pages, waiting = set(), [INDEX]
    while waiting:
        page = waiting.pop()
        if page in texts and page not in pages:
            pages.add(page)
            waiting.extend(reached[page])
    return [f"{page}: no page that {INDEX} leads to links to it" for page in sorted(texts) if page.startswith("docs/") and page not in pages]


def measured(root, run):
    """(tokens/s, theirs, peak GiB, theirs) of a run in bench/results."""
    file, name = RUNS[run]
    results = json.loads((root / "bench/results" / file).read_text())
    if "runs" in results:
        one = next(one for one in results["runs"] if one["case"] == name)
        theirs, bytes_ = one["transformers"], one["planned_arena_bytes"]
        return one["tokens_per_second"], theirs["tokens_per_second"], bytes_ / 2**30, theirs["peak_bytes"] / 2**30
    one = next(one for one in results["results"] if one["case"]["name"] == name)
    ours, theirs = one["plimsoll"], one["rival"]
    return ours["tokens_per_s"], theirs["tokens_per_s"], ours["peak_bytes"] / 2**30, theirs["peak_bytes"] / 2**30


def wrong_figures(root, text):
    if FIGURES not in text:
        return ["README.md: the table of figures is gone"]
    lines = text.split(FIGURES, 1)[1].splitlines()[1:]
    found, named = [], set()
    if lines[0] != HEAD:
        found.append(f"README.md: the head of the table of figures is not '{HEAD}'")
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines[2:]):
        cells = line.strip("|").split("|")
        run, shown = cells[0].strip(), [cell.strip() for cell in cells[2:]]
        if run not in RUNS:
            found.append(f"README.md: no measurement is known for the row '{run}'")
            continue
        named.add(run)
        speed, their_speed, peak, their_peak = measured(root, run)
        expected = [f"{speed:,.0f}", f"{their_speed:,.0f}", f"{peak:.1f} GiB", f"{their_peak:.1f} GiB"]
        if shown != expected:
            found.append(f"README.md: '{run}' shows {shown}, measured were {expected}")
    return found + [f"README.md: the row '{run}' is gone" for run in RUNS if run not in named]


PATH = re.compile(r"`((?:src|scripts|cmake|tests|docs|bench|examples)/[a-z0-9_./-]+\.[a-z]+)`")


def dead_paths(root, texts):
    return [f"{page}: names `{path}`, which is not there" for page, text in texts.items() for path in PATH.findall(text)
            if not (root / path).exists()]


WIDEST = 120
NAMED = re.compile(r"\bdocs/[a-z0-9_/-]+\.md\b")
NAMING = {"src": ("cc", "h", "def", "cu", "md"), "bench": ("py", "cc"), "cmake": ("cmake",), "demo": ("yaml", "sh"), "examples": ("yaml",),
          "scripts": ("py", "sh"), "tests/golden": ("txt",), "tests/gpu": ("py", "cc", "h", "txt")}
MOVED = "scripts/moved-sections.txt"


def missing_pages(root):
    """Pages of docs/ that help, messages, comments and scripts name, but that are not there."""
    files = [root / "Makefile", root / "CMakeLists.txt"]
    files += [path for folder, kinds in NAMING.items() for kind in kinds for path in sorted((root / folder).rglob(f"*.{kind}"))]
    for path in files:
        if path.exists():
            yield from (f"{path.relative_to(root)}: names {page}, which is not there" for page in sorted(set(NAMED.findall(path.read_text())))
                        if not (root / page).exists())


def lost_sections(root, texts):
    """Sections of earlier pages whose new place is not there."""
    for line in (root / MOVED).read_text().splitlines():
        if line.startswith("#"):
            continue
        old, new = line.split(" ")
        page, _, anchor = new.partition("#")
        text = texts.get(page) or ((root / page).read_text() if (root / page).exists() else None)
        if text is None or (anchor and anchor not in anchors(text)):
            yield f"{MOVED}: {old} went to {new}, which is not there"


def wide_lines(page, text):
    """Lines of prose that are too long. Tables, code and the targets of links may be longer, what has no blank to break at, and pages that a script writes."""
    if text.startswith("<!-- written by"):
        return
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        shown = re.sub(r"\]\([^)]*\)", "]", line).strip()
        prose = not fenced and not line.startswith(("|", "    ")) and " " in shown
        if prose and len(shown) + len(line) - len(line.lstrip()) > WIDEST:
            yield f"{page}:{number}: {len(shown)} characters of prose in a line, above {WIDEST}"


def wrong_counts(root, readme):
    """The number of GPUs that README gives, compared with the catalogue's."""
    known = len(re.findall(r'^\s*Card\{"', (root / "src/device/catalogue.cc").read_text(), re.M))
    said = re.search(r"for (\d+) GPUs", readme)
    return [] if said and int(said[1]) == known else [f"README.md: says {said[1] if said else 'no number of'} GPUs, src/device/catalogue.cc has {known}"]


README_MOST = {"lines": 85, "links": 12, "lines of terminal": 4}
PICTURE = re.compile(r"!\[([^\]]+)\]\(docs/pictures/[^)]+\)")
INSTALL = "    make install PREFIX=$HOME/.local\n"


def long_readme(readme):
    """What keeps README.md from being read in a minute: more of something than README_MOST, no picture with a text, no line that installs."""
    terminal = re.search(r"^```sh test.*?\n(.*?)^```", readme, re.M | re.S)
    counts = {"lines": readme.count("\n"), "links": len(LINK.findall(FENCE.sub("", readme))),
              "lines of terminal": terminal[1].count("\n") if terminal else 0}
    found = [f"README.md: {counts[what]} {what}, above {most}" for what, most in README_MOST.items() if counts[what] > most]
    if not terminal:
        found.append("README.md: no block of terminal that a test runs")
    if not PICTURE.search(readme):
        found.append("README.md: no picture of docs/pictures with an alternative text")
    return found if INSTALL in readme else [*found, f"README.md: the line that installs, '{INSTALL.strip()}', is gone"]


SUPPORTED = {"families": "src/models/families.def", "tasks": "src/tasks/tasks.def", "optimizers": "src/ops/optimizers.def"}
# What README calls things whose names in the program are not words.
CALLED = {"gemma2": "gemma 2", "gemma3_text": "gemma 2 and 3", "olmo2": "olmo 2", "olmo3": "olmo 3", "ministral3": "ministral 3", "phi3": "phi-3", "qwen3_5_text": "qwen3.5", "qwen3_next": "qwen3-next", "xlm_roberta": "xlm-roberta", "adamw8bit": "8-bit adamw", "classify": "classification"}


def unnamed(root, readme):
    """Families, tasks and optimizers of the program that README's list of what is supported leaves out."""
    listed = readme.partition("## What is supported")[2].partition("\n## ")[0].lower()
    for kind, table in SUPPORTED.items():
        for name in re.findall(r"^[A-Z]+\((\w+)", (root / table).read_text(), re.M):
            if CALLED.get(name, name) not in listed:
                yield f"README.md: 'What is supported' does not name {CALLED.get(name, name)}, one of the {kind} of {table}"


def problems(root):
    pages = [root / "README.md", root / "CONTRIBUTING.md", root / "src/README.md", *sorted((root / "docs").rglob("*.md"))]
    texts = {str(page.relative_to(root)): page.read_text() for page in pages if page.exists()}
    found, reached = [], {}
    for page in texts:
        reached[page] = []
        for target, problem in links(root, page, texts):
            if problem:
                found.append(problem)
            else:
                reached[page].append(target)
    found += [f"{page}: does not say '{term}', which it describes" for term, (page, _, _) in TERMS.items()
              if not has_term(texts.get(page, ""), term)]
    found += [f"docs/glossary.md: has no row for '{term}'" for term in TERMS
              if not has_term(" ".join(re.findall(r"^\| ([^|]*) \|", texts.get("docs/glossary.md", ""), re.M)), term.replace("batch size", "batch size,"))]
    found += [problem for page, text in texts.items() if page.startswith("docs/") for problem in wide_lines(page, text)]
    found += [*unnamed(root, texts["README.md"]), *long_readme(texts["README.md"]), *missing_pages(root), *lost_sections(root, texts)]
    return found + unreached(reached, texts) + wrong_figures(root, texts["README.md"]) + dead_paths(root, texts) + wrong_counts(root, texts["README.md"])


if __name__ == "__main__":
    found = problems(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))
