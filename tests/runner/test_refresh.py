"""A table that is recomputed while a query runs: the next batches see it, and nothing else changes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import check, load, run, start_query, status, verify
from headrace.contract import BatchRecord
from headrace.control.board import RunResult
from headrace.errors import CheckFailed, Finding
from headrace.frames.tables import TableVersions
from headrace.generations.log import history_file
from headrace.history import History
from headrace.model import AvailableNow, Duration, Every
from headrace.runner.stop import StopRequest
from headrace.spark.stream.foreach_batch import Halt
from headrace.testing.conformance import forget_commit
from tests.registered import layout_in
from tests.waiting import PATIENCE_SECONDS, until

from .projects import land, rows, write_project
from .test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PRICES = """
from pathlib import Path

HOME = Path(__file__).parent

@hr.table(refresh=hr.every("1 second"))
def prices(spark):
    with (HOME / "computed.log").open("a") as log:
        log.write("x")
    if (HOME / "down").exists():
        raise ConnectionError("the shop does not answer")
    # Types and values of one look: by its path, Spark would look twice, and the file may be replaced between.
    lines = (HOME / "prices" / "all.json").read_text().splitlines()
    return spark.read.json(spark.sparkContext.parallelize(lines))

@hr.query(sink=hr.sink.sqlite("out.db", table="bills"), trigger=hr.every("200 milliseconds"))
def bills(events, prices):
    return events.join(prices, "name").select("name", (F.col("amount") * F.col("price")).alias("cost"))
"""
BILLS = "SELECT name, cost FROM bills ORDER BY rowid"


@dataclass
class Scene:
    """A project that runs in a thread of its own, and what it reported."""

    root: Path
    spark: SparkSession
    recorder: Recorder
    stop: StopRequest
    result: RunResult | None = None

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        until(what, lambda: self.result is not None or condition())
        assert self.result is None, f"ended before {what}: {self.result}"

    def wait_for_batch(self, number: int) -> None:
        self.wait(f"batch {number}", lambda: any(batch.batch == number for batch in self.batches))

    def wait_for_findings(self, code: str, count: int = 1) -> list[Finding]:
        self.wait(f"{count} of {code}", lambda: len(self.findings(code)) >= count)
        return self.findings(code)

    def computations(self) -> int:
        log = self.root / "computed.log"
        return len(log.read_text()) if log.exists() else 0

    def wait_for_two_refreshes(self) -> None:
        """One of the two began after this was asked for."""
        before = self.computations()
        self.wait("two more refreshes", lambda: self.computations() >= before + 2)

    def findings(self, code: str) -> list[Finding]:
        return [finding for finding in self.recorder.all(Finding) if finding.code == code]

    @property
    def batches(self) -> list[BatchRecord]:
        return self.recorder.all(BatchRecord)

    def sold(self) -> list[tuple[Any, ...]]:
        return rows(self.root / "out.db", BILLS)


@contextmanager
def running(root: Path, spark: SparkSession, **options: Any) -> Iterator[Scene]:
    scene = Scene(root, spark, Recorder(), StopRequest())

    def work() -> None:
        scene.result = run(load(root), spark=spark, reporter=scene.recorder, stop=scene.stop, **options)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield scene
    finally:
        scene.stop.ask()
        thread.join(PATIENCE_SECONDS)
        if thread.is_alive():
            scene.stop.ask()
            thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def set_prices(root: Path, **prices: Any) -> None:
    """Replace the whole table in one step."""
    folder, draft = root / "prices", root / ".prices"
    folder.mkdir(exist_ok=True)
    draft.write_text("".join(json.dumps({"name": name, "price": price}) + "\n" for name, price in prices.items()))
    os.replace(draft, folder / "all.json")


def sale(amount: int) -> list[dict[str, Any]]:
    return [{"name": "apple", "amount": amount}]


def shop(root: Path, body: str = PRICES, **prices: Any) -> Path:
    write_project(root, body, batches=[sale(1)])
    set_prices(root, **(prices or {"apple": 10}))
    return root


def uses(root: Path) -> list[tuple[int, int]]:
    record = TableVersions(layout_in(load(root).storage, "bills").table_record)
    return [(use.from_batch, use.versions["prices"]) for use in record.uses()]


@pytest.mark.capability("JOIN-ST-03")
def test_the_next_batches_see_the_refreshed_table_and_no_observer_sees_a_restart(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = shop(tmp_path / "p")
    with running(root, spark) as scene:
        scene.wait_for_batch(0)
        scene.wait_for_two_refreshes()
        assert scene.findings("HR560") == []
        set_prices(root, apple=20)
        (note,) = scene.wait_for_findings("HR560")
        assert note.what == "table 'prices' of query 'bills' has changed: from batch 1 on its version 2 counts"
        land(root, 1, sale(2))
        scene.wait_for_batch(1)
        land(root, 2, sale(3))
        scene.wait_for_batch(2)
        set_prices(root, apple=30)
        scene.wait_for_findings("HR560", 2)
        land(root, 3, sale(4))
        scene.wait_for_batch(3)
        (seen,) = status(load(root))
        assert (seen.state, seen.now.restarts, seen.batch, seen.rows_total, seen.error) == ("running", 0, 3, 4, None)
    assert scene.sold() == [("apple", 10), ("apple", 40), ("apple", 60), ("apple", 120)]
    assert [batch.batch for batch in scene.batches] == [0, 1, 2, 3]
    assert rows(root / "out.db", "SELECT batch FROM _headrace_ledger ORDER BY 1") == [(0,), (1,), (2,), (3,)]
    assert uses(root) == [(0, 1), (1, 2), (3, 3)]
    assert scene.result is not None
    ((end,),) = (scene.result.outcomes,)
    assert (end.state, end.batches, end.rows, end.last_batch) == ("stopped", 4, 4, 3)
    assert scene.recorder.lines.count("started bills") == 1
    verdict = verify(load(root), "bills", spark=spark)
    assert (verdict.state, verdict.rows_read, verdict.rows_expected) == ("equal", 4, 4)


@pytest.mark.long
@pytest.mark.capability("JOIN-ST-03")
def test_while_a_table_is_not_to_be_had_the_last_version_counts_and_status_says_so(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = shop(tmp_path / "p")
    with running(root, spark) as scene:
        scene.wait_for_batch(0)
        (root / "down").touch()
        (fault,) = scene.wait_for_findings("HR561")
        assert fault.severity == "warning"
        assert fault.what == (
            "table 'prices' of query 'bills' could not be computed: the function prices failed with ConnectionError: "
            "the shop does not answer; it continues with the last version"
        )
        assert (fault.where.file or "").endswith("pipeline.py")
        scene.wait_for_two_refreshes()
        assert len(scene.findings("HR561")) == 1, "the same fault is reported once"
        land(root, 1, sale(2))
        scene.wait_for_batch(1)
        (seen,) = status(load(root))
        assert (seen.state, seen.error) == ("running", fault)
        set_prices(root, apple=20)
        (root / "down").unlink()
        scene.wait_for_findings("HR560")
        set_prices(root, apple="dear")
        (other,) = scene.wait_for_findings("HR562")
        assert other.what == (
            "table 'prices' of query 'bills' has other columns than at the start: name string, price string in place "
            "of name string, price bigint; it continues with the last version"
        )
        land(root, 2, sale(3))
        scene.wait_for_batch(2)
        (seen,) = status(load(root))
        assert (seen.state, seen.error) == ("running", other)
        set_prices(root, apple=20)
        scene.wait("a good refresh", lambda: status(load(root))[0].error is None)
    assert scene.sold() == [("apple", 10), ("apple", 20), ("apple", 60)]
    assert uses(root) == [(0, 1), (2, 2)]
    assert verify(load(root), "bills", spark=spark).state == "equal"


COUNTING = """
import json
from pathlib import Path

HOME = Path(__file__).parent

@hr.table(refresh="1 second")
def prices(spark):
    with (HOME / "computed.log").open("a") as log:
        log.write("x")
    number = (HOME / "computed.log").stat().st_size
    return spark.createDataFrame([("apple", number)], "name STRING, price INT")

def write(frame, batch):
    with (HOME / "begun.log").open("a") as log:
        log.write(f"{batch}\\n")
    found = [list(row) for row in frame.collect()]
    with (HOME / "written.log").open("a") as log:
        log.write(json.dumps([batch, found]) + "\\n")

@hr.query(sink=hr.sink.foreach_batch(write))
def bills(events, prices):
    return events.join(prices, "name").select("amount", "price")
"""


@pytest.mark.capability("JOIN-ST-03")
def test_a_query_that_is_never_idle_is_halted_between_two_batches(tmp_path: Path, spark: SparkSession) -> None:
    """The sink notes every batch that it is given, so it would show one that was broken off and came again."""
    root = write_project(tmp_path / "p", COUNTING, batches=[sale(number) for number in range(400)])
    with running(root, spark) as scene:
        scene.wait_for_findings("HR560", 3)
        last = scene.batches[-1].batch
        scene.wait("three more batches", lambda: scene.batches[-1].batch >= last + 3)
        assert last < 390, "it was to be busy all the time"
    record = TableVersions(layout_in(load(root).storage, "bills").table_record)
    written = [json.loads(line) for line in (root / "written.log").read_text().splitlines()]
    # Each version counts one more than the one before.
    assert written == [[batch, [[batch, record.in_force(batch)["prices"]]]] for batch in range(len(written))]
    assert (root / "begun.log").read_text().split() == [str(batch) for batch in range(len(written))]
    assert len({versions[0][1] for _, versions in written}) >= 3


def test_a_batch_that_is_broken_off_all_the_same_is_made_again_before_the_new_version_counts(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_at_once(halt: Halt) -> bool:
        halt._handle.stop()
        return True

    monkeypatch.setattr(Halt, "step", stop_at_once)
    root = write_project(tmp_path / "p", COUNTING, batches=[sale(number) for number in range(400)])
    begun = root / "begun.log"
    with running(root, spark) as scene:
        scene.wait_for_findings("HR560", 2)
        scene.wait("a batch again", lambda: len(begun.read_text().split()) > len(set(begun.read_text().split())))
        scene.wait_for_findings("HR560", len(scene.findings("HR560")) + 1)
        last = scene.batches[-1].batch
        scene.wait("three more batches", lambda: scene.batches[-1].batch >= last + 3)
    record = TableVersions(layout_in(load(root).storage, "bills").table_record)
    written = [json.loads(line) for line in (root / "written.log").read_text().splitlines()]
    assert sorted({batch for batch, _ in written}) == list(range(written[-1][0] + 1))
    assert all(rows == [[batch, record.in_force(batch)["prices"]]] for batch, rows in written)


def test_a_batch_that_comes_again_sees_the_version_that_it_was_begun_with(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", COUNTING, batches=[sale(1)])
    project = load(root)
    now = AvailableNow()
    run(project, spark=spark, trigger=now)
    land(root, 1, sale(2))
    run(project, spark=spark, trigger=now)
    forget_commit(layout_in(project.storage, "bills").checkpoint)
    leftovers = layout_in(project.storage, "bills").tables / "prices"
    (leftovers / ".3").mkdir()
    (leftovers / "9").mkdir()
    land(root, 2, sale(3))
    recorder = Recorder()
    assert run(project, spark=spark, trigger=now, reporter=recorder).exit_code == 0
    written = [json.loads(line) for line in (root / "written.log").read_text().splitlines()]
    assert written == [[0, [[1, 1]]], [1, [[2, 2]]], [1, [[2, 2]]], [2, [[3, 3]]]]
    assert [batch.batch for batch in recorder.all(BatchRecord)] == [1, 2]
    assert recorder.lines.count("started bills") == 1
    assert uses(root) == [(0, 1), (1, 2), (2, 3)]
    assert sorted(path.name for path in leftovers.iterdir()) == ["1", "2", "3"]


def test_at_a_later_start_the_last_version_stands_in_for_a_table_that_is_not_to_be_had(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = shop(tmp_path / "p")
    (root / "down").touch()
    (failed,) = run(load(root), spark=spark, trigger=AvailableNow()).outcomes
    assert (failed.state, failed.batches) == ("failed", 0)
    assert failed.finding is not None
    assert (failed.finding.code, failed.finding.severity) == ("HR561", "error")
    assert "the shop does not answer" in failed.finding.what
    (root / "down").unlink()
    assert run(load(root), spark=spark, trigger=AvailableNow()).exit_code == 0
    (root / "down").touch()
    land(root, 1, sale(2))
    recorder = Recorder()
    assert run(load(root), spark=spark, trigger=AvailableNow(), reporter=recorder).exit_code == 0
    assert [(finding.code, finding.severity) for finding in recorder.all(Finding)] == [("HR561", "warning")]
    (root / "down").unlink()
    assert run(load(root), spark=spark, trigger=AvailableNow()).exit_code == 0
    assert uses(root) == [(0, 1)], "a table that stays the same keeps its version"
    assert rows(root / "out.db", BILLS) == [("apple", 10), ("apple", 20)]


def test_a_driver_that_has_a_successor_does_not_fence_it_off_by_a_refresh(tmp_path: Path, spark: SparkSession) -> None:
    root = shop(tmp_path / "p")
    with running(root, spark) as scene:
        scene.wait_for_batch(0)
        with History.open(history_file(load(root).storage)) as history:
            history.begin_run("bills", pid=1, mode="append", trigger="", sink="sqlite", generation=1)
        set_prices(root, apple=20)
        until("the end", lambda: scene.result is not None)
    assert scene.result is not None
    (end,) = scene.result.outcomes
    assert end.finding is not None
    assert (end.state, end.finding.code) == ("failed", "HR409")
    assert rows(root / "out.db", "SELECT epoch FROM _headrace_epochs") == [(1,)]


UNFIT = {
    "HR113": ('"1 second"', '"900 ms"', "the least is 1 second"),
    "HR292": ("hr.available_now", "hr.real_time('5 seconds')", "makes no batches for it to change between"),
    "HR292, a sink": ("hr.sink.files('out'), trigger=hr.available_now", "hr.sink.console()", "keeps nothing"),
    "HR292, a source": ("hr.available_now", "hr.every('1 second')", "the source 'events' cannot resume"),
}
SMALL = """
import headrace as hr

events = hr.source.files("landing", format="json", schema="name STRING")

@hr.table(refresh="1 second")
def prices(spark):
    return spark.range(1)

@hr.query(sink=hr.sink.files('out'), trigger=hr.available_now)
def bills(events, prices):
    return events.crossJoin(prices)
"""


@pytest.mark.capability("JOIN-ST-03")
@pytest.mark.parametrize("case", UNFIT)
def test_what_could_not_be_halted_is_refused_before_start(tmp_path: Path, spark: SparkSession, case: str) -> None:
    old, new, words = UNFIT[case]
    code = case[:5]
    text = SMALL.replace(old, new)
    if case == "HR292, a source":
        text = text.replace(
            'hr.source.files("landing", format="json", schema="name STRING")',
            "hr.source.socket(host='localhost', port=9)",
        )
    (tmp_path / "pipeline.py").write_text(text)
    (tmp_path / "landing").mkdir()
    findings = [finding for finding in check(load(tmp_path), spark=False).findings if finding.code == code]
    assert [finding.severity for finding in findings] == ["error"]
    assert words in findings[0].what
    assert findings[0].fix
    with pytest.raises(CheckFailed) as refused:
        run(load(tmp_path), spark=spark)
    assert findings[0] in refused.value.findings


def test_in_a_session_of_ones_own_a_refreshed_table_is_refused_unless_the_run_ends(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "pipeline.py").write_text(SMALL)
    (tmp_path / "landing").mkdir()
    project = load(tmp_path)
    assert project.tables["prices"].refresh == Duration("1 second", 1.0)
    with pytest.raises(CheckFailed) as refused:
        start_query(project, project.queries["bills"], spark, trigger=Every(Duration.parse("1 second")))
    assert [finding.code for finding in refused.value.findings] == ["HR292"]
    start_query(project, project.queries["bills"], spark).awaitTermination(60)
