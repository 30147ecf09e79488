"""What `rewindable` costs a database sink: upserts of rows that are there, with what they replace kept and without."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Side
from benchmarks.sinks_other_ways import batches
from benchmarks.sinks_places import PLACES, Place, open_place
from benchmarks.sinks_rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "rewindable: what a batch of upserts costs that keeps what it replaces"
RUNS = 3
ROWS = 300_000
SMALL = 1_000
# Small batches, one after the other, of which the middle one counts.
SMALL_BATCHES = 21


def measure(*, runs: int, quick: bool) -> list[Figure]:
    from headrace.spark.jvm.session import start

    figures = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        rows = Rows.make(scratch / "rows", 20_000 if quick else ROWS)
        overrides = {"spark.sql.warehouse.dir": str(scratch / "warehouse")}
        spark = start(master="local[2]", purpose="stream", name="benchmark", overrides=overrides)
        stack.callback(spark.stop)
        frame = spark.read.parquet(str(rows.shuffled))
        small = spark.createDataFrame(rows.table.slice(0, SMALL).to_pandas(), frame.schema).coalesce(1).cache()
        small.count()
        for name in PLACES:
            place = stack.enter_context(open_place(name, scratch))
            figures += list(_pairs(place, frame, small, rows.table.num_rows, runs, 5 if quick else SMALL_BATCHES))
    return figures


def _pairs(
    place: Place, frame: DataFrame, small: DataFrame, count: int, runs: int, small_batches: int
) -> Iterator[Figure]:
    large: dict[str | None, list[float]] = {"7 days": [], None: []}
    little: dict[str | None, list[float]] = {"7 days": [], None: []}
    # The first run of each side warms up.
    for run in range(runs + 1):
        for kept in large:
            _, existing = islice(batches(place, frame, "update", rewindable=kept), 2)
            place.require(count)
            took = sorted(islice(batches(place, small, "update", settles=False, rewindable=kept), small_batches))
            if run:
                large[kept].append(existing)
                little[kept].append(took[len(took) // 2])
    for times, title in (
        (large, f"upsert of {count:,} rows that are there"),
        (little, f"a batch of {SMALL:,} upserts"),
    ):
        yield Figure(
            name=f"{place.title}: {title}, rewindable",
            ours=Side.of(times["7 days"]),
            theirs=Side.of(times[None]),
            against="the same batch without rewindable",
            unit="s",
        )
