"""Exactly once into Kafka: what a consumer of committed messages finds, after kills, faults and other drivers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

import headrace as hr
from headrace.connectors.kafka import producer, topic_ledger
from headrace.connectors.kafka.producer import HEADER, header
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.transactions import KafkaBatches, KafkaStore
from headrace.contract import OutputMode, Sink, SinkContext
from headrace.errors import CheckpointError, Fenced, SinkError
from headrace.generations.facts import sink_context
from tests.connectors.clients import messages, newest_totals
from tests.connectors.sql.databases import checkpoint_of
from tests.connectors.suites import UpdateSinkConformance, further_but
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import land, write_project
from tests.servers import Topics
from tests.waiting import eventually, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

real = [pytest.mark.services, pytest.mark.connectors]


def given_a_broker(test: Any) -> Any:
    for mark in (*real, pytest.mark.capability("SINK-KAFKA-02")):
        test = mark(test)
    return test


# Several batches, and one that comes again, are below in a project.
@further_but("begins_again", "copy")
class TestKafkaTransactions(UpdateSinkConformance):
    pytestmark = real

    @pytest.fixture(autouse=True)
    def topic(self, kafka: Topics) -> None:
        self.kafka, self.name = kafka, kafka.make(2)

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return sink(self.kafka, self.name)

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return newest_totals(self.kafka.url, self.name)


def sink(kafka: Topics, topic: str, **more: Any) -> KafkaSink:
    options: dict[str, Any] = {"key": ("name",), "retry_seconds": 20, **more}
    return KafkaSink(bootstrap_servers=kafka.url, topic=topic, delivery_guarantee="exactly-once", **options)


def committed_messages(kafka: Topics, topic: str, level: str = "read_committed") -> list[tuple[str | None, str]]:
    """Key and value of what a consumer finds that reads committed messages alone, or by another isolation level."""
    return sorted(
        ((key.decode() if key else None, (value or b"").decode()) for key, value in messages(kafka.url, topic, level)),
        key=str,
    )


class Life:
    """A query without a stream: batches are given as Spark's foreachBatch gives them, and planned in the checkpoint."""

    def __init__(self, spark: SparkSession, kafka: Topics, tmp_path: Path) -> None:
        self.spark, self.kafka, self.topic = spark, kafka, kafka.make(2)
        self.noted: list[str] = []
        self.context = SinkContext(
            query="q",
            generation=1,
            mode="append",
            checkpoint=tmp_path / "checkpoint",
            on_warning=lambda finding: self.noted.append(finding.code),
        )

    def frame(self, *names: str) -> DataFrame:
        return self.spark.createDataFrame([(name,) for name in names], "name STRING")

    def begin(self, **more: Any) -> KafkaBatches:
        writer = sink(self.kafka, self.topic, **more).open(self.frame(), self.context)
        assert isinstance(writer, KafkaBatches)
        return writer

    def give(self, writer: KafkaBatches, batch: int, *names: str) -> None:
        checkpoint_of(self.context.checkpoint, "", offsets=batch, commits=batch - 1)
        writer(writer.serialize(self.frame(*names)), batch)

    def names(self) -> list[str]:
        return [json.loads(value)["name"] for _, value in committed_messages(self.kafka, self.topic)]


@pytest.fixture
def life(spark: SparkSession, kafka: Topics, tmp_path: Path) -> Life:
    return Life(spark, kafka, tmp_path)


@given_a_broker
@pytest.mark.parametrize("at", rounds(["inside-transaction", "after-transaction", "before-transaction"], first=2))
def test_a_driver_that_dies_at_a_boundary_leaves_each_batch_in_once(life: Life, at: str) -> None:
    def die(boundary: str, batch: int) -> None:
        if (boundary, batch) == (at, 1):
            raise Died

    writer = life.begin()
    life.give(writer, 0, "a", "b")
    writer.store.context = replace(life.context, on_boundary=die)
    with pytest.raises(Died):
        life.give(writer, 1, "c")
    again = life.begin()
    for batch, name in enumerate(("c", "d"), 1):
        life.give(again, batch, name)
    assert life.names() == ["a", "b", "c", "d"]


@given_a_broker
def test_a_commit_whose_answer_is_lost_and_a_transaction_that_fails_are_tried_again(life: Life) -> None:
    writer = life.begin()
    life.give(writer, 0, "a")
    for batch, after in ((1, True), (2, False)):
        real_one = writer.store._connect()
        writer.store._producer = Unanswered(real_one, after)  # type: ignore[assignment]
        life.give(writer, batch, f"b{batch}")
    life.give(writer, 3, "c")
    assert life.names() == ["a", "b1", "b2", "c"]
    assert life.noted == ["HR411", "HR411"]


@given_a_broker
def test_a_commit_whose_answer_never_comes_is_not_reported_as_not_written(life: Life) -> None:
    writer = life.begin(retry_seconds=0)
    life.give(writer, 0, "a")
    writer.store._producer = Unanswered(writer.store._connect(), after=True)  # type: ignore[assignment]
    with pytest.raises(SinkError, match="it is not known whether batch 1 of query 'q' was written into 'topic-"):
        life.give(writer, 1, "b")
    assert life.names() == ["a", "b"]


class Unanswered:
    """A producer whose commit times out, `after` it came through or without it."""

    def __init__(self, producer: Producer, after: bool) -> None:
        self.producer, self.after = producer, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.producer, name)

    def commit_transaction(self, seconds: float) -> None:
        if self.after:
            self.producer.commit_transaction(seconds)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))


@given_a_broker
@pytest.mark.parametrize("begins", rounds(["in the transaction", "between batches", "before the rows are sent"]))
def test_a_driver_that_is_fenced_off_leaves_the_newer_one_alone(life: Life, begins: str) -> None:
    older, newer = life.begin(retry_seconds=0), []
    life.give(older, 0, "a")
    at = {"in the transaction": "inside-transaction", "before the rows are sent": "before-transaction"}.get(begins)

    def begin(boundary: str, batch: int) -> None:
        if boundary == at and not newer:
            newer.append(life.begin())

    older.store.context = replace(life.context, on_boundary=begin)
    if at is None:
        newer.append(life.begin())
    with pytest.raises(Fenced) as raised:
        life.give(older, 1, "b")
    assert raised.value.findings[0].code == "HR409"
    life.give(newer[0], 1, "c")
    life.give(newer[0], 2, "d")
    assert (life.names(), life.noted) == (["a", "c", "d"], [])


@given_a_broker
def test_a_producer_that_was_fenced_off_without_another_driver_is_replaced(life: Life) -> None:
    """As after a pause of the machine, in which the broker has ended the transaction."""
    writer = life.begin()
    life.give(writer, 0, "a")
    producer.connect(writer.store.target.settings, producer.transactional_id(life.context))
    life.give(writer, 1, "b")
    assert (life.names(), life.noted) == (["a", "b"], ["HR411"])


@given_a_broker
@pytest.mark.parametrize("emptied", rounds([False, True]), ids=["deleted", "emptied"])
def test_a_planned_batch_without_a_ledger_is_refused(life: Life, emptied: bool) -> None:
    place = f"{life.topic}.headrace"
    life.give(life.begin(), 0, "a")
    admin = life.kafka.server.admin()
    if emptied:
        for key in topic_ledger.read({"bootstrap.servers": life.kafka.url}, place):
            life.kafka.send(place, None, key=key)
    else:
        [gone] = admin.delete_topics([place]).values()
        gone.result(20)
    with pytest.raises(
        CheckpointError, match=r"batch 0, but the ledger next to topic '.*' has no batch of it"
    ) as raised:
        life.begin()
    assert raised.value.findings[0].code == "HR410"
    assert "put the topic and its ledger back" in str(raised.value)
    assert life.names() == ["a"]
    assert (place in admin.list_topics(timeout=10).topics) is emptied


@given_a_broker
def test_a_result_topic_that_was_deleted_and_made_again_is_refused_until_a_reset(life: Life, tmp_path: Path) -> None:
    writer = life.begin()
    life.give(writer, 0, "a", "b", "c")
    life.give(writer, 1)  # The newest batch has no rows.
    life.begin()
    life.kafka.server.delete_topic(life.topic)
    until("end of the topic", lambda: life.topic not in life.kafka.server.admin().list_topics(timeout=10).topics)
    life.kafka.server.create_topic(life.topic, partitions=2)
    for look in (life.begin, lambda: topic_ledger.lines(sink(life.kafka, life.topic), life.context)):
        with pytest.raises(CheckpointError, match=r"partition \d, ends at offset 0, and ended at \d when") as raised:
            look()
        assert raised.value.findings[0].code == "HR410"
    life.context = replace(life.context, generation=2, checkpoint=tmp_path / "another")
    life.give(life.begin(), 0, "a")
    assert life.names() == ["a"]


@given_a_broker
def test_after_a_rename_nothing_more_is_written_under_the_former_name(life: Life, tmp_path: Path) -> None:
    former, older = life.context, life.begin(retry_seconds=0)
    life.give(older, 0, "a")
    life.context = replace(former, query="r")
    life.give(life.begin(), 1, "b")
    with pytest.raises(Fenced):
        life.give(older, 2, "c")
    assert life.names() == ["a", "b"]


@given_a_broker
def test_the_ledger_of_another_query_of_the_same_name_is_refused(life: Life, tmp_path: Path) -> None:
    life.give(life.begin(), 0, "a")
    life.context = replace(life.context, query_id="another", checkpoint=tmp_path / "empty")
    with pytest.raises(SinkError, match="another query 'q' of this project") as raised:
        life.begin()
    assert raised.value.findings[0].code == "HR407"


@given_a_broker
def test_of_two_copies_that_enter_at_the_same_moment_the_later_one_withdraws(life: Life, tmp_path: Path) -> None:
    other = replace(life.context, query_id="another", checkpoint=tmp_path / "empty")

    def enter_meanwhile() -> None:
        sink(life.kafka, life.topic).open(life.frame(), other)

    entering = replace(life.context, before_entering=enter_meanwhile)
    with pytest.raises(SinkError, match=r"HR407.*its storage was copied"):
        sink(life.kafka, life.topic).open(life.frame(), entering)
    assert ("unnamed/q/1/head", "") in committed_messages(life.kafka, f"{life.topic}.headrace"), "its head is deleted"
    life.context = other
    life.give(life.begin(), 0, "a")
    assert life.names() == ["a"]


class Died(BaseException):
    """Not an error that anything handles."""


def die(*_: Any) -> None:
    raise Died


@given_a_broker
def test_of_two_copies_that_died_before_their_second_look_the_one_that_is_refused_gives_way(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(life.context, query_id="another", checkpoint=tmp_path / "empty")

    def enter_meanwhile() -> None:
        with suppress(Died):
            sink(life.kafka, life.topic).open(life.frame(), other)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaStore, "_require_alone", die)
        with pytest.raises(Died):
            sink(life.kafka, life.topic).open(life.frame(), replace(life.context, before_entering=enter_meanwhile))
    with pytest.raises(SinkError, match=r"HR407.*its storage was copied"):
        life.begin()
    first, life.context = life.context, other
    life.give(life.begin(), 0, "a")
    with pytest.raises(SinkError, match="HR407"):
        sink(life.kafka, life.topic).open(life.frame(), first)
    assert life.names() == ["a"]


@given_a_broker
def test_a_copy_that_died_at_its_first_start_is_not_in_the_way_of_a_query_that_has_written(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.give(life.begin(), 0, "a")
    other = replace(life.context, query_id="another", checkpoint=tmp_path / "empty")
    with monkeypatch.context() as patch:
        # Its first look came before.
        patch.setattr(topic_ledger, "_require_one_query", lambda records, context: None)
        patch.setattr(KafkaStore, "_require_alone", die)
        with pytest.raises(Died):
            sink(life.kafka, life.topic).open(life.frame(), other)
    life.give(life.begin(), 1, "b")
    with pytest.raises(SinkError, match="HR407"):
        sink(life.kafka, life.topic).open(life.frame(), other)
    assert life.names() == ["a", "b"]


@given_a_broker
def test_a_start_that_is_refused_leaves_the_healthy_driver_alone(life: Life, tmp_path: Path) -> None:
    writer = life.begin()
    life.give(writer, 0, "a")
    life.give(writer, 1, "b")
    checkpoint_of(tmp_path / "other", "another", offsets=0, commits=0)
    other, refused = replace(life.context, checkpoint=tmp_path / "other"), []

    def begin(boundary: str, batch: int) -> None:
        if boundary in ("before-transaction", "inside-transaction"):
            with pytest.raises(CheckpointError, match="is another one") as raised:
                sink(life.kafka, life.topic).open(life.frame(), other)
            refused.append(raised.value.findings[0].code)

    writer.store.context = replace(life.context, on_boundary=begin)
    life.give(writer, 2, "c")
    assert (refused, life.names(), life.noted) == (["HR410"] * 2, ["a", "b", "c"], [])


@given_a_broker
def test_a_ledger_behind_an_open_transaction_of_another_query_is_read_to_its_end(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of committed messages see nothing behind the first open transaction, though it is committed."""
    writer = life.begin()
    life.give(writer, 0, "a")
    place = f"{life.topic}.headrace"
    settings = sink(life.kafka, life.topic).settings
    other = producer.connect(settings, "another query's")
    other.begin_transaction()
    other.produce(place, b"{}", "another/query/1/head", partition=0)
    other.flush(10)
    life.give(writer, 1, "b")
    monkeypatch.setattr(topic_ledger, "PATIENCE_SECONDS", 1.5)
    with pytest.raises(SinkError, match="a transaction there stays open"):
        life.begin()
    other.abort_transaction(10)
    life.give(life.begin(), 1, "b")
    assert life.names() == ["a", "b"]


@given_a_broker
def test_what_the_broker_refuses_is_one_sentence_and_nothing_of_the_batch_is_in(life: Life, kafka: Topics) -> None:
    small = sink(kafka, life.topic, value="raw", key=(), retry_seconds=1)
    raw = life.frame("x").selectExpr("name AS value", "CAST(9 AS INT) AS partition")
    writer: Any = small.open(raw, replace(life.context, query="raw"))
    with pytest.raises(SinkError, match=r"batch 0 of query 'raw' was not written into 'topic-.*: ") as raised:
        writer(life.frame("y").selectExpr("name AS value", "0 AS partition").unionByName(raw), 0)
    assert (raised.value.findings[0].code, life.names()) == ("HR408", [])
    assert "create the topic" in raised.value.findings[0].fix
    with pytest.raises(SinkError, match="Kafka's client refuses an option") as raised:
        life.begin(producer={"sasl.mechanisms": "LONGING", "security.protocol": "sasl_plaintext"})
    assert raised.value.findings[0].code == "HR113"
    kept = kafka.make()
    with pytest.raises(SinkError, match="it would lose its lines"):
        life.begin(ledger_topic=kept)


PROJECT = """
@hr.query(sink=hr.sink.kafka({url!r}, topic={topic!r}, key=["name"], delivery_guarantee="exactly-once"),
          mode="update", trigger="available-now")
def totals(events):
    at = F.expr("timestamp_micros(1714557600123456 + max(amount)) AS at")
    return events.groupBy("name").agg(F.sum("amount").alias("total"), at)
"""


@given_a_broker
def test_a_project_is_checked_run_and_verified(kafka: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = kafka.make(2)
    kafka.send(topic, '{"name": "of another program"}')
    root = write_project(tmp_path / "p", PROJECT.format(url=kafka.url, topic=topic))

    def run(*numbers: int) -> str:
        for number in numbers:
            land(root, number, [{"name": "a", "amount": number}, {"name": "b", "amount": 1}])
        assert hr.run(hr.load(root), spark=spark).exit_code == 0
        return hr.verify(hr.load(root), "totals", spark=spark).state

    assert run(0, 1) == "equal"
    assert hr.check(hr.load(root), spark=spark).guarantees["totals"].sentence == "exactly once"
    records = topic_ledger.read({"bootstrap.servers": kafka.url}, f"{topic}.headrace")
    [life] = [json.loads(value)["life"] for key, value in records.items() if key.endswith("/head")]
    for partition in range(2):  # The next batch reaches beyond it in that of its rows.
        forged = {HEADER: header(life, 1)}
        kafka.send(topic, '{"name": "c", "total": 9}', key="c", headers=forged, partition=partition)
    assert run(2) == "mismatch"
    kafka.server.delete_topic(f"{topic}.headrace")
    eventually(lambda: f"{topic}.headrace" not in kafka.server.admin().list_topics(timeout=10).topics)
    [finding] = hr.verify(hr.load(root), "totals", spark=spark).findings
    assert (finding.code, "which has committed batch 2: the topic or its ledger was" in finding.what) == ("HR410", True)
    assert "headrace reset totals" in finding.fix


@given_a_broker
def test_a_run_that_is_fenced_off_says_so_by_its_exit_code(kafka: Topics, spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", PROJECT.format(url=kafka.url, topic=kafka.make(2)))
    land(root, 0, [{"name": "a", "amount": 1}])

    def begin(boundary: str, batch: int) -> None:
        if boundary == "before-transaction":
            project = hr.load(root)
            query = project.queries["totals"]
            context = sink_context(project, query, layout_in(project.storage, "totals"))
            frame = spark.createDataFrame([], "name STRING, total BIGINT, at TIMESTAMP")
            query.sink.open(frame, context)

    result = hr.run(hr.load(root), spark=spark, reached=begin)
    (end,) = result.outcomes
    assert end.finding is not None
    assert (end.finding.code, end.fenced, result.exit_code) == ("HR409", True, 3)
