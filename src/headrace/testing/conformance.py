"""The suites that prove the facts of a source or a sink by real streams; a connector's tests subclass them.

    class TestTickets(SourceConformance):
        def make(self, home): return Tickets(path=str(home))
        def feed(self, home, step): write_some_tickets(home, step)

Run them with pytest and a fixture `spark`. What a connector does not claim must not work either: a claim that is
missing fails as well as one that is false.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.prefix import committed_prefix
from headrace.contract import (
    OUTPUT_MODES,
    OutputMode,
    Sink,
    SinkContext,
    Source,
    SourcePrefix,
    bad_rows_metric,
)
from headrace.errors import Fenced, HeadraceError, SinkError, SourceError
from headrace.testing.triggers import NAME, PATIENCE, SinkTriggers, SourceTriggers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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


class SourceConformance(SourceTriggers):
    """What every source must hold."""

    def spoil(self, home: Path) -> None:
        """Bring about one row that does not fit, for a source that sets such rows aside."""

    def test_the_connector_keeps_the_protocol(self, home: Path) -> None:
        source = self.make(home)
        assert isinstance(source, Source)
        assert [problem.what for problem in source.problems() if problem.severity == "error"] == []

    def test_a_batch_without_commit_comes_again_with_the_same_rows(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        source, checkpoint = self.make(home), tmp_path / "checkpoint"
        first: Rows = {}
        if source.facts.ephemeral:
            first = drain_live(source.stream(spark, NAME), checkpoint, lambda: self.feed(home, 0))
        for step in range(0 if source.facts.ephemeral else 2):
            self.feed(home, step)
            first |= drain(source.stream(spark, NAME), checkpoint)[0]
        last = forget_commit(checkpoint)
        if not source.facts.ephemeral:
            self.feed(home, 2)
        again = drain(source.stream(spark, NAME), checkpoint)[0]
        assert first[last]
        assert (again[last] == first[last]) is source.facts.replayable

    def test_the_committed_prefix_reads_as_the_stream_gave_it(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        source, checkpoint = self.make(home), tmp_path / "checkpoint"
        if source.facts.ephemeral:
            drain_live(source.stream(spark, NAME), checkpoint, lambda: self.feed(home, 0))
            with pytest.raises(SourceError):
                source.read(spark, prefix_of(checkpoint)).collect()
            return
        streamed: list[tuple[Any, ...]] = []
        for step in range(STEPS):
            self.feed(home, step)
            frame = source.stream(spark, NAME)
            streamed += [(*row, batch) for batch, rows in drain(frame, checkpoint)[0].items() for row in rows]
        if not source.readable_as_batch:
            with pytest.raises(SourceError):
                source.read(spark, prefix_of(checkpoint)).collect()
            return
        prefix = prefix_of(checkpoint)
        assert source.read(spark, prefix).schema == frame.schema
        read = source.read(spark, prefix, batch_column="batch")
        assert read.columns == [*frame.columns, "batch"]
        assert sorted(map(tuple, read.collect()), key=repr) == sorted(streamed, key=repr)
        assert len({row[-1] for row in streamed}) > 1

    def test_an_empty_prefix_reads_as_no_rows(self, spark: SparkSession, home: Path) -> None:
        source = self.make(home)
        empty = source.read(spark, SourcePrefix(batches=()), batch_column="batch")
        assert empty.collect() == []
        assert empty.columns == [*source.stream(spark, NAME).columns, "batch"]

    def test_a_batch_is_no_larger_than_the_limit(self, spark: SparkSession, home: Path, tmp_path: Path) -> None:
        source, checkpoint = self.make(home), tmp_path / "checkpoint"
        if source.facts.ephemeral:
            assert not source.facts.rate_limited
            assert list(drain(source.stream(spark, NAME), checkpoint)[0].values()) in ([], [[]])
            return
        self.feed(home, 0)
        one_step = sum(map(len, drain(source.stream(spark, NAME), checkpoint)[0].values()))
        for step in range(1, STEPS):
            self.feed(home, step)
        rows = drain(source.stream(spark, NAME), checkpoint)[0]
        assert (max(map(len, rows.values())) <= one_step) is source.facts.rate_limited

    def test_rows_that_do_not_fit_are_counted_and_listed(self, spark: SparkSession, home: Path, tmp_path: Path) -> None:
        source, checkpoint = self.make(home), tmp_path / "checkpoint"
        if not source.quarantines:
            assert source.rejected_rows(spark, SourcePrefix(batches=())) is None
            return
        self.feed(home, 0)
        self.spoil(home)
        _, progress = drain(source.stream(spark, NAME), checkpoint)
        counted = sum(batch.observedMetrics[bad_rows_metric(NAME)]["rows"] for batch in progress)
        listed = source.rejected_rows(spark, prefix_of(checkpoint))
        assert listed is not None
        assert listed.columns == ["file", "record", "batch"]
        assert counted == listed.count() == 1


class SinkConformance(SinkTriggers):
    """What every sink must hold."""

    def result(self, frame: DataFrame, mode: OutputMode) -> DataFrame:
        """The query: the rows as they are in append mode, or the total of each name."""
        from pyspark.sql import functions as F

        if mode == "append":
            return frame.select("name", "total")
        return frame.groupBy("name").agg(F.sum("total").alias("total"))

    def rows(self, step: int) -> Iterator[dict[str, Any]]:
        """The input of one step: names are new in each, but for one that comes in every step."""
        for number in range(4):
            yield {"name": f"n{step}{number}", "total": step * 10 + number, "step": step}

    def feed(self, tmp_path: Path, step: int, *, shared: bool) -> None:
        """Let the input of one step land."""
        place = tmp_path / "input"
        place.mkdir(exist_ok=True)
        rows = [*self.rows(step), *([{"name": "shared", "total": step, "step": step}] if shared else [])]
        unfinished = tmp_path / "unfinished"
        unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
        unfinished.rename(place / f"{step}.json")

    def context(self, tmp_path: Path, mode: OutputMode, **more: Any) -> SinkContext:
        return SinkContext(query=f"q_{mode}", generation=1, mode=mode, checkpoint=tmp_path / "checkpoint", **more)

    def frame(self, spark: SparkSession, tmp_path: Path, mode: OutputMode, *, stream: bool) -> DataFrame:
        (tmp_path / "input").mkdir(exist_ok=True)
        reader: Any = spark.readStream.name(NAME).option("maxFilesPerTrigger", 1) if stream else spark.read
        frame = reader.schema("name STRING, total BIGINT, step INT").json(str(tmp_path / "input"))
        return self.result(frame, mode)

    def start(
        self, spark: SparkSession, sink: Sink, tmp_path: Path, context: SinkContext, *, ends: bool
    ) -> StreamingQuery:
        """Prepare the sink and start the stream, until all input is taken if `ends`."""
        frame = self.frame(spark, tmp_path, context.mode, stream=True)
        opened = sink.open(frame, context)
        frame = opened.serialize(frame)
        writer = frame.writeStream.outputMode(context.mode).option("checkpointLocation", str(context.checkpoint))
        writer = writer.trigger(availableNow=True) if ends else writer.trigger(processingTime="100 milliseconds")
        query = opened.attach(writer).start()
        if ends:
            query.awaitTermination()
        return query

    def written(self, spark: SparkSession, sink: Sink, context: SinkContext) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, sink.read_back(spark, context).rows.collect()))

    def answer(self, spark: SparkSession, tmp_path: Path, mode: OutputMode) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.frame(spark, tmp_path, mode, stream=False).collect()))

    @pytest.mark.parametrize("mode", OUTPUT_MODES)
    def test_several_batches_end_in_the_batch_answer(
        self, spark: SparkSession, home: Path, tmp_path: Path, mode: OutputMode
    ) -> None:
        sink, context = self.make(home, mode), self.context(tmp_path, mode)
        assert isinstance(sink, Sink)
        faults = [problem for problem in sink.problems(mode) if problem.severity == "error"]
        assert (not faults) is (mode in sink.facts.modes)
        if faults:
            return
        for step in range(STEPS):
            self.feed(tmp_path, step, shared=mode != "append")
        self.start(spark, sink, tmp_path, context, ends=True)
        if not sink.readable_back:
            with pytest.raises(SinkError):
                sink.read_back(spark, context)
            return
        assert self.written(spark, sink, context) == self.answer(spark, tmp_path, mode)
        assert sink.read_back(spark, context).batch in ((STEPS - 1,) if sink.facts.durable else (None,))

    @pytest.mark.parametrize("mode", OUTPUT_MODES)
    def test_a_batch_that_comes_again_changes_nothing(
        self, spark: SparkSession, home: Path, tmp_path: Path, mode: OutputMode
    ) -> None:
        sink, context = self.make(home, mode), self.context(tmp_path, mode)
        if mode not in sink.facts.modes:
            assert any(problem.severity == "error" for problem in sink.problems(mode))
            return
        for step in range(2):
            self.feed(tmp_path, step, shared=mode != "append")
        self.start(spark, sink, tmp_path, context, ends=True)
        forget_commit(context.checkpoint)
        self.feed(tmp_path, 2, shared=mode != "append")
        again = self.make(home, mode)
        if not sink.facts.durable and mode == "append" and sink.readable_back:
            with pytest.raises(SinkError):
                self.start(spark, again, tmp_path, context, ends=True)
            return
        self.start(spark, again, tmp_path, context, ends=True)
        if sink.readable_back:
            assert self.written(spark, again, context) == self.answer(spark, tmp_path, mode)

    def test_an_older_driver_writes_nothing_more(self, spark: SparkSession, home: Path, tmp_path: Path) -> None:
        mode: OutputMode = "append"
        told: list[HeadraceError] = []
        self.feed(tmp_path, 0, shared=False)
        older, context = self.make(home, mode), self.context(tmp_path, mode, failed=told.append)
        query = self.start(spark, older, tmp_path, context, ends=False)
        newer = self.make(home, mode)
        try:
            query.processAllAvailable()
            if not older.facts.transactional:
                # Nothing tells two drivers of such a sink apart: the older one goes on.
                with suppress(SinkError):
                    newer.open(self.frame(spark, tmp_path, mode, stream=True), context)
                self.feed(tmp_path, 1, shared=False)
                query.processAllAvailable()
                assert (query.isActive, told) == (True, [])
                return
            before = self.written(spark, older, context)
            newer.open(self.frame(spark, tmp_path, mode, stream=True), context)
            self.feed(tmp_path, 1, shared=False)
            with pytest.raises(Exception, match="newer driver"):
                query.processAllAvailable()
        finally:
            query.stop()
        assert [type(fault) for fault in told] == [Fenced]
        assert self.written(spark, older, context) == before
