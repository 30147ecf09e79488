"""Where the sink of a query writes, which is compared before each start.

A sink that is changed over an old checkpoint would begin with the next batch, and lack all that the former one has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.checkpoint import Checkpoint
from headrace.contract import Sink, SinkLocation
from headrace.errors import CheckpointError, Finding
from headrace.generations.log import QueryLayout
from headrace.generations.manifest import forms
from headrace.generations.register import layout_of, renaming, waiting_rename
from headrace.model import Project, Query
from headrace.storage import json_record
from headrace.storage.durable import replace_file
from headrace.storage.private import writing_to


def require_same_sink(project: Project, query: Query, layout: QueryLayout) -> None:
    """Raise CheckpointError if the checkpoint's batches were written to another place than the sink names now.

    A checkpoint without a record, as version 0.1.0 made them, is taken; a ledger next to the rows shows it. A sink
    that a query may begin with any batch is judged with all else that has changed, where what ran is known.
    """
    if query.sink.facts.begins_anywhere and any(form.form is not None for form in forms(layout.manifest)[-1:]):
        return
    last, now = Checkpoint(layout.checkpoint).last_batch, query.sink.location
    former = former_location(project, query, layout)
    if last is None or former is None or now is None:
        return
    shown = _within(project, now.shown)
    raise CheckpointError(
        code="HR410",
        what=f"query '{query.name}' has written its batches up to {last} to {former}; {shown} would begin "
        f"with the next one and lack what is there",
        fix="name the former sink again, or reset the query (headrace reset QUERY); if all rows were moved to the "
        "new place, remove "
        f"{layout.sink} and start again",
        where=query.where,
    )


def table_before(project: Project, query: Query, layout: QueryLayout) -> Sink | None:
    """The sink by the former name of its table, if the checkpoint's batches are known to lie there; None otherwise.

    Without a record the sink is asked which of the two tables has them. Raises CheckpointError as `former_location`.
    """
    sink = query.sink
    former = None if sink.rename is None else sink.rename.former
    if former is None or former.location is None or sink.location is None:
        return None
    if (kept := _read_record(layout.sink)) is None:
        return former if Checkpoint(layout.checkpoint).last_batch is not None else None
    named = (kept["kind"], kept["name"]) == (query.sink_kind, former.location.name)
    # A table of a lake has no name but its place.
    there = former.location.name != sink.location.name or set(kept["systems"]) == set(former.location.systems)
    return former if named and there else None


def table_renamed(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    former, now = table_before(project, query, layout), query.sink.location
    if former is not None and former.location is not None and now is not None:
        fault = f"the start of query '{query.name}' renames {former.location.shown}, with its ledger, to {now.shown}"
        yield renaming(fault, query.where)


def waiting_renames(project: Project, query: Query) -> Iterator[Finding]:
    """Yield what is renamed in the register and in the sink. Raises CheckpointError."""
    yield from waiting_rename(project, query)
    yield from table_renamed(project, query, layout_of(project, query))


def former_location(project: Project, query: Query, layout: QueryLayout) -> str | None:
    """Where the batches of `layout` were written, in words, if its sink names another place now; None: it is the same.

    None as well where it is not known. Raises CheckpointError for a record that cannot be read.
    """
    kept, now = _read_record(layout.sink), query.sink.location
    if kept is None or now is None:
        return None
    same = (kept["kind"], kept["name"]) == (query.sink_kind, now.name)
    if same and (now.ledger or set(kept["systems"]) & set(_systems(project, now))):
        return None
    if table_before(project, query, layout) is not None:
        return None  # It is renamed at the start.
    return str(kept["shown"])


def enter_sink(project: Project, query: Query, layout: QueryLayout) -> None:
    """Keep where the sink writes, before the first batch can come in."""
    now = query.sink.location
    if now is None:
        return
    record = {
        "kind": query.sink_kind,
        "name": now.name,
        "systems": list(_systems(project, now)),
        "shown": _within(project, now.shown),
    }
    if _read_record(layout.sink) == record:
        return
    with writing_to(layout.home):
        replace_file(layout.sink, json.dumps(record, ensure_ascii=False) + "\n")


def _read_record(file: Path) -> Mapping[str, Any] | None:
    """The record, None if there is none."""

    def damaged(why: str) -> CheckpointError:
        fault = f"'{file}', which records where the batches were written, cannot be read: {why}"
        fix = "restore it; or remove it, if the sink is what it was: a new one is made"
        return CheckpointError(code="HR410", what=fault, fix=fix)

    record = json_record.read(file, lambda facts: facts, damaged)
    if isinstance(record, dict) and {"kind", "name", "systems", "shown"} <= record.keys():
        return record
    return None


def _systems(project: Project, location: SinkLocation) -> tuple[str, ...]:
    """Paths inside the project are kept from its root on, so that a project may be moved."""
    return tuple(_within(project, system) for system in location.systems)


def _within(project: Project, text: str) -> str:
    return project.redacted(text).replace(f"{project.root.absolute()}/", "").replace(f"{project.root}/", "")
