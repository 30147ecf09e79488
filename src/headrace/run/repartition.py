"""The state of a query that is not running brought into another number of partitions."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.repartitions import Change, Repartitions, note_partitions
from headrace.contract.query_state import RUNNING
from headrace.errors import CheckFailed, CheckpointError, Finding, ProjectError, nearest
from headrace.model import Project, Query
from headrace.model.state_store import PROVIDER_KEY, PROVIDERS
from headrace.observe.history import History
from headrace.queries import driver_lock
from headrace.queries.checkpoint_look import require_usable
from headrace.queries.layout import QueryLayout, history_file, latest_generation
from headrace.queries.naming import commanded
from headrace.queries.rename_record import require_renamed
from headrace.queries.ways_out import reset_command
from headrace.run.state_store import begun_with, query_settings
from headrace.spark.jvm.session_conf import applied
from headrace.spark.messages.refusals import sentence_of
from headrace.spark.stream.state import repartition_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ESCAPED = re.compile(r'[\s"#%<>?\\^`{|}\[\]]')
ALIVE = ("starting", *RUNNING)


@dataclass(frozen=True, kw_only=True)
class Repartitioned:
    """What was done: `batch` holds the state in its new partitions; None where the number was `after` already."""

    query: str
    before: int
    after: int
    batch: int | None

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return asdict(self)


def repartition(project: Project, query: str, partitions: int, *, spark: SparkSession | None = None) -> Repartitioned:
    """Bring the state of `query` into `partitions` partitions; its rows, offsets and result stay as they are.

    The query must not be running. Called again after a crash, it ends what was begun. Raises ProjectError,
    CheckFailed, CheckpointError or PlatformError; then nothing was changed, or Spark was cut off in between.
    """
    if query not in project.queries:
        raise ProjectError(
            Finding(code="HR091", what=f"no query is named '{query}'", fix=nearest(query, project.queries))
        )
    declared = project.queries[query]
    if partitions < 1:
        raise _impossible(declared, f"{partitions} is no number of partitions", "give a number from 1 on")
    require_stopped(
        project,
        declared,
        code="HR553",
        fix="stop it first, by Ctrl-C or SIGTERM: its running batch finishes, and nothing is lost",
    )
    lock = driver_lock.take(project, declared)
    try:
        with commanded(declared):
            return _repartitioned(project, declared, partitions, spark)
    finally:
        if lock is not None:
            lock.release()


def _repartitioned(project: Project, declared: Query, partitions: int, spark: SparkSession | None) -> Repartitioned:
    query = declared.name
    layout = QueryLayout(project.storage, query, latest_generation(project.storage, query))
    checkpoint, changes = Checkpoint(layout.checkpoint), Repartitions(layout.repartitions)
    require_usable(declared, layout)
    require_renamed(layout)
    before = changes.partitions(checkpoint)
    committed = checkpoint.last_committed
    if before is None or committed is None:
        raise _impossible(declared, "it has no state yet", f"run it first: headrace run {query}")
    _require_rocksdb(declared, checkpoint)
    _require_plain(declared, checkpoint)
    change = _planned(declared, checkpoint, changes, before, partitions)
    if change is None:
        return Repartitioned(query=query, before=before, after=before, batch=None)
    note_partitions(checkpoint, committed, before)
    if change not in changes.all():
        changes.forget_unbegun(checkpoint)
        changes.enter(change)
    _made(project, declared, checkpoint, change, spark)
    return Repartitioned(query=query, before=before, after=partitions, batch=change.batch)


def _planned(query: Query, checkpoint: Checkpoint, changes: Repartitions, before: int, after: int) -> Change | None:
    """The change to be made or ended; None if there is nothing to do."""
    cut_off = changes.cut_off(checkpoint)
    if cut_off is not None:
        if cut_off.after == after:
            return cut_off
        what = f"a change to {cut_off.after} partitions was begun and cut off"
        raise _impossible(query, what, f"end it first: headrace state repartition {query.name} {cut_off.after}")
    planned, committed = checkpoint.last_batch, checkpoint.last_committed
    if planned != committed:
        fix = f"let it finish that batch first: headrace run {query.name} --available-now"
        raise _impossible(query, f"batch {planned} is planned and not committed", fix)
    if before == after or committed is None:
        return None
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Change(batch=committed + 1, before=before, after=after, at=now)


def _made(project: Project, query: Query, checkpoint: Checkpoint, change: Change, spark: SparkSession | None) -> None:
    from headrace.build.project_session import session

    own = spark is None
    spark = spark or session(project)
    try:
        with applied(spark, query_settings(project, query, spark)):
            repartition_state(spark, checkpoint.root, change.after)
    except Exception as error:
        raise CheckpointError(
            Finding(
                code="HR573",
                what=f"Spark could not bring the state of query '{query.name}' into {change.after} partitions: "
                + sentence_of(error),
                fix="correct the cause and give the command again: it ends what was begun",
                where=query.where,
            )
        ) from error
    finally:
        if own:
            spark.stop()


def require_stopped(project: Project, query: Query, *, code: str, fix: str) -> None:
    """Raise CheckFailed with finding `code` if the history says that `query` is running."""
    if not history_file(project.local_storage).exists():
        return
    with History.open(history_file(project.local_storage), read_only=True) as history:
        running = next((each for each in history.statuses() if each.query == query.name and each.state in ALIVE), None)
    if running is not None:
        raise CheckFailed(
            Finding(
                code=code,
                what=f"query '{query.name}' is {running.state} in process {running.pid}",
                fix=fix,
                where=query.where,
            )
        )


def _require_rocksdb(query: Query, checkpoint: Checkpoint) -> None:
    # Spark looks at it only after it has planned the change, and leaves a checkpoint that cannot continue.
    if begun_with(checkpoint).get(PROVIDER_KEY) != PROVIDERS["rocksdb"]:
        fix = f"reset the query ({reset_command(query)}) to change the number"
        raise _impossible(query, "its state is not kept by RocksDB", fix)


def _require_plain(query: Query, checkpoint: Checkpoint) -> None:
    # Spark 4.2 escapes the path twice (StreamingUtils.resolvedCheckpointLocation), and finds no batch there.
    if found := _ESCAPED.search(str(checkpoint.root)):
        fix = "keep the number; or move the storage to a path without that character"
        why = f"Spark does not find {checkpoint.root} for this, because of the {found[0]!r} in its path"
        raise _impossible(query, why, fix)


def _impossible(query: Query, why: str, fix: str) -> CheckFailed:
    what = f"the state partitions of query '{query.name}' cannot be changed: {why}"
    return CheckFailed(Finding(code="HR580", what=what, fix=fix, where=query.where))
