"""Rows as messages, and messages as the rows that they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# Spark would cut timestamps to milliseconds.
TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_WRITE = {**TIMES, "ignoreNullFields": "false"}
# Written into each message of a transaction: whose it is, and of which batch.
HEADER = "headrace"
# Of the messages that are read back, before they are rows again.
BATCH = "__headrace_batch"


def as_messages(frame: DataFrame, value: Literal["raw", "json"], key: Sequence[str]) -> DataFrame:
    """The rows as messages: `raw` as they are, else an object of every column, and the key's columns as the key."""
    from pyspark.sql import functions as F

    if value == "raw":
        return frame
    body = F.to_json(F.struct("*"), _WRITE).alias("value")
    if not key:
        return frame.select(body)
    if len(key) == 1:
        return frame.select(F.col(f"`{key[0]}`").cast("string").alias("key"), body)
    return frame.select(F.to_json(F.struct(*[F.col(f"`{name}`") for name in key]), _WRITE).alias("key"), body)


def header(life: str, batch: int) -> bytes:
    """The value of HEADER."""
    return f"{life}:{batch}".encode()


def as_rows(messages: DataFrame, life: str, last: int, schema: StructType) -> DataFrame:
    """The rows of the life's batches up to `last`, with one more column, BATCH, of JSON messages with their headers."""
    from pyspark.sql import functions as F

    ours = F.filter("headers", lambda each: each["key"] == HEADER)
    told = F.split(F.element_at(ours, -1)["value"].cast("string"), ":")
    found = messages.where(F.size(ours) > 0).select(
        F.from_json(F.col("value").cast("string"), schema, TIMES).alias("row"),
        told[0].alias("life"),
        told[1].cast("long").alias(BATCH),
    )
    return found.where((F.col("life") == life) & (F.col(BATCH) <= last)).select("row.*", BATCH)


def newest(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The newest row of each key."""
    from pyspark.sql import functions as F

    columns = [name for name in rows.columns if name != BATCH]
    whole = F.max_by(F.struct(*[F.col(f"`{name}`") for name in columns]), F.col(BATCH)).alias("row")
    return rows.groupBy(*[F.col(f"`{name}`") for name in key]).agg(whole).select("row.*")


def starting(begins: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Where the messages up to `ends` begin; a partition that came later, at its first."""
    return {place: begins.get(place, 0) for place in ends}
