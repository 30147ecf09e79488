"""What is kept of a query that is being renamed, and where a query's things lie until that is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckpointError, Finding
from headrace.model import Project, Query
from headrace.queries.changes import ChangeRecord, RebuildRecord, reset_cut_off, was_cut_off
from headrace.queries.layout import QueryLayout, generations_set_aside, latest_generation
from headrace.storage import json_record
from headrace.storage.durable import sync_directory

_FILE = "rename.json"


@dataclass(frozen=True, kw_only=True)
class RenameRecord(ChangeRecord):
    """Kept in the directory of the new name while its steps are under way. former: the old name."""

    unreadable: ClassVar[tuple[str, str]] = (
        "the record of a rename cannot be read",
        'restore it from a backup, or write it again: {"former": "THE OLD NAME", "at": ""}',
    )
    former: str

    @classmethod
    def begun(cls, former: str) -> RenameRecord:
        """The record of a rename that begins now."""
        return cls(former=former)

    @classmethod
    def of(cls, storage: Path, query: str) -> RenameRecord | None:
        """The record of what is being renamed to `query`, None without one. Raises CheckpointError."""
        return cls.read(_file(storage, query))

    def enter(self, storage: Path, query: str) -> None:
        """Keep the record in the directory of `query`. Raises OSError."""
        json_record.write(_file(storage, query), self)

    @staticmethod
    def remove(storage: Path, query: str) -> None:
        """Let the rename be done, or not be begun. Raises OSError."""
        _file(storage, query).unlink(missing_ok=True)
        sync_directory(_file(storage, query).parent)


@dataclass(frozen=True, kw_only=True)
class Rename:
    """A rename that the next start makes; begun: its record is there already, so that it is ended."""

    query: str
    former: str
    begun: bool


def pending(project: Project, query: Query) -> Rename | None:
    """What the next start of `query` takes over from another name; None: nothing. Raises CheckpointError."""
    storage = project.storage
    if not query.sink.facts.durable:
        return None
    if (record := RenameRecord.of(storage, query.name)) is not None:
        return Rename(query=query.name, former=record.former, begun=True)
    open_ones = {name: record for name in query.renamed_from if (record := RenameRecord.of(storage, name))}
    left = {record.former for record in open_ones.values()}
    known = [name for name in query.renamed_from if name in open_ones or (has_run(storage, name) and name not in left)]
    if not known:
        return None
    former = known[0]
    if len(known) > 1:
        what = f"'{known[0]}' and '{known[1]}', from which it is renamed, have both run"
        raise _refused(query, what, "name the one in renamed_from whose checkpoint it is to continue")
    if has_run(storage, query.name) and query.name not in left:
        what = f"'{former}', from which it is renamed, and '{query.name}' itself have both run"
        fix = f"remove renamed_from, and '{query.name}' continues by itself; or move its checkpoint "
        fix += f"{storage / 'queries' / query.name} away, if that of '{former}' is to be continued"
        raise _refused(query, what, fix)
    if reset_cut_off(_layout(storage, former)) is not None or generations_set_aside(storage, former):
        what = f"a reset of '{former}' has set results aside, which are kept under that name"
        fix = f"name it '{former}' again and end that: headrace reset {former} --discard, or --undo"
        raise _refused(query, what, fix)
    if RebuildRecord.of(storage, former) is not None:
        what = f"a rebuild of '{former}' is kept under that name"
        fix = f"name it '{former}' again and end that: headrace rebuild {former} --abandon, or --discard after a swap"
        raise _refused(query, what, fix)
    if (adopted := QueryLayout(storage, former, latest_generation(storage, former)).staged.checkpoint).exists():
        what = f"an adoption by '{former}' was cut off, which is kept in {adopted}"
        raise _refused(query, what, f"name it '{former}' again, and end the adoption by the same command")
    return Rename(query=query.name, former=former, begun=False)


def has_run(storage: Path, query: str) -> bool:
    """Whether a batch was planned under this name; one that was reset counts too."""
    planned = Checkpoint(_layout(storage, query).checkpoint).last_batch
    return planned is not None or bool(generations_set_aside(storage, query))


def kept_in(project: Project, query: Query) -> QueryLayout:
    """Where the newest generation of `query` lies now: under its former name, until a start has taken it over."""
    own, found = _layout(project.storage, query.name), pending(project, query)
    if found is None or has_run(project.storage, query.name):
        return own
    inner = RenameRecord.of(project.storage, found.former)
    former = found.former if inner is None or has_run(project.storage, found.former) else inner.former
    return _layout(project.storage, former)


def what_is_moved(project: Project, query: Query) -> Iterator[Finding]:
    """What the next start of `query` takes over, for who looks before it."""
    found = pending(project, query)
    if found is not None:
        location = query.sink.location
        ledger = f", and the ledger of {location.shown}" if location is not None and location.ledger else ""
        yield Finding(
            code="HR559",
            what=f"the next start renames query '{found.former}' to '{query.name}': its checkpoint with its state, "
            f"manifest, archive, quarantine and history{ledger}",
            fix="nothing: renamed_from may stay, or go once the rename was run everywhere",
            where=query.where,
        )


def unfinished(layout: QueryLayout) -> Iterator[Finding]:
    """That a rename to the query's name was cut off, which its start ends; or one of it, which keeps it from starting.

    Raises CheckpointError for a record that cannot be read.
    """
    record = RenameRecord.of(layout.storage, layout.query)
    if record is not None:
        what = f"the renaming of query '{record.former}' to '{layout.query}' was cut off"
        fix = f"start it, which ends it: headrace run {layout.query}"
        yield was_cut_off(_file(layout.storage, layout.query), what, fix).weighed("warning")
    for file in sorted((layout.storage / "queries").glob(f"*/{_FILE}")):
        other = file.parent.name
        taken = RenameRecord.of(layout.storage, other)
        if taken is not None and taken.former == layout.query:
            what = f"the renaming of query '{layout.query}' to '{other}' was cut off; its ledger may have that name"
            fix = f"declare it as '{other}' and start it; or give '{layout.query}' renamed_from: {other}, which ends "
            yield was_cut_off(file, what, f"{fix}the rename and takes it back")


def require_renamed(layout: QueryLayout) -> None:
    """Raise CheckpointError while the query's rename is not ended."""
    if found := list(unfinished(layout)):
        raise CheckpointError([each.weighed("error") for each in found])


def _layout(storage: Path, query: str) -> QueryLayout:
    return QueryLayout(storage, query, latest_generation(storage, query))


def _file(storage: Path, query: str) -> Path:
    return storage / "queries" / query / _FILE


def _refused(query: Query, what: str, fix: str) -> CheckpointError:
    return CheckpointError(
        Finding(code="HR549", what=f"query '{query.name}' cannot be renamed: {what}", fix=fix, where=query.where)
    )
