"""One query brought from its declaration to a running StreamingQuery of Spark, lost batches first.

Nothing is changed before all has been looked at, and the checkpoint only once the sink has taken the query.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.durability import Durability
from headrace.checkpoint.handover import fill_gap, move, remove_drafts
from headrace.checkpoint.repartitions import PARTITIONS
from headrace.checkpoint.restore import Restorable
from headrace.checkpoint.sources import READ_FILES, SourceIds
from headrace.checks.state_bounds import POLICY, check_policy
from headrace.checks.triggers import check_cores, check_own_session
from headrace.contract import SinkContext, Writer
from headrace.errors import (
    CheckFailed,
    CheckpointBehind,
    CheckpointError,
    Finding,
    HeadraceError,
    PlatformError,
)
from headrace.frames.plan_builder import register_written
from headrace.generations import driver_lock
from headrace.generations.blame import named
from headrace.generations.facts import StartFacts, context_facts, create_directories
from headrace.generations.location import enter_sink
from headrace.generations.log import require_live
from headrace.generations.manifest import QueryRevision, enter, note_version, written_async
from headrace.generations.register import enter_name, read_register
from headrace.generations.source_names import write_source_names
from headrace.model import AvailableNow, Continuous, Every, Once, Project, Query, RealTime, Target, Trigger
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
from headrace.starter.moved_project import rewrite_paths
from headrace.starter.plan import (
    PreparedQuery,
    StoredVersions,
    identify_sources,
    list_start_blockers,
    prepare,
    require_continuable,
    require_planned,
    require_sound,
    store_versions,
)
from headrace.starter.recovery import recovery_findings, restore_lost_batch
from headrace.starter.rename import apply_renames, rename_history
from headrace.starter.request import Request
from headrace.starter.running import Reports, Running
from headrace.starter.state_store import query_settings, rows_tracked
from headrace.storage.remembered import remembering
from headrace.storage.remote import store_at

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
    lock = driver_lock.take(project, query)
    try:
        facts = StartFacts.read(project, query)
        with ONE_AT_A_TIME:
            notes = apply_renames(facts, spark)
        running = _start_recovering_batches(replace(request, settings=query_settings(facts, spark)), facts)
    except BaseException as error:
        if lock is not None:
            try:
                if isinstance(error, HeadraceError):
                    # Of a process that was stopped for long, that is the fault: others have changed what it found.
                    lock.require_held(query)
            finally:
                lock.release()
        raise
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
    request.begin("reading its checkpoint")
    spark = request.spark
    facts = create_directories(facts if request.query is facts.query else replace(facts, query=request.query))
    try:
        # Once the sink is opened an older driver may end its batch.
        with share_settings(spark, request.settings), remembering(facts.layout.checkpoint):
            notes = _check(request, facts)
            ids, differences = _check_sources(facts, spark)
            request.begin("making its plan")
            prepared = prepare(request, facts, _prepare_tables(request, facts))
        with ONE_AT_A_TIME, restore_settings(spark, (POLICY,)):
            _set_policy(spark, facts, prepared.plan)
        request.begin(f"making the sink {request.query.sink_kind} ready")
        reports = Reports(query=request.query, report=request.report)
        renamed = tuple(_enter_name(facts))
        context = _context(request, facts, prepared, reports)
        writer = _open_sink(request, facts, prepared, context)
        reports.report = None
        notes = [*renamed, *prepared.notes, *differences, *notes, *_prepare_checkpoint(facts, prepared, ids)]
        # Spark takes no counts into the other two, whose reports of batches count otherwise.
        plain = isinstance(request.trigger, (Continuous, RealTime))
        frame = prepared.frame if plain else observe_source_times(observe_event_times(prepared.frame))
        kept_in = {READ_FILES: str(facts.layout.home) if facts.lasting else ""}
        with share_settings(spark, request.settings), ONE_AT_A_TIME, restore_settings(spark, (PARTITIONS, POLICY)):
            _set_policy(spark, facts, prepared.plan)
            _set_partitions(spark, facts.repartitions.partitions(facts.checkpoint), request.project)
            stream = writer.attach(_stream(writer.serialize(frame), request.query, context))
            with name_query(spark, request.query.name), apply_settings(spark, kept_in):
                handle = stream.start()
            tracked = rows_tracked(spark)
        if prepared.revision is not None:
            _enter_started(facts, prepared.revision, handle)
            note_version(request.project, request.query, facts.layout, prepared.revision)
    except BaseException:
        facts.remove_scratch()
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
        notes=tuple(notes),
        reports=reports,
        rows_tracked=tracked,
        tables=prepared.tables,
        versions=prepared.versions,
        connectors=request.project.connectors_of(request.query),
        counters=prepared.counters,
        columns=prepared.columns,
        scratch=facts.scratch,
    )


def _check(request: Request, facts: StartFacts) -> list[Finding]:
    """Check what is there, then write what a start writes before its plan; return what a user should know.

    Raises what `plan` reports.
    """
    notes: list[Finding] = []
    if facts.lasting:
        require_continuable(facts)
    for error in list_start_blockers(facts, request.spark, notes):
        raise error
    facts.repartitions.forget_unbegun(facts.checkpoint)
    if facts.lasting:
        with ONE_AT_A_TIME:
            notes += rewrite_paths(facts)
        require_planned(facts)
    return notes


def _check_sources(
    facts: StartFacts, spark: SparkSession
) -> tuple[Mapping[str, Mapping[str, str]], tuple[Finding, ...]]:
    """Ask each source; return the ids of what they read, and how that differs from what was read."""
    for source in facts.project.sources_of(facts.query):
        with named(f"query '{facts.query.name}', source '{source.name}'", source.where):
            source.connector.check_connection(spark)
    ids, differences = identify_sources(facts, spark) if facts.lasting else ({}, ())
    require_sound(differences)
    return ids, differences


def _prepare_tables(request: Request, facts: StartFacts) -> StoredVersions:
    """Make ready the tables that the plan is built over."""
    require_sound(check_cores(facts.project, facts.query, request.spark))
    with ONE_AT_A_TIME:
        register_written(facts.project, facts.query, request.spark)
    return store_versions(facts, request)


def _enter_name(facts: StartFacts) -> Iterator[Finding]:
    """Rename the query if it has another name now: nothing is left that could keep it from starting but its sink.

    The register is read once more: another process may have lost it, or given the name away.
    """
    if facts.lasting:
        yield from enter_name(facts.project, facts.query, facts.layout)
        yield from rename_history(facts.project, facts.query, read_register(facts.project.storage))


def _enter_started(facts: StartFacts, revision: QueryRevision, handle: StreamingQuery) -> None:
    """Keep what the query is once it has started: a start that failed was no form of it."""
    try:
        enter(facts.layout, revision)
    except BaseException:
        # It would run unwatched, and its next start would be compared with a form that it no longer has.
        handle.stop()
        raise


def _context(request: Request, facts: StartFacts, prepared: PreparedQuery, reports: Reports) -> SinkContext:
    """The context of this start for the sink, and what the sink calls."""
    project, query = request.project, request.query
    context = SinkContext(
        query=query.name,
        query_id=facts.layout.query_id,
        generation=facts.layout.generation,
        mode=query.mode,
        checkpoint=facts.checkpoint.root,
        mark=facts.layout.head,
        fingerprint=prepared.fingerprint,
        on_error=reports.faults.append,
        on_warning=reports.note,
        on_computed=reports.count,
        on_retry=reports.retry,
        on_written=reports.written.__setitem__,
        on_changes=reports.changes.__setitem__,
        empty_batches=facts.repartitions.batches(facts.checkpoint),
        restoring=request.restoring,
        **(context_facts(project, facts.register) if facts.lasting else {}),
    )
    if request.reached is not None:
        context = replace(context, on_boundary=request.reached)
    secure = make_durable_by(project.target, facts.checkpoint.root) if facts.lasting else None

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
    with named(f"the sink of query '{query.name}'", query.where), request.attempt.making_ready():
        writer = query.sink.open(prepared.frame, context)
    if facts.lasting:
        enter_sink(request.project, query, facts.layout)
    return writer


def _prepare_checkpoint(
    facts: StartFacts, prepared: PreparedQuery, ids: Mapping[str, Mapping[str, str]]
) -> list[Finding]:
    """Bring the checkpoint into the form that this start needs, and record what starts; return what a user should know.

    ids: of the topics and tables that the query reads, by source and name.
    """
    query, layout = facts.query, facts.layout
    continuous = isinstance(query.trigger, Continuous)
    notes: list[Finding] = []
    remove_drafts(facts.checkpoint)
    move(facts.checkpoint, prepared.plan.sources, continuous=continuous)
    if facts.lasting and not continuous and not query.sink.facts.async_progress:
        is_async = written_async(layout.manifest, query.sink)
        notes += fill_gap(facts.checkpoint, Archive(layout.archive), written_async=is_async)
    if facts.lasting:
        write_source_names(layout, facts.names)
        SourceIds(layout.home).write(ids)
        if prepared.revision is not None and not facts.begun:
            enter(layout, prepared.revision)
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


def make_durable_by(target: Target, checkpoint: Path) -> Callable[[int], None] | None:
    """What a SinkContext calls before each commit; None where the machine is left to write when it likes."""
    if target.checkpoint_durability != "power_loss" or store_at(checkpoint).is_safe:
        return None
    durability = Durability(Checkpoint(checkpoint))

    def sync(batch: int) -> None:
        try:
            durability.sync(batch)
        except OSError as error:
            raise PlatformError(
                code="HR421",
                what=f"the checkpoint's files of batch {batch} cannot be brought to the disk: "
                f"{error.strerror or error}",
                fix=f"look at the disk of '{checkpoint}'; then start again: the batch is made again",
            ) from error

    return sync
