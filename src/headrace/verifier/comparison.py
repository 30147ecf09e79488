"""The comparison of two DataFrames as multisets of rows.

Rows are equal when all columns are, NULL being equal to NULL. Floating-point values depend on the order in which Spark
adds, so rows that differ are looked at again in pairs, by the key or by all other columns.

Most results are right, and that is seen without bringing equal rows together: two hashes of 64 bits for each row, added
up on each side, are the same for the same rows in whatever order. Only where they differ are rows compared one by one.

Floating-point values depend on the order in which Spark adds, so that a pair is equal within a relative 1e-9 (FLOAT:
1e-6) or an absolute 1e-12.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from headrace.spark.plans.plan_text import metric, metrics_of
from headrace.verifier.verdict import Difference

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

    from headrace.contract import Snapshot

_REJECTED, _EXCUSED = "times_rejected", "times_excused"
# The metric that a comparison observes.
_TOTALS = "headrace_totals"
# Types whose equal values may have other bits, or that Spark does not hash in a way that is seen through.
_UNHASHED = ("float", "double", "array", "map", "variant")
# Where Spark's metadata of a column has the collations of its texts.
_COLLATIONS = "__COLLATIONS"
MOST = 20
RELATIVE = 1e-9
RELATIVE_FLOAT = 1e-6
ABSOLUTE = 1e-12
# The columns that say how often each side holds a row.
EXPECTED, ACTUAL = "times_expected", "times_actual"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How two DataFrames compare, with the first differing rows; `executed` is the frame that ran.

    rejected: how many of the missing rows the sink keeps apart, with a reason for each; they are not differences.
    """

    rows_expected: int
    rows_actual: int
    rejected: int = 0
    missing: int = 0
    unexpected: int = 0
    different: int = 0
    differences: tuple[Difference, ...] = ()
    executed: DataFrame

    @property
    def equal(self) -> bool:
        """Whether both hold the same rows."""
        return not (self.missing or self.unexpected or self.different)

    def sum_observed(self, kind: str, column: int = 0) -> int:
        """Return the sum of the observed metrics whose names begin with `kind`."""
        names = [name for name in metrics_of(self.executed) if name.startswith(kind)]
        return sum(metric(self.executed, name, column) for name in names)


def schema_differences(expected: StructType, actual: StructType) -> tuple[str, ...]:
    """Return what differs in names and types, a sentence's part each; order, nullability and metadata do not count."""
    wanted, held = ({field.name: field.dataType.simpleString() for field in schema} for schema in (expected, actual))
    missing = [f"column '{name}' is missing in the sink" for name in wanted if name not in held]
    extra = [f"the sink has a column '{name}' that the query has not" for name in held if name not in wanted]
    types = [
        f"column '{name}' is {held[name]} in the sink and {wanted[name]} in the query"
        for name in wanted
        if name in held and wanted[name] != held[name]
    ]
    return (*missing, *extra, *types)


def compare(
    expected: DataFrame, actual: DataFrame, key: tuple[str, ...] = (), rejected: DataFrame | None = None
) -> Comparison:
    """Compare two DataFrames whose columns have the same names and types; so has that of the rejected rows."""
    schema = expected.schema
    wanted, held = _with_plain_names(expected, schema), _with_plain_names(actual, schema)
    if not any(holds_type(field.dataType, *_UNHASHED) for field in schema):
        hashed = _hash_sides(wanted, held, schema)
        sides = [tuple(row)[1:] for row in hashed.collect()]
        if not sides or (len(sides) == 2 and sides[0] == sides[1]):
            count = int(sides[0][0]) if sides else 0
            return Comparison(rows_expected=count, rows_actual=count, executed=hashed)
    # Both inputs are read once for the totals and for the rows that differ.
    with _persist(_differing_rows(_observe_totals(_count_rows({EXPECTED: wanted, ACTUAL: held})))) as rest:
        looked = rest.groupBy().count()
        looked.collect()
        rows_expected, rows_actual, missing, unexpected = (metric(looked, _TOTALS, column) for column in range(4))
        totals = Comparison(rows_expected=rows_expected, rows_actual=rows_actual, executed=looked)
        if not missing and not unexpected:
            return totals
        if rejected is None:
            counts, first = find_differences(rest, schema, wanted.columns, key, most=missing + unexpected)
            return replace(totals, **counts, differences=first)
    with _persist(_without_rejected({EXPECTED: wanted, ACTUAL: held}, rejected, schema, key)) as counted:
        (excused,) = counted.agg({_EXCUSED: "sum"}).collect()[0]
        counts, first = find_differences(
            _differing_rows(counted), schema, wanted.columns, key, most=missing + unexpected
        )
    return replace(totals, rejected=int(excused or 0), **counts, differences=first)


def _without_rejected(
    sides: Mapping[str, DataFrame], rejected: DataFrame, schema: StructType, key: Sequence[str]
) -> DataFrame:
    """Return the counted rows with the rejected ones counted as if the sink held them, and how many in _EXCUSED.

    Where a row replaces that of its key, the row that it should have replaced is left out.
    """
    from pyspark.sql import functions as F

    columns = sides[EXPECTED].columns
    by = [column for column, name in zip(columns, schema.names, strict=True) if name in key]
    counted = _count_rows({**sides, _REJECTED: _with_plain_names(rejected, schema)})
    lacking = F.greatest(F.col(EXPECTED) - F.col(ACTUAL), F.lit(0))
    counted = counted.withColumn(_EXCUSED, F.least(lacking, F.col(_REJECTED)))
    counted = counted.withColumn(ACTUAL, F.col(ACTUAL) + F.col(_EXCUSED))
    if not by:
        return counted
    keys = counted.where(f"{_EXCUSED} > 0").select(*[F.col(name).alias(f"key_{name}") for name in by]).distinct()
    same_key = [F.col(name).eqNullSafe(F.col(f"key_{name}")) for name in by]
    marked = counted.join(keys.withColumn("replaced", F.lit(True)), same_key, "left")
    spare = F.col("replaced") & (F.col(ACTUAL) > F.col(EXPECTED))
    held = F.when(spare, F.col(EXPECTED)).otherwise(F.col(ACTUAL))
    return marked.select(*columns, EXPECTED, held.alias(ACTUAL), _EXCUSED)


@contextmanager
def find_corrections(expected: DataFrame, held: Snapshot) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Yield the rows of `expected` to be written into a sink that has a key, and the keys of the rows to be deleted."""
    schema, key = expected.schema, list(held.key)
    wanted = _with_plain_names(expected, schema)
    sides = {EXPECTED: wanted, ACTUAL: _with_plain_names(held.rows, schema)}
    counted = _count_rows(sides) if held.rejected is None else _without_rejected(sides, held.rejected, schema, key)
    quoted = [f"`{name}`" for name in key]
    with _persist(
        _pair_rows(_differing_rows(counted), schema, wanted.columns, held.key).where("kind <> 'same'")
    ) as pairs:
        rows = pairs.where("expected IS NOT NULL").select("expected.*").toDF(*schema.names)
        there = pairs.where("actual IS NOT NULL").select("actual.*").toDF(*schema.names)
        yield rows, there.select(*quoted).subtract(rows.select(*quoted))


@contextmanager
def _persist(frame: DataFrame) -> Iterator[DataFrame]:
    frame = frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def _hash_sides(expected: DataFrame, actual: DataFrame, schema: StructType) -> DataFrame:
    """Return, for each side that has rows, their count and the sums of the halves of two hashes of each row."""
    from pyspark.sql import functions as F

    parts = [
        part for name, field in zip(expected.columns, schema, strict=True) for part in _hashed_parts(F.col(name), field)
    ]
    hashes = [F.xxhash64(*parts), F.xxhash64(F.lit(1), *parts)]
    halves = [
        half for whole in hashes for half in (whole.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(whole, 32))
    ]
    named = [half.alias(f"h{index}") for index, half in enumerate(halves)]
    both = expected.select(F.lit(0).alias("side"), *named).union(actual.select(F.lit(1).alias("side"), *named))
    sums = [F.sum(f"h{index}").alias(f"h{index}") for index in range(len(halves))]
    return both.groupBy("side").agg(F.count("*").alias("rows"), *sums)


def _hashed_parts(column: Column, field: StructField) -> Iterator[Column]:
    """Yield the parts of a column that are hashed: a hash ignores NULL, so whether it is NULL is a part."""
    from pyspark.sql.types import StructType

    if isinstance(field.dataType, StructType):
        for inner in field.dataType:
            yield from _hashed_parts(column[inner.name], inner)
    else:
        yield column
    yield column.isNull()


def _count_rows(sides: Mapping[str, DataFrame]) -> DataFrame:
    """Return each row once, with how often each side holds it, in the column of the side's name."""
    from pyspark.sql import functions as F

    columns = next(iter(sides.values())).columns
    marked = [
        frame.select(*columns, *[F.lit(1 if name == side else 0).alias(name) for name in sides])
        for side, frame in sides.items()
    ]
    return (
        reduce(lambda left, right: left.union(right), marked)
        .groupBy(*columns)
        .agg(*[F.sum(name).alias(name) for name in sides])
    )


def _observe_totals(counted: DataFrame) -> DataFrame:
    """Return the counted rows, observing how many each side holds and how many the other side lacks."""
    from pyspark.sql import functions as F

    missing = F.greatest(F.col(EXPECTED) - F.col(ACTUAL), F.lit(0))
    unexpected = F.greatest(F.col(ACTUAL) - F.col(EXPECTED), F.lit(0))
    totals = (F.col(EXPECTED), F.col(ACTUAL), missing, unexpected)
    return counted.observe(_TOTALS, *[F.sum(column).alias(f"total{index}") for index, column in enumerate(totals)])


def _differing_rows(counted: DataFrame) -> DataFrame:
    """Return the rows that one side holds more often than the other."""
    return counted.where(f"{EXPECTED} <> {ACTUAL}")


def _with_plain_names(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return columns under plain names, in the order of `schema`; what Spark cannot group by, as text.

    A collation takes different texts for equal: they get one that goes by their bytes.
    """
    from pyspark.sql import functions as F

    ordered = frame.select(*[f"`{name}`" for name in schema.names])
    renamed = ordered.toDF(*[f"c{index}" for index in range(len(schema))])
    shown = []
    for name, field in zip(renamed.columns, schema, strict=True):
        column, plain = F.col(name), _without_collation(field)
        if holds_type(field.dataType, "variant"):
            column = F.to_json(F.struct(name)).alias(name)
        elif plain != field.dataType:
            column = column.cast(plain).alias(name)
        shown.append(column)
    return renamed.select(*shown)


def _without_collation(field: StructField) -> DataType:
    from pyspark.sql.types import StructField

    def leave_out(part: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name != _COLLATIONS}

    return StructField.fromJson(json.loads(field.json(), object_hook=leave_out)).dataType


def find_differences(
    rest: DataFrame, schema: StructType, columns: Sequence[str], key: tuple[str, ...], *, most: int
) -> tuple[dict[str, Any], tuple[Difference, ...]]:
    """Return how many rows of `rest` differ, by the kind of their difference, and the first of them.

    `columns` are the names of the columns of `schema` in `rest`, which holds each row once with EXPECTED and ACTUAL; it
    is read twice. most: how many rows there are at most on both sides, the copies of one counted each.
    """
    from pyspark.sql import functions as F

    pairs = _pair_rows(rest, schema, columns, key).where("kind <> 'same'")
    ordered = pairs.orderBy(F.to_json(F.coalesce("expected", "actual"))).limit(MOST)
    if most <= MOST:
        first = ordered.collect()
        kinds = Counter(row["kind"] for row in first)
    else:
        with _persist(pairs):
            kinds = Counter({row["kind"]: row["count"] for row in pairs.groupBy("kind").count().collect()})
            first = ordered.collect()
    counts = {kind: int(kinds[kind]) for kind in ("missing", "unexpected", "different")}
    return counts, tuple(_difference(row, schema.names, key) for row in first)


def _pair_rows(rest: DataFrame, schema: StructType, columns: Sequence[str], key: tuple[str, ...]) -> DataFrame:
    """Return each differing row with its partner of the other side and the kind of the difference."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    types = dict(zip(columns, (field.dataType for field in schema), strict=True))
    inexact = [name for name in columns if holds_type(types[name], "float", "double")]
    by = [column for column, name in zip(columns, schema.names, strict=True) if name in key and column not in inexact]
    by = by or [name for name in columns if name not in inexact and not holds_type(types[name], "map")]
    order = [F.to_json(F.struct(name)) if holds_type(types[name], "map") else F.col(name) for name in columns]
    rank = F.row_number().over(Window.partitionBy(*by).orderBy(*order)).alias("rank")

    def side(more: str, less: str, name: str) -> DataFrame:
        """Return the rows that one side holds more often, as many times, numbered among those of their key."""
        times = F.explode(F.sequence(F.lit(1), (F.col(more) - F.col(less)).cast("int")))
        rows = rest.where(f"{more} > {less}").select(*columns, times.alias("copy")).select(*columns, rank)
        return rows.select(
            F.struct(*columns).alias(name), *[F.col(by_column).alias(f"{name}_{by_column}") for by_column in by], "rank"
        )

    left = side(EXPECTED, ACTUAL, "expected")
    right = side(ACTUAL, EXPECTED, "actual").withColumnRenamed("rank", "rank_actual")
    match = [F.col("rank") == F.col("rank_actual")]
    match += [F.col(f"expected_{name}").eqNullSafe(F.col(f"actual_{name}")) for name in by]
    same = _all_of(_are_alike(F.col(f"expected.{name}"), F.col(f"actual.{name}"), types[name]) for name in columns)
    kind = F.when(F.col("actual").isNull(), "missing").when(F.col("expected").isNull(), "unexpected")
    kind = kind.when(same, "same").otherwise("different")
    return left.join(right, match, "full").select("expected", "actual", kind.alias("kind"))


def _all_of(conditions: Iterable[Column]) -> Column:
    from pyspark.sql import functions as F

    return reduce(and_, conditions, F.lit(True))


def _are_alike(left: Column, right: Column, type_: DataType) -> Column:
    """Whether two values are equal, within the margins where they hold floating-point numbers."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType

    if isinstance(type_, FloatType | DoubleType):
        relative = RELATIVE if isinstance(type_, DoubleType) else RELATIVE_FLOAT
        margin = F.greatest(F.lit(relative) * F.greatest(F.abs(left), F.abs(right)), F.lit(ABSOLUTE))
        finite = (F.abs(left) < float("inf")) & (F.abs(right) < float("inf"))
        return left.eqNullSafe(right) | F.coalesce(finite & (F.abs(left - right) <= margin), F.lit(False))
    if not holds_type(type_, "float", "double", "map"):
        return left.eqNullSafe(right)
    both_null, both = left.isNull() & right.isNull(), left.isNotNull() & right.isNotNull()
    if isinstance(type_, StructType):
        inner = _all_of(_are_alike(left[field.name], right[field.name], field.dataType) for field in type_)
        return both_null | (both & inner)
    if isinstance(type_, ArrayType):
        element = type_.elementType
        pairs = F.zip_with(left, right, lambda x, y: _are_alike(x, y, element))
        return both_null | (both & (F.size(left) == F.size(right)) & F.forall(pairs, lambda x: x))
    assert isinstance(type_, MapType), type_
    one, other = (F.to_json(F.map_from_entries(F.array_sort(F.map_entries(side)))) for side in (left, right))
    return one.eqNullSafe(other)


def holds_type(type_: DataType, *names: str) -> bool:
    """Whether one of the named types occurs anywhere in a type."""
    text = type_.jsonValue()

    def search(value: Any) -> bool:
        if isinstance(value, dict):
            kind = value.get("type")
            inner = [value.get(part) for part in ("elementType", "keyType", "valueType")]
            inner += [field["type"] for field in value.get("fields", [])]
            return kind in names or any(search(part_type) for part_type in inner)
        return value in names

    return search(text)


def _difference(row: Any, names: list[str], key: tuple[str, ...]) -> Difference:
    def name_values(part: Any) -> dict[str, Any] | None:
        return None if part is None else dict(zip(names, part.asDict(recursive=True).values(), strict=True))

    expected, actual = name_values(row["expected"]), name_values(row["actual"])
    either = expected or actual or {}
    return Difference(kind=row["kind"], key={name: either.get(name) for name in key}, expected=expected, actual=actual)
