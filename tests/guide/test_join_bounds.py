"""How long each side of a join is kept, reported before start and shown in the state; and what holds it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run
from headrace.contract import BatchRecord
from headrace.errors import Finding
from headrace.model import Default
from headrace.runner.stop import StopRequest
from tests.runner.test_run import Recorder

from .join_scenes import scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BOTH = "impressions, clicks"
BOOK = "of 'impressions' 4 hours and of 'clicks' 2 hours (3 hours while both inputs keep pace)"
ENDLESS = "of 'impressions' indefinitely to join it: the join condition does not bound the time of 'impressions'"
PYTHON = "(F.col('c_ad') == F.col('i_ad')) & (F.col('c_time') >= F.col('i_time'))"
CONDITIONS = {
    "between": ("F.expr(WITHIN)", BOOK, None),
    "sides changed": (
        "F.expr('i_ad = c_ad AND c_time - INTERVAL 1 HOUR <= i_time AND NOT i_time > c_time')",
        BOOK,
        None,
    ),
    "in Python": (f"{PYTHON} & (F.col('c_time') <= F.col('i_time') + F.expr('INTERVAL 1 HOUR'))", BOOK, None),
    "in Python, other side": (
        f"{PYTHON} & (F.col('i_time') >= F.col('c_time') - F.expr('INTERVAL 60 MINUTES'))",
        BOOK,
        None,
    ),
    "wider": (
        "F.expr('i_ad = c_ad AND c_time BETWEEN i_time - INTERVAL 10 MINUTES AND i_time + INTERVAL 2 DAYS')",
        "of 'impressions' 51 hours and of 'clicks' 130 minutes (190 minutes while both inputs keep pace)",
        None,
    ),
    "later only": (
        "F.expr('i_ad = c_ad AND c_time BETWEEN i_time + INTERVAL 30 MINUTES AND i_time + INTERVAL 1 HOUR')",
        "of 'impressions' 4 hours and of 'clicks' 90 minutes (150 minutes while both inputs keep pace)",
        None,
    ),
    "the same time": (
        "F.expr('i_ad = c_ad AND c_time = i_time')",
        "of 'impressions' 3 hours and of 'clicks' 2 hours (3 hours while both inputs keep pace)",
        None,
    ),
    "no upper bound": (
        "F.expr('i_ad = c_ad AND c_time >= i_time')",
        "of 'clicks' 2 hours (3 hours while both inputs keep pace)",
        ENDLESS,
    ),
    "months have no fixed length": (
        "F.expr('i_ad = c_ad AND c_time BETWEEN i_time AND i_time + INTERVAL 1 MONTH')",
        "of 'clicks' 2 hours (3 hours while both inputs keep pace)",
        ENDLESS,
    ),
    "a function of the time": (
        "F.expr('i_ad = c_ad AND c_time >= i_time AND unix_timestamp(c_time) <= unix_timestamp(i_time) + 3600')",
        "of 'clicks' 2 hours (3 hours while both inputs keep pace)",
        ENDLESS,
    ),
}


@pytest.mark.capability("JOIN-STST-02")
@pytest.mark.parametrize("case", CONDITIONS)
def test_how_long_each_side_is_kept_is_shown_before_start(tmp_path: Path, spark: SparkSession, case: str) -> None:
    condition, kept, endless = CONDITIONS[case]
    findings = scene(tmp_path, spark, BOTH, f"impressions.join(clicks, {condition})").findings("HR240", "HR275")
    by_code = {finding.code: finding for finding in findings}
    assert f"keeps each row {kept} to join it" in by_code["HR275"].what
    assert by_code["HR275"].severity == "note"
    assert (endless is None) == ("HR240" not in by_code)
    if endless is not None:
        assert endless in by_code["HR240"].what
        assert "equate the whole window columns" in by_code["HR240"].fix


@pytest.mark.capability("JOIN-STST-02")
def test_a_where_in_sql_counts_as_a_part_of_the_condition(tmp_path: Path, spark: SparkSession) -> None:
    project = """
        name: advertisements
        sources:
          impressions:
            files: {path: impressions, format: json, schema: "ad STRING, i_time TIMESTAMP"}
            watermark: {column: i_time, delay: 2 hours}
          clicks:
            files: {path: clicks, format: json, schema: "ad STRING, c_time TIMESTAMP"}
            watermark: {column: c_time, delay: 3 hours}
        queries:
          q:
            sql: q.sql
            sink: {sqlite: {path: out.db, table: q}}
    """
    for name in ("impressions", "clicks"):
        (tmp_path / name).mkdir()
    (tmp_path / "headrace.yml").write_text("\n".join(line[8:] for line in project.splitlines()))
    (tmp_path / "q.sql").write_text(
        "SELECT impressions.ad, i_time, c_time FROM impressions JOIN clicks ON impressions.ad = clicks.ad "
        "WHERE c_time BETWEEN i_time AND i_time + INTERVAL 1 HOUR"
    )
    result = check(load(tmp_path), spark=spark)
    assert result.errors == ()
    assert [BOOK in finding.what for finding in result.findings if finding.code == "HR275"] == [True]


@pytest.mark.capability("JOIN-STST-02")
def test_rows_are_kept_as_long_as_announced_and_no_longer(tmp_path: Path, spark: SparkSession) -> None:
    """Impressions stay until clicks are 4 hours past them; clicks 3 hours, as both inputs keep pace here."""
    body = "impressions.join(clicks, F.expr(WITHIN)).selectExpr(*SHOWN)"
    made = scene(
        tmp_path,
        spark,
        BOTH,
        body,
        impressions=[[("a", "10:00")], [("x", "13:00")]],
        clicks=[[("b", "10:00")], [("y", "13:00")]],
    )

    def state_after(at: str, *late: tuple[str, str]) -> int | None:
        made.land("impressions", ("x", at))
        made.land("clicks", ("y", at), *late)
        return made.batches()[-1].state_rows

    assert made.batches()[-1].state_rows == 4
    assert state_after("13:01") == 5  # the click of 10:00 has gone, two rows have come
    assert state_after("14:00", ("a", "11:00")) == 8
    assert made.rows() == [("a", "10:00", "a", "11:00")]
    assert state_after("14:01") == 8  # the impression of 10:00 has gone, and the click of 11:00
    assert state_after("+10:00", ("a", "10:59")) == 2
    assert made.rows() == [("a", "10:00", "a", "11:00")]


@pytest.mark.capability("JOIN-STST-04")
def test_an_outer_side_without_a_watermark_is_reported_as_never_giving_its_null_rows(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Spark starts this join, keeps the impressions indefinitely, and gives no NULL row."""
    body = "plain_impressions.join(clicks, F.expr(WITHIN), 'left').selectExpr(*SHOWN)"
    made = scene(
        tmp_path,
        spark,
        "plain_impressions, clicks",
        body,
        impressions=[[("a", "10:00"), ("b", "10:00")], [("x", "+10:00")]],
        clicks=[[("a", "10:30")], [("y", "+20:00")]],
    )
    by_code = {finding.code: finding for finding in made.run().all(Finding)}
    assert by_code["HR276"].severity == by_code["HR240"].severity == "warning"
    assert "never gives the rows of 'plain_impressions' that have no match" in by_code["HR276"].what
    assert made.rows() == [("a", "10:00", "a", "10:30")]


class Listening(Recorder):
    """A reporter that asks to stop when it has heard of the watermark, or after enough batches."""

    stop = StopRequest()

    def note(self, finding: Finding) -> None:
        super().note(finding)
        if finding.code == "HR684":
            self.stop.ask()

    def progressed(self, record: BatchRecord) -> None:
        super().progressed(record)
        if record.batch >= 8:
            self.stop.ask()


@pytest.mark.capability("JOIN-STST-08")
def test_the_input_that_holds_back_the_null_rows_is_named(tmp_path: Path, spark: SparkSession) -> None:
    body = "impressions.join(clicks, F.expr(WITHIN), 'left').selectExpr(*SHOWN)"
    hours = [[("b", f"{hour}:00")] for hour in range(10, 16)]
    made = scene(tmp_path, spark, BOTH, body, impressions=hours, clicks=[[("a", "10:00")]])
    recorder = Listening()
    recorder.stop = StopRequest()
    result = run(load(tmp_path), spark=spark, trigger=Default(), reporter=recorder, stop=recorder.stop)
    assert [outcome.state for outcome in result.outcomes] == ["stopped"]
    (held,) = [finding for finding in recorder.all(Finding) if finding.code == "HR684"]
    assert held.what == (
        "its watermark stands at 2026-03-01 07:00:00 UTC, held back by 'clicks': no row came from there in 5 batches, "
        "5 from 'impressions'"
    )
    assert made.rows() == []
    made.land("clicks", ("y", "15:30"))
    made.land("impressions", ("q", "15:30"))
    made.run()
    assert made.rows() == [("b", "10:00", None, None), ("b", "11:00", None, None)]
