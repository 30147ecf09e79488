"""A query that is reset runs again and ends in the batch answer, over a result that stays or is set aside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from tests.changes.rebuild.scenes import Killed, kill_at
from tests.runner.projects import land, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.files("out", format="json"), mode="append")
def copies(events):
    return events
"""
CHANGED = BODY.replace('F.sum("amount").alias("total")', 'F.max("amount").alias("most")')


def test_a_reset_query_ends_in_the_batch_answer(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", BODY, batches=[[{"name": "a", "amount": 1}, {"name": "b", "amount": 2}]])

    def run_again() -> hr.Project:
        project = hr.load(root)
        assert hr.run(project, trigger=hr.available_now, spark=spark).exit_code == 0
        return project

    def held(query: str) -> list[object]:
        if query == "totals":
            return list(rows(root / "out.db", "SELECT * FROM totals ORDER BY 1"))
        return sorted(map(tuple, spark.read.json(str(root / "out")).select("name", "amount").collect()))

    project = run_again()
    # The table's columns change, and a file sink's directory is written again.
    (root / "pipeline.py").write_text((root / "pipeline.py").read_text().replace(BODY, CHANGED))
    project = hr.load(root)
    for query in ("totals", "copies"):
        hr.reset(project, query, result="drop").apply()
    land(root, 1, [{"name": "a", "amount": 5}])
    project = run_again()
    assert (held("totals"), held("copies")) == ([("a", 5), ("b", 2)], [("a", 1), ("a", 5), ("b", 2)])
    assert {hr.verify(project, query, spark=spark).state for query in project.queries} == {"equal"}
    with pytest.raises(HeadraceError, match="it has run since"):
        hr.reset(project, "copies").undo()
    # The rows stay and are replaced; what does not come again stays, and verify reports it.
    assert hr.reset(project, "totals", result="keep").apply().generation == 3
    assert held("totals") == [("a", 5), ("b", 2)]
    project = run_again()
    assert hr.verify(project, "totals", spark=spark).state == "equal"
    (root / "pipeline.py").write_text(
        (root / "pipeline.py").read_text().replace("events.group", "events.where(\"name <> 'b'\").group")
    )
    hr.reset(hr.load(root), "totals", result="keep").apply()
    project = run_again()
    assert held("totals") == [("a", 5), ("b", 2)]
    assert hr.verify(project, "totals", spark=spark).state == "mismatch"
    # A result that was set aside comes back, and the query continues.
    hr.reset(project, "copies", result="drop").apply()
    assert not (root / "out").exists()
    hr.reset(project, "copies").undo()
    land(root, 2, [{"name": "c", "amount": 9}])
    project = run_again()
    assert held("copies") == [("a", 1), ("a", 5), ("b", 2), ("c", 9)]
    assert hr.verify(project, "copies", spark=spark).state == "equal"
    for query in ("totals", "copies"):
        assert hr.reset(project, query).discard().set_aside == ()
    assert {hr.verify(run_again(), query, spark=spark).state for query in ("copies",)} == {"equal"}


def test_a_start_refuses_a_reset_that_was_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", BODY, batches=[[{"name": "a", "amount": 1}]])
    project = hr.load(root)
    assert hr.run(project, ["totals"], trigger=hr.available_now, spark=spark).exit_code == 0
    with pytest.raises(Killed):
        hr.reset(project, "totals", result="drop").apply(reached=kill_at("recorded"))
    (outcome,) = hr.run(project, ["totals"], trigger=hr.available_now, spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, "headrace change resume totals" in outcome.finding.fix) == ("HR581", True)
