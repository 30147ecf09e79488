"""What is kept of a change of a query while its steps are under way: an adoption, a rebuild, a reset, a rewind.

The record comes first and every step after it may be done again, so that a crash at any point is ended, or taken back,
by a command. `form` is the number of the record's form: of another one a later version must have written it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckpointError, Finding, Where
from headrace.queries.layout import (
    QueryLayout,
    generations_set_aside,
    latest_generation,
    rebuild_record,
    rewind_record,
)
from headrace.storage import json_record
from headrace.storage.durable import sync_directory
from headrace.storage.private import writing_to

Choice: TypeAlias = Literal["keep", "drop"]
# done: it can be taken back. discard: what that needs is being deleted.
Way: TypeAlias = Literal["reset", "rewind", "undo", "done", "discard"]
Phase: TypeAlias = Literal["building", "swapping", "swapped", "rolling-back", "abandoning", "discarding"]
_Record = TypeVar("_Record", bound="ChangeRecord")
_Way = TypeVar("_Way", bound="WayRecord")


@dataclass(frozen=True, kw_only=True)
class ChangeRecord:
    """What every record has. at: when the change was begun. unreadable: what is said of a damaged one, and its fix."""

    unreadable: ClassVar[tuple[str, str]]
    at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="microseconds"))
    form: Literal[1] = 1

    @classmethod
    def read(cls: type[_Record], file: Path) -> _Record | None:
        """The record in `file`, None without one. Raises CheckpointError."""
        what, fix = cls.unreadable
        return json_record.read_as(cls, json_record.Damaged(file=file, code="HR584", what=what, fix=fix))


@dataclass(frozen=True, kw_only=True)
class WayRecord(ChangeRecord):
    """A reset or a rewind. way: what is being done, or was done last."""

    way: Way

    def on(self: _Way, way: Way) -> _Way:
        """The same record once another way is taken."""
        return replace(self, way=way)

    def cut_off(self, layout: QueryLayout, file: Path, command: str) -> CheckpointError:
        """That the change, which `command` begins, or its undoing was cut off."""
        done, name = command.split()[1], f"headrace {command.split()[1]} {layout.query}"
        is_undone = self.way == "undo"
        what = f"the undoing of a {done}" if is_undone else f"a {done}"
        fix = f"end it: {name} --undo" if is_undone else f"end it: {command}; or take it back: {name} --undo"
        what += f" of query '{layout.query}' was cut off, so that its checkpoint and its result may not fit"
        return CheckpointError(was_cut_off(file, what, fix))


def was_cut_off(file: Path, what: str, fix: str) -> Finding:
    """That the change whose record is `file` was begun and not ended."""
    return Finding(code="HR581", where=Where(file=str(file)), what=what, fix=fix)


# ------------------------------------------------------------------------------------------------------- an adoption


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

    @classmethod
    def of(cls, layout: QueryLayout) -> AdoptionRecord | None:
        """The record of a generation, None without one. Raises CheckpointError."""
        return cls.read(layout.adoption)

    def enter(self, layout: QueryLayout) -> None:
        """Keep the record in the generation's directory. Raises OSError."""
        json_record.write(layout.adoption, self)

    def is_of(self, checkpoint: Checkpoint) -> bool:
        """Whether this is the directory as it was when the adoption was begun."""
        newest = (checkpoint.last_batch, checkpoint.last_committed)
        return (self.id, (self.planned, self.committed)) == (checkpoint.id, newest)

    def is_cut_off(self, layout: QueryLayout) -> bool:
        """Whether the checkpoint, which comes last, is not in its place as a whole.

        In an object store it comes and goes in steps, the staged one to the last.
        """
        return layout.staged.checkpoint.exists() or not layout.checkpoint.exists()


def require_adopted(layout: QueryLayout) -> None:
    """Raise CheckpointError if an adoption of the query was begun and cut off."""
    record = AdoptionRecord.of(layout)
    if record is None or not record.is_cut_off(layout):
        return
    command = f"headrace adopt {layout.query} --checkpoint {record.checkpoint}"
    what = f"query '{layout.query}' was being given the checkpoint of another program, and that was cut off"
    fix = f"end it: {command}; or reset the query (headrace reset QUERY)"
    raise CheckpointError(was_cut_off(layout.adoption, what, fix))


# ---------------------------------------------------------------------------------------------------------- a reset


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

    @classmethod
    def begun(cls, result: Choice) -> ResetRecord:
        """The record of a reset that begins now."""
        return cls(result=result, way="reset")

    @classmethod
    def of(cls, layout: QueryLayout) -> ResetRecord | None:
        """The record in a generation's directory, None without one. Raises CheckpointError."""
        return cls.read(layout.reset)

    def enter(self, layout: QueryLayout) -> None:
        """Keep the record in the generation's directory. Raises OSError."""
        json_record.write(layout.reset, self)


def newest_set_aside(layout: QueryLayout) -> QueryLayout | None:
    """The newest generation of the query that a reset has moved out of the way."""
    found = generations_set_aside(layout.storage, layout.query)
    return QueryLayout(layout.storage, layout.query, found[-1]).set_aside if found else None


def current(layout: QueryLayout) -> QueryLayout:
    """The generation that the query runs as, or would begin."""
    return QueryLayout(layout.storage, layout.query, latest_generation(layout.storage, layout.query))


def reset_cut_off(layout: QueryLayout) -> tuple[QueryLayout, ResetRecord] | None:
    """What a crash has cut off: the generation that it is about, and its record; None: nothing."""
    record = ResetRecord.of(layout)
    if record is not None:
        return layout, record
    aside = newest_set_aside(layout)
    record = None if aside is None else ResetRecord.of(aside)
    return (aside, record) if aside is not None and record is not None and record.way != "reset" else None


def require_whole(layout: QueryLayout) -> None:
    """Raise CheckpointError if a reset of the query, or its undoing, was cut off."""
    found = reset_cut_off(layout)
    if found is not None and found[1].way != "discard":
        command = f"headrace reset {layout.query} --{found[1].result}-result"
        raise found[1].cut_off(layout, found[0].reset, command)


# --------------------------------------------------------------------------------------------------------- a rewind


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

    @classmethod
    def begun(cls, layout: QueryLayout, batch: int, newest: int) -> RewindRecord:
        """The record of a rewind that begins now."""
        return cls(generation=layout.generation, batch=batch, newest=newest, way="rewind")

    @classmethod
    def of(cls, layout: QueryLayout) -> RewindRecord | None:
        """The record of a query, None without one. Raises CheckpointError."""
        return cls.read(rewind_record(layout.storage, layout.query))

    def enter(self, layout: QueryLayout) -> None:
        """Keep the record. Raises OSError."""
        json_record.write(rewind_record(layout.storage, layout.query), self)

    @staticmethod
    def remove(layout: QueryLayout) -> None:
        """Let nothing be known of a rewind. Raises OSError."""
        file = rewind_record(layout.storage, layout.query)
        file.unlink(missing_ok=True)
        sync_directory(file.parent)

    @property
    def is_cut_off(self) -> bool:
        """Whether checkpoint and result may not fit."""
        return self.way in ("rewind", "undo")

    def layout(self, layout: QueryLayout) -> QueryLayout:
        """The places of its generation, whose directory a crash may have left between two names."""
        return QueryLayout(layout.storage, layout.query, self.generation)


def require_rewound(layout: QueryLayout) -> None:
    """Raise CheckpointError if a rewind of the query, or its undoing, was cut off."""
    record = RewindRecord.of(layout)
    if record is not None and record.is_cut_off:
        command = f"headrace rewind {layout.query} --to-batch {record.batch}"
        raise record.cut_off(layout, rewind_record(layout.storage, layout.query), command)


# -------------------------------------------------------------------------------------------------------- a rebuild


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

    @classmethod
    def begun(cls, former: int, notes: tuple[str, ...], *, since: str = "") -> RebuildRecord:
        """The record of a rebuild that begins now."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(former=former, generation=former + 1, phase="building", at=now, since=since, notes=notes)

    @classmethod
    def of(cls, storage: Path, query: str) -> RebuildRecord | None:
        """The record of a query's rebuild, None without one. Raises CheckpointError."""
        return cls.read(rebuild_record(storage, query))

    def enter(self, storage: Path, query: str) -> RebuildRecord:
        """Keep the record. Raises PlatformError."""
        file = rebuild_record(storage, query)
        with writing_to(storage):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            json_record.write(file, self)
        return self

    def at_phase(self, phase: Phase) -> RebuildRecord:
        """The same rebuild, so far."""
        return replace(self, phase=phase)


def forget(storage: Path, query: str) -> None:
    """Let there be no rebuild. Raises PlatformError."""
    file = rebuild_record(storage, query)
    with writing_to(storage):
        file.unlink(missing_ok=True)
        if file.parent.is_dir():
            sync_directory(file.parent)


def cut_off(storage: Path, query: str) -> Iterator[Finding]:
    """Why the query must neither start nor be judged: its checkpoint and its result are being exchanged."""
    record = RebuildRecord.of(storage, query)
    if record is None or record.phase not in ("swapping", "rolling-back"):
        return
    done, ends = ("the swap", f"headrace rebuild {query} --yes")
    other = f"; or take it back: headrace rebuild {query} --abandon"
    if record.phase == "rolling-back":
        done, ends, other = "the roll-back", f"headrace rebuild {query} --roll-back", ""
    what = f"{done} of a rebuild of query '{query}' was cut off, so that its checkpoint and its result may not fit"
    yield was_cut_off(rebuild_record(storage, query), what, f"end it: {ends}{other}")


def under_way(storage: Path, query: str) -> Iterator[Finding]:
    """Why the generations of the query must not be changed by anything but the rebuild."""
    record = RebuildRecord.of(storage, query)
    if record is None or record.phase in ("swapped", "discarding"):
        return
    yield from cut_off(storage, query)
    if record.phase in ("building", "abandoning"):
        yield Finding(
            code="HR571",
            where=Where(file=str(rebuild_record(storage, query))),
            what=f"a rebuild of query '{query}' was begun at {record.at}, which makes its generation "
            f"{record.generation}",
            fix=f"end it: headrace rebuild {query}; or give it up: headrace rebuild {query} --abandon",
        )
