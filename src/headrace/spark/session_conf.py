"""Settings of a session that hold for a while only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def applied(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let the session have `settings` inside; a query that is started there keeps them."""
    with restored(spark, settings):
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield


@contextmanager
def restored(spark: SparkSession, keys: Collection[str]) -> Iterator[None]:
    """Give the session back the settings `keys` as they were before."""
    before = {key: spark.conf.get(key, None) for key in keys}
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
