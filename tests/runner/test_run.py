"""A project runs as a stream, query by query, and each one's end is reported."""

from __future__ import annotations

import json
import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, status, verify
from headrace.checkpoint import Checkpoint
from headrace.connectors.sql.sqlite import Sqlite
from headrace.contract import BatchRecord, Observer, Outcome, QueryStart
from headrace.errors import CheckFailed, CheckpointError, Finding, HeadraceError
from headrace.model import AvailableNow
from headrace.runner import supervision
from headrace.runner.query_run import Watching
from headrace.runner.stop import StopRequest
from headrace.spark.stream.listener import Listener, ListenerEvent
from headrace.starter import start
from tests.registered import layout_in
from tests.rounds import rounds

from .projects import land, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOTALS = """
@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", trigger=hr.available_now)
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))
"""
FRUIT = [[{"name": "apple", "amount": 1}, {"name": "pear", "amount": 2}], [{"name": "apple", "amount": 3}]]


@dataclass
class Recorder(Observer):
    """A reporter that remembers."""

    lines: list[object] = field(default_factory=list)

    def started(self, start: QueryStart) -> None:
        self.lines.append(f"started {start.query}")

    def progressed(self, record: BatchRecord) -> None:
        self.lines.append(record)

    def ended(self, outcome: Outcome) -> None:
        self.lines.append(outcome)

    def note(self, finding: Finding) -> None:
        self.lines.append(finding)

    def all(self, kind: type) -> list:  # type: ignore[type-arg]
        return [line for line in self.lines if isinstance(line, kind)]


@pytest.mark.capability("TRIG-04")
def test_available_now_takes_the_backlog_in_batches_and_ends(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    recorder = Recorder()
    result = run(load(root), spark=spark, reporter=recorder)
    assert [(end.query, end.state, end.batches, end.rows) for end in result.outcomes] == [("totals", "finished", 2, 3)]
    assert result.exit_code == 0
    assert sorted(rows(root / "out.db", "SELECT name, amount FROM totals")) == [("apple", 4), ("pear", 2)]
    assert recorder.lines[0] == "started totals"
    batches = recorder.all(BatchRecord)
    assert [batch.batch for batch in batches] == [0, 1]
    assert [source.name for source in batches[0].sources] == ["events"]
    assert batches[-1].backlog is not None
    # What the sink took by itself is a part of what Spark took to process the batch.
    assert all(batch.write_ms is not None and batch.write_ms <= batch.durations["addBatch"] for batch in batches)


def test_a_batch_that_was_not_committed_comes_first(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    project = load(root)
    run(project, spark=spark)
    (layout_in(project.storage, "totals").checkpoint / "commits" / "1").unlink()
    land(root, 2, [{"name": "fig", "amount": 9}])
    recorder = Recorder()
    assert run(project, spark=spark, reporter=recorder).exit_code == 0
    assert [batch.batch for batch in recorder.all(BatchRecord)] == [1, 2]
    assert sorted(rows(root / "out.db", "SELECT * FROM totals")) == [("apple", 4), ("fig", 9), ("pear", 2)]
    assert rows(root / "out.db", "SELECT batch FROM _headrace_ledger ORDER BY 1") == [(0,), (1,), (2,)]


def test_a_first_batch_whose_plan_was_cut_off_is_planned_again(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    project = load(root)
    offsets = layout_in(project.storage, "totals").checkpoint / "offsets"
    offsets.mkdir(parents=True)
    # As Spark leaves them when its process is killed, or the disk is full.
    draft = offsets / ".0.4c0b9a56-2c0b-4d4e-8e8c-4b7d0e3f9a11.tmp"
    for file in (draft, offsets / f".{draft.name}.crc"):
        file.write_bytes(b"v1\n{")
    assert run(project, spark=spark).exit_code == 0
    assert [file.name for file in offsets.iterdir() if ".tmp" in file.name] == []
    assert verify(project, "totals", spark=spark).state == "equal"


@pytest.mark.capability("MANAGE-02")
def test_a_query_that_fails_does_not_stop_the_others(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(
        tmp_path / "p",
        TOTALS
        + """
@F.udf("int")
def refuse(amount):
    raise ValueError(f"no price of {amount}")


@hr.query(sink=hr.sink.sqlite("bad.db", table="bad"), trigger=hr.available_now)
def bad(events):
    return events.select("name", refuse("amount").alias("price"))
""",
        batches=FRUIT,
    )
    result = run(load(root), spark=spark)
    ends = {end.query: end for end in result.outcomes}
    assert (ends["totals"].state, ends["bad"].state, result.exit_code) == ("finished", "failed", 1)
    finding = ends["bad"].finding
    assert finding is not None
    assert (finding.code, finding.where.line is not None) == ("HR601", True)
    assert "ValueError: no price of" in finding.what
    assert "Traceback" not in str(finding)
    states = {entry.query: entry.state for entry in status(load(root))}
    assert states == {"totals": "finished", "bad": "failed"}


@pytest.mark.capability("MANAGE-04")
@pytest.mark.parametrize("trigger", rounds(["every('1 second')", "None"]))
def test_a_stop_lets_the_running_batch_finish(tmp_path: Path, spark: SparkSession, trigger: str) -> None:
    body = TOTALS.replace("hr.available_now", trigger.replace("every", "hr.every"))
    root = write_project(tmp_path / "p", body, batches=FRUIT * 20)
    stop, inside = StopRequest(), []

    def reached(boundary: str, batch: int) -> None:
        if boundary == "before-transaction" and batch == 0:
            stop.ask()
            time.sleep(1)
            inside.append(batch)

    result = run(load(root), spark=spark, stop=stop, reached=reached)
    assert [(end.state, end.finding) for end in result.outcomes] == [("stopped", None)]
    assert inside == [0]
    checkpoint = Checkpoint(layout_in(root / ".headrace", "totals").checkpoint)
    assert checkpoint.last_committed is not None
    # At most the batch after it was planned, of which nothing is written; see `Halt`, where Spark is too quick for it.
    assert checkpoint.last_batch in (checkpoint.last_committed, checkpoint.last_committed + 1)
    assert checkpoint.last_committed < 39
    written = [batch for (batch,) in rows(root / "out.db", "SELECT batch FROM _headrace_ledger ORDER BY 1")]
    assert written == list(range(checkpoint.last_committed + 1))


class Late:
    """Spark's events, of which the batches' come only when `on_time` is set, as from a busy machine."""

    def __init__(self, events: queue.SimpleQueue[ListenerEvent], on_time: threading.Event) -> None:
        self.events, self.on_time = events, on_time
        self.held: list[ListenerEvent] = []

    def get(self, timeout: float = 0.0) -> ListenerEvent:
        if self.held and self.on_time.is_set():
            return self.held.pop(0)
        event = self.events.get(timeout=timeout) if timeout else self.events.get_nowait()
        if event.kind != "progress" or self.on_time.is_set():
            return event
        self.held.append(event)
        raise queue.Empty

    get_nowait = get

    def qsize(self) -> int:
        return len(self.held) + self.events.qsize()

    def put(self, event: ListenerEvent) -> None:
        self.events.put(event)


def test_late_word_of_the_batch_before_is_not_taken_for_the_end_of_the_running_one(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", TOTALS.replace("hr.available_now", "None"), batches=FRUIT)
    stop, on_time, inside = StopRequest(), threading.Event(), []

    def listener(spark: SparkSession) -> Listener:
        late = Listener(spark)
        late.events = Late(late.events, on_time)  # type: ignore[assignment]
        return late

    def reached(boundary: str, batch: int) -> None:
        if (boundary, batch) == ("before-transaction", 1):
            stop.ask()
            time.sleep(1)
            on_time.set()
            time.sleep(1)
            inside.append(batch)

    monkeypatch.setattr(supervision, "Listener", listener)
    result = run(load(root), spark=spark, stop=stop, reached=reached)
    assert [(end.state, end.batches, end.finding) for end in result.outcomes] == [("stopped", 2, None)]
    assert inside == [1]


def test_a_query_that_a_stop_has_kept_from_its_start_has_its_line(tmp_path: Path, spark: SparkSession) -> None:
    stop = StopRequest()
    stop.ask()
    root = write_project(tmp_path / "p", TOTALS + TOTALS.replace("totals", "again"), batches=FRUIT)
    result = run(load(root), spark=spark, stop=stop)
    assert [(end.query, end.state, end.batches) for end in result.outcomes] == [
        ("totals", "stopped", 0),
        ("again", "stopped", 0),
    ]


def test_asked_twice_a_run_does_not_wait(tmp_path: Path, spark: SparkSession) -> None:
    body = TOTALS.replace("amount').alias", "amount').alias").replace("hr.available_now", "None")
    root = write_project(tmp_path / "p", body, batches=FRUIT)
    stop, go_on = StopRequest(), threading.Event()

    def reached(boundary: str, batch: int) -> None:
        if boundary == "before-transaction" and batch == 1:
            stop.ask()
            stop.ask()
            go_on.wait(2)

    result = run(load(root), spark=spark, stop=stop, reached=reached)
    assert [end.state for end in result.outcomes] == ["stopped"]
    assert run(load(root), spark=spark, trigger=AvailableNow()).exit_code == 0
    assert sorted(rows(root / "out.db", "SELECT name, amount FROM totals")) == [("apple", 4), ("pear", 2)]


@pytest.mark.capability("TUNE-01")
def test_a_checkpoint_keeps_its_number_of_state_partitions(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT[:1])
    (root / "headrace.yml").write_text("name: p\nspark: {spark.sql.shuffle.partitions: 3}\n")
    assert run(load(root), spark=spark).exit_code == 0
    checkpoint = Checkpoint(layout_in(root / ".headrace", "totals").checkpoint)
    assert checkpoint.state_partitions() == 3
    (root / "headrace.yml").write_text("name: p\nspark: {spark.sql.shuffle.partitions: 5}\n")
    land(root, 1, FRUIT[1])
    assert run(load(root), spark=spark).exit_code == 0
    assert checkpoint.state_partitions() == 3
    assert sorted(rows(root / "out.db", "SELECT name, amount FROM totals")) == [("apple", 4), ("pear", 2)]


@pytest.mark.capability("MODEL-01")
def test_the_same_function_runs_as_a_batch_and_as_a_stream(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    project = load(root)
    run(project, spark=spark)
    function = project.queries["totals"].transform.function  # type: ignore[union-attr]
    batch = function(spark.read.schema("name STRING, amount INT").json(str(root / "landing")))
    assert sorted(map(tuple, batch.collect())) == sorted(rows(root / "out.db", "SELECT name, amount FROM totals"))
    assert verify(project, "totals", spark=spark).state == "equal"


def test_a_changed_query_is_refused_each_time_until_the_change_is_undone(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT[:1])

    def started(**options: bool) -> set[str]:
        notes = Recorder()
        result = run(load(root), spark=spark, reporter=notes, **options)
        assert result.exit_code == (78 if any(outcome.refused for outcome in result.outcomes) else 0)
        return {outcome.finding.code for outcome in result.outcomes if outcome.finding} | {
            finding.code for finding in notes.all(Finding) if finding.code == "HR538"
        }

    assert started() == set()
    land(root, 1, FRUIT[1])
    text = (root / "pipeline.py").read_text()
    (root / "pipeline.py").write_text(text.replace('F.sum("amount")', 'F.max(F.col("amount").cast("bigint"))'))
    assert [started(), started(), started(accept_forward=True)] == [{"HR535"}] * 3
    (root / "pipeline.py").write_text(text.replace('F.sum("amount")', '(F.sum("amount") * 2)'))
    assert started() == {"HR537"}
    assert started(accept_forward=True) == {"HR538"}
    land(root, 2, FRUIT[1])
    assert started() == set()
    lines = (layout_in(root / ".headrace", "totals").home / "manifest.jsonl").read_text().splitlines()
    assert [json.loads(line)["from_batch"] for line in lines] == [0, 1]
    fingerprints = rows(root / "out.db", "SELECT fingerprint FROM _headrace_ledger ORDER BY batch")
    assert [fingerprints.count(fingerprint) for fingerprint in fingerprints] == [1, 2, 2]


def test_functions_of_the_project_reach_the_python_workers(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(
        tmp_path / "p",
        """
        def double(amount):
            return 2 * amount

        @F.udf("int")
        def doubled(amount):
            return double(amount)

        @hr.query(sink=hr.sink.sqlite("out.db", table="twice"), trigger=hr.available_now)
        def twice(events):
            return events.select("name", doubled("amount").alias("amount"))
        """,
        batches=FRUIT,
    )
    assert run(load(root), spark=spark).exit_code == 0
    assert sorted(rows(root / "out.db", "SELECT * FROM twice")) == [("apple", 2), ("apple", 6), ("pear", 4)]


@pytest.mark.capability("OP-BASIC-02")
def test_views_tables_and_sql_come_together(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(
        tmp_path / "p",
        """
        @hr.table
        def kinds(spark):
            return spark.createDataFrame([("apple", "pome"), ("plum", "drupe")], "name STRING, kind STRING")

        @hr.view
        def dear(events):
            return events.where("amount > 1")
        """,
        batches=[*FRUIT, [{"name": "plum", "amount": 7}]],
    )
    (root / "headrace.yml").write_text(
        """
name: p
queries:
  by_kind:
    select: SELECT kind, sum(amount) AS amount FROM dear JOIN kinds USING (name) GROUP BY kind
    mode: complete
    trigger: available-now
    sink: {sqlite: {path: out.db, table: by_kind}}
"""
    )
    assert run(load(root), spark=spark).exit_code == 0
    assert sorted(rows(root / "out.db", "SELECT * FROM by_kind")) == [("drupe", 7), ("pome", 3)]
    assert verify(load(root), "by_kind", spark=spark).state == "equal"


@pytest.mark.parametrize(
    ("names", "body", "code"),
    [
        pytest.param(["totalz"], TOTALS, "HR091", id="misspelt query"),
        pytest.param(None, "", "HR128", id="no query"),
        pytest.param(None, TOTALS.replace("(events)", "(event)").replace("events.", "event."), "HR204", id="input"),
    ],
)
def test_what_cannot_start_is_reported_before_anything_starts(
    tmp_path: Path, spark: SparkSession, names: list[str] | None, body: str, code: str
) -> None:
    root = write_project(tmp_path / "p", body)
    with pytest.raises(HeadraceError) as caught:
        run(load(root), names, spark=spark)
    assert [finding.code for finding in caught.value.findings] == [code]


def test_an_unwritable_storage_is_one_sentence(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    (root / ".headrace").write_text("a file where the directory should be")
    with pytest.raises(CheckFailed) as refused:
        run(load(root), spark=spark)
    (finding,) = refused.value.findings
    assert finding.code == "HR540"
    assert "\n" not in finding.what
    assert not (root / "out.db").exists()


def test_a_start_that_cannot_be_recorded_leaves_no_stream_behind(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT[:1])
    assert run(load(root), spark=spark).exit_code == 0
    full = CheckpointError(Finding(code="HR541", what="no space is left", fix="make room"))

    def fails(*_: object) -> None:
        raise full

    monkeypatch.setattr(start, "enter_run", fails)
    land(root, 1, FRUIT[1])
    (outcome,) = run(load(root), spark=spark).outcomes
    assert (outcome.state, outcome.finding) == ("failed", full.findings[0])
    assert spark.streams.active == []
    monkeypatch.undo()
    assert run(load(root), spark=spark).exit_code == 0
    assert verify(load(root), "totals", spark=spark).state == "equal"


def test_a_run_that_is_cut_off_does_not_wait_for_a_start_that_hangs_in_its_sink(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, released = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        waits.set()
        released.wait(60)

    def cut_off(*_: object, **__: object) -> None:
        if waits.wait(0.1):
            raise KeyboardInterrupt

    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    monkeypatch.setattr(Sqlite, "open", hang)
    monkeypatch.setattr(Watching, "take_events", cut_off)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(load(root), spark=spark)
        assert time.monotonic() - begun < 30
    finally:
        released.set()
