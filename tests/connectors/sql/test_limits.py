"""What is to be done about a bad row fits the reason why it is bad."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from headrace.connectors.sql.limits import Limit, split_invalid
from headrace.connectors.sql.types import Kind, ResultColumn

pytestmark = pytest.mark.plain
CASES: dict[str, tuple[Limit, Kind, Any, Any, str]] = {
    "NULL": (Limit(required=True), "text", pa.string(), None, "coalesce(v, ...)"),
    "too long": (Limit(characters=3), "text", pa.string(), "abcd", "substring(v, 1, 3)"),
    "too many bytes": (Limit(size=2), "binary", pa.binary(), b"abc", "take longer values"),
    "a zero character": (Limit(no_zero=True), "text", pa.string(), "a\0", "replace(v, char(0), '')"),
    "NaN": (Limit(finite=True), "double", pa.float64(), math.nan, "write NULL"),
    "out of range": (Limit(low=-5, high=5), "integer", pa.int64(), 6, "a larger type"),
    "too early": (Limit(first=datetime(1970, 1, 1)), "timestamp_ntz", pa.timestamp("us"), datetime(1969, 1, 1), "time"),
}


@pytest.mark.parametrize(("limit", "kind", "type_", "value", "advice"), CASES.values(), ids=CASES)
def test_the_advice_about_a_bad_value_fits_the_reason(
    limit: Limit, kind: Kind, type_: Any, value: Any, advice: str
) -> None:
    table = pa.table({"v": pa.array([value], type_)})
    good, [bad] = split_invalid(table, [ResultColumn("v", kind, T.StringType())], {"v": limit})
    assert good.num_rows == 0
    assert advice in bad.fix
    assert ("coalesce" in bad.fix) is (value is None)
