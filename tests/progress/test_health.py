"""Health is judged from records alone."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from headrace.contract import Lag
from headrace.progress import BatchRecord, SourceProgress, health

pytestmark = pytest.mark.plain


def batches(count: int = 6, **facts: object) -> list[BatchRecord]:
    common: dict[str, object] = {
        **{"query": "counts", "run_id": "r", "at": datetime(2024, 1, 1, tzinfo=timezone.utc), "rows": 1000},
        **{"input_rate": 100.0, "processed_rate": 1000.0, "duration_ms": 1000, "durations": {"addBatch": 800}},
    }
    return [BatchRecord(batch=batch, **{**common, **facts}) for batch in range(count)]  # type: ignore[arg-type]


def growing(*sizes: int) -> list[BatchRecord]:
    return [record for size in sizes for record in batches(1, state_rows=size)]


def waiting(*counts: int) -> list[BatchRecord]:
    return [record for count in counts for record in batches(1, backlog=Lag(count=count, unit="files"))]


NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


def from_source(count: int = 5, *, first: datetime | None = NOON, **rows: int) -> list[BatchRecord]:
    sources = tuple(SourceProgress(name=name, rows=each, start=None, end=None) for name, each in rows.items())
    return [*batches(1, watermark=first), *batches(count - 1, watermark=NOON, sources=sources)]


def codes(records: list[BatchRecord]) -> list[str]:
    return [finding.code for finding in health(records)]


@pytest.mark.capability("MON-04")
def test_a_query_that_works_off_less_than_arrives_is_called_out() -> None:
    (finding,) = health(batches(input_rate=5000.0))
    assert finding.code == "HR680"
    assert "1,000 rows a second while 5,000 arrive" in finding.what
    assert "addBatch (800 ms)" in finding.fix


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(batches(), [], id="well"),
        pytest.param(batches(4, input_rate=5000.0), [], id="too few to judge"),
        pytest.param(batches(rows=0, input_rate=0.0, duration_ms=0), [], id="idle"),
        pytest.param(batches(4, input_rate=5000.0) + batches(9, rows=0), [], id="idle batches do not count"),
        pytest.param(batches(input_rate=1050.0), [], id="the clock's noise"),
        pytest.param(waiting(2, 3, 5, 6, 9), ["HR683"], id="growing lag"),
        pytest.param(waiting(2, 3, 5, 5, 9), [], id="steady lag"),
        pytest.param(growing(*range(100, 300, 20)), ["HR681"], id="growing state"),
        pytest.param(growing(*range(100, 110)), [], id="hardly growing state"),
        pytest.param(growing(*range(100, 300, 40), *range(100, 300, 40)), [], id="steady state"),
        pytest.param(batches(dropped_by_watermark=2), ["HR682"], id="late rows"),
        pytest.param(
            batches(input_rate=5000.0) + batches(query="other", dropped_by_watermark=1),
            ["HR680", "HR682"],
            id="each query by itself",
        ),
    ],
)
def test_health(records: list[BatchRecord], expected: list[str]) -> None:
    assert codes(records) == expected


def test_early_slow_batches_are_forgiven() -> None:
    assert codes(batches(3, duration_ms=60_000) + batches(5)) == []


@pytest.mark.capability("JOIN-STST-08")
@pytest.mark.parametrize(
    ("records", "watermarked", "what"),
    [
        pytest.param(
            from_source(clicks=0, shown=2),
            ("shown", "clicks"),
            "stands at 2024-01-01 12:00:00 UTC, held back by 'clicks': no row",
            id="one idle",
        ),
        pytest.param(
            from_source(a=0, b=0, c=3), ("a", "b", "c"), "by 'a' and 'b': no row came from there", id="two idle"
        ),
        pytest.param(from_source(clicks=1, shown=2), ("shown", "clicks"), None, id="both give"),
        pytest.param(from_source(clicks=0, shown=0), ("shown", "clicks"), None, id="none gives"),
        pytest.param(from_source(clicks=0, shown=2), ("shown",), None, id="the idle one has no watermark"),
        pytest.param(from_source(clicks=0, shown=2), (), None, id="no watermark at all"),
        pytest.param(from_source(first=None, clicks=0, shown=2), ("shown", "clicks"), None, id="the watermark moves"),
        pytest.param(from_source(4, clicks=0, shown=2), ("shown", "clicks"), None, id="too few to judge"),
    ],
)
def test_an_idle_input_is_named_when_the_watermark_stands(
    records: list[BatchRecord], watermarked: tuple[str, ...], what: str | None
) -> None:
    found = [finding for finding in health(records, watermarked=watermarked) if finding.code == "HR684"]
    assert [what is not None and what in finding.what for finding in found] == ([True] if what else [])
