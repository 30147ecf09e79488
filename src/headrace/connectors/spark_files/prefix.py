"""The files of a committed prefix, as Spark's own log of the file source names them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from typing import TYPE_CHECKING

from headrace.checkpoint.identity import log_offset
from headrace.checkpoint.sources import ReadFile
from headrace.connectors.spark_files import paths as file_paths
from headrace.contract import OptionError, SourcePrefix
from headrace.errors import SourceError
from headrace.spark.jvm.hadoop_files import escape_pattern
from headrace.storage.durable import files_below
from headrace.storage.location import is_known, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

FILE = "__headrace_file"
_PATH = "__headrace_path"
_SPELT = "__headrace_spelt"
_BATCH = "__headrace_batch"
# Paths in which a URI escapes nothing, and the ways in which Spark writes the scheme of a local one.
_PLAIN = re.compile(r"([a-z0-9]+:/)?/[A-Za-z0-9_./=-]*\Z")
_SCHEMES = ("", "file:", "file://")


@dataclass(frozen=True)
class FileLogEntry:
    """One line of the log: a file, its modification time in milliseconds, and the log's own number for it."""

    path: str
    timestamp: float
    log: int

    @property
    def file(self) -> str:
        """The path as a listing gives it."""
        return file_paths.normal(file_paths.from_log(self.path))

    def as_read(self, kept: Mapping[str, ReadFile]) -> ReadFile:
        """What the file was when its batch was planned: by the record that was `kept`, else by Spark's log."""
        return kept.get(self.file) or ReadFile(modified_ms=int(self.timestamp))


@dataclass(frozen=True)
class FileGroup:
    """Files that share a base directory for key=value columns, each with the batch that it came in."""

    base: str
    files: tuple[tuple[str, int], ...]


def entries(prefix: SourcePrefix) -> Iterator[FileLogEntry]:
    """Every file that the log of `prefix` names."""
    for lines in prefix.log.values():
        for line in lines:
            entry = json.loads(line)
            yield FileLogEntry(entry["path"], float(entry["timestamp"]), int(entry["batchId"]))


def mismatch(prefix: SourcePrefix, path: str) -> str:
    """Why `prefix` cannot be of files below `path`, a directory or a glob; empty if it can."""
    ends = [batch.end for batch in prefix.batches if batch.end is not None]
    if any(log_offset(end) is None for end in ends):
        return "its offsets are not those of a directory of files"
    home = file_paths.base(file_paths.local(path)) if file_paths.is_local(path) else file_paths.base(path)
    for entry in entries(prefix):
        file = file_paths.from_log(entry.path)
        # By another way to the same directory, as a link, every file would be a new one.
        if not file.startswith(f"{home.rstrip('/')}/"):
            return f"it read '{file}', which does not lie in '{path}'"
    return ""


def files(prefix: SourcePrefix) -> list[tuple[str, int]]:
    """The path and the batch of every file of `prefix`. Raises SourceError where the log has a gap."""
    return [(file_paths.from_log(entry.path), batch) for entry, batch in _files_of_batches(prefix)]


def find_change(prefix: SourcePrefix) -> OptionError | None:
    """Find files of `prefix` that are no longer those that its batches were planned over.

    Raises PlatformError, CheckpointError, and SourceError as `files`.
    """
    changes = list(_find_changes(prefix, whole=True))
    if not changes:
        return None
    path, batch, now, then = changes[0]
    more = f", and {len(changes) - 1:,} more" if changes[1:] else ""
    replan = f"plan the batch again: headrace rewind QUERY --to-batch {batch - 1}" if batch else "headrace reset QUERY"
    with_time = f", with its time (touch -d @{then.modified_ms / 1000:.3f} FILE)"
    is_now, was = _describe(now), _describe(then)
    return OptionError(
        code="HR326",
        what=f"'{path}'{more} changed after batch {batch} was planned over it (it is {is_now}, and was {was}"
        f"{', with other content' if is_now == was else ''}): made again, the batch would not be what its sink may "
        "hold",
        fix=f"bring back what it held{'' if then.etag or then.digest else with_time}; or {replan}",
    )


def warn_of_changes(prefix: SourcePrefix) -> Iterator[OptionError]:
    """Warn of files that have changed since their batches came in."""
    yield from warn_of_changed_files([path for path, *_ in _find_changes(prefix)])


def warn_of_changed_files(paths: Sequence[str]) -> Iterator[OptionError]:
    """Warn of these files, which have changed since their batches came in."""
    if paths:
        yield OptionError(
            code="HR326",
            what=f"files have changed after they were read, and are not read again: {first_names(paths)}",
            fix="bring back what they held, and let what they hold now land under names of its own",
            severity="warning",
        )


def first_names(paths: Sequence[str]) -> str:
    """The first three of them."""
    paths = sorted(paths)
    shown = ", ".join(f"'{path}'" for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3:,} more"


def _find_changes(prefix: SourcePrefix, *, whole: bool = False) -> Iterator[tuple[str, int, ReadFile, ReadFile]]:
    """Each file that has changed, with its batch, what it is and what it was.

    whole: small files are read, and so known as changed where size and time are what they were.
    """
    kept = prefix.read_files()
    for entry, batch in _files_of_batches(prefix):
        with suppress(OSError):  # `ensure_available` reports missing files.
            now, then = file_paths.present(entry.file), entry.as_read(kept)
            now = file_paths.with_digest(now, entry.file) if whole and then.digest else now
            if file_paths.is_changed(then, now, entry.file):
                yield entry.file, batch, now, then


def _describe(file: ReadFile) -> str:
    time = f"{datetime.fromtimestamp(file.modified_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    return f"of {time}" if file.size_bytes is None else f"of {time} and {file.size_bytes:,} bytes"


def _files_of_batches(prefix: SourcePrefix) -> list[tuple[FileLogEntry, int]]:
    """Every file of `prefix` with its batch. Raises SourceError where the log has a gap."""
    by_log: dict[int, list[FileLogEntry]] = {}
    for entry in entries(prefix):
        by_log.setdefault(entry.log, []).append(entry)
    taken: list[tuple[FileLogEntry, int]] = []
    for batch in prefix.batches:
        if batch.end is None:
            continue
        start, end = log_offset(batch.start), log_offset(batch.end)
        for log in range(0 if start is None else start + 1, 0 if end is None else end + 1):
            if log not in by_log:
                fault = f"the file source's log has no entry {log}, which batch {batch.batch} was read from"
                fix = "restore the checkpoint's directory sources/, or reset the query (headrace reset QUERY)"
                raise SourceError(code="HR509", what=fault, fix=fix)
            taken.extend((entry, batch.batch) for entry in by_log[log])
    return taken


def places(taken: Sequence[tuple[str, int]], path: str, archive: str | None) -> list[FileGroup]:
    """Find where the files are now, those in the archive apart. Raises SourceError if a local one is nowhere."""
    base = file_paths.base(path)
    moved_to = file_paths.local(archive) if archive is not None and is_known(archive) else None
    # Of a store each directory is asked for once, rather than each file.
    kept = set(map(str, files_below(place(moved_to)))) if moved_to and not file_paths.is_local(moved_to) else set()
    here: list[tuple[str, int]] = []
    moved: list[tuple[str, int]] = []
    gone: list[str] = []
    for file, batch in taken:
        if moved_to is not None and moved_to + _inside(file) in kept:
            moved.append((moved_to + _inside(file), batch))
        elif not file_paths.is_local(file) or os.path.exists(file):
            here.append((file, batch))
        elif moved_to is not None and os.path.exists(moved_to + file):
            moved.append((moved_to + file, batch))
        else:
            gone.append(file)
    if gone:
        fault = f"{len(gone)} of {len(taken)} files that were read are no longer there: {first_names(gone)}"
        fix = "put them back; without them the prefix cannot be read again"
        raise SourceError(code="HR303", what=fault, fix=fix)
    moved_base = base if moved_to is None else moved_to + _inside(file_paths.local(base))
    return [group for group in (FileGroup(base, tuple(here)), FileGroup(moved_base, tuple(moved))) if group.files]


def _inside(path: str) -> str:
    """The path within its file system, which Spark appends to that of the archive."""
    return path if file_paths.is_local(path) else f"/{path.partition('://')[2].partition('/')[2]}"


def frame(
    reader: DataFrameReader,
    places: Sequence[FileGroup],
    batch_column: str | None,
    file_column: str | None,
    *,
    place_column: str | None = None,
) -> DataFrame:
    """The rows of the files, with their batch and file as last columns where asked for.

    place_column: for the file as Spark writes its path.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    parts = []
    for group in places:
        part = reader.option("basePath", group.base).load([escape_pattern(file) for file, _ in group.files])
        if place_column is not None:
            part = part.select("*", F.col("_metadata.file_path").alias(place_column))
        if batch_column is not None or file_column is not None:
            part = part.select("*", F.col(place_column or "_metadata.file_path").alias(FILE))
        parts.append(part)
    rows = reduce(DataFrame.unionByName, parts)
    if batch_column is None and file_column is None:
        return rows
    return with_batches(rows, [pair for group in places for pair in group.files], batch_column, file_column)


def with_batches(
    rows: DataFrame, batches: Sequence[tuple[str, int]], batch_column: str | None, file_column: str | None = None
) -> DataFrame:
    """Rows with the path of their file as column FILE: with the batch and the path as last columns instead."""
    from pyspark.sql import functions as F

    if all(_PLAIN.match(path) for path, _ in batches):
        # A name that needs no escape is joined as Spark writes it, which spares two expressions for each row.
        spelt = [(f"{scheme}{path}", path, batch) for path, batch in batches for scheme in _SCHEMES]
        written = F.col(FILE)
    else:
        spelt = [(path, path, batch) for path, batch in batches]
        # A URI is percent-encoded, and unlike in a form a plus sign in it means a plus sign.
        decoded = F.url_decode(F.regexp_replace(FILE, r"\+", "%2B"))
        written = F.regexp_replace(decoded, "^file:/+", "/")
    spellings = rows.sparkSession.createDataFrame(spelt, f"{_SPELT} STRING, {_PATH} STRING, {_BATCH} BIGINT")
    joined = rows.join(F.broadcast(spellings), written == F.col(_SPELT), "left")
    unknown = F.raise_error(F.concat(F.lit("no batch is known for the file "), FILE)).cast("bigint")
    columns = [F.col(f"`{name}`") for name in rows.columns if name != FILE]
    if batch_column is not None:
        columns.append(F.coalesce(_BATCH, unknown).alias(batch_column))
    if file_column is not None:
        columns.append(F.col(_PATH).alias(file_column))
    return joined.select(*columns)


def empty_frame(spark: SparkSession, shape: StructType, batch_column: str | None, file_column: str | None) -> DataFrame:
    """No rows, in the columns that `frame` gives."""
    from pyspark.sql import functions as F

    rows = spark.createDataFrame([], shape)
    if batch_column is not None:
        rows = rows.withColumn(batch_column, F.lit(None).cast("bigint"))
    return rows if file_column is None else rows.withColumn(file_column, F.lit(None).cast("string"))
