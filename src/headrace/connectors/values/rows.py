"""What is wrong with a row beyond what Spark's readers see, as expressions over a source's columns.

A value that must be there, text of another encoding, and what Spark's csv and json readers change by their own rules:
RFC 4180 doubles a quote inside of quotes. Spark's csv reader takes a backslash for that, and leaves both quotes, and
those around them, in the value. A number beyond the largest DOUBLE or FLOAT becomes Infinity. Where an option
says how such values are meant, they are left as Spark reads them.

To judge and convert a row takes some hundred expressions, and each of them is a question to the JVM: half of the time
that a source took. A query makes its sources at a check, at a start and at a verification, and queries share them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TypeAlias

from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.values.rules import PLACE, TextRules

# What the message of a refused row says, and whether a row has the fault.
Fault: TypeAlias = tuple[Column, Column]

# What failures of Spark's messages know a refused row by; what follows is the column and the place.
MALFORMED = "HEADRACE_MALFORMED"
MISSING = "HEADRACE_MISSING_VALUE"
ENCODING = "HEADRACE_ENCODING"
MISFIT = "HEADRACE_MISFIT"
INEXACT = "HEADRACE_INEXACT"
QUOTES = "HEADRACE_QUOTES"
INFINITE = "HEADRACE_INFINITE"
UNREADABLE = "HEADRACE_UNREADABLE"
# Java puts it in the place of bytes that are no text.
_REPLACEMENT = "\ufffd"
_QUOTES_MEANT = ("escape", "quote")
_INFINITY_MEANT = {"csv": ("positiveinf", "negativeinf"), "json": ("allownonnumericnumbers",)}
_SHOWN = 100

# The expressions that were made, and how many sources' of them are kept.
_MOST = 200
_lock = threading.Lock()
_known: dict[Hashable, tuple[SparkContext, tuple[Column, ...]]] = {}


def find_missing(fields: Iterable[T.StructField]) -> Iterator[tuple[str, Fault]]:
    """The fault of each column that lacks a value which is declared NOT NULL, in a part of it too, by its name.

    Spark's readers make every column nullable.
    """
    for field in fields:
        column = F.col(f"`{field.name}`")
        if lacks := _lacks(column, field):
            yield field.name, (compose_message(MISSING, field.name, F.col(PLACE)), reduce(or_, lacks))


def _lacks(column: Column, field: T.StructField) -> list[Column]:
    """The condition that a field, or a part of it, lacks a value."""
    return [*([] if field.nullable else [column.isNull()]), *_parts_lack(column, field.dataType)]


def _parts_lack(column: Column, kind: T.DataType) -> list[Column]:
    if isinstance(kind, T.StructType):
        parts = [lacks for field in kind for lacks in _lacks(column.getField(field.name), field)]
        return [column.isNotNull() & reduce(or_, parts)] if parts else []
    if isinstance(kind, T.MapType):
        values, inner = F.map_values(column), kind.valueType
    elif isinstance(kind, T.ArrayType):
        values, inner = column, kind.elementType
    else:
        return []
    if not _parts_lack(F.lit(None), inner):
        return []
    return [F.coalesce(F.exists(values, lambda part: reduce(or_, _parts_lack(part, inner))), F.lit(False))]


def find_undecoded(fields: Iterable[T.StructField], rules: TextRules) -> Iterator[tuple[str, Fault]]:
    """The fault of each column with text that holds what is not UTF-8, by its name.

    A source that names an encoding is not checked.
    """
    if rules.format not in ("csv", "text", "avro") or (rules.format == "csv" and rules.is_named("encoding", "charset")):
        return
    for field in fields:
        if _holds_text(field.dataType):
            text = F.col(f"`{field.name}`")
            if rules.has_bytes:
                fault = is_anywhere(text, field.dataType, _holds_text, lambda part, _: ~F.is_valid_utf8(part))
            else:
                fault = is_anywhere(text, field.dataType, _holds_text, lambda part, _: part.contains(_REPLACEMENT))
            yield field.name, (compose_message(ENCODING, field.name, F.col(PLACE)), fault)


def compose_message(mark: str, name: str | Column, place: Column, shown: Column | None = None) -> Column:
    """Compose the message of a row that is refused: mark, column or fault, place, and the text itself."""
    named = F.lit(name) if isinstance(name, str) else F.translate(name, "\r\n`", "  '")
    parts = [F.lit(f"{mark} `"), named, F.lit("` "), place]
    return F.concat(*parts) if shown is None else F.concat(*parts, F.lit(" `"), excerpt(shown), F.lit("`"))


def refuse(columns: Mapping[str, Column], faults: Sequence[tuple[str, Fault]]) -> list[Column]:
    """The columns, each failing at the first value with a fault and naming its file, if the query reads it."""
    checked = []
    for name, column in columns.items():
        for message, bad in (fault for faulty, fault in faults if faulty == name):
            column = F.when(bad, F.raise_error(message)).otherwise(column)
        checked.append(column.alias(name))
    return checked


def find_changed(schema: T.StructType, rules: TextRules) -> Iterator[tuple[str, Fault]]:
    """The fault of each column that Spark's reader may have changed, with the column's name."""
    infinity = F.lit(float("inf"))
    for field in schema:
        column = F.col(f"`{field.name}`")
        if rules.format == "csv" and isinstance(field.dataType, T.StringType) and not rules.is_named(*_QUOTES_MEANT):
            # In quotes, with a doubled quote there, as far as the text that Spark made of it shows.
            doubled = column.startswith('"') & (column.substr(2, 2_000_000_000).contains('""') | (column == '""'))
            yield field.name, (compose_message(QUOTES, field.name, F.col(PLACE), column), doubled)
        if not rules.is_named(*_INFINITY_MEANT[rules.format]) and _holds_numbers(field.dataType):
            shown = F.lit(field.dataType.simpleString())
            infinite = is_anywhere(column, field.dataType, _holds_numbers, lambda part, _: F.abs(part) == infinity)
            yield field.name, (compose_message(INFINITE, field.name, F.col(PLACE), shown), infinite)


def _holds_numbers(kind: T.DataType) -> bool:
    return _holds(kind, T.DoubleType, T.FloatType)


def _holds_text(kind: T.DataType) -> bool:
    return _holds(kind, T.StringType)


def _holds(kind: T.DataType, *kinds: type[T.DataType]) -> bool:
    """Whether a type is one of `kinds`, or has a part of one; keys of maps do not count."""
    if isinstance(kind, T.StructType):
        return any(_holds(field.dataType, *kinds) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _holds(kind.elementType, *kinds)
    return _holds(kind.valueType, *kinds) if isinstance(kind, T.MapType) else isinstance(kind, kinds)


def is_anywhere(
    column: Column,
    kind: T.DataType,
    judged: Callable[[T.DataType], bool],
    test: Callable[[Column, T.DataType], Column],
) -> Column:
    """Whether a value in a column that is `judged`, or in a part of it that is, passes the test; NULL never does."""
    passes = F.lit(False)
    if isinstance(kind, T.StructType):
        for field in kind:
            if judged(field.dataType):
                passes = passes | is_anywhere(column.getField(field.name), field.dataType, judged, test)
    elif isinstance(kind, T.ArrayType):
        passes = F.exists(column, lambda part: is_anywhere(part, kind.elementType, judged, test))
    elif isinstance(kind, T.MapType):
        passes = F.exists(F.map_values(column), lambda part: is_anywhere(part, kind.valueType, judged, test))
    else:
        passes = test(column, kind)
    return F.coalesce(passes, F.lit(False))


def excerpt(text: Column) -> Column:
    """The beginning of a text, fit to stand in a message between backticks."""
    return F.translate(F.substring(text, 1, _SHOWN), "\r\n`", "  '")


def reuse_columns(spark: SparkSession, key: Hashable, make: Callable[[], list[Column]]) -> tuple[Column, ...]:
    """Return what `make` gave for this `key` before, or call it now.

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
