"""Rows as tests read them: by column, by key, in one order, and equal where floating-point sums differ by rounding."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from headrace.errors import ProjectError, nearest
from headrace.markup import table
from headrace.testing.values import plain_value

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

RELATIVE, ABSOLUTE = 1e-9, 1e-12


class ResultRow:
    """One row: `row.count`, `row["count"]`; equal to a dict of all its columns, and to a tuple of their values.

    A TIMESTAMP is a datetime without a zone: the time on the clock of the session's time zone.
    """

    __slots__ = ("_types", "_values")

    def __init__(self, values: Mapping[str, Any], types: Mapping[str, DataType]) -> None:
        self._values = dict(values)
        self._types = types

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            problem = f"the row has no column '{name}'"
            raise AttributeError(f"{problem}; {nearest(name, self._values)}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.values())

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ResultRow):
            return [*self._values] == [*other._values] and self._equals(other._values)
        if isinstance(other, Mapping):
            return self._values.keys() == other.keys() and self._equals(other)
        if isinstance(other, tuple | list):
            return len(other) == len(self._values) and self._equals(dict(zip(self._values, other, strict=True)))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={show(value)}' for name, value in self._values.items())})"

    def _equals(self, others: Mapping[str, Any]) -> bool:
        return all(
            are_equal(self._values[name], plain_value(value, self._types[name])) for name, value in others.items()
        )


def columns_of(row: ResultRow) -> tuple[str, ...]:
    """Return the names of a row's columns; no attribute of the row, which may have a column of any name."""
    return tuple(row._values)


class ResultRows(Collection[ResultRow]):
    """Rows in a fixed order: by the key, then by the other columns, NULL first.

    With a key, `rows["open", "01:00"]` is the row of that key, where `01:00` is read as the column's type is; without
    one `rows[0]` is the first row. `rows == [...]` takes rows, dicts and tuples, in any order.
    """

    def __init__(self, rows: Iterable[Sequence[Any]], schema: StructType, key: Sequence[str] = ()) -> None:
        self.key = tuple(key)
        self.columns = tuple(schema.names)
        self._types = {field.name: field.dataType for field in schema}
        if other := next((name for name in self.key if name not in self.columns), None):
            problem = f"the key names '{other}', which the result does not have"
            raise ProjectError(code="HR720", what=problem, fix=nearest(other, self.columns))
        first = [self.columns.index(name) for name in self.key]
        values = sorted((tuple(row) for row in rows), key=lambda row: _order(row, first))
        self._rows = [ResultRow(dict(zip(self.columns, row, strict=True)), self._types) for row in values]

    @overload
    def __getitem__(self, index: slice) -> list[ResultRow]: ...

    @overload
    def __getitem__(self, index: Any) -> ResultRow: ...

    def __getitem__(self, index: Any) -> ResultRow | list[ResultRow]:
        if isinstance(index, slice):
            return self._rows[index]
        if not self.key:
            return self._rows[int(index)]
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != len(self.key):
            raise KeyError(f"the key is ({', '.join(self.key)}), and {index!r} has {len(given)} values")
        wanted = [plain_value(value, self._types[name]) for name, value in zip(self.key, given, strict=True)]
        for row in self._rows:
            if all(are_equal(row[name], value) for name, value in zip(self.key, wanted, strict=True)):
                return row
        raise KeyError(f"no row has ({', '.join(self.key)}) = ({', '.join(map(show, wanted))}); there are {self!r}")

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, row: object) -> bool:
        return any(other == row for other in self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Iterable):
            return NotImplemented
        return not differences(other, self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self._rows))}]"

    def _repr_html_(self) -> str:
        return table(self.columns, self._rows)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a DataFrame of pandas, with the names of the columns."""
        import pandas

        return pandas.DataFrame([list(row) for row in self._rows], columns=list(self.columns))

    def first(self, count: int) -> ResultRows:
        """Return the first rows."""
        return self._of_columns([list(row) for row in self._rows[:count]], self.columns)

    def like(self, given: Iterable[Any]) -> ResultRows:
        """Return `given` rows, dicts or tuples as rows of these columns, or of those that all of them have.

        Raises:
            ProjectError: A row has other columns.
        """
        made = [_record(row, self.columns) for row in given]
        names = [name for name in self.columns if not made or any(name in row for row in made)]
        return self._of_columns([[self._value(row, name) for name in names] for row in made], names)

    def _value(self, row: Mapping[str, Any], name: str) -> Any:
        if name not in row:
            problem = f"the expected row {dict(row)!r} has no column '{name}', which other rows have"
            raise ProjectError(code="HR720", what=problem, fix=f"give `{name}` in each row, or in none")
        try:
            return plain_value(row[name], self._types[name])
        except (ValueError, TypeError, ArithmeticError, AttributeError):
            problem = f"{row[name]!r} is not of type {self._types[name].simpleString()} for column '{name}'"
            raise ProjectError(code="HR720", what=problem, fix=f"correct the expected row {dict(row)!r}") from None

    def only(self, columns: Sequence[str]) -> ResultRows:
        """Return the rows with these columns alone."""
        return self._of_columns([[row[name] for name in columns] for row in self._rows], columns)

    def _of_columns(self, rows: Iterable[Sequence[Any]], names: Sequence[str]) -> ResultRows:
        from pyspark.sql.types import StructField, StructType

        schema = StructType([StructField(name, self._types[name]) for name in names])
        return ResultRows(rows, schema, [name for name in self.key if name in names])


class InputRows(NamedTuple):
    """The rows of a source that have the same values as a row of the result in the columns of the same names."""

    shared: Mapping[str, Any]
    rows: Sequence[ResultRow]


@dataclass(frozen=True, kw_only=True)
class RowDifference:
    """A row that is not as expected. expected: None for a row that is one too many; actual: None for a missing one.

    inputs: the rows behind it, by the source's name.
    """

    expected: ResultRow | None
    actual: ResultRow | None
    inputs: Mapping[str, InputRows] = field(default_factory=dict)

    def with_inputs(self, given: Mapping[str, ResultRows], key: Sequence[str]) -> RowDifference:
        """Return the same with the input rows behind it, of the sources that have columns of the key."""
        identity, inputs = self.identity(key), {}
        for name, rows in given.items():
            shared = {column: value for column, value in identity.items() if column in rows.columns}
            if shared:
                alike = [row for row in rows if all(are_equal(row[at], value) for at, value in shared.items())]
                inputs[name] = InputRows(shared, alike)
        return replace(self, inputs=inputs)

    def identity(self, key: Sequence[str]) -> dict[str, Any]:
        """Return the values of the key, or none."""
        row = self.expected or self.actual
        return {name: row[name] for name in key if row is not None and name in columns_of(row)}

    def sides(self, key: Sequence[str]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the expected and the actual values without the key; of two rows only the columns that differ."""
        one, other = self.expected, self.actual
        both = one is not None and other is not None
        names = [name for row in (one or other,) if row is not None for name in columns_of(row) if name not in key]
        if both:
            names = [name for name in names if not are_equal(one[name], other[name])]  # type: ignore[index]
        sides = [None if row is None else {name: row[name] for name in names} for row in (one, other)]
        return sides[0], sides[1]


def differences(expected: Iterable[Any], actual: ResultRows) -> list[RowDifference]:
    """Return where `actual` differs from the rows, dicts or tuples in `expected`; only their columns count.

    Rows of one key are compared with each other; without a key a row is there or it is not.
    """
    wanted = expected if isinstance(expected, ResultRows) else actual.like(expected)
    same_columns = wanted.columns == actual.columns or not (wanted and actual)
    held = actual if same_columns else actual.only(wanted.columns)
    left = list(held)
    lacking = []
    for row in wanted:
        at = next((number for number, other in enumerate(left) if other == row), None)
        if at is None:
            lacking.append(row)
        else:
            del left[at]
    differing = []
    for row in lacking:
        alike = (all(are_equal(row[name], other[name]) for name in wanted.key) for other in left if wanted.key)
        at = next((number for number, is_same in enumerate(alike) if is_same), None)
        differing.append(RowDifference(expected=row, actual=None if at is None else left.pop(at)))
    return [*differing, *(RowDifference(expected=None, actual=row) for row in left)]


def describe(differing: Sequence[RowDifference], most: int = 20) -> str:
    """Return the differences, a line each: `-` what was expected, `+` what there is."""
    lines = []
    for difference in differing[:most]:
        lines += [f"  - {difference.expected!r}"] if difference.expected is not None else []
        lines += [f"  + {difference.actual!r}"] if difference.actual is not None else []
    more = [f"  and {len(differing) - most} more"] if len(differing) > most else []
    return "\n".join([*lines, *more])


def collect_rows(frame: DataFrame, key: Sequence[str] = ()) -> ResultRows:
    """Return the rows of a DataFrame."""
    return ResultRows(local_rows(frame), frame.schema, [name for name in key if name in frame.columns])


def infer_rows(given: Iterable[Any], spark: SparkSession) -> ResultRows:
    """Return rows that a test has read itself, dicts or tuples of equal length, with the types that Spark infers."""
    from pyspark.sql.types import StructType

    rows = list(given)
    if not rows:
        return ResultRows([], StructType())
    if not isinstance(rows[0], Mapping):
        return collect_rows(spark.createDataFrame([tuple(row) for row in rows]))
    names = list(rows[0])
    return collect_rows(spark.createDataFrame([tuple(row[name] for name in names) for row in rows], names))


def local_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows of a DataFrame, their times on the clock of the session's time zone, structs as dicts."""
    from pyspark.sql import functions as F

    columns = [F.col(f"`{field.name}`").cast(without_zone(field.dataType)) for field in frame.schema]
    return [tuple(map(_without_rows, row)) for row in frame.select(*columns).collect()]


def without_zone(kind: DataType) -> DataType:
    """Return the type with TIMESTAMP_NTZ for TIMESTAMP, which Python would move into the machine's time zone."""
    from pyspark.sql import types as T

    if isinstance(kind, T.TimestampType):
        return T.TimestampNTZType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(without_zone(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(without_zone(kind.keyType), without_zone(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(part.name, without_zone(part.dataType), part.nullable) for part in kind])
    return kind


def are_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal; NaN is equal to itself, and floating-point values may differ by rounding."""
    if isinstance(one, float) and isinstance(other, int | float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return bool(one == other)


def show(value: Any) -> str:
    """Return a value as a difference shows it."""
    return f"'{value}'" if isinstance(value, datetime) else repr(value)


def _order(row: Sequence[Any], first: Sequence[int]) -> list[tuple[bool, str, Any]]:
    return [_rank(row[at]) for at in first] + [_rank(value) for value in row]


def _rank(value: Any) -> tuple[bool, str, Any]:
    if isinstance(value, bool | int | float) or value is None:
        rank = -math.inf if value is None or value != value else value
        return (value is not None, "", rank)
    if isinstance(value, str | bytes | datetime):
        return (True, type(value).__name__, value)
    return (True, type(value).__name__, repr(value))


def _without_rows(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return {name: _without_rows(part) for name, part in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [_without_rows(part) for part in value]
    if isinstance(value, dict):
        return {_without_rows(name): _without_rows(part) for name, part in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def _record(row: Any, columns: Sequence[str]) -> dict[str, Any]:
    if isinstance(row, ResultRow):
        return dict(zip(row._values, row, strict=True))
    if isinstance(row, str) or not isinstance(row, Mapping | Sequence):
        row = (row,)
    record = dict(row) if isinstance(row, Mapping) else dict(zip(columns, row, strict=False))
    unknown = next((name for name in record if name not in columns), None)
    if unknown is not None or len(record) != len(row) or not (isinstance(row, Mapping) or len(row) == len(columns)):
        problem = f"the expected row {row!r} has a column '{unknown}' that the result has not"
        if unknown is None:
            problem = f"the expected row {row!r} has {len(row)} values, and the result {len(columns)} columns"
        fix = nearest(str(unknown), columns) if unknown else f"give the values of ({', '.join(columns)})"
        raise ProjectError(code="HR720", what=problem, fix=fix)
    return record
