"""The doctor, the models that are known and here, and this machine's devices."""
from __future__ import annotations

import os
from typing import Any, Mapping

from . import _process
from ._recipe import plain
from ._rows import Rows


class Diagnosis:
    """What `plimsoll doctor --json` says of a log; `raw` is all of it. True where memory ran out, or possibly did."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    @property
    def out_of_memory(self) -> str:
        """"yes", "possibly" or "no"."""
        return str(self.raw["out_of_memory"])

    @property
    def cause(self) -> str | None:
        found = self.raw.get("cause")
        return None if found is None else str(found)

    @property
    def headline(self) -> str:
        return str(self.raw["headline"])

    @property
    def steps(self) -> list[dict[str, Any]]:
        """What to do, best first: `what`, `saves_bytes`, `lossless`, `command`."""
        return list(self.raw["steps"])

    def __bool__(self) -> bool:
        return self.out_of_memory != "no"

    def __str__(self) -> str:
        lines = [self.headline]
        for number, step in enumerate(self.steps, 1):
            lines.append(f"  {number}. {step['what']}" + (f"\n     {step['command']}" if step.get("command") else ""))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Diagnosis: {self.headline}>"


def doctor(log: str | os.PathLike[str] | BaseException) -> Diagnosis:
    """Why a training ended: of a text, a file (a log, a memory snapshot), a run's folder, or an exception."""
    if isinstance(log, BaseException):
        import traceback

        log = "".join(traceback.format_exception(type(log), log, log.__traceback__))
    elif isinstance(log, os.PathLike) or ("\n" not in log and os.path.exists(log)):
        path = str(plain(log, "log"))
        return Diagnosis(_process.ask(["doctor", f"./{path}" if path.startswith("-") else path, "--json"]).value)
    return Diagnosis(_process.ask(["doctor", "-", "--json"], text=log.encode(errors="replace")).value)


def models() -> Rows:
    """The models of the built-in catalogue, by name; whether each is trained is asked of the program."""
    raw: Mapping[str, Any] = _process.ask(["fit", "--list", "--json"]).value
    return Rows(raw["models"], raw, ("name", "parameters", "trained", "here"))


class Devices(Rows):
    """The GPUs of this machine; `cpu` is its processor."""

    @property
    def cpu(self) -> dict[str, Any]:
        return dict(self.raw["cpu"])


def devices() -> Devices:
    raw: Mapping[str, Any] = _process.ask(["devices", "--json"]).value
    return Devices(raw["gpus"], raw, ("index", "name", "memory_bytes", "free_bytes", "problem"))
