"""A connection that leaves the machine is secured by one option, and a note says when it is not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pymysql
import pytest

from headrace.connectors.sql.mysql import MySql
from headrace.connectors.sql.mysql.connection import MySqlAddress
from headrace.connectors.sql.postgres import Postgres
from headrace.contract import OptionError, is_loopback

from .databases import Database, database

__all__ = ["database"]
KINDS = {"postgresql": Postgres, "mysql": MySql}


def problems_of(url: str, **options: str) -> list[OptionError]:
    return list(KINDS[urlsplit(url).scheme](url=url, table="t", **options).problems("append"))  # type: ignore[arg-type]


NOTED = {
    "nothing": ("postgresql://db/x", "mysql://db/x", ["HR482"]),
    "encrypted-only": ("postgresql://db/x?sslmode=require", "mysql://db/x?ssl_mode=required", ["HR482"]),
    "certificate-of-the-client-only": ("postgresql://db/x?sslcert=c", "mysql://db/x?ssl_cert=c", ["HR482"]),
    "checked": ("postgresql://db/x?sslmode=verify-ca", "mysql://db/x?ssl_mode=verify_ca", []),
    "an-authority": ("postgresql://db/x?sslmode=require&sslrootcert=c", "mysql://db/x?ssl_ca=c", []),
    "this-machine": ("postgresql://127.0.0.1/x", "mysql://localhost/x", []),
}


@pytest.mark.plain
@pytest.mark.parametrize(("postgres", "mysql", "codes"), NOTED.values(), ids=NOTED)
def test_a_connection_that_anybody_could_answer_is_noted(postgres: str, mysql: str, codes: list[str]) -> None:
    for url in (postgres, mysql):
        assert [(finding.code, finding.severity) for finding in problems_of(url)] == [
            (code, "note") for code in codes
        ], url


@pytest.mark.plain
@pytest.mark.parametrize("kind", KINDS)
def test_an_option_of_tls_that_would_be_ignored_is_refused(kind: str, tmp_path: Path) -> None:
    mode = "sslmode=require" if kind == "postgresql" else "ssl_mode=required"
    for findings in (
        problems_of(f"{kind}://db/x?{mode}", tls="verify-full"),
        problems_of(f"{kind}://db/x", tls_ca="/ca.crt"),
        problems_of(f"{kind}://db/x", tls="verify-full", tls_ca=str(tmp_path / "none.crt")),
    ):
        assert [(finding.code, finding.severity) for finding in findings] == [("HR113", "error")]


@pytest.mark.plain
def test_verify_full_is_asked_of_each_client_in_its_own_words(tmp_path: Path) -> None:
    ca = tmp_path / "a b.crt"
    ca.touch()
    options = {}
    for kind, sink in KINDS.items():
        url = sink(url=f"{kind}://db/x?connect_timeout=3", table="t", tls="verify-full", tls_ca=str(ca)).secured_url()
        options[kind] = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()}
    assert options == {
        "postgresql": {"connect_timeout": "3", "sslmode": "verify-full", "sslrootcert": str(ca)},
        "mysql": {"connect_timeout": "3", "ssl_mode": "verify_identity", "ssl_ca": str(ca)},
    }


@pytest.mark.plain
def test_a_certificate_of_the_client_is_not_ignored() -> None:
    assert MySqlAddress.parse("mysql://db/x?ssl_cert=c").ssl_mode == "required"


@pytest.mark.plain
@pytest.mark.parametrize(
    ("host", "within"),
    [
        ("localhost", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("/run/postgresql", True),
        ("db", False),
        ("10.0.0.1", False),
    ],
)
def test_a_host_of_this_machine_is_known(host: str, within: bool) -> None:
    assert is_loopback(host) is within


@pytest.mark.services
@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_verify_full_takes_the_right_server_only(database: Database, request: pytest.FixtureRequest) -> None:
    """The right one, one of another authority, and one whose certificate is made out to another host."""
    server = request.getfixturevalue(f"{database.kind}_server")
    other = request.getfixturevalue("mariadb_server" if database.kind == "postgres" else "postgres_server")
    right = {"tls": "verify-full", "tls_ca": str(server.root_certificate)}
    with closing(database.sink(**right).dialect().connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            if database.kind == "postgres"
            else "SHOW STATUS LIKE 'Ssl_cipher'"
        )
        assert str(cursor.fetchone()[-1]) not in ("false", "", "None")
    elsewhere = database.place.replace("127.0.0.1", "0.0.0.0")
    for place, options in (
        (database.place, {**right, "tls_ca": str(other.root_certificate)}),
        (elsewhere, right),
    ):
        dialect = Database(database.kind, place).sink(**options).dialect()
        with pytest.raises(dialect.errors) as raised:
            dialect.connect()
        assert dialect.explain(raised.value).code == "HR414"
        assert isinstance(raised.value, pymysql.MySQLError) is (database.kind == "mariadb")
