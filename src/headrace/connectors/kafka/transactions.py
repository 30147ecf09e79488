"""A topic that takes a batch's messages and the ledger's line of it in one transaction of Kafka's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.connectors import exactly_once
from headrace.connectors.exactly_once.lake import no_result
from headrace.connectors.kafka import producer as kafka
from headrace.connectors.kafka import topic_ledger
from headrace.connectors.kafka.client import ADDRESS_FIX
from headrace.connectors.kafka.prefix import ends
from headrace.connectors.kafka.producer import HEADER, ROW_TOPICS, TopicTarget, as_messages, header
from headrace.connectors.kafka.topic_ledger import TopicLedger
from headrace.contract import Mark, SinkContext
from headrace.errors import Fenced, Finding, HeadraceError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer
    from pyspark.sql import DataFrame

# How long Kafka's client may try to end a transaction before its outcome is asked of the ledger.
COMMIT_SECONDS = 60.0
_POLL_EVERY = 1_000


@dataclass
class _Delivery:
    """The broker's answers to the messages of one transaction.

    The client may call it while an exception of its own is pending, so that it must not import or raise anything.
    """

    error: Any = None
    address: tuple[str, int] = ("", -1)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None:
            if self.error is None:
                self.error, self.address = error, (message.topic(), message.partition())
            return
        place = (message.topic(), message.partition())
        self.ends[place] = max(self.ends.get(place, 0), message.offset() + 1)

    def require(self) -> None:
        """Raise the client's exception for the first message that was not taken, if there is one."""
        if self.error is not None:
            raise _exception(kafka.with_address(self.error, *self.address))


class KafkaStore(exactly_once.BatchStore["pa.Table"]):
    """The topic as one start of a query writes it, all rows through the driver: a transaction has one producer.

    The producer fences off older ones, and newer ones fence it off; so what it has read of the ledger stays true until
    a transaction fails. Then the ledger has the outcome of a commit whose answer was lost, and by its epoch whether
    another driver has begun; a new producer is made only while none has, as it would fence that one off. A producer is
    fenced off without another driver too, where the broker has ended its transaction: after a pause of the machine.
    """

    kind = "topic"

    def __init__(self, target: TopicTarget, context: SinkContext) -> None:
        self.target, self.context = target, context
        self.name = target.topic or ROW_TOPICS
        self.epoch = ""
        self.known: TopicLedger | None = None
        # The newest change of the query, as of the last look at the ledger.
        self._mark: Mark | None = None
        self._producer: Producer | None = None
        # Whether a commit was sent whose answer is not known.
        self._is_in_doubt = False

    # ------------------------------------------------------------------------------------------------- beginning

    def enter(self, result: str) -> None:
        """Enter this start into the ledger, after its batches are compared with the checkpoint's.

        A start that is refused changes nothing: another driver is fenced off only once the batches are compared.
        """
        fault = f"another driver of query '{self.context.query}' begins again and again"
        exactly_once.take_epoch(
            lambda: self._try_entering(result),
            Finding(code="HR409", what=fault, fix="let only one driver run the query, and start it again"),
            fault=Fenced,
        )

    def enter_mark(self) -> None:
        """Fence all drivers off, and keep the mark of the context's change with the ledger, if there is one.

        Raises as `is_applied`.
        """
        settings, topic, mark = self.target.settings, self.target.ledger_place, self.context.mark
        if mark is None or not topic_ledger.partitions(settings, topic):
            return
        self._read()
        if exactly_once.is_applied(self.context, self._mark):
            return
        try:
            producer = self._connect()
            self._read()
            if not exactly_once.is_applied(self.context, self._mark):
                self._commit_records(producer, topic_ledger.mark_record(self.context, mark))
        finally:
            self.disconnect()

    def _try_entering(self, result: str) -> None:
        try:
            self._compare(result)
        except topic_ledger.AnotherQuery:
            self._withdraw()
            raise
        topic_ledger.require_ledger(self.target)
        self._enter_ledger(result)

    def _compare(self, result: str) -> None:
        """Raise where the ledger's batches are not the checkpoint's; an older driver may be writing meanwhile."""
        own = self._read()
        while True:
            try:
                exactly_once.is_applied(self.context, self._mark)
                TopicLedger.begin(own, self.context, self.name, result, {})
                return topic_ledger.require_messages(self.target, self.context, own)
            except HeadraceError:
                # A batch may have come in between the look at the ledger and that at the checkpoint.
                before, own = own, self._read()
                if own == before:
                    raise

    def _enter_ledger(self, result: str) -> None:
        try:
            producer = self._connect()
            own = self._read()
            topic, settings, begins = self.target.topic, self.target.settings, {}
            if own is None and topic is not None:
                begins = ends(settings, topic_ledger.partitions(settings, topic))
            try:
                exactly_once.is_applied(self.context, self._mark)
                begun = TopicLedger.begin(own, self.context, self.name, result, begins)
            except HeadraceError as error:
                # Another driver has begun since, and has made a batch after the look at the checkpoint.
                if self._read() == own:
                    raise
                raise exactly_once.Conflict from error
            # A driver that was fenced off by this producer goes on, as long as the ledger has no newer start.
            self.context.before_entering()
            self._commit_records(producer, begun.head(self.context))
            if own is None:
                self._require_alone(producer, begun)
        except Exception as error:
            self.disconnect()
            if kafka.is_fenced(error):
                raise exactly_once.Conflict from error
            raise
        self.known, self.epoch = begun, begun.ledger.epoch

    def _withdraw(self) -> None:
        """Delete the head of a start that died before its second look, so that the other query may begin.

        Each process that could write a batch by that head is fenced off first.
        """
        if not self._has_bare_head():
            return
        self.context.before_entering()
        try:
            producer = self._connect()
            if self._has_bare_head():
                self._commit_records(producer, {topic_ledger.head_key(self.context): None})
        finally:
            self.disconnect()

    def _has_bare_head(self) -> bool:
        own, key = topic_ledger.query_key(self.context), topic_ledger.key_of(self.context)
        records = topic_ledger.read(self.target.settings, self.target.ledger_place, own=own)
        return topic_ledger.head_key(self.context) in records and not topic_ledger.has_lines(records, key)

    def _require_alone(self, producer: Producer, begun: TopicLedger) -> None:
        """Withdraw a first start where another copy of the storage has entered the ledger meanwhile.

        Raises:
            SinkError: It has.
        """
        try:
            self._read()
        except SinkError:
            self._commit_records(producer, dict.fromkeys(begun.head(self.context)))
            raise

    def _connect(self) -> Producer:
        if self._producer is None:
            self._producer = kafka.connect(self.target.settings, kafka.transactional_id(self.context))
        return self._producer

    def _read(self) -> TopicLedger | None:
        own = topic_ledger.query_key(self.context)
        records = topic_ledger.read(self.target.settings, self.target.ledger_place, own=own)
        self._mark = topic_ledger.mark_in(records, self.context)
        return TopicLedger.of(records, self.context)

    # ------------------------------------------------------------------------------------------------- a batch

    def standing(self, batch: int) -> exactly_once.Standing:
        return self._current().ledger.standing(batch, self.epoch)

    def kept_plan(self, batch: int) -> str | None:
        return self._current().ledger.kept_plan(batch)

    def _current(self) -> TopicLedger:
        """The ledger as it is now, by a producer that is not fenced off, unless another driver has begun."""
        if self._producer is not None and self.known is not None:
            return self.known
        own = self._existing()
        if own.ledger.epoch == self.epoch:
            self._connect()
            own = self.known = self._existing()
        return own

    def _existing(self) -> TopicLedger:
        own, mine = self._read(), self.context.mark
        if self._mark is not None and mine is not None and self._mark.number > mine.number:
            fault = f"a command has changed query '{self.context.query}' since this driver began, which writes no more"
            raise Fenced(code="HR409", what=fault, fix="start the query again, if it is to run")
        if own is None:  # A rename has taken it away.
            raise no_result(f"topic '{self.name}'", self.context, kind="topic")
        return own

    def compute(self, frame: DataFrame, batch: int) -> pa.Table:
        with self.computing(batch):
            return frame.toArrow()

    def commit(self, rows: pa.Table, batch: int, admit: exactly_once.Admission) -> None:
        own = self._current()
        admitted = admit(own.ledger.standing(batch, self.epoch))
        self._is_in_doubt = False
        if admitted is None:
            return
        try:
            self._transact(own, rows, batch, admitted)
        except Exception as error:
            if kafka.is_fenced(error):
                self.disconnect()
                admit(self._existing().ledger.standing(batch, self.epoch))
            raise

    def _transact(self, own: TopicLedger, rows: pa.Table, batch: int, admitted: exactly_once.Admitted) -> None:
        delivery, producer = _Delivery(), self._connect()
        producer.begin_transaction()
        try:
            self._produce(producer, rows, batch, header(own.life, batch), delivery)
            if left := producer.flush(COMMIT_SECONDS):
                raise _timeout(f"{left} messages of the batch were not taken within {COMMIT_SECONDS:.0f} s")
            delivery.require()
            own = own.with_batch(admitted.line, delivery.ends)
            self._send(producer, own.lines(self.context, [admitted.line]))
            self.context.on_boundary("inside-transaction", batch)
        except Exception:
            self._abort(producer)
            raise
        self._is_in_doubt = True
        producer.commit_transaction(COMMIT_SECONDS)
        self._is_in_doubt, self.known = False, own

    def _produce(self, producer: Producer, rows: pa.Table, batch: int, mark: bytes, delivery: _Delivery) -> None:
        """Hand the rows to the client, which sends them at the side."""
        topic, sent = self.target.topic, 0
        for part in rows.to_batches(max_chunksize=10_000):
            for row in part.to_pylist():
                given = {name.lower(): value for name, value in row.items()}
                to, partition = topic or given["topic"], given.get("partition")
                if to is None:
                    fault = f"a row of batch {batch} of query '{self.context.query}' names no topic"
                    raise SinkError(code="HR408", what=fault, fix=ADDRESS_FIX)
                more = {} if partition is None else {"partition": partition}
                headers = [(header["key"], header["value"]) for header in given.get("headers") or ()]
                self._give(
                    producer,
                    to,
                    given.get("value"),
                    given.get("key"),
                    headers=[*headers, (HEADER, mark)],
                    on_delivery=delivery,
                    **more,
                )
                sent += 1
                if sent % _POLL_EVERY == 0:
                    producer.poll(0)
                    delivery.require()

    def _give(self, producer: Producer, *message: Any, **more: Any) -> None:
        """Hand over one message; where the client's queue is full, wait until there is room again."""
        from confluent_kafka import KafkaException

        limit = time.monotonic() + COMMIT_SECONDS
        while True:
            try:
                return producer.produce(*message, **more)
            except KafkaException as error:
                raise _exception(kafka.with_address(error.args[0], message[0], more.get("partition"))) from error
            except BufferError:
                if time.monotonic() > limit:
                    raise _timeout("the broker takes no messages") from None
                producer.poll(0.1)

    def _send(self, producer: Producer, records: Mapping[str, bytes | None]) -> None:
        delivery = _Delivery()
        for key, value in records.items():
            self._give(producer, self.target.ledger_place, value, key, partition=0, on_delivery=delivery)
        if producer.flush(COMMIT_SECONDS):
            raise _timeout("the ledger's line was not taken")
        delivery.require()

    def _commit_records(self, producer: Producer, records: Mapping[str, bytes | None]) -> None:
        producer.begin_transaction()
        self._send(producer, records)
        producer.commit_transaction(COMMIT_SECONDS)

    def _abort(self, producer: Producer) -> None:
        """End the transaction; if that fails, the next producer does it at its beginning."""
        try:
            producer.abort_transaction(kafka.ANSWER_SECONDS)
        except Exception as error:
            if kafka.fault(error) is None:
                raise
            self.disconnect()

    # ------------------------------------------------------------------------------------------------- failures

    def disconnect(self) -> None:
        """Leave the producer: an attempt has failed, and the next one asks the ledger what is in."""
        producer, self._producer, self.known = self._producer, None, None
        if producer is not None:
            producer.purge()

    def pauses(self) -> Iterator[float]:
        return exactly_once.Retry(seconds=self.target.retry_seconds).pauses()

    def is_transient(self, error: Exception) -> bool:
        return kafka.is_transient(error) or super().is_transient(error)

    def explain(self, error: Exception, batch: int) -> Exception:
        fault = f"{self.fate(batch, is_in_doubt=self._is_in_doubt)} into '{self.name}'"
        return kafka.explain(error, self.target.bootstrap_servers, fault)


class KafkaBatches(exactly_once.BatchWriter["pa.Table"]):
    """Takes the batches of one start as messages."""

    store: KafkaStore

    def serialize(self, frame: DataFrame) -> DataFrame:
        return as_messages(frame, self.store.target.value, self.store.target.key)


def _exception(error: Any) -> Exception:
    from confluent_kafka import KafkaException

    return KafkaException(error)


def _timeout(fault: str) -> Exception:
    from confluent_kafka import KafkaError

    return _exception(KafkaError(KafkaError._TIMED_OUT, fault))
