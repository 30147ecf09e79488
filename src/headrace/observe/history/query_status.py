"""How a query stands, put together from its state, its newest run, batch and verdict."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, TypeAlias

from headrace.checkpoint.sources import source_of
from headrace.contract import Lag
from headrace.contract.query_state import QueryState
from headrace.errors import Finding
from headrace.observe.history.status import QueryStatus
from headrace.observe.progress import BatchRecord
from headrace.queries.processes import birth

Row: TypeAlias = "Mapping[str, Any] | sqlite3.Row"
FENCED = "HR409"
_SILENT_SECONDS = 60.0
"""A run on another machine, whose processes cannot be seen from here, counts as killed after this silence."""


def status_of(db: sqlite3.Connection, query: str, run: Row | None, kept: Row | None) -> QueryStatus:
    """The status of a query with its newest run and the state that is kept of it, one of which there is."""
    now = _state(query, run, kept)
    if run is None:
        assert kept is not None, "a query is known by its run or by its state"
        run = _not_begun(kept)
    text = db.execute(
        "SELECT record FROM batches WHERE query = ? AND generation = ? ORDER BY batch DESC LIMIT 1",
        (query, run["generation"]),
    ).fetchone()
    total = db.execute(
        "SELECT rows FROM totals WHERE query = ? AND generation = ?", (query, run["generation"])
    ).fetchone()
    quarantined = (
        has_table(db, "quarantined")
        and db.execute(
            "SELECT rows FROM quarantined WHERE query = ? AND generation = ?", (query, run["generation"])
        ).fetchone()
    )
    before = db.execute(
        "SELECT error, pid FROM runs WHERE query = ? AND id < ? ORDER BY id DESC LIMIT 1", (query, run["id"])
    ).fetchone()
    verdict = db.execute("SELECT verdict FROM verdicts WHERE query = ? ORDER BY id DESC LIMIT 1", (query,)).fetchone()
    last = BatchRecord.from_dict(json.loads(text[0])) if text else None
    # What an earlier process has left, until this one works.
    own = bool(run["error"] or run["ended"] or not before or now.healthy)
    text_of_error, error_pid = (run["error"], run["pid"]) if own else before
    error = now.cause or (Finding.from_dict(json.loads(text_of_error)) if text_of_error else None)
    return QueryStatus(
        query=query,
        now=now,
        pid=run["pid"],
        run=run["id"],
        generation=run["generation"],
        mode=run["mode"],
        trigger=run["trigger_text"],
        sink=run["sink"],
        batch=last.batch if last else None,
        rows_total=total[0] if total else 0,
        rows_quarantined=quarantined[0] if quarantined else 0,
        input_rate=last.input_rate if last else None,
        processed_rate=last.processed_rate if last else None,
        watermark=last.watermark if last else None,
        batch_ms=last.duration_ms if last else None,
        state_rows=last.state_rows if last else None,
        state_bytes=last.state_bytes if last else None,
        state_hits=last.state_hits if last else None,
        state_misses=last.state_misses if last else None,
        backlog=_as_of(last, last.backlog) if last else None,
        lags=_lags(last) if last else {},
        error=error,
        error_pid=None if error is None else run["pid"] if now.cause else error_pid,
        fenced=error is not None and error.code == FENCED,
        verdict=json.loads(verdict[0]) if verdict else None,
        started=_instant(run["started"]),
        last_seen=_instant(max(run["seen"], kept["seen"] if kept else 0.0)),
        counters=last.counters if last else {},
    )


def has_table(db: sqlite3.Connection, table: str) -> bool:
    """Whether the file has a table that older ones lack until they are opened for writing."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _lags(record: BatchRecord) -> dict[str, Lag | None]:
    """What each source held after a batch; of several uses of one, what waits for the use that has taken the least."""
    found: dict[str, Lag | None] = {}
    for source in record.sources:
        name = source_of(source.name)
        known = found.get(name)
        if known is None or (source.lag is not None and source.lag.count > known.count):
            found[name] = _as_of(record, source.lag)
    return found


def _as_of(record: BatchRecord, lag: Lag | None) -> Lag | None:
    ended = record.at.timestamp() * 1000 + record.duration_ms
    return None if lag is None else replace(lag, at_ms=int(ended))


def is_alive(process: Row) -> bool:
    """Whether the process of a row with its host, pid, birth and last sign of life lives."""
    if process["host"] == socket.gethostname():
        return process["birth"] is not None and birth(process["pid"]) == process["birth"]
    return time.time() - float(process["seen"]) < _SILENT_SECONDS


def state_of(kept: Row) -> QueryState:
    """The state that is kept of a query; `killed` once its process is gone without a word."""
    return _or_killed(QueryState.from_dict(json.loads(kept["state"])), kept)


def _state(query: str, run: Row | None, kept: Row | None) -> QueryState:
    """What is kept of its state; a later run of another form of the history tells of itself alone."""
    if kept is not None and (run is None or kept["seen"] >= run["started"]):
        return state_of(kept)
    assert run is not None, "a query is known by its run or by its state"
    cause = Finding.from_dict(json.loads(run["error"])) if run["error"] and run["state"] == "failed" else None
    since = _instant(run["ended"] or run["started"])
    return _or_killed(QueryState(query=query, state=run["state"], since=since, cause=cause), run)


def _or_killed(state: QueryState, process: Row) -> QueryState:
    if state.has_ended or is_alive(process):
        return state
    return replace(state, state="killed", since=_instant(process["seen"]), next_attempt=None, healthy=False)


def _not_begun(kept: Row) -> dict[str, Any]:
    """What stands for the run of a query that has not begun one."""
    named = {"mode": "", "trigger_text": "", "sink": "", "error": None, "ended": None}
    return {"id": 0, "generation": 1, "pid": kept["pid"], "started": kept["seen"], "seen": kept["seen"], **named}


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=timezone.utc)
