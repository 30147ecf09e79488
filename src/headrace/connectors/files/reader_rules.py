"""Values that Spark's csv and json readers change by rules of their own: doubled quotes, numbers without an end.

RFC 4180 doubles a quote inside of quotes. Spark's csv reader takes a backslash for that, and leaves both quotes, and
those around them, in the value. A number beyond the largest DOUBLE or FLOAT becomes Infinity. Whoever names the option
that says how it is meant has chosen, and his values are left as Spark reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    Test: TypeAlias = Callable[[Column], Column]

QUOTES = "HEADRACE_QUOTES"
INFINITE = "HEADRACE_INFINITE"
_QUOTES_MEANT = ("escape", "quote")
_INFINITY_MEANT = {"csv": ("positiveinf", "negativeinf"), "json": ("allownonnumericnumbers",)}
_SHOWN = 100


def changed(schema: StructType, format_: str, options: Mapping[str, str]) -> Iterator[tuple[str, Column, Column]]:
    """Of each column that may hold such a value: its name, what is said of it, and whether it does."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DoubleType, FloatType, StringType

    given = {name.lower() for name in options}
    for each in schema:
        column = F.col(f"`{each.name}`")
        if format_ == "csv" and isinstance(each.dataType, StringType) and given.isdisjoint(_QUOTES_MEANT):
            yield each.name, _said(QUOTES, each.name, column), _doubled(column)
        if given.isdisjoint(_INFINITY_MEANT[format_]) and _holds(each.dataType, (DoubleType, FloatType)):
            test = _anywhere(column, each.dataType, (DoubleType, FloatType), _infinite)
            yield each.name, _said(INFINITE, each.name, F.lit(each.dataType.simpleString())), test


def _doubled(text: Column) -> Column:
    """Whether a text was in quotes and had a doubled quote there, as far as the text that Spark made of it tells."""
    return text.startswith('"') & (text.substr(2, 2_000_000_000).contains('""') | (text == '""'))


def _infinite(number: Column) -> Column:
    from pyspark.sql import functions as F

    return F.abs(number) == F.lit(float("inf"))


def _holds(kind: DataType, wanted: tuple[type[DataType], ...]) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return any(_holds(each.dataType, wanted) for each in kind)
    if isinstance(kind, ArrayType):
        return _holds(kind.elementType, wanted)
    return _holds(kind.valueType, wanted) if isinstance(kind, MapType) else isinstance(kind, wanted)


def _anywhere(column: Column, kind: DataType, wanted: tuple[type[DataType], ...], test: Test) -> Column:
    """Whether a value of a wanted type in the column, or in a part of it, passes the test; NULL never does."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    found = F.lit(False)
    if isinstance(kind, StructType):
        for each in kind:
            if _holds(each.dataType, wanted):
                found = found | _anywhere(column.getField(each.name), each.dataType, wanted, test)
    elif isinstance(kind, ArrayType):
        found = F.exists(column, lambda part: _anywhere(part, kind.elementType, wanted, test))
    elif isinstance(kind, MapType):
        found = F.exists(F.map_values(column), lambda part: _anywhere(part, kind.valueType, wanted, test))
    else:
        found = test(column)
    return F.coalesce(found, F.lit(False))


def _said(mark: str, name: str, shown: Column) -> Column:
    from pyspark.sql import functions as F

    plain = F.translate(F.substring(shown, 1, _SHOWN), "\r\n`", "  '")
    return F.concat(F.lit(f"{mark} `{name}` "), F.col("_metadata.file_path"), F.lit(" `"), plain, F.lit("`"))
