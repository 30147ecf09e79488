"""The files of a committed prefix of a Delta table, as Delta's offsets and its log tell them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from headrace.connectors.delta.log import Add, Commit
from headrace.contract import SourcePrefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.connectors.delta.table import State

_PATH = "__headrace_path"
_FILE = "__headrace_file"
_BATCH = "__headrace_batch"


@dataclass(frozen=True)
class DeltaOffset:
    """How far a batch went: through the file `index` of `version`; a negative index means none of its files.

    initial: the files are those that the table had at `version`, and not those that it added.
    """

    version: int
    index: int
    initial: bool


@dataclass(frozen=True)
class VersionSpan:
    """What a batch took: all after `start`, through `end`."""

    batch: int
    start: DeltaOffset
    end: DeltaOffset

    @property
    def commits(self) -> range:
        """The versions whose added files it took, wholly or in part."""
        first = self.start.version + 1 if self.start.initial else self.start.version
        last = self.end.version if self.end.index >= 0 and not self.end.initial else self.end.version - 1
        return range(first, last + 1)


@dataclass(frozen=True)
class Rules:
    """Which files a stream leaves out by its options."""

    skip_change_commits: bool = False
    exclude: str | None = None

    def given(self, commit: Commit) -> list[Add]:
        """The files that a stream numbers in a version."""
        return [] if self.skip_change_commits and commit.takes_rows else commit.new

    def read(self, add: Add) -> bool:
        """Whether the rows of a numbered file are given."""
        return self.exclude is None or re.search(self.exclude, add["path"]) is None


def offset(text: str) -> DeltaOffset:
    """An offset as Delta writes it; below zero lie the marks before a version's first file."""
    found = json.loads(text)
    return DeltaOffset(int(found["reservoirVersion"]), int(found["index"]), bool(found["isStartingVersion"]))


def table_id(text: str) -> str:
    """The id of the table that an offset is of."""
    return str(json.loads(text)["reservoirId"])


def spans(prefix: SourcePrefix, begin: int | None) -> list[VersionSpan]:
    """What each batch took. `begin`: the version at which the stream was told to start; None: at the whole table.

    The first batch has no start in the checkpoint. A stream of the whole table began with the version that its first
    offset is in, or, where that offset has gone past the files of the table, with the version before.
    """
    found = []
    for batch in prefix.batches:
        if batch.end is None or batch.end == batch.start:
            continue
        end = offset(batch.end)
        if batch.start is not None:
            start = offset(batch.start)
        elif begin is not None:
            start = DeltaOffset(begin, -1, False)
        else:
            start = DeltaOffset(end.version if end.initial else end.version - 1, -1, True)
        found.append(VersionSpan(batch.batch, start, end))
    return found


def added(
    wanted: Sequence[VersionSpan], commits: Mapping[int, Commit], states: Mapping[int, Sequence[Add]], rules: Rules
) -> list[tuple[Add, int]]:
    """Each file with the batch that took it; `states` has the tables that initial spans begin with."""
    found: list[tuple[Add, int]] = []
    for span in wanted:
        if span.start.initial:
            last = span.end.index if span.end.initial else None
            files = states[span.start.version][max(span.start.index, -1) + 1 : None if last is None else last + 1]
            found.extend((add, span.batch) for add in files if rules.read(add))
        for version in span.commits:
            first = max(span.start.index, -1) + 1 if version == span.start.version else 0
            last = span.end.index if version == span.end.version else None
            files = rules.given(commits[version])[first : None if last is None else last + 1]
            found.extend((add, span.batch) for add in files if rules.read(add))
    return found


def frame(state: State, files: Sequence[tuple[Add, int]], batch_column: str | None) -> DataFrame:
    """The rows of the files, with their batch as last column if asked for."""
    from pyspark.sql import functions as F

    if not files:
        rows = state.rows_of(())
        return rows if batch_column is None else rows.withColumn(batch_column, F.lit(None).cast("bigint"))
    parts = [_layer(state, layer, batch_column) for layer in _layers(files)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


def _layers(files: Sequence[tuple[Add, int]]) -> Iterator[list[tuple[Add, int]]]:
    """The files so that none comes twice in one scan, as one does that was given again with other rows deleted."""
    layers: list[dict[str, tuple[Add, int]]] = []
    for add, batch in files:
        path = add["path"]
        layer = next((each for each in layers if path not in each), None)
        if layer is None:
            layers.append({path: (add, batch)})
        else:
            layer[path] = (add, batch)
    yield from (list(layer.values()) for layer in layers)


def _layer(state: State, files: Sequence[tuple[Add, int]], batch_column: str | None) -> DataFrame:
    from pyspark.sql import functions as F

    rows = state.rows_of(add for add, _ in files)
    if batch_column is None:
        return rows
    pairs = [(place_of(state.table.location, add), batch) for add, batch in files]
    known = state.table.spark.createDataFrame(pairs, f"{_PATH} STRING, {_BATCH} BIGINT")
    columns = [F.col(f"`{name}`") for name in rows.columns]
    # A URI is percent-encoded, and unlike in a form a plus sign in it means a plus sign.
    decoded = F.url_decode(F.regexp_replace(F.col("_metadata.file_path"), r"\+", "%2B"))
    rows = rows.select("*", F.regexp_replace(decoded, "^file:/+", "/").alias(_FILE))
    joined = rows.join(F.broadcast(known), F.col(_FILE) == F.col(_PATH), "left")
    unknown = F.raise_error(F.concat(F.lit("no batch is known for the file "), _FILE)).cast("bigint")
    return joined.select(*columns, F.coalesce(_BATCH, unknown).alias(batch_column))


def place_of(location: str, add: Add) -> str:
    """Where a file of the log lies; only those of a shallow clone are named in full."""
    path = unquote(add["path"])
    whole = path if path.startswith("/") or re.match(r"[\w.+-]+:/", path) else f"{location}/{path}"
    return re.sub(r"^file:/+", "/", whole)
