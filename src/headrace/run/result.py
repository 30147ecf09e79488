"""How a run went, query by query, and who gets reports of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from headrace.errors import EXIT_FENCED, EXIT_REFUSED, Finding
from headrace.model import Query
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord
from headrace.spark.batch_work import BatchWork

FENCED = "HR409"

HeldState = Literal["paused", "restarting"]
OutcomeState = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of one query in one run. `batches` and `rows` count what this run committed.

    refused: it was not started, and cannot be before the project is changed as the finding says.
    """

    query: str
    state: OutcomeState
    finding: Finding | None = None
    batches: int = 0
    rows: int = 0
    last_batch: int | None = None
    refused: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The outcome as plain data, for `--json`."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The ends of all queries of one run."""

    outcomes: tuple[Outcome, ...]

    @property
    def exit_code(self) -> int:
        """3 when a newer driver has taken over a query, 78 when each was refused, 1 when one failed, else 0."""
        failed = [outcome.finding for outcome in self.outcomes if outcome.state == "failed"]
        if any(finding is not None and finding.code == FENCED for finding in failed):
            return EXIT_FENCED
        if self.outcomes and all(outcome.refused for outcome in self.outcomes):
            return EXIT_REFUSED
        return 1 if failed else 0


class Reporter(Protocol):
    """Gets what happens in a run, in its order, always from one thread."""

    def starting(self, query: Query) -> None:
        """A query is being started; before the first one, Spark was."""

    def started(self, query: Query, layout: QueryLayout) -> None:
        """A query has started."""

    def working(self, query: str, work: BatchWork) -> None:
        """A batch of a query takes longer than a second, and is so far; told about once a second."""

    def progressed(self, record: BatchRecord) -> None:
        """A batch has been committed."""

    def stopping(self, *, now: bool) -> None:
        """The run was asked to stop: after the running batches, or at once."""

    def held(self, query: str, state: HeldState, why: str) -> None:
        """A query is paused, or waits for its restart."""

    def ended(self, outcome: Outcome) -> None:
        """A query has come to its end."""

    def note(self, finding: Finding) -> None:
        """Something worth knowing that stops nothing."""


class Silent:
    """A reporter that keeps everything to itself."""

    def starting(self, query: Query) -> None: ...

    def started(self, query: Query, layout: QueryLayout) -> None: ...

    def working(self, query: str, work: BatchWork) -> None: ...

    def progressed(self, record: BatchRecord) -> None: ...

    def stopping(self, *, now: bool) -> None: ...

    def held(self, query: str, state: HeldState, why: str) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...

    def note(self, finding: Finding) -> None: ...
