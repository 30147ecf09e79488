"""What waits in a query's sources is reported from the checkpoint, without Spark."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.api import load, status
from headrace.contract import BatchRecord, Lag, SourceProgress
from headrace.generations.log import history_file
from headrace.history import History
from headrace.history.lag import SourceLags, lag, lags
from headrace.model import Project
from headrace.ui.standing import standings
from tests.registered import layout_in
from tests.runner.projects import write_project

pytestmark = pytest.mark.plain

PAIRS = """
@hr.query(sink=hr.sink.memory())
def pairs(events):
    return events.alias("a").join(events.alias("b"), "name")
"""


def take(root: Path, files: list[Path], **uses: int) -> None:
    """One committed batch in which each use of the source has taken so many of `files`, as Spark writes it."""
    header = {"batchWatermarkMs": 0, "batchTimestampMs": 1700000000000, "conf": {}, "sourceMetadataInfo": {}}
    ends = [f'{name}:{{"logOffset":{number - 1}}}' for name, number in uses.items() if number]
    logs = {
        "offsets/0": "\n".join(["v2", json.dumps(header), *ends]),
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, number in uses.items():
        for at, file in enumerate(files[:number]):
            entry = {"path": f"file://{file}", "timestamp": int(file.stat().st_mtime * 1000), "batchId": at}
            logs[f"sources/{name}/{at}"] = f"v1\n{json.dumps(entry)}"
    for name, text in logs.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("events", "again", "waiting"), [(3, 3, 0), (3, 2, 1), (1, 2, 2)], ids=["all taken", "the second", "the first"]
)
def test_a_source_that_is_used_twice_holds_what_one_of_the_uses_lacks(
    tmp_path: Path, events: int, again: int, waiting: int
) -> None:
    root = write_project(tmp_path / "p", PAIRS, batches=[[{"name": "apple", "amount": 1}]] * 3)
    project = load(root)
    layout = layout_in(project.storage, "pairs", 1)
    take(layout.checkpoint, sorted((root / "landing").iterdir()), events=events, events__2=again)
    backlog = lag(project, project.queries["pairs"], layout)
    assert backlog is not None
    assert (backlog.count, backlog.unit, backlog.left_out) == (waiting, "files", 0)


def test_after_months_the_lag_comes_from_the_newest_batch_and_the_long_archive_is_not_read(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", PAIRS, batches=[[{"name": "apple", "amount": 1}]] * 3)
    project = load(root)
    layout = layout_in(project.storage, "pairs", 1)
    take(layout.checkpoint, sorted((root / "landing").iterdir()), events=2, events__2=3)
    for log in ("offsets", "commits"):
        (layout.checkpoint / log / "0").rename(layout.checkpoint / log / "86400")
        shutil.copy(layout.checkpoint / log / "86400", layout.checkpoint / log / "86399")
    layout.archive.write_text("no line of an archive\n" * 2)
    backlogs = lags(project, project.queries["pairs"], layout)
    assert {name: backlog.count for name, backlog in backlogs.items() if backlog is not None} == {"events": 1}


KEPT = """
@hr.query(sink=hr.sink.sqlite("out.db", table="kept"))
def kept(events):
    return events.select("name")
"""
FROM_KAFKA = """
sales = hr.source.kafka("{url}", subscribe="sales", value="text")

@hr.query(sink=hr.sink.sqlite("out.db", table="sold"))
def sold(sales):
    return sales
"""
NOON = 1_767_268_800


def record_run(project: Project, query: str, lag: Lag | None, *, batch: int = 0) -> None:
    """Record a run of a query whose newest batch ended at noon, and had this lag."""
    (read,) = project.sources_of(project.queries[query])
    source = SourceProgress(name=read.name, rows=2, start=None, end="1", lag=lag)
    record = BatchRecord.parse(
        json.dumps({"id": query, "runId": "r", "batchId": batch, "timestamp": "2026-01-01T12:00:00Z", "name": query})
    )
    with History.open(history_file(project.local_storage)) as history:
        run = history.begin_run(query, pid=1, mode="append", trigger="once", sink="sqlite", generation=1)
        if lag is not None:
            history.record(run, replace(record, rows=2, backlog=lag, sources=(source,)))
        history.end_run(run, "stopped")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_files_that_land_while_nothing_runs_are_counted_and_the_oldest_has_waited_longest(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", KEPT, batches=[[{"name": "apple", "amount": 1}]] * 5)
    project, files = load(root), sorted((root / "landing").iterdir())
    for age, file in enumerate(reversed(files)):
        os.utime(file, (NOON - age,) * 2)
    take(layout_in(project.storage, "kept", 1).checkpoint, files, events=2)
    record_run(project, "kept", Lag(count=0, unit="files"))
    [entry] = status(project)
    assert entry.backlog is not None
    assert entry.backlog == entry.lags["events"] == Lag(count=3, unit="files", bytes=entry.backlog.bytes)
    assert (entry.backlog.at_ms, entry.backlog.waiting_seconds(NOON + 60)) == (None, 62)


@pytest.mark.parametrize(
    ("committed", "counted", "waiting"),
    [((0,), None, 5), ((0, 1), 0, 3), ((0, 1), 1, 1), ((0, 1), None, 1), ((0,), 7, 3)],
    ids=[
        "the first is not counted",
        "the second is not",
        "both are",
        "a history that is lost",
        "a checkpoint of before",
    ],
)
def test_rows_that_are_not_counted_yet_still_wait(
    tmp_path: Path, committed: tuple[int, ...], counted: int | None, waiting: int
) -> None:
    """Between the commit of a batch and its count, which may take long, no row is missing in both."""
    root = write_project(tmp_path / "p", KEPT, batches=[[{"name": "apple", "amount": 1}]] * 5)
    project, checkpoint = load(root), layout_in(load(root).storage, "kept", 1).checkpoint
    take(checkpoint, sorted((root / "landing").iterdir()), events=4 if len(committed) > 1 else 2)
    if len(committed) > 1:
        for log in ("offsets", "commits"):
            shutil.copy(checkpoint / log / "0", checkpoint / log / "1")
        first = (checkpoint / "offsets" / "0").read_text().replace('"logOffset":3', '"logOffset":1')
        (checkpoint / "offsets" / "0").write_text(first)
    record_run(project, "kept", None if counted is None else Lag(count=9, unit="files"), batch=counted or 0)
    [entry] = status(project)
    assert (entry.batch, entry.rows_total) == (counted, 0 if counted is None else 2)
    assert entry.backlog is not None
    assert entry.backlog.count == waiting
    asked = SourceLags(project).of(["kept"])["kept"]["events"]
    assert asked is not None
    assert asked.count == waiting


@pytest.mark.parametrize("planned", [False, True], ids=["no batch", "a planned one"])
def test_what_no_batch_has_committed_waits_also_before_the_first(tmp_path: Path, planned: bool) -> None:
    root = write_project(tmp_path / "p", KEPT, batches=[[{"name": "apple", "amount": 1}]] * 3)
    project = load(root)
    layout = layout_in(project.storage, "kept", 1)
    if planned:
        take(layout.checkpoint, sorted((root / "landing").iterdir()), events=3)
        (layout.checkpoint / "commits" / "0").unlink()
        record_run(project, "kept", None)
    with History.open(history_file(project.local_storage)) as history:
        standing = standings(project, history, SourceLags(project))["kept"]
    waiting = (standing["backlog"]["count"], standing["sources"]["events"]["lag"]["count"])
    assert (standing["state"], *waiting) == ("stopped" if planned else "never started", 3, 3)


@pytest.mark.parametrize("before", [Lag(count=7, unit="messages"), None], ids=["reported at noon", "never reported"])
def test_a_broker_that_does_not_answer_holds_up_no_reader_and_is_never_0(
    tmp_path: Path, silent: str, before: Lag | None
) -> None:
    project = load(write_project(tmp_path / "p", FROM_KAFKA.format(url=silent), batches=[]))
    record_run(project, "sold", before)
    begun = time.monotonic()
    [entry] = status(project)
    assert time.monotonic() - begun < 30
    assert entry.backlog == before
    assert entry.backlog is None or entry.backlog.at_ms == NOON * 1000


def test_a_question_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_project(tmp_path / "p", KEPT, batches=[])
    shutil.rmtree(root / "landing")
    project = load(root)
    asked = SourceLags(project)
    assert asked.of(["kept"]) == {"kept": {"events": Lag(count=0, unit="files", bytes=0)}}
    asked._asked["kept"].fresh_until = 0.0
    monkeypatch.setattr("headrace.history.lag.ANSWER_SECONDS", 0.2)
    # The storage is a share whose server is gone.
    monkeypatch.setattr("headrace.history.lag.layout_of", lambda *_: time.sleep(30))
    begun = time.monotonic()
    for _ in range(50):
        answer = asked.of(["kept"])["kept"]["events"]
    assert time.monotonic() - begun < 8
    assert answer is not None
    assert answer.at_ms is not None
