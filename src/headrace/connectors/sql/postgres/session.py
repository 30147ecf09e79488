"""What each transaction in PostgreSQL begins with: every setting that it depends on, for this transaction alone.

A pooler gives each transaction another session, and gives that session to another program afterwards. So nothing is set
on a session, and nothing is taken from one: not the defaults of the server, the database or the role, and not what
other clients of a pooler have left there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.sql import quote as literal

from headrace.connectors.sql.silence import IDLE_SECONDS, LOCK_SECONDS, SILENCE_SECONDS, cut_when_silent, shut
from headrace.contract import OptionError

# What the texts that are written and read back depend on. With row_security off, a policy that would hide rows is an
# error.
SETTINGS: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "client_min_messages": "warning",
    "row_security": "off",
}
# What the server is asked where neither the url nor its administrator says it: a session ends whose client is gone, and
# no lock is waited for in silence.
SERVER: Mapping[str, str] = {
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
    "client_connection_check_interval": "10s",
}
_ADMINISTRATORS = ("client", "database", "user", "database user")
_LOOK = f"""
BEGIN READ ONLY; SELECT name, setting, reset_val, source, context FROM pg_settings
WHERE name IN ('search_path', 'default_transaction_read_only', {", ".join(f"'{name}'" for name in SERVER)}) OR name IN
"""
_OPTION = re.compile(r"(?:-c\s*|--)([\w.-]+)=((?:\\.|\S)*)")
# What was written must outlive a crash of the server: a role may say that its commits need not.
_DURABLE = "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)"
# A pooler in between gives each transaction a session: these two identify it.
SESSION = "pid = %s AND (extract(epoch FROM xact_start) * 1000000)::bigint = %s"
_OWN = "pg_backend_pid(), (extract(epoch FROM now()) * 1000000)::bigint"


class SessionRefused(psycopg.NotSupportedError):
    """A pooler gives no session that a result can be written in."""

    def __init__(self, fault: str, fix: str) -> None:
        super().__init__(fault)
        self.problem = OptionError(code="HR420", what=fault, fix=fix)


class ServerTransaction(NamedTuple):
    """Which transaction of which session of the server."""

    pid: int
    begun: int


class WatchedPostgresConnection(psycopg.Connection[Any]):
    """A connection whose waits end when the server is silent and does not work for it.

    settings: the statement that each transaction begins with; "": none, and each statement is sent as it is. writes:
    whether the server's administrator lets it write. reads: whether single statements only read. session: where the
    last transaction began.
    """

    silence_seconds: float = SILENCE_SECONDS
    works: Callable[[], bool] = staticmethod(lambda: False)
    settings: str = ""
    writes: bool = False
    reads: bool = False
    session: ServerTransaction | None = None

    def wait(self, *given: Any, **options: Any) -> Any:
        with cut_when_silent(
            self.works, lambda: shut(self.pgconn.socket), psycopg.OperationalError, seconds=self.silence_seconds
        ):
            return super().wait(*given, **options)

    def begin(self, statement: str) -> None:
        """Begin a transaction with its settings, in one round trip."""
        if self.writes and "READ ONLY" not in statement:
            # Another client of a pooler may have left the session read-only.
            statement += " READ WRITE"
        self.session, cursor = None, psycopg.Cursor(self)
        with self._roll_back_on_error():
            cursor.execute(f"{statement}; {self.settings}")
            cursor.nextset()
            if row := cursor.fetchone():
                self.session = ServerTransaction(*row[:2])
            if self.info.encoding != "utf-8":
                fault = f"a pooler says that its sessions have client_encoding {self.info.encoding}, and they have UTF8"
                fix = "let it pass on client_encoding, or let the url name the server itself"
                raise SessionRefused(fault, fix)

    @contextmanager
    def single_transaction(self) -> Iterator[None]:
        """Let the statements of the block be one transaction; within another they are part of it."""
        if self.info.transaction_status != TransactionStatus.IDLE:
            yield
            return
        self.begin(f"BEGIN ISOLATION LEVEL READ COMMITTED{' READ ONLY' if self.reads else ''}")
        with self._roll_back_on_error():
            yield
            self.commit()

    @contextmanager
    def _roll_back_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):
                self.rollback()
            raise


class SettledCursor(psycopg.Cursor[Any]):
    """A cursor whose statements run in transactions that begin with the connection's settings."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> SettledCursor:
        connection = self.connection
        assert isinstance(connection, WatchedPostgresConnection)
        if not connection.settings:
            return super().execute(query, params, **options)
        if str(query).startswith("BEGIN") and connection.info.transaction_status == TransactionStatus.IDLE:
            connection.begin(query)
            return self
        with connection.single_transaction():
            return super().execute(query, params, **options)


def settle(connection: WatchedPostgresConnection, url: str, schema: str) -> None:
    """Compose what each transaction of `connection` begins with.

    The search path is that of the sink's `schema`, the url, or the defaults of role and database; a temporary table of
    another client comes last in it.
    """
    given, cursor = options_of(url), psycopg.Cursor(connection)
    try:
        cursor.execute(f"{_LOOK} ({', '.join(literal(name) for name in ('', *given))})")
    except psycopg.errors.ProtocolViolation as error:
        fault = f"the pooler allows no transaction: {error}"
        raise SessionRefused(fault, "set pool_mode to transaction or session") from error
    cursor.nextset()
    current = {name: (setting, default, source, context) for name, setting, default, source, context in cursor}
    path = (
        f'"{schema.replace(chr(34), chr(34) * 2)}"' if schema else given.get("search_path", current["search_path"][1])
    )
    cursor.execute(
        f"SELECT set_config('search_path', {literal(path)}, true), current_schema(), pg_is_in_recovery(); COMMIT"
    )
    row = cursor.fetchone()
    assert row is not None
    read_only, _, source, _ = current["default_transaction_read_only"]
    connection.writes = not row[2] and (read_only == "off" or source == "session")
    values = {
        name: value
        for name, value in SERVER.items()
        if name in current
        and (current[name][2] == "default" or (current[name][0] == "0" and current[name][2] not in _ADMINISTRATORS))
    }
    # A pooler may have let go what the url says; what can be set at the start alone stays the server's.
    values |= {name: value for name, value in given.items() if name not in current or current[name][3] == "user"}
    # Without a schema, tables would be made among the temporary ones, if these were named.
    values |= {**SETTINGS, "search_path": f"{path}, pg_temp" if row[1] else path}
    sets = [f"set_config({literal(name)}, {literal(value)}, true)" for name, value in values.items()]
    connection.settings = f"SELECT {', '.join([_OWN, *sets, _DURABLE])}"


def options_of(url: str) -> dict[str, str]:
    """Return the server's settings that the url, or libpq's environment, names."""
    options = str(conninfo_to_dict(url).get("options") or os.environ.get("PGOPTIONS", ""))
    return {name.replace("-", "_").lower(): re.sub(r"\\(.)", r"\1", value) for name, value in _OPTION.findall(options)}
