"""Write each batch as files into a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.connectors.spark_files import formats as file_form
from headrace.connectors.spark_files.sink_log import CommittedFiles
from headrace.connectors.spark_files.writable import unwritable
from headrace.contract import OptionError, OutputMode, SinkContext, SinkFacts, SinkLocation, Snapshot
from headrace.errors import Finding, SinkError, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMATS = ("text", "csv", "json", "parquet", "orc")


@dataclass(frozen=True, kw_only=True)
class FileSink:
    """Files below `path`; Spark's own log there (`_spark_metadata`) says which of them count.

    Source: Structured Streaming guide, "Output Sinks". Exactly once for readers that use Spark, which heed the log;
    others may see files of a batch that was broken off. `retention` (such as `30d`) lets Spark forget files older
    than that. The schema is kept beside the log, so that the result can be read back with its types.

    Values come back as they were: csv doubles quotes and writes NULL as nothing. What a format does not hold is refused
    by its type before the start, or by the value, and then ends the batch.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset({"append"}), transactional=False, idempotent=True, readable_back=True
    )
    path: str = field(metadata={"path": True})
    format: Literal["text", "csv", "json", "parquet", "orc"] = "parquet"
    partition_by: Sequence[str] = ()
    retention: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        if self.format not in FORMATS:
            what = f"'{self.format}' is no format of the file sink"
            yield OptionError(code="HR401", what=what, fix=nearest(self.format, FORMATS))
        if not self.path or os.path.isfile(self.path):
            what = f"path is {f'the file {self.path}' if self.path else 'empty'}, and the sink writes a directory"
            yield OptionError(code="HR401", what=what, fix="name a directory that is the sink's alone")
        if mode not in self.facts.modes:
            yield OptionError(
                code="HR403",
                what=f"the file sink does not take {mode} mode: a file that is written cannot be changed",
                fix="use mode append, with a watermark if the query aggregates, or a database sink",
            )

    def prepare(self, frame: DataFrame, run: SinkContext) -> None:
        """Keep the schema; refuse a checkpoint whose batches Spark would skip as already written."""
        if found := list(self.incompatibilities(frame, run, connect=True)):
            raise SinkError(found)
        self._files.prepare(frame, run)

    @property
    def location(self) -> SinkLocation:
        return SinkLocation(name="", systems=(self.path,), shown=f"directory '{self.path}'")

    def incompatibilities(self, frame: DataFrame, run: SinkContext, *, connect: bool) -> Iterator[Finding]:
        missing = [name for name in self.partition_by if name not in frame.columns]
        if missing:
            what = f"partition_by names {', '.join(missing)}, which the result of query '{run.query}' does not have"
            yield Finding(code="HR404", what=what, fix=nearest(missing[0], frame.columns))
        yield from unwritable(frame, self.format, self.partition_by, run)
        yield from file_form.incompatibilities(self.format, frame.schema, self.partition_by, run.query)

    def shape(self, frame: DataFrame) -> DataFrame:
        """The same rows; one with a value that the format would change ends the batch."""
        return file_form.refusing(self.format, frame, self.partition_by)

    def write(self, writer: DataStreamWriter, run: SinkContext) -> DataStreamWriter:
        writer = self._files.write(writer, self.partition_by)
        return writer if self.retention is None else writer.option("retention", self.retention)

    def snapshot(self, spark: SparkSession, run: SinkContext) -> Snapshot:
        return self._files.snapshot(spark, run, self.partition_by)

    @property
    def _files(self) -> CommittedFiles:
        return CommittedFiles(path=self.path, format=self.format, options=self.options)
