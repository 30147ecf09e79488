"""The database sinks: two million rows exactly once against the plainest load of the same rows, sorted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Side
from benchmarks.sinks_other_ways import Ways
from benchmarks.sinks_places import NAMES, Place, open_place
from benchmarks.sinks_rows import Rows
from headrace.contract import OutputMode, SinkRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "the database sinks: 2 million rows in one batch, exactly once"
RUNS = 3
ROWS = 2_000_000
# At least so many times the rate of the sorted raw load.
TARGETS = {
    "postgres": {"append": 0.60, "new": 0.40, "existing": 0.15},
    "mariadb": {"append": 0.65, "new": 0.65, "existing": 0.40},
    "sqlite": {"append": 0.80, "new": 0.80, "existing": 0.50},
}
WORDS = {
    "append": "append of {rows} rows",
    "new": "upsert of {rows} new rows",
    "existing": "upsert of {rows} rows that are there",
}


def measure(*, runs: int, quick: bool) -> list[Figure]:
    from headrace.testing.spark_session import local_session

    rows_count = 20_000 if quick else ROWS
    figures = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        rows = Rows.make(scratch / "rows", rows_count)
        spark = local_session(scratch)
        stack.callback(spark.stop)
        frame = spark.read.parquet(str(rows.shuffled))
        for name in NAMES:
            place = stack.enter_context(open_place(name, scratch))
            figures += list(_against_raw(place, frame, rows, runs))
            figures += list(Ways(place, spark, frame, rows, quick).measure())
    return figures


def _against_raw(place: Place, frame: DataFrame, rows: Rows, runs: int) -> list[Figure]:
    raw: list[float] = []
    ours: dict[str, list[float]] = {"append": [], "new": [], "existing": []}
    # The first run of each side warms up: files are read, code is compiled.
    for run in range(runs + 1):
        took = {"raw": place.load(rows), "append": next(_ours(place, frame, "append"))}
        took["new"], took["existing"] = islice(_ours(place, frame, "update"), 2)
        place.require(rows.table.num_rows)
        if run:
            raw.append(took.pop("raw"))
            for name in ours:
                ours[name].append(took[name])
    return [
        Figure(
            name=f"{place.title}: {WORDS[name].format(rows=f'{rows.table.num_rows:,}')}",
            ours=Side.of(times),
            theirs=Side.of(raw),
            against=f"{place.plainest} of the same rows, sorted by the key",
            unit="s",
            target=round(1 / TARGETS[place.name][name], 3),
            note=f"the target is {TARGETS[place.name][name]:.2f} of the raw rate; ours is the whole batch, "
            "with Spark's own work and the ledger",
        )
        for name, times in ours.items()
    ]


def _ours(place: Place, frame: DataFrame, mode: OutputMode) -> Iterator[float]:
    """The seconds of each batch of the same rows: the first finds an empty table, the next ones replace the rows."""
    place.clear()
    sink = place.sink()
    run = SinkRun(query="bench", generation=1, mode=mode, checkpoint=place.scratch / "checkpoint")
    sink.prepare(frame, run)
    writer = sink.writer(run)
    for batch in count():
        place.settle()
        started = time.perf_counter()
        writer(frame, batch)
        yield time.perf_counter() - started
