"""The change data feed of a table: what each version did to its rows, as change data.

Source: Delta Lake's documentation, "Change data feed"; DeltaSourceCDCSupport, which numbers the files of a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.connectors.delta.log import Commit, DeltaOffset, VersionSpan
from headrace.contract import CHANGE_COLUMN
from headrace.contract.change_data import FIELDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader

OPTION, PROPERTY = "readChangeFeed", "delta.enableChangeDataFeed"
_TYPE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
_FILE, _OF, _NAME, _BATCH = (f"__headrace_{name}" for name in ("file", "of", "name", "batch"))


def as_changes(rows: DataFrame, *last: str) -> DataFrame:
    """Return the rows of a feed as a change frame, with the columns `last` behind the change.

    The row before an update deletes its key, before the rows that the version wrote: so the row of a former key goes.
    """
    from pyspark.sql import functions as F

    is_written = F.col(_TYPE).isin("insert", "update_postimage")
    values = (
        F.when(is_written, "upsert").otherwise("delete"),
        F.col(_VERSION).cast("decimal(38,0)"),
        F.struct(F.lit(0).alias("partition"), is_written.cast("bigint").alias("offset")),
        F.array().cast("array<string>"),
        F.col(_TIME),
    )
    change = F.struct(*[value.alias(field) for field, value in zip(FIELDS, values, strict=True)])
    columns = [f"`{name}`" for name in rows.columns if name not in (_TYPE, _VERSION, _TIME, *last)]
    return rows.select(*columns, change.alias(CHANGE_COLUMN), *last)


def as_inserts(rows: DataFrame, version: int, timestamp_ms: int) -> DataFrame:
    """Return the rows of a table as its feed gives them to a stream that begins with this version."""
    from pyspark.sql import functions as F

    time = F.timestamp_millis(F.lit(timestamp_ms))
    return rows.withColumns({_TYPE: F.lit("insert"), _VERSION: F.lit(version).cast("bigint"), _TIME: time})


def spans_of_table(spans: Sequence[VersionSpan]) -> list[VersionSpan]:
    """Return what the spans took of the table that the stream began with."""
    began = [span for span in spans if span.start.initial]
    return [
        span if span.end.initial else replace(span, end=DeltaOffset(span.start.version, 1 << 60, True))
        for span in began
    ]


def read_versions(
    reader: DataFrameReader,
    load: Callable[[DataFrameReader], DataFrame],
    spans: Sequence[VersionSpan],
    commits: Mapping[int, Commit],
    batch_column: str | None,
) -> DataFrame:
    """Return the feed's rows of the versions that the spans took, perhaps with their batch as last column.

    A version that only adds and removes whole files may be spread over several batches.

    Args:
        reader: Delta's, of a batch.
        load: Loads the table with it.
        spans: What each batch took.
        commits: The versions that they took.
        batch_column: The name of the column.
    """
    from pyspark.sql import functions as F

    versions = [version for span in spans for version in span.commits]
    span_options = {"startingVersion": min(versions), "endingVersion": max(versions)}
    rows = load(reader.option(OPTION, "true").options(**span_options))
    columns = [F.col(f"`{name}`") for name in rows.columns]
    rows = rows.select(*columns, F.substring_index(F.input_file_name(), "/", -1).alias(_FILE))
    schema = f"{_OF} BIGINT, {_NAME} STRING, {_BATCH} BIGINT"
    parts = rows.sparkSession.createDataFrame(list(_parts(spans, commits)), schema)
    is_of_part = F.col(_NAME).isNull() | (F.col(_NAME) == F.col(_FILE))
    joined = rows.join(F.broadcast(parts), (F.col(_VERSION) == F.col(_OF)) & is_of_part)
    return joined.select(*columns, *([] if batch_column is None else [F.col(_BATCH).alias(batch_column)]))


def _parts(spans: Sequence[VersionSpan], commits: Mapping[int, Commit]) -> Iterator[tuple[int, str | None, int]]:
    """Yield each version with its batch; where that took some of its files alone, with the name of each."""
    for span in spans:
        for version in span.commits:
            files = _files(commits[version])
            begin = max(span.start.index, -1) + 1 if version == span.start.version else 0
            end = span.end.index + 1 if version == span.end.version else len(files)
            if begin == 0 and end >= len(files):
                yield version, None, span.batch
            else:
                yield from ((version, path.rsplit("/", 1)[-1], span.batch) for path in files[begin:end])


def _files(commit: Commit) -> list[str]:
    """The files of a version that have its changes, as a stream numbers them."""
    if changes := [action["cdc"]["path"] for action in commit.actions if "cdc" in action]:
        return changes
    files = [action[kind] for action in commit.actions for kind in ("add", "remove") if kind in action]
    return [file["path"] for file in files if file.get("dataChange", True)]
