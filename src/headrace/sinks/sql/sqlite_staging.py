"""One partition of a batch in a SQLite file of its own, from which the driver's transaction takes it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.sinks.sql.types import ResultColumn
from headrace.sinks.sql.values import Forms, rows

if TYPE_CHECKING:
    import pyarrow as pa

STAGED = "staged"


class FileStager:
    """Rows on their way into the file `path`.

    The file needs neither a journal nor a flush: a file that was not finished is never read. With the package
    `adbc-driver-sqlite`, Arrow columns go in without becoming Python objects, twice as fast.
    """

    def __init__(self, path: str, columns: Sequence[ResultColumn], forms: Forms) -> None:
        self.path, self.columns, self.forms = path, columns, forms
        self.names = [column.name for column in columns]
        self.connection = sqlite3.connect(path, isolation_level=None)
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in self.names)
        for statement in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            f"CREATE TABLE {STAGED} ({quoted})",
            "BEGIN",
        ):
            self.connection.execute(statement)
        self.insert = f"INSERT INTO {STAGED} VALUES ({', '.join('?' * len(columns))})"

    def add(self, table: pa.Table) -> None:
        self.connection.executemany(self.insert, rows(table, self.columns, self.forms))

    def finish(self) -> None:
        self.connection.execute("COMMIT")
        self.connection.close()

    def give_up(self) -> None:
        self.connection.close()
        with suppress(FileNotFoundError):
            os.unlink(self.path)
