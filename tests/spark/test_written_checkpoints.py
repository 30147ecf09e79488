"""Checkpoints that one Spark wrote continue under the other that is installed, newer or older."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import headrace as hr
from headrace.checkpoint import Checkpoint
from headrace.errors import Finding
from headrace.generations.manifest import forms
from headrace.model import Project
from headrace.starter.state_store import key_order
from tests.registered import layout_in
from tests.runner.test_run import Recorder

from .written_checkpoints import QUERIES, WIDE, archive_of, land, of_others

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What is said of a query that may be another than the one that ran.
CHANGED = {"HR535", "HR536", "HR537", "HR538", "HR545", "HR664"}


def is_newer(version: str) -> bool:
    """Whether a version of Spark orders the keys of the state otherwise than the older one that is installed."""
    return tuple(map(int, version.split(".")[:2])) >= (4, 3) > tuple(map(int, pyspark.__version__.split(".")[:2]))


@pytest.mark.spark
@pytest.mark.parametrize("version", of_others())
def test_queries_resume_in_the_middle_of_a_batch_unchanged_and_are_right(
    version: str, tmp_path: Path, spark: SparkSession
) -> None:
    """All but a deduplication by many keys whose state a newer Spark has in an order that the older does not know."""
    root = tmp_path / "written"
    with tarfile.open(archive_of(version)) as archive:
        archive.extractall(root, filter="data")
    land(root, 11)
    project, recorder = hr.load(root), Recorder()
    resumed = [query for query in QUERIES if query != WIDE or not is_newer(version)]
    assert revisions(project, QUERIES) == [version] * len(QUERIES)
    judged = {entry.query: (entry.verdict, entry.differences, entry.notes) for entry in hr.plan(project, spark=spark)}
    refused = judged.pop(WIDE) if WIDE not in resumed else None
    assert judged == dict.fromkeys(resumed, ("same", (), ()))
    result = hr.run(project, resumed, trigger=hr.available_now, spark=spark, reporter=recorder)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert {finding.code for finding in recorder.all(Finding)} & CHANGED == set()
    open_, equal = {"hours": "open"}, dict.fromkeys(resumed, "equal")
    assert {query: hr.verify(project, query, spark=spark).state for query in resumed} == equal | open_
    assert revisions(project, resumed) == [spark.version] * len(resumed)
    if refused is not None:
        verdict, (difference,), _ = refused
        assert (verdict, "in another order" in difference.why) == ("rebuild", True)
        (outcome,) = hr.run(project, [WIDE], trigger=hr.available_now, spark=spark).outcomes
        assert outcome.finding is not None
        assert outcome.finding.code == "HR535"


@pytest.mark.plain
@pytest.mark.parametrize(("version", "by_name"), [("4.2.0", "false"), ("4.3.0", "true")])
def test_the_keys_of_a_state_have_the_order_of_its_checkpoint(version: str, by_name: str, tmp_path: Path) -> None:
    with tarfile.open(archive_of(version)) as archive:
        archive.extractall(tmp_path, filter="data")
    checkpoints = {query: Checkpoint(layout_in(tmp_path / ".headrace", query, 1).checkpoint) for query in QUERIES}
    orders = {query: list(key_order(checkpoint).values()) for query, checkpoint in checkpoints.items()}
    assert orders == {query: [by_name] if query in ("names", WIDE) else [] for query in QUERIES}
    (checkpoints[WIDE].root / "offsets" / str(checkpoints[WIDE].last_batch)).write_text("no offsets")
    assert key_order(checkpoints[WIDE]) == {}


def revisions(project: Project, queries: Sequence[str]) -> list[str]:
    """The Spark by which each query was last entered."""
    return [forms(layout_in(project.storage, query, 1).manifest)[-1].spark for query in queries]
