"""One query brought to a running StreamingQuery: looked at, its sink made ready, its checkpoint made ready, started.

Nothing is changed before all has been looked at, and the checkpoint only once the sink has taken the query.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.check.event_time import POLICY, kept_policy
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.handover import fill_gap, move
from headrace.checkpoint.read_files import READ_FILES
from headrace.checkpoint.repartitions import PARTITIONS
from headrace.contract import SinkContext, Writer
from headrace.errors import CheckFailed, CheckpointError, Finding
from headrace.model import AvailableNow, Continuous, Every, Once, Project, Query, RealTime
from headrace.queries.application import application
from headrace.queries.durability import secured
from headrace.queries.home import Home, entered, layout_of
from headrace.queries.manifest import QueryRevision, enter, note_version, written_async
from headrace.queries.naming import named
from headrace.queries.sink_location import enter_sink
from headrace.run.planned import Planned, planned, unfit
from headrace.run.running import Reports, Request, Running
from headrace.run.state_store import rows_tracked
from headrace.spark.jvm.session_conf import applied, default_partitions, served
from headrace.spark.plans.analysed import PlanFacts
from headrace.storage.remembered import remembering

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def launch(request: Request) -> Running:
    """Check and start the query; if that fails, nothing was started."""
    request.begin("reading its checkpoint")
    # What is only looked at. Once the sink is opened an older driver may end its batch.
    with remembering(layout_of(request.project, request.query).checkpoint):
        home, plan = _looked_at(request)
    try:
        _set_policy(request.spark, home.checkpoint, request.project, request.query, plan.facts)
        request.begin(f"making the sink {request.query.sink_kind} ready")
        reports = Reports(query=request.query, tell=request.tell)
        context = _context(request, home, plan, reports)
        writer = _open_sink(request, home, plan, context)
        reports.tell = None
        notes = (*plan.notes, *_prepare_checkpoint(request, home, plan, context))
        stream = writer.attach(_stream(writer.serialize(plan.frame), request.query, context))
        kept_in = {READ_FILES: str(home.layout.home) if home.lasting else ""}
        with served(request.spark, request.query.name), applied(request.spark, kept_in):
            handle = stream.start()
        if plan.revision is not None:
            _enter_started(home, plan.revision, handle)
            note_version(request.project, request.query, home.layout, plan.revision)
    except BaseException:
        home.remove_scratch()
        raise
    return Running(
        query=request.query,
        layout=home.layout,
        sink_run=context,
        handle=handle,
        source_names=plan.facts.sources,
        watermarked=plan.facts.watermarked,
        notes=notes,
        faults=reports.faults,
        news=reports.news,
        computed=reports.computed,
        retried=reports.retried,
        written=reports.written,
        rows_tracked=rows_tracked(request.spark),
        tables=plan.tables,
        versions=plan.versions,
        connectors=request.project.connectors_of(request.query),
        counters=plan.counters,
        columns=plan.columns,
        scratch=home.scratch,
    )


def _looked_at(request: Request) -> tuple[Home, Planned]:
    if findings := list(unfit(request.project, request.query, Home(layout=layout_of(request.project, request.query)))):
        raise CheckFailed(findings)
    home = entered(request.project, request.query)
    try:
        return home, planned(request, home)
    except BaseException:
        home.remove_scratch()
        raise


def _enter_started(home: Home, revision: QueryRevision, handle: StreamingQuery) -> None:
    """Keep what the query is once it has started: a start that failed was no form of it."""
    try:
        enter(home.layout, revision)
    except BaseException:
        # Nobody would watch it, and its next start would be compared with a form that it no longer has.
        handle.stop()
        raise


def _context(request: Request, home: Home, plan: Planned, reports: Reports) -> SinkContext:
    """The context of this start for the sink, and what the sink calls."""
    project, query = request.project, request.query
    context = SinkContext(
        query=query.name,
        generation=home.layout.generation,
        mode=query.mode,
        checkpoint=home.checkpoint.root,
        fingerprint=plan.fingerprint,
        on_error=reports.faults.append,
        on_warning=reports.note,
        on_computed=reports.count,
        on_retry=reports.retried.append,
        on_written=reports.written.__setitem__,
        empty_batches=home.repartitions.batches(home.checkpoint),
        restoring=request.restoring,
        **(application(project).facts() if home.lasting else {}),
    )
    if request.reached is not None:
        context = replace(context, on_boundary=request.reached)
    secure = secured(project.target, home.checkpoint.root) if home.lasting else None

    def before_commit(batch: int) -> None:
        plan.counters.keep(batch)
        if secure is not None:
            secure(batch)

    return replace(context, before_commit=before_commit)


def _open_sink(request: Request, home: Home, plan: Planned, context: SinkContext) -> Writer:
    """Make the sink ready: from here on an older driver of the query is fenced off."""
    query = request.query
    with named(f"the sink of query '{query.name}'", query.where), request.attempt.making_ready():
        writer = query.sink.open(plan.frame, context)
    if home.lasting:
        enter_sink(request.project, query, home.layout)
    return writer


def _prepare_checkpoint(request: Request, home: Home, plan: Planned, context: SinkContext) -> tuple[Finding, ...]:
    """Bring the checkpoint into the form that this start needs, and record what starts; returns what is said of it."""
    query, spark = request.query, request.spark
    continuous = isinstance(query.trigger, Continuous)
    notes: list[Finding] = []
    move(home.checkpoint, plan.facts.sources, continuous=continuous)
    if home.lasting and not continuous and not query.sink.facts.async_progress:
        beside = written_async(home.layout.manifest, query.sink)
        notes += fill_gap(home.checkpoint, Archive(home.layout.archive), written_async=beside)
    _set_partitions(spark, home.repartitions.partitions(home.checkpoint), request.project)
    if home.lasting:
        if plan.revision is not None and not home.begun:
            enter(home.layout, plan.revision)
        plan.tables.enter(plan.versions)
    return tuple(notes)


def _stream(frame: DataFrame, query: Query, run: SinkContext) -> DataStreamWriter:
    """Spark's writer of the stream, with the query's name, mode, checkpoint and trigger."""
    trigger = query.trigger
    writer = (
        frame.writeStream.queryName(query.name).outputMode(query.mode).option("checkpointLocation", str(run.checkpoint))
    )
    if isinstance(trigger, Every):
        return writer.trigger(processingTime=trigger.interval.spark_interval)
    if isinstance(trigger, AvailableNow):
        return writer.trigger(availableNow=True)
    if isinstance(trigger, Once):
        return writer.trigger(once=True)
    if isinstance(trigger, Continuous):
        return writer.trigger(continuous=trigger.interval.spark_interval)
    if isinstance(trigger, RealTime):
        return writer.trigger(realTime=trigger.interval.spark_interval)  # type: ignore[call-overload,no-any-return]
    return writer


def _set_partitions(spark: SparkSession, kept: int | None, project: Project) -> None:
    """Let a checkpoint keep the number of state partitions that it has."""
    chosen = project.target.spark.get(PARTITIONS, str(default_partitions(spark)))
    spark.conf.set(PARTITIONS, str(kept) if kept else chosen)


def _set_policy(spark: SparkSession, checkpoint: Checkpoint, project: Project, query: Query, facts: PlanFacts) -> None:
    """Let the project choose the policy for several watermarks; raise CheckpointError if the checkpoint has another."""
    declared = project.target.spark.get(POLICY)
    if declared is not None:
        spark.conf.set(POLICY, declared)
    last = checkpoint.last_batch if facts.watermarks > 1 else None
    entry = None if last is None else checkpoint.offset(last)
    if entry is not None:
        errors = list(kept_policy(query, entry.conf, str(spark.conf.get(POLICY))))
        if errors:
            raise CheckpointError(errors)
