"""How the queries of a run end: for good or until a restart, what is noted of it, and with what result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.errors import Finding
from headrace.model import Project, Query
from headrace.operate.board import Board
from headrace.run.account import Account
from headrace.run.holding import Holding
from headrace.run.naming import with_command
from headrace.run.notes import Notes
from headrace.run.query_run import QueryRun
from headrace.run.refusals import is_refusal
from headrace.run.restarts import Restarts
from headrace.run.result import Outcome, OutcomeState, Reporter, RunResult
from headrace.run.stopping import last_committed
from headrace.run.watching import Watching


class Outcomes:
    """The outcome of each query of one run; a query that is started again has one for all its starts.

    lost: why the run ends, if it does so by itself; what it ends has failed by that, and was not stopped.
    """

    def __init__(
        self,
        project: Project,
        notes: Notes,
        account: Account,
        watching: Watching,
        holding: Holding,
        board: Board,
        reporter: Reporter,
    ) -> None:
        self._project = project
        self._notes = notes
        self._account = account
        self._watching = watching
        self._holding = holding
        self._board = board
        self._reporter = reporter
        self._outcomes: dict[str, Outcome] = {}
        self._ran: set[str] = set()
        # Batches and rows of the starts that have ended.
        self._done: dict[str, tuple[int, int]] = {}
        self.restarts = Restarts()
        self.lost: Finding | None = None

    def started(self, query: Query) -> None:
        """A query runs: from here on it may be restarted although that is not declared."""
        self._ran.add(query.name)

    def expect(self, query: str) -> None:
        """A query is started by order: its failures are counted anew, and its end is not yet."""
        self.restarts.forget(query)
        self._outcomes.pop(query, None)

    def not_begun(self, query: Query) -> None:
        """A query is not started, or not again, because it was stopped before."""
        self.given_up(query, None)

    def given_up(self, query: Query, run_id: int | None) -> None:
        """A query, or its start, ends with the run and by it."""
        state: OutcomeState = "failed" if self.lost is not None else "stopped"
        self.finish(query, run_id, Outcome(query=query.name, state=state, finding=self.lost))

    def release_held(self) -> None:
        """The run ends, and with it what is paused or waits for its restart."""
        for held in self._holding:
            self._holding.release(held.query.name)
            self.not_begun(held.query)

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
        batches, rows = self._done.get(watched.query.name, (0, 0))
        self._done[watched.query.name] = batches + watched.batches, rows + watched.rows

    def end(self, watched: QueryRun, state: OutcomeState, finding: Finding | None) -> None:
        """A running query has ended for good."""
        self.close(watched)
        outcome = Outcome(query=watched.query.name, state=state, finding=finding, last_batch=watched.last_batch)
        self.finish(watched.query, watched.history_run, outcome)
        if watched.order is not None:
            if finding is not None:
                watched.order.failed(finding)
            watched.order.done(f"query '{watched.query.name}' has {state}")

    def failed(
        self,
        query: Query,
        run_id: int | None,
        finding: Finding,
        *,
        ends: bool,
        stopping: bool,
        ran_seconds: float = 0.0,
    ) -> None:
        """A query, or its start, has failed: it is started again later, or, when the run is `stopping`, never."""
        again = None
        if (query.name in self._ran or query.restart) and not stopping:
            again = self.restarts.next(query, finding, ends=ends, ran_seconds=ran_seconds)
        if again is None:
            refused = query.name not in self._ran and is_refusal(finding)
            self.finish(query, run_id, Outcome(query=query.name, state="failed", finding=finding, refused=refused))
            return
        finding = self._project.redacted_finding(finding)
        self._notes.record(lambda history: history.end_run(run_id, "failed", finding) if run_id is not None else None)
        self._holding.restart_later(query, finding, again)

    def finish(self, query: Query, run_id: int | None, outcome: Outcome) -> None:
        """Note and tell the outcome of a query."""
        if outcome.finding is not None:
            finding = with_command(query, self._project.redacted_finding(outcome.finding))
            outcome = replace(outcome, finding=finding)
        batches, rows = self._done.get(query.name, (0, 0))
        outcome = replace(outcome, batches=batches, rows=rows)
        self._outcomes[query.name] = outcome
        self._notes.record(
            lambda history: history.end_run(run_id, outcome.state, outcome.finding) if run_id is not None else None
        )
        detail = {"finding": outcome.finding.as_dict()} if outcome.finding else {}
        self._notes.event(outcome.state, query.name, run_id, detail)
        self._board.post(query.name, outcome.state, error=outcome.finding, handle=None)
        self._reporter.ended(outcome)

    def result(self, queries: Iterable[Query]) -> RunResult:
        """The outcomes of `queries`, of those that have one."""
        return RunResult(outcomes=tuple(self._outcomes[each.name] for each in queries if each.name in self._outcomes))


def superseded(query: Query) -> Finding:
    """What ended a query that a newer driver runs; a start would fence off the newer driver."""
    return Finding(
        code="HR409",
        what=f"a newer driver runs query '{query.name}'; this one has ended",
        fix="look with headrace status which process runs it, and stop one of the two",
        where=query.where,
    )


def hangs(query: Query, what: str) -> Finding:
    """What is told of a query that the end of its process breaks off; `what` of it hangs: its batch or its start."""
    return Finding(
        code="HR894",
        what=f"the {what} of query '{query.name}' hangs; it was broken off with the process",
        fix="look what it waits for; a batch that was not committed comes again at the next start",
        where=query.where,
    )
