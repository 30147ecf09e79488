"""Where a database is and what its errors mean, without a server."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pymysql
import pytest

from headrace.connectors.sql.mysql import MySql
from headrace.connectors.sql.mysql.columns import existing_column
from headrace.connectors.sql.mysql.connection import AddressError, MySqlAddress
from headrace.connectors.sql.mysql.dialect import MySqlDialect
from headrace.connectors.sql.postgres import Postgres
from headrace.connectors.sql.postgres.dialect import PostgresDialect
from headrace.contract import OptionError

pytestmark = pytest.mark.plain


def test_an_address_is_read_with_its_escapes_and_never_shows_its_password() -> None:
    address = MySqlAddress.parse("mysql://me:p%40ss%2Fw@db.example:3307/phones?ssl_mode=required")
    assert (address.host, address.port, address.user, address.database) == ("db.example", 3307, "me", "phones")
    assert address.password == "p@ss/w"
    assert address.options == {"ssl_mode": "required"}
    assert "p@ss" not in repr(address)


ADDRESSES = {
    "other-scheme": ("http://db/phones", "does not begin with mysql://"),
    "no-database": ("mysql://db", "names no database"),
    "bad-port": ("mysql://db:port/phones", "not a number from 1 to 65535"),
    "unknown-option": ("mysql://db/phones?charset=latin1", "unknown option 'charset'"),
    "unknown-mode": ("mysql://db/phones?ssl_mode=perhaps", "none of disabled"),
}


@pytest.mark.parametrize(("url", "words"), ADDRESSES.values(), ids=ADDRESSES)
def test_a_wrong_address_is_reported_without_a_server(url: str, words: str) -> None:
    with pytest.raises(AddressError, match=words):
        MySqlAddress.parse(url)
    [problem] = MySql(url=url, table="t").problems("append")
    assert (problem.code, words in problem.what) == ("HR113", True)


WRONG = {
    "scheme": (Postgres(url="mysql://localhost/x", table="t"), "append", "HR113"),
    "long-name": (Postgres(url="postgresql://localhost/x", table="t" * 64), "append", "HR113"),
    "own-name": (Postgres(url="postgresql://localhost/x", table="_headrace_ledger"), "append", "HR113"),
    "no-key": (Postgres(url="postgresql://localhost/x", table="t"), "update", "HR403"),
    "key-twice": (MySql(url="mysql://localhost/x", table="t", key=["a", "a"]), "append", "HR113"),
    "retry": (MySql(url="mysql://localhost/x", table="t", retry_seconds=-1), "append", "HR113"),
}


@pytest.mark.parametrize(("sink", "mode", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_reported_without_a_server(sink: Postgres | MySql, mode: str, code: str) -> None:
    assert [problem.code for problem in sink.problems(mode)] == [code]  # type: ignore[arg-type]


POSTGRES_TEXTS = {
    "password": ('connection failed: FATAL:  password authentication failed for user "x"', "HR414", False),
    "refused": ("connection failed: Connection refused", "HR405", True),
    "lost": ("consuming input failed: SSL error: unexpected eof while reading", "HR405", True),
    "certificate": ('root certificate file "/x.crt" does not exist', "HR414", False),
    "database": ('FATAL:  database "x" does not exist', "HR414", False),
    "full": ("FATAL:  sorry, too many clients already", "HR405", True),
    "full for the role": ('FATAL:  too many connections for role "x"', "HR405", True),
    "full at the pooler": ("FATAL:  no more connections allowed (max_client_conn)", "HR405", True),
}


@pytest.mark.parametrize(("text", "code", "passes"), POSTGRES_TEXTS.values(), ids=POSTGRES_TEXTS)
def test_an_error_of_a_postgres_connection_is_known(text: str, code: str, passes: bool) -> None:
    error = psycopg.OperationalError(text)
    finding = PostgresDialect("postgresql://me:sesame@db:5433/x").explain(error)
    assert (finding.code, PostgresDialect("postgresql://db/x").is_transient(error)) == (code, passes)
    assert finding.what.startswith("PostgreSQL at db:5433 ")
    assert finding.fix


POSTGRES_STATES = {
    "a division by zero": ("22012", "HR408"),
    "a constraint": ("23514", "HR408"),
    "a view's condition": ("44000", "HR408"),
    "too wide a row": ("54000", "HR408"),
    "a trigger": ("P0001", "HR408"),
    "syntax": ("42601", "HR425"),
    "what it cannot do": ("0A000", "HR425"),
    "memory": ("53200", "HR405"),
    "a statement that was ended": ("57014", "HR405"),
    "an internal error": ("XX000", "HR405"),
}


@pytest.mark.parametrize(("state", "code"), POSTGRES_STATES.values(), ids=POSTGRES_STATES)
def test_what_postgres_refuses_of_a_row_is_final_and_what_is_of_the_moment_passes(state: str, code: str) -> None:
    error = psycopg.errors.lookup(state)("said\nDETAIL:  more")
    finding = PostgresDialect("postgresql://db/x").explain(error)
    assert (finding.code, "said; DETAIL: more" in finding.what, bool(finding.fix)) == (code, True, True)
    assert bool(PostgresDialect("postgresql://db/x").refusal(error)) is (code == "HR408")


def test_a_full_disk_does_not_pass() -> None:
    assert not PostgresDialect("postgresql://db/x").is_transient(psycopg.errors.DiskFull("could not extend file"))
    finding = PostgresDialect("postgresql://db/x").explain(psycopg.errors.DiskFull("could not extend file"))
    assert "no space left" in finding.what


MYSQL_ERRORS = {
    "password": (1045, "HR414", False),
    "refused": (2003, "HR405", True),
    "lost": (2013, "HR405", True),
    "deadlock": (1213, "HR405", True),
    "lock": (1205, "HR405", True),
    "disk": (1021, "HR405", False),
    "table-full": (1114, "HR405", False),
    "gone": (1146, "HR405", False),
    "read-only": (1290, "HR405", False),
    "tls": (2026, "HR414", False),
    "a user's limit": (1203, "HR405", True),
    "a user's limit of statements": (1226, "HR405", True),
    "transactions that read": (1792, "HR414", False),
    "a node that joins": (1047, "HR405", False),
    "syntax": (1064, "HR425", False),
    **{f"a row ({number})": (number, "HR408", False) for number in (1048, 1062, 1118, 1153, 1264, 1292, 1366, 1406)},
    **{f"a row ({number})": (number, "HR408", False) for number in (1452, 1526, 1644, 3819, 4025)},
}


@pytest.mark.parametrize(("number", "code", "passes"), MYSQL_ERRORS.values(), ids=MYSQL_ERRORS)
def test_an_error_of_mysql_is_known(number: int, code: str, passes: bool) -> None:
    error = pymysql.err.OperationalError(number, "it said sesame/1")
    finding: OptionError = MySqlDialect("mysql://me:sesame%2F1@db/x").explain(error)
    assert (finding.code, MySqlDialect("mysql://db/x").is_transient(error)) == (code, passes)
    assert finding.what.startswith("MySQL at db:3306 ")
    assert "sesame" not in finding.what


def test_a_closed_connection_of_pymysql_passes() -> None:
    assert MySqlDialect("mysql://db/x").is_transient(pymysql.err.InterfaceError(0, ""))


def test_no_password_of_postgres_is_repeated() -> None:
    error = psycopg.OperationalError("cannot use sesame/1 or sesame%2F1")
    finding = PostgresDialect("postgresql://me:sesame%2F1@db/x").explain(error)
    assert "sesame" not in finding.what


@pytest.mark.parametrize(
    ("collation", "joins"),
    [("utf8mb4_nopad_bin", False), ("utf8mb4_0900_bin", False), ("utf8mb4_bin", True), ("utf8mb4_general_ci", True)],
)
def test_a_collation_that_takes_two_texts_for_one_key_is_reported(collation: str, joins: bool) -> None:
    column = existing_column("name", "varchar(20)", collation)
    assert bool(column.key_blocker) is joins
    assert column.limit.characters == 20


def test_a_column_whose_name_a_database_would_cut_is_refused_by_name() -> None:
    sink = Postgres(url="postgresql://localhost/x", table="t")
    assert list(sink.long_names(["a" * 63])) == []
    (finding,) = sink.long_names(["é" * 32, "b"])
    assert (finding.code, finding.what.endswith("é' has 64 bytes, and the database takes 63")) == ("HR404", True)
    (problem,) = replace(sink, table="é" * 32).problems("append")
    assert (problem.code, problem.what.endswith("é' has 64 bytes, and the database takes 63")) == ("HR113", True)
