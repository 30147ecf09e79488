"""Spark's daemon of Python workers, which are forks of it, with what they print and log marked."""

from __future__ import annotations

from headrace.spark.jvm.worker_output import install

if __name__ == "__main__":
    from pyspark.daemon import manager

    install()
    manager()
