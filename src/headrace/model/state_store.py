"""The options of the state store: their names in a project, their keys in Spark, and the values they may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
        """What Spark is to be given for `text`, or None if it is no value of the option."""
        value = self.takes.read(text)
        return PROVIDERS[value] if self.name == "provider" and value is not None else value


def _rocksdb(
    name: str, key: str, takes: Choice | Number, default: str, meaning: str, needs: str | None = None
) -> StateStoreOption:
    return StateStoreOption(name=name, key=f"rocksdb.{key}", takes=takes, default=default, meaning=meaning, needs=needs)


def _options() -> Iterator[StateStoreOption]:
    yield StateStoreOption(
        name="provider",
        key="providerClass",
        takes=Choice(tuple(PROVIDERS)),
        default="rocksdb",
        meaning="`rocksdb` keeps state outside the Java heap, `hdfs` inside it; fixed by a query's first batch",
    )
    yield StateStoreOption(
        name="min_deltas_for_snapshot",
        key="minDeltasForSnapshot",
        takes=Number(1),
        default="10",
        meaning="how many batches of changes there are before a whole snapshot is written in the background",
    )
    yield _rocksdb(
        "changelog_checkpointing",
        "changelogCheckpointing.enabled",
        SWITCH,
        "true",
        "a batch writes what it changed; off, a snapshot of the files that are new",
    )
    yield _rocksdb("compact_on_commit", "compactOnCommit", SWITCH, "false", "compact the store with every batch")
    yield _rocksdb("block_size_kb", "blockSizeKB", Number(1), "4", "the size of a block of a data file")
    yield _rocksdb(
        "block_cache_size_mb",
        "blockCacheSizeMB",
        Number(0),
        "8",
        "the cache of blocks of one store; in a local Spark, 128 by the number of cores, and at least 8",
    )
    yield _rocksdb(
        "lock_acquire_timeout_ms",
        "lockAcquireTimeoutMs",
        Number(0),
        "120000",
        "how long a task waits for a store that another one still holds",
    )
    yield _rocksdb(
        "reset_stats_on_load", "resetStatsOnLoad", SWITCH, "true", "counters begin at 0 when a store is loaded"
    )
    yield _rocksdb(
        "max_open_files", "maxOpenFiles", Number(1, default=-1), "-1", "open files of one store; -1: all stay open"
    )
    yield _rocksdb(
        "track_total_number_of_rows",
        "trackTotalNumberOfRows",
        SWITCH,
        "true",
        "count the rows of the state, at the price of one more look-up for each write",
    )
    yield _rocksdb(
        "write_buffer_size_mb",
        "writeBufferSizeMB",
        Number(1, default=-1),
        "-1",
        "the table in memory that takes the writes; -1: as RocksDB has it, 64",
    )
    yield _rocksdb(
        "max_write_buffer_number",
        "maxWriteBufferNumber",
        Number(2, default=-1),
        "-1",
        "how many such tables there may be, full ones counted; -1: as RocksDB has it, 2",
    )
    yield _rocksdb(
        "bounded_memory_usage",
        "boundedMemoryUsage",
        SWITCH,
        "false",
        "all stores of a process share one bounded cache, which their write buffers count into",
    )
    yield _rocksdb(
        "max_memory_usage_mb",
        "maxMemoryUsageMB",
        Number(1),
        "500",
        "the bound; the first query of a process fixes it",
        needs="bounded_memory_usage",
    )
    yield _rocksdb(
        "write_buffer_cache_ratio",
        "writeBufferCacheRatio",
        Number(0, 1, whole=False),
        "0.5",
        "the share of it that write buffers may take",
        needs="bounded_memory_usage",
    )
    yield _rocksdb(
        "high_priority_pool_ratio",
        "highPriorityPoolRatio",
        Number(0, 1, whole=False),
        "0.1",
        "the share of it that indexes and filters take before data",
        needs="bounded_memory_usage",
    )
    yield _rocksdb(
        "format_version",
        "formatVersion",
        Number(2, 6),
        "5",
        "the format of RocksDB's files; fixed by a query's first batch",
    )
    yield _rocksdb(
        "allow_fallocate",
        "allowFAllocate",
        SWITCH,
        "true",
        "reserve room on the disk ahead; off, many small stores take less of it",
    )
    yield _rocksdb(
        "compression", "compression", Choice(("lz4", "snappy", "zstd")), "lz4", "how data files are compressed"
    )


OPTIONS: dict[str, StateStoreOption] = {option.name: option for option in _options()}
