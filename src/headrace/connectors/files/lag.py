"""What a directory holds that no batch has taken: the files that wait, and those that will never be read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone

from headrace.checkpoint.identity import log_offset
from headrace.connectors.files.options import FilesOptions, age_ms
from headrace.connectors.spark_files import paths as file_paths
from headrace.connectors.spark_files import prefix as file_prefix
from headrace.connectors.spark_files.prefix import first_names
from headrace.contract import Lag, OptionError, SourcePrefix

# A file under a hidden name is on its way for so long; after that it counts as forgotten.
_ON_ITS_WAY_SECONDS = 60
# What a file of a format is called, besides compressed; others under a hidden name are not data.
_ENDINGS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".log", ".parquet", ".orc")
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", "._COPYING_")


@dataclass(kw_only=True)
class Look:
    """Files without a batch, and those that have changed since theirs.

    `aged`, `namesakes`, `hidden` and `nested` are those that Spark leaves out, by their paths; `changed` those that it
    does not read again.
    """

    waiting: int = 0
    waiting_bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: float = 0.0
    aged: list[str] = field(default_factory=list)
    namesakes: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    @property
    def lag(self) -> Lag:
        """The counts of these files."""
        return Lag(
            count=self.waiting,
            unit="files",
            bytes=self.waiting_bytes,
            left_out=sum(map(len, (self.aged, self.namesakes, self.hidden, self.nested, self.changed))),
            changed=len(self.changed),
            oldest_ms=self.oldest_ms,
        )


def look(source: FilesOptions, prefix: SourcePrefix) -> Look:
    """Look at a directory once, as Spark does (FileStreamSource.SeenFilesMap). Raises PlatformError."""
    by_name = source.file_name_only
    identity: Callable[[str], str] = os.path.basename if by_name else file_paths.normal
    seen, kept = Look(), prefix.read_files()
    taken: dict[str, tuple[str, file_prefix.FileLogEntry]] = {}
    # What a batch was planned with that is not committed has not been taken yet.
    through = next((log_offset(batch.end) for batch in reversed(prefix.batches) if batch.end is not None), None)
    for entry in file_prefix.entries(prefix):
        if through is None or entry.log > through:
            continue
        taken[identity(entry.file)] = entry.file, entry
        seen.newest_ms = max(seen.newest_ms, entry.timestamp)
    oldest_ms = float("-inf")
    if source.max_file_age is not None and not (source.latest_first and source.limits()):
        oldest_ms = seen.newest_ms - (age_ms(source.max_file_age) or 0.0)
    settled_at = 1000 * (time.time() - _ON_ITS_WAY_SECONDS)
    moved = source.clean_source != "off"
    options = {name.lower(): value for name, value in source.options.items()}
    looks_below = options.get("recursivefilelookup", "").lower() == "true"
    for file in file_paths.listing(file_paths.local(source.path), hidden=True):
        path = file_paths.normal(file.path)
        before, listed = taken.get(identity(path), (None, None))
        if listed is not None and before == path:
            if file_paths.is_changed(listed.as_read(kept), file.read, path):
                seen.changed.append(path)
            continue
        if file_paths.is_hidden(file.name):
            if _is_data(file.name) and file.since_ms < settled_at:
                seen.hidden.append(path)
        elif before is not None:
            # One that was moved elsewhere after it was read is the same file, not a namesake.
            if not moved and file_paths.exists(before):
                seen.namesakes.append(path)
        elif file.nested and not looks_below:
            seen.nested.append(path)
        elif file.read.modified_ms < oldest_ms:
            seen.aged.append(path)
        else:
            seen.waiting += 1
            seen.waiting_bytes += file.read.size_bytes or 0
            seen.oldest_ms = min(seen.oldest_ms or file.read.modified_ms, file.read.modified_ms)
    return seen


def problems(source: FilesOptions, seen: Look) -> Iterator[OptionError]:
    """Report which files are left out or have changed, why, and what to do about it."""
    yield from file_prefix.warn_of_changed_files(seen.changed)
    reasons, fixes = [], []
    if seen.aged:
        newest = datetime.fromtimestamp(seen.newest_ms / 1000, tz=timezone.utc)
        # No date that every batch would change: what was reported once is not reported again.
        ahead = f", which is ahead of the clock: {newest:%Y-%m-%d %H:%M:%S} UTC"
        reasons.append(
            f"{first_names(seen.aged)} are more than max_file_age ({source.max_file_age}) older than the newest file "
            f"that was read{ahead if newest.timestamp() > time.time() else ''}"
        )
        fixes.append("leave out max_file_age and start again")
    if seen.namesakes:
        names = first_names(seen.namesakes)
        reasons.append(f"{names} have the name of a file that was read, and file_name_only is set")
        fixes.append("give them names of their own")
    if seen.hidden:
        reasons.append(f"{first_names(seen.hidden)} have names that begin with . or _, or end with ._COPYING_")
        fixes.append("rename them")
    if seen.nested:
        reasons.append(f"{first_names(seen.nested)} lie in subdirectories")
        fixes.append("set recursiveFileLookup: 'true' in the source's options, or end its path with /* for one level")
    if reasons:
        yield OptionError(
            code="HR360",
            what=f"files are left out and never read: {'; '.join(reasons)}",
            fix=f"{', and '.join(fixes)}; or move them out of the source's directory",
            severity="warning",
        )


def _is_data(name: str) -> bool:
    plain = name.lower()
    for ending in _COMPRESSED:
        plain = plain.removesuffix(ending.lower())
    return plain.endswith(_ENDINGS)
