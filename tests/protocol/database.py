"""A database in memory with read committed transactions and locks of rows, as those of PostgreSQL.

SQLite evaluates the statements. What a transaction writes is kept as statements until its COMMIT, and made before each
of its own reads for the time of that read, so that nobody else sees it before. Statements are steps; a COMMIT may lose
its answer and may yet come through, at once or later; a session whose client is gone holds its locks for a while.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headrace.connectors.sql.dialect import Connection
from headrace.connectors.sql.sqlite import Sqlite, SqliteDialect

from .scheduler import Process, Scheduler

_KEYS = {
    "_headrace_epochs": ("application", "query"),
    "_headrace_tables": ("table_name",),
    "_headrace_ledger": ("application", "query", "generation", "table_name", "batch"),
}
_TARGET = re.compile(r'\b(?:INTO|UPDATE|FROM|TABLE(?: IF NOT EXISTS| IF EXISTS)?)\s+"?(\w+)"?', re.IGNORECASE)
_COLUMNS = re.compile(r"INTO\s+\"?\w+\"?\s*\(([^)]*)\)", re.IGNORECASE)
_EQUAL = re.compile(r"(\w+) = \?")
LOCK_SECONDS, IDLE_SECONDS = 20.0, 60.0
OWN_TABLES = "LOCK OWN TABLES"
AWAY = "disk I/O error"


# A statement, its values, and whether these are of many rows.
Written = tuple[str, Any, bool]


@dataclass(eq=False)
class Faults:
    """How often a COMMIT loses its answer, and a statement its connection."""

    commit: float = 0.0
    statement: float = 0.0


@dataclass(eq=False)
class Database:
    """committed: called after each COMMIT that has changed something, with the process and what it has written.

    away_until: when it answers again. written: what each process has committed. sent: the batches whose COMMIT came
    through, or may yet do so.
    """

    scheduler: Scheduler
    faults: Faults = field(default_factory=Faults)
    committed: Callable[[Process | None, Sequence[Written]], None] = lambda process, written: None
    locks: dict[tuple[Any, ...], Session] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    away_until: float = 0.0
    written: dict[Process | None, list[str]] = field(default_factory=dict)
    sent: dict[Process | None, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.real = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What is committed, for who looks from outside."""
        try:
            return self.real.execute(statement, values).fetchall()
        except sqlite3.OperationalError:
            return []

    def copied(self) -> sqlite3.Connection:
        """What is committed, as a database of its own."""
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.real.backup(copy)
        return copy

    def drop_temporary(self, statements: Sequence[str]) -> None:
        """Temporary tables end with their session, of which the model has one for all."""
        if any("TEMPORARY" in statement for statement in statements):
            for (name,) in self.rows("SELECT name FROM sqlite_temp_master"):
                self.real.execute(f'DROP TABLE "{name}"')

    def end_all(self) -> None:
        """End all sessions."""
        for session in list(self.sessions):
            session.end()

    def close(self) -> None:
        self.real.close()


@dataclass(eq=False)
class Session:
    """One connection, as its client has it and as the server does."""

    database: Database
    process: Process | None
    writes: list[Written] = field(default_factory=list)
    is_open: bool = False
    is_cut: bool = False
    used_at: float = 0.0

    # ------------------------------------------------------------------------------------------------- client

    def cursor(self) -> Cursor:
        return Cursor(self)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        return self.cursor().execute(statement, values)

    def executemany(self, statement: str, values: Sequence[Sequence[Any]]) -> Cursor:
        return self.cursor().run(statement, list(values), many=True)

    def close(self) -> None:
        # What was sent and is under way stays under way.
        if not self.is_cut:
            self.end()

    # ------------------------------------------------------------------------------------------------- server

    def end(self) -> None:
        """The server rolls back and forgets the session."""
        self.writes, self.is_open, self.is_cut = [], False, True
        self.database.locks = {key: session for key, session in self.database.locks.items() if session is not self}
        if self in self.database.sessions:
            self.database.sessions.remove(self)

    def commit(self) -> None:
        """Let all that was written be seen."""
        real, writes = self.database.real, self.writes
        self.send()
        if writes:
            real.execute("BEGIN")
            self._replay()
            real.execute("COMMIT")
        self.finish()
        if writes:
            statements = [statement for statement, _, _ in writes]
            self.database.written.setdefault(self.process, []).extend(statements)
            self.database.drop_temporary(statements)
            self.database.committed(self.process, writes)

    def send(self) -> None:
        """The COMMIT is on its way."""
        batches = {values[4] for statement, values, _ in self.writes if "INTO _headrace_ledger" in statement}
        self.database.sent.setdefault(self.process, set()).update(batches)

    def finish(self) -> None:
        """The transaction is over."""
        self.writes, self.is_open = [], False
        self.database.locks = {key: session for key, session in self.database.locks.items() if session is not self}

    def _replay(self) -> None:
        real = self.database.real
        for statement, values, many in self.writes:
            real.executemany(statement, values) if many else real.execute(statement, values)

    def seen(self, statement: str, values: Any, *, many: bool) -> tuple[list[Any], int, Any]:
        """What a statement gives over what is committed and the session's own writes; nothing is changed."""
        real = self.database.real
        if not self.writes and statement.lstrip()[:6].upper() in ("SELECT", "PRAGMA"):
            cursor = real.execute(statement, values)
            return cursor.fetchall(), cursor.rowcount, cursor.description
        real.execute("BEGIN")
        try:
            self._replay()
            cursor = real.executemany(statement, values) if many else real.execute(statement, values)
            return cursor.fetchall(), cursor.rowcount, cursor.description
        finally:
            real.execute("ROLLBACK")

    def lock(self, key: tuple[Any, ...]) -> None:
        """Wait for a lock, which the session then has until its transaction ends."""
        locks, scheduler = self.database.locks, self.database.scheduler

        def is_free() -> bool:
            holder = self.database.locks.get(key)
            if holder is not None and holder is not self:
                gone = holder.process is not None and holder.process.dead
                idle = scheduler.now - holder.used_at > IDLE_SECONDS
                if (gone and scheduler.now - holder.used_at > 1.0) or idle:
                    holder.end()
                    holder = None
            return holder is None or holder is self

        until = scheduler.now + LOCK_SECONDS
        while not is_free():
            if scheduler.now >= until:
                raise sqlite3.OperationalError("database is locked")
            scheduler.wait(is_free, min(1.1, until - scheduler.now))
        locks = self.database.locks
        locks[key] = self


class Cursor:
    """What one statement has given."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rows: list[Any] = []
        self.rowcount = -1
        self.description: Any = None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        return self.run(statement, tuple(values), many=False)

    def fetchall(self) -> list[Any]:
        rows, self.rows = self.rows, []
        return rows

    def fetchmany(self, size: int) -> list[Any]:
        rows, self.rows = self.rows[:size], self.rows[size:]
        return rows

    def run(self, statement: str, values: Any, *, many: bool) -> Cursor:
        session, database = self.session, self.session.database
        scheduler = database.scheduler
        verb = statement.lstrip().split(maxsplit=1)[0].upper()
        target = _TARGET.search(statement)
        if verb == "PRAGMA" or "sqlite_master" in statement:
            # The catalog is looked at in several statements, where a database has one.
            if session.process is not None and session.process.dead:
                scheduler.step("catalog")
        else:
            scheduler.step(f"sql {verb} {target[1] if target else ''}".rstrip())
        if database.away_until > scheduler.now:
            session.end()
        if session.is_cut:
            raise sqlite3.OperationalError(AWAY)
        if database.faults.statement and verb != "PRAGMA" and scheduler.random.random() < database.faults.statement:
            scheduler.trace.append("  the connection is lost")
            session.end()
            raise sqlite3.OperationalError(AWAY)
        session.used_at = scheduler.now
        try:
            self._run(verb, statement, values, many)
        finally:
            session.used_at = scheduler.now
        return self

    def _run(self, verb: str, statement: str, values: Any, many: bool) -> None:
        session = self.session
        if verb == "BEGIN":
            session.is_open = True
        elif statement == OWN_TABLES:
            session.lock(("own tables",))
        elif verb == "COMMIT":
            self._commit()
        elif verb == "ROLLBACK":
            session.finish()
        elif verb in ("SELECT", "PRAGMA"):
            if statement.endswith(" FOR UPDATE"):
                statement = statement.removesuffix(" FOR UPDATE")
                session.lock(_row(statement, values))
            self.rows, self.rowcount, self.description = session.seen(statement, values, many=False)
        else:
            for one in values if many else [values]:
                key = _row(statement, one)
                if key[0] in _KEYS or verb in ("CREATE", "ALTER", "DROP"):
                    session.lock(key)
            self.rows, self.rowcount, self.description = session.seen(statement, values, many=many)
            session.writes.append((statement, values, many))
            if not session.is_open:
                session.commit()

    def _commit(self) -> None:
        session, scheduler = self.session, self.session.database.scheduler
        faults = session.database.faults
        if not faults.commit or scheduler.random.random() >= faults.commit:
            session.commit()
            return
        fate = scheduler.random.choice(("done", "lost", "late"))
        scheduler.trace.append(f"  the answer is lost: {fate}")
        if fate == "done":
            session.commit()
            if scheduler.random.random() < 0.5:
                # The server has ended with its answer.
                session.database.away_until = scheduler.now + scheduler.random.choice((1.0, 100.0, 100.0))
        if fate == "late":
            session.send()
            session.is_cut = True
            seconds = scheduler.random.uniform(0.0, 5.0)
            process, session.process = session.process, Process("server", 0)

            def come_through() -> None:
                scheduler.sleep(seconds)
                if session.is_open:
                    session.process = process
                    session.commit()
                session.end()

            scheduler.spawn(Process("server", 0), "commits", come_through)
        else:
            session.end()
        raise sqlite3.OperationalError(AWAY)


def _row(statement: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The lock of the row that a statement is about; of its table where it is about several."""
    target = _TARGET.search(statement)
    table = target[1].lower() if target else ""
    key = _KEYS.get(table)
    if key is None:
        return (table,)
    if (listed := _COLUMNS.search(statement)) is not None:
        names = [name.strip().strip('"') for name in listed[1].split(",")]
        given = dict(zip(names, values, strict=False))
    else:
        before, _, where = statement.partition(" WHERE ")
        given = dict(zip(_EQUAL.findall(where), values[before.count("?") :], strict=False))
    return (table, *(given.get(name) for name in key))


# By the path that the sink names.
known: dict[str, Database] = {}


@dataclass(frozen=True)
class ModelDialect(SqliteDialect):
    """The model's ways: SQLite's statements, PostgreSQL's locks."""

    name: ClassVar[str] = "the model"
    begin_write: ClassVar[str] = "BEGIN"
    begin_read: ClassVar[str] = "BEGIN"
    lock_row: ClassVar[str] = " FOR UPDATE"
    lock_own_tables: ClassVar[tuple[str, ...]] = ("BEGIN", OWN_TABLES)

    def connect(self) -> Connection:
        database = known[self.path]
        database.scheduler.step("sql connect")
        if database.away_until > database.scheduler.now:
            raise sqlite3.OperationalError(AWAY)
        current = database.scheduler.current
        session = Session(database, None if current is None else current.process)
        database.sessions.append(session)
        return session

    def connect_to_read(self) -> Connection:
        return self.connect()

    def staged(self, connection: Connection, prefix: str) -> list[str]:
        return []

    def drop_staged(self, connection: Connection, names: Sequence[str]) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class ModelSink(Sqlite):
    """A table of the model's database."""

    def dialect(self) -> ModelDialect:
        return ModelDialect(self.path)

    def is_there(self) -> bool:
        return True
