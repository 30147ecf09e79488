"""The sources of a query in its checkpoint: their names there, what each gave in its batches, and what was read.

The first use of a source has its own name, so that a query with one use keeps its checkpoint; the others follow the
order of the plan. A checkpoint names topics by their names alone, of which one that was created again has another id;
and of files it keeps the time of modification at the first plan alone. So both are kept next to the archive: the ids,
and what each file was when a batch was planned over it last, as one JSON line for each file, in parts, because a store
beyond this machine takes a file as a whole only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headrace.checkpoint.archive import Archive, damaged_line
from headrace.checkpoint.directory import Checkpoint, OffsetEntry, Part, numbered_files
from headrace.errors import CheckpointError, Where
from headrace.storage import json_lines, json_record
from headrace.storage.durable import replace_file
from headrace.storage.private import writing_to
from headrace.storage.remote import store_at

_FURTHER = re.compile(r"(?P<name>.+)__(?P<number>[2-9]|[1-9][0-9]+)\Z")
# The setting of a query's session that names the directory of its archive.
READ_FILES = "headrace.readFiles"
_PART_LINES, _REWRITTEN_LINES = 1_000_000, 5_000
# The record next to the archive of an adopted query, as `QueryLayout.adoption` names it.
ADOPTED = "adopted.json"


@dataclass(frozen=True)
class SourceNames:
    """The names of a query's sources now, and those that Spark knows them by, their first ones.

    The checkpoint, its archive, the ids of topics, the quarantine, the forms and the ledger have the names of Spark.

    by_name: Spark's name by that of now; of sources that are no longer declared, by the last one.
    declared: the names of now.
    """

    by_name: Mapping[str, str]
    declared: tuple[str, ...]

    @classmethod
    def same(cls, *names: str) -> SourceNames:
        """Return the names of sources of which none was renamed."""
        return cls({name: name for name in names}, names)

    def in_spark(self, use: str) -> str:
        """Return Spark's name of a source, or of a further use of it."""
        return _rename_use(use, self.by_name)

    def now(self, use: str) -> str:
        """Return the name now of what Spark calls `use`."""
        return _rename_use(use, {first: name for name, first in self.by_name.items()})


def _rename_use(use: str, names: Mapping[str, str]) -> str:
    source = source_of(use)
    return names.get(source, source) + use.removeprefix(source)


def use_name(source: str, number: int) -> str:
    """The name of the `number`-th use of a source, counted from 1."""
    return source if number == 1 else f"{source}__{number}"


def source_of(use: str) -> str:
    """The source whose further use has this name, or the name itself."""
    match = _FURTHER.match(use)
    return match.group("name") if match else use


def further_uses(sources: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Those of the `known` names that are further uses of `sources`, in order."""
    own = set(sources)
    return tuple(sorted(name for name in known if name not in own and source_of(name) in own))


class SourceIds:
    """The ids of what each source of a query reads, by Spark's name of it, next to the query's archive."""

    def __init__(self, home: Path) -> None:
        self.file = home / "source_ids.json"

    def read(self) -> dict[str, dict[str, str]]:
        """The ids by source and name. Raises CheckpointError."""
        damaged = json_record.Damaged(
            file=self.file,
            code="HR584",
            what="the record of which topics and tables the query reads cannot be read",
            fix="restore it from a backup; or remove it, if none of them was created again: a new one is begun",
        )
        return json_record.read(self.file, _parse, damaged) or {}

    def of(self, source: str) -> dict[str, str]:
        """The ids of what one source reads, by name. Raises CheckpointError."""
        return self.read().get(source, {})

    def write(self, ids: Mapping[str, Mapping[str, str]]) -> None:
        """Keep these ids in place of those before. Raises PlatformError."""
        if ids != self.read():
            with writing_to(self.file.parent):
                replace_file(self.file, json.dumps(ids, sort_keys=True) + "\n")


def read_names(record: Path) -> dict[str, str] | None:
    """Return Spark's names of the sources by those of the last start; None without a record. Raises CheckpointError."""
    damaged = json_record.Damaged(
        file=record,
        code="HR584",
        what="the record of what Spark calls the sources of the query cannot be read",
        fix="restore it from a backup; or, if none was ever renamed, remove it: a new one is begun",
    )
    return json_record.read(record, lambda facts: {str(name): str(first) for name, first in facts.items()}, damaged)


def write_sources(record: Path, names: SourceNames, ids: Mapping[str, Mapping[str, str]]) -> None:
    """Keep the names, and the ids next to them, before the first batch that is planned with them.

    Raises PlatformError.
    """
    if read_names(record) != names.by_name:
        with writing_to(record.parent):
            replace_file(record, json.dumps(names.by_name) + "\n")
    SourceIds(record.parent).write(ids)


def _parse(facts: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {str(source): {str(name): str(id_) for name, id_ in ids.items()} for source, ids in facts.items()}


@dataclass(frozen=True, kw_only=True)
class ReadFile:
    """The known marks of a file's content; digest: of a small file on a disk."""

    modified_ms: int
    size_bytes: int | None = None
    etag: str | None = None
    digest: str | None = None

    def is_same(self, other: ReadFile) -> bool:
        """Whether both are of one content: by the ETag, the digest, else by the size and the time of modification.

        A store may give whole seconds for one object, and milliseconds in a listing; a rounded time is off by one.
        """
        if self.etag and other.etag:
            return self.etag == other.etag
        if None not in (self.size_bytes, other.size_bytes) and self.size_bytes != other.size_bytes:
            return False
        if self.digest and other.digest:
            return self.digest == other.digest
        one, two = self.modified_ms, other.modified_ms
        return abs(one - two) <= 1 or (one // 1000 == two // 1000 and not (one % 1000 and two % 1000))


@dataclass
class ReadFiles:
    """The record of what the files of a query's batches were, in the directory of its archive. One process writes."""

    home: Path
    _part: Path | None = None
    _lines: int = 0
    _last: Mapping[str, ReadFile] = field(default_factory=dict)

    def keep(self, files: Mapping[str, ReadFile]) -> None:
        """Add the files of a batch that is planned, by their paths. Raises OSError."""
        fresh = {path: file for path, file in files.items() if self._last.get(path) != file}
        if not fresh:
            return
        longest = _PART_LINES if store_at(self.home).appends else _REWRITTEN_LINES
        if self._part is None or self._lines >= longest:
            parts = _parts(self.home)
            newest = parts[-1] if parts else self.home / "read_files-000000.jsonl"
            self._lines = json_lines.count(newest)
            number = int(newest.stem[-6:]) + (self._lines >= longest)
            self._part = self.home / f"read_files-{number:06d}.jsonl"
        json_lines.append(self._part, [_line(path, file) for path, file in fresh.items()], sync=False)
        self._lines, self._last = self._lines + len(fresh), files

    def read(self) -> dict[str, ReadFile]:
        """What each file was when a batch was planned over it last. Raises CheckpointError."""
        files = {}
        part = self.home
        try:
            for part in _parts(self.home):
                for line in json_lines.read(part, skip="any"):
                    path = line.pop("path")
                    files[path] = ReadFile(**line)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise damaged_line(part, 0, error) from error
        return files

    def note_move(self, old: str, new: str) -> None:
        """Keep the files below the directory `old` under their paths below `new` as well. Raises OSError."""
        below = {path: file for path, file in self.read().items() if path.startswith(f"{old}/")}
        self.keep({new + path.removeprefix(old): file for path, file in below.items()})


def _parts(home: Path) -> list[Path]:
    return sorted(home.glob("read_files-*.jsonl"))


def _line(path: str, file: ReadFile) -> dict[str, Any]:
    return {"path": path, **{key: value for key, value in vars(file).items() if value is not None}}


@dataclass(frozen=True, kw_only=True)
class SourceBatch:
    """One batch's share of a source: the JSON offsets between which its rows lie.

    `start` is None where the source had given nothing yet; `start == end` where the batch has no data of it.
    """

    batch: int
    start: str | None
    end: str | None


@dataclass(frozen=True, kw_only=True)
class SourcePrefix:
    """A committed prefix of one source, as Spark's checkpoint has it.

    batches: in order of their ids, without gaps as far as the checkpoint and its archive reach.
    log: the source's own metadata log (`<checkpoint>/sources/<name>/<id>`), id to lines, version line left out;
        compacted files are already unfolded (file source: one JSON line for each file, with path, timestamp, batchId).
    read_files: reads what the files were when they were read, by their paths; not each one is known. Raises
        CheckpointError.
    ids: reads the ids that the things read had when they were read first, by name (`object_ids` of a source). Raises
        CheckpointError.
    """

    batches: tuple[SourceBatch, ...]
    log: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    read_files: Callable[[], Mapping[str, ReadFile]] = field(default=dict, compare=False, repr=False)
    ids: Callable[[], Mapping[str, str]] = field(default=dict, compare=False, repr=False)


@dataclass(frozen=True)
class BatchWatermarks:
    """The two watermarks of a batch, 0 while there is none.

    late_ms: what is older is dropped on arrival: the watermark of the batch before.
    evict_ms: state that is older is finished in this batch: the batch's own watermark.
    """

    late_ms: int
    evict_ms: int


def planned_offsets(
    checkpoint: Checkpoint, archive: Archive, through: int, *, since: int = 0
) -> dict[int, OffsetEntry]:
    """The offsets of the batches `since` to `through`, from the checkpoint and, if purged there, from the archive.

    Raises CheckpointError when one of them is in neither. The archive is read only where the checkpoint has not all.
    """
    kept = checkpoint.offsets()
    if through >= 0 and through not in kept and through > max(kept, default=-1):
        raise CheckpointError(
            code="HR510",
            where=Where(file=str(checkpoint.root)),
            what=f"batch {through} is not in the checkpoint, whose newest batch is {max(kept, default='none')}",
            fix="if the checkpoint was replaced by a copy, restore the sink's copy of the same time",
        )
    wanted = range(since, through + 1)
    entries = kept if all(batch in kept for batch in wanted) else {**archive.entries(since), **kept}
    missing = [batch for batch in wanted if batch not in entries]
    if missing:
        raise CheckpointError(
            code="HR511",
            where=Where(file=str(checkpoint.root)),
            what=f"the batches from {since} to {through} are known without a gap only from batch {missing[-1] + 1} on",
            fix=_fix_of_gap(archive, missing[-1]),
        )
    return {batch: entries[batch] for batch in wanted}


def _fix_of_gap(archive: Archive, last: int) -> str:
    """What there is to do where the batches up to `last` are not known."""
    damaged = json_record.Damaged(
        file=archive.path.with_name(ADOPTED),
        code="HR584",
        what="the record of an adoption cannot be read",
        fix="restore it from a backup; or remove it, if the query has run since",
    )
    adopted = json_record.read(damaged.file, lambda facts: facts["committed"], damaged)
    if adopted is not None and last <= int(adopted):
        return (
            "nothing: Spark had purged them before the query was adopted. The query runs on; a "
            "rebuilt result (headrace rebuild) can be verified"
        )
    return (
        f"restore {archive.path.name} from a backup; without it the query runs on, and what it read before can no "
        "longer be verified"
    )


def committed_prefix(
    checkpoint: Checkpoint, archive: Archive, names: SourceNames, through: int, *, since: int = 0
) -> dict[str, SourcePrefix]:
    """What each declared source gave in the batches `since` to `through`, with the source's own log.

    A source that was added later has neither start nor end in the batches before. Further uses of a source are there
    under names that follow from its own.
    """
    entries = planned_offsets(checkpoint, archive, through, since=max(since - 1, 0))
    before = entries.pop(since - 1, None)
    return _prefixes(checkpoint, before, entries, names)


def planned_prefix(checkpoint: Checkpoint, names: SourceNames) -> dict[str, SourcePrefix] | None:
    """What each declared source is to give again in the batches that are planned and not committed; None without one.

    It reads the checkpoint alone, as Spark does.
    """
    numbers, committed = numbered_files(checkpoint.root / Part.OFFSETS), checkpoint.last_committed
    done = -1 if committed is None else committed
    planned = {batch: checkpoint.offset(batch) for batch in numbers if batch > done}
    again = {batch: entry for batch, entry in planned.items() if entry is not None}
    if not again:
        return None
    # Async progress leaves out offsets, so the batch before need not be the number before.
    before = max((batch for batch in numbers if batch <= done), default=None)
    return _prefixes(checkpoint, None if before is None else checkpoint.offset(before), again, names)


def _prefixes(
    checkpoint: Checkpoint, before: OffsetEntry | None, entries: dict[int, OffsetEntry], names: SourceNames
) -> dict[str, SourcePrefix]:
    keys = _keys(checkpoint, entries, names)
    read_files, ids = ReadFiles(checkpoint.root.parent).read, SourceIds(checkpoint.root.parent)
    return {
        name: SourcePrefix(
            batches=batches_of(key, entries, None if before is None else before.offsets.get(key)),
            log=checkpoint.source_log(key),
            read_files=read_files,
            ids=partial(ids.of, source_of(key)),
        )
        for name, key in keys.items()
    }


def batches_of(key: str, entries: Mapping[int, OffsetEntry], start: str | None = None) -> tuple[SourceBatch, ...]:
    """The share of each batch of the source that the entries call `key`, from `start` on."""
    ends = [entry.offsets.get(key) for entry in entries.values()]
    shares = zip(entries, (start, *ends), ends, strict=False)
    return tuple(SourceBatch(batch=batch, start=begun, end=end) for batch, begun, end in shares)


def watermarks(checkpoint: Checkpoint, archive: Archive, through: int, *, since: int = 0) -> dict[int, BatchWatermarks]:
    """The watermarks of the batches `since` to `through`."""
    entries = planned_offsets(checkpoint, archive, through, since=max(since - 1, 0))
    marks, before = {}, entries.pop(since - 1).watermark_ms if since else 0
    for batch, entry in entries.items():
        marks[batch] = BatchWatermarks(late_ms=before, evict_ms=entry.watermark_ms)
        before = entry.watermark_ms
    return marks


def _keys(checkpoint: Checkpoint, entries: dict[int, OffsetEntry], names: SourceNames) -> dict[str, str]:
    """The key of each source in the checkpoint: its name, or its number in the first format."""
    keys = {key for entry in entries.values() for key in entry.offsets}
    if keys == {"0"} and len(names.declared) == 1:
        return {names.declared[0]: "0"}
    uses = [*names.declared, *further_uses(names.declared, map(names.now, keys))]
    strangers = [use for use in uses if names.in_spark(use) not in keys]
    if keys and strangers and all(key.isdigit() for key in keys):
        raise CheckpointError(
            code="HR512",
            where=Where(file=str(checkpoint.root)),
            what=f"the checkpoint numbers its {len(keys)} sources, so it cannot be "
            f"determined which is '{strangers[0]}'",
            fix="reset the query (headrace reset QUERY), with named sources",
        )
    return {use: names.in_spark(use) for use in uses}
