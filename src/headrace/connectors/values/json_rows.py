"""JSON texts made rows, by two functions of Java."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.connectors.values.exact import Exact
from headrace.connectors.values.rules import CORRUPT_RECORD, RECORD, TextRules
from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.java_functions import call_java

_SOURCES = ("JsonRows.java", "JsonTexts.java")
_ROW = "_headrace_row"


def read_json(
    frame: DataFrame, text: Column, schema: StructType, rules: TextRules, *, keep: Sequence[str], strict: bool = True
) -> DataFrame:
    """The columns of `schema` as they are judged, those to `keep`, and the text as CORRUPT_RECORD and RECORD.

    Args:
        text: BINARY, in UTF-8; NULL has NULL in each column.
        keep: Columns of `frame`.
        strict: Whether a text is bad that has more behind its object, or half a surrogate pair.
    """
    spark = frame.sparkSession
    kept = [F.col(f"`{name}`") for name in keep]
    parsed = frame.select(*kept, text.cast("string").alias(RECORD), _parse(spark, text, schema, rules, strict))
    values = [F.col(f"{_ROW}.`{name}`").alias(name) for name in schema.names]
    corrupt = F.when(F.col(_ROW).isNull(), F.col(RECORD)).alias(CORRUPT_RECORD)
    return parsed.select(*values, *kept, corrupt, RECORD)


def split_texts(spark: SparkSession, lines: Column, encoding: str, rules: TextRules) -> Column:
    """An array of the JSON texts, in UTF-8, that each line or file holds: the elements of an array, or the whole."""
    kind = jvm_of(spark).org.apache.spark.sql.types.DataType.fromDDL("ARRAY<STRING>")
    return call_java(spark, _SOURCES, "JsonTexts", [encoding, parser_options(spark, rules)], kind, lines.cast("binary"))


def parser_options(spark: SparkSession, rules: TextRules) -> Any:
    """Spark's options of its JSON parser, as Scala has them."""
    options = {name: value for name, value in rules.options.items() if name.lower() not in ("encoding", "charset")}
    if rules.is_exact and not rules.is_named("allownonnumericnumbers"):
        options["allowNonNumericNumbers"] = "false"
    return jvm_of(spark).PythonUtils.toScalaMap(options)


def _parse(spark: SparkSession, text: Column, schema: StructType, rules: TextRules, strict: bool) -> Column:
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    jvm = jvm_of(spark)
    read = jvm.org.apache.spark.sql.types.DataType.fromJson(Exact(rules, zone).as_text(schema).json())
    shape = jvm.org.apache.spark.sql.catalyst.util.CharVarcharUtils.replaceCharVarcharWithString(read).asNullable()
    given = [shape, parser_options(spark, rules), zone, strict]
    return call_java(spark, _SOURCES, "JsonRows", given, shape, text).alias(_ROW)
