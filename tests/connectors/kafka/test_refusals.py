"""What a broker refuses of a message is final, by each way of writing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from tests.run.projects import land, write_project
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
