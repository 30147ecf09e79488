"""What is kept of a query, its table or its sources being renamed, and where its things lie until that is done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.sources import source_of
from headrace.errors import CheckpointError, Finding, Where
from headrace.model import NamedSource, Project, Query
from headrace.queries.changes import ChangeRecord, RebuildRecord, ResetRecord, was_cut_off
from headrace.queries.layout import QueryLayout, generations, generations_set_aside, newest_layout
from headrace.queries.location import table_before
from headrace.queries.manifest import forms
from headrace.storage import json_record
from headrace.storage.durable import replace_file

_FILE = "rename.json"


@dataclass(frozen=True, kw_only=True)
class RenameRecord(ChangeRecord):
    """Kept in the directory of the new name while its steps are under way. former: the old name."""

    unreadable: ClassVar[tuple[str, str]] = (
        "the record of a rename cannot be read",
        'restore it from a backup, or write it again: {"former": "THE OLD NAME", "at": ""}',
    )
    former: str

    @staticmethod
    def file(layout: QueryLayout) -> Path:
        return layout.home.parent / _FILE

    @classmethod
    def cut_offs(cls, layout: QueryLayout) -> Iterator[Finding]:
        return (finding.with_severity("error") for finding in unfinished(layout))


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
    if (record := RenameRecord.of(QueryLayout(storage, query.name))) is not None:
        return Rename(query=query.name, former=record.former, begun=True)
    open_ones = {name: record for name in query.renamed_from if (record := RenameRecord.of(QueryLayout(storage, name)))}
    left = {record.former for record in open_ones.values()}
    known = [name for name in query.renamed_from if name in open_ones or (has_run(storage, name) and name not in left)]
    if not known and not has_run(storage, query.name):
        # A start that planned no batch may have made the table its own.
        known = [name for name in query.renamed_from if has_begun(storage, name) and name not in left]
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
    require_no_change(project, query, former)
    return Rename(query=query.name, former=former, begun=False)


def require_no_change(project: Project, query: Query, former: str) -> None:
    """Raise CheckpointError if something of a change is kept under the name `former`, where no rename looks for it."""
    storage = project.storage
    if ResetRecord.cut_off(newest_layout(storage, former)) is not None or generations_set_aside(storage, former):
        what = f"a reset of '{former}' has set results aside, which are kept under that name"
        fix = f"name it '{former}' again and end that: headrace change discard {former}, or headrace change undo "
        fix += former
        raise _refused(query, what, fix)
    if RebuildRecord.of(QueryLayout(storage, former)) is not None:
        what = f"a rebuild of '{former}' is kept under that name"
        fix = f"name it '{former}' again and end that: headrace change discard {former}"
        raise _refused(query, what, fix)
    if (adopted := newest_layout(storage, former).staged.checkpoint).exists():
        what = f"an adoption by '{former}' was cut off, which is kept in {adopted}"
        raise _refused(query, what, f"name it '{former}' again and end that: headrace change resume {former}")


def has_run(storage: Path, query: str) -> bool:
    """Whether a batch was planned under this name; one that was reset counts too."""
    planned = Checkpoint(newest_layout(storage, query).checkpoint).last_batch
    return planned is not None or bool(generations_set_aside(storage, query))


def has_begun(storage: Path, query: str) -> bool:
    """Whether a start under this name has left a generation, also one that planned no batch."""
    return bool(generations(storage / "queries" / query))


def kept_in(project: Project, query: Query) -> QueryLayout:
    """Where the newest generation of `query` lies now: under its former name, until a start has taken it over."""
    storage, found = project.storage, pending(project, query)
    if found is None or has_run(storage, query.name):
        return newest_layout(storage, query.name)
    inner = RenameRecord.of(QueryLayout(storage, found.former))
    former = found.former if inner is None or has_run(storage, found.former) else inner.former
    return newest_layout(storage, former if has_begun(storage, former) else query.name)


def what_is_moved(project: Project, query: Query) -> Iterator[Finding]:
    """What the next start of `query` takes over, for who looks before it."""
    found = pending(project, query)
    if found is not None:
        location = query.sink.location
        ledger = f", and the ledger of {location.shown}" if location is not None and location.ledger else ""
        what = f"the next start renames query '{found.former}' to '{query.name}': its checkpoint with its state, "
        yield renaming(f"{what}manifest, archive, quarantine and history{ledger}", query.where)


def renaming(what: str, where: Where) -> Finding:
    """That a name is changed, or was, as `renamed_from` asks for."""
    fix = "nothing: renamed_from may stay, or go once the rename was run everywhere"
    return Finding(code="HR559", what=what, fix=fix, where=where)


def unfinished(layout: QueryLayout) -> Iterator[Finding]:
    """That a rename to the query's name was cut off, which its start ends; or one of it, which keeps it from starting.

    Raises CheckpointError for a record that cannot be read.
    """
    record = RenameRecord.of(layout)
    if record is not None:
        what = f"the renaming of query '{record.former}' to '{layout.query}' was cut off"
        fix = f"start it, which ends it: headrace run {layout.query}"
        yield was_cut_off(RenameRecord.file(layout), what, fix).with_severity("warning")
    for file in sorted((layout.storage / "queries").glob(f"*/{_FILE}")):
        other = file.parent.name
        taken = RenameRecord.of(QueryLayout(layout.storage, other))
        if taken is not None and taken.former == layout.query:
            what = f"the renaming of query '{layout.query}' to '{other}' was cut off; its ledger may have that name"
            fix = f"declare it as '{other}' and start it; or give '{layout.query}' renamed_from: {other}, which ends "
            yield was_cut_off(file, what, f"{fix}the rename and takes it back")


def _refused(query: Query, what: str, fix: str) -> CheckpointError:
    return CheckpointError(
        code="HR549", what=f"query '{query.name}' cannot be renamed: {what}", fix=fix, where=query.where
    )


def former_sources(project: Project, query: Query, layout: QueryLayout) -> dict[str, str]:
    """The sources that the last form in the manifest knows by another name: that name by the present one."""
    sources = _renamed(project, query)
    known = forms(layout.manifest)[-1:] if sources else []
    told = known[0].form if known else None
    names = set(told["sources"]) if told is not None and isinstance(told.get("sources"), dict) else set()
    found = {source.name: _one_of(query, source, names) for source in sources}
    return {name: former for name, former in found.items() if former is not None}


def as_it_ran(query: Query, layout: QueryLayout) -> Query:
    """The query with its sink's table under the name by which the last form in the manifest knows it."""
    former = None if query.sink.rename is None else query.sink.rename.former
    known = forms(layout.manifest)[-1:] if former is not None else []
    told = known[0].form if known else None
    place = told["sink"].get("place") if told is not None and isinstance(told.get("sink"), dict) else None
    if former is None or former.location is None or place != former.location.name or not place:
        return query
    return replace(query, sink=former)


def pending_sources(project: Project, query: Query, layout: QueryLayout) -> dict[str, str]:
    """The sources that the checkpoint is to name otherwise: the new name by the old one. Raises CheckpointError."""
    begun = record(layout)
    if begun is not None:
        return begun
    sources = _renamed(project, query)
    if not sources:
        return {}
    checkpoint = Checkpoint(layout.checkpoint)
    last = checkpoint.last_batch
    entry = None if last is None else checkpoint.offset(last)
    if entry is None or entry.version < 2:
        return {}  # Continuous processing names no source.
    # One that has given nothing yet has no offset, and may have a log.
    names = {source_of(name) for name in (*entry.offsets, *checkpoint.source_names())}
    found: dict[str, str] = {}
    for source in sources:
        former = _one_of(query, source, names)
        if former is not None:
            found[former] = source.name
    if found:
        _require_free(query, checkpoint, found)
    return found


def record(layout: QueryLayout) -> dict[str, str] | None:
    """The renames that were begun and not ended, None without any. Raises CheckpointError."""
    damaged = json_record.Damaged(
        file=layout.source_rename,
        code="HR584",
        what="the record of renamed sources cannot be read",
        fix='restore it from a backup, or write it again: {"OLD NAME": "NEW NAME"}',
    )
    return json_record.read(
        layout.source_rename, lambda facts: {str(old): str(new) for old, new in facts.items()}, damaged
    )


def enter_record(layout: QueryLayout, names: dict[str, str]) -> None:
    """Keep the renames while they are made. Raises OSError."""
    replace_file(layout.source_rename, json.dumps(names) + "\n")


def sources_renamed(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """What the next start renames in the checkpoint, for who looks before it."""
    for old, new in pending_sources(project, query, layout).items():
        what = f"the next start renames source '{old}' to '{new}' in the checkpoint of query '{query.name}', which "
        where = project.sources[new].where if new in project.sources else query.where
        yield renaming(f"{what}resumes at the same offsets", where)


def unfinished_sources(layout: QueryLayout) -> Iterator[Finding]:
    """That a rename of sources was cut off, which the next start ends. Raises CheckpointError."""
    for old, new in (record(layout) or {}).items():
        what = f"the renaming of source '{old}' to '{new}' in the checkpoint of query '{layout.query}' was cut off"
        fix = f"start the query, which ends it: headrace run {layout.query}"
        yield was_cut_off(layout.source_rename, what, fix).with_severity("warning")


def _renamed(project: Project, query: Query) -> list[NamedSource]:
    return [source for source in project.sources_of(query) if source.renamed_from]


def _one_of(query: Query, source: NamedSource, names: set[str]) -> str | None:
    """The former name of a source among `names`; None where it is known by its own. Raises CheckpointError."""
    formers = [] if source.name in names else [name for name in source.renamed_from if name in names]
    if len(formers) > 1:
        what = f"source '{source.name}' is renamed from '{formers[0]}' and from '{formers[1]}', and query "
        what += f"'{query.name}' has read both"
        fix = "name the one in renamed_from whose rows it continues"
        raise CheckpointError(code="HR549", what=what, fix=fix, where=source.where)
    return formers[0] if formers else None


def _require_free(query: Query, checkpoint: Checkpoint, names: dict[str, str]) -> None:
    """Raise CheckpointError if an earlier batch has read another source of a name that is to be given."""
    taken = {source_of(name) for entry in checkpoint.offsets().values() for name in entry.offsets}
    for old, new in names.items():
        if new in taken:
            what = f"query '{query.name}' has read another source '{new}' in a batch that its checkpoint still keeps"
            fix = f"give the source '{old}' a name that the query has not read from"
            raise CheckpointError(code="HR549", what=what, fix=fix, where=query.where)


def table_renamed(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    former, now = table_before(project, query, layout), query.sink.location
    if former is not None and former.location is not None and now is not None:
        what = f"the start of query '{query.name}' renames {former.location.shown}, with its ledger, to {now.shown}"
        yield renaming(what, query.where)


def waiting_renames(project: Project, query: Query) -> Iterator[Finding]:
    """Of the query itself, of its sink's table, and of its sources. Raises CheckpointError."""
    layout = kept_in(project, query)
    yield from what_is_moved(project, query)
    yield from table_renamed(project, query, layout)
    yield from sources_renamed(project, query, layout)
