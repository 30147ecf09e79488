"""Watermarks: the guide's and the book's examples, what cleans state, and several watermarks in one query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run, verify
from headrace.checks.state_bounds import POLICY
from headrace.errors import Finding, ProjectError

from .join_scenes import refusals
from .scenes import Played, at, events, land, play, play_each, project, query, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WORDS = source("words", "time TIMESTAMP, word STRING", watermark='("time", "10 minutes")')
COUNTS = """
    words.groupBy(F.window("time", "10 minutes", "5 minutes"), "word").count()
         .select(F.col("window.start").alias("since"), F.col("window.end").alias("until"), "word", "count")
"""
TABLE = "SELECT substr(since, 12, 5), substr(until, 12, 5), word, count FROM q ORDER BY 1, 3"
UNTIL_12_20 = [
    events("word", ("12:07", "dog"), ("12:08", "owl")),
    events("word", ("12:14", "dog"), ("12:09", "cat")),
    events("word", ("12:15", "cat"), ("12:08", "dog"), ("12:13", "owl"), ("12:21", "owl")),
]
DONKEY = [("12:17", "owl"), ("12:04", "donkey")]
FIRST_WINDOW = [("12:00", "12:10", "cat", 1), ("12:00", "12:10", "dog", 2), ("12:00", "12:10", "owl", 1)]
AT_12_20 = [
    *FIRST_WINDOW,
    ("12:05", "12:15", "cat", 1),
    ("12:05", "12:15", "dog", 3),
    ("12:05", "12:15", "owl", 2),
    ("12:10", "12:20", "cat", 1),
    ("12:10", "12:20", "dog", 1),
    ("12:10", "12:20", "owl", 1),
    ("12:15", "12:25", "cat", 1),
    ("12:15", "12:25", "owl", 1),
    ("12:20", "12:30", "owl", 1),
]
UPDATED = {("12:10", "12:20", "owl", 1): 2, ("12:15", "12:25", "owl", 1): 2}
AT_12_25 = [(*row[:3], UPDATED.get(row, row[3])) for row in AT_12_20]


@pytest.mark.capability("OP-WM-01")
def test_in_update_mode_the_watermark_gives_the_guides_tables(tmp_path: Path, spark: SparkSession) -> None:
    """The picture has one cat too many at 12:05: that of 12:15 is outside of a window that ends then."""
    root = project(tmp_path, WORDS, query(COUNTS, inputs="words", mode="update", key=["since", "word"]))
    # Nothing else is there when a trigger fires, as in the guide's pictures.
    files = [*UNTIL_12_20, events("word", *DONKEY)]
    played = [triggers[0] for triggers in play_each(root, spark, TABLE, "words", files)]
    assert [trigger.table for trigger in played] == [
        [
            ("12:00", "12:10", "dog", 1),
            ("12:00", "12:10", "owl", 1),
            ("12:05", "12:15", "dog", 1),
            ("12:05", "12:15", "owl", 1),
        ],
        [
            ("12:00", "12:10", "cat", 1),
            ("12:00", "12:10", "dog", 1),
            ("12:00", "12:10", "owl", 1),
            ("12:05", "12:15", "cat", 1),
            ("12:05", "12:15", "dog", 2),
            ("12:05", "12:15", "owl", 1),
            ("12:10", "12:20", "dog", 1),
        ],
        AT_12_20,
        AT_12_25,
    ]
    assert [trigger.watermark for trigger in played] == [None, "11:58", "12:04", "12:11"]
    assert [trigger.written for trigger in played] == [4, 4, 8, 2]
    verdict = verify(load(root), "q", spark=spark)
    assert (verdict.state, verdict.rows_late) == ("late", 2)


@pytest.mark.capability("OP-WM-02")
def test_in_append_mode_a_window_appears_once_the_watermark_has_passed_it(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path, WORDS, query(COUNTS, inputs="words"))
    last = [events("word", *DONKEY, ("12:26", "owl")), events("word", ("12:09", "cat"))]
    second_window = [("12:05", "12:15", "cat", 1), ("12:05", "12:15", "dog", 3), ("12:05", "12:15", "owl", 2)]
    tables: dict[str | None, list[tuple[object, ...]]] = {}
    for triggers in play_each(root, spark, TABLE, "words", [*UNTIL_12_20, *last]):
        for trigger in triggers:
            assert tables.setdefault(trigger.watermark, trigger.table) == trigger.table
    assert tables == {
        None: [],
        "11:58": [],
        "12:04": [],
        "12:11": FIRST_WINDOW,
        "12:16": [*FIRST_WINDOW, *second_window],
    }


@pytest.mark.long
@pytest.mark.capability("OP-WM-01")
def test_the_books_readings_are_averaged_without_the_one_that_is_too_late(tmp_path: Path, spark: SparkSession) -> None:
    means = COUNTS.replace("words", "readings").replace("word", "sensor").replace("count", "mean")
    means = means.replace(".mean()", '.agg(F.mean("value").alias("mean"))')
    readings = source("readings", "time TIMESTAMP, sensor STRING, value DOUBLE", watermark='("time", "10 minutes")')
    root = project(tmp_path, readings, query(means, inputs="readings", mode="update", key=["since", "sensor"]))
    files = [
        [("12:07", "id1", 1), ("12:08", "id2", 2)],
        [("12:14", "id1", 3), ("12:09", "id3", 5)],
        [("12:15", "id1", 7), ("12:13", "id3", 1), ("12:21", "id2", 4)],
        [("12:17", "id3", 9), ("12:04", "id1", 100)],
    ]
    select = "SELECT substr(since, 12, 5), sensor, mean FROM q WHERE substr(since, 12, 5) <= '12:10' ORDER BY 1, 2"
    landing = [[{"time": at(time), "sensor": sensor, "value": value} for time, sensor, value in file] for file in files]
    played = list(play_each(root, spark, select, "readings", landing))
    assert [triggers[0].watermark for triggers in played] == [None, "11:58", "12:04", "12:11"]
    assert played[-1][-1].table == [
        *[("12:00", "id1", 1.0), ("12:00", "id2", 2.0), ("12:00", "id3", 5.0)],
        *[("12:05", "id1", 2.0), ("12:05", "id2", 2.0), ("12:05", "id3", 3.0)],
        *[("12:10", "id1", 5.0), ("12:10", "id3", 5.0)],
    ]


@pytest.mark.capability("OP-WM-01")
def test_what_is_later_than_the_delay_may_still_be_counted(tmp_path: Path, spark: SparkSession) -> None:
    """The guarantee is strict in one direction only: Spark judges a row by the watermark of the batch before."""
    root = project(tmp_path, WORDS, query(COUNTS, inputs="words", mode="update", key=["since", "word"]))
    land(root, "words", *UNTIL_12_20, events("word", *DONKEY))
    played = play(root, spark, TABLE)
    donkeys = [("11:55", "12:05", "donkey", 1), ("12:00", "12:10", "donkey", 1)]
    assert played.triggers[-1].table == sorted([*AT_12_25, *donkeys], key=lambda row: (row[0], row[2]))
    verdict = verify(load(root), "q", spark=spark)
    assert (verdict.state, verdict.rows_late) == ("equal", 0)


SEEN = "time TIMESTAMP, seen TIMESTAMP, word STRING"
ON_TIME = source("words", SEEN, watermark='("time", "10 minutes")')
BARE = source("bare", SEEN)
WINDOW = 'words.groupBy(F.window("{column}", "10 minutes"), "word").count().select("window.start", "word", "count")'
# What is counted, in which mode, and of what is found the code, the severity and some words.
CONDITIONS = {
    "all are met": (WINDOW.format(column="time"), "update", None, None, ""),
    "complete mode": (WINDOW.format(column="time"), "complete", "HR271", "note", "watermark on 'time'"),
    "no event time": ('words.groupBy("word").count()', "update", "HR271", "note", "neither by 'time'"),
    "hidden in an expression": (
        'words.groupBy(F.date_trunc("hour", "time").alias("hour"), "word").count()',
        "update",
        "HR271",
        "note",
        "by date_trunc('hour', time), word",
    ),
    "another time": ('words.groupBy("seen", "word").count()', "update", "HR271", "warning", "time 'seen'"),
    "a window of another": (WINDOW.format(column="seen"), "update", "HR271", "warning", "time 'seen'"),
    "after the aggregation": (
        'bare.groupBy("time", "word").count().withWatermark("time", "10 minutes")',
        "update",
        "HR271",
        "warning",
        "on 'time' after its aggregation",
    ),
    "no watermark at all": ('bare.groupBy("word").count()', "update", "HR240", "note", "indefinitely"),
    "by nothing": ("words.groupBy().count()", "append", "HR271", "error", "groups by nothing"),
}


def query_text(case: str, *, mode: str) -> str:
    """The query of a case, under the name of the case."""
    result = CONDITIONS[case][0]
    key = [] if mode == "append" else ["word"]
    return query(result, inputs=result.split(".")[0], mode=mode, key=key, name=case.replace(" ", "_"))


def of_case(findings: Iterable[Finding], case: str) -> list[Finding]:
    return [finding for finding in findings if f"query '{case.replace(' ', '_')}'" in finding.what]


@pytest.mark.capability("OP-WM-03")
def test_the_condition_that_keeps_state_is_named_and_the_state_is_kept(tmp_path: Path, spark: SparkSession) -> None:
    cases = {case: condition for case, condition in CONDITIONS.items() if condition[1] != "append"}
    root = project(tmp_path, ON_TIME, BARE, *(query_text(case, mode=cases[case][1]) for case in cases))
    hours = (("12:00", "cat"), ("12:05", "dog"), ("14:00", "owl"))
    for name in ("words", "bare"):
        land(root, name, [{"time": at(time), "seen": at(time), "word": word} for time, word in hours])
    findings = check(load(root), spark=spark).findings
    for case, (_, _, code, severity, words) in cases.items():
        of_it = of_case(findings, case)
        assert [(finding.code, finding.severity) for finding in of_it] == ([(code, severity)] if code else []), case
        assert all(words in finding.what and finding.fix for finding in of_it), case
    assert sum(len(of_case(findings, case)) for case in cases) == len(findings)
    played = Played()
    assert run(load(root), spark=spark, reporter=played).exit_code == 0
    kept = {record.query: record.state_rows for record in played.batches}
    assert kept == {case.replace(" ", "_"): 3 if condition[2] else 1 for case, condition in cases.items()}


@pytest.mark.capability("OP-WM-03")
def test_in_append_mode_the_condition_that_is_not_met_is_an_error(tmp_path: Path, spark: SparkSession) -> None:
    cases = ("no event time", "another time", "a window of another", "after the aggregation", "by nothing")
    root = project(tmp_path, ON_TIME, BARE, *(query_text(case, mode="append") for case in cases))
    for name in ("words", "bare"):
        land(root, name, [])
    errors = refusals(root, spark)
    assert len(errors) == len(cases)
    for case in cases:
        (error,) = of_case(errors.values(), case)
        assert (error.code, CONDITIONS[case][-1] in error.what) == (CONDITIONS[case][2], True)
        assert "no group ever ends" in error.what


SLOW_AND_FAST = source("fast", "time TIMESTAMP, who STRING", watermark='("time", "10 minutes")') + source(
    "slow", "time TIMESTAMP, who STRING", watermark='("time", "1 hour")'
)
UNITED = """
    fast.union(slow).groupBy(F.window("time", "10 minutes"), "who").count()
        .select(F.col("window.start").alias("since"), "who", "count")
"""
OF_NOON = [("12:00", "a", 1), ("12:00", "b", 1)]
OF_11_20 = ("11:20", "b", 1)


@pytest.fixture
def _policy_restored(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset(POLICY)


@pytest.mark.usefixtures("_policy_restored")
@pytest.mark.capability("OP-WM-05")
@pytest.mark.parametrize(
    ("policy", "marks", "second", "third"),
    [
        # In tests/verifier/test_late.py two sources share the older one.
        pytest.param(
            *(None, ["11:00", "12:55"], [], [OF_11_20, *OF_NOON]),
            id="min, the default, waits for the slowest",
            marks=pytest.mark.long,
        ),
        pytest.param("max", ["12:50", "13:00"], OF_NOON, OF_NOON, id="max follows the fastest"),
    ],
)
def test_several_watermarks_become_one_by_the_policy(
    tmp_path: Path,
    spark: SparkSession,
    policy: str | None,
    marks: list[str],
    second: list[tuple[str, str, int]],
    third: list[tuple[str, str, int]],
) -> None:
    select = "SELECT substr(since, 12, 5), who, count FROM q ORDER BY 1, 2"
    parts = (SLOW_AND_FAST, query(UNITED, inputs="fast, slow"))
    root = project(tmp_path, *parts, spark={POLICY: policy} if policy else None)
    land(root, "fast", events("who", ("12:00", "a")))
    land(root, "slow", events("who", ("12:00", "b")))
    play(root, spark, select)
    land(root, "fast", events("who", ("13:00", "a")))
    land(root, "slow", events("who", ("11:20", "b")))
    last = play(root, spark, select).triggers[-1]
    assert (last.watermark, last.table) == (marks[0], second)

    other = "min" if policy == "max" else "max"
    project(tmp_path, *parts, spark={POLICY: other})
    land(root, "fast", events("who", ("13:05", "a")))
    land(root, "slow", events("who", ("14:00", "b")))
    (outcome,) = run(load(root), spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.state, outcome.finding.code) == ("failed", "HR274")
    assert f"the policy {policy or 'min'}, not {other}" in outcome.finding.what

    project(tmp_path, *parts, spark={POLICY: (policy or "MIN").upper()})
    last = play(root, spark, select).triggers[-1]
    assert (last.watermark, last.table) == (marks[1], third)


def test_a_policy_that_spark_does_not_know_is_found_without_it(tmp_path: Path) -> None:
    root = project(tmp_path, WORDS, query(COUNTS, inputs="words"), spark={POLICY: "middle"})
    with pytest.raises(ProjectError) as caught:
        load(root)
    (finding,) = caught.value.findings
    assert (finding.code, finding.severity) == ("HR125", "error")
    assert finding.what.endswith("takes min or max")
