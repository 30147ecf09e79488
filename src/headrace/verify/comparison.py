"""The comparison of two DataFrames as multisets of rows.

Rows are equal when all columns are, NULL being equal to NULL. Floating-point values depend on the order in which Spark
adds, so rows that differ are looked at again in pairs (by the key, or by all other columns) and are equal within a
relative 1e-9 (FLOAT: 1e-6) or an absolute 1e-12.

Most results are right, and that is seen without bringing equal rows together: two hashes of 64 bits for each row, added
up on each side, are the same for the same rows in whatever order. Only where they differ are rows compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.verify.verdict import Difference

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

MOST = 20
RELATIVE = 1e-9
RELATIVE_FLOAT = 1e-6
ABSOLUTE = 1e-12
# Types whose equal values may have other bits, or that Spark does not hash in a way that is seen through.
_UNHASHED = ("float", "double", "array", "map", "variant")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How two DataFrames compare, with the first differing rows; `executed` is the frame that ran.

    set_aside: how many of the missing rows the sink keeps apart, with a reason for each; they are no differences.
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


def schema_differences(expected: StructType, actual: StructType) -> tuple[str, ...]:
    """What differs in names and types, a sentence's part each; order, nullability and metadata do not count."""
    wanted, found = ({each.name: each.dataType.simpleString() for each in schema} for schema in (expected, actual))
    missing = [f"column '{name}' is missing in the sink" for name in wanted if name not in found]
    extra = [f"the sink has a column '{name}' that the query has not" for name in found if name not in wanted]
    types = [
        f"column '{name}' is {found[name]} in the sink and {wanted[name]} in the query"
        for name in wanted
        if name in found and wanted[name] != found[name]
    ]
    return (*missing, *extra, *types)


def compare(
    expected: DataFrame, actual: DataFrame, key: tuple[str, ...] = (), rejected: DataFrame | None = None
) -> Comparison:
    """Compare two DataFrames whose columns have the same names and types; so has that of the rows set aside."""
    from pyspark.sql import functions as F

    schema = expected.schema
    columns = [f"c{index}" for index in range(len(schema))]
    sides = (_plain(expected, schema), _plain(actual.select(*[f"`{name}`" for name in schema.names]), schema))
    if not any(_holds(field.dataType, *_UNHASHED) for field in schema):
        hashed = _hashed(*sides, schema)
        rows = [tuple(row)[1:] for row in hashed.collect()]
        if not rows or (len(rows) == 2 and rows[0] == rows[1]):
            count = int(rows[0][0]) if rows else 0
            return Comparison(rows_expected=count, rows_actual=count, executed=hashed)
    both = sides[0].select("*", F.lit(1).alias("e"), F.lit(0).alias("a"))
    both = both.union(sides[1].select("*", F.lit(0).alias("e"), F.lit(1).alias("a")))
    groups = both.groupBy(*columns).agg(F.sum("e").alias("e"), F.sum("a").alias("a"))
    lacking, spare = F.greatest(F.col("e") - F.col("a"), F.lit(0)), F.greatest(F.col("a") - F.col("e"), F.lit(0))
    totals = groups.agg(F.sum("e"), F.sum("a"), F.sum(lacking), F.sum(spare))
    rows_expected, rows_actual, missing, unexpected = (int(count or 0) for count in totals.collect()[0])
    if not missing and not unexpected:
        return Comparison(rows_expected=rows_expected, rows_actual=rows_actual, executed=totals)
    excused = 0
    if rejected is not None:
        by = [column for column, name in zip(columns, schema.names, strict=True) if name in key]
        groups = _excused(groups, _plain(rejected.select(*[f"`{name}`" for name in schema.names]), schema), columns, by)
        groups = groups.persist()
        excused = int(groups.agg(F.sum("excused")).collect()[0][0] or 0)
    found, first = _differences(groups, schema, columns, key)
    return Comparison(
        rows_expected=rows_expected,
        rows_actual=rows_actual,
        rejected=excused,
        missing=found["missing"],
        unexpected=found["unexpected"],
        different=found["different"],
        differences=first,
        executed=totals,
    )


def _hashed(expected: DataFrame, actual: DataFrame, schema: StructType) -> DataFrame:
    """For each side that has rows: how many, and the sums of the halves of two hashes of each row."""
    from pyspark.sql import functions as F

    parts = [part for name, field in zip(expected.columns, schema, strict=True) for part in _parts(F.col(name), field)]
    hashes = [F.xxhash64(*parts), F.xxhash64(F.lit(1), *parts)]
    halves = [half for each in hashes for half in (each.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(each, 32))]
    named = [half.alias(f"h{index}") for index, half in enumerate(halves)]
    both = expected.select(F.lit(0).alias("side"), *named).union(actual.select(F.lit(1).alias("side"), *named))
    sums = [F.sum(f"h{index}").alias(f"h{index}") for index in range(len(halves))]
    return both.groupBy("side").agg(F.count("*").alias("rows"), *sums)


def _parts(column: Column, field: StructField) -> Iterator[Column]:
    """What of a column is hashed: a hash passes over NULL, so whether it is NULL goes in as well."""
    from pyspark.sql.types import StructType

    if isinstance(field.dataType, StructType):
        for each in field.dataType:
            yield from _parts(column[each.name], each)
    else:
        yield column
    yield column.isNull()


def _excused(groups: DataFrame, aside: DataFrame, columns: list[str], by: list[str]) -> DataFrame:
    """The groups with the rows that were set aside counted as if the sink held them.

    Where a row replaces that of its key (`by`), the one that it was to replace is left out.
    """
    from pyspark.sql import functions as F

    kept = groups.select(*columns, "e", "a", F.lit(0).cast("long").alias("s"))
    apart = aside.select("*", F.lit(0).alias("e"), F.lit(0).alias("a"), F.lit(1).alias("s"))
    merged = kept.union(apart).groupBy(*columns).agg(*[F.sum(name).alias(name) for name in ("e", "a", "s")])
    lacking = F.greatest(F.col("e") - F.col("a"), F.lit(0))
    merged = merged.withColumn("excused", F.least(lacking, F.col("s"))).withColumn("a", F.col("a") + F.col("excused"))
    if not by:
        return merged
    keys = merged.where("excused > 0").select(*[F.col(name).alias(f"k_{name}") for name in by]).distinct()
    same = [F.col(name).eqNullSafe(F.col(f"k_{name}")) for name in by]
    known = merged.join(keys.withColumn("replaced", F.lit(True)), same, "left")
    least = F.when(F.col("replaced") & (F.col("a") > F.col("e")), F.col("e")).otherwise(F.col("a"))
    return known.select(*columns, "e", least.alias("a"), "excused")


def _differences(
    groups: DataFrame, schema: StructType, columns: list[str], key: tuple[str, ...]
) -> tuple[dict[str, int], tuple[Difference, ...]]:
    """The rows that differ, paired; the counts by kind, and the first of them."""
    from pyspark.sql import functions as F

    rest = groups.where("e <> a").persist()
    try:
        pairs = _paired(rest, schema, columns, key).where("kind <> 'same'").persist()
        try:
            found = {row["kind"]: row["count"] for row in pairs.groupBy("kind").count().collect()}
            first = pairs.orderBy(F.to_json(F.coalesce("expected", "actual"))).limit(MOST).collect()
        finally:
            pairs.unpersist()
    finally:
        rest.unpersist()
    counts = {kind: int(found.get(kind, 0)) for kind in ("missing", "unexpected", "different")}
    return counts, tuple(_difference(row, schema.names, key) for row in first)


def _paired(rest: DataFrame, schema: StructType, columns: list[str], key: tuple[str, ...]) -> DataFrame:
    """Each differing row beside its partner of the other side, with the kind of the difference."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    types = dict(zip(columns, (field.dataType for field in schema), strict=True))
    inexact = [name for name in columns if _holds(types[name], "float", "double")]
    by = [column for column, name in zip(columns, schema.names, strict=True) if name in key and column not in inexact]
    by = by or [name for name in columns if name not in inexact and not _holds(types[name], "map")]
    order = [F.to_json(F.struct(name)) if _holds(types[name], "map") else F.col(name) for name in columns]
    rank = F.row_number().over(Window.partitionBy(*by).orderBy(*order)).alias("rank")

    def side(more: str, less: str, name: str) -> DataFrame:
        times = F.explode(F.sequence(F.lit(1), (F.col(more) - F.col(less)).cast("int")))
        rows = rest.where(f"{more} > {less}").select(*columns, times.alias("copy")).select(*columns, rank)
        return rows.select(
            F.struct(*columns).alias(name), *[F.col(each).alias(f"{name}_{each}") for each in by], "rank"
        )

    left, right = side("e", "a", "expected"), side("a", "e", "actual").withColumnRenamed("rank", "rank_actual")
    match = F.col("rank") == F.col("rank_actual")
    for name in by:
        match = match & F.col(f"expected_{name}").eqNullSafe(F.col(f"actual_{name}"))
    same = F.lit(True)
    for name in columns:
        same = same & _alike(F.col(f"expected.{name}"), F.col(f"actual.{name}"), types[name])
    kind = F.when(F.col("actual").isNull(), "missing").when(F.col("expected").isNull(), "unexpected")
    kind = kind.when(same, "same").otherwise("different")
    return left.join(right, match, "full").select("expected", "actual", kind.alias("kind"))


def _alike(left: Column, right: Column, type_: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType

    if isinstance(type_, FloatType | DoubleType):
        relative = RELATIVE if isinstance(type_, DoubleType) else RELATIVE_FLOAT
        margin = F.greatest(F.lit(relative) * F.greatest(F.abs(left), F.abs(right)), F.lit(ABSOLUTE))
        finite = (F.abs(left) < float("inf")) & (F.abs(right) < float("inf"))
        return left.eqNullSafe(right) | F.coalesce(finite & (F.abs(left - right) <= margin), F.lit(False))
    if not _holds(type_, "float", "double", "map"):
        return left.eqNullSafe(right)
    both_null, both = left.isNull() & right.isNull(), left.isNotNull() & right.isNotNull()
    if isinstance(type_, StructType):
        inner = F.lit(True)
        for field in type_:
            inner = inner & _alike(left[field.name], right[field.name], field.dataType)
        return both_null | (both & inner)
    if isinstance(type_, ArrayType):
        element = type_.elementType
        pairs = F.zip_with(left, right, lambda x, y: _alike(x, y, element))
        return both_null | (both & (F.size(left) == F.size(right)) & F.forall(pairs, lambda x: x))
    assert isinstance(type_, MapType), type_
    return F.to_json(F.map_from_entries(F.array_sort(F.map_entries(left)))).eqNullSafe(
        F.to_json(F.map_from_entries(F.array_sort(F.map_entries(right))))
    )


def _plain(frame: DataFrame, schema: StructType) -> DataFrame:
    """Columns under plain names; what Spark cannot group by, as text."""
    from pyspark.sql import functions as F

    renamed = frame.toDF(*[f"c{index}" for index in range(len(schema))])
    shown = [
        F.to_json(F.struct(name)).alias(name) if _holds(field.dataType, "variant") else F.col(name)
        for name, field in zip(renamed.columns, schema, strict=True)
    ]
    return renamed.select(*shown)


def _holds(type_: DataType, *names: str) -> bool:
    """Whether one of the named types occurs anywhere in a type."""
    text = type_.jsonValue()

    def search(value: Any) -> bool:
        if isinstance(value, dict):
            kind = value.get("type")
            inner = [value.get(part) for part in ("elementType", "keyType", "valueType")]
            inner += [field["type"] for field in value.get("fields", [])]
            return kind in names or any(search(each) for each in inner)
        return value in names

    return search(text)


def _difference(row: Any, names: list[str], key: tuple[str, ...]) -> Difference:
    def named(part: Any) -> dict[str, Any] | None:
        return None if part is None else dict(zip(names, part.asDict(recursive=True).values(), strict=True))

    expected, actual = named(row["expected"]), named(row["actual"])
    either = expected or actual or {}
    return Difference(kind=row["kind"], key={name: either.get(name) for name in key}, expected=expected, actual=actual)
