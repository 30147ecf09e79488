"""The address of a PostgreSQL server, and connections that end when the server is silent."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import TextLoader

from headrace.connectors.sql.postgres.faults import NO_CONNECTION_LEFT, sqlstate
from headrace.connectors.sql.postgres.session import (
    SESSION,
    ServerTransaction,
    SettledCursor,
    WatchedPostgresConnection,
    settle,
)
from headrace.connectors.sql.silence import CONNECT_SECONDS, SILENCE_SECONDS
from headrace.contract import Identity, OptionError, canonical_server, is_loopback
from headrace.redaction import encoding_fault

# What libpq is asked where the url does not say it: a peer that is gone is noticed within a minute.
CLIENT: Mapping[str, object] = {
    "connect_timeout": int(CONNECT_SECONDS),
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "headrace",
}
_WORKS = f"""
SELECT state NOT LIKE 'idle%%' AND coalesce(wait_event_type, '') <> 'Client' FROM pg_stat_activity WHERE {SESSION}
"""
_END = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE {SESSION} AND usename = current_user AND datname = current_database()
"""
_HOLDER = """
SELECT a.pid, a.usename, a.application_name, coalesce(host(a.client_addr), 'this machine'), a.state,
to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation
WHERE l.granted AND a.pid <> pg_backend_pid() AND a.datname = current_database()
AND (c.relname = %(table)s OR (%(table)s = '' AND c.relname LIKE '\\_headrace%%'))
AND a.xact_start IS NOT NULL ORDER BY l.mode = 'AccessShareLock', a.xact_start LIMIT 1
"""
# Where libpq looks for the socket of a server on this machine.
_SOCKETS = ("/tmp", "/run/postgresql", "/var/run/postgresql")
_SEARCH_PATH = re.compile(r"(?:-c\s*|--)search[_-]path=\"?([^\s,\"]+)")


def connect(
    url: str, schema: str = "", *, reads: bool = False, silence_seconds: float = SILENCE_SECONDS
) -> WatchedPostgresConnection:
    """Open a connection whose transactions begin with the settings of `postgres.session`.

    Args:
        schema: Where names lead; without it, the search path of the url, or of role and database.
        reads: A statement outside a transaction may only read.

    Raises:
        psycopg.Error: The server cannot be reached, or refuses the session.
    """
    connection = _open(url)
    connection.silence_seconds = CONNECT_SECONDS
    settle(connection, url, schema)
    connection.reads = reads
    connection.works = lambda: connection.session is not None and _is_working(url, connection.session)
    for left in _left.pop(url, set()):
        connection.execute(_END, left)
    connection.silence_seconds = silence_seconds
    return connection


def _open(url: str) -> WatchedPostgresConnection:
    options = conninfo_to_dict(url)
    client: dict[str, Any] = {name: value for name, value in CLIENT.items() if name not in options}
    # A pooler knows no statement that another session has prepared, and one fails when a column is added to its table.
    client |= {"client_encoding": "UTF8", "prepare_threshold": None, "cursor_factory": SettledCursor}
    try:
        return WatchedPostgresConnection.connect(url, autocommit=True, **client)
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" not in str(error):
            raise
        # A pooler takes none of the url's options; each transaction sets them.
        return WatchedPostgresConnection.connect(url, autocommit=True, **client, options="")


# Sessions that were cut off while the server could not be reached, by url: the next connection ends them.
_left: dict[str, set[ServerTransaction]] = {}


def _is_working(url: str, session: ServerTransaction) -> bool:
    try:
        return end_unless_working(url, session)
    except psycopg.Error as error:
        if sqlstate(error) == NO_CONNECTION_LEFT:
            return True  # It answers, and cannot say.
        _left.setdefault(url, set()).add(session)
        raise


def end_unless_working(url: str, session: ServerTransaction) -> bool:
    """Whether the server's `session` is at work, and does not itself wait for its client; if not, it is ended.

    Ended, it holds no lock that would keep the next attempt out.
    """
    with closing(_open(url)) as other:
        other.silence_seconds = CONNECT_SECONDS
        row = other.execute(_WORKS, session).fetchone()
        if row and row[0]:
            return True
        other.execute(_END, session)
    return False


def lock_holder(url: str, table: str) -> str:
    """Return the session with the oldest transaction that holds a lock on `table`, in words; empty if none is seen.

    Without a name: a lock on any of Headrace's own tables.
    """
    row = None
    with suppress(psycopg.Error), closing(_open(url)) as other:
        other.silence_seconds = CONNECT_SECONDS
        row = other.execute(_HOLDER, {"table": table}).fetchone()
    if row is None:
        return ""
    pid, user, application, host, state, since = row
    name = f", {application}" if application else ""
    return f"session {pid} (user {user}{name}, from {host}, {state}) holds the lock since {since} UTC"


def host(url: str) -> str:
    """Return the host of `url`; of several, the first that is not this machine."""
    options = conninfo_to_dict(url)
    hosts = str(options.get("host") or options.get("hostaddr") or "").split(",")
    return next((host for host in hosts if not is_loopback(host)), hosts[0])


def tls_options(url: str) -> tuple[dict[str, str], bool]:
    """Return the options of TLS in `url`, and whether the server's certificate is verified by them."""
    given = {name: str(value) for name, value in conninfo_to_dict(url).items() if name in ("sslmode", "sslrootcert")}
    mode = given.get("sslmode") or os.environ.get("PGSSLMODE", "prefer")
    # So libpq keeps what earlier versions did.
    return given, mode.startswith("verify") or (mode == "require" and "sslrootcert" in given)


def address_problem(url: str) -> OptionError | None:
    """Return what libpq would refuse of a url; nothing of it is repeated, for it may be secret."""
    fix = "write postgresql://user:password@host:port/database, with %40 for @, %2F for / and %23 for # in a password"
    try:
        parsed = conninfo_to_dict(url)
    except psycopg.Error as error:
        unknown = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
        fault = f"the url of the database has an unknown option '{unknown[1]}'" if unknown else "the url cannot be read"
        return OptionError(what=fault, fix=fix)
    ports = str(parsed.get("port") or "5432").split(",")
    if all(port.isdigit() and 0 < int(port) < 65_536 for port in ports):
        return None
    return OptionError(what="the port in the url is not a number from 1 to 65535", fix=fix)


def stream_answer(
    connection: psycopg.Connection[Any], statement: str, limit: int, seconds: float
) -> Iterator[Sequence[Any]]:
    """Yield the columns' names, then at most `limit` rows; raises psycopg.errors.QueryCanceled after `seconds`."""
    for name in ("json", "jsonb"):
        # As values of Python they would take several times their length.
        connection.adapters.register_loader(name, TextLoader)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = {round(seconds * 1000)}")
        # Sent as binary, it is one statement by the protocol: nothing behind a semicolon is run.
        cursor.execute(f"DECLARE headrace_answer NO SCROLL CURSOR FOR {statement}", binary=True)
        # `stream` takes one row at a time from the connection, and does not give the columns of an answer without rows.
        cursor.execute("FETCH 0 FROM headrace_answer")
        yield [column.name for column in cursor.description or ()]
        yield from cursor.stream(f"FETCH {limit} FROM headrace_answer")


def table_identity(url: str, schema: str, table: str) -> Identity | None:
    """Return the server, the database and the table with its schema; None where the url cannot be read.

    Without a schema it is the first of the search path that the url gives, and `public`, the server's own default.
    """
    try:
        options: dict[str, Any] = {} if encoding_fault(url, may="#") else dict(conninfo_to_dict(url))
    except psycopg.Error:
        return None
    if not options:
        return None
    user = options.get("user") or os.environ.get("PGUSER") or getpass.getuser()
    set_by_url = _SEARCH_PATH.search(str(options.get("options") or os.environ.get("PGOPTIONS", "")).replace("\\ ", " "))
    return {
        "system": "postgres",
        "server": ",".join(sorted(_servers(options))),
        "database": str(options.get("dbname") or os.environ.get("PGDATABASE") or user),
        "table": f"{schema or (set_by_url[1] if set_by_url else 'public')}.{table}",
    }


def _servers(options: dict[str, Any]) -> set[str]:
    """Return each server that the url names; several are tried in turn."""
    if service := options.get("service"):
        return {f"service {service}"}
    hosts = str(options.get("host") or options.get("hostaddr") or os.environ.get("PGHOST") or "").split(",")
    ports = str(options.get("port") or os.environ.get("PGPORT") or "5432").split(",")
    pairs = zip(hosts, ports if len(ports) == len(hosts) else ports * len(hosts), strict=False)
    return {
        f"{os.path.realpath(host)}:{port or '5432'}"
        if host.startswith("/") and host.rstrip("/") not in _SOCKETS
        else canonical_server(host, port or "5432")
        for host, port in pairs
    }


_READ_ONLY = """
SELECT current_user, current_database(), pg_is_in_recovery(), source FROM pg_settings
WHERE name = 'default_transaction_read_only'
"""
# The statement that ends it, by where the setting comes from.
_RESETS = {
    "user": "ALTER ROLE {0} RESET default_transaction_read_only",
    "database": "ALTER DATABASE {1} RESET default_transaction_read_only",
    "database user": "ALTER ROLE {0} IN DATABASE {1} RESET default_transaction_read_only",
}


def read_only_cause(url: str) -> OptionError | None:
    """Return why the server lets this user only read, where it is the server that writes; None: it is a standby."""
    row = None
    with suppress(psycopg.Error), closing(_open(url)) as other:
        other.silence_seconds = CONNECT_SECONDS
        row = other.execute(_READ_ONLY).fetchone()
    if row is None or row[2]:
        return None
    user, database, _, source = row
    fault = f"PostgreSQL at {place(url)} may only be read: default_transaction_read_only is on (set by: {source})"
    fix = _RESETS.get(source, "set default_transaction_read_only to off there").format(user, database)
    return OptionError(code="HR414", what=fault, fix=fix)


def place(url: str) -> str:
    """Host and port as libpq reads them."""
    try:
        options = conninfo_to_dict(url)
    except psycopg.Error:
        options = {}
    return f"{options.get('host') or options.get('hostaddr') or 'localhost'}:{options.get('port') or 5432}"
