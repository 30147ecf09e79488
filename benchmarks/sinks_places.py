"""The three databases that are measured: fresh tables, and the plainest way to load rows into each."""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from benchmarks.sinks_rows import KEY, Rows
from headrace.connectors.sql.before_images import before_table_name
from headrace.connectors.sql.mysql.connection import MySqlAddress
from headrace.connectors.sql.mysql.dialect import MySqlDialect
from headrace.connectors.sql.mysql.sink import MySql
from headrace.connectors.sql.postgres.dialect import PostgresDialect
from headrace.connectors.sql.postgres.sink import Postgres
from headrace.connectors.sql.sink import DatabaseSink
from headrace.connectors.sql.sqlite import Sqlite
from headrace.connectors.sql.types import ISO, Forms
from headrace.contract import SinkContext
from services import DATABASES
from services.process import new_home

TABLE = "counts"
QUERY = "bench"
OWN = (
    "_headrace_ledger",
    "_headrace_epochs",
    "_headrace_tables",
    "_headrace_quarantine",
    "_headrace_before",
    before_table_name(SinkContext(query=QUERY, generation=1, mode="update", checkpoint=Path()), TABLE),
)
CHUNK = 1 << 20


class Place(ABC):
    """A database with a table for the rows."""

    name: ClassVar[str]
    title: ClassVar[str]
    plainest: ClassVar[str]
    forms: ClassVar[Forms]

    def __init__(self, url: str, scratch: Path) -> None:
        self.url, self.scratch = url, scratch

    @abstractmethod
    def sink(self) -> DatabaseSink: ...

    @abstractmethod
    def connect(self) -> Any: ...

    @abstractmethod
    def clear(self) -> None:
        """Drop everything."""

    @abstractmethod
    def fill(self, connection: Any, rows: Rows) -> None:
        """Load the sorted rows by the plainest means, in one transaction."""

    def settle(self) -> None:  # noqa: B027
        """Let the server write out what it still holds, so that each run begins alike."""

    def create(self, rows: Rows) -> None:
        """The table with its primary key, as the sink makes it."""
        dialect = self.sink().dialect()
        key = [column for column in rows.result_columns if column.name in KEY]
        declared = ", ".join(
            f"{dialect.quote(column.name)} {dialect.declare(column, key)}{' NOT NULL' if column in key else ''}"
            for column in rows.result_columns
        )
        suffix = dialect.create_suffix(rows.result_columns, KEY)
        with closing(self.connect()) as connection:
            connection.cursor().execute(f"CREATE TABLE {TABLE} ({declared}, PRIMARY KEY ({', '.join(KEY)})){suffix}")

    def load(self, rows: Rows) -> float:
        """The seconds of the plainest load."""
        self.clear()
        self.create(rows)
        self.settle()
        with closing(self.connect()) as connection:
            prepared = self.prepare(rows)
            started = time.perf_counter()
            self.fill(connection, prepared)
            return time.perf_counter() - started

    def prepare(self, rows: Rows) -> Any:
        """The rows in the form that `fill` takes; making it is not measured."""
        return rows.text(self.forms)

    def require(self, count: int) -> None:
        """Raise if the table does not hold `count` rows."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT count(*) FROM {TABLE}")
            row = cursor.fetchone()[0]
        if row != count:
            raise RuntimeError(f"{self.title} holds {row} rows instead of {count}")


class PostgresPlace(Place):
    name, title, plainest = "postgres", "PostgreSQL", "COPY"
    forms = PostgresDialect.forms

    def sink(self) -> DatabaseSink:
        return Postgres(url=self.url, table=TABLE, key=KEY)

    def connect(self) -> Any:
        return psycopg.connect(self.url, autocommit=True)

    def clear(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {', '.join((TABLE, *OWN))}")

    def settle(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute("CHECKPOINT")

    def fill(self, connection: Any, rows: Any) -> None:
        with connection.cursor().copy(f"COPY {TABLE} FROM STDIN") as copy:
            for first in range(0, len(rows), CHUNK):
                copy.write(rows[first : first + CHUNK])


class MariaDbPlace(Place):
    name, title, plainest = "mariadb", "MariaDB", "LOAD DATA"
    forms = MySqlDialect.forms

    def sink(self) -> DatabaseSink:
        return MySql(url=self.url, table=TABLE, key=KEY)

    def connect(self) -> Any:
        return MySqlAddress.parse(self.url).connect(local_infile=True)

    def clear(self) -> None:
        with closing(self.connect()) as connection:
            connection.cursor().execute(f"DROP TABLE IF EXISTS {', '.join((TABLE, *OWN))}")

    def prepare(self, rows: Rows) -> Any:
        file = self.scratch / "sorted.tsv"
        file.write_bytes(rows.text(self.forms))
        return file

    def fill(self, connection: Any, rows: Any) -> None:
        connection.cursor().execute(f"LOAD DATA LOCAL INFILE '{rows}' INTO TABLE {TABLE} CHARACTER SET utf8mb4")


class SqlitePlace(Place):
    name, title, plainest = "sqlite", "SQLite", "executemany"
    forms = ISO

    def sink(self) -> DatabaseSink:
        return Sqlite(path=self.url, table=TABLE, key=KEY)

    def connect(self) -> Any:
        connection = sqlite3.connect(self.url, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def clear(self) -> None:
        for file in Path(self.url).parent.glob(f"{Path(self.url).name}*"):
            file.unlink()

    def prepare(self, rows: Rows) -> Any:
        return rows.values()

    def fill(self, connection: Any, rows: Any) -> None:
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {TABLE} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        connection.execute("COMMIT")


PLACES: dict[str, type[Place]] = {place.name: place for place in (PostgresPlace, MariaDbPlace, SqlitePlace)}


def place_at(name: str, url: str, scratch: Path) -> Place:
    """The place of this name whose database is there already."""
    return PLACES[name](url, scratch)


@contextmanager
def open_place(name: str, scratch: Path) -> Iterator[Place]:
    """The place of this name, its server started if it is one."""
    if name == "sqlite":
        yield place_at(name, str(scratch / "bench.db"), scratch)
        return
    server = DATABASES[name](new_home(name))
    try:
        server.create()
        yield place_at(name, server.create_database("bench"), scratch)
    finally:
        server.remove()
