"""The database sinks: two million rows exactly once against the plainest load of the same rows, sorted."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Side
from benchmarks.sinks_other_ways import Ways, batches, jars
from benchmarks.sinks_places import PLACES, Place, open_place
from benchmarks.sinks_rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "the database sinks: 2 million rows in one batch, exactly once"
RUNS = 3
ROWS = 2_000_000
# So many for the other ways, the slowest of which takes minutes.
FEWER = 500_000
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
    from headrace.spark.jvm.session import start

    figures = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        rows = Rows.make(scratch / "rows", 20_000 if quick else ROWS)
        fewer = Rows.make(scratch / "fewer", 20_000 if quick else FEWER)
        overrides = {"spark.jars": jars(), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
        spark = start(master="local[2]", purpose="stream", name="benchmark", overrides=overrides)
        stack.callback(spark.stop)
        frame = spark.read.parquet(str(rows.shuffled))
        for name in PLACES:
            place = stack.enter_context(open_place(name, scratch))
            figures += list(_against_raw(place, frame, rows, runs))
            figures += list(Ways(place, spark, fewer, rows, runs).measure())
    return figures


def _against_raw(place: Place, frame: DataFrame, rows: Rows, runs: int) -> list[Figure]:
    raw: list[float] = []
    ours: dict[str, list[float]] = {"append": [], "new": [], "existing": []}
    # The first run of each side warms up: files are read, code is compiled.
    for run in range(runs + 1):
        took = {"raw": place.load(rows), "append": next(batches(place, frame, "append"))}
        took["new"], took["existing"] = islice(batches(place, frame, "update"), 2)
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
