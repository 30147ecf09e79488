"""Which row has moved a watermark past the clock, by the records of two batches."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from headrace.contract import BatchRecord, Leap, SourceProgress
from headrace.runner.event_times import follow_on, take_observed
from headrace.spark.stream.event_times import METRIC

pytestmark = pytest.mark.plain

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def ms(minutes: float) -> int:
    return round((NOON + timedelta(minutes=minutes)).timestamp() * 1000)


def record(batch: int, watermark: float | None, leap: Leap | None = None, **newest: float) -> BatchRecord:
    """A batch at noon whose watermark and newest event times are so many minutes after it."""
    return BatchRecord(
        query="q",
        run_id="r",
        batch=batch,
        at=NOON,
        rows=1,
        input_rate=1.0,
        processed_rate=1.0,
        duration_ms=1,
        watermark=None if watermark is None else NOON + timedelta(minutes=watermark),
        sources=tuple(
            SourceProgress(name=name, rows=1, start=None, end=None, newest_ms=ms(at)) for name, at in newest.items()
        ),
        leap=leap,
    )


FIRST = Leap(watermark_ms=ms(100), source="a", batch=3, time_ms=ms(110))


@pytest.mark.parametrize(
    ("before", "now", "leap"),
    [
        pytest.param(record(4, 0, a=110), record(5, 100), ("a", 4, ms(110)), id="a row of the future"),
        pytest.param(record(4, 0, a=50), record(5, 20), None, id="ahead by less than the delay"),
        pytest.param(record(4, 0, a=0.5), record(5, 0.5), None, id="clocks that differ by seconds"),
        pytest.param(record(4, 0, a=10), record(5, -10), None, id="behind the clock"),
        pytest.param(record(4, None, a=10), record(5, None), None, id="no watermark yet"),
        pytest.param(record(4, 0, a=900, b=110), record(5, 100), ("b", 4, ms(110)), id="the slower of two decides"),
        pytest.param(record(4, 0, a=900, b=-5), record(5, 890), ("a", 4, ms(900)), id="the faster of two decides"),
        pytest.param(record(4, 0, a__2=110), record(5, 100), ("a", 4, ms(110)), id="a source in two places"),
        pytest.param(record(4, 90, FIRST, a=900), record(5, 890), ("a", 3, ms(110)), id="the first one stays"),
        pytest.param(record(4, 100, FIRST), record(5, -5), None, id="it is behind the clock again"),
        pytest.param(None, record(5, 100), (None, None, None), id="no record of the batch before"),
    ],
)
def test_the_row_is_that_by_which_the_watermark_is_where_it_is(
    before: BatchRecord | None, now: BatchRecord, leap: tuple[str | None, int | None, int | None] | None
) -> None:
    moved = follow_on(now, before).leap
    assert (None if moved is None else (moved.source, moved.batch, moved.time_ms)) == leap
    assert moved is None or now.watermark is not None
    assert moved is None or moved.watermark_ms == round(now.watermark.timestamp() * 1000)  # type: ignore[union-attr]


@pytest.mark.parametrize(("times", "nulls"), [(1, 6), (2, 3), (None, None)], ids=["once", "twice", "not known"])
def test_rows_that_were_computed_again_are_counted_once(times: int | None, nulls: int | None) -> None:
    observed = {METRIC + "a": {"nulls": 6, "oldest": ms(-5), "newest": ms(5)}, "own": {"rows": 1}}
    taken = take_observed(BatchRecord(**{**vars(record(0, None, a=0)), "observed": observed}), times)
    (source,) = taken.sources
    assert (source.null_times, source.newest_ms, taken.observed) == (nulls, ms(5), {"own": {"rows": 1}})
    assert taken.event_min == NOON - timedelta(minutes=5)
