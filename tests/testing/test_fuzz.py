"""Mistakes that fuzzing finds, and sound queries in which it finds none."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import headrace as hr
from headrace.cli import main
from headrace.errors import PlatformError, ProjectError
from headrace.testing import Crash, TimelineRun, fuzz, fuzzed
from headrace.testing.schedules import Placed, Schedule, Step
from tests.docs.blocks import ROOT
from tests.rounds import only_usual

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples"
EVENTS = [("a", "12:00", 1.5), ("b", "12:04", 2.0), ("a", "12:08", 3.0), ("b", "12:31", 4.0), ("a", "13:05", 5.0)]
HEAD = """
import json
import re
import sys
from pathlib import Path
import headrace as hr
import pandas as pd
from pyspark.sql import DataFrame, Row, functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

HERE = Path(__file__).parent
events = hr.source.files("landing", format="json", schema="who STRING, time TIMESTAMP, price DOUBLE",
                         watermark=("time", "10 minutes"))
latest = hr.sink.sqlite("r.db", table="t", key=["who"])
"""
MISTAKES = {
    "rand": """
@hr.query(sink=hr.sink.console(), mode="append")
def mistake(events: DataFrame) -> DataFrame:
    return events.select("who", F.rand().alias("chance"))
""",
    "current_timestamp": """
@hr.query(sink=hr.sink.console(), mode="append")
def mistake(events: DataFrame) -> DataFrame:
    return events.select("who", F.current_timestamp().alias("seen"))
""",
    "first": """
@hr.query(sink=latest, mode="update")
def mistake(events: DataFrame) -> DataFrame:
    return events.groupBy("who").agg(F.first("price").alias("price"))
""",
    "collect_list": """
@hr.query(sink=latest, mode="update")
def mistake(events: DataFrame) -> DataFrame:
    return events.groupBy("who").agg(F.to_json(F.collect_list("price")).alias("prices"))
""",
    "a state function that forgets rows out of order": """
def counted(key, frames, state):
    last, count = state.get if state.exists else (pd.Timestamp(0), 0)
    for frame in frames:
        for time in frame["time"]:
            if time >= last:
                last, count = time, count + 1
    state.update((last, count))
    yield pd.DataFrame({"who": [key[0]], "count": [count]})

@hr.query(sink=latest, mode="update")
def mistake(events: DataFrame) -> DataFrame:
    return events.groupBy("who").applyInPandasWithState(
        counted, "who STRING, count LONG", "last TIMESTAMP, count LONG", "update", "NoTimeout")
""",
    "a timer that fires twice": """
class Alarm(StatefulProcessor):
    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self.handle.registerTimer(max(int(row.time.timestamp() * 1000) for row in rows) + 60_000)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        self.handle.registerTimer(expiredTimerInfo.getExpiryTimeInMs())
        yield Row(who=key[0])

    def close(self):
        pass

@hr.query(sink=hr.sink.console(), mode="append")
def mistake(events: DataFrame) -> DataFrame:
    return events.groupBy("who").transformWithState(Alarm(), "who STRING", "append", "EventTime")
""",
    "a UDF with a counter": """
COUNT = {"rows": 0}

@F.udf("long")
def number(who):
    COUNT["rows"] += 1
    return COUNT["rows"]

@hr.query(sink=hr.sink.console(), mode="append")
def mistake(events: DataFrame) -> DataFrame:
    return events.select("who", number("who").alias("number"))
""",
    "a function that writes a batch twice": """
def write(frame: DataFrame, batch: int) -> None:
    with open(HERE / "written.jsonl", "a") as file:
        file.writelines(json.dumps(row.asDict()) + "\\n" for row in frame.collect())

@hr.query(sink=hr.sink.foreach_batch(write), mode="append")
def mistake(events: DataFrame) -> DataFrame:
    return events.select("who", "price")
""",
    "a join that sees one batch alone": """
def write(frame: DataFrame, batch: int) -> None:
    pairs = frame.alias("x").join(frame.alias("y"), F.expr("x.who = y.who AND x.price < y.price"))
    rows = pairs.select("x.who", F.col("x.price").alias("price"), F.col("y.price").alias("next")).collect()
    written = HERE / "written.jsonl"
    lines = set(written.read_text().splitlines() if written.exists() else [])
    written.write_text("".join(line + "\\n" for line in lines | {json.dumps(row.asDict()) for row in rows}))

@hr.query(sink=hr.sink.foreach_batch(write), mode="append")
def mistake(events: DataFrame) -> DataFrame:
    return events.select("who", "price")
""",
}
# Those that are made small too, which takes more runs than to find them; the command's test makes one small as well.
SHRUNK = ("first", "a join that sees one batch alone")
# A row that is random, and a sink that writes twice.
USUAL_MISTAKES = ("rand", "a function that writes a batch twice")


def of(place: Path, text: str) -> hr.Project:
    (place / "headrace.yml").write_text("name: fuzzed\n")
    (place / "pipeline.py").write_text(HEAD + text)
    return hr.load(place)


@pytest.mark.spark
@pytest.mark.parametrize("mistake", only_usual(MISTAKES, *USUAL_MISTAKES))
def test_a_mistake_is_found(spark: SparkSession, tmp_path: Path, mistake: str) -> None:
    written = tmp_path / "written.jsonl"
    options: dict[str, Any] = {"events": EVENTS, "shrink_seconds": 60 if mistake in SHRUNK else 0}
    if "foreach_batch" in MISTAKES[mistake]:
        options["sink"] = lambda: map(json.loads, written.read_text().splitlines() if written.exists() else [])
        options["reset"] = lambda: written.unlink(missing_ok=True)
    if "timer" in mistake:
        options |= {"compare": True, "events": EVENTS[2:]}
    result = fuzz(of(tmp_path, MISTAKES[mistake]), "mistake", spark=spark, seed=1, runs=40, seconds=200, **options)
    assert "the result of query 'mistake' is not" in result.failure
    assert result.schedule is not None
    assert result.schedule.size <= (3 if options["shrink_seconds"] else len(EVENTS))
    assert "def test_mistake_over_these_batches(timeline):" in result.describe()


SOUND = {
    ("mobile-monitoring", "counts_in_postgres"): {
        "events": [("p1", "01:10", "open"), ("p2", "01:58", "open"), ("p1", "02:01", "close"), (None, "02:02", None)]
    },
    ("session-windows", "sessions"): {
        "visits": [("12:00:00", "u1"), ("12:00:04", "u1"), ("12:00:30", "u1"), ("12:00:02", "u2"), ("12:10", "u2")]
    },
    ("deduplication", "events_once"): {"events": [("a", "12:00"), ("a", "12:00"), ("b", "12:40"), ("a", "15:00")]},
    ("outer-join", "shown"): {
        "impressions": [("ad1", "12:00"), ("ad2", "12:10"), ("ad3", "18:00")],  # The second one is never clicked.
        "clicks": [("ad1", "12:30"), ("ad3", "18:20")],
    },
    ("windowed-counts", "counts"): {},
    ("sql-only", "revenue"): {},
}


USUAL = [("windowed-counts", "counts")]


@pytest.mark.spark
@pytest.mark.parametrize(("example", "query"), only_usual(SOUND, *USUAL), ids=[query for _, query in SOUND])
def test_a_sound_query_raises_no_alarm(spark: SparkSession, example: str, query: str) -> None:
    """Those without rows of their own get generated ones."""
    project = hr.load(EXAMPLES / example, may_lack_variables=True)
    result = fuzz(project, query, spark=spark, seed=3, runs=3, seconds=200, given=SOUND[example, query])
    assert result.describe() == ""
    assert result.compared
    assert result.runs >= 2


looked_at: list[TimelineRun] = []


@pytest.fixture(name="headrace_project", scope="module")
def of_the_examples() -> hr.Project:
    return hr.load(EXAMPLES / "mobile-monitoring", may_lack_variables=True)


@pytest.fixture
def most() -> int:
    return 2


@pytest.mark.spark
@fuzzed("counts_in_postgres", runs=2, seed=1, events=[("p1", "01:10", "open"), ("p2", "01:58", "open")])
def test_a_test_looks_at_each_run(run: TimelineRun, most: int) -> None:
    looked_at.append(run)
    assert run.final["open", "01:00"].count <= most


@pytest.mark.spark
def test_a_run_that_fails_a_test_is_reported(spark: SparkSession, headrace_project: hr.Project) -> None:
    @fuzzed("counts_in_postgres", runs=2, seed=1, events=[("p1", "01:10", "open"), ("p2", "01:10", "open")])
    def test(run: TimelineRun) -> None:
        assert run.final["open", "01:00"].count < 1, "more than none"

    with pytest.raises(AssertionError, match=r"(?s)more than none.*found with seed 1 in run 1.*counts_in_postgres"):
        test(spark=spark, headrace_project=headrace_project)  # type: ignore[call-arg]


PROJECT = """
name: shop
sources:
  orders: {files: {path: landing, format: json, schema: "customer STRING, amount INT"}}
queries:
  totals:
    select: SELECT customer, sum(amount) AS total FROM orders GROUP BY customer
    mode: complete
    sink: {memory: {}}
  firsts:
    select: SELECT customer, first(amount) AS amount FROM orders GROUP BY customer
    mode: complete
    sink: {memory: {}}
"""
CASES = """
tests:
  - name: amounts add up
    query: totals
    batches: [orders: [[ann, 5], [bob, null]], crash, orders: [[ann, 7]]]
    expect: [[ann, 12], [bob, null]]
  - name: no orders
    query: totals
    given: {orders: []}
    expect: []
  - name: the first amount
    query: firsts
    given: {orders: [[ann, 5], [ann, 7], [ann, 9]]}
    expect: [[ann, 5]]
"""


# tests/docs/test_test_a_query.py types this command as well.
@pytest.mark.long
@pytest.mark.spark
def test_the_command_prints_a_case_to_be_pasted(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "headrace.yml").write_text(PROJECT)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "orders.yml").write_text(CASES)
    command = ["test", "-C", str(tmp_path), "--fuzz", "4", "--seed", "1", "--seconds", "200"]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert re.search(r"passed totals: \d runs with seed 1 \(", printed)
    assert "failed firsts: " in printed
    assert printed.endswith("6 cases, 1 failed\n")
    pasted = printed[printed.index("  - name: firsts over these batches") : printed.rindex("6 cases")]
    (batches,) = [case["batches"] for case in yaml.safe_load(f"tests:\n{pasted}")["tests"]]
    assert sum(len(batch["orders"]) for batch in batches if batch != "crash") == 2, "of three rows"
    (tmp_path / "tests" / "orders.yml").write_text(f"tests:\n{pasted}")
    assert main(["test", "firsts", "-C", str(tmp_path)]) == 1
    assert "rows of the result that differ" in capsys.readouterr().out


@pytest.mark.spark
def test_rows_over_which_a_query_fails_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    failing = """
@hr.query(sink=hr.sink.console(), mode="append")
def mistake(events: DataFrame) -> DataFrame:
    return events.select(F.raise_error(F.lit("no such price")).alias("price"))
"""
    project = of(tmp_path, failing)
    given = fuzz(project, "mistake", spark=spark, seed=1, runs=2, shrink_seconds=0, events=EVENTS)
    assert "no such price" in given.failure
    assert f"{tmp_path}/pipeline.py:" in given.failure
    assert given.schedule is not None
    generated = fuzz(project, "mistake", spark=spark, seed=1, runs=1)
    assert "no such price" in generated.unfit
    assert (generated.runs, generated.failure) == (0, "")
    with pytest.raises(ProjectError, match=r"HR721.*reads no source 'event'"):
        fuzz(project, "mistake", spark=spark, event=EVENTS)


@pytest.mark.spark
def test_without_hypothesis_the_message_says_what_to_install(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(PlatformError, match=r"(?s)HR011.*pip install 'headrace\[test\]'"):
        fuzz(of(tmp_path, MISTAKES["rand"]), "mistake", spark=spark, events=EVENTS)


@pytest.mark.plain
def test_a_schedule_gets_smaller_without_losing_the_order_of_the_rest() -> None:
    rows = [Placed(number, (number,)) for number in range(3)]
    schedule = Schedule((Step({"a": (rows[2], rows[0])}, Crash()), Step({"a": (), "b": (rows[1],)})))
    assert schedule.whole == Schedule((Step({"a": (rows[0], rows[2]), "b": (rows[1],)}),))
    smaller = list(schedule.smaller())
    assert smaller[0] == schedule.whole
    assert all(candidate.size < 3 or candidate.steps != schedule.steps for candidate in smaller)
    assert Schedule((Step({"a": (rows[2],)}, Crash()), Step({"a": (), "b": (rows[1],)}))) in smaller
    assert '  key=["n"],\n' in schedule.as_python("q", ["n"], None)
    assert yaml.safe_load(schedule.as_yaml("q", ["n"], None))[0]["batches"] == [
        {"a": [[2], [0]]},
        "crash",
        {"b": [[1]]},
    ]
    assert schedule.inputs() == {"a": [[(2,), (0,)], Crash(), None], "b": [None, [(1,)]]}
