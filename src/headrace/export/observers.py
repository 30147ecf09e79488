"""The observers of one run or verify: Headrace's own, those of other distributions, and the lines of `--json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any, TypeAlias

from headrace import registry
from headrace.contract import BatchRecord, BatchWork, Observed, Observer, Outcome, QueryStart, QueryState
from headrace.errors import Finding, PlatformError
from headrace.model import Project


class Observers(Observer):
    """Passes each event to all of them, in their order. Findings of other threads are passed on with the next event.

    An installed observer that raises an exception gets no further events; one of Headrace's own ends the run.
    """

    def __init__(self, *observers: Observer) -> None:
        self._own = list(observers)
        self._installed: dict[str, Observer] = {}
        self._undelivered: SimpleQueue[Finding] = SimpleQueue()
        self.report = self._undelivered.put

    def add(self, observer: Observer) -> None:
        """Add an observer for the events to come."""
        self._own.append(observer)

    def install(self, project: Project) -> None:
        """Add the installed observers that want this project's events; one that cannot be made is reported."""
        observed = Observed(
            project=project.name, target=project.target.name, storage=project.local_storage, report=self.report
        )
        for name in registry.list_names("observer"):
            try:
                made = registry.connector("observer", name).of(observed)
            except PlatformError as error:
                for finding in error.findings:
                    self.report(finding.with_severity("warning"))
            except (Exception, SystemExit) as error:
                self.report(_failure(name, error))
            else:
                if made is not None:
                    self._installed[name] = made

    def take_undelivered(self) -> Iterator[Finding]:
        """Yield the findings reported since the last event."""
        while not self._undelivered.empty():
            yield self._undelivered.get()

    def preparing(self, what: str, query: str | None) -> None:
        self._each(lambda one: one.preparing(what, query))

    def starting(self, query: str) -> None:
        self._each(lambda one: one.starting(query))

    def started(self, start: QueryStart) -> None:
        self._each(lambda one: one.started(start))

    def working(self, query: str, work: BatchWork) -> None:
        self._each(lambda one: one.working(query, work))

    def progressed(self, record: BatchRecord) -> None:
        self._each(lambda one: one.progressed(record))

    def stopping(self, *, now: bool) -> None:
        self._each(lambda one: one.stopping(now=now))

    def changed(self, state: QueryState) -> None:
        self._each(lambda one: one.changed(state))

    def ended(self, outcome: Outcome) -> None:
        self._each(lambda one: one.ended(outcome))

    def note(self, finding: Finding) -> None:
        self._each(lambda one: one.note(finding))

    def verdict(self, query: str, verdict: Mapping[str, Any]) -> None:
        self._call(lambda one: one.verdict(query, verdict))

    def close(self) -> None:
        self._own.reverse()
        self._call(lambda one: one.close())

    def _each(self, notify: Callable[[Observer], None]) -> None:
        for finding in self.take_undelivered():
            self._call(lambda one, finding=finding: one.note(finding))  # type: ignore[misc]
        self._call(notify)

    def _call(self, notify: Callable[[Observer], None]) -> None:
        for one in self._own:
            notify(one)
        for name, one in list(self._installed.items()):
            try:
                notify(one)
            except (Exception, SystemExit) as error:
                del self._installed[name]
                self.report(_failure(name, error))


def _failure(name: str, error: Exception | SystemExit) -> Finding:
    return Finding(
        code="HR875",
        what=f"the observer {name} did not get an event, and gets no more: {type(error).__name__}: {error}",
        fix="correct it, or uninstall its distribution; the queries run on without it",
    )


Write: TypeAlias = Callable[[str, Mapping[str, Any]], None]


class EventLines(Observer):
    """Gives each event by its name with its facts to `write`."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def preparing(self, what: str, query: str | None) -> None:
        self._write("preparing", {"query": query, "step": what})

    def working(self, query: str, work: BatchWork) -> None:
        self._write("working", {"query": query, "tasks_done": work.tasks_done, "tasks": work.tasks, "rows": work.rows})

    def started(self, start: QueryStart) -> None:
        self._write("started", {"query": start.query, "generation": start.generation, "trigger": start.trigger})

    def stopping(self, *, now: bool) -> None:
        self._write("stopping", {"now": now})

    def progressed(self, record: BatchRecord) -> None:
        self._write("batch", record.as_dict())

    def changed(self, state: QueryState) -> None:
        self._write("state", state.as_dict())

    def ended(self, outcome: Outcome) -> None:
        self._write("ended", outcome.as_dict())

    def note(self, finding: Finding) -> None:
        self._write("note", {"finding": finding.as_dict()})
