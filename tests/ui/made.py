"""A project and a history of it, made without Spark."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import headrace as hr
from headrace.contract import BatchRecord, Lag, OperatorProgress, SourceProgress
from headrace.contract.observer import QueryState
from headrace.errors import Finding, Where
from headrace.generations.log import history_file
from headrace.history import History
from headrace.model import Project

PASSWORD = "correct-horse-battery"
YAML = """\
name: phones
sources:
  events:
    files: {path: landing/events, format: json, schema: "phone_id STRING, time TIMESTAMP, action STRING"}
    watermark: {column: time, delay: 2 hours}
views:
  taps: {select: "SELECT * FROM events WHERE action = 'tap'"}
queries:
  counts:
    select: SELECT action, count(*) AS n FROM events GROUP BY action -- correct-horse-battery
    mode: update
    trigger: {every: 5 seconds}
    sink: {postgres: {url: "${DATABASE_URL}", table: counts, key: [action]}}
  copied:
    select: SELECT * FROM taps
    sink: {files: {path: out, format: json}}
"""
STARTED = datetime(2026, 1, 1, tzinfo=timezone.utc)
FAULT = Finding(code="HR601", what="it broke", fix="mend it", where=Where(file="p.py", line=3))


def project(root: Path) -> Project:
    """Two queries over one source."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(YAML)
    return hr.load(root, environ={"DATABASE_URL": f"postgresql://user:{PASSWORD}@localhost/phones"})


NEWCOMER = """\
name: shop
sources:
  orders:
    files: {path: orders, format: json, schema: "id STRING, time TIMESTAMP"}
    watermark: {column: time, delay: 1 hour}
  payments:
    files: {path: payments, format: json, schema: "id STRING, paid TIMESTAMP"}
    watermark: {column: paid, delay: 1 hour}
queries:
  paid_orders:
    select: SELECT o.id FROM orders o JOIN payments p ON o.id = p.id AND p.paid < o.time + INTERVAL 1 HOUR
    sink: {files: {path: paid, format: json}}
  order_counts:
    select: SELECT id, count(*) AS n FROM orders GROUP BY id
    mode: update
    sink: {sqlite: {path: out.db, table: order_counts, key: [id]}}
  archived:
    select: SELECT * FROM payments
    sink: {files: {path: archive, format: json}}
"""


def newcomer(root: Path) -> Project:
    """Three queries in trouble: one whose watermark a silent source holds back, one that is behind, one that failed."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(NEWCOMER)
    with sqlite3.connect(root / "out.db") as db:
        db.execute("CREATE TABLE order_counts (id TEXT, n INT)")
        db.executemany("INSERT INTO order_counts VALUES (?, ?)", [("a", 3), ("b", 5)])
        db.execute("CREATE TABLE _headrace_tables (table_name, query_id, spark_schema)")
        db.execute("INSERT INTO _headrace_tables VALUES ('order_counts', 'ours', '{\"fields\": []}')")
    db.close()
    project = hr.load(root)
    started = datetime.now(timezone.utc) - timedelta(seconds=20)
    with History.open(history_file(project.storage)) as history:
        runs = {
            query: history.begin_run(query, pid=os.getpid(), mode="append", trigger="t", sink="s", generation=1)
            for query in project.queries
        }
        for batch in range(20):
            entry = replace(record(batch, started=started), dropped_by_watermark=0, state_rows=5)
            orders = replace(entry.sources[0], name="orders", rows=100)
            silent = replace(orders, name="payments", rows=0, start="0", end="0")
            held = {"watermark": started - timedelta(hours=5), "sources": (orders, silent), "backlog": None}
            history.record(runs["paid_orders"], replace(entry, query="paid_orders", **held))  # type: ignore[arg-type]
            lag = Lag(count=int(10 * 1.6**batch), unit="files", bytes=100)
            behind = {"sources": (replace(orders, lag=lag),), "backlog": lag}
            history.record(runs["order_counts"], replace(entry, query="order_counts", **behind))  # type: ignore[arg-type]
        for query in ("paid_orders", "order_counts"):
            history.state(QueryState(query=query, state="running", healthy=True), runs[query])
        fault = Finding(
            code="HR405", what="the disk is full", fix="make room", where=Where(file="headrace.yml", line=20)
        )
        history.end_run(runs["archived"], "failed", fault)
    return project


def record(batch: int, *, started: datetime = STARTED, query: str = "counts") -> BatchRecord:
    """One batch a second; every hundredth is slow, every tenth has late rows."""
    at = started + timedelta(seconds=batch)
    lag = Lag(count=batch * 3 % 7, unit="files", bytes=100)
    return BatchRecord(
        query=query,
        run_id="run-1",
        batch=batch,
        at=at,
        rows=100 + batch % 50,
        input_rate=100.0,
        processed_rate=250.0 + batch % 40,
        duration_ms=5_000 if batch % 100 == 99 else 400,
        durations={"addBatch": 300, "walCommit": 20, "queryPlanning": 30, "triggerExecution": 400},
        write_ms=120,
        skew=4.2 if batch % 100 == 99 else None,
        watermark=at - timedelta(hours=2),
        state_rows=5 + batch % 9,
        state_bytes=9_000,
        dropped_by_watermark=3 if batch % 10 == 0 else 0,
        sources=(
            SourceProgress(
                name="events", rows=100, start=f'{{"logOffset":{batch}}}', end=f'{{"logOffset":{batch + 1}}}', lag=lag
            ),
        ),
        backlog=lag,
        operators=(
            OperatorProgress(name="stateStoreSave", rows=5, bytes=9_000, updated=4, late=3, commit_ms=12 + batch % 5),
        ),
        event_min=at - timedelta(hours=3),
        event_mean=at - timedelta(minutes=2),
        event_max=at,
    )


def fill(project: Project, batches: int, *, first: int = 0, started: datetime = STARTED) -> None:
    """A running query with so many batches, an earlier run that failed, a verdict, and a query that has failed.

    Those before the `first` one are not kept.
    """
    with History.open(history_file(project.storage)) as history:
        facts = {"pid": os.getpid(), "mode": "update", "trigger": "every 5 seconds", "sink": "postgres"}
        failed = history.begin_run("counts", generation=1, **facts)  # type: ignore[arg-type]
        history.end_run(failed, "failed", replace(FAULT, what="the database was away"))
        run = history.begin_run("counts", generation=1, **facts)  # type: ignore[arg-type]
        history.state(QueryState(query="counts", state="running", healthy=True, restarts=1), run)
        history.record(run, record(first, started=started))
        other = history.begin_run("copied", generation=1, **facts)  # type: ignore[arg-type]
        history.end_run(other, "failed", FAULT)
        verdict = {
            "verdict": "equal",
            "shown_by": "batch",
            "batch": 3,
            "rows_read": 10,
            "rows_expected": 5,
            "missing": 0,
            "unexpected": 0,
        }
        history.record_verdict("counts", json.dumps({**verdict, "different": 0, "rows_late": 0}))
        history.note("started", "counts", run, {"trigger": "every 5 seconds"})
        history.note("failed", "copied", other, {"finding": FAULT.as_dict()})

    def rows() -> Iterator[tuple[str, int, int, int, int, str]]:
        # A hundred thousand records would take a minute; those of the past differ in what is looked at alone.
        plain = record(0, started=started).as_dict()
        for batch in range(first + 1, batches - 200):
            at = started + timedelta(seconds=batch)
            plain |= {"batch": batch, "rows": 100 + batch % 50, "at": at.isoformat()}
            yield "counts", 1, batch, run, plain["rows"], json.dumps(plain)
        for batch in range(max(first + 1, batches - 200), batches):
            made = record(batch, started=started)
            yield "counts", 1, batch, run, made.rows, json.dumps(made.as_dict())

    with sqlite3.connect(history_file(project.storage)) as db:
        db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)", rows())
    db.close()


LONG = {"orders": "orders_of_every_shop_and_customer", "order_counts": "orders_counted_for_each_customer"}


def wide(root: Path) -> Project:
    """A project whose names, states, figures and rows are long."""
    newcomer(root)
    text = NEWCOMER
    for name, longer in reversed(LONG.items()):
        text = re.sub(rf"\b{name}\b", longer, text)
    (root / "headrace.yml").write_text(text.replace("column: time, delay: 1 hour", "column: time, delay: 12 hours"))
    table, columns = LONG["order_counts"], [f"a_long_name_of_column_{number}" for number in range(6)]
    with sqlite3.connect(root / "out.db") as db:
        db.execute(f"ALTER TABLE order_counts RENAME TO {table}")
        for column in columns:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT DEFAULT '{'a value of some length ' * 2}'")
        db.execute("UPDATE _headrace_tables SET table_name = ?", (table,))
    db.close()
    project = hr.load(root)
    waits = Finding(code="HR405", what="the database at a-host-with-a-long-name.example.org:5432 does not answer")
    lag = Lag(count=1_234_567, unit="messages", bytes=10**9)
    started = datetime.now(timezone.utc) - timedelta(seconds=20)
    with History.open(history_file(project.storage)) as history:
        for query in project.queries:
            run = history.begin_run(query, pid=os.getpid(), mode="append", trigger="t", sink="s", generation=1)
            for batch in range(20):
                entry = replace(record(batch, started=started), query=query, backlog=lag, state_rows=123_456_789)
                source = replace(entry.sources[0], name=LONG["orders"], rows=100_000, lag=lag)
                history.record(run, replace(entry, rows=100_000, sources=(source,), duration_ms=754_000))
            state = QueryState(query=query, state="waiting for source", waits=waits, since=started)
            history.state(state if query == LONG["order_counts"] else QueryState(query=query, state="running"), run)
            verdict = {
                "verdict": "mismatch",
                "shown_by": "batch",
                "batch": 3,
                "rows_read": 10,
                "rows_expected": 5,
                "missing": 1,
            }
            history.record_verdict(query, json.dumps({**verdict, "unexpected": 0, "different": 0, "rows_late": 0}))
    return project
