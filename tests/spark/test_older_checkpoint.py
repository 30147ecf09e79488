"""Checkpoints that Spark 4.2.0 wrote continue under the Spark that is installed, whichever it is."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.model.layout import QueryLayout
from headrace.plan.manifest import forms
from tests.run.test_run import Told

from .older_checkpoint import ARCHIVE, QUERIES, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_queries_resume_in_the_middle_of_a_batch_and_are_right(tmp_path: Path, spark: SparkSession) -> None:
    root = tmp_path / "older"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    land(root, 11)
    project, told = hr.load(root), Told()
    result = hr.run(project, trigger=hr.available_now, spark=spark, reporter=told)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    # Of the older version only a digest of the plan is known, which another directory or Spark changes, too.
    warned = {finding.code for finding in told.all(hr.Finding)} & {"HR545", "HR445"}
    assert warned <= {"HR445"}
    states = {query: hr.verify(project, query, spark=spark).state for query in QUERIES}
    assert states == {"totals": "equal", "hours": "open", "names": "equal", "priced": "equal"}
    newest = [forms(QueryLayout(project.storage, query, 1).manifest)[-1].spark for query in QUERIES]
    assert newest == [spark.version] * len(QUERIES)
