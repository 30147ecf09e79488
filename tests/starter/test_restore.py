"""A start asks the sink's ledger for what its checkpoint has lost, and writes it where the project lies now."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.api import load, reset
from headrace.checkpoint import Checkpoint, planned_batch
from headrace.errors import CheckpointError
from headrace.generations.facts import StartFacts, context_facts
from headrace.generations.log import QueryLayout, newest_of
from headrace.generations.register import append, register_project
from headrace.model import Project, Query
from headrace.starter.recovery import restore_lost_batch
from headrace.starter.start import recovery_findings
from tests.registered import layout_in

from ..connectors.exactly_once.drivers import Driver
from ..connectors.sql.databases import Database

pytestmark = pytest.mark.plain


class Here(Driver):
    """A driver of a query of a project."""

    project_: Project
    generation = 1

    @property
    def run(self) -> Any:
        layout = layout_in(self.project_.storage, "q", self.generation)
        facts = context_facts(self.project_)
        return replace(super().run, generation=self.generation, query_id=layout.query_id, **facts)


class OverTopic(Here):
    """One whose source is a topic, whose offsets need no log."""

    def plan(self, batch: int, files: Any) -> None:
        super().plan(batch, files)
        shutil.rmtree(self.storage / "checkpoint" / "sources")
        (self.storage / "checkpoint" / "offsets" / str(batch)).write_text(
            f'v2\n{{"batchWatermarkMs":0}}\nin:{{"events":{{"0":{batch}}}}}'
        )


PROJECT = """name: phones
sources:
  in: {files: {path: landing, format: json, schema: "name STRING, total BIGINT"}}
queries:
  q: {select: "SELECT * FROM `in`", sink: {sqlite: {path: result.db, table: result}}}
"""


def project_at(root: Path) -> tuple[Project, Query, QueryLayout]:
    (root / "headrace.yml").write_text(PROJECT)
    project = load(root)
    register_project(project)
    return project, project.queries["q"], layout_in(project.storage, "q")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project that has written three batches, the newest of which Spark has not committed."""
    place = tmp_path / "p"
    place.mkdir()
    project, _, layout = project_at(place)
    driver = Here(Database("sqlite", str(place / "result.db")), layout.home)
    driver.project_ = project
    for batch in range(3):
        driver.plan(batch, [])
        (layout.checkpoint / "sources" / "in" / str(batch)).write_text(
            "v1\n" + json.dumps({"path": f"file://{place}/landing/{batch}.json", "timestamp": 1, "batchId": batch})
        )
        if not batch:
            driver.start()
        driver.give(batch, [f"f{batch}"])
        if batch < 2:
            driver.commit(batch)
    return place


def lose(layout: QueryLayout, *batches: int) -> None:
    for batch in batches:
        for log in ("offsets", "commits", "sources/in"):
            (layout.checkpoint / log / str(batch)).unlink(missing_ok=True)


def test_a_whole_checkpoint_is_left_as_it_is(root: Path) -> None:
    assert restore_lost_batch(StartFacts.read(*project_at(root)[:2])) is None


def test_lost_batches_are_planned_again(root: Path) -> None:
    project, query, layout = project_at(root)
    before = planned_batch(Checkpoint(layout.checkpoint), 2)
    lose(layout, 1, 2)
    layout.manifest.write_text("{}\n")
    (layout.quarantine / "in").mkdir(parents=True)
    (layout.quarantine / "in" / "1.jsonl").write_text("{}\n")
    lost = restore_lost_batch(StartFacts.read(project, query))
    assert lost is not None
    [finding] = recovery_findings(query, layout, [lost])
    assert finding.code == "HR459"
    assert "up to 2; batch 2 is planned again" in finding.what
    [finding] = recovery_findings(query, layout, [replace(lost, first=1), lost])
    assert "up to 2; the batches 1 to 2 are planned again" in finding.what
    assert list(recovery_findings(query, layout, [])) == []
    restored = newest_of(layout)
    assert (restored.manifest.read_text(), (restored.quarantine / "in" / "1.jsonl").read_text()) == ("{}\n", "{}\n")
    assert planned_batch(Checkpoint(restored.checkpoint), 2) == before
    assert not layout.home.exists()
    assert restore_lost_batch(StartFacts.read(project, query)) is None


def test_files_of_a_moved_project_are_named_where_they_lie(root: Path) -> None:
    moved = Path(shutil.move(root, root.with_name("moved")))
    project, query, layout = project_at(moved)
    lose(layout, 2)
    assert restore_lost_batch(StartFacts.read(project, query)) is not None
    log = Checkpoint(newest_of(layout).checkpoint).source_log("in")
    assert [f"file://{moved}/landing/2.json" in line for line in log[2]] == [True]


def test_another_projects_ledger_is_not_asked(root: Path) -> None:
    project, query, layout = project_at(root)
    lose(layout, 2)
    register = register_project(project)
    assert append(project.storage, replace(register, application="another"))
    assert restore_lost_batch(StartFacts.read(project, query)) is None


@pytest.mark.parametrize("since", ["nothing was written", "a batch was written"])
def test_a_storage_of_before_a_reset_is_refused_with_a_fix_that_loses_nothing(root: Path, since: str) -> None:
    project, _, layout = project_at(root)
    before = Here(Database("sqlite", str(root / "result.db")), layout.home)
    before.project_ = project
    before.commit(2)
    copy = shutil.copytree(project.storage, root / "copy")
    reset(project, "q", result="drop").apply()
    after = Here(before.database, layout_in(project.storage, "q", 2).home)
    after.project_, after.generation = project, 2
    after.start()
    if since == "a batch was written":
        after.write(0, ["new"])
    shutil.rmtree(project.storage)
    copy.rename(project.storage)
    with pytest.raises(CheckpointError, match="HR410") as refused:
        before.start()
    assert "drop" not in refused.value.findings[0].fix
    assert "storage" in str(refused.value) or "checkpoint" in str(refused.value)
    if since == "a batch was written":
        assert "holds the result of generation 2 of 'q', and the storage knows none after 1" in str(refused.value)
        assert before.rows() == ["new"]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a directory but those of locks, with what it holds."""
    files = (file for file in folder.rglob("*") if file.is_file() and ".lock" not in file.name)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.parametrize("kind", [Here, OverTopic])
def test_an_old_copy_of_the_storage_is_refused_before_anything_is_written(tmp_path: Path, kind: type[Here]) -> None:
    project, query, layout = project_at(tmp_path)
    driver = kind(Database("sqlite", str(tmp_path / "result.db")), layout.home)
    driver.project_ = project
    for batch in range(140):
        driver.plan(batch, [f"f{batch}"])
        if batch == 0:
            driver.start()
        driver.give(batch, [f"f{batch}"])
        driver.commit(batch)
        if batch == 17:
            copy = shutil.copytree(project.storage, tmp_path / "copy")
    shutil.rmtree(project.storage)
    copy.rename(project.storage)
    before = contents(project.storage)
    assert restore_lost_batch(StartFacts.read(project, query)) is None
    with pytest.raises(CheckpointError, match="HR410"):
        driver.start()
    assert contents(project.storage) == before
