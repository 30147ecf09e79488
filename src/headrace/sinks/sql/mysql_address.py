"""Where a MySQL or MariaDB server is, and how a connection to it is made."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

CONNECT_SECONDS = 10
LOCK_SECONDS = 20
OPTIONS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key")
SSL_MODES = ("disabled", "required", "verify_ca", "verify_identity")
# Nothing is shortened or set to zero without an error.
_SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"


class AddressFault(ValueError):
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
        """Read `mysql://user:password@host:port/database?ssl_mode=...`; raises AddressFault."""
        try:
            parts = urlsplit(url)
            port = parts.port or 3306
        except ValueError as fault:
            raise AddressFault("the url of the database cannot be read") from fault
        if parts.scheme not in ("mysql", "mariadb"):
            raise AddressFault("the url of the database does not begin with mysql://")
        options = dict(parse_qsl(parts.query))
        if unknown := sorted(options.keys() - set(OPTIONS)):
            raise AddressFault(f"the url of the database has an unknown option '{unknown[0]}'")
        if options.get("ssl_mode", "disabled").lower() not in SSL_MODES:
            raise AddressFault(f"ssl_mode in the url of the database is none of {', '.join(SSL_MODES)}")
        if not parts.path.strip("/"):
            raise AddressFault("the url of the database names no database")
        return cls(
            host=parts.hostname or "localhost",
            port=port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path[1:]),
            options=options,
        )

    def connect(
        self, kind: type[pymysql.connections.Connection[Any]] = pymysql.connections.Connection, **more: Any
    ) -> Any:
        """A new connection that commits each statement by itself; raises pymysql.MySQLError, also for TLS files."""
        try:
            return kind(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                database=self.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                ssl=self._tls(),
                # Without it, PyMySQL uses TLS wherever the server offers it.
                ssl_disabled=self.options.get("ssl_mode", "").lower() == "disabled",
                sql_mode=_SQL_MODE,
                init_command=f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_SECONDS}, "
                f"lock_wait_timeout = {LOCK_SECONDS}",
                **more,
            )
        except (ssl.SSLError, FileNotFoundError) as fault:
            raise pymysql.err.OperationalError(2026, f"SSL connection error: {fault}") from fault

    def _tls(self) -> ssl.SSLContext | None:
        mode = self.options.get("ssl_mode", "verify_ca" if "ssl_ca" in self.options else "").lower()
        if not mode or mode == "disabled":
            return None
        context = ssl.create_default_context(cafile=self.options.get("ssl_ca"))
        context.check_hostname = mode == "verify_identity"
        if mode == "required":
            context.verify_mode = ssl.CERT_NONE
        if "ssl_cert" in self.options:
            context.load_cert_chain(self.options["ssl_cert"], self.options.get("ssl_key"))
        return context
