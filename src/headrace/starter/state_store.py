"""The state store of a query: its settings compared with those of the checkpoint, and its partitions changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.repartitions import PARTITIONS, PartitionChange, Repartitions, note_partitions
from headrace.errors import CheckFailed, CheckpointError, Finding, PlainData
from headrace.generations import driver_lock
from headrace.generations.blame import name_command, reset_command
from headrace.generations.facts import StartFacts
from headrace.generations.inspect_checkpoint import require_usable
from headrace.generations.register import layout_of
from headrace.model import Project, Query
from headrace.model.state_store import OPTIONS, PROVIDER_KEY, PROVIDERS, ROWS_TRACKED_KEY
from headrace.spark.jvm.preconditions import require_version
from headrace.spark.jvm.session_conf import apply_settings, is_cluster
from headrace.spark.jvm.settings import (
    CHECKPOINT_FORMAT,
    FILE_MANAGER,
    FILE_MANAGERS,
    LOCAL_FILE_MANAGER,
    ROCKSDB,
    UNFINISHED_REPARTITION,
)
from headrace.spark.messages.refusals import sentence_of
from headrace.spark.stream.state import repartition_state
from headrace.starter.sink_work import require_stopped
from headrace.storage.location import scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Settings of a session without which a checkpoint of Headrace cannot be begun; its own sessions have them.
_NEEDED = {
    PROVIDER_KEY: ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    UNFINISHED_REPARTITION: "false",
}
# Spark takes these from the checkpoint, whatever the session says.
_FIXED = {
    OPTIONS["format_version"].spark_key: "state_store: format_version",
    "spark.sql.streaming.stateStore.compression.codec": "spark.sql.streaming.stateStore.compression.codec",
}
# From 4.3 on, Spark orders the keys of a deduplication as they are written. Before, the order of five and more followed
# their hashes; it stays so for the state of a checkpoint that does not have this setting, whatever the session says.
_KEY_ORDER = "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"
_DEDUPLICATION = "dedupe"


def rows_tracked(spark: SparkSession) -> bool:
    """Whether the session's state store counts its rows."""
    counted = (spark.conf.get(ROWS_TRACKED_KEY, "true") or "true").lower() == "true"
    return counted or spark.conf.get(PROVIDER_KEY, None) != PROVIDERS["rocksdb"]


def session_settings(project: Project, spark: SparkSession) -> Mapping[str, str]:
    """What a query of `project` needs of a session, which may be the user's own, before it is analysed or started.

    Raises PlatformError for a session of a Spark that Headrace does not know.
    """
    require_version(spark.version)
    needed = dict(_NEEDED)
    # Another start, at the same time, may have set it.
    if not is_cluster(spark) and spark.conf.get(FILE_MANAGER, None) in (None, LOCAL_FILE_MANAGER):
        needed[FILE_MANAGER] = LOCAL_FILE_MANAGER
    chosen = {key: project.target.spark.get(key, value) for key, value in needed.items()}
    return {**chosen, **project.target.state_store}


def adopted_settings(project: Project, checkpoint: Checkpoint) -> Mapping[str, str]:
    """The settings of the state store for a checkpoint of another program, whose provider stays."""
    kept = begun_with(checkpoint).get(PROVIDER_KEY) if checkpoint.state_operators() else None
    chosen = project.target.state_store if kept is None else {**project.target.state_store, PROVIDER_KEY: kept}
    return {**chosen, **checkpoint_format(project, checkpoint), **key_order(checkpoint)}


def checkpoint_format(project: Project, checkpoint: Checkpoint | None = None) -> Mapping[str, str]:
    """The setting by which Spark writes the commits, and names the files of the state, as `checkpoint` has them.

    The newest commit that can be read shows it: of a damaged one a start makes the batch again. Without any that of the
    session holds, unless the state is kept by what knows the first format alone.
    """
    for batch in reversed(checkpoint.commit_numbers() if checkpoint is not None else ()):
        with suppress(CheckpointError):
            if checkpoint is not None and (commit := checkpoint.commit(batch)) is not None:
                return {CHECKPOINT_FORMAT: str(commit.version)}
    chosen = {**project.target.spark, **project.target.state_store}
    return {} if chosen.get(PROVIDER_KEY, ROCKSDB) == ROCKSDB else {CHECKPOINT_FORMAT: "1"}


def key_order(checkpoint: Checkpoint) -> Mapping[str, str]:
    """The setting by which a plan has the keys of deduplications in the order of the state in `checkpoint`.

    A plan that is compared with what ran would have them in another one, in which Spark does not run it. What is
    damaged is reported by the look at the checkpoint.
    """
    with suppress(CheckpointError):
        if any(operator.name.startswith(_DEDUPLICATION) for operator in checkpoint.state_operators()):
            return {_KEY_ORDER: begun_with(checkpoint).get(_KEY_ORDER, "false")}
    return {}


def query_settings(facts: StartFacts, spark: SparkSession) -> Mapping[str, str]:
    """Return the settings of the session, of the state store and of the storage that a query starts with."""
    project, checkpoint = facts.project, facts.checkpoint
    settings = session_settings(project, spark)
    if not facts.query.sink.facts.durable:
        return {**settings, **checkpoint_format(project)}
    if not facts.layout.adoption.exists():
        chosen = {**settings, **checkpoint_format(project, checkpoint), **key_order(checkpoint)}
    else:
        chosen = {**settings, **adopted_settings(project, checkpoint)}
    manager = FILE_MANAGERS.get(scheme_of(project.target.storage) or "")
    return chosen if manager is None else {**chosen, FILE_MANAGER: manager}


def provider_of(checkpoint: Checkpoint) -> str | None:
    """What keeps the state, in short; None without state."""
    return _provider(begun_with(checkpoint).get(PROVIDER_KEY)) if checkpoint.state_operators() else None


def compare_state_store(facts: StartFacts, spark: SparkSession) -> Iterator[Finding]:
    """Yield what of the session's settings is not that of the state, or will not be heeded.

    Raises CheckpointError where Spark would fail or answer wrongly.
    """
    project, query, checkpoint, changes = facts.project, facts.query, facts.checkpoint, facts.repartitions
    cut_off = changes.cut_off(checkpoint)
    if cut_off is not None:
        raise CheckpointError(
            code="HR581",
            what=f"query '{query.name}' was being given {cut_off.after} state partitions in place of "
            f"{cut_off.before}, and that was cut off",
            fix=f"end it: headrace state repartition {query.name} {cut_off.after}",
            where=query.where,
        )
    if not checkpoint.state_operators():
        return
    kept = begun_with(checkpoint)
    provider = kept.get(PROVIDER_KEY)
    wanted = spark.conf.get(PROVIDER_KEY, None)
    if provider is not None and wanted != provider:
        raise CheckpointError(
            code="HR550",
            what=f"the state of query '{query.name}' is kept by {_provider(provider)}, "
            f"and the project now asks for {_provider(wanted)}",
            fix=f"write state_store: {{provider: {_provider(provider)}}} for this target, or reset the query "
            "(headrace reset QUERY)",
            where=query.where,
        )
    for key, name in _FIXED.items():
        if key in kept and spark.conf.get(key, kept[key]) != kept[key]:
            fix = "reset the query (headrace reset QUERY) to change it"
            yield _kept_finding(query, name, str(spark.conf.get(key)), kept[key], fix)
    partitions, asked = changes.partitions(checkpoint), project.target.spark.get(PARTITIONS)
    if asked is not None and asked != str(partitions):
        fix = f"change it by: headrace state repartition {query.name} {asked}"
        yield _kept_finding(query, PARTITIONS, asked, str(partitions), fix)


def begun_with(checkpoint: Checkpoint) -> Mapping[str, str]:
    """The settings that Spark keeps with the newest batch of `checkpoint`."""
    newest = checkpoint.last_batch
    entry = checkpoint.offset(newest) if newest is not None else None
    return entry.conf if entry is not None else {}


def _provider(name: str | None) -> str:
    return next((short for short, full in PROVIDERS.items() if full == name), str(name))


def _kept_finding(query: Query, name: str, asked: str, kept: str, fix: str) -> Finding:
    return Finding(
        code="HR551",
        what=f"query '{query.name}' continues with {name} {kept}, which its state was begun with, and not with {asked}",
        fix=f"{fix}, or set {kept}",
        where=query.where,
    )


_ESCAPED = re.compile(r'[\s"#%<>?\\^`{|}\[\]]')


@dataclass(frozen=True, kw_only=True)
class Repartitioned(PlainData):
    """What was done: `batch` holds the state in its new partitions; None where the number was `after` already."""

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
        raise _impossible(declared, f"{partitions} is no number of partitions", "give a number from 1 on")
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
    layout = layout_of(project, declared)
    checkpoint, changes = Checkpoint(layout.checkpoint), Repartitions(layout.repartitions)
    require_usable(project, declared, layout)
    before = changes.partitions(checkpoint)
    committed = checkpoint.last_committed
    if before is None or committed is None:
        raise _impossible(declared, "it has no state yet", f"run it first: headrace run {query}")
    # Spark looks at it only after it has planned the change, and leaves a checkpoint that cannot continue.
    if begun_with(checkpoint).get(PROVIDER_KEY) != PROVIDERS["rocksdb"]:
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
    _make(project, declared, checkpoint, change, spark)
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


def _make(
    project: Project, query: Query, checkpoint: Checkpoint, change: PartitionChange, spark: SparkSession | None
) -> None:
    from headrace.frames.project_session import session

    own = spark is None
    spark = spark or session(project)
    try:
        with apply_settings(spark, query_settings(StartFacts.read(project, query), spark)):
            repartition_state(spark, checkpoint.root, change.after)
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
