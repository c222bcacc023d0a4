"""train and Run: a run that is watched by its event stream, or a run's folder."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import IO, Any, Callable, Iterable, Mapping, Sequence, Union, overload

from . import _export, _process, errors
from ._plan import Plan
from ._recipe import given, plain, words_of
from ._rows import optional, size

EVENTS_VERSION = 1
_PIPE_BYTES = 1 << 20  # some thousand steps wait there for a process that is busy
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which fcntl names from Python 3.10 on

Callback = Union[Callable[["Run", dict[str, Any]], object], object]
_METHODS = {"plan": "on_plan", "step": "on_step", "evaluate": "on_evaluate", "save": "on_save", "note": "on_note", "end": "on_end"}


class Lines(Sequence[dict[str, Any]]):
    """The lines of a run's log as dicts, as they are now; to_pandas() and to_arrow() where those are installed."""

    def __init__(self, path: pathlib.Path) -> None:
        self._rows: list[dict[str, Any]] = []
        if not path.exists():
            return
        for line in path.read_bytes().split(b"\n")[:-1]:  # what has no line break is being written
            self._rows.append(json.loads(line))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._rows[at]

    def __repr__(self) -> str:
        return f"<{len(self)} lines{f', the last {self._rows[-1]}' if self._rows else ''}>"

    def to_pandas(self) -> Any:
        return optional("pandas", "pandas").DataFrame(self._rows)

    def to_arrow(self) -> Any:
        return optional("pyarrow", "arrow").Table.from_pylist(self._rows)


class _Watched:
    """A started command and its events, which a thread takes as they come."""

    def __init__(self, words: Sequence[str], text: bytes | None, stderr: IO[bytes] | None) -> None:
        import fcntl

        program = _process.binary()
        stdin = _process.input_file(text)  # what can fail comes before the pipe, which nobody would close
        ours, theirs = os.pipe()
        try:
            fcntl.fcntl(ours, _SET_PIPE_SIZE, _PIPE_BYTES)
        except OSError:  # the system lets users have less: then the program keeps what waits
            pass
        self.command = [program, *words, "--events", str(theirs), "--die-with-parent", str(os.getpid())]
        try:
            # A session of its own: a Ctrl-C in the terminal or a notebook reaches the run once, through stop().
            self.process = subprocess.Popen(self.command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=stderr, pass_fds=(theirs,),
                                            env=_process.environment(), start_new_session=True)
        except (OSError, ValueError) as error:
            os.close(ours)
            raise _process.starting_error(error, self.command) from error
        finally:
            os.close(theirs)
            if not isinstance(stdin, int):
                stdin.close()
        self.events: list[dict[str, Any]] = []
        self.over = False
        self.changed = threading.Condition()
        threading.Thread(target=self._take, args=(ours,), name="plimsoll events", daemon=True).start()

    def _take(self, descriptor: int) -> None:
        import select

        os.set_blocking(descriptor, False)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        rest = b""
        try:
            while True:
                ended = self.process.poll() is not None
                ready = poll.poll(0 if ended else 500)
                part = b""
                if ready:
                    part = os.read(descriptor, 1 << 16)
                if not part and (ended or ready):  # another program may hold the pipe, and the end of the process is the end all the same
                    if ended:
                        break
                    self.process.wait()
                    continue
                *lines, rest = (rest + part).split(b"\n")
                if lines:
                    with self.changed:
                        self.events += [json.loads(line) for line in lines]
                        self.changed.notify_all()
        finally:
            os.close(descriptor)
            self.process.wait()
            with self.changed:
                self.over = True
                self.changed.notify_all()

    def more_than(self, seen: int) -> bool:
        """Waits until there are more events than `seen`; False once there are none to come."""
        with self.changed:
            while len(self.events) <= seen and not self.over:
                self.changed.wait(0.5)  # signals are taken in between
            return len(self.events) > seen


def _is_locked(file: pathlib.Path) -> bool:
    import fcntl

    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class Run:
    """A run's folder: of a run that train() started, or of any other, running or over."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = pathlib.Path(folder)
        self._watched: _Watched | None = None
        self._stderr: IO[bytes] | None = None
        self._callbacks: list[Any] = []
        self._said = ""
        self._seen = 0
        self._asked_to_stop = False
        self._error: BaseException | None = None
        self.total_steps: int | None = None

    # What is in the folder.

    @property
    def metrics(self) -> Lines:
        """A line for each step."""
        return Lines(self.folder / "metrics.jsonl")

    @property
    def evaluations(self) -> Lines:
        return Lines(self.folder / "eval.jsonl")

    @property
    def events(self) -> Lines:
        return Lines(self.folder / "events.jsonl")

    @property
    def record(self) -> dict[str, Any]:
        """run.json, which is there once the run ended or was interrupted."""
        path = self.folder / "run.json"
        return dict(json.loads(path.read_bytes())) if path.exists() else {}

    @property
    def planned(self) -> dict[str, Any]:
        return dict(self.record.get("planned", {}))

    @property
    def measured(self) -> dict[str, Any]:
        return dict(self.record.get("measured", {}))

    def report(self) -> dict[str, Any]:
        """What `plimsoll report --json` says of the folder."""
        return dict(_process.ask(["report", self._word, "--json"]).value)

    @property
    def status(self) -> str:
        """"running", "finished", or "stopped": then resume() continues it, from its beginning where it has no checkpoint."""
        if self._watched is not None:
            if self._watched.process.poll() is None:
                return "running"
            return "finished" if self._watched.process.returncode == 0 else "stopped"
        lock = self.folder / ".plimsoll" / "lock"
        if lock.exists() and not (self.folder / "metrics.jsonl").exists():  # it has no step yet, of which a report would be
            return "running" if _is_locked(lock) else "stopped"
        state = str(self.report()["state"])
        return state if state in ("running", "finished") else "stopped"

    @property
    def _word(self) -> str:
        name = str(plain(self.folder, "folder"))
        return f"./{name}" if name.startswith("-") else name

    # What goes on.

    @property
    def pid(self) -> int | None:
        """Of the process that train() started here."""
        return self._watched.process.pid if self._watched is not None else None

    def stop(self, wait: bool = True) -> Run:
        """Finishes the step, saves and ends; resume() continues with the same bits."""
        if self._watched is None:
            raise RuntimeError(f"{self.folder}: was not started here; a run elsewhere stops at SIGINT (kill -INT)")
        if self._watched.process.poll() is None and not self._asked_to_stop:  # a second one would end it at once, without saving
            self._asked_to_stop = True
            self._watched.process.send_signal(signal.SIGINT)
        if wait:
            self._watched.process.wait()
        return self

    def wait(self) -> Run:
        """Until the end of a run that train() started: calls the callbacks, raises the error that ended it. Ctrl-C saves and ends the run."""
        watched = self._watched
        if watched is None:
            raise RuntimeError(f"{self.folder}: was not started here; .status says how it is")
        try:
            self._follow(watched)
        except KeyboardInterrupt:
            self.stop(wait=False)
            self._follow(watched)  # a second Ctrl-C leaves, and the run still saves
        except BaseException as error:  # of a callback: the run saves and ends first
            self._error = self._error or error
            self.stop(wait=False)
            self._callbacks = []
            self._follow(watched)
        if self._error is not None:
            raise self._error
        if watched.process.returncode != 0:
            self._raise()
        return self

    def _follow(self, watched: _Watched) -> None:
        while watched.more_than(self._seen):
            event = watched.events[self._seen]
            self._seen += 1
            self._tell(event)
        self._keep_what_was_said()

    def _keep_what_was_said(self) -> None:
        if self._stderr is not None:
            self._stderr.seek(0)
            self._said = self._stderr.read().decode(errors="replace")
            self._stderr.close()
            self._stderr = None

    def _tell(self, event: dict[str, Any]) -> None:
        if event["event"] == "plan":
            self.total_steps = event.get("total_steps")
        name = _METHODS.get(event["event"])
        if name is None:
            return
        row = {key: value for key, value in event.items() if key != "event"}
        for callback in self._callbacks:
            method = getattr(callback, name, callback if name == "on_step" and callable(callback) else None)
            if method is not None and method(self, row) is False:
                self.stop(wait=False)

    def _raise(self) -> None:
        assert self._watched is not None
        events = self._watched.events
        code = int(self._watched.process.returncode)
        error: Mapping[str, Any] = next((event for event in events if event["event"] == "error"), {})
        run = self if any(event["event"] == "plan" for event in events) else None
        message = str(error.get("message", ""))
        if run is not None and any(self.folder.glob("checkpoint-*")):
            saved, then = " and saved", "run.resume() continues from the last checkpoint"
        else:
            saved, then = "", "there is no checkpoint: the run begins again with overwrite=True"
        if code == 130 and not message:
            message = f"{self.folder}: interrupted{saved}; {then}" if run is not None else "interrupted before it began"
        if (code < 0 or code > 130) and run is not None:
            message = f"{self.folder}: ended by signal {-code if code < 0 else code - 128}; {then}"
        errors.raise_for(code, self._said, message=message, command=self._watched.command, run=run, problems=error.get("problems", ()), ways=error.get("ways", ()))

    def resume(self, **more: Any) -> Run:
        """Continues from the newest checkpoint; keywords are those of train()."""
        return train(self.folder / "recipe.yaml", resume=True, **more)

    # What came of it.

    def generate(self, prompt: str, **options: Any) -> str:
        """The answer of the result: options are those of `plimsoll generate`, such as max_new_tokens=64."""
        words = []
        for key, value in options.items():
            value = plain(value, key)
            name = f"--{key.replace('_', '-')}"
            if value is True:
                words.append(name)
            elif value is not None and value is not False:
                words.append(f"{name}={value}")
        answer = _process.ask(["generate", self._word, "--prompt-file", "-", "--json", *words], text=str(plain(prompt, "prompt")).encode())
        return str(answer.value["response"])

    def export(self, to: _export.Target, out: _export.Place | None = None, *, type: _export.Kind | None = None, into: _export.Into | None = None,
               rows: _export.Place | None = None, limit: int | None = None, tolerance: float | None = None, device: str | None = None,
               precision: str | None = None, threads: int | None = None, set: Mapping[str, Any] | None = None) -> _export.Export:
        """The result as others serve it, checked by the loss of rows: those of a file, or held out. DamagedData where the check fails."""
        options = {"out": out, "type": type, "into": into, "rows": rows, "limit": limit, "tolerance": tolerance, "device": device,
                   "precision": precision, "threads": threads}
        return _export.export(self._word, str(plain(to, "to")), options, set)

    def load(self, **options: Any) -> Any:
        """The result as transformers, or PEFT for an adapter, loads it."""
        transformers = optional("transformers", "hf")
        if (self.folder / "adapter_config.json").exists():
            return optional("peft", "hf").AutoPeftModelForCausalLM.from_pretrained(self.folder, **options)
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder, **options)

    def __repr__(self) -> str:
        rows = self.metrics
        last = f", step {rows[-1]['step']}, loss {rows[-1]['loss']}" if len(rows) else ""
        return f"<Run {self.folder}{last}>"

    def _repr_html_(self) -> str:
        import html

        rows = self.metrics
        losses = [float(row["loss"]) for row in rows if row["loss"] is not None]
        line = ""
        if len(losses) > 1:
            low, high = min(losses), max(losses)
            every = max(1, len(losses) // 300)
            points = " ".join(f"{at / (len(losses) - 1) * 300:.1f},{60 - (loss - low) / ((high - low) or 1) * 56:.1f}"
                              for at, loss in list(enumerate(losses))[::every])
            line = (f"<svg width='320' height='64' role='img' aria-label='loss from {losses[0]:.4g} to {losses[-1]:.4g}'>"
                    f"<polyline fill='none' stroke='#36a' points='{points}'/></svg>")
        last = f"step {rows[-1]['step']}{f' of {self.total_steps}' if self.total_steps else ''}" if len(rows) else "no step yet"
        if losses:
            last += f", loss {losses[-1]:.4f}"
        measured, planned = self.measured.get("process_peak_rss_bytes"), self.planned.get("process_peak_rss_bytes")
        memory = f", peak {size(measured)} of {size(planned)} planned" if measured and planned else ""
        return f"<b>{html.escape(str(self.folder))}</b>: {html.escape(last + memory)}<br>{line}"


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class _Display:
    """One display of a notebook, updated at most five times a second; no widgets."""

    def __init__(self) -> None:
        shown = optional("IPython.display", "notebook")
        self._html = shown.HTML
        self._handle = shown.display(shown.HTML("planning"), display_id=True)
        self._last = 0.0
        self._rows: list[dict[str, Any]] = []

    def _show(self, run: Run) -> None:
        import html

        row = self._rows[-1] if self._rows else {}
        step, total = row.get("step", 0), run.total_steps or 0
        loss = row.get("loss")
        words = f"{step} of {total}" + (f", loss {loss:.4f}" if loss is not None else "")
        if row.get("seconds"):
            words += f", {row['tokens'] / row['seconds']:,.0f} tokens/s, {size(row['rss'])}"
        self._handle.update(self._html(f"<progress value='{step / total if total else 0:.4f}' style='width:20em'></progress> {html.escape(words)}<br>{run._repr_html_()}"))

    def on_plan(self, run: Run, _: dict[str, Any]) -> None:
        self._show(run)

    def on_step(self, run: Run, row: dict[str, Any]) -> None:
        self._rows = [row]
        if row["time"] - self._last >= 0.2:
            self._last = row["time"]
            self._show(run)

    def on_end(self, run: Run, _: dict[str, Any]) -> None:
        self._show(run)


def train(recipe: Any, *, peft_config: Any = None, args: Any = None, resume: bool = False, overwrite: bool = False,
          callbacks: Iterable[Callback] = (), progress: str | bool = "auto", wait: bool = True, set: Mapping[str, Any] | None = None,
          **options: Any) -> Run:
    """Trains a recipe as planned; returns, or raises, at its end. With wait=False it returns once the plan is made: run.wait() is the rest.

    Callbacks are functions of (run, row) for each step, or objects with any of on_plan, on_step, on_evaluate, on_save, on_note and on_end;
    one that returns False lets the run finish its step, save and end (Interrupted). They are called within wait().
    `progress`: "auto" is a display in a notebook and the program's own line on a terminal; False is none.
    """
    import tempfile

    on_terminal = bool(progress) and not _in_notebook() and sys.stderr is not None and sys.stderr.isatty()
    shown: list[Any] = [_Display()] if progress and _in_notebook() else []
    stderr = None if on_terminal else tempfile.TemporaryFile()
    with given(recipe, peft_config, args) as (named, text, more):
        words = ["train", *named, "--no-probe", *words_of({**more, **options}, set)]
        words += ["--resume"] if resume else []
        words += ["--overwrite"] if overwrite else []
        try:
            watched = _Watched(words, text, stderr)
        except errors.PlimsollError:
            if stderr is not None:
                stderr.close()
            raise
        run = Run("")
        run._watched, run._stderr, run._callbacks = watched, stderr, [*shown, *callbacks]
        try:
            _await_plan(run, watched)
        except KeyboardInterrupt:
            run.stop(wait=False)
            raise
    return run.wait() if wait else run


def _await_plan(run: Run, watched: _Watched) -> None:
    """Until the plan is made, and with it the folder known; a run that is refused raises here. The files of a recipe's objects are read by then."""
    seen = 0
    while watched.more_than(seen):
        event = watched.events[seen]
        seen += 1
        if event["event"] == "begin" and event["version"] != EVENTS_VERSION:
            watched.process.kill()
            raise errors.InternalError(f"{watched.command[0]} writes events of version {event['version']}, and this package reads {EVENTS_VERSION}")
        if event["event"] == "plan":
            run.folder = pathlib.Path(event["output"])
            return
    run._seen = seen
    run._keep_what_was_said()
    run._raise()
