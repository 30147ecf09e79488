"""Small streams to test with, and the suites that prove which triggers take a source or a sink."""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import pytest

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.directory import Part, numbered_files
from headrace.checkpoint.sources import SourceNames, committed_prefix
from headrace.contract import OutputMode, Sink, SinkContext, Source, SourcePrefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NAME = "events"
PATIENCE = 60.0

Word = Literal["continuous", "real_time"]
# The options of each trigger, and a pattern of Spark's refusals of it.
_TRIGGERS: dict[Word, tuple[dict[str, str], str]] = {
    "continuous": ({"continuous": "500 milliseconds"}, r"[Cc]ontinuous"),
    "real_time": ({"realTime": "5 seconds"}, r"STREAMING_REAL_TIME_MODE"),
}
WORDS: tuple[Word, ...] = tuple(_TRIGGERS)


def is_run_under(
    writer: DataStreamWriter, word: Word, *, feed: Callable[[], None], came: Callable[[StreamingQuery], bool]
) -> bool:
    """Whether Spark runs a query under the trigger until `came`; False if it refuses the trigger.

    Raises:
        AssertionError: Nothing came in time.
        StreamingQueryException: The query failed for another reason than its trigger.
    """
    query, (trigger, refused) = None, _TRIGGERS[word]
    try:
        query = writer.trigger(**trigger).start()
        feed()
        ends = time.monotonic() + PATIENCE
        while not came(query):
            if (error := query.exception()) is not None:
                raise error
            assert time.monotonic() < ends, f"nothing came under the trigger {word}"
            time.sleep(0.05)
    except AssertionError:
        raise
    except Exception as error:
        if re.search(refused, str(error)) is None:
            raise
        return False
    finally:
        if query is not None:
            query.stop()
    return True


def _has_rows(query: StreamingQuery) -> bool:
    return any(progress["numInputRows"] for progress in query.recentProgress)


class SourceTriggers(ABC):
    """What a source must hold that declares whether it gives rows without batches."""

    @abstractmethod
    def make(self, home: Path) -> Source:
        """Return the source, reading from below `home`; a rate limit of one step's rows if it can be limited."""

    def feed(self, home: Path, step: int) -> None:  # noqa: B027 (a source that makes its own rows needs none)
        """Produce the input of one step: some rows, the same number in each step."""

    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        place = tmp_path / "input"
        place.mkdir()
        return place

    @pytest.mark.parametrize("word", WORDS)
    def test_rows_come_without_batches_just_where_that_is_claimed(
        self, spark: SparkSession, home: Path, tmp_path: Path, word: Word
    ) -> None:
        source, table = self.make(home), f"came_{uuid4().hex}"
        claimed = source.facts.continuous if word == "continuous" else source.facts.real_time
        assert source.parallelism(spark) <= spark.sparkContext.defaultParallelism
        source = source.without_rate_limit()
        writer = source.stream(spark, NAME).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        came: Callable[[StreamingQuery], bool] = _has_rows
        if word == "continuous":
            writer = writer.format("memory").queryName(table)
            # It needs no task, for which there may be no core left.
            came = lambda query: bool(spark.table(table).collect())  # noqa: E731
        else:
            writer = writer.format("console").outputMode("update")
        feed = self._feed_once_connected if source.facts.ephemeral else self.feed
        assert is_run_under(writer, word, feed=lambda: feed(home, 0), came=came) is claimed

    def _feed_once_connected(self, home: Path, step: int) -> None:
        """Feed in a thread: a query that is refused never connects."""

        def wait_and_feed() -> None:
            with suppress(AssertionError, OSError):
                self.feed(home, step)

        threading.Thread(target=wait_and_feed, daemon=True).start()


class SinkTriggers(ABC):
    """What a sink must hold that declares whether it takes rows without batches, or asynchronous progress."""

    @abstractmethod
    def make(self, home: Path, mode: OutputMode) -> Sink:
        """Return the sink, writing below `home` a result of (name STRING, total BIGINT), keyed by name."""

    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        place = tmp_path / "output"
        place.mkdir()
        return place

    def unending(self, spark: SparkSession, word: Word) -> DataFrame | None:
        """Return rows of (name STRING, total BIGINT) that come all the time, under the trigger.

        None: no source is at hand that the trigger takes, as none of Spark's own is in real time.
        """
        if word == "real_time":
            return None
        reader = spark.readStream.name(NAME).format("rate").option("rowsPerSecond", 50).option("numPartitions", 1)
        return reader.load().selectExpr("CAST(value AS STRING) AS name", "value AS total")

    @pytest.mark.parametrize("word", WORDS)
    def test_it_takes_rows_without_batches_just_where_that_is_claimed(
        self, spark: SparkSession, home: Path, tmp_path: Path, word: Word
    ) -> None:
        mode: OutputMode = "append" if word == "continuous" else "update"
        sink = self.make(home, mode)
        claimed = sink.facts.continuous if word == "continuous" else sink.facts.real_time
        if mode not in sink.facts.modes:
            assert not claimed, f"the trigger {word} wants the mode {mode}"
            return
        frame = self.unending(spark, word)
        if frame is None:
            assert not claimed, f"give `unending` a source that the trigger {word} takes"
            return
        writer, context = self.prepare(sink, frame, tmp_path, mode)

        def came(query: StreamingQuery) -> bool:
            return Checkpoint(context.checkpoint).last_committed is not None

        assert is_run_under(writer, word, feed=lambda: None, came=came) is claimed

    def test_progress_is_written_asynchronously_just_where_that_is_claimed(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        sink = self.make(home, "append")
        # Unlike the rate source, which waits for the next second, it has rows for every batch.
        reader = spark.readStream.name(NAME).format("rate-micro-batch").option("rowsPerBatch", 10)
        frame = reader.load().selectExpr("CAST(value AS STRING) AS name", "value AS total")
        writer, context = self.prepare(sink, frame, tmp_path, "append")
        query = writer.trigger(processingTime="100 milliseconds").start()
        try:
            ends = time.monotonic() + PATIENCE
            while (made := (query.lastProgress or {"batchId": 0})["batchId"] + 1) < 3:
                assert query.exception() is None
                assert time.monotonic() < ends, "the stream made no batches"
                time.sleep(0.05)
        finally:
            query.stop()
        assert (len(numbered_files(context.checkpoint / Part.OFFSETS)) < made) is sink.facts.async_progress

    def prepare(
        self, sink: Sink, frame: DataFrame, tmp_path: Path, mode: OutputMode
    ) -> tuple[DataStreamWriter, SinkContext]:
        """Return a writer of `frame` into the sink, of a query that has not run before."""
        context = SinkContext(query=f"q_{uuid4().hex}", generation=1, mode=mode, checkpoint=tmp_path / "checkpoint")
        opened = sink.open(frame, context)
        frame = opened.serialize(frame)
        writer: Any = frame.writeStream.outputMode(mode).option("checkpointLocation", str(context.checkpoint))
        return opened.attach(writer), context


STEPS = 3

Rows = dict[int, list[tuple[Any, ...]]]


def drain(frame: DataFrame, checkpoint: Path) -> tuple[Rows, list[Any]]:
    """Return the rows of each batch that a stream makes of what is there, and its progress."""
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
    """Return the rows of each batch of a stream that `feed` gives rows to after its first batch, until one has some."""
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
    """Return the prefix of one source in the checkpoint, up to the last committed batch."""
    read = Checkpoint(checkpoint)
    last = read.last_committed
    archive, names = Archive(checkpoint / "archive.jsonl"), SourceNames.same(name)
    return committed_prefix(read, archive, names, -1 if last is None else last)[name]


def forget_commit(checkpoint: Path) -> int:
    """Delete the newest commit file, as after a crash just before it was written.

    Returns:
        The batch of that commit.

    Raises:
        ValueError: The checkpoint has no commit.
    """
    last = Checkpoint(checkpoint).last_committed
    if last is None:
        raise ValueError(f"'{checkpoint}' has no commit to forget")
    for file in (checkpoint / Part.COMMITS / str(last), checkpoint / Part.COMMITS / f".{last}.crc"):
        file.unlink(missing_ok=True)
    return last
