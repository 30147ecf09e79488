"""The expressions over a source's columns, made once for each Spark context.

To judge and convert a row takes some hundred expressions, and each of them is a question to the JVM: half of the time
that a source took. A query makes its sources at a check, at a start and at a verification, and queries share them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, SparkSession

_MOST = 200
_lock = threading.Lock()
_known: dict[Hashable, tuple[SparkContext, tuple[Column, ...]]] = {}


def kept(spark: SparkSession, key: Hashable, make: Callable[[], list[Column]]) -> tuple[Column, ...]:
    """What `make` gave for this `key` before, or gives now.

    A Column names other columns and holds no plan, so that it fits every DataFrame that has them.
    """
    context = spark.sparkContext
    with _lock:
        owner, columns = _known.get(key, (None, ()))
    if owner is context:
        return columns
    columns = tuple(make())
    with _lock:
        while len(_known) >= _MOST:
            del _known[next(iter(_known))]
        _known[key] = (context, columns)
    return columns
