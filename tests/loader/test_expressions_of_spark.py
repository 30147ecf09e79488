"""Columns, windows and function types of PySpark may stand at the top of a file; the load needs no session for them."""

from __future__ import annotations

import json
import sys

import pytest

from headrace.loader import load
from headrace.spark import ddl

APP = """\
import headrace as hr
import pandas as pd
from pyspark.sql import Window, functions as F
from pyspark.sql.types import IntegerType, StructType

AMOUNT = F.col("amount")
DOUBLED = (AMOUNT * 2 + F.lit(1)).alias("doubled")
SIZE = F.when(AMOUNT > 10, "big").otherwise("small").alias("size")
LATEST = Window.partitionBy("id").orderBy(F.desc("amount")).rowsBetween(-1, 0)
ADDED = F.transform(F.array(AMOUNT, F.col("id")), lambda x: x + 1).alias("added")
NARROW = AMOUNT.cast(IntegerType()).alias("narrow")
SCHEMA = StructType.fromDDL("a INT, b ARRAY<STRING>")

@F.udf("int")
def plus(x):
    return x + 1

@F.udf(returnType="struct<a: int, b: string>")
def pair(x):
    return (x, "b")

@F.pandas_udf("long")
def more(x: pd.Series) -> pd.Series:
    return x + 1

CALLED = plus(AMOUNT.cast("int")).alias("called")

@hr.table
def result(spark):
    rows = spark.createDataFrame([(1, 11)], "id BIGINT, amount BIGINT")
    return rows.select("id", DOUBLED, SIZE, ADDED, NARROW, CALLED, plus("amount").alias("plus"),
                       pair("amount").alias("pair"), more("amount").alias("more"),
                       F.sum(AMOUNT).over(LATEST).alias("latest"))
"""
SCHEMAS = (
    "id BIGINT, at TIMESTAMP",
    "a: int, b: decimal(10, 2)",
    "a STRUCT<b: INT NOT NULL COMMENT 'x', c: MAP<STRING, ARRAY<DATE>>>, `a b` VARCHAR(10) NOT NULL",
    "a DECIMAL, b CHAR(3), c TIME(3), d VARIANT, e VOID, f BINARY, g TIMESTAMP_NTZ, h REAL, i BYTE",
    "a INTERVAL DAY TO SECOND, b INTERVAL YEAR, c STRUCT<>",
)
TYPES = ("int", "array<struct<a: int>>", "map<string, decimal(5)>", "a int", "date string", "interval day to hour")
# The schema, and a word of what is said.
NO_SCHEMAS = (
    ("id BIGINTT", "'BIGINTT'"),
    ("id", "no type"),
    ("id BIGINT,", "comma"),
    ("id BIGINT, , at DATE", "','"),
    ("id BIGINT at TIMESTAMP", "'at' follows"),
    ("user-id STRING", "'-'"),
    ("a DECIMAL(50, 2)", "DECIMAL(50, 2)"),
    ("a ARRAY<INT", "not closed"),
    ("a MAP<STRING>", "needs two"),
    ("a VARCHAR", "length"),
    ("a STRING(10)", "no size"),
    ("a ARRAY", "of what"),
    ("", "no column"),
)


@pytest.fixture
def no_session(monkeypatch):
    """No session of PySpark, also where the tier has one."""
    from pyspark.core.context import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


@pytest.mark.plain
def test_a_load_starts_no_spark_for_expressions_at_the_top_of_a_file(load_texts, no_session):
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession

    before = SparkSession.__dict__["getActiveSession"]
    load_texts({"app.py": APP})
    assert SparkContext._active_spark_context is None
    assert SparkSession.__dict__["getActiveSession"] is before


@pytest.mark.plain
def test_a_load_of_yaml_does_not_import_pyspark(write):
    import subprocess

    root = write({"headrace.yml": "name: a"})
    code = f"import sys; from headrace.loader import load; load({str(root)!r}); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.plain
def test_an_unknown_type_of_a_function_is_reported_at_its_line(faults, no_session):
    text = "import headrace\nfrom pyspark.sql import functions as F\n\n@F.udf('itn')\ndef plus(x):\n    return x\n"
    (finding,) = faults({"app.py": text})
    assert (finding.code, finding.where.line) == ("HR114", 4)
    assert "'itn'" in finding.what


@pytest.mark.spark
def test_expressions_at_the_top_of_a_file_mean_what_they_mean_in_a_function(write, spark, monkeypatch):
    from pyspark.core.context import SparkContext

    root = write({"app.py": APP})
    with monkeypatch.context() as patch:
        patch.setattr(SparkContext, "_active_spark_context", None)
        project = load(root)
    from headrace.frames.plan_builder import build

    frame = build(project, project.tables["result"].transform, spark, lambda source: None)
    (row,) = frame.collect()
    assert row.asDict(recursive=True) == {
        "id": 1, "doubled": 23, "size": "big", "added": [12, 2], "narrow": 11, "called": 12, "plus": 12,
        "pair": {"a": 11, "b": "b"}, "more": 12, "latest": 11,
    }  # fmt: skip


@pytest.mark.spark
def test_schemas_are_read_as_spark_reads_them(spark):
    of_spark = spark._jvm.PythonSQLUtils.ddlToJson
    for text in SCHEMAS:
        assert {"type": "struct", "fields": ddl.columns(text)} == json.loads(of_spark(text)), text
    for text in TYPES:
        assert ddl.data_type(text) == json.loads(of_spark(text)), text
    for text, _ in NO_SCHEMAS[:-1]:
        with pytest.raises(Exception, match=r"PARSE|TYPE|DECIMAL|precision|DUPLICATE|IDENTIFIER"):
            spark._jvm.org.apache.spark.sql.types.StructType.fromDDL(text)


@pytest.mark.plain
@pytest.mark.parametrize(("text", "word"), NO_SCHEMAS, ids=[text for text, _ in NO_SCHEMAS])
def test_what_is_no_schema_is_said_with_a_fix(text, word):
    with pytest.raises(ddl.SchemaError) as caught:
        ddl.columns(text)
    assert word in caught.value.what
    assert caught.value.fix
