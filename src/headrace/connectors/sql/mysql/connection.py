"""Where a MySQL or MariaDB server is, connections that never wait in vain, and what its errors mean."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

from headrace.connectors.sql.dialect import BATCH_FIX, REFUSED_FIX
from headrace.connectors.sql.silence import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    LOCK_SECONDS,
    SILENCE_SECONDS,
    shut,
    watched,
)
from headrace.contract import OptionError
from headrace.errors import in_one_line
from headrace.redaction import without

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
# one: that behind M! is MariaDB's.
_SESSION = (
    "SET time_zone = '+00:00', sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1, "
    "sql_auto_is_null = 0, unique_checks = 1, foreign_key_checks = 1, completion_type = 0, "
    "default_storage_engine = InnoDB, innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {lock} "
    "/*!80000 , transaction_isolation = 'REPEATABLE-READ', transaction_read_only = 0 */ "
    # What only MariaDB reads ends a transaction whose client is gone; in MySQL the connection does it.
    "/*M! , tx_isolation = 'REPEATABLE-READ', tx_read_only = 0, idle_transaction_timeout = {idle} */"
)
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
        with watched(lambda: False, self._shut, self._lost, seconds=self.connect_timeout or CONNECT_SECONDS):
            super().connect(sock)
            # A proxy in between has given this connection a number of its own.
            super().query("SELECT CONNECTION_ID(), @@max_allowed_packet")
            rows = self._result.rows
            self.session = int(rows[0][0]) if rows else int(self.thread_id())  # type: ignore[no-untyped-call]
            self.packet = int(rows[0][1]) if rows else self.packet

    def cursor(self, cursor: Any = None) -> Any:
        """A cursor that sends no more rows at once than the server takes."""
        made = super().cursor(cursor)
        made.max_stmt_length = min(made.max_stmt_length, self.packet - 1)
        return made

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        words = sql.encode(self.encoding, "surrogateescape") if isinstance(sql, str) else bytes(sql)
        if len(words) >= self.packet:
            # The server would close the connection, as if it had gone away.
            what = f"a statement has {len(words)} bytes, and max_allowed_packet is {self.packet}"
            raise pymysql.err.DataError(1153, what)
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
            raise AddressError("the port in the url of the database is no number from 1 to 65535")
        if parts.scheme not in ("mysql", "mariadb"):
            raise AddressError("the url of the database does not begin with mysql://")
        options = dict(parse_qsl(parts.query))
        if unknown := sorted(options.keys() - set(OPTIONS)):
            raise AddressError(f"the url of the database has an unknown option '{unknown[0]}'")
        if options.get("ssl_mode", "disabled").lower() not in SSL_MODES:
            raise AddressError(f"ssl_mode in the url of the database is none of {', '.join(SSL_MODES)}")
        for name in SECONDS:
            if name in options and not options[name].isdigit():
                raise AddressError(f"{name} in the url of the database is no number of seconds")
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
        """The time-out of this name that the url gives."""
        return int(self.options.get(name, default))

    def connect(
        self,
        kind: type[WatchedMySqlConnection] = WatchedMySqlConnection,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        **more: Any,
    ) -> Any:
        """A new connection that commits each statement by itself; raises pymysql.MySQLError, also for TLS files."""
        lock, idle = self.seconds("lock_timeout", LOCK_SECONDS), self.seconds("idle_timeout", IDLE_SECONDS)
        more.setdefault("works", lambda session: works(self, session))
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
                end(cursor, session)
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


def _asking(server: MySqlAddress) -> Any:
    """A connection of which an answer is expected soon."""
    return server.connect(silence_seconds=CONNECT_SECONDS, works=lambda session: False)


def works(server: MySqlAddress, session: int) -> bool:
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
        _left.setdefault((server.host, server.port), set()).add(session)
        raise
    return False


# Sessions that were cut off while the server could not be reached, and hold locks: the next connection ends them.
_left: dict[tuple[str, int], set[int]] = {}


def end(cursor: Any, session: int) -> None:
    """End a session; one that is gone is no error."""
    with suppress(pymysql.MySQLError):
        cursor.execute("KILL %s", (session,))


def lock_holder(server: MySqlAddress) -> str:
    """The session with the oldest transaction that holds rows of the database, in words; empty if none is seen.

    To see the sessions of others, the user needs the right PROCESS.
    """
    with suppress(pymysql.MySQLError), closing(_asking(server)) as other, other.cursor() as cursor:
        cursor.execute(_HOLDER)
        if row := cursor.fetchone():
            session, user, host, command, since = row
            return f"session {session} (user {user}, from {host}, {command}) holds the lock since {since} UTC"
    return ""


# The server is gone, is going or is not there yet; a lock was waited for too long; a deadlock; too many connections.
_PASSING = (*_NO_CONNECTION_LEFT, 1053, 1158, 1159, 1160, 1161, 1205, 1213, 1927, 2002, 2003, 2006, 2013, 2055, 4031)
# A lock, a deadlock, a changed definition; a table, a column, a key or a row that is there already.
CONTENDED = (1205, 1213, 1412, 1050, 1060, 1061, 1062, 1091)
# A table is missing, or was damaged by a crash.
PART_LOST = (126, 127, 145, 1034, 1035, 1146, 1194, 1195, 1932)

# A row that refers to a row that is missing, or to which another one refers.
NO_PARENT = (1216, 1217, 1451, 1452)
# What the server refuses of a row, by the manuals' lists of errors: a NULL, a key, a value, a size, a partition, a
# constraint, what a trigger raises by SIGNAL.
_REFUSALS = frozenset(
    (
        *(1022, 1048, 1062, 1118, 1138, 1153, 1263, 1264, 1265, 1292, 1300, 1364, 1365, 1366, 1367, 1369, 1406, 1411),
        *(1416, 1441, 1526, 1557, 1586, 1591, 1644, 1690, 1713, 1748, 1761, 1762, 1859, 3140, 3156, 3819, 4025),
        *NO_PARENT,
    )
)

# The storage engine, memory, a node that joins its cluster (Galera, Group Replication), a statement that was ended.
_OF_THE_MOMENT = (1030, 1037, 1038, 1047, 1180, 1197, 1206, 1317, 1637, 1969, 3024, 3100, 3101, 3572)

LOCK_WAIT = 1205
# MariaDB's max_statement_time, MySQL's max_execution_time.
OUT_OF_TIME = (1969, 3024)
_RIGHTS = "grant the rights that the sink's documentation lists"
_WORDS: tuple[tuple[tuple[int, ...], str, str, str], ...] = (
    ((1044,), "HR414", "refuses this user the database", _RIGHTS),
    ((1045, 1698), "HR414", "refuses the user or the password", "give the url the right ones, then start again"),
    ((1049,), "HR414", "has no such database", "create it, or correct the url"),
    ((1142, 1143, 1227), "HR414", "refuses this user a right", _RIGHTS),
    ((2026,), "HR414", "cannot be reached by TLS as asked", "look at ssl_mode and ssl_ca in the url"),
    ((1040,), "HR405", "has no connection left", "raise max_connections, or run fewer tasks at once"),
    (
        (1203, 1226),
        "HR405",
        "gives this user no more",
        "raise its limits: ALTER USER ... WITH",
    ),
    ((1205,), "HR405", "keeps a lock on the table", "end the other transaction, then start again"),
    ((1213,), "HR405", "ended the transaction to resolve a deadlock", "start again"),
    ((28, 1021), "HR405", "has no space left on its disk", "make room, then start again"),
    ((1041,), "HR405", "has no memory left", "give the server more, then start again"),
    ((1114,), "HR405", "has no space left for the table", "make room, then start again"),
    ((1146,), "HR405", "has lost a table that was there at the start", "put it back, or start again and it is made"),
    ((1054,), "HR405", "has lost a column that was there at the start", "start again: the table is compared first"),
    ((1290, 1836), "HR405", "may only be read", "name the primary server in the url"),
    ((1792,), "HR414", "lets transactions only read", "set tx_read_only (MySQL: transaction_read_only) to 0, globally"),
)


def number_of(error: BaseException) -> int:
    """The number of an error; that of a connection which PyMySQL has closed is 2006."""
    number = error.args[0] if error.args else 0
    if isinstance(error, pymysql.err.InterfaceError) and number == 0:
        return 2006
    # PyMySQL tells a certificate that is refused as a server that cannot be reached.
    if number == 2003 and isinstance(error.__context__, ssl.SSLCertVerificationError):
        return 2026
    return number if isinstance(number, int) else 0


def is_transient(error: Exception) -> bool:
    """Whether the same batch may succeed after a while."""
    return number_of(error) in _PASSING


def refusal(error: Exception, url: str) -> str:
    """Why the server refuses a row, in its own words; "" if it refuses something else."""
    return _words(error, url) if number_of(error) in _REFUSALS else ""


def _words(error: Exception, url: str) -> str:
    return without(in_one_line(error.args[1] if len(error.args) > 1 else error), url)


def explained(error: Exception, url: str) -> OptionError:
    """The error as one sentence, without a password."""
    parts = urlsplit(url)
    where = f"MySQL at {parts.hostname or 'localhost'}:{parts.port or 3306}"
    number = number_of(error)
    text = _words(error, url)
    if number in _REFUSALS:
        return OptionError(code="HR408", what=f"{where} refuses a row: {text}", fix=REFUSED_FIX)
    for numbers, code, what, fix in _WORDS:
        if number in numbers:
            detail = f": {text}" if code == "HR414" or number in _NO_CONNECTION_LEFT else ""
            return OptionError(code=code, what=f"{where} {what}{detail}", fix=fix)
    if number in _PASSING:
        fix = "start the server, or correct the url; then start again"
        return OptionError(code="HR405", what=f"{where} does not answer: {text}", fix=fix)
    code = "HR405" if number in _OF_THE_MOMENT else "HR425"
    return OptionError(code=code, what=f"{where} refuses it: {text}", fix=BATCH_FIX)
