"""State of any kind by applyInPandasWithState: the book's user status and alerts, and what Spark does not allow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run
from headrace.contract import BatchRecord
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import land, rows, write_project
from tests.runner.test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

USERS = """
import pandas as pd

actions = hr.source.files("landing", format="json", max_files_per_trigger=1, schema="user STRING, action STRING")


def known(state):
    return state.get[0] if state.exists else False


def status(key, frames, state):
    active = known(state)
    for frame in frames:
        for action in frame["action"]:
            active = action != "leave"
    state.update((active,))
    yield pd.DataFrame({"user": [key[0]], "active": [active]})


def alerts(key, frames, state):
    active = known(state)
    for frame in frames:
        for action in frame["action"]:
            if active != (action != "leave"):
                active = not active
                yield pd.DataFrame({"user": [key[0]], "alert": ["came" if active else "left"]})
    state.update((active,))


def with_state(frame, function, result, mode, timeout="NoTimeout"):
    return frame.groupBy("user").applyInPandasWithState(function, result, "active BOOLEAN", mode, timeout)
"""
STATUS = """
@hr.query(sink=hr.sink.sqlite("out.db", table="statuses", key=["user"]), mode="update", trigger=hr.available_now)
def statuses(actions):
    return with_state(actions, status, "user STRING, active BOOLEAN", "update")
"""
ALERTS = """
@hr.query(sink=hr.sink.{sink}, mode="{mode}", trigger=hr.available_now)
def user_alerts(actions):
    return with_state(actions, alerts, "user STRING, alert STRING", "{mode}")
"""
DATABASE = 'sqlite("out.db", table="alerts")'
KEYED = 'sqlite("out.db", table="alerts", key=["user"])'
FILES = 'files("out", format="json")'


def did(*actions: str) -> list[dict[str, str]]:
    """`ann click`, `bob leave` as rows."""
    return [dict(zip(("user", "action"), action.split(), strict=True)) for action in actions]


def ran(root: Path, spark: SparkSession) -> list[BatchRecord]:
    recorder = Recorder()
    result = run(load(root), spark=spark, reporter=recorder)
    assert [str(end.finding) for end in result.outcomes if end.finding] == []
    return recorder.all(BatchRecord)


@pytest.mark.capability("STATEFUL-01")
def test_each_users_status_is_one_row_that_is_updated(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", USERS + STATUS, batches=[did("ann click", "bob click", "ann click")])
    select = "SELECT user, active FROM statuses ORDER BY 1"
    ran(root, spark)
    assert rows(root / "out.db", select) == [("ann", 1), ("bob", 1)]
    land(root, 1, did("ann leave"))
    land(root, 2, did("cat leave"))
    assert [record.state_rows for record in ran(root, spark)] == [2, 3]
    assert rows(root / "out.db", select) == [("ann", 0), ("bob", 1), ("cat", 0)]
    given = rows(root / "out.db", "SELECT row_count FROM _headrace_ledger ORDER BY batch")
    assert given == [(2,), (1,), (1,)], "one row for each user that did something in the batch, and for no other"


@pytest.mark.capability("STATEFUL-02")
@pytest.mark.parametrize(("mode", "sink"), rounds([("update", KEYED), ("append", DATABASE), ("append", FILES)]))
def test_a_user_gives_no_alert_or_many(tmp_path: Path, spark: SparkSession, mode: str, sink: str) -> None:
    batches = [did("ann click", "bob leave"), did("ann leave", "ann click", "ann leave"), did("ann leave", "bob click")]
    root = write_project(tmp_path / "p", USERS + ALERTS.format(sink=sink, mode=mode), batches=batches[:2])
    if sink == KEYED:
        batches[1] = did("ann leave")
        land(root, 1, batches[1])
    ran(root, spark)
    land(root, 2, batches[2])
    ran(root, spark)
    if sink == FILES:
        alerts = sorted(
            tuple(row) for row in spark.read.schema("user STRING, alert STRING").json(str(root / "out")).collect()
        )
    else:
        alerts = sorted(rows(root / "out.db", "SELECT user, alert FROM alerts"))
    if sink == KEYED:
        assert alerts == [("ann", "left"), ("bob", "came")]
    else:
        assert alerts == [("ann", "came"), ("ann", "came"), ("ann", "left"), ("ann", "left"), ("bob", "came")]


# What is asked for, the query's mode, the code of the refusal.
REFUSED = {
    "an update operator in an append query": ("actions, status, S, 'update'", "append", "HR227"),
    "an append operator in an update query": ("actions, status, S, 'append'", "update", "HR227"),
    "an update operator before an aggregation": ("(actions, status, S, 'update').COUNT", "update", "HR227"),
    "an append operator after an aggregation": ("actions.COUNT, status, S, 'append'", "update", "HR227"),
    "complete mode": ("actions, status, S, 'update'", "complete", "HR227"),
    "event time without a watermark": ("actions, status, S, 'update', 'EventTimeTimeout'", "update", "HR221"),
    "two of them": ("TWICE, status, S, 'append'", "append", "HR227"),
}


@pytest.mark.capability("STATEFUL-02", "STATEFUL-04")
@pytest.mark.parametrize("name", REFUSED)
def test_what_spark_does_not_allow_is_refused_before_start(tmp_path: Path, spark: SparkSession, name: str) -> None:
    asked, mode, code = REFUSED[name]
    call = f"with_state{asked}" if asked.startswith("(") else f"with_state({asked})"
    call = call.replace("TWICE", "with_state(actions, status, S, 'append')").replace(
        "S,", "'user STRING, active BOOLEAN',"
    )
    call = call.replace("COUNT", "groupBy('user').count()")
    body = f"""
@hr.query(sink=hr.sink.sqlite("out.db", table="t", key=["user"]), mode="{mode}", trigger=hr.available_now)
def refused(actions):
    return {call}
"""
    root = write_project(tmp_path / "p", USERS + body, batches=[did("ann click")])
    errors = [finding for finding in check(load(root), spark=spark).findings if finding.severity == "error"]
    assert [finding.code for finding in errors] == [code]
    assert errors[0].fix
    (outcome,) = run(load(root), spark=spark).outcomes
    assert (outcome.state, outcome.finding and outcome.finding.code, outcome.batches) == ("failed", code, 0)
    assert not (layout_in(root / ".headrace", "refused").home / "checkpoint").exists()
