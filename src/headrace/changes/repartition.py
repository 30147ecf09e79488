"""The number of partitions of a query's state changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.handover import PartitionChange, Repartitions, note_partitions
from headrace.errors import CheckFailed, CheckpointError, PlainData
from headrace.generations import driver_lock
from headrace.generations.blame import name_command, reset_command
from headrace.generations.facts import StartFacts, require_usable
from headrace.model import Project, Query
from headrace.model.state_store import PROVIDER_KEY, PROVIDERS
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.messages.refusals import sentence_of
from headrace.spark.stream.state import repartition_state
from headrace.starter.sink_work import require_stopped
from headrace.starter.state_store import query_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ESCAPED = re.compile(r'[\s"#%<>?\\^`{|}\[\]]')


@dataclass(frozen=True, kw_only=True)
class Repartitioned(PlainData):
    """The outcome of a change of the number of partitions.

    Attributes:
        before: The former number.
        after: The new number.
        batch: The batch that holds the state in its new partitions; None if the number was `after` already.
    """

    query: str
    before: int
    after: int
    batch: int | None


def repartition(project: Project, query: str, partitions: int, *, spark: SparkSession | None = None) -> Repartitioned:
    """Bring the state of `query` into `partitions` partitions; its rows, offsets and result stay as they are.

    The query must not be running. Called again after a crash, it ends what was begun. Raises ProjectError,
    CheckFailed, CheckpointError or PlatformError; then nothing was changed, or Spark was cut off in between.
    """
    declared = project.query(query)
    if partitions < 1:
        raise _impossible(declared, f"{partitions} is not a number of partitions", "give a number from 1 on")
    require_stopped(project, declared)
    lock = driver_lock.take(project, declared)
    try:
        with name_command(declared):
            return _repartition(project, declared, partitions, spark)
    finally:
        if lock is not None:
            lock.release()


def _repartition(project: Project, declared: Query, partitions: int, spark: SparkSession | None) -> Repartitioned:
    query = declared.name
    facts = StartFacts.read(project, declared)
    checkpoint, changes = facts.checkpoint, facts.repartitions
    require_usable(facts)
    before, committed = facts.partitions, facts.last_committed
    if before is None or committed is None:
        raise _impossible(declared, "it has no state yet", f"run it first: headrace run {query}")
    # Spark looks at it only after it has planned the change, and leaves a checkpoint that cannot continue.
    if checkpoint.conf.get(PROVIDER_KEY) != PROVIDERS["rocksdb"]:
        fix = f"reset the query ({reset_command(declared)}) to change the number"
        raise _impossible(declared, "its state is not kept by RocksDB", fix)
    # Spark 4.2 escapes the path twice (StreamingUtils.resolvedCheckpointLocation), and finds no batch there.
    if escaped := _ESCAPED.search(str(checkpoint.root)):
        fix = "keep the number; or move the storage to a path without that character"
        why = f"Spark does not find {checkpoint.root} for this, because of the {escaped[0]!r} in its path"
        raise _impossible(declared, why, fix)
    change = _plan_change(declared, checkpoint, changes, before, partitions)
    if change is None:
        return Repartitioned(query=query, before=before, after=before, batch=None)
    note_partitions(checkpoint, committed, before)
    if change not in changes.all():
        changes.forget_unbegun(checkpoint)
        changes.enter(change)
    _make(facts, change, spark)
    return Repartitioned(query=query, before=before, after=partitions, batch=change.batch)


def _plan_change(
    query: Query, checkpoint: Checkpoint, changes: Repartitions, before: int, after: int
) -> PartitionChange | None:
    """The change to be made or ended; None if there is nothing to do."""
    cut_off = changes.cut_off(checkpoint)
    if cut_off is not None:
        if cut_off.after == after:
            return cut_off
        fault = f"a change to {cut_off.after} partitions was begun and cut off"
        raise _impossible(query, fault, f"end it first: headrace state repartition {query.name} {cut_off.after}")
    planned, committed = checkpoint.last_batch, checkpoint.last_committed
    if planned != committed:
        fix = f"let it finish that batch first: headrace run {query.name} --available-now"
        raise _impossible(query, f"batch {planned} is planned and not committed", fix)
    if before == after or committed is None:
        return None
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return PartitionChange(batch=committed + 1, before=before, after=after, at=now)


def _make(facts: StartFacts, change: PartitionChange, spark: SparkSession | None) -> None:
    from headrace.frames.project_session import session

    query, own = facts.query, spark is None
    spark = spark or session(facts.project)
    try:
        with apply_settings(spark, query_settings(facts, spark)):
            repartition_state(spark, facts.checkpoint.root, change.after)
    except Exception as error:
        raise CheckpointError(
            code="HR573",
            what=f"Spark could not bring the state of query '{query.name}' into {change.after} partitions: "
            + sentence_of(error),
            fix="correct the cause and give the command again: it ends what was begun",
            where=query.where,
        ) from error
    finally:
        if own:
            spark.stop()


def _impossible(query: Query, why: str, fix: str) -> CheckFailed:
    fault = f"the state partitions of query '{query.name}' cannot be changed: {why}"
    return CheckFailed(code="HR580", what=fault, fix=fix, where=query.where)
