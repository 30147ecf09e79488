"""How the queries of a run end: for good or until a restart, what is noted of it, and with what result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.contract import Outcome, OutcomeState
from headrace.errors import Fenced, Finding, HeadraceError
from headrace.model import Project, Query
from headrace.queries.naming import with_command
from headrace.run.account import Account
from headrace.run.notes import Notes
from headrace.run.query_run import QueryRun
from headrace.run.refusals import is_refusal
from headrace.run.result import RunResult
from headrace.run.states import States
from headrace.run.stopping import last_committed
from headrace.run.watching import Watching


class Outcomes:
    """The outcome of each query of one run; a query that is started again has one for all its starts.

    lost: why the run ends, if it does so by itself; what it ends has failed by that, and was not stopped.
    """

    def __init__(self, project: Project, notes: Notes, account: Account, watching: Watching, states: States) -> None:
        self._project, self._notes, self._account = project, notes, account
        self._watching, self._states = watching, states
        self.lost: Finding | None = None

    def given_up(self, query: Query) -> None:
        """A query that is not started, or not again, or whose start is given up, ends with the run and by it."""
        state: OutcomeState = "failed" if self.lost is not None else "stopped"
        self._finish(query, Outcome(query=query.name, state=state, finding=self.lost))

    def end_held(self) -> None:
        """The run ends, and with it what waits for its start or restart, or is paused."""
        for query in self._states.held:
            self.given_up(query)

    def close(self, watched: QueryRun) -> None:
        """Account for all that a query has done, and watch it no more."""
        self._account.archive(watched)
        self._notes.guarded(
            watched.query, lambda: self._account.unreported(watched, last_committed(watched.running.layout.checkpoint))
        )
        self._account.tell_news(watched)
        for last in watched.source_health.last():
            self._notes.tell(last)
        watched.running.clean_up()
        if watched.refresher is not None:
            watched.refresher.stop()
        self._watching.remove(watched)
        supervised = self._states[watched.query.name]
        supervised.batches, supervised.rows = supervised.batches + watched.batches, supervised.rows + watched.rows

    def end(self, watched: QueryRun, state: OutcomeState, error: HeadraceError | None) -> None:
        """A running query has ended for good."""
        self.close(watched)
        finding = None if error is None else error.findings[0]
        fenced, last = isinstance(error, Fenced), watched.last_batch
        outcome = Outcome(query=watched.query.name, state=state, finding=finding, last_batch=last, fenced=fenced)
        self._finish(watched.query, outcome)
        if watched.order is not None:
            if finding is not None:
                watched.order.failed(finding)
            watched.order.done(f"query '{watched.query.name}' has {state}")

    def failed(
        self, query: Query, error: HeadraceError, *, ends: bool, stopping: bool, ran_seconds: float = 0.0
    ) -> None:
        """A query, or its start, has failed: it is started again later, or, when the run is `stopping`, never."""
        finding = error.findings[0]
        if not stopping and self._states.restart_later(query, finding, ends=ends, ran_seconds=ran_seconds):
            return
        refused = not self._states[query.name].has_run and is_refusal(finding)
        fenced = isinstance(error, Fenced)
        self._finish(query, Outcome(query=query.name, state="failed", finding=finding, refused=refused, fenced=fenced))

    def _finish(self, query: Query, outcome: Outcome) -> None:
        if outcome.finding is not None:
            finding = with_command(query, self._project.redacted_finding(outcome.finding))
            outcome = replace(outcome, finding=finding)
        supervised = self._states[query.name]
        self._states.end(replace(outcome, batches=supervised.batches, rows=supervised.rows))

    def result(self, queries: Iterable[Query]) -> RunResult:
        """The outcomes of `queries`, of those that have one."""
        found = (self._states.find(query.name) for query in queries)
        return RunResult(outcomes=tuple(each.outcome for each in found if each is not None and each.outcome))


def superseded(query: Query) -> Fenced:
    """What ended a query that a newer driver runs; a start would fence off the newer driver."""
    return Fenced(
        Finding(
            code="HR409",
            what=f"a newer driver runs query '{query.name}'; this one has ended",
            fix="look with headrace status which process runs it, and stop one of the two",
            where=query.where,
        )
    )


def hangs(query: Query, what: str) -> Finding:
    """What is told of a query that the end of its process breaks off; `what` of it hangs: its batch or its start."""
    return Finding(
        code="HR894",
        what=f"the {what} of query '{query.name}' hangs; it was broken off with the process",
        fix="look what it waits for; a batch that was not committed comes again at the next start",
        where=query.where,
    )
