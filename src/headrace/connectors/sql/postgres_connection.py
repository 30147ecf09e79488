"""A connection to PostgreSQL that is never waited for in vain, and what the server tells of its other sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headrace.connectors.sql.postgres_faults import NO_CONNECTION_LEFT, sqlstate
from headrace.connectors.sql.silence import CONNECT_SECONDS, IDLE_SECONDS, LOCK_SECONDS, SILENCE_SECONDS, shut, watched

# What libpq is asked where the url does not say it: a peer that is gone is noticed within a minute.
CLIENT: Mapping[str, object] = {
    "connect_timeout": int(CONNECT_SECONDS),
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "headrace",
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

_SET = """
SELECT set_config(name, given.value, false) FROM pg_settings
JOIN (VALUES {values}) AS given (name, value) USING (name)
WHERE source = 'default' OR (setting = '0' AND source NOT IN ('client', 'database', 'user', 'database user'))
"""
_WORKS = """
SELECT state NOT LIKE 'idle%%' AND coalesce(wait_event_type, '') <> 'Client' FROM pg_stat_activity WHERE pid = %s
"""
_END = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %s AND usename = current_user AND datname = current_database()
"""
_HOLDER = """
SELECT a.pid, a.usename, a.application_name, coalesce(host(a.client_addr), 'this machine'), a.state,
to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation
WHERE l.granted AND a.pid <> pg_backend_pid() AND a.datname = current_database()
AND (c.relname = %(table)s OR (%(table)s = '' AND c.relname LIKE '\\_headrace%%'))
AND a.xact_start IS NOT NULL ORDER BY l.mode = 'AccessShareLock', a.xact_start LIMIT 1
"""


class WatchedConnection(psycopg.Connection[Any]):
    """A connection whose waits end when the server is silent and does not work for it."""

    silence_seconds: float = SILENCE_SECONDS
    works: Callable[[], bool] = staticmethod(lambda: False)

    def wait(self, *given: Any, **options: Any) -> Any:
        with watched(
            self.works, lambda: shut(self.pgconn.socket), psycopg.OperationalError, seconds=self.silence_seconds
        ):
            return super().wait(*given, **options)


def connect(url: str, *, silence_seconds: float = SILENCE_SECONDS) -> WatchedConnection:
    """A new connection, with what `CLIENT` and `SERVER` say where the url says nothing; raises psycopg.Error."""
    connection = _opened(url)
    connection.silence_seconds = CONNECT_SECONDS
    values = ", ".join(f"('{name}', '{value}')" for name, value in SERVER.items())
    connection.execute(_SET.format(values=values))
    # A pooler in between has given this connection a number of its own.
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    pid = row[0] if row else 0
    connection.works = lambda: _works_or_left(url, pid)
    for left in _left.pop(url, set()):
        connection.execute(_END, (left,))
    connection.silence_seconds = silence_seconds
    return connection


def _opened(url: str) -> WatchedConnection:
    known = conninfo_to_dict(url)
    client: dict[str, Any] = {name: value for name, value in CLIENT.items() if name not in known}
    # A statement that was prepared fails when a column is added to its table.
    return WatchedConnection.connect(url, autocommit=True, prepare_threshold=None, **client)


# Sessions that were cut off while the server could not be reached, by url: the next connection ends them.
_left: dict[str, set[int]] = {}


def _works_or_left(url: str, pid: int) -> bool:
    try:
        return works(url, pid)
    except psycopg.Error as error:
        if sqlstate(error) == NO_CONNECTION_LEFT:
            return True  # It answers, and cannot say.
        _left.setdefault(url, set()).add(pid)
        raise


def works(url: str, pid: int) -> bool:
    """Whether the server's session `pid` is at work, and does not itself wait for its client; if not, it is ended.

    Ended, it holds no lock that would keep the next attempt out.
    """
    with closing(_opened(url)) as other:
        other.silence_seconds = CONNECT_SECONDS
        row = other.execute(_WORKS, (pid,)).fetchone()
        if row and row[0]:
            return True
        other.execute(_END, (pid,))
    return False


def lock_holder(url: str, table: str) -> str:
    """The session with the oldest transaction that holds a lock on `table`, in words; empty if none is seen.

    Without a name: a lock on any of Headrace's own tables.
    """
    row = None
    with suppress(psycopg.Error), closing(_opened(url)) as other:
        other.silence_seconds = CONNECT_SECONDS
        row = other.execute(_HOLDER, {"table": table}).fetchone()
    if row is None:
        return ""
    pid, user, application, host, state, since = row
    name = f", {application}" if application else ""
    return f"session {pid} (user {user}{name}, from {host}, {state}) holds the lock since {since} UTC"
