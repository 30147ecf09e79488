"""A rebuild whose storage is in a store: a crash at any step, and at any request of a store, loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import headrace as hr
from headrace.changes.comparison import RebuildReport
from headrace.generations.log import rebuild_storage
from headrace.model import Project
from headrace.storage.location import is_remote
from services import HdfsServer, S3Server
from tests.changes.rebuild.scenes import (
    BUILT,
    FINAL,
    NEW,
    OLD,
    Killed,
    codes,
    kill_at,
    project_of,
    scene,
    state,
    swap_in,
)
from tests.connectors.sql.databases import Database
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import land, rows, write_project
from tests.runner.test_s3 import reach_bucket
from tests.storage.stores import MemoryBucket, memory_bucket, memory_store, new_bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows: TypeAlias = list[tuple[Any, ...]]
STEPS = ["recorded", "sink", "rewritten"]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database("sqlite", str(tmp_path / "p" / "out.db"))


@pytest.fixture(params=["hdfs", "s3a"])
def project(request: pytest.FixtureRequest, tmp_path: Path, database: Database) -> Iterator[Project]:
    """A project whose query has run, and was rebuilt, in a store that renames and in one that does not."""
    made = memory_store if request.param == "hdfs" else memory_bucket
    with made("rebuilt") as (_, root):
        project = project_of(tmp_path / "p", database, storage=f"{root}/with space")
        assert is_remote(project.storage)
        scene(project)
        yield project


@pytest.fixture
def bucket(tmp_path: Path, database: Database) -> Iterator[tuple[MemoryBucket, Project]]:
    with memory_bucket("steps") as (made, root):
        project = project_of(tmp_path / "p", database, storage=str(root))
        scene(project)
        yield made, project


def swap(project: Project, step: str = "") -> None:
    swap_in(project, kill_at(step))


@pytest.mark.plain
@pytest.mark.parametrize("step", STEPS)
def test_a_swap_that_is_killed_is_ended(project: Project, database: Database, step: str) -> None:
    assert state(project, database) == BUILT
    with pytest.raises(Killed):
        swap(project, step)
    assert codes(project) == ["HR581"]
    for kill in STEPS:
        with pytest.raises(Killed):
            hr.rebuild(project, "totals").apply(reached=kill_at(kill))
    assert hr.rebuild(project, "totals").apply().done == "swapped"
    assert (state(project, database), codes(project)) == (NEW, [])
    assert not rebuild_storage(project.storage, layout_in(project.storage, "totals")).exists()


@pytest.mark.plain
@pytest.mark.parametrize("step", STEPS)
def test_a_swap_that_is_killed_is_given_up(project: Project, database: Database, step: str) -> None:
    with pytest.raises(Killed):
        swap(project, step)
    for kill in ("recorded-abandoning", "dropped", "removed"):
        with pytest.raises(Killed):
            hr.rebuild(project, "totals").discard(reached=kill_at(kill))
    assert hr.rebuild(project, "totals").discard().done == "abandoned"
    assert (state(project, database), codes(project)) == (OLD, [])
    assert hr.rebuild(project, "totals").status is None


@pytest.mark.plain
@pytest.mark.parametrize("step", STEPS)
def test_a_roll_back_that_is_killed_is_ended(project: Project, database: Database, step: str) -> None:
    swap(project)
    with pytest.raises(Killed):
        hr.rebuild(project, "totals").undo(reached=kill_at(step))
    assert codes(project) == ["HR581"]
    assert hr.rebuild(project, "totals").undo().generation == 1
    assert (state(project, database), codes(project)) == (BUILT, [])
    swap(project)
    assert state(project, database) == NEW
    assert hr.rebuild(project, "totals").discard().generation == 2
    assert state(project, database) == FINAL
    assert not layout_in(project.storage, "totals", 1).home.exists()


# Each step in `make test-long`; the simulated protocol dies at many as well (tests/protocol).
EVERY_STEPS = pytest.mark.parametrize("stride", rounds([3, 1]))


@pytest.mark.plain
@EVERY_STEPS
@pytest.mark.parametrize("end", ["swap", "give up"])
def test_a_swap_may_die_at_each_request(
    bucket: tuple[MemoryBucket, Project], database: Database, end: str, stride: int
) -> None:
    store, project = bucket
    steps = len(store.steps_of(lambda: swap(project)))
    assert steps > 4
    for at in range(0, steps, stride):
        hr.rebuild(project, "totals").undo()
        with store.dying(at, Killed), pytest.raises(Killed):
            swap(project)
        status = hr.rebuild(project, "totals").status
        assert status is not None
        assert codes(project) == ([] if status.phase in ("building", "swapped") else ["HR581"])
        if end == "give up" and status.phase == "swapping":
            hr.rebuild(project, "totals").undo()
            assert state(project, database) == BUILT
        if end == "swap" and status.phase == "swapping":
            assert hr.rebuild(project, "totals").apply().done == "swapped"
        elif status.phase != "swapped":
            swap(project)
        assert (state(project, database), codes(project)) == (NEW, []), at


@pytest.mark.plain
@EVERY_STEPS
def test_a_roll_back_may_die_at_each_request(
    bucket: tuple[MemoryBucket, Project], database: Database, stride: int
) -> None:
    store, project = bucket
    swap(project)
    steps = len(store.steps_of(lambda: hr.rebuild(project, "totals").undo()))
    for at in range(0, steps, stride):
        swap(project)
        with store.dying(at, Killed), pytest.raises(Killed):
            hr.rebuild(project, "totals").undo()
        status = hr.rebuild(project, "totals").status
        assert status is not None
        if status.phase != "building":
            hr.rebuild(project, "totals").undo()
        assert (state(project, database), codes(project)) == (BUILT, []), at


BODY = """
from tests.changes.former_jobs import Visits

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update")
def totals(events):
    return {result}
"""
SUMS = 'events.groupBy("name").agg(F.sum("amount").alias("total"))'
MAXIMA = 'events.groupBy("name").agg(F.max("amount").cast("long").alias("total"))'
VISITS = 'events.groupBy("name").transformWithStateInPandas(Visits(), "name STRING, visits INT", "update", "none")'
VISITS += '.selectExpr("name", "visits AS total")'
LARGE = VISITS.replace("events.", 'events.where("amount > 1").')
BATCHES = [[{"name": "a", "amount": 1}, {"name": "b", "amount": 2}], [{"name": "a", "amount": 5}]]


def declare(root: Path, result: str, storage: str, settings: Mapping[str, str]) -> Project:
    write_project(root, BODY.format(result=result), batches=BATCHES)
    (root / "headrace.yml").write_text(f"name: p\nstorage: {storage}\nspark: {json.dumps(settings)}\n")
    return hr.load(root)


def run(project: Project, spark: SparkSession) -> None:
    (outcome,) = hr.run(project, ["totals"], trigger=hr.available_now, spark=spark).outcomes
    assert (outcome.state, outcome.finding) == ("finished", None)


def rebuilt(spark: SparkSession, before: Project, now: Project, swapped: Rows, resumed: Rows, former: Rows) -> None:
    """Built while the query runs on, cut off, swapped, run on, rolled back, and swapped again."""
    root, local = now.root, now.root / ".headrace" / "targets" / "dev"

    def totals() -> Rows:
        return rows(root / "out.db", "SELECT name, total FROM totals ORDER BY 1")

    def meanwhile(report: RebuildReport) -> bool:
        assert report.verdict == "equal"
        land(root, 2, [{"name": "c", "amount": 9}])
        run(before, spark)
        return True

    run(before, spark)
    with pytest.raises(Killed):
        hr.rebuild(now, "totals", spark=spark).apply(approve=meanwhile, reached=kill_at("sink"))
    assert (codes(now), totals()) == (["HR581"], swapped)
    status = hr.rebuild(now, "totals").status
    assert status is not None
    assert (status.phase, status.batches, status.rows >= 3) == ("swapping", 3, True)
    assert (local / "rebuild").exists()
    assert hr.rebuild(now, "totals", spark=spark).apply().done == "swapped"
    assert [path.name for path in now.storage.iterdir() if path.name not in ("register", "queries")] in (
        [],
        ["rebuild"],
    )
    assert not (local / "rebuild").exists()
    land(root, 3, [{"name": "b", "amount": 7}])
    run(now, spark)
    assert (totals(), hr.verify(now, "totals", spark=spark).state) == (resumed, "equal")
    assert [(entry.generation, entry.rows_total) for entry in hr.status(now)] == [(2, status.rows + 1)]
    assert hr.rebuild(now, "totals", spark=spark).undo().done == "rolled-back"
    run(before, spark)
    assert totals() == former
    assert hr.rebuild(now, "totals", spark=spark).apply().done == "swapped"
    assert hr.rebuild(now, "totals", spark=spark).discard().generation == 2
    assert (totals(), codes(now)) == (resumed, [])


@pytest.mark.long
@pytest.mark.services
def test_a_rebuild_with_its_storage_on_hdfs(hdfs_server: HdfsServer, spark: SparkSession, tmp_path: Path) -> None:
    """Of a query with state variables, the files of whose schemas Spark names by their URLs."""
    settings = {"spark.hadoop.dfs.namenode.http-address": hdfs_server.web_address}
    storage = f"{hdfs_server.url()}/rebuilt by us"
    before, now = (declare(tmp_path / "p", result, storage, settings) for result in (VISITS, LARGE))
    rebuilt(
        spark,
        before,
        now,
        swapped=[("a", 1), ("b", 1), ("c", 1)],
        resumed=[("a", 1), ("b", 2), ("c", 1)],
        former=[("a", 2), ("b", 2), ("c", 1)],
    )


# Each step of it is tried in a bucket of this process above; tests/runner/test_s3.py changes a query in a real one.
@pytest.mark.long
@pytest.mark.services
def test_a_rebuild_with_its_storage_in_a_bucket(s3_server: S3Server, spark: SparkSession, tmp_path: Path) -> None:
    bucket = new_bucket(s3_server)
    storage = f"s3a://{bucket.name}/rebuilt"
    before, now = (declare(tmp_path / "p", result, storage, bucket.settings()) for result in (SUMS, MAXIMA))
    with reach_bucket(spark, bucket):
        rebuilt(
            spark,
            before,
            now,
            swapped=[("a", 5), ("b", 2), ("c", 9)],
            resumed=[("a", 5), ("b", 7), ("c", 9)],
            former=[("a", 6), ("b", 9), ("c", 9)],
        )
