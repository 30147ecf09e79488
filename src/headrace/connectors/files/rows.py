"""What is wrong with a row beyond what Spark's readers see, as expressions over a source's columns.

A value that must be there, text of another encoding, and what Spark's csv and json readers change by their own rules:
RFC 4180 doubles a quote inside of quotes. Spark's csv reader takes a backslash for that, and leaves both quotes, and
those around them, in the value. A number beyond the largest DOUBLE or FLOAT becomes Infinity. Whoever names the option
that says how it is meant has chosen, and his values are left as Spark reads them.

To judge and convert a row takes some hundred expressions, and each of them is a question to the JVM: half of the time
that a source took. A query makes its sources at a check, at a start and at a verification, and queries share them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StringType, StructType

# What the message of a refused row says, and whether a row has the fault.
Fault: TypeAlias = tuple[Column, Column]

# What spark/failures.py knows the message of a refused row by; what follows is the column and the file.
MISSING = "HEADRACE_MISSING_VALUE"
ENCODING = "HEADRACE_ENCODING"
MISFIT = "HEADRACE_MISFIT"
INEXACT = "HEADRACE_INEXACT"
QUOTES = "HEADRACE_QUOTES"
INFINITE = "HEADRACE_INFINITE"
# Java puts it in the place of bytes that are no text.
_REPLACEMENT = "\ufffd"
_QUOTES_MEANT = ("escape", "quote")
_INFINITY_MEANT = {"csv": ("positiveinf", "negativeinf"), "json": ("allownonnumericnumbers",)}
_SHOWN = 100

# The expressions that were made, and how many sources' of them are kept.
_MOST = 200
_lock = threading.Lock()
_known: dict[Hashable, tuple[SparkContext, tuple[Column, ...]]] = {}


def unfit(
    kinds: Sequence[tuple[str, str]], format_: str, required: Sequence[str], options: Mapping[str, str]
) -> Iterator[tuple[str, Fault]]:
    """The faults that each column of `kinds`, names and types, may have, each with the column's name.

    Spark's readers make every column nullable, and its csv reader replaces what does not decode. Whoever names an
    encoding takes that upon himself.
    """
    names = {name.lower(): name for name, _ in kinds}
    for own in (names[name.lower()] for name in required if name.lower() in names):
        yield own, (_said(MISSING, own), F.col(f"`{own}`").isNull())
    if {"encoding", "charset"} & {option.lower() for option in options}:
        return
    for name, kind in kinds:
        if kind == "string" and format_ == "csv":
            yield name, (_said(ENCODING, name), F.col(f"`{name}`").contains(_REPLACEMENT))
        elif kind == "string" and format_ == "text":
            yield name, (_said(ENCODING, name), ~F.is_valid_utf8(F.col(f"`{name}`")))


def _said(mark: str, name: str) -> Column:
    return F.concat(F.lit(f"{mark} `{name}` "), F.col("_metadata.file_path"))


def refuse(columns: Mapping[str, Column], faults: Sequence[tuple[str, Fault]]) -> list[Column]:
    """The columns, each failing at the first value with a fault and naming its file, if the query reads it."""
    checked = []
    for name, column in columns.items():
        for said, bad in (fault for faulty, fault in faults if faulty == name):
            column = F.when(bad, F.raise_error(said)).otherwise(column)
        checked.append(column.alias(name))
    return checked


def changed(schema: StructType, format_: str, options: Mapping[str, str]) -> Iterator[tuple[str, Fault]]:
    """The fault of each column that Spark's reader may have changed, with the column's name."""
    given = {name.lower() for name in options}
    for each in schema:
        column = F.col(f"`{each.name}`")
        if format_ == "csv" and isinstance(each.dataType, StringType) and given.isdisjoint(_QUOTES_MEANT):
            # In quotes, with a doubled quote there, as far as the text that Spark made of it tells.
            doubled = column.startswith('"') & (column.substr(2, 2_000_000_000).contains('""') | (column == '""'))
            yield each.name, (_said_with(QUOTES, each.name, column), doubled)
        if given.isdisjoint(_INFINITY_MEANT[format_]) and _holds_numbers(each.dataType):
            said = _said_with(INFINITE, each.name, F.lit(each.dataType.simpleString()))
            yield each.name, (said, anywhere(column, each.dataType, _holds_numbers, _is_infinite))


def _holds_numbers(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_numbers(each.dataType) for each in kind)
    if isinstance(kind, ArrayType):
        return _holds_numbers(kind.elementType)
    return _holds_numbers(kind.valueType) if isinstance(kind, MapType) else isinstance(kind, DoubleType | FloatType)


def _is_infinite(number: Column, kind: DataType) -> Column:
    return F.abs(number) == F.lit(float("inf"))


def anywhere(
    column: Column,
    kind: DataType,
    judged: Callable[[DataType], bool],
    test: Callable[[Column, DataType], Column],
) -> Column:
    """Whether a value in a column that is `judged`, or in a part of it that is, passes the test; NULL never does."""
    found = F.lit(False)
    if isinstance(kind, StructType):
        for each in kind:
            if judged(each.dataType):
                found = found | anywhere(column.getField(each.name), each.dataType, judged, test)
    elif isinstance(kind, ArrayType):
        found = F.exists(column, lambda part: anywhere(part, kind.elementType, judged, test))
    elif isinstance(kind, MapType):
        found = F.exists(F.map_values(column), lambda part: anywhere(part, kind.valueType, judged, test))
    else:
        found = test(column, kind)
    return F.coalesce(found, F.lit(False))


def _said_with(mark: str, name: str, shown: Column) -> Column:
    return F.concat(_said(mark, name), F.lit(" `"), excerpt(shown), F.lit("`"))


def excerpt(text: Column) -> Column:
    """The beginning of a text, fit to stand in a message between backticks."""
    return F.translate(F.substring(text, 1, _SHOWN), "\r\n`", "  '")


def kept(spark: SparkSession, key: Hashable, make: Callable[[], list[Column]]) -> tuple[Column, ...]:
    """What `make` gave for this `key` before, or gives now.

    A Column names other columns and holds no plan, so that it fits every DataFrame that has them.
    """
    context = spark.sparkContext
    with _lock:
        owner, columns = _known.get(key, (None, ()))
    if owner is context:
        return columns
    columns = tuple(make())
    with _lock:
        while len(_known) >= _MOST:
            del _known[next(iter(_known))]
        _known[key] = (context, columns)
    return columns
