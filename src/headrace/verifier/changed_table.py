"""The table that a set of changes leaves, computed as a batch: the newest row of each key, or its history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.contract import CHANGE_COLUMN, ChangeOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

_ORDER, _OPERATION, _LIFE, _NEXT, _NEWER = (
    f"__headrace_{name}" for name in ("order", "operation", "life", "next", "newer")
)


def apply_changes(frame: DataFrame, options: ChangeOptions) -> DataFrame:
    """Return what all changes of a batch `frame` leave, in the order of their sequences, however they came.

    A delete or a truncate ends the life of a row; a value that a change leaves out is the last one of the row's life.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    columns = [name for name in frame.columns if name != CHANGE_COLUMN]
    change = F.col(CHANGE_COLUMN)
    # The later offset, then the greater partition.
    order = F.struct(change["sequence"], change["position"]["offset"], change["position"]["partition"])
    changes = frame.where(change["operation"].isin("upsert", "delete", "truncate")).withColumn(_ORDER, order)
    of_keys = changes.where(change["operation"] != "truncate").withColumn(_OPERATION, change["operation"])
    truncates = changes.where(change["operation"] == "truncate").select(_ORDER).distinct()
    keys = [F.col(f"`{name}`") for name in options.keys]
    # A truncate deletes each key that there is.
    empty = [F.lit(None).cast(frame.schema[name].dataType).alias(name) for name in columns if name not in options.keys]
    deletes = of_keys.select(*keys).distinct().crossJoin(truncates)
    ends = deletes.select(*keys, *empty, _ORDER, F.lit("delete").alias(_OPERATION))
    ends = ends.withColumn("__headrace_unavailable", F.array().cast("array<string>"))
    rows = of_keys.withColumn("__headrace_unavailable", change["unavailable"]).drop(CHANGE_COLUMN).unionByName(ends)
    by_key = Window.partitionBy(*keys)
    # Of changes with one sequence the newest alone holds.
    newer = F.lead(F.col(_ORDER)["sequence"]).over(by_key.orderBy(_ORDER))
    rows = rows.withColumn(_NEWER, newer)
    rows = rows.withColumn(_LIFE, F.count_if(F.col(_OPERATION) == "delete").over(by_key.orderBy(_ORDER)))
    life = Window.partitionBy(*keys, _LIFE).orderBy(_ORDER)
    values = {name: _fill(name, options, life) for name in columns if name not in options.keys}
    rows = rows.select(*keys, *[value.alias(name) for name, value in values.items()], _ORDER, _OPERATION, _LIFE, _NEWER)
    if options.scd_type == 1:
        newest = rows.where(F.col(_NEWER).isNull() & (F.col(_OPERATION) == "upsert"))
        return newest.select(*[f"`{name}`" for name in columns])
    return _history(rows.where(~F.col(_NEWER).eqNullSafe(F.col(_ORDER)["sequence"])), columns, options)


def _fill(name: str, options: ChangeOptions, life: WindowSpec) -> Column:
    """Return a column, in which what a change has left out is the row's last value."""
    from pyspark.sql import functions as F

    # What a delete says of the row before it is not a value of the next one.
    value = F.when(F.col(_OPERATION) == "upsert", F.col(f"`{name}`"))
    is_left_out = F.array_contains("__headrace_unavailable", name)
    if options.ignore_null_updates:
        is_left_out = is_left_out | (value.isNull() & (F.col(_OPERATION) == "upsert"))
    return F.last(F.when(~is_left_out, F.struct(value.alias("value"))), ignorenulls=True).over(life)["value"]


def _history(rows: DataFrame, columns: list[str], options: ChangeOptions) -> DataFrame:
    """Return the rows that held, each with the sequences from and to which it did."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_key = Window.partitionBy(*[F.col(f"`{name}`") for name in options.keys]).orderBy(_ORDER)
    sequence = F.col(_ORDER)["sequence"]
    tracked = _together(options.tracked_columns(columns))
    same = F.lag(tracked).over(by_key).eqNullSafe(tracked) & (F.lag(_OPERATION).over(by_key) == "upsert")
    begins = ~F.coalesce(same & (F.col(_OPERATION) == "upsert"), F.lit(False))
    rows = rows.withColumn("__headrace_begins", begins)
    rows = rows.withColumn("__headrace_interval", F.count_if("__headrace_begins").over(by_key))
    interval = Window.partitionBy(*[F.col(f"`{name}`") for name in options.keys], "__headrace_interval").orderBy(_ORDER)
    rows = rows.withColumn(_NEXT, F.lead("__headrace_interval").over(by_key))
    rows = rows.withColumn("__headrace_from", F.first(sequence).over(interval))
    rows = rows.withColumn("__headrace_to", F.lead(sequence).over(by_key))
    last = rows.where((F.col(_OPERATION) == "upsert") & ~F.col(_NEXT).eqNullSafe(F.col("__headrace_interval")))
    return last.select(
        *[f"`{name}`" for name in columns],
        F.col("__headrace_from").alias(options.start_column),
        F.col("__headrace_to").alias(options.end_column),
    )


def _together(names: Iterable[str]) -> Column:
    from pyspark.sql import functions as F

    return F.struct(F.lit(True).alias("is_there"), *[F.col(f"`{name}`") for name in names])
