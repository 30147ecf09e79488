"""A database in memory with read committed transactions and locks of rows, as those of PostgreSQL.

SQLite evaluates the statements. What a transaction writes is kept as statements until its COMMIT, and is made in a
transaction of SQLite's as long as no other session asks: no other reader sees it before. Statements are steps; a COMMIT
may lose its answer and may yet come through, at once or later; a session whose client is gone holds its locks for a
while.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, cast

from headrace.connectors.sql.dialect import Connection
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.connectors.sql.sqlite.sink import Sqlite

from .scheduler import Process, Scheduler

_KEYS = {
    "_headrace_epochs": ("application", "query_id"),
    "_headrace_tables": ("table_name",),
    "_headrace_ledger": ("application", "query_id", "generation", "table_name", "batch"),
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
    through, or may yet do so. shown: the session whose writes SQLite has in its open transaction.
    """

    scheduler: Scheduler
    faults: Faults = field(default_factory=Faults)
    committed: Callable[[Process | None, Sequence[Written]], None] = lambda process, written: None
    locks: dict[tuple[Any, ...], Session] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    away_until: float = 0.0
    written: dict[Process | None, list[str]] = field(default_factory=dict)
    sent: dict[Process | None, set[int]] = field(default_factory=dict)
    shown: Session | None = None

    def __post_init__(self) -> None:
        self.real = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=512)

    def show(self, session: Session | None) -> None:
        """Let SQLite have what is committed and what a session has written, and of no other."""
        if self.shown is session:
            return
        if self.shown is not None:
            self.real.execute("ROLLBACK")
        self.shown = session
        if session is not None:
            self.real.execute("BEGIN")
            session.replay()

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What is committed, for who looks from outside."""
        self.show(None)
        try:
            return self.real.execute(statement, values).fetchall()
        except sqlite3.OperationalError:
            return []

    def copy(self) -> sqlite3.Connection:
        """What is committed, as a database of its own."""
        self.show(None)
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.real.backup(copy)
        return copy

    def bring_back(self, copy: sqlite3.Connection) -> None:
        """Let it be what a copy of it was."""
        self.end_all()
        self.show(None)
        copy.backup(self.real)

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

    def close(self) -> None:
        # What was sent and is under way stays under way.
        if not self.is_cut:
            self.end()

    # ------------------------------------------------------------------------------------------------- server

    def end(self) -> None:
        """The server rolls back and forgets the session."""
        self.finish()
        self.is_cut = True
        if self in self.database.sessions:
            self.database.sessions.remove(self)

    def commit(self) -> None:
        """Let all that was written be seen."""
        database, writes = self.database, self.writes
        self.send()
        if writes:
            database.show(self)
            database.real.execute("COMMIT")
            database.shown = None
        self.finish()
        if writes:
            statements = [statement for statement, _, _ in writes]
            database.written.setdefault(self.process, []).extend(statements)
            database.drop_temporary(statements)
            database.committed(self.process, writes)

    def send(self) -> None:
        """The COMMIT is on its way."""
        batches = {values[5] for statement, values, _ in self.writes if "INTO _headrace_ledger" in statement}
        self.database.sent.setdefault(self.process, set()).update(batches)

    def finish(self) -> None:
        """The transaction is over."""
        if self.database.shown is self:
            self.database.show(None)
        self.writes, self.is_open = [], False
        locks = self.database.locks
        for key in [key for key, session in locks.items() if session is self]:
            del locks[key]

    def replay(self) -> None:
        """Make in SQLite what was written."""
        real = self.database.real
        for statement, values, many in self.writes:
            real.executemany(statement, values) if many else real.execute(statement, values)

    def answer(self, statement: str, values: Any, *, many: bool, writes: bool) -> tuple[list[Any], int, Any]:
        """What a statement gives over what is committed and the session's own writes."""
        database = self.database
        database.show(self if self.writes or writes else None)
        try:
            run = database.real.executemany if many else database.real.execute
            cursor = run(statement, values)
            answer = cursor.fetchall(), cursor.rowcount, cursor.description
        except sqlite3.Error:
            database.show(None)
            raise
        if writes:
            self.writes.append((statement, values, many))
        return answer

    def lock(self, key: tuple[Any, ...]) -> None:
        """Wait for a lock, which the session then has until its transaction ends."""
        locks, scheduler = self.database.locks, self.database.scheduler
        if locks.get(key) is self:
            return

        def is_free() -> bool:
            others = [holder for held, holder in locks.items() if holder is not self and _meet(held, key)]
            for holder in others:
                gone = holder.process is not None and holder.process.dead
                silent = scheduler.now - holder.used_at
                if silent <= (1.0 if gone else IDLE_SECONDS):
                    return False
                holder.end()
            return True

        until = scheduler.now + LOCK_SECONDS
        while not is_free():
            if scheduler.now >= until:
                raise sqlite3.OperationalError("database is locked")
            scheduler.wait(is_free, min(1.1, until - scheduler.now))
        locks[key] = self


def _meet(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two locks are of one row; a column that is not given may have any value."""
    return one == other or all(a == b or a is None or b is None for a, b in zip(one, other, strict=False))


class Cursor:
    """What one statement has given."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rows: list[Any] = []
        self.rowcount = -1
        self.description: Any = None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        return self.run(statement, tuple(values), many=False)

    def executemany(self, statement: str, rows: Sequence[Any]) -> Cursor:
        return self.run(statement, list(rows), many=True)

    def fetchall(self) -> list[Any]:
        rows, self.rows = self.rows, []
        return rows

    def fetchmany(self, size: int) -> list[Any]:
        rows, self.rows = self.rows[:size], self.rows[size:]
        return rows

    def run(self, statement: str, values: Any, *, many: bool) -> Cursor:
        session, database = self.session, self.session.database
        scheduler = database.scheduler
        verb, label = _read(statement)
        is_look = verb == "PRAGMA" or "sqlite_master" in statement
        if is_look:
            # The catalog is looked at in several statements, where a database has one.
            if session.process is not None and session.process.dead:
                scheduler.step("catalog")
        else:
            scheduler.step(label, changes=verb not in ("SELECT", "BEGIN", "ROLLBACK"))
        if database.away_until > scheduler.now:
            session.end()
        if session.is_cut:
            raise sqlite3.OperationalError(AWAY)
        if database.faults.statement and not is_look and scheduler.random.random() < database.faults.statement:
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
                # A row that is not there cannot be locked.
                if session.answer(statement, values, many=False, writes=False)[0]:
                    session.lock(_row(statement, values))
            self.rows, self.rowcount, self.description = session.answer(statement, values, many=False, writes=False)
        else:
            for one in values if many else [values]:
                key = _row(statement, one)
                if key[0] in _KEYS or verb in ("CREATE", "ALTER", "DROP"):
                    session.lock(key)
            self.rows, self.rowcount, self.description = session.answer(statement, values, many=many, writes=True)
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
            if scheduler.random.random() < 0.6:
                # The server has ended with its answer.
                session.database.away_until = scheduler.now + scheduler.random.choice((1.0, 100.0, 100.0))
        if fate == "late":
            session.send()
            session.is_cut = True
            seconds = scheduler.random.uniform(0.0, 5.0)
            process, session.process = session.process, Process("server", 0)

            def come_through() -> None:
                scheduler.sleep(seconds)
                # Locks of tables are not modelled: over one that was renamed meanwhile all is rolled back.
                with suppress(sqlite3.OperationalError):
                    if session.is_open:
                        session.process = process
                        session.commit()
                session.end()

            scheduler.spawn(Process("server", 0), "commits", come_through)
        else:
            session.end()
        raise sqlite3.OperationalError(AWAY)


@cache
def _read(statement: str) -> tuple[str, str]:
    """What a statement does, and how it is called in the trace."""
    verb, target = statement.lstrip().split(maxsplit=1)[0].upper(), _TARGET.search(statement)
    return verb, f"sql {verb} {target[1] if target else ''}".rstrip()


def _row(statement: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The lock of the row that a statement is about; of its table where it is about several."""
    table, places = _key_places(statement)
    return (table, *(None if at is None or at >= len(values) else values[at] for at in places))


@cache
def _key_places(statement: str) -> tuple[str, tuple[int | None, ...]]:
    """The table that a statement is about, and which of its values are the key's columns."""
    target = _TARGET.search(statement)
    table = target[1].lower() if target else ""
    key = _KEYS.get(table)
    if key is None:
        return table, ()
    if (listed := _COLUMNS.search(statement)) is not None:
        names = [name.strip().strip('"') for name in listed[1].split(",")]
        at = {name: place for place, name in enumerate(names)}
    else:
        before, _, where = statement.partition(" WHERE ")
        first = before.count("?")
        at = {name: first + place for place, name in enumerate(_EQUAL.findall(where))}
    return table, tuple(at.get(name) for name in key)


# What is known of a table, by its name and the statement that made it.
_tables: dict[tuple[str, Any], Any] = {}
# By the path that the sink names.
databases: dict[str, Database] = {}


@dataclass(frozen=True)
class ModelDialect(SqliteDialect):
    """The model's ways: SQLite's statements, PostgreSQL's locks."""

    name: ClassVar[str] = "the model"
    begin_write: ClassVar[str] = "BEGIN"
    begin_read: ClassVar[str] = "BEGIN"
    lock_row: ClassVar[str] = " FOR UPDATE"
    lock_own_tables: ClassVar[tuple[str, ...]] = ("BEGIN", OWN_TABLES)

    def connect(self) -> Connection:
        database = databases[self.path]
        database.scheduler.step("sql connect")
        if database.away_until > database.scheduler.now:
            raise sqlite3.OperationalError(AWAY)
        current = database.scheduler.current
        session = Session(database, None if current is None else current.process)
        database.sessions.append(session)
        return session

    def connect_to_read(self) -> Connection:
        return self.connect()

    def describe_table(self, connection: Connection, table: str) -> Any:
        """The table as it is; a look at the catalog is not a step, and worlds have the same tables."""
        session = cast(Session, connection)
        database, process = session.database, session.process
        if session.is_cut or database.away_until > database.scheduler.now or (process is not None and process.dead):
            return super().describe_table(connection, table)
        database.show(session if session.writes else None)
        made = database.real.execute("SELECT sql FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table,)).fetchone()
        if (table, made) not in _tables:
            _tables[table, made] = super().describe_table(cast(Connection, database.real), table)
        return _tables[table, made]

    def staged_tables(self, connection: Connection, prefix: str) -> list[str]:
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
