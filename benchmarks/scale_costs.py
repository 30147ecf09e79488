"""What a batch costs by its partitions and rows of state, and with its progress written next to it, in one session."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure, Side
from benchmarks.scale_rows import TINY_KEYS, TINY_ROWS, write_numbers
from benchmarks.scale_stores import Store
from headrace.spark.jvm.settings import FILE_MANAGER, LOCAL_FILE_MANAGER

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = (2, 8, 32, 128)
STATE_ROWS = (10_000, 100_000, 1_000_000)
FEW_PARTITIONS, FEW_STATE_ROWS = (2, 8), (1_000, 10_000)
# Batches of one turn, of which the mean counts; the first turn warms up.
BATCHES = 2
NOTE = f"triggerExecution, the mean of {BATCHES} batches a turn, a turn of each after the other; no sink, local disk"
# Batches of a stateless query, of which the first ones warm up.
ASYNC_FIRST, ASYNC_LAST = 4, 14
FEW_ASYNC = 6
SNAPSHOT_SECONDS = 30.0


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    """Headrace's own session on two cores, in which snapshots of the state are soon taken."""
    from headrace.spark.jvm.session import start

    overrides = {
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # Sources without a name.
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
        # Queries that wait for their turn look for files a few times a second.
        "spark.sql.streaming.pollingDelay": "200ms",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.maintenanceInterval": "3s",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    }
    spark = start(master="local[2]", purpose="stream", name="benchmark", overrides=overrides)
    try:
        yield spark
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.stop()


class Fed:
    """A query that is given a file at a time."""

    def __init__(self, spark: SparkSession, home: Path, select: str, *, partitions: int = 2) -> None:
        self.home, self.landing, self.landed = home, home / "landing", 0
        self.checkpoint = home / "checkpoint"
        self.landing.mkdir(parents=True)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        frame = spark.readStream.schema("value BIGINT").parquet(str(self.landing))
        frame.withColumn("time", _time(frame["value"])).withWatermark("time", "1 hour").createOrReplaceTempView(
            "numbers"
        )
        writer = spark.sql(select).writeStream.format("noop").outputMode("update")
        self.query: StreamingQuery = writer.option("checkpointLocation", str(self.checkpoint)).start()

    def batch(self, file: Path) -> dict[str, Any]:
        """Let a file land, and wait for its batch; what Spark reports of it."""
        hidden = self.landing / f".{self.landed:04d}"
        self.landed += 1
        shutil.copyfile(file, hidden)
        hidden.rename(self.landing / f"{hidden.name[1:]}.parquet")
        self.query.processAllAvailable()
        return next(dict(progress) for progress in reversed(self.query.recentProgress) if progress["numInputRows"])

    def milliseconds(self, file: Path) -> float:
        """The mean of some batches."""
        return statistics.mean(float(self.batch(file)["durationMs"]["triggerExecution"]) for _ in range(BATCHES))


def _time(value: Column) -> Column:
    from pyspark.sql import functions as F

    return F.timestamp_micros(value)


def partitions(spark: SparkSession, scratch: Path, *, runs: int, quick: bool) -> list[Figure]:
    """A tiny batch with more and more state partitions."""
    tiny = scratch / "tiny.parquet"
    write_numbers(tiny, range(TINY_ROWS), keys=TINY_KEYS)
    count = "SELECT value, count(*) AS count FROM numbers GROUP BY value"
    fed = {
        number: Fed(spark, scratch / f"partitions-{number}", count, partitions=number)
        for number in (FEW_PARTITIONS if quick else PARTITIONS)
    }
    took: dict[int, list[float]] = {number: [] for number in fed}
    for turn in range(runs + 1):
        for number, query in fed.items():
            milliseconds = query.milliseconds(tiny)
            if turn:
                took[number].append(milliseconds)
    for query in fed.values():
        query.query.stop()
    least, *more = took
    return [
        Figure(
            name=f"a tiny batch with {number} state partitions",
            ours=Side.of(took[number]),
            theirs=Side.of(took[least]),
            against=f"{least} state partitions",
            unit="ms",
            note=f"{TINY_ROWS:,} rows of {TINY_KEYS} keys; {NOTE}",
        )
        for number in more
    ]


def state_rows(spark: SparkSession, scratch: Path, *, runs: int, quick: bool) -> list[Figure]:
    """A tiny batch over more and more rows of state, with a watermark and without; and the bytes of a row."""
    tiny, figures = scratch / "few.parquet", []
    write_numbers(tiny, range(TINY_ROWS), keys=TINY_KEYS)
    kinds = {
        "that never leave it": "SELECT xxhash64(value) AS key, count(*) AS count FROM numbers GROUP BY 1",
        "below a watermark": "SELECT xxhash64(value) AS key, time, count(*) AS count FROM numbers GROUP BY 1, time",
    }
    for kind, (title, select) in enumerate(kinds.items()):
        fed = {}
        for rows in FEW_STATE_ROWS if quick else STATE_ROWS:
            fed[rows] = Fed(spark, scratch / f"state-{kind}-{rows}", select)
            write_numbers(scratch / "fill.parquet", range(rows))
            fed[rows].batch(scratch / "fill.parquet")
        took: dict[int, list[float]] = {rows: [] for rows in fed}
        for turn in range(runs + 1):
            for rows, query in fed.items():
                milliseconds = query.milliseconds(tiny)
                if turn:
                    took[rows].append(milliseconds)
        least, *more = took
        figures += [
            Figure(
                name=f"a tiny batch over {rows:,} rows of state {title}",
                ours=Side.of(took[rows]),
                theirs=Side.of(took[least]),
                against=f"{least:,} rows",
                unit="ms",
                note=f"{TINY_ROWS:,} rows of {TINY_KEYS} keys, 2 state partitions; {NOTE}",
            )
            for rows in more
        ]
        sizes = [_bytes(query, rows) for rows, query in fed.items()]
        figures.append(
            Figure(
                name=f"a row of state {title}, in a snapshot",
                ours=Side.of([snapshot for snapshot, _ in sizes]),
                theirs=Side.of([changelog for _, changelog in sizes]),
                against="in a changelog",
                unit="bytes",
                note="the key a number like chance, the value a small one; states of "
                f"{', '.join(f'{rows:,}' for rows in fed)} rows",
            )
        )
        for query in fed.values():
            query.query.stop()
    return figures


def _bytes(fed: Fed, rows: int) -> tuple[float, float]:
    """The bytes of a row in the snapshots of a state, and in the changelogs of the batch that filled it."""
    state, ends = fed.checkpoint / "state" / "0", time.monotonic() + SNAPSHOT_SECONDS
    while not all(list(state.glob(f"{partition}/*.zip")) for partition in range(2)):
        if time.monotonic() > ends:
            raise RuntimeError(f"no snapshot of {state} within {SNAPSHOT_SECONDS:.0f} s")
        time.sleep(0.5)
    newest = [max(state.glob(f"{partition}/*.zip"), key=lambda file: file.stat().st_mtime) for partition in range(2)]
    snapshot = [*newest, *state.glob("*/SSTs/*.sst")]
    changelog = list(state.glob("*/1.changelog"))
    return _size(snapshot) / rows, _size(changelog) / rows


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def asynchronous(spark: SparkSession, stores: Mapping[str, Store], *, runs: int, quick: bool) -> list[Figure]:
    """A tiny batch without state on each store, with Spark's progress written asynchronously and with each batch."""
    last = FEW_ASYNC if quick else ASYNC_LAST
    took: dict[tuple[str, bool], list[float]] = {}
    for turn in range(runs):
        for name, store in stores.items():
            if store.manager is None:
                continue
            for asynchronous in (True, False):
                place = store.place(f"progress-{turn}-{'asynchronous' if asynchronous else 'with'}")
                spark.conf.set(FILE_MANAGER, store.manager)
                took.setdefault((name, asynchronous), []).append(
                    _stateless(spark, place, last, asynchronous=asynchronous)
                )
    spark.conf.set(FILE_MANAGER, LOCAL_FILE_MANAGER)
    return [
        Figure(
            name=f"a tiny batch without state on {name}, its progress written next to it",
            ours=Side.of(took[name, True]),
            theirs=Side.of(took[name, False]),
            against="its progress written with it",
            unit="ms",
            note="asyncProgressTrackingEnabled, which Spark has for stateless queries into Kafka, foreach and sinks "
            "that keep nothing; plain Spark, no sink; triggerExecution, a median of each run",
        )
        for name, store in stores.items()
        if store.manager is not None
    ]


def _stateless(spark: SparkSession, place: str, last: int, *, asynchronous: bool) -> float:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", TINY_ROWS).load()
    writer = rate.select("value").writeStream.format("noop").option("checkpointLocation", place)
    query = writer.option("asyncProgressTrackingEnabled", str(asynchronous).lower()).start()
    try:
        while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < last):
            time.sleep(0.1)
        if not query.isActive:
            raise RuntimeError(str(query.exception()))
        batches = {progress["batchId"]: progress["durationMs"] for progress in query.recentProgress}
    finally:
        query.stop()
    return statistics.median(float(batches[batch]["triggerExecution"]) for batch in range(ASYNC_FIRST, last + 1))
