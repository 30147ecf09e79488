"""The how-to about a session of one's own, really run."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from tests.docs.blocks import ROOT, of_language

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "how-to" / "use-your-own-session.md"

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
SETTINGS = {
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.multipleWatermarkPolicy": "max",
}


def test_a_query_starts_in_a_session_of_ones_own_and_is_also_a_function(spark: SparkSession, tmp_path: Path) -> None:
    program, test = (block for block in of_language("python") if block.page == PAGE)
    landing = tmp_path / "landing" / "events"
    landing.mkdir(parents=True)
    rows = [{"time": "2026-01-01T00:00:00Z", "action": action} for action in ("open", "open", "buy")]
    names: dict[str, object] = {"__name__": "counts"}
    exec(compile(program.text, str(program), "exec", dont_inherit=True), names)
    own = spark.newSession()
    for key, value in SETTINGS.items():
        own.conf.set(key, value)
    before = own.conf.getAll
    for turn in (1, 2):
        (landing / f"{turn}.json").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        running = names["counts"].start(own, trigger="available-now", root=tmp_path)  # type: ignore[attr-defined]
        assert own.conf.getAll == before, "the session's settings are as they were"
        assert running.awaitTermination(60)
        with sqlite3.connect(tmp_path / "result.db") as database:
            assert set(database.execute("SELECT action, count FROM counts")) == {("open", 2 * turn), ("buy", turn)}
    (checkpoint,) = tmp_path.glob(".headrace/queries/counts-*/g1.1/checkpoint")
    assert json.loads((checkpoint / "offsets" / "1").read_text().splitlines()[1])["conf"][PROVIDER].endswith(
        "RocksDBStateStoreProvider"
    ), "the query has what it needs all the same"
    exec(compile(test.text, str(test), "exec", dont_inherit=True), names)
    names["test_counts"](spark)  # type: ignore[operator]


PIPELINE = """
import headrace as hr

events = hr.source.files("landing/events", format="json", schema="time TIMESTAMP, action STRING",
                         watermark=("time", "1 minute"), max_files_per_trigger=1)

@hr.query(sink=hr.sink.sqlite("result.db", table="counts", key=["action"], rewindable="7 days"), mode="update")
def counts(events):
    return events.groupBy("action").count()
"""


def test_each_function_that_takes_a_session_works_in_one_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing" / "events"
    landing.mkdir(parents=True)
    for number in (1, 2):
        (landing / f"{number}.json").write_text('{"time": "2026-01-01T00:00:00Z", "action": "open"}\n')
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    project, own = hr.load(tmp_path), spark.newSession()
    for key, value in SETTINGS.items():
        own.conf.set(key, value)
    before = own.conf.getAll

    assert [finding.code for finding in hr.check(project, spark=own).findings if finding.severity != "note"] == []
    with hr.start(project, spark=own, trigger=hr.available_now) as application:
        application.get("counts").awaitTermination(60)
    assert [(outcome.state, outcome.rows) for outcome in application.wait().outcomes] == [("finished", 2)]
    assert hr.run(project, trigger=hr.available_now, spark=own).exit_code == 0
    [judgement] = hr.plan(project, spark=own, save=tmp_path / "plan.json")
    assert (judgement.verdict, judgement.notes) == ("same", ())
    assert hr.apply(project, tmp_path / "plan.json", trigger=hr.available_now, spark=own).exit_code == 0
    verdict = hr.verify(project, "counts", spark=own)
    assert verdict.state == "equal", [*map(str, verdict.findings)]
    assert hr.late(project, "counts", spark=own).count == 0
    assert hr.inspect.state(project, "counts", spark=own).operators
    assert hr.repartition(project, "counts", 2, spark=own).after == 2
    assert hr.rebuild(project, "counts", spark=own).apply().generation == 2
    hr.rebuild(project, "counts", spark=own).discard()
    hr.rewind(project, "counts", to_batch=0, spark=own).apply()
    hr.rewind(project, "counts", spark=own).undo()
    hr.reset(project, "counts", result="drop", spark=own).apply()
    assert own.conf.getAll == before, "the session's settings are as they were"
