"""Rows that do not wait for a batch: continuous processing and real-time mode, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import CheckFailed
from headrace.starter.running import Running
from headrace.starter.start import start
from tests.registered import layout_in
from tests.servers import Topics
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """
import headrace as hr
from pyspark.sql import functions as F

words = hr.source.kafka({url!r}, subscribe={source!r}, value="text", starting_offsets="earliest")
ticks = hr.source.rate(rows_per_second=50, num_partitions={partitions})


@hr.query(sink=hr.sink.kafka({url!r}, topic={sink!r}, value="raw"), trigger={trigger}, mode={mode!r})
def louder(words):
    return words.where("value <> 'b'").select(F.upper("value").alias("value"))


@hr.query(sink=hr.sink.memory(), trigger=hr.continuous("1 second"))
def shown(ticks):
    return ticks.selectExpr("value * 2 AS twice")
"""


def write(
    root: Path, *, url: str = "x:1", source: str = "s", sink: str = "t", trigger: str = 'hr.continuous("1 second")',
    mode: str = "append", partitions: int = 1,
) -> Path:  # fmt: skip
    root.mkdir(exist_ok=True)
    (root / "headrace.yml").write_text("name: p\n")
    text = PROJECT.format(url=url, source=source, sink=sink, trigger=trigger, mode=mode, partitions=partitions)
    (root / "pipeline.py").write_text(text)
    return root


@contextmanager
def running(root: Path, query: str, spark: SparkSession) -> Iterator[Running]:
    project = hr.load(root)
    query_run = start(project, project.queries[query], spark)
    try:
        yield query_run
    finally:
        query_run.handle.stop()


def await_true(condition: Callable[[], bool], running: Running) -> None:
    def is_so() -> bool:
        assert running.handle.exception() is None
        return condition()

    until("rows", is_so, pause=0.05)


@pytest.mark.spark
@pytest.mark.capability("CONT-01")
@pytest.mark.capability("TRIG-05")
def test_a_map_like_query_runs_continuously_from_rate_to_memory(spark: SparkSession, tmp_path: Path) -> None:
    with running(write(tmp_path), "shown", spark) as shown:
        await_true(lambda: spark.table("shown").count() >= 60, shown)
        values = sorted(row[0] for row in spark.table("shown").collect())
    assert values == list(range(0, 2 * len(values), 2))


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("CONT-01")
@pytest.mark.capability("CONT-02")
def test_a_query_moves_between_batches_and_continuous_over_one_checkpoint(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    source, sink = kafka.make(), kafka.make()

    def turn(trigger: str, words: list[str]) -> None:
        kafka.send(source, *words)
        root = write(tmp_path / "p", url=kafka.url, source=source, sink=sink, trigger=trigger)
        wanted = len(kafka.read(sink)) + len(words) - words.count("b")
        with running(root, "louder", spark) as louder:
            await_true(lambda: len(kafka.read(sink)) >= wanted, louder)
            if "continuous" in trigger:
                epochs = layout_in(tmp_path / "p" / ".headrace", "louder").checkpoint / "commits"
                before = len(list(epochs.glob("[0-9]*")))
                await_true(lambda: len(list(epochs.glob("[0-9]*"))) > before, louder)
            else:
                louder.handle.processAllAvailable()

    turn("hr.every('0 seconds')", ["a", "b"])
    turn("hr.continuous('500 milliseconds')", ["c"])
    turn("hr.available_now", ["d"])
    turn("hr.continuous('500 milliseconds')", ["e", "b", "f"])
    assert [value for _, value in kafka.read(sink)] == ["A", "C", "D", "E", "F"]
    guarantee = hr.check(hr.load(tmp_path / "p"), ["louder"], spark=spark).guarantees["louder"]
    assert guarantee.level == "at least once"


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("TRIG-06")
def test_in_real_time_rows_are_out_before_their_batch_ends(kafka: Topics, spark: SparkSession, tmp_path: Path) -> None:
    source, sink = kafka.make(), kafka.make()
    kafka.send(source, "a", "b")
    trigger = "hr.real_time('20 seconds')"
    root = write(tmp_path / "p", url=kafka.url, source=source, sink=sink, trigger=trigger, mode="update")
    with running(root, "louder", spark) as louder:
        await_true(lambda: len(kafka.read(sink)) == 1, louder)
        kafka.send(source, "c")
        await_true(lambda: len(kafka.read(sink)) == 2, louder)
        assert louder.handle.lastProgress is None, "the batch has ended"
    assert [value for _, value in kafka.read(sink)] == ["A", "C"]


@pytest.mark.spark
@pytest.mark.capability("CONT-03")
def test_too_few_cores_for_the_partitions_are_reported_before_start(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CheckFailed) as raised, running(write(tmp_path, partitions=3), "shown", spark):
        pass
    [finding] = raised.value.findings
    assert (finding.code, finding.what) == (
        "HR264",
        "query 'shown' needs 3 cores all the time, one a partition, and there are 2",
    )


QUERY = """
import headrace as hr
from pyspark.sql import functions as F

files = hr.source.files("landing", format="json", schema="name STRING")
ticks = hr.source.rate()


@hr.query(sink={sink}, trigger={trigger}, mode={mode!r})
def q({source}):
    return {body}
"""


@pytest.mark.spark
@pytest.mark.capability("CONT-01")
@pytest.mark.capability("TRIG-06")
@pytest.mark.parametrize(
    ("sink", "trigger", "mode", "source", "body", "words"),
    [
        ("hr.sink.console()", "hr.continuous('1 s')", "append", "files", "files",
         "HR261: query 'q' has the trigger continuous, which the source 'files' does not take"),
        ("hr.sink.sqlite('o.db', table='t')", "hr.continuous('1 s')", "append", "ticks", "ticks",
         "HR261: query 'q' has the trigger continuous, which the sink sqlite does not take"),
        ("hr.sink.console()", "hr.continuous('1 s')", "complete", "ticks", "ticks.groupBy().count()",
         "HR261: query 'q' has the trigger continuous and the output mode complete"),
        ("hr.sink.console()", "hr.continuous('1 s')", "update", "ticks", "ticks.groupBy().count()",
         "HR261: query 'q': Continuous processing does not support Aggregate operations."),
        ("hr.sink.console()", "hr.continuous('1 s')", "append", "ticks", "ticks.dropDuplicates(['value'])",
         "HR261: query 'q': Continuous processing does not support Deduplicate operations."),
        ("hr.sink.console()", "hr.real_time('5 s')", "update", "ticks", "ticks",
         "HR261: query 'q' has the trigger real_time, which the source 'ticks' does not take"),
        ("hr.sink.console()", "hr.real_time('4 s')", "append", "ticks", "ticks",
         "HR261: query 'q' has the trigger real_time with batches of 4 s, below Spark's least of 5 s"),
    ],
)  # fmt: skip
def test_what_cannot_run_without_batches_is_refused_before_start(
    spark: SparkSession, tmp_path: Path, sink: str, trigger: str, mode: str, source: str, body: str, words: str
) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "headrace.yml").write_text("name: p\n")
    text = QUERY.format(sink=sink, trigger=trigger, mode=mode, source=source, body=body)
    (tmp_path / "pipeline.py").write_text(text)
    findings = hr.check(hr.load(tmp_path), spark=spark).findings
    errors = [f"{finding.code}: {finding.what}" for finding in findings if finding.severity == "error"]
    assert words in errors, json.dumps(errors)
    assert all(finding.fix for finding in findings)
