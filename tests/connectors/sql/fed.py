"""A query's life whose batches are rows of Python, without a Spark query, and its table as other clients read it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from struct import pack, unpack
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.connectors.exactly_once import BatchWriter
from headrace.connectors.sql.sink import DatabaseSink
from headrace.connectors.sql.staging import Content, Stage, Turn, join_reports
from headrace.contract import OutputMode, SinkContext
from headrace.errors import Finding
from headrace.spark import ddl

from .databases import Database, Life

Row = Mapping[str, Any]
COLUMNS: dict[str, T.DataType] = {
    "name": T.StringType(),
    "flag": T.BooleanType(),
    "small": T.ShortType(),
    "large": T.LongType(),
    "ratio": T.DoubleType(),
    "amount": T.DecimalType(20, 4),
    "note": T.StringType(),
    "bytes": T.BinaryType(),
    "day": T.DateType(),
    "at": T.TimestampType(),
    "local": T.TimestampNTZType(),
    "parts": T.ArrayType(T.StringType()),
    "tiny": T.ByteType(),
    "whole": T.IntegerType(),
    "single": T.FloatType(),
    "short": T.VarcharType(20),
    "named": T.MapType(T.StringType(), T.DecimalType(20, 4)),
    "inner": T.StructType([T.StructField("a", T.LongType()), T.StructField("b", T.StringType())]),
}
NESTED = (T.ArrayType, T.MapType, T.StructType)
_AS_TEXT = (*NESTED, T.VarcharType)
SCHEMA = T.StructType([T.StructField(name, type_) for name, type_ in COLUMNS.items()])
UTC = timezone.utc


def row(name: str | None, **values: Any) -> Row:
    """A row with some values; the others are NULL."""
    return {**dict.fromkeys(COLUMNS), "name": name, **values}


# What a setting of a session could change: marks of quotes and escapes, characters of other encodings, the word NULL,
# dates whose day could be a month, the last digits of a double.
ROWS = (
    row(
        "a",
        flag=True,
        small=-32768,
        large=2**63 - 1,
        ratio=0.30000000000000004,
        amount=Decimal("-1234567890123456.0001"),
        note='it\'s "a\\b"\t\n`c` \\N €uro 🎈 % %s {x} ',
        bytes=b"\x00\xff\\'\"\n",
        day=date(2024, 2, 3),
        at=datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
        local=datetime(1999, 12, 1, 0, 0, 0, 1),
        parts=["é", 'a"\\b', "NULL"],
        tiny=-128,
        whole=2**31 - 1,
        single=0.10000000149011612,
        short="I i İ ı ß",
        named={"I": 1.5, "é\\": None},
        inner={"a": -(2**63), "b": "NULL"},
    ),
    row("é\\'🎈", note="NULL", parts=[], day=date(9999, 12, 31), bytes=b"", flag=False),
    row("null"),
    row("NULL", note="", ratio=5e-324, large=0, amount=Decimal("0.0000")),
)
LATER = (row("a", note="later", parts=["🎈"]), row("b\\", bytes=b"\\x41", local=datetime(2024, 1, 2, 3)))
# Its key is NULL.
BAD = row(None, note="é🎈")


@dataclass
class Fed:
    """One life; `ways`: the batches' ways into the database, in turn."""

    database: Database
    home: Path
    mode: OutputMode = "update"
    key: Sequence[str] = ("name",)
    query: str = "q"
    options: dict[str, Any] = field(default_factory=dict)
    noted: list[Finding] = field(default_factory=list)

    @property
    def sink(self) -> DatabaseSink:
        return self.database.sink(key=self.key, on_bad_row="quarantine", **self.options)

    @property
    def context(self) -> SinkContext:
        place = self.home / self.query
        return SinkContext(
            query=self.query,
            generation=1,
            mode=self.mode,
            checkpoint=place,
            application="mine",
            on_warning=self.noted.append,
        )

    @property
    def frame(self) -> Any:
        """What a sink asks of a result before its batches."""
        return SimpleNamespace(schema=SCHEMA, columns=SCHEMA.names)

    def open(self) -> BatchWriter[Any]:
        return self.sink.open(self.frame, self.context)

    def write(self, writer: BatchWriter[Any], batch: int, rows: Sequence[Row], *, staged: bool) -> None:
        """Write a batch by the driver, or as a task stages it."""
        store = cast(Any, writer.store)

        def compute(frame: object, batch: int) -> Content:
            return self._stage(store, batch, rows) if staged else self._sift(store, rows)

        store.compute, store._has_staged = compute, staged
        writer(cast(Any, None), batch)

    def _sift(self, store: Any, rows: Sequence[Row]) -> Content:
        table, bad = store.stage.sift(as_arrow(rows))
        return Content(table=table, bad=tuple(bad))

    def _stage(self, store: Any, batch: int, rows: Sequence[Row]) -> Content:
        turn = Turn.of(self.context, store.table.name, store.epoch, batch)
        stage = replace(store.stage, turn=turn, driver_rows=0)
        table = as_arrow(sorted(rows, key=lambda row: row["name"] or ""))
        names = [f"c{at}" for at in range(len(COLUMNS))]
        batches = stage.stage(iter(table.rename_columns(names).to_batches()))
        content = join_reports((row for batch in batches for row in batch["report"].to_pylist()), table.slice(0, 0))
        assert (len(content.parts), len(content.bad_parts)) == (1, int(BAD in rows))
        return content

    def read_rows(self) -> list[Row]:
        """The rows as a plain client of the database reads them, with its default settings."""
        return sorted(read_plainly(self.database, self.sink.table), key=lambda row: str(row["name"]))


@dataclass(frozen=True)
class Rows:
    """A batch in partitions of Arrow, with what a sink asks of a frame of Spark."""

    schema: T.StructType
    partitions: tuple[pa.Table, ...]

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def whole(self) -> pa.Table:
        return pa.concat_tables(self.partitions)


class LifeWithoutSpark(Life):
    """A life whose batches are Arrow tables, by the way of the driver or as tasks stage their partitions."""

    def frame(self, rows: Sequence[tuple[Any, ...]], *, partitions: int = 0) -> Any:
        schema = T.StructType.fromJson({"type": "struct", "fields": ddl.columns(self.schema)})
        arrow = to_arrow_schema(schema, timezone="UTC")
        tables = [
            pa.table([[row[at] for row in part] for at in range(len(arrow))], arrow)
            for part in (rows[at :: partitions or 1] for at in range(partitions or 1))
        ]
        return Rows(schema, tuple(tables))

    def begin(self, *, staged: bool = False) -> BatchWriter[Any]:
        writer = super().begin(staged=staged)
        store = cast(Any, writer.store)

        def compute(frame: Rows, batch: int) -> Content:
            with store.computing(batch):
                if staged:
                    store._has_staged = True
                    return stage_partitions(store.stage, frame)
                return cast(Content, store.stage.content(frame.whole))

        store.compute = compute
        return writer

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as a plain client of the database reads them."""
        schema = getattr(self.sink, "schema", "")
        place = f'"{schema}".' if schema else ""
        return sorted(self.database.query(f'SELECT * FROM {place}"{self.sink.table}"'), key=repr)


def stage_partitions(stage: Stage, frame: Rows) -> Content:
    """Let a task stage each partition, as `Stage.compute_large` has it: rows of one key come to one task, sorted."""
    tables = [frame.whole] if stage.clustered or stage.dialect.most_parts is not None else list(frame.partitions)
    if stage.key and (stage.dialect.wants_sorted or stage.clustered):
        tables = [table.sort_by([(name, "ascending") for name in stage.key]) for table in tables]
    names = [f"c{at}" for at in range(len(stage.names))]
    batches = [stage.stage(iter(table.rename_columns(names).to_batches())) for table in tables if table.num_rows]
    reports = [line for staged in batches for report in staged for line in report["report"].to_pylist()]
    return join_reports(reports, frame.whole.slice(0, 0).select([column.name for column in stage.columns]))


def as_arrow(rows: Sequence[Row]) -> pa.Table:
    """The rows as Spark gives them, with nested values as JSON."""
    flat = T.StructType(
        [
            T.StructField(name, T.StringType() if isinstance(type_, _AS_TEXT) else type_)
            for name, type_ in COLUMNS.items()
        ]
    )
    nested = [name for name, type_ in COLUMNS.items() if isinstance(type_, NESTED)]
    values = [
        {**row, **{name: None if row[name] is None else json.dumps(row[name]) for name in nested}} for row in rows
    ]
    return pa.Table.from_pylist(values, to_arrow_schema(flat, timezone="UTC"))


def fold_by_name(*batches: Sequence[Row]) -> list[Row]:
    """The rows after each one has replaced the one of its name; a row without a name is left out."""
    rows = {row["name"]: row for batch in batches for row in batch if row["name"] is not None}
    return sorted(rows.values(), key=lambda row: str(row["name"]))


def read_plainly(database: Database, table: str) -> Iterator[Row]:
    """The table's rows, by the client's own types, in the form of the input."""
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    for values in database.query(f'SELECT {names} FROM "{table}"'):
        yield {
            name: None if value is None else _plain(value, type_)
            for (name, type_), value in zip(COLUMNS.items(), values, strict=True)
        }


def _plain(value: Any, type_: T.DataType) -> Any:
    """A value of a client in the form of the input; what has no type in the database is read as the docs say."""
    if isinstance(type_, T.BooleanType):
        return bool(value)
    if isinstance(type_, T.FloatType):
        return unpack("f", pack("f", value))[0]
    if isinstance(type_, NESTED):
        return json.loads(value) if isinstance(value, str) else value
    if isinstance(type_, T.DecimalType):
        return Decimal(value)
    if isinstance(type_, T.DateType) and isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(type_, (T.TimestampType, T.TimestampNTZType)):
        moment = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
        return moment.replace(tzinfo=UTC) if isinstance(type_, T.TimestampType) else moment
    return value


def quarantined_rows(database: Database) -> list[Any]:
    """The rows quarantined, as a plain client reads them."""
    return [json.loads(values) for (values,) in database.query("SELECT row_values FROM _headrace_quarantine")]


def sqlite_file(path: Path, *statements: str) -> None:
    """A SQLite file that another program has made."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
