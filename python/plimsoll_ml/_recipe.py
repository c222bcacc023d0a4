"""Recipes and options of Python as words and standard input of the program."""
from __future__ import annotations

import contextlib
import enum
import json
import math
import os
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from . import errors

OPTIONS = {"memory": "--memory", "gpu": "--gpu", "host_memory": "--host-memory", "disk": "--disk", "method": "--method", "rank": "--rank",
           "length": "--length", "batch": "--batch", "micro_batch": "--micro-batch", "precision": "--precision", "optimizer": "--optimizer",
           "lr": "--lr", "epochs": "--epochs", "output": "--output", "device": "--device", "threads": "--threads", "max_isa": "--max-isa", "as_": "--as"}
PLAN_OPTIONS = {**OPTIONS, "machine": "--machine", "rows": "--rows", "tokens": "--tokens"}


def _shown(text: str) -> str:
    short = text if len(text) <= 60 else text[:57] + "..."
    return short.encode("unicode_escape").decode()


def plain(value: Any, where: str = "recipe") -> Any:
    """A value as JSON has it. Raises InputError, which names the key, for what JSON has not."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise errors.InputError(f"{where}: {value} is no number that a recipe can state")
        return value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise errors.InputError(f"{where}: {_shown(value)!r} is not UTF-8") from None
        return value
    if isinstance(value, Mapping):
        made = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise errors.InputError(f"{where}: the key {_shown(repr(key))} is no text")
            made[plain(key, f"{where}: a key")] = plain(item, _shown(key) if where == "recipe" else f"{where}.{_shown(key)}")
        return made
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{at}]") for at, item in enumerate(value)]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of numpy or torch
        return plain(value.item(), where)
    raise errors.InputError(f"{where}: a {type(value).__name__} is no value of a recipe")


def _word(value: Any, where: str) -> str:
    value = plain(value, where)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def words_of(options: Mapping[str, Any], set: Mapping[str, Any] | None = None, known: Mapping[str, str] = OPTIONS) -> list[str]:
    """The command line's words for options; TypeError for a name that is none."""
    for key in options:
        if key not in known:
            raise TypeError(f"unknown option {key!r}; known: {', '.join(known)}, and set={{'any.key': value}}")
    words = [f"{known[key]}={_word(value, key)}" for key, value in options.items() if value is not None]
    for key, value in (set or {}).items():
        # As a recipe in JSON has it: a text is in quotes and stays one.
        words += ["--set", f"{plain(key, 'set')}={json.dumps(plain(value, str(key)), ensure_ascii=False)}"]
    return words


class Given(NamedTuple):
    """A recipe as the program is given it: the word that names it, what it reads, and options that follow from objects."""

    words: list[str]
    text: bytes | None
    options: dict[str, Any]


def _named(path: str) -> str:
    return f"./{path}" if path.startswith("-") else path  # it would be an option


@contextlib.contextmanager
def given(what: Any, peft_config: Any = None, args: Any = None) -> Iterator[Given]:
    """A path or a name as it is; a recipe's text, a dict or an object of transformers through standard input."""
    if isinstance(what, (str, os.PathLike)) and peft_config is None and args is None:
        name = plain(what, "recipe")
        yield Given(["-"], name.encode(), {}) if "\n" in name else Given([_named(name)], None, {})
        return
    import pathlib
    import tempfile

    from . import hf

    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        made, options = hf.recipe(what, peft_config, args, pathlib.Path(folder))
        yield Given(["-"], json.dumps(plain(made), ensure_ascii=False, indent=1).encode(), options)


def lists_of(options: Mapping[str, Any], set: Mapping[str, Any] | None) -> tuple[list[tuple[str, Sequence[Any]]], dict[str, Any], dict[str, Any]]:
    """Options and keys with a list of values, each an axis of a comparison, and the others."""
    axes: list[tuple[str, Sequence[Any]]] = [(key, value) for source in (options, set or {}) for key, value in source.items() if isinstance(value, (list, tuple))]
    single = [{key: value for key, value in source.items() if not isinstance(value, (list, tuple))} for source in (options, set or {})]
    return axes, single[0], single[1]
