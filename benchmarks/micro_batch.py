"""The median batch of a tiny stateful query: 1,000 rows a batch, counts of 100 keys, upserted into SQLite."""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Side
from benchmarks.processes import BASELINES, HEADRACE, lines_of, lines_until

TITLE = "a tiny stateful micro-batch: 1,000 rows, 100 keys, SQLite"
RUNS = 5
ROWS, KEYS = 1_000, 100

_PROJECT = """name: tiny
sources:
  numbers:
    rate_micro_batch: {rows_per_batch: 1000}
queries:
  counts:
    select: SELECT value % 100 AS key, count(*) AS count FROM numbers GROUP BY value % 100
    mode: update
    sink: {sqlite: {path: result.db, table: counts, key: [key]}}
targets:
  dev: {master: "local[2]"}
"""


@dataclass(frozen=True)
class Span:
    """The batches that are measured; those before them warm up."""

    first: int
    last: int

    def median(self, lines: list[str]) -> float:
        batches = {line["batch"]: line["duration_ms"] for line in map(json.loads, lines) if "duration_ms" in line}
        return float(statistics.median(batches[batch] for batch in range(self.first, self.last + 1)))


def measure(*, runs: int, quick: bool) -> list[Figure]:
    warm, few = (Span(3, 6), Span(1, 2)) if quick else (Span(10, 40), Span(2, 6))
    mine, newcomer, expert = [], [], []
    for _ in range(runs):
        mine.append(ours(warm))
        expert.append(_baseline("micro_batch_expert.py", warm))
        newcomer.append(_baseline("micro_batch_newcomer.py", few))
    measured = f"triggerExecution, median of the batches {warm.first} to {warm.last} of each run"
    return [
        Figure(
            name="a batch, against a newcomer's script",
            ours=Side.of(mine),
            theirs=Side.of(newcomer),
            against="Spark's defaults, foreachBatch with collect and executemany",
            unit="ms",
            target=0.04,
            note=f"{measured}; the newcomer's batches {few.first} to {few.last} only, for they take seconds each",
        ),
        Figure(
            name="a batch, against an expert's script",
            ours=Side.of(mine),
            theirs=Side.of(expert),
            against="settings tuned by hand, exactly once by hand",
            unit="ms",
            target=1.05,
            note=measured,
        ),
    ]


def ours(span: Span, command: tuple[str, ...] = HEADRACE) -> float:
    """The median batch by this `headrace`, in milliseconds."""

    def last_batch(line: str) -> bool:
        event = json.loads(line)
        return bool(event["event"] == "batch" and event["batch"] >= span.last)

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "headrace.yml").write_text(_PROJECT, encoding="utf-8")
        lines = lines_until([*command, "run", "--json"], last_batch, cwd=place)
        _compare(place / "result.db")
    return span.median(lines)


def _baseline(script: str, span: Span) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        command = [sys.executable, BASELINES / script, place / "result.db", place / "checkpoint", span.last]
        lines = lines_of(list(map(str, command)), cwd=place)
        _compare(place / "result.db")
    return span.median(lines)


def _compare(database: Path) -> None:
    """Whatever batch was the last, every key was counted as often as every other, in whole batches."""
    with closing(sqlite3.connect(database)) as connection:
        counts = dict(connection.execute("SELECT key, count FROM counts"))
    (count,) = set(counts.values()) if len(set(counts.values())) == 1 else (0,)
    if sorted(counts) != list(range(KEYS)) or count == 0 or count % (ROWS // KEYS):
        raise RuntimeError(f"{database} holds another result than whole batches give: {counts}")
