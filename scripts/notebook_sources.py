#!/usr/bin/env python3
"""The code of each notebook as a file of Python, for the checkers of types: scripts/notebook_sources.py OUT_FOLDER."""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def source_of(book):
    """The cells of code, without the lines that speak to the notebook (%pip)."""
    cells = [cell["source"] for cell in json.loads(book.read_text())["cells"] if cell["cell_type"] == "code"]
    return "".join("".join(line for line in lines if not line.startswith("%")) + "\n" for lines in cells)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: notebook_sources.py OUT_FOLDER")
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for book in sorted((ROOT / "examples/notebooks").glob("*.ipynb")):
        (out / f"{book.stem.replace('-', '_')}.py").write_text(source_of(book))
