"""Whole jobs against PyFlink, process after process, each result held against the one to expect.

`JOB=groups,rows`, `PAIRS=1` and `EVENTS=100000` run some of the jobs, in so many pairs, over so many events: a trial.
PyFlink is installed once into a virtual environment of its own in the cache directory, its parquet format by Maven.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks import flink_latency, headline
from benchmarks.clicks import SCHEMA, clicks
from benchmarks.events import events
from benchmarks.figures import Figure, Side
from benchmarks.flink import FLINK, Flink
from benchmarks.processes import HEADRACE, seconds

TITLE = "whole jobs against PyFlink: counts, groups, rows as they are, sliding windows"
RUNS = 5
FILES = 20
_FEW = 100_000
_PROJECT = """name: clicks
sources:
  events:
    files: {{path: {landing}, format: json, schema: "{schema}"}}
    watermark: {{column: time, delay: 1 minute}}
queries:
  result:
    select: >
      {select}
    mode: append
    trigger: available-now
    sink: {{files: {{path: result, format: {form}}}}}
targets:
  dev: {{master: "local[2]"}}
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job over `events` events. Without `select` it counts those of the headline job; else it reads clicks."""

    title: str
    events: int
    target: float
    select: str = ""
    format: str = "parquet"
    key: tuple[str, ...] = ("begins",)


JOBS = {
    "headline": Job(title="count per action and hour into SQLite", events=5_000_000, target=0.80),
    "groups": Job(
        title="count of each session in ten minutes, with a watermark, into parquet",
        events=1_840_000,
        target=0.85,
        select="SELECT window.start AS begins, session, count(*) AS count, sum(value) AS total FROM events "
        "GROUP BY window(time, '10 minutes'), session",
        key=("begins", "session"),
    ),
    "rows": Job(
        title="rows as they are, into csv",
        events=1_840_000,
        target=0.85,
        select="SELECT * FROM events",
        format="csv",
        key=("id",),
    ),
    "sliding": Job(
        title="most frequent page of each sliding window (10 s by 2 s)",
        events=1_840_000,
        target=0.85,
        select="SELECT window.start AS begins, best.page AS page, best.count AS count FROM ("
        "SELECT window, max(struct(count, page)) AS best FROM ("
        "SELECT window(time, '10 seconds', '2 seconds') AS window, page, count(*) AS count FROM events "
        "GROUP BY window(time, '10 seconds', '2 seconds'), page) GROUP BY window)",
    ),
    "highest": Job(
        title="highest value of each window of ten seconds",
        events=1_840_000,
        target=0.85,
        select="SELECT window.start AS begins, max(value) AS highest FROM events GROUP BY window(time, '10 seconds')",
    ),
    "backlog": Job(title="count per action and hour into SQLite", events=25_000_000, target=0.75),
}


LATENCY = "latency"
NAMES = (*JOBS, LATENCY)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is run. Anything but all of it is a trial, whose result is not kept."""

    jobs: tuple[str, ...]
    pairs: int | None
    events: int | None

    @classmethod
    def from_environment(cls) -> Options:
        """By JOB, PAIRS and EVENTS in the environment."""
        jobs = tuple(filter(None, os.environ.get("JOB", "").split(",")))
        if unknown := set(jobs) - set(NAMES):
            raise SystemExit(f"JOB names no job by {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
        return cls(jobs=jobs or NAMES, pairs=_number("PAIRS"), events=_number("EVENTS"))

    @property
    def trial(self) -> bool:
        return set(self.jobs) != set(NAMES) or self.events is not None or (self.pairs or RUNS) < RUNS


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    if text and (not text.isdecimal() or int(text) < 1):
        raise SystemExit(f"{name}={text} is not a whole number above 0")
    return int(text) if text else None


def is_trial() -> bool:
    """Whether the options leave something out."""
    return Options.from_environment().trial


def measure(*, runs: int, quick: bool) -> list[Figure]:
    options = Options.from_environment()
    flink = Flink.install()
    # The programs come into the disk cache before a pair counts.
    for side in _sides("headline", flink, headline.FEW_EVENTS).values():
        _run(side)
    pairs = options.pairs or runs
    figures = [
        _figure(name, flink, pairs, options.events or (_FEW if quick else JOBS[name].events))
        for name in options.jobs
        if name != LATENCY
    ]
    if LATENCY in options.jobs:
        figures += flink_latency.measure(flink, pairs, quick=quick or options.events is not None)
    return figures


def _figure(name: str, flink: Flink, pairs: int, count: int) -> Figure:
    job, sides = JOBS[name], _sides(name, flink, count)
    took: dict[str, list[float]] = {side: [] for side in sides}
    for pair in range(pairs):
        # Each pair begins with the other side.
        for side in sorted(sides, reverse=pair % 2 == 1):
            took[side].append(_run(sides[side]))
    figure = Figure(
        name=f"{job.title}, {count:,} events",
        ours=Side.of(took["ours"]),
        theirs=Side.of(took["theirs"]),
        against=f"PyFlink {FLINK}, SQL in streaming mode, settings tuned by hand",
        unit="s",
        target=job.target if count == job.events else None,
        note="whole processes; every result was compared with the expected one",
    )
    print(f"{figure}; ratios {', '.join(f'{ratio:g}' for ratio in figure.ratios)}", flush=True)
    return figure


def _run(side: Callable[[Path], float]) -> float:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        return side(Path(scratch))


def _sides(name: str, flink: Flink, count: int) -> dict[str, Callable[[Path], float]]:
    """How each side runs a job over `count` events in an empty directory; raises if the result is not the expected."""
    return _counting(flink, count) if not JOBS[name].select else _clicking(name, flink, count)


def _counting(flink: Flink, count: int) -> dict[str, Callable[[Path], float]]:
    given = events(count, files=FILES)
    _into_disk_cache(given.directory)

    def ours(place: Path) -> float:
        (place / "headrace.yml").write_text(headline.project(given, ""), encoding="utf-8")
        took = seconds([*HEADRACE, "run"], cwd=place)
        headline.compare("headrace", place / "result.db", given.counts)
        return took

    def theirs(place: Path) -> float:
        took = seconds(flink.command("headline", given.directory, place), cwd=place)
        headline.compare("flink", place / "result", given.counts)
        return took

    return {"ours": ours, "theirs": theirs}


def _clicking(name: str, flink: Flink, count: int) -> dict[str, Callable[[Path], float]]:
    job, given = JOBS[name], clicks(count, files=FILES)
    _into_disk_cache(given.landing)
    expected = pq.read_table(given.answers / f"{name}.parquet")
    # Windows end when a later event has come; Flink ends them with the input.
    landing = given.landing if name == "rows" else given.closed

    def ours(place: Path) -> float:
        project = _PROJECT.format(landing=landing, schema=SCHEMA, select=job.select, form=job.format)
        (place / "headrace.yml").write_text(project, encoding="utf-8")
        took = seconds([*HEADRACE, "run"], cwd=place)
        compare(f"headrace: {name}", read_result(place / "result", expected), expected, job.key)
        return took

    def theirs(place: Path) -> float:
        took = seconds(flink.command(name, given.landing, place), cwd=place)
        compare(f"flink: {name}", read_result(place / "result", expected), expected, job.key)
        return took

    return {"ours": ours, "theirs": theirs}


def _into_disk_cache(directory: Path) -> None:
    for path in directory.iterdir():
        path.read_bytes()


def read_result(directory: Path, expected: pa.Table) -> pa.Table:
    """The rows in the parquet or csv files of a result, with the columns of the expected one."""
    files = [path for path in sorted(directory.rglob("part-*")) if not path.name.endswith(".crc")]
    types = {field.name: _with_zone(field.type) for field in expected.schema}
    read = csv.ReadOptions(column_names=expected.column_names), csv.ConvertOptions(column_types=types)
    tables = []
    for file in files:
        if file.read_bytes()[:4] == b"PAR1":
            tables.append(pq.read_table(file))
        elif file.stat().st_size:
            tables.append(csv.read_csv(file, read_options=read[0], convert_options=read[1]))
    if not tables:
        raise RuntimeError(f"{directory} has no result")
    columns = [table.select(expected.column_names).cast(expected.schema) for table in tables]
    return pa.concat_tables(columns)


def _with_zone(kind: pa.DataType) -> pa.DataType:
    """Times in csv end with a zone, and may have six digits of a second."""
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else kind


def compare(name: str, result: pa.Table, expected: pa.Table, key: tuple[str, ...]) -> None:
    """Raise if the rows are not the expected ones; sums of doubles may differ by their order."""
    order = [(column, "ascending") for column in key]
    result, expected = result.sort_by(order), expected.sort_by(order)
    if len(result) != len(expected):
        raise RuntimeError(f"'{name}' has {len(result):,} rows, {len(expected):,} are expected")
    for column in expected.column_names:
        mine, right = result[column], expected[column]
        same = np.allclose(mine, right, rtol=1e-9, atol=0) if pa.types.is_floating(right.type) else mine.equals(right)
        if not same:
            raise RuntimeError(f"the column '{column}' of '{name}' is not the expected one")
