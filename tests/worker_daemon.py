"""Spark's daemon of Python workers, with what workers import loaded once: each worker is a fork of it.

Spark's own imports nothing, not even the module of its workers. A stream over a data source in Python has workers of
its own at each start, which would read PyIceberg for a second each.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

# What any worker may import, and what those of data sources import too.
COMMON = ("pandas", "pyarrow")
OF_SOURCES = ("headrace.connectors.iceberg.stream", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow")

if __name__ == "__main__":
    module = sys.argv[1]
    for name in (module, *COMMON, *(() if module == "pyspark.worker" else OF_SOURCES)):
        with suppress(ImportError):
            import_module(name)
    manager()
