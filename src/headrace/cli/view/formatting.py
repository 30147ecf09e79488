"""Numbers, times and batches as short text, the same in every view."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from headrace.cli.output import amount
from headrace.contract import BatchRecord, ChangeCounts, Lag

if TYPE_CHECKING:
    from headrace.contract import BatchWork
    from headrace.history import QueryStatus

NOTHING = "-"
UNKNOWN = "unknown"


def number(value: float | None) -> str:
    """`12,345`; a dash for what is not known."""
    return NOTHING if value is None else f"{value:,.0f}"


def rate(rows_per_second: float | None) -> str:
    """Rows a second: `12,345`, and `0.4` where a whole number would say nothing; a dash where there were no rows."""
    if not rows_per_second:
        return NOTHING
    return f"{rows_per_second:.1f}" if rows_per_second < 10 else number(rows_per_second)


def batch_rate(record: BatchRecord | None) -> str:
    """Return the rows a second that a batch processed; a dash if it had none or its duration is unknown."""
    if record is None or not record.duration_ms:
        return NOTHING
    return rate(record.processed_rate or 1000 * record.rows / record.duration_ms)


def format_work(work: BatchWork) -> str:
    """Return how far a running batch is: `3 of 20 tasks, 12,000 rows read, 12.0 s`."""
    read = [f"{amount(work.rows, 'row')} read"] if work.rows else []
    return ", ".join([f"{work.tasks_done:,} of {amount(work.tasks, 'task')}", *read, duration(1000 * work.seconds)])


def duration(milliseconds: float | None) -> str:
    """`180 ms`, `2.5 s`, `3 min 20 s`."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds} s"


def instant(value: datetime | None) -> str:
    """`2026-01-01 02:03:04`, in UTC."""
    return NOTHING if value is None else f"{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def figures(last: BatchRecord | None) -> tuple[str, str, str, str, str]:
    """Return the number, duration, watermark, rows of the state and lag of a batch; dashes where there was none."""
    if last is None:
        return NOTHING, NOTHING, NOTHING, NOTHING, NOTHING
    shown = number(last.batch), duration(last.duration_ms), instant(last.watermark)
    return *shown, state_rows(last), format_lag(last.backlog)


def rows_in(rows: int, quarantined: int, untimed: int = 0) -> str:
    """`5,093`, `5,093 (15 quarantined)`, or `5,093 (15 quarantined, 2 without event time)`."""
    parts = [f"{quarantined:,} quarantined"] if quarantined else []
    parts += [f"{untimed:,} without event time"] if untimed else []
    return f"{rows:,} ({', '.join(parts)})" if parts else f"{rows:,}"


def format_lag(lag: Lag | None) -> str:
    """`3 files`, `12 files (1.5 MB)`, `0 files, 2 left out`, `3 files as of 2026-01-01 02:03:04`."""
    if lag is None:
        return NOTHING
    unit = lag.unit.removesuffix("s") if lag.count == 1 else lag.unit
    size = f" ({size_of(lag.bytes)})" if lag.bytes else ""
    never = f", {lag.left_out - lag.changed:,} left out" if lag.left_out > lag.changed else ""
    never += f", {lag.changed:,} changed after being read" if lag.changed else ""
    never += f", {lag.problem}" if lag.problem else ""
    then = "" if lag.at_ms is None else f" as of {instant(datetime.fromtimestamp(lag.at_ms / 1000, timezone.utc))}"
    return f"{lag.count:,} {unit}{size}{never}{then}"


def format_lags(status: QueryStatus) -> str:
    """Return what the sources of a query hold: their sum, or each by itself where they count different things."""
    if status.backlog is None and status.lags and None not in status.lags.values():
        return ", ".join(map(format_lag, status.lags.values()))
    return UNKNOWN if status.backlog is None else format_lag(status.backlog)


def state_rows(entry: BatchRecord | QueryStatus) -> str:
    """Return how many rows the state holds; `unknown` where there is state whose rows are not counted."""
    return UNKNOWN if entry.state_rows is None and entry.state_bytes is not None else number(entry.state_rows)


def loads(status: QueryStatus) -> str:
    """`2 of 2`: how many of the state's stores were at hand in the last batch."""
    if status.state_hits is None or status.state_misses is None:
        return NOTHING if status.state_bytes is None else UNKNOWN
    return f"{status.state_hits:,} of {status.state_hits + status.state_misses:,}"


def size_of(size: float) -> str:
    """`512 B`, `1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def change_counts(changes: ChangeCounts, lag_seconds: float | None) -> str:
    """`12 inserts, 3 deletes, 0.4 s after the source`: what changes did to the result, and when."""
    counts = [f"{count:,} {name.removesuffix('s' * (count == 1))}" for name, count in asdict(changes).items() if count]
    lag = [] if lag_seconds is None else [f"{lag_seconds:.1f} s after the source"]
    return ", ".join([*(counts or ["nothing changed"]), *lag])


def sentence(record: BatchRecord, *, batches: int = 1, rows: int | None = None) -> str:
    """Return a batch as one line; with `batches` above 1 it stands for as many, with `rows` in all."""
    which = f"batch {record.batch}" if batches == 1 else f"batches {record.batch - batches + 1} to {record.batch}"
    parts = [
        amount(record.rows if rows is None else rows, "row"),
        *([f"{batch_rate(record)} rows/s"] if batch_rate(record) != NOTHING else []),
        duration(record.duration_ms),
    ]
    if record.changes is not None:
        parts.append(change_counts(record.changes, record.change_lag_seconds))
    if record.watermark is not None:
        parts.append(f"watermark {instant(record.watermark)}")
    if record.state_bytes is not None or record.state_rows is not None:
        held = record.state_rows
        parts.append(f"state {UNKNOWN} rows" if held is None else f"state {amount(held, 'row')}")
    if record.backlog is not None:
        parts.append(f"lag {format_lag(record.backlog)}")
    return f"{record.query} {which}: {', '.join(parts)}"
