"""Whether two names of time zones, as Spark takes them, have the same clock at all times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

# Spark names a zone as java.time.ZoneId does: a region, or an offset, also behind UTC, GMT or UT.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?\Z")
_ZERO = ("Z", "UTC", "GMT", "UT")
_FIRST, _LAST = datetime(1900, 1, 1, tzinfo=timezone.utc), datetime(2040, 1, 1, tzinfo=timezone.utc)


def is_same_clock(one: str, other: str) -> bool:
    """Whether two zones have the same offset from UTC at all times from 1900 to 2039; False for an unknown one.

    For later years only the rules of the last ones are known.
    """
    if one == other:
        return True
    try:
        return _changes(_zone(one)) == _changes(_zone(other))
    except (ValueError, OSError):
        return False


def _zone(name: str) -> tzinfo:
    if name in _ZERO:
        return timezone.utc
    if (offset := _OFFSET.match(name)) is not None:
        sign, hours, minutes, seconds = offset.groups(default="0")
        length = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds))
        return timezone(-length if sign == "-" else length)
    try:
        return ZoneInfo(name)
    except KeyError as error:
        raise ValueError(f"there is no time zone '{name}'") from error


def _changes(zone: tzinfo) -> list[tuple[datetime, timedelta | None]]:
    """Return the offset at the beginning, and the instant and the offset of each change of the clock."""
    changes = [(_FIRST, _FIRST.astimezone(zone).utcoffset())]
    if isinstance(zone, timezone):
        return changes
    days = [_FIRST + timedelta(days=day) for day in range((_LAST - _FIRST).days + 1)]
    for (before, old), (after, new) in pairwise((day, day.astimezone(zone).utcoffset()) for day in days):
        if old != new:
            changes += _within(zone, before, after)
    return changes


def _within(zone: tzinfo, before: datetime, after: datetime) -> Iterator[tuple[datetime, timedelta | None]]:
    """Yield the change between two instants, to the second."""
    offset = before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before).total_seconds() // 2)
        before, after = (middle, after) if middle.astimezone(zone).utcoffset() == offset else (before, middle)
    yield after, after.astimezone(zone).utcoffset()
