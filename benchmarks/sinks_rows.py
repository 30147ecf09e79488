"""Two million rows: in any order as Parquet for Spark, sorted by the key as text and as Python values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connectors.sql.types import ISO, Forms, ResultColumn, columns, lines
from headrace.connectors.sql.types import rows as plain_rows

SEED = 20260301
DEVICES = 50_000
KEY = ("device", "begins", "ends")
# Partitions of one size for each of two cores.
FILES = 2


@dataclass(frozen=True)
class Rows:
    """A device's counts per minute: device STRING, begins and ends TIMESTAMP, total BIGINT."""

    shuffled: Path
    table: pa.Table

    @classmethod
    def make(cls, home: Path, count: int) -> Rows:
        chance = np.random.default_rng(SEED)
        order = chance.permutation(count)
        minute = 60_000_000
        begins = (order // DEVICES).astype("int64") * minute + 1_700_000_000_000_000
        table = pa.table(
            {
                "device": pa.array([f"device-{number:06d}" for number in (order % DEVICES).tolist()]),
                "begins": pa.array(begins).cast(pa.timestamp("us", "UTC")),
                "ends": pa.array(begins + minute).cast(pa.timestamp("us", "UTC")),
                "total": pa.array(chance.integers(0, 1 << 40, count)),
            }
        )
        home.mkdir(parents=True)
        for number in range(FILES):
            share = range(number * count // FILES, (number + 1) * count // FILES)
            pq.write_table(table.slice(share.start, len(share)), home / f"{number}.parquet")
        return cls(home, table.sort_by([(name, "ascending") for name in KEY]))

    @cached_property
    def result_columns(self) -> tuple[ResultColumn, ...]:
        from pyspark.sql.types import LongType, StringType, StructType, TimestampType

        types = (StringType(), TimestampType(), TimestampType(), LongType())
        schema = StructType()
        for name, type_ in zip(self.table.column_names, types, strict=True):
            schema = schema.add(name, type_)
        return columns(schema)[0]

    def text(self, forms: Forms) -> bytes:
        """The sorted rows as COPY and LOAD DATA read them."""
        return bytes(lines(self.table, self.result_columns, forms))

    def values(self, count: int | None = None, forms: Forms = ISO) -> list[tuple[Any, ...]]:
        """The sorted rows as tuples."""
        return plain_rows(self.table.slice(0, count), self.result_columns, forms)
