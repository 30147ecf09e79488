"""A Kafka broker in memory: topics of one partition, producers with transactions, and who of them is fenced off.

Each question to it is a step. The answer to a commit may be lost, and the commit come through at once, later or never.
A transaction without an end stays open, and holds readers back, until the next producer of its id begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException

from headrace.connectors.kafka.producer import TopicTarget
from headrace.connectors.kafka.sink import KafkaSink
from headrace.errors import SinkError

from .database import Faults
from .scheduler import Process, Scheduler

RESULT, LEDGER = "result", "result.headrace"
TIMEOUT_SECONDS = 60.0


@dataclass(eq=False)
class Transaction:
    """What one producer writes as a whole; messages: each with its topic. life: of which generation its line is."""

    identity: str
    at: float
    state: Literal["open", "committed", "aborted"] = "open"
    messages: list[Message] = field(default_factory=list)

    @property
    def life(self) -> str:
        keys = [str(one.key) for one in self.messages if one.topic == LEDGER and not str(one.key).endswith("/head")]
        return keys[0].rpartition("/")[0] if keys else ""


@dataclass(eq=False)
class Message:
    """One in a topic; of a transaction's end its mark, without a value."""

    topic: str
    offset: int
    key: str | None
    value: bytes | str | None
    transaction: Transaction | None


@dataclass(eq=False)
class Broker:
    """committed: called after each transaction, with the process. away_until: when it answers again.

    written: what each process has changed. sent: the batches whose commit came through, or may yet do so. lives: the
    generations whose rows came in, the newest last.
    """

    scheduler: Scheduler
    faults: Faults
    committed: Callable[[Process | None], None]
    topics: dict[str, list[Message]] = field(default_factory=lambda: {RESULT: []})
    epochs: dict[str, int] = field(default_factory=dict)  # Of the producers, by their ids.
    open: dict[str, Transaction] = field(default_factory=dict)
    away_until: float = 0.0
    written: dict[Process | None, list[str]] = field(default_factory=dict)
    sent: dict[Process | None, list[int]] = field(default_factory=dict)
    looked: set[Process | None] = field(default_factory=set)
    lives: list[str] = field(default_factory=list)

    def step(self, action: str, *, changes: bool = False) -> None:
        """One question; raises KafkaException where it is not answered."""
        self.scheduler.step(f"kafka {action}", changes=changes)
        for transaction in list(self.open.values()):
            if transaction.at + TIMEOUT_SECONDS < self.scheduler.now:
                self._give_up(transaction)
        if self.away_until > self.scheduler.now:
            raise _fault(KafkaError._TRANSPORT)

    def process(self) -> Process | None:
        """Who asks."""
        return None if self.scheduler.current is None else self.scheduler.process

    # ------------------------------------------------------------------------------ in place of the product's own

    def connect(self, settings: Mapping[str, Any], identity: str) -> Producer:
        """A producer that has fenced older ones off."""
        self.step(f"a producer of {identity} begins", changes=True)
        self.epochs[identity] = self.epochs.get(identity, 0) + 1
        if self.process() not in self.looked:
            self.written.setdefault(self.process(), []).append("UPDATE of the producers, before it has looked")
        if (left := self.open.get(identity)) is not None:
            self.end(left, "aborted", None)
        return Producer(self, identity, self.epochs[identity])

    def read(self, settings: Mapping[str, Any], topic: str, *, own: str | None = None) -> dict[str, bytes]:
        """The newest committed value of each key, up to the end of the topic."""
        self.step(f"read {topic}")
        if own:
            self.looked.add(self.process())
        end = len(self.topics.get(topic, ()))

        def blocker() -> Message | None:
            inside = self.topics.get(topic, [])[:end]
            return next((one for one in inside if one.transaction and one.transaction.state == "open"), None)

        while (message := blocker()) is not None and not (own and str(message.key).startswith(f"{own}/")):
            transaction = message.transaction
            assert transaction is not None
            left = max(transaction.at + TIMEOUT_SECONDS - self.scheduler.now, 0.0)
            if not self.scheduler.wait(lambda: blocker() is not message, left):
                self._give_up(transaction)
        return self.newest(topic, end if message is None else message.offset)

    def _give_up(self, transaction: Transaction) -> None:
        """End a transaction that was open for too long, and take nothing more of its producer."""
        self.epochs[transaction.identity] += 1
        self.end(transaction, "aborted", None)

    def newest(self, topic: str, end: int | None = None) -> dict[str, bytes]:
        """The newest committed value of each key, for who looks from outside."""
        values: dict[str, Any] = {}
        for message in self.topics.get(topic, [])[:end]:
            if message.key is not None and message.transaction and message.transaction.state == "committed":
                values.pop(message.key, None)
                if message.value is not None:
                    values[message.key] = message.value
        return values

    def ends(self, settings: Mapping[str, Any], places: Sequence[tuple[str, int]], **_: bool) -> dict[Any, int]:
        self.step("look at the ends")
        return {place: len(self.topics[place[0]]) for place in places}

    def partitions(self, settings: Mapping[str, Any], topic: str) -> list[tuple[str, int]]:
        self.step(f"look at {topic}")
        return [(topic, 0)] if topic in self.topics else []

    def require_ledger(self, target: TopicTarget) -> None:
        self.step(f"make {target.ledger_place}")
        self.topics.setdefault(target.ledger_place, [])

    # ------------------------------------------------------------------------------------------------ transactions

    def end(self, transaction: Transaction, state: Literal["committed", "aborted"], process: Process | None) -> None:
        """Let all of a transaction be seen, or nothing; its mark follows in each topic."""
        if transaction.state != "open":
            return
        transaction.state = state
        self.open.pop(transaction.identity, None)
        for topic in {message.topic for message in transaction.messages} & set(self.topics):
            self.topics[topic].append(Message(topic, len(self.topics[topic]), None, None, None))
        if state == "committed":
            names = [message.topic for message in transaction.messages]
            self.written.setdefault(process, []).extend(f'INSERT INTO "{name}"' for name in names if name == RESULT)
            if RESULT in names:
                if transaction.life not in self.lives[-1:]:
                    self.lives.append(transaction.life)
                self.committed(process)

    @property
    def life(self) -> str:
        """The generation that has written last."""
        return self.lives[-1] if self.lives else ""

    def rows(self) -> list[tuple[str, int]]:
        """What consumers of committed messages find in the result, of the generation that has written last."""
        rows = [
            json.loads(one.value)
            for one in self.topics.get(RESULT, ())
            if one.value is not None and one.transaction is not None and one.transaction.state == "committed"
            if one.transaction.life == self.life
        ]
        return [(str(row["name"]), int(row["total"])) for row in rows]

    def lines(self) -> list[int]:
        """The batches of which the ledger keeps a line, of the generation that has written last."""
        own = [(key, value) for key, value in self.newest(LEDGER).items() if key.rpartition("/")[0] == self.life]
        slots = [json.loads(value) for key, value in own if not key.endswith("/head")]
        return sorted(int(slot["line"]["batch"]) for slot in slots)


@dataclass(eq=False)
class Producer:
    """In place of a client's producer."""

    broker: Broker
    identity: str
    epoch: int
    waiting: list[tuple[str, Any, Any, Any]] = field(default_factory=list)
    transaction: Transaction | None = None

    def begin_transaction(self) -> None:
        self.transaction = None

    def produce(self, topic: str, value: Any = None, key: Any = None, *, on_delivery: Any, **_: Any) -> None:
        self.waiting.append((topic, value, key, on_delivery))

    def poll(self, seconds: float) -> int:
        return 0

    def flush(self, seconds: float) -> int:
        broker, waiting = self.broker, self.waiting
        if waiting:
            broker.step(f"produce into {waiting[0][0]}", changes=True)
        self.waiting = []
        for topic, value, key, delivered in waiting:
            if self._is_fenced or topic not in broker.topics:
                code = KafkaError._FENCED if self._is_fenced else KafkaError.UNKNOWN_TOPIC_OR_PART
                refused = SimpleNamespace(topic=lambda topic=topic: topic, partition=lambda: 0)
                delivered(KafkaError(code), refused)
                continue
            if self.transaction is None:
                self.transaction = broker.open[self.identity] = Transaction(self.identity, broker.scheduler.now)
            log = broker.topics[topic]
            message = Message(topic, len(log), key, value, self.transaction)
            log.append(message)
            self.transaction.messages.append(message)
            delivered(None, _Delivered(message))
        return 0

    def commit_transaction(self, seconds: float) -> None:
        broker = self.broker
        broker.step("commit", changes=True)
        if self._is_fenced:
            raise _fault(KafkaError._FENCED)
        if self.transaction is None:
            return
        transaction, process, scheduler = self.transaction, broker.process(), broker.scheduler
        fate = "answered"
        if broker.faults.commit and scheduler.random.random() < broker.faults.commit:
            fate = scheduler.random.choice(("done", "lost", "late"))
            scheduler.trace.append(f"  the answer is lost: {fate}")
        if fate != "lost":
            kept = [one for one in transaction.messages if one.topic == LEDGER]
            lines = [one.value for one in kept if not str(one.key).endswith(("/head", "/change"))]
            sent = broker.sent.setdefault(process, [])
            batches = [int(json.loads(line)["line"]["batch"]) for line in lines if line]
            sent += batches
        if fate in ("answered", "done"):
            broker.end(transaction, "committed", process)
            if fate == "done" and scheduler.random.random() < 0.6:
                # The broker has ended with its answer.
                broker.away_until = scheduler.now + scheduler.random.choice((1.0, 100.0, 100.0))
        elif fate == "late":
            seconds = scheduler.random.uniform(0.0, 5.0)

            def come_through() -> None:
                scheduler.sleep(seconds)
                if not self._is_fenced:
                    broker.end(transaction, "committed", process)
                    return
                # A newer producer, perhaps of the same driver, has ended the transaction.
                for batch in batches:
                    sent.remove(batch)

            scheduler.spawn(Process("broker", 0), "commits", come_through)
        if fate != "answered":
            raise _fault(KafkaError._TIMED_OUT)

    def abort_transaction(self, seconds: float) -> None:
        self.broker.step("abort", changes=True)
        if self._is_fenced:
            raise _fault(KafkaError._FENCED)
        if self.transaction is not None:
            self.broker.end(self.transaction, "aborted", None)

    def purge(self) -> None:
        self.waiting = []

    @property
    def _is_fenced(self) -> bool:
        return self.broker.epochs[self.identity] != self.epoch


@dataclass(frozen=True)
class _Delivered:
    message: Message

    def topic(self) -> str:
        return self.message.topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.message.offset


def _fault(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


# By the servers that the sink names.
brokers: dict[str, Broker] = {}


@dataclass(frozen=True, kw_only=True)
class ModelTopic(KafkaSink):
    """The broker's topic."""

    def check_result(self, frame: Any, context: Any) -> Any:
        return iter(())

    def _require_topic(self, frame: Any) -> None:
        if RESULT not in brokers[self.bootstrap_servers].topics:
            raise SinkError(code="HR332", what=f"there is no topic '{RESULT}'")
