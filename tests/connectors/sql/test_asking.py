"""What a database answers while the query runs: it reads, in its time, a few rows, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.contract import LedgerLine
from headrace.errors import SinkError
from tests.connectors.sql.databases import Database, database

__all__ = ["database"]
EVERY = [
    pytest.param("sqlite", marks=pytest.mark.plain),
    pytest.param("postgres", marks=pytest.mark.services),
    pytest.param("mariadb", marks=pytest.mark.services),
]
SCHEMA = {"fields": [{"name": "n", "type": "long"}, {"name": "hour", "type": "timestamp"}]}
REFUSED = {
    "a write": ("DELETE FROM result", "HR887"),
    "a write in a comment's shadow": ("/* SELECT */ -- SELECT\n DELETE FROM result", "HR887"),
    "a second statement": ("SELECT 1; DELETE FROM result", "HR889"),
    "a write behind a commit": ("SELECT 1; COMMIT; DELETE FROM result", "HR889"),
    "a write behind WITH": ("WITH x AS (SELECT 1) DELETE FROM result", "HR889"),
    "a file of the server": ("SELECT * FROM result INTO OUTFILE '/tmp/headrace'", "HR887"),
    "a name that is not there": ("SELECT * FROM resalt", "HR889"),
    "nothing": (" ; ", "HR887"),
}
# What reads by its words and writes by what it calls is stopped by the transaction alone.
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


@pytest.mark.parametrize("database", EVERY, indirect=True)
def test_a_database_answers_what_reads_and_nothing_else(database: Database) -> None:
    fill(database, 300)
    sink = database.sink()
    few = sink.ask("  SELECT n, hour, NULL AS \tnone FROM result ORDER BY n;", limit=2, seconds=5)
    assert (few.columns, few.more) == (("n", "hour", "none"), True)
    assert few.rows == ((0, "2026-01-01 00:00", None), (1, "2026-01-01 00:01", None))
    assert sink.ask("SELECT 1.5 AS x", limit=2, seconds=5).rows[0][0] in (1.5, "1.5")
    for name, (statement, code) in REFUSED.items():
        with pytest.raises(SinkError) as raised:
            sink.ask(statement, limit=2, seconds=5)
        (finding,) = raised.value.findings
        assert (finding.code, "\n" in finding.what) == (code, False), name
    if database.kind in WRITING_FUNCTION:
        database.query(WRITING_FUNCTION[database.kind])
        with pytest.raises(SinkError, match=r"HR889.*(read-only|READ ONLY)"):
            sink.ask("SELECT emptied()", limit=2, seconds=5)
    with pytest.raises(SinkError, match="HR888: the answer took longer than"):
        sink.ask(SLOW[database.kind], limit=2, seconds=0.5)
    assert database.query("SELECT count(*) FROM result") == [(300,)]


@pytest.mark.parametrize("database", EVERY, indirect=True)
def test_the_newest_rows_come_by_the_time_column_and_the_ledger_tells_what_is_in(database: Database) -> None:
    fill(database, 100)
    database.query("CREATE TABLE _headrace_tables (table_name VARCHAR(40), application VARCHAR(40), spark_schema TEXT)")
    mark = "?" if database.kind == "sqlite" else "%s"
    database.query(f"INSERT INTO _headrace_tables VALUES ('result', 'ours', {mark})", [json.dumps(SCHEMA)])
    columns = "application VARCHAR(40), query VARCHAR(40), generation INT, table_name VARCHAR(40), batch BIGINT"
    database.query(f"CREATE TABLE _headrace_ledger ({columns}, row_count BIGINT, committed_at VARCHAR(40))")
    for batch, whose in ((4, "ours"), (5, "ours"), (6, "theirs")):
        database.query(f"INSERT INTO _headrace_ledger VALUES ('{whose}', 'q', 2, 'result', {batch}, 7, 'then')")
    sink = database.sink()
    found = sink.newest_rows(limit=2, seconds=5)
    assert found is not None
    assert ([row[0] for row in found.rows], found.more, found.order) == ([99, 98], True, "the greatest hour first")
    assert sink.ledger_lines("q", 2, 5, 9) == {5: LedgerLine(rows=7, committed_at="then")}


@pytest.mark.plain
def test_sqlite_reads_no_other_file_and_makes_none(tmp_path: Path) -> None:
    database, other = Database("sqlite", str(tmp_path / "result.db")), tmp_path / "other.db"
    fill(database, 1)
    for statement in (f"SELECT 1 FROM (SELECT load_extension('{other}'))", "SELECT length(zeroblob(1000000000))"):
        with pytest.raises(SinkError, match="HR889"):
            database.sink().ask(statement, limit=1, seconds=5)
    with pytest.raises(SinkError, match="HR887"):
        database.sink().ask(f"ATTACH '{other}' AS other", limit=1, seconds=5)
    assert not other.exists()
