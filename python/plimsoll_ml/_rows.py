"""Rows of dicts that pandas and Arrow take, and how figures are shown."""
from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence


def optional(module: str, extra: str) -> Any:
    """A package that is no dependency; says which extra has it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is needed here: pip install it, or the wheel that `make wheel` writes with [{extra}]", name=module) from error


def size(count: float) -> str:
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= one:
            return f"{count / one:.3g} {unit}"
    return f"{count:.0f} B"


def shown(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key.endswith("_bytes") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return size(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table_html(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    import html

    head = "".join(f"<th>{html.escape(key.replace('_bytes', '').replace('_', ' '))}</th>" for key in keys)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(shown(key, row.get(key)))}</td>" for key in keys) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Rows(list[dict[str, Any]]):
    """A list of dicts with `to_pandas()`, `to_arrow()` and a table in a notebook; `raw` is the whole answer of the program."""

    def __init__(self, rows: Iterable[dict[str, Any]], raw: Any = None, keys: Sequence[str] = ()) -> None:
        super().__init__(rows)
        self.raw: Any = raw
        self._keys = list(keys)

    def to_pandas(self) -> Any:
        return optional("pandas", "pandas").DataFrame(list(self))

    def to_arrow(self) -> Any:
        return optional("pyarrow", "arrow").Table.from_pylist(list(self))

    def _repr_html_(self) -> str:
        keys = self._keys or list(dict.fromkeys(key for row in self for key, value in row.items() if not isinstance(value, (list, dict))))
        return table_html(self, keys)
