"""A memory cgroup of one's own, where the machine lets this process make one: v2 delegated to it, or v1 as root."""
import os
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


class Cgroup:
    """A hard cap on all that a process takes: its pages, those of the kernel for it, and the page cache."""

    def __init__(self, folder, limit_file):
        self.folder, self.limit_file = folder, limit_file

    def enter(self, limit):
        """Sets the cap in bytes and moves the calling process in; for use between fork and exec."""
        (self.folder / self.limit_file).write_text(str(limit))
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def release(self):
        """Lifts the cap, so that the next one can be lower than what the last process left in the page cache."""
        try:
            (self.folder / "memory.force_empty").write_text("0")
        except OSError:
            pass  # v2 has none, and gives the page cache back by itself

    def remove(self):
        self.folder.rmdir()


def groups():
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return {kind: path.lstrip("/") for _, kind, path in (line.split(":", 2) for line in lines)}


def make_cgroup():
    """None where there is no memory controller, or it belongs to somebody else."""
    name, own = f"plimsoll-load-line-{os.getpid()}", groups()
    try:
        if "memory" in own:
            folder = MOUNT / "memory" / own["memory"] / name
            folder.mkdir()
            return Cgroup(folder, "memory.limit_in_bytes")
        parent = MOUNT / own[""]
        if "memory" not in (parent / "cgroup.controllers").read_text().split():
            return None
        # A group with a controller for its children has no processes itself: this one moves into a child.
        runner = parent / f"{name}-runner"
        runner.mkdir()
        (runner / "cgroup.procs").write_text(str(os.getpid()))
        (parent / "cgroup.subtree_control").write_text("+memory")
        (parent / name).mkdir()
        return Cgroup(parent / name, "memory.max")
    except (OSError, KeyError):
        return None
