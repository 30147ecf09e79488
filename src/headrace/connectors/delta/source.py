"""Read the rows of a Delta table as they are added."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.connectors import options as connector_options
from headrace.connectors.delta import change_feed
from headrace.connectors.delta import log as delta_log
from headrace.connectors.delta.log import Add, DeltaOffset, VersionSpan
from headrace.connectors.delta.table import CREATE, DeltaPlace, DeltaTable, LogCutError, State
from headrace.connectors.spark_files.prefix import FILE, with_batches
from headrace.connectors.spark_files.prefix import first_names as file_names
from headrace.contract import Failure, Identity, Lag, OptionError, ProjectPath, Source, SourceFacts, SourcePrefix
from headrace.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

_SIZE = re.compile(r"\s*\d+\s*[kmgt]?i?b?\s*", re.IGNORECASE)
FAILURES = (
    Failure(
        code="HR344",
        pattern=r"DELTA_SOURCE_IGNORE_DELETE",
        what="rows of a Delta table that it reads were deleted",
        fix="start again with ignore_deletes to pass over versions that only delete; or reset the query "
        "(headrace reset QUERY)",
    ),
    Failure(
        code="HR344",
        pattern=r"DELTA_SOURCE_TABLE_IGNORE_CHANGES",
        what="files of a Delta table that it reads were rewritten, as by UPDATE, MERGE or the DELETE of single rows",
        fix="start again with skip_change_commits to leave such versions out, or with ignore_changes to read the "
        "rewritten files again; or reset the query (headrace reset QUERY)",
    ),
    Failure(
        code="HR345",
        pattern=r"DELTA_SCHEMA_CHANGED|DELTA_STREAMING_\w*SCHEMA_(?:CHANGE|MISMATCH|EVOLUTION)",
        what="the columns of a Delta table that it reads have changed meanwhile",
        fix="start again: the query continues with the new columns; if a column was dropped, renamed or got another "
        "type, reset the query (headrace reset QUERY)",
    ),
    Failure(
        code="HR343",
        pattern=r"DELTA_VERSION_NOT_FOUND|VersionNotFoundException|DELTA_TIMESTAMP_GREATER_THAN_COMMIT|"
        r"Cannot time travel Delta table to version",
        what="a Delta table does not have the version to resume from: its log was cut, or the given start is too late",
        fix="give starting_version or starting_timestamp a version that the table has, as DESCRIBE HISTORY shows them; "
        "if the query has run before, reset it, and let the table keep its log for longer",
    ),
    Failure(
        code="HR343",
        pattern=r"DELTA_MISSING_CHANGE_DATA",
        what="a Delta table has not kept the changes of a version that is to be read",
        fix="begin with a later version (starting_version); if the query has run before, reset it (headrace reset "
        f"QUERY), and leave {change_feed.PROPERTY} true",
    ),
    Failure(
        code="HR346",
        pattern=r"DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
        what="a Delta table that it reads is another one than that which its checkpoint knows",
        fix="put the old table back, or reset the query (headrace reset QUERY)",
    ),
    Failure(
        code="HR343",
        pattern=r"DELTA_(?:LOG_FILE_NOT_FOUND|MISSING_FILES_UNEXPECTED_VERSION|STREAMING_TRAILING_COMMIT_MISSING|"
        r"TRUNCATED_TRANSACTION_LOG|FILE_NOT_FOUND)",
        what="versions or files of a Delta table were deleted before they were read",
        fix="restore them, or reset the query (headrace reset QUERY); let the table keep more: "
        "delta.logRetentionDuration, and VACUUM with a longer time",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Delta(Source):
    """Read a table of Delta Lake, by its `path` or by the name `table` in Spark's own catalog.

    Source: Delta Lake's documentation, "Table streaming reads and writes". The first batches give the whole table,
    later ones the rows that each version adds. Rows that are only moved to other files, as by OPTIMIZE, are not given
    again. A version that changes or deletes rows ends the query, unless an option says what to do with it.

    starting_version, starting_timestamp: leave out the table as it is, and begin with the rows that this version, or
        the first one from this time on, added; for the first start only. With `latest` a first batch that is cut off
        cannot be made again, so that there is no guarantee.
    max_files_per_trigger, max_bytes_per_trigger: how much a batch takes at most; a thousand files if neither is given.
    ignore_deletes: continue where a version only deletes rows.
    ignore_changes: continue where a version changes rows, and give every row of the files that it rewrote (again).
    skip_change_commits: continue where a version changes or deletes rows, and leave out the rows that it wrote.
    exclude_regex: leave out the files whose path has this pattern in it.
    read_change_feed: give the changes of the rows, of the table's change data feed, to a query with `cdc`. The version
        orders them. The first batches give the whole table as inserts, unless a start is given.
    fail_on_data_loss: end the query when versions were deleted before they were read, as by the table's retention.
    """

    tuning_options: ClassVar[tuple[str, ...]] = (
        "starting_version",
        "starting_timestamp",
        "max_files_per_trigger",
        "max_bytes_per_trigger",
        "fail_on_data_loss",
        "ignore_deletes",
        "ignore_changes",
        "skip_change_commits",
    )
    jars: ClassVar[tuple[str, ...]] = ("delta",)
    failures: ClassVar[tuple[Failure, ...]] = FAILURES
    path: ProjectPath | None = None
    table: str | None = None
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | str | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    exclude_regex: str | None = None
    read_change_feed: bool = False
    fail_on_data_loss: bool = True

    @property
    def facts(self) -> SourceFacts:
        # Delta asks for the latest version again when it makes the first batch again.
        replayable, feed = self.starting_version != "latest", self.read_change_feed
        return SourceFacts(replayable=replayable, rate_limited=True, change_data=feed, own_order=feed)

    @property
    def readable_as_batch(self) -> bool:
        return self.facts.replayable

    def problems(self) -> Iterator[OptionError]:
        yield from self._place.problems()
        of_rows = ("ignore_deletes", "ignore_changes", "skip_change_commits", "exclude_regex")
        pairs = [("starting_version", "starting_timestamp"), ("ignore_changes", "skip_change_commits")]
        for one, other in [*pairs, *(("read_change_feed", name) for name in of_rows)]:
            if all(getattr(self, name) is not None and getattr(self, name) is not False for name in (one, other)):
                yield OptionError(what=f"{one} and {other} are both given", fix="leave out one of the two")
        if isinstance(self.starting_version, int) and self.starting_version < 0:
            fault = f"starting_version is {self.starting_version}"
            yield OptionError(what=fault, fix="give the number of a version, or latest")
        yield from connector_options.not_above_zero(self, "max_files_per_trigger")
        size = self.max_bytes_per_trigger
        if size is not None and (_SIZE.fullmatch(str(size)) is None or not re.search("[1-9]", str(size))):
            fault = f"max_bytes_per_trigger is '{size}'"
            yield OptionError(what=fault, fix="give a number of bytes, or a size such as 64m or 1g")
        yield from connector_options.no_pattern("exclude_regex", self.exclude_regex, "part-.*")
        given = self.starting_timestamp
        if given is not None and re.match(r"\d{4}-\d{1,2}-\d{1,2}", str(given).strip()) is None:
            fault = f"starting_timestamp is '{given}'"
            yield OptionError(what=fault, fix="write a date or a time, as 2026-01-31 or 2026-01-31 12:00:00")
        yield from connector_options.silent_loss(self.fail_on_data_loss, "versions")

    def identity(self) -> Identity:
        return self._place.identity()

    def check_connection(self, spark: SparkSession) -> None:
        """See that the table is there."""
        self._require_table(spark)

    def object_ids(self, spark: SparkSession) -> dict[str, str]:
        return {self._place.text: self._require_table(spark).now().id}

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        self._require_table(spark)
        options = connector_options.spark_options(self, *self.tuning_options, "exclude_regex")
        reader = spark.readStream.name(name).format("delta").options(**options)
        if not self.read_change_feed:
            return self._load(reader)
        return change_feed.as_changes(self._load(reader.option(change_feed.OPTION, "true")))

    def _load(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        return reader.load(self.path) if self.path is not None else reader.table(str(self.table))

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        table = self._require_table(spark)
        if not self.readable_as_batch:
            fault = "a stream that began with the latest version does not record which one that was"
            fix = "give starting_version a number, or leave it out"
            raise SourceError(code="HR343", what=fault, fix=fix)
        read = next((json.loads(batch.end)["reservoirId"] for batch in prefix.batches if batch.end is not None), "")
        self.require_same({self._place.text: read}, {self._place.text: table.now().id})
        begin = self.starting_version if isinstance(self.starting_version, int) else None
        if self.starting_timestamp is not None:
            begin = table.version_at(self.starting_timestamp)
        spans = delta_log.spans(prefix, begin)
        versions = sorted(set(chain.from_iterable(span.commits for span in spans)))
        try:
            commits = table.commits(versions[0], versions[-1]) if versions else {}
            states = {span.start.version: table.at(span.start.version).files() for span in spans if span.start.initial}
        except LogCutError as cut:
            fault = f"the log of {self._place} no longer has {cut}, which was read"
            raise SourceError(code="HR343", what=fault, fix=_KEEP) from None
        whole = change_feed.spans_of_table(spans) if self.read_change_feed else spans
        files = self._files(whole, commits, states)
        self._require_files(table.location, [add for add, _ in files])
        rows = _frame(table.now(), files, batch_column)
        if not self.read_change_feed:
            return rows
        began = table.at(whole[0].start.version) if whole else table.now()
        rows = change_feed.as_inserts(rows, began.version, began.timestamp_ms)
        if versions:
            reader = spark.read.format("delta")
            rows = rows.unionByName(change_feed.read_versions(reader, self._load, spans, commits, batch_column))
        return change_feed.as_changes(rows, *([] if batch_column is None else [batch_column]))

    def ensure_available(self, prefix: SourcePrefix) -> None:
        """Check the files of a local table; Delta itself ends the query over what only a JVM can find out."""
        place = self._place.directory
        begin = self.starting_version if isinstance(self.starting_version, int) else None
        whole = self.starting_version is None and self.starting_timestamp is None
        if place is None or not (whole or begin is not None or all(batch.start for batch in prefix.batches)):
            return
        spans = delta_log.spans(prefix, begin)
        states, commits = self._local(place, spans)
        missing = [version for span in spans for version in span.commits if version not in commits]
        if missing and self.fail_on_data_loss:
            fault = f"the log of {self._place} no longer has version {missing[0]}, which was to be read"
            raise SourceError(code="HR343", what=fault, fix=_KEEP)
        if self.read_change_feed:
            return
        wanted = [span for span in spans if not span.start.initial or states[span.start.version] is not None]
        wanted = [span for span in wanted if all(version in commits for version in span.commits)]
        files = self._files(wanted, commits, states)
        self._require_files(str(place), [add for add, _ in files])

    def mismatch(self, prefix: SourcePrefix) -> str:
        ends = [batch.end for batch in prefix.batches if batch.end is not None]
        try:
            read = str(json.loads(ends[-1])["reservoirId"]) if ends else None
        except (ValueError, KeyError, TypeError):
            return "its offsets are not those of a Delta table"
        directory = self._place.directory
        there = None if directory is None else delta_log.table_id(directory)
        if read is None or there is None or read == there:
            return ""
        return f"it read the Delta table with the id {read}, and that of {self._place} is {there}"

    def lag(self, prefix: SourcePrefix) -> Lag | None:
        """The files of a local table that no batch has taken."""
        place = self._place.directory
        newest = None if place is None else delta_log.newest(place)
        if place is None or newest is None:
            return None
        last = next((batch.end for batch in reversed(prefix.batches) if batch.end is not None), None)
        if last is not None:
            there = delta_log.table_id(place)
            before, now = ({self._place.text: id_} for id_ in (json.loads(last)["reservoirId"], there or ""))
            if problem := self.find_recreated(before, now):
                return Lag(count=0, unit="files", problem=problem.what)
            start = delta_log.offset(last)
        elif isinstance(self.starting_version, int):
            start = DeltaOffset(self.starting_version, -1, False)
        elif self.starting_version is None and self.starting_timestamp is None:
            start = DeltaOffset(newest, -1, True)
        else:
            return None
        span = VersionSpan(-1, start, DeltaOffset(newest, sys.maxsize, False))
        states, commits = self._local(place, [span])
        if None in states.values() or len(commits) < len(span.commits):
            return None
        files = [add for add, _ in self._files([span], commits, states)]
        oldest = min((int(add["modificationTime"]) for add in files if "modificationTime" in add), default=None)
        return Lag(count=len(files), unit="files", bytes=sum(int(add["size"]) for add in files), oldest_ms=oldest)

    @staticmethod
    def _local(
        place: Path, spans: Sequence[VersionSpan]
    ) -> tuple[dict[int, tuple[Add, ...] | None], dict[int, delta_log.Commit]]:
        """Read the log of a local table: the tables that spans begin with (None: cut), and their versions."""
        begins = {span.start.version for span in spans if span.start.initial}
        versions = sorted(set(chain.from_iterable(span.commits for span in spans)))
        commits = [commit for version in versions for commit in delta_log.local_commits(place, version, version)]
        states = {version: delta_log.replay(place, version) for version in begins}
        return states, {commit.version: commit for commit in commits}

    def _files(
        self,
        spans: Sequence[VersionSpan],
        commits: Mapping[int, delta_log.Commit],
        states: Mapping[int, Sequence[Add] | None],
    ) -> list[tuple[Add, int]]:
        """Each file with the batch that took it; `states` has the tables that initial spans begin with."""
        taken: list[tuple[Add, int]] = []
        for span in spans:
            begin, end = max(span.start.index, -1) + 1, span.end.index + 1
            files: list[Add] = []
            if span.start.initial:
                files += (states[span.start.version] or ())[begin : end if span.end.initial else None]
            for version in span.commits:
                commit, first = commits[version], begin if version == span.start.version else 0
                numbered = [] if self.skip_change_commits and commit.takes_rows else commit.new
                files += numbered[first : end if version == span.end.version else None]
            skipped = self.exclude_regex
            taken.extend(
                (add, span.batch) for add in files if skipped is None or re.search(skipped, add["path"]) is None
            )
        return taken

    @property
    def _place(self) -> DeltaPlace:
        return DeltaPlace(path=self.path, table=self.table, error=SourceError)

    def _require_table(self, spark: SparkSession) -> DeltaTable:
        """The table. Raises SourceError where there is none."""
        table = self._place.find(spark)
        if table is None:
            raise SourceError(code="HR332", what=f"{self._place} does not exist", fix=CREATE)
        now = table.now()
        if not now.schema.fields:
            fault, fix = f"{self._place} has no columns yet", "write into it first, or create it with its columns"
            raise SourceError(code="HR332", what=fault, fix=fix)
        if self.read_change_feed and now.table_property(change_feed.PROPERTY) != "true":
            fault = f"{self._place} keeps no change data feed"
            fix = f"ALTER TABLE {self._place.in_sql} SET TBLPROPERTIES ({change_feed.PROPERTY} = true)"
            raise SourceError(code="HR332", what=fault, fix=fix)
        return table

    def _require_files(self, location: str, files: list[Add]) -> None:
        if delta_log.local(location) is None:
            return
        places = [delta_log.place_of(location, add) for add in files]
        gone = [place for place in places if place.startswith("/") and not os.path.exists(place)]
        if gone:
            fault = f"{len(gone)} of {len(files)} files of {self._place} that were read are no longer there: "
            fault += file_names(gone)
            raise SourceError(code="HR343", what=fault, fix=_KEEP)


_KEEP = (
    "restore it, or reset the query (headrace reset QUERY); let the table keep more: delta.logRetentionDuration, and "
    "VACUUM with a longer time"
)


def _frame(state: State, files: Sequence[tuple[Add, int]], batch_column: str | None) -> DataFrame:
    """The rows of the files, with their batch as last column if asked for."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    if not files:
        rows = state.rows_of(())
        return rows if batch_column is None else rows.withColumn(batch_column, F.lit(None).cast("bigint"))
    # None comes twice in one scan, as one would that was given again with other rows deleted.
    scans: defaultdict[int, list[tuple[Add, int]]] = defaultdict(list)
    given = Counter[str]()
    for add, batch in files:
        scans[given[add["path"]]].append((add, batch))
        given[add["path"]] += 1
    parts = []
    for scan in scans.values():
        rows = state.rows_of(add for add, _ in scan)
        if batch_column is not None:
            pairs = [(delta_log.place_of(state.table.location, add), batch) for add, batch in scan]
            rows = with_batches(rows.select("*", F.col("_metadata.file_path").alias(FILE)), pairs, batch_column)
        parts.append(rows)
    return reduce(DataFrame.unionByName, parts)
