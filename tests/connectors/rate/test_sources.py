"""The rate sources take every option of the guide, and their rows can be made again to the microsecond."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.rate.micro_batch import RateMicroBatch
from headrace.connectors.rate.source import Rate
from headrace.testing.conformance import NAME, drain, prefix_of
from tests.rounds import rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.capability("SRC-RATE-01")
def test_rows_come_at_the_rate_after_the_ramp_and_can_be_made_again(spark: SparkSession, tmp_path: Path) -> None:
    source = Rate(rows_per_second=30, ramp_up_time="2s", num_partitions=3)
    assert list(source.problems()) == []
    checkpoint, streamed = tmp_path / "checkpoint", dict[int, list[tuple[Any, ...]]]()
    for _ in range(4):
        streamed |= drain(source.stream(spark, NAME), checkpoint)[0]
        time.sleep(1.1)
    prefix = prefix_of(checkpoint)
    seconds = int(prefix.batches[-1].end or 0)
    rising, steady = min(seconds, 2), max(0, seconds - 2)
    values = [row[1] for rows in streamed.values() for row in rows]
    assert steady > 0
    assert sorted(values) == list(range(10 * rising * (rising + 1) // 2 + 30 * steady))
    read = source.read(spark, prefix, batch_column="batch").collect()
    assert sorted(map(tuple, read), key=repr) == sorted(
        [(*row, batch) for batch, rows in streamed.items() for row in rows], key=repr
    )
    assert source.stream(spark, NAME).schema == source.read(spark, prefix).schema


@pytest.mark.capability("SRC-RATE-01")
@pytest.mark.capability("SRC-RATE-02")
@pytest.mark.parametrize("partitions", rounds([3, 1]))
def test_the_rows_of_a_batch_lie_in_so_many_partitions(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    for source in (
        Rate(rows_per_second=10, num_partitions=partitions),
        RateMicroBatch(rows_per_batch=10, num_partitions=partitions),
    ):
        checkpoint, counts = tmp_path / type(source).__name__, list[int]()
        frame = source.stream(spark, NAME)

        def count(batch: Any, _: int, counts: list[int] = counts) -> None:
            counts.append(batch.rdd.getNumPartitions())

        for _ in range(2):
            writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            writer.foreachBatch(
                lambda batch, _, counts=counts: counts.append(batch.rdd.getNumPartitions())
            ).start().awaitTermination()
            time.sleep(1.05)
        assert counts[-1] == partitions


@pytest.mark.capability("SRC-RATE-02")
def test_every_batch_has_its_number_of_rows_and_its_time(spark: SparkSession, tmp_path: Path) -> None:
    source = RateMicroBatch(rows_per_batch=3, start_timestamp=1500, advance_millis_per_batch=250)
    rows = dict[int, list[tuple[Any, ...]]]()
    for _ in range(3):
        rows |= drain(source.stream(spark, NAME), tmp_path / "checkpoint")[0]
    assert [[value for _, value in rows[batch]] for batch in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    times = [{int(at.timestamp() * 1000) for at, _ in rows[batch]} for batch in range(3)]
    assert times == [{1500}, {1750}, {2000}]


def test_where_made_rows_begin_today_says_nothing_of_what_was_made(spark: SparkSession, tmp_path: Path) -> None:
    source = RateMicroBatch(rows_per_batch=2, start_timestamp=1500, advance_millis_per_batch=250)
    made = [row for rows in drain(source.stream(spark, NAME), tmp_path / "checkpoint")[0].values() for row in rows]
    later = replace(source, start_timestamp=9_000, rows_per_batch=5)
    made += [row for rows in drain(later.stream(spark, NAME), tmp_path / "checkpoint")[0].values() for row in rows]
    read = [tuple(row) for row in later.read(spark, prefix_of(tmp_path / "checkpoint")).collect()]
    assert sorted(read) == sorted(made)
    assert {int(at.timestamp() * 1000) for at, _ in made} >= {1500, 1750}


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        (Rate(rows_per_second=0, num_partitions=0, ramp_up_time="soon"), ["HR113"] * 3),
        (RateMicroBatch(rows_per_batch=0, start_timestamp=-1), ["HR113"] * 2),
    ],
    ids=["rate", "rate-micro-batch"],
)
def test_faults_of_the_options_are_reported_all_at_once(source: Any, codes: list[str]) -> None:
    assert [problem.code for problem in source.problems()] == codes
