"""The Kafka sink on a real broker: each mode, messages as columns or JSON, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.connectors.exactly_once.lake import no_result
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.source import Kafka
from headrace.contract import OutputMode, Sink, SinkContext
from headrace.testing.conformance.triggers import Word
from tests.connectors.clients import newest_totals
from tests.connectors.sql.databases import checkpoint_of
from tests.connectors.suites import UpdateSinkConformance
from tests.connectors.test_triggers import Suite
from tests.runner.projects import land, write_project
from tests.servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

real = [pytest.mark.services, pytest.mark.connectors]


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no topic is named"),
        ({"topic": "t", "value": "raw", "key": ("a",)}, "key has no meaning with value raw"),
        ({"topic": "t", "options": {"topic": "u"}}, "which Headrace sets itself"),
        ({"topic": "t", "options": {"kafka.key.serializer": "x"}}, "which Spark refuses"),
    ],
)
def test_a_wrong_option_is_reported_without_a_broker(options: dict[str, Any], words: str) -> None:
    [problem] = KafkaSink(bootstrap_servers="nowhere:1", **options).problems("append")
    assert words in problem.what


class TestKafkaSink(UpdateSinkConformance):
    pytestmark = real

    @pytest.fixture(autouse=True)
    def topic(self, kafka: Topics) -> None:
        self.kafka, self.name = kafka, kafka.make()

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return KafkaSink(bootstrap_servers=self.kafka.url, topic=self.name, key=("name",))

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return newest_totals(self.kafka.url, self.name)

    def unending(self, spark: SparkSession, word: Word) -> DataFrame | None:
        return Suite(self.make(Path(), "append"), self.kafka).unending(spark, word)


QUERY = """
@hr.query(sink=hr.sink.kafka({url!r}, {options}), mode="{mode}", trigger="available-now")
def out(events):
    return {body}
"""
TOTALS = "events.groupBy('name').sum('amount').withColumnRenamed('sum(amount)', 'total')"


def project(root: Path, kafka: Topics, options: str, mode: str, body: str) -> Path:
    return write_project(root, QUERY.format(url=kafka.url, options=options, mode=mode, body=body))


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SINK-KAFKA-01")
@pytest.mark.parametrize(
    ("mode", "body", "written"),
    [
        ("append", "events", [("a", '{"name":"a","amount":1}'), ("b", '{"name":"b","amount":null}'),
                              ("a", '{"name":"a","amount":5}')]),
        ("update", TOTALS, [("a", '{"name":"a","total":1}'), ("b", '{"name":"b","total":null}'),
                            ("a", '{"name":"a","total":6}')]),
        ("complete", TOTALS, [("a", '{"name":"a","total":1}'), ("b", '{"name":"b","total":null}'),
                              ("a", '{"name":"a","total":6}'), ("b", '{"name":"b","total":null}')]),
    ],
)  # fmt: skip
def test_each_row_of_each_mode_is_a_message(
    kafka: Topics, spark: SparkSession, tmp_path: Path, mode: str, body: str, written: list[tuple[str, str]]
) -> None:
    topic = kafka.make()
    root = project(tmp_path / "p", kafka, f"topic={topic!r}, key=['name']", mode, body)
    for number, rows in enumerate(([{"name": "a", "amount": 1}, {"name": "b"}], [{"name": "a", "amount": 5}])):
        land(root, number, rows)
        result = hr.run(hr.load(root), spark=spark)
        assert result.exit_code == 0
    messages = kafka.read(topic)
    assert sorted(messages[:2]) == written[:2]
    assert sorted(messages[2:]) == written[2:]


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SINK-KAFKA-01")
def test_the_rows_own_topic_partition_and_key_are_taken(kafka: Topics, spark: SparkSession, tmp_path: Path) -> None:
    one, two = kafka.make(2), kafka.make()
    body = (
        f"events.selectExpr(\"if(amount > 1, '{one}', '{two}') topic\", 'name AS key', 'CAST(amount AS STRING) value', "
        "'if(amount > 1, 1, 0) AS partition')"
    )
    root = project(tmp_path / "p", kafka, "value='raw'", "append", body)
    land(root, 0, [{"name": "a", "amount": 1}, {"name": "b", "amount": 2}, {"name": None, "amount": 3}])
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    assert kafka.read(two) == [("a", "1")]
    assert sorted(kafka.read(one), key=str) == [("b", "2"), (None, "3")]
    guarantee = hr.check(hr.load(root), spark=spark).guarantees["out"]
    assert guarantee.sentence.startswith("at least once: the sink kafka takes a batch again")


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.parametrize(
    ("options", "body", "words"),
    [
        ("topic='{topic}', value='raw'", "events", "HR404: the result has no column 'value' but name, amount"),
        ("value='raw'", "events.selectExpr('name value')", "HR404: no topic is named and the result has no column"),
        ("topic='{topic}', value='raw'", "events.selectExpr('amount value')", "HR404: the result's column 'value' is"),
        ("topic='{topic}', value='raw'", "events.selectExpr('name value', 'amount n')", "HR404: the result's column"),
        ("topic='{topic}', key=['nam']", "events", "HR404: the key's column 'nam' is not in the result"),
        ("topic='{topic}x'", "events", "HR332: there is no topic '{topic}x'"),
    ],
)  # fmt: skip
def test_a_result_that_is_no_message_is_refused_before_start(
    kafka: Topics, spark: SparkSession, tmp_path: Path, options: str, body: str, words: str
) -> None:
    topic = kafka.make()
    root = project(tmp_path / "p", kafka, options.format(topic=topic), "append", body)
    land(root, 0, [{"name": "a", "amount": 1}])
    [outcome] = hr.run(hr.load(root), spark=spark).outcomes
    assert (outcome.state, outcome.batches) == ("failed", 0)
    assert outcome.finding is not None
    whose, _, text = outcome.finding.what.partition(": ")
    assert whose == "the sink of query 'out'"
    assert words.format(topic=topic) in f"{outcome.finding.code}: {text}"
    assert kafka.read(topic) == []


@pytest.mark.plain
def test_findings_speak_of_messages_and_topics(tmp_path: Path) -> None:
    assert Kafka(bootstrap_servers="h:1", subscribe="t").again.startswith(
        "correct them and send them to the topic again"
    )
    context = SinkContext(query="q", generation=1, mode="append", checkpoint=tmp_path)
    lacking = no_result("topic 'alerts'", context, kind="topic").findings[0]
    assert (lacking.code, lacking.what) == ("HR402", "topic 'alerts' holds no result of generation 1 of query 'q'")
    checkpoint_of(tmp_path, "", offsets=0, commits=0)
    lost = no_result("topic 'alerts'", context, kind="topic").findings[0]
    assert (lost.code, "put the topic and its ledger back" in lost.fix) == ("HR410", True)
    assert "which has committed batch 0: the topic or its ledger was deleted" in lost.what
