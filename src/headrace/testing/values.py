"""Values as people write them in tests, read as the types of columns: `01:10` for a TIMESTAMP, `3.50` for a DECIMAL."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

# The day of a time that is given without one.
DAY = date(2024, 1, 1)
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,6})?)?\Z")


def moment(value: Any) -> datetime:
    """Read `12:14`, `2024-01-01 12:14` and the like as a datetime; a time alone is one of 1 January 2024.

    Raises:
        ValueError: It is not a time.
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    text = str(value).strip()
    if _CLOCK.match(text):
        text = f"{DAY} {text.rjust(len(text) + (text.index(':') == 1), '0')}"
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def plain_value(value: Any, kind: DataType) -> Any:
    """Convert a value to a Python value of a Spark type.

    Args:
        value: The value; a NaN, NaT or NA of pandas means NULL.
        kind: The type.

    Returns:
        The value; None for NULL. A time with a zone keeps it.

    Raises:
        ValueError: It is not a value of the type.
    """
    from pyspark.sql import types as T

    value = value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, float) and math.isnan(value) and not isinstance(kind, T.FloatType | T.DoubleType):
        return None  # As pandas has NULL.
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        time = moment(value)
        return time.to_pydatetime() if hasattr(time, "to_pydatetime") else time
    if isinstance(kind, T.DateType):
        return moment(value).date() if isinstance(value, str | datetime) else value
    if isinstance(kind, T.DecimalType):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
    if isinstance(kind, T.BooleanType):
        truth = {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower())
        if truth is None:
            raise ValueError(f"{value!r}")
        return truth
    if isinstance(kind, T.IntegralType):
        return _whole(value)
    if isinstance(kind, T.FloatType | T.DoubleType):
        return float(value)
    if isinstance(kind, T.StringType):
        return value if isinstance(value, str) else str(value)
    if isinstance(kind, T.BinaryType):
        return value.encode() if isinstance(value, str) else bytes(value)
    if isinstance(kind, T.ArrayType):
        return [plain_value(part, kind.elementType) for part in value]
    if isinstance(kind, T.MapType):
        pairs = dict(value).items()
        return {plain_value(name, kind.keyType): plain_value(part, kind.valueType) for name, part in pairs}
    if isinstance(kind, T.StructType):
        parts = value if isinstance(value, Mapping) else dict(zip(kind.names, value, strict=True))
        unknown = [name for name in parts if name not in kind.names]
        if unknown:
            raise ValueError(f"a field '{unknown[0]}'")
        return {field.name: plain_value(parts.get(field.name), field.dataType) for field in kind}
    return value


def json_value(value: Any) -> Any:
    """Return what `plain_value` gave, in a form that Spark's JSON reader reads as the same value."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [json_value(part) for part in value]
    if isinstance(value, dict):
        return {
            name if isinstance(name, str) else str(json_value(name)): json_value(part) for name, part in value.items()
        }
    return value


def _whole(value: Any) -> int:
    whole = int(value)
    if not isinstance(value, str) and whole != value:
        raise ValueError(f"{value!r}")
    return whole
