"""What the batches of running queries become: their counts, the archive, the history, and what is said of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.sources import committed_prefix, source_of
from headrace.contract import BatchRecord, Observer, SourcePrefix, SourceProgress, bad_rows_metric
from headrace.errors import CheckpointError, Finding, HeadraceError, SourceError
from headrace.generations.log import history_file
from headrace.generations.register import former_names, read_register
from headrace.history import History
from headrace.model import Project, Query
from headrace.redaction import redacted
from headrace.runner.event_times import follow_on, name_sources, place_of, take_observed
from headrace.runner.query_run import QueryRun
from headrace.spark.messages.refusals import is_from_spark
from headrace.spark.plans.plan_text import plan_text, reads_again, reads_all
from headrace.spark.stream.work import batch_work, source_being_asked, task_failures, task_skew
from headrace.starter.running import Running
from headrace.storage.durable import replace_file
from headrace.units import instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Notes:
    """The history of a project, open for one run, and the run's reporter."""

    def __init__(self, project: Project, reporter: Observer) -> None:
        self._project = project
        self._reporter = reporter
        self._history: History | None = None
        self._warned_at: dict[Finding, float] = {}
        try:
            self._history = History.open(history_file(project.local_storage))
        except HeadraceError as error:
            self._warn(error)

    def record(self, write: Callable[[History], int | None]) -> int | None:
        """Write to the history; when that fails the streams continue without it, after one warning."""
        if self._history is None:
            return None
        try:
            return write(self._history)
        except HeadraceError as error:
            self._history = None
            self._warn(error)
            return None

    def report(self, finding: Finding, query: str | None = None) -> None:
        """Report a finding, without its secrets, and keep it among the events."""
        finding = self.show(finding)
        if self._history is not None:
            self.event("finding", query, None, {"finding": finding.as_dict()})

    def show(self, finding: Finding) -> Finding:
        """Report a finding, without its secrets, that is no event of its own; return it so."""
        finding = self._project.redacted_finding(finding)
        self._reporter.note(finding)
        return finding

    def event(self, kind: str, query: str | None, run: int | None, detail: dict[str, Any]) -> None:
        """Keep what happened to a query."""
        self.record(lambda history: history.note(kind, query, run, detail))

    def guard(self, query: Query, work: Callable[[], object]) -> None:
        """Do what accompanies the stream of `query`; its failure is reported, and the stream continues."""
        try:
            work()
        except HeadraceError as error:
            self._warn(error)
        except OSError as error:
            fault = (
                f"query '{query.name}': {error.filename or 'the storage'} cannot be written: {error.strerror or error}"
            )
            fix = "make room or give the right to write; what is missing is written with the next batch"
            self._warn(HeadraceError(Finding(code="HR544", what=fault, fix=fix, where=query.where)))

    def take_former_names(self, project: Project, query: Query) -> None:
        """Show the runs that the query had under former names as its own. Raises CheckpointError, PlatformError."""
        for former in former_names(project, query, read_register(project.storage)):
            self.record(lambda history, former=former: history.rename(former, query.name))  # type: ignore[misc]

    def close(self) -> None:
        if self._history is not None:
            self._history.close()

    def _warn(self, error: HeadraceError) -> None:
        """Report each finding of an error as a warning, one that repeats only every ten minutes."""
        for finding in error.findings:
            now = time.monotonic()
            if now - self._warned_at.get(finding, -math.inf) >= WARN_AGAIN_SECONDS:
                self._warned_at[finding] = now
                self.report(finding.with_severity("warning"))


WARN_AGAIN_SECONDS = 600.0
HEARTBEAT_SECONDS = 1.0
LOOK_SECONDS, LOOKS = 1.0, 4
# The tasks of a shorter batch differ by what else the machine does.
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
        record = BatchRecord.parse(json, source_names=watched.running.uses, rows_tracked=watched.running.rows_tracked)
        record = name_sources(record, watched.running.names)
        if watched.last_batch is not None and record.batch <= watched.last_batch and record.rows == 0:
            return  # An idle query repeats its last progress.
        self.archive(watched)
        if watched.archive is not None:
            record = rightly_counted(watched.running, record, self.spark)
        else:
            record = take_observed(record, 1)
        record = self._with_times(watched, record)
        record = self._with_quarantine(watched, record)
        if watched.late is not None:
            watched.late.batch_done(record)
        watched.batches += 1
        watched.rows += record.rows
        watched.last_batch = record.batch
        record = watched.with_lag(replace(record, query=watched.query.name))
        record = self._follow_on(watched, self._with_counters(watched, record))
        if watched.history_run is not None:
            self.notes.record(lambda history: history.record(watched.history_run, record))  # type: ignore[arg-type]
        self.reporter.progressed(record)
        for ill in watched.new_warnings(record):
            self.notes.report(ill)
        if watched.batches == 1 and watched.archive is not None:
            self.notes.guard(watched.query, lambda: self._keep_plan(watched))

    def _follow_on(self, watched: QueryRun, record: BatchRecord) -> BatchRecord:
        """The record of a committed batch with what its event times come to, after the batch before."""
        before, layout = watched.before, watched.running.layout
        if before is None and watched.archive is not None:
            recorded: list[BatchRecord] = []
            self.notes.record(
                lambda history: recorded.extend(history.recent(record.query, generation=layout.generation))
            )
            before = next((batch for batch in reversed(recorded) if batch.batch < record.batch), None)
        record = follow_on(record, before)
        leap = record.leap
        if leap is not None and leap.source is not None and leap.batch is not None and before and not before.leap:
            with suppress(HeadraceError, StopIteration):
                sources = watched.running.project.sources_of(watched.query)
                source = next(source for source in sources if source.name == leap.source)
                shares = _shares(watched.running, leap.batch, leap.batch)
                record = replace(
                    record, leap=replace(leap, place=place_of(leap, source, shares[source.name], self.spark))
                )
        watched.before = record
        return record

    def _with_times(self, watched: QueryRun, record: BatchRecord) -> BatchRecord:
        """The record with what the sink took of the batch, and how uneven its tasks were."""
        running, seconds = watched.running, watched.running.reports.written.pop(record.batch, None)
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
        self.notes.guard(watched.query, lambda: list(map(self.notes.report, quarantine.batch_done(record))))
        written = quarantine.written.pop(record.batch, {})
        sources = (
            replace(source, quarantined=written.get(source.name, source.quarantined)) for source in record.sources
        )
        return replace(record, sources=tuple(sources))

    def look_at_late(self, watched: QueryRun, *, ended: bool = False) -> None:
        """Let the late rows of its batches be kept; of a query that has `ended`, those of all."""
        late = watched.late
        if late is not None:
            self.notes.guard(
                watched.query, lambda: list(map(self.notes.report, late.close() if ended else late.step()))
            )

    def _keep_plan(self, watched: QueryRun) -> None:
        """Note the plans of the first batch, for pages that start no Spark."""
        try:
            text = plan_text(watched.running.handle)
        except Exception as error:
            if not is_from_spark(error):
                raise
            return  # It has ended meanwhile.
        replace_file(watched.running.layout.plan, redacted(text[:PLAN_LONGEST]))

    def record_missed(self, watched: QueryRun, committed: int) -> None:
        """Bring into the history what batches took that were committed by a driver that could not report it."""
        self.archive(watched)
        running, run_id = watched.running, watched.history_run
        if run_id is None:
            return
        missed: list[int] = []
        self.notes.record(
            lambda history: missed.extend(
                history.unreported_batches(running.query.name, running.layout.generation, committed)
            )
        )
        for made in missed_records(running, missed, self.spark):
            record = self._follow_on(watched, self._with_counters(watched, made))
            self.notes.record(lambda history, record=record: history.record(run_id, record))  # type: ignore[misc]
        watched.before = None  # The next batch follows on the newest one that is kept.

    def count_unreported(self, watched: QueryRun, committed: int | None) -> None:
        """Count the last batches up to `committed` that Spark has not reported, as on a machine that is too busy."""
        running = watched.running
        reported = max(
            (number for number in (watched.last_batch, watched.committed_before) if number is not None), default=-1
        )
        last = committed if watched.archive is not None else None
        unreported = range(reported + 1, reported + 1 if last is None else last + 1)
        if not unreported:
            return
        records = {made.batch: made for made in missed_records(running, unreported, self.spark)}
        for batch in unreported:
            watched.batches, watched.last_batch = watched.batches + 1, batch
            if batch not in records:
                continue  # What it read can be read no more.
            record = self._follow_on(watched, self._with_counters(watched, records[batch]))
            watched.rows += record.rows
            if watched.history_run is not None:
                self.notes.record(lambda history, record=record: history.record(watched.history_run, record))  # type: ignore[misc]
            self.reporter.progressed(record)

    def _with_counters(self, watched: QueryRun, record: BatchRecord) -> BatchRecord:
        """The record of a committed batch with what the query's counters come to, and what its changes did."""
        record = replace(record, changes=watched.running.reports.changes.pop(record.batch, None))
        counted: dict[str, Any] = {}
        self.notes.guard(watched.query, lambda: counted.update(watched.running.counters.add_committed(record.batch)))
        return replace(record, counters=counted) if counted else record

    def archive(self, watched: QueryRun) -> None:
        """Keep what the checkpoint will let go of."""
        archive = watched.archive
        if archive is not None:
            self.notes.guard(watched.query, lambda: archive.catch_up(Checkpoint(watched.running.layout.checkpoint)))

    def report_news(self, watched: QueryRun) -> None:
        """Report what the sink had to say: an attempt that failed, rows quarantined."""
        news = watched.running.reports.news
        while not news.empty():
            self.notes.report(news.get())

    def note_warnings(self, watched: QueryRun, findings: Sequence[Finding]) -> None:
        """Let the history say what is wrong with a run that continues, or that nothing is."""
        run_id = watched.history_run
        ill = self.project.redacted_finding(findings[0]) if findings else None
        if run_id is not None:
            self.notes.record(lambda history: history.record_warning(run_id, ill))

    def look_inside(self, running: Iterable[QueryRun]) -> None:
        """Report how far long batches are, of one query after another, so that many queries cost no more than few."""
        now = time.monotonic()
        if now < self.look_at:
            return
        self.look_at = now + LOOK_SECONDS
        busy = [query_run for query_run in running if now - query_run.event_at > LOOK_SECONDS]
        for watched in sorted(busy, key=lambda run: run.looked_at)[:LOOKS]:
            watched.looked_at = now
            seconds = now - watched.event_at
            work = batch_work(self.spark, str(watched.running.handle.runId), seconds=seconds)
            watched.at_work(work)
            watched.asks("" if work is not None else source_being_asked(watched.running.handle))
            if work is not None:
                self.reporter.working(watched.query.name, work)

    def beat(self, runs: Sequence[int]) -> None:
        """Let the history know that these runs, and this process, are alive."""
        now = time.monotonic()
        if now - self.heartbeat_at < HEARTBEAT_SECONDS:
            return
        self.heartbeat_at = now
        self.notes.record(lambda history: history.heartbeat(runs))


MOST = 100
"""So many batches at most are read again for their count."""
_BATCH = "__headrace_batch"


def rightly_counted(running: Running, record: BatchRecord, spark: SparkSession) -> BatchRecord:
    """The record with the rows that the batch's offsets hold, however often and however far they were computed."""
    computed = running.reports.computed
    whole = [ended for batch in sorted(computed) if batch <= record.batch for ended in computed.pop(batch)]
    # Held by the sink already, or found to be of no use by the optimizer.
    unread = any(source.start != source.end and not source.rows for source in record.sources)
    disturbances, running.disturbances = running.disturbances, task_failures(spark)
    if running.reads_all is None and record.rows:
        running.reads_all = reads_all(running.handle)
    is_whole = all(whole) and disturbances == running.disturbances
    sound = is_whole and not unread and running.reads_all is not False
    again = (len(whole) > 1 and reads_again(running.handle)) if sound else None
    if again is not None:
        times = len(whole) if again else 1
        record = take_observed(record, times)
        counts = {
            source.name: Counted(source.rows // times, 0, source.null_times, source.newest_ms)
            for source in record.sources
        }
        return _correct(_with_bad_rows(record, times), counts)
    if not is_whole or len(whole) > 1:
        record = _with_bad_rows(record, None)
    record = take_observed(record, None)
    counts_of = _rows_of(running, [record.batch], spark)
    return _correct(record, counts_of[record.batch]) if counts_of else record


def _with_bad_rows(record: BatchRecord, times: int | None) -> BatchRecord:
    """The record with its sources' bad rows as one of so many computations counted them; None: they are not known."""
    observed = dict(record.observed)
    for name in {bad_rows_metric(source.name) for source in record.sources} & observed.keys():
        counts = observed.pop(name)
        if times is not None:
            observed[name] = {key: (value or 0) // times for key, value in counts.items()}
    return replace(record, observed=observed)


def missed_records(running: Running, batches: Sequence[int], spark: SparkSession) -> Iterator[BatchRecord]:
    """What is known of committed batches that were not reported; how long they took is not."""
    counts_of = _rows_of(running, batches[-MOST:], spark)
    if not counts_of:
        return
    entries = Archive(running.layout.archive).entries(min(counts_of))
    shares = _shares(running, min(counts_of), max(counts_of))
    for batch, rows in counts_of.items():
        entry = entries.get(batch)
        if entry is None:
            continue
        yield BatchRecord(
            query=running.query.name,
            run_id=str(running.handle.runId),
            batch=batch,
            at=instant(entry.timestamp_ms / 1000),
            rows=sum(counted.rows for counted in rows.values()),
            input_rate=0.0,
            processed_rate=0.0,
            duration_ms=0,
            watermark=instant(entry.watermark_ms / 1000) if entry.watermark_ms else None,
            sources=tuple(
                _with_counts(SourceProgress(name=name, rows=0, start=share.start, end=share.end), rows[name])
                for name, prefix in shares.items()
                for share in prefix.batches
                if share.batch == batch
            ),
        )


class Counted(NamedTuple):
    """The rows that a use of a source gave to a batch, as the fields of SourceProgress have them."""

    rows: int = 0
    quarantined: int = 0
    null_times: int | None = None
    newest_ms: int | None = None


Counts: TypeAlias = Mapping[str, Counted]


def _rows_of(running: Running, batches: Sequence[int], spark: SparkSession) -> dict[int, Counts]:
    """The rows that each use of a source gave to each of `batches`; empty where they can no longer be had."""
    from pyspark.sql import functions as F

    sources = {source.name: source for source in running.project.sources_of(running.query)}
    if not batches or not all(source.connector.readable_as_batch for source in sources.values()):
        return {}
    try:
        shares = _shares(running, min(batches), max(batches))
        counted = {batch: dict.fromkeys(shares, Counted()) for batch in batches}
        for name, whole in shares.items():
            source = sources[source_of(name)]
            part = SourcePrefix(
                batches=tuple(entry for entry in whole.batches if entry.batch in counted), log=whole.log
            )
            read = source.connector.read(spark, part, batch_column=_BATCH)
            counts = [F.count("*").alias("rows")]
            if source.watermark is not None:
                time = F.col(source.watermark.column)
                counts += [F.count_if(time.isNull()).alias("null_times"), F.max(F.unix_millis(time)).alias("newest_ms")]
            good = {row[0]: row.asDict() for row in read.groupBy(_BATCH).agg(*counts).collect()}
            rejected = source.connector.rejected_rows(spark, part)
            bad = dict(map(tuple, rejected.groupBy("batch").count().collect())) if rejected is not None else {}
            for batch in {*bad, *good}:
                facts = good.get(batch, {"rows": 0})
                rows, quarantined = facts.pop("rows") + bad.get(batch, 0), bad.get(batch, 0)
                facts.pop(_BATCH, None)
                counted[batch][name] = Counted(rows, quarantined, **facts)
    except (SourceError, CheckpointError):
        return {}
    except Exception as error:
        if not is_from_spark(error):
            raise
        return {}
    return dict(counted)


def _shares(running: Running, since: int, through: int) -> dict[str, SourcePrefix]:
    checkpoint, archive = Checkpoint(running.layout.checkpoint), Archive(running.layout.archive)
    return committed_prefix(checkpoint, archive, running.names, through, since=since)


def _with_counts(source: SourceProgress, counts: Counted) -> SourceProgress:
    return replace(source, **{**counts._asdict(), "quarantined": max(source.quarantined, counts.quarantined)})


def _correct(record: BatchRecord, counts: Counts) -> BatchRecord:
    """The record with the rows that its sources gave, and the rates that follow."""
    sources = tuple(
        _with_counts(source, counts[source.name]) if source.name in counts else source for source in record.sources
    )
    total = sum(source.rows for source in sources)
    seconds = record.duration_ms / 1000
    if total == record.rows:
        return replace(record, sources=sources)
    return replace(
        record,
        rows=total,
        input_rate=record.input_rate * total / record.rows if record.rows else 0.0,
        processed_rate=total / seconds if seconds else 0.0,
        sources=sources,
    )
