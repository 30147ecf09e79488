"""A backlog of 5 million JSON events, counted per action and hour into SQLite; the whole process."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.events import Counts, Events, events
from benchmarks.figures import Figure, Side
from benchmarks.processes import BASELINES, HEADRACE, seconds

TITLE = "5 million JSON events counted per action and hour into SQLite, whole process"
RUNS = 3
EVENTS, FILES = 5_000_000, 20
FEW_EVENTS, FEW_FILES = 50_000, 2

_PROJECT = """name: headline
sources:
  events:
    files: {{path: {landing}, format: json, schema: "phone_id STRING, time TIMESTAMP, action STRING"{limit}}}
    watermark: {{column: time, delay: 10 minutes}}
queries:
  counts:
    select: >
      SELECT action, window.start AS hour, count
      FROM (SELECT action, window(time, '1 hour') AS window, count(*) AS count
            FROM events GROUP BY action, window(time, '1 hour'))
    mode: update
    trigger: available-now
    sink: {{sqlite: {{path: result.db, table: counts, key: [action, hour]}}}}
targets:
  dev: {{master: "local[2]"}}
"""


def measure(*, runs: int, quick: bool) -> list[Figure]:
    given = events(FEW_EVENTS, files=FEW_FILES) if quick else events(EVENTS, files=FILES)
    files = list(given.directory.iterdir())
    for path in files:
        path.read_bytes()  # every side finds the files in the disk cache
    sides: dict[str, Callable[[Path], float]] = {
        "ours": lambda place: _ours(place, given, ""),
        "expert": lambda place: _script(place, given, "headline_expert.py", "limited"),
        "newcomer": lambda place: _script(place, given, "headline_newcomer.py", "limited"),
        "expert, no limit": lambda place: _script(place, given, "headline_expert.py", "unlimited"),
        "newcomer, no limit": lambda place: _script(place, given, "headline_newcomer.py", "unlimited"),
        "ours, no limit": lambda place: _ours(place, given, ", max_bytes_per_trigger: unlimited"),
    }
    took: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, side in sides.items():
            with tempfile.TemporaryDirectory() as scratch:
                took[name].append(side(Path(scratch)))
                compare(name, Path(scratch) / "result.db", given.counts)
    side_of = {name: Side.of(times) for name, times in took.items()}
    size = f"{sum(given.counts.values()):,} events, {given.megabytes:.0f} MB in {len(files)} files"
    shown = [
        ("ours", "newcomer", 0.20, "Spark's defaults, one file a batch as in the guide's examples"),
        ("ours", "expert", 0.65, "settings tuned by hand, exactly once by hand, one file a batch"),
        ("ours", "newcomer, no limit", None, "Spark's defaults, everything in one batch"),
        ("ours", "expert, no limit", None, "settings tuned by hand, exactly once by hand, everything in one batch"),
        ("ours, no limit", "expert, no limit", None, "as before, and `max_bytes_per_trigger: unlimited` for ours too"),
    ]
    return [
        Figure(
            name=f"headline job: {ours} against {theirs}",
            ours=side_of[ours],
            theirs=side_of[theirs],
            against=against,
            unit="s",
            target=None if quick else target,
            note=f"{size}; every side's result was compared with the expected one",
        )
        for ours, theirs, target, against in shown
    ]


def project(given: Events, limit: str) -> str:
    """The project file of the job; `limit` is an option of its source, or nothing."""
    return _PROJECT.format(landing=given.directory, limit=limit)


def _ours(place: Path, given: Events, limit: str) -> float:
    (place / "headrace.yml").write_text(project(given, limit), encoding="utf-8")
    return seconds([*HEADRACE, "run"], cwd=place)


def _script(place: Path, given: Events, script: str, limit: str) -> float:
    paths = [given.directory, place / "result.db", place / "checkpoint"]
    return seconds([sys.executable, BASELINES / script, *paths, limit], cwd=place)


def compare(name: str, database: Path, expected: Counts) -> None:
    """Raise if the table is not the expected answer."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT action, hour, count FROM counts").fetchall()
    counts = {(action, hour[:13].replace(" ", "T")): count for action, hour, count in rows}
    if len(rows) != len(expected) or counts != expected:
        wrong = sorted(set(counts.items()) ^ set(expected.items()))[:5]
        raise RuntimeError(f"the result of '{name}' is not the expected one; among the differences: {wrong}")
