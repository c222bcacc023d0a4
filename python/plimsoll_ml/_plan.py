"""plan, sweep, compare and fit: what a run takes, before it starts."""
from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

from . import _process, errors
from ._recipe import PLAN_OPTIONS, given, lists_of, plain, words_of
from ._rows import Rows, size


class Plan:
    """What `plimsoll plan --json` says; `raw` is all of it. True where it fits."""

    def __init__(self, raw: dict[str, Any], stderr: str = "") -> None:
        self.raw = raw
        self.stderr = stderr

    @property
    def fits(self) -> bool:
        return bool(self.raw["feasible"])

    @property
    def on_card(self) -> bool:
        return bool(self.raw["device"]["kind"] == "card")

    @property
    def bytes(self) -> int:
        """What the budget bounds: GPU memory with what is outside of the arena, or the whole process on a CPU."""
        return self.device_bytes if self.on_card else self.process_bytes

    @property
    def device_bytes(self) -> int:
        device = self.raw["device"]
        return int(device["arena_bytes"]) + int(device.get("outside_bytes") or 0)

    @property
    def process_bytes(self) -> int:
        return int(self.raw["process"]["planned_peak_rss_bytes"])

    @property
    def host_bytes(self) -> int:
        return int(self.raw["host"]["planned_peak_bytes"])

    @property
    def disk_bytes(self) -> int:
        return int(self.raw["disk"]["planned_bytes"])

    @property
    def budget_bytes(self) -> int | None:
        found = self.raw["device"]["budget_bytes"] if self.on_card else self.raw["process"]["budget_bytes"]
        return None if found is None else int(found)

    @property
    def short_by(self) -> int | None:
        """Bytes that are missing; None where it fits or the budget is not what is missing."""
        budget = self.budget_bytes
        return self.bytes - budget if not self.fits and budget is not None and self.bytes > budget else None

    @property
    def components(self) -> dict[str, int]:
        return {one["name"]: int(one["bytes"]) for one in self.raw["device"]["components"]}

    @property
    def seconds_per_step(self) -> float:
        return float(self.raw["predicted"]["seconds_per_step"])

    @property
    def tokens_per_second(self) -> float:
        return float(self.raw["predicted"]["tokens_per_second"])

    @property
    def variant(self) -> str:
        return str(self.raw["variant"]["words"])

    @property
    def ways(self) -> list[dict[str, Any]]:
        """What would fit, where this does not: `command`, `effect`, bytes and seconds of each."""
        return list(self.raw.get("ways") or [])

    @property
    def notes(self) -> list[str]:
        return list(self.raw.get("notes") or [])

    def __bool__(self) -> bool:
        return self.fits

    def __repr__(self) -> str:
        of = f" of {size(self.budget_bytes)}" if self.budget_bytes else ""
        return f"<Plan {'fits' if self.fits else 'does not fit'}: {size(self.bytes)}{of}, {self.seconds_per_step:.3g} s a step; {self.variant}>"

    def _repr_html_(self) -> str:
        import html

        components = self.components
        most = max(components.values(), default=0) or 1
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(name)}</td><td>{size(count)}</td><td style='text-align:left'>"
            f"<div style='background:#3a6;height:.8em;width:{count / most * 12:.2f}em'></div></td></tr>" for name, count in components.items())
        ways = "".join(f"<li>{html.escape(way['effect'])}: <code>{html.escape(way['command'])}</code></li>" for way in self.ways)
        return f"<b>{html.escape(repr(self)[6:-1])}</b><table>{rows}</table>" + (f"<ul>{ways}</ul>" if ways else "")


def plan(recipe: Any, *, peft_config: Any = None, args: Any = None, set: Mapping[str, Any] | None = None, must_fit: bool = False,
         **options: Any) -> Plan:
    """Exact bytes of a run before it starts.

    `recipe` is a file, a model's folder or name, a recipe's text, a dict, or a config or model of transformers, with a LoraConfig of PEFT
    (`peft_config`) and TrainingArguments or SFTConfig (`args`) beside it. Options are those of `plimsoll plan`, keys of the recipe
    are set by `set`. A plan that does not fit is a plan: look at `.fits`, or say `must_fit` for DoesNotFit.
    """
    with given(recipe, peft_config, args) as (named, text, more):
        words = ["plan", *named, "--json", "--no-probe", *words_of({**more, **options}, set, PLAN_OPTIONS)]
        answer = _process.ask(words, ok=(0, 3), text=text)
    if answer.value is None:  # refused before there was a plan
        errors.raise_for(answer.code, answer.stderr, command=answer.command)
    made = Plan(answer.value, answer.stderr)
    if must_fit and not made.fits:
        missing = f": {size(made.short_by)} are missing" if made.short_by else ""
        errors.raise_for(3, answer.stderr, message=f"does not fit{missing}; the smallest plan needs {size(made.bytes)}", command=answer.command, plan=made)
    return made


def dump(recipe: Any, what: str = "table", *, peft_config: Any = None, args: Any = None, set: Mapping[str, Any] | None = None, **options: Any) -> str:
    """What `plimsoll plan --dump` prints of a plan: graph, program, layout or table."""
    with given(recipe, peft_config, args) as (named, text, more):
        words = ["plan", *named, "--no-probe", f"--dump={what}", *words_of({**more, **options}, set, PLAN_OPTIONS)]
        done, command = _process.run(words, text)
    if done.returncode != 0:
        errors.raise_for(done.returncode, done.stderr.decode(errors="replace"), command=command)
    return done.stdout.decode(errors="replace")


class Sweep(Rows):
    """The fastest plan of each budget, smallest first; `smallest_bytes` is the least that any variant needs."""

    @property
    def smallest_bytes(self) -> int:
        return int(self.raw["smallest_bytes"])


def sweep(recipe: Any, memory: str, *, peft_config: Any = None, args: Any = None, set: Mapping[str, Any] | None = None, **options: Any) -> Sweep:
    """The fastest plan of each budget of a range, such as "2GiB..24GiB"."""
    with given(recipe, peft_config, args) as (named, text, more):
        words = ["plan", *named, "--json", "--no-probe", f"--sweep=memory={plain(memory, 'memory')}", *words_of({**more, **options}, set, PLAN_OPTIONS)]
        answer = _process.ask(words, ok=(0, 3), text=text)
    if answer.value is None:
        errors.raise_for(answer.code, answer.stderr, command=answer.command)
    return Sweep(answer.value["points"], answer.value, ("budget_bytes", "memory_bytes", "seconds_per_step", "tokens_per_second", "variant"))


def _text(value: Any, where: str) -> str:
    value = plain(value, where)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _value(value: Any, where: str) -> str:
    """A value of --compare, whose commas and blanks are the command's."""
    text = _text(value, where)
    return json.dumps(text, ensure_ascii=False) if any(sign in text for sign in ", \t\n\"'[]{}:#") else text


def compare(recipe: Any, *, peft_config: Any = None, args: Any = None, set: Mapping[str, Any] | None = None, **options: Any) -> Rows:
    """All combinations of what has a list of values: compare(recipe, method=["lora", "full"], set={"memory.recompute": ["off", "all"]})."""
    axes, single, keys = lists_of(options, set)
    if not axes:
        raise TypeError("compare: give some option or key a list of values, such as method=['lora', 'full']")
    names = {"micro_batch": "micro_batch", "batch": "effective_batch", "host_memory": "memory.host"}
    asked = []
    for key, values in axes:
        if key not in keys and "." not in key:
            words_of({key: None}, None, PLAN_OPTIONS)  # a name that is no option is refused as everywhere
        asked.append(f"{names.get(key, key)}={','.join(_value(value, key) for value in values)}")
    with given(recipe, peft_config, args) as (named, text, more):
        words = ["plan", *named, "--json", "--no-probe", *words_of({**more, **single}, keys, PLAN_OPTIONS), "--compare", *asked]
        answer = _process.ask(words, text=text)
    flat = []
    for row in answer.value["rows"]:  # `set` is in the order that was asked for; here it has the values that were given
        chosen = {key: next(value for value in values if _value(value, key) == text) for (key, values), text in zip(axes, row["set"].values())}
        flat.append({**chosen, **{key: value for key, value in row.items() if key != "set"}})
    return Rows(flat, answer.value)


class Fit(Rows):
    """Methods and lengths on each device; True where something fits."""

    @property
    def fits(self) -> bool:
        return bool(self.raw["fits"])

    @property
    def parameters(self) -> int:
        return int(self.raw["parameters"])

    def __bool__(self) -> bool:
        return self.fits

    def __repr__(self) -> str:
        best = [row for row in self if row["fits"]]
        return f"<Fit {self.raw['model']}: {len(best)} of {len(self)} combinations of method and length fit>"


def fit(model: Any, *, gpu: str | None = None, memory: str | None = None, host_memory: str | None = None, lengths: Sequence[int] | None = None,
        methods: Sequence[str] | None = None) -> Fit:
    """Which methods at which lengths fit this machine or a GPU, for a name, a folder, a config.json or a config of transformers; no download."""
    words = []
    for option, value in (("--gpu", gpu), ("--memory", memory), ("--host-memory", host_memory)):
        if value is not None:
            words.append(f"{option}={plain(value, option[2:])}")
    for option, values in (("--lengths", lengths), ("--methods", methods)):
        if values is not None:
            words.append(f"{option}={','.join(str(plain(value, option[2:])) for value in values)}")
    import pathlib
    import tempfile

    from . import hf

    config = hf.config_text(model)
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        if config is not None:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(config)
            model = path
        name = str(plain(model, "model"))
        answer = _process.ask(["fit", name if not name.startswith("-") else f"./{name}", "--json", *words], ok=(0, 3))
    if answer.value is None:
        errors.raise_for(answer.code, answer.stderr, command=answer.command)
    rows = [{"device": device["device"], **cell} for device in answer.value["devices"] for cell in device["cells"]]
    return Fit(rows, answer.value, ("device", "method", "length", "fits", "memory_bytes", "host_bytes", "tokens_per_second"))
