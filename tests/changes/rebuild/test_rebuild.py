"""A query that was changed is rebuilt while the old one runs on, and both end in the batch answer."""

from __future__ import annotations

import errno
import json
import sqlite3
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.changes import rebuild
from headrace.changes.comparison import RebuildReport
from headrace.changes.rebuild import catch_up
from headrace.cli.entry import main
from headrace.cli.run import say as say_judgement
from headrace.errors import HeadraceError
from headrace.generations.manifest import QueryRevision
from headrace.planner.verdict import list_refusals
from headrace.storage import json_lines, numbered
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
    return events.where("amount > 0")
"""
READER = """
copied = hr.source.files("out", format="json", schema="name STRING, amount INT")

@hr.query(sink=hr.sink.sqlite("out.db", table="read"), mode="append")
def reader(copied):
    return copied
"""
REBUILT = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%totals%'"
CHANGED = BODY.replace('F.sum("amount").alias("total")', 'F.max("amount").cast("long").alias("total")').replace(
    "> 0", "> 1"
)


def now(root: Path) -> hr.Project:
    (root / "pipeline.py").write_text((root / "pipeline.py").read_text().replace(BODY, CHANGED))
    return hr.load(root)


def run(project: hr.Project, spark: SparkSession, *queries: str) -> None:
    result = hr.run(project, queries or None, trigger=hr.available_now, spark=spark)
    assert [(outcome.state, outcome.finding) for outcome in result.outcomes if outcome.state != "finished"] == []


@pytest.mark.capability("REC-08")
def test_a_rebuilt_query_ends_in_the_batch_answer(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [[{"name": "a", "amount": 1}, {"name": "b", "amount": 2}], [{"name": "a", "amount": 5}]]
    root = write_project(tmp_path / "p", BODY, batches=files)
    out = root / "out.db"

    def totals() -> list[Any]:
        return rows(out, "SELECT * FROM totals ORDER BY 1")

    def copies() -> list[Any]:
        return sorted(map(tuple, spark.read.json(str(root / "out")).select("name", "amount").collect()))

    before = hr.load(root)
    run(before, spark)
    project = now(root)
    (outcome,) = hr.run(project, ["totals"], trigger=hr.available_now, spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, "headrace rebuild totals" in outcome.finding.fix) == ("HR535", True)
    (judgement,) = hr.plan(project, ["totals"], spark=spark)
    say_judgement(judgement, tuple(list_refusals(project.queries["totals"], judgement)))
    assert "fix: undo the change, or recompute its result next to the current one: headrace rebuild totals" in (
        capsys.readouterr().out
    )
    reports: list[RebuildReport] = []

    def meanwhile(report: RebuildReport) -> bool:
        """The query goes on as it was, and more comes, up to the swap."""
        reports.append(report)
        if len(reports) == 1:
            land(root, 2, [{"name": "c", "amount": 9}])
            run(before, spark)
            assert totals() == [("a", 6), ("b", 2), ("c", 9)]
        return True

    # A crash before the swap: the same command continues.
    for step in ("begun", "compared"):
        with pytest.raises(Killed):
            hr.rebuild(project, "totals", spark=spark).apply(approve=meanwhile, reached=kill_at(step))
    assert hr.rebuild(project, "totals").status is not None
    done = hr.rebuild(project, "totals", spark=spark).apply(approve=meanwhile)
    assert (done.done, done.generation, done.kept) == ("swapped", 2, 1)
    assert totals() == [("a", 5), ("b", 2), ("c", 9)]
    (report,) = reports
    assert (report.verdict, report.differences and report.differences.different) == ("equal", 1)
    assert hr.rebuild(project, "copies", spark=spark).apply().done == "swapped"
    assert copies() == [("a", 5), ("b", 2), ("c", 9)]
    status = hr.rebuild(project, "copies").status
    assert status is not None
    assert (status.phase, status.rows, [entry.rows_total for entry in hr.status(project)]) == ("swapped", 4, [4, 4])
    land(root, 3, [{"name": "b", "amount": 7}])
    run(project, spark)
    assert (totals(), copies()) == ([("a", 5), ("b", 7), ("c", 9)], [("a", 5), ("b", 2), ("b", 7), ("c", 9)])
    assert {hr.verify(project, query, spark=spark).state for query in project.queries} == {"equal"}
    # Rolled back, the former generation continues with what it had not read yet.
    for query in project.queries:
        assert hr.rebuild(project, query, spark=spark).undo().done == "rolled-back"
    run(before, spark)
    assert totals() == [("a", 6), ("b", 9), ("c", 9)]
    assert copies() == [("a", 1), ("a", 5), ("b", 2), ("b", 7), ("c", 9)]
    assert {hr.verify(before, query, spark=spark).state for query in project.queries} == {"equal"}
    # What was rolled back can be put in place again, or given up.
    land(root, 4, [{"name": "d", "amount": 4}])
    assert hr.rebuild(project, "copies", spark=spark).apply().done == "swapped"
    assert copies() == [("a", 5), ("b", 2), ("b", 7), ("c", 9), ("d", 4)]
    assert hr.rebuild(project, "copies").discard().generation == 2
    assert hr.rebuild(project, "totals").discard().generation == 1
    run(project, spark, "copies")
    run(before, spark, "totals")
    assert hr.verify(project, "copies", spark=spark).state == "equal"
    assert hr.verify(before, "totals", spark=spark).state == "equal"
    assert not [name for name in (path.name for path in root.iterdir()) if "headrace-" in name or "rebuild" in name]


def test_what_cannot_be_rebuilt_leaves_the_query_as_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [[{"name": "a", "amount": 1}], [{"name": "a", "amount": 5}]]
    root = write_project(tmp_path / "p", BODY + READER, batches=files)
    project = hr.load(root)
    with pytest.raises(HeadraceError, match="HR580: query 'totals' cannot be rebuilt: it has never run"):
        hr.rebuild(project, "totals", spark=spark).apply()
    run(project, spark, "totals", "copies")

    def warned(note: str) -> None:
        if "query 'reader' reads the result" in note:
            raise Killed(note)

    with pytest.raises(Killed):
        hr.rebuild(project, "copies", spark=spark).apply(notify=warned)
    (root / "landing" / "0000.json").unlink()
    with pytest.raises(HeadraceError, match=r"HR574.*1 of 2 files that were read are no longer there"):
        hr.rebuild(project, "totals", spark=spark).apply()
    assert hr.rebuild(project, "totals").status is None
    capsys.readouterr()
    assert main(["rebuild", "totals", "--from", "soon", "--no-swap", "-C", str(root)]) in (1, 2)
    assert "HR090: --from: 'soon' is not a time" in capsys.readouterr().err
    with pytest.raises(HeadraceError, match=r"HR580.*source 'events' cannot be read from a time on"):
        hr.rebuild(project, "totals", spark=spark, since=datetime.now(timezone.utc)).apply()
    notes: list[str] = []
    done = hr.rebuild(project, "totals", spark=spark, accept_partial=True).apply(approve=False, notify=notes.append)
    assert (done.done, done.report and done.report.verdict) == ("compared", "equal")
    assert ["will not have all" in notes[0], "the query is what ran" in notes[1]] == [True, True]
    assert main(["change", "status", "totals", "--json", "-C", str(root)]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["phase"], change["batches"], change["report"]["differences"]["different"]) == ("building", 1, 1)
    # A full disk, and a query that is changed while it is rebuilt.
    land(root, 2, [{"name": "b", "amount": 3}])

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(numbered, "create", full)
        with pytest.raises(HeadraceError, match=r"HR541.*No space left on device"):
            hr.rebuild(project, "totals", spark=spark).apply()
    with monkeypatch.context() as patch:
        patch.setattr(json_lines, "append", full)
        patch.setattr(QueryRevision, "is_entered_by", lambda *_: False)
        with pytest.raises(HeadraceError, match=r"HR573: .*HR541.*No space left on device"):
            hr.rebuild(project, "totals", spark=spark).apply()
    with pytest.raises(HeadraceError, match=r"HR573: .*HR535") as raised:
        hr.rebuild(now(root), "totals", spark=spark).apply()
    assert "headrace change discard totals, and then" in raised.value.findings[0].fix
    run(project, spark, "totals")
    assert rows(root / "out.db", "SELECT * FROM totals ORDER BY 1") == [("a", 6), ("b", 3)]
    # A result that somebody has changed is not put in place.
    from headrace.connectors.sql.sqlite.dialect import SqliteDialect

    connection = SqliteDialect(str(root / "out.db")).connect()
    connection.cursor().execute("UPDATE totals__rebuild SET total = 7")
    connection.close()
    with pytest.raises(HeadraceError, match="HR573"):
        hr.rebuild(project, "totals", spark=spark).apply()
    status = hr.rebuild(project, "totals").status
    assert status is not None
    assert (status.phase, (status.report or {})["verdict"]) == ("building", "mismatch")
    assert hr.rebuild(project, "totals").discard().done == "abandoned"


FED = """
{source} = hr.source.files("landing", format="json", schema="name STRING, amount INT"{from_source})

@hr.query(sink=hr.sink.sqlite("out.db", table="{table}", key=["name"]{from_table}), mode="update"{from_query})
def {query}({source}):
    return {source}.groupBy("name").agg({agg}.alias("total"))
"""


@pytest.mark.capability("REC-08")
@pytest.mark.usefixtures("checkpoint_format")
def test_a_change_that_needs_a_rebuild_may_come_with_new_names(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", "", batches=[[{"name": "a", "amount": 1}], [{"name": "a", "amount": 5}]])
    none = {"from_source": "", "from_table": "", "from_query": ""}
    old = FED.format(source="clicks", table="totals", query="totals", agg='F.sum("amount")', **none)
    run(hr.load(write_project(root, old)), spark)
    new = FED.format(
        source="visits",
        table="most",
        query="maxima",
        agg='F.max("amount").cast("long")',
        from_source=', renamed_from="clicks"',
        from_table=', renamed_from="totals"',
        from_query=', renamed_from="totals"',
    )
    project = hr.load(write_project(root, new))
    # A start would mix the two meanings; a reset waits for the names.
    (outcome,) = hr.run(project, trigger=hr.available_now, spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, "headrace rebuild maxima" in outcome.finding.fix) == ("HR535", True)
    with pytest.raises(HeadraceError, match="headrace rebuild maxima, which takes it over"):
        hr.reset(project, "maxima", result="drop", spark=spark).apply()
    assert rows(root / "out.db", "SELECT * FROM totals") == [("a", 6)]
    done = hr.rebuild(project, "maxima", spark=spark).apply()
    assert (done.done, done.generation, done.kept) == ("swapped", 2, 1)
    assert rows(root / "out.db", "SELECT * FROM most") == [("a", 5)]
    land(root, 2, [{"name": "b", "amount": 7}])
    run(project, spark)
    assert rows(root / "out.db", "SELECT * FROM most ORDER BY 1") == [("a", 5), ("b", 7)]
    assert hr.verify(project, "maxima", spark=spark).state == "equal"
    # The former generation has the new names as well, and comes back with them.
    hr.rebuild(project, "maxima", spark=spark).undo()
    run(hr.load(write_project(root, new.replace('F.max("amount").cast("long")', 'F.sum("amount")'))), spark)
    assert rows(root / "out.db", "SELECT * FROM most ORDER BY 1") == [("a", 6), ("b", 7)]


def test_what_comes_in_the_last_short_round_is_verified_as_well(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", BODY, batches=[[{"name": "a", "amount": 1}]])
    before = hr.load(root)
    run(before, spark, "totals")
    project = now(root)

    def meanwhile(report: RebuildReport) -> bool:
        land(root, 1, [{"name": "b", "amount": 2}])
        monkeypatch.setattr(rebuild, "catch_up", wrongly)
        return True

    def wrongly(*given: Any) -> bool:
        """The last round, whose result somebody else changes."""
        done = catch_up(*given)
        (table,) = [name for (name,) in rows(root / "out.db", REBUILT) if "rebuild" in name]
        with sqlite3.connect(root / "out.db") as connection:
            connection.execute(f'UPDATE "{table}" SET total = 70 WHERE name = ?', ("b",))
        return done

    with pytest.raises(HeadraceError, match=r"HR573.*is not what its sources give"):
        hr.rebuild(project, "totals", spark=spark).apply(approve=meanwhile)
    assert rows(root / "out.db", "SELECT * FROM totals") == [("a", 1)]
    hr.rebuild(project, "totals").discard()
    monkeypatch.undo()
    run(before, spark, "totals")
    assert rows(root / "out.db", "SELECT * FROM totals ORDER BY 1") == [("a", 1), ("b", 2)]
