"""Late rows, and repairs, come into a table of every database in one transaction, once, and only into what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import Correction
from headrace.errors import NothingChanged, SinkError
from tests.connectors.exactly_once.test_two_drivers import Lossy, lost_answer

from .databases import Database, Life, database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]
# MariaDB in `make test-long`: its statements for these rows are those of its batches; in SQLite, tests/verifier brings
# late rows back and repairs.
DATABASES = [
    pytest.param("postgres", marks=pytest.mark.services),
    pytest.param("sqlite", marks=[pytest.mark.spark, pytest.mark.long]),
    pytest.param("mariadb", marks=[pytest.mark.services, pytest.mark.long]),
]
pytestmark = pytest.mark.parametrize("database", DATABASES, indirect=True)

AT, THEN = datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 12, 0, 0, 1)


@pytest.fixture
def context(spark: SparkSession, tmp_path: Path, database: Database) -> Life:
    life = Life(
        spark, tmp_path, database, schema="name STRING, at TIMESTAMP, total BIGINT", key=("name", "at"), mode="append"
    )
    known_as(life, "one")
    return life


def known_as(context: Life, checkpoint: str) -> None:
    """Let the checkpoint have this id."""
    context.run.checkpoint.mkdir(exist_ok=True)
    (context.run.checkpoint / "metadata").write_text(f'{{"id":"{checkpoint}"}}')


def correction(context: Life, rows: Sequence[tuple[Any, ...]], gone: Sequence[tuple[Any, ...]] = ()) -> Correction:
    keys = context.spark.createDataFrame(list(gone), "name STRING, at TIMESTAMP")
    held = context.sink.read_back(context.spark, context.run)
    return Correction(snapshot=held, rows=context.frame(rows), deletes=keys, late=3)


def replays(database: Database) -> list[tuple[Any, ...]]:
    return database.query("SELECT batch, late_rows, rows_written, rows_deleted, quarantined FROM _headrace_replays")


def test_rows_are_replaced_added_and_deleted_and_the_query_goes_on(context: Life, database: Database) -> None:
    writer = context.begin()
    writer(context.frame([("a", AT, 1), ("b", AT, 2), ("b", THEN, 2), ("é'\\", AT, 4)]), 0)
    assert (
        context.sink.corrections.last(context.run),
        context.sink.read_back(context.spark, context.run).replayed,
    ) == (
        None,
        None,
    )

    change = correction(context, [("a", AT, 5), ("c", AT, 1)], [("b", THEN), ("é'\\", AT)])
    context.sink.corrections.apply(change, context.run)
    assert context.rows() == [("a", AT, 5), ("b", AT, 2), ("c", AT, 1)]
    assert replays(database) == [(0, 3, 2, 2, 0)]
    assert (
        context.sink.corrections.last(context.run),
        context.sink.read_back(context.spark, context.run).replayed,
    ) == (
        0,
        0,
    )

    with pytest.raises(SinkError, match="another replay was done") as again:
        context.sink.corrections.apply(change, context.run)
    assert [finding.code for finding in again.value.findings] == ["HR693"]

    writer(context.frame([("d", AT, 1)]), 1)
    with pytest.raises(SinkError, match="a batch was written meanwhile"):
        context.sink.corrections.apply(replace(change, snapshot=replace(change.snapshot, replayed=0)), context.run)
    assert context.rows() == [("a", AT, 5), ("b", AT, 2), ("c", AT, 1), ("d", AT, 1)]
    assert len(replays(database)) == 1

    # A query that is begun again has another checkpoint, and has brought back nothing.
    known_as(context, "two")
    assert context.sink.corrections.last(context.run) is None


def test_a_repair_is_undone_until_a_batch_came_and_fences_an_older_driver_off(
    context: Life, database: Database
) -> None:
    rows = [("a", AT, 1), ("b", AT, 2), ("c", AT, 3)]
    context.checkpoint("one", offsets=0, commits=-1)
    writer = context.begin()
    writer(context.frame(rows), 0)
    repair = context.sink.corrections.repair
    assert repair is not None
    change = replace(correction(context, [("a", AT, 5), ("d", AT, 1)], [("b", AT)]), late=None)
    repaired = [("a", AT, 5), ("c", AT, 3), ("d", AT, 1)]
    for _ in range(2):
        repair.apply(change, context.run)
        assert context.rows() == repaired
        repair.undo(context.run)
        with pytest.raises(NothingChanged, match="no repair"):
            repair.undo(context.run)
        assert context.rows() == rows

    context.checkpoint("one", offsets=0, commits=0)
    writer = context.begin()
    repair.apply(change, context.run)
    with pytest.raises(Exception, match=r"epoch|driver"):
        writer(context.frame([("x", AT, 1)]), 1)
    assert context.rows() == repaired
    context.checkpoint("one", offsets=1, commits=0)
    context.begin()(context.frame([("e", AT, 1)]), 1)
    with pytest.raises(NothingChanged, match="other batches"):
        repair.undo(context.run)
    assert context.rows() == [*repaired, ("e", AT, 1)]

    # Late rows that come back between are not lost by an undo.
    repair.apply(replace(correction(context, [("a", AT, 7)]), late=None), context.run)
    context.sink.corrections.apply(correction(context, [("a", AT, 8)]), context.run)
    with pytest.raises(NothingChanged, match="no repair"):
        repair.undo(context.run)
    assert context.rows()[0] == ("a", AT, 8)


def test_many_rows_go_by_way_of_staging_tables_that_do_not_stay(context: Life, database: Database) -> None:
    context.begin()(context.frame([("a", AT, 1)]), 0)
    rows = [(f"{number}", AT, number) for number in range(11_000)]
    context.sink.corrections.apply(correction(context, rows), context.run)
    assert database.query('SELECT count(*), sum("total") FROM result') == [(11_001, 1 + sum(range(11_000)))]
    assert replays(database) == [(0, 3, 11_000, 0, 0)]
    assert database.left_over() == []


def test_a_row_that_the_table_does_not_take_leaves_nothing_or_is_set_aside(context: Life, database: Database) -> None:
    context.begin()(context.frame([("a", AT, 1), ("b", AT, 2)]), 0)
    change = correction(context, [("a", AT, 5), (None, AT, 1)], [("b", AT)])
    with pytest.raises(SinkError) as refused:
        context.sink.corrections.apply(change, context.run)
    assert [finding.code for finding in refused.value.findings] == ["HR408"]
    assert (context.rows(), replays(database)) == ([("a", AT, 1), ("b", AT, 2)], [])

    context.options["on_bad_row"] = "quarantine"
    context.sink.corrections.apply(change, context.run)
    assert (context.rows(), replays(database)) == ([("a", AT, 5)], [(0, 3, 1, 1, 1)])
    held = context.sink.read_back(context.spark, context.run)
    assert held.rejected is not None
    assert [tuple(row) for row in held.rejected.collect()] == [(None, AT, 1)]


def test_a_commit_without_an_answer_is_not_reported_as_not_brought_back(
    context: Life, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = context.begin()
    writer(context.frame([("a", AT, 1)]), 0)
    context.sink.corrections.apply(correction(context, [("b", AT, 1)]), context.run)
    writer(context.frame([("c", AT, 1)]), 1)
    change = correction(context, [("a", AT, 5)])
    dialect = context.sink.dialect()
    lossy = Lossy(dialect.connect(), 0.0, lost_answer(database.kind))
    monkeypatch.setattr(type(dialect), "connect", lambda dialect: lossy)
    with pytest.raises(SinkError, match=r"it is not known whether .* brought back"):
        context.sink.corrections.apply(change, context.run)
    lossy.real.close()
    assert context.rows() == [("a", AT, 5), ("b", AT, 1), ("c", AT, 1)]
