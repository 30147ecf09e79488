"""One query brought from its declaration to a running StreamingQuery of Spark, lost batches first.

Nothing is changed before all has been looked at, and the checkpoint only once the sink has taken the query.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint, PlannedBatch
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.durability import Durability
from headrace.checkpoint.handover import fill_gap, move, remove_drafts
from headrace.checkpoint.logs import Part
from headrace.checkpoint.read_files import READ_FILES
from headrace.checkpoint.relocation import rewrite
from headrace.checkpoint.repartitions import PARTITIONS, Repartitions
from headrace.checkpoint.restore import Restorable, restorable, restore
from headrace.checkpoint.source_ids import SourceIds
from headrace.checkpoint.sources import source_of
from headrace.checks.state_bounds import POLICY, check_policy
from headrace.checks.triggers import check_own_session
from headrace.contract import SinkContext, SinkLedger, Writer
from headrace.errors import (
    CheckFailed,
    CheckpointBehind,
    CheckpointError,
    Finding,
    HeadraceError,
    PlatformError,
    Where,
)
from headrace.model import AvailableNow, Continuous, Every, Once, Project, Query, RealTime, Target, Trigger
from headrace.queries import driver_lock
from headrace.queries.blame import named
from headrace.queries.identity import context_facts, enter_name, register_query, sink_context
from headrace.queries.inspect_checkpoint import cut_off, require_usable
from headrace.queries.layout import QueryLayout, layout_of
from headrace.queries.location import Home, enter_sink, entered, require_same_sink
from headrace.queries.manifest import QueryRevision, enter, note_version, written_async
from headrace.queries.source_names import write_source_names
from headrace.run.moved_project import source_homes
from headrace.run.plan import Planned, planned, unfit
from headrace.run.query_run import Reports, Request, Running
from headrace.run.rename import apply_renames, rename_history
from headrace.run.state_store import query_settings, rows_tracked
from headrace.spark.jvm.session_conf import (
    ONE_AT_A_TIME,
    apply_settings,
    default_partitions,
    name_query,
    restore_settings,
    share_settings,
)
from headrace.spark.plans.analysed import PlanFacts
from headrace.spark.stream.event_times import observe_event_times
from headrace.storage.private import writing_to
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
    asked = replace(query, trigger=trigger or query.trigger)
    return replace(bring_up(Request(project=project, query=asked, spark=spark)), query=query)


def bring_up(request: Request) -> Running:
    """Check and start what is asked for. Raises as `start`."""
    project, query, spark = request.project, request.query, request.spark
    if query.sink.facts.durable:
        register_query(project, query)
    lock = driver_lock.take(project, query)
    try:
        with ONE_AT_A_TIME:
            said = apply_renames(project, query, spark)
        running = _launched(replace(request, settings=query_settings(project, query, spark)))
    except BaseException as error:
        if lock is not None:
            try:
                if isinstance(error, HeadraceError):
                    # Of a process that was stopped for long, that is the fault: others have changed what it found.
                    lock.require_held(query)
            finally:
                lock.release()
        raise
    return replace(running, lock=lock, notes=(*said, *running.notes))


def _launched(request: Request) -> Running:
    """Start the query; before that, batches that the checkpoint has lost and the sink holds are made one by one."""
    made: list[Restorable] = []
    notes: list[Finding] = []
    gave_up = False
    while True:
        lost = _lost_batch(request)
        if lost is not None and lost.batches in [each.batches for each in made]:
            # Made again, the batch left no state behind: what is wrong is reported by the look at the checkpoint.
            lost, gave_up = None, True
        try:
            running = launch(request if lost is None else _alone(request))
        except CheckpointBehind:
            # An older driver has committed a batch while this start waited for it.
            if gave_up or lost is not None or _lost_batch(request) is None:
                raise
            continue
        made += [] if lost is None else [lost]
        notes += running.notes
        if lost is None or not _ended_well(running):
            return replace(running, notes=tuple(dict.fromkeys((*healed(request.query, running.layout, made), *notes))))


def _alone(request: Request) -> Request:
    """The same query for one batch that the checkpoint has lost, over what that was planned with."""
    return replace(request, query=replace(request.query, trigger=Once()), versions=None, restoring=True)


def _lost_batch(request: Request) -> Restorable | None:
    """A batch that the sink has and the checkpoint has lost, planned again; None if there is none."""
    project, query = request.project, request.query
    if not query.sink.facts.durable:
        return None
    layout = layout_of(project, query)
    with remembering(layout.checkpoint):
        return plan_lost_batch(project, query, layout)


def _ended_well(running: Running) -> bool:
    """Wait for a query that runs one batch; how it failed is seen by whoever watches it."""
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


def launch(request: Request) -> Running:
    """Check and start the query; if that fails, nothing was started."""
    request.begin("reading its checkpoint")
    spark = request.spark
    # What is only looked at. Once the sink is opened an older driver may end its batch.
    layout = layout_of(request.project, request.query)
    with share_settings(spark, request.settings), remembering(layout.checkpoint):
        home, plan = _looked_at(request, layout)
    try:
        with ONE_AT_A_TIME, restore_settings(spark, (POLICY,)):
            _set_policy(spark, home.checkpoint, request.project, request.query, plan.facts)
        request.begin(f"making the sink {request.query.sink_kind} ready")
        reports = Reports(query=request.query, tell=request.tell)
        named = tuple(_enter_name(request, home))
        context = _context(request, home, plan, reports)
        writer = _open_sink(request, home, plan, context)
        reports.tell = None
        notes = (*named, *plan.notes, *_prepare_checkpoint(request, home, plan, context))
        # Spark takes no counts into the other two, whose reports of batches count otherwise.
        plain = isinstance(request.trigger, (Continuous, RealTime))
        frame = plan.frame if plain else observe_event_times(plan.frame)
        kept_in = {READ_FILES: str(home.layout.home) if home.lasting else ""}
        with share_settings(spark, request.settings), ONE_AT_A_TIME, restore_settings(spark, (PARTITIONS, POLICY)):
            _set_policy(spark, home.checkpoint, request.project, request.query, plan.facts)
            _set_partitions(spark, home.repartitions.partitions(home.checkpoint), request.project)
            stream = writer.attach(_stream(writer.serialize(frame), request.query, context))
            with name_query(spark, request.query.name), apply_settings(spark, kept_in):
                handle = stream.start()
            tracked = rows_tracked(spark)
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
        uses=plan.facts.sources,
        names=plan.names,
        watermarked=tuple(map(plan.names.now, plan.facts.watermarked)),
        notes=notes,
        reports=reports,
        rows_tracked=tracked,
        tables=plan.tables,
        versions=plan.versions,
        connectors=request.project.connectors_of(request.query),
        counters=plan.counters,
        columns=plan.columns,
        scratch=home.scratch,
    )


def _looked_at(request: Request, layout: QueryLayout) -> tuple[Home, Planned]:
    if findings := list(unfit(request.project, request.query, Home(layout=layout))):
        raise CheckFailed(findings)
    home = entered(request.query, layout)
    if home.lasting:
        require_usable(request.project, request.query, home.layout)
        require_same_sink(request.project, request.query, home.layout)
    try:
        return home, planned(request, home)
    except BaseException:
        home.remove_scratch()
        raise


def _enter_name(request: Request, home: Home) -> Iterator[Finding]:
    """Rename the query if it has another name now: nothing is left that could keep it from starting but its sink."""
    if home.lasting:
        yield from enter_name(request.project, request.query, home.layout)
        yield from rename_history(request.project, request.query)


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
        query_id=home.layout.query_id,
        generation=home.layout.generation,
        mode=query.mode,
        checkpoint=home.checkpoint.root,
        mark=home.layout.head,
        fingerprint=plan.fingerprint,
        on_error=reports.faults.append,
        on_warning=reports.note,
        on_computed=reports.count,
        on_retry=reports.retry,
        on_written=reports.written.__setitem__,
        on_changes=reports.changes.__setitem__,
        empty_batches=home.repartitions.batches(home.checkpoint),
        restoring=request.restoring,
        **(context_facts(project) if home.lasting else {}),
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
    query = request.query
    continuous = isinstance(query.trigger, Continuous)
    notes: list[Finding] = []
    remove_drafts(home.checkpoint)
    move(home.checkpoint, plan.facts.sources, continuous=continuous)
    if home.lasting and not continuous and not query.sink.facts.async_progress:
        beside = written_async(home.layout.manifest, query.sink)
        notes += fill_gap(home.checkpoint, Archive(home.layout.archive), written_async=beside)
    if home.lasting:
        write_source_names(home.layout, plan.names)
        SourceIds(home.layout.home).write(plan.source_ids)
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
        errors = list(check_policy(query, entry.conf, str(spark.conf.get(POLICY))))
        if errors:
            raise CheckpointError(errors)


def secured(target: Target, checkpoint: Path) -> Callable[[int], None] | None:
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


# As many batches as a ledger keeps plans of.
KEPT = 101


def plan_lost_batch(project: Project, query: Query, layout: QueryLayout) -> Restorable | None:
    """Let the checkpoint plan the first batch that it has lost and the sink has; what was planned, or None.

    Spark makes only its newest planned batch again, and a state only from the one before. So the query runs that batch
    alone, its rows are skipped by the sink, and this is asked again. Raises PlatformError, SinkError.
    """
    sink, checkpoint = query.sink, Checkpoint(layout.checkpoint)
    try:
        if checkpoint.id is None:
            return None
        changes = Repartitions(layout.repartitions)
        run = sink_context(project, query, layout, empty_batches=changes.batches(checkpoint))
        ledger = sink.ledger
        last = None if ledger is None else ledger.last_batch(run)
        if ledger is None or last is None:
            return None
        found = _lost(checkpoint, ledger, run, last, changes.partitions(checkpoint))
    except CheckpointError:
        # The look at the whole checkpoint, which comes next, tells of it with all else.
        return None
    # A change that was cut off has the directory elsewhere, or a part of it: the look tells of that too.
    if found is None or any(cut_off(query, layout)):
        return None
    try:
        with writing_to(layout.checkpoint, called="checkpoint"):
            restore(checkpoint, found)
            _bring_along(project, query, checkpoint, run.roots)
    except CheckpointError:
        # Earlier entries are lost too, which the ledger keeps no more.
        return None
    return found


def healed(query: Query, layout: QueryLayout, lost: Sequence[Restorable]) -> Iterator[Finding]:
    """What is said of the batches that were planned again, all together."""
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


def _bring_along(project: Project, query: Query, checkpoint: Checkpoint, roots: Sequence[Path]) -> None:
    """The ledger names files as they lay when the batch was written, perhaps before the project was moved."""
    here, homes = {project.root.absolute(), project.root.resolve()}, source_homes(project, query)
    for name in checkpoint.source_names():
        for former in (root for root in roots if root not in here):
            home = homes.get(source_of(name), "")
            rewrite(checkpoint.root / Part.SOURCES / name, str(former), str(project.root.absolute()), home)


def _lost(
    checkpoint: Checkpoint, ledger: SinkLedger, run: SinkContext, last: int, partitions: int | None
) -> Restorable | None:
    plans: dict[int, PlannedBatch] = {}
    asked: list[bool] = []

    def kept(batch: int) -> PlannedBatch | None:
        # Asked once, and only for a checkpoint that has lost something.
        if not asked:
            asked.append(True)
            plans.update(
                {number: PlannedBatch.loads(text) for number, text in ledger.planned(run, last - KEPT).items()}
            )
        return plans.get(batch)

    return restorable(checkpoint, last, kept, empty=run.empty_batches, partitions=partitions, roots=run.roots)
