"""Wrong rows of a result are corrected by their key alone, in one transaction; an undo brings them back."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.changes.repair import Repair
from headrace.cli.entry import main
from headrace.contract import Boundary, SinkContext
from headrace.errors import HeadraceError
from headrace.generations.log import QueryLayout
from headrace.model import Project
from headrace.starter.sink_work import SinkWork
from tests.verifier.late_project import land, read, run
from tests.verifier.test_replay import ran, root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ran", "root"]
pytestmark = pytest.mark.spark

ALL = "SELECT who, start, count, total FROM updated ORDER BY 1, 2"
NOTED = """
CREATE TABLE touched (who TEXT);
CREATE TRIGGER i AFTER INSERT ON updated BEGIN INSERT INTO touched VALUES (NEW.who); END;
CREATE TRIGGER u AFTER UPDATE ON updated BEGIN INSERT INTO touched VALUES (NEW.who); END;
CREATE TRIGGER d AFTER DELETE ON updated BEGIN INSERT INTO touched VALUES (OLD.who); END;
"""
SPOILT = (
    "UPDATE updated SET count = 7 WHERE who = 'a' AND start LIKE '%13:00%'",
    "DELETE FROM updated WHERE who = 'b'",
    "INSERT INTO updated SELECT 'stranger', start, 1, 1.0 FROM updated WHERE who = 'c'",
)
Spoilt = tuple[Project, list[Any], list[Any]]


class Killed(Exception):
    """The end of the process."""


def edit(root: Path, *statements: str) -> None:
    with sqlite3.connect(root / "result.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.fixture
def spoilt(root: Path) -> Spoilt:
    """The project with a wrong, a missing and a surplus row; what its table held before, and what it holds then."""
    right = read(root, ALL)
    edit(root, *SPOILT)
    return hr.load(root), right, read(root, ALL)


def test_the_wrong_keys_alone_are_written_and_what_was_there_comes_back(spoilt: Spoilt, spark: SparkSession) -> None:
    project, right, wrong = spoilt
    with sqlite3.connect(project.root / "result.db") as connection:
        connection.executescript(NOTED)
    plan = hr.repair(project, "updated", spark=spark).plan
    assert (plan.written, plan.deleted, read(project.root, ALL)) == (2, 1, wrong)
    assert {difference.kind for difference in plan.verdict.differences} == {"different", "missing", "unexpected"}
    assert hr.repair(project, "updated", spark=spark).apply().done == "repair"
    assert read(project.root, ALL) == right
    assert {who for (who,) in read(project.root, "SELECT who FROM touched")} == {"a", "b", "stranger"}
    assert hr.verify(project, "updated", spark=spark).state == "late"
    with pytest.raises(HeadraceError, match="there is nothing to repair") as nothing:
        hr.repair(project, "updated", spark=spark).apply()
    assert nothing.value.exit_code == 0

    hr.repair(project, "updated", spark=spark).undo()
    assert read(project.root, ALL) == wrong
    with pytest.raises(HeadraceError, match="no repair of table"):
        hr.repair(project, "updated", spark=spark).undo()


# The sink writes late rows that are brought back in the same way: test_replay.py kills it at each of these moments.
@pytest.mark.long
def test_a_kill_at_any_moment_leaves_the_rows_as_they_were_or_right(
    spoilt: Spoilt, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, right, wrong = spoilt
    killed_at: list[Boundary] = ["before-transaction"]

    def context(self: Repair, layout: QueryLayout) -> SinkContext:
        def reached(boundary: Boundary, batch: int) -> None:
            if boundary == killed_at[-1]:
                raise Killed

        return replace(SinkWork.context(self, layout), on_boundary=reached)

    monkeypatch.setattr(Repair, "context", context)
    for boundary, held in (("before-transaction", wrong), ("inside-transaction", wrong), ("after-transaction", right)):
        killed_at.append(boundary)
        with pytest.raises(Killed):
            hr.repair(project, "updated", spark=spark).apply()
        assert read(project.root, ALL) == held, boundary
    hr.repair(project, "updated", spark=spark).undo()
    assert read(project.root, ALL) == wrong
    monkeypatch.undo()
    hr.repair(project, "updated", spark=spark).apply()
    assert read(project.root, ALL) == right


@pytest.mark.long
def test_after_another_batch_it_stays(spoilt: Spoilt, spark: SparkSession) -> None:
    project, right, _ = spoilt
    only = [{"who": "b"}]
    plan = hr.repair(project, "updated", keys=only, spark=spark).apply().plan
    assert plan is not None
    assert (plan.written, plan.deleted) == (1, 0)
    assert [row for row in read(project.root, ALL) if row in right and row[0] == "b"] != []
    hr.repair(project, "updated", spark=spark).apply()
    assert read(project.root, ALL) == right

    land(project.root, [("13:02", "a"), ("14:00", "d")])
    run(project.root, "updated", spark)
    assert hr.verify(project, "updated", spark=spark).state == "late"
    with pytest.raises(HeadraceError, match="other batches") as refused:
        hr.repair(project, "updated", spark=spark).undo()
    assert refused.value.findings[0].code == "HR583"


@pytest.mark.parametrize(("query", "why"), [("keyless", "has no key"), ("filed", "cannot replace single rows")])
def test_a_sink_that_replaces_no_single_row_is_refused_with_a_way(query: str, why: str, root: Path) -> None:
    with pytest.raises(HeadraceError, match=why) as refused:
        hr.repair(hr.load(root), query).plan  # noqa: B018
    (finding,) = refused.value.findings
    assert finding.code == "HR580"
    assert "again: headrace re" in str(finding)


def test_before_the_first_run_a_repair_says_to_run_it(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    sink = "{sqlite: {path: out.db, table: t, key: [v]}}"
    (tmp_path / "headrace.yml").write_text(
        "sources: {events: {files: {path: in, format: json, schema: v INT}}}\n"
        f"queries: {{q: {{select: SELECT v FROM events, mode: append, sink: {sink}}}}}\n"
    )
    with pytest.raises(HeadraceError) as refused:
        hr.repair(hr.load(tmp_path), "q", spark=spark).apply()
    assert refused.value.findings[0].fix == "run it first: headrace run q"


def test_the_command_shows_asks_and_takes_back(spoilt: Spoilt, capsys: pytest.CaptureFixture[str]) -> None:
    project, right, wrong = spoilt
    where = ["-C", str(project.root)]
    assert main(["verify", "updated", "--key", "who=c", *where]) == 0
    assert main(["verify", "updated", "--key", "who=b,start=2024-01-01T13:00", "--json", *where]) == 1
    assert [main(["verify", "updated", "--part", part, *where]) for part in ("0/3", "4/3", "3")] == [2] * 3
    assert "'0/3' is not K/N, as 3/10" in capsys.readouterr().err
    assert main(["verify", "updated", "--part", "1/1", *where]) == 1
    assert "updated, part 1 of 1, up to batch" in capsys.readouterr().out
    assert main(["verify", "updated", "--repair", "--dry-run", *where]) == 0
    shown = capsys.readouterr().out
    assert "2 rows are written and 1 row deleted" in shown
    assert "none: no batch has written this row" in shown
    assert read(project.root, ALL) == wrong
    assert main(["verify", "updated", "--repair", "--yes", *where]) == 0
    assert read(project.root, ALL) == right
    assert main(["verify", "updated", "--undo", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["done"] == "undo"
    assert read(project.root, ALL) == wrong
    assert main(["verify", "--repair", "--yes", *where]) == 2
