"""Write the result into a table of MySQL or MariaDB, exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.connectors.sql.mysql.connection import AddressError, MySqlAddress
from headrace.connectors.sql.mysql.dialect import MySqlDialect
from headrace.connectors.sql.sink import SYSTEM, ServerSink
from headrace.contract import Identity, OptionError, canonical_server
from headrace.redaction import encoding_fault


@dataclass(frozen=True, kw_only=True)
class MySql(ServerSink):
    """Write a table in a MySQL 8 or MariaDB 10.11 database; each batch is one transaction with its line in the ledger.

    url: `mysql://user:password@host:port/database`, with options behind `?`: `ssl_mode` (disabled, required, verify_ca,
    verify_identity), `ssl_ca`, `ssl_cert`, `ssl_key`, and in seconds `connect_timeout`, `lock_timeout`, `idle_timeout`
    (how long a session may sleep in its transaction). Timestamps are DATETIME(6) in UTC; arrays, maps and structs are
    JSON as text; neither NaN nor infinity can be kept. Texts in the key have up to 255 characters.
    """

    longest_name: ClassVar[tuple[int, str] | None] = (64, "characters")
    worker_packages: ClassVar[tuple[str, ...]] = ("pymysql",)

    def dialect(self) -> MySqlDialect:
        return MySqlDialect(self.secured_url(), self.silence_seconds)

    def host(self) -> str:
        return MySqlAddress.parse(self.url).host

    def identity(self) -> Identity | None:
        try:
            address = None if encoding_fault(self.url) else MySqlAddress.parse(self.url)
        except AddressError:
            address = None
        if address is None:
            return None
        server = canonical_server(address.host, address.port)
        return {"system": "mysql", "server": server, "database": address.database, "table": self.table}

    def tls_in_url(self) -> tuple[dict[str, str], bool]:
        address = MySqlAddress.parse(self.url)
        given = {name: value for name, value in address.options.items() if name.startswith("ssl_")}
        return given, address.ssl_mode in ("verify_ca", "verify_identity")

    def verify_full_options(self, ca: str) -> dict[str, str]:
        return {"ssl_mode": "verify_identity", **({} if ca == SYSTEM else {"ssl_ca": ca})}

    def address_problem(self) -> OptionError | None:
        try:
            MySqlAddress.parse(self.url)
        except AddressError as error:
            return OptionError(what=str(error), fix="write mysql://user:password@host:port/database")
        return None
