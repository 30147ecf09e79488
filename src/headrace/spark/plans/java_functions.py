"""Expressions that call functions of Java, which are compiled for the Spark that is here."""

from __future__ import annotations

import os
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.spark.jvm.gateway import gateway_of, java_context, java_session, jvm_of
from headrace.spark.jvm.jars import write_classes
from headrace.spark.plans.plan_rewrite import column_of

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_lock = threading.Lock()


def call_java(
    spark: SparkSession, sources: Sequence[str], name: str, arguments: Sequence[Any], kind: Any, text: Column
) -> Column:
    """Return an expression that gives a text to a function of Java, whose result is of this kind of Spark's.

    Spark neither copies it nor moves a filter below it, because it does not count as deterministic: each text is parsed
    once. `analysed.py` knows that the same text gives the same row.

    Args:
        sources: The files of `headrace.spark` with its class and others.
        name: The function's class.
        arguments: Those of its constructor.
    """
    jvm = jvm_of(spark)
    given = gateway_of(spark).new_array(jvm.java.lang.Object, len(arguments))
    for at, argument in enumerate(arguments):
        given[at] = argument
    function = _class(spark, sources, name).getConstructors()[0].newInstance(given)
    literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal(
        function, jvm.org.apache.spark.sql.types.ObjectType(jvm.java.lang.Class.forName("scala.Function1"))
    )
    given_text = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(text._jc)
    invoke, sequence = jvm.org.apache.spark.sql.catalyst.expressions.objects.Invoke, jvm.PythonUtils.toSeq
    return column_of(spark, invoke(literal, "apply", kind, sequence([given_text]), sequence([]), True, True, False))


def _class(spark: SparkSession, sources: Sequence[str], name: str) -> Any:
    """A class, compiled for the Spark that is here, and given to the session and its executors at its first use."""
    from py4j.protocol import Py4JJavaError

    loader = java_session(spark).sharedState().jarClassLoader()
    with _lock:
        try:
            return loader.loadClass(f"headrace.{name}")
        except Py4JJavaError:
            jar = _compile(spark, sources)
        java_context(spark).addJar(str(jar))
        loader.addURL(jvm_of(spark).java.io.File(str(jar)).toURI().toURL())
        return loader.loadClass(f"headrace.{name}")


def _compile(spark: SparkSession, sources: Sequence[str]) -> Path:
    """A jar of the classes, in a directory that is removed with Spark's own."""
    jvm, home = jvm_of(spark), Path(tempfile.mkdtemp(prefix="headrace-classes-"))
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(home)))
    write_classes(gateway_of(spark), str(home), *(str(files("headrace.spark") / source) for source in sources))
    # Of two jars with one name, Spark gives executors the first alone.
    jar = home / f"{home.name}.jar"
    with zipfile.ZipFile(jar, "w") as packed:
        for made in sorted(home.rglob("*.class")):
            packed.write(made, os.path.relpath(made, home))
    return jar
