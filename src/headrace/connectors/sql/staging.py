"""The rows of a batch, computed before its transaction: few through the driver, many by the executors in parallel.

A partition of few rows comes to the driver as it is. One of many is written by its own task into a staging table of
its own, and the driver gets the table's name: only the driver's transaction reads it. So the driver's memory does not
grow with the batch, and an attempt of a task that fails leaves nothing that could be taken for a result.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.connectors.sql.dialect import Dialect, StagedTable, StageError, Stager
from headrace.connectors.sql.limits import BadRow, Limit, bad_rows, shared, split_invalid
from headrace.connectors.sql.types import ResultColumn, flat
from headrace.contract import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Wide rows come through the driver up to this many bytes a partition.
DRIVER_BYTES = 8 << 20
# What a task holds at once.
CHUNK_ROWS = 100_000
CHUNK_BYTES = 32 << 20

_ROW_BITS = (1 << 33) - 1
_AT = "_headrace_at"
_REPORT = "kind STRING, name STRING, rows BIGINT, body BINARY"
BAD_COLUMNS = ("reason", "row_values")


@dataclass(frozen=True, kw_only=True)
class Content:
    """A batch's rows: those that came to the driver, the staging tables of the others, and the rows set aside."""

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


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a task needs to know to write its rows; it travels to the executors.

    clustered: rows of one key must come to one task, to be seen to share it. quarantines: rows that the table does
    not take are set aside; else the first one ends the batch. driver_rows: up to so many rows a partition come through
    the driver.
    """

    dialect: Dialect
    prefix: str
    columns: tuple[ResultColumn, ...]
    key: tuple[str, ...]
    limits: Mapping[str, Limit]
    clustered: bool
    quarantines: bool
    driver_rows: int

    def small(self, frame: DataFrame) -> Content | None:
        """The batch through the driver; None when a partition has too many rows. Nothing of it is written.

        Spark computes every partition to its end, as it must for its state, but gives no more rows of each than fit.
        """
        # In SQL, since each function called in Python is some calls into the JVM; a tiny batch has no time for them.
        counted = flat(frame, self.columns).selectExpr("*", f"monotonically_increasing_id() & {_ROW_BITS}L AS {_AT}")
        table = counted.where(f"{_AT} <= {self.driver_rows}").toArrow()
        if table.num_rows and _largest(table.column(_AT)) >= self.driver_rows:
            return None
        table, bad = self.sifted(table.drop_columns([_AT]))
        return Content(table=table, bad=tuple(bad))

    def large(self, frame: DataFrame) -> Content:
        """The batch written by the executors; raises StageError or RowError."""
        local = str(frame.sparkSession.sparkContext.master).startswith("local")
        if self.dialect.needs_shared_disk and not local:
            whole = replace(self, driver_rows=_ROW_BITS).small(frame)
            if whole is not None:
                return whole
        empty = _empty(flat(frame, self.columns))
        # Spark's mapInArrow takes no column with a dot in its name.
        frame = flat(frame, self.columns).toDF(*[f"c{at}" for at in range(len(self.columns))])
        key = [f"c{at}" for at, column in enumerate(self.columns) if column.name in self.key]
        if self.clustered and not is_clustered(frame, key):
            frame = frame.repartition(*key)
        if self.dialect.most_parts is not None:
            frame = frame.coalesce(self.dialect.most_parts)
        if self.key and (self.dialect.wants_sorted or self.clustered):
            frame = frame.sortWithinPartitions(*[f"c{self._names.index(name)}" for name in self.key])
        reports = frame.mapInArrow(self._task, _REPORT).toArrow().to_pylist()
        return self._content(reports, empty)

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.columns]

    def sifted(self, table: pa.Table) -> tuple[pa.Table, list[BadRow]]:
        """The rows of a whole batch that the table takes, and those that it does not; raises RowError."""
        table, bad = split_invalid(table, self.columns, self.limits)
        if self.key and table.num_rows > 1:
            table, doubled = self._apart(table.sort_by([(name, "ascending") for name in self.key]))
            bad += doubled
        if bad and not self.quarantines:
            raise RowError(str(bad[0]), bad[0].reason)
        return table, bad

    def _apart(self, table: pa.Table) -> tuple[pa.Table, list[BadRow]]:
        """The rows of a sorted table with a key of their own, and the others."""
        import pyarrow.compute as pc

        twice = shared(table, self.key)
        if not pc.any(twice).as_py():
            return table, []
        doubled = table.filter(twice)
        reason = f"{'2' if doubled.num_rows == 2 else 'several'} rows share the key ({', '.join(self.key)}), as"
        return table.filter(pc.invert(twice)), bad_rows(doubled, self.columns, [reason] * doubled.num_rows)

    # ------------------------------------------------------------------------------------------ on an executor

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage one partition and report. A fault is reported too: as an exception it would come as Spark's text."""
        import pyarrow as pa

        names = ("kind", "name", "rows", "body")
        types = (pa.string(), pa.string(), pa.int64(), pa.binary())
        for report in self._reports(batches):
            arrays = [pa.array([value], type_) for value, type_ in zip(report, types, strict=True)]
            yield pa.record_batch(arrays, names=list(names))

    def _reports(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str, int, bytes]]:
        writing = _Writing(self, f"{self.prefix}{uuid.uuid4().hex[:12]}")
        try:
            for table in self._chunks(batches):
                good, bad = split_invalid(table, self.columns, self.limits)
                if self.clustered:
                    good, doubled = self._apart(good)
                    bad += doubled
                if bad and not self.quarantines:
                    yield "row", bad[0].reason, 0, str(bad[0]).encode()
                    return
                writing.add(good, bad)
            yield from writing.end()
        except self.dialect.errors as fault:
            problem = self.dialect.explain(fault)
            body = json.dumps([problem.code, problem.what, problem.fix, self.dialect.passes(fault)])
            yield "fault", "", 0, body.encode()
        finally:
            writing.give_up()

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The partition in tables of bounded size; rows of one key stay together where they must."""
        import pyarrow as pa

        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            held.append(batch.rename_columns(self._names))
            rows += batch.num_rows
            size += batch.nbytes
            if rows < CHUNK_ROWS and size < CHUNK_BYTES:
                continue
            table = pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
            if self.clustered:
                first = _last_key_begins(table, self.key)
                if first == 0:
                    held, rows, size = table.to_batches(), table.num_rows, 0
                    continue
                rest = table.slice(first)
                held, rows, size = rest.to_batches(), rest.num_rows, 0
                table = table.slice(0, first)
            yield table
        if held:
            yield pa.Table.from_batches(held)

    # ---------------------------------------------------------------------------------------- on the driver again

    def _content(self, reports: Sequence[Mapping[str, Any]], empty: pa.Table) -> Content:
        import pyarrow as pa

        for report in reports:
            if report["kind"] == "row":
                raise RowError(report["body"].decode(), report["name"])
        for report in reports:
            if report["kind"] == "fault":
                code, what, fix, passes = json.loads(report["body"])
                raise StageError(OptionError(code=code, what=what, fix=fix), passes=passes)
        tables = [pa.ipc.open_stream(each["body"]).read_all() for each in reports if each["kind"] == "rows"]
        bad = [BadRow(*json.loads(line)) for each in reports if each["kind"] == "bad" for line in _lines(each)]
        return Content(
            table=pa.concat_tables(tables) if tables else empty,
            parts=tuple(StagedTable(each["name"], each["rows"]) for each in reports if each["kind"] == "part"),
            bad=tuple(bad),
            bad_parts=tuple(StagedTable(each["name"], each["rows"]) for each in reports if each["kind"] == "bad part"),
        )


class _Writing:
    """The rows of one partition on their way: held while they are few, in staging tables when they are many."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.rows = self.bytes = self.bad_rows = 0
        self.held: list[pa.Table] = []
        self.held_bad: list[BadRow] = []
        self.open: dict[str, Stager] = {}

    def add(self, good: pa.Table, bad: Sequence[BadRow]) -> None:
        self.rows += good.num_rows
        self.bytes += good.nbytes
        self.bad_rows += len(bad)
        self.held.append(good)
        self.held_bad += bad
        if self.rows > self.stage.driver_rows or self.bytes > DRIVER_BYTES:
            for table in self.held:
                self._stager(self.name, self.stage.columns).add(table)
            self.held = []
        if self.bad_rows > self.stage.driver_rows:
            self._stager(f"{self.name}_bad", bad_columns()).add(_as_table(self.held_bad))
            self.held_bad = []

    def _stager(self, name: str, columns: Sequence[ResultColumn]) -> Stager:
        if name not in self.open:
            self.open[name] = self.stage.dialect.stager(name, columns)
        return self.open[name]

    def end(self) -> Iterator[tuple[str, str, int, bytes]]:
        for stager in self.open.values():
            stager.finish()
        bad_name = f"{self.name}_bad"
        if self.name in self.open:
            yield "part", self.name, self.rows, b""
        elif self.rows:
            yield "rows", "", self.rows, _ipc(self.held)
        if bad_name in self.open:
            yield "bad part", bad_name, self.bad_rows, b""
        elif self.held_bad:
            body = "\n".join(json.dumps([each.reason, each.values], default=bytes.hex) for each in self.held_bad)
            yield "bad", "", len(self.held_bad), body.encode()
        self.open = {}

    def give_up(self) -> None:
        for stager in self.open.values():
            with suppress(Exception):
                stager.give_up()


def bad_columns() -> tuple[ResultColumn, ...]:
    """The columns of a staging table of rows set aside."""
    from pyspark.sql.types import StringType

    return tuple(ResultColumn(name, "text", StringType()) for name in BAD_COLUMNS)


def row_text(row: BadRow) -> str:
    """The values of a row that was set aside, as JSON; binary ones as hexadecimal digits."""
    return json.dumps(dict(row.values), default=bytes.hex, ensure_ascii=False)


def _as_table(bad: Sequence[BadRow]) -> pa.Table:
    import pyarrow as pa

    return pa.table({"reason": [row.reason for row in bad], "row_values": [row_text(row) for row in bad]})


def _largest(column: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.max(column).as_py())


def _lines(report: Mapping[str, Any]) -> list[str]:
    return report["body"].decode().split("\n") if report["body"] else []


def _ipc(tables: Sequence[pa.Table]) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return bytes(sink.getvalue())


def _empty(frame: DataFrame) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC").empty_table()


def _last_key_begins(table: pa.Table, key: Sequence[str]) -> int:
    """The first row of the run of rows that share the key of the last row of a sorted table."""
    last = table.slice(table.num_rows - 1).select(list(key)).to_pylist()
    first = int(table.num_rows) - 1
    while first > 0 and table.slice(first - 1, 1).select(list(key)).to_pylist() == last:
        first -= 1
    return first


def is_clustered(frame: DataFrame, key: Sequence[str]) -> bool:
    """Whether Spark's plan already brings rows of one key into one partition, as that of an aggregate does."""
    plan: Any = frame._jdf.queryExecution().executedPlan()
    if int(plan.outputPartitioning().numPartitions()) == 1:
        return True
    ids: dict[str, str] = {}
    output = plan.output()
    for at in range(output.size()):
        attribute = output.apply(at)
        ids[attribute.exprId().toString()] = attribute.name()
    partitioning = plan.outputPartitioning()
    if partitioning.getClass().getSimpleName() != "HashPartitioning":
        return False
    expressions = partitioning.expressions()
    for at in range(expressions.size()):
        each = expressions.apply(at)
        if each.getClass().getSimpleName() != "AttributeReference" or ids.get(each.exprId().toString()) not in key:
            return False
    return True
