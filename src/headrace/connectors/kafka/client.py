"""What is asked of a broker before start, by Kafka's own client out of Spark, and how queries that use it fail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.contract import Failure
from headrace.errors import Finding, HeadraceError, nearest
from headrace.spark.jvm.gateway import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_MS = 8_000
_PREFIX = "kafka."
FAILURES = (
    Failure(
        code="HR343",
        pattern=r"KAFKA_DATA_LOSS|Some data may have been lost|Cannot fetch record for offset",
        what="messages of its topic were deleted before they were read",
        fix="reset the query (headrace reset QUERY), or set fail_on_data_loss to false to continue without them; let "
        "the topic keep more",
    ),
    Failure(
        code="HR332",
        pattern=r"UnknownTopicOrPartitionException|UnknownTopicIdException",
        what="a topic that it reads or writes is no longer there",
        fix="create the topic again, or correct its name, and start again",
    ),
    Failure(
        code="HR331",
        pattern=r"kafka\.common\.errors\.(?:TimeoutException|DisconnectException|NetworkException)|"
        r"Failed to construct kafka",
        what="the Kafka broker does not answer",
        fix="start the broker, then start again: the run resumes with the batch that was not committed",
    ),
)


def servers_fault(servers: str) -> str | None:
    """What is wrong with a list of brokers, as far as its text tells; Kafka's client would say it only at the start."""
    if not servers.strip():
        return "bootstrap_servers is empty"
    for each in servers.split(","):
        host, _, port = each.strip().rpartition(":")
        if "//" in each:
            return f"'{each.strip()}' in bootstrap_servers is a URL"
        if not host:
            return f"'{each.strip()}' in bootstrap_servers names no port"
        if not port.isdigit() or not 0 < int(port) < 65_536:
            return f"the port '{port}' in bootstrap_servers is no number from 1 to 65535"
    return None


def topic_fault(name: str) -> str | None:
    """Why Kafka would not take a topic of that name."""
    if not name:
        return "the name of a topic is empty"
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
        return f"'{name}' is no name of a topic: letters, digits, '.', '_' and '-' are, up to 249"
    return None


SERVERS_FIX = "write host:9092, or host1:9092,host2:9092"


@dataclass(frozen=True)
class Client:
    """Kafka's AdminClient, with its servers for messages, and the error that it raises."""

    admin: Any
    jvm: Any
    servers: str
    error: type[HeadraceError]

    def topics(self) -> set[str]:
        """The names of all topics. Raises `error` when no broker answers."""
        return set(self._answer(self.admin.listTopics().names()))

    def require_topics(self, wanted: Iterable[str]) -> None:
        """Raise `error` for topics that there are not, or when no broker answers."""
        there = self.topics()
        missing = []
        for name in wanted:
            if name not in there:
                what = f"there is no topic '{name}' at {self.servers}"
                fix = f"create it, or correct its name ({nearest(name, there)})" if there else "create it"
                missing.append(Finding(code="HR332", what=what, fix=fix))
        if missing:
            raise self.error(missing)

    def places(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        """The partitions that `topics` have, each as (topic, partition)."""
        wanted = self.jvm.java.util.ArrayList()
        for name in topics:
            wanted.add(name)
        found = self._answer(self.admin.describeTopics(wanted).allTopicNames())
        return [(str(name), each.partition()) for name in found for each in found[name].partitions()]

    def earliest(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The first offset that each of the (topic, partition) still has; a topic that is gone is left out."""
        there = self.topics()
        return self._offsets([(topic, partition) for topic, partition in places if topic in there], "earliest")

    def at_time(self, places: Iterable[tuple[str, int]], at_ms: int) -> dict[tuple[str, int], int]:
        """The first offset of each (topic, partition) whose message came at a time or later; else the next one."""
        found = self._offsets(places, "forTimestamp", at_ms)
        later = self._offsets([place for place, offset in found.items() if offset < 0], "latest")
        return {**found, **later}

    def _offsets(self, places: Iterable[tuple[str, int]], which: str, *given: int) -> dict[tuple[str, int], int]:
        wanted = self.jvm.java.util.HashMap()
        for topic, partition in places:
            at = self.jvm.org.apache.kafka.common.TopicPartition(topic, partition)
            wanted.put(at, getattr(self.jvm.org.apache.kafka.clients.admin.OffsetSpec, which)(*given))
        answer = self._answer(self.admin.listOffsets(wanted).all())
        return {(at.topic(), at.partition()): int(answer[at].offset()) for at in answer}

    def _answer(self, future: Any) -> Any:
        try:
            # Its own time-outs need its thread, which may have died.
            return future.get(2 * ANSWER_MS, self.jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
        except Exception as error:
            what = f"the broker at {self.servers} does not answer: {_innermost(error) or 'no reason was given'}"
            fix = "start it, or correct bootstrap_servers and the kafka.* options; then start again"
            raise self.error(code="HR331", what=what, fix=fix) from None


@contextmanager
def client(
    spark: SparkSession, servers: str, options: Mapping[str, str], error: type[HeadraceError]
) -> Iterator[Client]:
    """A client for the time of a few questions; `error` is raised when it finds something wrong."""
    jvm = jvm_of(spark)
    properties = jvm.java.util.Properties()
    for name, value in options.items():
        if name.lower().startswith(_PREFIX):
            properties.put(name[len(_PREFIX) :], value)
    properties.put("bootstrap.servers", servers)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        properties.put(name, str(ANSWER_MS))
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Exception as cause:
        what = f"no client for the broker at {servers} can be made: {_innermost(cause)}"
        raise error(code="HR331", what=what, fix="correct bootstrap_servers and the kafka.* options") from None
    try:
        yield Client(admin, jvm, servers, error)
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(0))


def _innermost(error: Exception) -> str:
    """The last cause of a fault of the JVM, in its own words."""
    cause: Any = getattr(error, "java_exception", None)
    if cause is None:
        return str(error)
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage()).partition("\n")[0]
