"""JSON texts made rows, by two classes of Java that each session gets once."""

from __future__ import annotations

import os
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.connectors.values.exact import Exact
from headrace.connectors.values.rules import CORRUPT_RECORD, RECORD, Rules
from headrace.spark.jvm.gateway import gateway_of, java_context, java_session, jvm_of
from headrace.spark.jvm.jars import write_classes
from headrace.spark.plans.plan_rewrite import column_of

_SOURCES = ("JsonRows.java", "JsonTexts.java")
_ROW = "_headrace_row"
_lock = threading.Lock()


def read_json(
    frame: DataFrame, text: Column, schema: StructType, rules: Rules, *, keep: Sequence[str], strict: bool = True
) -> DataFrame:
    """The columns of `schema` as they are judged, those to `keep`, and the text as CORRUPT_RECORD and RECORD.

    Args:
        text: BINARY, in UTF-8; NULL has NULL in each column.
        keep: Columns of `frame`.
        strict: Whether a text is bad that has more behind its object, or half a surrogate pair.
    """
    spark = frame.sparkSession
    kept = [F.col(f"`{name}`") for name in keep]
    parsed = frame.select(*kept, text.cast("string").alias(RECORD), _parsed(spark, text, schema, rules, strict))
    values = [F.col(f"{_ROW}.`{name}`").alias(name) for name in schema.names]
    corrupt = F.when(F.col(_ROW).isNull(), F.col(RECORD)).alias(CORRUPT_RECORD)
    return parsed.select(*values, *kept, corrupt, RECORD)


def texts(spark: SparkSession, lines: Column, encoding: str, rules: Rules) -> Column:
    """An array of the JSON texts, in UTF-8, that each line or file holds: the elements of an array, or the whole."""
    kind = jvm_of(spark).org.apache.spark.sql.types.DataType.fromDDL("ARRAY<STRING>")
    return _called(spark, "JsonTexts", [encoding, _options(spark, rules)], kind, lines.cast("binary"))


def _options(spark: SparkSession, rules: Rules) -> Any:
    """Spark's options of its JSON parser, as Scala has them."""
    options = {name: value for name, value in rules.options.items() if name.lower() not in ("encoding", "charset")}
    if rules.is_exact and not rules.is_named("allownonnumericnumbers"):
        options["allowNonNumericNumbers"] = "false"
    return jvm_of(spark).PythonUtils.toScalaMap(options)


def _parsed(spark: SparkSession, text: Column, schema: StructType, rules: Rules, strict: bool) -> Column:
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    jvm = jvm_of(spark)
    read = jvm.org.apache.spark.sql.types.DataType.fromJson(Exact(rules, zone).as_text(schema).json())
    shape = jvm.org.apache.spark.sql.catalyst.util.CharVarcharUtils.replaceCharVarcharWithString(read).asNullable()
    given = [shape, _options(spark, rules), zone, strict]
    return _called(spark, "JsonRows", given, shape, text).alias(_ROW)


def _called(spark: SparkSession, name: str, arguments: Sequence[Any], kind: Any, text: Column) -> Column:
    """An expression that gives a text to a function of Java, whose result is of this kind.

    Spark neither copies it nor moves a filter below it, because it does not count as deterministic: each text is parsed
    once. `spark/plans/analysed.py` knows that the same text gives the same row.
    """
    jvm = jvm_of(spark)
    given = gateway_of(spark).new_array(jvm.java.lang.Object, len(arguments))
    for at, argument in enumerate(arguments):
        given[at] = argument
    function = _class(spark, name).getConstructors()[0].newInstance(given)
    literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal(
        function, jvm.org.apache.spark.sql.types.ObjectType(jvm.java.lang.Class.forName("scala.Function1"))
    )
    given_text = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(text._jc)
    invoke, sequence = jvm.org.apache.spark.sql.catalyst.expressions.objects.Invoke, jvm.PythonUtils.toSeq
    return column_of(spark, invoke(literal, "apply", kind, sequence([given_text]), sequence([]), True, True, False))


def _class(spark: SparkSession, name: str) -> Any:
    """A class, compiled for the Spark that is here, and given to the session and its executors at its first use."""
    from py4j.protocol import Py4JJavaError

    loader = java_session(spark).sharedState().jarClassLoader()
    with _lock:
        try:
            return loader.loadClass(f"headrace.{name}")
        except Py4JJavaError:
            jar = _compile(spark)
        java_context(spark).addJar(str(jar))
        loader.addURL(jvm_of(spark).java.io.File(str(jar)).toURI().toURL())
        return loader.loadClass(f"headrace.{name}")


def _compile(spark: SparkSession) -> Path:
    """A jar of the classes, in a directory that is removed with Spark's own."""
    jvm, home = jvm_of(spark), Path(tempfile.mkdtemp(prefix="headrace-classes-"))
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(home)))
    for source in _SOURCES:
        write_classes(gateway_of(spark), str(files("headrace.spark") / source), str(home))
    jar = home / "headrace-json.jar"
    with zipfile.ZipFile(jar, "w") as packed:
        for made in sorted(home.rglob("*.class")):
            packed.write(made, os.path.relpath(made, home))
    return jar
