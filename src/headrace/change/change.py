"""A change of a query as an object: shown first, made in steps, ended after a crash, taken back, made final.

What is begun is kept in a record before anything is touched (`headrace.queries.changes`), and each step after it may be
done again. Nothing of the query is read before no other command and no driver can change it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from headrace.contract import same_place
from headrace.errors import CheckFailed, CheckpointError, PlatformError
from headrace.model import Project, Query
from headrace.queries import driver_lock
from headrace.queries.blame import commanded
from headrace.queries.changes import ChangeName, ChangeRecord, ChangeStatus, Way, rebuilding, require_ended
from headrace.queries.driver_lock import DriverLock
from headrace.queries.layout import QueryLayout, layout_of
from headrace.run.sink_work import SinkWork, ignore, require_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Preview = TypeVar("Preview")
Done = TypeVar("Done")


class NothingToChange(CheckFailed):
    """The query is already what the change would make it."""

    exit_code = 0


class Change(SinkWork, ABC, Generic[Preview, Done]):
    """A change of one query, which must not be running; nothing is done before `apply`.

    plan: what it would do. apply: does it; called again after a crash, it ends what was begun. resume: ends what a
    crash has cut off, whichever way it went. undo: brings back what was there before, as long as no batch was planned
    since. discard: deletes for good what `undo` needs. status: how far it is, without a JVM; None where nothing was
    begun.
    """

    name: ClassVar[ChangeName]
    # What the query then is, in a refusal.
    _done: ClassVar[str]

    def __init__(self, project: Project, query: str, *, spark: SparkSession | None = None) -> None:
        super().__init__(project, project.query(query), spark, changes=False)
        self._locks: list[DriverLock] = []
        self._takes_back = False

    # ------------------------------------------------------------------------------------------------- the ways

    @property
    def plan(self) -> Preview:
        """What `apply` would do; nothing is changed. Raises as it does."""
        with self._opened(changes=False):
            return self._preview()

    def apply(self, *, reached: Callable[[str], None] = ignore) -> Done:
        """Make the change, or end it. `reached` is told each step that is done.

        Raises CheckFailed, CheckpointError, SourceError, SinkError or PlatformError.
        """
        with self._opened():
            return self._applied(self._alone(reached))

    def undo(self, *, reached: Callable[[str], None] = ignore) -> Done:
        """Bring back what the change has set aside, or end that. Raises as `apply`."""
        self._takes_back = True
        try:
            with self._opened():
                return self._undone(self._alone(reached))
        finally:
            self._takes_back = False

    def discard(self, *, reached: Callable[[str], None] = ignore) -> Done:
        """Delete for good what the change has set aside, or end that. Raises as `apply`."""
        with self._opened():
            return self._discarded(self._alone(reached))

    def resume(self, *, reached: Callable[[str], None] = ignore) -> Done:
        """End what a crash has cut off. Raises as `apply`."""
        status = self.status
        if status is None or status.phase == "done":
            raise self._nothing(f"no {self.name} of query '{self.query.name}' was cut off")
        if status.phase == "undo":
            return self.undo(reached=reached)
        return self.discard(reached=reached) if status.phase == "discard" else self.apply(reached=reached)

    @property
    @abstractmethod
    def status(self) -> ChangeStatus | None:
        """How far the change is, without a JVM; None where nothing was begun. Raises CheckpointError."""

    # --------------------------------------------------------------------------------- what each change is made of

    @abstractmethod
    def _preview(self) -> Preview:
        """What would be done to the query, which nobody else can change meanwhile."""

    @abstractmethod
    def _applied(self, reached: Callable[[str], None]) -> Done:
        """The steps of the change, each of which may be done again."""

    @abstractmethod
    def _undone(self, reached: Callable[[str], None]) -> Done:
        """The steps back."""

    @abstractmethod
    def _discarded(self, reached: Callable[[str], None]) -> Done:
        """The steps that delete what the way back needs."""

    def _look(self) -> None:
        """Read which generation is in use; raise if something else keeps the change from being made."""
        if not self.query.sink.facts.durable:
            raise self._nothing(
                f"the sink of query '{self.query.name}' keeps nothing, so that each start begins from scratch"
            )
        self.live = layout_of(self.project, self.query)
        if not self._takes_back_half():
            self._require_no_other()

    def _require_ended(self, kind: type[ChangeRecord]) -> None:
        """Raise CheckpointError if a change of this kind was cut off, unless this one was too and is taken back."""
        if not self._takes_back_half():
            require_ended(self.live, kind)

    def _takes_back_half(self) -> bool:
        """Whether this change was cut off and is taken back, which it can be though another one was begun.

        The record of one of the two came late, from a process that was stopped for longer than its lease and takes no
        step after it. So each can be taken back, though neither can be ended over the other.
        """
        status = self.status if self._takes_back else None
        return status is not None and status.is_cut_off

    def _require_no_other(self) -> None:
        """Raise CheckFailed if a rebuild has been begun, which has a lock of its own."""
        if findings := list(rebuilding(layout_of(self.project, self.query))):
            raise CheckFailed(findings)

    @contextmanager
    def _opened(self, *, changes: bool = True) -> Iterator[None]:
        """Look at the query, under its driver's lock if it `changes` anything.

        What was begun, and which generation it is of, is on the disk: read before the lock is held, it may be another's
        by then. Raises CheckFailed while a driver or another command has it.
        """
        require_stopped(self.project, self.query)
        self.changes = changes
        with self._locked(driver_lock.take(self.project, self.query) if changes else None):
            try:
                with commanded(self.query), self._resumable():
                    self._look()
                    yield
            finally:
                self.close()

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """Add the command that ends the change to faults of the machine that cut it off.

        Where the lease is gone, that is the fault: the process that has it moved the files that this one misses.
        """
        try:
            yield
        except PlatformError as error:
            self._require_locked()
            with suppress(CheckpointError):  # A record that cannot be read has a finding of its own.
                if (status := self.status) is not None and status.is_cut_off:
                    end = f"then end the {self.name}: {self._then('resume')}"
                    error.findings = tuple(finding.reword(fix=f"{finding.fix}; {end}") for finding in error.findings)
            raise

    @contextmanager
    def _locked(self, lock: DriverLock | None) -> Iterator[None]:
        """Hold a lock of the query, which is given back after the block."""
        held = [] if lock is None else [lock]
        self._locks += held
        try:
            yield
        finally:
            for each in held:
                self._locks.remove(each)
                each.release()

    def _require_locked(self) -> None:
        """Raise LeaseLost if another process has taken one of the locks: it may have ended this change, or undone it.

        A process that was stopped for longer than its lease learns of it in no other way.
        """
        for lock in self._locks:
            lock.require_held(self.query)

    def _enter(self, record: ChangeRecord, layout: QueryLayout) -> None:
        """Keep the record of what is done next, unless another process has taken a lock, before or meanwhile."""
        self._require_locked()
        record.enter(layout)
        self._require_locked()

    def _require_alone(self) -> None:
        """Raise CheckFailed if another process changes the query, or may do so, now that the record is there."""
        self._require_locked()
        self._require_no_other()

    def _alone(self, reached: Callable[[str], None]) -> Callable[[str], None]:
        """What reports a step, and lets no other follow on it once somebody else may change the query."""

        def told(step: str) -> None:
            reached(step)
            self._require_locked()

        return told

    # ------------------------------------------------------------------------------------------------- what is said

    def _refused(self, why: str, fix: str) -> CheckFailed:
        """That the change is not made, and what can be done instead."""
        fault = f"query '{self.query.name}' cannot be {self._done}: {why}"
        return CheckFailed(code="HR580", what=fault, fix=fix, where=self.query.where)

    def _irreversible(self, why: str, fix: str = "") -> CheckFailed:
        """That the query cannot be what it was before the change."""
        fault = f"the {self.name} of query '{self.query.name}' cannot be undone: {why}"
        return CheckFailed(code="HR583", what=fault, fix=fix, where=self.query.where)

    def _nothing(self, what: str) -> NothingToChange:
        """That there is nothing to do."""
        return NothingToChange(code="HR582", what=what, where=self.query.where, severity="note")

    def _command(self, option: str) -> str:
        """The command line that begins this change with `option`."""
        return f"headrace {self.name} {self.query.name} {option}".rstrip()

    def _then(self, verb: Literal["resume", "status", "undo", "discard"]) -> str:
        """The command line for a change that was begun."""
        return f"headrace change {verb} {self.query.name}"

    def _standing(self, way: Way, begun: str, done: str) -> ChangeStatus:
        """The status of a reset or a rewind; `done`: what it has made of the query."""
        name = self.query.name
        sentence = {
            "done": f"query '{name}' {done}; take it back: {self._then('undo')}; delete that for good: "
            f"{self._then('discard')}",
            "undo": f"the undoing of a {self.name} of query '{name}' was cut off; end it: {self._then('resume')}",
            "discard": f"what a {self.name} of query '{name}' has set aside is being deleted; end that: "
            f"{self._then('resume')}",
        }.get(way) or (
            f"a {self.name} of query '{name}' was cut off; end it: {self._then('resume')}; or take it back: "
            f"{self._then('undo')}"
        )
        return ChangeStatus(
            query=name,
            change=self.name,
            phase=way,
            begun=begun,
            is_cut_off=way not in ("done", "discard"),
            sentence=sentence,
        )


def readers(project: Project, query: Query) -> Iterator[str]:
    """The other queries that read what the sink of `query` writes."""
    place = query.sink.identity()
    for other in project.queries.values():
        read = (source.connector.identity() for source in project.sources_of(other) if other.name != query.name)
        if place is not None and any(identity is not None and same_place(place, identity) for identity in read):
            yield other.name


def late_note(query: Query) -> Iterator[str]:
    """What is to be known of the late rows of a generation that ends."""
    if query.late:
        yield f"query '{query.late}' holds late rows of the former generation, and starts only once it is reset as well"
