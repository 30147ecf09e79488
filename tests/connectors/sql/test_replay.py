"""Late rows come back into a table of every database in one transaction, once, and only into what was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import Correction
from headrace.errors import SinkFault

from .databases import EVERY, Database, Life, database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]
pytestmark = pytest.mark.parametrize("database", EVERY, indirect=True)

AT, THEN = datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 12, 0, 0, 1)


@pytest.fixture
def life(spark: SparkSession, tmp_path: Path, database: Database) -> Life:
    found = Life(
        spark, tmp_path, database, schema="name STRING, at TIMESTAMP, total BIGINT", key=("name", "at"), mode="append"
    )
    known_as(found, "one")
    return found


def known_as(life: Life, checkpoint: str) -> None:
    """Let the checkpoint have this id."""
    life.run.checkpoint.mkdir(exist_ok=True)
    (life.run.checkpoint / "metadata").write_text(f'{{"id":"{checkpoint}"}}')


def correction(life: Life, rows: Sequence[tuple[Any, ...]], gone: Sequence[tuple[Any, ...]] = ()) -> Correction:
    keys = life.spark.createDataFrame(list(gone), "name STRING, at TIMESTAMP")
    held = life.sink.snapshot(life.spark, life.run)
    return Correction(snapshot=held, rows=life.frame(rows), gone=keys, late=3)


def replays(database: Database) -> list[tuple[Any, ...]]:
    return database.query("SELECT batch, late_rows, rows_written, rows_deleted, quarantined FROM _headrace_replays")


def test_rows_are_replaced_added_and_deleted_and_the_query_goes_on(life: Life, database: Database) -> None:
    writer = life.begin()
    writer(life.frame([("a", AT, 1), ("b", AT, 2), ("b", THEN, 2), ("é'\\", AT, 4)]), 0)
    assert (life.sink.replayed(life.run), life.sink.snapshot(life.spark, life.run).replayed) == (None, None)

    change = correction(life, [("a", AT, 5), ("c", AT, 1)], [("b", THEN), ("é'\\", AT)])
    life.sink.replay(change, life.run)
    assert life.rows() == [("a", AT, 5), ("b", AT, 2), ("c", AT, 1)]
    assert replays(database) == [(0, 3, 2, 2, 0)]
    assert (life.sink.replayed(life.run), life.sink.snapshot(life.spark, life.run).replayed) == (0, 0)

    with pytest.raises(SinkFault, match="another replay was done") as again:
        life.sink.replay(change, life.run)
    assert [finding.code for finding in again.value.findings] == ["HR693"]

    writer(life.frame([("d", AT, 1)]), 1)
    with pytest.raises(SinkFault, match="a batch was written meanwhile"):
        life.sink.replay(replace(change, snapshot=replace(change.snapshot, replayed=0)), life.run)
    assert life.rows() == [("a", AT, 5), ("b", AT, 2), ("c", AT, 1), ("d", AT, 1)]
    assert len(replays(database)) == 1

    # A query that is begun anew has another checkpoint, and has brought back nothing.
    known_as(life, "two")
    assert life.sink.replayed(life.run) is None


def test_many_rows_go_by_way_of_staging_tables_that_do_not_stay(life: Life, database: Database) -> None:
    life.begin()(life.frame([("a", AT, 1)]), 0)
    rows = [(f"{number}", AT, number) for number in range(11_000)]
    life.sink.replay(correction(life, rows), life.run)
    assert database.query('SELECT count(*), sum("total") FROM result') == [(11_001, 1 + sum(range(11_000)))]
    assert replays(database) == [(0, 3, 11_000, 0, 0)]
    assert database.left_over() == []


def test_a_row_that_the_table_does_not_take_leaves_nothing_or_is_set_aside(life: Life, database: Database) -> None:
    life.begin()(life.frame([("a", AT, 1), ("b", AT, 2)]), 0)
    change = correction(life, [("a", AT, 5), (None, AT, 1)], [("b", AT)])
    with pytest.raises(SinkFault) as refused:
        life.sink.replay(change, life.run)
    assert [finding.code for finding in refused.value.findings] == ["HR408"]
    assert (life.rows(), replays(database)) == ([("a", AT, 1), ("b", AT, 2)], [])

    life.options["on_bad_row"] = "quarantine"
    life.sink.replay(change, life.run)
    assert (life.rows(), replays(database)) == ([("a", AT, 5)], [(0, 3, 1, 1, 1)])
    held = life.sink.snapshot(life.spark, life.run)
    assert held.set_aside is not None
    assert [tuple(row) for row in held.set_aside.collect()] == [(None, AT, 1)]
