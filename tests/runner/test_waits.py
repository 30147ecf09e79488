"""A query whose source or sink does not answer says so, since when and why, wherever its state is shown."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import headrace as hr
from headrace.api import events, load
from headrace.cli import main
from headrace.contract import BatchRecord, Observer, QueryState
from headrace.contract.observer import State
from headrace.control.board import Board
from headrace.errors import Finding
from headrace.export.metrics import MetricsObserver
from headrace.export.metrics_server import readiness
from headrace.generations.log import history_file
from headrace.history import History
from headrace.history.lag import SourceLags
from headrace.runner import query_run
from headrace.runner.batch_records import Notes
from headrace.runner.query_run import QueryRun
from headrace.runner.source_health import SourceHealth
from headrace.runner.states import States
from headrace.starter.running import Reports, Running
from headrace.ui.standing import standings
from tests.export.test_hooks import receiving
from tests.waiting import eventually

from .projects import land, write_project
from .test_run import FRUIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.model import Project
    from services import KafkaServer, PostgresServer
    from tests.servers import Topics

AWAY = Finding(code="HR405", what="the database does not answer", fix="start it")
INTO_POSTGRES = """
@hr.query(sink=hr.sink.postgres("${DATABASE_URL}", table="totals"), trigger=hr.every("1 second"))
def totals(events):
    return events
"""
CONSOLE = """
@hr.query(sink=hr.sink.console(), restart={"pause": "1 second"})
def totals(events):
    return events
"""
FROM_KAFKA = """
messages = hr.source.kafka("{url}", subscribe="{topic}", value="json", schema="n INT", starting_offsets="earliest")

@hr.query(sink=hr.sink.sqlite("out.db", table="totals"), trigger=hr.every("1 second"))
def totals(messages):
    return messages
"""


RECORD = BatchRecord(
    query="totals",
    run_id="r",
    batch=1,
    at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    rows=1,
    input_rate=1.0,
    processed_rate=1.0,
    duration_ms=250,
)


class Shown:
    """The state of `totals` wherever it is shown."""

    def __init__(self, project: Project, board: Board, capsys: pytest.CaptureFixture[str]) -> None:
        self.project, self.board, self._capsys = project, board, capsys
        self._metrics = MetricsObserver(project.name, board, dict, SourceLags(project).of)

    @property
    def states(self) -> set[str]:
        """In board, /readyz, `status` and the dashboard."""
        states = {self.board.states()["totals"].state, readiness(self.board)["queries"]["totals"], self.status["state"]}
        return states | {str(self.standing["state"])}

    @property
    def status(self) -> dict[str, Any]:
        self.exit_code = main(["status", "-C", str(self.project.root), "--json"])
        (entry,) = json.loads(self._capsys.readouterr().out)["queries"]
        return dict(entry)

    @property
    def standing(self) -> dict[str, Any]:
        with History.open(history_file(self.project.local_storage), read_only=True) as history:
            return standings(self.project, history, SourceLags(self.project))["totals"]

    def metric(self, name: str, **labels: str) -> float | None:
        registry = self._metrics.take_snapshot()
        value = registry.get_sample_value(f"headrace_query_{name}", {"app": "p", "query": "totals", **labels})
        return value

    def waits(self, word: State, on: str) -> None:
        """Require that all show the state `word`, and why, and that nothing is said to work."""
        eventually(lambda: self.states == {word})
        status, standing = self.status, self.standing
        assert (self.exit_code, status["in_trouble"], readiness(self.board)["ok"]) == (1, True, False)
        assert datetime.fromisoformat(status["since"]) <= datetime.now(timezone.utc)
        assert (standing["level"], [finding["code"] for finding in standing["findings"]][:1]) == ("bad", ["HR864"])
        assert [self.metric("waiting", on=side) for side in ("source", "sink")] == [on == "source", on == "sink"]
        assert [self.metric(name) for name in ("up", "down")] == [0, 1]
        assert main(["status", "-C", str(self.project.root)]) == 1
        text = self._capsys.readouterr().out
        assert f"query 'totals' is {word} since" in text

    def works(self) -> None:
        """Require that all show that the query runs again."""
        eventually(lambda: self.states == {"running"})
        assert (self.status["in_trouble"], self.exit_code, readiness(self.board)["ok"]) == (False, 0, True)
        assert [self.metric(name) for name in ("up", "down")] == [1, 0]


@contextmanager
def stop_process(pid: int) -> Iterator[None]:
    """Let a process do nothing, as on a machine that hangs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.services
def test_a_database_that_is_stopped_is_what_the_query_waits_for_everywhere(
    tmp_path: Path,
    spark: SparkSession,
    postgres_server: PostgresServer,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    root = write_project(tmp_path / "p", INTO_POSTGRES, batches=FRUIT)
    with receiving() as receiver:
        (root / "headrace.yml").write_text(f"name: p\nhooks:\n  - {{webhook: '{receiver.url}'}}\n")
        with hr.start(load(root), spark=spark) as application:
            shown = Shown(load(root), application.board, capsys)
            eventually(lambda: shown.status["batch"] == 1)
            shown.works()
            postgres_server.stop()
            try:
                land(root, 2, FRUIT[0])
                shown.waits("waiting for sink", "sink")
                assert "HR405" in json.dumps(shown.status["waits"])
            finally:
                postgres_server.start()
            eventually(lambda: shown.status["batch"] == 2)
            shown.works()
        assert [got["event"] for got in receiver.got] == ["waiting", "recovery"]
    kinds = [event.kind for event in events(load(root), query="totals") if event.kind != "finding"]
    assert kinds == ["started", "waiting", "answered", "stopped"]


@pytest.mark.long
@pytest.mark.services
def test_a_broker_that_does_not_answer_is_what_the_query_waits_for_everywhere(
    tmp_path: Path,
    spark: SparkSession,
    kafka: Topics,
    kafka_server: KafkaServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = kafka.make()
    kafka.send(topic, '{"n": 1}')
    root = write_project(tmp_path / "p", FROM_KAFKA.format(url=kafka.url, topic=topic))
    (root / "headrace.yml").write_text("name: p\n")
    with hr.start(load(root), spark=spark) as application:
        shown = Shown(load(root), application.board, capsys)
        eventually(lambda: shown.status["batch"] == 0)
        with stop_process(kafka_server.pid):
            shown.waits("waiting for source", "source")
            assert topic in shown.status["waits"]["what"]
        kafka.send(topic, '{"n": 2}')
        eventually(lambda: shown.status["batch"] == 1)
        shown.works()


def running(project: Project) -> QueryRun:
    """A started query without Spark: what is asked of a start here is its query and what its sink reports."""
    query = project.queries["totals"]
    started = SimpleNamespace(query=query, reports=Reports(query=query))
    return QueryRun(
        running=cast(Running, started),
        trigger=query.trigger,
        history_run=None,
        archive=None,
        quarantine=None,
        source_health=cast(SourceHealth, None),
    )


@pytest.mark.plain
@pytest.mark.parametrize(
    ("causes", "committed", "word"),
    [
        pytest.param([], None, "running", id="nothing is tried again"),
        pytest.param([AWAY], None, "waiting for sink", id="a database that is away"),
        pytest.param([AWAY], 4, "running", id="the batch came in"),
        pytest.param([None], None, "running", id="a worker died and the rows are computed again"),
        pytest.param([AWAY, None], None, "running", id="what was computed is lost"),
    ],
)
def test_a_query_waits_for_its_sink_while_a_batch_is_tried_again_that_the_sink_did_not_take(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    causes: list[Finding | None],
    committed: int | None,
    word: State,
) -> None:
    watched = running(load(write_project(tmp_path / "p", CONSOLE)))
    for cause in causes:
        watched.running.reports.retry(4, cause)
    assert watched.waits()[0] == "running", "another writer that was quicker is not an outage"
    monkeypatch.setattr(query_run, "SINK_MOMENT_SECONDS", -1.0)
    watched.last_batch = committed
    assert watched.waits() == (word, AWAY if word == "waiting for sink" else None)


@pytest.mark.plain
def test_a_query_waits_for_a_source_that_takes_much_longer_than_usual_to_say_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = running(load(write_project(tmp_path / "p", CONSOLE)))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def word_after(seconds: float) -> State:
        nonlocal now
        now += seconds
        watched.asks("KafkaV2[Subscribe[orders]]")
        return watched.waits()[0]

    watched.event_at = now
    assert [word_after(seconds) for seconds in (1, 9, 2)] == ["running", "running", "waiting for source"]
    watched.event_at = now
    assert (watched.waits()[0], word_after(1)) == ("running", "running"), "a batch or nothing to do is an answer"
    watched.recent.append(replace(RECORD, durations={"latestOffset": 5000}))
    assert [word_after(seconds) for seconds in (11, 5)] == ["running", "waiting for source"]
    watched.asks("")
    assert watched.waits()[0] == "running"


@pytest.mark.plain
@pytest.mark.parametrize("word", ["waiting for source", "waiting for sink"])
def test_a_wait_is_reported_once_and_what_failed_before_it_is_kept(tmp_path: Path, word: State) -> None:
    notes: list[QueryState] = []

    class Recorder(Observer):
        def changed(self, state: QueryState) -> None:
            notes.append(state)

    project = load(write_project(tmp_path / "p", CONSOLE))
    states = States(project, Board(), Notes(project, Observer()), Recorder())
    states.add(project, [project.queries["totals"]])
    states.wait_for("totals", word, AWAY)
    assert states["totals"].state.state == "waiting", "one that does not run waits for nothing"
    states.start("totals", None)
    states.restart_later(project.queries["totals"], AWAY, ends=False, ran_seconds=0)
    states.start("totals", None)
    states.change("totals", "running")
    before = len(notes)
    for _ in range(3):
        states.wait_for("totals", word, AWAY)
    assert [(state.state, state.waits, state.level) for state in notes[before:]] == [(word, AWAY, "bad")]
    states.wait_for("totals", word, replace(AWAY, what="it starts"))
    assert notes[-1].since == notes[before].since
    states.wait_for("totals", "running", None)
    assert (notes[-1].state, notes[-1].waits, notes[-1].cause) == ("running", None, AWAY)
    states.worked("totals")
    assert (notes[-1].in_trouble, notes[-1].cause) == (False, None)
    states.wait_for("totals", word, AWAY)
    states.change("totals", "stopping")
    states.wait_for("totals", word, AWAY)
    assert (notes[-1].state, notes[-1].waits) == ("stopping", None)
    assert QueryState.from_dict(json.loads(json.dumps(notes[before].as_dict(), default=str))) == notes[before]
