"""The address of a MySQL or MariaDB server, and connections that end when the server is silent."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

from headrace.connectors.sql.mysql.faults import LOST, NO_CONNECTION_LEFT
from headrace.connectors.sql.silence import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    LOCK_SECONDS,
    SILENCE_SECONDS,
    cut_when_silent,
    shut,
)

if TYPE_CHECKING:
    Plain = pymysql.connections.Connection[Any]
else:
    Plain = pymysql.connections.Connection

SECONDS = ("connect_timeout", "lock_timeout", "idle_timeout")
OPTIONS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", *SECONDS)
SSL_MODES = ("disabled", "required", "verify_ca", "verify_identity")
# Nothing is shortened or set to zero without an error, and a 0 for an AUTO_INCREMENT column stays 0.
_SQL_MODE = (
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,"
    "NO_AUTO_VALUE_ON_ZERO"
)
# What a session could otherwise have from its server or its user. Of more than one version comment, each server reads
# one: that behind M! is MariaDB's. By default 1024 bytes of a text count where rows are sorted, and a window mixes the
# rows of keys that are longer; an index holds 3072.
_SESSION = (
    "SET time_zone = '+00:00', sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1, "
    "sql_auto_is_null = 0, unique_checks = 1, foreign_key_checks = 1, completion_type = 0, max_sort_length = 4096, "
    "default_storage_engine = InnoDB, innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {lock} "
    "/*!80000 , transaction_isolation = 'REPEATABLE-READ', transaction_read_only = 0 */ "
    # What only MariaDB reads ends a transaction whose client is gone; in MySQL the connection does it.
    "/*M! , tx_isolation = 'REPEATABLE-READ', tx_read_only = 0, idle_transaction_timeout = {idle} */"
)

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


class WatchedMySqlConnection(Plain):
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
        # What the server takes at once, in bytes.
        self.packet = 1 << 30
        super().__init__(**options)

    def connect(self, sock: Any = None) -> None:
        """Connect; PyMySQL's time-out for it ends before the server has said its first word."""
        with cut_when_silent(
            lambda: False, self._shut_down, self._lost_error, seconds=self.connect_timeout or CONNECT_SECONDS
        ):
            super().connect(sock)
            # A proxy in between has given this connection a number of its own.
            super().query("SELECT CONNECTION_ID(), @@max_allowed_packet")
            rows = self._result.rows
            self.session = int(rows[0][0]) if rows else int(self.thread_id())  # type: ignore[no-untyped-call]
            self.packet = int(rows[0][1]) if rows else self.packet

    def cursor(self, cursor: Any = None) -> Any:
        """Return a cursor that sends no more rows at once than the server takes."""
        made = super().cursor(cursor)
        made.max_stmt_length = min(made.max_stmt_length, self.packet - 1)
        return made

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        words = sql.encode(self.encoding, "surrogateescape") if isinstance(sql, str) else bytes(sql)
        if len(words) >= self.packet:
            # The server would close the connection, as if it had gone away.
            fault = f"a statement has {len(words)} bytes, and max_allowed_packet is {self.packet}"
            raise pymysql.err.DataError(1153, fault)
        if self.idle_seconds and self.session and words.startswith(_BEGIN):
            self._query(f"SET wait_timeout = {self.idle_seconds}")
        affected = self._query(words, unbuffered)
        if self.idle_seconds and words in _ENDS:
            self._query("SET wait_timeout = @@GLOBAL.wait_timeout")
        return affected

    def _query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        with cut_when_silent(
            lambda: self.works(self.session), self._shut_down, self._lost_error, seconds=self.silence_seconds
        ):
            return super().query(sql, unbuffered)

    def _shut_down(self) -> None:
        if self._sock is not None:
            shut(self._sock.fileno())

    @staticmethod
    def _lost_error(sentence: str) -> Exception:
        return pymysql.err.OperationalError(LOST, sentence)


class AddressError(ValueError):
    """The url cannot be read; the message never repeats it."""


@dataclass(frozen=True, kw_only=True)
class MySqlAddress:
    """The parts of a url."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> MySqlAddress:
        """Read `mysql://user:password@host:port/database?ssl_mode=...`; raises AddressError."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise AddressError("the url of the database cannot be read") from error
        try:
            port = 3306 if parts.port is None else parts.port
        except ValueError:
            port = 0
        if not port:
            raise AddressError("the port in the url of the database is not a number from 1 to 65535")
        if parts.scheme not in ("mysql", "mariadb"):
            raise AddressError("the url of the database does not begin with mysql://")
        options = dict(parse_qsl(parts.query))
        if unknown := sorted(options.keys() - set(OPTIONS)):
            raise AddressError(f"the url of the database has an unknown option '{unknown[0]}'")
        if options.get("ssl_mode", "disabled").lower() not in SSL_MODES:
            raise AddressError(f"ssl_mode in the url of the database is none of {', '.join(SSL_MODES)}")
        for name in SECONDS:
            if name in options and not options[name].isdigit():
                raise AddressError(f"{name} in the url of the database is not a number of seconds")
        if not parts.path.strip("/"):
            raise AddressError("the url of the database names no database")
        return cls(
            host=parts.hostname or "localhost",
            port=port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path[1:]),
            options=options,
        )

    @property
    def ssl_mode(self) -> str:
        """The mode that the url gives, or that its other options ask for; without any, the server decides."""
        implied = "verify_ca" if "ssl_ca" in self.options else "required" if "ssl_cert" in self.options else ""
        return self.options.get("ssl_mode", implied).lower()

    def seconds(self, name: str, default: float) -> int:
        """Return the time-out of this name that the url gives."""
        return int(self.options.get(name, default))

    def connect(
        self,
        kind: type[WatchedMySqlConnection] = WatchedMySqlConnection,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        **more: Any,
    ) -> Any:
        """Open a connection that commits each statement; raises pymysql.MySQLError, also for TLS files."""
        lock, idle = self.seconds("lock_timeout", LOCK_SECONDS), self.seconds("idle_timeout", IDLE_SECONDS)
        more.setdefault("works", lambda session: end_unless_working(self, session))
        try:
            connection: Any = kind(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                database=self.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=self.seconds("connect_timeout", CONNECT_SECONDS),
                silence_seconds=silence_seconds,
                ssl=self._tls(),
                # Without it, PyMySQL uses TLS wherever the server offers it.
                ssl_disabled=self.options.get("ssl_mode", "").lower() == "disabled",
                sql_mode=_SQL_MODE,
                init_command=_SESSION.format(lock=lock, idle=idle),
                **more,
            )
        except (ssl.SSLError, FileNotFoundError) as error:
            raise pymysql.err.OperationalError(2026, f"SSL connection error: {error}") from error
        if "mariadb" not in str(connection.get_server_info()).lower():
            connection.idle_seconds = idle
        for session in _left.pop((self.host, self.port), set()):
            with connection.cursor() as cursor:
                end_session(cursor, session)
        return connection

    def _tls(self) -> ssl.SSLContext | None:
        if self.ssl_mode in ("", "disabled"):
            return None
        mode = self.ssl_mode
        context = ssl.create_default_context(cafile=self.options.get("ssl_ca"))
        context.check_hostname = mode == "verify_identity"
        if mode == "required":
            context.verify_mode = ssl.CERT_NONE
        if "ssl_cert" in self.options:
            context.load_cert_chain(self.options["ssl_cert"], self.options.get("ssl_key"))
        return context


def _connect_to_ask(server: MySqlAddress) -> Any:
    """Return a connection of which an answer is expected soon."""
    return server.connect(silence_seconds=CONNECT_SECONDS, works=lambda session: False)


def end_unless_working(server: MySqlAddress, session: int) -> bool:
    """Whether the server's `session` is at work, and does not itself wait for its client; if not, it is ended.

    Ended, it holds no lock that would keep the next attempt out.
    """
    try:
        with closing(_connect_to_ask(server)) as other, other.cursor() as cursor:
            cursor.execute(_WORKS, (session,))
            row = cursor.fetchone()
            if row is not None and row[0] != "Sleep" and str(row[1]).lower() not in _WAITS_FOR_CLIENT:
                return True
            end_session(cursor, session)
    except pymysql.MySQLError as error:
        if error.args and error.args[0] in NO_CONNECTION_LEFT:
            return True  # It answers, and cannot say.
        _left.setdefault((server.host, server.port), set()).add(session)
        raise
    return False


# Sessions that were cut off while the server could not be reached, and hold locks: the next connection ends them.
_left: dict[tuple[str, int], set[int]] = {}


def end_session(cursor: Any, session: int) -> None:
    """End a session; one that is gone is not an error."""
    with suppress(pymysql.MySQLError):
        cursor.execute("KILL %s", (session,))


def lock_holder(server: MySqlAddress) -> str:
    """Return the session with the oldest transaction that holds rows of the database, in words; empty if none is seen.

    To see the sessions of others, the user needs the right PROCESS.
    """
    with suppress(pymysql.MySQLError), closing(_connect_to_ask(server)) as other, other.cursor() as cursor:
        cursor.execute(_HOLDER)
        if row := cursor.fetchone():
            session, user, host, command, since = row
            return f"session {session} (user {user}, from {host}, {command}) holds the lock since {since} UTC"
    return ""
