"""What the history says that a query took is what its sources gave, whatever became of the driver."""

from __future__ import annotations

import json
import queue
import sqlite3
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from headrace.api import load, run, status, verify
from headrace.cli import main
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.contract import BatchRecord
from headrace.errors import Finding
from headrace.frames import project_session
from headrace.generations.log import history_file
from headrace.runner import batch_records, query_run, supervision
from headrace.spark.jvm import session_conf
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.plans.plan_text import reads_again
from headrace.spark.stream.listener import Listener
from headrace.verifier import proof
from tests.registered import layout_in
from tests.rounds import only_usual, rounds

from .projects import land, write_project
from .test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEPT = """
@hr.query(sink=hr.sink.sqlite("out.db", table="kept"), mode="append", trigger=hr.available_now)
def kept(events):
    return events.select("name", "amount")
"""
SLOW = """
import threading
begun = threading.Event()

@hr.query(sink=hr.sink.memory(), mode="append", trigger=hr.available_now)
def slow(events):
    assert begun.wait(60), "the other query is watched meanwhile"
    return events.select("name")
"""


class Deaf(Listener):
    """Hears of no batch."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.events = queue.SimpleQueue()


ROWS = [{"name": "apple", "amount": 1}] * 3


def rows_total(root: Path, query: str = "kept") -> int:
    return next(entry.rows_total for entry in status(load(root)) if entry.query == query)


def forget(root: Path, batch: int) -> None:
    """Undo what was recorded of a batch, as if the driver had died before its report."""
    with sqlite3.connect(history_file(load(root).storage)) as db:
        db.execute("UPDATE totals SET rows = rows - (SELECT rows FROM batches WHERE batch = ?)", (batch,))
        of_it = "FROM batches, json_each(record, '$.sources') WHERE batch = ?"
        bad = f"SELECT sum(json_extract(value, '$.quarantined')) {of_it}"
        db.execute(f"UPDATE quarantined SET rows = rows - ({bad})", (batch,))
        db.execute("DELETE FROM batches WHERE batch = ?", (batch,))
    db.close()


def uncommit(root: Path, batch: int) -> None:
    """Remove Spark's commit of a batch, as if the driver had died between the sink's transaction and it."""
    (layout_in(load(root).storage, "kept").checkpoint / "commits" / str(batch)).unlink()


@pytest.mark.parametrize("skipped", rounds([3, 0]), ids=["the worst", "all"])
def test_rows_are_counted_once_each_whatever_a_driver_could_not_report(
    tmp_path: Path, spark: SparkSession, skipped: int
) -> None:
    """The last batch is large after small ones: the sink computes it twice, first in the hope that it is small."""
    root = write_project(tmp_path / "p", KEPT, batches=[ROWS, ROWS, ROWS * 4_000])
    recorder = Recorder()
    result = run(load(root), spark=spark, reporter=recorder)
    assert [record.rows for record in recorder.all(BatchRecord)] == [3, 3, 12_000]
    assert (result.outcomes[0].rows, rows_total(root)) == (12_006, 12_006)
    damages = {
        "nothing reported of the middle": ([1], []),
        "nothing reported of the last": ([2], []),
        "the last to be made again": ([], [2]),
        "the last to be made again, nothing reported": ([2], [2]),
        "nothing reported at all": ([0, 1, 2], []),
    }
    for name, (incomplete, uncommitted) in list(damages.items())[skipped:]:
        for batch in incomplete:
            forget(root, batch)
        for batch in uncommitted:
            uncommit(root, batch)
        assert run(load(root), spark=spark).exit_code == 0
        assert rows_total(root) == 12_006, name
    land(root, 3, ROWS)
    assert run(load(root), spark=spark).outcomes[0].rows == 3
    assert rows_total(root) == 12_009


def test_a_verdict_over_many_rows_gets_a_session_that_reads_fast(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = load(write_project(tmp_path / "p", KEPT, batches=[ROWS, ROWS]))
    assert not proof.has_many_rows(project, ["kept"]), "there is no history"
    assert run(project, spark=spark).exit_code == 0
    asked: list[str] = []
    monkeypatch.setattr(project_session, "session", lambda _, *, purpose: asked.append(purpose))
    monkeypatch.setattr(session_conf, "borrow", lambda lender, begin: nullcontext(lender or begin() or spark))
    for many in (6, 7):
        monkeypatch.setattr(proof, "MANY_ROWS", many)
        assert verify(project, "kept").state == "equal"
    assert asked == ["reading", "short"]


def test_batches_that_spark_reports_too_late_are_counted_all_the_same(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine: the query has ended, and no thread waits for its events, which are still on their way."""
    monkeypatch.setattr(query_run, "LAST_EVENTS_SECONDS", 0.0)
    monkeypatch.setattr(supervision, "Listener", Deaf)
    root = write_project(tmp_path / "p", KEPT, batches=[ROWS, ROWS])
    for batches, rows, last in ((2, 6, 1), (1, 3, 2)):
        recorder = Recorder()
        [outcome] = run(load(root), spark=spark, reporter=recorder).outcomes
        assert (outcome.state, outcome.batches, outcome.rows, outcome.last_batch) == ("finished", batches, rows, last)
        assert [record.rows for record in recorder.all(BatchRecord)] == [3] * batches
        land(root, 2, ROWS)
    assert rows_total(root) == 9


def test_a_query_is_watched_while_the_next_one_starts(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", KEPT + SLOW, batches=[ROWS])
    project = load(root)

    class Watching(Recorder):
        def progressed(self, record: BatchRecord) -> None:
            super().progressed(record)
            assert rows_total(root) == 3
            project.queries["slow"].transform.function.__globals__["begun"].set()  # type: ignore[union-attr]

    recorder = Watching()
    assert run(project, spark=spark, reporter=recorder).exit_code == 0
    assert [line if isinstance(line, str) else type(line).__name__ for line in recorder.lines][:3] == [
        "started kept",
        "BatchRecord",
        "Outcome",
    ]


# What lets Spark's own count differ from what a batch took, by the query's body; each of two batches takes 100 rows.
BODIES = {
    "csv, a filter": ("csv", "source.where(\"name = 'a'\")", ""),
    "json, a filter": ("json", "source.where(\"name = 'a'\")", ""),
    "parquet, a filter": ("parquet", 'source.where("amount = 5000")', ""),
    "parquet, columns alone": ("parquet", 'source.select("name")', ""),
    "directories, of which one is wanted": ("json", "source.where(\"day = 'x'\")", ", day STRING"),
    "nothing is wanted": ("json", 'source.where("1 = 0")', ""),
    "nothing to join with": ("json", 'source.join(nothing, "name")', ""),
    "read in two places": ("json", "source.union(source)", ""),
}
OVER = """
source = hr.source.files("in", format="{format}", schema="name STRING, amount INT{more}", max_files_per_trigger=1)

@hr.table
def nothing(spark):
    return spark.createDataFrame([], "name STRING")

@hr.query(sink=hr.sink.sqlite("out.db", table="kept"), mode="append", trigger=hr.available_now)
def kept(source, nothing):
    return {body}
"""


def land_rows(root: Path, format: str, more: str) -> None:
    rows = [{"name": "abcd"[at % 4], "amount": at} for at in range(100)]
    for number in range(2):
        file = root / "in" / (f"day={number}/part" if more else f"{number}")
        file.parent.mkdir(parents=True, exist_ok=True)
        if format == "parquet":
            schema = pa.schema([("name", pa.string()), ("amount", pa.int32())])
            parquet.write_table(pa.Table.from_pylist(rows, schema=schema), file, row_group_size=20)
        elif format == "csv":
            file.write_text("".join(f"{row['name']},{row['amount']}\n" for row in rows))
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("format", "body", "more"), only_usual(BODIES.values(), BODIES["parquet, a filter"]), ids=BODIES
)
def test_the_rows_of_a_batch_are_those_that_its_offsets_hold_whatever_spark_leaves_out(
    tmp_path: Path, spark: SparkSession, format: str, body: str, more: str
) -> None:
    root = write_project(tmp_path / "p", OVER.format(format=format, body=body, more=more))
    land_rows(root, format, more)
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    uses = 2 if "union" in body else 1
    assert [record.rows for record in recorder.all(BatchRecord)] == [100 * uses] * 2
    assert rows_total(root) == 200 * uses
    # As counted for a driver that could not report it.
    forget(root, 1)
    assert run(load(root), spark=spark).exit_code == 0
    assert rows_total(root) == 200 * uses


@pytest.mark.parametrize("form", only_usual(["csv", "json", "parquet"], "parquet"))
def test_rows_are_counted_below_an_adaptive_plan_too(tmp_path: Path, spark: SparkSession, form: str) -> None:
    """Spark hides the scans of such a plan in its stages."""
    body = "source.where(\"name = 'a' and amount = 4\").repartition(2)"
    root = write_project(tmp_path / "p", OVER.format(format=form, body=body, more=""))
    land_rows(root, form, "")
    recorder = Recorder()
    with apply_settings(spark, {"spark.sql.adaptive.enabled": "true"}):
        assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert [record.rows for record in recorder.all(BatchRecord)] == [100] * 2


TWICE = """
def write(frame, batch):
    frame.count()
    frame.collect()

@hr.query(sink=hr.sink.foreach_batch(write, cache=False), mode="append", trigger=hr.available_now)
def kept(events):
    return events.select("name")
"""


def test_a_function_that_computes_its_batch_twice_has_each_row_counted_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = write_project(tmp_path / "p", TWICE, batches=[ROWS, ROWS])
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert [record.rows for record in recorder.all(BatchRecord)] == [3, 3]


def test_tasks_that_ran_again_on_other_executors_have_each_row_counted_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark adds up what the tasks of a stage have read, those too that computed again what a lost executor had."""
    root = write_project(tmp_path / "p", KEPT, batches=[ROWS, ROWS])
    parse = BatchRecord.parse

    def doubled(text: str, **more: Any) -> BatchRecord:
        return parse(text.replace('"numInputRows" : 3', '"numInputRows" : 6'), **more)

    monkeypatch.setattr(BatchRecord, "parse", doubled)
    failures = iter(range(9))
    monkeypatch.setattr(batch_records, "task_failures", lambda _: (next(failures) + 1, 1))
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert [record.rows for record in recorder.all(BatchRecord)] == [3, 3]


# Many rows after few, so that the sink computes the second batch twice. By the query's body: the rows that each batch
# takes, those of each stateful operator after it, and whether its sources are read twice too.
STAMPED = 'events.withColumn("at", F.to_timestamp("day")).withWatermark("at", "1 hour")'
MANY = 4_000
AGAIN = {
    "rows as they are": ('events.select("name")', 1, [], True),
    "rows in other partitions": ('events.repartition(1).select("name")', 1, [], False),
    "both": ('events.select("name").union(events.repartition(1).select("name"))', 2, [], None),
    "an aggregate": ('events.groupBy("name").count()', 1, [1, MANY + 1], False),
    "a deduplication": (f'{STAMPED}.dropDuplicatesWithinWatermark(["name"]).select("name")', 1, [1, MANY + 1], False),
    "pairs of rows": (
        f'{STAMPED}.alias("a").join({STAMPED}.alias("b"), F.expr("a.name = b.name and a.at = b.at"))'
        '.selectExpr("a.name", "a.at")',
        2,
        [6, 2 * MANY + 6],
        False,
    ),
}
AGAIN_QUERY = """
events = hr.source.files("landing", format="json", schema="name STRING, day STRING", max_files_per_trigger=1)

@hr.query(sink=hr.sink.sqlite("out.db", table="kept"{key}), mode="{mode}", trigger=hr.available_now)
def kept(events):
    return {body}
"""


@pytest.mark.parametrize(("body", "uses", "state", "again"), only_usual(AGAIN.values(), AGAIN["both"]), ids=AGAIN)
def test_a_batch_that_is_computed_twice_has_its_rows_and_its_state_counted_once(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    uses: int,
    state: list[int],
    again: bool | None,
) -> None:
    """Spark's progress adds up all computations; what comes through a shuffle is read by the first of them alone."""
    mode, key = ("update", ', key=["name"]') if "groupBy" in body else ("append", "")
    many = [{"name": f"n{number}", "day": "2026-01-01"} for number in range(MANY)]
    few = [{"name": "apple", "day": "2026-01-01"}] * 3
    root = write_project(
        tmp_path / "p", AGAIN_QUERY.format(body=body, mode=mode, key=key), batches=[few, many, few[:0]]
    )
    # Two partitions of so many rows are more than come through the driver.
    monkeypatch.setattr(SqliteDialect, "driver_rows", MANY // 4)
    seen: list[bool | None] = []

    def looked(query: Any) -> bool | None:
        seen.append(reads_again(query))
        return seen[-1]

    monkeypatch.setattr(batch_records, "reads_again", looked)
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    records = recorder.all(BatchRecord)
    assert seen == [again]
    assert [record.rows for record in records][:2] == [3 * uses, MANY * uses]
    assert [record.state_rows for record in records if state][:2] == state
    assert [operator.updated for record in records[1:2] for operator in record.operators] == [
        end - start for start, end in pairwise(state)
    ]


QUARANTINING = """
good_or_bad = hr.source.files("landing", format="json", schema="name STRING, amount INT", on_bad_row="quarantine",
                              max_files_per_trigger=1)

@hr.query(sink=hr.sink.sqlite("out.db", table="kept"), mode="append", trigger=hr.available_now)
def kept(good_or_bad):
    return good_or_bad
"""


def test_rows_in_quarantine_are_counted_next_to_those_that_came_in(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [{"name": "kiwi", "amount": "many"}]
    root = write_project(tmp_path / "p", QUARANTINING, batches=[ROWS + bad, ROWS, bad * 2])
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert [(record.rows, record.quarantined) for record in recorder.all(BatchRecord)] == [(4, 1), (3, 0), (2, 2)]
    for batch in (None, 2):
        if batch is not None:
            forget(root, batch)
            assert run(load(root), spark=spark).exit_code == 0
        [entry] = status(load(root))
        assert (entry.rows_total, entry.rows_quarantined) == (9, 3)
    capsys.readouterr()
    assert main(["status", "-C", str(root)]) == 0
    assert "9 (3 quarantined)" in capsys.readouterr().out


def test_rows_in_quarantine_are_not_missed_where_the_batch_was_computed_twice(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The last batch is large after a small one; Spark's count of its bad rows is that of both computations."""
    bad = [{"name": "kiwi", "amount": "many"}] * 2
    root = write_project(tmp_path / "p", QUARANTINING, batches=[ROWS, ROWS * 10_000 + bad])
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert [(record.rows, record.quarantined) for record in recorder.all(BatchRecord)] == [(3, 0), (30_002, 2)]
    [finding] = recorder.all(Finding)
    assert finding.what.startswith("2 rows of source 'good_or_bad' in batch 1 do not fit the schema")
