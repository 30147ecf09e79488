"""Rows on their way into a staging table of MySQL or MariaDB, by LOAD DATA."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pymysql

from headrace.connectors.sql.dialect import (
    Dialect,
    identifiers,
)
from headrace.connectors.sql.mysql import connection as mysql_connection
from headrace.connectors.sql.system_tables import OWN_PREFIX
from headrace.connectors.sql.types import ResultColumn, lines, rows

if TYPE_CHECKING:
    import pyarrow as pa

# The storage engine is refused, or a table without a primary key; the command is not allowed, by the server or the
# client.
_NO_ENGINE = (1286, 3161, 1289)
_NO_KEY = (1173, 3750)
_NO_LOCAL = (1148, 3948, 4166)


class OneFileConnection(mysql_connection.WatchedMySqlConnection):
    """A connection on which the server gets one file; PyMySQL sends whichever file it is asked for."""

    file = ""

    def _read_packet(self, *rest: Any, **more: Any) -> Any:
        packet = super()._read_packet(*rest, **more)  # type: ignore[no-untyped-call]
        if packet.is_load_local_packet() and packet.get_all_data()[1:] != self.file.encode():
            self.close()
            raise pymysql.err.InternalError("the server asked for a file that it was not offered; nothing was sent")
        return packet


class LoadStager:
    """Rows on their way into a table without transactions, which is filled twice as fast.

    Nothing reads the table before it is whole, and what a crash does to it is seen by the count of its rows. The
    server is sent nothing but the file that was written here.
    """

    def __init__(self, dialect: Dialect, url: str, name: str, columns: Sequence[ResultColumn], engine: str) -> None:
        self.table, self.columns, self.forms, self.quote = dialect.quote(name), columns, dialect.forms, dialect.quote
        self.dialect = dialect
        declared = ", ".join(f"{self.quote(column.name)} {dialect.declare(column, ())}" for column in columns)
        self.local = True
        self.file = tempfile.NamedTemporaryFile(prefix="headrace-", suffix=".tsv")  # noqa: SIM115
        self.connection: Any = mysql_connection.MySqlAddress.parse(url).connect(OneFileConnection, local_infile=True)
        self.connection.file = self.file.name
        keyed = f"{declared}, {OWN_PREFIX}number {dialect.counter}"
        for choice, parts in ((engine, declared), (engine, keyed), ("InnoDB", keyed)):
            try:
                self._run(f"CREATE TABLE {self.table} ({parts}) ENGINE={choice} DEFAULT CHARACTER SET utf8mb4")
                break
            except pymysql.MySQLError as error:
                if choice == "InnoDB" or error.args[0] not in (*_NO_ENGINE, *_NO_KEY):
                    raise

    def add(self, table: pa.Table) -> None:
        if self.local:
            try:
                self._load(table)
                return
            except pymysql.MySQLError as error:
                if error.args[0] not in _NO_LOCAL:
                    raise
                self.local = False
        marks = ", ".join(["%s"] * len(self.columns))
        with self.connection.cursor() as cursor:
            into = f"INSERT INTO {self.table} ({identifiers(self.dialect, [column.name for column in self.columns])})"
            cursor.executemany(f"{into} VALUES ({marks})", rows(table, self.columns, self.forms))

    def _load(self, table: pa.Table) -> None:
        self.file.seek(0)
        self.file.truncate()
        self.file.write(lines(table, self.columns, self.forms))
        self.file.flush()
        targets, changes = [], []
        for at, column in enumerate(self.columns):
            name = self.quote(column.name)
            if column.kind == "binary":
                changes.append(f"{name} = UNHEX(@c{at})")
            targets.append(f"@c{at}" if column.kind == "binary" else name)
        change = f" SET {', '.join(changes)}" if changes else ""
        statement = (
            f"LOAD DATA LOCAL INFILE %s INTO TABLE {self.table} CHARACTER SET utf8mb4 ({', '.join(targets)}){change}"
        )
        with self.connection.cursor() as cursor:
            loaded = cursor.execute(statement, (self.file.name,))
            if loaded != table.num_rows or self.connection.show_warnings():
                warnings = self.connection.show_warnings()
                reason = warnings[0][2] if warnings else f"{loaded} of {table.num_rows} rows came in"
                raise pymysql.err.DataError(1265, f"rows were not staged as they are: {reason}")

    def finish(self) -> None:
        self.connection.commit()
        self._close()

    def give_up(self) -> None:
        with suppress(pymysql.MySQLError):
            self._run(f"DROP TABLE IF EXISTS {self.table}")
        self._close()

    def _close(self) -> None:
        self.file.close()
        with suppress(pymysql.MySQLError):
            self.connection.close()

    def _run(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, ())
