"""The tables of the history store, how a new file gets them, and what can be wrong with it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import CheckpointError, HeadraceError, PlatformError, Where, reason

VERSION = 1

_TABLES = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, query TEXT NOT NULL, generation INTEGER NOT NULL,
        host TEXT NOT NULL, pid INTEGER NOT NULL, birth TEXT,
        mode TEXT NOT NULL, trigger_text TEXT NOT NULL, sink TEXT NOT NULL,
        state TEXT NOT NULL, restarts INTEGER NOT NULL,
        started REAL NOT NULL, seen REAL NOT NULL, ended REAL, error TEXT)""",
    "CREATE INDEX runs_of_query ON runs (query, id)",
    """CREATE TABLE batches (
        query TEXT NOT NULL, generation INTEGER NOT NULL, batch INTEGER NOT NULL,
        run INTEGER NOT NULL, rows INTEGER NOT NULL, record TEXT NOT NULL,
        UNIQUE (query, generation, batch))""",
    """CREATE TABLE totals (
        query TEXT NOT NULL, generation INTEGER NOT NULL, rows INTEGER NOT NULL,
        PRIMARY KEY (query, generation))""",
    """CREATE TABLE verdicts (
        id INTEGER PRIMARY KEY AUTOINCREMENT, query TEXT NOT NULL, at REAL NOT NULL, verdict TEXT NOT NULL)""",
    "CREATE INDEX verdicts_of_query ON verdicts (query, id)",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, query TEXT, run INTEGER,
        kind TEXT NOT NULL, detail TEXT NOT NULL)""",
    "CREATE INDEX events_of_query ON events (query, id)",
    # The one state of each query, and the process whose run it belongs to.
    """CREATE TABLE states (
        query TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, birth TEXT, seen REAL NOT NULL,
        state TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE quarantined (
        query TEXT NOT NULL, generation INTEGER NOT NULL, rows INTEGER NOT NULL,
        PRIMARY KEY (query, generation)) WITHOUT ROWID""",
)
# What another file knows of a generation, brought into this one. The total of batches that it knows no more stays.
_OF = "query = :query AND generation = :generation"
_RUN = "query, generation, host, pid, birth, mode, trigger_text, sink, state, restarts, started, seen, ended, error"
TAKE_OVER = (
    f"INSERT INTO runs ({_RUN}) SELECT {_RUN} FROM other.runs AS theirs WHERE {_OF} AND NOT EXISTS "
    "(SELECT 1 FROM main.runs AS ours WHERE ours.query = theirs.query AND ours.started = theirs.started) ORDER BY id",
    f"""INSERT INTO totals SELECT query, generation, rows FROM other.totals WHERE {_OF}
        ON CONFLICT (query, generation) DO UPDATE SET rows = totals.rows + (
            SELECT coalesce(sum(rows), 0) FROM other.batches WHERE {_OF}
            AND batch NOT IN (SELECT batch FROM main.batches WHERE {_OF}))""",
    f"""INSERT OR REPLACE INTO batches
        SELECT query, generation, batch, (SELECT max(id) FROM main.runs WHERE {_OF}), rows, record
        FROM other.batches WHERE {_OF}""",
    f"""INSERT OR REPLACE INTO quarantined
        SELECT query, generation, coalesce(sum(json_extract(source.value, '$.quarantined')), 0)
        FROM main.batches, json_each(record, '$.sources') AS source WHERE {_OF} GROUP BY query, generation""",
)
_PATIENCE_SECONDS = 5.0


def create(connection: sqlite3.Connection) -> None:
    """Bring a file to this version's tables; safe against other processes that do the same."""
    _write_ahead(connection)
    # In write-ahead mode a commit waits for no disk, and a crash of the machine loses the last batches at worst.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead mode, where readers never wait for a writer.

    SQLite does not wait its busy timeout here. A file system without shared memory keeps the mode it has.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise into one finding."""
    where = Where(file=str(path))
    try:
        yield
    except (HeadraceError, sqlite3.ProgrammingError):
        raise
    except sqlite3.OperationalError as error:
        raise PlatformError(
            code="HR544",
            where=where,
            what=f"the history cannot be reached or written: {error}",
            fix="free space in the storage directory, give the right to write there, or end what locks the file",
        ) from error
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            code="HR531",
            where=where,
            what=f"the history is damaged: {reason(error)}",
            fix="move the file and its -wal and -shm files away; the next run begins a new one",
        ) from error
    except OSError as error:
        raise PlatformError(
            code="HR544",
            where=where,
            what=f"the history cannot be reached or written: {error.strerror or error}",
            fix="give the user that runs the query the right to write the storage directory",
        ) from error


def no_history(path: Path) -> CheckpointError:
    """Return the error for a history that does not exist."""
    return CheckpointError(
        code="HR534",
        where=Where(file=str(path)),
        what="there is no history yet, as nothing was run with this storage directory",
        fix="start a query with `headrace run`, or name the right target with --target",
    )


def newer_history(path: Path, version: int) -> CheckpointError:
    """Return the error for a history that a later Headrace has written."""
    return CheckpointError(
        code="HR531",
        where=Where(file=str(path)),
        what=f"the history is of version {version}, and this Headrace knows versions up to {VERSION}",
        fix="upgrade Headrace, or move the file away; the next run begins a new one",
    )
