"""What every source must hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import Source, SourcePrefix, bad_rows_metric
from headrace.errors import SourceError
from headrace.testing.conformance import triggers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SourceConformance(triggers.SourceTriggers):
    """What every source must hold."""

    def spoil(self, home: Path) -> None:
        """Produce one row that does not fit, for a source that quarantines such rows."""

    @staticmethod
    def fed_together(source: Source, steps: int) -> list[range]:
        """Return the steps before each start of a stream: two, if each gets its own batch anyway."""
        size = 2 if source.facts.rate_limited else 1
        return [range(first, min(first + size, steps)) for first in range(0, steps, size)]

    def test_the_connector_keeps_the_protocol(self, home: Path) -> None:
        source = self.make(home)
        assert isinstance(source, Source)
        assert [problem.what for problem in source.problems() if problem.severity == "error"] == []
        assert json.loads(json.dumps(source.identity())) == source.identity()

    def test_a_batch_without_commit_comes_again_with_the_same_rows(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        source, checkpoint = self.make(home), tmp_path / "checkpoint"
        first: triggers.Rows = {}
        if source.facts.ephemeral:
            first = triggers.drain_live(source.stream(spark, triggers.NAME), checkpoint, lambda: self.feed(home, 0))
        for steps in () if source.facts.ephemeral else self.fed_together(source, 2):
            for step in steps:
                self.feed(home, step)
            first |= triggers.drain(source.stream(spark, triggers.NAME), checkpoint)[0]
        last = triggers.forget_commit(checkpoint)
        if not source.facts.ephemeral:
            self.feed(home, 2)
        again = triggers.drain(source.stream(spark, triggers.NAME), checkpoint)[0]
        assert first[last]
        assert (again[last] == first[last]) is source.facts.replayable

    def test_the_committed_prefix_reads_as_the_stream_gave_it(
        self, spark: SparkSession, home: Path, tmp_path: Path
    ) -> None:
        source, checkpoint = self.make(home), tmp_path / "checkpoint"
        if source.facts.ephemeral:
            triggers.drain_live(source.stream(spark, triggers.NAME), checkpoint, lambda: self.feed(home, 0))
            with pytest.raises(SourceError):
                source.read(spark, triggers.prefix_of(checkpoint)).collect()
            return
        streamed: list[tuple[Any, ...]] = []
        for steps in self.fed_together(source, triggers.STEPS):
            for step in steps:
                self.feed(home, step)
            frame = source.stream(spark, triggers.NAME)
            streamed += [(*row, batch) for batch, rows in triggers.drain(frame, checkpoint)[0].items() for row in rows]
        if not source.readable_as_batch:
            with pytest.raises(SourceError):
                source.read(spark, triggers.prefix_of(checkpoint)).collect()
            return
        prefix = triggers.prefix_of(checkpoint)
        assert source.read(spark, prefix).schema == frame.schema
        read = source.read(spark, prefix, batch_column="batch")
        assert read.columns == [*frame.columns, "batch"]
        assert sorted(map(tuple, read.collect()), key=repr) == sorted(streamed, key=repr)
        assert len({row[-1] for row in streamed}) > 1

    def test_an_empty_prefix_reads_as_no_rows(self, spark: SparkSession, home: Path) -> None:
        source = self.make(home)
        empty = source.read(spark, SourcePrefix(batches=()), batch_column="batch")
        assert empty.collect() == []
        assert empty.columns == [*source.stream(spark, triggers.NAME).columns, "batch"]

    def test_a_batch_is_no_larger_than_the_limit(self, spark: SparkSession, home: Path, tmp_path: Path) -> None:
        source, checkpoint = self.make(home), tmp_path / "checkpoint"
        if source.facts.ephemeral:
            assert not source.facts.rate_limited
            assert list(triggers.drain(source.stream(spark, triggers.NAME), checkpoint)[0].values()) in ([], [[]])
            return
        self.feed(home, 0)
        one_step = sum(map(len, triggers.drain(source.stream(spark, triggers.NAME), checkpoint)[0].values()))
        for step in range(1, triggers.STEPS):
            self.feed(home, step)
        rows = triggers.drain(source.stream(spark, triggers.NAME), checkpoint)[0]
        assert (max(map(len, rows.values())) <= one_step) is source.facts.rate_limited

    def test_rows_that_do_not_fit_are_counted_and_listed(self, spark: SparkSession, home: Path, tmp_path: Path) -> None:
        source, checkpoint = self.make(home), tmp_path / "checkpoint"
        if not source.quarantines:
            assert source.rejected_rows(spark, SourcePrefix(batches=())) is None
            return
        self.feed(home, 0)
        self.spoil(home)
        _, progress = triggers.drain(source.stream(spark, triggers.NAME), checkpoint)
        counted = sum(batch.observedMetrics[bad_rows_metric(triggers.NAME)]["rows"] for batch in progress)
        listed = source.rejected_rows(spark, triggers.prefix_of(checkpoint))
        assert listed is not None
        assert listed.columns == ["file", "record", "batch"]
        assert counted == listed.count() == 1
