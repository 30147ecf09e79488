"""A query whose source or sink does not answer says so, since when and why, wherever its state is shown."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.api import events, load
from headrace.cli import main
from headrace.contract import Observer, QueryState
from headrace.contract.observer import State
from headrace.errors import Finding
from headrace.observe.board import Board
from headrace.observe.history import History
from headrace.observe.lag import SourceLags
from headrace.observe.metrics import MetricsObserver
from headrace.observe.metrics_server import ready
from headrace.queries.layout import history_file
from headrace.run.batch_records import Notes
from headrace.run.states import States
from headrace.ui.standing import standings
from tests.observe.test_hooks import receiving
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
FROM_KAFKA = """
messages = hr.source.kafka("{url}", subscribe="{topic}", value="json", schema="n INT", starting_offsets="earliest")

@hr.query(sink=hr.sink.sqlite("out.db", table="totals"), trigger=hr.every("1 second"))
def totals(messages):
    return messages
"""


class Shown:
    """The state of `totals` wherever it is shown."""

    def __init__(self, project: Project, board: Board, capsys: pytest.CaptureFixture[str]) -> None:
        self.project, self.board, self._capsys = project, board, capsys
        self._metrics = MetricsObserver(project.name, board, dict, SourceLags(project).of)

    @property
    def states(self) -> set[str]:
        """In board, /readyz, `status` and the dashboard."""
        found = {self.board.states()["totals"].state, ready(self.board)["queries"]["totals"], self.status["state"]}
        return found | {str(self.standing["state"])}

    @property
    def status(self) -> dict[str, Any]:
        self.exit_code = main(["status", "-C", str(self.project.root), "--json"])
        (found,) = json.loads(self._capsys.readouterr().out)["queries"]
        return dict(found)

    @property
    def standing(self) -> dict[str, Any]:
        with History.open(history_file(self.project.local_storage), read_only=True) as history:
            return standings(self.project, history, SourceLags(self.project))["totals"]

    def metric(self, name: str, **labels: str) -> float | None:
        registry = self._metrics.collected()
        value = registry.get_sample_value(f"headrace_query_{name}", {"app": "p", "query": "totals", **labels})
        return value

    def waits(self, word: State, on: str) -> None:
        """Require that all show the state `word`, and why, and that nothing is said to work."""
        eventually(lambda: self.states == {word})
        status, standing = self.status, self.standing
        assert (self.exit_code, status["in_trouble"], ready(self.board)["ok"]) == (1, True, False)
        assert datetime.fromisoformat(status["since"]) <= datetime.now(timezone.utc)
        assert (standing["level"], [each["code"] for each in standing["findings"]][:1]) == ("bad", ["HR864"])
        assert [self.metric("waiting", on=each) for each in ("source", "sink")] == [on == "source", on == "sink"]
        assert [self.metric(name) for name in ("up", "down")] == [0, 1]
        assert main(["status", "-C", str(self.project.root)]) == 1
        text = self._capsys.readouterr().out
        assert f"query 'totals' is {word} since" in text

    def works(self) -> None:
        """Require that all show that the query runs again."""
        eventually(lambda: self.states == {"running"})
        assert (self.status["in_trouble"], self.exit_code, ready(self.board)["ok"]) == (False, 0, True)
        assert [self.metric(name) for name in ("up", "down")] == [1, 0]


@contextmanager
def stopped(pid: int) -> Iterator[None]:
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
        with stopped(kafka_server.pid):
            shown.waits("waiting for source", "source")
            assert topic in shown.status["waits"]["what"]
        kafka.send(topic, '{"n": 2}')
        eventually(lambda: shown.status["batch"] == 1)
        shown.works()


@pytest.mark.plain
@pytest.mark.parametrize("word", ["waiting for source", "waiting for sink"])
def test_a_wait_is_told_once_and_what_failed_before_it_is_kept(tmp_path: Path, word: State) -> None:
    query = '@hr.query(sink=hr.sink.console(), restart={"pause": "1 second"})\ndef totals(events):\n    return events\n'
    told: list[QueryState] = []

    class Told(Observer):
        def changed(self, state: QueryState) -> None:
            told.append(state)

    project = load(write_project(tmp_path / "p", query))
    states = States(project, Board(), Notes(project, Observer()), Told())
    states.add([project.queries["totals"]])
    states.wait_for("totals", word, AWAY)
    assert states["totals"].state.state == "waiting", "one that does not run waits for nothing"
    states.start("totals", None)
    states.restart_later(project.queries["totals"], AWAY, ends=False, ran_seconds=0)
    states.start("totals", None)
    states.change("totals", "running")
    before = len(told)
    for _ in range(3):
        states.wait_for("totals", word, AWAY)
    assert [(state.state, state.waits, state.level) for state in told[before:]] == [(word, AWAY, "bad")]
    states.wait_for("totals", word, replace(AWAY, what="it starts"))
    assert told[-1].since == told[before].since
    states.wait_for("totals", "running", None)
    assert (told[-1].state, told[-1].waits, told[-1].cause) == ("running", None, AWAY)
    states.worked("totals")
    assert (told[-1].in_trouble, told[-1].cause) == (False, None)
    states.wait_for("totals", word, AWAY)
    states.change("totals", "stopping")
    states.wait_for("totals", word, AWAY)
    assert (told[-1].state, told[-1].waits) == ("stopping", None)
    assert QueryState.from_dict(json.loads(json.dumps(told[before].as_dict(), default=str))) == told[before]
