"""The history is shared by processes, bounded, and never the reason that a stream stops."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

import headrace.history.store as store
from headrace.contract import BatchRecord, Lag
from headrace.contract.observer import QueryState
from headrace.errors import CheckpointError, Finding, PlatformError, Where
from headrace.history import History
from headrace.history.pages import runs_of

pytestmark = pytest.mark.plain
RECORD = BatchRecord(
    query="counts",
    run_id="r",
    batch=0,
    at=datetime(2024, 1, 1, tzinfo=timezone.utc),
    rows=10,
    input_rate=5.0,
    processed_rate=20.0,
    duration_ms=500,
    watermark=datetime(2024, 1, 1, 1, tzinfo=timezone.utc),
    state_rows=7,
    backlog=Lag(count=2, unit="files", bytes=80),
)
FAULT = Finding(code="HR601", what="it broke", fix="fix it", where=Where(file="p.py", line=3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "storage" / "history.db"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with History.open(path) as opened:
        yield opened


def begin(history: History, query: str = "counts", *, pid: int | None = None, generation: int = 1) -> int:
    return history.begin_run(
        query, pid=pid or os.getpid(), mode="update", trigger="every 5 seconds", sink="sqlite", generation=generation
    )


def test_events_outlive_the_batches_and_are_bounded_too(
    history: History, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BATCHES_KEPT", 10)
    monkeypatch.setattr(store, "EVENTS_KEPT", 20)
    run = begin(history)
    for batch in range(120):
        history.record(run, replace(RECORD, batch=batch, rows=1))
        history.note("finding", "counts" if batch % 2 else None, run, {"batch": batch})
    with History.open(path, read_only=True) as other:
        assert len(other.recent("counts", 1000)) < 60
        assert 20 <= len(other.events(1000)) <= 70
        assert [event.detail["batch"] for event in other.events(2, query="counts")] == [117, 119]
        (newest,) = other.events(1)
        assert other.events(after=newest.id) == []


def test_a_run_is_seen_from_begin_to_end(history: History, path: Path) -> None:
    run = begin(history)
    with History.open(path, read_only=True) as other:
        assert [status.state for status in other.statuses()] == ["starting"]
        history.state(QueryState(query="counts", state="running"), run)
        history.record(run, RECORD)
        history.record(run, replace(RECORD, batch=1, rows=5))
        (status,) = other.statuses()
        assert (status.query, status.state, status.batch, status.rows_total) == ("counts", "running", 1, 15)
        assert (status.input_rate, status.processed_rate, status.batch_ms, status.state_rows) == (5.0, 20.0, 500, 7)
        assert (status.watermark, status.backlog) == (RECORD.watermark, RECORD.backlog)
        assert (status.mode, status.trigger, status.sink) == ("update", "every 5 seconds", "sqlite")
        assert (status.now.restarts, status.error, status.pid) == (0, None, os.getpid())
        history.end_run(run, "finished")
        history.state(QueryState(query="counts", state="finished"), run)
        history.state(QueryState(query="counts", state="waiting"), run)
        assert (other.statuses()[0].state, runs_of(other, "counts")[0]["state"]) == ("waiting", "finished")


def test_a_batch_that_is_run_again_counts_once(history: History) -> None:
    first = begin(history)
    history.record(first, RECORD)
    second = begin(history)
    history.record(second, replace(RECORD, rows=12))
    assert history.statuses()[0].rows_total == 12


def test_a_new_generation_begins_at_nothing(history: History) -> None:
    history.record(begin(history), replace(RECORD, batch=9))
    begin(history, generation=2)
    (status,) = history.statuses()
    assert (status.generation, status.batch, status.rows_total) == (2, None, 0)


def test_an_error_is_kept_with_its_place_and_shown_until_the_next_end(history: History) -> None:
    history.end_run(begin(history), "failed", FAULT)
    assert (history.statuses()[0].state, history.statuses()[0].error) == ("failed", FAULT)
    run = begin(history)
    assert history.statuses()[0].error == FAULT
    history.end_run(run, "stopped")
    assert history.statuses()[0].error is None


def test_each_query_has_its_own_status(history: History) -> None:
    begin(history, "late")
    begin(history, "counts")
    assert [status.query for status in history.statuses()] == ["counts", "late"]


def test_a_heartbeat_is_a_sign_of_life(history: History) -> None:
    run = begin(history)
    before = history.statuses()[0].last_seen
    history.heartbeat([run])
    assert history.statuses()[0].last_seen > before


def test_recent_batches_come_in_order_and_whole(history: History) -> None:
    run = begin(history)
    records = [replace(RECORD, batch=batch) for batch in range(5)]
    for record in records:
        history.record(run, record)
    assert history.recent("counts", 3) == records[2:]


def test_a_verdict_is_part_of_the_status(history: History) -> None:
    begin(history)
    history.record_verdict("counts", '{"state": "late"}')
    history.record_verdict("counts", '{"verdict": "equal"}')
    assert history.statuses()[0].verdict == {"verdict": "equal"}


def test_a_status_shows_nothing_of_a_generation_or_a_batch_that_is_gone(history: History) -> None:
    run = begin(history)
    history.record(run, replace(RECORD, batch=7))
    history.record_verdict("counts", '{"verdict": "equal", "batch": 4}')
    history.record_verdict("counts", '{"verdict": "equal", "batch": 7}')
    history.take_batches("counts", 1, 5, lambda batches: None)
    (status,) = history.statuses()
    assert (status.verdict or {})["batch"] == 4, "the rewind took batch 7 back"
    history.end_run(run, "failed", FAULT)
    begin(history, generation=2)
    (status,) = history.statuses()
    assert (status.verdict, status.error) == (None, None), "after the reset, both are about the former generation"


def test_a_status_is_plain_data_for_json(history: History) -> None:
    history.record(begin(history), RECORD)
    history.end_run(1, "failed", FAULT)
    plain = history.statuses()[0].as_dict()
    assert plain["watermark"] == "2024-01-01T01:00:00+00:00"
    facts = {"count": 2, "unit": "files", "bytes": 80, "left_out": 0, "changed": 0, "problem": "", "oldest_ms": None}
    ended = int(RECORD.at.timestamp() * 1000) + RECORD.duration_ms
    assert plain["backlog"] == {**facts, "at_ms": ended}
    assert plain["error"] == FAULT.as_dict()


def test_a_run_cannot_end_as_running(history: History) -> None:
    run = begin(history)
    with pytest.raises(ValueError, match="not as running"):
        history.end_run(run, "running")


def test_batches_are_bounded_and_totals_are_not(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BATCHES_KEPT", 60)
    run = begin(history)
    for batch in range(151):
        history.record(run, replace(RECORD, batch=batch))
    assert [record.batch for record in history.recent("counts", 1000)] == list(range(91, 151))
    assert history.statuses()[0].rows_total == 1510


def test_runs_and_verdicts_are_bounded(history: History, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "RUNS_KEPT", 3)
    monkeypatch.setattr(store, "VERDICTS_KEPT", 2)
    for _ in range(6):
        begin(history)
        history.record_verdict("counts", "{}")
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM verdicts)").fetchone() == (3, 2)


WRITER = """
import sys
from dataclasses import replace
from headrace.history import History
sys.path.insert(0, {tests!r})
from test_store import RECORD, begin
history = History.open({path!r})
run = begin(history, sys.argv[1])
for batch in range(200):
    history.record(run, replace(RECORD, query=sys.argv[1], batch=batch))
history.end_run(run, "finished")
"""


def test_two_processes_write_at_once_from_the_first_moment_on(path: Path) -> None:
    code = WRITER.format(tests=str(Path(__file__).parent), path=str(path))
    writers = [subprocess.Popen([sys.executable, "-c", code, query]) for query in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with History.open(path, read_only=True) as history:
        entries = [(status.query, status.state, status.batch, status.rows_total) for status in history.statuses()]
    assert entries == [("a", "finished", 199, 2000), ("b", "finished", 199, 2000)]


def test_threads_share_one_history(history: History) -> None:
    runs = {query: begin(history, query) for query in "abcd"}

    def write(query: str) -> None:
        for batch in range(50):
            history.record(runs[query], replace(RECORD, query=query, batch=batch))

    threads = [threading.Thread(target=write, args=(query,)) for query in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [status.rows_total for status in history.statuses()] == [500] * 4


def test_a_reader_in_the_middle_of_reading_holds_up_no_writer(history: History, path: Path) -> None:
    run = begin(history)
    history._connection.execute("PRAGMA busy_timeout = 50")
    with sqlite3.connect(path, isolation_level=None) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM batches").fetchone() == (0,)
        history.record(run, RECORD)
        assert reader.execute("SELECT count(*) FROM batches").fetchone() == (0,)
    assert history.statuses()[0].rows_total == 10


def test_a_newer_version_is_refused(path: Path) -> None:
    History.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    for read_only in (True, False):
        with pytest.raises(CheckpointError, match=r"HR531.*version 99"):
            History.open(path, read_only=read_only)


def test_a_damaged_file_is_a_finding(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is not a database" * 100)
    for read_only in (True, False):
        with pytest.raises(CheckpointError, match="HR531"):
            History.open(path, read_only=read_only)


def test_damage_under_way_is_a_finding(path: Path) -> None:
    with History.open(path) as history:
        begin(history)
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 40_000)
    with pytest.raises((CheckpointError, PlatformError), match=r"HR53[13]"), History.open(path) as history:
        history.statuses()


def test_a_place_that_cannot_be_written_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("")
    with pytest.raises(PlatformError, match="HR544"):
        History.open(tmp_path / "storage" / "history.db")
    (tmp_path / "directory.db").mkdir()
    with pytest.raises(PlatformError, match="HR544"):
        History.open(tmp_path / "directory.db")


def test_a_full_disk_is_a_finding_and_the_history_lives_on(history: History) -> None:
    run = begin(history)
    pages = history._connection.execute("PRAGMA page_count").fetchone()[0]
    history._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = replace(RECORD, observed={"x": {"y": "z" * 50_000}})
    with pytest.raises(PlatformError, match=r"HR544.*full"):
        history.record(run, big)
    history._connection.execute("PRAGMA max_page_count = 100000")
    history.record(run, big)
    assert history.statuses()[0].batch == 0


def test_a_file_that_another_process_locks_is_a_finding(
    history: History, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(history)
    history._connection.execute("PRAGMA busy_timeout = 50")
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PlatformError, match=r"HR544.*locked"):
            history.record(run, RECORD)
        other.execute("ROLLBACK")
    history.record(run, RECORD)
    assert history.statuses()[0].rows_total == 10


def test_nothing_was_run_yet(path: Path) -> None:
    with pytest.raises(CheckpointError, match="HR534"):
        History.open(path, read_only=True)
    assert not path.exists()


def test_what_another_history_knows_of_a_generation_is_taken_over_once(history: History, path: Path) -> None:
    history.record(begin(history), RECORD)
    file = path.parent / "other.db"
    history.take_over(file, "counts", 2)
    for batches, total in (((0, 1), 20), ((1, 2), 30)):
        with History.open(file) as other:
            run = begin(other, generation=2)
            for batch in batches:
                other.record(run, replace(RECORD, batch=batch))
            other.end_run(run, "finished")
        for _ in range(2):
            history.take_over(file, "counts", 2)
        (status,) = history.statuses()
        assert (status.generation, status.state, status.rows_total) == (2, "finished", total)
    assert history.unreported_batches("counts", 2, 2) == []
    history.state(QueryState(query="counts", state="starting", restarts=4))
    history.forget("counts", 2)
    (status,) = history.statuses()
    assert (status.generation, status.now.restarts, status.rows_total) == (1, 0, 10)
    assert history.recent("counts", generation=2) == []
    assert history.recent("counts", generation=1) == [RECORD]
