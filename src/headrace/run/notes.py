"""What a run has to tell: to the history, and to whoever watches it; neither ever ends a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.contract import Observer
from headrace.errors import Finding, HeadraceError
from headrace.model import Project, Query
from headrace.observe.history import History
from headrace.queries.layout import history_file


class Notes:
    """The history of a project, open for one run, and the run's reporter."""

    def __init__(self, project: Project, reporter: Observer) -> None:
        self._project = project
        self._reporter = reporter
        self._history: History | None = None
        try:
            self._history = History.open(history_file(project.local_storage))
        except HeadraceError as error:
            self._warn(error)

    def record(self, write: Callable[[History], int | None]) -> int | None:
        """Write to the history; when that fails the streams continue without it, after one warning."""
        if self._history is None:
            return None
        try:
            return write(self._history)
        except HeadraceError as error:
            self._history = None
            self._warn(error)
            return None

    def tell(self, finding: Finding, query: str | None = None) -> None:
        """Tell a finding, without its secrets, and keep it among the events."""
        finding = self._project.redacted_finding(finding)
        self._reporter.note(finding)
        if self._history is not None:
            self.event("finding", query, None, {"finding": finding.as_dict()})

    def event(self, kind: str, query: str | None, run: int | None, detail: dict[str, Any]) -> None:
        """Keep what happened to a query."""
        self.record(lambda history: history.note(kind, query, run, detail))

    def guarded(self, query: Query, work: Callable[[], object]) -> None:
        """Do what accompanies the stream of `query`; its failure is reported, and the stream continues."""
        try:
            work()
        except HeadraceError as error:
            self._warn(error)
        except OSError as error:
            self.tell(
                Finding(
                    code="HR544",
                    what=f"query '{query.name}': {error.filename or 'the storage'} cannot be written: "
                    f"{error.strerror or error}",
                    fix="make room or give the right to write; what is missing is written with the next batch",
                    where=query.where,
                )
            )

    def close(self) -> None:
        """Close the history."""
        if self._history is not None:
            self._history.close()

    def _warn(self, error: HeadraceError) -> None:
        for finding in error.findings:
            self.tell(finding.weighed("warning"))
