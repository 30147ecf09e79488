"""Checkpoints that Spark 4.2.0 wrote go on under the Spark that is installed, whichever it is."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.model.layout import QueryLayout
from headrace.run.manifest import forms

from .older_checkpoint import ARCHIVE, QUERIES, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Told:
    """Keeps what a run says of its queries."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def note(self, finding: hr.Finding) -> None:
        self.codes.append(finding.code)

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: None


def test_queries_resume_in_the_middle_of_a_batch_and_are_right(tmp_path: Path, spark: SparkSession) -> None:
    root = tmp_path / "older"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    land(root, 11)
    project, told = hr.load(root), Told()
    result = hr.run(project, trigger=hr.available_now, spark=spark, reporter=told)  # type: ignore[arg-type]
    assert [outcome.finding for outcome in result.outcomes] == [None] * len(QUERIES)
    assert "HR545" not in told.codes
    states = {query: hr.verify(project, query, spark=spark).state for query in QUERIES}
    assert states == {"totals": "equal", "hours": "pending", "names": "equal", "priced": "equal"}
    assert [forms(QueryLayout(project.storage, query, 1).manifest)[-1].spark for query in QUERIES] == [
        spark.version
    ] * 4
