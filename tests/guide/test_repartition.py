"""The number of state partitions and the size of a batch: chosen, kept, and changed by one command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, repartition, run, verify
from headrace.checkpoint import Checkpoint
from headrace.cli.entry import main
from headrace.contract import BatchRecord, Lag
from headrace.errors import HeadraceError
from headrace.generations.log import QueryLayout, history_file
from headrace.history import History
from headrace.runner import query_run
from headrace.spark.jvm.settings import default_partitions
from tests.registered import layout_in
from tests.runner.projects import land, rows, write_project
from tests.runner.test_run import FRUIT, TOTALS, Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# What each kind of query keeps state for, with a sink of each kind; `answer` is what its sink must hold.
TO_FILES = """
@hr.query(sink=hr.sink.files("out", format="json"), trigger=hr.available_now)
def totals(events):
    return events.dropDuplicates(["name"]).select("name")
"""
PROCESSED = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

class Sum(StatefulProcessor):
    def init(self, handle):
        self.amount = handle.getValueState("amount", "amount LONG")

    def handleInputRows(self, key, rows, timers):
        before = self.amount.get()[0] if self.amount.exists() else 0
        self.amount.update((before + sum(row.amount for row in rows),))
        yield Row(name=key[0], amount=self.amount.get()[0])

    def close(self):
        pass

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", trigger=hr.available_now)
def totals(events):
    return events.groupBy("name").transformWithState(Sum(), "name STRING, amount LONG", "update", "None")
"""
SELECT = "SELECT name, amount FROM totals ORDER BY 1"
TWELVE = [{"name": f"fruit {number:02d}", "amount": number} for number in range(12)]


def ran(root: Path, spark: SparkSession) -> list[BatchRecord]:
    recorder = Recorder()
    result = run(load(root), spark=spark, reporter=recorder)
    assert [str(end.finding) for end in result.outcomes if end.finding] == []
    return recorder.all(BatchRecord)


def layout_of(root: Path) -> QueryLayout:
    return layout_in(root / ".headrace", "totals")


def stores(root: Path, version: int) -> list[int]:
    """The partitions that hold the state of one version."""
    folder = layout_of(root).checkpoint / "state" / "0"
    return sorted({int(file.parent.name) for file in folder.glob(f"[0-9]*/{version}[._]*")})


def refusal(root: Path, partitions: int, spark: SparkSession, query: str = "totals") -> tuple[str, str, str]:
    with pytest.raises(HeadraceError) as caught:
        repartition(load(root), query, partitions, spark=spark)
    (finding,) = caught.value.findings
    return finding.code, finding.what, finding.fix


@pytest.mark.capability("TUNE-01", "STORE-07")
def test_a_checkpoint_keeps_the_partitions_that_the_cores_gave_it(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT[:1])
    ran(root, spark)
    begun = default_partitions()
    assert begun == len(os.sched_getaffinity(0))
    assert Checkpoint(layout_of(root).checkpoint).state_partitions() == begun
    spark.conf.set("spark.sql.shuffle.partitions", str(begun + 5))
    try:
        land(root, 1, FRUIT[1])
        ran(root, spark)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(begun))
    assert stores(root, 2) == list(range(begun))
    assert rows(root / "out.db", SELECT) == [("apple", 4), ("pear", 2)]


@pytest.mark.capability("TUNE-01")
@pytest.mark.usefixtures("checkpoint_format")
def test_the_state_goes_into_another_number_of_partitions_and_the_result_stays_exact(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=[TWELVE, TWELVE])
    ran(root, spark)
    done = repartition(load(root), "totals", 5, spark=spark)
    assert (done.before, done.after, done.batch) == (2, 5, 2)
    assert stores(root, 3) == [0, 1, 2, 3, 4]
    assert verify(load(root), "totals", spark=spark).state == "equal"
    land(root, 2, TWELVE)
    land(root, 3, TWELVE)
    assert [(record.batch, record.rows) for record in ran(root, spark)] == [(3, 12), (4, 12)]
    assert stores(root, 5) == [0, 1, 2, 3, 4]
    assert repartition(load(root), "totals", 5, spark=spark).batch is None
    assert repartition(load(root), "totals", 1, spark=spark).before == 5
    land(root, 4, TWELVE)
    ran(root, spark)
    assert stores(root, 7) == [0]
    assert rows(root / "out.db", SELECT) == [(row["name"], 5 * row["amount"]) for row in TWELVE]
    assert verify(load(root), "totals", spark=spark).state == "equal"


@pytest.mark.capability("TUNE-01", "STATEFUL-05")
def test_the_state_of_a_processor_goes_along(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", PROCESSED, batches=[TWELVE])
    (root / "headrace.yml").write_text("name: p\nspark: {spark.sql.shuffle.partitions: 1}\n")
    ran(root, spark)
    assert repartition(load(root), "totals", 2, spark=spark).batch == 1
    land(root, 1, TWELVE)
    ran(root, spark)
    assert stores(root, 3) == [0, 1]
    assert rows(root / "out.db", SELECT) == [(row["name"], 2 * row["amount"]) for row in TWELVE]


@pytest.mark.capability("TUNE-01")
def test_a_file_sink_goes_on_past_the_compaction_of_its_log(tmp_path: Path, spark: SparkSession) -> None:
    """Spark merges the log of a file sink every ten batches, and stops at a gap."""
    root = write_project(tmp_path / "p", TO_FILES, batches=[TWELVE[:1]])
    ran(root, spark)
    repartition(load(root), "totals", 3, spark=spark)
    for number in range(1, 11):
        land(root, number, TWELVE[: number + 1])
    assert ran(root, spark)[-1].batch == 11
    verdict = verify(load(root), "totals", spark=spark)
    assert (verdict.state, verdict.rows_actual) == ("equal", 11)


@pytest.mark.capability("TUNE-01")
def test_a_change_that_was_cut_off_is_ended_before_anything_else(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=[TWELVE])
    ran(root, spark)
    repartition(load(root), "totals", 4, spark=spark)
    for name in ("1", ".1.crc"):
        (layout_of(root).checkpoint / "commits" / name).unlink()
    land(root, 1, TWELVE)
    (outcome,) = run(load(root), spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, outcome.batches) == ("HR581", 0)
    assert outcome.finding.fix == "end it: headrace state repartition totals 4"
    assert refusal(root, 3, spark)[::2] == ("HR580", "end it first: headrace state repartition totals 4")
    assert repartition(load(root), "totals", 4, spark=spark).batch == 1
    ran(root, spark)
    assert rows(root / "out.db", SELECT) == [(row["name"], 2 * row["amount"]) for row in TWELVE]


@pytest.mark.capability("TUNE-01")
def test_a_change_that_spark_never_began_leaves_no_trace(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=[TWELVE])
    ran(root, spark)
    entered = {"batch": 1, "before": 2, "after": 7, "at": "2026-01-01T00:00:00+00:00"}
    layout_of(root).repartitions.write_text(json.dumps(entered) + "\n")
    land(root, 1, TWELVE)
    ran(root, spark)
    assert stores(root, 2) == [0, 1]
    assert layout_of(root).repartitions.read_text() == ""
    assert rows(root / "out.db", SELECT) == [(row["name"], 2 * row["amount"]) for row in TWELVE]


@pytest.mark.capability("TUNE-01")
def test_a_change_that_cannot_be_made_is_refused_and_changes_nothing(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    assert refusal(root, 4, spark, "total")[::2] == ("HR091", "did you mean 'totals'?")
    assert refusal(root, 4, spark)[:2] == (
        "HR580",
        "the state partitions of query 'totals' cannot be changed: it has no state yet",
    )
    (root / "headrace.yml").write_text("name: p\nstate_store: {provider: hdfs}\n")
    ran(root, spark)
    seen = {path: path.read_bytes() for path in layout_of(root).checkpoint.rglob("*") if path.is_file()}
    assert refusal(root, 0, spark)[0] == "HR113"
    assert "not kept by RocksDB" in refusal(root, 4, spark)[1]
    project = load(root)
    with History.open(history_file(project.storage)) as history:
        history.begin_run("totals", pid=os.getpid(), mode="update", trigger="default", sink="sqlite", generation=1)
    assert refusal(root, 4, spark)[:2] == ("HR526", f"query 'totals' is starting in process {os.getpid()}")
    assert {path: path.read_bytes() for path in layout_of(root).checkpoint.rglob("*") if path.is_file()} == seen


@pytest.mark.capability("TUNE-01")
def test_a_batch_that_is_not_committed_has_to_be_finished_first(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    ran(root, spark)
    (layout_of(root).checkpoint / "commits" / "1").unlink()
    code, sentence, fix = refusal(root, 4, spark)
    assert (code, "batch 1 is planned and not committed" in sentence) == ("HR580", True)
    assert "headrace run totals --available-now" in fix
    ran(root, spark)
    assert repartition(load(root), "totals", 4, spark=spark).batch == 2


@pytest.mark.capability("TUNE-01")
def test_the_command_says_what_it_did(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    ran(root, spark)
    repartition(load(root), "totals", 3, spark=spark)
    assert main(["state", "repartition", "totals", "3", "-C", str(root)]) == 0
    assert capsys.readouterr().out == "totals: the state has 3 partitions already\n"
    assert main(["state", "repartition", "totals", "3", "-C", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"query": "totals", "before": 3, "after": 3, "batch": None}
    assert main(["state", "repartition", "totals", "none", "-C", str(root)]) == 2
    assert main(["state", "repartition", "totls", "3", "-C", str(root)]) == 2
    assert "did you mean 'totals'?" in capsys.readouterr().err


@pytest.mark.capability("TUNE-02")
@pytest.mark.parametrize(
    ("limit", "batches"),
    [("max_files_per_trigger=2", [24, 24, 12]), ("max_bytes_per_trigger={bytes}", [36, 24])],
    ids=["files", "bytes"],
)
def test_a_backlog_is_caught_up_in_batches_of_the_limit(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limit: str, batches: list[int]
) -> None:
    # Otherwise a batch that ends soon after a long look has what that one saw.
    monkeypatch.setattr(query_run, "LAG_SECONDS", 0.0)
    root = write_project(tmp_path / "p", "", batches=[TWELVE] * 5)
    size = (root / "landing" / "0000.json").stat().st_size
    declared = f'limited = hr.source.files("landing", format="json", {limit}, schema="name STRING, amount INT")\n'
    body = TOTALS.replace("events)", "limited)").replace("events.", "limited.")
    write_project(root, declared.format(bytes=3 * size) + body)
    records = ran(root, spark)
    assert [record.rows for record in records] == batches
    # What waits is counted when a batch is heard of; the next one may be done by then.
    after = [5 - sum(batches[: at + 1]) // 12 for at in range(len(batches))]
    waiting = [Lag(count=count, unit="files", bytes=size * count) for count in after]
    assert all(record.backlog in waiting[at:] for at, record in enumerate(records))
    assert rows(root / "out.db", SELECT) == [(row["name"], 5 * row["amount"]) for row in TWELVE]
