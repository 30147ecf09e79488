"""The patterns of dates and times in a source's options, which Spark looks at only in the first batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.errors import Finding, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTIONS = frozenset({"timestampformat", "timestampntzformat", "dateformat", "timeformat"})


def require_patterns(spark: SparkSession, format_: str, options: Mapping[str, str]) -> None:
    """Raise SourceError with each pattern among `options` that Spark cannot read by, as the session's settings are."""
    given = {name: text for name, text in options.items() if name.lower() in _OPTIONS}
    wrong = [name for name, text in given.items() if format_ in ("csv", "json") and not _is_pattern(spark, text)]
    if wrong:
        raise SourceError([_finding(name, given[name]) for name in wrong])


def _is_pattern(spark: SparkSession, text: str) -> bool:
    from pyspark.errors import IllegalArgumentException, SparkRuntimeException, SparkUpgradeException

    try:
        # A text that does not fit is NULL; what is no pattern is refused, some of it without a condition. No job runs.
        spark.sql("SELECT try_to_timestamp('x', :pattern)", args={"pattern": text}).collect()
    except (IllegalArgumentException, SparkRuntimeException, SparkUpgradeException):
        return False
    return True


def _finding(name: str, text: str) -> Finding:
    return Finding(
        code="HR630",
        what=f"options: {name} is '{text}', which is no pattern that Spark reads dates and times by",
        fix="write letters that stand for themselves in single quotes, as yyyy-MM-dd'T'HH:mm:ss; letters of weeks, "
        "quarters and names of days cannot be read by",
    )
