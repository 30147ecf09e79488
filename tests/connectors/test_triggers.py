"""What sinks say of real time, and of asynchronous progress, is what Spark does: rows come from a broker."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.console.sink import Console
from headrace.connectors.files.sink import FileSink
from headrace.connectors.foreach.batch_sink import ForeachBatch
from headrace.connectors.foreach.sink import Foreach
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.source import Kafka
from headrace.connectors.sql.sqlite import Sqlite
from headrace.contract import OutputMode, Sink
from headrace.testing.conformance.triggers import NAME, SinkTriggers, Word
from tests.connectors.test_sink_conformance import take, take_batch
from tests.rounds import rounds
from tests.servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]


class Suite(SinkTriggers):
    """The suite for one sink, fed by a topic."""

    def __init__(self, sink: Sink, kafka: Topics) -> None:
        self.sink, self.kafka = sink, kafka

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return self.sink

    def unending(self, spark: SparkSession, word: Word) -> DataFrame | None:
        if word != "real_time":
            return super().unending(spark, word)
        topic = self.kafka.make()
        self.kafka.send(topic, "a", "b")
        source = Kafka(bootstrap_servers=self.kafka.url, subscribe=topic, value="text", starting_offsets="earliest")
        return (
            source.without_rate_limit().stream(spark, NAME).selectExpr("value AS name", "length(value) * 1L AS total")
        )


def sink_of(kind: str, kafka: Topics, home: Path) -> Any:
    return {
        "console": lambda: Console(),
        "files": lambda: FileSink(path=str(home), format="json"),
        "foreach": lambda: Foreach(function=take),
        "foreach_batch": lambda: ForeachBatch(function=take_batch, idempotent=True),
        "sqlite": lambda: Sqlite(path=str(home / "result.db"), table="result", key=["name"]),
        "kafka": lambda: KafkaSink(bootstrap_servers=kafka.url, topic=kafka.make()),
        "kafka with asynchronous progress": lambda: KafkaSink(
            bootstrap_servers=kafka.url, topic=kafka.make(), async_progress="20s"
        ),
    }[kind]()


@pytest.mark.capability("TRIG-06")
# The test below takes rows of the console.
@pytest.mark.parametrize("kind", rounds(["kafka", "foreach", "foreach_batch", "sqlite", "console"], first=4))
def test_a_sink_takes_rows_in_real_time_just_where_it_claims_to(
    kafka: Topics, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    suite = Suite(sink_of(kind, kafka, tmp_path), kafka)
    suite.test_it_takes_rows_without_batches_just_where_that_is_claimed(spark, tmp_path, tmp_path, "real_time")


@pytest.mark.capability("ASYNC-01")
def test_progress_is_asynchronous_just_where_that_is_claimed(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    for kind in ("kafka", "kafka with asynchronous progress"):
        suite = Suite(sink_of(kind, kafka, tmp_path), kafka)
        suite.test_progress_is_written_asynchronously_just_where_that_is_claimed(spark, tmp_path, tmp_path / kind)


@pytest.mark.parametrize(
    ("kind", "claim"),
    [
        ("console", {"real_time": False}),
        ("sqlite", {"real_time": True}),
        ("kafka with asynchronous progress", {"async_progress": False}),
    ],
    ids=str,
)
def test_a_sink_that_claims_too_much_or_too_little_fails(
    kafka: Topics, spark: SparkSession, tmp_path: Path, kind: str, claim: dict[str, bool]
) -> None:
    honest = sink_of(kind, kafka, tmp_path)
    [word] = claim
    assert getattr(honest.facts, word) is not claim[word]
    lying = type("Lying", (type(honest),), {"facts": replace(honest.facts, **claim)})
    suite = Suite(lying(**{field.name: getattr(honest, field.name) for field in fields(honest) if field.init}), kafka)
    if word == "async_progress":
        proof, arguments = suite.test_progress_is_written_asynchronously_just_where_that_is_claimed, ()
    else:
        proof, arguments = suite.test_it_takes_rows_without_batches_just_where_that_is_claimed, (word,)
    with pytest.raises(AssertionError):
        proof(spark, tmp_path, tmp_path / "work", *arguments)
