"""Spark's types in a database, without loss or refused, and Arrow columns as the values that it takes."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from headrace.spark.jvm.settings import WHOLE_JSON_UTC

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Kind: TypeAlias = Literal[
    "boolean", "integer", "float", "double", "decimal", "text", "binary", "date", "timestamp", "timestamp_ntz", "json"
]
# By the names of Spark's types.
_KINDS: dict[str, Kind] = {
    "boolean": "boolean",
    "float": "float",
    "double": "double",
    "decimal": "decimal",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("string", "char", "varchar"), "text"),
    **dict.fromkeys(("array", "map", "struct"), "json"),
}
# What COPY and LOAD DATA take as they are: tab, newline and backslash mean something to them.
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\0"))


@dataclass(frozen=True)
class ResultColumn:
    """One column of a result: its name, the kind of value it holds, and Spark's type."""

    name: str
    kind: Kind
    type: DataType
    precision: int = 0
    scale: int = 0


def columns(schema: StructType) -> tuple[tuple[ResultColumn, ...], tuple[str, ...]]:
    """Return the columns of a result, and a sentence for each that no database can hold without loss."""
    from pyspark.sql.types import DecimalType

    fitting: list[ResultColumn] = []
    refused: list[str] = []
    for part in schema.fields:
        kind = _KINDS.get(part.dataType.typeName())
        reasons = list(_unfit_reasons(part.dataType)) if kind in (None, "json") else []
        if kind is None or reasons:
            refused.append(f"column '{part.name}' is {part.dataType.simpleString()}: {reasons[0]}")
            continue
        digits = (part.dataType.precision, part.dataType.scale) if isinstance(part.dataType, DecimalType) else ()
        fitting.append(ResultColumn(part.name, kind, part.dataType, *digits))
    return tuple(fitting), tuple(refused)


def _unfit_reasons(type_: DataType) -> Iterator[str]:
    """Yield why a type, or one inside it, cannot be kept."""
    from pyspark.sql import types as T

    if isinstance(type_, T.ArrayType):
        yield from _unfit_reasons(type_.elementType)
    elif isinstance(type_, T.MapType):
        if not isinstance(type_.keyType, T.StringType):
            yield "the keys of a map must be strings, as those of JSON are; cast them, or use map_entries()"
        yield from _unfit_reasons(type_.valueType)
    elif isinstance(type_, T.StructType):
        for part in type_.fields:
            yield from _unfit_reasons(part.dataType)
    elif type_.typeName() not in _KINDS:
        yield _UNFIT.get(type_.typeName(), "no database column holds it without loss; cast it to a string or a number")


_UNFIT = {
    "daytimeinterval": "a database has no such interval; turn it into a number, for example of seconds",
    "yearmonthinterval": "a database has no such interval; turn it into a number of months",
    "variant": "write it as text by to_json()",
    "void": "it has no type; cast it to one",
}


def flatten(frame: DataFrame, result_columns: Sequence[ResultColumn], also: Sequence[str] = ()) -> DataFrame:
    """`frame` with nested values as JSON text, and the columns `also`; the same frame where there are none."""
    from pyspark.sql import functions as F

    if all(column.kind != "json" for column in result_columns):
        return frame
    return frame.select(
        *[
            F.to_json(F.col(f"`{column.name}`"), WHOLE_JSON_UTC).alias(column.name)
            if column.kind == "json"
            else F.col(f"`{column.name}`")
            for column in result_columns
        ],
        *also,
    )


def restore(spark: SparkSession, chunks: Iterable[Sequence[tuple[Any, ...]]], schema: StructType) -> DataFrame:
    """Return a DataFrame of `schema` from rows that a database gave back; many rows lie in a temporary directory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    result_columns, _ = columns(schema)
    tables = (_table(rows, result_columns) for rows in chunks)
    first = next(tables, None) or _table([], result_columns)
    second = next(tables, None)
    if second is None:
        frame = spark.createDataFrame(first)
    else:
        home = Path(tempfile.mkdtemp(prefix="headrace-snapshot-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        with pq.ParquetWriter(home / "rows.parquet", pa.schema(first.schema)) as writer:
            for table in (first, second, *tables):
                writer.write_table(table)
        frame = spark.read.parquet(str(home))
    return frame.select(*[_cast(f"c{at}", column).alias(column.name) for at, column in enumerate(result_columns)])


def _table(rows: Sequence[tuple[Any, ...]], result_columns: Sequence[ResultColumn]) -> pa.Table:
    import pyarrow as pa

    types = {"boolean": pa.int64(), "integer": pa.int64(), "binary": pa.binary()}
    values: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(result_columns)
    return pa.table(
        [
            pa.array(
                [None if value is None else _restore_value(value, column) for value in values[at]],
                types.get(column.kind, pa.string()),
            )
            for at, column in enumerate(result_columns)
        ],
        names=[f"c{at}" for at in range(len(result_columns))],
    )


def _restore_value(value: Any, column: ResultColumn) -> Any:
    if column.kind in ("boolean", "integer"):
        return int(value)
    if column.kind == "binary":
        return bytes(value)
    if column.kind in ("float", "double") and isinstance(value, float):
        return repr(value)
    text = str(value)
    return f"{text}Z" if column.kind == "timestamp" and not text.endswith(("Z", "+00")) else text


def _cast(name: str, column: ResultColumn) -> SparkColumn:
    from pyspark.sql import functions as F

    value = F.col(name)
    if column.kind == "json":
        return F.from_json(value, cast("Any", column.type), WHOLE_JSON_UTC)
    return value.cast(column.type)


@dataclass(frozen=True, kw_only=True)
class Forms:
    """How one database wants the values whose text is not the same everywhere.

    zone: what follows a timestamp with a zone, always of UTC. hexadecimal: what stands before the digits of bytes.
    widens_floats: whether a float is stored as the double that is exactly it, however it is written.
    iso: a T stands between date and time, NaN is stored as text among numbers, and no decimal has an exponent.
    """

    zone: str = ""
    hexadecimal: str = ""
    widens_floats: bool = False
    iso: bool = False


ISO = Forms(zone="Z", iso=True)


def arrays(table: pa.Table, result_columns: Sequence[ResultColumn], forms: Forms) -> list[Any]:
    """Return the columns of `table` as Arrow arrays of numbers, texts, booleans and bytes."""
    return [_to_plain(table.column(at).combine_chunks(), column, forms) for at, column in enumerate(result_columns)]


def rows(table: pa.Table, result_columns: Sequence[ResultColumn], forms: Forms) -> list[tuple[Any, ...]]:
    """Return the rows of `table` as plain values: int, float, str, bytes, bool, None."""
    values = [array.to_pylist() for array in arrays(table, result_columns, forms)]
    if forms.iso:
        for at, column in enumerate(result_columns):
            if column.kind in ("float", "double"):
                # A database takes NaN for NULL, or refuses it; as text it stays what it is.
                values[at] = ["NaN" if value != value else value for value in values[at]]
    return list(zip(*values, strict=True))


def texts(table: pa.Table, result_columns: Sequence[ResultColumn], forms: Forms) -> list[Any]:
    """Return the columns of `table` as Arrow arrays of text; NULL stays NULL."""
    import pyarrow as pa

    pairs = zip(arrays(table, result_columns, forms), result_columns, strict=True)
    return [_to_text(array, column, forms).cast(pa.large_string()) for array, column in pairs]


def lines(table: pa.Table, result_columns: Sequence[ResultColumn], forms: Forms) -> memoryview:
    r"""Return the rows as lines of text with tabs between, NULL as `\N`: what COPY and LOAD DATA read by themselves."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        _escape(array) if column.kind in ("text", "json", "binary") else array
        for array, column in zip(texts(table, result_columns, forms), result_columns, strict=True)
    ]
    tab, end, nothing = (pa.scalar(text, pa.large_string()) for text in ("\t", "\n", ""))
    null = "\\N"
    joined = pc.binary_join_element_wise(*columns, tab, null_handling="replace", null_replacement=null)
    whole = pc.binary_join_element_wise(joined, end, nothing)
    offsets, data = whole.buffers()[1:3]
    if data is None:
        return memoryview(b"")
    ends = (whole.offset, whole.offset + len(whole))
    first, last = (int.from_bytes(memoryview(offsets)[8 * at : 8 * at + 8], "little") for at in ends)
    return memoryview(data)[first:last]


def _escape(array: Any) -> Any:
    import pyarrow.compute as pc

    for mark, escape in _ESCAPES:
        if pc.any(pc.match_substring(array, mark)).as_py():
            array = pc.replace_substring(array, mark, escape)
    return array


def _to_text(array: Any, column: ResultColumn, forms: Forms) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.kind == "boolean":
        return pc.if_else(array, pa.scalar("1"), pa.scalar("0"))
    if column.kind == "binary":
        mark = forms.hexadecimal
        return pa.array([None if value is None else mark + value.hex() for value in array.to_pylist()], pa.string())
    return array


def _to_plain(array: Any, column: ResultColumn, forms: Forms) -> Any:
    import pyarrow as pa

    convert: Mapping[Kind, Any] = {
        "date": lambda: _calendar_texts(array, "D"),
        "timestamp": lambda: _time_texts(array, forms, forms.zone),
        "timestamp_ntz": lambda: _time_texts(array, forms, ""),
        "decimal": lambda: _decimal_texts(array, forms),
        "float": lambda: array.cast(pa.float64()) if forms.widens_floats else array,
    }
    return convert[column.kind]() if column.kind in convert else array


def _time_texts(array: Any, forms: Forms, zone: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = _calendar_texts(array.cast(pa.timestamp("us")), "us")
    if forms.iso:
        texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise(texts, pa.scalar(zone), "") if zone else texts


def _calendar_texts(array: Any, unit: Literal["D", "us"]) -> Any:
    """Dates or times as texts; Arrow knows the years up to 32767, and writes of others that they are out of range."""
    import numpy as np
    import pyarrow as pa

    texts = array.cast(pa.string())
    if not pa.compute.any(pa.compute.starts_with(texts, "<")).as_py():
        return texts
    pairs = zip(texts.to_pylist(), array.cast(pa.int32() if unit == "D" else pa.int64()).to_pylist(), strict=True)
    exact = [str(np.datetime64(number, unit)) if text and text[0] == "<" else text for text, number in pairs]
    return pa.array([text and text.replace("T", " ") for text in exact], pa.string())


def _decimal_texts(array: Any, forms: Forms) -> Any:
    import pyarrow as pa

    if not forms.iso:
        return array.cast(pa.string())
    # Arrow's own text turns to exponents for small numbers; equal keys must have equal texts.
    return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], pa.string())
