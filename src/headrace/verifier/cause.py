"""The input rows, and the batch, from which a differing row of the result was made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.spark.plans.provenance import SHARES, trace
from headrace.verifier.answer import BatchQuery
from headrace.verifier.comparison import holds_type
from headrace.verifier.verdict import Difference, InputRow

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_NUMBER = "__headrace_difference"


def identifying_columns(schema: StructType, key: Sequence[str]) -> list[str]:
    """Return the columns that identify a row: the key's, or all; without those whose equal values may differ."""
    exact = [field.name for field in schema if not holds_type(field.dataType, "float", "double", "map", "variant")]
    return [name for name in exact if name in key] or exact


def explain(batch_query: BatchQuery, differences: Sequence[Difference]) -> tuple[Difference, ...]:
    """Return the differences with the input rows from which the row of their key was made.

    Raises UntraceableError where an operator cannot carry the origin of its rows.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    spark = batch_query.spark
    answer = batch_query.over(replace(batch_query.prefix, named=True, traced=True)).answer()
    schema = answer.frame.schema
    by = identifying_columns(schema, batch_query.key)
    frame, origins = trace(spark, answer.frame)
    wanted = [
        (at, *[(difference.expected or difference.actual or {}).get(name) for name in by])
        for at, difference in enumerate(differences)
    ]
    names = {name: f"{_NUMBER}_{at}" for at, name in enumerate(by)}
    shape = [StructField(_NUMBER, LongType()), *[StructField(names[name], schema[name].dataType) for name in by]]
    keys = spark.createDataFrame(wanted, StructType(shape))
    input_rows: dict[int, set[tuple[Any, ...]]] = defaultdict(set)
    pairs = [(F.col(f"`{name}`"), F.col(other)) for name, other in names.items()]
    rows = frame.join(F.broadcast(keys), are_equal(pairs, by_function=answer.by_function))
    for number, *columns in rows.select(_NUMBER, *origins).collect():
        input_rows[number].update(tuple(origin) for origin in columns if origin is not None)
    return tuple(
        replace(difference, fed_by=tuple(_newest_rows(input_rows[at]))) for at, difference in enumerate(differences)
    )


def are_equal(pairs: Iterable[tuple[Column, Column]], *, by_function: bool) -> Column:
    """Return the condition that the columns of a traced answer, the first of each pair, equal the others.

    by_function: what only a state function computes is NULL in that answer, and counts as equal.
    """
    from pyspark.sql import functions as F

    equal, is_computed = F.lit(True), F.lit(False)
    for column, other in pairs:
        alike = column.eqNullSafe(other)
        equal &= alike | column.isNull() if by_function else alike
        is_computed |= column.isNotNull()
    return equal & is_computed if by_function else equal


def _newest_rows(rows: set[tuple[Any, ...]]) -> list[InputRow]:
    """Return the newest rows of each source, a handful of each."""
    newest = sorted(rows, key=lambda row: (row[0], row[1], row[4]), reverse=True)
    taken: dict[str, int] = defaultdict(int)
    listed = []
    for batch, source, file, line, _ in newest:
        taken[source] += 1
        if taken[source] <= SHARES:
            listed.append(InputRow(source=source, batch=batch, file=file, row=line))
    return listed
