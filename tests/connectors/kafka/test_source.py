"""The Kafka source on a real broker: every way to name topics and offsets, decoded values, bad messages, faults."""

from __future__ import annotations

import io
import json
import re
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import fastavro
import pytest
from confluent_kafka import TopicPartition

import headrace as hr
from headrace.connectors.kafka import client
from headrace.connectors.kafka.source import Kafka
from headrace.contract import BatchRecord, Lag, Observer
from headrace.control.board import RunResult
from headrace.errors import SourceError
from headrace.testing.conformance import SourceConformance, drain, prefix_of
from headrace.verifier.proof import verify
from services import KafkaServer
from services.process import free_port
from tests.connectors.suites import further_but, only
from tests.runner.projects import rows
from tests.servers import Topics, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "name STRING, amount INT"
# Kafka forgets what is a week old.
NOW = int(time.time() * 1000)
AVRO = {
    "type": "record",
    "name": "sale",
    "fields": [{"name": "name", "type": ["null", "string"]}, {"name": "amount", "type": ["null", "int"]}],
}

connectors = [pytest.mark.services, pytest.mark.connectors]


def sale(name: str, amount: int) -> str:
    return json.dumps({"name": name, "amount": amount})


def avro(**record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, record)
    return out.getvalue()


@pytest.mark.plain
@pytest.mark.parametrize(
    ("end", "latest", "count"),
    [
        ({"a": {"0": 5, "1": 7}}, {"a": {"0": 9, "1": 7}}, 4),
        ({"a": {"0": 5}}, {"a": {"0": 5, "1": 3}, "b": {"0": 2}}, 5),  # a partition and a topic that are new
        ({"a": {"0": 5}}, {"a": {"0": 2}}, 0),  # the topic was made again
    ],
)
def test_what_waits_follows_from_two_offsets(end: dict[str, Any], latest: dict[str, Any], count: int) -> None:
    lag = Kafka(bootstrap_servers="k:9092", subscribe="a").reported_lag(json.dumps(end), json.dumps(latest))
    assert lag == Lag(count=count, unit="messages")


@pytest.mark.plain
def test_a_first_start_begins_at_what_the_topics_hold() -> None:
    source = Kafka(bootstrap_servers="k:9092", subscribe="a")
    assert source.stream_options()["startingOffsets"] == "earliest"
    assert "earliest" in source.starting_position()
    assert "from now on" in replace(source, starting_offsets="latest").starting_position()
    assert "ms since 1970" in replace(source, starting_timestamp=5).starting_position()


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no topic is named"),
        ({"subscribe": "a", "assign": {"a": [0]}}, "subscribe and assign are both given"),
        ({"subscribe": "a", "value": "json"}, "value is json and there is no schema"),
        ({"subscribe": "a", "schema": SCHEMA}, "a schema has no meaning with value raw"),
        ({"subscribe": "a", "keep": ("key",)}, "keep has no meaning with value raw"),
        ({"subscribe": "a", "value": "text", "keep": ("headers",)}, "keep names 'headers'"),
        ({"subscribe": "a", "on_bad_row": "quarantine"}, "with value raw every message fits"),
        ({"subscribe": "a", "starting_offsets": "first"}, "starting_offsets is 'first'"),
        ({"subscribe_pattern": "("}, "subscribe_pattern is not a pattern"),
        ({"subscribe": "a", "max_offsets_per_trigger": 0}, "max_offsets_per_trigger is 0"),
        ({"subscribe": "a", "options": {"maxOffsetsPerTrigger": "1"}}, "which Headrace sets itself"),
        ({"subscribe": "a", "options": {"kafka.group.id": "g"}}, "which Spark refuses"),
        ({"subscribe": "a", "options": {"kafka.isolation.level": "commited"}}, "kafka.isolation.level is 'commited'"),
        ({"subscribe": "a", "topic_ids": {"b": "4nWXE2KDRsyjgXSk7KMU3Q"}}, "topic_ids names 'b', which is not read"),
        ({"subscribe": "a", "fail_on_data_loss": False}, "are missed silently"),
    ],
)
def test_a_wrong_option_is_reported_without_a_broker(options: dict[str, Any], words: str) -> None:
    [problem] = Kafka(bootstrap_servers="nowhere:1", **options).problems()
    assert words in problem.what
    assert problem.fix


# Sinks take its rows without batches: tests/connectors/test_triggers.py, and the example of continuous processing.
@further_but("protocol", "comes_again", "prefix", "limit", "fit")
class TestKafka(SourceConformance):
    pytestmark = connectors
    value: ClassVar[dict[str, Any]] = {"value": "json", "schema": SCHEMA, "keep": ("key", "partition", "offset")}

    @pytest.fixture(autouse=True)
    def topic(self, kafka: Topics) -> None:
        self.kafka, self.name = kafka, kafka.make(2)

    def make(self, home: Path) -> Kafka:
        return Kafka(
            bootstrap_servers=self.kafka.url,
            subscribe=self.name,
            starting_offsets="earliest",
            max_offsets_per_trigger=2,
            **self.value,  # type: ignore[arg-type]
        )

    def feed(self, home: Path, step: int) -> None:
        self.kafka.send(self.name, sale("a", step), partition=0)
        self.kafka.send(self.name, sale("b", step), partition=1)


@further_but("prefix_reads")
@only("protocol", "comes_again", "prefix")
class TestKafkaAsItIs(TestKafka):
    """A source that decodes nothing differs only in its columns."""

    value: ClassVar[dict[str, Any]] = {"value": "raw", "include_headers": True}


@further_but("fit")
class TestKafkaThatSetsAside(TestKafka):
    value: ClassVar[dict[str, Any]] = {"value": "json", "schema": SCHEMA, "on_bad_row": "quarantine"}

    def spoil(self, home: Path) -> None:
        self.kafka.send(self.name, '{"name": ')


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SRC-KAFKA-02")
def test_all_columns_of_a_message_are_there(kafka: Topics, spark: SparkSession) -> None:
    topic = kafka.make()
    kafka.send(topic, "v", key="k", timestamp=NOW + 123, headers=[("h", b"1")])
    kafka.send(topic, None)
    frame = Kafka(
        bootstrap_servers=kafka.url, subscribe=topic, starting_offsets="earliest", include_headers=True
    ).stream(spark, "events")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    [messages] = rows_by_batch(frame.selectExpr("*", "unix_millis(timestamp) ms")).values()
    first, second = messages
    assert first[:5] == (b"k", b"v", topic, 0, 0)
    assert (first[6], first[7], first[8]) == (0, [("h", b"1")], NOW + 123)
    assert second[:5] == (None, None, topic, 0, 1)


def rows_by_batch(frame: Any) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of each batch that has any, by a checkpoint of its own."""
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        rows_, _ = drain(frame, Path(scratch))
    return {
        batch: sorted(
            (tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in batch_rows),
            key=lambda row: row[4] if len(row) > 4 else 0,
        )
        for batch, batch_rows in rows_.items()
        if batch_rows
    }


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SRC-KAFKA-01")
def test_topics_are_named_in_three_ways_and_offsets_in_four(kafka: Topics, spark: SparkSession) -> None:
    one, two = kafka.make(2), kafka.make()
    for number in range(3):
        kafka.send(one, f"1-{number}", partition=0, timestamp=NOW + number)
    kafka.send(one, "1-p", partition=1, timestamp=NOW)
    kafka.send(two, "2-0", timestamp=NOW)

    def values(**options: Any) -> list[str]:
        options = {"starting_offsets": "earliest", "value": "text", **options}
        frame = Kafka(bootstrap_servers=kafka.url, **options).stream(spark, "events")
        return sorted(row[0] for batch in rows_by_batch(frame).values() for row in batch)

    assert values(subscribe=one) == ["1-0", "1-1", "1-2", "1-p"]
    assert values(subscribe=(one, two)) == ["1-0", "1-1", "1-2", "1-p", "2-0"]
    assert values(subscribe=f"{one}, {two}") == ["1-0", "1-1", "1-2", "1-p", "2-0"]
    assert values(subscribe_pattern=f"({one}|{two})") == ["1-0", "1-1", "1-2", "1-p", "2-0"]
    assert values(assign={one: (1,), two: (0,)}) == ["1-p", "2-0"]
    assert values(subscribe=one, starting_offsets={one: {0: 2, 1: 0}}) == ["1-2", "1-p"]
    assert values(subscribe=one, starting_offsets={one: {0: -1, 1: -2}}) == ["1-p"]
    assert values(subscribe=two, starting_timestamp=NOW) == ["2-0"]
    assert values(assign={one: (0,)}, starting_timestamp=NOW + 1) == ["1-1", "1-2"]
    assert values(subscribe=one, starting_offsets="latest") == []


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SRC-KAFKA-02")
def test_values_are_decoded_and_what_does_not_decode_is_set_aside(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    text, js, av = kafka.make(), kafka.make(), kafka.make()
    kafka.send(text, "é", None)
    kafka.send(js, sale("a", 1), '{"name": "b"}', "[]", "", '{"amount": "many"}', None, '{"amount": 2, "more": 1}')
    kafka.send(av, avro(name="a", amount=1), b"\xff\xff\xff", avro(name=None, amount=None), None)
    schema = tmp_path / "sale.avsc"
    schema.write_text(json.dumps(AVRO))

    def source(topic: str, **options: Any) -> Kafka:
        return Kafka(bootstrap_servers=kafka.url, subscribe=topic, starting_offsets="earliest", **options)

    def read(source: Kafka, home: str) -> tuple[list[Any], list[Any]]:
        batches, progress = drain(source.stream(spark, "events"), tmp_path / home)
        bad = source.rejected_rows(spark, prefix_of(tmp_path / home))
        listed = [] if bad is None else [(row[0].partition("/")[2], row[1]) for row in bad.orderBy("file").collect()]
        assert sum(entry.observedMetrics["headrace_bad_rows_events"]["rows"] for entry in progress) == len(listed)
        return [row for batch in batches.values() for row in batch], listed

    assert [row for batch in drain(source(text, value="text").stream(spark, "e"), tmp_path / "t")[0].values()
            for row in batch] == [("é",), (None,)]  # fmt: skip
    good, bad = read(source(js, value="json", schema=SCHEMA, on_bad_row="quarantine"), "j")
    assert sorted(good, key=repr) == [("a", 1), ("b", None), (None, 2), (None, None)]
    assert bad == [("0/2", "[]"), ("0/3", ""), ("0/4", '{"amount": "many"}')]
    for given in (str(schema), json.dumps(AVRO)):
        home = f"a{len(given)}"
        good, bad = read(source(av, value="avro", schema=given, on_bad_row="quarantine", keep=("offset",)), home)
        assert good == [(0, "a", 1), (2, None, None), (3, None, None)]
        assert [place for place, _ in bad] == ["0/1"]


PROJECT = """
import headrace as hr

sales = hr.source.kafka({url!r}, subscribe={topic!r}, value="json", schema="name STRING, amount INT",
                        starting_offsets="earliest", max_offsets_per_trigger=2{more})


@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", trigger="available-now")
def totals(sales):
    return sales.groupBy("name").sum("amount").withColumnRenamed("sum(amount)", "total")
"""


@dataclass
class Batches(Observer):
    records: list[BatchRecord] = field(default_factory=list)

    def progressed(self, record: BatchRecord) -> None:
        self.records.append(record)


def write(root: Path, url: str, topic: str, more: str = "") -> Path:
    root.mkdir(exist_ok=True)
    (root / "headrace.yml").write_text("name: sales\n")
    (root / "pipeline.py").write_text(PROJECT.format(url=url, topic=topic, more=more))
    return root


def ran(root: Path, spark: SparkSession) -> RunResult:
    return hr.run(hr.load(root), spark=spark)


def refusal_of(root: Path, spark: SparkSession) -> str:
    """The finding with which the query ends, or is not started."""
    [outcome] = ran(root, spark).outcomes
    assert outcome.state == "failed"
    assert outcome.finding is not None
    assert "\n" not in outcome.finding.what
    return f"{outcome.finding.code}: {outcome.finding.what}"


def refused_soon(root: Path, spark: SparkSession) -> str:
    """The same where no broker answers, which is given up sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "AWAY_MS", 2_000)
        return refusal_of(root, spark)


@pytest.mark.services
@pytest.mark.connectors
def test_a_project_over_a_topic_runs_goes_on_and_is_proven(kafka: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = kafka.make(2)
    root = write(tmp_path / "p", kafka.url, topic)
    for number in range(3):
        kafka.send(topic, sale("a", number), sale("b", 10), partition=number % 2)
    batches = Batches()
    assert hr.run(hr.load(root), spark=spark, reporter=batches).exit_code == 0
    left = [6 - taken for taken in accumulate(batch.rows for batch in batches.records)]
    assert (len(left) > 2, left[-1]) == (True, 0)
    waiting = [[source.lag for source in batch.sources] for batch in batches.records]
    assert waiting == [[Lag(count=count, unit="messages")] for count in left]
    [standing] = hr.status(hr.load(root))
    assert standing.backlog == Lag(count=0, unit="messages")
    assert rows(root / "out.db", "SELECT * FROM totals ORDER BY name") == [("a", 3), ("b", 30)]
    hour_ago = int(1000 * (time.time() - 3600))
    kafka.send(topic, sale("a", 100), timestamp=hour_ago)
    # Nothing runs: the broker is asked, also for when the oldest unread message came.
    [standing] = hr.status(hr.load(root))
    assert standing.backlog == Lag(count=1, unit="messages")
    assert (standing.backlog.at_ms, standing.backlog.oldest_ms) == (None, hour_ago)
    assert ran(root, spark).exit_code == 0
    assert rows(root / "out.db", "SELECT total FROM totals WHERE name = 'a'") == [(103,)]
    verdict = verify(hr.load(root), "totals", spark=spark)
    assert (verdict.state, verdict.rows_read) == ("equal", 7)
    with closing(sqlite3.connect(root / "out.db", isolation_level=None)) as database:
        database.execute("UPDATE totals SET total = 1 WHERE name = 'a'")
    (wrong,) = verify(hr.load(root), "totals", spark=spark).differences
    assert wrong.fed_by is not None
    newest = wrong.fed_by[0]
    # The newest message of the key has no partition of its own, so that it is in either.
    assert newest.file in {f"{topic}/0/4", f"{topic}/1/2"}
    assert str(newest) == f'sales, batch {newest.batch} ({newest.file}): {{"name":"a","amount":100}}'
    assert {row.file for row in wrong.fed_by[1:]} <= {f"{topic}/{at % 2}/{2 * (at // 2)}" for at in range(3)}


@pytest.mark.services
@pytest.mark.connectors
def test_a_message_that_does_not_decode_ends_the_query_and_the_restart_goes_on(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.make()
    kafka.send(topic, sale("a", 1), sale("a", 2), "no json", sale("a", 3))
    root = write(tmp_path / "p", kafka.url, topic)
    sentence = refusal_of(root, spark)
    assert (
        sentence
        == f"HR302: query 'totals': the value of the message {topic}/0/2 (topic/partition/offset) does not decode"
    )
    assert rows(root / "out.db", "SELECT total FROM totals") == [(3,)]
    write(root, kafka.url, topic, ', on_bad_row="quarantine"')
    assert ran(root, spark).exit_code == 0
    assert rows(root / "out.db", "SELECT total FROM totals") == [(6,)]
    assert verify(hr.load(root), "totals", spark=spark).state == "equal"


@pytest.mark.services
@pytest.mark.connectors
def test_a_topic_that_is_not_there_and_a_broker_that_is_down_are_reported_before_start(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.make()
    assert refusal_of(write(tmp_path / "a", kafka.url, f"{topic}x"), spark) == (
        f"HR332: query 'totals', source 'sales': there is no topic '{topic}x' at {kafka.url}"
    )
    kafka.send(kafka.server.create_topic(f"{topic}x"), sale("a", 1))
    assert ran(tmp_path / "a", spark).exit_code == 0
    assert rows(tmp_path / "a" / "out.db", "SELECT total FROM totals") == [(1,)]
    no_server = f"127.0.0.1:{free_port()}"
    sentence = refused_soon(write(tmp_path / "b", no_server, topic), spark)
    assert sentence.startswith(f"HR331: query 'totals', source 'sales': the broker at {no_server} does not answer")
    assert refused_soon(write(tmp_path / "c", "no-such-host.invalid:9092", topic), spark).startswith("HR331")


@pytest.mark.services
@pytest.mark.connectors
def test_a_broker_that_takes_connections_has_a_minute_to_answer_and_one_that_takes_none_is_given_up_sooner(
    kafka: Topics, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_server = f"127.0.0.1:{free_port()}"
    limits = []
    for servers in (f"{no_server}, {kafka.url}", no_server, "[::1]:1"):
        with client.client(spark, servers, {}, SourceError) as broker:
            limits.append(broker.limit_ms)
    assert limits == [60_000, 8_000, 8_000]
    with (
        pytest.raises(SourceError, match=r"HR331.*No resolvable bootstrap urls"),
        client.client(spark, "no-such-host.invalid:9092", {}, SourceError),
    ):
        pass
    monkeypatch.setattr(client, "BUSY_MS", 1_500)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        message = f"the broker at {servers} does not answer: Timed out waiting for a node assignment"
        with (
            client.client(spark, servers, {}, SourceError) as broker,
            pytest.raises(SourceError, match=re.escape(message)),
        ):
            broker.topics()


@pytest.mark.plain
@pytest.mark.parametrize(
    ("message", "name", "words"),
    [
        (None, "TimeoutException", "it gave no answer within 16 s"),
        (None, "DisconnectException", "DisconnectException"),
        ("no\nroute", "IOException", "no"),
    ],
    ids=["a lapse of time", "an error without a message", "an error with one"],
)
def test_why_a_broker_does_not_answer_is_never_none(message: str | None, name: str, words: str) -> None:
    cause = SimpleNamespace(
        getCause=lambda: None,
        getMessage=lambda: message,
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: name),
    )

    class Future:
        def get(self, *limit: Any) -> None:
            error: Any = RuntimeError("of py4j")
            error.java_exception = cause
            raise error

    unit = SimpleNamespace(TimeUnit=SimpleNamespace(MILLISECONDS=None))
    jvm = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(concurrent=unit)))
    broker = client.Client(None, jvm, "k:9092", SourceError, "read_committed", 8_000)
    with pytest.raises(SourceError) as caught:
        broker._answer(Future())
    assert caught.value.findings[0].what == f"the broker at k:9092 does not answer: {words}"


@pytest.mark.services
@pytest.mark.connectors
def test_messages_that_retention_took_are_reported_and_never_missed_in_silence(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.make()
    kafka.send(topic, *[sale("a", 1)] * 4)
    root = write(tmp_path / "p", kafka.url, topic)
    assert ran(root, spark).exit_code == 0
    kafka.send(topic, *[sale("a", 1)] * 4)
    gone = TopicPartition(topic, 0, 6)
    admin = kafka.server.admin()
    for future in admin.delete_records([gone]).values():
        future.result(10)
    verdict = verify(hr.load(root), "totals", spark=spark)
    assert (verdict.state, verdict.findings[0].code) == ("undecided", "HR343")
    assert "were read from offset 0 on, and the first one there is 6" in verdict.findings[0].what
    assert refusal_of(root, spark) == (
        "HR343: query 'totals': messages of its topic were deleted before they were read"
    )
    assert rows(root / "out.db", "SELECT total FROM totals") == [(4,)]
    write(root, kafka.url, topic, ", fail_on_data_loss=False")
    assert ran(root, spark).exit_code == 0
    assert rows(root / "out.db", "SELECT total FROM totals") == [(6,)]


@pytest.fixture
def own_broker() -> Iterator[KafkaServer]:
    """After a kill it has few topics to look through: a run waits only so long for its broker."""
    for server in running("kafka"):
        assert isinstance(server, KafkaServer)
        yield server


@pytest.mark.services
@pytest.mark.connectors
def test_a_broker_that_is_down_at_the_start_or_restarts_in_mid_run_costs_nothing(
    own_broker: KafkaServer, spark: SparkSession, tmp_path: Path
) -> None:
    kafka = Topics(own_broker)
    topic = kafka.make()
    kafka.send(topic, *[sale("a", 1)] * 4)
    no_server = f"127.0.0.1:{free_port()}"
    root = write(tmp_path / "p", no_server, topic)
    down = f"HR331: query 'totals', source 'sales': the broker at {no_server} does not answer"
    assert refused_soon(root, spark).startswith(down)
    write(root, kafka.url, topic)
    restarted: list[int] = []

    def restart(boundary: str, batch: int) -> None:
        if boundary == "inside-transaction" and batch == 1:
            own_broker.kill()
            own_broker.start()
            restarted.append(batch)

    assert hr.run(hr.load(root), spark=spark, reached=restart).exit_code == 0
    assert restarted == [1]
    assert rows(root / "out.db", "SELECT total FROM totals") == [(4,)]


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SRC-KAFKA-03")
def test_the_same_topic_is_a_bounded_table_too(kafka: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = kafka.make()
    kafka.send(topic, sale("a", 1), sale("b", 2), sale("c", 3))
    root = write(tmp_path / "p", kafka.url, topic)
    with (root / "pipeline.py").open("a") as file:
        file.write(f'''

@hr.table
def history(spark):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", {kafka.url!r})
    ends = '{{"{topic}": {{"0": 2}}}}'
    frame = reader.option("subscribe", {topic!r}).option("startingOffsets", "earliest").option("endingOffsets", ends)
    return frame.load().selectExpr("get_json_object(cast(value AS STRING), '$.name') AS name", "offset")


@hr.query(sink=hr.sink.sqlite("out.db", table="known", key=["name"]), mode="append", trigger="available-now")
def known(sales, history):
    return sales.join(history, "name").select("name", "amount", "offset")
''')
    assert ran(root, spark).exit_code == 0
    assert rows(root / "out.db", 'SELECT name, amount, "offset" FROM known ORDER BY name') == [("a", 1, 0), ("b", 2, 1)]
