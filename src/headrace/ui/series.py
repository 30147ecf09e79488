"""Batches in numbers: columns for charts, brought down to as many points as one can show, and which rows came late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from statistics import median
from typing import Any, TypeAlias

from headrace.contract import BatchRecord, OperatorProgress
from headrace.history.pages import LateBatch
from headrace.units import Duration

Number: TypeAlias = float | None
Bucket: TypeAlias = Sequence[BatchRecord]
Column: TypeAlias = list[Number]
GAP_SECONDS = 30.0
GAP_STEPS = 5.0
# Spark's parts of a trigger, in their order; together they are the trigger, except for what Spark does not report.
PHASES = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


def series(records: Sequence[BatchRecord], points: int, step: int = 1) -> dict[str, Any]:
    """Return the columns, one value a point; None where nothing is known, and at breaks in time.

    Of the batches of a point, durations and rates are the mean, sizes the last, extremes of event time the extremes,
    late rows the sum. step: of how many batches each record stands for one.
    """
    size = max(1, -(-len(records) // points))
    at, buckets = _with_breaks([records[start : start + size] for start in range(0, len(records), size)])

    def column(take: Callable[[Bucket], Number]) -> Column:
        return [None if bucket is None else _short(take(bucket)) for bucket in buckets]

    def mean(take: Callable[[BatchRecord], Number]) -> Column:
        return column(lambda bucket: _mean(map(take, bucket)))

    def phase(name: str) -> Column:
        contains_sink = name == "addBatch"
        return mean(lambda record: record.durations.get(name, 0) - (record.write_ms or 0) * contains_sink)

    def operator(name: str, take: Callable[[OperatorProgress], Number]) -> Column:
        return column(lambda bucket: _last(take(o) for record in bucket for o in record.operators if o.name == name))

    def lag(name: str) -> Column:
        return column(
            lambda bucket: _last(s.lag.count for record in bucket for s in record.sources if s.name == name and s.lag)
        )

    operators = list(dict.fromkeys(operator.name for record in records for operator in record.operators))
    sources = list(dict.fromkeys(source.name for record in records for source in record.sources if source.lag))
    # Where a sink reports its own time, Spark's `addBatch` contains it.
    is_measured = any(record.write_ms is not None for record in records)
    writing = {"write": mean(lambda record: record.write_ms or 0)} if is_measured else {}
    phases = [name for name in PHASES if any(name in record.durations for record in records)]
    return {
        "batches": len(records),
        "step": step,
        "per_point": size,
        "at": at,
        "batch": column(lambda bucket: bucket[-1].batch),
        "rows": mean(lambda record: record.rows),
        "input_rate": mean(lambda record: record.input_rate),
        "processed_rate": mean(lambda record: record.processed_rate if record.rows else None),
        "duration_ms": mean(lambda record: record.duration_ms),
        "longest_ms": column(lambda bucket: max(record.duration_ms for record in bucket)),
        "phases": {**{name: phase(name) for name in phases}, **writing, "other": mean(_rest)},
        "event_min": column(lambda bucket: min(_times(record.event_min for record in bucket), default=None)),
        "event_mean": column(lambda bucket: _mean(_times(record.event_mean for record in bucket))),
        "event_max": column(lambda bucket: max(_times(record.event_max for record in bucket), default=None)),
        "watermark": column(lambda bucket: _last(_times([bucket[-1].watermark]))),
        "late": column(lambda bucket: sum(record.dropped_by_watermark for record in bucket)),
        "operators": {
            name: {
                "rows": operator(name, lambda state: state.rows),
                "bytes": operator(name, lambda state: state.bytes),
                "commit_ms": operator(name, lambda state: state.commit_ms),
            }
            for name in operators
        },
        "lags": {name: lag(name) for name in sources},
        "lag_units": {source.name: source.lag.unit for record in records for source in record.sources if source.lag},
    }


def _with_breaks(buckets: Sequence[Bucket]) -> tuple[list[float], list[Bucket | None]]:
    """Return the time of each point, with an empty point wherever no batch was made for long."""
    times = [bucket[-1].at.timestamp() for bucket in buckets]
    steps = [after - before for before, after in pairwise(times)]
    longest = max(GAP_SECONDS, GAP_STEPS * median(steps)) if steps else 0.0
    at, points, ended = list[float](), list[Bucket | None](), None
    for time, bucket in zip(times, buckets, strict=True):
        began = bucket[0].at.timestamp()
        if ended is not None and began - ended > longest:
            at.append((began + ended) / 2)
            points.append(None)
        at.append(time)
        points.append(bucket)
        ended = time + bucket[-1].duration_ms / 1000
    return at, points


def _mean(numbers: Iterable[Number]) -> Number:
    values = [number for number in numbers if number is not None]
    return sum(values) / len(values) if values else None


def _last(numbers: Iterable[Number]) -> Number:
    values = [number for number in numbers if number is not None]
    return values[-1] if values else None


def _times(times: Iterable[datetime | None]) -> Iterator[float]:
    return (time.timestamp() for time in times if time is not None)


def _short(number: Number) -> Number:
    return number if number is None or isinstance(number, int) else round(number, 3)


def _rest(record: BatchRecord) -> float:
    return max(0, record.duration_ms - sum(record.durations.get(name, 0) for name in PHASES))


# The upper end of each part of the histogram, in seconds; the last has none.
ENDS = (1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, None)
WINDOWS_MOST = 50


def late(batches: Sequence[LateBatch], windows: set[tuple[str, str]]) -> dict[str, Any]:
    """Return how many, how late, and which windows.

    Spark reports of each batch how many rows it dropped, after partial aggregation, and the oldest event time; so a row
    counts below how far the oldest one of its batch was behind.
    """
    parts = [{"up_to_seconds": end, "rows": 0, "batches": 0} for end in ENDS]
    by_window: dict[tuple[str, datetime], dict[str, Any]] = {}
    unknown = 0
    for late_batch in batches:
        if late_batch.oldest is None or late_batch.watermark is None or late_batch.oldest >= late_batch.watermark:
            unknown += late_batch.rows
            continue
        behind = (late_batch.watermark - late_batch.oldest).total_seconds()
        part = next(part for part, end in zip(parts, ENDS, strict=True) if end is None or behind < end)
        part["rows"] = (part["rows"] or 0) + late_batch.rows
        part["batches"] = (part["batches"] or 0) + 1
        for length, slide in windows:
            begins, ends = _window(late_batch.oldest, length, slide)
            if ends <= late_batch.watermark:
                window = by_window.setdefault(
                    (length, begins),
                    {"length": length, "begins": begins.isoformat(), "ends": ends.isoformat(), "rows": 0, "batches": 0},
                )
                window["rows"] += late_batch.rows
                window["batches"] += 1
    newest = sorted(by_window.items(), key=lambda item: item[0][1], reverse=True)[:WINDOWS_MOST]
    return {
        "rows": sum(batch.rows for batch in batches),
        "batches": len(batches),
        "of_unknown_lateness": unknown,
        "histogram": parts,
        "windows": [window for _, window in newest],
        "windows_known": bool(windows),
    }


def _window(time: datetime, length: str, slide: str) -> tuple[datetime, datetime]:
    """Return the last window that holds a time, counted from 1970 as Spark does."""
    whole, step = Duration.parse(length).seconds, Duration.parse(slide or length).seconds
    begins = time.timestamp() // step * step
    return datetime.fromtimestamp(begins, timezone.utc), datetime.fromtimestamp(begins + whole, timezone.utc)
