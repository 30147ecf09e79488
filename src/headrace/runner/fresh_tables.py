"""Tables that are recomputed next to a running query: a query continues over the new version of one that changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import CheckFailed, Finding, HeadraceError
from headrace.frames.tables import Tables
from headrace.runner.batch_records import Account, Notes
from headrace.runner.query_run import QueryRun, Watching
from headrace.spark.stream.foreach_batch import Halt
from headrace.starter.running import Begun, Running

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
        self._refreshers: dict[str, Refresher] = {}

    def keep(self, watched: QueryRun) -> None:
        """Have the tables of a query that has started recomputed from now on."""
        running = watched.running
        if running.tables.declared and not watched.ends and not watched.finishing:
            name = watched.query.name
            self._refreshers[name] = Refresher(running.tables, running.versions, self._spark, name)
            self._account.note_warnings(watched, list(running.tables.faults.values()))

    def look(self, watched: QueryRun) -> None:
        """Have tables computed that are due, and begin to halt the query when one of them has changed."""
        refresher = self._refreshers.get(watched.query.name)
        if refresher is None or watched.asked or watched.halt is not None or watched.finishing:
            return
        before = refresher.faults
        if not refresher.look():
            return
        for name, fault in refresher.faults.items():
            if before.get(name) != fault:
                self._notes.report(fault)
        self._account.note_warnings(watched, list(refresher.faults.values()))
        if refresher.versions != watched.running.versions:
            watched.halt = Halt(watched.running.handle, self._spark)

    def times_of_refresh(self, watched: QueryRun) -> Mapping[str, float]:
        """When each table of a query was computed last; empty where none is recomputed."""
        refresher = self._refreshers.get(watched.query.name)
        return {} if refresher is None else refresher.refreshed_at

    def stop(self, watched: QueryRun) -> None:
        """Compute the tables of a query no more."""
        if (refresher := self._refreshers.pop(watched.query.name, None)) is not None:
            refresher.stop()

    def resume(self, watched: QueryRun) -> HeadraceError | None:
        """Start a halted query over the newest versions of its tables: for all others it has never stopped.

        Returns why that failed.
        """
        before = watched.running
        refresher = self._refreshers.get(watched.query.name)
        versions = None if refresher is None else refresher.versions
        running, finishing = self._start_again(watched, versions)
        if not isinstance(running, Running):
            for finding in running.findings[1:]:
                self._notes.report(finding)
            return running
        self._account.report_news(watched)
        before.clean_up()
        self._watching.watch_restart(watched, running)
        watched.finishing, watched.halt = finishing, None
        if not finishing:
            self._resume(watched, before)
        return None

    def _resume(self, watched: QueryRun, before: Running) -> None:
        running = watched.running
        for note in running.notes:
            if note not in before.notes:
                self._notes.report(note)
        if watched.query.name not in self._refreshers:
            self.keep(watched)
        for name, number in running.versions.items():
            if before.versions.get(name) != number:
                table = running.tables.declared[name]
                fault = (
                    f"{table.word} '{name}' of query '{watched.query.name}' has changed: from batch "
                    f"{running.tables.next_batch} on its version {number} counts"
                )
                self._notes.report(Finding(code="HR560", what=fault, where=table.where))


PATIENCE_SECONDS = 5.0


@dataclass(kw_only=True)
class _Work:
    """One computation of some tables; `done` once its thread writes no more."""

    names: tuple[str, ...]
    versions: dict[str, int]
    faults: dict[str, Finding] = field(default_factory=dict)
    done: bool = False


class Refresher:
    """Computes each table of one query at its interval, one after the other; asked by the supervisor, never waits.

    versions: those that the query should continue with; faults: of the tables that were not to be had last time.
    refreshed_at: when each was computed, also where it came out the same.
    """

    def __init__(self, tables: Tables, versions: Mapping[str, int], spark: SparkSession, name: str) -> None:
        self.versions = dict(versions)
        self.faults: dict[str, Finding] = {}
        self.refreshed_at = dict.fromkeys(tables.declared, time.time())
        self._tables = tables
        self._spark = spark
        self._group = f"headrace-tables-of-{name}"
        now = time.monotonic()
        self._due = {table.name: now + table.refresh.seconds for table in tables.declared.values() if table.refresh}
        self._work: _Work | None = None
        self._thread: threading.Thread | None = None

    def look(self) -> bool:
        """Begin what is due and take what is done; True when something was done since the last look."""
        if self._work is None:
            self._begin()
            return False
        if not self._work.done:
            return False
        work, self._work = self._work, None
        self.versions = work.versions
        self.refreshed_at |= dict.fromkeys(set(work.names) - set(work.faults), time.time())
        self.faults = {name: fault for name, fault in self.faults.items() if name not in work.names} | work.faults
        return True

    def stop(self) -> None:
        """Break off what is being computed; what is half made goes with it, or at the next start."""
        thread = self._thread
        if self._work is None or thread is None:
            return
        until = time.monotonic() + PATIENCE_SECONDS
        while thread.is_alive() and time.monotonic() < until:
            # Again and again: the thread may be about to begin its next job.
            self._spark.sparkContext.cancelJobGroup(self._group)
            thread.join(0.1)

    def _begin(self) -> None:
        now = time.monotonic()
        names = tuple(name for name in self._tables.declared if self._due[name] <= now)
        if not names:
            return
        for name in names:
            refresh = self._tables.declared[name].refresh
            assert refresh is not None, "others are not refreshed"
            self._due[name] = now + refresh.seconds
        self._work = _Work(names=names, versions=dict(self.versions))
        self._thread = threading.Thread(target=self._compute, args=(self._work,), daemon=True, name=self._group)
        self._thread.start()

    def _compute(self, work: _Work) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, "tables recomputed", interruptOnCancel=True)
            for name in work.names:
                try:
                    work.versions[name] = self._tables.compute(name, work.versions, same_schema=True)
                except CheckFailed as error:
                    work.faults[name] = error.findings[0].with_severity("warning")
        finally:
            work.done = True
