"""A query that is renamed resumes with its next batch, in whatever sink, and verify is right over the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.checkpoint import Checkpoint
from headrace.cli.entry import main
from headrace.verifier.batch_ranges import ranges_of
from tests.registered import layout_in
from tests.runner.projects import land, ledger, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
BODY = """
@hr.table(refresh="1 hour")
def names(spark):
    return spark.sql("SELECT 'a' AS name, 'Anna' AS full")

@hr.query(sink=hr.sink.sqlite("out.db", table="{table}", key=["name"]{former_table}), mode="update"{former})
def {totals}(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.files("out", format="json"), mode="append"{former_copies})
def {copies}(events, names):
    return events.join(names, "name")
"""
OLD = BODY.format(totals="totals", copies="copies", table="totals", former="", former_copies="", former_table="")
NEW = BODY.format(
    totals="sums",
    copies="rows",
    table="totals",
    former=', renamed_from="totals"',
    former_copies=', renamed_from="copies"',
    former_table="",
)


def run(root: Path, spark: SparkSession, body: str, names: Sequence[str] | None = None) -> dict[str, list[str]]:
    """What is said of each query that did not run."""
    outcomes = hr.run(load(root, body), names, trigger=hr.available_now, spark=spark).outcomes
    return {outcome.query: [str(outcome.finding)] for outcome in outcomes if outcome.finding is not None}


def load(root: Path, body: str) -> hr.Project:
    return hr.load(write_project(root, body))


def test_renamed_queries_resume_and_are_verified(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", OLD, batches=[[{"name": "a", "amount": 1}, {"name": "b", "amount": 2}]])
    assert run(root, spark, OLD) == {}
    before = Checkpoint(layout_in(root / ".headrace", "totals").checkpoint)
    identity = before.id
    # Without the key a query under another name is not a new one.
    refused = run(root, spark, NEW.replace(', renamed_from="totals"', "").replace(', renamed_from="copies"', ""))
    assert {name: ("HR547" in sentence, "renamed_from: " in sentence) for name, [sentence] in refused.items()} == {
        "sums": (True, True),
        "rows": (True, True),
    }
    # What has changed otherwise is found before anything is moved.
    refused = run(root, spark, NEW.replace('F.sum("amount")', 'F.max("amount")'), ["sums"])
    assert "HR535" in refused["sums"][0]
    assert before.last_batch == 0
    # The plan moves nothing.
    project = load(root, NEW)
    sums, copied = hr.plan(project, spark=spark)
    assert [entry.verdict for entry in (sums, copied)] == ["same", "same"], (sums, copied)
    assert [note.code for note in sums.notes] == ["HR559"]
    assert "continues what ran as 'totals'" in sums.notes[0].what
    assert [finding for finding in hr.check(project, spark=spark).findings if finding.severity != "note"] == []
    assert before.last_batch == 0

    land(root, 1, [{"name": "a", "amount": 5}])
    assert run(root, spark, NEW) == {}
    assert rows(root / "out.db", "SELECT * FROM totals ORDER BY 1") == [("a", 6), ("b", 2)]
    assert ledger(root / "out.db") == [0, 1]
    # The name in a line is that of its time; the id stays.
    assert rows(root / "out.db", "SELECT query FROM _headrace_ledger ORDER BY batch") == [("totals",), ("sums",)]
    assert rows(root / "out.db", "SELECT COUNT(DISTINCT query_id) FROM _headrace_ledger") == [(1,)]
    assert rows(root / "out.db", "SELECT query FROM _headrace_tables") == [("sums",)]
    assert rows(root / "out.db", "SELECT query FROM _headrace_epochs") == [("sums",)]
    assert sorted(map(tuple, spark.read.json(str(root / "out")).select("name", "amount").collect())) == [
        ("a", 1),
        ("a", 5),
    ]
    layout = layout_in(root / ".headrace", "sums")
    assert (Checkpoint(layout.checkpoint).id, layout.checkpoint) == (identity, before.root)
    assert {name: hr.verify(project, name, spark=spark).state for name in project.queries} == {
        "sums": "equal",
        "rows": "equal",
    }
    assert [entry.batch for entry in hr.status(project) if entry.query in ("sums", "rows")] == [1, 1]
    # The key may stay for ever, also where nothing has run, and the names may go back.
    assert run(root, spark, NEW) == {}
    assert run(write_project(tmp_path / "fresh", NEW, batches=[[{"name": "a", "amount": 1}]]), spark, NEW) == {}
    land(root, 2, [{"name": "a", "amount": 7}])
    back = OLD.replace('mode="update"', 'mode="update", renamed_from=["x", "sums"]')
    back = back.replace('mode="append"', 'mode="append", renamed_from="rows"').replace(
        'table="totals"', 'table="three"'
    )
    assert "HR410" in run(root, spark, back, ["totals"])["totals"][0]
    back = back.replace('table="three"', 'table="three", renamed_from="totals"')
    # The table gets another name with the query.
    [judgement] = hr.plan(load(root, back), ["totals"], spark=spark)
    assert [note.code for note in judgement.notes] == ["HR559", "HR559"], judgement
    assert [finding for finding in hr.check(load(root, back), spark=spark).findings if finding.severity != "note"] == []
    assert (judgement.verdict, "to table 'three'" in judgement.notes[1].what) == ("same", True)
    assert "HR535" in run(root, spark, back.replace('key=["name"]', 'key=["name", "n"]'), ["totals"])["totals"][0]
    for _ in range(2):
        assert run(root, spark, back) == {}
    assert rows(root / "out.db", "SELECT * FROM three ORDER BY 1") == [("a", 13), ("b", 2)]
    assert rows(root / "out.db", "SELECT DISTINCT table_name FROM _headrace_ledger") == [("three",)]
    assert rows(root / "out.db", "SELECT query FROM _headrace_tables WHERE query <> ''") == [("totals",)]
    assert [span.newest for span in ranges_of(layout_in(root / ".headrace", "totals"), 2)] == [True]
    assert {name: hr.verify(load(root, back), name, spark=spark).state for name in ("totals", "copies")} == {
        "totals": "equal",
        "copies": "equal",
    }
    capsys.readouterr()
    assert main(["status", "-C", str(root)]) == 0
    assert "sums" not in capsys.readouterr().out


def test_a_query_that_planned_no_batch_is_renamed_too(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", OLD)
    assert run(root, spark, OLD) == {}
    owner = "SELECT DISTINCT query FROM _headrace_tables"
    assert rows(root / "out.db", owner) == [("totals",)]
    assert Checkpoint(layout_in(root / ".headrace", "totals").checkpoint).last_batch is None
    # Twice: neither the first start nor the second finds anything to read.
    for name in ("sums", "counts"):
        body = NEW.replace("def sums", f"def {name}")
        body = body.replace(
            ', renamed_from="totals"',
            ', renamed_from=["totals", "sums"]' if name == "counts" else ', renamed_from="totals"',
        )
        assert run(root, spark, body) == {}
        assert rows(root / "out.db", owner) == [(name,)]
    land(root, 0, [{"name": "a", "amount": 1}])
    assert run(root, spark, body) == {}
    assert rows(root / "out.db", "SELECT * FROM totals") == [("a", 1)]
    assert hr.verify(load(root, body), "counts", spark=spark).state == "equal"


FED = """
{landing} = hr.source.files("landing", format="json", max_files_per_trigger=1, schema="name STRING, amount INT",
    on_bad_row="quarantine"{from_events})
{more} = hr.source.files("more", format="json", schema="name STRING, amount INT"{from_more})

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update"{former})
def {query}({landing}, {more}):
    both = {landing}.unionByName({more}).where("amount > 0")
    return both.groupBy("name").agg(F.sum("amount").alias("total"))
"""


def test_a_renamed_source_resumes_at_its_offsets(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", "", batches=[[{"name": "a", "amount": 1}, {"name": "b", "amount": "no"}]])
    (root / "more").mkdir()
    none = {"from_events": "", "from_more": "", "former": ""}
    old = FED.format(landing="clicks", more="more", query="totals", **none)
    new = FED.format(landing="visits", more="more", query="totals", **none)
    assert run(root, spark, old) == {}
    # Without the key it looks like what it is, and nothing is changed.
    [judgement] = hr.plan(load(root, new), spark=spark)
    assert [(difference.part, difference.verdict) for difference in judgement.differences] == [
        ("source 'visits'", "rebuild")
    ]
    assert "`renamed_from: clicks` at the source" in run(root, spark, new)["totals"][0]
    # The query is renamed with it, and something else may change as well.
    renamed = FED.format(
        landing="visits",
        more="extra",
        query="sums",
        from_events=', renamed_from="clicks"',
        from_more=', renamed_from=["other", "more"]',
        former=', renamed_from="totals"',
    )
    assert "HR535" in run(root, spark, renamed.replace("amount > 0", "amount > 1"))["sums"][0]
    before = Checkpoint(layout_in(root / ".headrace", "totals").checkpoint)
    assert before.source_names() == ("clicks", "more")
    [judgement] = hr.plan(load(root, renamed), spark=spark)
    assert (judgement.verdict, len(judgement.notes)) == ("same", 3), judgement
    # A reader finds what was read by the former names.
    sources_alone = renamed.replace(', renamed_from="totals"', "").replace("def sums", "def totals")
    assert hr.verify(load(root, sources_alone), "totals", spark=spark).state == "equal"
    for number in (1, 2):
        land(root, number, [{"name": "a", "amount": 5}, {"name": "c", "amount": "no"}])
        (root / "more" / f"{number}.json").write_text('{"name": "d", "amount": 10}\n')
        assert run(root, spark, renamed) == {}
        # Then the name is known, and the key may go.
        renamed = renamed.replace(', renamed_from="clicks"', "")
        assert hr.verify(load(root, renamed), "sums", spark=spark).state == "equal"
    layout = layout_in(root / ".headrace", "sums")
    assert rows(root / "out.db", "SELECT * FROM totals ORDER BY 1") == [("a", 11), ("d", 20)]
    assert ledger(root / "out.db") == [0, 1, 2]
    assert sorted(path.name for path in (layout.quarantine / "clicks").iterdir()) == ["0.jsonl", "1.jsonl", "2.jsonl"]
    # A form whose sources alone had other names is no other form.
    assert [span.newest for span in ranges_of(layout, 2)] == [True]
    # The sink's ledger gives back what the checkpoint has lost, from before the rename as well.
    for folder in ("offsets", "commits"):
        (layout.checkpoint / folder / "2").unlink()
    assert run(root, spark, renamed) == {}
    assert (rows(root / "out.db", "SELECT * FROM totals ORDER BY 1"), ledger(root / "out.db")) == (
        [("a", 11), ("d", 20)],
        [0, 1, 2],
    )
