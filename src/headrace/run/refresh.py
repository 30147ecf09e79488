"""The tables of a running query recomputed when they are due, beside the batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.build.tables import Tables
from headrace.errors import CheckFailed, Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
                    work.faults[name] = error.findings[0].weighed("warning")
        finally:
            work.done = True
