"""Timeouts of state: by the clock, by event time, and as a task that comes round."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run
from headrace.contract import BatchRecord
from headrace.model import AvailableNow
from headrace.runner.stop import StopRequest
from tests.runner.projects import land, rows, write_project
from tests.runner.test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# The book's function: active with each action, inactive and forgotten when the time is over.
STATUSES = """
import pandas as pd

SCHEMA = "user STRING, time TIMESTAMP"
actions = hr.source.files("landing", format="json", max_files_per_trigger=1, schema=SCHEMA{watermark})


def status(key, frames, state):
    if state.hasTimedOut:
        assert not [frame for frame in frames if len(frame)], "a call for a timeout has no data"
        state.remove()
        yield pd.DataFrame({{"user": [key[0]], "active": [False]}})
    else:
        latest = max(frame["time"].max() for frame in frames)
        state.update((True,))
        {timeout}
        yield pd.DataFrame({{"user": [key[0]], "active": [True]}})


@hr.query(sink=hr.sink.sqlite("out.db", table="statuses", key=["user"]), mode="update", trigger={trigger})
def statuses(actions):
    result = "user STRING, active BOOLEAN"
    return actions.groupBy("user").applyInPandasWithState(status, result, "active BOOLEAN", "update", "{kind}")
"""
BY_CLOCK = {"watermark": "", "kind": "ProcessingTimeTimeout"}
BY_EVENTS = {
    "watermark": ', watermark=("time", "10 minutes")',
    "kind": "EventTimeTimeout",
    "trigger": "hr.available_now",
}
SELECT = "SELECT user, active FROM statuses ORDER BY 1"

REPORTS = """
import pandas as pd

actions = hr.source.files("landing", format="json", max_files_per_trigger=1, schema="user STRING, time TIMESTAMP")
PERIOD_MS = 1000


def report(key, frames, state):
    now = state.getCurrentProcessingTimeMs()
    actions, number, last = state.get if state.exists else (0, 0, now)
    new = sum(len(frame) for frame in frames)
    actions += new
    if now - last >= PERIOD_MS:
        number, last = number + 1, now
        yield pd.DataFrame({"user": [key[0]], "number": [number], "actions": [actions], "new": [new], "at": [now]})
    state.update((actions, number, last))
    state.setTimeoutDuration(last + PERIOD_MS - now)


@hr.query(sink=hr.sink.sqlite("out.db", table="reports", key=["user", "number"]))
def reports(actions):
    result = "user STRING, number LONG, actions LONG, new LONG, at LONG"
    state = "actions LONG, number LONG, last LONG"
    return actions.groupBy("user").applyInPandasWithState(report, result, state, "append", "ProcessingTimeTimeout")
"""


def at(time: str, *users: str) -> list[dict[str, str]]:
    return [{"user": user, "time": f"2026-03-01T{time}:00Z"} for user in users]


def ran(root: Path, spark: SparkSession, until: Callable[[int], bool] | None = None) -> list[BatchRecord]:
    """Run to the end, or until what a batch has left is as wished."""
    stop, recorder = StopRequest(), Recorder()

    def reached(boundary: str, batch: int) -> None:
        if boundary == "after-transaction" and until is not None and until(batch):
            stop.ask()

    result = run(load(root), spark=spark, reporter=recorder, stop=stop, reached=reached)
    assert [str(end.finding) for end in result.outcomes if end.finding] == []
    return recorder.all(BatchRecord)


@pytest.mark.capability("STATEFUL-03")
def test_a_user_is_inactive_when_the_clock_has_gone_on_without_data(tmp_path: Path, spark: SparkSession) -> None:
    text = STATUSES.format(timeout="state.setTimeoutDuration(1500)", trigger="None", **BY_CLOCK)
    root = write_project(tmp_path / "p", text, batches=[at("12:00", "ann", "bob")])
    seen = []

    inactive = []

    def until(batch: int) -> bool:
        seen.append(rows(root / "out.db", SELECT))
        if seen[-1] == [("ann", 0), ("bob", 0)]:
            inactive.append(batch)
        return bool(inactive)

    records = ran(root, spark, until)
    assert seen[0] == [("ann", 1), ("bob", 1)]
    assert seen[-1] == [("ann", 0), ("bob", 0)]
    # One more may have begun when it was asked to stop.
    (last,) = (record for record in records if record.batch == inactive[0])
    assert (last.rows, last.state_rows) == (0, 0)


@pytest.mark.capability("STATEFUL-03")
def test_while_the_query_was_down_everybodys_time_has_run_out(tmp_path: Path, spark: SparkSession) -> None:
    text = STATUSES.format(timeout="state.setTimeoutDuration(1)", trigger="hr.once", **BY_CLOCK)
    root = write_project(tmp_path / "p", text, batches=[at("12:00", "ann", "bob")])
    ran(root, spark)
    assert rows(root / "out.db", SELECT) == [("ann", 1), ("bob", 1)]
    land(root, 1, at("12:01", "bob", "cat"))
    ran(root, spark)
    assert rows(root / "out.db", SELECT) == [("ann", 0), ("bob", 1), ("cat", 1)], "new data cancels bob's timeout"


@pytest.mark.capability("STATEFUL-03")
def test_a_run_that_is_to_end_is_refused_a_timeout_by_the_clock(tmp_path: Path, spark: SparkSession) -> None:
    """Spark would make batches without data indefinitely, each to look for timeouts."""
    text = STATUSES.format(timeout="state.setTimeoutDuration(1)", trigger="hr.every('1 second')", **BY_CLOCK)
    root = write_project(tmp_path / "p", text, batches=[at("12:00", "ann")])
    assert [finding for finding in check(load(root), spark=spark).findings if finding.severity == "error"] == []
    (outcome,) = run(load(root), spark=spark, trigger=AvailableNow()).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, outcome.batches) == ("HR261", 0)


@pytest.mark.capability("STATEFUL-04")
def test_an_hour_of_event_time_makes_inactive_and_a_downtime_does_not(tmp_path: Path, spark: SparkSession) -> None:
    """The book's ten minutes and one hour: ann's time is over when the watermark is later than 13:00."""
    timeout = "state.setTimeoutTimestamp(int(latest.timestamp() * 1000) + 60 * 60 * 1000)"
    root = write_project(tmp_path / "p", STATUSES.format(timeout=timeout, **BY_EVENTS), batches=[at("12:00", "ann")])
    ran(root, spark)
    assert rows(root / "out.db", SELECT) == [("ann", 1)]
    for number, time in enumerate(("13:00", "13:10", "13:11"), start=1):
        land(root, number, at(time, "bob"))
    seen = []

    def look(batch: int) -> bool:
        seen.append(rows(root / "out.db", SELECT))
        return False

    records = ran(root, spark, look)
    assert seen == [[("ann", 1), ("bob", 1)]] * 3 + [[("ann", 0), ("bob", 1)]]
    assert (records[-1].rows, records[-1].state_rows) == (0, 1), "the batch without data let ann go"


@pytest.mark.capability("STATEFUL-04")
def test_the_book_counts_the_hour_from_the_watermark(tmp_path: Path, spark: SparkSession) -> None:
    """In the first batch there is no watermark yet, so the next one ends the hour of each user in it."""
    timeout = "state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 60 * 60 * 1000)"
    batches = [at("12:00", "ann"), at("12:30", "bob"), at("13:00", "bob", "cat")]
    root = write_project(tmp_path / "p", STATUSES.format(timeout=timeout, **BY_EVENTS), batches=batches)
    ran(root, spark)
    assert rows(root / "out.db", SELECT) == [("ann", 0), ("bob", 1), ("cat", 1)]


@pytest.mark.capability("STATEFUL-06")
def test_a_task_comes_round_in_its_period_whether_there_is_data_or_not(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", REPORTS, batches=[at("12:00", "ann")])
    landed = [1]

    def until(batch: int) -> bool:
        made = rows(root / "out.db", "SELECT max(number) FROM reports")[0][0] or 0
        if made < 2 and landed[0] < 40:
            land(root, landed[0], at("12:01", "ann"))
            landed[0] += 1
        return bool(made >= 4)

    ran(root, spark, until)
    made = rows(root / "out.db", "SELECT number, actions, new, at FROM reports ORDER BY 1")
    assert [number for number, *_ in made] == list(range(1, len(made) + 1))
    assert made[0][2] == 1, "data that comes in between does not put the task off"
    assert [new for _, _, new, _ in made[-2:]] == [0, 0]
    assert made[-1][1] == landed[0]
    gaps = [later[3] - before[3] for before, later in pairwise(made)]
    assert min(gaps) >= 1000
