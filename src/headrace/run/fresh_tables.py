"""Tables that are recomputed while a query runs: when one has changed, the query continues over its new version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import Finding, HeadraceError
from headrace.run.batch_records import Account, Notes
from headrace.run.query_run import Begun, QueryRun, Running, Watching
from headrace.run.refresh import Refresher
from headrace.spark.stream.foreach_batch import Halt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Starts the query of a run again, over these versions of its tables.
StartAgain: TypeAlias = Callable[[QueryRun, Mapping[str, int] | None], Begun]


class FreshTables:
    """Keeps the tables of running queries fresh; asked at each step, never waits for a table."""

    def __init__(
        self, spark: SparkSession, watching: Watching, account: Account, notes: Notes, start_again: StartAgain
    ) -> None:
        self._spark = spark
        self._watching = watching
        self._account = account
        self._notes = notes
        self._start_again = start_again

    def keep(self, watched: QueryRun) -> None:
        """Have the tables of a query that has started recomputed from now on."""
        running = watched.running
        if running.tables.declared and not watched.ends and not watched.finishing:
            watched.refresher = Refresher(running.tables, running.versions, self._spark, watched.query.name)
            self._account.warned(watched, list(running.tables.faults.values()))

    def look(self, watched: QueryRun) -> None:
        """Have tables computed that are due, and begin to halt the query when one of them has changed."""
        refresher = watched.refresher
        if refresher is None or watched.asked or watched.stop_gracefully is not None or watched.finishing:
            return
        before = refresher.faults
        if not refresher.look():
            return
        for name, fault in refresher.faults.items():
            if before.get(name) != fault:
                self._notes.tell(fault)
        self._account.warned(watched, list(refresher.faults.values()))
        if refresher.versions != watched.running.versions:
            watched.stop_gracefully = Halt(watched.running.handle, self._spark)

    def resume(self, watched: QueryRun) -> HeadraceError | None:
        """Start a halted query over the newest versions of its tables: for all others it has never stopped.

        Returns why that failed.
        """
        before = watched.running
        versions = watched.refresher.versions if watched.refresher is not None else None
        running, finishing = self._start_again(watched, versions)
        if not isinstance(running, Running):
            for finding in running.findings[1:]:
                self._notes.tell(finding)
            return running
        self._account.tell_news(watched)
        before.clean_up()
        self._watching.restarted(watched, running)
        watched.finishing, watched.stop_gracefully = finishing, None
        if not finishing:
            self._resumed(watched, before)
        return None

    def _resumed(self, watched: QueryRun, before: Running) -> None:
        running = watched.running
        for note in running.notes:
            if note not in before.notes:
                self._notes.tell(note)
        if watched.refresher is None:
            self.keep(watched)
        for name, number in running.versions.items():
            if before.versions.get(name) != number:
                table = running.tables.declared[name]
                what = (
                    f"{table.word} '{name}' of query '{watched.query.name}' has changed: from batch "
                    f"{running.tables.next_batch} on its version {number} counts"
                )
                self._notes.tell(Finding(code="HR560", what=what, where=table.where))
