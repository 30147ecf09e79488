"""Rows on their way into a staging file of SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connectors.sql.types import Forms, ResultColumn, arrays, rows

if TYPE_CHECKING:
    import pyarrow as pa

STAGED = "staged"


class FileStager:
    """Rows on their way into a SQLite file, as Python values.

    The file needs neither a journal nor a flush: a file that was not finished is never read.
    """

    def __init__(self, path: str, columns: Sequence[ResultColumn], forms: Forms, encoding: str) -> None:
        self.path, self.columns, self.forms = path, columns, forms
        quoted = ", ".join('"' + column.name.replace('"', '""') + '"' for column in columns)
        # Beside a result that others may read, rows that may never be in it.
        Path(path).touch(mode=0o600)
        self.connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            # A file of another encoding cannot be attached.
            f"PRAGMA encoding = '{encoding}'",
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


class ArrowStager(FileStager):
    """Rows on their way into a SQLite file, as Arrow columns."""

    def __init__(self, path: str, columns: Sequence[ResultColumn], forms: Forms, encoding: str) -> None:
        from adbc_driver_sqlite import dbapi

        super().__init__(path, columns, forms, encoding)
        super().finish()
        self.arrow = dbapi.connect(path)
        self.names = [column.name for column in columns]

    def add(self, table: pa.Table) -> None:
        import pyarrow as pa

        plain = pa.table(arrays(table, self.columns, self.forms), names=self.names)
        with self.arrow.cursor() as cursor:
            cursor.adbc_ingest(STAGED, plain, mode="append")

    def finish(self) -> None:
        self.arrow.commit()
        self.arrow.close()

    def give_up(self) -> None:
        self.arrow.close()
        super().give_up()
