"""What a stream cannot do is refused before start, each with its code and a fix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.spark.messages.refusals import INSTEAD

from .join_scenes import query, refusals_of, scene, scene_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.errors import Finding
    from tests.conftest import Sessions

pytestmark = pytest.mark.spark

COUNTS = "impressions.groupBy('i_ad').count()"
HOURS = "impressions.groupBy(F.window('i_time', '1 hour')).count()"
SQL = 'sql(spark, "{}", shown=impressions, clicks=clicks, ads=ads)'
TEXT = """
def sql(spark, text, **frames):
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return spark.sql(text)
"""

# (body, modes, code, words of the fix)
REFUSED = {
    "limit": ("impressions.limit(3)", ("append", "update"), "HR223", "take the first rows where the result is read"),
    "limit of counts": (f"{COUNTS}.limit(3)", ("complete", "update"), "HR223", "in the mode complete sort before it"),
    "limit below counts": (
        "impressions.limit(3).groupBy('i_ad').count()",
        ("complete",),
        "HR223",
        "leave limit out",
    ),
    "offset": ("impressions.offset(3)", ("append",), "HR223", "leave limit out"),
    "take": ("impressions.take(3)", ("append",), "HR213", "the memory sink"),
    "first": ("impressions.first()", ("append",), "HR213", "the memory sink"),
    "distinct": (
        "impressions.select('i_ad', F.upper('i_ad').alias('up')).distinct()",
        ("append", "update"),
        "HR278",
        "dropDuplicates",
    ),
    "distinct of one column": ("impressions.select('i_ad').distinct()", ("append",), "HR278", "dropDuplicates"),
    "SELECT DISTINCT": (
        SQL.format("SELECT DISTINCT i_ad FROM shown"),
        ("append", "update", "complete"),
        "HR278",
        "group by the columns and count",
    ),
    "distinct aggregation": (
        "impressions.groupBy('i_ad').agg(F.count_distinct('i_time'))",
        ("complete", "update"),
        "HR226",
        "size(collect_set(x))",
    ),
    "EXCEPT": (SQL.format("SELECT i_ad FROM shown EXCEPT SELECT i_ad FROM ads"), ("append", "update"), "HR278", "anti"),
    "subtract": ("impressions.select('i_ad').subtract(ads.select('i_ad'))", ("append",), "HR278", "left anti"),
    "INTERSECT": ("impressions.select('i_ad').intersect(ads.select('i_ad'))", ("append",), "HR278", "left semi"),
    "UNION without ALL": (
        SQL.format("SELECT i_ad FROM shown UNION SELECT c_ad FROM clicks"),
        ("append",),
        "HR278",
        "UNION ALL",
    ),
    "sort": (
        "impressions.orderBy('i_ad')",
        ("append", "update"),
        "HR223",
        "use the mode complete after an aggregation",
    ),
    "sort of counts": (f"{COUNTS}.orderBy('i_ad')", ("update",), "HR223", "sort where the result is read"),
    "sort before counts": ("impressions.orderBy('i_ad').groupBy('i_ad').count()", ("complete",), "HR223", "sort where"),
    "cube": ("impressions.cube('i_ad').count()", ("append", "update", "complete"), "HR277", "one query for each set"),
    "rollup": (
        "impressions.rollup('i_ad', 'i_time').count()",
        ("update", "complete"),
        "HR277",
        "one query for each set",
    ),
    "GROUPING SETS": (
        SQL.format("SELECT i_ad, count(*) AS n FROM shown GROUP BY i_ad GROUPING SETS ((i_ad), ())"),
        ("update", "complete"),
        "HR277",
        "one query for each set",
    ),
    "counts of counts": (
        "impressions.groupBy('i_ad', 'i_time').count().groupBy('i_ad').count()",
        ("update", "complete"),
        "HR227",
        "use the mode append, or write the first step to a table of its own",
    ),
    "windows of windows": (
        f"{HOURS}.groupBy(F.window('window', '2 hours')).count()",
        ("update", "complete"),
        "HR227",
        "use the mode append",
    ),
    "duplicates of windows": (
        f"{HOURS}.dropDuplicates(['window'])",
        ("update", "complete"),
        "HR227",
        "use the mode append",
    ),
    "a window function": (
        "impressions.selectExpr('count(*) OVER (PARTITION BY i_ad) AS n')",
        ("append",),
        "HR226",
        "max_by(row, order) or max(struct(order, ...))",
    ),
    "sample": ("impressions.sample(0.5)", ("append",), "HR223", "hash of a column"),
    "two event times as keys": (
        "impressions.groupBy(F.window('i_time', '1 hour').alias('h'), 'i_time').count()",
        ("append", "update"),
        "HR279",
        "leave one of them",
    ),
    "two event times": (
        "impressions.withColumn('h', F.window('i_time', '1 hour')).dropDuplicates(['i_ad', 'h'])",
        ("append",),
        "HR279",
        "leave one of them",
    ),
}
CELLS = [pytest.param(case, mode, id=f"{case}, {mode}") for case in REFUSED for mode in REFUSED[case][1]]


def name_of(case: str, mode: str) -> str:
    return f"{case}_{mode}".replace(" ", "_")


@pytest.fixture(scope="module")
def refusals(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    """The error of each query by its name; all stand in one project, which is checked and run once."""
    queries = [
        query(
            "impressions, clicks, ads, spark",
            body,
            mode=mode,
            key=["i_ad"] if mode == "update" else (),
            name=name_of(case, mode),
        )
        for case, (body, modes, _, _) in REFUSED.items()
        for mode in modes
    ]
    return refusals_of(tmp_path_factory.mktemp("refused") / "p", sessions.with_connectors(()), queries, extra=TEXT)


@pytest.mark.capability("UNSUP-01")
@pytest.mark.parametrize(("case", "mode"), CELLS)
def test_an_operation_that_streams_do_not_have_is_refused(refusals: dict[str, Finding], case: str, mode: str) -> None:
    _, _, code, fix = REFUSED[case]
    refusal = refusals[name_of(case, mode)]
    assert refusal.code == code
    assert fix in refusal.fix
    assert refusal.where.line


@pytest.mark.capability("UNSUP-01")
def test_the_ways_out_lead_somewhere(tmp_path: Path, spark: SparkSession) -> None:
    """A sorted top of all counts in complete mode, and duplicates dropped before a count in update mode."""
    timeline = [[("a", "10:00"), ("b", "10:00"), ("a", "10:00")], [("b", "10:05"), ("b", "10:06"), ("c", "10:00")]]
    ways: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
        "most": (f"{COUNTS}.orderBy(F.desc('count')).limit(1)", "complete", [("b", 3)]),
        "times": (
            "impressions.groupBy(F.window('i_time', '1 hour').alias('h'), 'i_time').count().select('count')",
            "complete",
            [(1,), (1,), (4,)],
        ),
        # The plan of these two is the same as that of distinct().
        "ads": ("impressions.select('i_ad').dropDuplicates(['i_ad'])", "append", [("a",), ("b",), ("c",)]),
        "both": (
            "impressions.select('i_ad', F.upper('i_ad').alias('up')).dropDuplicates(['up', 'i_ad'])",
            "append",
            [("a", "A"), ("b", "B"), ("c", "C")],
        ),
        "once": (
            "impressions.dropDuplicates(['i_ad', 'i_time']).groupBy('i_ad').count()",
            "update",
            [("a", 1), ("b", 3), ("c", 1)],
        ),
    }
    queries = [
        query("impressions", body, mode=mode, key=["i_ad"] if mode == "update" else (), name=name)
        for name, (body, mode, _) in ways.items()
    ]
    made = scene_of(tmp_path, spark, queries, impressions=timeline)
    made.run()
    assert {name: made.rows(table=name) for name in ways} == {name: answer for name, (*_, answer) in ways.items()}


CALLS = {
    "count": "count()",
    "foreach": "foreach(print)",
    "foreachPartition": "foreachPartition(print)",
    "show": "show()",
    "collect": "collect()",
    "take": "take(1)",
    "head": "head()",
    "first": "first()",
    "tail": "tail(1)",
    "toLocalIterator": "toLocalIterator()",
    "isEmpty": "isEmpty()",
    "toPandas": "toPandas()",
    "toArrow": "toArrow()",
    "write": "write.mode('append').json('elsewhere')",
    "writeTo": "writeTo('elsewhere').append()",
    "cache": "cache()",
    "persist": "persist()",
    "checkpoint": "checkpoint()",
    "localCheckpoint": "localCheckpoint()",
    "rdd": "rdd.count()",
}
WORDS = {
    "count": "use groupBy().count()",
    "foreach": "foreach sink",
    "show": "the console sink",
    "collect": "read the query's sink",
    "toPandas": "mapInPandas",
}


def test_every_call_with_something_to_use_instead_is_tried() -> None:
    assert sorted(CALLS) == sorted(INSTEAD)


@pytest.fixture(scope="module")
def asked(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Finding], list[str]]:
    """The error of each query that asks its stream for an answer, and the lines of the file that they stand in."""
    root = tmp_path_factory.mktemp("asked") / "p"
    extra = "".join(f"def {name}(frame):\n    frame.{call}\n    return frame\n" for name, call in CALLS.items())
    queries = [query("impressions", f"{name}(impressions)", name=f"q_{name}") for name in CALLS]
    findings = refusals_of(root, sessions.with_connectors(()), queries, extra=extra)
    return findings, (root / "pipeline.py").read_text().splitlines()


@pytest.mark.capability("UNSUP-02")
@pytest.mark.filterwarnings("ignore:toPandas attempted")
@pytest.mark.parametrize("method", CALLS)
def test_asking_a_stream_for_an_answer_is_refused_with_what_to_use(
    asked: tuple[dict[str, Finding], list[str]], method: str
) -> None:
    findings, lines = asked
    refusal = findings[f"q_{method}"]
    assert refusal.code == "HR213"
    assert refusal.what == f"the function q_{method} calls {method} on a stream, which has no end"
    assert refusal.fix == INSTEAD[method]
    assert WORDS.get(method, "") in refusal.fix
    assert refusal.where.line
    assert CALLS[method] in lines[refusal.where.line - 1]


@pytest.mark.capability("UNSUP-02")
def test_the_same_calls_are_free_on_a_table(tmp_path: Path, spark: SparkSession) -> None:
    body = "impressions.withColumn('n', F.lit(ads.count() + ads.distinct().count() + len(ads.collect()))).select('n')"
    made = scene(tmp_path, spark, "impressions, ads", body, impressions=[[("a", "10:00")]])
    made.run()
    assert made.rows() == [(9,)]
