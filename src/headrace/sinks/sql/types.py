"""Spark's types in a database: what each becomes, without loss, or why it is refused.

Rows leave Spark as Arrow columns. `encode` turns each into plain values that every database takes (int, float, str,
bytes, bool, None); `restore` turns such values back into a DataFrame with Spark's own types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Kind: TypeAlias = Literal[
    "boolean", "integer", "float", "double", "decimal", "text", "binary", "date", "timestamp", "timestamp_ntz", "json"
]

# Nested values become JSON text by Spark's own functions; nothing may be left out or shortened in it.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


@dataclass(frozen=True)
class ResultColumn:
    """One column of a result: its name, the kind of value it holds, and Spark's type."""

    name: str
    kind: Kind
    type: DataType
    precision: int = 0
    scale: int = 0


def columns(schema: StructType) -> tuple[tuple[ResultColumn, ...], tuple[str, ...]]:
    """The columns of a result, and a sentence for each that no database can hold without loss."""
    known: list[ResultColumn] = []
    refused: list[str] = []
    for part in schema.fields:
        kind = _kind(part.dataType)
        reasons = list(_unfit(part.dataType)) if kind in (None, "json") else []
        if kind is None or reasons:
            refused.append(f"column '{part.name}' is {part.dataType.simpleString()}: {reasons[0]}")
            continue
        known.append(
            ResultColumn(
                part.name,
                kind,
                part.dataType,
                getattr(part.dataType, "precision", 0) if kind == "decimal" else 0,
                getattr(part.dataType, "scale", 0) if kind == "decimal" else 0,
            )
        )
    return tuple(known), tuple(refused)


def _kind(type_: DataType) -> Kind | None:
    from pyspark.sql import types as T

    kinds: tuple[tuple[type[DataType], Kind], ...] = (
        (T.BooleanType, "boolean"),
        (T.ByteType, "integer"),
        (T.ShortType, "integer"),
        (T.IntegerType, "integer"),
        (T.LongType, "integer"),
        (T.FloatType, "float"),
        (T.DoubleType, "double"),
        (T.DecimalType, "decimal"),
        (T.StringType, "text"),
        (T.CharType, "text"),
        (T.VarcharType, "text"),
        (T.BinaryType, "binary"),
        (T.DateType, "date"),
        (T.TimestampType, "timestamp"),
        (T.TimestampNTZType, "timestamp_ntz"),
        (T.ArrayType, "json"),
        (T.MapType, "json"),
        (T.StructType, "json"),
    )
    return next((kind for spark_type, kind in kinds if type(type_) is spark_type), None)


def _unfit(type_: DataType) -> Iterator[str]:
    """Why a type, or one inside it, cannot be kept."""
    from pyspark.sql import types as T

    if isinstance(type_, T.ArrayType):
        yield from _unfit(type_.elementType)
    elif isinstance(type_, T.MapType):
        if not isinstance(type_.keyType, T.StringType):
            yield "the keys of a map must be strings, as those of JSON are; cast them, or use map_entries()"
        yield from _unfit(type_.valueType)
    elif isinstance(type_, T.StructType):
        for part in type_.fields:
            yield from _unfit(part.dataType)
    elif isinstance(type_, T.DayTimeIntervalType):
        yield "a database has no such interval; turn it into a number, for example of seconds"
    elif isinstance(type_, T.YearMonthIntervalType):
        yield "a database has no such interval; turn it into a number of months"
    elif isinstance(type_, T.VariantType):
        yield "write it as text by to_json()"
    elif isinstance(type_, T.NullType):
        yield "it has no type; cast it to one"
    elif _kind(type_) is None:
        yield "no database column holds it without loss; cast it to a string or a number"


def flat(frame: DataFrame, known: Sequence[ResultColumn]) -> DataFrame:
    """`frame` with nested values as JSON text; the same frame where there are none."""
    from pyspark.sql import functions as F

    if all(column.kind != "json" for column in known):
        return frame
    return frame.select(
        *[
            F.to_json(F.col(f"`{column.name}`"), JSON_OPTIONS).alias(column.name)
            if column.kind == "json"
            else F.col(f"`{column.name}`")
            for column in known
        ]
    )


def encode(table: pa.Table, known: Sequence[ResultColumn], *, sort_by: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """The rows of `table` as plain values, in the order of `sort_by`, which makes inserts into an index cheap."""
    import pyarrow as pa

    arrays = [_plain(table.column(at).combine_chunks(), column) for at, column in enumerate(known)]
    if sort_by:
        plain = pa.table(arrays, names=[column.name for column in known])
        arrays = plain.sort_by([(name, "ascending") for name in sort_by]).columns
    values = [array.to_pylist() for array in arrays]
    for at, column in enumerate(known):
        if column.kind in ("float", "double"):
            # A database takes NaN for NULL, or refuses it; as text it stays what it is.
            values[at] = ["NaN" if value != value else value for value in values[at]]
    return list(zip(*values, strict=True))


def _plain(array: Any, column: ResultColumn) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.kind == "decimal":
        # Arrow's own text turns to exponents for small numbers; equal keys must have equal texts.
        return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], pa.string())
    if column.kind == "date":
        return pc.strftime(array, "%Y-%m-%d")
    if column.kind == "timestamp":
        return pc.strftime(array.cast(pa.timestamp("us")), "%Y-%m-%dT%H:%M:%SZ")
    if column.kind == "timestamp_ntz":
        return pc.strftime(array.cast(pa.timestamp("us")), "%Y-%m-%dT%H:%M:%S")
    return array


def restore(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """A DataFrame of `schema` from rows that `encode` made and a database gave back."""
    import pyarrow as pa

    known, _ = columns(schema)
    arrow = {"boolean": pa.int64(), "integer": pa.int64(), "binary": pa.binary()}
    values = list(zip(*rows, strict=True)) if rows else [()] * len(known)
    arrays = [
        pa.array(
            [None if value is None else _text(value, column) for value in values[at]]
            if column.kind not in arrow
            else list(values[at]),
            type=arrow.get(column.kind, pa.string()),
        )
        for at, column in enumerate(known)
    ]
    table = pa.table(arrays, names=[f"c{at}" for at in range(len(known))])
    frame = spark.createDataFrame(table)
    return frame.select(*[_typed(f"c{at}", column).alias(column.name) for at, column in enumerate(known)])


def _text(value: Any, column: ResultColumn) -> str:
    return repr(value) if isinstance(value, float) and column.kind in ("float", "double") else str(value)


def _typed(name: str, column: ResultColumn) -> SparkColumn:
    from pyspark.sql import functions as F

    value = F.col(name)
    if column.kind == "json":
        return F.from_json(value, cast("Any", column.type), JSON_OPTIONS)
    return value.cast(column.type)
