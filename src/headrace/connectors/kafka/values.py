"""The values of Kafka's messages decoded to columns, and those that do not decode."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.connectors.kafka.debezium import decode_changes
from headrace.connectors.values.exact import Judged
from headrace.connectors.values.json_rows import read_json
from headrace.connectors.values.rules import CORRUPT_RECORD, PLACE, RECORD, TextRules

_VALUE = "_headrace_value"


def decode(
    frame: DataFrame,
    value: str,
    schema: str | None,
    *,
    exact: bool = True,
    keep: Sequence[str] = (),
    besides: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    keys: Sequence[str] = (),
    one_table: bool = True,
) -> Judged:
    """The kept columns, those of the value and `besides`, to be judged: the place of a message is in PLACE.

    Args:
        exact: Whether a value of JSON that its type does not hold exactly is bad.
        settings: Debezium's, by its names.
        keys: The columns that the key of a message of Debezium's must have; none: any.
        one_table: Whether all messages of Debezium's are of one table.
    """
    rules = TextRules(format=value, is_exact=exact, has_bytes=True)
    frame = frame.withColumn(PLACE, place())
    kept = [*keep, *besides, PLACE]
    shape = cast(StructType, StructType.fromDDL(schema or "")) if value in ("json", "debezium") else StructType()
    if value == "debezium":
        return decode_changes(frame, shape, settings or {}, keys, exact=exact, keep=kept, one_table=one_table)
    if value == "json":
        return Judged(rules, read_json(frame, F.col("value"), shape, rules, keep=kept), shape, (*keep, *besides))
    text = F.col("value").cast("string")
    bad, columns = F.lit(False), [text.alias("value")]
    if value == "avro":
        from pyspark.sql.avro.functions import from_avro

        frame = frame.withColumn(_VALUE, from_avro("value", schema or "", {"mode": "PERMISSIVE"}))
        names = list(getattr(frame.schema[_VALUE].dataType, "names", []))
        bad = _bad_avro(schema or "", names)
        columns = [F.col(f"{_VALUE}.`{name}`") for name in names]
    corrupt = F.when(F.col("value").isNotNull() & bad, text).alias(CORRUPT_RECORD)
    others = [F.col(f"`{name}`") for name in kept]
    return Judged(rules, frame.select(*columns, *others, corrupt, text.alias(RECORD)), None, (*keep, *besides))


def place() -> Column:
    """Return the place of a message: topic/partition/offset."""
    return F.concat_ws("/", "topic", "partition", "offset")


def _bad_avro(schema: str, names: Sequence[str]) -> Column:
    """Spark gives a row of NULLs for bytes that are no such record; such a record itself is the same bytes again.

    It does not look for what is behind a record. Arrays and maps may be written in more bytes than Spark writes.
    """
    from pyspark.sql.avro.functions import to_avro

    row, given = F.col(_VALUE), F.col("value")
    if not names:
        return row.isNull()
    nulls = row.isNull() | reduce(and_, [F.col(f"{_VALUE}.`{name}`").isNull() for name in names])
    types = [kind["type"] for kind in json.loads(schema)["fields"]]
    may_be_null = all(isinstance(kind, list) and "null" in kind for kind in types)
    of_nulls = row.isNull() | ~to_avro(row, schema).eqNullSafe(given) if may_be_null else F.lit(True)
    if re.search(r'"(array|map)"', schema):
        return nulls & of_nulls
    return F.when(nulls, of_nulls).otherwise(F.octet_length(to_avro(row, schema)) < F.octet_length(given))
