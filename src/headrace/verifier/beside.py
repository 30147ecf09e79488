"""The queries of a run verified at an interval, in a thread beside their batches."""

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

# How long the end of a query waits for what was broken off of its verification; the session may stop then.
_WAIT_SECONDS = 5.0


class VerifyingBeside(Observer):
    """Verifies the queries that have made batches since, one after the other; a verdict comes when it is there.

    The end of a query breaks its verification off, for the session of the run is about to stop, and none is begun
    without one. verify: gives the verdict on a query in that session; what it raises ends no run. parts: of a query one
    of so many parts of its keys is looked at each time, the same again if that failed, and after a mismatch all.
    tell: hears of a verdict. report: hears from this thread of what a user should know.
    """

    def __init__(
        self,
        seconds: float,
        verify: Callable[[str, SparkSession, RowScope], Verdict],
        tell: Callable[[Verdict], Verdict],
        report: Callable[[Finding], None],
        *,
        parts: int = 1,
    ) -> None:
        self._parts = parts
        # Of each query the next part; it begins with any, so that runs that end early see all of them in the end.
        self._next: dict[str, int] = {}
        self._doubtful: set[str] = set()
        self._seconds, self._verify, self._tell, self._report = seconds, verify, tell, report
        self._worked: set[str] = set()
        self._under_way = ""
        # Held for a look at the two above, and told of a verification that has ended.
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
            what = f"query '{query}' could not be verified beside its run: {type(error).__name__}: {error}"
            findings.append(Finding(code="HR717", what=what, fix=f"verify it by itself: headrace verify {query}"))
        with self._change:
            # What the end of the query has broken off says nothing of its result.
            is_known, self._under_way = self._under_way == query, ""
            self._change.notify()
        if is_known:
            if verdict is not None:
                (self._doubtful.add if verdict.state == "mismatch" else self._doubtful.discard)(query)
                if scope.part is not None:
                    self._next[query] = scope.part[0] % self._parts
            for finding in findings if verdict is None else self._tell(verdict).findings:
                self._report(finding)

    def _scope(self, query: str) -> RowScope:
        if self._parts == 1 or query in self._doubtful:
            return WHOLE
        number = self._next.setdefault(query, random.randrange(self._parts))
        return RowScope(part=(number + 1, self._parts))
