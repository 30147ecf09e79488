"""A query's directory as it was at the end of an earlier batch, made next to the present one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.checkpoint.archive import Archive
from headrace.checkpoint.relocation import rename_schemas
from headrace.checkpoint.restore import Past
from headrace.generations.log import QueryLayout, copy_directory
from headrace.storage import json_lines
from headrace.storage.durable import replace_file

_SEEN = ".seen"


def make(past: Past, layout: QueryLayout, new: QueryLayout, batch: int) -> None:
    """Make the directory `new` as that of `layout` was at the end of `batch`. Raises OSError, CheckpointError."""
    copy_directory(layout, new, batch=batch)
    # Without it, the next start would read and report the bad rows of all former batches again.
    _limit_seen(layout.quarantine, new.quarantine, batch)
    past.copy(new.checkpoint, batch)
    rename_schemas(new.checkpoint, str(layout.home.absolute()), str(new.home.absolute()))
    Archive(new.archive).void_after(batch)
    _cut_manifest(new.manifest, batch)
    _cut(new.table_record, lambda line: line.get("from_batch", 0) <= batch)
    _cut(new.repartitions, lambda line: line.get("batch", 0) <= batch)


def forget_late_rows(layout: QueryLayout, batch: int) -> None:
    """Let the late rows of batches after `batch`, which come again, be looked for again. Raises OSError."""
    for file in layout.late.glob("*.jsonl"):
        if file.stem.isdigit() and int(file.stem) > batch:
            file.unlink(missing_ok=True)
    _limit_seen(layout.late, layout.late, batch)


def _limit_seen(folder: Path, new: Path, batch: int) -> None:
    """Let `new` say how far the batches were seen to, as `folder` says, up to `batch` at most."""
    if (folder / _SEEN).exists():
        text = (folder / _SEEN).read_text(encoding="utf-8").strip()
        new.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(new / _SEEN, str(min(int(text), batch)) if text.isdigit() else "-1")


def _cut_manifest(file: Path, batch: int) -> None:
    """Leave out the forms that the query had later, but for the one in force under other names of its sources.

    Those names are in the checkpoint, whatever batch it is at.
    """
    if not file.exists():
        return
    kept: list[Any] = []
    for line in json_lines.read(file):
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
