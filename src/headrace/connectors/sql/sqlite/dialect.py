"""The ways of SQLite: its statements, types and errors."""

from __future__ import annotations

import glob
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import unquote, urlsplit

from headrace.connectors.sql.dialect import (
    Connection,
    Dialect,
    PartLost,
    StagedTable,
    Stager,
    WriteTarget,
    rows_of,
    run,
)
from headrace.connectors.sql.faults import REFUSED_FIX, Faults
from headrace.connectors.sql.limits import ExistingColumn, ExistingTable
from headrace.connectors.sql.sqlite.columns import EXACT_DIGITS, existing_table, foreign_values, incompatible
from headrace.connectors.sql.types import ISO, Forms, ResultColumn, rows
from headrace.contract import OptionError

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
        # The result may be world-readable; staged rows must not be.
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


class ReadConnection(sqlite3.Connection):
    """A connection that only reads.

    SQLite leaves the log of a database (-wal, -shm) next to it when the last connection to close may only read. Where
    there was none before, one that may write is opened and closed after it, which removes both files.
    """

    log_of = ""

    def close(self) -> None:
        super().close()
        uri, self.log_of = self.log_of, ""
        if uri and Path(f"{unquote(urlsplit(uri).path)}-wal").exists():
            with suppress(sqlite3.Error), closing(sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=0)) as last:
                last.execute("PRAGMA schema_version")


BUSY_SECONDS = 10.0
# How long the log grows before its pages are brought into the file, 64 MB. With SQLite's own 4 MB that is after each
# batch, so that every page is written, and waited for, twice: 45 ms a batch in place of 12, where 20 MB change.
LOG_PAGES = 16_000
# SQLite attaches ten files to a connection; one is left for rows quarantined by each task.
MOST_ATTACHED = 5
# No value of an answer is longer, so that a function that makes large ones does not fill the memory.
ANSWER_BYTES = 10_000_000
_LENGTH = 0  # SQLITE_LIMIT_LENGTH, which Python 3.10 does not name.
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_DECLARED = {"boolean": "BOOLEAN", "integer": "INTEGER", "float": "REAL", "double": "REAL", "binary": "BLOB"}
# Python's classes for SQLITE_CONSTRAINT and SQLITE_MISMATCH, and for SQLITE_TOOBIG.
_REFUSALS = (sqlite3.IntegrityError, sqlite3.DataError)
_SENTENCES = (
    (_REFUSALS, "HR408", "refuses a row: {text}", REFUSED_FIX),
    (("is full",), "HR405", "cannot grow: the disk is full", "free disk space, then start again"),
    (
        ("readonly database",),
        "HR414",
        "may only be read",
        "give this user the right to write the file and its directory",
    ),
    (("unable to open",), "HR405", "cannot be opened", "give this user the right to make the file and its directory"),
    (("not a database",), "HR425", "is not an SQLite database", "name another file"),
    (("malformed",), "HR425", "is damaged", "restore it from a copy"),
    (
        ("disk I/O error",),
        "HR405",
        "cannot be written: the disk reports an error",
        "look at the disk, then start again",
    ),
    (("no such table",), "HR405", "holds no result of this query yet", "run the query first"),
)
FAULTS = Faults(
    sentences=_SENTENCES,
    passing=("locked", "disk I/O error"),
    refusals=_REFUSALS,
    lock_wait=("database is locked",),
    no_parent=("FOREIGN KEY",),
    contended=("locked", "already exists"),
    part_lost=("no such table",),
    out_of_time=("interrupted",),
)


def _lock_holder(path: str) -> str:
    """Return the process that writes the file, by Linux's list of locks; "" where that does not show it."""
    with suppress(OSError):
        writing = os.stat(f"{path}-shm").st_ino  # With a write-ahead log, that is what a writer locks.
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[3] == "WRITE" and fields[5].endswith(f":{writing}") and fields[4] != str(os.getpid()):
                return f"process {fields[4]}"
    return ""


def _allow_reading(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Answer SQLite's question before each action of a statement: reading is allowed, but of no other file."""
    loads = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
    return sqlite3.SQLITE_OK if action in _ALLOWED and not loads else sqlite3.SQLITE_DENY


@dataclass(frozen=True)
class SqliteDialect(Dialect):
    """SQLite's own ways."""

    name: ClassVar[str] = "SQLite"
    placeholder: ClassVar[str] = "?"
    begin_write: ClassVar[str] = "BEGIN IMMEDIATE"
    begin_read: ClassVar[str] = "BEGIN"
    lock_row: ClassVar[str] = ""
    driver_rows: ClassVar[int] = 20_000
    needs_shared_disk: ClassVar[bool] = True
    forms: ClassVar[Forms] = ISO
    lock_own_tables: ClassVar[tuple[str, ...]] = ("BEGIN IMMEDIATE",)
    errors: ClassVar[tuple[type[Exception], ...]] = (sqlite3.Error,)
    duplicates: ClassVar[tuple[type[Exception], ...]] = (sqlite3.IntegrityError,)
    most_parts: ClassVar[int | None] = MOST_ATTACHED
    faults: ClassVar[Faults] = FAULTS
    path: str
    busy_seconds: float = BUSY_SECONDS

    def connect(self) -> Connection:
        with suppress(OSError):
            # What cannot be made is reported when the file cannot be opened.
            Path(self.path).absolute().parent.mkdir(parents=True, exist_ok=True)
        connection = self._open(self.path)
        # Readers continue while a batch is written, and a committed batch outlives a power cut.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        return connection

    def connect_to_read(self) -> Connection:
        uri, has_log = Path(self.path).absolute().as_uri(), Path(f"{self.path}-wal").exists()
        connection = cast(ReadConnection, self._open(f"{uri}?mode=ro", uri=True, factory=ReadConnection))
        connection.log_of = "" if has_log else uri
        return connection

    def _open(
        self, database: str, *, uri: bool = False, factory: type[sqlite3.Connection] = sqlite3.Connection
    ) -> sqlite3.Connection:
        # Spark calls back from more than one thread, though never from two at once.
        return sqlite3.connect(
            database, uri=uri, timeout=self.busy_seconds, isolation_level=None, check_same_thread=False, factory=factory
        )

    def declare(self, column: ResultColumn, key: Sequence[ResultColumn]) -> str:
        if column.kind == "decimal" and column.precision <= EXACT_DIGITS:
            return f"DECIMAL({column.precision},{column.scale})"
        return _DECLARED.get(column.kind, "TEXT")

    def create_suffix(self, columns: Sequence[ResultColumn], key: Sequence[str]) -> str:
        """Rows in the key's own tree save half of the writing, as long as rows are small."""
        small = all(column.kind not in ("json", "binary") for column in columns)
        return " WITHOUT ROWID" if key and small else ""

    def real_name(self, connection: Connection, table: str) -> str:
        """Names that differ by the case of ASCII letters are one."""
        names = list(
            rows_of(
                connection,
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE",
                (table,),
            )
        )
        return str(names[0][0]) if names else table

    def rename(self, connection: Connection, table: str, name: str) -> None:
        # Otherwise SQLite writes the new name into the views that read the table.
        run(connection, "PRAGMA legacy_alter_table = ON")
        run(connection, f"ALTER TABLE {self.quote(table)} RENAME TO {self.quote(name)}")

    def describe_table(self, connection: Connection, table: str) -> ExistingTable | None:
        return existing_table(connection, table, self.quote)

    def foreign_values(self, column: ResultColumn) -> str:
        return foreign_values(column, self.quote(column.name))

    def incompatible(self, there: ExistingColumn, column: ResultColumn) -> str | None:
        return incompatible(there.declared, column, self.declare(column, ()))

    def insert_into(self, table: str, columns: Sequence[str]) -> str:
        # A constraint may be declared ON CONFLICT IGNORE or REPLACE; a statement's own way has precedence.
        return f"INSERT OR ABORT INTO {self.quote(table)} ({self.identifiers(columns)})"

    def same_value(self, one: str, other: str) -> str:
        return f"{one} IS {other}"

    def json_text(self, json: str, name: str) -> str:
        return f"json_extract({json}, '$.{name}')"

    def json_object(self, values: Sequence[tuple[str, str]]) -> str:
        # A function takes 127 arguments; a patch leaves out what is NULL.
        whole = "'{}'"
        for first in range(0, len(values), 60):
            pairs = ", ".join(f"'{name}', {value}" for name, value in values[first : first + 60])
            whole = f"json_patch({whole}, json_object({pairs}))"
        return f"NULLIF({whole}, '{{}}')"

    def stager(self, name: str, columns: Sequence[ResultColumn]) -> Stager:
        with closing(self.connect_to_read()) as connection:
            [(encoding,)] = rows_of(connection, "PRAGMA encoding")
        return FileStager(f"{self.path}.{name}", columns, self.forms, str(encoding))

    def attach(self, connection: Connection, parts: Sequence[StagedTable]) -> None:
        for part in parts:
            if not Path(f"{self.path}.{part.name}").exists():
                raise PartLost(f"the staging file '{self.path}.{part.name}' is gone")
            run(connection, f"ATTACH DATABASE ? AS {self.quote(part.name)}", (f"{self.path}.{part.name}",))

    def part_source(self, part: StagedTable) -> str:
        return f"{self.quote(part.name)}.{STAGED}"

    def insert_from(self, target: WriteTarget, source: str) -> str:
        # Without WHERE, SQLite would take ON CONFLICT for a join's condition.
        bounded = target.replaces and source.startswith("SELECT")
        return super().insert_from(target, f"SELECT * FROM ({source}) WHERE true" if bounded else source)

    def staged_tables(self, connection: Connection, prefix: str) -> list[str]:
        here = Path(self.path)
        start = f"{here.name}.{prefix}"
        return [file.name[len(here.name) + 1 :] for file in here.parent.glob(f"{glob.escape(start)}*")]

    def drop_staged(self, connection: Connection, names: Sequence[str]) -> None:
        attached = {str(row[1]) for row in rows_of(connection, "PRAGMA database_list")}
        for name in names:
            if name in attached:
                run(connection, f"DETACH DATABASE {self.quote(name)}")
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}.{name}")

    def select_expression(self, column: ResultColumn) -> str:
        return self.quote(column.name)

    def rights_beyond_reading(self, connection: Connection) -> str:
        """SQLite has no users, and `answer` asks of each step whether it reads."""
        return ""

    def answer(self, connection: Connection, statement: str, limit: int, seconds: float) -> Iterator[Sequence[Any]]:
        until, file = time.monotonic() + seconds, cast(sqlite3.Connection, connection)
        file.execute(f"PRAGMA busy_timeout = {round(1000 * min(self.busy_seconds, seconds))}")
        file.execute("PRAGMA query_only = ON")
        if hasattr(file, "setlimit"):  # From Python 3.11 on.
            file.setlimit(_LENGTH, ANSWER_BYTES)
        file.set_authorizer(_allow_reading)
        file.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        try:
            cursor = file.execute(statement)
        except sqlite3.Warning as error:  # Before Python 3.12, for a second statement.
            raise sqlite3.ProgrammingError(str(error)) from error
        yield [column[0] for column in cursor.description or ()]
        yield from islice(cursor, limit)

    @property
    def place(self) -> str:
        return f"the SQLite file '{self.path}'"

    def has_code(self, error: BaseException, codes: Any) -> bool:
        """Look for a code: a class of Python's exceptions, or a part of SQLite's sentence."""
        return any(isinstance(error, code) if isinstance(code, type) else code in str(error) for code in codes)

    def explain(self, error: Exception) -> OptionError:
        if self.waits_for_lock(error):
            fault = f"{self.place} is locked by {_lock_holder(self.path) or 'another process'}"
            return OptionError(code="HR405", what=fault, fix="let that process end its transaction, then start again")
        return super().explain(error)
