"""What hears of a run: each event of it, as a value, in the order in which they happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from headrace.contract.batch_record import BatchRecord
from headrace.contract.identity import Identity
from headrace.contract.query_state import QueryState
from headrace.errors import Finding

OutcomeState = Literal["finished", "stopped", "failed"]
Columns: TypeAlias = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The application that an observer hears of.

    storage: a directory of this machine that the observer may keep files in, below a name of its own. report: takes
    what the observer has to say to the user, from any thread; it is told with the next event.
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
class Outcome:
    """The end of one query in one run. `batches` and `rows` count what this run committed.

    refused: it was not started, and cannot be before the project is changed as the finding says. fenced: it ended for
    a newer driver of the same query.
    """

    query: str
    state: OutcomeState
    finding: Finding | None = None
    batches: int = 0
    rows: int = 0
    last_batch: int | None = None
    refused: bool = False
    fenced: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The outcome as plain data, for `--json`."""
        return asdict(self)


class Observer:
    """Hears what happens in a run, in its order, always from one thread.

    The run waits for each method, so what may take long belongs into a thread of the observer's own; it must not wait
    for the run. A crash of the driver ends it without another word. An installed one that raises an exception hears
    nothing more, and the user is told.
    """

    @classmethod
    def of(cls, observed: Observed) -> Observer | None:
        """The observer of a run or a verify that begins; None: this one wants to hear nothing of it.

        Asked once for each observer that is installed, in a distribution's entry points `headrace.observers`.
        """
        return cls()

    def preparing(self, what: str, query: str | None) -> None:
        """A step begins of the start of this query; None: of Spark."""

    def starting(self, query: str) -> None:
        """A query is being started; before the first one, Spark was."""

    def started(self, start: QueryStart) -> None:
        """A query has started; again after each restart."""

    def working(self, query: str, work: BatchWork) -> None:
        """A batch of a query takes longer than a second, and is so far; told about once a second."""

    def progressed(self, record: BatchRecord) -> None:
        """A batch has been committed. One whose commit a crash has hidden is not told of."""

    def stopping(self, *, now: bool) -> None:
        """The run was asked to stop: after the running batches, or at once."""

    def changed(self, state: QueryState) -> None:
        """A query has gone over into another state, or has worked for the first time since its start."""

    def ended(self, outcome: Outcome) -> None:
        """A query has come to its end."""

    def note(self, finding: Finding) -> None:
        """Something worth knowing that stops nothing."""

    def verdict(self, query: str, verdict: Mapping[str, Any]) -> None:
        """A verify has come to this; it waits until the observer is done with it."""

    def close(self) -> None:
        """The run, or the verify, is over."""
