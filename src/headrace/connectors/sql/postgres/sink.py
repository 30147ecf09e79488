"""Write the result into a table of PostgreSQL, exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.connectors.sql.postgres import connection as postgres_connection
from headrace.connectors.sql.postgres.dialect import PostgresDialect
from headrace.connectors.sql.sink import ServerSink
from headrace.contract import Identity, OptionError


@dataclass(frozen=True, kw_only=True)
class Postgres(ServerSink):
    """Write a table in a PostgreSQL database; each batch is one transaction with its line in the ledger.

    url: `postgresql://user:password@host:port/database`, with the options of libpq behind `?`, such as
    `sslmode=verify-full&sslrootcert=...`. schema: where the table and Headrace's own tables lie; the first of the
    user's search path if none is given. Timestamps have microseconds and a time zone (TIMESTAMP) or none
    (TIMESTAMP_NTZ); arrays, maps and structs are jsonb.
    """

    longest_name: ClassVar[tuple[int, str] | None] = (63, "bytes")
    may_be_plain: ClassVar[str] = "#"
    worker_packages: ClassVar[tuple[str, ...]] = ("psycopg",)
    schema: str = ""

    def dialect(self) -> PostgresDialect:
        return PostgresDialect(self.secured_url(), self.schema, self.silence_seconds)

    def host(self) -> str:
        return postgres_connection.host(self.url)

    def identity(self) -> Identity | None:
        return postgres_connection.table_identity(self.url, self.schema, self.table)

    def tls_in_url(self) -> tuple[dict[str, str], bool]:
        return postgres_connection.tls_options(self.url)

    def verify_full_options(self, ca: str) -> dict[str, str]:
        return {"sslmode": "verify-full", "sslrootcert": ca}

    def address_problem(self) -> OptionError | None:
        if self.url.startswith(("postgresql://", "postgres://")):
            return postgres_connection.address_problem(self.url)
        fault = "the url of the database does not begin with postgresql://"
        return OptionError(what=fault, fix="write postgresql://user:password@host:port/database")
