"""A check says before the start what a sink would refuse, and one query's fault keeps no other from its own answer."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import CheckFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# For each query: its SELECT, its sink, the code that refuses it and a part of what is said.
QUERIES = {
    "good": ("SELECT name, total FROM events", "sqlite: {path: good.db, table: t}", ""),
    "no_key": ("SELECT name FROM events", "sqlite: {path: a.db, table: t, key: [id]}", "HR404 column 'id'"),
    "twice": ("SELECT name, total AS NAME FROM events", "sqlite: {path: b.db, table: t}", "HR404 differ by case only"),
    "void": ("SELECT name, NULL AS v FROM events", "sqlite: {path: c.db, table: t}", "HR404 column 'v' is void"),
    "interval": (
        "SELECT INTERVAL '1' DAY AS v, name FROM events",
        "sqlite: {path: d.db, table: t}",
        "HR404 column 'v' is interval day",
    ),
    "renamed": (
        "SELECT name, total AS amount FROM events",
        "sqlite: {path: there.db, table: t}",
        "HR406 no column 'amount'",
    ),
    "csv_of_lists": (
        "SELECT array(name) AS v FROM events",
        "files: {path: out1, format: csv}",
        "HR404 column 'v' is array",
    ),
    "files_twice": ("SELECT name, total AS name FROM events", "files: out2", "HR404 two columns 'name'"),
    "text_of_two": (
        "SELECT name, name AS b FROM events",
        "files: {path: out3, format: text}",
        "HR404 holds one column",
    ),
    "no_partition": (
        "SELECT name FROM events",
        "files: {path: out4, partition_by: [day]}",
        "HR404 partition_by names day",
    ),
    "unknown_column": ("SELECT nothing FROM events", "sqlite: {path: e.db, table: t}", "HR214 nothing"),
    "unknown_input": ("SELECT * FROM nowhere", "sqlite: {path: f.db, table: t}", "HR204 nowhere"),
    "far": ("SELECT name FROM events", "postgres: {url: 'postgresql://u:sesame@127.0.0.1:1/d', table: t}", ""),
}


@pytest.fixture
def project(tmp_path: Path) -> hr.Project:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"name": "a", "total": 1}\n')
    queries = "".join(
        f'  {name}: {{select: "{select}", sink: {{{sink}}}}}\n' for name, (select, sink, _) in QUERIES.items()
    )
    (tmp_path / "headrace.yml").write_text(
        "sources:\n  events: {files: {path: in, format: json, schema: 'name STRING, total BIGINT'}}\n"
        f"queries:\n{queries}"
    )
    with sqlite3.connect(tmp_path / "there.db") as there:
        there.execute("CREATE TABLE t (name TEXT, total BIGINT)")
    return hr.load(tmp_path, environ={})


def test_what_a_sink_would_refuse_is_an_error_of_its_own_query(spark: SparkSession, project: hr.Project) -> None:
    result = hr.check(project, spark=spark)
    errors = {
        name: [finding for finding in result.findings if finding.where == query.where and finding.severity == "error"]
        for name, query in project.queries.items()
    }
    for name, (_, _, refused) in QUERIES.items():
        if not refused:
            assert errors[name] == []
            continue
        code, _, words = refused.partition(" ")
        [finding] = errors[name]
        assert (finding.code, words in finding.what) == (code, True), finding
        assert finding.fix
    assert set(result.guarantees) == {"good", "far"}
    assert all(guarantee.proven for guarantee in result.guarantees.values())
    [warning] = [finding for finding in result.findings if finding.severity == "warning"]
    assert (warning.code, warning.where) == ("HR469", project.queries["far"].where)
    assert "127.0.0.1:1 does not answer" in warning.what
    assert not list(project.root.glob("*.db-*"))
    assert sorted(file.name for file in project.root.glob("*.db")) == ["there.db"]


def test_without_connections_nothing_is_asked(spark: SparkSession, project: hr.Project) -> None:
    result = hr.check(project, ["far", "renamed", "no_key"], spark=spark, connect=False)
    assert {finding.code for finding in result.findings} == {"HR204", "HR404"}
    assert set(result.guarantees) == {"far", "renamed"}


def test_a_sound_query_runs_by_its_name_whatever_is_wrong_with_others(spark: SparkSession, project: hr.Project) -> None:
    with pytest.raises(CheckFailed, match="HR204"):
        hr.run(project, trigger=hr.available_now, spark=spark)
    [outcome] = hr.run(project, ["good"], trigger=hr.available_now, spark=spark).outcomes
    assert (outcome.state, outcome.rows) == ("finished", 1)
