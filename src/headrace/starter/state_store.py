"""The settings that a query starts with, of its state store above all, compared with those of its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.handover import PARTITIONS
from headrace.errors import CheckpointError, Finding
from headrace.generations.facts import StartFacts
from headrace.model import Project, Query
from headrace.model.state_store import OPTIONS, PROVIDER_KEY, PROVIDERS
from headrace.spark.jvm.preconditions import require_version
from headrace.spark.jvm.session_conf import is_cluster
from headrace.spark.jvm.settings import (
    CHECKPOINT_FORMAT,
    FILE_MANAGER,
    FILE_MANAGERS,
    LOCAL_FILE_MANAGER,
    ROCKSDB,
    UNFINISHED_REPARTITION,
)
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
    kept = checkpoint.conf.get(PROVIDER_KEY) if checkpoint.state_operators() else None
    chosen = project.target.state_store if kept is None else {**project.target.state_store, PROVIDER_KEY: kept}
    return {**chosen, **checkpoint_format(project, checkpoint), **key_order(checkpoint)}


def checkpoint_format(project: Project, checkpoint: Checkpoint | None = None) -> Mapping[str, str]:
    """The setting by which Spark writes the commits, and names the files of the state, as `checkpoint` has them.

    Without any that of the session holds, unless the state is kept by what knows the first format alone.
    """
    if checkpoint is not None and (version := checkpoint.commit_version) is not None:
        return {CHECKPOINT_FORMAT: str(version)}
    chosen = {**project.target.spark, **project.target.state_store}
    return {} if chosen.get(PROVIDER_KEY, ROCKSDB) == ROCKSDB else {CHECKPOINT_FORMAT: "1"}


def key_order(checkpoint: Checkpoint) -> Mapping[str, str]:
    """The setting by which a plan has the keys of deduplications in the order of the state in `checkpoint`.

    A plan that is compared with what ran would have them in another one, in which Spark does not run it. What is
    damaged is reported by the look at the checkpoint.
    """
    with suppress(CheckpointError):
        if any(operator.name.startswith(_DEDUPLICATION) for operator in checkpoint.state_operators()):
            return {_KEY_ORDER: checkpoint.conf.get(_KEY_ORDER, "false")}
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
    return _provider(checkpoint.conf.get(PROVIDER_KEY)) if checkpoint.state_operators() else None


def compare_state_store(facts: StartFacts, spark: SparkSession) -> Iterator[Finding]:
    """Yield what of the session's settings is not that of the state, or will not be heeded.

    Raises CheckpointError where Spark would fail or answer wrongly.
    """
    project, query = facts.project, facts.query
    cut_off = facts.repartitions.cut_off(facts.checkpoint)
    if cut_off is not None:
        problem = f"was being given {cut_off.after} state partitions in place of {cut_off.before}, and that was cut off"
        fix = f"end it: headrace state repartition {query.name} {cut_off.after}"
        raise CheckpointError(query.finding("HR581", problem, fix))
    if not facts.operators:
        return
    kept = facts.checkpoint.conf
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
    partitions, asked = facts.partitions, project.target.spark.get(PARTITIONS)
    if asked is not None and asked != str(partitions):
        fix = f"change it by: headrace state repartition {query.name} {asked}"
        yield _kept_finding(query, PARTITIONS, asked, str(partitions), fix)


def _provider(name: str | None) -> str:
    return next((short for short, full in PROVIDERS.items() if full == name), str(name))


def _kept_finding(query: Query, name: str, asked: str, kept: str, fix: str) -> Finding:
    problem = f"continues with {name} {kept}, which its state was begun with, and not with {asked}"
    return query.finding("HR551", problem, f"{fix}, or set {kept}")
