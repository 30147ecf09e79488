"""The first start makes the ledger's tables next to the result, at whichever statement it dies."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.sql.dialect import Connection, Dialect, run
from headrace.connectors.sql.system_tables import FORMS
from headrace.errors import SinkError

from ..sql.databases import Database, database
from .drivers import EVERY, Driver

__all__ = ["database"]
pytestmark = pytest.mark.parametrize("database", EVERY, indirect=True)

OWN = ("_headrace_ledger", "_headrace_epochs", "_headrace_tables", "_headrace_quarantine")


@pytest.fixture
def driver(database: Database, tmp_path: Path) -> Driver:
    return Driver(database, tmp_path / "a")


class Dying:
    """A connection that dies before its n-th statement."""

    def __init__(self, real: Any, left: list[int]) -> None:
        self.real, self.left = real, left

    def cursor(self) -> Any:
        return self

    def execute(self, *statement: Any) -> Any:
        self.left[0] -= 1
        if self.left[0] < 0:
            self.real.close()
            raise Died
        self.newest = self.real.cursor()
        self.newest.execute(*statement)
        return self.newest

    def close(self) -> None:
        with suppress(Exception):
            self.real.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real if name == "info" else self.newest, name)


class Died(BaseException):
    """The driver is killed."""


# How many statements lie between two deaths; in `make soak` each one is tried.
STEPS = {} if os.environ.get("HEADRACE_PAIRS") else {"sqlite": 3, "postgres": 19, "mariadb": 19}


def test_a_first_start_that_dies_at_any_statement_leaves_it_to_the_next(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: type[Dialect] = type(driver.database.sink().dialect())
    connect = kind.connect
    for statements in range(0, 200, STEPS.get(driver.database.kind, 1)):
        for table in ("result", *OWN):
            driver.database.query(f"DROP TABLE IF EXISTS {table}")
        left = [statements]

        def dying(dialect: Dialect, left: list[int] = left) -> Connection:
            return Dying(connect(dialect), left)

        with monkeypatch.context() as patched, suppress(Died):
            patched.setattr(kind, "connect", dying)
            driver.start()
        driver.start()
        driver.write(0, ["f0"])
        assert (driver.rows(), driver.lines()) == (["f0"], [0]), statements
        for log in ("offsets", "commits"):
            (driver.run.checkpoint / log / "0").unlink(missing_ok=True)
        if left[0] > 0:
            break
    else:
        pytest.fail("the start has more statements than were tried")


def test_own_tables_need_no_rights_when_they_are_whole(driver: Driver) -> None:
    driver.start()
    dialect = driver.database.sink().dialect()
    with closing(dialect.connect()) as connection:
        run(connection, dialect.begin_read)
        assert [form.missing_columns(connection, dialect) for form in FORMS] == [(), (), (), ()]


def test_a_table_of_that_name_that_another_program_made_is_refused_and_stays(driver: Driver) -> None:
    driver.database.query("CREATE TABLE _headrace_epochs (query VARCHAR(99), epoch BIGINT)")
    driver.database.query("INSERT INTO _headrace_epochs VALUES ('q', 3)")
    with pytest.raises(SinkError, match=r"HR407.*'_headrace_epochs' lacks columns \(application, query_id, "):
        driver.start()
    assert driver.database.query("SELECT * FROM _headrace_epochs") == [("q", 3)]
