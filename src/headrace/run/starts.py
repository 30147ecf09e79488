"""Queries brought up one after another, in a thread beside that which watches those that run already."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.build.tables import Tables
from headrace.errors import Finding, HeadraceError, QueryFailed
from headrace.model import Once, Project, Query, Trigger
from headrace.queries.driver_lock import DriverLock
from headrace.queries.home import layout_of
from headrace.registry import known_failures
from headrace.run.attempt import Attempt
from headrace.run.rename import brought_along
from headrace.run.running import Reached, Running
from headrace.run.start import start
from headrace.spark.jvm.session_conf import activate
from headrace.spark.messages.failures import finding_of_message
from headrace.user_code import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Begun: TypeAlias = tuple[Running | HeadraceError, bool]
"""A running query, or why it did not start, and whether it first finishes a batch that was begun before."""


@dataclass(frozen=True, kw_only=True)
class StartingQuery:
    """A query that is being started: the run in the history, and the last batch that earlier runs committed.

    lock: that no other process runs it, held until what was started holds it by itself.
    """

    query: Query
    trigger: Trigger
    history_run: int | None
    lock: DriverLock | None
    committed: int | None
    begun: Future[Begun]
    attempt: Attempt


class Starts:
    """A thread for each start, with the session and the local properties of the caller's thread."""

    def __init__(self, spark: SparkSession, wake: Callable[[], None]) -> None:
        self._spark = spark
        self._wake = wake
        self._last: Future[Begun] | None = None

    def submit(self, start: Callable[[], Begun]) -> Future[Begun]:
        """Begin a start; `wake` is called when it has come to its end."""
        from pyspark.util import inheritable_thread_target

        def with_session() -> Begun:
            activate(self._spark)
            return start()

        future: Future[Begun] = Future()
        future.add_done_callback(lambda _: self._wake())
        target = inheritable_thread_target(self._spark)(with_session)

        def run() -> None:
            try:
                future.set_result(target())
            except BaseException as error:
                future.set_exception(error)

        # No thread that the process waits for at its end: it may hang in a client that waits for a lock.
        threading.Thread(target=run, name="headrace-start", daemon=True).start()
        self._last = future
        return future

    def give_up(self) -> None:
        """Wait no more for the last start."""
        self._last = None

    def close(self) -> None:
        """Wait for a start that has begun and was not given up."""
        if self._last is not None:
            self._last.exception()


def bring_up(
    project: Project,
    query: Query,
    spark: SparkSession,
    tables: Tables | None,
    trigger: Trigger,
    *,
    versions: Mapping[str, int] | None,
    reached: Reached | None,
    tell: Callable[[Finding], None],
    preparing: Callable[[str], None],
    attempt: Attempt | None,
) -> Begun:
    """Start `query`; a batch that was begun with other versions of its tables is made first, and then it ends.

    tables: None at the first start of a run, which may take over those of a former name.
    """
    try:
        for note in brought_along(project, query, spark) if tables is None else ():
            tell(note)
        tables = tables or Tables(project, query, layout_of(project, query), spark)
        planned = tables.planned()
        finishing = planned is not None and planned != versions
        with serving(query.name):
            running = start(
                project,
                query,
                spark,
                trigger=Once() if finishing else trigger,
                reached=reached,
                versions=planned if finishing else versions,
                tell=tell,
                preparing=preparing,
                attempt=attempt,
            )
    except HeadraceError as error:
        return error, False
    except Exception as error:
        said = str(error) or type(error).__name__
        subject, connectors = f"query '{query.name}'", project.connectors_of(query)
        finding = finding_of_message(
            said, subject=subject, where=query.where, connectors=connectors, installed=known_failures
        )
        return QueryFailed(finding), False
    return running, finishing
