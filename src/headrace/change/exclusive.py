"""A command that changes a stopped query: nothing of it is read before no other command and no driver can change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, TypeVar

from headrace.errors import CheckFailed, Finding, ProjectError, nearest
from headrace.model import Project, Query
from headrace.queries import driver_lock
from headrace.queries.blame import commanded
from headrace.queries.changes import current, under_way
from headrace.queries.layout import QueryLayout
from headrace.queries.rename_record import require_renamed
from headrace.run.sink_work import SinkWork, require_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = TypeVar("Work", bound=SinkWork)


def ignore(step: str) -> None:
    """Report a step to nobody."""


class ChangeWork(SinkWork):
    """A change of what a query has done. verb: its word on the command line. done: what the query then is."""

    verb: ClassVar[str]
    done: ClassVar[str]

    def __init__(self, project: Project, query: Query, spark: SparkSession | None, changes: bool) -> None:
        super().__init__(project, query, spark, changes=changes)
        if not query.sink.facts.durable:
            what = f"the sink of query '{query.name}' keeps nothing, so that each start begins from scratch"
            raise CheckFailed(Finding(code="HR582", what=what, where=query.where))
        if rebuilding := list(under_way(project.storage, query.name)):
            raise CheckFailed(rebuilding)
        self.live = current(QueryLayout(project.storage, query.name))
        require_renamed(self.live)

    def refused(self, code: str, why: str, fix: str) -> CheckFailed:
        """That the change is not made, and what can be done instead."""
        what = f"query '{self.query.name}' cannot be {self.done} so: {why}"
        return CheckFailed(Finding(code=code, what=what, fix=fix, where=self.query.where))

    def command(self, option: str) -> str:
        """The command line of this change with `option`."""
        return f"headrace {self.verb} {self.query.name} {option}"


@contextmanager
def exclusive(
    project: Project,
    query: str,
    spark: SparkSession | None,
    begin: Callable[[Project, Query, SparkSession | None, bool], Work],
    *,
    changes: bool,
) -> Iterator[Work]:
    """The work that `begin` makes of a declared query, begun under the driver's lock if it `changes` anything.

    What was begun, and which generation it is of, is on the disk: read before the lock is held, it may be another's by
    then. Raises ProjectError for an unknown query, and CheckFailed while a driver or another command has it.
    """
    if query not in project.queries:
        fix = nearest(query, project.queries)
        raise ProjectError(Finding(code="HR091", what=f"no query is named '{query}'", fix=fix))
    declared = project.queries[query]
    fix = "stop it first, by Ctrl-C or SIGTERM: its running batch finishes, and nothing is lost"
    require_stopped(project, declared, code="HR526", fix=fix)
    lock = driver_lock.take(project, declared) if changes else None
    try:
        work = begin(project, declared, spark, changes)
        try:
            with commanded(declared):
                yield work
        finally:
            work.close()
    finally:
        if lock is not None:
            lock.release()
