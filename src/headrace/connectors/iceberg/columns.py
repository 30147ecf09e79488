"""How a result's columns and an Iceberg table's fit, and how the table is partitioned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.connectors.iceberg.files import column_types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql.types import DataType, StructType

_PART = re.compile(r"(?P<name>\w+)|(?P<kind>\w+)\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<of>\w+)\s*\)")
_PLAIN = ("year", "month", "day", "hour")
_NUMBERED = ("bucket", "truncate")
# Iceberg has no smaller whole numbers than these, and it may widen a column.
_WIDER = {
    "tinyint": ("int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


@dataclass(frozen=True, kw_only=True)
class PartitionField:
    """One field of a partition spec: a column, or a function of one, such as day(time) or bucket(16, id)."""

    column: str
    transform: str

    @classmethod
    def of(cls, text: str) -> PartitionField | None:
        """What `text` says; None where it says nothing of the kind."""
        match = _PART.fullmatch(text.strip())
        if match is None:
            return None
        if match["name"]:
            return cls(column=match["name"], transform="identity")
        kind, number = match["kind"].lower(), match["number"]
        if kind in _PLAIN and number is None:
            return cls(column=match["of"], transform=kind)
        if kind in _NUMBERED and number is not None and int(number) > 0:
            return cls(column=match["of"], transform=f"{kind}[{number}]")
        return None

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        match = re.fullmatch(r"(\w+)\[(\d+)\]", self.transform)
        return f"{match[1]}({match[2]}, {self.column})" if match else f"{self.transform}({self.column})"


def parts_of(table: Table) -> list[str]:
    """How `table` is partitioned, as a declaration would say it."""
    schema = table.schema()
    return [
        str(PartitionField(column=schema.find_column_name(part.source_id) or "?", transform=str(part.transform)))
        for part in table.spec().fields
    ]


def unsupported(schema: StructType) -> Iterator[str]:
    """What of a result no Iceberg table could take."""
    for column in schema.fields:
        if not _known(column.dataType):
            yield f"column '{column.name}' is of type {column.dataType.simpleString()}, which Iceberg does not have"
    for name in sorted({name for name in schema.names if schema.names.count(name) > 1}):
        yield f"two columns are named '{name}'"


def incompatibilities(table: Table, schema: StructType) -> Iterator[str]:
    """Why the table that is there cannot take a result."""
    there = column_types(table)
    for column in schema.fields:
        given = column.dataType.simpleString()
        if column.name not in there:
            yield f"it has no column '{column.name}'"
            continue
        kind = there[column.name]
        found = "another type" if kind is None else kind.simpleString()
        if found != given and found not in _WIDER.get(given, ()):
            yield f"its column '{column.name}' is {found}, and that of the result {given}"
    for field in table.schema().fields:
        if field.required and field.name not in schema.names:
            yield f"its column '{field.name}' takes no NULL, and the result has no such column"


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns of a table for a result: each may be NULL, and small whole numbers are wider."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    small = (pa.int8(), pa.int16())
    return pa.schema(
        [
            pa.field(column.name, pa.int32() if column.type in small else column.type, nullable=True)
            for column in to_arrow_schema(schema, timezone="UTC")
        ]
    )


def missing(parts: Sequence[str], schema: StructType) -> list[str]:
    """The columns that parts name and the result does not have."""
    named = [part.column for part in map(PartitionField.of, parts) if part is not None]
    return [name for name in named if name not in schema.names]


def _known(kind: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        return _nested(kind.elementType)
    if isinstance(kind, types.MapType):
        return _nested(kind.keyType) and _nested(kind.valueType)
    if isinstance(kind, types.StructType):
        return all(_nested(part.dataType) for part in kind.fields)
    return type(kind) in (
        types.BooleanType,
        types.ByteType,
        types.ShortType,
        types.IntegerType,
        types.LongType,
        types.FloatType,
        types.DoubleType,
        types.DecimalType,
        types.StringType,
        types.BinaryType,
        types.DateType,
        types.TimestampType,
        types.TimestampNTZType,
    )


def _nested(kind: DataType) -> bool:
    """Inside of arrays, maps and structs a column is not widened."""
    return _known(kind) and kind.simpleString() not in ("tinyint", "smallint")
