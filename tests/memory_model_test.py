#!/usr/bin/env python3
"""Redoes the arithmetic of docs/explanation/memory-model.md and compares it with what its commands print.

Usage: memory_model_test.py PLIMSOLL (from the repository's root)

A row's last cell is its number; text between backticks in the cell before is its formula over the names of the
first table. Numbers may have commas, `x` multiplies.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

PAGE = pathlib.Path("docs/explanation/memory-model.md")
PLIMSOLL = "build/plimsoll"
LAYER = "model.layers.1."


def commands():
    """The two commands of the chapter: --json and --dump table."""
    return [line for line in PAGE.read_text().splitlines() if line.startswith("plimsoll plan") and "--max-isa" in line]


def output(command):
    words = shlex.split(command)
    return subprocess.run([PLIMSOLL, *words[1:]], capture_output=True, text=True, check=True, timeout=600).stdout


def tables():
    """Rows of every table of the chapter, as lists of cells."""
    text = PAGE.read_text()
    chapter = text[text.index("## An example"):text.index("## Reuse")]
    found = [[]]
    for line in chapter.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    return [table[2:] for table in found if table]


def number(text):
    return int(text.replace(",", ""))


def formulas(cell):
    return [re.sub(r"(?<=\d),(?=\d)", "", formula).replace(" x ", " * ") for formula in re.findall("`([^`]+)`", cell)]


class MemoryModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.names_table, cls.arena, cls.layer, cls.around, cls.loss, cls.host = tables()
        cls.names = {}
        for letters, _, _, values in cls.names_table:
            for letter, value in zip(letters.split(", "), values.split("; "), strict=True):
                cls.names[letter] = number(value)
        plan, table = commands()
        cls.plan = json.loads(output(plan))
        cls.dump = output(table)

    def value(self, formula):
        return eval(formula, {"__builtins__": {}}, self.names)  # of our own page

    def test_every_formula_gives_the_number_beside_it(self):
        count = 0
        for table in (self.names_table, self.arena, self.layer, self.around, self.loss, self.host):
            for row in table:
                parts = formulas(row[-2])
                if parts:
                    self.assertEqual(self.value(parts[-1]), number(row[-1]), row)
                    count += 1
        self.assertGreater(count, 30)

    def test_sums_are_the_sums_of_their_lines(self):
        for table in (self.arena, self.layer, self.loss):
            *parts, total = [number(row[-1]) for row in table]
            self.assertEqual(sum(parts), total)
        rows = {row[0]: number(row[-1]) for row in self.arena}
        self.assertEqual(rows["library scratch"], number(self.loss[-1][-1]))
        self.assertIn(self.layer[-1][-1], self.arena[6][1])  # of activations kept
        self.assertIn(self.around[-1][-1], self.arena[6][1])

    def test_the_arena_is_the_plans(self):
        device = self.plan["device"]
        planned = [(part["name"], part["bytes"]) for part in device["components"]]
        self.assertEqual([(row[0], number(row[-1])) for row in self.arena],
                         [*planned, ("total", device["arena_bytes"])])

    def test_the_host_is_the_plans(self):
        planned = {part["name"]: part["bytes"] for part in self.plan["host"]["components"]}
        self.assertEqual(planned.keys(), {row[0] for row in self.host})
        for row in self.host:
            self.assertEqual(number(row[-1]), planned[row[0]])

    def test_what_a_layer_keeps_is_what_the_table_of_tensors_keeps(self):
        alive = {}  # name -> (bytes, first, last) of the layer's forward pass and of what surrounds the layers
        for line in self.dump.splitlines()[1:]:
            program, name, _, size, space, _, live, role = line.split(maxsplit=7)
            if program == "micro-step" and role.startswith("activation") and not name.startswith("d_"):
                first, last = map(int, live.split(".."))
                alive[name] = (int(size), first, last)
        end = alive["model.norm.out.rstd"][1]  # the last op of the forward pass writes it
        kept = {name: size for name, (size, first, last) in alive.items() if first <= end < last}
        adapters = {name: size for name, size in kept.items() if name.startswith(LAYER) and "lora_A" in name}
        rows = {LAYER + row[0]: number(row[-1]) for row in self.layer[:-2]}
        self.assertEqual({name: kept[name] for name in kept if name.startswith(LAYER) and name not in adapters}, rows)
        self.assertEqual(sum(adapters.values()), number(self.layer[-2][-1]))
        self.assertEqual(len(adapters), 7)
        others = {name: size for name, size in kept.items() if "layers." not in name}
        self.assertEqual(set(others), set(self.around[0][0].split(", ")))
        self.assertEqual(sum(others.values()), number(self.around[0][-1]))
        self.assertEqual(sum(kept.values()), {row[0]: number(row[-1]) for row in self.arena}["activations kept"])

    def test_ops_and_tensors_are_as_many_as_the_page_says(self):
        dump = output(commands()[1].replace("--dump table", "--dump program"))
        lines = dump.splitlines()
        ops = [line.split(" = ")[0] for line in lines if " = " in line]
        tensors = sum(line.startswith("tensor ") for line in lines)
        tensors += sum(bool(re.search(r" [a-z]+\d+\[", result)) for op in ops for result in op.split(", "))
        stated = {row[0]: row[1] for row in self.host}["programs"]
        self.assertIn(f"{len(ops):,} x 1,024 + {tensors:,} x 640", stated)


if __name__ == "__main__":
    PLIMSOLL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
