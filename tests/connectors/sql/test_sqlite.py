"""The SQLite sink names every fault, and shows other processes whole batches only."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.exactly_once import BatchWriter
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.connectors.sql.sqlite.sink import Sqlite
from headrace.contract import OutputMode, SinkContext
from headrace.errors import CheckpointError, HeadraceError, SinkError
from headrace.testing.conformance import NAME, forget_commit

from .databases import checkpoint_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Life:
    """A query's life without a stream: batches are offered to the sink as Spark's foreachBatch offers them."""

    def __init__(self, spark: SparkSession, home: Path, schema: str, key: tuple[str, ...], mode: OutputMode) -> None:
        self.spark, self.schema = spark, schema
        self.sink = Sqlite(path=str(home / "result.db"), table="result", key=key, retry_seconds=0.2)
        self.errors: list[HeadraceError] = []
        self.boundaries: list[tuple[str, int]] = []
        self.run = SinkContext(
            query="q",
            generation=1,
            mode=mode,
            checkpoint=home / "checkpoint",
            on_boundary=lambda boundary, batch: self.boundaries.append((boundary, batch)),
            on_error=self.errors.append,
        )

    def begin(self) -> BatchWriter[Any]:
        return self.sink.open(self.frame([]), self.run)

    def frame(self, rows: list[tuple[Any, ...]]) -> DataFrame:
        return self.spark.createDataFrame(rows, self.schema)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.sink.read_back(self.spark, self.run).rows.collect()))

    def checkpoint(self, identity: str, *, offsets: int, commits: int) -> None:
        """A checkpoint as Spark leaves it."""
        checkpoint_of(self.run.checkpoint, identity, offsets=offsets, commits=commits)


@pytest.fixture
def context(spark: SparkSession, tmp_path: Path) -> Life:
    return Life(spark, tmp_path, "name STRING, total BIGINT", ("name",), "update")


@pytest.fixture
def appending(spark: SparkSession, tmp_path: Path) -> Life:
    return Life(spark, tmp_path, "name STRING, total BIGINT", ("name",), "append")


def test_pages_that_every_batch_changes_wait_in_the_log(context: Life) -> None:
    """Each batch brings more than the 4 MB after which SQLite itself would bring the log into the file."""
    writer, file = context.begin(), Path(context.sink.path)
    log = file.with_name(f"{file.name}-wal")
    for batch in range(3):
        writer(context.spark.range(3_000).selectExpr("repeat(id, 500) name", f"id + {batch} total"), batch)
    assert log.stat().st_size > 3 * (4 << 20)
    assert file.stat().st_size < 4 << 20
    writer.store.disconnect()
    assert not log.exists()
    assert (len(context.rows()), file.stat().st_size > 4 << 20) == (3_000, True)


@pytest.mark.parametrize(
    "declared",
    ["INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH", "MAP<INT, INT>", "ARRAY<INTERVAL DAY TO SECOND>", "VARIANT"],
)
def test_a_type_that_would_lose_something_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, declared: str
) -> None:
    context = Life(spark, tmp_path, f"id INT, v {declared}", (), "append")
    with pytest.raises(SinkError, match=r"column 'v' is ") as refused:
        context.begin()
    assert refused.value.findings[0].code == "HR404"


@pytest.mark.parametrize("declared", ["DECIMAL(12,2)", "DOUBLE", "INT"])
def test_sql_compares_and_adds_numbers(spark: SparkSession, tmp_path: Path, declared: str) -> None:
    context = Life(spark, tmp_path, f"v {declared}", (), "append")
    context.begin()(spark.range(9, 11).selectExpr(f"cast(id AS {declared}) v"), 0)
    with sqlite3.connect(context.sink.path) as connection:
        assert connection.execute("SELECT max(v), sum(v) FROM result").fetchone() == (10, 19)


def test_a_skipped_batch_of_a_stateful_query_is_computed_for_its_state(context: Life) -> None:
    from pyspark.sql import functions as F

    writer = context.begin()
    writer(context.frame([("a", 1)]), 0)
    (context.run.checkpoint / "state").mkdir(parents=True)
    with pytest.raises(Exception, match="computed"):
        writer(context.frame([("b", 9)]).select("name", F.raise_error("computed").cast("bigint").alias("total")), 0)


TABLES = {
    "missing-column": ("CREATE TABLE result (name TEXT PRIMARY KEY)", ["it has no column 'total'"]),
    "no-unique-key": ("CREATE TABLE result (name TEXT, total INT)", ["no primary key or unique index on (name)"]),
    "every-difference": (
        "CREATE TABLE result (name NUMERIC, total TEXT, more INT NOT NULL)",
        ["'name' is declared NUMERIC", "'total' is declared TEXT", "'more' takes no NULL", "no primary key"],
    ),
    "rows-of-others": (
        "CREATE TABLE result (name TEXT PRIMARY KEY, total INT); INSERT INTO result VALUES ('x', 1)",
        ["already holds rows that no query wrote"],
    ),
}


@pytest.mark.parametrize(("statement", "words"), TABLES.values(), ids=TABLES)
def test_a_table_that_does_not_fit_is_refused_with_every_difference(
    context: Life, statement: str, words: list[str]
) -> None:
    with sqlite3.connect(context.sink.path) as connection:
        connection.executescript(statement)
    with pytest.raises(SinkError) as refused:
        context.begin()
    assert len(refused.value.findings) == len(words)
    for sentence in words:
        assert sentence in str(refused.value)


def test_a_table_made_by_the_user_is_taken_if_it_fits(context: Life) -> None:
    with sqlite3.connect(context.sink.path) as connection:
        connection.execute("CREATE TABLE result (TOTAL INTEGER, name VARCHAR(9), note TEXT DEFAULT 'x', UNIQUE (name))")
    context.begin()(context.frame([("a", 1)]), 0)
    assert context.rows() == [("a", 1)]


CHECKPOINTS = {
    "new": (None, "is a new one"),
    "another": (("other", 5, 4), "is another one"),
    "old-copy": (("first", 1, 0), "is an old copy"),
    "table-is-behind": (("first", 9, 8), "the table is an old copy"),
}


@pytest.mark.parametrize(("checkpoint", "words"), CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_checkpoint_that_would_lose_batches_is_refused_before_any_driver_is_fenced(
    context: Life, checkpoint: tuple[str, int, int] | None, words: str
) -> None:
    import shutil

    running = context.begin()
    context.checkpoint("first", offsets=2, commits=1)
    for batch in range(3):
        running(context.frame([("a", batch)]), batch)
    context.begin()
    running = context.begin()
    shutil.rmtree(context.run.checkpoint)
    if checkpoint is not None:
        context.checkpoint(checkpoint[0], offsets=checkpoint[1], commits=checkpoint[2])
    with pytest.raises(CheckpointError, match=words):
        context.begin()
    running(context.frame([("a", 7)]), 3)
    assert context.rows() == [("a", 7)]


def test_a_table_that_was_dropped_under_a_running_checkpoint_is_refused(context: Life) -> None:
    context.checkpoint("first", offsets=2, commits=1)
    with pytest.raises(CheckpointError, match="has committed batch 1, but the ledger"):
        context.begin()


def test_a_database_locked_by_another_process_is_one_sentence(context: Life) -> None:
    writer = context.begin()
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE');"
        "print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, context.sink.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(SinkError, match=f"is locked by process {other.pid}"):
            writer(context.frame([("a", 1)]), 0)
    finally:
        other.communicate()
    writer(context.frame([("a", 1)]), 0)
    assert context.rows() == [("a", 1)]


def test_a_full_disk_is_one_sentence_and_loses_nothing(context: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    context.checkpoint("first", offsets=0, commits=-1)
    context.begin()(context.frame([("a", 1)]), 0)
    context.checkpoint("first", offsets=1, commits=0)
    opened = SqliteDialect.connect

    def on_a_full_disk(dialect: SqliteDialect) -> Any:
        connection: Any = opened(dialect)
        connection.execute("PRAGMA max_page_count = 1")
        return connection

    monkeypatch.setattr(SqliteDialect, "connect", on_a_full_disk)
    small, large = context.begin(), context.frame([(f"n{number}" * 50, number) for number in range(2000)])
    with pytest.raises(SinkError, match="cannot grow: the disk is full"):
        small(large, 1)
    monkeypatch.undo()
    assert context.rows() == [("a", 1)]
    context.begin()(context.frame([("b", 1)]), 1)
    assert context.rows() == [("a", 1), ("b", 1)]


UNUSABLE = {
    "no-directory": ("text.db/result.db", "cannot be opened"),
    "not-a-database": ("text.db", "is not an SQLite database"),
}


@pytest.mark.parametrize(("name", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_cannot_be_used_is_one_sentence(spark: SparkSession, tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to have a header " * 40)
    sink = Sqlite(path=str(tmp_path / name), table="result")
    run = SinkContext(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    with pytest.raises(SinkError, match=words):
        sink.open(spark.createDataFrame([], "a INT"), run)


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that reads the table as fast as it can, and prints how many rows each batch has."""
    code = """if True:
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)
        print("watching", flush=True)
        looks, seen = 0, set()
        while (9, 500) not in seen:
            connection.execute("BEGIN")
            total = connection.execute("SELECT count(*), count(DISTINCT total) FROM result").fetchone()
            batch = connection.execute("SELECT max(batch) FROM _headrace_ledger").fetchone()[0]
            batches = connection.execute("SELECT DISTINCT total FROM result").fetchall()
            connection.execute("COMMIT")
            if batch is not None:
                seen.add((batch, total[0]))
                assert total == (500, 1) and batches == [(batch,)], (total, batch, batches)
            looks += 1
        print(looks, len(seen))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "result.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


def test_a_reader_in_another_process_sees_whole_batches_only(context: Life, request: pytest.FixtureRequest) -> None:
    writer = context.begin()
    other = request.getfixturevalue("watcher")
    assert other.stdout.readline() == "watching\n"
    for batch in range(10):
        writer(context.frame([(f"n{number}", batch) for number in range(500)]), batch)
    out, err = other.communicate(timeout=30)
    assert err == ""
    looks, batches = map(int, out.split())
    assert looks > batches > 1


def test_a_stateful_stream_goes_on_after_a_batch_that_was_written_but_not_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "input"
    place.mkdir()
    run = SinkContext(query="q", generation=1, mode="update", checkpoint=tmp_path / "checkpoint")
    sink = Sqlite(path=str(tmp_path / "result.db"), table="result", key=["name"])

    def drain() -> None:
        frame = spark.readStream.name(NAME).schema("name STRING").json(str(place)).groupBy("name").count()
        opened = sink.open(frame, run)
        writer = frame.writeStream.outputMode("update").option("checkpointLocation", str(run.checkpoint))
        opened.attach(writer.trigger(availableNow=True)).start().awaitTermination()

    for number in range(4):
        (place / f"{number}.json").write_text('{"name": "a"}\n')
        drain()
        forget_commit(run.checkpoint)
    drain()
    assert sink.read_back(spark, run).rows.collect() == [("a", 4)]
    with sqlite3.connect(sink.path) as connection:
        assert connection.execute("SELECT batch, row_count FROM _headrace_ledger ORDER BY 1").fetchall() == [
            (number, 1) for number in range(4)
        ]


# A day or a time as the number that Spark has for it, and its text: years beyond those of four digits, and before 1.
FAR = {
    "day": {2147483647: "5881580-07-11", 2932897: "10000-01-01", -719163: "0000-12-31", -25567000: "-68031-12-07"},
    "at": {
        2**63 - 1: "294247-01-10T04:00:54.775807Z",
        253402300800000000: "10000-01-01T00:00:00.000000Z",
        -62135596800000001: "0000-12-31T23:59:59.999999Z",
        1 - 2**63: "-290308-12-21T19:59:05.224193Z",
    },
}


@pytest.mark.parametrize("way", ["driver", "staged", "staged by Arrow"])
def test_a_date_or_time_of_any_year_is_kept_and_read_back_exactly(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    pairs = list(zip(FAR["day"], FAR["at"], strict=True))
    # Arrow's columns are taken as they are only where none is a double.
    double = "" if way == "staged by Arrow" else ", 0.5D ratio"
    given = ", ".join(f"({number}, {day}, {at}L)" for number, (day, at) in enumerate(pairs))
    frame = spark.sql(
        f"SELECT nullif(n, 3) n, date_from_unix_date(d) day, timestamp_micros(m) at, "
        f"timestamp_micros(m)::timestamp_ntz local{double} FROM VALUES {given} AS t(n, d, m)"
    )
    sink = Sqlite(path=str(tmp_path / "result.db"), table="result", key=["n"], on_bad_row="quarantine")
    run = SinkContext(query="q", generation=1, mode="update", checkpoint=tmp_path / "checkpoint")
    writer: Any = sink.open(frame, run)
    writer.store.stage = replace(writer.store.stage, driver_rows=20_000 if way == "driver" else 0)
    writer(frame, 0)
    with closing(sqlite3.connect(tmp_path / "result.db")) as client:
        rows = client.execute("SELECT n, day, at, local FROM result ORDER BY n").fetchall()
        [quarantined] = client.execute("SELECT row_values FROM _headrace_quarantine").fetchone()
    texts = [(day, at, at[:-1]) for day, at in zip(FAR["day"].values(), FAR["at"].values(), strict=True)]
    assert [row[1:] for row in rows] == texts[:3]
    bad = json.loads(quarantined)
    assert (bad["n"], bad["day"], bad["at"], bad["local"]) == (None, *texts[3])
    back, rejected = sink.read_back(spark, run).rows, sink.read_back(spark, run).rejected
    assert rejected is not None
    assert frame.exceptAll(back.unionAll(rejected)).isEmpty()
