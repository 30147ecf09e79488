"""No row less late than the delay is ever dropped, and those that are dropped are counted exactly and listed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.api import late, load, run
from headrace.errors import HeadraceError
from headrace.model import AvailableNow
from headrace.starter.start import start
from tests.verifier import late_project
from tests.verifier.kit import scene
from tests.verifier.test_late import LATE_LAST, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

pytestmark = pytest.mark.spark

BEGIN = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


def arrivals(seed: int, rows: int, files: int, slowest: int) -> list[list[datetime]]:
    """Event times over three hours, in files in the order in which they arrive, up to `slowest` minutes later."""
    random = Random(seed)
    happened = [BEGIN + timedelta(seconds=random.randrange(3 * 3600)) for _ in range(rows)]
    arrived = sorted(happened, key=lambda time: time + timedelta(seconds=random.random() ** 3 * slowest * 60))
    cuts = [0, *sorted(random.sample(range(1, rows), files - 1)), rows]
    return [arrived[first:last] for first, last in pairwise(cuts)]


@pytest.mark.long
@pytest.mark.capability("OP-WM-04")
@given(seed=st.integers(0, 10_000), delay=st.integers(0, 40), mode=st.sampled_from(["update", "append"]))
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_row_is_dropped_only_if_it_is_at_least_the_delay_late(
    seed: int, delay: int, mode: str, spark: SparkSession
) -> None:
    files = arrivals(seed, 600, 8, slowest=90)
    # The last file closes every window, so that in append mode nothing is left open.
    files += [[BEGIN + timedelta(hours=9)], [BEGIN + timedelta(hours=9)]]
    batches = [[(time.isoformat(), "a", 1) for time in rows] for rows in files]
    with tempfile.TemporaryDirectory() as home:
        made = scene(
            spark, Path(home), batches, windows("10 minutes"), mode=mode, key=("who", "start"), delay=f"{delay} minutes"
        )  # type: ignore[arg-type]
        result = late(made.project, "q", limit=1_000, spark=spark)
        with made.table.connect() as connection:
            records = [json.loads(text) for (text,) in connection.execute("SELECT json FROM record")]
        verdict = made.verify()

    assert result.count == len(result.rows) == verdict.rows_late > 0
    seen = [max((time for rows in files[:batch] for time in rows), default=None) for batch in range(len(files))]
    for row in result.rows:
        newest = seen[row.batch]
        assert newest is not None
        assert newest - row.time >= timedelta(minutes=delay) + row.behind
        assert row.behind >= timedelta(0)

    # What was not dropped is counted, each row of it: none that was less late is gone.
    kept = Counter(time for rows in files for time in rows)
    kept.subtract(row.time for row in result.rows)
    assert min(kept.values()) >= 0
    windowed: Counter[str] = Counter()
    for time, rows in kept.items():
        windowed[time.replace(minute=time.minute // 10 * 10, second=0).strftime("%H:%M")] += rows
    closed = {start: rows for start, rows in windowed.items() if rows and (mode == "update" or start < "21:00")}
    assert {record["start"][11:16]: record["count"] for record in records} == closed
    assert sum(map(len, files)) - result.count == sum(windowed.values())
    in_time = sum(
        newest is None or newest - time < timedelta(minutes=delay)
        for rows, newest in zip(files, seen, strict=True)
        for time in rows
    )
    assert in_time <= sum(windowed.values())


@pytest.mark.capability("OP-WM-04")
def test_a_hundred_late_rows_of_one_key_are_a_hundred_where_spark_counts_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [*late_project.BATCHES[:3], [("12:05", "a")] * 100, [("12:07", "b"), ("12:08", "b"), ("13:02", "b")]]
    root = late_project.write_project(tmp_path / "p", batches)
    project = load(root)
    running = start(project, project.queries["updated"], spark)
    spark_says = []
    running.handle.processAllAvailable()
    spark_says = [
        operator["numRowsDroppedByWatermark"]
        for progress in running.handle.recentProgress
        for operator in progress["stateOperators"]
    ]
    running.handle.stop()
    result = late(project, "updated", limit=101, spark=spark)
    assert sum(spark_says) == 2
    assert [(batch.batch, batch.rows) for batch in result.batches] == [(3, 100), (4, 2)]
    assert {batch.watermark for batch in result.batches} == {datetime(2024, 1, 1, 12, 50, tzinfo=timezone.utc)}
    assert (result.count, len(result.rows)) == (102, 101)
    first = result.rows[0]
    assert (first.batch, first.operator, first.behind) == (3, "Aggregate", timedelta(minutes=45))
    assert (first.row["who"], first.row["value"]) == ("a", 1.5)
    assert result.sentence == "102 rows dropped as late, up to batch 5"
    assert result.exit_code == 0

    later = late(project, "updated", since_batch=4, limit=0, spark=spark)
    assert (later.count, later.rows) == (2, ())
    assert later.sentence == "2 rows dropped as late since batch 4, up to batch 5"


def test_a_query_that_can_drop_nothing_says_why(spark: SparkSession, tmp_path: Path) -> None:
    reasons = {
        "totals": "no state of it is bounded by a watermark",
        "complete": "complete mode keeps every group",
        "passing": "it keeps no state",
    }
    project = load(late_project.write_project(tmp_path / "p"))
    assert run(project, list(reasons), trigger=AvailableNow(), spark=spark).exit_code == 0
    for query, why in reasons.items():
        dropped = late(project, query, spark=spark)
        (finding,) = dropped.findings
        assert (finding.code, finding.severity, dropped.count, dropped.exit_code) == ("HR690", "note", 0, 0)
        assert finding.what.endswith(why)


def count_visits(key: tuple[str], frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
    import pandas as pd

    yield pd.DataFrame({"who": [key[0]], "seen": [sum(map(len, frames))]})


@pytest.mark.parametrize(("timeout", "rows"), [("EventTimeTimeout", 3), ("NoTimeout", 0)])
def test_a_function_over_groups_drops_late_rows_only_with_a_timeout_by_event_time(
    timeout: str, rows: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(events: DataFrame) -> DataFrame:
        groups = events.groupBy("who")
        return groups.applyInPandasWithState(count_visits, "who STRING, seen LONG", "seen LONG", "update", timeout)

    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    made = scene(spark, tmp_path, LATE_LAST, seen, mode="update", key=("who",))
    result = late(made.project, "q", spark=spark)
    assert [row.time.strftime("%H:%M") for row in result.rows] == ["12:05", "12:45", "12:50"][:rows]
    assert [finding.code for finding in result.findings] == ([] if rows else ["HR690"])


def test_rows_that_cannot_be_traced_to_their_batch_are_not_counted_in_silence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def through_python(events: DataFrame) -> DataFrame:
        return events.mapInPandas(lambda frames: frames, events.schema).groupBy("time", "who").count()

    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    made = scene(spark, tmp_path, LATE_LAST, through_python, mode="update", key=("time", "who"))
    result = late(made.project, "q", spark=spark)
    assert [(finding.code, finding.severity) for finding in result.findings] == [("HR706", "error")]
    assert (result.count, result.exit_code) == (0, 1)
    assert "pass through MapInPandas" in result.sentence


def test_what_cannot_be_decided_is_a_finding_with_a_way_out(spark: SparkSession, tmp_path: Path) -> None:
    root = late_project.write_project(tmp_path / "p")
    project = load(root)
    with pytest.raises(HeadraceError) as unknown:
        late(project, "update", spark=spark)
    assert [(finding.code, finding.fix) for finding in unknown.value.findings] == [("HR091", "did you mean 'updated'?")]
    for query, code in (("updated", "HR701"), ("forgotten", "HR702")):
        result = late(project, query, spark=spark)
        assert [finding.code for finding in result.findings][:1] == [code]
        assert (result.count, result.exit_code) == (0, 1)
        assert result.sentence.startswith("it cannot be determined which rows came late: ")

    late_project.run(root, "updated", spark)
    (root / "landing" / "000.json").unlink()
    with pytest.raises(HeadraceError) as gone:
        late(project, "updated", spark=spark)
    assert [(finding.code, bool(finding.fix)) for finding in gone.value.findings] == [("HR303", True)]
    # What the vanished file held is not asked for from its next batch on.
    assert late(project, "updated", since_batch=1, spark=spark).count == 2
    assert late(project, "updated", since_batch=100, spark=spark).count == 0
    # A sink that does not answer hides no late row.
    (root / "result.db").unlink()
    result = late(project, "updated", since_batch=1, spark=spark)
    (finding,) = result.findings
    assert (result.count, result.exit_code, finding.code, finding.severity) == (2, 0, "HR405", "warning")
