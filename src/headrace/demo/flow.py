"""The demo from its first file to its verdict: events land, a query runs, is killed, continues, and is verified."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

from headrace.children import start_child
from headrace.contract import BatchRecord
from headrace.demo.starter import LANDING, QUERY, RESULT, SEED, refuse_unless_empty, write_project
from headrace.errors import Finding, HeadraceError, reason
from headrace.generations.log import history_file
from headrace.history import History
from headrace.spark.jvm.gateway import descendants, kill_all, wait_until_gone

SETTINGS = "demo.json"
IDLE_SECONDS = 5.0
# How long Spark may take to start, of which nothing is heard meanwhile.
STARTING_SECONDS = 300.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast and how long events land, and how old the last sign of life of the driver may be."""

    seed: int = SEED
    rows_per_second: float = 4000
    seconds: float = 30
    patience: float = 60


@dataclass(kw_only=True)
class Tally:
    """What has been seen so far, for the live view."""

    landed: int = 0
    rows: int = 0
    batches: int = 0
    starts: int = 0
    state: str = "starting"
    step: str = ""
    started_at: float | None = None
    last: BatchRecord | None = None

    def take(self, line: Line) -> None:
        """Add a line of the driver or the generator."""
        match line.get("event"):
            case "landed":
                self.landed += int(line["rows"])
            case "preparing":
                self.step = str(line["step"])
            case "working":
                self.step = f"{int(line['tasks_done'])} of {int(line['tasks'])} tasks of a batch are done"
            case "started":
                self.state, self.step, self.started_at = "running", "", time.monotonic()
            case "batch":
                record = BatchRecord.from_dict({key: value for key, value in line.items() if key != "event"})
                self.rows += record.rows
                self.batches += 1
                self.last, self.state, self.step = record, "running", ""


class Audience(Protocol):
    """Who watches the demo."""

    def say(self, sentence: str) -> None:
        """Report what happened, in one sentence."""

    def show(self, tally: Tally) -> None:
        """Show the figures as they are now; called several times a second while the driver runs."""

    def show_command(self, command: Sequence[str]) -> None:
        """Show a command of headrace, whose own output follows on stdout and stderr."""

    def result(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Show the first rows of the result table."""


def demo(
    directory: Path, audience: Audience, *, pace: Pace | None = None, target: str | None = None, as_json: bool = False
) -> int:
    """Run the demo in `directory`; 0 when the verdict is fine.

    Raises HeadraceError when Java is missing, the directory is not the demo's, or the driver does not come up.
    """
    from headrace.spark.jvm.preconditions import require_java

    require_java()
    pace = _prepare(directory, audience, pace)
    _Show(directory, audience, pace, target).play()
    options = ["-C", str(directory), *(["--target", target] if target else []), *(["--json"] if as_json else [])]
    for command in (["run", *options, "--available-now"], ["verify", *options, QUERY]):
        audience.show_command(command)
        if code := run_command(["headrace", *command]):
            return code
    audience.result(*_first_rows(directory / RESULT))
    return 0


def _prepare(directory: Path, audience: Audience, pace: Pace | None) -> Pace:
    """Write the project, or continue with the one that an earlier demo left."""
    settings = directory / SETTINGS
    if settings.is_file():
        try:
            kept = pace or Pace(**json.loads(settings.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            problem = f"the settings of the demo in '{settings}' cannot be read: {reason(error)}"
            fix = "give the demo another directory, or correct the file"
            raise HeadraceError(code="HR115", what=problem, fix=fix) from error
        audience.say(
            f"'{directory}' is the project of an earlier demo: nothing in it is deleted or replaced,"
            " more events land and the query resumes where it stopped"
        )
        return kept
    refuse_unless_empty(directory)
    chosen = pace or Pace()
    write_project(directory, event_files=0)
    settings.write_text(json.dumps(asdict(chosen), indent=2) + "\n", encoding="utf-8")
    audience.say(f"a project was written to '{directory}': the query is in pipeline.py, the settings in headrace.yml")
    return chosen


class _Show:
    """The part of the demo in which events land and the driver runs, dies and runs again."""

    def __init__(self, directory: Path, audience: Audience, pace: Pace, target: str | None) -> None:
        self.audience, self.pace = audience, pace
        self.tally = Tally()
        self.heard_at = self.looked_at = 0.0
        self.storage = directory / ".headrace"
        self.storage.mkdir(exist_ok=True)
        self.command = ["headrace", "run", "-C", str(directory), "--json", *(["--target", target] if target else [])]
        self.landing = directory / LANDING
        self.children: list[Child] = []

    def play(self) -> None:
        """Play until no more events will land; what the driver has not taken is left for the next command."""
        pace = self.pace
        try:
            driver = self._start()
            self._watch(driver, until=lambda: self.tally.started_at is not None)
            generator = self._child(
                [
                    *("headrace.demo.generator", str(self.landing), "--seed", str(pace.seed)),
                    *("--rows-per-second", str(pace.rows_per_second), "--seconds", str(pace.seconds)),
                ],
                "generator.log",
            )
            self.audience.say(
                f"the query runs; for {pace.seconds:.0f} seconds {pace.rows_per_second:,.0f} events a second land"
            )
            middle = time.monotonic() + pace.seconds / 2
            self._watch(driver, until=lambda: time.monotonic() >= middle and self._has_taken_some(generator))
            # The driver is likely to be inside its next batch then, which begins a second after the last.
            last = self.tally.last
            time.sleep(max(0.0, 1.0 - (last.duration_ms if last else 0) / 1000) + 0.1)
            self._see()
            driver.kill()
            self._see("killed")
            batch = self.tally.last.batch if self.tally.last else 0
            self.audience.say(f"driver killed with SIGKILL at batch {batch}; starting it again")
            before = self.tally.batches
            driver = self._start()
            self._watch(driver, until=lambda: generator.exit_code is not None and self._has_resumed(before))
            self.tally.state = "stopping"
            driver.stop(within=30)
            self._see("stopped")
            self.audience.say("no more events land; the driver was asked to stop and finished its batch")
        finally:
            with contextlib.ExitStack() as stack:
                for child in self.children:
                    stack.callback(child.kill)
                for child in self.children:
                    child.stop(within=10)

    def _has_taken_some(self, generator: Child) -> bool:
        """Whether there is something that a kill could spoil."""
        return self.tally.batches >= (2 if generator.exit_code is None else 1)

    def _has_resumed(self, before: int) -> bool:
        """Whether the driver that was started again has made a batch, or runs and finds nothing left to take."""
        started = self.tally.started_at
        return self.tally.batches > before or (started is not None and time.monotonic() - started > IDLE_SECONDS)

    def _child(self, arguments: Sequence[str], log: str) -> Child:
        with hold_interrupts():
            self.children.append(Child(arguments, log=self.storage / log))
        return self.children[-1]

    def _start(self) -> Child:
        self.tally.state, self.tally.starts, self.tally.started_at = "starting", self.tally.starts + 1, None
        self.tally.step, self.looked_at = "starting Spark", 0.0
        self.heard_at = time.monotonic() + STARTING_SECONDS - self.pace.patience
        return self._child(self.command, "driver.log")

    def _see(self, state: str = "") -> None:
        """Take in what the children have said, and show it as of `state` where one is named."""
        for child in self.children:
            for line in child.take_lines():
                self.tally.take(line)
                if line.get("query") is not None:
                    self.heard_at = time.monotonic()
                if line.get("event") == "error":
                    raise HeadraceError([Finding.from_dict(plain) for plain in line["findings"]])
        if state:
            self.tally.state = state
            self.audience.show(self.tally)

    def _watch(self, driver: Child, *, until: Callable[[], bool]) -> None:
        while not until():
            self._see()
            self.audience.show(self.tally)
            self._listen()
            if driver.exit_code is not None or time.monotonic() - self.heard_at > self.pace.patience:
                self._see()
                raise HeadraceError(_lost_driver(driver, self.pace.patience))
            time.sleep(0.1)

    def _listen(self) -> None:
        """Look for the newest sign of life that the driver, once Spark has started, leaves in its history."""
        now = time.monotonic()
        if now - self.looked_at < LOOK_SECONDS or self.heard_at > now:
            return
        self.looked_at = now
        with contextlib.suppress(HeadraceError), History.open(history_file(self.storage), read_only=True) as history:
            seen = max((status.last_seen.timestamp() for status in history.statuses()), default=0.0)
            self.heard_at = max(self.heard_at, now - max(0.0, time.time() - seen))


def _lost_driver(driver: Child, patience: float) -> Finding:
    code = driver.exit_code
    happened = f"ended with exit code {code}" if code is not None else f"made no progress for {patience:.0f} seconds"
    return Finding(code="HR095", what=f"the driver of the demo {happened}", fix=f"read why in '{driver.log}'")


def _first_rows(database: Path) -> tuple[list[str], list[tuple[Any, ...]]]:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        rows = connection.execute(f'SELECT * FROM "{QUERY}" ORDER BY hour, action LIMIT 8')
        return [column[0] for column in rows.description], rows.fetchall()


Line: TypeAlias = Mapping[str, Any]


class Child:
    """`python -m ...` in a process group of its own; `lines` holds the output that was not read yet."""

    def __init__(self, arguments: Sequence[str], *, log: Path) -> None:
        self.log = log
        self.lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        with log.open("ab") as stderr:
            self._process = start_child([sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=stderr)
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stdout: IO[bytes] | None) -> None:
        for text in stdout or ():
            with contextlib.suppress(ValueError):
                self.lines.put(json.loads(text))

    def take_lines(self) -> list[Line]:
        """Return the lines that have come since the last call."""
        return [self.lines.get_nowait() for _ in range(self.lines.qsize())]

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def kill(self) -> None:
        """End it and all that it started with SIGKILL, so that nothing of it can tidy up."""
        if self.exit_code is None:
            kill_all(self._process.pid)
        self._process.wait()
        self._reader.join(timeout=1)

    def stop(self, *, within: float) -> int:
        """Ask it to end, as SIGTERM does, and kill it when it has not done so `within` seconds; its exit code."""
        if self.exit_code is None:
            children = descendants(self._process.pid)
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                self._process.wait(timeout=within)
                # The JVM of a driver ends a moment after the driver, when it sees that its input was closed.
                wait_until_gone(children, within=within)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(timeout=1)
        return self._process.wait()


@contextlib.contextmanager
def hold_interrupts() -> Iterator[None]:
    """Let no SIGINT or SIGTERM come between a child's start and the record of it; KeyboardInterrupt comes after."""
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda got, _: caught.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt


def run_command(arguments: Sequence[str]) -> int:
    """Run `python -m ...` on our own stdout and stderr and give its exit code.

    When we are interrupted it is asked to end, as by SIGTERM, and killed when 20 seconds are over.
    """
    started: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-m", *arguments]
    try:
        with hold_interrupts():
            started.append(start_child(command))
        return started[0].wait()
    except KeyboardInterrupt:
        for process in started:
            children = descendants(process.pid)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
                wait_until_gone(children, within=10)
        raise
    finally:
        for process in started:
            if process.poll() is None:
                kill_all(process.pid)
                process.wait()
