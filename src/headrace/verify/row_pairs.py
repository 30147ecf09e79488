"""The rows that only one side of a comparison holds, each beside its partner of the other side.

Floating-point values depend on the order in which Spark adds, so that a pair is equal within a relative 1e-9 (FLOAT:
1e-6) or an absolute 1e-12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.verify.verdict import Difference

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

MOST = 20
RELATIVE = 1e-9
RELATIVE_FLOAT = 1e-6
ABSOLUTE = 1e-12
# The columns that say how often each side holds a row.
EXPECTED, ACTUAL = "times_expected", "times_actual"


def differences(
    rest: DataFrame, schema: StructType, columns: Sequence[str], key: tuple[str, ...], *, most: int
) -> tuple[dict[str, int], tuple[Difference, ...]]:
    """How many rows of `rest` differ, by the kind of their difference, and the first of them.

    `columns` are the names of the columns of `schema` in `rest`, which holds each row once with EXPECTED and ACTUAL; it
    is read twice. most: how many rows there are at most on both sides, the copies of one counted each.
    """
    from pyspark.sql import functions as F

    pairs = _paired(rest, schema, columns, key).where("kind <> 'same'")
    ordered = pairs.orderBy(F.to_json(F.coalesce("expected", "actual"))).limit(MOST)
    if most <= MOST:
        first = ordered.collect()
        found = Counter(row["kind"] for row in first)
    else:
        pairs = pairs.persist()
        try:
            found = Counter({row["kind"]: row["count"] for row in pairs.groupBy("kind").count().collect()})
            first = ordered.collect()
        finally:
            pairs.unpersist()
    counts = {kind: int(found[kind]) for kind in ("missing", "unexpected", "different")}
    return counts, tuple(_difference(row, schema.names, key) for row in first)


def _paired(rest: DataFrame, schema: StructType, columns: Sequence[str], key: tuple[str, ...]) -> DataFrame:
    """Each differing row beside its partner of the other side, with the kind of the difference."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    types = dict(zip(columns, (field.dataType for field in schema), strict=True))
    inexact = [name for name in columns if holds(types[name], "float", "double")]
    by = [column for column, name in zip(columns, schema.names, strict=True) if name in key and column not in inexact]
    by = by or [name for name in columns if name not in inexact and not holds(types[name], "map")]
    order = [F.to_json(F.struct(name)) if holds(types[name], "map") else F.col(name) for name in columns]
    rank = F.row_number().over(Window.partitionBy(*by).orderBy(*order)).alias("rank")

    def side(more: str, less: str, name: str) -> DataFrame:
        """The rows that one side holds more often, as many times as that, numbered among those of their key."""
        times = F.explode(F.sequence(F.lit(1), (F.col(more) - F.col(less)).cast("int")))
        rows = rest.where(f"{more} > {less}").select(*columns, times.alias("copy")).select(*columns, rank)
        return rows.select(
            F.struct(*columns).alias(name), *[F.col(each).alias(f"{name}_{each}") for each in by], "rank"
        )

    left = side(EXPECTED, ACTUAL, "expected")
    right = side(ACTUAL, EXPECTED, "actual").withColumnRenamed("rank", "rank_actual")
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
    """Whether two values are equal, within the margins where they hold floating-point numbers."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType

    if isinstance(type_, FloatType | DoubleType):
        relative = RELATIVE if isinstance(type_, DoubleType) else RELATIVE_FLOAT
        margin = F.greatest(F.lit(relative) * F.greatest(F.abs(left), F.abs(right)), F.lit(ABSOLUTE))
        finite = (F.abs(left) < float("inf")) & (F.abs(right) < float("inf"))
        return left.eqNullSafe(right) | F.coalesce(finite & (F.abs(left - right) <= margin), F.lit(False))
    if not holds(type_, "float", "double", "map"):
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


def holds(type_: DataType, *names: str) -> bool:
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
