"""The queries of a run verified at an interval, in a thread beside their batches."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.contract import BatchRecord, Observer, Outcome
from headrace.errors import Finding
from headrace.spark.jvm.session_conf import last_in_turn
from headrace.verify.verdict import Verdict


class VerifyingBeside(Observer):
    """Verifies the queries that have made batches since, one after the other; a verdict comes when it is there.

    verify: gives the verdict on a query; what it raises ends no run. tell: hears of a verdict. report: hears from this
    thread of what a user should know.
    """

    def __init__(
        self,
        seconds: float,
        verify: Callable[[str], Verdict],
        tell: Callable[[Verdict], Verdict],
        report: Callable[[Finding], None],
    ) -> None:
        self._seconds, self._verify, self._tell, self._report = seconds, verify, tell, report
        self._worked: set[str] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="headrace-verify", daemon=True).start()

    def progressed(self, record: BatchRecord) -> None:
        self._worked.add(record.query)

    def ended(self, outcome: Outcome) -> None:
        self._worked.discard(outcome.query)

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._seconds):
            for query in sorted(self._worked):
                self._worked.discard(query)
                try:
                    with last_in_turn():
                        verdict = self._verify(query)
                    # What the end of the run has cut off says nothing of the result.
                    findings = () if self._closed.is_set() else self._tell(verdict).findings
                except Exception as error:
                    what = f"query '{query}' could not be verified beside its run: {type(error).__name__}: {error}"
                    findings = (Finding(code="HR717", what=what, fix=f"verify it by itself: headrace verify {query}"),)
                for finding in findings if not self._closed.is_set() else ():
                    self._report(finding)
