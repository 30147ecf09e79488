"""One partition of a batch in a SQLite file of its own, from which the driver's transaction takes it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connectors.sql.dialect import Stager
from headrace.connectors.sql.types import Forms, ResultColumn, arrays, rows

if TYPE_CHECKING:
    import pyarrow as pa

STAGED = "staged"


def file_stager(path: str, columns: Sequence[ResultColumn], forms: Forms) -> Stager:
    """What stages rows into the file `path`.

    The package `adbc-driver-sqlite`, where it is installed, takes Arrow columns as they are, in a third of the time;
    it would take NaN for NULL.
    """
    inexact = any(column.kind in ("float", "double") for column in columns)
    if inexact or not find_spec("adbc_driver_sqlite"):
        return FileStager(path, columns, forms)
    return ArrowStager(path, columns, forms)


class FileStager:
    """Rows on their way into a SQLite file, as Python values.

    The file needs neither a journal nor a flush: a file that was not finished is never read.
    """

    def __init__(self, path: str, columns: Sequence[ResultColumn], forms: Forms) -> None:
        self.path, self.columns, self.forms = path, columns, forms
        quoted = ", ".join('"' + column.name.replace('"', '""') + '"' for column in columns)
        # Beside a result that others may read, rows that may never be in it.
        Path(path).touch(mode=0o600)
        self.connection = sqlite3.connect(path, isolation_level=None)
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


class ArrowStager(FileStager):
    """Rows on their way into a SQLite file, as Arrow columns."""

    def __init__(self, path: str, columns: Sequence[ResultColumn], forms: Forms) -> None:
        from adbc_driver_sqlite import dbapi

        super().__init__(path, columns, forms)
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
