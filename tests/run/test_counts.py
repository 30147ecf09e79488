"""What the history says that a query took is what its sources gave, whatever became of the driver."""

from __future__ import annotations

import queue
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, status
from headrace.model.layout import QueryLayout, history_file
from headrace.progress import BatchRecord
from headrace.run import supervision, watching
from headrace.spark.listener import Listener

from .projects import land, write_project
from .test_run import Told

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
    return next(each.rows_total for each in status(load(root)) if each.query == query)


def forget(root: Path, batch: int) -> None:
    """What a driver leaves that dies before it can tell of a batch."""
    with sqlite3.connect(history_file(load(root).storage)) as db:
        db.execute("UPDATE totals SET rows = rows - (SELECT rows FROM batches WHERE batch = ?)", (batch,))
        db.execute("DELETE FROM batches WHERE batch = ?", (batch,))
    db.close()


def uncommit(root: Path, batch: int) -> None:
    """What a driver leaves that dies between the sink's transaction and Spark's commit."""
    (QueryLayout(load(root).storage, "kept").checkpoint / "commits" / str(batch)).unlink()


def test_rows_are_counted_once_each_whatever_a_driver_could_not_tell(tmp_path: Path, spark: SparkSession) -> None:
    """The last batch is large after small ones: the sink computes it twice, first in the hope that it is small."""
    root = write_project(tmp_path / "p", KEPT, batches=[ROWS, ROWS, ROWS * 4_000])
    told = Told()
    result = run(load(root), spark=spark, reporter=told)
    assert [record.rows for record in told.all(BatchRecord)] == [3, 3, 12_000]
    assert (result.outcomes[0].rows, rows_total(root)) == (12_006, 12_006)
    damages = {
        "nothing told of the middle": ([1], []),
        "nothing told of the last": ([2], []),
        "the last to be made again": ([], [2]),
        "the last to be made again, nothing told": ([2], [2]),
        "nothing told at all": ([0, 1, 2], []),
    }
    for name, (incomplete, uncommitted) in damages.items():
        for batch in incomplete:
            forget(root, batch)
        for batch in uncommitted:
            uncommit(root, batch)
        assert run(load(root), spark=spark).exit_code == 0
        assert rows_total(root) == 12_006, name
    land(root, 3, ROWS)
    assert run(load(root), spark=spark).outcomes[0].rows == 3
    assert rows_total(root) == 12_009


def test_batches_that_spark_tells_too_late_are_counted_all_the_same(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine: the query has ended, and nobody waits any more for its events, which are still on their way."""
    monkeypatch.setattr(watching, "LAST_EVENTS_SECONDS", 0.0)
    monkeypatch.setattr(supervision, "Listener", Deaf)
    root = write_project(tmp_path / "p", KEPT, batches=[ROWS, ROWS])
    for batches, rows, last in ((2, 6, 1), (1, 3, 2)):
        told = Told()
        [outcome] = run(load(root), spark=spark, reporter=told).outcomes
        assert (outcome.state, outcome.batches, outcome.rows, outcome.last_batch) == ("finished", batches, rows, last)
        assert [record.rows for record in told.all(BatchRecord)] == [3] * batches
        land(root, 2, ROWS)
    assert rows_total(root) == 9


def test_a_query_is_watched_while_the_next_one_starts(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", KEPT + SLOW, batches=[ROWS])
    project = load(root)

    class Watching(Told):
        def progressed(self, record: BatchRecord) -> None:
            super().progressed(record)
            assert rows_total(root) == 3
            project.queries["slow"].transform.function.__globals__["begun"].set()  # type: ignore[union-attr]

    told = Watching()
    assert run(project, spark=spark, reporter=told).exit_code == 0
    assert [line if isinstance(line, str) else type(line).__name__ for line in told.lines][:3] == [
        "started kept",
        "BatchRecord",
        "Outcome",
    ]
