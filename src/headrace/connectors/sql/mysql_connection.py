"""A connection to MySQL or MariaDB that is never waited for in vain, and what the server tells of other sessions."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import pymysql

from headrace.connectors.sql.silence import CONNECT_SECONDS, SILENCE_SECONDS, shut, watched

if TYPE_CHECKING:
    Plain = pymysql.connections.Connection[Any]
else:
    Plain = pymysql.connections.Connection

# PyMySQL's own number of a connection that was lost while a statement ran.
LOST = 2013

_NO_CONNECTION_LEFT = (1040, 1203, 1226)

_WORKS = "SELECT command, state FROM information_schema.processlist WHERE id = %s"
# States of a session that waits for its client.
_WAITS_FOR_CLIENT = ("reading from net", "writing to net", "sending to client")
_HOLDER = """
SELECT t.trx_mysql_thread_id, p.user, p.host, p.command, t.trx_started FROM information_schema.innodb_trx t
JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
WHERE t.trx_mysql_thread_id <> CONNECTION_ID() AND t.trx_rows_locked > 0 AND p.db = DATABASE()
ORDER BY t.trx_started LIMIT 1
"""
# MySQL ends no transaction whose client is gone, other than by this; MariaDB has idle_transaction_timeout.
_BEGIN = b"START TRANSACTION"
_ENDS = (b"COMMIT", b"ROLLBACK")


class Server(Protocol):
    """A server that a connection can be made to, as its address does."""

    @property
    def host(self) -> str:
        """Its name."""

    @property
    def port(self) -> int:
        """Its port."""

    def connect(self, *, silence_seconds: float = ..., works: Callable[[int], bool] = ...) -> Any:
        """A new connection."""


class WatchedConnection(Plain):
    """A connection whose statements end when the server is silent and does not work for it."""

    _sock: Any
    _result: Any

    def __init__(
        self,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        idle_seconds: int = 0,
        works: Callable[[int], bool] = lambda session: False,
        **options: Any,
    ) -> None:
        self.silence_seconds, self.idle_seconds, self.works = silence_seconds, idle_seconds, works
        self.session = 0
        super().__init__(**options)

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """Where nothing is asked of a certificate, PyMySQL reads those of the machine all the same, for 20 ms."""
        return super()._create_ssl_ctx(sslp) if sslp else _encrypts_only()  # type: ignore[misc]

    def connect(self, sock: Any = None) -> None:
        """Connect; PyMySQL's time-out for it ends before the server has said its first word."""
        with watched(lambda: False, self._shut, self._lost, seconds=self.connect_timeout or CONNECT_SECONDS):
            super().connect(sock)
            # A proxy in between has given this connection a number of its own.
            super().query("SELECT CONNECTION_ID()")
            rows = self._result.rows
            self.session = int(rows[0][0]) if rows else int(self.thread_id())  # type: ignore[no-untyped-call]

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        """Run one statement."""
        words = sql.encode(self.encoding, "surrogateescape") if isinstance(sql, str) else bytes(sql)
        if self.idle_seconds and self.session and words.startswith(_BEGIN):
            self._query(f"SET wait_timeout = {self.idle_seconds}")
        found = self._query(words, unbuffered)
        if self.idle_seconds and words in _ENDS:
            self._query("SET wait_timeout = @@GLOBAL.wait_timeout")
        return found

    def _query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        with watched(lambda: self.works(self.session), self._shut, self._lost, seconds=self.silence_seconds):
            return super().query(sql, unbuffered)

    def _shut(self) -> None:
        if self._sock is not None:
            shut(self._sock.fileno())

    @staticmethod
    def _lost(sentence: str) -> Exception:
        return pymysql.err.OperationalError(LOST, sentence)


@cache
def _encrypts_only() -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found


def _asking(server: Server) -> Any:
    """A connection of which an answer is expected soon."""
    return server.connect(silence_seconds=CONNECT_SECONDS, works=lambda session: False)


def works(server: Server, session: int) -> bool:
    """Whether the server's `session` is at work, and does not itself wait for its client; if not, it is ended.

    Ended, it holds no lock that would keep the next attempt out.
    """
    try:
        with closing(_asking(server)) as other, other.cursor() as cursor:
            cursor.execute(_WORKS, (session,))
            row = cursor.fetchone()
            if row is not None and row[0] != "Sleep" and str(row[1]).lower() not in _WAITS_FOR_CLIENT:
                return True
            end(cursor, session)
    except pymysql.MySQLError as error:
        if error.args and error.args[0] in _NO_CONNECTION_LEFT:
            return True  # It answers, and cannot say.
        _left.setdefault(_place(server), set()).add(session)
        raise
    return False


# Sessions that were cut off while the server could not be reached: the next connection ends them.
_left: dict[tuple[str, int], set[int]] = {}


def _place(server: Server) -> tuple[str, int]:
    return server.host, server.port


def end_left(server: Server, connection: Any) -> None:
    """End the sessions that hold locks nobody will give back."""
    for session in _left.pop(_place(server), set()):
        with connection.cursor() as cursor:
            end(cursor, session)


def end(cursor: Any, session: int) -> None:
    """End a session; one that is gone is no error."""
    with suppress(pymysql.MySQLError):
        cursor.execute("KILL %s", (session,))


def lock_holder(server: Server) -> str:
    """The session with the oldest transaction that holds rows of the database, in words; empty if none is seen.

    To see the sessions of others, the user needs the right PROCESS.
    """
    with suppress(pymysql.MySQLError), closing(_asking(server)) as other, other.cursor() as cursor:
        cursor.execute(_HOLDER)
        if row := cursor.fetchone():
            session, user, host, command, since = row
            return f"session {session} (user {user}, from {host}, {command}) holds the lock since {since} UTC"
    return ""
