"""A ledger of Headrace 0.1.0 is taken over by the first start, whenever it dies, and 0.1.0 can write no more."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.sql.dialect import Connection, Dialect, run
from headrace.connectors.sql.ledger_tables import FORMS, REPLAYS_FORM
from headrace.connectors.sql.prepare import require_claimed
from headrace.connectors.sql.system_tables import OwnTable
from headrace.errors import CheckpointError, SinkError

from ..sql.databases import Database, database
from .drivers import EVERY, Driver

__all__ = ["database"]
pytestmark = pytest.mark.parametrize("database", EVERY, indirect=True)

LATER = ("application", "project", "digest", "chain", "planned")
OLD_KEYS = {
    "_headrace_ledger": ("query", "generation", "batch"),
    "_headrace_epochs": ("query",),
    "_headrace_tables": ("table_name",),
    "_headrace_quarantine": (),
    "_headrace_replays": ("query", "generation", "checkpoint", "batch"),
}
# As 0.1.0 enters a batch, an epoch and an owner.
OLD_BATCH = (
    "INSERT INTO _headrace_ledger (query, generation, batch, epoch, checkpoint, row_count, quarantined, watermark, "
    "fingerprint, committed_at) VALUES ('{query}', 1, {batch}, 3, '{checkpoint}', 1, 0, NULL, 'f', 'now')"
)
OLD_EPOCH = "INSERT INTO _headrace_epochs (query, epoch) VALUES ('q', 3)"
OLD_OWNER = (
    "INSERT INTO _headrace_tables (table_name, query, generation, spark_schema) VALUES ('{table}', 'q', 1, '{{}}')"
)


def of_0_1_0(table: OwnTable) -> OwnTable:
    without = (*LATER, "table_name") if table.name in ("_headrace_ledger", "_headrace_replays") else LATER
    kept = tuple(column for column in table.columns if column.name not in without)
    return OwnTable(table.name, kept, OLD_KEYS[table.name])


def made_by_0_1_0(driver: Driver, checkpoint: str = "c") -> None:
    """Batches 0 and 1, as 0.1.0 leaves them."""
    database = driver.database
    for table in ["result", *OLD_KEYS]:
        database.query(f"DROP TABLE IF EXISTS {table}")
    with closing(database.sink().dialect().connect()) as connection:
        for form in (*FORMS, REPLAYS_FORM):
            of_0_1_0(form).make(connection, database.sink().dialect())
    database.query("CREATE TABLE result (name VARCHAR(20), total BIGINT)" if database.kind != "mariadb" else RESULT)
    for statement in (
        "INSERT INTO result VALUES ('f0', 0), ('f1', 1)",
        OLD_EPOCH,
        OLD_OWNER.format(table="result"),
        *(OLD_BATCH.format(query="q", batch=batch, checkpoint=checkpoint) for batch in (0, 1)),
        OLD_BATCH.format(query="other", batch=0, checkpoint="o"),
        "INSERT INTO _headrace_quarantine VALUES ('q', 1, 0, 'result', 'r', '{}')",
        f"INSERT INTO _headrace_replays VALUES ('q', 1, '{checkpoint}', 0, 1, 1, 0, 0, 'now')",
    ):
        database.query(statement)
    for batch in (0, 1):
        driver.plan(batch, [f"f{batch}"])
    driver.commit(0)


RESULT = "CREATE TABLE result (name VARCHAR(20) COLLATE utf8mb4_nopad_bin, total BIGINT)"


@pytest.fixture
def driver(database: Database, tmp_path: Path) -> Driver:
    found = Driver(database, tmp_path / "a")
    made_by_0_1_0(found)
    return found


def claimed(database: Database, table: str) -> list[tuple[Any, ...]]:
    return database.query(
        f"SELECT application, query, count(*) FROM {table} GROUP BY application, query ORDER BY 2 DESC"
    )


def test_the_first_start_takes_the_lines_over(driver: Driver) -> None:
    database = driver.database
    with (
        closing(database.sink().dialect().connect()) as connection,
        pytest.raises(SinkError, match=r"0\.1\.0"),
    ):
        require_claimed(connection, database.sink().dialect(), "result", driver.run)
    driver.start().give(1, ["f1"])
    driver.write(2, ["f2"])
    assert (driver.rows(), driver.lines()) == (["f0", "f1", "f2"], [0, 1, 2])
    assert claimed(database, "_headrace_ledger") == [("a", "q", 3), ("", "other", 1)]
    assert claimed(database, "_headrace_quarantine") == [("a", "q", 1)]
    assert claimed(database, "_headrace_replays") == [("a", "q", 1)]
    driver.start()
    for statement in (OLD_BATCH.format(query="q", batch=3, checkpoint="c"), OLD_EPOCH, OLD_OWNER.format(table="t")):
        with pytest.raises(Exception, match=r"(?i)null|default"):
            database.query(statement)


def test_lines_of_another_checkpoint_are_not_taken(driver: Driver) -> None:
    made_by_0_1_0(driver, checkpoint="another")
    with pytest.raises(CheckpointError, match="is another one"):
        driver.start()
    assert claimed(driver.database, "_headrace_ledger") == [("", "q", 2), ("", "other", 1)]


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
        self.found = self.real.cursor()
        self.found.execute(*statement)
        return self.found

    def close(self) -> None:
        with suppress(Exception):
            self.real.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real if name == "info" else self.found, name)


class Died(BaseException):
    """The driver is killed."""


# How many statements lie between two deaths; in `make soak` each one is tried.
STEPS = {} if os.environ.get("HEADRACE_PAIRS") else {"sqlite": 3, "postgres": 19, "mariadb": 19}


def test_a_start_that_dies_at_any_statement_leaves_it_to_the_next(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: type[Dialect] = type(driver.database.sink().dialect())
    connect = kind.connect
    for statements in range(0, 200, STEPS.get(driver.database.kind, 1)):
        made_by_0_1_0(driver)
        left = [statements]

        def dying(dialect: Dialect, left: list[int] = left) -> Connection:
            return Dying(connect(dialect), left)

        with monkeypatch.context() as patched, suppress(Died):
            patched.setattr(kind, "connect", dying)
            driver.start()
        driver.start().give(1, ["f1"])
        driver.write(2, ["f2"])
        assert (driver.rows(), driver.lines()) == (["f0", "f1", "f2"], [0, 1, 2]), statements
        assert claimed(driver.database, "_headrace_quarantine") == [("a", "q", 1)]
        for batch in (2, 1):
            (driver.run.checkpoint / "offsets" / str(batch)).unlink()
        if left[0] > 0:
            break
    else:
        pytest.fail("the start has more statements than were tried")


def test_many_starts_at_once_take_over_once(driver: Driver) -> None:
    from .test_two_drivers import together

    found = together(driver.start, Driver(driver.database, driver.storage).start)
    assert all(isinstance(each, Driver) for each in found), found
    assert driver.lines() == [0, 1]


def test_own_tables_need_no_rights_when_they_are_whole(driver: Driver) -> None:
    driver.start()
    dialect = driver.database.sink().dialect()
    with closing(dialect.connect()) as connection:
        run(connection, dialect.begin_read)
        assert [form.missing_columns(connection, dialect) for form in FORMS] == [(), (), (), ()]
