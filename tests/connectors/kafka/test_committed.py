"""What transactions of Kafka's own client have written: a source gives what a consumer of committed messages finds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import headrace as hr
from headrace.connectors.kafka import prefix
from headrace.connectors.kafka.source import Kafka
from headrace.contract import Lag, SourceBatch, SourcePrefix
from headrace.history import lag
from tests.connectors.kafka.test_source import ran, refusal_of, rows_by_batch, sale, write
from tests.connectors.kafka.test_transactions import committed_messages
from tests.rounds import only_usual
from tests.runner.projects import rows
from tests.servers import Topics
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]
HOUR_AGO = int(1000 * (time.time() - 3600))


@contextmanager
def transaction(kafka: Topics, topic: str, *values: str, at: int = 0) -> Iterator[Producer]:
    """A transaction that has written its messages and is open; one without an end is aborted."""
    producer = Producer({"bootstrap.servers": kafka.url, "transactional.id": f"{topic}-{'-'.join(values)[:20]}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2, timestamp=at or int(1000 * time.time()))
    assert producer.flush(20) == 0
    try:
        yield producer
    finally:
        producer.abort_transaction(20)


def await_marks(kafka: Topics, topic: str) -> None:
    """Wait until each partition has the mark of its last transaction, which a broker writes a moment after its end."""
    levels = ("read_committed", "read_uncommitted")
    eventually(lambda: all(len({end(kafka, topic, number, level) for level in levels}) == 1 for number in (0, 1)))


def end(kafka: Topics, topic: str, partition: int, level: str = "read_committed") -> int:
    """Where a partition ends for a consumer of this isolation level."""
    settings = {"bootstrap.servers": kafka.url, "group.id": "test", "isolation.level": level}
    with closing(Consumer(settings)) as consumer:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)[1])


def commit(kafka: Topics, topic: str, *values: str) -> None:
    with transaction(kafka, topic, *values) as producer:
        producer.commit_transaction(20)
        producer.begin_transaction()


def abort(kafka: Topics, topic: str, *values: str) -> None:
    with transaction(kafka, topic, *values):
        pass


@pytest.fixture
def mixed(kafka: Topics) -> str:
    """A topic of two partitions, each beginning and ending with what is not a message to a reader of committed ones."""
    topic = kafka.make(2)
    abort(kafka, topic, "aborted first", "aborted second")
    kafka.send(topic, "plain", partition=0)
    commit(kafka, topic, *(f"committed {number}" for number in range(7)))
    abort(kafka, topic, *(f"aborted {number}" for number in range(9)))
    commit(kafka, topic, "committed last", "committed after it")
    abort(kafka, topic, "aborted last", "aborted after it")
    await_marks(kafka, topic)
    return topic


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix, "ANSWER_SECONDS", 30.0)
    monkeypatch.setattr(lag, "ANSWER_SECONDS", 60.0)


OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "an offset a batch": {"max_offsets_per_trigger": 1},
    "six offsets a batch in many tasks": {"max_offsets_per_trigger": 6, "min_partitions": 7},
    "all in many tasks": {"min_partitions": 9},
    "whatever is lost": {"fail_on_data_loss": False},
    "in other letters": {"options": {"kafka.ISOLATION.level": "read_committed"}},
}


@pytest.mark.parametrize(
    "options",
    only_usual(OPTIONS.values(), OPTIONS["six offsets a batch in many tasks"]),
    ids=OPTIONS,
)
def test_a_source_gives_what_a_consumer_of_committed_messages_finds(
    kafka: Topics, spark: SparkSession, mixed: str, options: dict[str, Any]
) -> None:
    expected = sorted(value for _, value in committed_messages(kafka, mixed))
    source = Kafka(bootstrap_servers=kafka.url, subscribe=mixed, value="text", **options)
    assert (
        sorted(row[0] for batch in rows_by_batch(source.stream(spark, "sales")).values() for row in batch) == expected
    )
    text = json.dumps({mixed: {str(number): end(kafka, mixed, number) for number in (0, 1)}})
    log = {0: (json.dumps({mixed: {"0": 0, "1": 0}}),)}
    taken = SourcePrefix(batches=(SourceBatch(batch=0, start=None, end=text),), log=log)
    assert sorted(row[0] for row in source.read(spark, taken).collect()) == expected
    assert source.lag(taken) == Lag(count=0, unit="messages")


def test_who_asks_for_uncommitted_messages_gets_all_of_them(kafka: Topics, spark: SparkSession, mixed: str) -> None:
    source = Kafka(
        bootstrap_servers=kafka.url,
        subscribe=mixed,
        value="text",
        options={"kafka.isolation.level": "read_uncommitted"},
    )
    values = sorted(row[0] for batch in rows_by_batch(source.stream(spark, "sales")).values() for row in batch)
    assert values == sorted(value for _, value in committed_messages(kafka, mixed, "read_uncommitted"))
    assert "aborted 8" in values


def test_an_open_transaction_holds_messages_back_and_is_named_and_what_it_commits_is_read(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.make(2)
    kafka.send(topic, sale("a", 1), partition=0)
    root = write(tmp_path / "p", kafka.url, topic)
    assert ran(root, spark).exit_code == 0
    totals = "SELECT name, total FROM totals ORDER BY name"
    with transaction(kafka, topic, sale("b", 1), sale("c", 1), at=HOUR_AGO) as producer:
        kafka.send(topic, sale("a", 5), sale("a", 6), partition=0)
        [standing] = hr.status(hr.load(root))
        assert standing.backlog is not None
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(HOUR_AGO / 1000))
        named = f"a transaction that is open since {since} holds back 3 messages of topic '{topic}', partition 0"
        assert (standing.backlog.count, standing.backlog.problem) == (0, named)
        assert ran(root, spark).exit_code == 0
        assert rows(root / "out.db", totals) == [("a", 1)]
        verdict = hr.verify(hr.load(root), "totals", spark=spark)
        assert (verdict.state, verdict.rows_read) == ("equal", 1)
        assert [finding.what for finding in verdict.findings if finding.code == "HR348"] == [f"source 'sales': {named}"]
        later = Kafka(bootstrap_servers=kafka.url, subscribe=topic).since_time(spark, datetime.now(timezone.utc))
        assert later.starting_offsets == {topic: {0: 1, 1: 0}}, "where a reader of committed messages comes to"
        producer.commit_transaction(20)
        producer.begin_transaction()
    await_marks(kafka, topic)
    [standing] = hr.status(hr.load(root))
    assert standing.backlog is not None
    assert (standing.backlog.count > 3, standing.backlog.problem) == (True, "")
    assert ran(root, spark).exit_code == 0
    assert rows(root / "out.db", totals) == [("a", 12), ("b", 1), ("c", 1)]
    assert hr.verify(hr.load(root), "totals", spark=spark).state == "equal"


def test_messages_that_were_read_before_they_were_committed_are_not_blamed_on_retention(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.make(2)
    uncommitted = ", options={'kafka.isolation.level': 'read_uncommitted'}"
    root = write(tmp_path / "p", kafka.url, topic, uncommitted)
    with transaction(kafka, topic, sale("a", 1), at=HOUR_AGO):
        assert ran(root, spark).exit_code == 0
        assert rows(root / "out.db", "SELECT total FROM totals") == [(1,)]
        write(root, kafka.url, topic)
        sentence = refusal_of(root, spark)
        where = f"topic '{topic}', partition 0, ends at offset 0 and was read up to 1"
        assert sentence.startswith(f"HR343: query 'totals', source 'sales': {where}: ")
        assert "an open transaction holds messages back" in sentence
        [judgement] = hr.plan(hr.load(root), spark=spark)
        assert (judgement.verdict, [note.code for note in judgement.notes]) == ("forbidden", ["HR343"])
    await_marks(kafka, topic)
    [judgement] = hr.plan(hr.load(root), spark=spark)
    assert (judgement.verdict, [difference.now for difference in judgement.differences]) == ("safe", ["read_committed"])
    assert ran(root, spark).exit_code == 0
    assert rows(root / "out.db", "SELECT total FROM totals") == [(1,)]
