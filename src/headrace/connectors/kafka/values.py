"""The values of Kafka's messages decoded to columns, and those that do not decode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

CORRUPT = "_headrace_corrupt_record"
_BAD = "_headrace_bad"
_VALUE = "_headrace_value"
# What spark/failures.py knows the message of a refused value by.
MARK = "HEADRACE_UNDECODABLE"


def decode(
    frame: DataFrame, value: str, schema: str | None, *, keep: Sequence[str] = (), besides: Sequence[str] = ()
) -> DataFrame:
    """The kept columns, those of the value and `besides`; and last, for `rejected` or `refuse`, where a bad one is."""
    decoded = _decoded(frame, value, schema)
    names = _names(decoded)
    columns = [F.col(f"{_VALUE}.`{name}`") for name in names] if value != "text" else [F.col(_VALUE).alias("value")]
    others = [F.col(f"`{name}`") for name in besides]
    return decoded.select(*keep, *columns, *others, _at(value, schema, names).alias(_BAD))


def rejected(decoded: DataFrame, metric: str) -> DataFrame:
    """Count the messages that do not decode under `metric`, and let the others pass."""
    bad = F.col(_BAD).isNotNull()
    unreadable = F.count_if(bad).alias("unreadable")
    counted = decoded.observe(metric, F.count_if(bad).alias("rows"), unreadable)
    return counted.where(F.col(_BAD).isNull()).drop(_BAD)


def refuse(decoded: DataFrame) -> DataFrame:
    """Fail at the first message that does not decode, with its place."""
    fails = F.raise_error(F.concat(F.lit(f"{MARK} "), F.col(_BAD))).cast("boolean")
    return decoded.where(F.when(F.col(_BAD).isNotNull(), fails).otherwise(F.lit(True))).drop(_BAD)


def undecodable(frame: DataFrame, value: str, schema: str | None) -> DataFrame:
    """The messages that do not decode: (file, record, batch)."""
    decoded = _decoded(frame, value, schema)
    record = F.col("value").cast("string").alias("record")
    return decoded.where(_at(value, schema, _names(decoded)).isNotNull()).select(place().alias("file"), record, "batch")


def _decoded(frame: DataFrame, value: str, schema: str | None) -> DataFrame:
    text = F.col("value").cast("string")
    if value == "text":
        return frame.withColumn(_VALUE, text)
    if value == "avro":
        from pyspark.sql.avro.functions import from_avro

        return frame.withColumn(_VALUE, from_avro("value", schema or "", {"mode": "PERMISSIVE"}))
    shape = cast(StructType, StructType.fromDDL(schema or "")).add(CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return frame.withColumn(_VALUE, F.from_json(text, shape, options))


def _names(decoded: DataFrame) -> list[str]:
    return [name for name in getattr(decoded.schema[_VALUE].dataType, "names", []) if name != CORRUPT]


def place() -> Column:
    """Where a message lies: topic/partition/offset."""
    return F.concat_ws("/", "topic", "partition", "offset")


def _at(value: str, schema: str | None, names: Sequence[str]) -> Column:
    """The place of a message whose value does not decode, else NULL. One without a value has nothing to decode."""
    bad = F.lit(False)
    if value == "json":
        bad = F.col(_VALUE).isNull() | F.col(f"{_VALUE}.{CORRUPT}").isNotNull()
    elif value == "avro":
        bad = _bad_avro(schema or "", names)
    return F.when(F.col("value").isNotNull() & bad, place())


def _bad_avro(schema: str, names: Sequence[str]) -> Column:
    """Spark gives a row of NULLs for bytes that are no such record; such a record itself is the same bytes again."""
    from pyspark.sql.avro.functions import to_avro

    empty = F.col(_VALUE).isNull()
    if not names:
        return empty
    nulls = reduce(and_, [F.col(f"{_VALUE}.`{name}`").isNull() for name in names])
    types = [each["type"] for each in json.loads(schema)["fields"]]
    if not all(isinstance(each, list) and "null" in each for each in types):
        return empty | nulls
    return empty | (nulls & ~to_avro(F.col(_VALUE), schema).eqNullSafe(F.col("value")))
