"""The metrics that a batch query has observed on the way.

PySpark's Observation would be the public way. But where the optimiser leaves out the part of a plan that is observed,
as below an empty input, its `get` ends with an AssertionError of the JVM (PythonSQLUtils.toPyRow, seen with PySpark
4.2.0); here that means that no row came by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.spark.plans import sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def metric(frame: DataFrame, name: str, column: int = 0) -> int:
    """An observed metric of a frame that was executed; 0 where the optimizer found nothing to execute."""
    found = frame._jdf.queryExecution().observedMetrics().get(name)
    if found.isEmpty() or found.get().isNullAt(column):
        return 0
    return int(found.get().getLong(column))


def metrics_of(frame: DataFrame) -> Iterator[str]:
    """The names of the metrics that an executed frame observed."""
    names = frame._jdf.queryExecution().observedMetrics().keys().toSeq()
    yield from (str(name) for name in sequence(names))
