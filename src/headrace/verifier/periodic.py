"""The queries of a run verified at an interval, in a thread of its own."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.contract import BatchRecord, Observer, Outcome
from headrace.errors import Finding
from headrace.spark.jvm.session_conf import cancel_low_priority_jobs, use_low_priority_pool
from headrace.verifier.scope import WHOLE, RowScope
from headrace.verifier.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long the end of a query waits for its cancelled verification; the session may stop then.
_WAIT_SECONDS = 5.0


class PeriodicVerifier(Observer):
    """Verifies, one after the other, the queries that have made batches since the last time.

    The end of a query cancels its verification, because the session of the run is about to stop; without a session none
    begins. verify: gives the verdict on a query in that session; what it raises ends no run. parts: each time one of so
    many parts of the keys is verified, the same again if that failed, and all after a mismatch. publish: called with
    each verdict. report: called in this thread with what a user should know.
    """

    def __init__(
        self,
        seconds: float,
        verify: Callable[[str, SparkSession, RowScope], Verdict],
        publish: Callable[[Verdict], Verdict],
        report: Callable[[Finding], None],
        *,
        parts: int = 1,
    ) -> None:
        self._parts = parts
        # The next part of each query; the first is random, so that runs that end early verify all parts in the end.
        self._next: dict[str, int] = {}
        self._doubtful: set[str] = set()
        self._seconds, self._verify, self._publish, self._report = seconds, verify, publish, report
        self._worked: set[str] = set()
        self._under_way = ""
        # Guards both fields; notified when a verification ends.
        self._change = threading.Condition()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="headrace-verify", daemon=True).start()

    def progressed(self, record: BatchRecord) -> None:
        self._worked.add(record.query)

    def ended(self, outcome: Outcome) -> None:
        with self._change:
            self._worked.discard(outcome.query)
            if self._under_way == outcome.query:
                self._under_way = ""
                cancel_low_priority_jobs()
                self._change.wait(_WAIT_SECONDS)

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._seconds):
            for query in sorted(self._worked):
                self._look(query)

    def _look(self, query: str) -> None:
        with self._change:
            if query not in self._worked:  # It has ended meanwhile.
                return
            self._worked.discard(query)
            spark = use_low_priority_pool()
            if spark is None:
                return
            self._under_way = query
        verdict, findings = None, list[Finding]()
        try:
            scope = self._scope(query)
            verdict = self._verify(query, spark, scope)
        except Exception as error:
            problem = f"query '{query}' could not be verified during its run: {type(error).__name__}: {error}"
            findings.append(Finding(code="HR717", what=problem, fix=f"verify it by itself: headrace verify {query}"))
        with self._change:
            # A cancelled verification says nothing about the result.
            is_current, self._under_way = self._under_way == query, ""
            self._change.notify()
        if is_current:
            if verdict is not None:
                (self._doubtful.add if verdict.state == "mismatch" else self._doubtful.discard)(query)
                if scope.part is not None:
                    self._next[query] = scope.part[0] % self._parts
            for finding in findings if verdict is None else self._publish(verdict).findings:
                self._report(finding)

    def _scope(self, query: str) -> RowScope:
        if self._parts == 1 or query in self._doubtful:
            return WHOLE
        number = self._next.setdefault(query, random.randrange(self._parts))
        return RowScope(part=(number + 1, self._parts))
