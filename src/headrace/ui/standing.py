"""How each query stands, for the pages: its state, its rates, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from headrace.checkpoint.sources import source_of
from headrace.contract import BatchRecord, Lag
from headrace.contract.observer import Level
from headrace.errors import Finding, Where
from headrace.history import History, QueryStatus
from headrace.history.health import find_silent_sources, health
from headrace.history.lag import SourceLags, total
from headrace.model import Project, Query

WINDOW = 20
STALE_SECONDS = 60.0
"""A rate is of the last batches; once the newest is older than this, nothing flows any more."""


def standings(
    project: Project, history: History | None, lags: SourceLags, now: datetime | None = None
) -> dict[str, dict[str, Any]]:
    """Return every query of the project, by name; one that never ran has the state `never started`."""
    now = now or datetime.now(timezone.utc)
    asked = lags.of(project.queries)
    statuses = {status.query: status for status in lags.now(history.statuses())} if history else {}
    return {
        name: _standing(project, query, statuses[name], history, now)
        if history and name in statuses
        else _never(query, asked[name], now)
        for name, query in project.queries.items()
    }


def _never(query: Query, lags: Mapping[str, Lag | None], now: datetime) -> dict[str, Any]:
    return {
        "query": query.name,
        "state": "never started",
        "level": "idle",
        "findings": [],
        "rates": _NO_RATES,
        "sources": {name: _source(lag, 0.0, now) for name, lag in lags.items()},
        "backlog": _plain(total(lags)),
    }


_NO_RATES: dict[str, float | None] = {"input": None, "processed": None}


def _standing(project: Project, query: Query, status: QueryStatus, history: History, now: datetime) -> dict[str, Any]:
    recent = history.recent(query.name, WINDOW, generation=status.generation)
    findings = list(_findings(project, query, status, recent, now))
    watermarked = [source.name for source in project.sources_of(query) if source.watermark]
    return {
        **{key: value for key, value in status.as_dict().items() if key not in ("verdict", "error")},
        "level": _level(status, findings),
        "findings": [finding.as_dict() for finding in findings],
        "verdict": status.verdict,
        "rates": _rates(status, recent, now),
        "sources": dict(_sources(status, recent, now)),
        "at": recent[-1].at.isoformat() if recent else None,
        "event_max": _newest_event(recent),
        "late": sum(record.dropped_by_watermark for record in recent),
        "watermarked": watermarked,
        "durations": [record.duration_ms for record in recent],
        "write_ms": recent[-1].write_ms if recent else None,
        "skew": recent[-1].skew if recent else None,
    }


def _findings(
    project: Project, query: Query, status: QueryStatus, recent: Sequence[BatchRecord], now: datetime
) -> Iterator[Finding]:
    """Yield the error that it stands with, and what its last batches show while it runs."""
    # That of an earlier process is over.
    if status.error is not None and (status.error_pid == status.pid or status.fenced):
        finding = status.now.finding() or status.error
        yield finding.with_severity("error") if status.in_trouble else finding
    if status.state == "killed":
        yield Finding(
            code="HR893",
            where=Where(file=f"query '{query.name}'"),
            what=f"its process {status.pid} is gone and did not say how it ended",
            fix="start it again with `headrace run`: it resumes from the last committed batch",
        )
    if status.now.is_started and recent:
        watermarked = [source.name for source in project.sources_of(query) if source.watermark]
        yield from health(recent, watermarked=watermarked, state_budget_bytes=query.state_budget_bytes)
        yield from find_silent_sources(query.name, recent, now=now)


def _level(status: QueryStatus, findings: Sequence[Finding]) -> Level:
    if status.in_trouble:
        return "bad"
    if any(finding.severity in ("error", "warning") for finding in findings):
        return "warning"
    return status.now.level


def _rates(status: QueryStatus, recent: Sequence[BatchRecord], now: datetime) -> dict[str, float | None]:
    """Rows a second that came in and that could be processed, over the last batches."""
    seconds = _span(status, recent, now)
    if not recent:
        return _NO_RATES
    busy = sum(record.duration_ms for record in recent if record.rows) / 1000
    rows = sum(record.rows for record in recent)
    return {
        "input": rows / seconds if seconds else 0.0,
        "processed": rows / busy if busy else None,
    }


def _sources(status: QueryStatus, recent: Sequence[BatchRecord], now: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rate and the lag of each source, as this query sees it."""
    seconds = _span(status, recent, now)
    # Before its first batch a query has sources all the same, and what they hold waits.
    names = dict.fromkeys(
        [*status.lags, *(source_of(source.name) for source in (recent[-1].sources if recent else ()))]
    )
    for name in names:
        rows = sum(
            # Counted rightly for the batch as a whole, Spark's figures of its sources may be too high.
            source.rows * record.rows / max(1, sum(one.rows for one in record.sources))
            for record in recent
            for source in record.sources
            if source_of(source.name) == name
        )
        yield name, _source(status.lags.get(name), rows / seconds if seconds else 0.0, now)


def _source(lag: Lag | None, rate: float, now: datetime) -> dict[str, Any]:
    waiting = None if lag is None else lag.waiting_seconds(now.timestamp())
    return {"rate": rate, "lag": _plain(lag), "waiting_seconds": waiting}


def _plain(lag: Lag | None) -> dict[str, Any] | None:
    return None if lag is None else asdict(lag)


def _span(status: QueryStatus, recent: Sequence[BatchRecord], now: datetime) -> float:
    """Return the seconds that the last batches cover; 0 where nothing flows any more."""
    if not recent or not status.now.is_started:
        return 0.0
    ended = recent[-1].at.timestamp() + recent[-1].duration_ms / 1000
    if now.timestamp() - ended > STALE_SECONDS:
        return 0.0
    return max(ended - recent[0].at.timestamp(), 0.001)


def _newest_event(recent: Sequence[BatchRecord]) -> str | None:
    times = [record.event_max for record in recent if record.event_max is not None]
    return max(times).isoformat() if times else None
