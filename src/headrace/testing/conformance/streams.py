"""Small streams to test with: their rows by batch, what a checkpoint says of them, and a crash just before a commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.prefix import committed_prefix
from headrace.contract import SourcePrefix
from headrace.testing.conformance.triggers import NAME, PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STEPS = 3

Rows = dict[int, list[tuple[Any, ...]]]


def drain(frame: DataFrame, checkpoint: Path) -> tuple[Rows, list[Any]]:
    """The rows of each batch that a stream makes of what is there, and its progress."""
    rows: Rows = {}

    def keep(batch: DataFrame, number: int) -> None:
        rows[number] = sorted(map(tuple, batch.collect()), key=repr)

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows, query.recentProgress


def drain_live(frame: DataFrame, checkpoint: Path, feed: Callable[[], None]) -> Rows:
    """The rows of each batch of a stream that `feed` gives rows to after its first batch, until one has some."""
    rows: Rows = {}
    begun, given = Event(), Event()

    def keep(batch: DataFrame, number: int) -> None:
        rows[number] = sorted(map(tuple, batch.collect()), key=repr)
        begun.set()
        if rows[number]:
            given.set()

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).start()
    try:
        assert begun.wait(PATIENCE), "the stream made no batch"
        feed()
        assert given.wait(PATIENCE), "the stream gave no rows"
        query.processAllAvailable()
    finally:
        query.stop()
    return rows


def prefix_of(checkpoint: Path, name: str = NAME) -> SourcePrefix:
    """What the checkpoint says of one source, up to the last committed batch."""
    found = Checkpoint(checkpoint)
    last = found.last_committed
    return committed_prefix(found, Archive(checkpoint / "archive.jsonl"), [name], -1 if last is None else last)[name]


def forget_commit(checkpoint: Path) -> int:
    """Take away the newest commit file, as a crash just before it would; returns its batch."""
    last = Checkpoint(checkpoint).last_committed
    if last is None:
        raise ValueError(f"'{checkpoint}' has no commit to forget")
    for file in (checkpoint / "commits" / str(last), checkpoint / "commits" / f".{last}.crc"):
        file.unlink(missing_ok=True)
    return last
