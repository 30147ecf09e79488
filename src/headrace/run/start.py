"""One query brought from its declaration to a running StreamingQuery of Spark."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from headrace.build.catalog import register_written
from headrace.build.plan_builder import Reader, build
from headrace.build.tables import Tables
from headrace.check.analysed import analysed
from headrace.check.live import live
from headrace.check.policy import POLICY, kept_policy
from headrace.check.refresh import refreshed
from headrace.check.triggers import cores
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.handover import fill_gap, move
from headrace.checkpoint.prefix import planned_prefix
from headrace.checkpoint.repartitions import PARTITIONS, Repartitions
from headrace.checkpoint.uses import source_of
from headrace.contract import Boundary, Connector, SinkContext
from headrace.errors import CheckFailed, CheckpointBehind, CheckpointError, Finding, HeadraceError
from headrace.model import AvailableNow, Continuous, Every, Once, Project, Query, RealTime, Source, Trigger
from headrace.model.layout import QueryLayout, latest_generation
from headrace.run import driver_lock
from headrace.run.application import application
from headrace.run.attempt import Attempt
from headrace.run.checkpoint_look import require_state, require_usable
from headrace.run.driver_lock import DriverLock
from headrace.run.durability import secured
from headrace.run.manifest import enter, written_async
from headrace.run.moved_project import bring_along
from headrace.run.naming import named
from headrace.run.restore import plan_lost_batch
from headrace.run.sink_location import enter_sink, require_same_sink
from headrace.run.state_store import compared, rows_tracked
from headrace.spark.failures import failure_of
from headrace.spark.plans import PlanFacts, plan_facts, plan_text
from headrace.spark.session_conf import applied, restored
from headrace.spark.settings import default_partitions
from headrace.storage.faults import writing_to
from headrace.storage.private import make_private

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Reached = Callable[[Boundary, int], None]


@dataclass(kw_only=True)
class Running:
    """A started query: Spark's handle, where it keeps things, and what its sink reported: faults, and other news.

    computed: for each batch, whether each time that its sink computed it came to the end.
    rows_tracked: whether its state store counts its rows.
    connectors: its sources and its sink, which explain failures of their own.
    tables, versions: those that are computed anew while it runs, and which versions it was started over.
    """

    query: Query
    layout: QueryLayout
    sink_run: SinkContext
    handle: StreamingQuery
    source_names: tuple[str, ...]
    watermarked: tuple[str, ...]
    notes: tuple[Finding, ...]
    faults: list[HeadraceError]
    news: SimpleQueue[Finding]
    computed: dict[int, list[bool]]
    rows_tracked: bool = True
    tables: Tables
    versions: Mapping[str, int]
    connectors: tuple[Connector, ...] = ()
    scratch: Path | None = None
    lock: DriverLock | None = None

    def failure(self) -> Finding | None:
        """Why the query ended; None when it ended well."""
        return failure_of(
            self.handle,
            self.faults,
            subject=f"query '{self.query.name}'",
            where=self.query.where,
            connectors=self.connectors,
        )

    def clean_up(self) -> None:
        """Let others run the query, and remove the checkpoint of a sink that keeps nothing."""
        if self.lock is not None:
            self.lock.release()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def start(
    project: Project,
    query: Query,
    spark: SparkSession,
    *,
    trigger: Trigger | None = None,
    reached: Reached | None = None,
    versions: Mapping[str, int] | None = None,
    tell: Callable[[Finding], None] | None = None,
    attempt: Attempt | None = None,
) -> Running:
    """Check and start `query`.

    tell: takes at once what the sink has to say while it is made ready, as that it waits for a lock.
    attempt: by which the start may be given up meanwhile.
    versions: of its tables that are computed anew while it runs; without them those of a batch that was planned and not
    committed, or else they are computed. Raises CheckFailed, CheckpointError, PlatformError, SourceError or
    SinkError; then nothing was started.
    """
    lock = driver_lock.take(project, query)
    try:
        running = _brought_up(project, query, spark, trigger, reached, versions, tell, attempt or Attempt())
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    running.lock = lock
    return running


def _brought_up(
    project: Project,
    query: Query,
    spark: SparkSession,
    trigger: Trigger | None,
    reached: Reached | None,
    versions: Mapping[str, int] | None,
    tell: Callable[[Finding], None] | None,
    attempt: Attempt,
) -> Running:
    """Start `query`; before that, batches that the checkpoint has lost and the sink holds are made again one by one."""
    with restored(spark, (PARTITIONS, POLICY)), applied(spark, project.target.state_store):
        told: list[Finding] = []
        gave_up = False
        while True:
            lost = _lost_batch(project, query)
            if lost in told:
                # Made again, the batch left no state behind: what is wrong is told by the look at the checkpoint.
                lost, gave_up = None, True
            try:
                # A batch that the checkpoint had lost is made alone, over what it was planned with.
                running = (
                    _started(project, query, spark, trigger, reached, versions, tell, attempt)
                    if lost is None
                    else _started(project, query, spark, Once(), reached, None, tell, attempt, restoring=True)
                )
            except CheckpointBehind:
                # An older driver has committed a batch while this start waited for it.
                if gave_up or lost is not None or _lost_batch(project, query) is None:
                    raise
                continue
            told += [] if lost is None else [lost]
            if lost is None or not _ended_well(running):
                return replace(running, notes=(*told, *running.notes))


def _lost_batch(project: Project, query: Query) -> Finding | None:
    layout = QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))
    return plan_lost_batch(project, query, layout) if query.sink.facts.durable else None


def _ended_well(running: Running) -> bool:
    """Wait for a query that runs one batch; how it failed is seen by whoever watches it."""
    try:
        running.handle.awaitTermination()
    except Exception:
        return False
    return running.handle.exception() is None


def _started(
    project: Project,
    query: Query,
    spark: SparkSession,
    trigger: Trigger | None,
    reached: Reached | None,
    versions: Mapping[str, int] | None,
    tell: Callable[[Finding], None] | None,
    attempt: Attempt,
    *,
    restoring: bool = False,
) -> Running:
    layout = QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))
    begun = query.sink.facts.durable and Checkpoint(layout.checkpoint).last_batch is not None
    wanted = trigger or query.trigger
    if unfit := (*live(project, query, wanted, begun=begun), *refreshed(project, query, wanted)):
        raise CheckFailed(unfit)
    scratch = None
    if query.sink.facts.durable:
        checkpoint_directory = layout.checkpoint
        _make_home(layout)
        require_usable(query, layout)
        require_same_sink(project, query, layout)
    else:
        scratch = Path(tempfile.mkdtemp(prefix="headrace-"))
        checkpoint_directory = scratch / "checkpoint"
    checkpoint, changes = Checkpoint(checkpoint_directory), Repartitions(layout.repartitions)
    try:
        kept = tuple(compared(project, query, checkpoint, changes, spark))
        if scratch is None:
            kept += tuple(bring_along(project, query))
            _require_planned(project, query, layout)
        judged = replace(query, trigger=wanted)
        for source in project.sources_of(query):
            with named(f"query '{query.name}', source '{source.name}'", source.where):
                source.connector.check_connection(spark)
        if findings := list(cores(project, judged, spark)):
            raise CheckFailed(findings)
        register_written(project, query, spark)
        tables = Tables(project, query, layout, spark)
        told: tuple[Finding, ...] = ()
        if versions is None:
            versions = tables.planned()
        if versions is None:
            versions, told = tables.begin()
        frame = build(project, query.transform, spark, _reader(spark, judged.trigger), tables.frames(versions))
        facts = plan_facts(frame)
        if facts.stateful:
            require_state(query, checkpoint)
        notes = () if begun else tuple(_beginnings(project, query))
        notes += kept + told + _checked(judged, frame, facts)
        _set_policy(spark, checkpoint, project, query, facts)
        faults: list[HeadraceError] = []
        news: SimpleQueue[Finding] = SimpleQueue()
        computed: dict[int, list[bool]] = {}
        opening = [tell] if tell is not None else []

        def noted(finding: Finding) -> None:
            """Tell at once what comes while the sink is made ready; later it is told between batches."""
            (opening[0] if opening else news.put)(replace(finding, where=query.where))

        sink_run = SinkContext(
            query=query.name,
            generation=layout.generation,
            mode=query.mode,
            checkpoint=checkpoint_directory,
            fingerprint=fingerprint(frame, query),
            on_error=faults.append,
            on_warning=noted,
            on_computed=lambda batch, whole: computed.setdefault(batch, []).append(whole),
            empty_batches=changes.batches(checkpoint),
            restoring=restoring,
            **(application(project).facts() if scratch is None else {}),
        )
        if reached is not None:
            sink_run = replace(sink_run, on_boundary=reached)
        if scratch is None and (secure := secured(project.target, checkpoint_directory)) is not None:
            sink_run = replace(sink_run, before_commit=secure)
        with named(f"the sink of query '{query.name}'", query.where), attempt.making_ready():
            writer = query.sink.open(frame, sink_run)
        opening.clear()
        if scratch is None:
            enter_sink(project, query, layout)
        continuous = isinstance(judged.trigger, Continuous)
        move(checkpoint, facts.sources, continuous=continuous)
        if scratch is None and not continuous and not query.sink.facts.async_progress:
            beside = written_async(layout.manifest, query.sink)
            notes += tuple(fill_gap(checkpoint, Archive(layout.archive), written_async=beside))
        _set_partitions(spark, changes.partitions(checkpoint), project)
        if scratch is None:
            last = checkpoint.last_batch
            next_batch = 0 if last is None else last + 1
            notes += tuple(
                enter(
                    layout,
                    query,
                    sink_run.fingerprint,
                    columns=frame.schema.simpleString(),
                    next_batch=next_batch,
                    spark=spark.version,
                )
            )
            tables.enter(versions)
        frame = writer.serialize(frame)
        handle = writer.attach(_writer(frame, query, sink_run, judged.trigger)).start()
    except BaseException:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    return Running(
        query=query,
        layout=layout,
        sink_run=sink_run,
        handle=handle,
        source_names=facts.sources,
        watermarked=facts.watermarked,
        notes=notes,
        faults=faults,
        news=news,
        computed=computed,
        rows_tracked=rows_tracked(spark),
        tables=tables,
        versions=versions,
        connectors=project.connectors_of(query),
        scratch=scratch,
    )


def _beginnings(project: Project, query: Query) -> Iterator[Finding]:
    for source in project.sources_of(query):
        if position := source.connector.starting_position():
            yield Finding(
                code="HR131",
                what=f"query '{query.name}' starts for the first time, and its source '{source.name}' begins "
                f"{position}",
                fix="set starting_offsets before the first start to begin elsewhere",
                where=source.where,
            )


def _reader(spark: SparkSession, trigger: Trigger) -> Reader:
    """What gives each source's stream; without batches there is none that a rate limit could bound."""

    def stream(source: Source) -> DataFrame:
        connector = source.connector
        if isinstance(trigger, (Continuous, RealTime)):
            connector = connector.without_rate_limit()
        return connector.stream(spark, source.name)

    return stream


def fingerprint(frame: DataFrame, query: Query) -> str:
    """Sixteen hexadecimal digits that change when the query's plan (normalised by Spark), schema or mode changes.

    They may change with Spark's version too, which may write the same plan otherwise.
    """
    return hashlib.sha256(f"{query.mode}\n{frame.schema.json()}\n{plan_text(frame)}".encode()).hexdigest()[:16]


def _checked(query: Query, frame: DataFrame, facts: PlanFacts) -> tuple[Finding, ...]:
    findings = tuple(analysed(query, frame, facts))
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise CheckFailed(errors)
    return findings


def _writer(frame: DataFrame, query: Query, run: SinkContext, trigger: Trigger) -> DataStreamWriter:
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
    chosen = project.target.spark.get(PARTITIONS, str(default_partitions()))
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


def _make_home(layout: QueryLayout) -> None:
    with writing_to(layout.home):
        make_private(layout.storage)
        layout.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = tempfile.NamedTemporaryFile(dir=layout.home, prefix=".writable-")  # noqa: SIM115
        probe.close()


def _require_planned(project: Project, query: Query, layout: QueryLayout) -> None:
    """Raise SourceError if a batch that was planned and not committed can no longer be made as it was planned."""
    sources = project.sources_of(query)
    prefixes = planned_prefix(Checkpoint(layout.checkpoint), [source.name for source in sources])
    connectors = {source.name: source.connector for source in sources}
    for name, prefix in prefixes.items() if prefixes is not None else ():
        connectors[source_of(name)].ensure_available(prefix)
