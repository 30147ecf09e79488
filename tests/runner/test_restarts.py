"""A query that failed by a fault that passes is restarted, at growing intervals, and in the end no more."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

import headrace as hr
from headrace.api import load
from headrace.contract import Observer
from headrace.contract.observer import QueryState
from headrace.control.board import Board, Order
from headrace.errors import Finding, HeadraceError, ProjectError
from headrace.model import Project
from headrace.model.trigger import Restart
from headrace.runner.batch_records import Notes
from headrace.runner.states import States
from headrace.units import Duration

from .projects import write_project

pytestmark = pytest.mark.plain

AWAY = Finding(code="HR405", what="the database does not answer")
QUERY = """
@hr.query(sink=hr.sink.console(), restart={restart}, state_budget="2g")
def totals(events):
    return events
"""


@pytest.mark.parametrize(
    ("code", "what", "passes"),
    [
        ("HR405", "the database at db:5432 does not answer", True),
        ("HR331", "the broker does not answer", True),
        ("HR607", "a Python worker died", True),
        ("HR608", "a Python worker did not connect in time", True),
        ("HR601", "query 'q' failed: ConnectionError: no route to host", True),
        ("HR417", "the function failed: requests.exceptions.ReadTimeout: HTTPSConnectionPool", True),
        ("HR601", "query 'q' failed: End of File Exception between local host is: vm; destination is: name:9000", True),
        ("HR601", "query 'q' failed: Cannot create file. Name node is in safe mode", True),
        ("HR601", "query 'q' failed: File /c could only be written to 0 of the 1 minReplication nodes", True),
        (
            "HR601",
            "query 'q' failed: All datanodes [DatanodeInfoWithStorage[10.0.0.1:9866]] are bad. Aborting...",
            True,
        ),
        ("HR601", "query 'q' failed: Could not obtain block: BP-1-10.0.0.1-1:blk_1073741825_1001 file=/c/7", True),
        ("HR601", "query 'q' failed: Operation category READ is not supported in state standby", True),
        ("HR601", "query 'q' failed: NoHttpResponseException: minio:9000 failed to respond", True),
        ("HR831", "the storage hdfs://name:9000 cannot be reached: Connection refused", True),
        ("HR601", "query 'q' failed: SlowDown: please reduce your request rate", True),
        ("HR126", "the master spark://spark-1:7077 does not answer (spark-1:7077: Connection refused)", True),
        ("HR825", "the cluster has given no executor", True),
        ("HR012", "Spark's connector 'kafka' could not be fetched: Temporary failure in name resolution", True),
        ("HR012", "the jars of 'kafka' are not whole", False),
        ("HR127", "Spark cannot be started: Connection refused (ConnectException)", True),
        ("HR127", "Spark cannot be started: System memory 200 must be at least 400", False),
        ("HR001", "no Java was found", False),
        ("DUCK1", "the file is temporarily locked", True),
        ("HR601", "query 'q' failed: ValueError: no price of 7", False),
        ("HR414", "the database refuses the password; the connection was closed", False),
        ("HR214", "a column does not exist", False),
        ("HR535", "a change would mix two meanings in the state", False),
        ("HR409", "a newer driver runs the query", False),
        ("HR302", "a row does not fit the schema: 503", False),
    ],
)
def test_what_passes_by_itself_differs_from_what_somebody_has_to_correct(code: str, what: str, passes: bool) -> None:
    assert Finding(code=code, what=what).passes is passes


class Failing:
    """A query that fails again and again, without Spark."""

    def __init__(self, project: Project, *, ends: bool = False) -> None:
        self.query, self.ends, self.board = project.queries["totals"], ends, Board()
        self.states = States(project, self.board, Notes(project, Observer()), Observer())
        self.states.add(project, [self.query])

    def fail(self, ran_seconds: float = 0.0, finding: Finding = AWAY) -> float | None:
        """The pause before the next start, None if there is none."""
        if self.now.state in ("waiting", "restarting"):
            self.states.start("totals", None)
        begun = datetime.now(timezone.utc)
        if not self.states.restart_later(self.query, finding, ends=self.ends, ran_seconds=ran_seconds):
            return None
        assert self.now.next_attempt is not None
        return round((self.now.next_attempt - begun).total_seconds())

    @property
    def now(self) -> QueryState:
        state = self.board.get("totals")
        assert state is not None
        return state


def project_with(root: Path, restart: str, settings: str = "") -> Project:
    write_project(root, QUERY.format(restart=restart))
    (root / "headrace.yml").write_text(f"name: p\n{settings}")
    return load(root)


def test_pauses_double_to_the_longest_and_end_at_the_limit_until_it_was_quiet(tmp_path: Path) -> None:
    restart = '{"limit": 4, "pause": "2 seconds", "longest_pause": "5 seconds", "quiet": "1 minute"}'
    query = Failing(project_with(tmp_path / "p", restart))
    assert [query.fail(seconds) for seconds in (0, 0, 59, 0, 0)] == [2, 4, 5, 5, None]
    assert [query.fail(seconds) for seconds in (61, 0)] == [2, 4]
    assert (query.now.restarts, query.now.attempt, query.now.limit) == (6, 2, 4)
    query.states.start_again("totals", Order(verb="restart", query="totals"))
    assert query.fail() == 2
    assert query.fail(finding=replace(AWAY, code="HR414")) is None


def test_without_a_policy_a_query_that_runs_on_is_started_again_for_ever_and_one_that_ends_is_not(
    tmp_path: Path,
) -> None:
    project = project_with(tmp_path / "p", "None")
    running_on = Failing(project)
    pauses = [running_on.fail() for _ in range(40)]
    assert (pauses[:4], set(pauses[9:])) == ([1, 2, 4, 8], {300})
    assert (running_on.now.limit, running_on.now.restarts) == (None, 40)
    assert Failing(project, ends=True).fail() is None
    late = replace(AWAY, code="HR608", what="a Python worker of Spark was started and did not connect in time")
    ending = Failing(project, ends=True)
    assert [ending.fail(finding=late) for _ in range(4)] == [1, 2, 4, None]
    assert Failing(project_with(tmp_path / "never", '"never"'), ends=True).fail(finding=late) is None
    assert Failing(project_with(tmp_path / "never", '"never"')).fail() is None
    assert Failing(project_with(tmp_path / "exits", "None", "exit_on_failure: true\n")).fail() is None
    assert Restart().pause_before(10_000) == Restart().longest_pause.seconds


def test_a_query_that_fails_is_in_trouble_until_it_has_worked(tmp_path: Path) -> None:
    project = project_with(tmp_path / "p", "None")
    query = Failing(project)
    for number in (1, 2, 3):
        query.fail()
        (status,) = hr.status(project)
        shown = status.as_dict()
        assert (shown["state"], shown["in_trouble"], shown["attempt"]) == ("restarting", True, number)
        assert shown["next_attempt"] == (query.now.next_attempt and query.now.next_attempt.isoformat())
    query.states.start("totals", None)
    query.states.change("totals", "running")
    assert [entry.now.in_trouble for entry in hr.status(project)] == [True]
    query.states.worked("totals")
    (status,) = hr.status(project)
    assert (status.in_trouble, status.now.level, status.error, status.now.restarts) == (False, "good", None, 3)
    kinds = [event.kind for event in hr.events(project)]
    assert kinds == ["restarting"] * 3 + ["recovered"]


def test_yaml_and_python_declare_the_same_policy(tmp_path: Path) -> None:
    wanted = Restart(limit=3, pause=Duration.parse("5 seconds"))
    root = write_project(tmp_path / "p", QUERY.format(restart='{"limit": 3, "pause": "5 seconds"}'))
    (root / "headrace.yml").write_text(
        "name: p\nqueries:\n"
        "  a: {select: SELECT * FROM events, sink: console, restart: {limit: 3, pause: 5 seconds}}\n"
        "  b: {select: SELECT * FROM events, sink: console, restart: never}\n"
        "  c: {select: SELECT * FROM events, sink: console, state_budget: 512}\n"
    )
    queries = load(root).queries
    assert [queries[name].restart for name in ("totals", "a")] == [wanted, wanted]
    assert (queries["b"].restart, queries["c"].restart) == (Restart(limit=0), None)
    assert [queries[name].state_budget_bytes for name in ("totals", "c")] == [2 << 30, 512]


@pytest.mark.parametrize(
    ("python", "yaml", "words"),
    [
        ('{"limit": -1}', "{limit: -1}", "'-1' is not a whole number from 0"),
        ('{"pause": "soon"}', "{pause: soon}", "'soon' is not a length of time"),
        ('{"pause": "0 s"}', "{pause: 0 s}", "'0 s' must be longer than zero"),
        ('"sometimes"', "sometimes", "restart has no word 'sometimes'"),
        (
            '{"pause": "1 hour", "longest_pause": "1 s"}',
            "{pause: 1 hour, longest_pause: 1 s}",
            "shorter than the pause of 1 hour",
        ),
    ],
)
def test_a_wrong_policy_is_one_sentence(tmp_path: Path, python: str, yaml: str, words: str) -> None:
    root = write_project(tmp_path / "p", QUERY.format(restart=python))
    (root / "headrace.yml").write_text(
        f"name: p\nqueries:\n  a: {{select: SELECT * FROM events, sink: console, restart: {yaml}}}\n"
    )
    with pytest.raises(HeadraceError) as caught:
        load(root)
    assert isinstance(caught.value, ProjectError)
    assert [finding.code for finding in caught.value.findings] == ["HR104", "HR104"]
    assert all(words in finding.what for finding in caught.value.findings)
