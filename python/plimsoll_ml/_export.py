"""What `plimsoll export` made of a run, and what its check found."""
from __future__ import annotations

import os
import pathlib
from typing import Any, Literal, Mapping, NamedTuple, Union

from . import _process
from ._recipe import words_of

Target = Literal["merged", "gguf", "ollama", "vllm"]
Kind = Literal["f32", "bf16", "f16", "q8_0", "q5_k_m", "q4_k_m", "q4_0"]
Into = Literal["trained", "base"]
Place = Union[str, "os.PathLike[str]"]
_OPTIONS = {name: f"--{name}" for name in ("out", "type", "into", "rows", "limit", "tolerance", "device", "precision", "threads")}


class Export(NamedTuple):
    """An export that has passed its check: the folder, the losses of the run and of the export, and what to do next."""

    folder: pathlib.Path
    loss_of_run: float
    loss_of_export: float
    mean_difference: float
    record: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Export {self.folder}, loss {self.loss_of_export:.4f} for {self.loss_of_run:.4f}>"

    @property
    def notes(self) -> list[str]:
        """Where the export does not hold all that the run is."""
        return list(self.record["notes"])

    @property
    def next(self) -> list[str]:
        """Commands that serve it."""
        return list(self.record["next"])

    @property
    def files(self) -> dict[str, int]:
        """The bytes of each file."""
        return {file["name"]: int(file["bytes"]) for file in self.record["files"]}


def export(run: str, to: str, options: Mapping[str, Any], set: Mapping[str, Any] | None) -> Export:
    told = dict(_process.ask(["export", run, f"--to={to}", "--json", *words_of(options, set, _OPTIONS)]).value)
    return Export(pathlib.Path(told["out"]), float(told["loss_of_run"]), float(told["loss_of_export"]), float(told["mean_difference"]), told)
