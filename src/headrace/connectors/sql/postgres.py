"""Write the result into a table of PostgreSQL, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import psycopg

from headrace.connectors.sql import postgres_connection
from headrace.connectors.sql.dialect import (
    Connection,
    Dialect,
    PartLost,
    StagedTable,
    Stager,
    WriteTarget,
    chunks,
    identifiers,
    require_all_in,
    rows_of,
    run,
)
from headrace.connectors.sql.limits import ExistingColumn, ExistingTable, Limit
from headrace.connectors.sql.postgres_columns import Readers, existing_table, incompatible, limit_of
from headrace.connectors.sql.silence import SILENCE_SECONDS
from headrace.connectors.sql.sink import ServerSink
from headrace.connectors.sql.system_tables import OWN_PREFIX
from headrace.connectors.sql.types import Forms, Kind, ResultColumn, lines, texts
from headrace.contract import Identity, OptionError

if TYPE_CHECKING:
    import pyarrow as pa

# From this version on there is MERGE, which reads the index once where INSERT ... ON CONFLICT reads it twice.
MERGE_SINCE = 150_000
# Roles of more than tables that the user is, or could become by a setting within a statement.
_REACHES_OUT = """
SELECT rolname, rolsuper FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER') AND (rolsuper OR rolname IN
('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', 'pg_signal_backend'))
ORDER BY rolsuper DESC, rolname LIMIT 1
"""

_DECLARED: dict[Kind, str] = {
    "boolean": "boolean",
    "float": "real",
    "double": "double precision",
    "text": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "json": "jsonb",
}


@dataclass(frozen=True, kw_only=True)
class Postgres(ServerSink):
    """A table in a PostgreSQL database; each batch is one transaction with its line in the ledger.

    url: `postgresql://user:password@host:port/database`, with the options of libpq behind `?`, such as
    `sslmode=verify-full&sslrootcert=...`. schema: where the table and Headrace's own tables lie; the first of the
    user's search path if none is given. Timestamps have microseconds and a time zone (TIMESTAMP) or none
    (TIMESTAMP_NTZ); arrays, maps and structs are jsonb.
    """

    longest_name: ClassVar[tuple[int, str] | None] = (63, "bytes")
    worker_packages: ClassVar[tuple[str, ...]] = ("psycopg",)
    schema: str = ""

    def dialect(self) -> PostgresDialect:
        return PostgresDialect(self.secured_url(), self.schema, self.silence_seconds)

    def host(self) -> str:
        return postgres_connection.host(self.url)

    def identity(self) -> Identity | None:
        return postgres_connection.of_table(self.url, self.schema, self.table)

    def given_tls(self) -> tuple[dict[str, str], bool]:
        return postgres_connection.tls(self.url)

    def verify_full(self, ca: str) -> dict[str, str]:
        return {"sslmode": "verify-full", "sslrootcert": ca}

    def url_problems(self) -> Iterator[OptionError]:
        if self.url.startswith(("postgresql://", "postgres://")):
            faults = list(postgres_connection.url_problems(self.url))
            yield from faults or self.tls_problems()
        else:
            yield OptionError(
                what="the url of the database does not begin with postgresql://",
                fix="write postgresql://user:password@host:port/database",
            )


@dataclass(frozen=True)
class PostgresDialect(Dialect):
    """PostgreSQL's own ways."""

    name: ClassVar[str] = "PostgreSQL"
    # What was committed while a lock was waited for must be seen, whatever the server's own default is.
    begin_write: ClassVar[str] = "BEGIN ISOLATION LEVEL READ COMMITTED"
    begin_read: ClassVar[str] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    detects_duplicates: ClassVar[bool] = True
    wants_sorted: ClassVar[bool] = False
    forms: ClassVar[Forms] = Forms(zone="+00", hexadecimal="\\x")
    lock_own_tables: ClassVar[tuple[str, ...]] = (
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "SELECT pg_advisory_xact_lock(hashtext('headrace'), hashtext(current_schema()))",
    )
    errors: ClassVar[tuple[type[Exception], ...]] = (psycopg.Error,)
    duplicates: ClassVar[tuple[type[Exception], ...]] = (
        psycopg.errors.UniqueViolation,
        psycopg.errors.CardinalityViolation,
    )
    check_now: ClassVar[str] = "SET CONSTRAINTS ALL IMMEDIATE"
    url: str = field(repr=False)
    schema: str = ""
    silence_seconds: float = SILENCE_SECONDS

    def connect(self) -> Connection:
        return self._open()

    def connect_to_read(self) -> Connection:
        return self._open("SET default_transaction_read_only = on")

    def _open(self, *settings: str) -> Connection:
        connection = postgres_connection.connect(self.url, silence_seconds=self.silence_seconds)
        for setting in settings:
            connection.execute(setting)
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("SET extra_float_digits = 1")
        connection.execute("SET client_min_messages = warning")
        if self.schema:
            connection.execute(f"SET search_path = {self.quote(self.schema)}")
        return cast(Connection, connection)

    def quote(self, name: str) -> str:
        # psycopg takes a per cent sign for a placeholder.
        return super().quote(name).replace("%", "%%")

    def declare(self, column: ResultColumn, key: Sequence[ResultColumn]) -> str:
        if column.kind == "decimal":
            return f"numeric({column.precision},{column.scale})"
        if column.kind == "integer":
            sizes = {"tinyint": "smallint", "smallint": "smallint", "int": "integer"}
            return sizes.get(column.type.simpleString(), "bigint")
        # Spark orders and compares text by its bytes; so ordered, an index is built in half the time.
        return _DECLARED[column.kind] + (' COLLATE "C"' if column.kind == "text" and column in key else "")

    def rename_together(self, connection: Connection, names: Sequence[tuple[str, str]]) -> None:
        taken = {name for _, name in names}
        readers = [Readers.of(connection, self.quote(table).replace("%%", "%")) for table, _ in names if table in taken]
        for table, name in names:
            self.rename(connection, table, name)
        for each in readers:
            each.follow(connection)

    def column_key(self, name: str) -> str:
        return name  # Quoted names differ by case.

    def existing(self, connection: Connection, table: str) -> ExistingTable | None:
        return existing_table(connection, table, self.quote(table).replace("%%", "%"))

    def limit_of(self, column: ResultColumn) -> Limit:
        return limit_of(self.declare(column, ()))

    def incompatible(self, there: ExistingColumn, column: ResultColumn) -> str | None:
        return incompatible(there, column, self.declare(column, ()))

    def write(self, connection: Connection, target: WriteTarget, table: pa.Table) -> None:
        self._insert(connection, target, [array.to_pylist() for array in texts(table, target.columns, self.forms)])

    def write_rows(self, connection: Connection, target: WriteTarget, given: Sequence[tuple[Any, ...]]) -> None:
        self._insert(connection, target, [list(map(_text, values)) for values in zip(*given, strict=True)])

    def _insert(self, connection: Connection, target: WriteTarget, values: list[list[str | None]]) -> None:
        """Write rows that are given as the texts of each column."""
        types = [self.declare(column, ()) for column in target.columns]
        arrays = ", ".join(["%s::text[]"] * len(values))
        names = [f"c{at}" for at in range(len(values))]
        cast_names = ", ".join(f"{name}::{type_}" for name, type_ in zip(names, types, strict=True))
        source = f"SELECT {cast_names} FROM unnest({arrays}) AS given ({', '.join(names)})"
        cursor = connection.cursor().execute(self.insert_from(target, source), values)
        require_all_in(target.table, len(values[0]), cursor.rowcount)

    def stager(self, name: str, columns: Sequence[ResultColumn]) -> Stager:
        return CopyStager(self, name, columns)

    def merge(self, connection: Connection, target: WriteTarget, parts: Sequence[StagedTable]) -> None:
        names = identifiers(self, target.names)
        union = " UNION ALL ".join(f"SELECT {names} FROM {self.part_source(part)}" for part in parts)
        # Sorted by the key, rows go into neighbouring pages of the index: three times as fast as in any order.
        order = f" ORDER BY {identifiers(self, target.key)}" if target.key else ""
        source = f"SELECT {names} FROM ({union}) AS parts{order}"
        merges = target.replaces and cast(psycopg.Connection[Any], connection).info.server_version >= MERGE_SINCE
        statement = self._merge(target, source) if merges else self.insert_from(target, source)
        found = connection.cursor().execute(statement, ()).rowcount
        expected = sum(part.rows for part in parts)
        if found != expected:
            [(staged,)] = rows_of(connection, f"SELECT count(*) FROM ({union}) AS parts")
            if staged != expected:
                raise PartLost(f"{expected} rows were staged, and {staged} were found")
            require_all_in(target.table, expected, found)

    def _merge(self, target: WriteTarget, source: str) -> str:
        same = " AND ".join(f"there.{self.quote(name)} = given.{self.quote(name)}" for name in target.key)
        given = ", ".join(f"given.{self.quote(name)}" for name in target.names)
        return (
            f"MERGE INTO {self.quote(target.table)} AS there USING ({source}) AS given ON {same} "
            f"WHEN MATCHED THEN UPDATE SET {self.change(target.names, target.key, 'given.{}')} "
            f"WHEN NOT MATCHED THEN INSERT ({identifiers(self, target.names)}) VALUES ({given})"
        )

    def staged(self, connection: Connection, prefix: str) -> list[str]:
        statement = (
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace "
            "AND starts_with(relname, %s)"
        )
        return [str(row[0]) for row in rows_of(connection, statement, (prefix,))]

    def drop_staged(self, connection: Connection, names: Sequence[str]) -> None:
        if names:
            run(connection, f"DROP TABLE IF EXISTS {identifiers(self, names)}")

    def readable(self, column: ResultColumn) -> str:
        name = self.quote(column.name)
        as_text = ("decimal", "date", "timestamp", "timestamp_ntz", "json")
        return f"{name}::text" if column.kind in as_text else name

    def stream(self, connection: Connection, statement: str) -> Iterator[list[tuple[Any, ...]]]:
        with cast(psycopg.Connection[Any], connection).cursor(name="headrace_read") as cursor:
            cursor.execute(statement, ())
            yield from chunks(cursor)

    def rights_beside_reading(self, connection: Connection) -> str:
        found = list(rows_of(connection, _REACHES_OUT))
        if not found:
            return ""
        role, is_superuser = found[0]
        return f"has the rights of the superuser '{role}'" if is_superuser else f"is a member of {role}"

    def answer(self, connection: Connection, statement: str, limit: int, seconds: float) -> Iterator[Sequence[Any]]:
        return postgres_connection.bounded_answer(
            cast("psycopg.Connection[Any]", connection), statement, limit, seconds
        )

    def is_out_of_time(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.QueryCanceled)

    def explain(self, error: Exception) -> OptionError:
        problem = postgres_connection.explained(error, self.url)
        if postgres_connection.sqlstate(error) == postgres_connection.READ_ONLY:
            return postgres_connection.read_only_cause(self.url) or problem
        if not self.waits_for_lock(error):
            return problem
        holder = postgres_connection.lock_holder(self.url, postgres_connection.locked_table(error))
        return replace(problem, what=f"{problem.what}: {holder}") if holder else problem

    def is_transient(self, error: Exception) -> bool:
        return postgres_connection.is_transient(error)

    def waits_for_lock(self, error: BaseException) -> bool:
        return postgres_connection.sqlstate(error) == postgres_connection.LOCK_WAIT

    def refusal(self, error: Exception) -> str:
        return postgres_connection.refusal(error, self.url)

    def lacks_parent(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.ForeignKeyViolation)

    def is_contended(self, error: Exception) -> bool:
        return postgres_connection.is_contended(error)

    def is_part_lost(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.UndefinedTable) and f"{OWN_PREFIX}s_" in str(error)


def _text(value: Any) -> str | None:
    """A plain value as PostgreSQL reads it."""
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return None if value is None else str(value)


class CopyStager:
    """Rows on their way into an unlogged table: created, filled and committed in one transaction or not at all."""

    def __init__(self, dialect: PostgresDialect, name: str, columns: Sequence[ResultColumn]) -> None:
        self.columns, self.forms, table = columns, dialect.forms, dialect.quote(name)
        declared = ", ".join(f"{dialect.quote(column.name)} {dialect.declare(column, columns)}" for column in columns)
        self.connection = cast("psycopg.Connection[Any]", dialect.connect())
        self.connection.execute("BEGIN")
        create = f"CREATE UNLOGGED TABLE {table} ({declared}) WITH (autovacuum_enabled = off)"
        self.connection.cursor().execute(create, ())
        # Frozen rows need no second look at whether their transaction was committed.
        self.copying = self.connection.cursor().copy(f"COPY {table} FROM STDIN WITH (FREEZE)".replace("%%", "%"))
        self.copy = self.copying.__enter__()

    def add(self, table: pa.Table) -> None:
        self.copy.write(lines(table, self.columns, self.forms))

    def finish(self) -> None:
        self.copying.__exit__(None, None, None)
        self.connection.execute("COMMIT")
        self.connection.close()

    def give_up(self) -> None:
        # Closing the connection rolls the table back.
        with suppress(psycopg.Error):
            self.connection.close()
