"""The queries of a run, each with its one state: what changes it, who is informed, and how each query ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from headrace.contract import Observer, Outcome, OutcomeState
from headrace.contract.observer import WAITING_FOR, QueryState, State
from headrace.control.board import Board, LiveStart, Order, RunResult
from headrace.errors import Fenced, Finding, HeadraceError
from headrace.generations.blame import with_command
from headrace.model import Project, Query
from headrace.model.trigger import Restart
from headrace.planner.deployment import Declared
from headrace.planner.forming import DeclaredCode
from headrace.runner.batch_records import Account, Notes
from headrace.runner.fresh_tables import FreshTables
from headrace.runner.query_run import QueryRun, Watching
from headrace.starter.running import last_committed

# So often a query whose trigger ends is started again after what mostly passes with the next attempt.
RESTARTS_OF_ENDING = 3


@dataclass(kw_only=True)
class Trial:
    """New code of a query that has not yet shown that it works: by a batch, or by finding nothing to do.

    order: what brought it, which is answered then. former: what it has replaced; None: there was nothing to return to.
    batch: the first one of the new code.
    """

    order: Order
    former: Declared | None
    batch: int = 0


@dataclass(kw_only=True)
class Supervised:
    """A query of a run. turn: the lower, the sooner it is started.

    project: the one that it is declared in. code: digests of its code, once it has started. is_removed: a deploy has
    stopped it, as it is declared no more.
    trial: its new code, as long as its former code would be started again if that fails.
    due: of one that waits for its restart, when that is, by the clock of the process. run: its newest in the history.
    order: by which it is to be started again. batches, rows: of its starts that have ended. has_run: one has succeeded.
    """

    project: Project
    query: Query
    state: QueryState
    turn: int
    is_removed: bool = False
    trial: Trial | None = None
    code: DeclaredCode | None = None
    due: float = 0.0
    run: int | None = None
    order: Order | None = None
    batches: int = 0
    rows: int = 0
    has_run: bool = False
    outcome: Outcome | None = None


class States:
    """All of them by name; each change goes to the board, the history and the reporter, in this order."""

    def __init__(self, project: Project, board: Board, notes: Notes, reporter: Observer) -> None:
        self._project, self._board, self._notes, self._reporter = project, board, notes, reporter
        self._all: dict[str, Supervised] = {}

    def __getitem__(self, query: str) -> Supervised:
        return self._all[query]

    def __iter__(self) -> Iterator[Supervised]:
        return iter(self._all.values())

    def find(self, query: str) -> Supervised | None:
        """The query of this name, if the run has it."""
        return self._all.get(query)

    def add(self, project: Project, queries: Sequence[Query], order: Order | None = None) -> None:
        """Let queries wait for their first start, in this order, behind those that there are; order: wants them."""
        added = [
            Supervised(project=project, query=query, state=QueryState(query=query.name), turn=turn, order=order)
            for turn, query in enumerate(queries, start=len(self._all))
        ]
        for supervised in added:
            self._all[supervised.query.name] = supervised
            self._board.projects[supervised.query.name] = project
            if order is not None:
                supervised.trial = Trial(order=order, former=None)
        self._board.begin(supervised.state for supervised in added)
        for supervised in added:
            self._post_state(supervised)

    def declare_again(self, query: str, project: Project) -> None:
        """Let a query be the one that `project` declares from its next start on."""
        supervised = self._all[query]
        supervised.project, supervised.query, supervised.is_removed = project, project.queries[query], False
        self._board.projects[query] = project

    def show_project(self, project: Project) -> None:
        """Show which project was deployed."""
        self._board.project = project

    def remove(self, query: str) -> None:
        """Let a query count no more, as it is declared no longer, and show that once it has ended."""
        supervised = self._all[query]
        supervised.is_removed = True
        if supervised.state.has_ended:
            self.change(query, "removed", cause=None)

    @property
    def all_ended(self) -> bool:
        return all(supervised.state.has_ended for supervised in self)

    @property
    def to_start(self) -> list[Query]:
        """Those that wait for a start, in their turn, those whose pause after a failure is over before the others."""
        now = time.monotonic()
        restarts = [
            supervised for supervised in self if supervised.state.state == "restarting" and supervised.due <= now
        ]
        waiting = [supervised for supervised in self if supervised.state.state == "waiting"]
        return [
            supervised.query for supervised in (*restarts, *sorted(waiting, key=lambda supervised: supervised.turn))
        ]

    @property
    def held(self) -> list[Query]:
        """Those that no start is begun for as long as nothing happens, and that have not ended."""
        return [
            supervised.query for supervised in self if supervised.state.state in ("waiting", "paused", "restarting")
        ]

    def change(self, query: str, state: State, live: LiveStart | None = None, **facts: Any) -> None:
        """Let a query go over into a state; one that it is in already is not reported."""
        supervised = self._all[query]
        if state == supervised.state.state and not facts and live is None:
            return
        supervised.state = supervised.state.to(state, **facts)
        self._post_state(supervised, live)

    def wait_for(self, query: str, state: State, cause: Finding | None) -> None:
        """A running query waits for its source or sink, or does no more."""
        supervised = self._all[query]
        before, waits = supervised.state, None if cause is None else self._project.redacted_finding(cause)
        if before.state not in ("running", *WAITING_FOR) or (before.state, before.waits) == (state, waits):
            return
        self.change(query, state, waits=waits)
        if waits is not None and (trial := supervised.trial) is not None:
            trial.order.succeed(f"runs the new code from batch {trial.batch:,} on, and is {state}")
        if before.state != state:
            finding = supervised.state.finding()
            detail = {} if waits is None or finding is None else {"finding": finding.as_dict()}
            self._notes.event("waiting" if detail else "answered", query, supervised.run, detail)

    def worked(self, query: str) -> None:
        """A query has committed a batch, or found nothing to do."""
        supervised = self._all[query]
        if not supervised.state.healthy:
            if supervised.state.cause is not None:
                self._notes.event("recovered", query, supervised.run, {"restarts": supervised.state.attempt})
            if supervised.trial is not None:
                self._end_trial(supervised, f"runs the new code from batch {supervised.trial.batch:,} on")
            supervised.state = supervised.state.worked()
            self._post_state(supervised)

    def start(self, query: str, run: int | None) -> None:
        self._all[query].run = run
        self.change(query, "starting")

    def begin_step(self, query: str, step: str) -> None:
        """Show which step of its start a query is in; observers hear of it by themselves."""
        supervised = self._all[query]
        if supervised.state.state == "starting":
            supervised.state = replace(supervised.state, step=step)
            self._board.post(supervised.state)
            self._notes.record(lambda history: history.state(supervised.state, supervised.run))

    def pause(self, query: str, order: Order) -> None:
        """Keep a query, which has stopped, until somebody resumes it."""
        self._end_trial(self._all[query], "is paused")
        self._notes.event("paused", query, self._all[query].run, {"by": order.by})
        self.change(query, "paused", by=order.by)
        order.succeed(f"query '{query}' is paused; its checkpoint stays: headrace resume {query}")

    def start_again(self, query: str, order: Order) -> None:
        """Start a query by order as soon as nothing else is being started; its failures are counted again."""
        supervised = self._all[query]
        self._end_trial(supervised, "is started again")
        if order.project is not None:
            former = Declared(supervised.project, supervised.query, supervised.code)
            supervised.trial = Trial(order=order, former=None if supervised.state.has_ended else former)
            supervised.code = None
            self.declare_again(query, order.project)
        supervised.order, supervised.outcome = order, None
        supervised.turn = min(other.turn for other in self) - 1
        self._end_run(supervised, "stopped")
        self.change(query, "waiting", attempt=0)

    def fall_back(self, query: str, finding: Finding) -> bool:
        """Start the former code of a query whose new code has failed before it did anything; False if there is none."""
        supervised = self._all[query]
        trial = supervised.trial
        if trial is None or trial.former is None:
            return False
        finding = self._project.redacted_finding(finding)
        failed = Finding(
            code="HR865",
            what=f"the new code of query '{query}' did not start, and its former code starts again: "
            f"{finding.code}: {finding.what}",
            fix=finding.fix or "correct the new code; then deploy it again: headrace deploy",
            where=finding.where,
        )
        trial.order.answer_failed(failed)
        supervised.trial = supervised.order = None
        supervised.project, supervised.query, supervised.code = trial.former
        self._board.projects[query] = supervised.project
        self._end_run(supervised, "failed", finding)
        supervised.due = time.monotonic()
        self.change(query, "restarting", attempt=0, cause=finding)
        self._notes.report(failed, query)
        return True

    def restart_later(self, query: Query, finding: Finding, *, ends: bool, ran_seconds: float) -> bool:
        """Start a query again after a pause, if its failure may pass and its policy allows it; False if not.

        ends: its trigger comes to an end, so that it is started again only where that is declared, or where the next
        attempt mostly succeeds. ran_seconds: since its last start.
        """
        supervised = self._all[query.name]
        of_ending = RESTARTS_OF_ENDING if finding.passes_soon else 0
        policy = query.restart or Restart(limit=of_ending if ends else Restart.limit)
        limit = 0 if self._project.target.operations.exit_on_failure else policy.limit
        before = 0 if ran_seconds >= policy.quiet.seconds else supervised.state.attempt
        if not finding.passes or (limit is not None and before >= limit):
            return False
        finding = self._project.redacted_finding(finding)
        if supervised.trial is not None:
            supervised.trial.order.answer_failed(finding)
            supervised.trial = None
        seconds = policy.pause_before(before + 1)
        self._end_run(supervised, "failed", finding)
        supervised.due = time.monotonic() + seconds
        self.change(
            query.name,
            "restarting",
            restarts=supervised.state.restarts + 1,
            attempt=before + 1,
            limit=limit,
            next_attempt=datetime.now(timezone.utc) + timedelta(seconds=seconds),
            cause=finding,
        )
        state = supervised.state
        self._notes.event("restarting", query.name, supervised.run, {"finding": finding.as_dict(), **state.as_dict()})
        if (cause := state.finding()) is not None:
            self._reporter.note(cause)
        return True

    def end(self, outcome: Outcome) -> None:
        """Note and report how a query has ended."""
        supervised = self._all[outcome.query]
        if supervised.trial is not None and outcome.finding is not None:
            supervised.trial.order.answer_failed(outcome.finding)
        self._end_trial(supervised, f"has {outcome.state}")
        supervised.outcome = outcome
        self._end_run(supervised, outcome.state, outcome.finding, fenced=outcome.fenced)
        detail = {"finding": outcome.finding.as_dict()} if outcome.finding else {}
        self._notes.event(outcome.state, outcome.query, supervised.run, detail)
        self.change(outcome.query, outcome.state, cause=outcome.finding or supervised.state.cause)
        if supervised.is_removed:
            self.remove(outcome.query)
        self._reporter.ended(outcome)

    def _end_trial(self, supervised: Supervised, sentence: str) -> None:
        """Keep the new code of a query, whatever comes of it."""
        trial, supervised.trial = supervised.trial, None
        if trial is not None:
            trial.order.succeed(sentence)

    def _end_run(
        self, supervised: Supervised, state: State, finding: Finding | None = None, *, fenced: bool = False
    ) -> None:
        run, now = supervised.run, supervised.state
        if run is not None and now.state not in ("waiting", "restarting") and not now.has_ended:
            self._notes.record(lambda history: history.end_run(run, state, finding, fenced=fenced))

    def _post_state(self, supervised: Supervised, live: LiveStart | None = None) -> None:
        state, run = supervised.state, supervised.run
        self._board.post(state, live)
        self._notes.record(lambda history: history.state(state, run))
        self._reporter.changed(state)


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
        states: States,
        tables: FreshTables,
    ) -> None:
        self._project, self._notes, self._account = project, notes, account
        self._watching, self._states, self._tables = watching, states, tables
        self.lost: Finding | None = None

    def give_up(self, query: Query) -> None:
        """A query that is not started, or not again, or whose start is given up, ends with the run and by it."""
        state: OutcomeState = "failed" if self.lost is not None else "stopped"
        self._finish(query, Outcome(query=query.name, state=state, finding=self.lost))

    def end_held(self) -> None:
        """The run ends, and with it what waits for its start or restart, or is paused."""
        for query in self._states.held:
            self.give_up(query)

    def close(self, watched: QueryRun) -> None:
        """Account for all that a query has done, and watch it no more."""
        self._account.archive(watched)
        self._notes.guard(
            watched.query,
            lambda: self._account.count_unreported(watched, last_committed(watched.running.layout.checkpoint)),
        )
        self._account.look_at_late(watched, ended=True)
        self._account.report_news(watched)
        for last in watched.source_health.last():
            self._notes.report(last)
        watched.running.clean_up()
        self._tables.stop(watched)
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
                watched.order.answer_failed(finding)
            watched.order.succeed(f"query '{watched.query.name}' has {state}")

    def end_failed(
        self, query: Query, error: HeadraceError, *, ends: bool, stopping: bool, ran_seconds: float = 0.0
    ) -> None:
        """A query, or its start, has failed: it is started again later, or, when the run is `stopping`, never."""
        finding = error.findings[0]
        if not stopping and self._states.restart_later(query, finding, ends=ends, ran_seconds=ran_seconds):
            return
        refused = not self._states[query.name].has_run and finding.refuses
        fenced = isinstance(error, Fenced)
        self._finish(query, Outcome(query=query.name, state="failed", finding=finding, refused=refused, fenced=fenced))

    def _finish(self, query: Query, outcome: Outcome) -> None:
        if outcome.finding is not None:
            finding = with_command(query, self._project.redacted_finding(outcome.finding))
            outcome = replace(outcome, finding=finding)
        supervised = self._states[query.name]
        self._states.end(replace(outcome, batches=supervised.batches, rows=supervised.rows))

    def result(self, queries: Iterable[Query]) -> RunResult:
        """The outcomes of `queries`, of those that have one, and of those that a deploy has brought."""
        names = dict.fromkeys([*(query.name for query in queries), *(state.query.name for state in self._states)])
        ended = (self._states.find(name) for name in names)
        return RunResult(
            outcomes=tuple(supervised.outcome for supervised in ended if supervised is not None and supervised.outcome)
        )


def newer_driver_fault(query: Query) -> Fenced:
    """What ended a query that a newer driver runs; a start would fence off the newer driver."""
    return Fenced(
        code="HR409",
        what=f"a newer driver runs query '{query.name}'; this one has ended",
        fix="look with headrace status which process runs it, and stop one of the two",
        where=query.where,
    )


def hangs(query: Query, what: str) -> Finding:
    """What is reported of a query that its process breaks off; `what` of it hangs: its batch or its start."""
    return Finding(
        code="HR894",
        what=f"the {what} of query '{query.name}' hangs; it was broken off with the process",
        fix="look what it waits for; a batch that was not committed comes again at the next start",
        where=query.where,
    )
