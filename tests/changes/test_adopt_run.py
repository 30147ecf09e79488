"""Jobs of plain PySpark are adopted and continue, each ending in the batch answer over all batches, old and new."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.cli.entry import main
from headrace.errors import HeadraceError
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from headrace.spark.jvm.session_conf import apply_settings
from headrace.testing.conformance import forget_commit
from tests.changes.former_jobs import (
    JOBS,
    OLDER,
    PLAIN,
    begin,
    land,
    land_more,
    require_unchanged,
    stream,
    table,
    unpack,
)
from tests.registered import latest_generation, layout_in
from tests.rounds import as_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.changes.adopt import PlannedIs
    from tests.conftest import Sessions

pytestmark = pytest.mark.spark

EXPECTED = {
    "copies": [("a", 2), ("a", 4), ("b", 5), ("b", 9), ("c", 3)],
    "totals": [("a", 7), ("b", 14), ("c", 3)],
    "hours": [(f"2026-01-01T{hour}:00:00.000000Z", n) for hour, n in (("08", 3), ("09", 2), ("10", 1))],
    "both": [("a", 7), ("b", 9), ("c", 8), ("d", 4)],
    "joined": [("a", 7), ("c", 8)],
    "visits": [("a", 3), ("b", 2), ("c", 1)],
}
# Queries that are not the jobs whose checkpoints they are to continue.
OTHERS = """
import headrace as hr
from pyspark.sql import functions as F
from tests.changes.former_jobs import Visits

SCHEMA = "name STRING, at TIMESTAMP, amount INT"
events = hr.source.files("{root}/events", format="json", schema=SCHEMA, watermark=("at", "1 hour"))
slower = hr.source.files("{root}/events", format="json", schema=SCHEMA, watermark=("at", "2 hours"))
others = hr.source.files("{root}/others", format="json", schema=SCHEMA)

def update(table, **more):
    return hr.query(sink=hr.sink.sqlite("{root}/out.db", table=table, key=["name"]), mode="update")

@update("t1")
def other_aggregate(events):
    return events.groupBy("name").agg(F.max("amount").alias("total"))

@update("t2")
def further_aggregate(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"), F.count("*").alias("n"))

@update("t3")
def other_key(events):
    return events.groupBy(F.col("amount").alias("name")).agg(F.sum("amount").alias("total"))

class Others(Visits):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n LONG")
        self.days = handle.getMapState("days", "day STRING", "n INT")

@update("t8")
def other_variable(events):
    return events.groupBy("name").transformWithStateInPandas(Others(), "name STRING, visits INT", "update", "none")

@update("t4")
def without_state(events):
    return events.select("name", F.col("amount").alias("total"))

@hr.query(sink=hr.sink.sqlite("{root}/out.db", table="t5", key=["start"]), mode="update")
def other_delay(slower):
    return slower.groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("n")).select("window.start", "n")

@update("t6")
def other_directory(others):
    return others.groupBy("name").agg(F.sum("amount").alias("total"))

@update("t7")
def two_sources(events, others):
    return events.drop("at").union(others.drop("at")).groupBy("name").agg(F.sum("amount").alias("total"))

@update("missing")
def no_table(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@update("other_columns")
def other_columns(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.sqlite("{root}/out.db", table="other_form", key=["start"]), mode="update")
def other_form(events):
    return events.groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("n")).select("window.start", "n")
"""


@pytest.fixture(scope="module")
def root(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, and next to it the checkpoints and tables of six jobs that have run without Headrace."""
    root = tmp_path_factory.mktemp("former") / "p"
    begin(root)
    for job in JOBS.values():
        job.run(sessions.with_connectors(()), root)
    return root


@pytest.mark.parametrize(
    ("query", "job", "code", "words"),
    [
        ("other_aggregate", "totals", "HR594", "'sum long' in the checkpoint and 'max integer' in the query"),
        as_long(("further_aggregate", "totals", "HR594", "column 2 is 'count long' in the query")),
        as_long(("other_key", "totals", "HR594", "the key of state operator 0 (stateStoreSave) differs")),
        as_long(("without_state", "totals", "HR594", "the checkpoint has state operator 0 (stateStoreSave)")),
        as_long(("other_aggregate", "copies", "HR594", "the query has state operator 0 (stateStoreSave)")),
        ("other_variable", "visits", "HR594", "'n integer' in the checkpoint and 'n long' in the query"),
        ("two_sources", "joined", "HR594", "is symmetricHashJoin in the checkpoint and stateStoreSave in the query"),
        ("other_delay", "hours", "HR594", "waits 3600 seconds in the checkpoint and 7200 seconds in the query"),
        ("other_directory", "totals", "HR592", "events/0.json', which does not lie in"),
        ("two_sources", "totals", "HR592", "has 1 source (0), and the query reads 2 sources (events, others)"),
        ("no_table", "totals", "HR596", "there is no table 'missing'"),
        ("other_columns", "totals", "HR406", "it has no column 'total'"),
        ("other_form", "hours", "HR596", "as '2026-01-01 08:00'"),
    ],
)
def test_a_query_that_is_not_the_former_job_is_refused(
    root: Path, spark: SparkSession, tmp_path: Path, query: str, job: str, code: str, words: str
) -> None:
    (tmp_path / "headrace.yml").write_text("name: others\n")
    (tmp_path / "pipeline.py").write_text(OTHERS.replace("{root}", str(root)))
    with closing(sqlite3.connect(root / "out.db")) as database, database:
        for statement in (
            "CREATE TABLE IF NOT EXISTS other_columns (name TEXT PRIMARY KEY, amount INTEGER)",
            "CREATE TABLE IF NOT EXISTS other_form (start TEXT PRIMARY KEY, n INTEGER)",
            "INSERT OR REPLACE INTO other_form VALUES ('2026-01-01 08:00', 3)",
        ):
            database.execute(statement)
    with require_unchanged(root / "former"), pytest.raises(HeadraceError, match=code) as caught:
        hr.adopt(hr.load(tmp_path), query, root / "former" / job, spark=spark).apply()
    assert words in caught.value.findings[0].what
    assert not layout_in(tmp_path / ".headrace", query).home.exists(), "nothing was made"


def test_six_jobs_of_plain_pyspark_continue(
    root: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    project = hr.load(root)
    with require_unchanged(root / "former"):
        # Where a watermark closes groups, Spark makes one batch more, without rows.
        for name, following in (("totals", 3), ("hours", 3), ("joined", 2), ("visits", 3)):
            assert hr.adopt(project, name, root / "former" / name, spark=spark).apply().next_batch == following
        command = ["adopt", "both", "--checkpoint", str(root / "former/both"), "-C", str(root)]
        assert main([*command, "--dry-run"]) == 0
        assert not layout_in(project.storage, "both").home.exists()
        assert main([*command, "--yes", "--verify"]) == 0
        output = capsys.readouterr().out
        for words in (
            "source 0 is events (files): 2 files read",
            "source 1 is others (files): 2 files read",
            "state operator 0: stateStoreSave in 2 partitions, kept by hdfs",
            "batch 2 is the last committed one",
            "4 rows of table 'both'",
            "both is adopted: the next start makes batch 3",
            "the result was compared with the batch answer: equal",
        ):
            assert words in output
        assert main(["adopt", "copies", "--checkpoint", str(root / "former/copies"), "-C", str(root), "--yes"]) == 0
        assert main([*command, "--yes"]) == 1
        assert "HR580" in capsys.readouterr().err
    assert hr.verify(project, "copies", spark=spark).state == "equal", "over the batches of the former job alone"
    assert {entry.query: entry.verdict for entry in hr.plan(project, spark=spark)} == dict.fromkeys(JOBS, "same")
    land_more(root)
    result = hr.run(project, trigger=hr.available_now, spark=spark)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert {name: table(root, name) for name in JOBS} == EXPECTED
    # What a processor keeps is proved by running it again, which takes as long as all others.
    proved = [name for name in JOBS if name != "visits"]
    assert {name: hr.verify(project, name, spark=spark).state for name in proved} == dict.fromkeys(proved, "equal")
    changed = (root / "pipeline.py").read_text().replace('F.sum("amount")', 'F.min("amount")')
    (root / "pipeline.py").write_text(changed)
    assert hr.plan(hr.load(root), ["totals"], spark=spark)[0].verdict == "rebuild"


def test_jobs_of_spark_4_1_continue(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "p"
    unpack(root)
    project = hr.load(root)
    with require_unchanged(root / "former"):
        for name in OLDER:
            hr.adopt(project, name, root / "former" / name, spark=spark).apply()
    land_more(root)
    result = hr.run(project, OLDER, trigger=hr.available_now, spark=spark)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert {name: table(root, name) for name in OLDER} == {name: EXPECTED[name] for name in OLDER}
    assert {hr.verify(project, name, spark=spark).state for name in OLDER} == {"equal"}


@pytest.mark.parametrize("planned", ["written", "not-written"])
def test_a_batch_that_was_cut_off_comes_in_once(spark: SparkSession, tmp_path: Path, planned: PlannedIs) -> None:
    root = tmp_path / "p"
    begin(root)
    checkpoint = JOBS["copies"].run(spark, root)
    forget_commit(checkpoint)
    if planned == "not-written":
        with closing(sqlite3.connect(root / "out.db")) as database, database:
            database.execute("DELETE FROM copies WHERE name <> 'b'")
    project = hr.load(root)
    with pytest.raises(HeadraceError, match="HR591"):
        hr.adopt(project, "copies", checkpoint, spark=spark).apply()
    done = hr.adopt(project, "copies", checkpoint, planned=planned, spark=spark).apply()
    assert done.next_batch == (2 if planned == "written" else 1)
    land_more(root)
    assert hr.run(project, ["copies"], trigger=hr.available_now, spark=spark).exit_code == 0
    assert table(root, "copies") == EXPECTED["copies"]
    assert hr.verify(project, "copies", spark=spark).state == "equal"


def test_what_spark_has_purged_cannot_be_proved(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "p"
    begin(root)
    land_more(root)
    checkpoint = JOBS["copies"].run(spark, root)
    for log in ("offsets", "commits"):
        for name in ("0", ".0.crc"):
            (checkpoint / log / name).unlink()
    project = hr.load(root)
    assert hr.adopt(project, "copies", checkpoint, spark=spark).apply().plan.first == 1
    land(root, "events", 3, ("z", "11:00", 2))
    assert hr.run(project, ["copies"], trigger=hr.available_now, spark=spark).exit_code == 0
    assert table(root, "copies") == [*EXPECTED["copies"], ("z", 2)]
    verdict = hr.verify(project, "copies", spark=spark)
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR511"])
    assert "purged them before the query was adopted" in verdict.findings[0].fix


NATIVE = """
import headrace as hr

events = hr.source.files("events", format="json", schema="name STRING, at TIMESTAMP, amount INT")

@hr.query(sink=hr.sink.files("copies", format="json"))
def copies(events):
    return events.select("name", "amount")

@hr.query(sink=hr.sink.files("plain", format="json"))
def plain(events):
    return events.select("name", "amount")

def keep(batch, number):
    pass

@hr.query(sink=hr.sink.foreach_batch(keep, idempotent=True))
def kept(events):
    return events.select("name", "amount")

@hr.query(sink=hr.sink.table("adopted_copies", format="json"))
def tabled(events):
    return events.select("name", "amount")
"""


def test_a_job_of_a_native_sink_continues(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "p"
    begin(root)
    (root / "pipeline.py").write_text(NATIVE)
    checkpoint = root / "former"
    with apply_settings(spark, PLAIN):
        writer = stream(spark, root, "events").select("name", "amount").writeStream.format("json")
        writer = writer.option("path", str(root / "copies")).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        writer = stream(spark, root, "events").select("name", "amount").writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(root / "tables"))
        writer.format("json").toTable("adopted_copies").awaitTermination()
    # Spark's log of its files says by itself whether a batch is in, and a sink without a record gets it again.
    forget_commit(checkpoint)
    project = hr.load(root)
    with pytest.raises(HeadraceError, match="plain' holds no batch"):
        hr.adopt(project, "plain", checkpoint, spark=spark).apply()
    assert hr.adopt(project, "kept", checkpoint, spark=spark).apply().next_batch == 1, "it gets batch 1 again"
    assert hr.adopt(project, "tabled", root / "tables", spark=spark).apply().plan.result[0].count == 2
    assert hr.adopt(project, "copies", checkpoint, spark=spark).apply().plan.result[0].count == 2
    assert hr.verify(project, "copies", spark=spark).state == "equal"
    land_more(root)
    assert hr.run(project, ["copies", "tabled"], trigger=hr.available_now, spark=spark).exit_code == 0
    assert (spark.read.json(str(root / "copies")).count(), spark.table("adopted_copies").count()) == (6, 6)
    assert {hr.verify(project, name, spark=spark).state for name in ("copies", "tabled")} == {"equal"}
    spark.sql("DROP TABLE adopted_copies")


class Killed(BaseException):
    """The process is gone."""


def kill_at(wanted: str) -> Callable[[str], None]:
    def reached(step: str) -> None:
        if step == wanted:
            raise Killed(step)

    return reached


def test_an_adoption_that_is_killed_is_ended_by_the_same_command(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "p"
    begin(root)
    checkpoint = JOBS["totals"].run(spark, root)
    project = hr.load(root)
    query = project.queries["totals"]
    copy = shutil.copyfile
    copies: list[Path] = []

    def cut_off(source: Path, target: Path, **options: bool) -> object:
        copies.append(target)
        if len(copies) == 9:
            raise Killed("copying")
        return copy(source, target, **options)

    steps = ("recorded", "copying", "copied", "sink", "entered", "done")
    for generation, step in enumerate(steps, start=1):
        with require_unchanged(checkpoint):
            with monkeypatch.context() as patch:
                if step == "copying":
                    patch.setattr(shutil, "copyfile", cut_off)
                with pytest.raises(Killed):
                    hr.adopt(project, "totals", checkpoint, spark=spark).apply(reached=kill_at(step))
            errors = [finding for finding in inspect_checkpoint(project, query).findings if finding.severity == "error"]
            assert [finding.code for finding in errors] == ([] if step == "done" else ["HR581"]), step
            if step == "done":
                with pytest.raises(HeadraceError, match="was adopted already"):
                    hr.adopt(project, "totals", checkpoint, spark=spark).apply()
            else:
                assert hr.adopt(project, "totals", checkpoint, spark=spark).apply().plan.continues
        assert [
            finding.code for finding in inspect_checkpoint(project, query).findings if finding.severity == "error"
        ] == []
        assert latest_generation(layout_in(project.storage, "totals")) == generation
        if step != steps[-1]:
            # A reset takes it back, and the next one begins where the table stays.
            hr.reset(project, "totals", result="keep").apply()
    land_more(root)
    assert hr.run(project, ["totals"], trigger=hr.available_now, spark=spark).exit_code == 0
    assert table(root, "totals") == EXPECTED["totals"]
    assert hr.verify(project, "totals", spark=spark).state == "equal"
