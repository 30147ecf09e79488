"""Which part of an Iceberg table's history a stream gets, by its real reader and without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.connectors.iceberg.sink import IcebergSink
from headrace.connectors.iceberg.source import Iceberg
from headrace.contract import SourceBatch, SourcePrefix
from headrace.errors import HeadraceError, SourceError
from tests.connectors.iceberg import tables as iceberg_tables

if TYPE_CHECKING:
    from pyiceberg.table import Table

pytestmark = pytest.mark.plain

NAME = "db.events"
IDS = pa.schema([pa.field("id", pa.int64())])


def add(home: Path, *ids: int) -> Table:
    return iceberg_tables.add(home, NAME, [{"id": number} for number in ids], IDS)


def source(home: Path, **options: Any) -> Iceberg:
    return Iceberg(table=NAME, catalog=iceberg_tables.properties(home), **options)


class Stream:
    """A stream as Spark drives it: its reader, and the offsets that it has given."""

    def __init__(self, source: Iceberg, *, ends: bool = False) -> None:
        self.reader = source.reader()
        self.at: dict[str, Any] = self.reader.initialOffset()
        self.before = self.at
        if ends:
            self.reader.prepareForTriggerAvailableNow()

    def take(self) -> list[int]:
        """The ids of the next batch, in the order of their files."""
        self.before, self.at = self.at, self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        return self.again()

    def again(self) -> list[int]:
        """The ids of the batch that was taken last."""
        parts = self.reader.partitions(self.before, self.at)
        return [number for part in parts for rows in self.reader.read(part) for number in rows["id"].to_pylist()]

    def prefix(self) -> SourcePrefix:
        import json

        return SourcePrefix(batches=(SourceBatch(batch=0, start=None, end=json.dumps(self.at)),))


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (lambda table: {}, [0, 1, 2]),
        (lambda table: {"starting": "latest"}, []),
        (lambda table: {"starting_snapshot": table.metadata.snapshots[0].snapshot_id}, [1, 2]),
        (lambda table: {"starting_timestamp": table.metadata.snapshots[1].timestamp_ms}, [1, 2]),
        (lambda table: {"starting_timestamp": 1}, [0, 1, 2]),
    ],
    ids=["table", "latest", "snapshot", "timestamp", "long ago"],
)
def test_a_stream_begins_at_its_option_and_goes_on_from_there(
    tmp_path: Path, options: Callable[[Table], dict[str, Any]], first: list[int]
) -> None:
    for number in range(3):
        table = add(tmp_path, number)
    stream = Stream(source(tmp_path, **options(table)))
    assert stream.take() == first
    begun = stream.at
    assert stream.take() == []
    assert stream.at == begun
    add(tmp_path, 3)
    assert stream.take() == [3]


def test_a_first_batch_that_comes_again_begins_where_it_began(tmp_path: Path) -> None:
    add(tmp_path, 0)
    stream = Stream(source(tmp_path, starting="latest"))
    assert stream.take() == []
    add(tmp_path, 1)
    later = Stream(source(tmp_path, starting="latest"))
    later.at = stream.at
    assert (stream.again(), later.again()) == ([], [])
    assert later.take() == [1]


def test_a_stream_over_an_empty_table_waits_for_its_first_rows(tmp_path: Path) -> None:
    iceberg_tables.table(tmp_path, NAME, IDS)
    stream = Stream(source(tmp_path))
    assert (stream.take(), stream.at) == ([], {})
    late = Stream(source(tmp_path, starting="latest"))
    assert late.take() == []
    add(tmp_path, 0)
    add(tmp_path, 1)
    assert (stream.take(), late.take()) == ([0, 1], [0, 1])


def test_a_limit_cuts_snapshots_and_available_now_ends_with_what_was_there(tmp_path: Path) -> None:
    for number in range(3):
        add(tmp_path, number)
    stream = Stream(source(tmp_path, max_files_per_trigger=2), ends=True)
    assert stream.take() == [0, 1]
    add(tmp_path, 3)
    assert [stream.take(), stream.take()] == [[2], []]
    assert source(tmp_path).lag(stream.prefix()).count == 1  # type: ignore[union-attr]
    assert source(tmp_path).lag(SourcePrefix(batches=())).count == 4  # type: ignore[union-attr]


def test_rows_that_were_deleted_before_the_start_are_not_given(tmp_path: Path) -> None:
    add(tmp_path, 0, 1, 2).delete("id = 1")
    assert sorted(Stream(source(tmp_path)).take()) == [0, 2]


def test_deletes_that_pyiceberg_does_not_know_are_reported_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, 0)
    stream = Stream(source(tmp_path))

    def unknown(scan: object) -> None:
        raise ValueError("PyIceberg does not yet support equality deletes")

    monkeypatch.setattr("pyiceberg.table.DataScan.plan_files", unknown)
    with pytest.raises(SourceError, match="does not yet support equality deletes") as caught:
        stream.take()
    assert [finding.code for finding in caught.value.findings] == ["HR355"]
    assert Stream(source(tmp_path, starting="latest")).take() == []


def compact(table: Table) -> None:
    """Put all rows into one file, as a snapshot of the kind replace, which pyiceberg itself does not write."""
    table.overwrite(table.scan().to_arrow())
    file = Path(table.metadata_location.removeprefix("file://"))
    text = file.read_text()
    for kind in ("overwrite", "delete"):
        text = text.replace(f'"operation":"{kind}"', '"operation":"replace"')
    first, _, last = text.rpartition('"operation":"append"')
    file.write_text(f'{first}"operation":"replace"{last}')


@pytest.mark.parametrize(
    ("change", "kind", "skipped"),
    [
        (lambda table: table.delete("id = 0"), "delete", [9]),
        (lambda table: table.delete("id = 2"), "overwrite", [9]),
        (compact, None, [9]),
    ],
    ids=["delete", "overwrite", "compaction"],
)
def test_a_snapshot_that_takes_rows_away_ends_the_stream_unless_it_is_to_be_skipped(
    tmp_path: Path, change: Callable[[Table], None], kind: str | None, skipped: list[int]
) -> None:
    add(tmp_path, 0)
    table = add(tmp_path, 1, 2)
    stream = Stream(source(tmp_path))
    assert stream.take() == [0, 1, 2]
    change(table.refresh())
    add(tmp_path, 9)
    if kind is not None:
        with pytest.raises(SourceError) as caught:
            stream.take()
        (finding,) = caught.value.findings
        assert finding.code == "HR344"
        assert f"skip_{kind}_snapshots" in finding.fix
        other = Stream(source(tmp_path, **{f"skip_{kind}_snapshots": True}))
        other.at, stream = stream.at, other
    assert stream.take() == skipped


def expire(home: Path, table: Table, numbers: list[int]) -> None:
    table.maintenance.expire_snapshots().by_ids(numbers).commit()


def set_back(home: Path, table: Table, numbers: list[int]) -> None:
    table.manage_snapshots().rollback_to_snapshot(numbers[0]).commit()
    add(home, 7)


def make_again(home: Path, table: Table, numbers: list[int]) -> None:
    iceberg_tables.catalog(home).drop_table(NAME)
    add(home, 7)


@pytest.mark.parametrize(
    ("change", "says", "code"),
    [
        (expire, "it was expired", "HR343"),
        (set_back, "was set back to a state before", "HR343"),
        (make_again, "it was dropped and made again", "HR346"),
    ],
)
def test_what_is_no_longer_there_is_reported_and_not_left_out(
    tmp_path: Path, change: Callable[[Path, Table, list[int]], None], says: str, code: str
) -> None:
    add(tmp_path, 0)
    stream = Stream(source(tmp_path))
    stream.take()
    for number in range(1, 4):
        table = add(tmp_path, number)
    stream.take()
    numbers = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    source(tmp_path).ensure_available(stream.prefix())
    change(tmp_path, table, numbers[:2])
    # A stream that has gone past an expired snapshot needs it only to make a batch again.
    with pytest.raises(SourceError, match=says) as caught:
        source(tmp_path).ensure_available(stream.prefix()) if change is expire else stream.take()
    assert [finding.code for finding in caught.value.findings] == [code]
    lag = source(tmp_path).lag(stream.prefix()) if code == "HR346" else None
    assert lag is None or f"table '{NAME}' was deleted and created again" in lag.problem


def test_an_older_file_gives_null_for_a_newer_column(tmp_path: Path) -> None:
    table = add(tmp_path, 0)
    with table.update_schema() as update:
        from pyiceberg.types import StringType

        update.add_column("name", StringType())
    stream = Stream(source(tmp_path))
    stream.take()
    (part,) = stream.reader.partitions({}, stream.at)
    (rows,) = stream.reader.read(part)
    assert rows.to_pylist() == [{"id": 0, "name": None}]


def test_a_column_that_spark_does_not_have_is_named(tmp_path: Path) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField, UUIDType

    catalog = iceberg_tables.catalog(tmp_path)
    catalog.create_namespace("db")
    catalog.create_table(NAME, Schema(NestedField(1, "id", UUIDType(), required=False)))
    with pytest.raises(SourceError, match="column 'id' is of type uuid") as caught:
        source(tmp_path).reader()
    assert [finding.code for finding in caught.value.findings] == ["HR355"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"table": "events"}, "HR113", "'events' is not a valid name"),
        ({"max_files_per_trigger": 0}, "HR113", "max_files_per_trigger is 0"),
        ({"starting": "latest", "starting_snapshot": 1}, "HR113", "starting and starting_snapshot exclude"),
    ],
)
def test_a_wrong_option_is_reported_without_a_catalog(options: dict[str, Any], code: str, says: str) -> None:
    (problem,) = replace(Iceberg(table=NAME), **options).problems()
    assert (problem.code, says in problem.what, bool(problem.fix)) == (code, True, True)


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connectors.iceberg.table.find_spec", lambda name: None)
    for problems in (Iceberg(table=NAME).problems(), IcebergSink(table=NAME).problems("append")):
        (problem,) = problems
        assert (problem.code, "headrace[iceberg]" in problem.fix) == ("HR011", True)


@pytest.mark.parametrize(
    ("catalog", "code", "says"),
    [
        ({"type": "sql", "uri": "sqlite:////nowhere/at/all.db", "warehouse": "/tmp"}, "HR331", "unable to open"),
        (
            {"type": "rest", "uri": "http://me:pa55word@127.0.0.1:9/x", "credential": "id:v3ry-secret"},
            "HR331",
            "cannot be used: ConnectionError",
        ),
        ({"type": "oracle"}, "HR355", "oracle"),
        ("nowhere", "HR355", "of the Iceberg catalog 'nowhere' cannot be used"),
        ({"type": "hive", "uri": "thrift://127.0.0.1:9"}, "HR011", "a package that is not installed"),
        (None, "HR332", "table 'db.events' of the Iceberg catalog 'default' is not there"),
    ],
    ids=["file", "server", "type", "name", "extra", "table"],
)
def test_a_catalog_or_table_that_is_not_there_is_one_sentence_without_secrets(
    tmp_path: Path, catalog: Any, code: str, says: str
) -> None:
    made = Iceberg(table=NAME, catalog=iceberg_tables.properties(tmp_path) if catalog is None else catalog)
    assert list(made.problems()) == []
    with pytest.raises(HeadraceError) as caught:
        made.lag(SourcePrefix(batches=()))
    (finding,) = caught.value.findings
    assert (finding.code, says in finding.what, "\n" in finding.what, bool(finding.fix)) == (code, True, False, True)
    assert "pa55word" not in str(finding) + repr(made)
    assert "v3ry-secret" not in str(finding) + repr(made)
