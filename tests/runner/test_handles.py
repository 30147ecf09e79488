"""A running application is seen and controlled from Python and from other terminals, with Spark's names for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

import headrace as hr
from headrace.api import events, load, start_query, status, verify
from headrace.cli import main
from headrace.control.board import Order, Orders
from headrace.errors import CheckFailed, Finding, HeadraceError, QueryFailed
from headrace.generations.log import Directory, append, log_of
from headrace.model.trigger import Restart
from headrace.runner.supervise import run
from tests.export.test_hooks import Receiver, receiving
from tests.registered import layout_in
from tests.waiting import PATIENCE_SECONDS, eventually

from .projects import land, rows, write_project
from .test_run import FRUIT, TOTALS, Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RUNS_ON = TOTALS.replace("hr.available_now", "None")
TWO = RUNS_ON + RUNS_ON.replace("def totals", "def others").replace('"totals"', '"others"').replace("out.db", "two.db")
IDLE = "spark.sql.streaming.noDataProgressEventInterval"


class Heard(StreamingQueryListener):
    """Remembers each event with the name of its query."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.progress: list[tuple[str, int]] = []
        self.idle: set[str] = set()
        self.terminated: list[str] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self.started.append(event.name)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.progress.append((event.progress.name, event.progress.batchId))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self.idle.add(str(event.runId))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.terminated.append(str(event.runId))


@pytest.mark.capability("MANAGE-01")
@pytest.mark.capability("MON-02")
def test_the_api_of_the_guide_and_orders_from_other_terminals(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", TWO, batches=FRUIT)
    project, heard = load(root), Heard()
    spark.conf.set(IDLE, "100")
    spark.streams.addListener(heard)

    def call(*command: str, code: int = 0) -> str:
        assert main([*command, "-C", str(root)]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    try:
        with hr.start(project, spark=spark) as application:
            totals, others = application.get("totals"), application.get("others")
            progress = eventually(lambda: totals.lastProgress if totals.lastProgress else None)
            eventually(lambda: [progress["batchId"] for progress in totals.recentProgress][:2] == [0, 1])
            assert (progress["name"], totals.name, totals.isActive) == ("totals", "totals", True)
            checkpoint = layout_in(root / ".headrace", "totals").home / "checkpoint"
            assert totals.id == json.loads((checkpoint / "metadata").read_text())["id"] != totals.runId
            assert "message" in totals.status
            totals.explain()
            assert "== Physical Plan ==" in capsys.readouterr().out
            assert [query.name for query in application.active] == ["totals", "others"]
            assert application.get(totals.id).name == "totals"
            assert totals.exception() is None
            assert (totals.awaitTermination(0.1), application.awaitAnyTermination(0.1)) == (False, False)

            first = totals.runId
            eventually(lambda: first in heard.idle)
            assert "is paused" in call("pause", "totals")
            assert "is already paused, since" in call("pause", "totals")
            (paused,) = [entry for entry in status(project) if entry.query == "totals"]
            assert (paused.state, totals.state, bool(paused.now.by)) == ("paused", "paused", True)
            assert "totals: paused since" in call("status")
            land(root, 2, FRUIT[1])
            assert "runs again, from batch 2 on" in call("resume", "totals")
            assert "is running" in call("resume", "totals")
            eventually(lambda: ("totals", 2) in heard.progress)
            again = totals.runId
            assert "runs again, from batch 3 on" in call("restart", "totals")
            assert len({first, again, totals.runId}) == 3

            others.stop()
            assert (others.awaitTermination(20), others.state, totals.state) == (True, "stopped", "running")
            assert application.awaitAnyTermination(5) is True
            application.resetTerminated()
            assert application.awaitAnyTermination(0.1) is False
            refused = call("pause", "others", code=1)
            assert "HR850" in refused
            assert "cannot be paused: it has stopped" in refused
            assert "runs again" in call("restart", "others")
            assert "the application has stopped" in call("stop")
            result = application.wait()
    finally:
        spark.streams.removeListener(heard)
        spark.conf.unset(IDLE)
    assert [(end.query, end.state, end.batches) for end in result.outcomes] == [
        ("totals", "stopped", 3),
        ("others", "stopped", 3),
    ]
    assert sorted(rows(root / "out.db", "SELECT name, amount FROM totals")) == [("apple", 7), ("pear", 2)]
    assert verify(project, "totals", spark=spark).state == "equal"
    query = replace(project.queries["totals"], restart=Restart(limit=1), state_budget_bytes=1)
    (judged,) = hr.plan(replace(project, queries={"totals": query}), spark=spark)
    assert judged.verdict == "same", "how it is operated is not a part of what a query is"
    assert sorted(heard.started) == ["others"] * 2 + ["totals"] * 3
    eventually(lambda: len(heard.terminated) == 5 and first in heard.terminated)
    kinds = [event.kind for event in events(project, query="totals")]
    assert kinds == ["started", "paused", "started", "started", "stopped", "verdict"]


@pytest.mark.capability("MANAGE-01")
def test_a_declared_query_gives_sparks_own_handle_in_a_session_of_the_users(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = write_project(tmp_path / "p", RUNS_ON, batches=FRUIT[:1])
    project = load(root)
    spark.streams.resetTerminated()
    query = start_query(project, project.queries["totals"], spark)
    try:
        eventually(lambda: query.lastProgress)
        assert [query.name for query in spark.streams.active] == ["totals"]
        value = spark.streams.get(query.id)
        assert value is not None
        assert (value.runId, query.exception(), query.awaitTermination(0.1)) == (query.runId, None, False)
    finally:
        query.stop()
    assert spark.streams.awaitAnyTermination(5)
    spark.streams.resetTerminated()


FLAKY = """
import pathlib
counts = pathlib.Path(__file__).parent

def attempt(name):
    file = counts / name
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    return len(file.read_text())

def twice(frame, batch):
    frame.count()
    if attempt("flaky") <= 2:
        raise ConnectionError("connection refused")

def always(frame, batch):
    attempt("hopeless")
    raise TimeoutError("timed out")

def wrong(frame, batch):
    attempt("wrong")
    raise ValueError("no price of 7")

restart = {"limit": 2, "pause": "50 ms"}

@hr.query(sink=hr.sink.foreach_batch(twice), restart=restart)
def flaky(events):
    return events

@hr.query(sink=hr.sink.foreach_batch(always), restart=restart)
def hopeless(events):
    return events

@hr.query(sink=hr.sink.foreach_batch(wrong), restart=restart)
def wrong(events):
    return events
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def test_a_query_that_fails_of_what_passes_is_started_again_and_gives_up_at_its_limit(
    tmp_path: Path, spark: SparkSession, receiver: Receiver
) -> None:
    root = write_project(tmp_path / "p", FLAKY, batches=FRUIT)
    (root / "headrace.yml").write_text(f"name: p\nhooks: {{webhook: '{receiver.url}'}}\n")
    orders = Orders()
    given = [Order(verb="pause", query="flaky"), *(Order(verb="stop", query="flaky", by=who) for who in ("me", "her"))]

    class Watching(Recorder):
        def progressed(self, record: Any) -> None:
            super().progressed(record)
            if record.query == "flaky" and record.batch == 1:
                for order in given:
                    orders.give(order)

    recorder = Watching()
    result = run(load(root), spark=spark, reporter=recorder, orders=orders)
    overtaken, *stopped = (order.answer.result(0) for order in given)
    assert overtaken.finding.code == "HR851"
    assert [answer.said for answer in stopped] == ["query 'flaky' has stopped"] * 2
    ends = {end.query: end for end in result.outcomes}
    assert (ends["flaky"].state, ends["flaky"].batches, ends["flaky"].rows) == ("stopped", 2, 3)
    notes = [finding.what for finding in recorder.all(Finding) if finding.code == "HR861"]
    assert len([note for note in notes if note.startswith("query 'flaky'")]) == 2
    assert (root / "flaky").read_text() == "xxxx"
    assert (ends["wrong"].state, (root / "wrong").read_text()) == ("failed", "x")
    assert (root / "hopeless").read_text() == "xxx", "the first attempt and two restarts"
    posted = [
        (event["event"], (event.get("restart") or "")[:14]) for event in receiver.got if event["query"] == "flaky"
    ]
    assert posted == [("failure", "restart 1 of 2"), ("failure", "restart 2 of 2"), ("recovery", "")]
    assert [event["restart"] for event in receiver.got if event["query"] == "wrong"] == [None]
    assert verify(load(root), "flaky", spark=spark).findings
    assert (receiver.got[-1]["event"], receiver.got[-1]["verdict"]["verdict"]) == ("verdict", "undecided")
    assert [event.kind for event in events(load(root), query="flaky")] == [
        *("started", "restarting") * 2,
        *("started", "recovered", "stopped", "verdict"),
    ]


def test_a_failed_query_says_why_through_its_handle(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", FLAKY, batches=FRUIT)
    with hr.start(load(root), ["hopeless"], spark=spark) as application:
        with pytest.raises(QueryFailed, match="TimeoutError"):
            application.get("hopeless").awaitTermination(60)
        with pytest.raises(QueryFailed):
            application.awaitAnyTermination()
        assert application.wait().exit_code == 1
    assert (root / "hopeless").read_text() == "xxx"
    with pytest.raises(HeadraceError, match="HR091"):
        hr.start(load(root), ["hopless"], spark=spark)


HOURS = """name: p
sources: {events: {files: {path: in, format: json, schema: "id INT, time TIMESTAMP"}}}
queries:
  hours:
    select: SELECT date_trunc('hour', time) AS hour, count(*) AS n FROM events GROUP BY 1
    mode: update
    sink: {sqlite: {path: out.db, table: hours, key: [hour]}}
"""
ZONE = "spark.sql.session.timeZone"


def test_a_session_with_another_clock_is_refused_before_the_start_and_one_of_another_name_is_not(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "headrace.yml").write_text(HOURS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text('{"id": 1, "time": "2024-01-01T00:30:00Z"}\n')
    project = load(tmp_path)
    assert hr.run(project, spark=spark, trigger=hr.available_now).exit_code == 0
    zone = spark.conf.get(ZONE)
    assert zone == "UTC"
    try:
        spark.conf.set(ZONE, "Asia/Tokyo")
        (finding,) = hr.check(project, spark=spark).errors
        assert (finding.code, finding.fix.startswith(f'set it as it was: spark.conf.set("{ZONE}", "UTC")')) == (
            "HR535",
            True,
        )
        with pytest.raises(CheckFailed, match="HR535"):
            hr.start(project, spark=spark)
        spark.conf.set(ZONE, "Etc/UTC")
        assert hr.check(project, spark=spark).errors == ()
        assert hr.plan(project, spark=spark)[0].verdict == "same"
        with hr.start(project, spark=spark, trigger=hr.available_now) as application:
            assert application.wait().exit_code == 0
    finally:
        spark.conf.set(ZONE, zone)


def test_a_driver_with_nothing_to_do_ends_once_another_process_has_changed_its_query(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = write_project(tmp_path / "p", RUNS_ON, batches=FRUIT)
    project = load(root)
    with hr.start(project, spark=spark) as application:
        totals = application.get("totals")
        eventually(lambda: [progress["batchId"] for progress in totals.recentProgress][:2] == [0, 1])
        layout = layout_in(root / ".headrace", "totals")
        record = log_of(layout)
        assert record is not None
        # As a start or a command does in another process while this one is stopped for longer than its lease.
        append(layout.folder, "totals", replace(record, live=Directory(generation=2, made=2), following=3))
        with pytest.raises(HeadraceError, match="HR409: another process has changed query 'totals'"):
            totals.awaitTermination(PATIENCE_SECONDS)
