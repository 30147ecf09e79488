"""Results read by other programs than Spark and the sinks: DuckDB, delta-rs, fastavro and the confluent client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


def parquet_rows(files: str | list[str]) -> list[tuple[Any, ...]]:
    """Names and totals of files, or of those that match a pattern."""
    return duckdb.read_parquet(files, hive_partitioning=True).select("name", "total").fetchall() if files else []


def delta_rows(path: str) -> list[tuple[Any, ...]]:
    """Names and totals of a Delta table as delta-rs reads them."""
    import deltalake

    rows = deltalake.DeltaTable(path).to_pyarrow_table(columns=["name", "total"]).to_pylist()
    return [(row["name"], row["total"]) for row in rows]


def iceberg_rows(table: Path) -> list[tuple[Any, ...]]:
    """Names and totals of the newest snapshot of an Iceberg table, by its metadata and manifests.

    Source: Iceberg table spec, "Table metadata", "Manifest lists" and "Manifests". A file of deletes is refused.
    """
    newest = max((table / "metadata").glob("*.metadata.json"), key=lambda file: file.name)
    metadata = json.loads(newest.read_text())
    current = metadata.get("current-snapshot-id")
    snapshots = [snapshot for snapshot in metadata["snapshots"] if snapshot["snapshot-id"] == current]
    files = []
    for manifest in (record for snapshot in snapshots for record in avro_records(snapshot["manifest-list"])):
        assert manifest["content"] == 0, "a manifest of deletes"
        for entry in avro_records(manifest["manifest_path"]):
            if entry["status"] != 2:  # Deleted.
                files.append(entry["data_file"]["file_path"].removeprefix("file://"))
    return parquet_rows(files)


def avro_records(path: str) -> Iterator[dict[str, Any]]:
    with open(path.removeprefix("file://"), "rb") as file:
        yield from fastavro.reader(file)  # type: ignore[misc]


def messages(servers: str, topic: str, level: str = "read_committed") -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each message of a topic, partition by partition, in order. level: Kafka's isolation level."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "isolation.level": level,
        }
    )
    open_ = set(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in sorted(open_)])
    by_partition: dict[int, list[tuple[bytes | None, bytes | None]]] = {number: [] for number in open_}
    while open_:
        message = consumer.poll(20)
        assert message is not None, "the broker went silent"
        number = message.partition()
        assert number is not None
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF, error
            open_.discard(number)
            continue
        by_partition[number].append((message.key(), message.value()))
    consumer.close()
    return [message for number in sorted(by_partition) for message in by_partition[number]]


def newest_totals(servers: str, topic: str) -> list[tuple[str, int]]:
    """Name and total of the newest committed message of each key, whose values are JSON."""
    newest = {key: json.loads(value or b"null") for key, value in messages(servers, topic)}
    return [(row["name"], row["total"]) for row in newest.values()]
