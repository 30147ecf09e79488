"""How a query stands, put together from its state, its newest run, batch and verdict."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

from headrace.checkpoint.sources import source_of
from headrace.contract import BatchRecord, ChangeCounts, Lag
from headrace.contract.observer import QueryState, State
from headrace.errors import Finding, PlainData
from headrace.generations.driver_lock import birth
from headrace.history.health import find_wrong_times
from headrace.units import instant


@dataclass(frozen=True, kw_only=True)
class QueryStatus(PlainData):
    """The newest run and batch of one query; values of a batch are None before the first.

    Attributes:
        now: The state; `killed` if the process is gone and did not report its end.
        pid: The process of the run.
        run: The number of the run.
        generation: The generation that runs.
        mode: The output mode.
        trigger: The trigger.
        sink: The kind of the sink.
        batch: The newest batch of any run.
        rows_total: The rows of all batches in the history; a batch that was repeated counts once.
        rows_quarantined: How many of them did not fit the schema and were set aside.
        null_times: The rows without an event time, for each source with a watermark where that is counted.
        input_rate: The rows that arrived in a second.
        processed_rate: The rows that were processed in a second.
        watermark: The watermark.
        batch_ms: The duration of the batch in milliseconds.
        state_rows: The rows of the state; None also if the state store does not count them.
        state_bytes: The memory of the state.
        state_hits: How many stores of the state were in memory.
        state_misses: How many stores of the state had to be loaded.
        backlog: The sum of `lags`.
        lags: What each source holds that no batch has taken; None if that is not known. `headrace.status` asks the
            sources; for one that does not answer, it gives the last known lag with its time.
        error: Why the query failed, until it has worked again, or what is wrong while it continues.
        error_pid: The process that had the error: that of this run or of the run before.
        fenced: Whether that process ended because a newer driver runs the query.
        verdict: The newest verdict as plain data.
        started: When the run started.
        last_seen: The newest sign of life.
        counters: The values of the query's counters after the newest batch.
        changes: What the newest batch did to the result of a query that applies changes.
        change_lag_seconds: The time from the newest change of that batch, by the source's clock, to its commit.
        wrong_times: What is wrong with the event times of the rows up to the newest batch.
    """

    query: str
    now: QueryState
    pid: int
    run: int
    generation: int
    mode: str
    trigger: str
    sink: str
    batch: int | None
    rows_total: int
    rows_quarantined: int = 0
    null_times: Mapping[str, int] = field(default_factory=dict)
    input_rate: float | None
    processed_rate: float | None
    watermark: datetime | None
    batch_ms: int | None
    state_rows: int | None
    state_bytes: int | None = None
    state_hits: int | None = None
    state_misses: int | None = None
    backlog: Lag | None
    lags: Mapping[str, Lag | None] = field(default_factory=dict)
    error: Finding | None
    error_pid: int | None = None
    fenced: bool = False
    verdict: dict[str, Any] | None
    started: datetime
    last_seen: datetime
    counters: Mapping[str, Any] = field(default_factory=dict)
    changes: ChangeCounts | None = None
    change_lag_seconds: float | None = None
    wrong_times: tuple[Finding, ...] = ()

    @property
    def state(self) -> State:
        """The word of its state."""
        return self.now.state

    @property
    def in_trouble(self) -> bool:
        """Whether it has failed and not worked since, or a newer driver has ended it."""
        return self.now.in_trouble or self.fenced

    def as_dict(self) -> dict[str, Any]:
        """Return the status as plain data, the parts of its state among its own."""
        facts = super().as_dict()
        state = facts.pop("now")
        return {**facts, **state, "in_trouble": self.in_trouble}


@dataclass(frozen=True, kw_only=True)
class Event(PlainData):
    """Something that happened to a query or to the application.

    Attributes:
        id: The number of the event.
        at: When it happened.
        query: The query; None for an event of the application.
        run: The run of the query.
        kind: The kind of event.
        detail: The event as plain data.
    """

    id: int
    at: datetime
    query: str | None
    run: int | None
    kind: str
    detail: dict[str, Any]


# What a status takes from its newest batch as it is.
_OF_BATCH = (
    *("batch", "input_rate", "processed_rate", "watermark"),
    *("state_rows", "state_bytes", "state_hits", "state_misses"),
)
Row: TypeAlias = "Mapping[str, Any] | sqlite3.Row"
# The newest verdict, unless it is older than the generation that runs: then it is about an earlier one.
_VERDICT = """
SELECT verdict FROM verdicts WHERE query = :query AND (
    at >= (SELECT coalesce(min(started), 0) FROM runs WHERE query = :query AND generation = :generation)
    OR NOT EXISTS (SELECT 1 FROM runs WHERE query = :query AND generation < :generation))
ORDER BY id DESC LIMIT 1
"""
_SILENT_SECONDS = 60.0
"""A run on another machine, whose processes cannot be seen from here, counts as killed after this silence."""


def status_of(db: sqlite3.Connection, query: str, run: Row | None, kept: Row | None) -> QueryStatus:
    """Return the status of a query with its newest run and the state that is kept of it, one of which there is."""
    now = _state(query, run, kept)
    if run is None:
        assert kept is not None, "a query is known by its run or by its state"
        run = _placeholder_run(kept)
    whose = (query, run["generation"])
    text = db.execute(
        "SELECT record FROM batches WHERE query = ? AND generation = ? ORDER BY batch DESC LIMIT 1", whose
    ).fetchone()
    total, quarantined = (
        db.execute(
            f"SELECT rows FROM {table} WHERE query = ? AND generation = ?", (query, run["generation"])
        ).fetchone()
        for table in ("totals", "quarantined")
    )
    before = db.execute(
        "SELECT error, pid FROM runs WHERE query = ? AND generation = ? AND id < ? ORDER BY id DESC LIMIT 1",
        (*whose, run["id"]),
    ).fetchone()
    verdict = db.execute(_VERDICT, {"query": query, "generation": run["generation"]}).fetchone()
    last = BatchRecord.from_dict(json.loads(text[0])) if text else None
    # What an earlier process has left, until this one works.
    own = bool(run["error"] or run["ended"] or not before or now.healthy)
    text_of_error, error_pid = (run["error"], run["pid"]) if own else before
    run_error, fenced = _error_of(None if now.state == "removed" else text_of_error)
    failed = now.waits or now.cause
    error = failed or run_error
    return QueryStatus(
        query=query,
        now=now,
        pid=run["pid"],
        run=run["id"],
        generation=run["generation"],
        mode=run["mode"],
        trigger=run["trigger_text"],
        sink=run["sink"],
        rows_total=total[0] if total else 0,
        rows_quarantined=quarantined[0] if quarantined else 0,
        batch_ms=last.duration_ms if last else None,
        **{name: getattr(last, name, None) for name in _OF_BATCH},
        backlog=_as_of(last, last.backlog) if last else None,
        lags=_lags(last) if last else {},
        error=error,
        error_pid=None if error is None else run["pid"] if failed else error_pid,
        fenced=fenced,
        verdict=json.loads(verdict[0]) if verdict else None,
        started=instant(run["started"]),
        last_seen=instant(max(run["seen"], kept["seen"] if kept else 0.0)),
        counters=last.counters if last else {},
        changes=last.changes if last else None,
        change_lag_seconds=last.change_lag_seconds if last else None,
        null_times=_null_times(last) if last else {},
        wrong_times=tuple(find_wrong_times([last])) if last else (),
    )


def _null_times(record: BatchRecord) -> dict[str, int]:
    return {source.name: total for source in record.sources if (total := source.null_times_total) is not None}


def _error_of(text: str | None) -> tuple[Finding | None, bool]:
    """Return what a run failed of, and whether a newer driver has ended it."""
    plain = json.loads(text) if text else {}
    fenced = bool(plain.pop("fenced", False))
    return (Finding.from_dict(plain) if plain else None), fenced


def _lags(record: BatchRecord) -> dict[str, Lag | None]:
    """Return what each source held after a batch; of several uses, what waits for the one that took the least."""
    lags: dict[str, Lag | None] = {}
    for source in record.sources:
        name = source_of(source.name)
        earlier = lags.get(name)
        if earlier is None or (source.lag is not None and source.lag.count > earlier.count):
            lags[name] = _as_of(record, source.lag)
    return lags


def _as_of(record: BatchRecord, lag: Lag | None) -> Lag | None:
    ended = record.at.timestamp() * 1000 + record.duration_ms
    return None if lag is None else replace(lag, at_ms=int(ended))


def is_alive(process: Row) -> bool:
    """Whether the process of a row with its host, pid, birth and last sign of life lives."""
    if process["host"] == socket.gethostname():
        return process["birth"] is not None and birth(process["pid"]) == process["birth"]
    return time.time() - float(process["seen"]) < _SILENT_SECONDS


def state_of(kept: Row) -> QueryState:
    """Return the state that is kept of a query; `killed` once its process is gone without a word."""
    return _with_killed(QueryState.from_dict(json.loads(kept["state"])), kept)


def _state(query: str, run: Row | None, kept: Row | None) -> QueryState:
    """Return the recorded state, or that of a later run which recorded none."""
    if kept is not None and (run is None or kept["seen"] >= run["started"]):
        return state_of(kept)
    assert run is not None, "a query is known by its run or by its state"
    cause = _error_of(run["error"])[0] if run["state"] == "failed" else None
    since = instant(run["ended"] or run["started"])
    return _with_killed(QueryState(query=query, state=run["state"], since=since, cause=cause), run)


def _with_killed(state: QueryState, process: Row) -> QueryState:
    if state.has_ended or is_alive(process):
        return state
    return replace(state, state="killed", since=instant(process["seen"]), next_attempt=None, healthy=False, waits=None)


def _placeholder_run(kept: Row) -> dict[str, Any]:
    """Return what stands for the run of a query that has not begun one."""
    named = {"mode": "", "trigger_text": "", "sink": "", "error": None, "ended": None}
    return {"id": 0, "generation": 1, "pid": kept["pid"], "started": kept["seen"], "seen": kept["seen"], **named}
