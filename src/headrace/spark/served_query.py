"""The name of a query where its tasks find it: among the local properties, which Spark gives to each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of those that begin with "mdc.", Spark tells the log too; see log4j2.properties.
QUERY = "mdc.headrace.query"


@contextmanager
def served(spark: SparkSession, query: str) -> Iterator[None]:
    """Let a query that is started in this block have its name: its thread inherits the properties of this one."""
    context = spark.sparkContext
    before = context.getLocalProperty(QUERY)
    context.setLocalProperty(QUERY, query)
    try:
        yield
    finally:
        context.setLocalProperty(QUERY, before)  # type: ignore[arg-type]
