"""One class for each exit code of the program; all of them are PlimsollError."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Sequence

if TYPE_CHECKING:
    from ._plan import Plan
    from ._run import Run


class PlimsollError(Exception):
    """What the program said when it ended with an error.

    `message` is its error, `stderr` all that it said, `command` the words it was started with; `run` and `plan` are what
    it was about, where that is known. `problems` has a dict for each problem of a recipe: message, file, line, key, nearest.
    """

    exit_code = 1

    def __init__(self, message: str, *, stderr: str = "", command: Sequence[str] = (), plan: Plan | None = None,
                 run: Run | None = None, problems: Sequence[dict[str, Any]] = (), ways: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.stderr = stderr
        self.command = list(command)
        self.plan = plan
        self.run = run
        self.problems = list(problems)
        self._ways = list(ways)


class InternalError(PlimsollError):
    """Exit 1: a bug in Plimsoll, or an installation without its program."""


class InputError(PlimsollError, ValueError):
    """Exit 2: the recipe, an option or a file is wrong; the message names it."""

    exit_code = 2


class DoesNotFit(PlimsollError, MemoryError):
    """Exit 3: refused before anything was loaded. `ways` is what would fit, each with a command."""

    exit_code = 3

    @property
    def ways(self) -> list[dict[str, Any]]:
        return self._ways or ([] if self.plan is None else self.plan.ways)

    @property
    def short_by(self) -> int | None:
        """Bytes that the smallest plan needs beyond the budget; None where the plan is not known."""
        return None if self.plan is None else self.plan.short_by


class DamagedData(PlimsollError):
    """Exit 4: data, weights or a checkpoint are damaged."""

    exit_code = 4


class RunStopped(PlimsollError):
    """Exit 5: the run had to stop (loss not finite, disk full, I/O); the last checkpoint is whole."""

    exit_code = 5


class Interrupted(PlimsollError, KeyboardInterrupt):
    """Exit 130: interrupted and saved. A KeyboardInterrupt, as a notebook's stop button makes one."""

    exit_code = 130


class Killed(PlimsollError):
    """Ended by a signal from outside, such as the kernel's OOM killer; `run.resume()` continues from the last checkpoint, if there is one."""

    exit_code = -9


BY_CODE: dict[int, type[PlimsollError]] = {
    kind.exit_code: kind for kind in (InternalError, InputError, DoesNotFit, DamagedData, RunStopped, Interrupted)}


def message_in(stderr: str) -> str:
    """The error that the program ended with: its lines from the last "error:" or "does not fit" on."""
    lines = stderr.strip().splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith(("error:", "does not fit"))]
    if not starts:
        return lines[-1] if lines else ""
    return "\n".join(lines[starts[0]:]).replace("error: ", "", 1)


def raise_for(code: int, stderr: str, *, message: str = "", command: Sequence[str] = (), plan: Plan | None = None, run: Run | None = None,
              problems: Sequence[dict[str, Any]] = (), ways: Sequence[dict[str, Any]] = ()) -> NoReturn:
    """Raises the class of an exit code; negative codes are signals, as subprocess has them."""
    kind = BY_CODE.get(code, InternalError)
    message = message or message_in(stderr)
    if code < 0 or code > 130:
        kind, message = Killed, message or f"ended by signal {-code if code < 0 else code - 128}"
    raise kind(message or f"exit code {code}", stderr=stderr, command=command, plan=plan, run=run, problems=problems, ways=ways)
