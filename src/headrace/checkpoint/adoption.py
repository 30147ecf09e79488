"""A checkpoint of plain PySpark copied into the form that a query of Headrace resumes from; the original stays.

Spark numbers sources without names by their order in the plan, in the first format of the offsets and below `sources`.
The copy has their names, in the second format. State, commits and all settings that Spark pinned stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.checkpoint.directory import Checkpoint
from headrace.checkpoint.entries import OffsetEntry
from headrace.checkpoint.handover import EVOLUTION, Gap, gap_before_newest
from headrace.checkpoint.logs import broken, checksum_of, numbered, text_of
from headrace.checkpoint.relocation import described
from headrace.errors import CheckpointError, Finding, Where
from headrace.storage.durable import copy_file, files_below, remove_tree
from headrace.storage.remembered import remembering
from headrace.storage.remote import RemotePath

_LOGS = ("offsets", "commits")
# What names the file of a schema in the description of an operator with several variables, wherever it lay.
_SCHEMA_FILE = re.compile(r'(?<=")[^"]*(?=/state/\d+/_stateSchema/)')


def unfit(checkpoint: Checkpoint) -> Iterator[Finding]:
    """What keeps the directory from being adopted, whatever the query is; nothing is changed."""
    root, where = checkpoint.root, Where(file=str(checkpoint.root))

    def refused(why: str, fix: str) -> Finding:
        return Finding(code="HR590", where=where, what=f"it cannot be adopted: {why}", fix=fix)

    if not root.is_dir():
        yield refused("there is no such directory", "name the checkpointLocation that the query ran with")
        return
    if not (root / "offsets").is_dir() or not (root / "metadata").is_file():
        below = [each.parent for each in sorted(root.glob("*/metadata")) if (each.parent / "offsets").is_dir()]
        fix = f"name {below[0]}" if below else "name the checkpointLocation that the query ran with"
        yield refused(
            "it is not a checkpoint of a streaming query, which has a file metadata and a directory offsets", fix
        )
        return
    if broken_files := [finding for finding in checkpoint.problems() if finding.severity == "error"]:
        yield from broken_files
        return
    gap = gap_before_newest(checkpoint, None, written_async=None)
    if isinstance(gap, Finding):
        yield gap
    if checkpoint.last_batch is None:
        yield refused("its query has planned no batch", "begin with the query as it is: headrace run")
        return
    entry = checkpoint.offset(checkpoint.last_batch)
    if entry is not None and entry.is_continuous:
        fix = "let the former job run once with trigger(availableNow=True)"
        yield refused("continuous processing has written it, whose offsets hold no settings", fix)


def listing(checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    """The size and the time of each entry of its logs, by which a driver that still writes is seen."""
    found: dict[str, tuple[int, int]] = {}
    for log in _LOGS:
        with remembering(checkpoint.root / log):
            for number, file in numbered(checkpoint.root / log).items():
                seen = file.stat()
                found[f"{log}/{number}"] = (seen.st_size, seen.st_mtime_ns)
    return found


def copied(old: Checkpoint, copy: Path, place: Path, names: Mapping[str, Sequence[str]]) -> Checkpoint:
    """A copy of `old` in the directory `copy`, which is made anew, to be moved to `place`. Raises OSError.

    names: those of each source by what `old` calls it; several where the query reads it in several places.
    """
    before = listing(old)
    remove_tree(copy)
    stays = isinstance(old.root, RemotePath) or not isinstance(copy, RemotePath)
    for file in _files(old.root):
        # The checksums of local files mean nothing to a store.
        if stays or not (file.name.startswith(".") and file.suffix == ".crc"):
            for target in _targets(file.relative_to(old.root), names):
                _copy(file, copy / target)
    gap = gap_before_newest(old, None, written_async=None)
    if isinstance(gap, Gap):
        # Progress was written beside the batches, which Headrace does with few sinks.
        _write(copy / "offsets" / gap.file.name, gap.text)
    made = Checkpoint(copy)
    for file in numbered(copy / "offsets").values():
        _rename(file, names)
    for file in copy.glob("state/*/_metadata/v2/*"):
        if not file.name.startswith("."):
            _place(file, place)
    if listing(old) != before:
        raise CheckpointError(
            Finding(
                code="HR599",
                where=Where(file=str(old.root)),
                what="a batch was written into the checkpoint while it was copied: the former job still runs",
                fix="stop it, and give the command again",
            )
        )
    return made


def _files(root: Path) -> Iterator[Path]:
    """Every file but those that a writer has not finished."""
    return (file for file in sorted(files_below(root)) if file.suffix != ".tmp")


def _copy(file: Path, target: Path) -> None:
    if not isinstance(target, RemotePath):
        target.parent.mkdir(parents=True, exist_ok=True)
    # Its times stay, since Spark cleans its logs by them; its rights do not, since the copy is written.
    copy_file(file, target)
    target.chmod(0o600)


def _targets(inside: Path, names: Mapping[str, Sequence[str]]) -> Iterator[Path]:
    parts = inside.parts
    if parts[0] != "sources" or len(parts) < 3:
        yield inside
        return
    for name in names.get(parts[1], ()):
        yield Path("sources", name, *parts[2:])


def _rename(file: Path, names: Mapping[str, Sequence[str]]) -> None:
    text = text_of(file)
    if text is None:
        raise broken(file, "it is gone")
    entry = OffsetEntry.parse(int(file.name), text, file)
    offsets = {name: offset for key, offset in entry.offsets.items() for name in names[key]}
    conf = {**entry.conf, EVOLUTION: "true"}
    _write(file, replace(entry, offsets=offsets, conf=conf, version=2).format())


def _place(file: Path, place: Path) -> None:
    """Let the description of an operator name the schemas that lie beside it."""
    text = text_of(file) or ""
    changed = _SCHEMA_FILE.sub(lambda _: described(place), text)
    if changed != text:
        _write(file, changed)


def _write(file: Path, text: str) -> None:
    """In the copy, which nobody reads before it is whole."""
    checksum_of(file).unlink(missing_ok=True)
    file.write_text(text, encoding="utf-8")
