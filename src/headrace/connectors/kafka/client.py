"""What is asked of a broker before start, by Kafka's own client out of Spark, and how queries that use it fail."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.contract import Failure, OptionError
from headrace.errors import Finding, HeadraceError, nearest
from headrace.spark.jvm.gateway import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A broker that takes connections may be slow, on a machine with other work; one that takes none is away.
BUSY_MS, AWAY_MS = 60_000, 8_000
CONNECT_SECONDS = 3.0
ISOLATION = "kafka.isolation.level"
# What a broker that draws no ids gives as such.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_PREFIX = "kafka."
# Why a partition may end before the offset that a query has read it to.
SHORT = (
    "it has lost its newest messages, was created again, or an open transaction holds messages back that were read "
    "before it was committed"
)
SHORT_FIX = (
    "look with headrace status for an open transaction and start again once it has ended; else put the messages back, "
    "or reset the query (headrace reset QUERY)"
)
ADDRESS_FIX = "create the topic, or correct the topic and the partition in the query's last select"
FAILURES = (
    Failure(
        code="HR343",
        pattern=r"KAFKA_DATA_LOSS\.PARTITION_OFFSET_CHANGED|Partition \S+ offset was changed from",
        what=f"a partition of its topic ends before what was read of it: {SHORT}",
        fix=SHORT_FIX,
    ),
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
        code="HR408",
        pattern=r"RecordTooLargeException: (?P<words>[^\n]*)",
        what="a row of the result is too large for its topic: {words}",
        fix="raise max.message.bytes of the topic and kafka.max.request.size in the options, or make the rows smaller",
    ),
    Failure(
        code="HR408",
        pattern=r"Partition (?P<partition>-?\d+) of topic (?P<topic>\S+) with partition count (?P<count>\d+)",
        what="a row of the result names partition {partition} of topic '{topic}', which has {count}",
        fix=ADDRESS_FIX,
    ),
    Failure(
        code="HR408",
        pattern=r"(?P<words>contains a null topic|Invalid partition: \S+|InvalidTopicException: [^\n]*)",
        what="a row of the result names no topic, or no place that Kafka could have: {words}",
        fix=ADDRESS_FIX,
    ),
    Failure(
        code="HR113",
        pattern=r"kafka\.common\.config\.ConfigException: (?!No resolvable)(?P<words>[^\n]*)",
        what="Kafka's client refuses an option: {words}",
        fix="correct the kafka.* options",
    ),
    Failure(
        code="HR331",
        pattern=r"kafka\.common\.errors\.(?:TimeoutException|DisconnectException|NetworkException)|"
        r"Failed to construct kafka",
        what="the Kafka broker does not answer",
        fix="start the broker, then start again: the run resumes with the batch that was not committed",
    ),
)


def server_faults(servers: str) -> Iterator[OptionError]:
    """Find what is wrong with the text of a list of brokers; Kafka's client would say it only at the start."""
    fix = "write host:9092, or host1:9092,host2:9092"
    if not servers.strip():
        yield OptionError(what="bootstrap_servers is empty", fix=fix)
        return
    for server in map(str.strip, servers.split(",")):
        host, _, port = server.rpartition(":")
        fault = ""
        if "//" in server:
            fault = f"'{server}' in bootstrap_servers is a URL"
        elif not host:
            fault = f"'{server}' in bootstrap_servers names no port"
        elif not port.isdigit() or not 0 < int(port) < 65_536:
            fault = f"the port '{port}' in bootstrap_servers is not a number from 1 to 65535"
        if fault:
            yield OptionError(what=fault, fix=fix)


def topic_faults(name: str, fix: str) -> Iterator[OptionError]:
    """Find why Kafka would not take a topic of that name."""
    if not name:
        yield OptionError(what="the name of a topic is empty", fix=fix)
    elif not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
        fault = f"'{name}' is not a valid name of a topic: letters, digits, '.', '_' and '-' are, up to 249"
        yield OptionError(what=fault, fix=fix)


def isolation_level(options: Mapping[str, str]) -> str:
    """Return which messages are read: committed ones, unless the options of Kafka's consumer say otherwise."""
    return {name.lower(): value for name, value in options.items()}.get(ISOLATION, "read_committed")


@dataclass(frozen=True)
class Client:
    """Kafka's AdminClient, with its servers for messages, and the error that it raises.

    level: which messages count for the end of a partition. limit_ms: how long an answer may take.
    """

    admin: Any
    jvm: Any
    servers: str
    error: type[HeadraceError]
    level: str
    limit_ms: int

    def topics(self) -> set[str]:
        """The names of all topics. Raises `error` when no broker answers."""
        return set(self._answer(self.admin.listTopics().names()))

    def require_topics(self, wanted: Iterable[str]) -> None:
        """Raise `error` for topics that there are not, or when no broker answers."""
        there = self.topics()
        missing = []
        for name in wanted:
            if name not in there:
                fault = f"there is no topic '{name}' at {self.servers}"
                fix = f"create it, or correct its name ({nearest(name, there)})" if there else "create it"
                missing.append(Finding(code="HR332", what=fault, fix=fix))
        if missing:
            raise self.error(missing)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each of `topics` that is there; '' where the broker draws none."""
        there = self._describe(sorted(self.topics().intersection(topics)))
        ids = {str(name): str(there[name].topicId().toString()) for name in there}
        return {name: "" if id_ == _NO_ID else id_ for name, id_ in ids.items()}

    def places(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        """The partitions that `topics` have, each as (topic, partition)."""
        topic_of = self._describe(topics)
        return [(str(name), part.partition()) for name in topic_of for part in topic_of[name].partitions()]

    def _describe(self, topics: Iterable[str]) -> Any:
        wanted = self.jvm.java.util.ArrayList()
        for name in topics:
            wanted.add(name)
        return self._answer(self.admin.describeTopics(wanted).allTopicNames())

    def earliest(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The first offset that each of the (topic, partition) still has; a topic that is gone is left out."""
        there = self.topics()
        return self._offsets([(topic, partition) for topic, partition in places if topic in there], "earliest")

    def latest(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the end of each (topic, partition); a topic that is gone is left out."""
        there = self.topics()
        return self._offsets([(topic, partition) for topic, partition in places if topic in there], "latest")

    def at_time(self, places: Iterable[tuple[str, int]], at_ms: int) -> dict[tuple[str, int], int]:
        """The first offset of each (topic, partition) whose message came at a time or later; else the next one."""
        offsets = self._offsets(places, "forTimestamp", at_ms)
        later = self._offsets([place for place, offset in offsets.items() if offset < 0], "latest")
        return {**offsets, **later}

    def _offsets(self, places: Iterable[tuple[str, int]], which: str, *given: int) -> dict[tuple[str, int], int]:
        wanted = self.jvm.java.util.HashMap()
        for topic, partition in places:
            at = self.jvm.org.apache.kafka.common.TopicPartition(topic, partition)
            wanted.put(at, getattr(self.jvm.org.apache.kafka.clients.admin.OffsetSpec, which)(*given))
        level = self.jvm.org.apache.kafka.common.IsolationLevel.valueOf(self.level.upper())
        counted = self.jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        answer = self._answer(self.admin.listOffsets(wanted, counted).all())
        return {(at.topic(), at.partition()): int(answer[at].offset()) for at in answer}

    def _answer(self, future: Any) -> Any:
        try:
            # Its own time-outs need its thread, which may have died.
            return future.get(2 * self.limit_ms, self.jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
        except Exception as error:
            why = _innermost(error) or f"it gave no answer within {2 * self.limit_ms // 1000} s"
            fault = f"the broker at {self.servers} does not answer: {why}"
            fix = "start it, or correct bootstrap_servers and the kafka.* options; then start again"
            raise self.error(code="HR331", what=fault, fix=fix) from None


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
    limit_ms = BUSY_MS if any(map(_takes_connections, servers.split(","))) else AWAY_MS
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        properties.put(name, str(limit_ms))
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Exception as cause:
        why = _innermost(cause)
        fault = f"no client for the broker at {servers} can be made: {why}"
        # The address of a broker may be known later; an option stays wrong.
        code = "HR331" if "No resolvable" in why else "HR113"
        raise error(code=code, what=fault, fix="correct bootstrap_servers and the kafka.* options") from None
    try:
        yield Client(admin, jvm, servers, error, isolation_level(options), limit_ms)
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(0))


def _takes_connections(server: str) -> bool:
    host, _, port = server.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        return True
    except (OSError, ValueError, OverflowError):
        return False


def _innermost(error: Exception) -> str:
    """The last cause of a fault of the JVM, in its own words; empty: it is a lapse of time without any."""
    cause: Any = getattr(error, "java_exception", None)
    if cause is None:
        return str(error)
    while cause.getCause() is not None:
        cause = cause.getCause()
    if (message := cause.getMessage()) is None:
        name = str(cause.getClass().getSimpleName())
        return "" if name == "TimeoutException" else name
    return str(message).partition("\n")[0]
