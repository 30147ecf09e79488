"""What every sink must hold."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.restore import Past
from headrace.contract import OUTPUT_MODES, OutputMode, Sink, SinkContext, readable_back
from headrace.errors import CheckpointError, Fenced, HeadraceError, LeaseLost, NothingChanged, SinkError
from headrace.testing.conformance.triggers import NAME, STEPS, SinkTriggers, forget_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def _lose_lease() -> None:
    raise LeaseLost(code="HR526", what="another process has the lease", fix="look how it stands: headrace status")


class SinkConformance(SinkTriggers):
    """What every sink must hold.

    rewound: the modes of which the first that the sink has is brought back to an earlier batch.
    """

    rewound: ClassVar[tuple[OutputMode, ...]] = ("update", "append", "complete")

    def result(self, frame: DataFrame, mode: OutputMode) -> DataFrame:
        """Return the query: the rows as they are in append mode, or the total of each name."""
        from pyspark.sql import functions as F

        if mode == "append":
            return frame.select("name", "total")
        return frame.groupBy("name").agg(F.sum("total").alias("total"))

    def rows(self, step: int) -> Iterator[dict[str, Any]]:
        """Yield the input of one step: names are new in each, but for one that comes in every step."""
        for number in range(4):
            yield {"name": f"n{step}{number}", "total": step * 10 + number, "step": step}

    def feed(self, tmp_path: Path, step: int, *, shared: bool) -> None:
        """Write the input of one step."""
        place = tmp_path / "input"
        place.mkdir(exist_ok=True)
        rows = [*self.rows(step), *([{"name": "shared", "total": step, "step": step}] if shared else [])]
        unfinished = tmp_path / "unfinished"
        unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
        unfinished.rename(place / f"{step}.json")

    def make_rewindable(self, home: Path, mode: OutputMode) -> Sink:
        """Return the sink with the options that it needs to go back to an earlier batch."""
        return self.make(home, mode)

    def context(self, tmp_path: Path, mode: OutputMode, **more: Any) -> SinkContext:
        return SinkContext(query=f"q_{mode}", generation=1, mode=mode, checkpoint=tmp_path / "checkpoint", **more)

    def frame(
        self, spark: SparkSession, tmp_path: Path, mode: OutputMode, *, stream: bool, steps: int = 1
    ) -> DataFrame:
        """Return the query over all input; as a stream, with that of so many steps in a batch."""
        (tmp_path / "input").mkdir(exist_ok=True)
        reader: Any = spark.readStream.name(NAME).option("maxFilesPerTrigger", steps) if stream else spark.read
        frame = reader.schema("name STRING, total BIGINT, step INT").json(str(tmp_path / "input"))
        return self.result(frame, mode)

    def start(
        self, spark: SparkSession, sink: Sink, tmp_path: Path, context: SinkContext, *, ends: bool, steps: int = 1
    ) -> StreamingQuery:
        """Prepare the sink and start the stream, until all input is taken if `ends`."""
        frame = self.frame(spark, tmp_path, context.mode, stream=True, steps=steps)
        opened = sink.open(frame, context)
        frame = opened.serialize(frame)
        writer = frame.writeStream.outputMode(context.mode).option("checkpointLocation", str(context.checkpoint))
        writer = writer.trigger(availableNow=True) if ends else writer.trigger(processingTime="100 milliseconds")
        query = opened.attach(writer).start()
        if ends:
            query.awaitTermination()
        return query

    def catch_up(self, spark: SparkSession, sink: Sink, tmp_path: Path, context: SinkContext) -> None:
        """Let one batch take all input that is new."""
        self.start(spark, sink, tmp_path, context, ends=True, steps=100)

    def read_written(self, spark: SparkSession, sink: Sink, context: SinkContext) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, sink.read_back(spark, context).rows.collect()))

    def answer(self, spark: SparkSession, tmp_path: Path, mode: OutputMode) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.frame(spark, tmp_path, mode, stream=False).collect()))

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]] | None:
        """Read the result's names and totals by another program than Spark and the sink; None: there is none."""
        return None

    def assert_client_reads_input(self, home: Path, tmp_path: Path, mode: OutputMode) -> None:
        """Compare what another program reads with the rows that were put in, without Spark."""
        read = self.read_by_client(home)
        if read is None:
            return
        rows = [json.loads(line) for file in (tmp_path / "input").glob("*.json") for line in file.open()]
        expected = [(row["name"], row["total"]) for row in rows]
        if mode != "append":
            totals: Counter[str] = Counter()
            for name, total in expected:
                totals[name] += total
            expected = list(totals.items())
        assert sorted((name, int(total)) for name, total in read) == sorted(expected)

    @pytest.mark.parametrize("mode", OUTPUT_MODES)
    def test_several_batches_end_in_the_batch_answer(
        self, spark: SparkSession, home: Path, tmp_path: Path, mode: OutputMode
    ) -> None:
        sink, context = self.make(home, mode), self.context(tmp_path, mode)
        assert isinstance(sink, Sink)
        faults = [problem for problem in sink.problems(mode) if problem.severity == "error"]
        assert (not faults) is (mode in sink.facts.modes)
        assert json.loads(json.dumps(sink.identity())) == sink.identity()
        if faults:
            return
        for step in range(STEPS):
            self.feed(tmp_path, step, shared=mode != "append")
        self.start(spark, sink, tmp_path, context, ends=True)
        if sink.facts.adds_files and sink.project_path:
            assert len(list(Path(sink.project_path).rglob("*part-*"))) >= STEPS
        self.assert_client_reads_input(home, tmp_path, mode)
        if not readable_back(sink):
            with pytest.raises(SinkError):
                sink.read_back(spark, context)
            return
        assert self.read_written(spark, sink, context) == self.answer(spark, tmp_path, mode)
        assert sink.read_back(spark, context).batch in ((STEPS - 1,) if sink.facts.durable else (None,))
        if sink.ledger is not None:
            assert sink.ledger.checkpoint_id(context) in (None, Checkpoint(context.checkpoint).id)

    @pytest.mark.parametrize("mode", OUTPUT_MODES)
    def test_a_batch_that_comes_again_changes_nothing(
        self, spark: SparkSession, home: Path, tmp_path: Path, mode: OutputMode
    ) -> None:
        """The batch comes again in a run without an end; in append mode the query has another name by then."""
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
        if not sink.facts.durable and mode == "append" and readable_back(sink):
            with pytest.raises(SinkError):
                self.start(spark, again, tmp_path, context, ends=True)
            return
        if mode == "append":
            context = replace(context, query="renamed")
        query = self.start(spark, again, tmp_path, context, ends=False)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        if readable_back(sink):
            assert self.read_written(spark, again, context) == self.answer(spark, tmp_path, mode)
            self.assert_client_reads_input(home, tmp_path, mode)

    def test_an_older_driver_writes_nothing_more(self, spark: SparkSession, home: Path, tmp_path: Path) -> None:
        mode: OutputMode = "append"
        errors: list[HeadraceError] = []
        self.feed(tmp_path, 0, shared=False)
        older, context = self.make(home, mode), self.context(tmp_path, mode, on_error=errors.append)
        query = self.start(spark, older, tmp_path, context, ends=False)
        newer = self.make(home, mode)
        try:
            query.processAllAvailable()
            if not older.facts.transactional:
                # Such a sink cannot distinguish two drivers: the older one continues.
                with suppress(SinkError):
                    newer.open(self.frame(spark, tmp_path, mode, stream=True), context)
                self.feed(tmp_path, 1, shared=False)
                query.processAllAvailable()
                assert (query.isActive, errors) == (True, [])
                return
            # A start that was stopped for longer than its lease enters nothing, so that the older one goes on.
            late = replace(context, before_entering=_lose_lease)
            with pytest.raises(LeaseLost):
                newer.open(self.frame(spark, tmp_path, mode, stream=True), late)
            self.feed(tmp_path, 1, shared=False)
            query.processAllAvailable()
            assert (query.isActive, errors) == (True, [])
            before = self.read_written(spark, older, context)
            newer.open(self.frame(spark, tmp_path, mode, stream=True), context)
            self.feed(tmp_path, 2, shared=False)
            with pytest.raises(Exception, match="newer driver"):
                query.processAllAvailable()
        finally:
            query.stop()
        assert [type(fault) for fault in errors] == [Fenced]
        assert self.read_written(spark, older, context) == before

    def test_a_copy_of_the_storage_is_refused_and_nothing_is_doubled(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        """Two copies of one storage directory plan different rows for one batch: the second to write is refused."""
        mode: OutputMode = "append"
        errors: list[HeadraceError] = []
        first = self.context(tmp_path, mode, on_error=errors.append)
        if not self.make(home, mode).facts.transactional:
            return
        self.feed(tmp_path, 0, shared=False)
        self.start(spark, self.make(home, mode), tmp_path, first, ends=True)
        copy = replace(first, checkpoint=tmp_path / "copy" / "checkpoint")
        shutil.copytree(first.checkpoint, copy.checkpoint)
        self.feed(tmp_path, 1, shared=False)
        self.start(spark, self.make(home, mode), tmp_path, copy, ends=True)
        held = self.answer(spark, tmp_path, mode)
        assert self.read_written(spark, self.make(home, mode), copy) == held
        (tmp_path / "input" / "1.json").unlink()
        self.feed(tmp_path, 2, shared=False)
        try:
            self.start(spark, self.make(home, mode), tmp_path, first, ends=True)
        except HeadraceError as error:
            errors.append(error)
        except Exception:
            assert errors, "a batch of the copy's failed, and the sink does not say why"
        assert errors, "a batch was taken for the one that the copy had written, and its rows are lost"
        assert self.read_written(spark, self.make(home, mode), copy) == held

    def test_a_query_begins_again_next_to_its_result_or_over_it(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        """Each step is made twice, as after a crash; what was archived comes back as it was, ledger included."""
        modes = [mode for mode in OUTPUT_MODES if mode in self.make(home, mode).facts.modes]
        sink = self.make(home, modes[0])
        if not sink.facts.durable:
            return
        for step in range(2):
            self.feed(tmp_path, step, shared=False)
        first = self.context(tmp_path, modes[0], application="mine")
        second = replace(first, generation=2, checkpoint=tmp_path / "second" / "checkpoint")
        if sink.reset.droppable:
            assert sink.reset.row_counts(first, lambda: spark) == ()
            self.catch_up(spark, sink, tmp_path, first)
            before = self.read_written(spark, sink, first)
            assert [rows.count for rows in sink.reset.row_counts(first, lambda: spark)][:1] > [0]
            for way in ("archive", "archive", "restore", "restore"):
                getattr(sink.reset, way)(first, lambda: spark)
            assert self.read_written(spark, self.make(home, modes[0]), first) == before
            self.feed(tmp_path, 2, shared=False)
            self.catch_up(spark, self.make(home, modes[0]), tmp_path, first)
            assert self.read_written(spark, sink, first) == self.answer(spark, tmp_path, modes[0])
            sink.reset.archive(first, lambda: spark)
            assert sink.reset.row_counts(second, lambda: spark) == ()
            self.catch_up(spark, self.make(home, modes[0]), tmp_path, second)
            with pytest.raises(NothingChanged, match="HR583"):
                sink.reset.restore(first, lambda: spark)
            sink.reset.discard(first, lambda: spark)
            assert self.read_written(spark, sink, second) == self.answer(spark, tmp_path, modes[0])
            sink.reset.archive(second, lambda: spark)
        mode = next((mode for mode in modes if sink.reset.judge_keeping(mode).possible), None)
        if mode is None or not readable_back(sink):
            return
        sink = self.make(home, mode)
        first = replace(
            first, query="q_kept", query_id="q_kept", mode=mode, checkpoint=tmp_path / "third" / "checkpoint"
        )
        second = replace(first, generation=2, checkpoint=tmp_path / "fourth" / "checkpoint")
        self.catch_up(spark, sink, tmp_path, first)
        for ends, begins in ((first, 2), (first, 2), (second, 1)):
            sink.reset.hand_over(ends, begins, lambda: spark)
        self.feed(tmp_path, 3, shared=False)
        self.catch_up(spark, self.make(home, mode), tmp_path, first)
        assert self.read_written(spark, sink, first) == self.answer(spark, tmp_path, mode)
        sink.reset.hand_over(first, 2, lambda: spark)
        # With as many batches as the first life had, or more: what is kept may be replaced batch by batch.
        self.start(spark, self.make(home, mode), tmp_path, second, ends=True, steps=2)
        assert self.read_written(spark, sink, second) == self.answer(spark, tmp_path, mode)

    def test_a_rebuilt_result_takes_the_place_of_the_former_one_and_gives_it_back(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        """Each exchange is made twice, as after a crash; both results continue where they were, ledgers included."""
        mode = next(mode for mode in OUTPUT_MODES if mode in self.make(home, mode).facts.modes)
        sink = self.make(home, mode)
        if (swap := sink.swap) is None:
            return
        for step in range(2):
            self.feed(tmp_path, step, shared=False)
        former = self.context(tmp_path, mode, application="mine")
        rebuilt = replace(former, generation=2, checkpoint=tmp_path / "second" / "checkpoint", rebuilds=True)
        placed = replace(rebuilt, rebuilds=False)
        self.catch_up(spark, sink, tmp_path, former)
        before = self.read_written(spark, sink, former)
        self.feed(tmp_path, 2, shared=False)
        self.catch_up(spark, swap.shadow, tmp_path, rebuilt)
        for _ in range(2):
            swap.swap_in(former, rebuilt, lambda: spark)
        assert self.read_written(spark, self.make(home, mode), placed) == self.answer(spark, tmp_path, mode)
        self.feed(tmp_path, 3, shared=False)
        self.catch_up(spark, self.make(home, mode), tmp_path, placed)
        whole = self.answer(spark, tmp_path, mode)
        assert self.read_written(spark, self.make(home, mode), placed) == whole
        for _ in range(2):
            swap.swap_out(former, rebuilt, lambda: spark)
        assert self.read_written(spark, self.make(home, mode), former) == before
        assert self.read_written(spark, swap.shadow, rebuilt) == whole
        self.catch_up(spark, self.make(home, mode), tmp_path, former)
        assert self.read_written(spark, self.make(home, mode), former) == whole
        self.assert_client_reads_input(home, tmp_path, mode)
        swap.swap_in(former, rebuilt, lambda: spark)
        assert self.read_written(spark, self.make(home, mode), placed) == whole
        self.assert_client_reads_input(home, tmp_path, mode)
        swap.swap_out(former, rebuilt, lambda: spark)
        swap.drop_shadow(rebuilt, lambda: spark)
        with pytest.raises((SinkError, CheckpointError)):
            swap.shadow.read_back(spark, rebuilt)
        assert self.read_written(spark, self.make(home, mode), former) == whole

    def test_a_result_goes_back_to_an_earlier_batch_and_forward_again(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        """Each step is made twice, as after a crash; batches come again over a checkpoint that went back as well."""
        mode = next(mode for mode in self.rewound if mode in self.make(home, mode).facts.modes)
        sink = self.make_rewindable(home, mode)
        if sink.rewind is None or sink.rewind.hindrance(mode):
            return
        context = self.context(tmp_path, mode, application="mine")
        assert sink.rewind.earliest(context, 0, lambda: spark) is None
        answers = []
        for step in range(3):
            self.feed(tmp_path, step, shared=mode != "append")
            answers.append(self.answer(spark, tmp_path, mode))
            if step:  # two batches of one start, and one of another
                self.start(spark, self.make_rewindable(home, mode), tmp_path, context, ends=True)
        assert sink.rewind.earliest(context, 0, lambda: spark) == 0
        assert not sink.rewind.list_taken_back(context, 2, lambda: spark)
        checkpoint, place = Checkpoint(context.checkpoint), tmp_path / "earlier"
        for batch in (1, 0):
            assert sink.rewind.list_taken_back(context, batch, lambda: spark)
            for _ in range(2):
                sink.rewind.go_back(context, batch, lambda: spark)
            assert self.read_written(spark, self.make_rewindable(home, mode), context) == answers[batch]
            if batch == 1:
                for _ in range(2):
                    sink.rewind.undo(context, batch, lambda: spark)
                assert self.read_written(spark, sink, context) == answers[2]
        Past.of(checkpoint, Archive(tmp_path / "archive.jsonl")).copy(place, 0)
        context.checkpoint.rename(tmp_path / "former")
        place.rename(context.checkpoint)
        self.start(spark, self.make_rewindable(home, mode), tmp_path, context, ends=True)
        assert self.read_written(spark, sink, context) == answers[2]
        self.assert_client_reads_input(home, tmp_path, mode)
        with pytest.raises(NothingChanged, match="HR583"):
            sink.rewind.undo(context, 0, lambda: spark)
        for _ in range(2):
            sink.rewind.forget(context, lambda: spark)
        sink.rewind.undo(context, 0, lambda: spark)
        sink.rewind.go_back(context, 0, lambda: spark)
        assert self.read_written(spark, sink, context) == answers[0]
