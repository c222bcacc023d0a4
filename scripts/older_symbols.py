"""Lets a program start with an older C++ library: asks for the older of two versions of one function.

GCC 12 declares std::condition_variable::wait() once more, as GLIBCXX_3.4.30, beside the one that every libstdc++ has had since GLIBCXX_3.4.11; what
is compiled with it asks for the newer name and would not load beside GCC 11's library (RHEL 9, Rocky 9). Both are there in newer ones.
"""
import pathlib
import struct

WAIT = b"_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
OLDER = {WAIT: (b"GLIBCXX_3.4.30", b"GLIBCXX_3.4.11")}


def _sections(data):
    """{name: (offset, bytes)} of a 64-bit ELF file."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    (start,), (size, count, names) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", data, start + at * size) for at in range(count)]
    text = heads[names][4]
    name = lambda at: bytes(data[text + at:data.index(0, text + at)]).decode()
    return {name(head[0]): (head[4], head[5]) for head in heads}


def _needed(data, at, strings):
    """(library's place, place of the version's entry, place of the one before it, name, number) of each needed version."""
    while True:
        _, count, _, first, step = struct.unpack_from("<HHIII", data, at)
        before, entry = None, at + first
        for _ in range(count):
            _, _, number, name, behind = struct.unpack_from("<IHHII", data, entry)
            yield at, entry, before, bytes(data[strings + name:data.index(0, strings + name)]), number
            before, entry = entry, entry + behind
        if step == 0:
            return
        at += step


def ask_for_older(path):
    """Changes the file; the names of functions that it asks for in an older version now."""
    path = pathlib.Path(path)
    data = bytearray(path.read_bytes())
    sections = _sections(data)
    if ".gnu.version_r" not in sections:
        return []
    strings, (symbols, size), versions = sections[".dynstr"][0], sections[".dynsym"], sections[".gnu.version"][0]
    changed = []
    for index in range(size // 24):
        name, _, _, section = struct.unpack_from("<IBBH", data, symbols + 24 * index)
        word = bytes(data[strings + name:data.index(0, strings + name)])
        if section != 0 or word not in OLDER:
            continue
        newer, older = OLDER[word]
        numbers = {version: number for _, _, _, version, number in _needed(data, sections[".gnu.version_r"][0], strings)}
        if newer not in numbers or older not in numbers or struct.unpack_from("<H", data, versions + 2 * index)[0] & 0x7FFF != numbers[newer]:
            continue
        struct.pack_into("<H", data, versions + 2 * index, numbers[older])
        _forget(data, sections, numbers[newer], newer, strings)
        changed.append(word.decode())
    if changed:
        path.write_bytes(data)
    return changed


def _forget(data, sections, number, version, strings):
    """Takes a version that nothing asks for any more out of the list of what is needed."""
    versions, size = sections[".gnu.version"]
    if any(used & 0x7FFF == number for (used,) in struct.iter_unpack("<H", data[versions:versions + size])):
        return
    for library, entry, before, name, _ in _needed(data, sections[".gnu.version_r"][0], strings):
        if name != version:
            continue
        behind = struct.unpack_from("<I", data, entry + 12)[0]
        count, = struct.unpack_from("<H", data, library + 2)
        if before is None:
            struct.pack_into("<I", data, library + 8, entry + behind - library)
        else:
            struct.pack_into("<I", data, before + 12, entry + behind - before if behind else 0)
        struct.pack_into("<H", data, library + 2, count - 1)
        return
