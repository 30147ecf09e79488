"""`headrace plan` refuses what `headrace run` refuses, with the same findings."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

import headrace as hr
from headrace.errors import HeadraceError
from headrace.model import Project
from headrace.planner.verdict import list_refusals
from headrace.starter.start import start
from tests.registered import layout_in
from tests.runner.projects import keep, land, restore, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import Sessions

pytestmark = pytest.mark.spark
CHEAP = """
@hr.query(sink=hr.sink.sqlite("{database}", table="cheap"), trigger=hr.available_now)
def {name}(events):
    return events.where(F.col("amount") < 5)
"""


def _project(root: Path, *, name: str = "cheap", database: str = "out.db", more: str = "") -> Project:
    return hr.load(write_project(root, CHEAP.format(name=name, database=database) + more))


def _elsewhere(root: Path) -> Project:
    project = _project(root)
    (root / "other").mkdir()
    (root / "pipeline.py").write_text((root / "pipeline.py").read_text().replace('"landing"', '"other"'))
    return hr.load(project.root)


def _copy(old: Path, new: Path) -> None:
    """Copy a database with what its log holds."""
    for file in new.parent.glob(f"{new.name}*"):
        file.unlink()
    with closing(sqlite3.connect(old)) as read, closing(sqlite3.connect(new)) as written:
        read.backup(written)


def _older_sink(root: Path) -> Project:
    _copy(root / "before.db", root / "out.db")
    return _project(root)


def _without_sink(root: Path) -> Project:
    for file in root.glob("out.db*"):
        file.unlink()
    return _project(root)


def _without_planned(root: Path) -> Project:
    """A batch that was planned and not committed, whose files are gone."""
    for file in (layout_in(root / ".headrace", "cheap").home / "checkpoint" / "commits").glob("*2*"):
        file.unlink()
    (root / "landing" / "0002.json").unlink()
    return _project(root)


def _roll_up(root: Path) -> Project:
    body = CHEAP.replace("hr.available_now", 'hr.available_now, mode="complete"')
    body = body.replace('where(F.col("amount") < 5)', 'rollup("name").count()')
    return hr.load(write_project(root, body.format(name="cheap", database="out.db")))


REFUSED: dict[str, tuple[str, Callable[[Path], Project]]] = {
    "another database": ("HR410", lambda root: _project(root, database="other.db")),
    "the database is gone": ("HR410", _without_sink),
    "an older copy of the database": ("HR410", _older_sink),
    "another name of the query": ("HR547", lambda root: _project(root, name="low")),
    "rollup": ("HR277", _roll_up),
    "another directory": ("HR525", _elsewhere),
    "the files of a planned batch are gone": ("HR303", _without_planned),
}


@pytest.fixture(scope="module")
def ran(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was run after each of three files, with a copy of its database after the first."""
    root = tmp_path_factory.mktemp("ran") / "p"
    project = _project(root)
    for number in range(3):
        land(root, number, [{"name": "a", "amount": number}])
        assert hr.run(project, spark=sessions.with_connectors(())).exit_code == 0
        if number == 0:
            _copy(root / "out.db", root / "before.db")
    return keep(root)


@pytest.mark.parametrize(("code", "edit"), REFUSED.values(), ids=REFUSED)
def test_plan_refuses_what_run_refuses(
    ran: Path, spark: SparkSession, code: str, edit: Callable[[Path], Project]
) -> None:
    project = edit(restore(ran))
    (query,) = project.queries.values()
    (judgement,) = hr.plan(project, spark=spark)
    refusals = {(refusal.code, refusal.what, refusal.fix) for refusal in list_refusals(query, judgement)}
    with pytest.raises(HeadraceError) as raised:
        start(project, query, spark)
    assert {finding.code for finding in raised.value.findings} == {code}
    assert refusals >= {(finding.code, finding.what, finding.fix) for finding in raised.value.findings}
    assert judgement.verdict == "forbidden"


UDF = """
@F.udf("int")
def scaled(value):
    return value * 2

@hr.query(sink=hr.sink.sqlite("out.db", table="scaled"), trigger=hr.available_now)
def q(events):
    return events.select("name", scaled("amount").alias("amount"))
"""


def test_a_query_is_the_same_whether_a_session_was_there_when_it_was_loaded_or_not(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = write_project(tmp_path / "p", UDF, batches=[[{"name": "a", "amount": 1}]])
    ran = [sys.executable, "-m", "headrace", "run", "-C", str(root)]  # As a command it loads without a session.
    subprocess.run(ran, check=True, capture_output=True, timeout=300)
    land(root, 1, [{"name": "b", "amount": 2}])
    project = hr.load(root)
    (judgement,) = hr.plan(project, spark=spark)
    assert (judgement.verdict, judgement.differences, judgement.notes) == ("same", (), ())
    assert hr.start(project, spark=spark).wait().exit_code == 0
    assert rows(root / "out.db", "SELECT name, amount FROM scaled ORDER BY name") == [("a", 2), ("b", 4)]
    # As in a notebook, where the function is declared in the session.
    (query,) = project.queries.values()
    scope: dict[str, object] = {}
    text = UDF.partition("@hr.query")[0]
    notebook = tmp_path / "cell.py"
    notebook.write_text(text)
    exec(compile(text, str(notebook), "exec"), {"F": functions}, scope)
    query.transform.function.__globals__["scaled"] = scope["scaled"]
    (judgement,) = hr.plan(project, spark=spark)
    assert (judgement.verdict, judgement.notes) == ("same", ())


CLOCK = """
from datetime import datetime

LIMIT = {limit}

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", trigger=hr.available_now)
def totals(events):
    recent = events.where((F.current_timestamp() > F.lit(datetime.now())) & (F.col("amount") < LIMIT))
    return recent.groupBy("name").count()
"""
CLOCKS = {"the code is the same": (9, "safe"), "a value of the code differs": (8, "rebuild")}


@pytest.mark.parametrize(("limit", "verdict"), CLOCKS.values(), ids=CLOCKS)
def test_a_value_of_the_clock_is_taken_again_by_the_same_code_alone(
    tmp_path: Path, spark: SparkSession, limit: int, verdict: str
) -> None:
    root = write_project(tmp_path / "p", CLOCK.format(limit=9), batches=[[{"name": "a", "amount": 1}]])
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    again = hr.load(write_project(root, CLOCK.format(limit=limit)))
    (judgement,) = hr.plan(again, spark=spark)
    assert judgement.verdict == verdict, judgement.differences
    assert any("from a clock" in difference.why for difference in judgement.differences) is (verdict == "safe")
    assert hr.run(again, spark=spark).outcomes[0].refused is (verdict != "safe")


AGED = """
import headrace as hr
aged = hr.source.files("landing", format="json", schema="name STRING, amount INT"{age})

@hr.query(sink=hr.sink.sqlite("out.db", table="rows"), trigger=hr.available_now)
def q(aged):
    return aged
"""
AGES = {"that no file is beyond": ("1h", "same"), "that a file is beyond": ("1500ms", "forward")}


@pytest.mark.parametrize(("age", "verdict"), AGES.values(), ids=AGES)
def test_an_age_limit_counts_where_it_leaves_out_a_file(
    tmp_path: Path, spark: SparkSession, age: str, verdict: str
) -> None:
    root = write_project(tmp_path / "p", "", batches=[[{"name": str(n), "amount": n}] for n in range(3)])
    entries = []
    for given in ("", f', max_file_age="{age}"'):
        (root / "pipeline.py").write_text(AGED.format(age=given))
        entries += hr.plan(hr.load(root), spark=spark)
        if not given:
            assert hr.run(hr.load(root), spark=spark).exit_code == 0
    assert [entry.verdict for entry in entries] == ["same", verdict]
