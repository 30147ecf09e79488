"""Change frames decoded from messages, and the table that follows from them, folded in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.connectors.kafka.source import Kafka
from headrace.connectors.kafka.values import decode
from tests.connectors.kafka.debezium.feeds import COLUMNS, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.connectors.values.exact import Judged

Message = tuple[bytes | None, bytes | None]


def judge(
    spark: SparkSession,
    messages: Sequence[Message],
    schema: str = SCHEMA,
    settings: Mapping[str, str] | None = None,
    keys: Sequence[str] = (),
    *,
    one_table: bool = True,
) -> Judged:
    """The judged rows of messages, each at the offset of its place in the list."""
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
    rows = [(key, value, "shop", 0, at) for at, (key, value) in enumerate(messages)]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds.values())]
    frame = spark.createDataFrame(pa.table(columns, names=list(kinds)))
    return decode(frame, "debezium", schema, settings=settings, keys=keys, one_table=one_table)


def changes(judged: Judged) -> list[dict[str, Any]]:
    """The rows of a change frame; fails at the first that is refused."""
    rows = judged.require_readable().select(*judged.check_columns()).toArrow().to_pylist()
    return sorted(rows, key=lambda row: row["__change"]["position"]["offset"])


def fold(rows: Iterable[Mapping[str, Any]], key: str = "id") -> dict[Any, dict[str, Any]]:
    """The table after all changes, in the order of their sequences; of equal ones the later offset wins."""
    table: dict[Any, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["__change"]["sequence"], row["__change"]["position"]["offset"])):
        change = row["__change"]
        if change["operation"] == "truncate":
            table.clear()
        elif change["operation"] == "delete":
            table.pop(row[key], None)
        elif change["operation"] == "upsert":
            before = table.get(row[key], {})
            kept = {name: before[name] for name in change["unavailable"]}
            table[row[key]] = {**{name: row[name] for name in row if name != "__change"}, **kept}
    return table


def comparable(value: Any) -> Any:
    """A value as two clients agree on it: times in UTC, NaN equal to itself."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    if isinstance(value, float) and value != value:
        return "NaN"
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def in_order(table: Mapping[Any, Mapping[str, Any]], names: Iterable[str] = COLUMNS) -> list[tuple[Any, ...]]:
    """A folded table as a client reads it by its key."""
    return [tuple(comparable(table[key][name]) for name in names) for key in sorted(table)]


def kafka(url: str, topic: str, settings: Mapping[str, str] | None = None, schema: str = SCHEMA) -> Kafka:
    return Kafka(
        bootstrap_servers=url, subscribe=topic, value="debezium", schema=schema, debezium_settings=dict(settings or {})
    )
