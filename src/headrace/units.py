"""Lengths of time, sizes and hosts as users and Spark write them: `1 hour 30 minutes`, `7d`, `64m`, `db-1`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from ipaddress import IPv4Address, IPv6Address

_WORDS = {
    0.001: "millisecond ms",
    1.0: "second sec s",
    60.0: "minute min m",
    3600.0: "hour h",
    86400.0: "day d",
    604800.0: "week",
}
_SECONDS = {word: seconds for seconds, words in _WORDS.items() for word in words.split()}
# Spark knows times up to the year 294247.
FIRST, LAST = (day.replace(microsecond=0, tzinfo=timezone.utc) for day in (datetime.min, datetime.max))
LONGEST_SECONDS = 1000 * 365 * 86_400.0
_SPARK_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPARK_TIME = re.compile(r"\s*(-?\d+)\s*(us|ms|s|m|min|h|d)?\s*", re.IGNORECASE)
_SIZE = re.compile(r"\s*(\d+)\s*(?:([kmgtp]?)(i?)b?)\s*", re.IGNORECASE)
_SCALE: dict[str, int] = {unit: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.IGNORECASE)

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")


@dataclass(frozen=True)
class Duration:
    """A length of time in `seconds`; `text` is what the user wrote."""

    text: str
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read `text`; raises ValueError, with a sentence, when it is not a length of time.

        Source: Spark's interval strings ("Basic Concepts" and "Triggers" of the Structured Streaming guide).
        """
        rest = text.strip()
        if rest.lower().startswith("interval "):
            rest = rest[len("interval ") :]
        total = 0.0
        if not rest:
            raise ValueError("an empty text is not a length of time")
        while rest:
            part = _PART.match(rest)
            unit = part.group(2).lower() if part else ""
            seconds = _SECONDS.get(unit) or _SECONDS.get(unit.removesuffix("s"))
            if part is None or seconds is None:
                raise ValueError(f"'{text}' is not a length of time{_why(rest)}")
            total += float(part.group(1)) * seconds
            rest = rest[part.end() :]
        if total > LONGEST_SECONDS:
            raise ValueError(f"'{text}' is longer than 1,000 years")
        return cls(text.strip(), total)

    @property
    def milliseconds(self) -> int:
        """The length in whole milliseconds, Spark's own unit for watermarks and triggers."""
        return round(self.seconds * 1000)

    @property
    def spark_interval(self) -> str:
        """The length as an interval that Spark parses, whatever short unit the user wrote."""
        return f"{self.milliseconds} milliseconds"

    def __str__(self) -> str:
        return self.text


def some_time(text: str) -> Duration:
    """Read a length of time that is longer than zero; raises ValueError, with a sentence."""
    length = Duration.parse(text)
    if not length.seconds:
        raise ValueError(f"'{text}' must be longer than zero")
    return length


def instant(seconds: float) -> datetime:
    """Return the moment, in UTC, so many seconds after 1970 began; beyond Python's range, its last one."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError):
        return LAST if seconds > 0 else FIRST


def utc(milliseconds: int) -> str:
    """Return the moment so many milliseconds after 1970 began, as messages show it."""
    return f"{instant(milliseconds / 1000):%Y-%m-%d %H:%M:%S} UTC"


def _why(rest: str) -> str:
    """Return what is wrong with `rest`, for the mistakes that are made most."""
    if re.fullmatch(r"\d+(\.\d+)?", rest.strip()):
        return ": it has no unit"
    if rest.lstrip().startswith("-"):
        return ": it is negative"
    if re.match(r"\s*\d+\s*(months?|years?)\b", rest, re.IGNORECASE):
        return ": months and years differ in length; 30 days do not"
    return ""


def spark_milliseconds(text: str, *, default_unit: str | None = None) -> float | None:
    """Return the milliseconds that `7d` means to Spark (JavaUtils.timeStringAs), or None."""
    match = _SPARK_TIME.fullmatch(text)
    unit = None if match is None else (match[2] or default_unit)
    return None if match is None or unit is None else int(match[1]) * _SPARK_MS[unit.lower()]


def size_bytes(text: str, *, default_unit: str = "", iec: bool = False) -> int | None:
    """Return the bytes that `64m` means to Spark (JavaUtils.byteStringAs), or None; `iec`: also `64MiB`."""
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not (iec and match[2])):
        return None
    named = match[2] or ("" if re.search(r"b\s*$", text, re.IGNORECASE) else default_unit)
    return int(match[1]) * _SCALE[named.lower()]


def parse_size(text: str) -> int:
    """Return the bytes that `64m` means; raises ValueError, with a sentence."""
    size = size_bytes(text)
    if size is None:
        raise ValueError(f"'{text}' is not a size")
    return size


def ip_address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an IP address; None for another text."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_host(text: str) -> bool:
    """Whether it has the form of an IP address or of a host's name; dots and digits alone are an address or nothing."""
    is_name = len(text) <= 253 and bool(_HOST.fullmatch(text)) and not re.fullmatch(r"[\d.]+", text)
    return is_name or ip_address(text) is not None
