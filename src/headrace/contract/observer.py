"""What hears of a run: each event of it, as a value, in the order in which they happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from headrace.contract.batch_record import BatchRecord
from headrace.contract.identity import Identity
from headrace.errors import Finding, PlainData

State: TypeAlias = Literal[
    "waiting",
    "starting",
    "running",
    "waiting for source",
    "waiting for sink",
    "pausing",
    "stopping",
    "paused",
    "restarting",
    "finished",
    "stopped",
    "failed",
    "killed",
    "removed",
]
Level: TypeAlias = Literal["good", "warning", "bad", "idle"]
ENDED: tuple[State, ...] = ("finished", "stopped", "failed", "killed", "removed")
# A start is at work, and its source or sink does not answer.
WAITING_FOR: tuple[State, ...] = ("waiting for source", "waiting for sink")
RUNNING: tuple[State, ...] = ("running", *WAITING_FOR, "pausing", "stopping")
# It should run and does not; who waits for others, is paused, was stopped or has come to its end should not.
_DOWN: tuple[State, ...] = ("starting", "restarting", "failed", "killed")

_ENDS: tuple[State, ...] = ("pausing", "stopping", "restarting", "finished", "stopped", "failed")

# waiting: also what was ordered to start again. stopping: also for a restart by order, which then waits for its turn.
# removed: a deploy has brought a project that does not declare it.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    "waiting": frozenset({"starting", "restarting", "paused", "stopped", "failed"}),
    "starting": frozenset({"running", "restarting", "stopped", "failed"}),
    "running": frozenset({*WAITING_FOR, *_ENDS}),
    "waiting for source": frozenset({"running", "waiting for sink", *_ENDS}),
    "waiting for sink": frozenset({"running", "waiting for source", *_ENDS}),
    "pausing": frozenset({"paused", "stopping", "restarting", "waiting", "finished", "stopped", "failed"}),
    "stopping": frozenset({"pausing", "paused", "restarting", "waiting", "finished", "stopped", "failed"}),
    "paused": frozenset({"waiting", "stopped", "failed"}),
    "restarting": frozenset({"starting", "restarting", "waiting", "paused", "stopped", "failed"}),
    "finished": frozenset({"waiting", "removed"}),
    "stopped": frozenset({"waiting", "removed"}),
    "failed": frozenset({"waiting", "removed"}),
    "killed": frozenset({"waiting"}),
    "removed": frozenset({"waiting"}),
}


class NoSuchChange(ValueError):
    """A change of state that the table does not have."""


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, kw_only=True)
class QueryState(PlainData):
    """The state of one query of a run.

    Attributes:
        state: The state in one word.
        since: When the query entered `state`.
        healthy: Whether the query has committed a batch, or had nothing to do, since its newest start.
        restarts: How often this run decided to start the query again after a failure.
        attempt: The same, counted since the query was last quiet for long or started by a person.
        limit: The greatest number of attempts; None: no limit.
        next_attempt: When the query is started again.
        cause: Why it failed last; None once it is healthy.
        waits: Why it waits for its source or sink.
        by: Who paused it.
        step: The step of its start.
    """

    derived: ClassVar[tuple[str, ...]] = ("in_trouble",)
    query: str
    state: State = "waiting"
    since: datetime = field(default_factory=_now)
    healthy: bool = False
    restarts: int = 0
    attempt: int = 0
    limit: int | None = None
    next_attempt: datetime | None = None
    cause: Finding | None = None
    waits: Finding | None = None
    by: str = ""
    step: str = ""

    def to(self, state: State, **facts: Any) -> QueryState:
        """Return its next state; what belongs to the former state alone, and is not given, is dropped.

        Raises:
            NoSuchChange: The table of changes does not have it.
        """
        if state != self.state and state not in TRANSITIONS[self.state]:
            raise NoSuchChange(f"query '{self.query}' cannot go from {self.state} to {state}")
        since = self.since if state == self.state else _now()
        former = {"next_attempt": None, "by": "", "step": "", "waits": None} | (
            {"healthy": False} if state == "starting" else {}
        )
        return replace(self, **{**former, **facts, "state": state, "since": since})

    def worked(self) -> QueryState:
        """Return the state after a committed batch, or with nothing to do: a former failure is past."""
        return self if self.healthy else replace(self, healthy=True, cause=None)

    @property
    def has_ended(self) -> bool:
        """Whether this run does not start it again."""
        return self.state in ENDED

    @property
    def is_started(self) -> bool:
        """Whether a start of it is at work."""
        return self.state in RUNNING

    @property
    def in_trouble(self) -> bool:
        """Whether it waits for its source or sink, or has failed and done nothing since that shows that it works."""
        stands_so = self.state in ("paused", "finished", "stopped", "removed")
        return self.state in ("failed", "killed", *WAITING_FOR) or (self.cause is not None and not stands_so)

    @property
    def is_up(self) -> bool:
        """Whether it runs; one that has failed does so again from its next batch on."""
        return self.is_started and not self.in_trouble

    @property
    def is_down(self) -> bool:
        """Whether it should run and does not."""
        return self.state in _DOWN or self.in_trouble

    @property
    def level(self) -> Level:
        """Good is what is known to work: a start alone does not show it."""
        if self.in_trouble:
            return "bad"
        return "good" if self.state == "finished" or (self.healthy and self.is_started) else "idle"

    @property
    def trouble(self) -> str:
        """Why it waits, or restarts, the next attempt and the cause; empty where there is nothing to say of them."""
        if self.waits is not None:
            return f"since {self.since:%H:%M:%S} UTC, because {self.waits.code}: {self.waits.what}"
        if not self.in_trouble or self.cause is None:
            return ""
        why = f"{self.cause.code}: {self.cause.what}"
        if self.has_ended:
            return why
        if self.next_attempt is not None:
            return f"{self.next_restart}, because {why}"
        return f"{self.next_restart or 'started again'}, and no batch committed yet since {why}"

    @property
    def next_restart(self) -> str:
        """Which restart it waits for, or began with, and when the next attempt is; empty after a start by order."""
        which = f"restart {self.attempt:,}" + (f" of {self.limit:,}" if self.limit is not None else "")
        at = f", next attempt {self.next_attempt:%H:%M:%S} UTC" if self.next_attempt is not None else ""
        return which + at if self.attempt else ""

    def finding(self) -> Finding | None:
        """Return the trouble for the log and for pages; None where nothing is wrong."""
        if self.waits is not None:
            message = f"query '{self.query}' is {self.state} {self.trouble}"
            return Finding(code="HR864", what=message, fix=self.waits.fix, where=self.waits.where)
        if not self.in_trouble or self.cause is None:
            return None
        if self.has_ended:
            return self.cause
        message = f"query '{self.query}' has failed and starts again: {self.trouble}"
        return Finding(code="HR861", what=message, fix=self.cause.fix, where=self.cause.where)


OutcomeState = Literal["finished", "stopped", "failed"]
Columns: TypeAlias = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The application that an observer gets events of.

    storage: a directory of this machine that the observer may keep files in, below a name of its own. report: takes
    a finding of the observer's for the user, from any thread; it is shown with the next event.
    """

    project: str
    target: str
    storage: Path
    report: Callable[[Finding], None]


@dataclass(frozen=True, kw_only=True)
class QueryStart:
    """One start of a query, which runs now.

    run_id: Spark's id of it. sink: its kind. reads, writes: what its sources, by their names, and its sink say they
    are. columns: gives the names and types of the columns of each source, and of the result under no name; asks Spark.
    """

    query: str
    run_id: str
    generation: int
    trigger: str
    mode: str
    sink: str
    checkpoint: Path
    description: str = ""
    reads: Mapping[str, Identity | None] = field(default_factory=dict)
    writes: Identity | None = None
    columns: Callable[[], Mapping[str, Columns]] = dict


@dataclass(frozen=True, kw_only=True)
class BatchWork:
    """How far a running batch is: Spark's tasks that are done and that are known of, and the rows that they have read.

    A task's rows count when it is done. A batch can be several jobs of Spark, one after another; the tasks are those of
    the job that runs. mark: differs as soon as a job begins, a task ends, or one reads or writes.
    """

    tasks_done: int
    tasks: int
    rows: int
    seconds: float
    mark: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome(PlainData):
    """The end of one query in one run.

    Attributes:
        state: `finished`, `stopped` or `failed`.
        finding: Why the query failed.
        batches: The number of batches that this run committed.
        rows: The number of rows that this run committed.
        last_batch: The last committed batch.
        refused: Whether the query was not started, and cannot be until the project is changed as the finding says.
        fenced: Whether the query ended because a newer driver runs it.
    """

    query: str
    state: OutcomeState
    finding: Finding | None = None
    batches: int = 0
    rows: int = 0
    last_batch: int | None = None
    refused: bool = False
    fenced: bool = False


class Observer:
    """Gets the events of a run in their order, always from one thread.

    The run waits for each method, so what may take long belongs into a thread of the observer's own; it must not wait
    for the run. A crash of the driver ends it without another call. An installed one that raises an exception gets
    no more events, and the user gets a finding.
    """

    @classmethod
    def of(cls, observed: Observed) -> Observer | None:
        """Return the observer of a run or a verify that begins; None: this one observes nothing of it.

        Asked once for each observer that is installed, in a distribution's entry points `headrace.observers`.
        """
        return cls()

    def preparing(self, step: str, query: str | None) -> None:
        """Observe that a step of the start of this query begins; None: of the start of Spark."""

    def starting(self, query: str) -> None:
        """Observe that a query is being started; Spark was started before the first one."""

    def started(self, start: QueryStart) -> None:
        """Observe that a query has started; called again after each restart."""

    def working(self, query: str, work: BatchWork) -> None:
        """Observe a batch that takes longer than a second; called about once a second with its progress."""

    def progressed(self, record: BatchRecord) -> None:
        """Observe that a batch was committed; a commit that a crash has hidden is left out."""

    def stopping(self, *, now: bool) -> None:
        """Observe that the run was asked to stop: at once with `now`, else after the running batches."""

    def changed(self, state: QueryState) -> None:
        """Observe that a query has entered another state, or has worked for the first time since its start."""

    def ended(self, outcome: Outcome) -> None:
        """Observe that a query has ended."""

    def note(self, finding: Finding) -> None:
        """Observe a finding that stops nothing."""

    def verdict(self, query: str, verdict: Mapping[str, Any]) -> None:
        """Observe the verdict of a verify, which waits for this call."""

    def close(self) -> None:
        """Release what the observer holds; the run or the verify is over."""
