#!/usr/bin/env python3
"""A struct, class or enumeration of a header has a name of its own.

Of one namespace: no compiler notices two definitions, the linker takes the templates of either for both, and a container of one runs
as the other's. Of two folders: a reader who looks for one finds the other. Names that two folders share are in HOMONYMS, with what
each is; one that they no longer share is an error too. Tests' own headers are left out of that.
"""
import collections
import pathlib
import re
import sys

NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)
DEFINITION = re.compile(r"^(?:struct|class|enum class) (?:alignas\([^)]*\) )?(\w+)\b(?!::)[^;{(]*\{", re.M)
HOMONYMS = {
    "Answer": "a model's; what a command of Slurm printed",
    "Block": "of rows of a file; of threads on the emulated GPU",
    "Card": "of the catalogue; one that computes",
    "Columns": "of attention's tiles; of a GLA block",
    "Expression": "of a template; a regular expression of the doctor",
    "Fault": "of a layout; of an emulated kernel",
    "Graph": "a program; captured launches",
    "Job": "of Slurm; of a simulated queue",
    "Machine": "whose rates were measured; whose memory a queue gives out",
    "Placement": "of a buffer in memory; of a run on GPUs",
    "Progress": "of a report that is made; of a run that is shown",
    "Queue": "of a kind of op; of a GPU",
    "Shuffle": "of rows; of a warp",
    "Span": "of memory over time; of a text",
    "Statement": "of a template; of SQL",
    "Stream": "of random numbers; of an optimizer's random numbers; of launches",
    "Target": "what is planned for; what a template assigns to",
    "Verdict": "on a layout; on a log",
    "Words": "of random numbers; of a tokenizer's text",
    "Workload": "what is planned; what a simulated queue gets",
}


def definitions(root):
    """{name: {(namespace, path)}}; one file may hold variants by #if."""
    places = collections.defaultdict(set)
    for path in sorted((root / "src").rglob("*.h")):
        text = path.read_text()
        found = NAMESPACE.search(text)
        for match in DEFINITION.finditer(text) if found else ():
            places[match.group(1)].add((found.group(1), path.relative_to(root)))
    return places


def problems(root, homonyms):
    shared = set()
    for name, places in sorted(definitions(root).items()):
        spaces = collections.defaultdict(list)
        for space, path in sorted(places, key=str):
            spaces[space].append(path)
        yield from (f"{space}::{name} is defined in {' and in '.join(map(str, paths))}" for space, paths in spaces.items() if len(paths) > 1)
        paths = [path for _, path in sorted(places, key=str) if not path.name.startswith("test_")]
        if len({path.parent for path in paths}) > 1:
            shared.add(name)
            if name not in homonyms:
                yield (f"{name} is defined in {' and in '.join(map(str, paths))}: give each a name of its own, or say in HOMONYMS of "
                       "scripts/check_names.py what each is")
    yield from (f"{name} is no longer of two folders: take it out of HOMONYMS in scripts/check_names.py" for name in sorted(homonyms.keys() - shared))


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(problems(root, HOMONYMS if len(sys.argv) == 1 else {}))
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))
