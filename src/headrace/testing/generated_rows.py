"""Rows by a schema alone: keys that collide, times at edges of windows, NULL, NaN, empty and long texts, old dates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.testing.values import DAY

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from pyspark.sql.types import DataType

    from headrace.testing.given import Inlet

_MOST_ROWS = 8
_NOON = datetime(DAY.year, DAY.month, DAY.day, 12)
_MINUTES = (0, 1, 4, 5, 9, 10, 15, 29, 30, 45, 60, 61, 90, 120, 180)
_TIMES = (
    *(_NOON + timedelta(minutes=minutes) for minutes in _MINUTES),
    *(_NOON + timedelta(hours=1, microseconds=micros) for micros in (-1, 1)),
    datetime(1970, 1, 1),
    datetime(2000, 2, 29, 23, 59, 59),
)
_TEXTS = ("a", "b", "c", "A", "", "a b", "é", "long " * 100)
# Few and small, that sums are exact in any order.
_NUMBERS = (0, 1, 2, 3, -1, 100)


def generated_rows(made: Mapping[str, Inlet]) -> SearchStrategy[dict[str, list[tuple[Any, ...]]]]:
    """Rows for each source."""
    from hypothesis import strategies as st

    drawn = {}
    for name, inlet in made.items():
        row = st.tuples(*[_values(field.dataType, nullable=field.nullable) for field in inlet.schema])
        drawn[name] = st.lists(row, min_size=1, max_size=_MOST_ROWS)
    return st.fixed_dictionaries(drawn)


def _values(kind: DataType, *, nullable: bool) -> SearchStrategy[Any]:
    """Values of a type that has some here; NULL alone for others."""
    from hypothesis import strategies as st
    from pyspark.sql import types as T

    if isinstance(kind, T.ArrayType):
        return st.lists(_values(kind.elementType, nullable=kind.containsNull), max_size=2)
    if isinstance(kind, T.MapType):
        values = _values(kind.valueType, nullable=kind.valueContainsNull)
        return st.dictionaries(_values(kind.keyType, nullable=False), values, max_size=2)
    if isinstance(kind, T.StructType):
        return st.fixed_dictionaries({field.name: _values(field.dataType, nullable=field.nullable) for field in kind})
    by_type: list[tuple[Any, tuple[Any, ...]]] = [
        (T.StringType, _TEXTS),
        (T.IntegralType, _NUMBERS),
        ((T.FloatType, T.DoubleType), (*map(float, _NUMBERS), 0.5, -2.25, float("nan"))),
        ((T.TimestampType, T.TimestampNTZType), _TIMES),
        (T.DateType, (DAY, DAY + timedelta(days=1), date(1970, 1, 1), date(2000, 2, 29))),
        (T.BooleanType, (True, False)),
        (T.BinaryType, (b"", b"a", b"b")),
    ]
    if isinstance(kind, T.DecimalType):
        by_type.append((T.DecimalType, tuple(map(Decimal, _NUMBERS if kind.precision - kind.scale > 2 else (0,)))))
    plain = next((values for types, values in by_type if isinstance(kind, types)), ())
    return st.sampled_from((*plain, None) if nullable or not plain else plain)
