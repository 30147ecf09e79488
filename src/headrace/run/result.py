"""How a run went, query by query."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.contract import Outcome
from headrace.errors import EXIT_FENCED, EXIT_REFUSED


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The ends of all queries of one run."""

    outcomes: tuple[Outcome, ...]

    @property
    def exit_code(self) -> int:
        """3 when a newer driver has taken over a query, 78 when each was refused, 1 when one failed, else 0."""
        if any(outcome.fenced for outcome in self.outcomes):
            return EXIT_FENCED
        if self.outcomes and all(outcome.refused for outcome in self.outcomes):
            return EXIT_REFUSED
        return 1 if any(outcome.state == "failed" for outcome in self.outcomes) else 0
