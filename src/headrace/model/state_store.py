"""The options of the state store: their names in a project, their keys in Spark, and the values they may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

PREFIX = "spark.sql.streaming.stateStore."
PROVIDER_KEY = f"{PREFIX}providerClass"
ROWS_TRACKED_KEY = f"{PREFIX}rocksdb.trackTotalNumberOfRows"
PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return " or ".join(self.words)

    def read(self, text: str) -> str | None:
        """The word, or None."""
        return text if text in self.words else None


@dataclass(frozen=True)
class Number:
    """A number from `least` to `most`; `default` is one more that may be given, for what RocksDB itself does."""

    least: float
    most: float | None = None
    default: int | None = None
    whole: bool = True

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        reach = f"from {self.least:g}" + (f" to {self.most:g}" if self.most is not None else "")
        return f"{kind} {reach}" + (f", or {self.default}" if self.default is not None else "")

    def read(self, text: str) -> str | None:
        """The number as Spark reads it, or None."""
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            return None
        # Written so that a NaN lies outside.
        inside = self.least <= value and (self.most is None or value <= self.most)
        return str(value) if inside or value == self.default else None


SWITCH = Choice(("true", "false"))


@dataclass(frozen=True, kw_only=True)
class StateStoreOption:
    """One option: `key` is Spark's, after PREFIX; `default` is what holds without it.

    needs: the switch that must be on for the option to have an effect.
    """

    name: str
    key: str
    takes: Choice | Number
    default: str
    meaning: str
    needs: str | None = None

    @property
    def spark_key(self) -> str:
        return PREFIX + self.key

    @property
    def is_of_rocksdb(self) -> bool:
        """Whether no other provider reads it."""
        return self.key.startswith("rocksdb.")

    def read(self, text: str) -> str | None:
        """What Spark is to be given for `text`, or None if it is not a value of the option."""
        value = self.takes.read(text)
        return PROVIDERS[value] if self.name == "provider" and value is not None else value


# Of each option its key in Spark, what it takes, what holds without it, and what it means.
_Row: TypeAlias = tuple[str, Choice | Number, str, str]
_OF_ALL: tuple[_Row, ...] = (
    (
        "providerClass",
        Choice(tuple(PROVIDERS)),
        "rocksdb",
        "`rocksdb` keeps state outside the Java heap, `hdfs` inside it; fixed by a query's first batch",
    ),
    (
        "minDeltasForSnapshot",
        Number(1),
        "10",
        "how many batches of changes there are before a whole snapshot is written in the background",
    ),
)
_OF_ROCKSDB: tuple[_Row, ...] = (
    (
        "changelogCheckpointing.enabled",
        SWITCH,
        "true",
        "a batch writes what it changed; off, a snapshot of the files that are new",
    ),
    ("compactOnCommit", SWITCH, "false", "compact the store with every batch"),
    ("blockSizeKB", Number(1), "4", "the size of a block of a data file"),
    (
        "blockCacheSizeMB",
        Number(0),
        "8",
        "the cache of blocks of one store; in a local Spark, 128 by the number of cores, and at least 8",
    ),
    ("lockAcquireTimeoutMs", Number(0), "120000", "how long a task waits for a store that another one still holds"),
    ("resetStatsOnLoad", SWITCH, "true", "counters begin at 0 when a store is loaded"),
    ("maxOpenFiles", Number(1, default=-1), "-1", "open files of one store; -1: all stay open"),
    (
        "trackTotalNumberOfRows",
        SWITCH,
        "true",
        "count the rows of the state, at the price of one more look-up for each write",
    ),
    (
        "writeBufferSizeMB",
        Number(1, default=-1),
        "-1",
        "the table in memory that takes the writes; -1: as RocksDB has it, 64",
    ),
    (
        "maxWriteBufferNumber",
        Number(2, default=-1),
        "-1",
        "how many such tables there may be, full ones counted; -1: as RocksDB has it, 2",
    ),
    (
        "boundedMemoryUsage",
        SWITCH,
        "false",
        "all stores of a process share one bounded cache, which their write buffers count into",
    ),
    ("maxMemoryUsageMB", Number(1), "500", "the bound; the first query of a process fixes it"),
    ("writeBufferCacheRatio", Number(0, 1, whole=False), "0.5", "the share of it that write buffers may take"),
    (
        "highPriorityPoolRatio",
        Number(0, 1, whole=False),
        "0.1",
        "the share of it that indexes and filters take before data",
    ),
    ("formatVersion", Number(2, 6), "5", "the format of RocksDB's files; fixed by a query's first batch"),
    ("allowFAllocate", SWITCH, "true", "reserve room on the disk ahead; off, many small stores take less of it"),
    ("compression", Choice(("lz4", "snappy", "zstd")), "lz4", "how data files are compressed"),
)
_BOUNDS = ("max_memory_usage_mb", "write_buffer_cache_ratio", "high_priority_pool_ratio")


def _option(prefix: str, key: str, takes: Choice | Number, default: str, meaning: str) -> StateStoreOption:
    """The option of that key of Spark's, `blockSizeKB`, under its name here, `block_size_kb`."""
    word = key.removesuffix(".enabled").removesuffix("Class")
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower()
    needs = "bounded_memory_usage" if name in _BOUNDS else None
    return StateStoreOption(name=name, key=prefix + key, takes=takes, default=default, meaning=meaning, needs=needs)


_MADE = (*(_option("", *row) for row in _OF_ALL), *(_option("rocksdb.", *row) for row in _OF_ROCKSDB))
OPTIONS: dict[str, StateStoreOption] = {option.name: option for option in _MADE}
