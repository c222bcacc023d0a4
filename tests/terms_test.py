#!/usr/bin/env python3
"""The field's words stand where people look for them: in the help of a command and in the explanation of a recipe's key
(TERMS in scripts/check_pages.py, which itself looks at the pages): python3 tests/terms_test.py PLIMSOLL
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import check_pages  # noqa: E402

PLIMSOLL = ""


def printed(*arguments):
    done = subprocess.run([PLIMSOLL, *arguments], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return done.stdout


def explanations(text):
    """The lines of each entry of a list, by what it begins with: a key of the recipe, or an option behind blanks."""
    found, name = {}, None
    for line in text.splitlines():
        begin = re.match(r"([a-z][a-z_.0-9]*|  --[a-z-]+)(?: |$)", line)
        name = begin[1].strip() if begin else name
        if name:
            found[name] = found.get(name, "") + line + "\n"
    return found


def missing(terms):
    """What the help and the explanations lack of `terms`."""
    keys = explanations(printed("recipe", "--explain"))
    for term, (_, command, key) in terms.items():
        page = printed(command, "--help")
        if not check_pages.has_term(re.split(r"\n(?:ARGUMENTS|OPTIONS)\n", page)[0], term):
            yield f"plimsoll {command} --help does not say '{term}'"
        entry = (explanations(page) if key.startswith("--") else keys).get(key)
        if entry is None:
            yield f"'{term}': no {key} is explained"
        elif not check_pages.has_term(entry, term):
            yield f"the explanation of {key} does not say '{term}'"


class Terms(unittest.TestCase):
    def test_each_stands_in_its_help_and_in_the_explanation_of_its_key(self):
        self.assertEqual(list(missing(check_pages.TERMS)), [])

    def test_a_word_that_is_not_there_is_found_missing(self):
        self.assertEqual(list(missing({"peak arena": ("", "plan", "memory.device"), "KV cache": ("", "train", "no.key"), "batch size": ("", "eval", "--context")})),
                         ["plimsoll plan --help does not say 'peak arena'", "the explanation of memory.device does not say 'peak arena'",
                          "plimsoll train --help does not say 'KV cache'", "'KV cache': no no.key is explained",
                          "the explanation of --context does not say 'batch size'"])


if __name__ == "__main__":
    PLIMSOLL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
