"""A cluster that has forgotten the application: the run ends, in place of a wait for executors without an end."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from headrace.api import load
from headrace.model import AvailableNow
from headrace.runner import vitals
from headrace.runner.stop import StopRequest
from headrace.runner.supervise import run
from headrace.runner.vitals import Vitals
from headrace.spark.stream.work import has_work
from tests.runner.projects import rows, write_project
from tests.runner.test_run import FRUIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = """
def away(rows, batch):
    raise ConnectionError("connection refused")

@hr.query(sink=hr.sink.foreach_batch(away), restart={"pause": "4 minutes"}, trigger=hr.every("200 ms"))
def waits(events):
    return events

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", trigger=hr.every("200 ms"))
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""


class Cluster:
    """What the cluster answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
        self.there, self.forgets, self.asked = frozenset({"a:1", "b:2"}), True, 0
        self.works = True
        self.answered = threading.Event()

        def is_forgotten(_: object) -> bool:
            self.asked += 1
            self.answered.set()
            return self.forgets

        monkeypatch.setattr(vitals, "executors", lambda _: self.there)
        monkeypatch.setattr(vitals, "has_work", lambda _: self.works)
        monkeypatch.setattr(vitals, "is_forgotten", is_forgotten)
        monkeypatch.setattr(vitals, "executor_patience", lambda _: patience)
        monkeypatch.setattr(vitals, "LOOK_SECONDS", 0.0)


class Anything:
    """A session, and what a driver notes, as far as they are asked for here."""

    sparkContext = type("Context", (), {"master": "spark://h:7077"})  # noqa: N815

    def report(self, *_: object) -> None:
        """Ignore the report."""


def look(watch: Vitals, times: int = 3) -> None:
    for _ in range(times):
        watch.look([])
        if watch._question is not None:
            watch._question.join()


@pytest.mark.plain
def test_a_master_is_asked_once_all_executors_have_been_away_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = Anything()
    cluster = Cluster(monkeypatch, patience=0.0)
    watch = Vitals(nothing, nothing, nothing)
    look(watch)
    cluster.there = frozenset({"a:1"})
    look(watch)
    assert cluster.asked == 0, "some are there"
    cluster.there, cluster.forgets = frozenset(), False
    look(watch)
    assert cluster.asked > 0
    assert watch.forgotten is None, "the master knows it, and will give it others"
    cluster.there, before = frozenset({"c:3"}), cluster.asked
    look(watch)
    assert cluster.asked == before
    cluster.there, cluster.forgets, cluster.works = frozenset(), True, False
    look(watch)
    assert cluster.asked == before, "nothing is to be done, so that none is wanted"
    cluster.works = True
    look(watch)
    assert watch.forgotten is not None
    assert watch.forgotten.code == "HR863"
    assert "spark://h:7077 has forgotten it" in watch.forgotten.what

    patient = Cluster(monkeypatch, patience=3600.0)
    watch = Vitals(nothing, nothing, nothing)
    look(watch)
    patient.there = frozenset()
    look(watch)
    assert patient.asked == 0, "they may come again"


@pytest.mark.plain
def test_a_session_that_never_had_an_executor_sends_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = Anything()
    cluster = Cluster(monkeypatch, patience=0.0)
    cluster.there = frozenset()
    look(Vitals(nothing, nothing, nothing))
    assert cluster.asked == 0


@pytest.mark.plain
def test_a_session_that_has_ended_has_no_work() -> None:
    class Ended:
        """As a session whose context Spark has stopped."""

        sparkContext: Any = property(lambda self: self)  # noqa: N815

        def statusTracker(self) -> None:  # noqa: N802
            raise Py4JError("the context was stopped")

    ended: Any = Ended()
    assert has_work(ended) is False


@pytest.mark.spark
def test_the_queries_of_a_forgotten_application_fail_and_resume_with_the_next_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", QUERIES, batches=FRUIT)
    with monkeypatch.context() as patch:
        cluster = Cluster(patch, patience=0.0)

        request = StopRequest()

        def reached(where: str, number: int) -> None:
            if (where, number) == ("after-transaction", 0):
                threading.Thread(target=lose).start()

        def lose() -> None:
            # One of them runs, and the other waits to be started again.
            request.board.wait(lambda posts: posts["waits"].state == "restarting", 60)
            cluster.there = frozenset()

        result = run(load(root), spark=spark, reached=reached, stop=request)
    ends = {
        outcome.query: (outcome.state, outcome.finding.code if outcome.finding else "") for outcome in result.outcomes
    }
    assert (ends, result.exit_code) == (dict.fromkeys(("waits", "totals"), ("failed", "HR863")), 1)
    assert run(load(root), ["totals"], trigger=AvailableNow(), spark=spark).exit_code == 0
    expected: Counter[str] = Counter()
    for files in FRUIT:
        for row in files:
            expected[row["name"]] += row["amount"]
    assert dict(rows(root / "out.db", "SELECT name, total FROM totals")) == expected
