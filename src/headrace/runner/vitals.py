"""Looks from time to time at what running queries have not done, and reports once what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from headrace.errors import Finding
from headrace.history.health import find_lost_executors, find_silent_sources, find_stall, lost_application
from headrace.model import Every
from headrace.runner.batch_records import Account, Notes
from headrace.runner.query_run import QueryRun
from headrace.spark.jvm.session_conf import executor_patience
from headrace.spark.stream.work import executors, has_work, is_forgotten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 5.0
# Workers and masters that are started again take their time; Spark's own patience is for a cluster that is there.
PATIENCES = 2


class Vitals:
    """Asked at each step of the supervisor; never waits.

    forgotten: that the cluster will give the session no executor any more, once that is known.
    """

    def __init__(self, spark: SparkSession, account: Account, notes: Notes) -> None:
        self._spark, self._account, self._notes = spark, account, notes
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._executors: frozenset[str] = frozenset()
        self._had_some = False
        # Since when tasks wait and no executor is there.
        self._lost_at: float | None = None
        self._question: threading.Thread | None = None
        self.forgotten: Finding | None = None
        self._reported: dict[str, frozenset[tuple[str, str]]] = {}

    def look(self, running: Iterable[QueryRun]) -> None:
        """Judge each running query, and the executors below them."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        for watched in running:
            if watched.ends or watched.asked:
                continue
            self._report(watched, list(_judge(watched, now)))
        there = executors(self._spark)
        for finding in find_lost_executors(self._executors, there):
            self._notes.report(finding)
        self._executors, self._had_some = there, self._had_some or bool(there)
        # With dynamic allocation there are none as long as nothing is to be done.
        if there or not self._had_some or not has_work(self._spark):
            self._lost_at = None
        else:
            self._lost_at = self._lost_at or now
            if now - self._lost_at > PATIENCES * executor_patience(self._spark):
                self._ask(self._lost_at)

    def _ask(self, lost_at: float) -> None:
        """Ask the cluster in a thread of its own, which may wait for the answer, and again as long as none is there."""
        if self._question is not None and self._question.is_alive():
            return

        def ask() -> None:
            with suppress(Exception):  # A session that has ended is seen by its queries.
                if is_forgotten(self._spark):
                    master = str(self._spark.sparkContext.master)
                    self.forgotten = lost_application(master, time.monotonic() - lost_at)

        self._question = threading.Thread(target=ask, name="application", daemon=True)
        self._question.start()

    def _report(self, watched: QueryRun, findings: list[Finding]) -> None:
        name = watched.query.name
        before = self._reported.get(name, frozenset())
        # What a finding says changes with each look; a source that is silent is reported once.
        marks = {(finding.code, finding.what.split(" for ")[0]): finding for finding in findings}
        for mark in sorted(marks.keys() - before):
            self._notes.report(marks[mark], name)
        if marks.keys() != before:
            self._account.note_warnings(watched, findings)
        self._reported[name] = frozenset(marks)


def _judge(watched: QueryRun, now: float) -> Iterable[Finding]:
    trigger = watched.trigger
    seconds = trigger.interval.seconds if isinstance(trigger, Every) else 0.0
    name = watched.query.name
    silent, unheard = now - watched.moved_at, timedelta(seconds=now - watched.event_at)
    yield from find_stall(name, watched.recent, silent_seconds=silent, trigger_seconds=seconds)
    yield from find_silent_sources(name, watched.recent, now=datetime.now(timezone.utc) - unheard)
