"""Bring a checkpoint into another form: for another way of execution, from plain PySpark, in other partitions.

Source: MicroBatchExecution (OffsetMap) and ContinuousExecution (OffsetSeq) of Spark 4.2, each of which cannot read the
other's offsets; and the guide's "Asynchronous Progress Tracking", whose gaps batches alone do not start over.

Spark numbers sources without names by their order in the plan, in the first format of the offsets and below `sources`.
The copy of an adopted checkpoint has their names, in the second format. State, commits and all settings that Spark
pinned stay as they are, and the original stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headrace.checkpoint.archive import Archive
from headrace.checkpoint.directory import (
    RESTORE,
    Checkpoint,
    OffsetEntry,
    Part,
    broken_file,
    checksum_of,
    numbered_files,
    replace_file,
    text_of,
)
from headrace.checkpoint.problems import Gap, gap_before_newest, list_problems
from headrace.checkpoint.relocation import operator_descriptions, state_url
from headrace.errors import CheckpointError, Finding, Where, reason
from headrace.storage import durable, json_lines
from headrace.storage.durable import copy_file, files_below, names_in, remove_tree
from headrace.storage.private import writing_to
from headrace.storage.remembered import remembering
from headrace.storage.remote import store_at

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
# What names the file of a schema in the description of an operator with several variables, wherever it lay.
_SCHEMA_FILE = re.compile(r'(?<=")[^"]*(?=/state/\d+/_stateSchema/)')
# What Spark writes a file of a log into before it has its name, and the checksum of that.
_DRAFT = re.compile(r"\.{1,2}\d+\.[0-9a-f-]+\.tmp(\.crc)?")
PARTITIONS = "spark.sql.shuffle.partitions"


def hand_over(
    checkpoint: Checkpoint,
    repartitions: Repartitions,
    names: Sequence[str],
    archive: Archive | None,
    *,
    continuous: bool,
    written_async: bool | None,
) -> tuple[Finding, ...]:
    """Bring the checkpoint into the form that the next execution reads; return what a user should know.

    names: of the sources. archive: by which a gap before the newest batch is filled; None: it may stay. written_async:
    whether progress was written apart from the batches; None where that is not known. Raises CheckpointError.
    """
    repartitions.forget_unbegun(checkpoint)
    _remove_drafts(checkpoint)
    move(checkpoint, names, continuous=continuous)
    return () if archive is None else tuple(fill_gap(checkpoint, archive, written_async=written_async))


def _remove_drafts(checkpoint: Checkpoint) -> None:
    """Remove what Spark had begun to write of a first batch when its process died or the disk was full.

    Without a planned batch Spark starts over empty logs alone, and counts such drafts (SQLConf,
    spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart).
    """
    if checkpoint.last_batch is not None:
        return
    for log in (checkpoint.root / Part.OFFSETS, checkpoint.root / Part.COMMITS):
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in names_in(log):
                if _DRAFT.fullmatch(name):
                    (log / name).unlink(missing_ok=True)


def move(checkpoint: Checkpoint, names: Sequence[str], *, continuous: bool) -> None:
    """Bring the offsets of the last two batches into the form that the next execution reads; `names`: of the sources.

    Planned batches that are not committed are removed, as continuous processing does itself: they come again. A
    checkpoint that is new or has the right form stays as it is. The newest committed batch is written last, because
    its form says that everything is done: after a crash in between, the next start does the rest.
    """
    last = checkpoint.last_committed
    files = numbered_files(checkpoint.root / Part.OFFSETS)
    newest = None if last is None else checkpoint.offset(last)
    if last is None or newest is None or newest.is_continuous is continuous:
        return
    for number in sorted((number for number in files if number > last), reverse=True):
        replace_file(files[number], None)
    for number in (last - 1, last):
        entry = checkpoint.offset(number) if number in files else None
        if entry is not None and entry.is_continuous is not continuous:
            replace_file(files[number], (_as_continuous if continuous else _as_batch)(entry, names).format())


def fill_gap(checkpoint: Checkpoint, archive: Archive | None, *, written_async: bool | None) -> Iterator[Finding]:
    """Write the offsets before the newest ones where they are missing, for a start that needs the last two batches.

    See `headrace.checkpoint.problems` for what they may be. Raises CheckpointError where that is not known.
    """
    gap = gap_before_newest(checkpoint, archive, written_async=written_async)
    if isinstance(gap, Finding):
        raise CheckpointError(gap)
    if isinstance(gap, Gap):
        replace_file(gap.file, gap.text)
        if gap.note is not None:
            yield gap.note


def _as_continuous(entry: OffsetEntry, names: Sequence[str]) -> OffsetEntry:
    return replace(entry, offsets={name: entry.offsets.get(name) for name in names}, version=1, is_continuous=True)


def _as_batch(entry: OffsetEntry, names: Sequence[str]) -> OffsetEntry:
    offsets = dict(zip(names, entry.offsets.values(), strict=True))
    return replace(entry, offsets=offsets, conf={EVOLUTION: "true"}, version=2, is_continuous=False)


def unfit(checkpoint: Checkpoint) -> Iterator[Finding]:
    """What keeps the directory from being adopted, whatever the query is; nothing is changed."""
    root, where = checkpoint.root, Where(file=str(checkpoint.root))

    def refusal(why: str, fix: str) -> Finding:
        return Finding(code="HR590", where=where, what=f"it cannot be adopted: {why}", fix=fix)

    if not root.is_dir():
        yield refusal("there is no such directory", "name the checkpointLocation that the query ran with")
        return
    if not (root / Part.OFFSETS).is_dir() or not (root / Part.ID_FILE).is_file():
        below = [
            file.parent for file in sorted(root.glob(f"*/{Part.ID_FILE}")) if (file.parent / Part.OFFSETS).is_dir()
        ]
        fix = f"name {below[0]}" if below else "name the checkpointLocation that the query ran with"
        yield refusal(
            "it is not a checkpoint of a streaming query, which has a file metadata and a directory offsets", fix
        )
        return
    if broken_files := [finding for finding in list_problems(checkpoint) if finding.severity == "error"]:
        yield from broken_files
        return
    if checkpoint.last_batch is None:
        yield refusal("its query has planned no batch", "begin with the query as it is: headrace run")
        return
    entry = checkpoint.offset(checkpoint.last_batch)
    if entry is not None and entry.is_continuous:
        fix = "let the former job run once with trigger(availableNow=True)"
        yield refusal("continuous processing has written it, whose offsets hold no settings", fix)


def listing(checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    """The size and the time of each entry of its logs, by which a driver that still writes is seen."""
    files: dict[str, tuple[int, int]] = {}
    for log in (Part.OFFSETS, Part.COMMITS):
        with remembering(checkpoint.root / log):
            for number, file in numbered_files(checkpoint.root / log).items():
                seen = file.stat()
                files[f"{log}/{number}"] = (seen.st_size, seen.st_mtime_ns)
    return files


def copy_checkpoint(old: Checkpoint, copy: Path, place: Path, names: Mapping[str, Sequence[str]]) -> Checkpoint:
    """Copy `old` into the directory `copy`, which is made again, to be moved to `place`. Raises OSError.

    names: those of each source by what `old` calls it; several where the query reads it in several places.
    """
    before = listing(old)
    remove_tree(copy)
    for file in sorted(files_below(old.root)):
        # What a writer has not finished is left out. The checksums of local files mean nothing to a store.
        is_checksum = file.name.startswith(".") and file.suffix == ".crc"
        if file.suffix != ".tmp" and not (store_at(copy).is_safe and is_checksum):
            for target in _targets(file.relative_to(old.root), names):
                # Its times stay, since Spark cleans its logs by them; its rights do not, since the copy is written.
                copy_file(file, copy / target)
                (copy / target).chmod(0o600)
    gap = gap_before_newest(old, None, written_async=None)
    if isinstance(gap, Gap):
        # Progress was written in the background, which Headrace does with few sinks.
        _write(copy / Part.OFFSETS / gap.file.name, gap.text)
    made = Checkpoint(copy)
    for file in numbered_files(copy / Part.OFFSETS).values():
        _rename(file, names)
    for file in operator_descriptions(copy):
        _place(file, place)
    if listing(old) != before:
        raise CheckpointError(
            code="HR599",
            where=Where(file=str(old.root)),
            what="a batch was written into the checkpoint while it was copied: the former job still runs",
            fix="stop it, and give the command again",
        )
    return made


def _targets(inside: Path, names: Mapping[str, Sequence[str]]) -> list[Path]:
    folder, *rest = inside.parts
    if folder != Part.SOURCES or len(rest) < 2:
        return [inside]
    return [Path(folder, name, *rest[1:]) for name in names.get(rest[0], ())]


def _rename(file: Path, names: Mapping[str, Sequence[str]]) -> None:
    text = text_of(file)
    if text is None:
        raise broken_file(file, "it is gone")
    entry = OffsetEntry.parse(int(file.name), text, file)
    offsets = {name: offset for key, offset in entry.offsets.items() for name in names[key]}
    conf = {**entry.conf, EVOLUTION: "true"}
    _write(file, replace(entry, offsets=offsets, conf=conf, version=2).format())


def _place(file: Path, place: Path) -> None:
    """Rewrite the paths of schemas in an operator's description: they lie next to it."""
    text = text_of(file) or ""
    changed = _SCHEMA_FILE.sub(lambda _: state_url(place), text)
    if changed != text:
        _write(file, changed)


def _write(file: Path, text: str) -> None:
    """Write a file of the copy, which has no readers before it is whole."""
    checksum_of(file).unlink(missing_ok=True)
    file.write_text(text, encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class PartitionChange:
    """One change, which Spark makes as a batch without data: `batch` holds the state in `after` partitions."""

    batch: int
    before: int
    after: int
    at: str


@dataclass(frozen=True)
class Repartitions:
    """The changes of one generation of a query; each is entered before Spark begins it.

    A change counts once its batch is committed. Spark's own metadata of an aggregation's state keeps the first number.
    """

    path: Path

    def all(self) -> tuple[PartitionChange, ...]:
        """Every change that was entered, oldest first."""
        try:
            return tuple(PartitionChange(**line) for line in json_lines.read(self.path, skip="none"))
        except (json_lines.DamagedLine, OSError, TypeError) as error:
            raise CheckpointError(
                code="HR503",
                where=Where(file=str(self.path), line=getattr(error, "number", None)),
                what=f"the record of changed state partitions cannot be read: {reason(error)}",
                fix=RESTORE,
            ) from error

    def list_committed(self, checkpoint: Checkpoint) -> tuple[PartitionChange, ...]:
        """The changes whose batches are committed."""
        return _up_to(self.all(), checkpoint.last_committed)

    def batches(self, checkpoint: Checkpoint) -> frozenset[int]:
        """The batches that hold no rows, only state in other partitions."""
        return frozenset(change.batch for change in self.list_committed(checkpoint))

    def cut_off(self, checkpoint: Checkpoint) -> PartitionChange | None:
        """The change that Spark began and did not end."""
        begun = _up_to(self.all(), checkpoint.last_batch)
        return begun[-1] if len(begun) > len(self.list_committed(checkpoint)) else None

    def partitions(self, checkpoint: Checkpoint) -> int | None:
        """The number of partitions that the state has now, or None without state."""
        done = self.list_committed(checkpoint)
        return done[-1].after if done else checkpoint.state_partitions()

    def enter(self, change: PartitionChange) -> None:
        """Enter a change that is to be made."""
        self._write([*self.all(), change])

    def forget_unbegun(self, checkpoint: Checkpoint) -> None:
        """Leave out the changes that Spark never began, before their batches are used for data."""
        entered = self.all()
        begun = _up_to(entered, checkpoint.last_batch)
        if len(begun) < len(entered):
            self._write(begun)

    def _write(self, changes: Sequence[PartitionChange]) -> None:
        with writing_to(self.path.parent):
            durable.replace_file(self.path, json_lines.text_of(asdict(change) for change in changes))


def note_partitions(checkpoint: Checkpoint, batch: int, partitions: int) -> None:
    """Write the number of state partitions into the plan of `batch`, where Spark left it out.

    Spark 4.2 writes the number into plans with named sources only sometimes, and fails without it (None.get).
    """
    file, entry = checkpoint.root / Part.OFFSETS / str(batch), checkpoint.offset(batch)
    if entry is None:
        raise broken_file(file, "it is gone")
    if PARTITIONS not in entry.conf:
        with writing_to(file.parent):
            replace_file(file, replace(entry, conf={**entry.conf, PARTITIONS: str(partitions)}).format())


def _up_to(changes: Sequence[PartitionChange], batch: int | None) -> tuple[PartitionChange, ...]:
    return () if batch is None else tuple(change for change in changes if change.batch <= batch)
