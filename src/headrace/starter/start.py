"""One query brought from its declaration to a running StreamingQuery of Spark, lost batches first.

Nothing is changed before all has been looked at, and the checkpoint only once the sink has taken the query.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.checkpoint.durability import sync_commits
from headrace.checkpoint.handover import PARTITIONS, hand_over
from headrace.checkpoint.restore import Restorable
from headrace.checkpoint.sources import READ_FILES, write_sources
from headrace.checks.state_bounds import POLICY, check_policy
from headrace.checks.triggers import check_own_session
from headrace.contract import SinkContext, Writer
from headrace.errors import CheckFailed, CheckpointBehind, CheckpointError, Finding, Where
from headrace.generations import driver_lock
from headrace.generations.blame import attribute_errors
from headrace.generations.facts import StartFacts, create_directories
from headrace.generations.log import QueryLayout, require_live
from headrace.generations.manifest import QueryRevision, enter_run
from headrace.generations.register import enter_name
from headrace.model import AvailableNow, Continuous, Every, Once, Project, Query, RealTime, Trigger
from headrace.model.state_store import PROVIDER_KEY, PROVIDERS, ROWS_TRACKED_KEY
from headrace.spark.jvm.session_conf import (
    ONE_AT_A_TIME,
    apply_settings,
    default_partitions,
    name_query,
    restore_settings,
    share_settings,
)
from headrace.spark.plans.analysed import PlanFacts
from headrace.spark.stream.event_times import observe_event_times, observe_source_times
from headrace.starter.prepare import PreparedQuery, prepare
from headrace.starter.recovery import restore_lost_batch
from headrace.starter.rename import apply_renames, enter_sink
from headrace.starter.request import Request
from headrace.starter.running import Reports, Running
from headrace.starter.state_store import query_settings
from headrace.storage.remembered import remembering

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def start(project: Project, query: Query, spark: SparkSession, *, trigger: Trigger | None = None) -> Running:
    """Check and start `query`; `trigger` overrides its own.

    Raises CheckFailed, CheckpointError, PlatformError, SourceError or SinkError; then nothing was started.
    """
    triggered = replace(query, trigger=trigger or query.trigger)
    return replace(start_query(Request(project=project, query=triggered, spark=spark)), query=query)


def start_query(request: Request) -> Running:
    """Check and start what is asked for. Raises as `start`."""
    project, query, spark = request.project, request.query, request.spark
    with driver_lock.starting(project, query) as lock:
        facts = StartFacts.read(project, query)
        with ONE_AT_A_TIME:
            notes = apply_renames(facts, spark)
        if notes:
            facts = StartFacts.read(project, query)
        running = _start_recovering_batches(replace(request, settings=query_settings(facts, spark)), facts)
    return replace(running, lock=lock, notes=(*notes, *running.notes))


def _start_recovering_batches(request: Request, facts: StartFacts) -> Running:
    """Start the query; before that, batches that the checkpoint has lost and the sink holds are made one by one."""
    recovered: list[Restorable] = []
    notes: list[Finding] = []
    gave_up, behind = False, None
    while True:
        lost, behind = behind or _recover_batch(facts), None
        if lost is not None and lost.batches in [batch.batches for batch in recovered]:
            # Made again, the batch left no state behind: what is wrong is reported by the look at the checkpoint.
            lost, gave_up = None, True
        if lost is not None:
            facts = StartFacts.read(request.project, request.query)
        try:
            running = _start_once(request if lost is None else _alone(request), facts)
        except CheckpointBehind:
            # An older driver has committed a batch while this start waited for it.
            facts = StartFacts.read(request.project, request.query)
            behind = None if gave_up or lost is not None else _recover_batch(facts)
            if behind is None:
                raise
            continue
        recovered += [] if lost is None else [lost]
        notes += running.notes
        if lost is None or not _ended_well(running):
            recovery = recovery_findings(request.query, running.layout, recovered)
            return replace(running, notes=tuple(dict.fromkeys((*recovery, *notes))))
        facts = StartFacts.read(request.project, request.query)


def recovery_findings(query: Query, layout: QueryLayout, lost: Sequence[Restorable]) -> Iterator[Finding]:
    """Report the batches that were planned again, all together."""
    if not lost:
        return
    first, last, newest = lost[0].first, lost[-1].first, lost[-1].last
    batches = f"batch {first} is" if first == last else f"the batches {first} to {last} are"
    yield Finding(
        code="HR459",
        where=Where(file=str(layout.checkpoint)),
        what=f"the checkpoint of query '{query.name}' had lost entries of batches that are in the sink up to {newest}; "
        f"{batches} planned again as the sink's ledger has it",
        fix="nothing: the sink skips what it has, and the query continues",
    )


def _alone(request: Request) -> Request:
    """The same query for one batch that the checkpoint has lost, over what that was planned with."""
    return replace(request, query=replace(request.query, trigger=Once()), versions=None, restoring=True)


def _recover_batch(facts: StartFacts) -> Restorable | None:
    """Plan a batch again that the sink has and the checkpoint has lost; None if there is none."""
    if not facts.query.sink.facts.durable:
        return None
    with remembering(facts.layout.checkpoint):
        return restore_lost_batch(facts)


def _ended_well(running: Running) -> bool:
    """Wait for a query that runs one batch; how it failed is seen by what watches it."""
    try:
        running.handle.awaitTermination()
    except Exception:
        return False
    return running.handle.exception() is None


def start_in_session(
    project: Project, query: Query, spark: SparkSession, *, trigger: Trigger | None = None
) -> StreamingQuery:
    """Start `query` in `spark` and return Spark's StreamingQuery.

    The session has what a checkpoint of Headrace needs for the time of the start only: Spark gives the query a copy of
    the session. Raises as `start`.
    """
    if unfit := tuple(check_own_session(project, query, trigger or query.trigger)):
        raise CheckFailed(unfit)
    running = start(project, query, spark, trigger=trigger)
    threading.Thread(target=_clean_up_at_end, args=(running,), name=f"end of {query.name}", daemon=True).start()
    return running.handle


def _clean_up_at_end(running: Running) -> None:
    """Wait for the query to end, of which the user's own code may take no notice, and let others run it then."""
    with suppress(Exception):  # What the query or its session ended of is for the handle to say.
        running.handle.awaitTermination()
    running.clean_up()


def _start_once(request: Request, facts: StartFacts) -> Running:
    """Check and start the query; if that fails, nothing was started."""
    request.preparing("reading its checkpoint")
    spark = request.spark
    facts = create_directories(facts if request.query is facts.query else replace(facts, query=request.query))
    try:
        # Once the sink is opened an older driver may end its batch.
        with share_settings(spark, request.settings), remembering(facts.layout.checkpoint):
            prepared = prepare(request, facts)
        with ONE_AT_A_TIME, restore_settings(spark, (POLICY,)):
            _set_policy(spark, facts, prepared.plan)
        request.preparing(f"making the sink {request.query.sink_kind} ready")
        reports = Reports(query=request.query, report=request.report)
        if facts.lasting:
            enter_name(facts.project, facts.query, facts.layout)
        context = _context(request, facts, prepared, reports)
        writer = _open_sink(request, facts, prepared, context)
        reports.report = None
        notes = (*prepared.notes, *_prepare_checkpoint(facts, prepared))
        # Spark takes no counts into the other two, whose reports of batches count otherwise.
        plain = isinstance(request.trigger, (Continuous, RealTime))
        frame = prepared.frame if plain else observe_source_times(observe_event_times(prepared.frame))
        kept_in = {READ_FILES: str(facts.layout.home) if facts.lasting else ""}
        with share_settings(spark, request.settings), ONE_AT_A_TIME, restore_settings(spark, (PARTITIONS, POLICY)):
            _set_policy(spark, facts, prepared.plan)
            # Until the sink was opened an older driver may have made batches, so that this is read again.
            _set_partitions(spark, replace(facts).partitions, request.project)
            stream = writer.attach(_stream(writer.serialize(frame), request.query, context))
            with name_query(spark, request.query.name), apply_settings(spark, kept_in):
                handle = stream.start()
            tracked = _are_rows_tracked(spark)
        if prepared.revision is not None:
            _enter_started(facts, prepared.revision, handle)
    except BaseException:
        if facts.scratch is not None:
            shutil.rmtree(facts.scratch, ignore_errors=True)
        raise
    return Running(
        project=request.project,
        query=request.query,
        code=prepared.code,
        layout=facts.layout,
        sink_run=context,
        handle=handle,
        uses=prepared.plan.sources,
        names=facts.names,
        watermarked=tuple(map(facts.names.now, prepared.plan.watermarked)),
        notes=notes,
        reports=reports,
        rows_tracked=tracked,
        tables=prepared.tables,
        versions=prepared.versions,
        counters=prepared.counters,
        columns=prepared.columns,
        scratch=facts.scratch,
    )


def _enter_started(facts: StartFacts, revision: QueryRevision, handle: StreamingQuery) -> None:
    """Keep what the query is once it has started: a start that failed was not a form of it."""
    try:
        enter_run(facts.project, facts.query, facts.layout, revision)
    except BaseException:
        # It would run unwatched, and its next start would be compared with a form that it no longer has.
        handle.stop()
        raise


def _context(request: Request, facts: StartFacts, prepared: PreparedQuery, reports: Reports) -> SinkContext:
    """The context of this start for the sink, and what the sink calls."""
    project = request.project
    context = replace(
        facts.run,
        fingerprint=prepared.fingerprint,
        on_error=reports.faults.append,
        on_warning=reports.note,
        on_computed=reports.count,
        on_retry=reports.retry,
        on_written=reports.written.__setitem__,
        on_changes=reports.changes.__setitem__,
        restoring=request.restoring,
        before_entering=partial(driver_lock.require_held, project, request.query, facts.layout.folder),
    )
    if request.reached is not None:
        context = replace(context, on_boundary=request.reached)
    survives = facts.lasting and project.target.checkpoint_durability == "power_loss"
    secure = sync_commits(facts.checkpoint) if survives else None

    def before_commit(batch: int) -> None:
        if facts.lasting:
            require_live(facts.layout)
        prepared.counters.keep(batch)
        if secure is not None:
            secure(batch)

    return replace(context, before_commit=before_commit)


def _open_sink(request: Request, facts: StartFacts, prepared: PreparedQuery, context: SinkContext) -> Writer:
    """Make the sink ready: from here on an older driver of the query is fenced off."""
    query = request.query
    with attribute_errors(query), request.attempt.making_ready():
        writer = query.sink.open(prepared.frame, context)
    if facts.lasting:
        enter_sink(request.project, query, facts.layout)
    return writer


def _prepare_checkpoint(facts: StartFacts, prepared: PreparedQuery) -> tuple[Finding, ...]:
    """Bring the checkpoint into the form that this start needs, record what starts; return what a user should know."""
    query, layout = facts.query, facts.layout
    continuous = isinstance(query.trigger, Continuous)
    fills = facts.lasting and not continuous and not query.sink.facts.async_progress
    notes = hand_over(
        facts.checkpoint,
        facts.repartitions,
        prepared.plan.sources,
        facts.archive if fills else None,
        continuous=continuous,
        written_async=replace(facts).is_async if fills else None,
    )
    if facts.lasting:
        write_sources(layout.source_names, facts.names, prepared.source_ids)
        if prepared.revision is not None and not facts.begun:
            enter_run(facts.project, query, layout, prepared.revision)
        prepared.tables.enter(prepared.versions)
    return notes


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


def _are_rows_tracked(spark: SparkSession) -> bool:
    """Whether the session's state store counts its rows."""
    counted = (spark.conf.get(ROWS_TRACKED_KEY, "true") or "true").lower() == "true"
    return counted or spark.conf.get(PROVIDER_KEY, None) != PROVIDERS["rocksdb"]


def _set_policy(spark: SparkSession, facts: StartFacts, plan: PlanFacts) -> None:
    """Let the project choose the policy for several watermarks; raise CheckpointError if the checkpoint has another."""
    declared = facts.project.target.spark.get(POLICY)
    if declared is not None:
        spark.conf.set(POLICY, declared)
    last = facts.checkpoint.last_batch if plan.watermarks > 1 else None
    entry = None if last is None else facts.checkpoint.offset(last)
    if entry is not None:
        errors = list(check_policy(facts.query, entry.conf, str(spark.conf.get(POLICY))))
        if errors:
            raise CheckpointError(errors)
