"""What would bound state that grows for ever, by the names of the query's own columns."""

from __future__ import annotations

from collections.abc import Sequence


def fix(marked: Sequence[str], times: Sequence[str]) -> str:
    """What to do about an operator whose rows have these columns with a watermark, and these timestamps."""
    if marked:
        return f"use {marked[0]}, which has the watermark, or a window of it, in the operation as well"
    if times:
        known = " or ".join(times[:3])
        return f"give the source a watermark on {known}, and use that column, or a window of it, in the operation"
    return "give the source a column of event time with a watermark, and use it, or a window of it, in the operation"
