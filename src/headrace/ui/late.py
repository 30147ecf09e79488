"""Which rows came late, as far as what is noted of each batch tells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from headrace.observe.history.pages import LateBatch
from headrace.units import Duration

# The upper end of each part of the histogram, in seconds; the last has none.
ENDS = (1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, None)
WINDOWS_MOST = 50


def late(batches: Sequence[LateBatch], windows: set[tuple[str, str]]) -> dict[str, Any]:
    """How many, how late, and which windows.

    Spark tells of each batch how many rows it dropped, after partial aggregation, and the oldest event time; so a row
    counts below how far the oldest one of its batch was behind.
    """
    parts = [{"up_to_seconds": end, "rows": 0, "batches": 0} for end in ENDS]
    found: dict[tuple[str, datetime], dict[str, Any]] = {}
    unknown = 0
    for each in batches:
        if each.oldest is None or each.watermark is None or each.oldest >= each.watermark:
            unknown += each.rows
            continue
        behind = (each.watermark - each.oldest).total_seconds()
        part = next(part for part, end in zip(parts, ENDS, strict=True) if end is None or behind < end)
        part["rows"] = (part["rows"] or 0) + each.rows
        part["batches"] = (part["batches"] or 0) + 1
        for length, slide in windows:
            begins, ends = _window(each.oldest, length, slide)
            if ends <= each.watermark:
                window = found.setdefault(
                    (length, begins),
                    {"length": length, "begins": begins.isoformat(), "ends": ends.isoformat(), "rows": 0, "batches": 0},
                )
                window["rows"] += each.rows
                window["batches"] += 1
    newest = sorted(found.items(), key=lambda item: item[0][1], reverse=True)[:WINDOWS_MOST]
    return {
        "rows": sum(each.rows for each in batches),
        "batches": len(batches),
        "of_unknown_lateness": unknown,
        "histogram": parts,
        "windows": [window for _, window in newest],
        "windows_known": bool(windows),
    }


def _window(time: datetime, length: str, slide: str) -> tuple[datetime, datetime]:
    """The last window that holds a time, counted from 1970 as Spark does."""
    whole, step = Duration.parse(length).seconds, Duration.parse(slide or length).seconds
    begins = time.timestamp() // step * step
    return datetime.fromtimestamp(begins, timezone.utc), datetime.fromtimestamp(begins + whole, timezone.utc)
