"""Objects of transformers, PEFT and TRL as recipes, and the doctor for anybody's trainer. None of those is imported here: objects are asked
what they are."""
from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from typing import Any, Callable, Iterator, Mapping

from . import errors

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cublas_status_alloc_failed")


def config_text(model: Any) -> str | None:
    """config.json of a config or a model of transformers; None for everything else."""
    config = getattr(model, "config", model)
    if hasattr(config, "to_json_string") and hasattr(config, "model_type"):
        return str(config.to_json_string())
    return None


def _own_folder(model: Any) -> str | None:
    """The folder that a config or a model was loaded from, if it is one that is here."""
    config = getattr(model, "config", model)
    for named in (getattr(model, "name_or_path", None), getattr(config, "_name_or_path", None)):
        if isinstance(named, str) and named and os.path.isfile(os.path.join(named, "config.json")):
            return os.path.abspath(named)
    return None


def set_by_user(args: Any) -> dict[str, Any]:
    """What of TrainingArguments or SFTConfig differs from the class's own defaults: all of it would also say `do_train: false`, and 127 keys
    more that nobody meant."""
    ours: dict[str, Any] = args.to_dict()
    # Without a GPU the class can only be made so; these two are then compared with what it states as its defaults.
    forced: dict[str, Any] = {"use_cpu": True, "bf16": False} if ours.get("use_cpu") else {}
    theirs: dict[str, Any] = type(args)(output_dir="x", **forced).to_dict()
    for key in forced:
        theirs[key] = getattr(type(args), key, None)
    return {key: value for key, value in ours.items() if theirs.get(key) != value and value is not None}


def _tool_of(args: Any) -> str | None:
    """"trl-1.16" for an object of TRL, whose defaults then apply."""
    tool = (type(args).__module__ or "").split(".")[0]
    version = getattr(sys.modules.get(tool), "__version__", None)
    return f"trl-{'.'.join(str(version).split('.')[:2])}" if tool == "trl" and version else None


def _trains_all_weights(args: Any) -> bool:
    """Whether these are arguments of transformers' Trainer, which makes no adapters by itself."""
    return any(kind.__module__.split(".")[0] == "transformers" for kind in type(args).__mro__)


def method_of(peft_config: Any) -> dict[str, Any]:
    """The method of a recipe that a LoraConfig states."""
    said: Mapping[str, Any] = peft_config if isinstance(peft_config, Mapping) else peft_config.to_dict()
    kind = str(getattr(said.get("peft_type"), "value", said.get("peft_type")))
    if kind.rsplit(".", 1)[-1] != "LORA":
        raise errors.InputError(f"peft_config: {kind} is no adapter that Plimsoll trains; LORA is")
    method: dict[str, Any] = {"type": "lora", "r": said["r"], "alpha": said["lora_alpha"]}
    if said.get("lora_dropout"):
        method["dropout"] = said["lora_dropout"]
    method["targets"] = said.get("target_modules") or "auto"
    for theirs, ours in (("use_dora", "dora"), ("use_rslora", "rslora")):
        if said.get(theirs):
            method[ours] = True
    for key in ("rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform", "exclude_modules", "target_parameters", "trainable_token_indices"):
        if said.get(key):
            raise errors.InputError(f"peft_config: {key} is not supported here; write it into a recipe, which says what is")
    if said.get("bias", "none") != "none":
        raise errors.InputError("peft_config: bias: only 'none' is supported")
    return method


def recipe(what: Any, peft_config: Any, args: Any, folder: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe of a dict, a name, a config or a model, with a LoraConfig and arguments beside it, and options that follow from them. A config
    that is in no folder here is written into `folder`."""
    made: dict[str, Any] = dict(what) if isinstance(what, Mapping) else {}
    options: dict[str, Any] = {}
    config = None if isinstance(what, Mapping) else config_text(what)
    if config is not None:
        own = _own_folder(what)
        if own is None:
            own = str(folder / "model")
            os.mkdir(own)
            pathlib.Path(own, "config.json").write_text(config)
        made["model"] = own
    elif isinstance(what, (str, os.PathLike)):
        made["model"] = os.fspath(what)
    elif not isinstance(what, Mapping):
        raise TypeError(f"a {type(what).__name__} is no recipe: give a file, a name, a dict, or a config or model of transformers")
    if args is not None:
        made.update(args if isinstance(args, Mapping) else set_by_user(args))
        made.pop("output_dir", None)
        tool = None if isinstance(args, Mapping) else _tool_of(args)
        if tool:
            options["as_"] = tool
        elif peft_config is None and _trains_all_weights(args):
            made.setdefault("method", {"type": "full"})
    if peft_config is not None:
        if "method" in made:
            raise errors.InputError("method: is in the recipe, and in peft_config")
        made["method"] = method_of(peft_config)
    return made, options


@contextlib.contextmanager
def doctor_on_oom(show: Callable[[str], object] | None = print) -> Iterator[None]:
    """with doctor_on_oom(): trainer.train() - an out-of-memory error gets the doctor's verdict as its note, and goes on."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError" or any(words in str(error).lower() for words in _OUT_OF_MEMORY):
            from ._machine import doctor

            text = f"plimsoll doctor: {doctor(error)}"
            add_note = getattr(error, "add_note", None)  # Python 3.11
            if add_note is not None:
                add_note(text)
            if show is not None:
                show(text)
        raise
