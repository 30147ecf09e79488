"""What is kept of a change of a query while its steps are under way: an adoption, a rebuild, a reset, a rewind.

The record comes first and every step after it may be done again, so that a crash at any point is ended, or taken back,
by a command. `form` is the number of the record's form: of another one a later version must have written it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckpointError, Finding, HeadraceError, LeaseLost, PlainData, Where
from headrace.queries.layout import QueryLayout, generations_set_aside, latest_generation
from headrace.storage import json_record
from headrace.storage.durable import sync
from headrace.storage.private import writing_to

ChangeName: TypeAlias = Literal["adopt", "rebuild", "repair", "reset", "rewind"]
Choice: TypeAlias = Literal["keep", "drop"]
# done: it can be taken back. discard: what that needs is being deleted.
Way: TypeAlias = Literal["reset", "rewind", "undo", "done", "discard"]
Phase: TypeAlias = Literal["building", "swapping", "swapped", "rolling-back", "abandoning", "discarding"]
_Record = TypeVar("_Record", bound="ChangeRecord")
_Way = TypeVar("_Way", bound="WayRecord")


@dataclass(frozen=True, kw_only=True)
class ChangeStatus(PlainData):
    """How far a change of a query is.

    change: the command that begins it. phase: what is being done, or was done last. begun: when, in ISO 8601.
    is_cut_off: the query must not start before it is ended or taken back. sentence: how it stands, and the next
    command.
    """

    query: str
    change: ChangeName
    phase: str
    begun: str
    is_cut_off: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class ChangeRecord:
    """What every record has. at: when the change was begun. unreadable: what is said of a damaged one, and its fix."""

    unreadable: ClassVar[tuple[str, str]]
    at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="microseconds"))
    form: Literal[1] = 1

    @staticmethod
    def file(layout: QueryLayout) -> Path:
        """Where the record of this query, or of this generation, lies."""
        raise NotImplementedError

    @classmethod
    def cut_offs(cls, layout: QueryLayout) -> Iterator[Finding]:
        """That such a change was cut off, so that the query must not start. Raises CheckpointError."""
        raise NotImplementedError

    @classmethod
    def of(cls: type[_Record], layout: QueryLayout) -> _Record | None:
        """The record, None without one. Raises CheckpointError."""
        fault, fix = cls.unreadable
        damaged = json_record.Damaged(file=cls.file(layout), code="HR584", what=fault, fix=fix)
        return json_record.read_as(cls, damaged)

    def enter(self: _Record, layout: QueryLayout) -> _Record:
        """Keep the record. Raises PlatformError."""
        file = self.file(layout)
        with writing_to(layout.storage):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            json_record.write(file, self)
        return self

    def begin(self: _Record, layout: QueryLayout, require_alone: Callable[[], None]) -> _Record:
        """Keep the record of a change that begins, unless `require_alone` raises, before or once it is there.

        Of two changes that begin at one moment each may have looked before the other's record was there. Raises what
        `require_alone` raises, and PlatformError.
        """
        require_alone()
        self.enter(layout)
        try:
            require_alone()
        except LeaseLost:
            raise  # Whoever has the lease now may have continued from the record.
        except HeadraceError:
            self.remove(layout)
            raise
        return self

    @classmethod
    def remove(cls, layout: QueryLayout) -> None:
        """Delete the record. Raises PlatformError."""
        file = cls.file(layout)
        with writing_to(layout.storage):
            file.unlink(missing_ok=True)
            if file.parent.is_dir():
                sync(file.parent)


def was_cut_off(file: Path, what: str, fix: str) -> Finding:
    """That the change whose record is `file` was begun and not ended."""
    return Finding(code="HR581", where=Where(file=str(file)), what=what, fix=fix)


def _cut_off(file: Path, query: str, done: str, *, undoes: bool) -> Finding:
    fix = f"end it: headrace change resume {query}"
    fix += "" if undoes else f"; or take it back: headrace change undo {query}"
    fault = f"{done} of query '{query}' was cut off, so that its checkpoint and its result may not fit"
    return was_cut_off(file, fault, fix)


def require_ended(layout: QueryLayout, *kinds: type[ChangeRecord]) -> None:
    """Raise CheckpointError if a change of one of `kinds` was begun and cut off."""
    for kind in kinds:
        if findings := tuple(kind.cut_offs(layout)):
            raise CheckpointError(findings)


@dataclass(frozen=True, kw_only=True)
class WayRecord(ChangeRecord):
    """A reset or a rewind. way: what is being done, or was done last."""

    way: Way

    def on(self: _Way, way: Way) -> _Way:
        """The same record once another way is taken."""
        return replace(self, way=way)

    @property
    def is_cut_off(self) -> bool:
        """Whether checkpoint and result may not fit."""
        return self.way in ("reset", "rewind", "undo")


@dataclass(frozen=True, kw_only=True)
class AdoptionRecord(ChangeRecord):
    """checkpoint: the directory that was copied. id: of its query. batch: the last one that the sink has; None: none.

    planned, committed: the newest ones in that directory. sources: by their names, what the former job's checkpoint
    calls them.
    """

    unreadable: ClassVar[tuple[str, str]] = (
        "the record of an adoption cannot be read",
        "restore it from a backup; or remove it, if the query has run since",
    )
    checkpoint: str
    id: str
    planned: int | None
    committed: int | None
    batch: int | None
    sources: Mapping[str, str]

    @staticmethod
    def file(layout: QueryLayout) -> Path:
        return layout.adoption

    @classmethod
    def begun(cls, checkpoint: Checkpoint, batch: int | None, sources: Mapping[str, str]) -> AdoptionRecord:
        """The record of an adoption that begins now."""
        return cls(
            checkpoint=str(checkpoint.root),
            id=checkpoint.id or "",
            planned=checkpoint.last_batch,
            committed=checkpoint.last_committed,
            batch=batch,
            sources=dict(sources),
        )

    def is_of(self, checkpoint: Checkpoint) -> bool:
        """Whether this is the directory as it was when the adoption was begun."""
        newest = (checkpoint.last_batch, checkpoint.last_committed)
        return (self.id, (self.planned, self.committed)) == (checkpoint.id, newest)

    def is_cut_off(self, layout: QueryLayout) -> bool:
        """Whether the checkpoint, which comes last, is not in its place as a whole.

        In an object store it comes and goes in steps, the staged one to the last.
        """
        return layout.staged.checkpoint.exists() or not layout.checkpoint.exists()

    @classmethod
    def cut_offs(cls, layout: QueryLayout) -> Iterator[Finding]:
        record = cls.of(layout)
        if record is not None and record.is_cut_off(layout):
            fault = f"query '{layout.query}' was being given the checkpoint of another program, and that was cut off"
            fix = f"end it: headrace change resume {layout.query}; or reset the query (headrace reset QUERY)"
            yield was_cut_off(layout.adoption, fault, fix)


@dataclass(frozen=True, kw_only=True)
class ResetRecord(WayRecord):
    """Kept in the generation that a reset ends. result: whether the sink's rows stay.

    In the query's own place the record says that a reset was begun; in the place of what was set aside, that it is
    done.
    """

    unreadable: ClassVar[tuple[str, str]] = (
        "the record of a reset cannot be read",
        "restore it from a backup; or write it again: "
        '{"result": "drop", "way": "reset", "at": ""}, with keep for drop where the result was kept',
    )
    result: Choice

    @staticmethod
    def file(layout: QueryLayout) -> Path:
        return layout.reset

    @classmethod
    def cut_off(cls, layout: QueryLayout) -> tuple[QueryLayout, ResetRecord] | None:
        """What a crash has cut off: the generation that it is about, and its record; None: nothing."""
        record = cls.of(layout)
        if record is not None:
            return layout, record
        aside = newest_set_aside(layout)
        if (0 if aside is None else aside.generation) < layout.generation - 1:
            # It is back, and a start that was refused meanwhile has made a directory for the one that follows.
            aside = replace(layout, generation=layout.generation - 1)
        record = None if aside is None else cls.of(aside)
        if aside is None or record is None or record.way == "reset":
            return None
        following = replace(layout, generation=aside.generation + 1)
        if record.way == "undo" and Checkpoint(following.checkpoint).last_committed is not None:
            return None  # Its record came late, from a process that was stopped for longer than its lease.
        return aside, record

    @classmethod
    def cut_offs(cls, layout: QueryLayout) -> Iterator[Finding]:
        begun = cls.cut_off(layout)
        if begun is not None and begun[1].is_cut_off:
            undoes = begun[1].way == "undo"
            done = "the undoing of a reset" if undoes else "a reset"
            yield _cut_off(begun[0].reset, layout.query, done, undoes=undoes)


def newest_set_aside(layout: QueryLayout) -> QueryLayout | None:
    """The newest generation of the query that a reset has moved out of the way."""
    numbers = generations_set_aside(layout)
    return replace(layout, generation=numbers[-1]).set_aside if numbers else None


@dataclass(frozen=True, kw_only=True)
class RewindRecord(WayRecord):
    """Kept beside the generations. batch: the one that is gone back to. newest: the one before."""

    unreadable: ClassVar[tuple[str, str]] = (
        "the record of a rewind cannot be read",
        "restore it from a backup; or remove it, if the last rewind of the query has ended",
    )
    generation: int
    batch: int
    newest: int

    @staticmethod
    def file(layout: QueryLayout) -> Path:
        return layout.rewind_record

    @classmethod
    def of(cls, layout: QueryLayout) -> RewindRecord | None:
        record = super().of(layout)
        # A reset came first: a process that was stopped meanwhile has begun the rewind of what had been set aside.
        is_late = record is not None and record.is_cut_off and record.generation < latest_generation(layout)
        return None if is_late else record

    def layout(self, layout: QueryLayout) -> QueryLayout:
        """The places of its generation, whose directory a crash may have left between two names."""
        return replace(layout, generation=self.generation)

    @classmethod
    def cut_offs(cls, layout: QueryLayout) -> Iterator[Finding]:
        record = cls.of(layout)
        if record is not None and record.is_cut_off:
            done = "the undoing of a rewind" if record.way == "undo" else f"a rewind to batch {record.batch}"
            yield _cut_off(cls.file(layout), layout.query, done, undoes=record.way == "undo")


@dataclass(frozen=True, kw_only=True)
class RebuildRecord(ChangeRecord):
    """former: the generation in use before the swap. generation: the rebuilt one. phase: how far.

    since: the time that its sources begin at, in ISO 8601; '': where the query began. notes: what was said before it
    began. report: what was found when it had caught up.
    """

    unreadable: ClassVar[tuple[str, str]] = (
        "the record of a rebuild cannot be read",
        "restore it from a backup; or, if no swap was begun, remove it: a rebuild that was being built then starts "
        "from scratch",
    )
    former: int
    generation: int
    phase: Phase
    since: str = ""
    notes: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = None

    @staticmethod
    def file(layout: QueryLayout) -> Path:
        return layout.rebuild_record

    @classmethod
    def begun(cls, former: int, notes: tuple[str, ...], *, since: str = "") -> RebuildRecord:
        """The record of a rebuild that begins now."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(former=former, generation=former + 1, phase="building", at=now, since=since, notes=notes)

    def at_phase(self, phase: Phase) -> RebuildRecord:
        """The same rebuild, so far."""
        return replace(self, phase=phase)

    @classmethod
    def cut_offs(cls, layout: QueryLayout) -> Iterator[Finding]:
        record = cls.of(layout)
        if record is not None and record.phase in ("swapping", "rolling-back"):
            undoes = record.phase == "rolling-back"
            done = "the roll-back of a rebuild" if undoes else "the swap of a rebuild"
            yield _cut_off(cls.file(layout), layout.query, done, undoes=undoes)


def rebuilding(layout: QueryLayout) -> Iterator[Finding]:
    """Why the generations of the query must not be changed by anything but its rebuild."""
    record = RebuildRecord.of(layout)
    yield from RebuildRecord.cut_offs(layout)
    if record is not None and record.phase in ("building", "abandoning"):
        yield Finding(
            code="HR571",
            where=Where(file=str(RebuildRecord.file(layout))),
            what=f"a rebuild of query '{layout.query}' was begun at {record.at}, which makes its generation "
            f"{record.generation}",
            fix=f"end it: headrace change resume {layout.query}; or give it up: headrace change discard {layout.query}",
        )


# What may be cut off between two steps, so that a start is refused until it is ended.
CHANGES: tuple[type[ChangeRecord], ...] = (ResetRecord, RewindRecord, AdoptionRecord, RebuildRecord)
