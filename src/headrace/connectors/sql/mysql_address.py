"""Where a MySQL or MariaDB server is, and how a connection to it is made."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

from headrace.connectors.sql import mysql_connection
from headrace.connectors.sql.mysql_connection import WatchedConnection
from headrace.connectors.sql.silence import CONNECT_SECONDS, IDLE_SECONDS, LOCK_SECONDS, SILENCE_SECONDS

SECONDS = ("connect_timeout", "lock_timeout", "idle_timeout")
OPTIONS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", *SECONDS)
SSL_MODES = ("disabled", "required", "verify_ca", "verify_identity")
# Nothing is shortened or set to zero without an error, and a 0 for an AUTO_INCREMENT column stays 0.
_SQL_MODE = (
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,"
    "NO_AUTO_VALUE_ON_ZERO"
)


class AddressError(ValueError):
    """The url cannot be read; the message never repeats it."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """The parts of a url."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> Address:
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
        kind: type[WatchedConnection] = WatchedConnection,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        **more: Any,
    ) -> Any:
        """A new connection that commits each statement by itself; raises pymysql.MySQLError, also for TLS files."""
        lock, idle = self.seconds("lock_timeout", LOCK_SECONDS), self.seconds("idle_timeout", IDLE_SECONDS)
        more.setdefault("works", lambda session: mysql_connection.works(self, session))
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
                # What only MariaDB reads ends a transaction whose client is gone; in MySQL the connection does it.
                init_command=f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {lock}, "
                f"lock_wait_timeout = {lock} /*M! , idle_transaction_timeout = {idle} */",
                **more,
            )
        except (ssl.SSLError, FileNotFoundError) as error:
            raise pymysql.err.OperationalError(2026, f"SSL connection error: {error}") from error
        if "mariadb" not in str(connection.get_server_info()).lower():
            connection.idle_seconds = idle
        mysql_connection.end_left(self, connection)
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
