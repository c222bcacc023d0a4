"""A shared library without the functions that nothing can reach: what --gc-sections leaves out when a library is linked, here afterwards.

Arrow's library has clients of three clouds, and formats that Plimsoll does not read. A function stays where it can be reached from what the
loader runs, from a name that another file of the program has too, or from code without a symbol. One function reaches another by each address
in its instructions, and by each pointer in the data that it names. The others become breakpoints: the file keeps its size and its addresses,
and a package of it gets smaller.

Position-independent code leaves no other way to an address, but for tables within a function, which stay with it, and for a table that is
named by an address before or behind it: the neighbours of named data count as named, but for tables of classes.
"""
import bisect
import pathlib
import re
import subprocess

BREAKPOINT = b"\xcc"
TABLES = ("_ZTV", "_ZTT", "_ZTI", "_ZTS")  # of classes: named at their own address
DATA = (".data", ".rodata", ".data.rel.ro", ".bss")  # reached by what names them, as ENTRIES are; other sections always
ENTRIES = {".plt": 16, ".plt.got": 8, ".plt.sec": 16, ".got": 8, ".got.plt": 8}


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def names_of(binary, *options):
    """The names that a file asks for or offers when it is loaded."""
    return {line.split()[-1].partition("@")[0] for line in run("nm", "-D", *options, binary).splitlines()}


class Library:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.sections = {}  # name: (address, bytes, offset in the file)
        for line in run("readelf", "-SW", path).splitlines():
            found = re.match(r"\s*\[\s*\d+\]\s+(\S+)\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)", line)
            if found and int(found[2], 16):
                self.sections[found[1]] = (int(found[2], 16), int(found[4], 16), int(found[3], 16))
        self.functions, self.exported, own_tables = [], {}, set()
        bounds = {bound for address, size, _ in self.sections.values() for bound in (address, address + size)}
        for name, step in ENTRIES.items():
            address, size, _ = self.sections.get(name, (0, 0, 0))
            bounds.update(range(address, address + size, step))
        for kind, name, address, size, is_local in self.symbols():
            bounds.update((address, address + size))
            if kind != "OBJECT":
                self.functions.append((address, address + max(size, 1), name))
            elif name.startswith(TABLES):
                own_tables.add(address)
            if not is_local:
                self.exported[name] = address
        self.bounds = sorted(bounds)
        self.own_tables = {self.part(address) for address in own_tables}
        self.leads_to = [set() for _ in self.bounds]
        self.read_symbols()
        self.read_code()
        self.read_pointers()

    def part(self, address):
        """The number of the stretch between two symbols that an address lies in."""
        return bisect.bisect_right(self.bounds, address) - 1

    def parts(self, first, end):
        return range(self.part(first), self.part(end - 1) + 1) if first < end else range(0)

    def parts_of(self, section):
        address, size, _ = self.sections.get(section, (0, 0, 0))
        return self.parts(address, address + size)

    def symbols(self):
        for line in run("readelf", "-sW", self.path).splitlines():
            words = line.split()
            if len(words) == 8 and words[3] in ("FUNC", "IFUNC", "OBJECT") and words[6].isdigit():
                yield words[3], words[7].partition("@")[0], int(words[1], 16), int(words[2], 0), words[4] == "LOCAL"

    def read_symbols(self):
        """A function is kept whole, with what the compiler has put apart of it."""
        begin = {}
        for first, end, name in self.functions:
            begin.setdefault(name, []).append(self.part(first))
            for part in self.parts(first, end):
                self.leads_to[self.part(first)].add(part)
                self.leads_to[part].add(self.part(first))
        for first, _, name in self.functions:
            for whole in begin.get(name.partition(".cold")[0], ()):
                self.leads_to[whole].add(self.part(first))

    def read_code(self):
        """Addresses in instructions: targets of calls and jumps, and what is named relative to the instruction."""
        data = {part for section in DATA for part in self.parts_of(section)}
        with subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", str(self.path)], stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                found = re.match(r" *([0-9a-f]+):\t.*?(?:# |\s)([0-9a-f]+)(?: <.*)?$", line) if "<" in line or "# " in line else None
                if found:
                    self.names(self.part(int(found[1], 16)), self.part(int(found[2], 16)), data)
        if process.returncode != 0:
            raise ValueError(f"{self.path}: objdump ended with {process.returncode}")

    def names(self, here, there, data):
        if here == there or there < 0:
            return
        self.leads_to[here].add(there)
        if there in data and there not in self.own_tables:
            self.leads_to[here].update(part for part in (there - 1, there + 1) if part in data and part not in self.own_tables)

    def read_pointers(self):
        """Pointers in data, which the loader completes."""
        for line in run("readelf", "-rW", self.path).splitlines():
            found = re.match(r"([0-9a-f]{16})\s+\S+\s+R_X86_64_(\S+)\s+([0-9a-f]+)(?:\s+\S+(?: \+ ([0-9a-f]+))?)?", line)
            if found and (found[2] in ("RELATIVE", "IRELATIV") or len(found[3]) == 16):
                there = int(found[3], 16) + int(found[4] or "0", 16)
                if there:
                    self.leads_to[self.part(int(found[1], 16))].add(self.part(there))

    def always(self, names):
        """What is reached from outside: sections that the loader and the language's runtime read, code without a symbol, exported names."""
        code = set(self.parts_of(".text"))
        kept = {part for section in self.sections if section not in (*DATA, *ENTRIES, ".text") for part in self.parts_of(section)}
        kept |= code - {part for first, end, _ in self.functions for part in self.parts(first, end)}
        return kept | {self.part(address) for name, address in self.exported.items() if name in names}

    def unreached(self, names):
        """[(first address, end)] of functions that nothing reaches. `names`: of all other files that are loaded with the library."""
        reached = self.always(names)
        waiting = list(reached)
        while waiting:
            new = self.leads_to[waiting.pop()] - reached
            reached |= new
            waiting += new
        return [(self.bounds[part], self.bounds[part + 1]) for part in self.parts_of(".text") if part not in reached]


def prune(path, others):
    """Replaces the library's functions that nothing reaches; returns their bytes. `others`: every file that is loaded beside it."""
    library = Library(path)
    dead = library.unreached(set().union(*(names_of(other) for other in others)))
    address, _, offset = library.sections[".text"]
    content = bytearray(library.path.read_bytes())
    for first, end in dead:
        content[first - address + offset:end - address + offset] = BREAKPOINT * (end - first)
    library.path.write_bytes(content)
    return sum(end - first for first, end in dead)
