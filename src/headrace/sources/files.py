"""Read a directory of files as they land, oldest first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from headrace.contract import Backlog, Problem, SourceFacts, SourcePrefix, bad_rows_metric
from headrace.errors import Finding, SourceFault
from headrace.sources import file_check, file_options, file_paths, file_prefix, file_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
CORRUPT_RECORD = "_headrace_corrupt_record"


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files in one directory, or in those that match a glob; each is read once, and never half in one batch.

    Source: Structured Streaming guide, "Input Sources". `schema` is a DDL text; `infer_schema` asks Spark to guess it
    at each start. Key=value directories become columns if the schema names them. Raises SourceFault if the directory
    does not exist at start.

    Without a rate limit of the user's a batch takes at most 256 MiB of files (and always one file), because a backlog
    must not become one oversized batch; `max_bytes_per_trigger: unlimited` switches that off.

    on_bad_row: `fail` stops the query at the first csv or json row that breaks the schema in a column that the query
        reads; `quarantine` sets aside every row that breaks the schema in any column.
    clean_source: Spark removes or moves only files of committed batches, so that a batch can always be replayed;
        after `delete` a committed prefix can no longer be read, after `archive` it is read from the archive.
    """

    path: str = field(metadata={"path": True})
    format: Literal["text", "csv", "json", "parquet", "orc"]
    schema: str | None = None
    infer_schema: bool = False
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | str | None = None
    latest_first: bool = False
    max_file_age: str | None = None
    file_name_only: bool = False
    clean_source: Literal["off", "archive", "delete"] = "off"
    source_archive_dir: str | None = field(default=None, metadata={"path": True})
    on_bad_row: Literal["fail", "quarantine"] = "fail"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(
            replayable=True,
            readable_as_batch=self.clean_source != "delete",
            rate_limited=True,
            quarantines=self.on_bad_row == "quarantine",
        )

    def problems(self) -> Iterator[Problem]:
        return file_options.problems(self)

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        self._require_directory()
        reader = spark.readStream.name(name).format(self.format).options(**self._reader_options())
        reader = reader.options(**self._stream_options())
        schema = self._schema(spark)
        file_check.look_at_batches(spark)
        reader = reader.option(file_check.OPTION, json.dumps(self._required(schema)))
        frame = self._declared((reader if schema is None else reader.schema(schema)).load(self.path), schema)
        if self.on_bad_row == "quarantine":
            return self._set_aside(frame, bad_rows_metric(name))
        return file_rows.refuse(frame, self._faults(frame))

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        frame = self._read(spark, prefix, batch_column=batch_column)
        if self.on_bad_row == "quarantine":
            frame = self._set_aside(frame, _unheard(), besides=(batch_column,))
        return frame

    def bad_rows(self, spark: SparkSession, prefix: SourcePrefix) -> DataFrame | None:
        """The rows that were set aside, each with its file and batch."""
        from pyspark.sql import functions as F

        if self.on_bad_row != "quarantine":
            return None
        frame = self._read(spark, prefix, batch_column="batch", file_column="file")
        besides = ("batch", "file")
        judged = frame.observe(_unheard(), *self._counts(frame, besides))
        columns = F.struct(*[F.col(f"`{name}`") for name in frame.columns if name not in (CORRUPT_RECORD, *besides)])
        record = F.coalesce(F.col(CORRUPT_RECORD), F.to_json(columns))
        return judged.where(self._is_bad(frame)).select("file", record.alias("record"), "batch")

    def require(self, prefix: SourcePrefix) -> None:
        file_prefix.places(file_prefix.files(prefix), self.path, self.source_archive_dir)

    def backlog(self, prefix: SourcePrefix) -> Backlog | None:
        """The files of a local directory that no batch has taken and that Spark does not hold for too old."""
        if not file_paths.is_local(self.path):
            return None
        entries = list(file_prefix.entries(prefix))
        taken = {self._identity(file_paths.from_log(entry.path)) for entry in entries}
        oldest_ms = max((entry.timestamp for entry in entries), default=0.0) - self._age_limit_ms()
        count = size = 0
        for found in file_paths.listing(file_paths.local(self.path)):
            if self._identity(found.path) in taken:
                continue
            try:
                status = found.stat()
            except FileNotFoundError:
                continue
            if status.st_mtime * 1000 >= oldest_ms:
                count, size = count + 1, size + status.st_size
        return Backlog(count=count, unit="files", bytes=size)

    def limits(self) -> dict[str, str]:
        """Spark's option for the rate limit, the user's or ours; empty where there is none."""
        if self.max_files_per_trigger is not None:
            return {"maxFilesPerTrigger": str(self.max_files_per_trigger)}
        if self.max_bytes_per_trigger == file_options.UNLIMITED:
            return {}
        given = self.max_bytes_per_trigger
        return {"maxBytesPerTrigger": str(DEFAULT_MAX_BYTES if given is None else file_options.size(given))}

    def _stream_options(self) -> dict[str, str]:
        chosen = {
            **self.limits(),
            "latestFirst": str(self.latest_first).lower(),
            "fileNameOnly": str(self.file_name_only).lower(),
            "cleanSource": self.clean_source,
        }
        if self.max_file_age is not None:
            chosen["maxFileAge"] = self.max_file_age
        if file_paths.is_glob(self.path):
            # Spark fails over key=value directories below a pattern unless it is told where they begin.
            chosen["basePath"] = file_paths.base(self.path)
        if self.source_archive_dir is not None:
            chosen["sourceArchiveDir"] = self.source_archive_dir
        return chosen

    def _reader_options(self) -> dict[str, str]:
        chosen: dict[str, str] = {}
        if self.format == "csv":
            # By default Spark takes columns by position and only logs a header that says otherwise.
            chosen["enforceSchema"] = "false"
        if self.format in file_options.ROW_FORMATS:
            chosen["mode"] = "FAILFAST" if self.on_bad_row == "fail" else "PERMISSIVE"
        if self.on_bad_row == "quarantine":
            chosen["columnNameOfCorruptRecord"] = CORRUPT_RECORD
        return {**chosen, **self.options}

    def _schema(self, spark: SparkSession) -> StructType | None:
        """The schema for Spark's reader; None lets a text file be one column."""
        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StringType, StructType

        if self.schema is not None:
            schema = cast(StructType, StructType.fromDDL(self.schema))
        elif self.infer_schema:
            reader = spark.read.format(self.format).options(**self.options).option("inferSchema", "true")
            try:
                schema = reader.load(self.path).schema
            except AnalysisException as fault:
                what = f"no schema can be inferred from '{self.path}': {fault.getCondition()}"
                fix = "put a file there first, or give schema: 'name TYPE, ...'"
                raise SourceFault(Finding(code="HR317", what=what, fix=fix)) from fault
        else:
            return None
        return schema.add(CORRUPT_RECORD, StringType()) if self.on_bad_row == "quarantine" else schema

    def _read(
        self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None, file_column: str | None = None
    ) -> DataFrame:
        taken = file_prefix.files(prefix)
        reader = spark.read.format(self.format).options(**self._reader_options())
        if (schema := self._schema(spark)) is not None:
            reader = reader.schema(schema)
        if not taken:
            # Only the stream's reader gives a schema, with its key=value columns, without any file.
            stream = spark.readStream.name("nothing").format(self.format).options(**self._reader_options())
            shape = self._declared((stream if schema is None else stream.schema(schema)).load(self.path), schema).schema
            return file_prefix.nothing(spark, shape, batch_column, file_column)
        places = file_prefix.places(taken, self.path, self.source_archive_dir)
        besides = tuple(name for name in (batch_column, file_column) if name is not None)
        return self._declared(file_prefix.frame(spark, reader, places, batch_column, file_column), schema, besides)

    def _declared(self, frame: DataFrame, schema: StructType | None, besides: tuple[str, ...] = ()) -> DataFrame:
        """The declared columns in their order: Spark puts those of key=value directories last, undeclared ones too."""
        names = list(frame.columns) if schema is None else [*schema.names, *besides]
        return frame if frame.columns == names else frame.select(*[f"`{name}`" for name in names])

    def _required(self, schema: StructType | None) -> list[str]:
        """The columns that are declared NOT NULL, which Spark's readers do not heed."""
        return [] if schema is None else [field.name for field in schema.fields if not field.nullable]

    def _faults(self, frame: DataFrame) -> dict[str, list[file_rows.Fault]]:
        from pyspark.sql.types import StructType

        required = [] if self.schema is None else self._required(cast(StructType, StructType.fromDDL(self.schema)))
        return file_rows.faults(frame, self.format, required, self.options)

    def _is_bad(self, frame: DataFrame) -> Column:
        from pyspark.sql import functions as F

        return F.col(CORRUPT_RECORD).isNotNull() | file_rows.any_of(self._faults(frame.drop(CORRUPT_RECORD)))

    def _set_aside(self, frame: DataFrame, metric: str, besides: tuple[str | None, ...] = ()) -> DataFrame:
        """Count the rows that break the schema, and let the others pass."""
        counted = frame.observe(metric, *self._counts(frame, besides))
        return counted.where(~self._is_bad(frame)).drop(CORRUPT_RECORD)

    def _counts(self, frame: DataFrame, besides: tuple[str | None, ...] = ()) -> tuple[Column, Column]:
        """How many rows break the schema, and of how many no column could be read.

        The second names every column; Spark's reader would otherwise judge a row by the columns in use only.
        """
        from pyspark.sql import functions as F

        bad, unreadable = self._is_bad(frame), F.col(CORRUPT_RECORD).isNotNull()
        for name in frame.columns:
            if name not in (CORRUPT_RECORD, *besides):
                unreadable = unreadable & F.col(f"`{name}`").isNull()
        return F.count_if(bad).alias("rows"), F.count_if(unreadable).alias("unreadable")

    def _require_directory(self) -> None:
        if not file_paths.is_local(self.path) or file_paths.is_glob(self.path):
            return
        place = file_paths.local(self.path)
        if not os.path.isdir(place):
            what = "is not a directory" if os.path.exists(place) else "does not exist"
            fix = "create it, or correct the path; files are read as they land in it"
            raise SourceFault(Finding(code="HR316", what=f"'{place}', where files should land, {what}", fix=fix))

    def _identity(self, path: str) -> str:
        return os.path.basename(path) if self.file_name_only else os.path.normpath(path)

    def _age_limit_ms(self) -> float:
        if self.latest_first and self.limits():
            return float("inf")
        return file_options.age_ms(self.max_file_age or "7d") or 0.0


def _unheard() -> str:
    """A name for a metric that nobody listens to; it must differ from every other in the same plan."""
    from uuid import uuid4

    return f"headrace_read_{uuid4().hex}"
