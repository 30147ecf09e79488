"""Debezium's messages as a change frame: each value is exact, or its row is bad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.values.exact import Exact, Judged
from headrace.connectors.values.json_rows import parser_options
from headrace.connectors.values.rules import CORRUPT_RECORD, FAULT, RECORD, TextRules
from headrace.contract.change_data import CHANGE_COLUMN
from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.java_functions import call_java

_SOURCES = ("DebeziumRows.java", "JsonRows.java")
_MESSAGE = "_headrace_message"
_TRUNCATES_ONE = (
    "truncates one of the tables that are read, whose rows cannot be seen among those of the others: read one topic"
)
# NaN and the infinities arrive as PostgreSQL has them; a number that is too large is a fault of its own.
_OPTIONS = {"allowNonNumericNumbers": "true"}
SEQUENCE = T.DecimalType(38, 0)


def decode_changes(
    frame: DataFrame,
    schema: T.StructType,
    settings: Mapping[str, str],
    keys: Sequence[str],
    *,
    exact: bool,
    keep: Sequence[str],
    one_table: bool = True,
) -> Judged:
    """The columns of the table, `CHANGE_COLUMN`, and those to `keep`, to be judged.

    Args:
        settings: Debezium's, by its names, for messages without a schema.
        keys: The columns that a message's key must have; none: any.
        exact: Whether a value that its type does not hold exactly is bad.
        one_table: Whether all messages are of one table; else a truncate is bad.
    """
    rules = TextRules(format="json", is_exact=exact, has_bytes=True, options=_OPTIONS)
    message = F.col(_MESSAGE)
    parsed = frame.withColumn(_MESSAGE, _parse(frame.sparkSession, schema, rules, settings, keys))
    values = [message.getField("row").getField(name).alias(name) for name in schema.names]
    names = ("operation", "sequence", "position", "unavailable", "source_time")
    position = F.struct(F.col("partition"), F.col("offset")).alias("position")
    parts = [position if name == "position" else message.getField(name).alias(name) for name in names]
    fault, record = message.getField("fault"), F.col("value").cast("string")
    if not one_table:
        fault = F.coalesce(fault, F.when(message.getField("operation") == "truncate", F.lit(_TRUNCATES_ONE)))
    change = F.when(fault.isNull(), F.struct(*parts)).alias(CHANGE_COLUMN)
    # A row without a value is never bad: the message's key stands for it.
    corrupt = F.when(fault.isNotNull(), F.coalesce(record, F.lit(""))).alias(CORRUPT_RECORD)
    others = [F.col(f"`{name}`") for name in keep]
    rows = parsed.select(*values, change, *others, corrupt, record.alias(RECORD), fault.alias(FAULT))
    # Which values must be there depends on the operation, so that it is judged where the message is read.
    nullable = T.StructType([T.StructField(field.name, field.dataType) for field in schema])
    return Judged(rules, rows, nullable, tuple(keep))


def _parse(
    spark: SparkSession, schema: T.StructType, rules: TextRules, settings: Mapping[str, str], keys: Sequence[str]
) -> Column:
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    jvm = jvm_of(spark)
    shape = Exact(rules, zone).as_text(schema)
    fields: list[tuple[str, T.DataType]] = [
        ("row", shape),
        ("operation", T.StringType()),
        ("sequence", SEQUENCE),
        ("unavailable", T.ArrayType(T.StringType())),
        ("source_time", T.TimestampType()),
        ("fault", T.StringType()),
    ]
    result = T.StructType([T.StructField(name, kind) for name, kind in fields])

    def of_java(kind: T.StructType) -> Any:
        return jvm.org.apache.spark.sql.types.DataType.fromJson(kind.json())

    without_char = jvm.org.apache.spark.sql.catalyst.util.CharVarcharUtils.replaceCharVarcharWithString
    named = jvm.java.util.HashMap()
    for name, value in settings.items():
        named.put(name, value)
    required = jvm.java.util.ArrayList()
    for key in keys:
        required.add(key)
    read = without_char(of_java(shape)).asNullable()
    given = [of_java(schema), read, parser_options(spark, rules), zone, named, required]
    kind = without_char(of_java(result)).asNullable()
    return call_java(spark, _SOURCES, "DebeziumRows", given, kind, F.struct("key", "value"))
