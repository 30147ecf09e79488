"""What the batches of running queries become: the archive, the history, the quarantine, and what is said of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.contract import Observer
from headrace.errors import Finding
from headrace.model import Project
from headrace.observe.progress import BatchRecord
from headrace.redaction import redacted
from headrace.run.counted import missed_records, rightly_counted
from headrace.run.notes import Notes
from headrace.run.query_run import QueryRun
from headrace.spark.messages.refusals import is_from_spark
from headrace.spark.plans.plan_text import plan_text
from headrace.spark.stream.work import batch_work, task_skew
from headrace.storage.durable import replace_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEARTBEAT_SECONDS = 1.0
LOOK_SECONDS, LOOKS = 1.0, 4
# The tasks of a shorter batch differ by what the machine does beside them.
SKEW_FROM_MS = 500
PLAN_LONGEST = 200_000


class Account:
    """Keeps account of the queries of one run; a failure of it is reported once and ends no stream."""

    def __init__(self, project: Project, spark: SparkSession, notes: Notes, reporter: Observer) -> None:
        self.project = project
        self.spark = spark
        self.notes = notes
        self.reporter = reporter
        self.heartbeat_at = 0.0
        self.look_at = 0.0

    def progressed(self, watched: QueryRun, json: str) -> None:
        """Take the report of a batch, as Spark's listener gives it."""
        record = BatchRecord.parse(
            json, source_names=watched.running.source_names, rows_tracked=watched.running.rows_tracked
        )
        if watched.last_batch is not None and record.batch <= watched.last_batch and record.rows == 0:
            return  # An idle query repeats its last progress.
        self.archive(watched)
        if watched.archive is not None:
            record = rightly_counted(self.project, watched.running, record, self.spark)
        record = self._with_times(watched, record)
        record = self._with_quarantine(watched, record)
        watched.batches += 1
        watched.rows += record.rows
        watched.last_batch = record.batch
        record = watched.with_lag(self.project, replace(record, query=watched.query.name))
        record = self._with_counters(watched, record)
        if watched.history_run is not None:
            self.notes.record(lambda history: history.record(watched.history_run, record))  # type: ignore[arg-type]
        self.reporter.progressed(record)
        for ill in watched.new_warnings(record):
            self.notes.tell(ill)
        if watched.batches == 1 and watched.archive is not None:
            self.notes.guarded(watched.query, lambda: self._keep_plan(watched))

    def _with_times(self, watched: QueryRun, record: BatchRecord) -> BatchRecord:
        """The record with what the sink took of the batch, and how uneven its tasks were."""
        running, seconds = watched.running, watched.running.written.pop(record.batch, None)
        skew = None
        if record.duration_ms >= SKEW_FROM_MS:
            skew, running.last_job = task_skew(self.spark, record.run_id, after=running.last_job)
        # Spark's figure is of whole milliseconds, and its clock another.
        most = record.durations.get("addBatch", record.duration_ms)
        write_ms = None if seconds is None else min(most, round(1000 * seconds))
        return replace(record, write_ms=write_ms, skew=skew)

    def _with_quarantine(self, watched: QueryRun, record: BatchRecord) -> BatchRecord:
        """The record with how many rows of it were quarantined, which are written there first."""
        quarantine = watched.quarantine
        if quarantine is None:
            return record
        self.notes.guarded(watched.query, lambda: list(map(self.notes.tell, quarantine.batch_done(record))))
        written = quarantine.written.pop(record.batch, {})
        sources = (replace(each, quarantined=written.get(each.name, each.quarantined)) for each in record.sources)
        return replace(record, sources=tuple(sources))

    def _keep_plan(self, watched: QueryRun) -> None:
        """Note the plans of the first batch, for pages that start no Spark."""
        try:
            text = plan_text(watched.running.handle)
        except Exception as error:
            if not is_from_spark(error):
                raise
            return  # It has ended meanwhile.
        replace_file(watched.running.layout.plan, redacted(text[:PLAN_LONGEST]))

    def missed(self, watched: QueryRun, committed: int) -> None:
        """Bring into the history what batches took that were committed by a driver that could not tell of it."""
        self.archive(watched)
        running, run_id = watched.running, watched.history_run
        if run_id is None:
            return
        missed: list[int] = []
        self.notes.record(
            lambda history: missed.extend(history.unreported(running.query.name, running.layout.generation, committed))
        )
        for found in missed_records(self.project, running, missed, self.spark):
            record = self._with_counters(watched, found)
            self.notes.record(lambda history, record=record: history.record(run_id, record))  # type: ignore[misc]

    def unreported(self, watched: QueryRun, committed: int | None) -> None:
        """Count the last batches up to `committed` that Spark has not told of, as on a machine that is too busy."""
        running = watched.running
        told = max((each for each in (watched.last_batch, watched.committed_before) if each is not None), default=-1)
        last = committed if watched.archive is not None else None
        unreported = range(told + 1, told + 1 if last is None else last + 1)
        if not unreported:
            return
        records = {each.batch: each for each in missed_records(self.project, running, unreported, self.spark)}
        for batch in unreported:
            watched.batches, watched.last_batch = watched.batches + 1, batch
            if batch not in records:
                continue  # What it read can be read no more.
            record = self._with_counters(watched, records[batch])
            watched.rows += record.rows
            if watched.history_run is not None:
                self.notes.record(lambda history, record=record: history.record(watched.history_run, record))  # type: ignore[misc]
            self.reporter.progressed(record)

    def _with_counters(self, watched: QueryRun, record: BatchRecord) -> BatchRecord:
        """The record of a committed batch with what the query's counters come to."""
        found: dict[str, Any] = {}
        self.notes.guarded(watched.query, lambda: found.update(watched.running.counters.committed(record.batch)))
        return replace(record, counters=found) if found else record

    def archive(self, watched: QueryRun) -> None:
        """Keep what the checkpoint will let go of."""
        archive = watched.archive
        if archive is not None:
            self.notes.guarded(watched.query, lambda: archive.catch_up(Checkpoint(watched.running.layout.checkpoint)))

    def tell_news(self, watched: QueryRun) -> None:
        """Tell what the sink had to say: an attempt that failed, rows quarantined."""
        while not watched.running.news.empty():
            self.notes.tell(watched.running.news.get())

    def warned(self, watched: QueryRun, found: Sequence[Finding]) -> None:
        """Let the history say what is wrong with a run that continues, or that nothing is."""
        run_id = watched.history_run
        ill = self.project.redacted_finding(found[0]) if found else None
        if run_id is not None:
            self.notes.record(lambda history: history.record_warning(run_id, ill))

    def look_inside(self, running: Iterable[QueryRun]) -> None:
        """Tell how far long batches are, of one query after another, so that many queries cost no more than few."""
        now = time.monotonic()
        if now < self.look_at:
            return
        self.look_at = now + LOOK_SECONDS
        busy = [each for each in running if now - each.event_at > LOOK_SECONDS]
        for watched in sorted(busy, key=lambda each: each.looked_at)[:LOOKS]:
            watched.looked_at = now
            seconds = now - watched.event_at
            work = batch_work(self.spark, str(watched.running.handle.runId), seconds=seconds)
            watched.at_work(work)
            if work is not None:
                self.reporter.working(watched.query.name, work)

    def beat(self, runs: Sequence[int]) -> None:
        """Let the history know that these runs, and this process, are alive."""
        now = time.monotonic()
        if now - self.heartbeat_at < HEARTBEAT_SECONDS:
            return
        self.heartbeat_at = now
        self.notes.record(lambda history: history.heartbeat(runs))
