"""Which input rows, and which batch, a differing row of the result goes back to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.spark.plans.provenance import SHARES, trace
from headrace.verifier.answer import BatchAnswer
from headrace.verifier.comparison import holds
from headrace.verifier.verdict import Difference, InputRow

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

_NUMBER = "__headrace_difference"


def identifying(schema: StructType, key: Sequence[str]) -> list[str]:
    """The columns by which a row is found again: the key's, or all; without those whose equal values may differ."""
    exact = [field.name for field in schema if not holds(field.dataType, "float", "double", "map", "variant")]
    return [name for name in exact if name in key] or exact


def explained(
    spark: SparkSession, asked: BatchAnswer, key: Sequence[str], differences: Sequence[Difference]
) -> tuple[Difference, ...]:
    """The differences with the input rows that fed the row of their key; `asked` is over a named and traced prefix.

    Raises UntraceableError where an operator cannot take up from which rows its rows come.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    schema = asked.frame.schema
    by = identifying(schema, key)
    frame, fed = trace(spark, asked.frame)
    wanted = [
        (at, *[(each.expected or each.actual or {}).get(name) for name in by]) for at, each in enumerate(differences)
    ]
    names = {name: f"{_NUMBER}_{at}" for at, name in enumerate(by)}
    shape = [StructField(_NUMBER, LongType()), *[StructField(names[name], schema[name].dataType) for name in by]]
    keys = spark.createDataFrame(wanted, StructType(shape))
    found: dict[int, set[tuple[Any, ...]]] = defaultdict(set)
    pairs = [(F.col(f"`{name}`"), F.col(other)) for name, other in names.items()]
    rows = frame.join(F.broadcast(keys), same(pairs, by_function=asked.by_function))
    for number, *columns in rows.select(_NUMBER, *fed).collect():
        found[number].update(tuple(each) for each in columns if each is not None)
    return tuple(replace(each, fed_by=tuple(_listed(found[at]))) for at, each in enumerate(differences))


def same(pairs: Iterable[tuple[Column, Column]], *, by_function: bool) -> Column:
    """The condition that the columns of a traced answer, named first, are equal to others.

    by_function: what only a state function computes is NULL there, and counts as equal.
    """
    from pyspark.sql import functions as F

    equal, known = F.lit(True), F.lit(False)
    for column, other in pairs:
        alike = column.eqNullSafe(other)
        equal, known = equal & (alike | column.isNull() if by_function else alike), known | column.isNotNull()
    return equal & known if by_function else equal


def _listed(rows: set[tuple[Any, ...]]) -> list[InputRow]:
    """The rows of each source, the newest first, a handful of each."""
    newest = sorted(rows, key=lambda row: (row[0], row[1], row[4]), reverse=True)
    taken: dict[str, int] = defaultdict(int)
    listed = []
    for batch, source, file, line, _ in newest:
        taken[source] += 1
        if taken[source] <= SHARES:
            listed.append(InputRow(source=source, batch=batch, file=file, row=line))
    return listed
