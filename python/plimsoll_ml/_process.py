"""Starts the program. Nothing of the engine is ever loaded into this process."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import IO, Any, Iterable, NamedTuple, Sequence

from . import errors


def binary() -> str:
    """The program: PLIMSOLL_BINARY, the one of this package, or the one on the path."""
    import shutil  # here, as are others: what a command does not need costs its start nothing

    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "plimsoll")
    found = os.environ.get("PLIMSOLL_BINARY") or (inside if os.path.exists(inside) else shutil.which("plimsoll"))
    if not found:
        raise errors.InternalError("this installation has no program: there are wheels for Linux x86-64 (and WSL); PLIMSOLL_BINARY names another one")
    return found


def _cublas_folders() -> Iterable[str]:
    """Where the wheels that PyTorch brings keep cuBLASLt."""
    for place in sys.path:
        for folder in ("nvidia/cublas/lib", "nvidia/cu13/lib"):
            path = os.path.join(place, folder)
            if os.path.isdir(path):
                yield path


def environment() -> dict[str, str]:
    """Without what this process was told about itself: the program has libraries and threads of its own."""
    kept = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "PYTHONPATH", "PYTHONHOME")}
    folders = [*filter(None, [kept.get("LD_LIBRARY_PATH")]), *_cublas_folders()]
    if folders:
        kept["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
    return kept


class Answer(NamedTuple):
    value: Any
    code: int
    stderr: str
    command: list[str]


def input_file(text: bytes | None) -> IO[bytes] | int:
    """What a command reads: a file without a name, so that neither side waits for the other."""
    if text is None:
        return subprocess.DEVNULL
    import tempfile

    file: IO[bytes] = tempfile.TemporaryFile()
    file.write(text)
    file.seek(0)
    return file


def starting_error(error: BaseException, command: Sequence[str]) -> errors.PlimsollError:
    if isinstance(error, ValueError):  # a NUL, or what is no UTF-8
        return errors.InputError(f"a word of the command cannot be given to a program: {error}", command=command)
    if isinstance(error, OSError) and error.errno == 7:
        return errors.InputError("an option is longer than the system takes (128 KiB)", command=command)
    return errors.InternalError(f"{command[0]} cannot be started: {error}", command=command)


def run(words: Sequence[str], text: bytes | None = None) -> tuple[subprocess.CompletedProcess[bytes], list[str]]:
    command = [binary(), *words]
    stdin = input_file(text)
    try:
        return subprocess.run(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()), command
    except (OSError, ValueError) as error:
        raise starting_error(error, command) from error
    finally:
        if not isinstance(stdin, int):
            stdin.close()


def ask(words: Sequence[str], *, ok: Sequence[int] = (0,), text: bytes | None = None) -> Answer:
    """The JSON that a command prints. Raises the class of any exit code that is not in `ok`."""
    done, command = run(words, text)
    said = done.stderr.decode(errors="replace")
    if done.returncode not in ok:
        errors.raise_for(done.returncode, said, command=command)
    printed = done.stdout.decode(errors="replace")
    return Answer(json.loads(printed) if printed.strip() else None, done.returncode, said, command)
