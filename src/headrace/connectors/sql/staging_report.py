"""What the task of a partition tells the driver of its rows, as it travels through Spark: one row of Arrow a report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.connectors.sql.dialect import StagedTable, StageError
from headrace.connectors.sql.limits import BadRow
from headrace.contract import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

# Wide rows come through the driver up to this many bytes a partition.
DRIVER_BYTES = 8 << 20
COLUMNS = "kind STRING, name STRING, rows BIGINT, body BINARY"

_ROWS, _PART, _BAD, _BAD_PART, _ROW, _FAULT = "rows", "part", "bad", "bad part", "row", "fault"


@dataclass(frozen=True, kw_only=True)
class Content:
    """A batch's rows: those that came to the driver, the staging tables of the others, and the rows quarantined."""

    table: pa.Table
    parts: tuple[StagedTable, ...] = ()
    bad: tuple[BadRow, ...] = ()
    bad_parts: tuple[StagedTable, ...] = ()

    @property
    def rows(self) -> int:
        return int(self.table.num_rows) + sum(part.rows for part in self.parts)


class RowError(Exception):
    """A row that the table does not take."""

    def __init__(self, row: str, reason: str) -> None:
        super().__init__(f"{reason} in the row {row}")


class Report(NamedTuple):
    """One report: its kind, the staging table that it tells of, how many rows, and what the kind needs besides."""

    kind: str
    name: str = ""
    rows: int = 0
    body: bytes = b""

    @classmethod
    def of_rows(cls, tables: Sequence[pa.Table]) -> Report:
        """Few rows, which travel themselves."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, tables[0].schema) as writer:
            for table in tables:
                writer.write_table(table)
        return cls(_ROWS, rows=sum(table.num_rows for table in tables), body=bytes(sink.getvalue()))

    @classmethod
    def of_part(cls, name: str, rows: int) -> Report:
        """Many rows, in a staging table."""
        return cls(_PART, name, rows)

    @classmethod
    def of_bad(cls, bad: Sequence[BadRow]) -> Report:
        """Few rows to be quarantined."""
        body = "\n".join(json.dumps([each.reason, each.values], default=bytes.hex) for each in bad)
        return cls(_BAD, rows=len(bad), body=body.encode())

    @classmethod
    def of_bad_part(cls, name: str, rows: int) -> Report:
        """Many rows to be quarantined, in a staging table."""
        return cls(_BAD_PART, name, rows)

    @classmethod
    def of_row_error(cls, row: BadRow) -> Report:
        """A row that the table does not take and that ends the batch."""
        return cls(_ROW, row.reason, body=str(row).encode())

    @classmethod
    def of_failure(cls, problem: OptionError, *, is_transient: bool) -> Report:
        """What the database said; as an exception it would come as Spark's text."""
        return cls(_FAULT, body=json.dumps([problem.code, problem.what, problem.fix, is_transient]).encode())

    def as_batch(self) -> pa.RecordBatch:
        """The report as Spark takes it, in the columns COLUMNS."""
        import pyarrow as pa

        types = (pa.string(), pa.string(), pa.int64(), pa.binary())
        arrays = [pa.array([value], type_) for value, type_ in zip(self, types, strict=True)]
        return pa.record_batch(arrays, names=list(self._fields))


def content_of(found: Iterable[Mapping[str, Any]], empty: pa.Table) -> Content:
    """What all tasks have reported; raises RowError or StageError for what one of them could not write."""
    import pyarrow as pa

    reports = [Report(**each) for each in found]
    for report in reports:
        if report.kind == _ROW:
            raise RowError(report.body.decode(), report.name)
    for report in reports:
        if report.kind == _FAULT:
            code, what, fix, is_transient = json.loads(report.body)
            raise StageError(OptionError(code=code, what=what, fix=fix), is_transient=is_transient)
    tables = [pa.ipc.open_stream(each.body).read_all() for each in reports if each.kind == _ROWS]
    bad = [line for each in reports if each.kind == _BAD for line in each.body.decode().split("\n") if line]
    return Content(
        table=pa.concat_tables(tables) if tables else empty,
        parts=tuple(StagedTable(each.name, each.rows) for each in reports if each.kind == _PART),
        bad=tuple(BadRow(*json.loads(line)) for line in bad),
        bad_parts=tuple(StagedTable(each.name, each.rows) for each in reports if each.kind == _BAD_PART),
    )
