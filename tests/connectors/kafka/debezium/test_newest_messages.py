"""A topic whose newest messages are no changes of the table is refused before the start, with what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import SourceError
from tests.connectors.kafka.debezium.frames import kafka as source
from tests.servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]
SCHEMA = "id BIGINT, city STRING"


def change(**more: Any) -> str:
    source = {"lsn": 7, "sequence": '["5","7"]', "ts_ms": 1}
    return json.dumps({"before": None, "after": {"id": 1, "city": "Oslo"}, "op": "c", "source": source, **more})


REFUSED = {
    "another format": ('{"id": 1, "city": "Oslo"}', "HR362", "is not a change that Debezium writes"),
    "no JSON": ("hello", "HR362", "is not a JSON object"),
    "no op": (json.dumps({"after": {"id": 1}, "source": {}}), "HR362", "has an envelope without 'op'"),
    "an unknown op": (change(op="x"), "HR362", "has the unknown op 'x'"),
    "another table": (change(after={"id": 1, "town": "Oslo"}), "HR363", "has no column 'city'"),
}


@pytest.mark.capability("CDC-DBZ-01")
def test_newest_messages_that_are_no_changes_are_refused_before_the_start(kafka: Topics, spark: SparkSession) -> None:
    for message, code, words in REFUSED.values():
        topic = kafka.make(2)
        kafka.send(topic, change(), partition=0)
        # A tombstone is no reason to believe the others.
        kafka.send(topic, *[message] * 20, None, partition=0)
        given = source(kafka.url, topic, schema=SCHEMA)
        with pytest.raises(
            SourceError, match=rf"{code}: none of the newest 19 messages can be applied: {topic}/0/\d+ .*{words}"
        ):
            given.check_connection(spark)
        # Where a start sets such messages aside, or does not read them, it is not refused.
        replace(given, on_bad_row="quarantine").check_connection(spark)
        replace(given, starting_offsets="latest").check_connection(spark)
        kafka.send(topic, change(), partition=1)
        given.check_connection(spark)


@pytest.mark.parametrize("messages", [[], [None], [change()]], ids=["nothing", "a tombstone", "a change"])
def test_a_topic_with_nothing_wrong_is_not_refused(
    kafka: Topics, spark: SparkSession, messages: list[str | None]
) -> None:
    topic = kafka.make()
    kafka.send(topic, *messages)
    source(kafka.url, topic, schema=SCHEMA).check_connection(spark)


PROJECT = """
name: shop
sources:
  customers:
    kafka: {{bootstrap_servers: "{url}", subscribe: {topic}, value: debezium, schema: "id BIGINT, city STRING"}}
queries:
  copy:
    select: SELECT id, city FROM customers
    cdc: {{keys: [id]}}
    trigger: available-now
    sink: {{sqlite: {{path: out.db, table: customers}}}}
"""


def test_check_and_run_say_so_and_a_mixed_topic_ends_its_batch(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.make()
    (tmp_path / "headrace.yml").write_text(PROJECT.format(url=kafka.url, topic=topic))
    kafka.send(topic, '{"id": 1, "city": "Oslo"}', key='{"id": 1}')
    project = hr.load(tmp_path)
    assert [finding.code for finding in hr.check(project, spark=spark).findings if finding.severity == "error"] == [
        "HR362"
    ]
    assert not (tmp_path / "out.db").exists()
    kafka.send(topic, change(), key='{"id": 1}')
    [outcome] = hr.run(project, spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, f"{topic}/0/0" in outcome.finding.what) == ("HR362", True)
