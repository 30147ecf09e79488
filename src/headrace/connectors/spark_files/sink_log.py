"""A directory that Spark's file sink writes to: what its log there says, and the rows that count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import contract
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.directory import numbered_files
from headrace.connectors.spark_files import aside
from headrace.connectors.spark_files import formats as file_form
from headrace.errors import CheckpointError, SinkError, reason
from headrace.spark.jvm.hadoop_files import enter_empty
from headrace.storage.durable import replace_file, sync
from headrace.storage.location import is_known, place, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

SCHEMA_FILE = "_headrace_schema.json"
_FORM = "headraceForm"


@dataclass(frozen=True, kw_only=True)
class CommittedFiles:
    """The files below `path` that are in Spark's log; the schema is kept next to it, to read them with their types."""

    path: str
    format: str
    options: Mapping[str, str]
    form_if_new: int = file_form.EXACT

    @property
    def form(self) -> int:
        """The form of the files that are there; one directory keeps one form."""
        if not self.is_local or not self.is_prepared:
            return self.form_if_new
        return int(json.loads((Path(self.path) / SCHEMA_FILE).read_text())[_FORM])

    @property
    def read_options(self) -> dict[str, str]:
        return file_form.read_options(self.format, self.options, self.form)

    @property
    def write_options(self) -> dict[str, str]:
        return file_form.write_options(self.format, self.options, self.form)

    def refused_values(self, frame: DataFrame, partition_by: Sequence[str]) -> Iterator[contract.RefusedValue]:
        """The values of the result `frame` that these files would change."""
        return file_form.find_refused_values(self.format, frame, partition_by, self.write_options)

    @property
    def is_local(self) -> bool:
        """Whether the log can be read without Spark."""
        return "://" not in self.path

    @property
    def last_batch(self) -> int | None:
        """The last batch in Spark's log of this directory, in a store too."""
        return max(numbered_files(place(self.path) / "_spark_metadata"), default=None)

    @property
    def is_prepared(self) -> bool:
        """Whether a start has made this directory its own, so that files that are not in the log are leftovers."""
        return (Path(self.path) / SCHEMA_FILE).exists()

    @property
    def is_ours(self) -> bool:
        """Whether what is in this directory is the result of a stream."""
        return not self.is_local or self.is_prepared or self.last_batch is not None

    def unreadable(self) -> contract.OptionError | None:
        """Say why Headrace cannot know which batches lie in this directory; None where it can."""
        if is_known(self.path):
            return None
        return contract.OptionError(
            code="HR838",
            what=f"{self.path} is on {scheme_of(self.path)}://, where Headrace cannot read Spark's log of the files: "
            "of another checkpoint Spark would skip the batches as already written",
            fix="name a path on hdfs://HOST or s3a://BUCKET, a local one, or a Delta table",
        )

    def prepare(self, frame: DataFrame, context: contract.SinkContext) -> None:
        """Keep the schema, and enter the batches that no sink is given.

        Raises CheckpointError for a checkpoint whose batches Spark would skip as already written.
        """
        self.require_written(context)
        if self.is_local:
            self._keep_schema(json.dumps({**json.loads(frame.schema.json()), _FORM: self.form}))
        if context.empty_batches:
            _enter_empty(frame, f"{self.path}/_spark_metadata", sorted(context.empty_batches))

    def require_written(self, context: contract.SinkContext) -> None:
        """Raise CheckpointError where Spark's log here and the checkpoint hold different batches.

        Raises SinkError where the log cannot be read.
        """
        if problem := self.unreadable():
            raise SinkError(code=problem.code, what=problem.what, fix=problem.fix)
        # A driver may run meanwhile, which enters a batch here before it commits it, and after it has planned it.
        committed = set(Checkpoint(context.checkpoint).commit_numbers())
        written = self.last_batch
        planned = Checkpoint(context.checkpoint).last_batch
        if written is not None and written > (-1 if planned is None else planned):
            reached = "none" if planned is None else planned
            raise CheckpointError(
                code="HR410",
                what=f"the files in '{self.path}' go up to batch {written}, the checkpoint of query '{context.query}' "
                f"only to {reached}: Spark would skip the batches between as already written",
                fix=f"restore the checkpoint '{context.checkpoint}', or write to an empty directory",
            )
        # Spark enters each batch that it gives to the sink, one without rows too, before it commits it.
        last = max(committed - set(context.empty_batches), default=None)
        if last is not None and (written is None or written < last):
            present = "no batch" if written is None else f"the batches up to {written}"
            raise CheckpointError(
                code="HR410",
                what=f"the checkpoint of query '{context.query}' has committed batch {last}, and '{self.path}' holds "
                f"{present}: what was written elsewhere, or is lost, would be missing",
                fix="name the former directory or table again, or restore its files and their _spark_metadata; or "
                "reset the query (headrace reset QUERY)",
            )

    def snapshot(
        self, spark: SparkSession, context: contract.SinkContext, partition_by: Sequence[str]
    ) -> contract.Snapshot:
        """The files that Spark's log names; read again if a batch was added meanwhile."""
        from pyspark.sql.types import StructType

        reader = spark.read.format(self.format).options(**self.read_options)
        if not self.is_local:
            return contract.Snapshot(rows=reader.load(self.path), batch=None)
        while True:
            batch = self.last_batch
            if batch is None:
                self.require_written(context)
                fault = f"nothing has been written to '{self.path}' yet"
                raise SinkError(code="HR402", what=fault, fix=f"run query '{context.query}' first")
            schema = StructType.fromJson(json.loads((Path(self.path) / SCHEMA_FILE).read_text()))
            # Below a log Spark counts a file's columns by the whole schema: those of the directories must come last.
            ordered = sorted(nullable(schema).fields, key=lambda part: part.name in partition_by)
            rows = reader.schema(StructType(ordered)).load(self.path).select(*[f"`{name}`" for name in schema.names])
            if self.last_batch == batch:
                return contract.Snapshot(rows=rows, batch=batch)

    def _keep_schema(self, schema: str) -> None:
        home = Path(self.path)
        try:
            home.mkdir(parents=True, exist_ok=True)
            replace_file(home / SCHEMA_FILE, schema)
        except OSError as error:
            fault = f"'{self.path}' cannot be written: {reason(error)}"
            raise SinkError(code="HR425", what=fault, fix="make the directory writable") from error


@dataclass(frozen=True, kw_only=True)
class FilesWriter(contract.Writer):
    """Spark's own file sink, writing below the directory of `files`, with `options` of the writer's own."""

    files: CommittedFiles
    partition_by: Sequence[str]
    options: Mapping[str, str] = field(default_factory=dict)

    def serialize(self, frame: DataFrame) -> DataFrame:
        """Make a row with a value that the format would change end its batch."""
        return file_form.refuse_values(frame, self.files.refused_values(frame, self.partition_by))

    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        files = self.files
        options = {**files.write_options, **self.options}
        writer = stream_writer.format(files.format).options(**options).option("path", files.path)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer


@dataclass(frozen=True, kw_only=True)
class FilesReset(contract.SinkReset):
    """The directory of the files that `find` gives renamed out of the way, and back."""

    find: Callable[[contract.Session], CommittedFiles]

    def directory(self, session: contract.Session) -> Path:
        """Return the directory of the files. Raises SinkError where it cannot be renamed."""
        return aside.local_directory(self.find(session).path)

    def judge_keeping(self, mode: contract.OutputMode) -> contract.KeptResult:
        why = "Spark's log of its files would take the new batches for those that are written, and skip them"
        return contract.KeptResult(possible=False, why=why)

    def row_counts(self, context: contract.SinkContext, session: contract.Session) -> Sequence[contract.Held]:
        return aside.count_files(self.directory(session)) if self.find(session).is_ours else ()

    def archive(self, context: contract.SinkContext, session: contract.Session) -> None:
        if self.find(session).is_ours:
            aside.set_aside(self.directory(session), context)

    def restore(self, context: contract.SinkContext, session: contract.Session) -> None:
        aside.bring_back(self.directory(session), context)

    def discard(self, context: contract.SinkContext, session: contract.Session) -> None:
        aside.discard(self.directory(session), context)


@dataclass(frozen=True, kw_only=True)
class FilesAdoption(contract.SinkAdoption):
    """Files that another program's stream has written; `find` gives them, and raises where they do not fit."""

    find: Callable[[DataFrame, contract.SinkContext], CommittedFiles]

    def foreign_rows(self, frame: DataFrame, context: contract.SinkContext) -> Sequence[contract.Held]:
        return aside.count_files(Path(self.find(frame, context).path))

    def foreign_batch(self, frame: DataFrame, context: contract.SinkContext) -> int | None:
        last = self.find(frame, context).last_batch
        return -1 if last is None else last

    def take_over(self, frame: DataFrame, context: contract.SinkContext, batch: int | None) -> None:
        self.find(frame, context).prepare(frame, context)


def nullable(schema: StructType) -> StructType:
    """`schema` with every column allowed to be NULL, as files are read."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(part.name, part.dataType, True) for part in schema.fields])


def _enter_empty(frame: DataFrame, log: str, batches: Sequence[int]) -> None:
    """Enter batches without files into Spark's log, which may have no gaps when it is compacted."""
    for batch in enter_empty(frame.sparkSession, log, batches):
        for file in Path(log).glob(f"{batch}*"):
            sync(file)
            sync(file.parent)
