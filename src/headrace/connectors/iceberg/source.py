"""Read an Iceberg table as rows are appended to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.connectors.iceberg.files import UnreadableError, frame, spark_schema
from headrace.connectors.iceberg.history import SnapshotHistory, SnapshotOffset
from headrace.connectors.iceberg.table import DEFAULT_CATALOG, TableRef
from headrace.connectors.options import not_above_zero
from headrace.contract import Identity, Lag, OptionError, Source, SourceFacts, SourcePrefix
from headrace.errors import SourceError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.connectors.iceberg.stream import Reader


@dataclass(frozen=True, kw_only=True)
class Iceberg(Source):
    """Read the rows of an Iceberg table, named `namespace.table`, and those that are appended to it, oldest first.

    Source: Iceberg's table specification. What a compaction rewrites is not given again. A snapshot that deleted or
    replaced rows ends the query, unless such snapshots are to be skipped. The columns are those that the table has
    when the query starts; an older file gives NULL for a column that it lacks.

    catalog: the catalog's properties, as pyiceberg names them (`type`, `uri`, `warehouse`, `credential`, ...), with
        its name as `name`; or the name of a catalog in pyiceberg's own configuration.
    starting: what the first start begins with: `table`, all rows that the table has then, or `latest`, what is
        appended after it.
    starting_snapshot: the id of a snapshot; what was appended after it is read.
    starting_timestamp: milliseconds since 1970; what was appended then and later is read.
    max_files_per_trigger: how many data files a batch takes at most; all that there are, if not given.
    skip_delete_snapshots: pass over snapshots that deleted rows; what was made of those rows stays in the result.
    skip_overwrite_snapshots: pass over snapshots that replaced rows; what they brought is not given either.
    """

    worker_packages: ClassVar[tuple[str, ...]] = ("pyiceberg",)
    tuning_options: ClassVar[tuple[str, ...]] = (
        "catalog",
        "starting",
        "starting_snapshot",
        "starting_timestamp",
        "max_files_per_trigger",
        "skip_delete_snapshots",
        "skip_overwrite_snapshots",
    )
    table: str
    catalog: str | Mapping[str, str] = field(default=DEFAULT_CATALOG, repr=False)
    starting: Literal["table", "latest"] = "table"
    starting_snapshot: int | None = None
    starting_timestamp: int | None = None
    max_files_per_trigger: int | None = None
    skip_delete_snapshots: bool = False
    skip_overwrite_snapshots: bool = False

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(replayable=True, rate_limited=self.max_files_per_trigger is not None)

    def problems(self) -> Iterator[OptionError]:
        yield from self._place.problems()
        yield from not_above_zero(self, "max_files_per_trigger")
        starts = ("starting", "starting_snapshot", "starting_timestamp")
        given = [name for name in starts if getattr(self, name) != getattr(Iceberg, name)]
        if len(given) > 1:
            yield OptionError(what=f"{' and '.join(given)} exclude each other", fix="give one of them")

    def identity(self) -> Identity:
        return self._place.identity()

    def check_connection(self, spark: SparkSession) -> None:
        """Ask the catalog for the table, and see that Spark has a type for each column."""
        self._spark_schema(self._place.open())

    def reader(self) -> Reader:
        """Make the stream's reader. Raises SourceError where the table cannot be read."""
        from headrace.connectors.iceberg.stream import Reader

        start = (self.starting, self.starting_snapshot, self.starting_timestamp)
        columns = self._spark_schema(self._place.open())
        return Reader(columns, self._place, self._open_history, start, self.max_files_per_trigger)

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        from headrace.connectors.iceberg.stream import data_source

        made = data_source(f"headrace_iceberg_{name}", self.reader())
        spark.dataSource.register(made)
        return spark.readStream.name(name).format(made.name()).load()

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        history = self._open_history()
        with self._place.translate_errors():
            tasks = [
                (task, batch.batch)
                for batch in prefix.batches
                for task in history.files(SnapshotOffset.of(batch.start), SnapshotOffset.of(batch.end))
            ]
        return frame(spark, history.table, self._spark_schema(history.table), tasks, batch_column)

    def object_ids(self, spark: SparkSession) -> dict[str, str]:
        return {self.table: self._open_history().table_id}

    def mismatch(self, prefix: SourcePrefix) -> str:
        last = prefix.batches[-1].end if prefix.batches else None
        try:
            is_ours = last is None or SnapshotOffset.of(last) is not None
        except (ValueError, TypeError):
            is_ours = False
        return (
            "" if is_ours else "its offsets are not those of Headrace's Iceberg source, which cannot continue Iceberg's"
        )

    def ensure_available(self, prefix: SourcePrefix) -> None:
        """The snapshots of the batches must still be there; without them Spark could not make the batches again."""
        if prefix.batches:
            history = self._open_history()
            for batch in prefix.batches:
                history.ensure_available(SnapshotOffset.of(batch.start), SnapshotOffset.of(batch.end))

    def lag(self, prefix: SourcePrefix) -> Lag | None:
        elsewhere = self.starting != "table" or (self.starting_snapshot, self.starting_timestamp) != (None, None)
        if elsewhere and not prefix.batches:
            return None
        history, last = self._open_history(), SnapshotOffset.of(prefix.batches[-1].end) if prefix.batches else None
        if last is not None and (
            problem := self.find_recreated({self.table: last.table}, {self.table: history.table_id})
        ):
            return Lag(count=0, unit="rows", problem=problem.what)
        with self._place.translate_errors():
            rows, size, since = history.behind(last)
        return Lag(count=rows, unit="rows", bytes=size, oldest_ms=since)

    @property
    def _place(self) -> TableRef:
        return TableRef(table=self.table, catalog=self.catalog, error=SourceError)

    def _open_history(self) -> SnapshotHistory:
        skips = {"delete": self.skip_delete_snapshots, "overwrite": self.skip_overwrite_snapshots}
        skipped = frozenset(kind for kind, is_skipped in skips.items() if is_skipped)
        return SnapshotHistory(table=self._place.open(), name=str(self._place), skips=skipped)

    def _spark_schema(self, table: Table) -> StructType:
        try:
            return spark_schema(table)
        except UnreadableError as error:
            fix = "change the column's type, or write what the query needs into another table"
            raise SourceError(code="HR355", what=f"{self._place}: {error}", fix=fix) from None
