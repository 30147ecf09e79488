"""One query brought from its declaration to a running StreamingQuery of Spark, lost batches first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.check.event_time import POLICY
from headrace.checkpoint.repartitions import PARTITIONS
from headrace.checkpoint.restore import Restorable
from headrace.errors import CheckpointBehind, Finding
from headrace.model import Once, Project, Query, Trigger
from headrace.queries import driver_lock
from headrace.queries.home import layout_of
from headrace.run.attempt import Attempt
from headrace.run.launch import launch
from headrace.run.rename import brought_along
from headrace.run.restore import healed, plan_lost_batch
from headrace.run.running import Reached, Request, Running
from headrace.run.state_store import query_settings
from headrace.spark.jvm.session_conf import applied, restored
from headrace.storage.remembered import remembering

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(
    project: Project,
    query: Query,
    spark: SparkSession,
    *,
    trigger: Trigger | None = None,
    reached: Reached | None = None,
    versions: Mapping[str, int] | None = None,
    tell: Callable[[Finding], None] | None = None,
    preparing: Callable[[str], None] | None = None,
    attempt: Attempt | None = None,
) -> Running:
    """Check and start `query`; `trigger` overrides its own, and the rest is as `Request` says.

    Raises CheckFailed, CheckpointError, PlatformError, SourceError or SinkError; then nothing was started.
    """
    request = Request(
        project=project,
        query=replace(query, trigger=trigger or query.trigger),
        spark=spark,
        reached=reached,
        versions=versions,
        tell=tell,
        preparing=preparing,
        attempt=attempt or Attempt(),
    )
    lock = driver_lock.take(project, query)
    try:
        said = brought_along(project, query, spark)
        with restored(spark, (PARTITIONS, POLICY)), applied(spark, query_settings(project, query, spark)):
            running = _launched(request)
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    return replace(running, query=query, lock=lock, notes=(*said, *running.notes))


def _launched(request: Request) -> Running:
    """Start the query; before that, batches that the checkpoint has lost and the sink holds are made one by one."""
    made: list[Restorable] = []
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
        if lost is None or not _ended_well(running):
            notes = healed(request.query, layout_of(request.project, request.query), made)
            return replace(running, notes=(*notes, *running.notes))


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
