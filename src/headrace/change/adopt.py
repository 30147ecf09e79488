"""A query that ran in plain PySpark taken over with its checkpoint and the result that it has written.

The former job's directory is only read. A copy of it is made ready beside the query's place; then the sink is told
whose its rows are; the one step that ends it is the renaming of the copy. Each step may be done again, so that an
adoption that was cut off is ended by the same command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.change.adopt_look import AdoptionLook
from headrace.change.plans import Adoption, AdoptionPlan, PlannedIs
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.adoption import copied
from headrace.errors import CheckpointError, Finding, ProjectError, Where, nearest
from headrace.model import Project
from headrace.queries import driver_lock
from headrace.queries.blame import commanded
from headrace.queries.changes import AdoptionRecord
from headrace.queries.home import Home
from headrace.queries.manifest import enter
from headrace.queries.sink_location import enter_sink
from headrace.run.plan import present
from headrace.run.sink_work import require_stopped
from headrace.storage.durable import publish, remove_tree
from headrace.storage.location import is_known, located, place
from headrace.storage.private import make_private, writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _nobody(step: str) -> None:
    """Tell nobody."""


def plan_adoption(
    project: Project,
    query: str,
    checkpoint: str | Path,
    *,
    sources: Mapping[str, str] | None = None,
    planned: PlannedIs | None = None,
    spark: SparkSession | None = None,
) -> AdoptionPlan:
    """What `adopt` would do; nothing is changed. Raises as it does."""
    with _looking(project, query, checkpoint, sources, planned, spark) as look, look.built() as built:
        return built.plan


def adopt(
    project: Project,
    query: str,
    checkpoint: str | Path,
    *,
    sources: Mapping[str, str] | None = None,
    planned: PlannedIs | None = None,
    spark: SparkSession | None = None,
    reached: Callable[[str], None] = _nobody,
) -> Adoption:
    """Let `query`, which has never run, continue the job of plain PySpark whose checkpointLocation is `checkpoint`.

    checkpoint: a path, or a URL of a store that can hold the storage as well.
    sources: by a source's name, its number or name in that checkpoint, where that is not clear. planned: whether the
    result has the rows of a batch that was planned and not committed. Called again after a crash, it ends what was
    begun. Raises ProjectError, CheckFailed, CheckpointError, SourceError, SinkError or PlatformError.
    """
    with _looking(project, query, checkpoint, sources, planned, spark, locked=True) as look:
        return _adopted(look, reached)


@contextmanager
def _looking(
    project: Project,
    query: str,
    checkpoint: str | Path,
    sources: Mapping[str, str] | None,
    planned: PlannedIs | None,
    spark: SparkSession | None,
    *,
    locked: bool = False,
) -> Iterator[AdoptionLook]:
    if query not in project.queries:
        fix = nearest(query, project.queries)
        raise ProjectError(Finding(code="HR091", what=f"no query is named '{query}'", fix=fix))
    declared = project.queries[query]
    require_stopped(project, declared, code="HR526", fix="stop it first, by Ctrl-C or SIGTERM")
    lock = driver_lock.take(project, declared) if locked else None
    old = _named(project, str(checkpoint))
    try:
        with commanded(declared):
            yield AdoptionLook(project, declared, old, sources or {}, planned, spark, changes=locked)
    finally:
        if lock is not None:
            lock.release()


def _named(project: Project, checkpoint: str) -> Checkpoint:
    """The checkpoint at a local path, or in a store that the project's settings lead to."""
    if not is_known(checkpoint):
        what = "it cannot be adopted: Headrace does not know how to read what lies there"
        fix = "copy the directory to a local path, to HDFS or to S3, and name the copy"
        raise CheckpointError(Finding(code="HR590", where=Where(file=checkpoint), what=what, fix=fix))
    located(project.root, project.target.storage, project.target.spark)
    return Checkpoint(place(checkpoint).absolute())


def _adopted(look: AdoptionLook, reached: Callable[[str], None]) -> Adoption:
    project, query, layout = look.project, look.query, look.layout
    with look.built() as built:
        plan = built.plan
        with writing_to(layout.home):
            make_private(layout.storage)
            layout.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            # What a start has left that planned no batch.
            remove_tree(layout.checkpoint)
            if not plan.continues:
                keys = {use: key for key, uses in built.names.items() for use in uses}
                AdoptionRecord.begun(look.old, plan.batch, keys).enter(layout)
        reached("recorded")
        with writing_to(layout.home):
            made = copied(look.old, layout.staged.checkpoint, layout.checkpoint, built.names)
        _require_whole(made)
        reached("copied")
        with look.named():
            query.sink.adoption.take_over(built.frame, look.context(layout.staged), plan.batch)
        reached("sink")
        enter_sink(project, query, layout)
        if not project.refreshed_tables_of(query):
            home = Home(layout=layout.staged)
            enter(layout, present(project, query, built.frame, home, built.streams))
        reached("entered")
        with writing_to(layout.home):
            publish(made.root, layout.checkpoint)
        reached("moved")
    return Adoption(query=query.name, next_batch=0 if plan.batch is None else plan.batch + 1, plan=plan)


def _require_whole(made: Checkpoint) -> None:
    """Raise CheckpointError if the copy is not what a start resumes from."""
    if errors := [each for each in made.problems() if each.severity == "error"]:
        raise CheckpointError(errors)
