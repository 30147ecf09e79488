"""A query's directory as it was at the end of an earlier batch, made beside the present one and exchanged with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.checkpoint.archive import Archive
from headrace.checkpoint.restore import Past
from headrace.queries.changes import RewindRecord
from headrace.queries.layout import QueryLayout
from headrace.storage import json_lines
from headrace.storage.durable import copy_file, end_move, link, move, remove_tree, replace_file, swap

_SEEN = ".seen"
# Where a directory is moved in more than one step, the mark tells that all of it is there.
_LAST = ("rewound.json",)


def make(past: Past, layout: QueryLayout, record: RewindRecord) -> None:
    """Make the directory as it will be, which nobody reads yet; one that a crash left half made goes first.

    What an earlier rewind has set aside goes too. Raises OSError, CheckpointError.
    """
    batch, new = record.batch, layout.after_rewind
    for old in (new.home, layout.before_rewind.home):
        remove_tree(old)
    new.home.mkdir(parents=True, mode=0o700)
    past.copy(new.checkpoint, batch)
    for file in sorted(layout.home.iterdir()):
        if file.is_file():
            copy_file(file, new.home / file.name)
    for version in sorted(layout.tables.rglob("*")):
        if version.is_file():
            link(version, new.tables / version.relative_to(layout.tables))
    _copy_aside(layout.quarantine, new.quarantine, batch)
    _copy_aside(layout.late, new.late, batch)
    closed = Archive(layout.archive).folder
    for segment in sorted(closed.iterdir()) if closed.is_dir() else ():
        link(segment, Archive(new.archive).folder / segment.name)
    Archive(new.archive).void_after(batch)
    _cut_manifest(new.manifest, batch)
    _cut(new.table_record, lambda line: line.get("from_batch", 0) <= batch)
    _cut(new.repartitions, lambda line: line.get("batch", 0) <= batch)
    replace_file(new.rewound, json.dumps({"at": record.at, "batch": batch}) + "\n")


def is_exchanged(layout: QueryLayout, record: RewindRecord) -> bool:
    """Whether the query's directory is the one that this rewind has made."""
    try:
        return bool(json.loads(layout.rewound.read_text(encoding="utf-8"))["at"] == record.at)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def end_moves(layout: QueryLayout) -> None:
    """End what a crash has left between two names, where a directory is moved in more than one step. Raises OSError."""
    for place in (layout.before_rewind.home, _gone(layout), layout.home):
        end_move(place)


def exchange_in(layout: QueryLayout, record: RewindRecord) -> None:
    """Let the directory that was made be the query's, and set the former one aside. Raises OSError."""
    home, new, aside = layout.home, layout.after_rewind.home, layout.before_rewind.home
    end_moves(layout)
    if not is_exchanged(layout, record):
        if aside.exists():
            _remove_empty(home)
        if home.exists():
            swap(home, new, aside, _LAST)
        else:
            move(new, home, _LAST)
    if new.exists():
        move(new, aside, _LAST)


def exchange_back(layout: QueryLayout, record: RewindRecord) -> None:
    """Let the query's directory be what it was before, and delete what was made. Raises OSError."""
    home, new, aside, gone = layout.home, layout.after_rewind.home, layout.before_rewind.home, _gone(layout)
    end_moves(layout)
    if is_exchanged(layout, record):
        swap(home, aside if aside.exists() else new, gone, _LAST)
    elif aside.exists():
        _remove_empty(home)
        if not home.exists():
            move(aside, home, _LAST)
    for old in (new, aside, gone):
        remove_tree(old)


def _gone(layout: QueryLayout) -> Path:
    """What a rewind has made, once the former directory is to be in its place again."""
    return layout.after_rewind.home.with_suffix(".gone")


def _remove_empty(home: Path) -> None:
    """Remove what a start has made where the directory was missing for a moment; it holds no checkpoint."""
    if home.exists() and not (home / "checkpoint").exists():
        remove_tree(home)


def _copy_aside(old: Path, new: Path, batch: int) -> None:
    """The rows that were quarantined, or came late, up to `batch`; those of later batches come again."""
    for file in sorted(old.rglob("*.jsonl")):
        if file.stem.isdigit() and int(file.stem) <= batch:
            (new / file.relative_to(old)).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            copy_file(file, new / file.relative_to(old))
    seen = old / _SEEN
    if seen.exists():
        new.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = seen.read_text(encoding="utf-8").strip()
        (new / _SEEN).write_text(str(min(int(text), batch)) if text.isdigit() else "-1", encoding="utf-8")


def _cut_manifest(file: Path, batch: int) -> None:
    """Leave out the forms that the query had later, but for the one in force under other names of its sources.

    Those names are in the checkpoint, whatever batch it is at.
    """
    if not file.exists():
        return
    kept: list[Any] = []
    for line in json_lines.read(file, skip="any"):
        if not isinstance(line, dict) or line.get("from_batch", 0) <= batch:
            kept.append(line)
        elif line.get("continues"):
            kept.append({**line, "from_batch": batch + 1})
        else:
            break
    replace_file(file, json_lines.text_of(kept))


def _cut(file: Path, kept: Callable[[Any], bool]) -> None:
    """Leave out the lines of a record that are about later batches."""
    if file.exists():
        lines = json_lines.read(file, skip="any")
        replace_file(file, json_lines.text_of(line for line in lines if not isinstance(line, dict) or kept(line)))
