"""Two drivers, two copies of a storage directory, two projects: no row is lost or doubled; the reason is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.exactly_once import Retry
from headrace.connectors.sql import preparation, silence
from headrace.connectors.sql.dialect import run
from headrace.connectors.sql.result_table import result_table
from headrace.contract import Boundary, SinkContext
from headrace.errors import CheckpointError, Fenced, HeadraceError, NothingChanged, SinkError
from tests.rounds import rounds

from ..sql.databases import Database, database
from .drivers import EVERY, SCHEMA, Driver

__all__ = ["database"]
pytestmark = pytest.mark.parametrize("database", EVERY, indirect=True)
# A driver that takes longer hangs.
PATIENCE = 60.0


@pytest.fixture
def first(database: Database, tmp_path: Path) -> Driver:
    """A driver that has written batch 0."""
    driver = Driver(database, tmp_path / "a")
    driver.plan(0, ["f0"])
    driver.start().give(0, ["f0"])
    driver.commit(0)
    return driver


def test_a_batch_of_a_copy_is_not_taken_for_ones_own(first: Driver, tmp_path: Path) -> None:
    copy = first.copy(tmp_path / "b").start()
    first.plan(1, ["f1"])
    copy.write(1, ["f1", "f2", "f3"])
    with pytest.raises(Fenced):
        first.give(1, ["f1"])
    with pytest.raises(CheckpointError, match=r"batch 1 of query 'q' is in table 'result' with other rows") as raised:
        first.start()
    assert raised.value.findings[0].code == "HR410"
    assert "3 files (f1, f2, f3) against 1 files (f1)" in raised.value.findings[0].what
    copy.write(2, ["f4"])
    assert (copy.rows(), copy.lines()) == (["f0", "f1", "f2", "f3", "f4"], [0, 1, 2])


def test_a_start_sees_what_was_committed_while_it_waited(first: Driver, tmp_path: Path) -> None:
    copy = first.copy(tmp_path / "b")
    copy.plan(1, ["f1", "f2"])
    outcomes: list[object] = []

    def begin() -> None:
        try:
            outcomes.append(copy.start())
        except HeadraceError as error:
            outcomes.append(error)

    other = threading.Thread(target=begin, daemon=True)

    def meanwhile(boundary: Boundary, batch: int) -> None:
        if boundary == "inside-transaction":
            other.start()
            time.sleep(0.7)

    first.reached = meanwhile
    first.write(1, ["f1"])
    other.join(PATIENCE)
    assert isinstance(outcomes[0], CheckpointError)
    assert outcomes[0].findings[0].code == "HR410"
    first.reached = lambda boundary, batch: None
    first.write(2, ["f2"])
    assert first.rows() == ["f0", "f1", "f2"], "the start that did not fit has fenced no driver off"


TAKEN: dict[str, Callable[[Driver], object]] = {
    "dropped by hand": lambda driver: driver.database.query("DROP TABLE result"),
    "set aside by a reset": lambda driver: driver.database.sink(key=[]).reset.archive(driver.run, None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("taken", TAKEN)
def test_a_result_that_is_gone_is_not_continued_in_a_new_table(first: Driver, tmp_path: Path, taken: str) -> None:
    copy = first.copy(tmp_path / "b")
    TAKEN[taken](first)
    for driver in (first, copy):
        with pytest.raises(
            CheckpointError, match=r"batches of query 'q' up to 0, and table 'result'.* is gone"
        ) as raised:
            driver.start()
        assert raised.value.findings[0].code == "HR410"
    assert first.lines() == [0]


def test_a_result_of_complete_mode_comes_whole_into_a_new_table(first: Driver) -> None:
    first.database.query("DROP TABLE result")
    dialect, whole = first.database.sink(key=[]).dialect(), replace(first.run, mode="complete")
    table = result_table("result", (), SCHEMA, whole)
    assert preparation.prepare(dialect, table, SCHEMA.json(), whole).epoch == 2
    assert first.rows() == []


def test_a_batch_that_differs_is_never_skipped(first: Driver) -> None:
    first.start().plan(0, ["other"])
    with pytest.raises(CheckpointError, match="HR410"):
        first.give(0, ["other"])
    assert first.rows() == ["f0"]


def pairs(database: Database, home: Path, count: int, second: dict[str, Any]) -> Iterator[tuple[Driver, Driver]]:
    for number in range(count):
        one = Driver(database, home / f"a{number}", query=f"q{number}", table=f"one{number}")
        two = Driver(
            database,
            home / f"b{number}",
            **{"query": f"q{number}", "application": "b", **second, "table": second["table"].format(number)},
        )
        yield one, two
        # Each has a connection of its own, and a server has only so many.
        one.writer = two.writer = None


def together(*calls: Callable[[], object]) -> list[object]:
    """Start all calls at once; return what each returned or raised. One that hangs is given up."""
    barrier = threading.Barrier(len(calls))
    outcomes: dict[int, object] = {}

    def one(number: int, call: Callable[[], object]) -> None:
        barrier.wait(PATIENCE)
        try:
            outcomes[number] = call()
        except BaseException as error:
            outcomes[number] = error

    threads = [threading.Thread(target=one, args=call, daemon=True) for call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for outcome in outcomes.values():
        if isinstance(outcome, BaseException) and not isinstance(outcome, HeadraceError):
            raise outcome
    return [outcomes[number] for number in range(len(calls))]


# `make soak` has forty.
ROUNDS = pytest.mark.parametrize("count", rounds([1, int(os.environ.get("HEADRACE_PAIRS", "8"))]))


@ROUNDS
def test_simultaneous_first_starts_of_two_projects_just_work(database: Database, tmp_path: Path, count: int) -> None:
    """One query name, one database, two tables: neither shares an epoch, a line or a row with the other."""
    for one, two in pairs(database, tmp_path, count, {"table": "two{}"}):
        one.plan(0, ["a"])
        two.plan(0, ["b"])
        assert together(one.start, two.start) == [one, two]
        together(lambda one=one: one.give(0, ["a"]), lambda two=two: two.give(0, ["b"]))
        assert (one.rows(), two.rows(), one.lines(), two.lines()) == (["a"], ["b"], [0], [0])
        one.write(1, ["c"])


@ROUNDS
def test_of_two_projects_that_want_one_table_one_gets_it(database: Database, tmp_path: Path, count: int) -> None:
    for one, two in pairs(database, tmp_path, count, {"table": "one{}", "project": "laptops"}):
        outcomes = together(one.start, two.start)
        faults = [outcome for outcome in outcomes if isinstance(outcome, HeadraceError)]
        assert len(faults) == 1
        assert isinstance(faults[0], SinkError)
        assert faults[0].findings[0].code == "HR407"
        assert f"belongs to query '{one.query}' of project '" in faults[0].findings[0].what


@ROUNDS
def test_of_two_first_starts_of_one_query_one_is_fenced_off(database: Database, tmp_path: Path, count: int) -> None:
    for one, two in pairs(database, tmp_path, count, {"table": "one{}", "application": "a"}):
        assert together(one.start, two.start) == [one, two]
        assert one.writer is not None
        assert two.writer is not None
        assert sorted([one.writer.store.epoch, two.writer.store.epoch]) == [1, 2]


def test_another_projects_lines_stay_when_a_query_begins_again(first: Driver, tmp_path: Path) -> None:
    other = Driver(first.database, tmp_path / "o", application="o", table="other")
    other.plan(0, ["g"])
    other.start().give(0, ["g"])
    first.database.query("DROP TABLE result")
    first.database.query("DELETE FROM _headrace_ledger WHERE query = 'q' AND table_name = 'result'")
    again = Driver(first.database, tmp_path / "again")
    again.plan(0, ["f0"])
    again.start().give(0, ["f0"])
    other.start().write(1, ["h"])
    assert (again.rows(), other.rows()) == (["f0"], ["g", "h"])


class Lossy:
    """A connection that loses the answer to its COMMIT, which comes through at once or later."""

    def __init__(self, real: Any, seconds: float, error: type[Exception]) -> None:
        self.real, self.seconds, self.error, self.late = real, seconds, error, threading.Thread()

    def cursor(self) -> Any:
        return self

    def execute(self, statement: str, values: Any = ()) -> Any:
        if self.late.ident is not None:
            raise self.error
        if statement != "COMMIT":
            self.newest = self.real.cursor()
            self.newest.execute(statement, values)
            return self.newest

        def commit() -> None:
            time.sleep(self.seconds)
            run(self.real, "COMMIT")

        self.late = threading.Thread(target=commit, daemon=True)
        self.late.start()
        if not self.seconds:
            self.late.join(PATIENCE)
        raise self.error

    def executemany(self, *arguments: Any) -> None:
        self.newest = self.real.cursor()
        self.newest.executemany(*arguments)

    @property
    def rowcount(self) -> int:
        return int(self.newest.rowcount)

    def fetchall(self) -> Any:
        return self.newest.fetchall()

    def close(self) -> None:
        """The server does not know yet that the client is gone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def lost_answer(kind: str) -> Any:
    """What the driver of a database raises where its server does not answer any more."""
    import sqlite3

    import psycopg
    import pymysql

    return {
        "sqlite": sqlite3.OperationalError("disk I/O error"),
        "postgres": psycopg.OperationalError("server closed the connection unexpectedly"),
        "mariadb": pymysql.err.OperationalError(2013, "Lost connection"),
    }[kind]


def lossy_connection(driver: Driver, seconds: float) -> Lossy:
    """The driver's connection from now on, until it makes another one."""
    assert driver.writer is not None
    lossy = Lossy(driver.writer.store.dialect.connect(), seconds, lost_answer(driver.database.kind))
    driver.writer.store._connection = lossy
    return lossy


@pytest.mark.parametrize("tries", [0.0, 0.5], ids=["at once", "after attempts without an answer"])
def test_a_commit_without_an_answer_is_not_reported_as_not_written(
    first: Driver, monkeypatch: pytest.MonkeyPatch, tries: float
) -> None:
    lossy = lossy_connection(first, 0.0)
    assert first.writer is not None
    store = first.writer.store
    store.retry = Retry(seconds=tries)

    def away(dialect: object) -> None:
        raise lossy.error

    with monkeypatch.context() as silent:
        silent.setattr(type(store.dialect), "connect", away)
        with pytest.raises(SinkError) as ended:
            first.write(1, ["f1"])
    lossy.real.close()
    sentences = [finding.what for finding in (*first.warnings, *ended.value.findings)]
    assert (len(sentences) > 1) is (tries > 0)
    assert {sentence.partition(":")[0] for sentence in sentences} == {
        "it is not known whether batch 1 of query 'q' was written"
    }
    assert "nothing of the batch" not in ended.value.findings[0].fix
    assert first.rows() == ["f0", "f1"]


MOVES: dict[str, Callable[[Any, SinkContext], None]] = {
    "the result of query 'q' was moved": lambda sink, run: sink.reset.hand_over(run, 2, None),
}


@pytest.mark.parametrize("done", MOVES)
def test_a_move_whose_commit_has_no_answer_is_not_reported_as_refused(
    first: Driver, monkeypatch: pytest.MonkeyPatch, done: str
) -> None:
    sink, lossy = first.database.sink(key=[]), lossy_connection(first, 0.0)
    monkeypatch.setattr(type(sink.dialect()), "connect", lambda dialect: lossy)
    with pytest.raises(SinkError, match=f"it is not known whether {done}: ") as raised:
        MOVES[done](sink, first.run)
    assert not isinstance(raised.value, NothingChanged)


@pytest.mark.parametrize("seconds", [0.0, 1.0], ids=["lost", "late"])
def test_a_commit_whose_answer_is_lost_or_late_is_not_done_twice(first: Driver, seconds: float) -> None:
    lossy = lossy_connection(first, seconds)
    first.write(1, ["f1", "f2"])
    lossy.late.join(PATIENCE)
    lossy.real.close()
    first.write(2, ["f3"])
    assert (first.rows(), first.lines()) == (["f0", "f1", "f2", "f3"], [0, 1, 2])


def test_a_fenced_driver_leaves_the_newer_ones_staging_alone(first: Driver, tmp_path: Path) -> None:
    if first.database.kind == "sqlite":
        pytest.skip("staging tables are files here")
    older, newer = first, first.copy(tmp_path / "b").start()
    assert newer.writer is not None
    assert older.writer is not None
    names = [f"{older.writer.store.stage.prefix}{'1' * 12}", f"{newer.writer.store.stage.prefix}{'2' * 12}"]
    with closing(first.database.connect()) as connection:
        for name in names:
            connection.cursor().execute(f"CREATE TABLE {name} (a int)")
        older.writer.store._has_staged = True
        older.writer.store.release(None, None)
        assert first.database.left_over() == names[1:]
        newer.start()
        assert first.database.left_over() == []


@pytest.mark.parametrize("emptied", ["DELETE FROM _headrace_ledger", "DROP TABLE _headrace_ledger"])
def test_a_first_batch_whose_line_is_gone_is_refused(database: Database, tmp_path: Path, emptied: str) -> None:
    driver = Driver(database, tmp_path / "a")
    driver.start().write(0, ["f0"])
    database.query(emptied)
    with pytest.raises(CheckpointError, match="planned batch 0, but the ledger next to table 'result' has no batch"):
        driver.start()
    database.query("DELETE FROM result")
    driver.start().give(0, ["f0"])
    assert driver.rows() == ["f0"]


WRITES = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("inside", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
database.execute("COMMIT")
"""


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "stays stopped"])
def test_a_start_waits_for_a_process_that_was_stopped_inside_its_transaction(
    first: Driver, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    if first.database.kind != "sqlite":
        pytest.skip("a server ends the session by itself: tests/connectors/sql/test_half_open.py")
    monkeypatch.setattr(preparation, "CONTENDED_SECONDS", 0.5)
    monkeypatch.setattr(silence, "PATIENCE_SECONDS", PATIENCE if goes_on else 1.5)
    command = [sys.executable, "-c", WRITES, first.database.place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "inside\n"
        if goes_on:
            threading.Timer(3.0, other.send_signal, [signal.SIGCONT]).start()
            first.start()
        else:
            with pytest.raises(SinkError, match=f"is locked by process {other.pid}"):
                first.start()
            other.kill()
    [finding] = first.warnings
    assert (finding.code, f"is locked by process {other.pid}; the start waits for it" in finding.what) == (
        "HR480",
        True,
    )
