"""What a topic holds behind an offset, asked of a broker without a JVM; the broker is librdkafka's mock."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from headrace.connectors.kafka import prefix
from headrace.connectors.kafka.source import Kafka
from headrace.contract import Lag, SourceBatch, SourcePrefix

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[str, int]]:
    """The address of a broker with two messages in partition 0 of `sales` and one in 1; when the first one came."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none:1", "log_level": 0})
    (address,) = producer.list_topics(timeout=20).brokers.values()
    hour_ago = int(1000 * (time.time() - 3600))
    for partition, at in ((0, hour_ago), (0, hour_ago + 60_000), (1, hour_ago + 5_000)):
        producer.produce("sales", b"x", partition=partition, timestamp=at)
    assert producer.flush(20) == 0
    yield f"{address.host}:{address.port}", hour_ago
    del producer


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client for C looks for new partitions once a second, which takes longer on a busy machine."""
    monkeypatch.setattr(prefix, "ANSWER_SECONDS", 30.0)


@pytest.mark.parametrize(
    ("end", "count", "age"),
    [
        ('{"sales":{"0":0,"1":0}}', 3, 0),
        ('{"sales":{"0":1,"1":0}}', 2, 5_000),
        ('{"sales":{"0":1,"1":1}}', 1, 60_000),
        ('{"sales":{"0":2}}', 1, 5_000),
        ('{"sales":{"0":2,"1":1}}', 0, None),
    ],
    ids=["all", "of both", "of one", "of a partition that came later", "nothing"],
)
@pytest.mark.parametrize("which", [{"subscribe": "sales"}, {"subscribe_pattern": "sal.*"}], ids=["topic", "pattern"])
def test_what_lies_behind_the_committed_offsets_is_counted_and_its_oldest_message_gives_its_age(
    broker: tuple[str, int], which: dict[str, str], end: str, count: int, age: int | None
) -> None:
    servers, hour_ago = broker
    source = Kafka(bootstrap_servers=servers, value="raw", **which)  # type: ignore[arg-type]
    lag = source.lag(SourcePrefix(batches=(SourceBatch(batch=7, start=None, end=end),)))
    assert lag == Lag(count=count, unit="messages")
    assert lag.oldest_ms == (None if age is None else hour_ago + age)


def test_before_its_first_batch_a_query_waits_for_what_it_is_going_to_read(broker: tuple[str, int]) -> None:
    servers, _ = broker
    nothing, begun = SourcePrefix(batches=()), SourcePrefix(batches=(), log={0: ('{"sales":{"0":1,"1":1}}',)})
    earliest = Kafka(bootstrap_servers=servers, subscribe="sales")
    latest = Kafka(bootstrap_servers=servers, subscribe="sales", starting_offsets="latest")
    one, three = Lag(count=1, unit="messages"), Lag(count=3, unit="messages")
    assert (earliest.lag(nothing), earliest.lag(begun)) == (three, one)
    # Where one begins that reads what comes from its start on is known as soon as a batch is planned.
    assert (latest.lag(nothing), latest.lag(begun)) == (None, one)
