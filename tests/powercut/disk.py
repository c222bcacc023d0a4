"""What a disk holds after a power cut, from the journal of record_shim.cc.

Names are durable once their folder was flushed, bytes once their file was. Of what was not, names survive up to a moment in
their order, and of each file's bytes all, none, a beginning, or some with zeros in the place of the rest.
"""
import os
import shutil
import struct
from pathlib import Path

HEAD = struct.Struct("<8sqqqqq")
WAYS = ("dropped", "cut", "zeros", "some", "kept")


class Node:
    def __init__(self, is_folder, mode, content=b""):
        self.is_folder, self.mode = is_folder, mode
        self.flushed, self.now, self.pending = bytearray(content), bytearray(content), []
        self.names, self.first, self.flushed_at = {}, {}, -1  # of a folder: now, at the start, and the call that flushed them last


def read_journal(path):
    """(kind, inode, at, mode, name, data) of each call."""
    blob, at, calls = path.read_bytes(), 0, []
    while at + HEAD.size <= len(blob):
        kind, inode, where, mode, name, data = HEAD.unpack_from(blob, at)
        at += HEAD.size
        text = blob[at:at + name].decode(errors="surrogateescape")
        calls.append((kind.split(b"\0")[0].decode(), inode, where, mode, text, blob[at + name:at + name + data]))
        at += name + data
    return calls


def overlay(content, at, data):
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at:at + len(data)] = data


class Disk:
    """The disk before call `end`: `root` as it was found, then the calls. Calls for which `forget` says so flushed nothing."""

    def __init__(self, root, before, calls, end, forget=lambda name: False):
        self.root, self.inodes, self.renames, self.folders = str(root), {}, [], []
        self.top = self.load(Path(before))
        for number, call in enumerate(calls[:end]):
            self.play(number, call, forget)

    def load(self, path):
        if not path.is_dir():
            node = Node(False, path.stat().st_mode & 0o7777, path.read_bytes())
        else:
            node = Node(True, path.stat().st_mode & 0o7777)
            self.folders.append(node)
            node.first = {child.name: self.load(child) for child in path.iterdir()}
            node.names = dict(node.first)
        return node

    def find(self, path):
        """(folder, name), the folder None where it is not below the root."""
        parts = [part for part in path[len(self.root):].split("/") if part]
        node = self.top
        for part in parts[:-1]:
            node = node.names.get(part) if node else None
        return node, parts[-1] if parts else ""

    def at(self, path):
        folder, name = self.find(path)
        return self.top if not name else folder.names.get(name) if folder else None

    def change(self, number, *changes):
        """[(folder, name, node or None)]: as one."""
        self.renames.append((number, changes))
        for folder, name, node in changes:
            self.set(folder, name, node)

    @staticmethod
    def set(folder, name, node):
        if node is None:
            folder.names.pop(name, None)
        else:
            folder.names[name] = node

    def play(self, number, call, forget):
        kind, inode, at, mode, name, data = call
        folder, last = self.find(name)
        there = self.at(name)
        if kind in ("create", "folder") and folder is not None:
            if there is None:
                there = Node(kind == "folder", mode)
                if there.is_folder:
                    self.folders.append(there)
                self.change(number, (folder, last, there))
            self.inodes[inode] = there
        elif kind in ("rename", "link", "swap") and there is not None:
            to, new = self.find(os.fsdecode(data))
            other = self.at(os.fsdecode(data))
            if to is None:
                return
            gone = [] if kind == "link" else [(folder, last, other if kind == "swap" else None)]
            self.change(number, *gone, (to, new, there))
        elif kind == "remove" and there is not None:
            self.change(number, (folder, last, None))
        elif kind == "names" and there is not None and not forget(name):
            there.flushed_at = number
        else:
            node = self.inodes.get(inode) or there
            if node is None or node.is_folder:
                return
            self.inodes[inode] = node
            if kind == "flush" and not forget(name):
                node.flushed, node.pending = bytearray(node.now), []
            elif kind == "write":
                overlay(node.now, at, data)
                node.pending.append((at, data))
            elif kind in ("cut", "room"):
                size = at if kind == "cut" else max(at, len(node.now))
                node.now[:] = node.now[:size] + bytes(max(0, size - len(node.now)))
                node.pending.append((size, None))

    def content(self, node, dice, way):
        if not node.pending or way == "dropped":
            return bytes(node.flushed)
        if way == "kept":
            return bytes(node.now)
        pending = node.pending if way != "cut" else node.pending[:dice.randint(0, len(node.pending))]
        found = bytearray(node.flushed)
        for at, data in pending:
            if data is None:
                found[:] = found[:at] + bytes(max(0, at - len(found)))
            elif way == "cut" and (at, data) is pending[-1]:
                overlay(found, at, data[:dice.randint(0, len(data))])
            elif way == "zeros" or (way == "some" and dice.random() < 0.5):
                overlay(found, at, found[at:at + len(data)] + bytes(max(0, at + len(data) - max(at, len(found)))))
            else:
                overlay(found, at, data)
        return bytes(found)

    def after_cut(self, to, dice):
        """Writes what is left to the folder `to`; returns in words how."""
        last = dice.choice((0, dice.randint(0, len(self.renames)), len(self.renames)))
        for folder in self.folders:
            folder.names = dict(folder.first)
        for index, (number, changes) in enumerate(self.renames):
            if index >= last and all(folder.flushed_at < number for folder, _, _ in changes):
                continue
            for folder, name, node in changes:
                self.set(folder, name, node)
        way, written = dice.choice(WAYS), {}
        shutil.rmtree(to, ignore_errors=True)
        self.write(self.top, Path(to), written, dice, way)
        return f"{last} of {len(self.renames)} changes of names, unflushed bytes {way}"

    def write(self, node, path, written, dice, way):
        if node.is_folder:
            path.mkdir(parents=True)
            for name, child in node.names.items():
                self.write(child, path / name, written, dice, way)
            path.chmod(node.mode)
        elif id(node) in written:
            os.link(written[id(node)], path)
        elif not path.name.endswith("-shm"):  # memory that processes share: it never counted
            path.write_bytes(self.content(node, dice, way))
            path.chmod(node.mode)
            written[id(node)] = path
