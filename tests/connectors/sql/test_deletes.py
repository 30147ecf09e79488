"""Rows of an ordinary result that a batch marks as deleted leave the table by their key, in the batch's transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.contract import DELETE_COLUMN
from headrace.errors import SinkError
from tests.rounds import rounds

from .changed import Doomed, Killed
from .databases import EVERY_WITHOUT_SPARK, Database, database
from .fed import LifeWithoutSpark

__all__ = ["database"]
pytestmark = pytest.mark.parametrize("database", EVERY_WITHOUT_SPARK, indirect=True)

Row = tuple[str | None, int, int | None, bool]
FIRST: list[Row] = [("a", 1, 10, False), ("a", 2, 20, False), ("é'\\%", 1, None, False), ("I i", 1, 40, False)]
SECOND: list[Row] = [("a", 1, 11, True), ("é'\\%", 1, None, True), ("never there", 1, 1, True), ("b", 1, 50, False)]
AFTER_FIRST = [("é'\\%", 1, None), ("I i", 1, 40), ("a", 1, 10), ("a", 2, 20)]
AFTER_SECOND = [("I i", 1, 40), ("a", 2, 20), ("b", 1, 50)]


def life(database: Database, home: Path, **options: Any) -> LifeWithoutSpark:
    schema = f"name STRING, number INT, total BIGINT, {DELETE_COLUMN} BOOLEAN"
    options = {"table": "orders", "rewindable": "7 days", **options}
    return LifeWithoutSpark(cast(Any, None), home, database, schema=schema, key=("name", "number"), options=options)


def write(orders: LifeWithoutSpark, batch: int, rows: Sequence[Row], *, staged: bool) -> None:
    orders.checkpoint("one", offsets=batch, commits=batch - 1)
    orders.begin(staged=staged)(orders.frame(rows), batch)


@pytest.mark.capability("CDC-07")
@pytest.mark.parametrize("staged", [False, True])
def test_marked_rows_leave_the_table_and_a_rewind_brings_them_back(
    database: Database, tmp_path: Path, staged: bool
) -> None:
    orders = life(database, tmp_path)
    write(orders, 0, FIRST, staged=staged)
    assert orders.rows() == AFTER_FIRST
    write(orders, 1, SECOND, staged=staged)
    assert orders.rows() == AFTER_SECOND
    assert database.query("SELECT row_count FROM _headrace_ledger ORDER BY batch") == [(4,), (4,)]
    assert database.left_over() == []
    # A key that was deleted comes back.
    write(orders, 2, [("a", 1, 12, False)], staged=staged)
    assert orders.rows() == [*AFTER_SECOND[:1], ("a", 1, 12), *AFTER_SECOND[1:]]
    orders.sink.rewind.go_back(orders.run, 0, cast(Any, None))
    assert orders.rows() == AFTER_FIRST


@pytest.mark.parametrize("staged", rounds([False, True]))
def test_a_driver_that_dies_at_any_statement_deletes_all_or_nothing(
    database: Database, tmp_path: Path, staged: bool
) -> None:
    orders = life(database, tmp_path)
    write(orders, 0, FIRST, staged=False)
    orders.checkpoint("one", offsets=1, commits=0)
    for left in range(2, 40, 3):
        writer = orders.begin(staged=staged)
        store = cast(Any, writer.store)
        store._connection = Doomed(store.dialect.connect(), left, after=left % 2 == 0)
        with suppress(Killed):
            writer(orders.frame(SECOND), 1)
            break
        assert orders.rows() in (AFTER_FIRST, AFTER_SECOND)
    write(orders, 1, SECOND, staged=staged)
    assert orders.rows() == AFTER_SECOND


KEPT = {
    "sqlite": [
        "CREATE TRIGGER t BEFORE DELETE ON orders WHEN old.number = 2 BEGIN SELECT RAISE(ABORT, 'kept for ever'); END"
    ],
    "postgres": [
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF OLD.number = 2 THEN RAISE 'kept for ever'; END IF; RETURN OLD; END $$",
        "CREATE TRIGGER t BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION f()",
    ],
    "mariadb": [
        "CREATE TRIGGER t BEFORE DELETE ON orders FOR EACH ROW IF OLD.number = 2 THEN "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'kept for ever'; END IF"
    ],
}


@pytest.mark.parametrize("staged", rounds([True, False]))
def test_a_delete_that_the_database_refuses_is_named_or_quarantined_alone(
    database: Database, tmp_path: Path, staged: bool
) -> None:
    careful = life(database, tmp_path / "careful", on_bad_row="quarantine")
    write(careful, 0, FIRST, staged=False)
    for statement in KEPT[database.kind]:
        database.query(statement)
    second: list[Row] = [("a", 1, 11, True), ("a", 2, 21, True), ("b", 1, 50, False)]
    strict = life(database, tmp_path / "careful")
    with pytest.raises(SinkError, match=r"HR408: .* refuses the row .*number=2.*kept for ever"):
        write(strict, 1, second, staged=staged)
    assert careful.rows() == AFTER_FIRST
    write(careful, 1, second, staged=staged)
    assert careful.rows() == [("é'\\%", 1, None), ("I i", 1, 40), ("a", 2, 20), ("b", 1, 50)]
    [(reason, row)] = database.query("SELECT reason, row_values FROM _headrace_quarantine")
    assert "kept for ever" in reason
    assert json.loads(row) == {"name": "a", "number": 2}
    careful.sink.rewind.go_back(careful.run, 0, cast(Any, None))
    assert careful.rows() == AFTER_FIRST


@pytest.mark.parametrize("staged", [False, True])
def test_a_key_that_is_written_and_deleted_in_one_batch_ends_it(
    database: Database, tmp_path: Path, staged: bool
) -> None:
    orders = life(database, tmp_path)
    write(orders, 0, FIRST, staged=staged)
    with pytest.raises(SinkError, match=r"HR408: .*2 rows share the key"):
        write(orders, 1, [("a", 1, 5, True), ("a", 1, 6, False)], staged=staged)
    assert orders.rows() == AFTER_FIRST


def test_a_marked_row_without_a_key_is_quarantined(database: Database, tmp_path: Path) -> None:
    orders = life(database, tmp_path, on_bad_row="quarantine")
    write(orders, 0, [*FIRST, (None, 1, 1, True)], staged=False)
    assert orders.rows() == AFTER_FIRST
    assert database.query("SELECT reason FROM _headrace_quarantine") == [("column 'name' of the key is NULL",)]
