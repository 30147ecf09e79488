"""What a database answers while the query runs: a few rows, within its time, and it only reads."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.connectors.sql.answers import DatabaseAnswers
from headrace.connectors.sql.dialect import Connection
from headrace.connectors.sql.sink import DatabaseSink
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.contract import LedgerLine, OptionError
from headrace.errors import Finding, SinkError
from tests.connectors.sql.databases import Database, database

__all__ = ["database"]
EVERY = [
    pytest.param("sqlite", marks=pytest.mark.plain),
    pytest.param("postgres", marks=pytest.mark.services),
    pytest.param("mariadb", marks=pytest.mark.services),
]
SERVERS = EVERY[1:]
SCHEMA = {"fields": [{"name": "n", "type": "long"}, {"name": "hour", "type": "timestamp"}]}
REFUSED = {
    "a write": ("DELETE FROM result", "HR889"),
    "a write in a comment's shadow": ("/* SELECT */ -- SELECT\n DELETE FROM result", "HR889"),
    "a second statement": ("SELECT 1; DELETE FROM result", "HR889"),
    "a write behind a commit": ("SELECT 1; COMMIT; DELETE FROM result", "HR889"),
    "a write behind WITH": ("WITH x AS (SELECT 1) DELETE FROM result", "HR889"),
    "a file of the server": ("SELECT * FROM result INTO OUTFILE '/tmp/headrace'", "HR889"),
    "a file that is read": ("SELECT load_file('/etc/passwd')", "HR889"),
    "a file that is read as text": ("SELECT pg_read_file('/etc/passwd')", "HR889"),
    "a large object": ("SELECT lo_export(1, '/tmp/headrace')", "HR889"),
    "the sessions of others": ("SELECT pg_terminate_backend(pid) FROM pg_stat_activity", "HR889"),
    "a text that is run": ("SELECT query_to_xml('SELECT pg_' || 'reload_conf()', true, true, '')", "HR889"),
    "a name that is not there": ("SELECT * FROM resalt", "HR889"),
    "nothing": (" ; ", "HR889"),
}
# Statements that read by their words and write by what they call: only the transaction stops them.
WRITING_FUNCTION = {
    "postgres": "CREATE FUNCTION emptied() RETURNS BIGINT LANGUAGE SQL AS 'DELETE FROM result; SELECT 1::BIGINT'",
    "mariadb": "CREATE FUNCTION emptied() RETURNS BIGINT BEGIN DELETE FROM result; RETURN 1; END",
}
SLOW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    "postgres": "SELECT pg_sleep(20)",
    "mariadb": "SELECT count(*) FROM result a, result b, result c, result d, result e, result f, result g",
}


def fill(database: Database, rows: int) -> None:
    database.query("CREATE TABLE result (n BIGINT, hour VARCHAR(40))")
    values = ", ".join(f"({n}, '2026-01-01 {n // 60:02}:{n % 60:02}')" for n in range(rows))
    database.query(f"INSERT INTO result VALUES {values}")


def reader(database: Database, *grants: str) -> str:
    """The url of a new user who may read the database, and what `grants` say of {user}; "" where there are no users."""
    if database.kind == "sqlite":
        return ""
    parts = urlsplit(database.place)
    name = f"reader_{parts.path[1:]}_{len(grants)}"
    if database.kind == "postgres":
        made = (f"DROP ROLE IF EXISTS {name}", f"CREATE ROLE {name} LOGIN PASSWORD 'reads-only'")
        given = (f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}",)
    else:
        made = (f"CREATE OR REPLACE USER {name} IDENTIFIED BY 'reads-only'",)
        given = (f"GRANT SELECT, EXECUTE ON `{parts.path[1:]}`.* TO {name}",)
    for statement in (*made, *given, *(grant.format(user=name) for grant in grants)):
        database.query(statement)
    return parts._replace(netloc=f"{name}:reads-only@{parts.netloc.rpartition('@')[2]}").geturl()


def sink_with_reader(database: Database, *grants: str) -> DatabaseSink:
    """A sink whose database is asked by a user that may only read."""
    url = reader(database, *grants)
    return database.sink(**({"ask_url": url} if url else {}))


def refusal(sink: DatabaseSink, statement: str, seconds: float = 5) -> Finding:
    with pytest.raises(SinkError) as raised:
        sink.answers.ask(statement, limit=2, seconds=seconds)
    (finding,) = raised.value.findings
    return finding


@pytest.mark.parametrize("database", EVERY, indirect=True)
def test_a_database_answers_what_reads_and_nothing_else(database: Database) -> None:
    fill(database, 300)
    if database.kind in WRITING_FUNCTION:
        database.query(WRITING_FUNCTION[database.kind])
    sink = sink_with_reader(database)
    few = sink.answers.ask("  SELECT n, hour, NULL AS \tnone FROM result ORDER BY n;", limit=2, seconds=5)
    assert (few.columns, few.more) == (("n", "hour", "none"), True)
    assert few.rows == ((0, "2026-01-01 00:00", None), (1, "2026-01-01 00:01", None))
    assert sink.answers.ask("SELECT 1.5 AS x", limit=2, seconds=5).rows[0][0] in (1.5, "1.5")
    for name, (statement, code) in REFUSED.items():
        finding = refusal(sink, statement)
        assert (finding.code, "\n" in finding.what) == (code, False), name
    if database.kind in WRITING_FUNCTION:
        finding = refusal(sink, "SELECT emptied()")
        assert (finding.code, "read-only" in finding.what.lower().replace(" ", "-")) == ("HR889", True)
    assert "the answer took longer than" in refusal(sink, SLOW[database.kind], seconds=0.5).what
    assert database.query("SELECT count(*) FROM result") == [(300,)]


@pytest.mark.parametrize("database", EVERY, indirect=True)
def test_the_newest_rows_come_by_the_time_column_and_the_ledger_shows_what_is_in(database: Database) -> None:
    fill(database, 100)
    database.query("CREATE TABLE _headrace_tables (table_name VARCHAR(40), query_id VARCHAR(40), spark_schema TEXT)")
    mark = "?" if database.kind == "sqlite" else "%s"
    database.query(f"INSERT INTO _headrace_tables VALUES ('result', 'ours', {mark})", [json.dumps(SCHEMA)])
    columns = "query_id VARCHAR(40), query VARCHAR(40), generation INT, table_name VARCHAR(40), batch BIGINT"
    database.query(f"CREATE TABLE _headrace_ledger ({columns}, row_count BIGINT, committed_at VARCHAR(40))")
    for batch, whose in ((4, "ours"), (5, "ours"), (6, "theirs")):
        database.query(f"INSERT INTO _headrace_ledger VALUES ('{whose}', 'q', 2, 'result', {batch}, 7, 'then')")
    sink = database.sink()
    answer = sink.answers.newest_rows(limit=2, seconds=5)
    assert answer is not None
    assert ([row[0] for row in answer.rows], answer.more, answer.order) == ([99, 98], True, "the greatest hour first")
    assert sink.answers.ledger_lines(2, 5, 9) == {5: LedgerLine(rows=7, committed_at="then")}


@pytest.mark.plain
def test_sqlite_reads_no_other_file_and_makes_none(tmp_path: Path) -> None:
    database, other = Database("sqlite", str(tmp_path / "result.db")), tmp_path / "other.db"
    fill(database, 1)
    for statement in (f"SELECT 1 FROM (SELECT load_extension('{other}'))", "SELECT length(zeroblob(1000000000))"):
        with pytest.raises(SinkError, match="HR889"):
            database.sink().answers.ask(statement, limit=1, seconds=5)
    with pytest.raises(SinkError, match="HR889"):
        database.sink().answers.ask(f"ATTACH '{other}' AS other", limit=1, seconds=5)
    assert not other.exists()


LARGE = {
    "sqlite": "SELECT zeroblob(9000000) FROM result LIMIT 60",
    "postgres": "SELECT repeat('x', 10000000) FROM generate_series(1, 60)",
    "mariadb": "SELECT repeat('x', 10000000) FROM result LIMIT 60",
}


@pytest.mark.parametrize("database", EVERY, indirect=True)
def test_rows_of_any_size_are_cut_as_they_come_and_fill_no_memory(database: Database) -> None:
    fill(database, 100)
    sink = sink_with_reader(database)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = sink.answers.ask(LARGE[database.kind], limit=200, seconds=30)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (len(answer.rows), answer.more, answer.stopped[:13]) in [
        (7, True, "stopped after"),
        (8, True, "stopped after"),
    ]
    assert {len(str(row[0])) for row in answer.rows} in ({503}, {502})
    assert held < 9_000, "in kB: not even one of the rows"


@pytest.mark.parametrize("database", [EVERY[1]], indirect=True)
def test_a_row_that_does_not_fit_into_memory_is_a_sentence(database: Database) -> None:
    finding = refusal(sink_with_reader(database), "SELECT repeat('x', 500000000)", seconds=120)
    assert (finding.code, "MB of memory" in finding.what) == ("HR888", True), finding


@dataclass(frozen=True)
class Asleep(SqliteDialect):
    """A client that waits for its server, whatever its settings."""

    def answer(self, connection: Connection, statement: str, limit: int, seconds: float) -> Iterator[Sequence[Any]]:
        time.sleep(300)
        yield ()


@pytest.mark.plain
def test_what_waits_in_spite_of_its_limit_is_killed(tmp_path: Path) -> None:
    fill(Database("sqlite", str(tmp_path / "result.db")), 1)
    asleep = Asleep(str(tmp_path / "result.db"))
    answers = DatabaseAnswers(dialect=lambda: asleep, dialect_to_ask=lambda: asleep, table="result")
    with pytest.raises(SinkError, match="HR888: the answer took longer"):
        answers.ask("SELECT 1", limit=1, seconds=0.1)


MORE_RIGHTS = {
    "postgres": {"GRANT pg_read_server_files TO {user}": "is a member of pg_read_server_files"},
    "mariadb": {"GRANT FILE ON *.* TO {user}": "has the right FILE on all databases"},
}


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_user_with_more_rights_than_reading_is_not_asked(database: Database) -> None:
    fill(database, 1)
    for grant, words in MORE_RIGHTS[database.kind].items():
        finding = refusal(sink_with_reader(database, grant), "SELECT 1")
        assert (finding.code, words in finding.what, "ask_url" in finding.fix) == ("HR895", True, True)
    own = refusal(database.sink(), "SELECT 1").what
    assert "has the rights of the superuser" in own or "has the right ALL PRIVILEGES on all databases" in own


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_wrong_password_is_not_a_fault_of_the_statement(database: Database) -> None:
    fill(database, 1)
    wrong = reader(database).replace("reads-only", "wrong")
    findings = [refusal(database.sink(ask_url=wrong), "SELECT 1")]
    with pytest.raises(SinkError) as raised:
        database.sink().__class__(url=wrong, table="result").answers.newest_rows(limit=1, seconds=5)
    findings += raised.value.findings
    for finding in findings:
        assert (finding.code, "password" in finding.what, "wrong" in str(finding)) == ("HR414", True, False)


@pytest.mark.parametrize(
    ("kind", "url"), [("postgres", "mysql://r@localhost/d"), ("mariadb", "postgresql://r@localhost/d")]
)
@pytest.mark.plain
def test_an_ask_url_is_looked_at_like_the_url(kind: str, url: str) -> None:
    place = {"postgres": "postgresql://w@localhost/d", "mariadb": "mysql://w@localhost/d"}[kind]
    problems: list[OptionError] = list(Database(kind, place).sink(ask_url=url).problems("append"))
    assert [(finding.code, finding.what.partition(":")[0]) for finding in problems] == [("HR113", "ask_url")]


def ask_url_problems(sink: DatabaseSink) -> list[OptionError]:
    return [problem for problem in sink.problems("append") if problem.what.startswith("ask_url names")]


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("postgres", "postgresql://r@localhost"),
        ("postgres", "postgresql://r@localhost/other"),
        ("postgres", "postgresql://r@localhost?dbname=other"),
        ("mariadb", "mysql://r@localhost"),
        ("mariadb", "mysql://r@localhost/other"),
    ],
)
@pytest.mark.plain
def test_an_ask_url_names_the_database_of_the_result(kind: str, url: str) -> None:
    scheme = url.partition("://")[0]
    sink = Database(kind, f"{scheme}://w@localhost/d").sink(ask_url=url)
    (problem,) = ask_url_problems(sink)
    assert (problem.code, "the url 'd'" in problem.what) == ("HR113", True)
    for right in (f"{scheme}://r@replica/d", *([f"{scheme}://r@localhost?dbname=d"] if kind == "postgres" else [])):
        assert ask_url_problems(replace(sink, ask_url=right)) == []
