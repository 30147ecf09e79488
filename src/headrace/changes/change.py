"""A change of a query as an object: shown first, made in steps, ended after a crash, taken back, made final.

What is begun is kept in a record before anything is touched (`headrace.generations.changes`). Each step after it may
be done again. Nothing of the query is read before no other command and no driver can change it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from headrace.contract import SinkContext, same_place
from headrace.errors import AttemptFailed, CheckFailed, CheckpointError, HeadraceError, NothingChanged, PlatformError
from headrace.generations import driver_lock
from headrace.generations.blame import name_command
from headrace.generations.changes import ChangeStatus
from headrace.generations.driver_lock import DriverLock
from headrace.generations.log import (
    ChangeName,
    Directory,
    Kind,
    LogRecord,
    QueryLayout,
    append,
    as_facts,
    begin,
    enter_made,
    log_of,
    rebuilding,
    remove_unreachable,
    require_ended,
)
from headrace.generations.register import layout_of
from headrace.model import Project, Query
from headrace.starter.rename import former_location, table_before
from headrace.starter.sink_work import SinkWork, ignore, require_stopped
from headrace.storage.durable import remove_tree
from headrace.storage.private import writing_to

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

    name: ChangeName
    # What the query then is, in a refusal.
    _done: ClassVar[str]

    def __init__(self, project: Project, query: str, *, spark: SparkSession | None = None) -> None:
        super().__init__(project, project.query(query), spark, changes=False)
        self._locks: list[DriverLock] = []
        self._undoes_again = False

    # ------------------------------------------------------------------------------------------------- the ways

    @property
    def plan(self) -> Preview:
        """Show what `apply` would do; nothing is changed. Raises as `apply`."""
        with self._open(changes=False):
            return self._preview()

    def apply(self, *, reached: Callable[[str], None] = ignore) -> Done:
        """Make the change, or end it.

        Args:
            reached: A function that is called with each step that is done.

        Returns:
            What was done.

        Raises:
            CheckFailed: A driver runs the query, or the change does not fit it any more.
            CheckpointError: The checkpoint or the record of a change cannot be read.
            SourceError: A source cannot be read.
            SinkError: The sink refuses the change.
            PlatformError: Spark or the storage cannot be used.
        """
        with self._open():
            return self._make_steps(self._alone(reached))

    def undo(self, *, reached: Callable[[str], None] = ignore) -> Done:
        """Restore what the change has set aside, or end that. Takes, returns and raises the same as `apply`."""
        with self._open():
            return self._undone(self._alone(reached))

    def discard(self, *, reached: Callable[[str], None] = ignore) -> Done:
        """Delete for good what the change has set aside, or end that. Takes, returns and raises the same as `apply`."""
        with self._open():
            return self._discard_steps(self._alone(reached))

    def resume(self, *, reached: Callable[[str], None] = ignore) -> Done:
        """End what was stopped or cut off, whichever way it went. Takes, returns and raises the same as `apply`."""
        status = self.status
        if status is None or status.phase in ("done", "swapped"):
            raise self._nothing(f"no {self.name} of query '{self.query.name}' was cut off")
        if status.phase in ("undo", "rolling-back"):
            return self.undo(reached=reached)
        is_deleting = status.phase in ("discard", "discarding", "abandoning")
        return self.discard(reached=reached) if is_deleting else self.apply(reached=reached)

    @property
    @abstractmethod
    def status(self) -> ChangeStatus | None:
        """How far the change is, without a JVM; None where nothing was begun. Raises CheckpointError."""

    # --------------------------------------------------------------------------------- what each change is made of

    @abstractmethod
    def _preview(self) -> Preview:
        """What would be done to the query, which no other process can change meanwhile."""

    @abstractmethod
    def _make_steps(self, reached: Callable[[str], None]) -> Done:
        """The steps of the change, each of which may be done again."""

    def _end(self, reached: Callable[[str], None], plan: Preview | None = None) -> Done:
        """The steps that follow that of the sink."""
        raise NotImplementedError

    @abstractmethod
    def _undone(self, reached: Callable[[str], None]) -> Done:
        """The steps back."""

    @abstractmethod
    def _discard_steps(self, reached: Callable[[str], None]) -> Done:
        """The steps that delete what the way back needs."""

    def _look(self) -> None:
        """Read the query's log; raise if something else keeps the change from being made."""
        if not self.query.sink.facts.durable:
            raise self._nothing(
                f"the sink of query '{self.query.name}' keeps nothing, so that each start begins from scratch"
            )
        self.live = layout_of(self.project, self.query)
        self.record = log_of(self.live) or LogRecord()
        self._require_no_other()

    def _require_no_other(self) -> None:
        """Raise CheckFailed or CheckpointError if another change is under way."""
        if findings := list(rebuilding(layout_of(self.project, self.query))):
            raise CheckFailed(findings)
        self._require_no_deleting()

    def _require_no_deleting(self) -> None:
        """Raise CheckFailed or CheckpointError while another change is deleted."""
        record = self.record
        if record.is_open and record.change != self.name:
            require_ended(self.live)
            raise self._refusal(f"a {record.change} of it is being deleted", f"end that: {self._then('resume')}")

    # ------------------------------------------------------------------------------------------------- the log

    def _begin(self, target: Directory, kind: Kind = "intent", **facts: Any) -> LogRecord:
        """Keep that a change begins, after which `target` is live."""
        settled = self.record.settled
        return self._enter(
            kind,
            change=self.name,
            of=0,
            begun="",
            target=target,
            building=target if kind == "building" else self.record.building,
            facts={**facts, "former": str(self.record.live)},
            following=max(self.record.following, target.generation + 1),
            before=None if settled is None else as_facts(settled),
        )

    def _continue(self, own: Directory) -> None:
        """Keep that a change is ended, so that the process that began it can do nothing more.

        own: the directory to make where that process has completed none.
        """
        self._enter("intent", target=self._target if self.live.at(self._target).made_by.exists() else own)

    def _enter_made(self) -> None:
        """Keep in the target's directory, which is complete, by which record it is made: the log may be lost."""
        new = self.live.at(self._target)
        with writing_to(new.home):
            new.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            enter_made(new, self.record)

    def _next(self, generation: int) -> Directory:
        """The directory of a generation that the next record makes."""
        return Directory(generation=generation, made=self.record.number + 1)

    def _enter(self, kind: Kind, **more: Any) -> LogRecord:
        """Write the next record, unless another process has taken a lock or has written it."""
        self._require_locked()
        # What a start was restoring is given up.
        record = replace(self.record, kind=kind, **{"restoring": None, **more})
        self.record = append(self.live.folder, self.query.name, record)
        self.live = replace(self.live, record=self.record)
        self._require_locked()
        return self.record

    def _complete(self) -> None:
        """Keep that the change is done: its target is live, and what was live before is kept."""
        kept = tuple(dict.fromkeys((*self.record.kept, self._former)))
        self._enter("done", live=self._target, kept=kept, building=None)
        self._remove_unreachable()

    def _end_undoing(self, kind: Kind = "undone", target: Directory | None = None) -> None:
        """Keep that the change is undone: what was live before is live again."""
        former = self._former
        kept = tuple(directory for directory in self.record.kept if directory != former)
        self._enter(kind, live=former, kept=kept, target=target, building=target)
        self._remove_unreachable()

    def _remove_unreachable(self) -> None:
        """Delete what nothing leads to any more; the rest does no harm."""
        with suppress(HeadraceError, OSError):
            remove_unreachable(self.live.folder, self.record)

    @property
    def _former(self) -> Directory:
        """What was live before the change."""
        current = self.record.current
        assert current is not None
        assert current.former is not None
        return current.former

    @property
    def _target(self) -> Directory:
        """What is live once the change is done."""
        assert self.record.target is not None
        return self.record.target

    def _undo_begins(self) -> None:
        """Keep that the change is undone, whether it is done or was cut off."""
        record, settled = self.record, self.record.settled
        if record.kind == "discarding" or (settled is None and not record.is_between):
            deleted = record.kind == "discarding"
            why = "what was set aside is being discarded" if deleted else "there is none"
            raise self._irreversible(why, f"end that: {self._then('discard')}" if deleted else "")
        if settled is not None:
            if settled.change != self.name:
                raise self._irreversible(f"a {settled.change} came after it", f"first {self._then('undo')}")
            self._require_not_run(settled)
            self._require_former(settled)
            record = replace(settled, live=record.live, kept=record.kept, following=record.following)
            record = replace(record, number=self.record.number, token=self.record.token, tokens=self.record.tokens)
        self._undoes_again = record.kind == "undoing"
        self.record = record
        self._enter("undoing")
        if self.record.live == self.record.target:
            try:
                # A driver may have run while this process, or one that was cut off, was stopped before its record.
                self._require_not_run(self.record)
            except CheckFailed:
                self._undo_fails()
                raise

    def _require_not_run(self, record: LogRecord) -> None:
        """Raise CheckFailed where the query has run since the change, if that keeps it from being undone."""

    def _require_former(self, record: LogRecord) -> None:
        """Raise CheckFailed where what was there before the change cannot be had again."""

    @contextmanager
    def _undo_in_sink(self, reached: Callable[[str], None] = ignore) -> Iterator[None]:
        """Let the sink undo the change in the block, and record where it has undone nothing."""
        try:
            with self.name_sink_faults():
                yield
        except NothingChanged as error:
            reached("unchanged")
            # A sink that refuses has looked whether an attempt that was cut off has undone it.
            if not (self._undoes_again and isinstance(error, AttemptFailed)):
                self._undo_fails()
            raise

    def _undo_fails(self) -> None:
        """Keep that the sink has undone nothing, so that the change is what it was."""
        self._enter("done" if self.record.live == self.record.target else "intent")

    def _discard_kept(self, kept: Sequence[Directory], reached: Callable[[str], None], nothing: str) -> None:
        """Delete for good what changes have put out of use, or raise with `nothing` where that is none."""
        if self.record.is_between:
            way = f"a {self.name}" if self.record.kind == "intent" else f"the undoing of a {self.name}"
            raise self._refusal(f"{way} was cut off", f"end it first: {self._then('resume')}")
        if not kept and self.record.kind != "discarding":
            raise self._nothing(nothing)
        self._delete_kept(kept, reached)

    def _require_not_undoing(self) -> None:
        if self.record.kind == "undoing":
            raise self._refusal(f"the undoing of a {self.name} was cut off", f"end it: {self._then('undo')}")

    def _require_named(self) -> None:
        """Raise CheckFailed where the table is to be renamed first."""
        query = self.query
        if table_before(self.project, query, self.live) is not None:
            fix = f"start it first: headrace run {query.name}"
            if query.sink.swap is not None:
                fix += f"; or, if its change keeps it from that: headrace rebuild {query.name}, which takes it over"
            why = "its table is to be renamed, which the next start does"
            raise self._refusal(why, f"{fix}; or remove renamed_from")

    def _delete_kept(self, kept: Sequence[Directory], reached: Callable[[str], None]) -> None:
        """Delete for good what changes have put out of use."""
        record = self.record
        if record.kind != "discarding":
            rest = tuple(directory for directory in record.kept if directory not in kept)
            current = record.current
            own = current.facts if current is not None and current.change == self.name else {}
            facts = {**own, "discards": [str(directory) for directory in kept]}
            record = self._enter("discarding", change=self.name, of=0, begun="", target=None, facts=facts, kept=rest)
        reached("recorded")
        for name in record.facts["discards"]:
            directory = Directory.parse(name)
            assert directory is not None
            old = self.live.at(directory)
            if former_location(self.project, self.query, old) is None:
                with self.name_sink_faults():
                    self._forget(replace(self.context(old), mark=record.mark("discard")))
            with writing_to(old.home):
                remove_tree(old.home)
        reached("deleted")
        self._enter("discarded", before=None)
        self._remove_unreachable()

    def _forget(self, context: SinkContext) -> None:
        """Delete what the sink keeps of a generation that was put out of use."""
        self.query.sink.reset.discard(context, self.session)

    def _mark(self, way: Literal["there", "back"], layout: QueryLayout) -> SinkContext:
        """The context of a generation for the step of the change that the sink makes."""
        return replace(self.context(layout), mark=self.record.mark(way))

    @contextmanager
    def _open(self, *, changes: bool = True) -> Iterator[None]:
        """Look at the query, under its driver's lock if it `changes` anything.

        What was begun, and which generation it is of, is on the disk: read before the lock is held, it may be another's
        by then. Raises CheckFailed while a driver or another command has it.
        """
        require_stopped(self.project, self.query)
        self.changes = changes
        with self._hold(driver_lock.take(self.project, self.query) if changes else None):
            try:
                with name_command(self.query), self._resumable():
                    if changes and self.query.sink.facts.durable:
                        begin(layout_of(self.project, self.query).folder)
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
    def _hold(self, lock: DriverLock | None) -> Iterator[None]:
        """Hold a lock of the query, which is given back after the block."""
        held = [] if lock is None else [lock]
        self._locks += held
        try:
            yield
        finally:
            for entry in held:
                self._locks.remove(entry)
                entry.release()

    def _require_locked(self) -> None:
        """Raise LeaseLost if another process has taken one of the locks: it may have ended this change, or undone it.

        A process that was stopped for longer than its lease learns of it in no other way.
        """
        for lock in self._locks:
            lock.require_held(self.query)

    def _require_alone(self) -> None:
        """Raise CheckFailed if another process changes the query, or may do so, now that the record is there."""
        self._require_locked()
        self._require_no_other()

    def _alone(self, reached: Callable[[str], None]) -> Callable[[str], None]:
        """What reports a step, and lets no other follow on it once somebody else may change the query."""

        def report(step: str) -> None:
            reached(step)
            self._require_locked()

        return report

    # ------------------------------------------------------------------------------------------------- what is said

    def _refusal(self, why: str, fix: str) -> CheckFailed:
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

    def _status_of(self, done: str) -> ChangeStatus | None:
        """The status of a reset or a rewind by the query's log; `done`: what it has made of the query."""
        record = log_of(layout_of(self.project, self.query))
        current = None if record is None else record.current
        if record is None or current is None or current.change != self.name:
            return None
        name, undo, discard = self.query.name, self._then("undo"), self._then("discard")
        phase, sentence = {
            "intent": (self.name, f"a {self.name} of query '{name}' was cut off; end it: {self._then('resume')}; or "),
            "done": ("done", f"query '{name}' {done}; take it back: {undo}; delete that for good: {discard}"),
            "undoing": ("undo", f"the undoing of a {self.name} of query '{name}' was cut off; end it: "),
            "discarding": (
                "discard",
                f"what a {self.name} of query '{name}' has kept is being deleted; end that: ",
            ),
        }[current.kind]
        sentence += {"intent": f"take it back: {undo}", "done": ""}.get(current.kind, self._then("resume"))
        return ChangeStatus(
            query=name,
            change=self.name,
            phase=phase,
            begun=current.begun,
            is_cut_off=current.is_between,
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
