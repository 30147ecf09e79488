"""Joins of two streams: inner, on windows, outer, semi, cascaded, and with windowed counts before or after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import load, verify
from headrace.errors import Finding
from tests.rounds import only_usual, rounds

from .join_scenes import query, refusals_of, scene, scene_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BOTH = "impressions, clicks"
UNBOUNDED = {
    "no watermark": ("plain_impressions, plain_clicks", "plain_impressions.join(plain_clicks, F.expr('i_ad = c_ad')"),
    "one watermark": ("impressions, plain_clicks", "impressions.join(plain_clicks, F.expr(WITHIN)"),
    "no time range": (BOTH, "impressions.join(clicks, F.expr('i_ad = c_ad')"),
}
REASONS = {
    "no watermark": "of 'plain_impressions' and of 'plain_clicks' indefinitely to join it: 'plain_impressions' "
    "and 'plain_clicks' have no watermark",
    "one watermark": "of 'impressions' and of 'plain_clicks' indefinitely to join it: 'plain_clicks' has no watermark",
    "no time range": "of 'impressions' and of 'clicks' indefinitely to join it: the join condition does not bound the "
    "time of 'impressions' and of 'clicks' in a way that Spark can read",
}


@pytest.mark.capability("JOIN-STST-01")
@pytest.mark.parametrize("case", rounds(UNBOUNDED))
def test_an_inner_join_without_a_bound_runs_and_is_reported_to_grow_for_ever(
    tmp_path: Path, spark: SparkSession, case: str
) -> None:
    inputs, join = UNBOUNDED[case]
    body = (
        f"{join}).where('c_time >= i_time').selectExpr(*SHOWN)" if case == "no watermark" else f"{join}).select('i_ad')"
    )
    made = scene(
        tmp_path,
        spark,
        inputs,
        body,
        impressions=[[("a", "10:00"), ("b", "10:00")], [("d", "23:00")]],
        clicks=[[("x", "10:10")], [("a", "10:30")]],
    )
    recorder = made.run()
    (warning,) = [finding for finding in recorder.all(Finding) if finding.code == "HR240"]
    assert warning.severity == "warning"
    assert REASONS[case] in warning.what
    assert made.rows("i_ad") == [("a",)]
    made.land("impressions", ("e", "+23:00"))
    made.land("clicks", ("b", "+20:00") if case != "one watermark" else ("y", "+20:00"))
    assert made.batches()[-1].state_rows == 7
    assert made.rows("i_ad") == ([("a",), ("b",)] if case != "one watermark" else [("a",)])


WINDOWS = (
    "impressions.select('i_ad', F.window('i_time', '1 hour').alias('w'), F.expr(SHOWN[1]))"
    ".join(clicks.select('c_ad', F.window('c_time', '1 hour').alias('w'), F.expr(SHOWN[3])), 'w')"
    ".where('i_ad = c_ad').select('i_ad', 'i', 'c_ad', 'c')"
)
TWO_TIMES = (
    "impressions.withColumn('w', F.window('i_time', '1 hour'))"
    ".join(clicks.select(F.window('c_time', '1 hour').alias('w')), 'w')"
)


@pytest.mark.capability("JOIN-STST-03")
def test_a_window_together_with_its_own_time_is_refused_because_spark_would_fail(
    tmp_path: Path, spark: SparkSession
) -> None:
    refusal = scene(tmp_path, spark, BOTH, TWO_TIMES).refusal()
    assert refusal.code == "HR279"
    assert "(a join of two streams) rows with 2 event-time columns: i_time, w" in refusal.what


@pytest.mark.capability("JOIN-STST-03")
def test_two_streams_are_joined_on_windows_of_their_event_times(tmp_path: Path, spark: SparkSession) -> None:
    made = scene(
        tmp_path,
        spark,
        BOTH,
        WINDOWS,
        impressions=[[("a", "10:10"), ("b", "10:10")], [("x", "12:30")]],
        clicks=[[("a", "10:50"), ("b", "11:05")], [("a", "10:05"), ("y", "13:30")]],
    )
    (kept,) = made.findings("HR240", "HR275")
    assert kept.code == "HR275"
    assert (
        "of 'impressions' 3 hours after its window's end and of 'clicks' 2 hours after its window's end (3 hours while "
        "both inputs keep pace)" in kept.what
    )
    assert made.batches()[-1].state_rows == 7
    assert made.rows() == [("a", "10:10", "a", "10:05"), ("a", "10:10", "a", "10:50")]
    made.land("impressions", ("x", "13:10"))
    made.land("clicks", ("y", "14:10"))
    assert made.batches()[-1].state_rows == 5
    made.land("impressions", ("a", "10:20"))
    made.land("clicks", ("a", "10:20"))
    made.run()
    assert made.rows() == [("a", "10:10", "a", "10:05"), ("a", "10:10", "a", "10:50")]


FIRST = {"impressions": [[("a", "10:00"), ("b", "10:00")], [("x", "13:59")]]}
FIRST_CLICKS = [[("a", "10:30"), ("z", "10:30")], [("x", "13:59")]]
MATCHES: list[tuple[Any, ...]] = [("a", "10:00", "a", "10:30"), ("x", "13:59", "x", "13:59")]
NO_IMPRESSION: tuple[Any, ...] = (None, None, "z", "10:30")
NO_CLICK: tuple[Any, ...] = ("b", "10:00", None, None)
OUTER = {"left": ((), (NO_CLICK,)), "right": ((NO_IMPRESSION,), ()), "full": ((NO_IMPRESSION,), (NO_CLICK,))}
SAID = {
    "left": "of 'impressions' that has no match when 'impressions' is 3 hours and 'clicks' is 4 hours past its time",
    "right": "of 'clicks' that has no match when 'impressions' is 2 hours and 'clicks' is 3 hours past its time",
}


@pytest.mark.capability("JOIN-STST-04")
@pytest.mark.parametrize("kind", only_usual(OUTER, "full"))
def test_an_outer_join_gives_its_null_rows_when_no_match_can_come_any_more(
    tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    body = f"impressions.join(clicks, F.expr(WITHIN), '{kind}').selectExpr(*SHOWN)"
    made = scene(tmp_path, spark, BOTH, body, impressions=FIRST["impressions"], clicks=FIRST_CLICKS)
    notes = made.findings("HR240", "HR276")
    assert {finding.severity for finding in notes} == {"note"}
    sides = ("left", "right") if kind == "full" else (kind,)
    for side, note in zip(sides, notes, strict=True):
        assert note.what == f"query 'q' gives a row {SAID[side]}"
    early, late = OUTER[kind]
    made.run()
    assert made.rows() == [*early, *MATCHES]
    made.land("impressions", ("y", "14:00"))
    made.land("clicks", ("y", "14:00"))
    made.run()
    assert made.rows() == [*early, *MATCHES, ("y", "14:00", "y", "14:00")]
    made.land("impressions", ("y", "14:01"))
    made.land("clicks", ("q", "14:01"))
    made.run()
    assert made.rows() == sorted(
        [*early, *MATCHES, *late, ("y", "14:00", "y", "14:00")], key=lambda row: [str(value or "") for value in row]
    )


# The kind, the condition on the keys, and the columns that the warning names.
NULL_KEYS = {
    "full": ("full", "i_ad = c_ad", "i_ad and c_ad"),
    "full_given": ("full", "i_ad = c_ad AND i_ad IS NOT NULL", ""),
    "full_expression": ("full", "lower(i_ad) = lower(c_ad)", "i_ad and c_ad"),
    "full_given_expression": ("full", "lower(i_ad) = lower(c_ad) AND c_ad IS NOT NULL", ""),
    "full_null_safe": ("full", "i_ad <=> c_ad", ""),
    "double": ("inner", "double(i_ad) = double(c_ad)", "i_ad and c_ad"),
    "double_given": ("inner", "double(i_ad) = double(c_ad) AND c_ad IS NOT NULL", ""),
    **{kind: (kind, "i_ad = c_ad", "") for kind in ("inner", "left", "right", "leftsemi")},
}


SHOWN_KEYS = ("full", "full_given")


def by_keys(kind: str, condition: str) -> str:
    return f"impressions.join(clicks, F.expr(WITHIN.replace('c_ad = i_ad', {condition!r})), {kind!r})"


def test_keys_that_may_both_be_null_are_reported_where_spark_takes_them_for_equal(
    tmp_path: Path, spark: SparkSession
) -> None:
    queries = [query(BOTH, by_keys(*case[:2]), name=name) for name, case in NULL_KEYS.items()]
    made = scene_of(tmp_path, spark, queries)
    warnings = {finding.what.split("'")[1]: finding for finding in made.findings("HR280")}
    assert warnings.keys() == {name for name, (_, _, columns) in NULL_KEYS.items() if columns}
    for name, warning in warnings.items():
        assert f"by {NULL_KEYS[name][2]}, which may both be NULL" in warning.what
        assert "add AND i_ad IS NOT NULL to the join condition" in warning.fix


def test_the_advice_for_keys_that_may_be_null_gives_the_rows_of_the_batch(tmp_path: Path, spark: SparkSession) -> None:
    queries = [query(BOTH, f"{by_keys(*NULL_KEYS[name][:2])}.selectExpr(*SHOWN)", name=name) for name in SHOWN_KEYS]
    made = scene_of(
        tmp_path,
        spark,
        queries,
        impressions=[[(None, "10:00"), ("a", "10:00")], [("x", "15:00")], [("y", "20:00")]],
        clicks=[[(None, "10:30"), ("a", "10:30")], [("x", "15:00")], [("y", "20:00")]],
    )
    made.run()
    without_match = [(None, "10:00", None, None), (None, None, None, "10:30")]
    assert (None, "10:00", None, "10:30") in made.rows(table="full")
    assert set(without_match) <= set(made.rows(table="full_given"))
    states = {name: verify(load(made.root), name, spark=spark).state for name in SHOWN_KEYS}
    assert states == {"full": "open", "full_given": "equal"}


@pytest.mark.capability("JOIN-STST-04", "JOIN-STST-05")
def test_an_outer_or_semi_join_without_a_bound_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    queries = {
        f"{case} {kind}".replace(" ", "_"): (UNBOUNDED[case][0], f"{UNBOUNDED[case][1]}, '{kind}')")
        for case in ("no watermark", "no time range")
        for kind in ("left", "right", "full", "leftsemi")
    }
    errors = refusals_of(tmp_path / "p", spark, [query(*of_it, name=name) for name, of_it in queries.items()])
    assert {name: error.code for name, error in errors.items()} == dict.fromkeys(queries, "HR203")
    fix = "give both sources a watermark and bound the one time by the other in the join condition"
    assert {error.fix for error in errors.values()} == {fix}


@pytest.mark.capability("JOIN-STST-05")
def test_a_left_semi_join_gives_each_row_with_a_match_once(tmp_path: Path, spark: SparkSession) -> None:
    body = "impressions.join(clicks, F.expr(WITHIN), 'leftsemi').selectExpr('i_ad', SHOWN[1])"
    made = scene(
        tmp_path,
        spark,
        BOTH,
        body,
        impressions=[[("a", "10:00"), ("b", "10:00"), ("d", "10:00")], [("x", "14:01")]],
        clicks=[[("a", "10:30"), ("a", "10:40")], [("a", "10:50"), ("b", "11:01"), ("d", "11:00"), ("y", "14:01")]],
    )
    batches = made.batches()
    assert made.rows() == [("a", "10:00"), ("d", "10:00")]
    assert batches[-1].state_rows == 3
    assert made.findings("HR240", "HR276") == []


THIRD = "F.expr('p_ad = i_ad AND p_time BETWEEN i_time AND i_time + INTERVAL 2 HOURS')"
BOUGHT = "date_format(p_time, 'HH:mm') AS p"
CASCADE = (
    "impressions.join(clicks, F.expr(WITHIN), '{kind}').selectExpr('i_ad', 'i_time', SHOWN[3])"
    f'.join(purchases, {THIRD}, \'{{kind}}\').selectExpr("i_ad", "c", "{BOUGHT}")'
)
ALL_THREE = "impressions, clicks, purchases"
MATCHED = ("a", "10:30", "11:50")


@pytest.mark.capability("JOIN-STST-06")
@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        # The rows of the outer join hold those of the inner one.
        pytest.param("inner", [MATCHED], id="inner", marks=pytest.mark.long),
        pytest.param("left", [MATCHED, ("b", "10:40", None), ("d", None, None)], id="left outer"),
    ],
)
def test_joins_are_cascaded_in_append_mode(
    tmp_path: Path, spark: SparkSession, kind: str, answer: list[tuple[Any, ...]]
) -> None:
    made = scene(
        tmp_path,
        spark,
        ALL_THREE,
        CASCADE.format(kind=kind),
        impressions=[[("a", "10:00"), ("b", "10:00"), ("d", "10:00")], [("x", "+10:00")]],
        clicks=[[("b", "10:40")], [("a", "10:30"), ("y", "+10:00")]],
        purchases=[[("a", "11:50")], [("b", "12:30"), ("z", "+10:00")]],
    )
    outer, inner = made.findings("HR275")
    assert "cannot be determined, because an operator before the join holds rows back" in outer.what
    assert "of 'impressions' 4 hours and of 'clicks' 2 hours" in inner.what
    made.run()
    assert made.rows() == sorted(answer, key=lambda row: [str(value or "") for value in row])


REFUSED_JOINS = {
    "update cascade": (CASCADE.format(kind="inner"), "update", "HR227"),
    "complete cascade": (CASCADE.format(kind="inner"), "complete", "HR227"),
    "cascade with two times": (
        f'impressions.join(clicks, F.expr(WITHIN)).join(purchases, {THIRD}).selectExpr(*SHOWN, "{BOUGHT}")',
        "append",
        "HR279",
    ),
    "update counted": ("impressions.join(clicks, F.expr(WITHIN)).groupBy('i_ad').count()", "update", "HR227"),
    "complete counted": ("impressions.join(clicks, F.expr(WITHIN)).groupBy('i_ad').count()", "complete", "HR227"),
    "left anti": ("impressions.join(clicks, F.expr(WITHIN), 'leftanti')", "append", "HR228"),
}


@pytest.mark.capability("JOIN-STST-06")
def test_a_join_that_spark_cannot_do_is_refused_before_start(tmp_path: Path, spark: SparkSession) -> None:
    queries = [
        query(ALL_THREE, body, mode=mode, key=["i_ad"] if mode == "update" else (), name=case.replace(" ", "_"))
        for case, (body, mode, _) in REFUSED_JOINS.items()
    ]
    errors = refusals_of(tmp_path / "p", spark, queries)
    assert {name: error.code for name, error in errors.items()} == {
        case.replace(" ", "_"): code for case, (*_, code) in REFUSED_JOINS.items()
    }
    assert all(error.fix.startswith("use the mode append") for error in errors.values() if error.code == "HR227")


@pytest.mark.capability("JOIN-STST-07")
def test_windowed_counts_of_two_streams_are_joined_on_the_window(tmp_path: Path, spark: SparkSession) -> None:
    body = (
        "clicks.groupBy(F.window('c_time', '1 hour')).agg(F.count('*').alias('clicked'))"
        ".join(impressions.groupBy(F.window('i_time', '1 hour')).agg(F.count('*').alias('shown')), 'window')"
        ".select(F.date_format('window.start', 'HH:mm').alias('hour'), 'clicked', 'shown')"
    )
    made = scene(
        tmp_path,
        spark,
        BOTH,
        body,
        impressions=[[("a", "10:00"), ("b", "10:10"), ("a", "11:10")], [("a", "10:59"), ("x", "13:30")]],
        clicks=[[("a", "10:00"), ("b", "12:10")], [("a", "10:30"), ("x", "13:30")]],
    )
    made.run()
    assert made.rows() == []
    made.land("impressions", ("x", "+10:00"))
    made.land("clicks", ("x", "+10:00"))
    made.run()
    assert made.rows() == [("10:00", 2, 3), ("13:00", 1, 1)]


@pytest.mark.capability("JOIN-STST-07")
def test_a_time_range_join_is_followed_by_a_windowed_count(tmp_path: Path, spark: SparkSession) -> None:
    body = (
        "impressions.join(clicks, F.expr(WITHIN), 'left').groupBy('i_ad', F.window('i_time', '1 hour'))"
        ".agg(F.count('c_ad').alias('clicks'))"
        ".select('i_ad', F.date_format('window.start', 'HH:mm').alias('hour'), 'clicks')"
    )
    made = scene(
        tmp_path,
        spark,
        BOTH,
        body,
        impressions=[[("a", "10:00"), ("b", "10:20"), ("a", "10:50")], [("x", "12:00")]],
        clicks=[[("a", "10:55")], [("a", "11:40"), ("y", "13:00")]],
    )
    recorder = made.run()
    assert made.rows() == [], recorder.lines
    made.land("impressions", ("x", "+10:00"))
    made.land("clicks", ("x", "+10:00"))
    recorder = made.run()
    assert made.rows() == [("a", "10:00", 3), ("b", "10:00", 0), ("x", "12:00", 0)], recorder.lines
