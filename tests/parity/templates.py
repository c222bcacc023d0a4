"""Templates against transformers' own rendering, on every case of template_cases.py.

    python -m tests.parity.templates --tool build/tests/parity/plimsoll_template_tool

With --published also the chat templates of a folder, as packages carry those of public models (TRL's has a folder chat_templates).

A case that one side renders and the other refuses fails, but for constructs that Plimsoll refuses on purpose
(REFUSED): each must be refused, so that the list cannot grow stale.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

from transformers.utils import chat_template_utils

from tests.parity.template_cases import cases, chat_cases

NOW = (2024, 3, 7, 15, 4, 5)
# Parts of our messages for what transformers renders: printing a generator or a function, formatting by '%', and
# values that only Python has.
REFUSED = ("cannot be printed", "is not supported", "beyond 64 bits", "more than 64 bits", "must be from 0 to 15")


class FixedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW)


def theirs(template, variables):
    """{"text", "generated" in bytes} or {"error"}."""
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        text, spans = chat_template_utils._render_with_assistant_indices(
            compiled, variables.get("messages"), variables.get("tools"), variables.get("documents"),
            variables.get("add_generation_prompt"),
            **{k: v for k, v in variables.items() if k not in ("messages", "tools", "documents", "add_generation_prompt")})
    except Exception as error:  # any Python error is a refusal
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": text, "generated": [[len(text[:b].encode()), len(text[:e].encode())] for b, e in spans]}


def ours(tool, found):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cases.json"
        path.write_text(json.dumps([{"template": t, "variables": v, "now": NOW} for t, v in found]))
        return json.loads(subprocess.run([tool, path], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", type=pathlib.Path, required=True)
    parser.add_argument("--golden", type=pathlib.Path, help="write a sample of what transformers renders here")
    parser.add_argument("--published", type=pathlib.Path, help="a folder of chat templates, NAME.jinja, to compare as well")
    parser.add_argument("--verbose", action="store_true", help="what is refused on purpose")
    arguments = parser.parse_args()
    found = cases()
    if arguments.published:
        found += chat_cases([path.read_text() for path in sorted(arguments.published.glob("*.jinja"))])
    equal = refused = on_purpose = 0
    failures, reasons = [], {}
    with mock.patch.object(chat_template_utils, "datetime", FixedDatetime):
        expected = [theirs(*case) for case in found]
    for (template, _), want, got in zip(found, expected, ours(arguments.tool, found), strict=True):
        if "error" in want and "error" in got:
            refused += 1
        elif want == got:
            equal += 1
        elif "error" in got and any(part in got["error"] for part in REFUSED) or " at 0x" in want.get("text", ""):
            on_purpose += 1
            want["ours differs"] = True
            reasons[got["error"].split(": ", 1)[-1]] = template
        else:
            failures.append((template, want, got))
    for template, want, got in failures[:30]:
        print(f"FAIL {template!r}\n  transformers {want}\n  plimsoll     {got}")
    print(f"{len(found)} templates: {equal} equal, {refused} refused by both, {on_purpose} refused on purpose, "
          f"{len(failures)} differ")
    if arguments.verbose:
        print("\n".join(f"{reason}: {template}" for reason, template in reasons.items()))
    if arguments.golden:
        write_golden(arguments.golden, found, expected)
    sys.exit(1 if failures or equal < 1000 else 0)


def write_golden(path, found, expected):
    """A sample for the unit test, which runs without Python: every small template, a part of the rest."""
    shared = found[0][1]
    lines = []
    for number, ((template, variables), want) in enumerate(zip(found, expected, strict=True)):
        expression = template.startswith("{{ ") and variables is shared
        step = 9 if variables is not shared else 40 if expression and "error" in want else 3 if expression else 1
        if "ours differs" in want or number % step:
            continue
        case = {"template": template, **({"variables": variables} if variables is not shared else {})}
        lines.append(json.dumps({**case, **({"error": True} if "error" in want else want)}))
    path.write_text(json.dumps({"now": NOW, "variables": shared}) + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
