"""A plan that is kept in a file is applied as long as it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import CheckpointError, HeadraceError
from headrace.model import Project
from headrace.planner.difference import PlanDifference
from headrace.planner.saved import read, save
from headrace.planner.verdict import Judgement
from tests.runner.projects import land, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIFFERENCE = PlanDifference(verdict="forward", part="the filter", before="a", now="b", why="rows from now on")
FOUND = Judgement(
    query="cheap", verdict="forward", from_batch=3, differences=(DIFFERENCE,), checkpoint="c", ran="r", written="w"
)
# What is found when the plan is applied, and what is said of it.
LATER = {
    "the same": (FOUND, ""),
    "more batches": (replace(FOUND, from_batch=7), ""),
    "another checkpoint": (replace(FOUND, checkpoint="d"), "started from scratch"),
    "another form has run": (replace(FOUND, ran="s"), "another form of it has run"),
    "other code": (replace(FOUND, written="x"), "written otherwise"),
    "another verdict": (replace(FOUND, verdict="rebuild"), "judged otherwise"),
    "another difference": (replace(FOUND, differences=(replace(DIFFERENCE, now="c"),)), "not the same"),
}


def _project(root: Path) -> Project:
    return hr.load(write_project(root, QUERY.format(amount=5)))


QUERY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="cheap"), trigger=hr.available_now)
def cheap(events):
    return events.where(F.col("amount") < {amount})
"""


@pytest.mark.plain
@pytest.mark.parametrize(("later", "words"), LATER.values(), ids=LATER)
def test_it_holds_until_something_else_is_found(tmp_path: Path, later: Judgement, words: str) -> None:
    project = _project(tmp_path / "p")
    save(tmp_path / "a.plan", project, "id", [FOUND])
    saved = read(tmp_path / "a.plan")
    saved.require_project(project, "id")
    assert saved.accepting(project).queries["cheap"].on_change == "forward"
    if not words:
        saved.require([later])
        return
    with pytest.raises(CheckpointError, match=words) as raised:
        saved.require([later])
    assert [finding.code for finding in raised.value.findings] == ["HR660"]


def _editing(edit: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        document = json.loads(text)
        edit(document)
        return json.dumps(document)

    return edited


UNREADABLE: dict[str, Callable[[str], str]] = {
    "no JSON": lambda text: text[: len(text) // 2],
    "another kind of value": lambda text: "[]",
    "a part is missing": _editing(lambda document: document.pop("made")),
    "of a newer version": _editing(lambda document: document.update(format=99)),
    "a query without a verdict": _editing(lambda document: document["queries"]["cheap"].pop("verdict")),
}


@pytest.mark.plain
@pytest.mark.parametrize("edit", UNREADABLE.values(), ids=UNREADABLE)
def test_another_file_is_no_plan(tmp_path: Path, edit: Callable[[str], str]) -> None:
    file = tmp_path / "a.plan"
    save(file, _project(tmp_path / "p"), "id", [FOUND])
    file.write_text(edit(file.read_text()))
    with pytest.raises(HeadraceError, match="HR660"):
        read(file)


@pytest.mark.plain
def test_a_plan_of_another_project_or_of_a_query_that_is_gone_is_refused(tmp_path: Path) -> None:
    project = _project(tmp_path / "p")
    save(tmp_path / "a.plan", project, "id", [FOUND])
    with pytest.raises(HeadraceError, match="HR660"):
        hr.apply(project, tmp_path / "a.plan")
    with pytest.raises(HeadraceError, match=r"HR660.*no longer declared"):
        read(tmp_path / "a.plan").require_project(replace(project, queries={}), "id")
    with pytest.raises(HeadraceError, match=r"HR660.*No such file"):
        read(tmp_path / "b.plan")
    with pytest.raises(HeadraceError, match="HR663"):
        save(tmp_path / "no" / "a.plan", project, "id", [FOUND])


@pytest.mark.spark
def test_a_stricter_filter_is_accepted_as_planned_and_no_other_one(tmp_path: Path, spark: SparkSession) -> None:
    root, plan = tmp_path / "p", tmp_path / "a.plan"

    def write(amount: int) -> Project:
        return hr.load(write_project(root, QUERY.format(amount=amount)))

    project = write(9)
    land(root, 0, [{"name": "a", "amount": 8}])
    assert hr.run(project, spark=spark).exit_code == 0
    project = write(5)
    result = hr.plan(project, spark=spark, save=plan)
    assert [entry.verdict for entry in result] == ["forward"]
    land(root, 1, [{"name": "b", "amount": 8}, {"name": "c", "amount": 4}])
    with pytest.raises(CheckpointError, match=r"HR660.*written otherwise"):
        hr.apply(write(6), plan, spark=spark)
    assert rows(root / "out.db", "SELECT name FROM cheap") == [("a",)]
    assert hr.apply(write(5), plan, spark=spark).exit_code == 0
    assert rows(root / "out.db", "SELECT name FROM cheap ORDER BY name") == [("a",), ("c",)]
    # What the plan was made of has run by now: it is spent.
    with pytest.raises(CheckpointError, match=r"HR660.*another form of it has run"):
        hr.apply(write(5), plan, spark=spark)
