"""An Iceberg table as a source of Spark's Python data source API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from headrace.connectors.iceberg.files import DataFileReading, form_of
from headrace.connectors.iceberg.history import SnapshotHistory, SnapshotOffset
from headrace.connectors.iceberg.table import TableRef

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask
    from pyspark.sql.types import StructType

# Small files of one batch are read by one task, up to about this many bytes.
BUNDLE = 32 * 1024 * 1024


def data_source(name: str, reader: Reader) -> type[DataSource]:
    """Make the class of one stream. Secrets are in the class and not among the options, which plans show."""

    class IcebergDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return reader.columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return reader

    return IcebergDataSource


@dataclass(frozen=True)
class Bundle(InputPartition):
    """Files that one task reads."""

    reading: DataFileReading
    tasks: tuple[FileScanTask, ...]


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives the files of the table's history, oldest first; it works in a Python process of its own."""

    def __init__(
        self,
        columns: StructType,
        place: TableRef,
        open_history: Callable[[], SnapshotHistory],
        start: tuple[str, int | None, int | None],
        limit: int | None,
    ) -> None:
        self.columns, self.place, self.open_history, self.start, self.limit = columns, place, open_history, start, limit
        self.history: SnapshotHistory | None = None
        self.ends = False
        self.until: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self.limit is None else ReadMaxFiles(self.limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.until, self.ends = self._current(), True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        with self.place.translate_errors():
            current = self._current()
            history = self._history()
            begun = SnapshotOffset.of(start) or history.begin(*self.start)
            if begun is None:
                return start
            most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            return asdict(history.advance(begun, most, self._goal(start, begun, current)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self.place.translate_errors():
            history = self._history()
            files = history.files(SnapshotOffset.of(start), SnapshotOffset.of(end))
            if not files:
                return []
            reading = DataFileReading(form_of(history.table), history.table.io, self.columns.json())
            return [Bundle(reading, tuple(tasks)) for tasks in bundle_small(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Bundle), "`partitions` gives no others"
        for task in partition.tasks:
            yield from partition.reading.rows(task)

    def _history(self) -> SnapshotHistory:
        if self.history is None:
            self.history = self.open_history()
        return self.history

    def _current(self) -> int | None:
        """The table's newest snapshot."""
        history = self._history()
        history.table = self.place.again(history.table)
        snapshot = history.table.current_snapshot()
        return None if snapshot is None else snapshot.snapshot_id

    def _goal(self, start: dict[str, Any], begun: SnapshotOffset, current: int | None) -> int | None:
        """Return the last snapshot to read: under available-now that which the table had at the start."""
        if not self.ends:
            return current
        if self.until is None or not (start or self._history().leads(begun.snapshot, self.until)):
            return begun.snapshot
        return self.until


def bundle_small(files: Sequence[Any]) -> Iterator[list[Any]]:
    """Neighbouring files together, as long as they are small."""
    together: list[Any] = []
    size = 0
    for task in files:
        if together and size + task.file.file_size_in_bytes > BUNDLE:
            yield together
            together, size = [], 0
        together.append(task)
        size += task.file.file_size_in_bytes
    if together:
        yield together
