"""Patterns of dates and times that Spark refuses only in the first batch are refused before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.connectors.files.options import require_patterns
from headrace.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GOOD = [
    "yyyy-MM-dd",
    "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]",
    "dd.MM.yyyy HH:mm",
    "yyyyMMdd",
    "HH:mm:ss",
    "h:mm a",
    "d MMM yyyy",
]
BAD = [
    "yyyy-MM-ddTHH:mm:ss",
    "YYYY-MM-dd",
    "yyyy-'W'ww",
    "EEE dd MMM yyyy",
    "yyyy-MM-dd'T HH:mm",
    "MMMMM yyyy",
    "yyyy-QQ",
    "%Y-%m-%d",
    "{yyyy}",
]


def test_what_is_no_pattern_is_reported_with_its_option(spark: SparkSession) -> None:
    options = {"timestampFormat", "DATEFORMAT"}
    for text in GOOD:
        require_patterns(spark, "csv", dict.fromkeys(options, text))
    for text in BAD:
        with pytest.raises(SourceError) as raised:
            require_patterns(spark, "json", dict.fromkeys(options, text))
        assert {finding.code for finding in raised.value.findings} == {"HR113"}, text
        assert {
            name for name in options for finding in raised.value.findings if f"{name} is '{text}'" in finding.what
        } == options
    require_patterns(spark, "text", {"timestampFormat": "T"})
    require_patterns(spark, "csv", {"nullValue": "T"})
