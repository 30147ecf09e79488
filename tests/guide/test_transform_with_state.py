"""State by transformWithState: values, lists and maps, timers, an end of life, and state to begin with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run
from headrace.contract import BatchRecord
from headrace.inspect import state
from headrace.spark.messages.refusals import finding_of
from tests.rounds import rounds
from tests.runner.projects import land, rows, write_project
from tests.runner.test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A visitor's visits (value), last two pages (list) and pages by count (map); gone after an hour without one (timer).
# `known` are visits from before the stream. The same in rows and in pandas.
PROCESSOR = """
import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

SCHEMA = "user STRING, page STRING, time TIMESTAMP"
visits = hr.source.files("landing", format="json", max_files_per_trigger=1, schema=SCHEMA,
                         watermark=("time", "10 minutes"))
RESULT = "user STRING, visits LONG, last STRING, favourite STRING"
NAMED = Row("user", "visits", "last", "favourite")
HOUR_MS = 60 * 60 * 1000


@hr.table
def known(spark):
    return spark.createDataFrame([("ann", 100), ("zoe", 7)], "user STRING, visits LONG")


class Visitors(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.visits = handle.getValueState("visits", "n LONG")
        self.last = handle.getListState("last", "page STRING")
        self.pages = handle.getMapState("pages", "page STRING", "n LONG")

    def begin(self, visits):
        self.visits.update((visits,))

    def take(self, user, found):
        for page, _ in found:
            self.last.put(([*self.last.get(), (page,)])[-2:])
            seen = self.pages.getValue((page,))[0] if self.pages.containsKey((page,)) else 0
            self.pages.updateValue((page,), (seen + 1,))
        before = self.visits.get()[0] if self.visits.exists() else 0
        self.visits.update((before + len(found),))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(int(max(time for _, time in found).timestamp() * 1000) + HOUR_MS)
        last = ",".join(page for page, in self.last.get())
        favourite = max(self.pages.iterator(), key=lambda pair: (pair[1][0], pair[0][0]))[0][0]
        return user, self.visits.get()[0], last, favourite

    def leave(self, user):
        visits = self.visits.get()[0]
        for state in (self.visits, self.last, self.pages):
            state.clear()
        return user, visits, "gone", None

    def close(self):
        pass
"""
ROWS = """
class Processor(Visitors):
    def handleInputRows(self, key, rows, timerValues):
        found = sorted(((row.page, row.time) for row in rows), key=lambda each: each[1])
        yield NAMED(*self.take(key[0], found))

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield NAMED(*self.leave(key[0]))

    def handleInitialState(self, key, initialState, timerValues):
        self.begin(initialState.visits)


@hr.query(sink=hr.sink.sqlite("out.db", table="visitors", key=["user"]), mode="update", trigger=hr.available_now)
def visitors(visits, known):
    return visits.groupBy("user").transformWithState(
        Processor(), RESULT, "update", "EventTime", initialState=known.groupBy("user"))
"""
PANDAS = """
class Processor(Visitors):
    def frame(self, row):
        return pd.DataFrame([row], columns=["user", "visits", "last", "favourite"])

    def handleInputRows(self, key, rows, timerValues):
        found = [(row.page, row.time) for frame in rows for row in frame.itertuples()]
        yield self.frame(self.take(key[0], sorted(found, key=lambda each: each[1])))

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield self.frame(self.leave(key[0]))

    def handleInitialState(self, key, initialState, timerValues):
        self.begin(int(initialState["visits"].iloc[0]))


@hr.query(sink=hr.sink.sqlite("out.db", table="visitors", key=["user"]), mode="update", trigger=hr.available_now)
def visitors(visits, known):
    return visits.groupBy("user").transformWithStateInPandas(
        Processor(), RESULT, "update", "EventTime", initialState=known.groupBy("user"))
"""
SHORT_LIVED = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Processor(StatefulProcessor):
    def init(self, handle):
        self.states = [
            handle.getValueState("short", "n LONG", ttlDurationMs=1),
            handle.getValueState("long", "n LONG", ttlDurationMs=60 * 60 * 1000),
        ]

    def handleInputRows(self, key, rows, timerValues):
        more = len(list(rows))
        for state in self.states:
            state.update(((state.get()[0] if state.exists() else 0) + more,))
        short, long = (state.get()[0] for state in self.states)
        yield Row(name=key[0], short=short, long=long)

    def close(self):
        pass


@hr.query(sink=hr.sink.sqlite("out.db", table="counts", key=["name"]), mode="update", trigger=hr.once)
def counts(events):
    result = "name STRING, short LONG, long LONG"
    return events.groupBy("name").transformWithState(Processor(), result, "update", "ProcessingTime")
"""
# Each partition of each batch starts a Python worker.
ONE_PARTITION = "name: p\nspark: {spark.sql.shuffle.partitions: 1}\n"


def visit(user: str, page: str, time: str) -> dict[str, str]:
    return {"user": user, "page": page, "time": f"2026-03-01T{time}:00Z"}


def ran(root: Path, spark: SparkSession) -> list[BatchRecord]:
    recorder = Recorder()
    result = run(load(root), spark=spark, reporter=recorder)
    assert [str(end.finding) for end in result.outcomes if end.finding] == []
    return recorder.all(BatchRecord)


@pytest.mark.spark
@pytest.mark.capability("STATEFUL-05")
@pytest.mark.parametrize("form", rounds([ROWS, PANDAS]), ids=["rows", "pandas"])
def test_values_lists_maps_timers_and_an_initial_state(tmp_path: Path, spark: SparkSession, form: str) -> None:
    batches = [
        [visit("ann", "home", "12:00"), visit("ann", "shop", "12:01"), visit("bob", "home", "12:05")],
        [visit("ann", "shop", "12:30"), visit("ann", "cart", "12:31")],
    ]
    root = write_project(tmp_path / "p", PROCESSOR + form, batches=batches)
    (root / "headrace.yml").write_text(ONE_PARTITION)
    ran(root, spark)
    select = "SELECT user, visits, last, favourite FROM visitors ORDER BY 1"
    assert rows(root / "out.db", select) == [("ann", 104, "shop,cart", "shop"), ("bob", 1, "home", "home")]
    (operator,) = state(load(root), "visitors", key={"user": "ann"}, spark=spark).operators
    kept = {part.name: list(part.sample) for part in operator.parts}
    assert [row["value"] for row in kept["visits"]] == [{"n": 104}]
    assert sorted(kept) == ["last", "pages", "visits"]
    assert {row["user_map_key"]["page"]: row["user_map_value"]["n"] for row in kept["pages"]} == {
        "home": 1,
        "shop": 2,
        "cart": 1,
    }
    later = [visit("cat", "home", "13:16"), visit("dan", "home", "13:50"), visit("bob", "cart", "13:51")]
    for number, row in enumerate(later, start=2):
        land(root, number, [row])
    ran(root, spark)
    assert rows(root / "out.db", select) == [
        ("ann", 104, "gone", None),
        ("bob", 1, "cart", "cart"),
        ("cat", 1, "home", "home"),
        ("dan", 1, "home", "home"),
    ], "bob's hour was over at a watermark of 13:06, before he came back, and ann's at one of 13:40"


@pytest.mark.spark
@pytest.mark.capability("STATEFUL-05")
def test_a_state_ends_its_life_after_its_time(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", SHORT_LIVED)
    (root / "headrace.yml").write_text(ONE_PARTITION)
    for batch in range(2):
        land(root, batch, [{"name": "ann", "amount": 1}, {"name": f"only {batch}", "amount": 1}])
        ran(root, spark)
    assert rows(root / "out.db", "SELECT name, short, long FROM counts ORDER BY 1") == [
        ("ann", 1, 2),
        ("only 0", 1, 1),
        ("only 1", 1, 1),
    ]


# The mode of the operator, its time, the query's mode, its trigger, more of headrace.yml, the code of the refusal.
REFUSED = {
    "another mode than the query's": ("update", "None", "append", "every('1 second')", "", "HR227"),
    "complete mode": ("update", "None", "complete", "every('1 second')", "", "HR227"),
    "event time without a watermark": ("update", "EventTime", "update", "every('1 second')", "", "HR221"),
    "the HDFS store": ("update", "None", "update", "available_now", "state_store: {provider: hdfs}", "HR283"),
    "the clock in a run that is to end": ("update", "ProcessingTime", "update", "available_now", "", "HR261"),
}


@pytest.mark.spark
@pytest.mark.capability("STATEFUL-05")
@pytest.mark.parametrize("name", REFUSED)
def test_what_spark_lets_pass_or_fails_of_later_is_refused(tmp_path: Path, spark: SparkSession, name: str) -> None:
    operator, time, mode, trigger, more, code = REFUSED[name]
    text = SHORT_LIVED.replace('"update", "ProcessingTime"', f'"{operator}", "{time}"')
    if time != "ProcessingTime":  # A time to live is refused then as well.
        text = re.sub(r", ttlDurationMs=[^)]*", "", text)
    text = text.replace('mode="update", trigger=hr.once', f'mode="{mode}", trigger=hr.{trigger}')
    root = write_project(tmp_path / "p", text, batches=[[{"name": "ann", "amount": 1}]])
    (root / "headrace.yml").write_text(f"name: p\n{more}\n")
    _require_refusal(root, spark, code)


@pytest.mark.spark
@pytest.mark.capability("STATEFUL-05")
def test_an_initial_state_that_is_a_stream_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    text = (PROCESSOR + ROWS).replace("@hr.table\ndef known(spark):", "def unused(spark):")
    source = 'known = hr.source.files("known", format="json", schema="user STRING, visits LONG")\n'
    root = write_project(tmp_path / "p", source + text, batches=[[visit("ann", "home", "12:00")]])
    (root / "known").mkdir()
    _require_refusal(root, spark, "HR284")


def _require_refusal(root: Path, spark: SparkSession, code: str) -> None:
    errors = [finding for finding in check(load(root), spark=spark).findings if finding.severity == "error"]
    assert [finding.code for finding in errors] == [code]
    (outcome,) = run(load(root), spark=spark).outcomes
    assert (outcome.state, outcome.finding and outcome.finding.code, outcome.batches) == ("failed", code, 0)


@pytest.mark.plain
def test_the_package_that_it_needs_is_named() -> None:
    finding = finding_of(
        ModuleNotFoundError("No module named 'google'", name="google"), subject="the function visitors"
    )
    assert finding.code == "HR011"
    assert finding.fix == "pip install 'headrace[state]'"
    assert finding_of(ModuleNotFoundError("No module named 'other'", name="other")).code == "HR210"
