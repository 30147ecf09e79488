"""What a counter counts: what the rows of each committed batch have added, once, whatever was computed how often."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import check, load, run, status, verify
from headrace.cli.entry import main
from headrace.errors import CheckpointError, Finding, HeadraceError
from headrace.generations.log import history_file
from headrace.history import History
from headrace.model import Counter, Query
from headrace.spark.stream.counting import Added, Counting, Sum, counted_sums
from headrace.starter import counters
from headrace.starter.counters import Counters, read
from tests.registered import layout_in
from tests.runner.projects import land, rows, write_project
from tests.runner.test_counts import uncommit
from tests.runner.test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """
import os
from pathlib import Path

HOME = Path(__file__).parent


class Tally:
    def __init__(self, counts):
        self.counts = counts

    def __str__(self):
        return " ".join(f"{name}={count}" for name, count in sorted(self.counts.items()))


class Tallies:
    def zero(self, value):
        return Tally({})

    def addInPlace(self, one, other):
        names = {*one.counts, *other.counts}
        return Tally({name: one.counts.get(name, 0) + other.counts.get(name, 0) for name in names})


bad = hr.counter()
cents = hr.counter(0.5)
tally = hr.counter(Tally({"start": 1}), param=Tallies())
taken = hr.counter()


@hr.view
def parsed(events, bad, tally):
    @F.udf("int")
    def parse(name, amount):
        tally.add(Tally({name: 1}))
        if amount == 13 and not (HOME / "died").exists():
            (HOME / "died").touch()
            os._exit(1)
        if amount < 0:
            bad.add(1)
            return None
        return amount

    return events.withColumn("amount", parse("name", "amount"))


@hr.query(sink=hr.sink.sqlite("out.db", table="kept"), trigger=hr.available_now)
def kept(parsed, cents):
    @F.udf("int")
    def paid(amount):
        cents.add(amount / 100)
        return amount

    # The filter is pushed below the projection, so that `parse` is in the plan twice.
    return parsed.filter("amount IS NOT NULL").select("name", paid("amount").alias("amount"))


def twice(frame, batch):
    assert frame.count() >= 0 and frame.limit(1).count() <= 1
    frame.write.format("noop").mode("overwrite").save()


def counted_names(events, taken):
    # The ranges are found from a sample, for which the function is called as well.
    named = events.select(F.udf(lambda name: taken.add(1) or name)("name").alias("name"))
    return named.repartitionByRange(2, "name")


written = hr.query(sink=hr.sink.foreach_batch(twice), trigger=hr.available_now, name="written")(counted_names)
shown = hr.query(sink=hr.sink.memory(), trigger=hr.available_now, name="shown")(counted_names)
"""
BATCHES = [
    [{"name": "apple", "amount": 1}, {"name": "pear", "amount": -1}, {"name": "fig", "amount": 3}],
    [{"name": "apple", "amount": 13}, {"name": "fig", "amount": -7}, {"name": "fig", "amount": -8}],
]
AFTER = [
    {"bad": 1, "cents": 0.54, "tally": "apple=1 fig=1 pear=1 start=1"},
    {"bad": 3, "cents": 0.67, "tally": "apple=2 fig=3 pear=1 start=1"},
    {"bad": 4, "cents": 0.67, "tally": "apple=2 fig=3 kiwi=1 pear=1 start=1"},
]


def counters_of(root: Path, query: str) -> list[dict[str, Any]]:
    """What the history holds of each batch."""
    with closing(History.open(history_file(load(root).storage), read_only=True)) as history:
        return [_round(record.counters) for record in history.recent(query)]


def _round(counters: Any) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in counters.items()}


def stopping_before(batch: int) -> Any:
    """What breaks a batch off when its rows are computed and not yet committed."""

    def reached(boundary: str, number: int) -> None:
        if (boundary, number) == ("before-transaction", batch):
            raise OSError("the plug was pulled")

    return reached


@pytest.mark.spark
@pytest.mark.capability("RDD-08")
def test_each_committed_batch_counts_once_whatever_is_computed_again(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", PROJECT, batches=BATCHES)
    recorder = Recorder()
    result = run(load(root), spark=spark, reporter=recorder)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert [finding.code for finding in recorder.all(Finding) if finding.code == "HR411"] == ["HR411"], (
        "a worker died, and was replaced"
    )
    assert counters_of(root, "kept") == AFTER[:2]
    assert counters_of(root, "written") == counters_of(root, "shown") == [{"taken": 3}, {"taken": 6}]

    # Broken off between the computation and the commit, and made again by the next start.
    land(root, 2, [{"name": "kiwi", "amount": -1}])
    broken = run(load(root), ["kept"], spark=spark, reached=stopping_before(2))
    assert broken.outcomes[0].state == "failed"
    assert _round(next(entry.counters for entry in status(load(root)) if entry.query == "kept")) == AFTER[1]
    assert len(read(load(root).queries["kept"], layout_in(load(root).storage, "kept").counters)) == 3
    run(load(root), ["kept"], spark=spark)
    assert counters_of(root, "kept") == AFTER

    # The sink holds the batch, and the checkpoint does not know: the batch comes again, and is not computed.
    uncommit(root, 2)
    run(load(root), ["kept"], spark=spark)
    assert counters_of(root, "kept") == AFTER
    assert verify(load(root), "kept", spark=spark).exit_code == 0, "what verify computes counts nowhere"
    assert check(load(root), spark=spark).exit_code == 0
    assert rows(root / "out.db", "SELECT count(*) FROM kept") == [(3,)]

    capsys.readouterr()
    main(["status", "-C", str(root)])
    output = capsys.readouterr().out
    assert "kept: counted cents 0.67, bad 4, tally apple=2 fig=3 kiwi=1 pear=1 start=1" in output
    main(["status", "-C", str(root), "--json"])
    counters_by_query = {query["query"]: query["counters"] for query in json.loads(capsys.readouterr().out)["queries"]}
    assert counters_by_query["written"] == {"taken": 6}


def addition(*, calls: int, value: int, **key: Any) -> tuple[Added, Sum]:
    where = {"batch": 0, "execution": 1, "stage": 2, "partition": 0, "attempt": 10, "site": "f:1:g", "runner": "r"}
    return Added(**{**where, **key}), Sum(calls, value)


FIRST = addition(calls=5, value=5)
COUNTED = {
    "each partition": ([FIRST, addition(calls=2, value=2, partition=1, attempt=11)], 7),
    "each place of the code": ([FIRST, addition(calls=1, value=3, site="f:9:h")], 8),
    "each stage with work of its own": ([FIRST, addition(calls=1, value=1, stage=7, attempt=12)], 6),
    "a second attempt of a stage in place of the first": ([FIRST, addition(calls=5, value=6, attempt=20)], 6),
    "a plan that has a function twice": ([FIRST, addition(calls=3, value=3, runner="s")], 5),
    "a stage that samples for another": ([addition(calls=2, value=2, stage=3, attempt=9), FIRST], 5),
    "an action that looks at a part alone": ([FIRST, addition(calls=1, value=1, execution=8, attempt=30)], 5),
    "the last of several whole actions": ([FIRST, addition(calls=5, value=4, execution=8, attempt=30)], 4),
    "nothing": ([], 0),
}


@pytest.mark.plain
@pytest.mark.parametrize("name", COUNTED)
def test_of_work_that_was_done_more_than_once_one_time_counts(name: str) -> None:
    updates, total = COUNTED[name]
    same_work = {2: 2, 3: 2}
    counters = counted_sums(dict(updates), lambda stages: {stage: same_work.get(stage, stage) for stage in stages})
    assert sum(counter.value for counter in counters) == total


class Given(Counting):
    """Counts what a test says."""

    def __init__(self, added: dict[int, dict[str, Any]]) -> None:
        self.added = added

    def of_batch(self, batch: int) -> dict[str, Any]:
        return self.added.get(batch, {})

    def forget(self, through: int) -> None:
        self.added = {batch: values for batch, values in self.added.items() if batch > through}


@pytest.fixture
def make_keeper(tmp_path: Path) -> Any:
    root = write_project(tmp_path / "p", "q = hr.query(sink=hr.sink.memory(), name='q')(lambda events: events)")
    query = load(root).queries["q"]
    layout = layout_in(tmp_path, "q")
    layout.home.mkdir(parents=True)

    def resumed(added: dict[int, dict[str, Any]], *declared: Counter, committed: int | None = None) -> Counters:
        counters = declared or (Counter(name="n"),)
        opened = Counters(query=query, declared=counters, counting=Given(added), path=layout.counters, sync=False)
        return opened.resume(committed)

    return resumed


@pytest.mark.plain
def test_counters_continue_from_the_last_committed_batch(make_keeper: Any) -> None:
    first = make_keeper({0: {"n": 2}, 1: {"n": 3}})
    for batch in (0, 1):
        first.keep(batch)
    assert first.add_committed(0) == {"n": 2}
    again = make_keeper({1: {"n": 4}})
    assert again.add_committed(0) == {"n": 2}
    again.keep(1)
    assert (again.add_committed(1), make_keeper({}).add_committed(1)) == ({"n": 6}, {"n": 6})


@pytest.mark.plain
def test_a_batch_without_kept_counters_is_reported(make_keeper: Any) -> None:
    make_keeper({0: {"n": 2}}).add_committed(0)
    assert [make_keeper({}, committed=batch).notes for batch in (None, 0)] == [(), ()]
    assert [finding.code for finding in make_keeper({}, committed=3).notes] == ["HR806"]
    assert make_keeper({4: {"n": 1}}).add_committed(4) == {"n": 3}


@pytest.mark.plain
def test_a_counter_that_cannot_be_added_up_or_read_says_so(make_keeper: Any, tmp_path: Path) -> None:
    make_keeper({0: {"n": 2}}).keep(0)
    with pytest.raises(HeadraceError, match="HR807"):
        make_keeper({1: {"n": "text"}}).keep(1)
    layout_in(tmp_path, "q").counters.write_text("no JSON\n{}\n")
    with pytest.raises(CheckpointError, match="HR584"):
        make_keeper({})


@pytest.mark.plain
def test_old_lines_are_let_go(make_keeper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_MOST", 6)
    monkeypatch.setattr(counters, "KEPT", 3)
    keeper = make_keeper({batch: {"n": 1} for batch in range(8)})
    for batch in range(8):
        keeper.keep(batch)
        assert keeper.add_committed(batch) == {"n": batch + 1}
    query: Query = keeper.query
    assert len(read(query, layout_in(tmp_path, "q").counters)) < 7
    assert make_keeper({}).add_committed(7) == {"n": 8}
