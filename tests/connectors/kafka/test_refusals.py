"""What a broker refuses of a message is final, by each way of writing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from tests.rounds import only_usual
from tests.runner.projects import land, write_project
from tests.servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = """
@hr.query(sink=hr.sink.kafka({url!r}, topic={topic!r}, {options}), mode="append", trigger=hr.every("1 second"))
def out(events):
    return events.selectExpr("name", "repeat('x', amount) AS body")
"""


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.parametrize(
    ("options", "code"),
    [("", "HR408"), ("delivery_guarantee='exactly-once'", "HR434")],
    ids=["at-least-once", "exactly-once"],
)
def test_a_message_that_is_too_large_ends_the_query_once_and_for_all(
    kafka: Topics, spark: SparkSession, tmp_path: Path, options: str, code: str
) -> None:
    topic = kafka.make()
    root = write_project(tmp_path / "p", QUERY.format(url=kafka.url, topic=topic, options=options))
    land(root, 0, [{"name": "a", "amount": 1_500_000}])
    [outcome] = hr.run(hr.load(root), spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.state, outcome.finding.code, outcome.finding.passes) == ("failed", code, False)
    assert "max.message.bytes" in outcome.finding.fix
    assert kafka.read(topic) == []


BY_ROW = """
@hr.query(sink=hr.sink.kafka({url!r}, value="raw", {options}), mode="append", trigger=hr.every("1 second"))
def out(events):
    return events.selectExpr("name AS value", "{topic} AS topic", "{partition} AS partition")
"""
# By name: the topic and the partition that a row names, TOPIC for one that is there, and what the finding says of them.
ADDRESSES: dict[str, tuple[str, str, str]] = {
    "a topic that is not there": ("'nowhere'", "CAST(NULL AS INT)", "topic 'nowhere'"),
    "a partition that is not there": ("'TOPIC'", "7", "partition 7"),
    "no topic": ("CAST(NULL AS STRING)", "0", "topic"),
    "no name of a topic": ("'a topic'", "CAST(NULL AS INT)", "a topic"),
}
USUAL_ADDRESS = ADDRESSES["a partition that is not there"]
# Kafka's C client waits half a minute for a topic that is not there.
WAIT = "producer={'topic.metadata.propagation.max.ms': '5000'}"
LEDGER = f"delivery_guarantee='exactly-once', ledger_topic='LEDGER', retry_seconds=20, {WAIT}"


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.parametrize("options", ["options={'kafka.max.block.ms': '3000'}", LEDGER], ids=["at-least", "exactly"])
@pytest.mark.parametrize(("topic", "partition", "words"), only_usual(ADDRESSES.values(), USUAL_ADDRESS), ids=ADDRESSES)
def test_a_row_that_cannot_be_delivered_where_it_names_ends_the_query_once_and_for_all(
    kafka: Topics, spark: SparkSession, tmp_path: Path, options: str, topic: str, partition: str, words: str
) -> None:
    there = kafka.make(**{"cleanup.policy": "compact"} if "exactly" in options else {})
    values: dict[str, Any] = {"url": kafka.url, "topic": topic.replace("TOPIC", there), "partition": partition}
    body = BY_ROW.format(**values, options=options.replace("LEDGER", f"{there}.headrace"))
    root = write_project(tmp_path / "p", body)
    land(root, 0, [{"name": "a", "amount": 1}])
    began = time.monotonic()
    [outcome] = hr.run(hr.load(root), spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.state, outcome.finding.code, outcome.finding.passes) == ("failed", "HR408", False), outcome.finding
    assert words in outcome.finding.what
    assert time.monotonic() - began < 60, outcome.finding
