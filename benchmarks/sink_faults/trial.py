"""The faults: each is a trial of its own, some lives of the query that end badly and one to the end of its input."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from benchmarks.sink_faults import query
from benchmarks.sink_faults.cluster import cluster
from benchmarks.sink_faults.query import AT_LEAST, EXACTLY, NONE, ROWS, Scene, sink_of
from benchmarks.sink_faults.settings import SETTINGS, SPECULATION
from headrace.checkpoint.directory import Part

BATCHES, FILES, PATIENCE = 2, 2, 240.0


class NotApplicable(Exception):
    """The fault cannot happen to this sink here; the message says why."""


class NotShown(Exception):
    """The fault did not happen as it was meant, so the result says nothing of it; the message says why."""


@dataclass(frozen=True, kw_only=True)
class FaultOutcome:
    """What a fault did to the result. within: a fault that the promise covers."""

    fault: str
    within: bool
    verdict: str
    detail: str
    seed: int
    seconds: float

    def breaks(self, promises: str) -> bool:
        """Whether a sink that promises that has broken it here. Who promises nothing breaks nothing."""
        if promises == NONE:
            return False
        allowed = ("exact", "not ") if promises != AT_LEAST or "," in self.verdict else ("exact", "not ", "duplicates")
        return self.within and not self.verdict.startswith(allowed)


def finding(outcomes: Sequence[FaultOutcome]) -> str:
    """What the sink was under the faults that a promise covers: the strongest promise that none of them breaks."""
    if not any(outcome.within and not outcome.verdict.startswith("not ") for outcome in outcomes):
        return "nothing shown"
    kept = (promise for promise in (EXACTLY, AT_LEAST) if not any(outcome.breaks(promise) for outcome in outcomes))
    return next(kept, "neither exactly-once nor at-least-once")


@dataclass(frozen=True)
class Life:
    """A life of the query: a driver in a process group of its own."""

    process: subprocess.Popen[bytes]
    answer: Path

    def end(self, until: Path | None = None) -> dict[str, Any]:
        """Wait for its answer, or kill it as soon as the file `until` is there."""
        latest, ended = time.monotonic() + PATIENCE, None
        try:
            while not self.answer.exists() and not (until and until.exists()) and time.monotonic() < latest:
                if (ended := self.process.poll()) is not None:
                    break
                time.sleep(0.001)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.answer.exists():
            answer: dict[str, Any] = json.loads(self.answer.read_text())
            return answer
        error = f"no end within {PATIENCE:.0f} s" if time.monotonic() >= latest else ""
        return {
            "error": f"its process ended with {ended}" if ended not in (None, -signal.SIGKILL) else error,
            "rows": [],
        }


@dataclass(kw_only=True)
class Bench:
    """One trial: its directory, its input, its chances."""

    name: str
    home: Path
    seed: int
    python: str = sys.executable
    url: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    storage: str = "storage"
    files: int = FILES
    fed: int = 0
    # Of a life that came to the end of its input and read the result.
    answer: dict[str, Any] | None = None
    # What was seen of the fault, other than its result.
    seen: str = ""

    def __post_init__(self) -> None:
        self.sink, self.chance, self._lives = sink_of(self.name), Random(self.seed), count()
        (self.home / "input").mkdir(parents=True)

    def entry(self, log: str, batch: int) -> Path:
        return self.home / self.storage / self.sink.checkpoint / log / str(batch)

    def feed(self, batches: int = BATCHES) -> None:
        """Let input land, in the order of its files' times."""
        for number in range(self.fed, self.fed + batches * FILES):
            file = self.home / "input" / f"{number}.json"
            file.write_text("".join(f'{{"id": {row}}}\n' for row in range(number * ROWS, (number + 1) * ROWS)))
            os.utime(file, (1_700_000_000 + number,) * 2)
        self.fed += batches * FILES

    def fault(self, do: str, batch: int) -> dict[str, Any]:
        """A fault at a row in the middle of a task of that batch."""
        file = batch * FILES + self.chance.randrange(FILES)
        row = file * ROWS + self.chance.randrange(110, ROWS - 5)
        return {"do": do, "id": row, "mark": str(self.home / "mark")}

    def begin(self, **more: Any) -> Life:
        """Begin a life of the query."""
        answer = self.home / f"answer-{next(self._lives)}.json"
        settings = {**SETTINGS, **self.settings, **more.pop("settings", {})}
        scene = Scene(
            sink=self.name,
            home=str(self.home),
            storage=str(self.home / self.storage),
            checkpoint=str(self.home / self.storage / self.sink.checkpoint),
            answer=str(answer),
            files=self.files,
            settings={key: value.replace("{home}", str(self.home)) for key, value in settings.items()},
            **{"url": self.url, "fault": {}, "reads": False, **more},
        )
        spec = answer.with_suffix(".scene")
        spec.write_text(json.dumps(asdict(scene)))
        environment = {**os.environ, "PYSPARK_PYTHON": self.python, "PYSPARK_DRIVER_PYTHON": self.python}
        with open(self.home / "log", "ab") as log:
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            command = [self.python, query.__file__, str(spec)]
            process = subprocess.Popen(command, cwd=self.home, env=environment, start_new_session=True, **streams)
        return Life(process, answer)

    def live(self, until: Path | None = None, **more: Any) -> list[str]:
        """One life of the query; returns what it failed with, if it did."""
        answer = self.begin(**more).end(until)
        self.answer = answer if answer["rows"] and not answer["error"] else None
        return [answer["error"]] if answer["error"] else []

    def verdict(self, errors: Sequence[str]) -> tuple[str, str]:
        """Resume the query to the end of its input, and compare the result with the batch answer."""
        answer = self.answer or self.begin(reads=True).end()
        rows, wanted = Counter(number for number, _ in answer["rows"]), set(range(self.fed * ROWS))
        counts = {
            "duplicates": rows.total() - len(rows),
            # What it refuses to write is not lost.
            "lost": 0 if answer["error"] else len(wanted - rows.keys()),
            "wrong": sum(value != f"v{number}" or number not in wanted for number, value in answer["rows"]),
        }
        parts = [f"{name} {number}" for name, number in counts.items() if number]
        parts += [f"refused ({answer['error']})"] if answer["error"] else []
        others = ", ".join(error for error in dict.fromkeys(errors) if error != answer["error"])
        details = [self.seen, f"a driver failed: {others}" if others else ""]
        return ", ".join(parts) or "exact", "; ".join(filter(None, details))


def kills(bench: Bench) -> list[str]:
    """Killed as each entry of the offset log and of the commit log appears."""
    bench.feed()
    entries = [bench.entry(log, batch) for batch in range(BATCHES) for log in (Part.OFFSETS, Part.COMMITS)]
    return [error for entry in entries if not entry.exists() for error in bench.live(entry)]


def in_a_task(do: str, settings: Mapping[str, str], attempts: int = 1) -> Happening:
    """A fault at a row: the driver is killed, the task fails, or two attempts of it meet; `attempts` are to be seen."""

    def happen(bench: Bench) -> list[str]:
        bench.feed()
        fault = bench.fault(do, bench.chance.randrange(BATCHES))
        errors = bench.live(fault=fault, settings=settings, reads=True)
        seen = attempts_at(Path(fault["mark"]))
        bench.seen = f"attempts that came to the row: {seen}"
        if seen < attempts:
            raise NotShown(f"{seen} of {attempts} attempts came to the row {', '.join(errors)}".rstrip())
        return errors

    return happen


def speculation(bench: Bench) -> list[str]:
    """Two attempts of one task, on two workers, meet at a row and go on at once."""
    with cluster(bench.python, bench.home) as master:
        return in_a_task("race", {**SPECULATION, "spark.master": master}, attempts=2)(bench)


def attempts_at(mark: Path) -> int:
    """How many attempts of one task have come to the row of the fault."""
    file = mark.with_name(f"{mark.name}.attempts")
    seen = {tuple(line.split()) for line in file.read_text().splitlines()} if file.exists() else set()
    return max(Counter(task[:-1] for task in seen).values(), default=0)


def replay(bench: Bench) -> list[str]:
    """The newest entry of the commit log is deleted, as if it had been killed just before it."""
    bench.feed()
    errors, entry = bench.live(), bench.entry(Part.COMMITS, BATCHES - 1)
    if not entry.exists():
        raise NotShown(f"the query did not come to its end: {', '.join(errors)}")
    entry.unlink()
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    return errors


def answer_lost(bench: Bench) -> list[str]:
    """The database commits, and the connection is cut before its answer."""
    if not bench.url.startswith("postgresql:"):
        raise NotApplicable("no connection to a database")
    bench.feed()
    with LostAnswer(bench.url, bench.chance.randint(2, 2 * BATCHES - 1)) as proxy:
        errors = bench.live(url=proxy.url, reads=True)
    if not proxy.lost:
        raise NotShown("no COMMIT was seen")
    return errors


def two_drivers(bench: Bench) -> list[str]:
    """Two drivers resume from one checkpoint, and meet in the middle of one write."""
    bench.feed()
    bench.live(bench.entry(Part.OFFSETS, 1))
    first = {**bench.fault("meet", 1), "other": str(bench.home / "mark-2")}
    second = {**first, "mark": first["other"], "other": first["mark"]}
    lives = [bench.begin(fault=fault) for fault in (first, second)]
    errors = [error for life in lives if (error := life.end()["error"])]
    met = all(os.path.exists(mark) for mark in (first["mark"], first["other"]))
    bench.seen = "they met in the write" if met else "one ended before they met"
    return errors


def resume_copy(bench: Bench) -> list[str]:
    """A copy of the storage, of after its first batch, is resumed when the original is further and input is new.

    It takes all that is new in one batch, as after a change of maxFilesPerTrigger.
    """
    bench.feed(1)
    errors = bench.live()
    shutil.copytree(bench.home / bench.storage, bench.home / "copy")
    bench.feed(BATCHES - 1)
    errors += bench.live()
    bench.feed(1)
    bench.storage, bench.files = "copy", 1000
    return errors


Happening = Callable[[Bench], "list[str]"]
# What Spark's fault tolerance is about.
WITHIN: dict[str, Happening] = {
    "replayed batch": replay,
    "kill in the write": in_a_task("kill", {}),
    "task tried again": in_a_task("fail", {}, 2),
    "answer lost": answer_lost,
    "kill at each log write": kills,
    "speculation": speculation,
}
BEYOND: dict[str, Happening] = {"two drivers": two_drivers, "older copy": resume_copy}
# Those that cost most are last, if the time is short.
FAULTS = dict(
    sorted({**WITHIN, **BEYOND}.items(), key=lambda item: item[0] in ("kill at each log write", "speculation"))
)


class LostAnswer:
    """A way to a database on which the `number`th COMMIT arrives, and the connection is cut in place of its answer."""

    def __init__(self, url: str, number: int) -> None:
        parts = urlsplit(url)
        self._server, self._commits, self.lost = (parts.hostname, parts.port or 5432), count(1), False
        self._number, self._listener = number, socket.create_server(("127.0.0.1", 0))
        user, at, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{user}{at}127.0.0.1:{self._listener.getsockname()[1]}").geturl()

    def __enter__(self) -> LostAnswer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, server, cut = self._listener.accept()[0], socket.create_connection(self._server), [False]
                for way in ((client, server, cut, True), (server, client, cut, False)):
                    threading.Thread(target=self._pass, args=way, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, cut: list[bool], up: bool) -> None:
        with contextlib.suppress(OSError):
            while (chunk := source.recv(1 << 16)) and (up or not cut[0]):
                if up and b"COMMIT\0" in chunk and next(self._commits) == self._number:
                    self.lost = cut[0] = True
                target.sendall(chunk)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def verdict_without_fault(name: str, home: Path, *, seed: int = 1, **more: Any) -> str:
    """The verdict on a query that no fault befalls. Unless it is "exact", no fault says anything of the sink."""
    bench = Bench(name=name, home=home / "undisturbed", seed=seed, **more)
    bench.feed()
    return bench.verdict(())[0]


def try_sink(
    name: str, home: Path, faults: Iterable[str] = FAULTS, *, seed: int = 1, minutes: float = 10.0, **more: Any
) -> Iterator[FaultOutcome]:
    """Try each fault on the sink of that name; `more` is for `Bench`. What the time does not reach is not tried."""
    end = time.monotonic() + 60 * minutes
    for number, fault in enumerate(faults):
        started = time.monotonic()
        try:
            if started > end:
                verdict, detail = "not tried", "time was over"
            else:
                bench = Bench(name=name, home=home / str(number), seed=seed, **more)
                verdict, detail = bench.verdict(FAULTS[fault](bench))
        except NotApplicable as reason:
            verdict, detail = "not applicable", str(reason)
        except NotShown as reason:
            verdict, detail = "not shown", str(reason)
        seconds = round(time.monotonic() - started, 1)
        within = fault in WITHIN
        yield FaultOutcome(fault=fault, within=within, verdict=verdict, detail=detail, seed=seed, seconds=seconds)
