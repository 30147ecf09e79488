"""An Iceberg table is rewound by its own snapshots, and not past those of others or expired ones."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.connectors.exactly_once import KeptLine
from headrace.connectors.iceberg.batches import TableLedger, Writing, committing, enter
from headrace.connectors.iceberg.files import form_of
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.contract import Session, SinkContext
from headrace.errors import SinkError
from tests.connectors.iceberg import tables as iceberg_tables

pytestmark = pytest.mark.plain

NAME = "db.result"
IDS = pa.schema([pa.field("id", pa.int64())])


def no_session() -> Session:
    raise AssertionError("a table of Iceberg needs no session to go back")


class Result:
    """The table of a query, with a batch of one row each."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sink = IcebergSink(table=NAME, catalog=iceberg_tables.properties(home))
        self.context = SinkContext(query="q", generation=1, mode="append", checkpoint=home / "checkpoint")
        table = iceberg_tables.table(home, NAME, IDS)
        enter(table, TableLedger.begin(self.context, "{}"))

    def batch(self, number: int) -> None:
        table = iceberg_tables.catalog(self.home).load_table(NAME)
        ledger = TableLedger.of_table(table)
        assert ledger is not None
        rows = pa.table({"id": [number]}, schema=IDS).to_batches()
        made = Writing(form_of(table), table.io, NAME)._write(rows)
        with (
            committing(table, ledger.with_batch(KeptLine(batch=number, checkpoint="c"))) as update,
            update.merge_append() as producer,
        ):
            for file in made["file"].to_pylist():
                producer.append_data_file(pickle.loads(file))

    def ids(self) -> list[int]:
        return [row["id"] for row in iceberg_tables.content(self.home, NAME)]

    def earliest(self, batch: int) -> int | None:
        return self.sink.rewind.earliest(self.context, batch, no_session)


def test_what_was_rewound_and_taken_back_is_passed_over_on_the_way_to_an_earlier_batch(tmp_path: Path) -> None:
    result = Result(tmp_path)
    for batch in range(5):
        result.batch(batch)
    result.sink.rewind.go_back(result.context, 3, no_session)
    result.sink.rewind.undo(result.context, 3, no_session)
    assert result.ids() == [0, 1, 2, 3, 4]
    result.sink.rewind.go_back(result.context, 2, no_session)
    result.batch(3)
    assert (result.ids(), result.earliest(0)) == ([0, 1, 2, 3], 0)
    result.sink.rewind.go_back(result.context, 1, no_session)
    assert result.ids() == [0, 1]


def test_no_other_writers_rows_are_taken_off_and_no_expired_snapshot_is_asked_for(tmp_path: Path) -> None:
    result = Result(tmp_path)
    for batch in range(2):
        result.batch(batch)
    iceberg_tables.add(tmp_path, NAME, [{"id": 70}], IDS)
    for batch in (2, 3):
        result.batch(batch)
    assert (result.earliest(0), result.earliest(2)) == (2, 2)
    with pytest.raises(SinkError, match=r"HR580.*another writer"):
        result.sink.rewind.go_back(result.context, 1, no_session)
    result.sink.rewind.go_back(result.context, 2, no_session)
    assert result.ids() == [0, 1, 2, 70]
    table = iceberg_tables.catalog(tmp_path).load_table(NAME)
    kept = table.current_snapshot()
    assert kept is not None
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != kept.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert result.earliest(0) == 2
    with pytest.raises(SinkError, match="HR583"):
        result.sink.rewind.undo(result.context, 2, no_session)
    assert result.ids() == [0, 1, 2, 70]


def test_what_is_remembered_of_a_table_follows_a_new_name_of_its_query(tmp_path: Path) -> None:
    result = Result(tmp_path)
    for batch in range(3):
        result.batch(batch)
    result.sink.rewind.go_back(result.context, 0, no_session)
    result.sink.reset.hand_over(result.context, 2, no_session)
    result.sink.reset.hand_over(replace(result.context, generation=2), 1, no_session)
    renamed = replace(result.context, query="new")
    result.sink.rewind.undo(renamed, 0, no_session)
    assert (result.ids(), result.sink.rewind.earliest(renamed, 2, no_session)) == ([0, 1, 2], 2)
