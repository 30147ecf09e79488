"""Change data into PostgreSQL: one batch of many changes of each key, against a COPY of these rows as they are."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psycopg

from benchmarks.figures import Figure, Side
from benchmarks.sinks_places import CHUNK
from headrace.connectors.sql.postgres.sink import Postgres
from headrace.connectors.sql.types import Forms, columns, lines
from headrace.contract import CHANGE_COLUMN, ChangeOptions, SinkContext
from services import PostgresServer
from services.process import new_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "change data: many changes of each key, folded into a table of PostgreSQL"
RUNS = 3
CHANGES, KEYS = 2_000_000, 500_000
TABLE = "customers"
_FEED = f"""
SELECT (id * 7919) % {{keys}} AS id, concat('name ', id) AS name, concat('city ', id % 97) AS city,
id % 1000 AS points, named_struct('operation', CASE WHEN id % 20 = 0 THEN 'delete' ELSE 'upsert' END,
'sequence', id, 'position', named_struct('partition', 0, 'offset', id),
'unavailable', CAST(array() AS ARRAY<STRING>), 'source_time', CAST(NULL AS TIMESTAMP)) AS {CHANGE_COLUMN}
FROM range({{count}})
"""


def measure(*, runs: int, quick: bool) -> list[Figure]:
    from headrace.spark.jvm.session import start

    count, keys = (40_000, 10_000) if quick else (CHANGES, KEYS)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        server = PostgresServer(new_home("postgres"))
        stack.callback(server.remove)
        server.create()
        url = server.create_database("changes")
        spark = start(master="local[2]", purpose="stream", name="benchmark", overrides={})
        stack.callback(spark.stop)
        frame = feed(spark, scratch / "feed", count, keys)
        copied = _sorted_text(spark, frame)
        ours: dict[int, list[float]] = {1: [], 2: []}
        theirs: list[float] = []
        for _ in range(runs):
            theirs.append(_copy(url, copied))
            for kind, times in ours.items():
                times.append(_apply(url, frame, kind, scratch))
    titles = {1: "the newest row of each", 2: "all intervals of each"}
    return [
        Figure(
            name=f"PostgreSQL: {count:,} changes of {keys:,} keys, {titles[kind]}",
            ours=Side.of(times),
            theirs=Side.of(theirs),
            against="COPY of the changes, sorted by key, into an empty table",
            unit="s",
            target=2.0 if kind == 1 else None,
        )
        for kind, times in ours.items()
    ]


def feed(spark: SparkSession, place: Path, count: int, keys: int) -> DataFrame:
    """Write so many changes of so many keys into files, and return them."""
    spark.sql(_FEED.format(keys=keys, count=count)).write.parquet(str(place))
    return spark.read.parquet(str(place))


def _sorted_text(spark: SparkSession, frame: DataFrame) -> memoryview:
    """The changes as COPY reads them."""
    rows = frame.selectExpr("id", "name", "city", "points", f"{CHANGE_COLUMN}.operation", f"{CHANGE_COLUMN}.sequence")
    ordered = rows.orderBy("id", "sequence")
    return lines(ordered.toArrow(), columns(ordered.schema)[0], Forms())


def _copy(url: str, text: memoryview) -> float:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("DROP TABLE IF EXISTS copied")
        connection.execute(
            "CREATE TABLE copied (id bigint, name text, city text, points bigint, operation text, sequence bigint)"
        )
        connection.execute("CHECKPOINT")
        begun = time.perf_counter()
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:
            for first in range(0, len(text), CHUNK):
                copy.write(text[first : first + CHUNK])
        return time.perf_counter() - begun


def _apply(url: str, frame: DataFrame, kind: int, scratch: Path) -> float:
    options = ChangeOptions(keys=("id",), sequence_type="BIGINT", scd_type=cast(Any, kind))
    sink: Any = Postgres(url=url, table=TABLE).changes.bind(options)
    context = SinkContext(query="bench", generation=1, mode="update", checkpoint=scratch / "checkpoint")
    writer = sink.open(frame, context)
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("CHECKPOINT")
    begun = time.perf_counter()
    writer(frame, 0)
    took = time.perf_counter() - begun
    writer.store.disconnect()
    sink.reset.archive(context, None)
    sink.reset.discard(context, None)
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("DELETE FROM _headrace_epochs")
    return took
