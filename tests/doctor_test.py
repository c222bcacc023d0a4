"""plimsoll doctor over a corpus of logs (doctor/logs, expectations in doctor/expected.json), as they are and as logs
get cut, wrapped, prefixed and mixed on their way to a reader."""
import json
import subprocess
import unittest
from pathlib import Path

from command_run import PLIMSOLL, ROOT

CORPUS = ROOT / "tests/doctor"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())
TRAPS = sorted(name for name in EXPECTED if name.startswith("trap-"))
MESSAGES = sorted(name for name in EXPECTED if not name.startswith("trap-"))
# What is one line of a table, a file or a screen by itself: a wrapped or prefixed one is no such thing any more.
LINES = {"memory-events", "slurm-sacct", "docker-inspect", "kubectl-describe", "kubectl-json"}


def log(name):
    return (CORPUS / "logs" / f"{name}.log").read_text()


def diagnose(text, *options):
    """The JSON of a log given on standard input."""
    done = subprocess.run([str(PLIMSOLL), "doctor", "-", "--json", *options], input=text.encode(), capture_output=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def same(wanted, got):
    """A printed size stands for all that round to it."""
    if isinstance(wanted, list):
        return got is not None and len(got) == len(wanted) and all(
            a["pid"] == b["pid"] and abs(a["bytes"] - b["bytes"]) <= 1 for a, b in zip(wanted, got))
    if isinstance(wanted, int) and isinstance(got, int):
        return abs(wanted - got) <= 1
    return wanted == got


def field_faults(name, found):
    """Figures of the corpus that were not read, or read wrongly, as text."""
    wanted = EXPECTED[name]
    evidence = found["evidence"] or {"message": None, "line": None, "figures": {}}
    faults = []
    if wanted.get("message", evidence["message"]) != evidence["message"]:
        faults.append(f"{name}: message {evidence['message']}, not {wanted['message']}")
    faults += [f"{name}: {key} {evidence['figures'].get(key)}, not {value}"
               for key, value in wanted.get("figures", {}).items() if not same(value, evidence["figures"].get(key))]
    other = wanted.get("any_message")
    if other:
        all_of = [evidence] + found["supporting"]
        match = [m for m in all_of if m["message"] == other["message"]]
        if not match:
            return faults + [f"{name}: no {other['message']}"]
        faults += [f"{name}: {key} {match[0]['figures'].get(key)}, not {value}"
                   for key, value in other["figures"].items() if not same(value, match[0]["figures"].get(key))]
    return faults


def cause_faults(name, found):
    wanted = EXPECTED[name]
    if (found["out_of_memory"], found["cause"]) == (wanted["out_of_memory"], wanted["cause"]):
        return []
    return [f"{name}: {found['out_of_memory']}, {found['cause']}; not {wanted['out_of_memory']}, {wanted['cause']}"]


def wrapped_at_words(text, width=60):
    lines = []
    for line in text.splitlines():
        while len(line) > width and " " in line[1:width]:
            at = line.rindex(" ", 1, width)
            lines.append(line[:at])
            line = line[at + 1:]
        lines.append(line)
    return "\n".join(lines) + "\n"


def wrapped_in_words(text, width=72):
    return "".join(line[i:i + width] + "\n" for line in text.splitlines() for i in range(0, max(len(line), 1), width))


def prefixed(text, prefix):
    return "".join(prefix + line + "\n" for line in text.splitlines())


def docker_lines(text):
    return "".join(json.dumps({"log": line + "\n", "stream": "stderr", "time": "2024-01-01T00:00:00.1Z"},
                              separators=(",", ":")) + "\n" for line in text.splitlines())


def interleaved(text, other):
    """Two senders, line by line in turn."""
    a = [f"[rank0]: {line}" for line in text.splitlines()]
    b = [f"[rank1]: {line}" for line in other.splitlines()]
    out = []
    for i in range(max(len(a), len(b))):
        out += a[i:i + 1] + b[i:i + 1]
    return "\n".join(out) + "\n"


NOISE = "".join(f"INFO step {i} loss 2.{i} tokens per second 1500, memory 12.0 GiB of room left\n" for i in range(40))
COLOURED = "\x1b[31m{}\x1b[0m"


class Corpus(unittest.TestCase):
    def test_the_corpus_is_large_enough(self):
        self.assertGreaterEqual(len(MESSAGES), 80)
        self.assertGreaterEqual(len(TRAPS), 20)
        self.assertEqual(sorted(EXPECTED), sorted(path.stem for path in (CORPUS / "logs").iterdir()))

    def check(self, names, change, causes=1.0):
        """All fields are right, and at least that share of causes."""
        fields, wrong = [], []
        for name in names:
            found = diagnose(change(log(name)))
            fields += field_faults(name, found)
            wrong += cause_faults(name, found)
        self.assertEqual(fields, [], "\n".join(fields))
        self.assertLessEqual(len(wrong), (1 - causes) * len(names), "\n".join(wrong))

    def test_messages_as_they_are(self):
        self.check(MESSAGES, lambda text: text)
        for name in MESSAGES:
            if "line" in EXPECTED[name]:
                with self.subTest(name):
                    self.assertEqual(diagnose(log(name))["evidence"]["line"], EXPECTED[name]["line"])

    def test_traps_are_no_ooms(self):
        self.check(TRAPS, lambda text: text)

    def test_amid_other_lines(self):
        self.check(MESSAGES, lambda text: NOISE + text + NOISE, 0.95)

    def test_wrapped_at_words(self):
        self.check([name for name in MESSAGES if name not in LINES], wrapped_at_words, 0.95)

    def test_wrapped_in_the_middle_of_words_and_numbers(self):
        self.check([name for name in MESSAGES if name not in LINES], wrapped_in_words, 0.95)

    def test_prefixed(self):
        for prefix in ("[rank3]: ", "2024-01-01T00:00:00.123456789Z stderr F ", "[1,5]<stderr>:", "worker-2: ", "3: ",
                       "(TrainWorker pid=4410, ip=10.0.0.3) ", "[2024-01-01 10:00:00,123] ", "trainer-1  | "):
            with self.subTest(prefix):
                self.check([name for name in MESSAGES if name not in LINES][::3],
                           lambda text: prefixed(text, prefix), 0.95)

    def test_traps_in_other_clothes(self):
        for change in (lambda text: prefixed(text, "[rank3]: "), lambda text: NOISE + text, docker_lines,
                       wrapped_at_words):
            for name in TRAPS:
                found = diagnose(change(log(name)))
                with self.subTest(name):
                    self.assertEqual(found["out_of_memory"], "no", found["evidence"])

    def test_from_container_engines(self):
        self.check([name for name in MESSAGES if name not in LINES], docker_lines, 0.95)

    def test_coloured_and_after_a_bar(self):
        bar = "  1%|1         | 10/1000 [00:01<01:00, 9.9it/s]\r  2%|2         | 20/1000 [00:02<01:00, 9.9it/s]"
        self.check([name for name in MESSAGES if name not in LINES],
                   lambda text: bar + "".join(COLOURED.format(line) + "\r\n" for line in text.splitlines()), 0.95)

    def test_interleaved_with_another_rank(self):
        names = [name for name in MESSAGES if name.startswith("torch-2")]
        self.check(names, lambda text: interleaved(wrapped_at_words(text), NOISE), 0.95)

    def test_cut_off(self):
        """Wherever a message ends, what was read of it is right, and nothing is made up."""
        for name in ("torch-2.2-co-tenants", "torch-1.12-fragmentation", "torch-cpu", "kernel-old-two-lines"):
            text = log(name).strip()
            full = diagnose(text)["evidence"]["figures"]
            for end in range(10, len(text), 23):
                found = diagnose(text[:end])
                figures = (found["evidence"] or {"figures": {}})["figures"]
                for key, value in figures.items():
                    if key in full and not key.endswith("off_by") and end < len(text) and text[end - 1] == " ":
                        with self.subTest(f"{name} cut at {end}"):
                            self.assertTrue(same(full[key], value) if key != "processes" else True, key)


if __name__ == "__main__":
    unittest.main()
