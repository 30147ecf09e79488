"""What a topic holds of the batches that came in by transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.connectors.exactly_once import TextLedger, plans
from headrace.connectors.kafka import producer, topic_ledger
from headrace.connectors.kafka.client import client
from headrace.connectors.kafka.messages import BATCH, as_rows, newest, starting
from headrace.connectors.kafka.prefix import as_json
from headrace.connectors.kafka.target import Target
from headrace.connectors.kafka.topic_ledger import Ends, TopicLedger
from headrace.contract import SinkContext, Snapshot
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def translate_errors(target: Target, what: str) -> Iterator[None]:
    """Tell a fault of Kafka's client in a sentence that begins with `what`."""
    try:
        yield
    except Exception as error:
        known = producer.explained(error, target.servers, what)
        if known is error:
            raise
        raise known from None


def require_ledger(target: Target) -> None:
    """Make the ledger topic, where there is none."""
    topic_ledger.require_topic(target.settings, target.ledger_topic)


def ledger(target: Target, context: SinkContext) -> TopicLedger | None:
    """The ledger of the context's generation; None: it has none."""
    with translate_errors(target, f"the ledger topic '{target.ledger_topic}' cannot be read"):
        if not topic_ledger.partitions(target.settings, target.ledger_topic):
            return None
        return TopicLedger.of(topic_ledger.read(target.settings, target.ledger_topic), context)


def last_batch(target: Target, context: SinkContext) -> int | None:
    """The newest batch of the context's checkpoint that is in."""
    found = ledger(target, context)
    return None if found is None else found.ledger.last


def planned(target: Target, context: SinkContext, first: int) -> Mapping[int, str]:
    """What each batch from `first` on can be planned again from."""
    found = ledger(target, context)
    return {} if found is None else plans(context, found.ledger.lines, first)


def read_back(target: Target, spark: SparkSession, context: SinkContext) -> Snapshot:
    """The rows of the batches that are in: all in append mode, else the newest of each key, or of the last batch."""
    name = target.topic or ""
    found = ledger(target, context)
    if found is None or found.ledger.last is None:
        raise SinkError(TextLedger.lacking(context, name))
    _await_markers(target, found.ends)
    begins = starting(found.begins, found.ends)
    with client(spark, target.servers, target.options, SinkError) as broker:
        earliest = broker.earliest(found.ends)
    for place, first in begins.items():
        if earliest.get(place, 0) > first:
            what = f"messages of topic '{name}', partition {place[1]}, from offset {first} on are gone"
            fix = "let the topic keep what is to be verified (retention.ms, retention.bytes)"
            raise SinkError(Finding(code="HR402", what=what, fix=fix))
    if not found.ends:
        rows = spark.createDataFrame([], found.ledger.schema)
        return Snapshot(rows=rows, batch=found.ledger.last, key=target.key)
    reader = spark.read.format("kafka").options(**target.options)
    messages = reader.options(
        **{
            "kafka.bootstrap.servers": target.servers,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            "assign": _assigned(found.ends),
            "startingOffsets": as_json(begins),
            "endingOffsets": as_json(found.ends),
        }
    ).load()
    rows = as_rows(messages, found.life, found.ledger.last, found.ledger.schema)
    if context.mode == "update":
        rows = newest(rows, target.key)
    elif context.mode == "complete":
        rows = rows.where(rows[BATCH] == found.ledger.last).drop(BATCH)
    else:
        rows = rows.drop(BATCH)
    return Snapshot(rows=rows, batch=found.ledger.last, key=target.key if context.mode == "update" else ())


def _assigned(ends: Ends) -> str:
    import json

    found: dict[str, list[int]] = {}
    for topic, partition in sorted(ends):
        found.setdefault(topic, []).append(partition)
    return json.dumps(found)


def _await_markers(target: Target, ends: Ends) -> None:
    """Wait until the messages up to `ends` can be read: a commit reaches each partition by itself, and a moment later.

    Another program's open transaction in the topic holds readers back as well.
    """
    limit = time.monotonic() + topic_ledger.PATIENCE_SECONDS
    with translate_errors(target, f"topic '{target.topic}' cannot be read"):
        while True:
            stable = topic_ledger.ends(target.settings, list(ends), committed=True)
            if all(stable.get(place, 0) >= end for place, end in ends.items()):
                return
            if time.monotonic() > limit:
                what = f"topic '{target.topic}' cannot be read to the end of the last batch: a transaction stays open"
                fix = "stop the program that holds it, or wait until the broker aborts it; then verify again"
                raise SinkError(Finding(code="HR402", what=what, fix=fix))
            time.sleep(0.1)
