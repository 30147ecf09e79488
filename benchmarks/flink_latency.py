"""From a file to its committed row, against PyFlink: small files land one by one while the headline query runs."""

from __future__ import annotations

import os
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from benchmarks import headline
from benchmarks.events import Events
from benchmarks.figures import Figure, Side
from benchmarks.flink import FLINK, Flink
from benchmarks.processes import HEADRACE, environment

FILES, FEW_FILES = 150, 20
# Of these the programs' compilers become warm.
WARM, FEW_WARM = 50, 5
_ROWS = 100
# The next file comes so long after the row of the one before, which is not a multiple of what either side waits for.
_PAUSE_SECONDS = 0.137
_MOST_SECONDS = 120.0
_LOOK_SECONDS = 0.002


def measure(flink: Flink, pairs: int, *, quick: bool) -> list[Figure]:
    files, warm = (FEW_FILES, FEW_WARM) if quick else (FILES, WARM)
    took: dict[str, list[list[float]]] = {"ours": [], "theirs": []}
    for pair in range(pairs):
        for side in sorted(took, reverse=pair % 2 == 1):
            with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
                waits = _ours(Path(scratch), files) if side == "ours" else _theirs(flink, Path(scratch), files)
            took[side].append(waits[warm:])
    figures = [
        Figure(
            name=f"file to committed row, {name}",
            ours=Side.of([_share(waits, share) for waits in took["ours"]]),
            theirs=Side.of([_share(waits, share) for waits in took["theirs"]]),
            against=f"PyFlink {FLINK}, a checkpoint every 100 ms",
            unit="ms",
            target=None if quick else target,
            target_of="ours",
            note=f"{files - warm} files of {_ROWS} events, one by one, counted per action and hour into SQLite",
        )
        for name, share, target in (("p50", 0.50, 200.0), ("p99", 0.99, 350.0))
    ]
    for figure in figures:
        print(figure, flush=True)
    return figures


def _share(waits: Sequence[float], share: float) -> float:
    return statistics.quantiles(waits, n=100, method="inclusive")[round(share * 100) - 1] * 1000


def _ours(place: Path, files: int) -> list[float]:
    landing = _landing(place)
    project = headline.project(Events(landing, {}), "").replace("    trigger: available-now\n", "")
    (place / "headrace.yml").write_text(project, encoding="utf-8")
    return _waits([*HEADRACE, "run"], place, landing, place / "result.db", files)


def _theirs(flink: Flink, place: Path, files: int) -> list[float]:
    landing = _landing(place)
    return _waits(flink.command("latency", landing, place), place, landing, place / "result", files)


def _landing(place: Path) -> Path:
    landing = place / "landing"
    landing.mkdir()
    return landing


def _waits(command: Sequence[str | Path], place: Path, landing: Path, database: Path, files: int) -> list[float]:
    """The seconds from each file to its row, one file after the other."""
    with (place / "log.txt").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=place,
            env=environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            waits = []
            for number in range(files):
                begun = _land(landing, number)
                while not _has(database, number):
                    if process.poll() is not None or time.perf_counter() - begun > _MOST_SECONDS:
                        log.seek(0)
                        raise RuntimeError(f"file {number} has no row in {database}:\n{log.read()[-4000:]}")
                    time.sleep(_LOOK_SECONDS)
                waits.append(time.perf_counter() - begun)
                time.sleep(_PAUSE_SECONDS)
            return waits
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with suppress(ProcessLookupError):  # what is left of it, as its JVM
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _land(landing: Path, number: int) -> float:
    """Let a file land whole, and return when it did."""
    row = f'{{"phone_id":"phone","time":"2024-01-01T00:00:00Z","action":"action-{number}"}}\n'
    draft = landing.with_name("draft.json")
    draft.write_text(row * _ROWS, encoding="utf-8")
    begun = time.perf_counter()
    draft.rename(landing / f"{number:06d}.json")
    return begun


def _has(database: Path, number: int) -> bool:
    """Whether all events of a file are counted."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT count FROM counts WHERE action = ?", (f"action-{number}",)).fetchone()
    except sqlite3.OperationalError:  # it is not there yet, or locked
        return False
    return bool(row and row[0] == _ROWS)
