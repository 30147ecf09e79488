"""How a query stands, put together from its newest run, batch and verdict."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from datetime import datetime, timezone

from headrace.errors import Finding, Where
from headrace.history.processes import birth
from headrace.history.status import QueryState, QueryStatus
from headrace.progress import BatchRecord

FENCED = "HR409"
_SILENT_SECONDS = 60.0
"""A run on another machine, whose processes cannot be seen from here, counts as killed after this silence."""


def status_of(db: sqlite3.Connection, run: dict[str, object]) -> QueryStatus:
    """The status of the query that `run`, its newest, belongs to."""
    query = str(run["query"])
    text = db.execute(
        "SELECT record FROM batches WHERE query = ? AND generation = ? ORDER BY batch DESC LIMIT 1",
        (query, run["generation"]),
    ).fetchone()
    total = db.execute(
        "SELECT rows FROM totals WHERE query = ? AND generation = ?", (query, run["generation"])
    ).fetchone()
    before = db.execute(
        "SELECT error, pid FROM runs WHERE query = ? AND id < ? ORDER BY id DESC LIMIT 1", (query, run["id"])
    ).fetchone()
    verdict = db.execute("SELECT verdict FROM verdicts WHERE query = ? ORDER BY id DESC LIMIT 1", (query,)).fetchone()
    last = BatchRecord.from_dict(json.loads(text[0])) if text else None
    state = _state(run)
    paused = _paused(db, run) if state == "paused" else None
    own = bool(run["error"] or run["ended"] or not before)
    text_of_error, error_pid = (run["error"], run["pid"]) if own else before
    error = _finding(str(text_of_error)) if text_of_error else None
    return QueryStatus(
        query=query,
        state=state,
        pid=int(str(run["pid"])),
        run=int(str(run["id"])),
        generation=int(str(run["generation"])),
        mode=str(run["mode"]),
        trigger=str(run["trigger_text"]),
        sink=str(run["sink"]),
        batch=last.batch if last else None,
        rows_total=total[0] if total else 0,
        input_rate=last.input_rate if last else None,
        processed_rate=last.processed_rate if last else None,
        watermark=last.watermark if last else None,
        batch_ms=last.duration_ms if last else None,
        state_rows=last.state_rows if last else None,
        state_bytes=last.state_bytes if last else None,
        state_hits=last.state_hits if last else None,
        state_misses=last.state_misses if last else None,
        backlog=last.backlog if last else None,
        restarts=int(str(run["restarts"])),
        error=error,
        error_pid=int(str(error_pid)) if error is not None else None,
        fenced=error is not None and error.code == FENCED,
        verdict=json.loads(verdict[0]) if verdict else None,
        started=_instant(run["started"]),
        last_seen=_instant(run["seen"]),
        paused_by=json.loads(paused["detail"])["by"] if paused else None,
        paused_at=_instant(paused["at"]) if paused else None,
        counters=last.counters if last else {},
    )


def _paused(db: sqlite3.Connection, run: dict[str, object]) -> sqlite3.Row | None:
    """The event of its pause."""
    found: sqlite3.Row | None = db.execute(
        "SELECT at, detail FROM events WHERE query = ? AND run = ? AND kind = 'paused' ORDER BY id DESC LIMIT 1",
        (run["query"], run["id"]),
    ).fetchone()
    return found


def _state(run: dict[str, object]) -> QueryState:
    state: QueryState = run["state"]  # type: ignore[assignment]
    if run["ended"] is not None:
        return state
    if run["host"] == socket.gethostname():
        alive = run["birth"] is not None and birth(int(str(run["pid"]))) == run["birth"]
    else:
        alive = time.time() - float(str(run["seen"])) < _SILENT_SECONDS
    return state if alive else "killed"


def _finding(text: str) -> Finding:
    facts = json.loads(text)
    return Finding(**{**facts, "where": Where(**facts["where"])})


def _instant(seconds: object) -> datetime:
    return datetime.fromtimestamp(float(str(seconds)), tz=timezone.utc)
