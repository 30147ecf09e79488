"""What is kept of a rebuild beside the generations of its query: which two they are, and how far it is.

The record comes first and every step after it may be done again, so that a crash at any point is ended, or taken back,
by a command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeAlias

from headrace.errors import Finding, Where
from headrace.model.layout import rebuild_record
from headrace.storage import json_record
from headrace.storage.durable import sync_directory
from headrace.storage.faults import writing_to

Phase: TypeAlias = Literal["building", "swapping", "swapped", "rolling-back", "abandoning", "discarding"]


@dataclass(frozen=True, kw_only=True)
class RebuildRecord:
    """former: the generation in use before the swap. generation: the rebuilt one. phase: how far.

    since: the time that its sources begin at, in ISO 8601; '': where the query began. notes: what was said before it
    began. report: what was found when it had caught up.
    """

    former: int
    generation: int
    phase: Phase
    at: str
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
        damaged = json_record.Damaged(
            file=rebuild_record(storage, query),
            code="HR577",
            what=f"the record of the rebuild of query '{query}' cannot be read",
            fix="restore it from a backup; or, if no swap was begun, remove it: a rebuild that was being built then "
            "starts from scratch",
        )
        return json_record.read_as(cls, damaged)

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
    yield Finding(
        code="HR572",
        where=Where(file=str(rebuild_record(storage, query))),
        what=f"{done} of a rebuild of query '{query}' was cut off, so that its checkpoint and its result may not fit",
        fix=f"end it: {ends}{other}",
    )


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
