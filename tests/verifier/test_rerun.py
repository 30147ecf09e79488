"""Functions with a state of their own, which no batch answers, are proved by another run over the same batches."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.testing import Crash, CrashBeforeCommit, timeline
from headrace.verifier.proof import verify
from tests.rounds import rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("example", "table", "key"),
    rounds([("transform-with-state", "sensors", "sensor"), ("user-sessions", "stays", "user")]),
)
def test_the_examples_of_state_functions_are_proved(
    example: str, table: str, key: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    root = tmp_path / example
    shutil.copytree(EXAMPLES / example, root, ignore=shutil.ignore_patterns(".headrace", "result.db*"))
    project = hr.load(root)
    assert hr.run(project, spark=spark).exit_code == 0
    (query,) = project.queries
    verdict = hr.verify(project, query, spark=spark)
    assert (verdict.exit_code, verdict.shown_by, verdict.rows_actual > 0) == (0, "rerun", True), verdict
    with sqlite3.connect(root / "result.db") as database:
        assert database.execute(f"DELETE FROM {table} WHERE {key} = (SELECT min({key}) FROM {table})").rowcount == 1
    verdict = hr.verify(project, query, spark=spark)
    assert (verdict.state, verdict.missing) == ("mismatch", 1)


def test_an_outer_join_is_decided_after_crashes(spark: SparkSession) -> None:
    """Spark makes a batch more of its rows than the checkpoint has, whose state must be committed all the same."""
    run = timeline(
        hr.load(EXAMPLES / "outer-join"),
        "shown",
        spark=spark,
        batch=False,
        impressions=[
            *([("ad1", "12:00")], Crash()),
            *([("ad2", "12:10")], CrashBeforeCommit()),
            *([("ad3", "18:00")], CrashBeforeCommit()),
        ],
        clicks=[[("ad1", "12:30"), ("ad3", "18:20")]],
    )
    verdict = verify(run.project, "shown", spark=spark)
    assert verdict.exit_code == 0 or [finding.code for finding in verdict.findings][-1] == "HR715", verdict
