"""The data files of an Iceberg table: their columns as Spark's, and their rows, read by Spark's workers."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


class UnreadableError(Exception):
    """A column of a type that Spark does not have; the text says which."""


def column_types(table: Table) -> dict[str, DataType | None]:
    """Spark's type of each column of `table`; None where it has none."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type

    types: dict[str, DataType | None] = {}
    for column in schema_to_pyarrow(table.schema(), include_field_ids=False):
        try:
            # Without a zone Arrow's times are those of Spark's TIMESTAMP_NTZ.
            types[column.name] = from_arrow_type(column.type, prefer_timestamp_ntz=True)
        except PySparkException:
            types[column.name] = None
    return types


def spark_schema(table: Table) -> StructType:
    """The columns of `table` as Spark's, each of which may be NULL. Raises UnreadableError."""
    from pyspark.sql.types import StructField, StructType

    fields = []
    for name, kind in column_types(table).items():
        if kind is None:
            declared = table.schema().find_field(name).field_type
            raise UnreadableError(f"column '{name}' is of type {declared}, which Spark does not have")
        fields.append(StructField(name, kind, True))
    return StructType(fields)


def form_of(table: Table) -> TableMetadata:
    """Return the metadata that workers need: columns and partitions without the history, which may be long."""
    lists = ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics")
    without: dict[str, Any] = {**{name: [] for name in lists}, "refs": {}, "current_snapshot_id": None}
    return table.metadata.model_copy(update=without)


@dataclass(frozen=True)
class DataFileReading:
    """Reads data files on a worker, with the table's columns as they were when it was made.

    columns: what is read, as Spark's JSON of the schema.
    """

    metadata: TableMetadata
    io: FileIO
    columns: str

    def rows(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        """The rows of one file that are not deleted, with the types that Spark expects."""
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType

        keep_nulls()
        wanted = to_arrow_schema(StructType.fromJson(json.loads(self.columns)), timezone="UTC")
        projected = self.metadata.schema().select(*wanted.names)
        scan = ArrowScan(self.metadata, self.io, projected, AlwaysTrue())
        for batch in scan.to_record_batches([task]):
            if batch.num_rows:
                yield from pa.Table.from_batches([batch]).select(wanted.names).cast(wanted).to_batches()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the files of a frame of (task BINARY, batch LONG), with their batch as the last column."""
        import pyarrow as pa

        for batch in batches:
            for task, number in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                for rows in self.rows(pickle.loads(task)):
                    numbers = pa.array([number] * rows.num_rows, pa.int64())
                    yield pa.RecordBatch.from_arrays(
                        [*rows.columns, numbers], schema=rows.schema.append(pa.field(NUMBER, pa.int64()))
                    )


NUMBER = "__headrace_batch"


def frame(
    spark: SparkSession, table: Table, schema: StructType, tasks: Sequence[tuple[Any, int]], batch_column: str | None
) -> DataFrame:
    """The rows of files, each with the batch that it came in, as a DataFrame of `schema` and perhaps the batch."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    given = spark.createDataFrame(
        [(bytearray(pickle.dumps(task)), batch) for task, batch in tasks], "task BINARY, batch LONG"
    )
    whole = StructType([*schema.fields, StructField(NUMBER, LongType())])
    rows = given.mapInArrow(DataFileReading(form_of(table), table.io, schema.json()), whole)
    columns = [F.col(f"`{name}`") for name in schema.names]
    return rows.select(*columns, *([] if batch_column is None else [F.col(NUMBER).alias(batch_column)]))


def list_added_files(table: Table, snapshot: Any) -> list[FileScanTask]:
    """The files that `snapshot` added, in an order that stays; deletes of later snapshots do not touch them."""
    from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
    from pyiceberg.table import FileScanTask

    return [
        FileScanTask(entry.data_file)
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.status == ManifestEntryStatus.ADDED
    ]


def live_entries(table: Table, snapshot: Any) -> Iterator[Any]:
    """The manifest entries of the data files that make up the table at `snapshot`."""
    from pyiceberg.manifest import ManifestContent

    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def live_files(table: Table, snapshot: Any) -> list[FileScanTask]:
    """The files that make up the table at `snapshot`, oldest first, each with the deletes that touch it."""
    age = {entry.data_file.file_path: entry.sequence_number or 0 for entry in live_entries(table, snapshot)}
    tasks = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    return sorted(tasks, key=lambda task: (age.get(task.file.file_path, 0), task.file.file_path))


@cache
def keep_nulls() -> None:
    """Make pyiceberg keep NULL arrays and maps in this process; a version that does so itself is left as it is."""
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    for kind in ("list", "map"):
        setattr(ArrowProjectionVisitor, kind, _project_with_nulls(getattr(ArrowProjectionVisitor, kind)))


def _project_with_nulls(project: Any) -> Any:
    @wraps(project)
    def project_part(self: Any, declared: Any, given: pa.Array | None, *parts: pa.Array | None) -> pa.Array | None:
        made = project(self, declared, given, *parts)
        if made is None or given is None or made.null_count == given.null_count:
            return made
        return with_nulls(made, given)

    return project_part


def with_nulls(made: pa.Array, given: pa.Array) -> pa.Array:
    """`made` with the NULLs of `given`, and otherwise the same: its type bears the identities of the fields inside."""
    import pyarrow as pa
    import pyarrow.compute as pc

    valid = pc.and_(given.is_valid(), True).buffers()[1]
    offsets = pc.add(made.offsets, pa.scalar(0, made.offsets.type)).buffers()[1]
    inside = made.values
    if isinstance(made, pa.MapArray):
        inside = pa.StructArray.from_arrays([made.keys, made.items], fields=[made.type.key_field, made.type.item_field])
    return pa.Array.from_buffers(made.type, len(made), [valid, offsets], children=[inside])
