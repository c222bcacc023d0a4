#!/usr/bin/env python3
"""No two headers define a struct, class or enumeration of one name in one namespace.

No compiler notices, the linker takes the templates of either for both, and a container of one runs as the other's.
"""
import collections
import pathlib
import re
import sys

NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)
DEFINITION = re.compile(r"^(?:struct|class|enum class) (?:alignas\([^)]*\) )?(\w+)\b(?!::)[^;{(]*\{", re.M)


def problems(root):
    places = collections.defaultdict(set)  # one file may hold variants by #if
    for path in sorted((root / "src").rglob("*.h")):
        text = path.read_text()
        found = NAMESPACE.search(text)
        if not found:
            continue
        for match in DEFINITION.finditer(text):
            places[f"{found.group(1)}::{match.group(1)}"].add(path.relative_to(root))
    return [f"{name} is defined in {' and in '.join(map(str, sorted(paths)))}" for name, paths in sorted(places.items())
            if len(paths) > 1]


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = problems(root)
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))
