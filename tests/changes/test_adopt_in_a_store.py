"""Jobs of plain PySpark adopted into a storage that is in a store, killed at any step, and continued there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from headrace.model import Project
from headrace.storage.durable import files_below
from headrace.storage.remote import RemotePath
from headrace.storage.store import Store
from services import HdfsServer, S3Server
from tests.changes.former_jobs import JOBS, begin, land_more, require_unchanged, table
from tests.changes.rebuild.scenes import Killed, kill_at
from tests.changes.test_adopt_run import EXPECTED
from tests.registered import latest_generation, layout_in
from tests.runner.test_s3 import reach_bucket
from tests.storage.stores import MemoryBucket, memory_bucket, memory_store, new_bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = ("recorded", "copied", "sink", "entered")


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path) -> Path:
    """A project, and next to it the checkpoint and the table of a job that has run without Headrace."""
    root = tmp_path / "p"
    begin(root)
    JOBS["totals"].run(spark, root)
    return root


def store_in(root: Path, storage: str, settings: Mapping[str, str] | None = None) -> Project:
    (root / "headrace.yml").write_text(f"name: former\nstorage: {storage}\nspark: {json.dumps(settings or {})}\n")
    return hr.load(root)


def errors(project: Project, query: str) -> list[str]:
    findings = inspect_checkpoint(project, project.queries[query]).findings
    return [finding.code for finding in findings if finding.severity == "error"]


def content(project: Project, query: str) -> dict[str, bytes]:
    """The files of the adopted checkpoint."""
    home = layout_in(project.storage, query, latest_generation(layout_in(project.storage, query))).checkpoint
    return {str(file.relative_to(home)): file.read_bytes() for file in files_below(home)}


def again(project: Project, query: str = "totals") -> None:
    """Take the adoption back; the next one is the next generation."""
    hr.reset(project, query, result="keep").apply()


def ended(project: Project, former: Path, spark: SparkSession, whole: dict[str, bytes]) -> None:
    """An adoption that was cut off refuses each start, and the same command ends it."""
    assert errors(project, "totals") == ["HR581"]
    assert hr.adopt(project, "totals", former, spark=spark).apply().plan.continues
    assert (errors(project, "totals"), content(project, "totals")) == ([], whole)


# On a disk test_adopt_run kills it, and in a bucket the worlds of tests/protocol do.
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("made", [memory_bucket, memory_store], ids=["s3a", "hdfs"])
def test_an_adoption_that_is_killed_is_ended_by_the_same_command(
    root: Path, spark: SparkSession, made: Callable[[str], AbstractContextManager[tuple[Store, RemotePath]]]
) -> None:
    former = root / "former" / "totals"
    with made("adopted") as (store, place), require_unchanged(root / "former"):
        project = store_in(root, f"{place}/p")
        assert hr.adopt(project, "totals", former, spark=spark).apply().next_batch == 3
        whole = content(project, "totals")
        assert not [name for name in whole if name.endswith(".crc")]
        with pytest.raises(HeadraceError, match="HR580"):
            hr.adopt(project, "totals", former, spark=spark).apply()
        for step in STEPS:
            again(project)
            with pytest.raises(Killed):
                hr.adopt(project, "totals", former, spark=spark).apply(reached=kill_at(step))
            ended(project, former, spark, whole)
        again(project)
        if isinstance(store, MemoryBucket):
            steps = store.steps_of(lambda: hr.adopt(project, "totals", former, spark=spark).apply())
            last = len(steps) - 1
            # In the midst of the copies.
            for at in (last // 3, last // 2):
                again(project)
                with store.dying(at, Killed), pytest.raises(Killed):
                    hr.adopt(project, "totals", former, spark=spark).apply()
                ended(project, former, spark, whole)


def run_on(project: Project, root: Path, spark: SparkSession, *queries: str) -> None:
    """Run the adopted queries on, and compare them with the batch answer."""
    land_more(root)
    result = hr.run(project, queries, trigger=hr.available_now, spark=spark)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert {name: table(root, name) for name in queries} == {name: EXPECTED[name] for name in queries}
    assert hr.verify(project, queries[0], spark=spark).state == "equal"


@pytest.mark.long
@pytest.mark.services
def test_jobs_continue_with_their_storage_on_hdfs(hdfs_server: HdfsServer, spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "p"
    begin(root)
    settings = {"spark.hadoop.dfs.namenode.http-address": hdfs_server.web_address}
    project = store_in(root, f"{hdfs_server.url()}/adopted by us", settings)
    former = project.storage.parent / "former jobs"
    JOBS["totals"].run(spark, root)
    JOBS["visits"].run(spark, root, former / "visits")
    before = {str(file): file.read_bytes() for file in files_below(former)}
    with require_unchanged(root / "former"):
        hr.adopt(project, "totals", root / "former" / "totals", spark=spark).apply()
        assert hr.adopt(project, "visits", str(former / "visits"), spark=spark).apply().plan.operators
        run_on(project, root, spark, "totals", "visits")
    assert {str(file): file.read_bytes() for file in files_below(former)} == before


@pytest.mark.long
@pytest.mark.services
def test_jobs_continue_with_their_storage_in_a_bucket(s3_server: S3Server, spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "p"
    begin(root)
    bucket = new_bucket(s3_server)
    project = store_in(root, f"s3a://{bucket.name}/adopted", bucket.settings())
    former = project.storage.parent / "former"
    with reach_bucket(spark, bucket):
        JOBS["totals"].run(spark, root, former / "totals")
        JOBS["hours"].run(spark, root)
        before = {str(file): file.read_bytes() for file in files_below(former)}
        hr.adopt(project, "totals", str(former / "totals"), spark=spark).apply()
        hr.adopt(project, "hours", root / "former" / "hours", spark=spark).apply()
        run_on(project, root, spark, "totals", "hours")
        assert {str(file): file.read_bytes() for file in files_below(former)} == before
        # From the bucket into local storage.
        again(project)
        local = store_in(root, ".headrace", bucket.settings())
        with pytest.raises(HeadraceError, match="HR590"):
            hr.adopt(local, "totals", "gs://bucket/former", spark=spark).apply()
