"""Under each setting of servers, roles and poolers, a plain client reads what was written, or a finding says why not.

HEADRACE_SETTINGS=N tries N random combinations of the settings (9 by default, of which `make test` has one), of the
seed HEADRACE_SEED. They are read by Spark as well.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import count, cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

import psycopg
import pytest

from headrace.connectors.sql.postgres import connection as postgres_connection
from headrace.errors import SinkError
from services import MariaDbServer, PostgresServer
from services.locales import LOCALES, missing_locale
from services.pgbouncer import PgBouncerServer, PoolMode
from tests.rounds import as_long, only_usual, rounds
from tests.servers import home_of, unavailable

from .changed import apply_feed
from .databases import Database
from .fed import BAD, LATER, ROWS, Fed, fold_by_name, quarantined_rows, sqlite_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMBINATIONS, SEED = int(os.environ.get("HEADRACE_SETTINGS", "9")), int(os.environ.get("HEADRACE_SEED", "1"))
_numbers = count()


def live(database: Database, home: Path, spark: SparkSession | None = None, **options: Any) -> None:
    """Write a result by each way, replace, rewind and discard it; at each step it is what was written."""
    fed = Fed(database, home, options={"rewindable": "7 days", **options})
    writer = fed.open()
    fed.write(writer, 0, [*ROWS, BAD], staged=False)
    fed.write(writer, 1, [*LATER, BAD], staged=True)
    writer.store.disconnect()
    assert fed.read_rows() == fold_by_name(ROWS, LATER)
    assert [row["note"] for row in quarantined_rows(database)] == [BAD["note"]] * 2
    if spark is not None:
        rows = fed.sink.read_back(spark, fed.context).rows.collect()
        assert sorted((row.asDict(recursive=True) for row in rows), key=lambda row: row["name"]) == [
            {**row, "at": row["at"] and row["at"].replace(tzinfo=None)} for row in fold_by_name(ROWS, LATER)
        ]
    fed.sink.rewind.go_back(fed.context, 0, _no_session)
    assert fed.read_rows() == fold_by_name(ROWS)
    whole = replace(fed, mode="complete", query="whole", options={**fed.options, "table": "whole"})
    writer = whole.open()
    whole.write(writer, 0, [*ROWS, BAD], staged=True)
    whole.write(writer, 1, LATER, staged=False)
    writer.store.disconnect()
    assert whole.read_rows() == fold_by_name(LATER)
    apply_feed(database, home)
    for life in (fed, whole):
        life.sink.reset.archive(life.context, _no_session)
        life.sink.reset.discard(life.context, _no_session)
    assert database.left_over() == []


def _no_session() -> Any:
    raise AssertionError("no Spark is needed")


def require_refusal(
    database: Database, home: Path, code: str, words: str, *, checked: bool = True, **more: Any
) -> None:
    """Require that the start, before it creates anything in the database, and the check end with one finding."""
    fed = Fed(database, home, **more)
    with pytest.raises(SinkError, match=words) as refusal:
        fed.open()
    assert [(finding.code, bool(finding.fix)) for finding in refusal.value.findings] == [(code, True)]
    if checked:
        assert tuple(fed.sink.check_connection(fed.frame, fed.context)) == refusal.value.findings
    schema = "current_schema()" if database.kind == "postgres" else "database()"
    assert database.query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}") == []


def together(settings: Mapping[str, str]) -> list[Any]:
    """Return the cases for `parametrize`: as many settings at once as do not exclude each other, and each one alone.

    Those alone are marked `long`: they show which setting it is.
    """
    groups: list[dict[str, str]] = []
    for setting in settings.values():
        variable = setting.split(" ")[0]
        group = next((group for group in groups if variable not in group), None)
        if group is None:
            groups.append(group := {})
        group[variable] = setting
    cases = [pytest.param(list(group.values()), id=f"together {number}") for number, group in enumerate(groups, 1)]
    alone = [pytest.param([setting], id=name, marks=pytest.mark.long) for name, setting in settings.items()]
    return [*cases, *alone]


# ------------------------------------------------------------------------------------------------------- PostgreSQL


ROLE = {
    "DateStyle SQL": "datestyle = 'SQL, DMY'",
    "DateStyle German": "datestyle = 'German'",
    "client_encoding LATIN1": "client_encoding = 'LATIN1'",
    "client_encoding SQL_ASCII": "client_encoding = 'SQL_ASCII'",
    "array_nulls off": "array_nulls = off",
    "bytea_output escape": "bytea_output = 'escape'",
    "standard_conforming_strings off": "standard_conforming_strings = off",
    "intervalstyle": "intervalstyle = 'sql_standard'",
    "extra_float_digits": "extra_float_digits = -15",
    "time zone": "timezone = 'America/St_Johns'",
    "search_path to a schema": "search_path = 'Other \"x\"', public",
    "serializable": "default_transaction_isolation = 'serializable'",
    "row_security off": "row_security = off",
    "statement_timeout": "statement_timeout = '20s'",
    "lc_monetary and lc_messages": "lc_messages = 'C.UTF-8'",
    "synchronous_commit off": "synchronous_commit = off",
    "quote_all_identifiers": "quote_all_identifiers = on",
}


@dataclass
class Prepared:
    """A database of PostgreSQL as an administrator has set it up, and the url of the role that writes."""

    server: PostgresServer
    name: str

    @property
    def admin(self) -> Database:
        """The database as its administrator reads it, with default settings."""
        return Database("postgres", self.server.url(database=self.name))

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.admin.place, autocommit=True, sslmode="disable") as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def writer(self, *settings: str) -> Writer:
        """A new role whose sessions have these settings."""
        role = f"writer_{next(_numbers)}"
        self.run(
            f"CREATE ROLE {role} LOGIN PASSWORD 'writes'",
            f'GRANT CREATE ON DATABASE "{self.name}" TO {role}',
            f"GRANT CREATE ON SCHEMA public TO {role}",
            'CREATE SCHEMA IF NOT EXISTS "Other ""x"""',
            f'GRANT CREATE, USAGE ON SCHEMA "Other ""x""" TO {role}',
            *(f"ALTER ROLE {role} {setting}" for setting in settings),
        )
        return Writer("postgres", self.server.url(database=self.name, user=role, password="writes"), self.admin)


@dataclass(frozen=True)
class Writer(Database):
    """A database that a sink reaches by one url, and a plain client by another; `schema`: where the client looks."""

    plain: Database
    schema: str = "public"

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with closing(self.plain.connect()) as connection:
            cursor = connection.cursor()
            if self.kind == "postgres":
                cursor.execute("SELECT set_config('search_path', quote_ident(%s), false)", [self.schema])
            else:
                cursor.execute("SET SESSION sql_select_limit = 1000")
            cursor.execute(statement if self.kind == "postgres" else statement.replace('"', "`"))
            return list(map(tuple, cursor.fetchall())) if cursor.description else []


@pytest.fixture
def prepared(postgres_server: PostgresServer) -> Iterator[Prepared]:
    name = f"settings_{next(_numbers)}"
    postgres_server.create_database(name)
    yield Prepared(postgres_server, name)
    postgres_server.drop_database(name)


@pytest.mark.services
@pytest.mark.parametrize("settings", together(ROLE))
def test_a_role_writes_and_reads_the_same_whatever_its_sessions_are_set_to(
    prepared: Prepared, tmp_path: Path, settings: Sequence[str]
) -> None:
    writer = prepared.writer(*(f"SET {setting}" for setting in settings))
    schema = 'Other "x"' if any("Other" in setting for setting in settings) else "public"
    live(replace(writer, schema=schema), tmp_path)


@pytest.mark.services
@pytest.mark.parametrize(
    "settings",
    together({name: ROLE[name] for name in ("DateStyle German", "client_encoding LATIN1", "array_nulls off")}),
)
def test_a_database_s_own_defaults_change_nothing(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Sequence[str]
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    prepared.run(*(f'ALTER DATABASE "{prepared.name}" SET {setting}' for setting in settings))
    writer = prepared.writer()
    monkeypatch.setattr(Database, "connect", _with_defaults_of(prepared.server))
    live(writer, tmp_path)


def _with_defaults_of(server: PostgresServer) -> Any:
    """Connections as a client gets them that no default of the database reaches."""
    defaults = "-c datestyle=ISO -c client_encoding=UTF8 -c array_nulls=on"

    def connect(database: Database) -> Any:
        return psycopg.connect(
            database.place, autocommit=True, options=defaults, sslmode="disable", client_encoding="UTF8"
        )

    return connect


@pytest.mark.services
@pytest.mark.parametrize("language", rounds(LOCALES))
def test_a_database_of_another_language_takes_and_gives_the_same(
    prepared: Prepared, tmp_path: Path, language: str
) -> None:
    """Its order of letters and their cases, the comma of its numbers, its names of days and its messages."""
    if sentence := missing_locale(language):
        unavailable(sentence)
    prepared.server.drop_database(prepared.name)
    prepared.server.execute(f"CREATE DATABASE \"{prepared.name}\" TEMPLATE template0 LOCALE '{language}'")
    names = ("lc_messages", "lc_monetary", "lc_numeric", "lc_time")
    live(prepared.writer(*(f"SET {name} = '{language}'" for name in names)), tmp_path)


REFUSED = {
    "a database of LATIN1": (["ENCODING LATIN1"], (), "HR420", "stores texts as LATIN1"),
    "a role that may only read": ([], ("SET default_transaction_read_only = on",), "HR420", "may only read"),
    "a role of one connection": ([], ("CONNECTION LIMIT 1",), "HR420", "takes 1 connections at once"),
}


@pytest.mark.services
@pytest.mark.parametrize(("made", "settings", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_transaction_can_set_is_refused_before_anything_is_made(
    prepared: Prepared, tmp_path: Path, made: list[str], settings: tuple[str, ...], code: str, words: str
) -> None:
    if made:
        prepared.server.drop_database(prepared.name)
        prepared.server.execute(f"CREATE DATABASE \"{prepared.name}\" ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    require_refusal(prepared.writer(*settings), tmp_path, code, words)


@pytest.mark.services
def test_a_role_of_few_connections_writes(prepared: Prepared, tmp_path: Path) -> None:
    live(prepared.writer("CONNECTION LIMIT 4"), tmp_path)


PARTITIONED = """
CREATE TABLE result (name text COLLATE "C" PRIMARY KEY, flag boolean, small smallint, large bigint,
ratio double precision, amount numeric(20, 4), note text, bytes bytea, day date, at timestamptz, local timestamp,
parts jsonb, tiny smallint, whole integer, single real, short text, named jsonb, "inner" jsonb) PARTITION BY HASH (name)
"""


@pytest.mark.services
def test_a_partitioned_table_takes_and_gives_the_same(prepared: Prepared, tmp_path: Path) -> None:
    writer = prepared.writer()
    prepared.run(
        PARTITIONED,
        *(f"CREATE TABLE r{at} PARTITION OF result FOR VALUES WITH (MODULUS 2, REMAINDER {at})" for at in (0, 1)),
        f"ALTER TABLE result OWNER TO {urlsplit(writer.place).username}",
    )
    live(writer, tmp_path)


@pytest.mark.services
@pytest.mark.parametrize("published", rounds(["FOR ALL TABLES", "FOR TABLES IN SCHEMA public"]))
def test_with_a_publication_every_table_of_ours_has_a_key_and_a_result_without_one_is_refused(
    prepared: Prepared, tmp_path: Path, published: str
) -> None:
    writer = prepared.writer()
    live(writer, tmp_path)
    prepared.run(f"CREATE PUBLICATION everything {published}")
    live(writer, tmp_path / "published")
    for mode in ("append", "complete"):
        fed = Fed(writer, tmp_path, mode, key=(), query=mode, options={"table": mode})
        with pytest.raises(SinkError, match=f"HR422.*'everything' .*'{mode}'"):
            fed.open()
    prepared.run("DROP PUBLICATION everything", "CREATE PUBLICATION inserts FOR ALL TABLES WITH (publish = 'insert')")
    Fed(writer, tmp_path, "append", key=(), query="append", options={"table": "append"}).open()


# ----------------------------------------------------------------------------------------------------------- poolers


@pytest.fixture
def pooler(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[PgBouncerServer]:
    if sentence := PgBouncerServer.missing():
        unavailable(sentence)
    mode: PoolMode = request.param
    # One session for each connection that is held in session mode, as for each transaction in the other.
    server = PgBouncerServer(home_of("pgbouncer"), postgres_server, mode, sessions=6 if mode == "session" else 3)
    server.create()
    yield server
    server.remove()


DIRT = (
    "SET default_transaction_read_only = on",
    "SET search_path = pg_catalog",
    "SET datestyle = 'German'",
    "SET array_nulls = off",
    "SET bytea_output = 'escape'",
    "SET lock_timeout = '1ms'",
)


@pytest.mark.services
@pytest.mark.parametrize(
    ("pooler", "dirt"),
    [("session", DIRT), ("transaction", DIRT), as_long(("transaction", ()))],
    ids=["session", "transaction, after others", "transaction"],
    indirect=["pooler"],
)
def test_through_a_pooler_nothing_is_taken_from_a_session_and_nothing_is_left_on_one(
    prepared: Prepared, pooler: PgBouncerServer, tmp_path: Path, dirt: Sequence[str]
) -> None:
    prepared.run(
        f"ALTER DATABASE \"{prepared.name}\" SET intervalstyle = 'sql_standard'", "CREATE TABLE others (n int)"
    )
    place, options = pooler.url(database=prepared.name), {}
    if pooler.mode == "transaction":
        # The pooler knows no options at the start.
        prepared.run("CREATE SCHEMA results")
        place, options = f"{place}?options=-c%20search_path%3Dresults", {"silence_seconds": 1.0}
    with Sessions(pooler, prepared.name) as sessions:
        for session in sessions:
            session.execute("BEGIN")
        clean = _settings(sessions[0])
        for session in sessions:
            for statement in dirt:
                session.execute(statement)
            session.execute("COMMIT")
        # A pooler in session mode cleans a session that it gets back.
        expected = _settings(sessions[0]) if pooler.mode == "transaction" else clean
    schema = "results" if pooler.mode == "transaction" else "public"
    live(Writer("postgres", place, prepared.admin, schema), tmp_path, **options)
    with Sessions(pooler, prepared.name) as sessions:
        for session in sessions:
            session.execute("BEGIN READ WRITE")
            session.execute("INSERT INTO public.others VALUES (1)")
        left = [_settings(session) for session in sessions]
        for session in sessions:
            session.execute("COMMIT")
    assert left == [expected] * pooler.sessions
    assert prepared.admin.query("SELECT relname FROM pg_class WHERE relpersistence = 't'") == []
    assert prepared.admin.query("SELECT count(*) FROM others") == [(pooler.sessions,)]


@pytest.mark.services
@pytest.mark.parametrize("pooler", ["transaction"], indirect=True)
def test_a_long_statement_is_looked_for_in_the_session_that_the_pooler_gave_it(
    prepared: Prepared, pooler: PgBouncerServer
) -> None:
    place = pooler.url(database=prepared.name)
    with closing(postgres_connection.connect(place, silence_seconds=1.0)) as connection:
        connection.execute("SELECT 1")
        assert connection.session is not None
        former = connection.session.pid
        with psycopg.connect(place, autocommit=True, sslmode="disable") as other:
            other.execute("BEGIN")
            assert other.execute("SELECT pg_backend_pid()").fetchone() == (former,)
            # The former session is idle, and another client's.
            assert connection.execute("SELECT pg_sleep(2.5) IS NOT NULL").fetchone() == (True,)
            assert connection.session.pid != former
            other.execute("COMMIT")


def _settings(session: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    names = [statement.split()[1] for statement in DIRT if "datestyle" not in statement]
    names += ["client_min_messages", "row_security", "intervalstyle", "extra_float_digits", "client_encoding"]
    return [session.execute("SELECT %s, current_setting(%s)", (name, name)).fetchall()[0] for name in names]


class Sessions:
    """As many connections through a pooler as it has sessions."""

    def __init__(self, pooler: PgBouncerServer, database: str) -> None:
        place = pooler.url(database=database)
        self.open = [
            psycopg.connect(place, autocommit=True, sslmode="disable", prepare_threshold=None)
            for _ in range(pooler.sessions)
        ]

    def __enter__(self) -> list[psycopg.Connection[Any]]:
        return self.open

    def __exit__(self, *_: object) -> None:
        for connection in self.open:
            connection.close()


@pytest.mark.services
@pytest.mark.parametrize("pooler", ["statement"], indirect=True)
def test_a_pooler_that_allows_no_transaction_is_refused(
    prepared: Prepared, pooler: PgBouncerServer, tmp_path: Path
) -> None:
    writer = Writer("postgres", pooler.url(database=prepared.name), prepared.admin)
    require_refusal(writer, tmp_path, "HR420", "allows no transaction", checked=False)


@pytest.mark.services
def test_a_pooler_that_reports_another_encoding_of_its_sessions_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    with Lying(prepared.server.port) as port:
        place = urlsplit(prepared.admin.place)
        url = place._replace(netloc=f"{place.netloc.rpartition(':')[0]}:{port}", query="sslmode=disable").geturl()
        require_refusal(
            Writer("postgres", url, prepared.admin),
            tmp_path,
            "HR420",
            "client_encoding iso8859-1, and they have UTF8",
            checked=False,
        )


class Lying:
    """A proxy by which every session of a PostgreSQL server has client_encoding LATIN1."""

    def __init__(self, port: int) -> None:
        self.port, self.listener = port, socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> int:
        threading.Thread(target=self._accept, daemon=True).start()
        return int(self.listener.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, server = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server.makefile("rb"), client), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), server:
            while some := client.recv(65_536):
                server.sendall(some)

    def _answer(self, server: BinaryIO, client: socket.socket) -> None:
        """Each message is a letter, its length with itself, and its body; S reports a parameter."""
        with suppress(OSError), client:
            while len(head := server.read(5)) == 5:
                body = server.read(int.from_bytes(head[1:], "big") - 4)
                if head[:1] == b"S":
                    body = body.replace(b"client_encoding\0UTF8\0", b"client_encoding\0LATIN1\0")
                client.sendall(head[:1] + (len(body) + 4).to_bytes(4, "big") + body)


# ------------------------------------------------------------------------------------------------- MySQL and MariaDB


GLOBAL = {
    "innodb_force_primary_key": "innodb_force_primary_key = ON",
    "ANSI_QUOTES": "sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES'",
    "NO_BACKSLASH_ESCAPES": "sql_mode = 'NO_BACKSLASH_ESCAPES'",
    "PAD_CHAR_TO_FULL_LENGTH": "sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'",
    "EMPTY_STRING_IS_NULL": "sql_mode = 'EMPTY_STRING_IS_NULL,ORACLE'",
    "not strict": "sql_mode = ''",
    "time_zone": "time_zone = '-03:30'",
    "lc_time_names": "lc_time_names = 'tr_TR'",
    "div_precision_increment": "div_precision_increment = 0",
    "max_allowed_packet of 1 MB": "max_allowed_packet = 1048576",
    "sql_safe_updates": "sql_safe_updates = ON",
    "a server of latin1": "character_set_server = latin1",
    "serializable": "tx_isolation = 'SERIALIZABLE'",
    "read uncommitted": "tx_isolation = 'READ-UNCOMMITTED'",
    "read only by default": "tx_read_only = ON",
    "autocommit off": "autocommit = OFF",
    "completion_type": "completion_type = 'CHAIN'",
    "sql_select_limit": "sql_select_limit = 1",
    "unique_checks off": "unique_checks = OFF",
    "default_storage_engine": "default_storage_engine = MyISAM",
    "local_infile off": "local_infile = OFF",
}


@dataclass
class Globals:
    """The settings of a MariaDB server, for one test."""

    server: MariaDbServer
    former: dict[str, Any]

    def set(self, setting: str) -> None:
        name = setting.split(" ")[0]
        plain = Database("mariadb", self.server.url(database="mysql"))
        [(value,)] = plain.query(f"SELECT @@GLOBAL.{name}")
        self.former[name] = value
        self.server.execute(f"SET GLOBAL {setting}")

    def restore(self) -> None:
        for name, value in self.former.items():
            self.server.execute(f"SET GLOBAL {name} = {value if isinstance(value, int) else repr(value)}")


@pytest.fixture
def mariadb_globals(mariadb_server: MariaDbServer) -> Iterator[Globals]:
    globals_ = Globals(mariadb_server, {})
    yield globals_
    globals_.restore()


@pytest.mark.services
@pytest.mark.parametrize("settings", together(GLOBAL))
def test_a_server_of_mariadb_keeps_the_same_whatever_its_sessions_are_set_to(
    mariadb_url: str, mariadb_globals: Globals, tmp_path: Path, settings: Sequence[str]
) -> None:
    for setting in settings:
        mariadb_globals.set(setting)
    live(Writer("mariadb", mariadb_url, Database("mariadb", mariadb_url)), tmp_path)


@pytest.mark.services
def test_a_database_of_latin1_keeps_every_text(mariadb_server: MariaDbServer, mariadb_url: str, tmp_path: Path) -> None:
    database = Database("mariadb", mariadb_url)
    database.query(f"ALTER DATABASE {urlsplit(mariadb_url).path[1:]} CHARACTER SET latin1 COLLATE latin1_german1_ci")
    live(database, tmp_path)


@pytest.mark.services
def test_mariadb_that_forces_keys_refuses_a_result_without_one_by_name(
    mariadb_url: str, mariadb_globals: Globals, tmp_path: Path
) -> None:
    mariadb_globals.set("innodb_force_primary_key = ON")
    database = Database("mariadb", mariadb_url)
    words = r"no table without a primary key \(innodb_force_primary_key\), and 'result'"
    require_refusal(database, tmp_path, "HR422", words, mode="append", key=())


@pytest.mark.services
def test_a_server_that_may_only_be_read_is_refused_before_anything_is_made(
    mariadb_url: str, mariadb_globals: Globals, tmp_path: Path
) -> None:
    plain = Database("mariadb", mariadb_url)
    plain.query("CREATE OR REPLACE USER writes IDENTIFIED BY 'writes'")
    plain.query(f"GRANT ALL ON `{urlsplit(mariadb_url).path[1:]}`.* TO writes")
    mariadb_globals.set("read_only = ON")
    place = urlsplit(mariadb_url)._replace(netloc=f"writes:writes@{urlsplit(mariadb_url).netloc.rpartition('@')[2]}")
    require_refusal(Writer("mariadb", place.geturl(), plain), tmp_path, "HR405", "may only be read", checked=False)


# ------------------------------------------------------------------------------------------------------------ SQLite


JOURNALS, ENCODINGS = ("DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF", "WAL"), ("UTF-8", "UTF-16le", "UTF-16be")


@pytest.mark.plain
@pytest.mark.parametrize(
    ("journal", "encoding"),
    only_usual(product(JOURNALS, ENCODINGS), *zip(JOURNALS, cycle(ENCODINGS), strict=False)),
)
def test_a_sqlite_file_of_any_journal_and_encoding_keeps_the_same(tmp_path: Path, journal: str, encoding: str) -> None:
    file = tmp_path / "result.db"
    made = (f"PRAGMA encoding = '{encoding}'", f"PRAGMA journal_mode = {journal}", "CREATE TABLE others (n)")
    sqlite_file(file, *made)
    live(Database("sqlite", str(file)), tmp_path)
    assert Database("sqlite", str(file)).query("PRAGMA encoding") == [(encoding,)]


# ------------------------------------------------------------------------------------------------------ combinations


@pytest.mark.services
@pytest.mark.long
@pytest.mark.parametrize("number", range(COMBINATIONS))
def test_any_settings_together_change_nothing(
    prepared: Prepared,
    mariadb_url: str,
    mariadb_globals: Globals,
    tmp_path: Path,
    spark: SparkSession,
    number: int,
) -> None:
    chance = random.Random(SEED * 1_000 + number)
    settings = [setting for setting in ROLE.values() if "Other" not in setting]
    chosen = {setting.split(" ")[0]: setting for setting in chance.sample(settings, chance.randint(2, 6))}
    live(prepared.writer(*(f"SET {setting}" for setting in chosen.values())), tmp_path / "postgres", spark)
    chosen = {setting.split(" ")[0]: setting for setting in chance.sample([*GLOBAL.values()], chance.randint(2, 6))}
    for setting in chosen.values():
        mariadb_globals.set(setting)
    live(Writer("mariadb", mariadb_url, Database("mariadb", mariadb_url)), tmp_path / "mariadb", spark)
