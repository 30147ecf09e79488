"""Health is judged from records alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from headrace.contract import BatchRecord, Lag, Leap, OperatorProgress, SourceProgress
from headrace.history.health import find_lost_executors, find_silent_sources, find_stall, health

pytestmark = pytest.mark.plain


def batches(count: int = 6, **facts: object) -> list[BatchRecord]:
    common: dict[str, object] = {
        **{"query": "counts", "run_id": "r", "at": datetime(2024, 1, 1, tzinfo=timezone.utc), "rows": 1000},
        **{"input_rate": 100.0, "processed_rate": 1000.0, "duration_ms": 1000, "durations": {"addBatch": 800}},
    }
    return [BatchRecord(batch=batch, **{**common, **facts}) for batch in range(count)]  # type: ignore[arg-type]


def growing(*sizes: int) -> list[BatchRecord]:
    return [record for size in sizes for record in batches(1, state_rows=size)]


def waiting(*counts: int, age: int | None = None) -> list[BatchRecord]:
    """Batches that leave so many files, the oldest of which has waited for `age` seconds at their ends."""
    ended = datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp() + 1
    oldest = None if age is None else int(1000 * (ended - age))
    return [
        record for count in counts for record in batches(1, backlog=Lag(count=count, unit="files", oldest_ms=oldest))
    ]


def caught_up(first: int, last: int) -> list[BatchRecord]:
    """Batches of which each takes half as long as Spark's rate of what arrives says, over a lag that changes."""
    lags = [first + (last - first) * at // 9 for at in range(10)]
    return [record for lag in lags for record in batches(1, input_rate=2000.0, backlog=Lag(count=lag, unit="messages"))]


def jittery(*seconds: int) -> list[BatchRecord]:
    """Batches of the same rows that follow each other at once and take turns in how long they take."""
    took = [seconds[at % len(seconds)] for at in range(21)]
    return [
        record
        for before, own in pairwise(took)
        for record in batches(1, duration_ms=1000 * own, input_rate=1000 / before)
    ]


NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


def from_source(count: int = 5, *, first: datetime | None = NOON, **rows: int) -> list[BatchRecord]:
    sources = tuple(SourceProgress(name=name, rows=count, start=None, end=None) for name, count in rows.items())
    return [*batches(1, watermark=first), *batches(count - 1, watermark=NOON, sources=sources)]


def codes(records: list[BatchRecord]) -> list[str]:
    return [finding.code for finding in health(records)]


def standing(*minutes: int, watermark: datetime | None = NOON) -> list[BatchRecord]:
    sources = (SourceProgress(name="clicks", rows=9, start=None, end=None),)
    return [
        record
        for minute in minutes
        for record in batches(
            1, watermark=watermark, sources=sources, event_max=datetime(2024, 1, 1, 14, minute, tzinfo=timezone.utc)
        )
    ]


def dropping(*late: int) -> list[BatchRecord]:
    return [record for count in late for record in batches(1, dropped_by_watermark=count)]


STATE = OperatorProgress(name="dedupe", rows=1, bytes=700, updated=1, late=0, commit_ms=1)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param(standing(*[5] * 10), ["HR883"], id="no newer event times"),
        pytest.param(standing(5, *[4] * 9), ["HR883"], id="only older event times"),
        pytest.param(standing(*range(10)), [], id="newer times, and a delay that is long"),
        pytest.param(standing(*[5] * 9), [], id="too few to judge"),
        pytest.param(standing(*[5] * 10, watermark=None), [], id="no watermark"),
        pytest.param(dropping(*[0] * 5, *[30] * 5), ["HR682", "HR682"], id="late rows begin"),
        pytest.param(dropping(*[20] * 5, *[30] * 5), ["HR682"], id="late rows as usual"),
        pytest.param(dropping(*[1] * 5, *[5] * 5), ["HR682"], id="few late rows"),
        pytest.param(
            batches(state_bytes=900, operators=(STATE, replace(STATE, name="x", bytes=200))), ["HR884"], id="over"
        ),
        pytest.param(batches(state_bytes=800), [], id="within its budget"),
    ],
)
def test_what_stands_rises_or_is_over_its_budget_is_called_out(records: list[BatchRecord], expected: list[str]) -> None:
    findings = list(health(records, state_budget_bytes=800))
    assert sorted(finding.code for finding in findings) == expected
    if expected == ["HR884"]:
        assert "900 bytes of memory, most of it in dedupe; its budget is 800" in findings[0].what
    if expected == ["HR883"]:
        assert "90 from 'clicks'" in findings[0].what


@pytest.mark.parametrize(
    ("silent", "trigger", "took", "count"),
    [(179, 0, 100, 0), (181, 0, 100, 1), (200, 30, 100, 0), (301, 30, 100, 1), (301, 0, 40_000, 0)],
    ids=["a moment", "long", "of a long interval", "of many intervals", "of long batches"],
)
def test_no_commit_for_many_triggers_is_called_out(silent: float, trigger: float, took: int, count: int) -> None:
    findings = list(find_stall("q", batches(duration_ms=took), silent_seconds=silent, trigger_seconds=trigger))
    assert [finding.code for finding in findings] == ["HR880"] * count


@pytest.mark.parametrize("records", [[], batches(4), [*batches(5), *batches(1, duration_ms=95_000)]])
def test_no_batch_is_called_slow_before_it_is_known_what_is_usual(records: list[BatchRecord]) -> None:
    assert not list(find_stall("q", records, silent_seconds=899, trigger_seconds=1))
    (finding,) = find_stall("q", records, silent_seconds=951, trigger_seconds=1)
    assert finding.what.startswith("no batch was committed and no task moved for 0:15:51")
    assert ("the longest of the last" in finding.what) == bool(records)


@pytest.mark.parametrize(
    ("gaps", "silent", "count"),
    [
        ((10, 10, 10), 299, 0),
        ((10, 10, 10), 301, 1),
        ((10, 600, 10), 5_999, 0),
        ((10, 600), 6_001, 1),
        ((10,), 9_999, 0),
    ],
)
def test_a_source_that_falls_silent_is_named(gaps: tuple[int, ...], silent: float, count: int) -> None:
    at, records = NOON, from_source(1, clicks=5)
    for gap in (0, *gaps):
        at += timedelta(seconds=gap)
        sources = (
            SourceProgress(name="clicks", rows=5, start=None, end=None),
            SourceProgress(name="never", rows=0, start=None, end=None),
        )
        records += [replace(record, at=at, sources=sources) for record in batches(1)]
    findings = list(find_silent_sources("q", records, now=at + timedelta(seconds=silent)))
    assert [finding.code for finding in findings] == ["HR881"] * count
    assert all("source 'clicks' has given no row for" in finding.what for finding in findings)


def test_executors_that_were_lost_are_counted() -> None:
    assert not list(find_lost_executors({"a:1"}, {"a:1", "b:2"}))
    (finding,) = find_lost_executors({"a:1", "b:2", "c:3"}, {"c:3"})
    assert (finding.code, finding.what) == ("HR882", "2 executors were lost (a:1, b:2); 1 remain")


@pytest.mark.capability("MON-04")
def test_a_query_that_works_off_less_than_arrives_is_called_out() -> None:
    (finding,) = health(batches(10, input_rate=5000.0))
    assert finding.code == "HR680"
    assert "1,000 rows a second while 5,000 arrive" in finding.what
    assert "addBatch (800 ms)" in finding.fix


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(batches(), [], id="well"),
        pytest.param(batches(9, input_rate=5000.0), [], id="too few to judge"),
        pytest.param(batches(rows=0, input_rate=0.0, duration_ms=0), [], id="idle"),
        pytest.param(batches(9, input_rate=5000.0) + batches(9, rows=0), [], id="idle batches do not count"),
        pytest.param(batches(10, input_rate=1450.0), [], id="the clock's noise"),
        pytest.param(caught_up(1_000, 100), [], id="a backlog where nothing arrives"),
        pytest.param(caught_up(100, 100), [], id="it keeps up"),
        pytest.param(caught_up(100, 145), ["HR680"], id="it does not keep up"),
        pytest.param(jittery(1, 3), [], id="a loaded machine, each second batch slow"),
        pytest.param(jittery(1, 1, 1, 9), [], id="a loaded machine, now and then a slow batch"),
        pytest.param(waiting(2, 3, 5, 6, 6, 12, 20, 15, 16, 18), ["HR680"], id="growing lag"),
        pytest.param(waiting(2, 3, 5, 5, 9), [], id="too few to differ from noise"),
        pytest.param(waiting(1, 2, 3, 4, 5, 4, 5, 6, 7, 8), [], id="steady lag"),
        pytest.param(waiting(2, 3, 5, 6, 6, 12, 20, 15, 16, 18, age=3), [], id="the next batch takes it"),
        pytest.param(waiting(2, 3, 5, 6, 6, 12, 20, 15, 16, 18, age=30), ["HR680"], id="it waits for many batches"),
        pytest.param(growing(*range(100, 300, 20)), ["HR681"], id="growing state"),
        pytest.param(
            [replace(record, watermark=NOON) for record in growing(*range(100, 300, 20))], [], id="a window that fills"
        ),
        pytest.param(growing(*range(100, 110)), [], id="hardly growing state"),
        pytest.param(growing(*range(100, 300, 40), *range(100, 300, 40)), [], id="steady state"),
        pytest.param(batches(dropped_by_watermark=2), ["HR682"], id="late rows"),
        pytest.param(
            batches(10, input_rate=5000.0) + batches(query="other", dropped_by_watermark=1),
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
    ("records", "watermarked", "words"),
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
    records: list[BatchRecord], watermarked: tuple[str, ...], words: str | None
) -> None:
    findings = [finding for finding in health(records, watermarked=watermarked) if finding.code == "HR684"]
    assert [words is not None and words in finding.what for finding in findings] == ([True] if words else [])


def timed_records(
    nulls: int | None = 0, total: int | None = 0, leap: Leap | None = None, count: int = 1
) -> list[BatchRecord]:
    source = SourceProgress(name="clicks", rows=9, start=None, end=None, null_times=nulls, null_times_total=total)
    return batches(count, sources=(source,), leap=leap)


LEAPT = Leap(watermark_ms=4_922_899_200_000, source="clicks", batch=5, time_ms=4_922_902_800_000, place="clicks/0/17")


@pytest.mark.parametrize(
    ("records", "says"),
    [
        pytest.param(
            timed_records(2, 1_002), ["rows have no event time (NULL): 1,002 of 'clicks'"], id="rows without a time"
        ),
        pytest.param([*timed_records(2, 2), *timed_records(0, 2)], ["2 of 'clicks'"], id="a batch ago"),
        pytest.param(timed_records(0, 2), [], id="long ago"),
        pytest.param(timed_records(None, None), [], id="not known"),
        pytest.param(
            timed_records(leap=LEAPT),
            [
                "its watermark is in the future, at 2126-01-01 00:00:00 UTC, moved by a row of source 'clicks' in "
                "batch 5 (clicks/0/17), of 2126-01-01 01:00:00 UTC"
            ],
            id="a row of the future",
        ),
        pytest.param(
            timed_records(leap=Leap(watermark_ms=9 * 10**15)),
            ["at 9999-12-31 23:59:59 UTC"],
            id="beyond Python's years",
        ),
    ],
)
def test_wrong_event_times_are_named(records: list[BatchRecord], says: list[str]) -> None:
    findings = list(health(records))
    assert len(findings) == len(says)
    assert all(text in finding.what for finding, text in zip(findings, says, strict=True))


@pytest.mark.parametrize(
    ("leap", "fix"),
    [
        (LEAPT, "headrace rewind counts --to-batch 4;"),
        (replace(LEAPT, batch=0), "headrace reset counts;"),
        (Leap(watermark_ms=LEAPT.watermark_ms), "headrace inspect watermark counts;"),
    ],
    ids=["rewind", "the first batch", "not known"],
)
def test_a_watermark_of_the_future_says_what_can_be_done(leap: Leap, fix: str) -> None:
    (finding,) = health(timed_records(leap=leap))
    assert fix in finding.fix
