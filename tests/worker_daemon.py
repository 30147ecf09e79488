"""Spark's daemon of Python workers, with what workers import loaded once: each worker is a fork of it.

Spark's own imports nothing, not even the module of its workers.
"""

from __future__ import annotations

import sys
from importlib import import_module

from pyspark.daemon import manager

from headrace.spark.jvm.stderr_filter import install

if __name__ == "__main__":
    for name in (sys.argv[1], "pandas", "pyarrow"):
        import_module(name)
    install()
    manager()
