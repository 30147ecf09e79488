"""Write each batch as files into a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.checkpoint.relocation import rewrite
from headrace.connectors.spark_files import aside, rewind
from headrace.connectors.spark_files import formats as file_form
from headrace.connectors.spark_files.sink_log import CommittedFiles, FilesWriter
from headrace.connectors.spark_files.writable import unwritable
from headrace.contract import (
    Held,
    Identity,
    KeptResult,
    OptionError,
    OutputMode,
    ProjectPath,
    Session,
    Sink,
    SinkContext,
    SinkFacts,
    SinkLocation,
    Snapshot,
    canonical_path,
)
from headrace.errors import Finding, SinkError, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("text", "csv", "json", "parquet", "orc")


@dataclass(frozen=True, kw_only=True)
class FileSink(Sink):
    """Files below `path`; Spark's own log there (`_spark_metadata`) says which of them count.

    Source: Structured Streaming guide, "Output Sinks". Exactly once for readers that use Spark, which heed the log;
    others may see files of a batch that was broken off. `retention` (such as `30d`) lets Spark forget files older
    than that. The schema is kept beside the log, so that the result can be read back with its types.

    Values come back as they were: csv doubles quotes and writes NULL as nothing. What a format does not hold is refused
    by its type before the start, or by the value, and then ends the batch.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset({"append"}), transactional=False, idempotent=True, adds_files=True
    )
    layout_options: ClassVar[tuple[str, ...]] = ("format", "partition_by", "options")
    path: ProjectPath
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
        if problem := self._files.unreadable():
            yield problem
        if mode not in self.facts.modes:
            yield OptionError(
                code="HR403",
                what=f"the file sink does not take {mode} mode: a file that is written cannot be changed",
                fix="use mode append, with a watermark if the query aggregates, or a database sink",
            )

    def open(self, frame: DataFrame, context: SinkContext) -> FilesWriter:
        """Keep the schema; refuse a checkpoint whose batches Spark would skip as already written."""
        if found := list(self.check_result(frame, context)):
            raise SinkError(found)
        self._files.prepare(frame, context)
        options = {} if self.retention is None else {"retention": self.retention}
        return FilesWriter(files=self._files, partition_by=self.partition_by, options=options)

    @property
    def columns_by_name(self) -> bool:
        return self.format not in ("csv", "text")

    @property
    def location(self) -> SinkLocation:
        return SinkLocation(name="", systems=(self.path,), shown=f"directory '{self.path}'")

    def identity(self) -> Identity:
        return {"system": "files", "path": canonical_path(self.path), "format": self.format}

    def check_result(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        missing = [name for name in self.partition_by if name not in frame.columns]
        if missing:
            what = f"partition_by names {', '.join(missing)}, which the result of query '{context.query}' does not have"
            yield Finding(code="HR404", what=what, fix=nearest(missing[0], frame.columns))
        yield from unwritable(frame, self.format, self.partition_by, context)
        yield from file_form.incompatibilities(self.format, frame.schema, self.partition_by, context.query)

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        return self._files.snapshot(spark, context, self.partition_by)

    def kept_result(self, mode: OutputMode) -> KeptResult:
        return aside.FILES_STAY

    def held(self, context: SinkContext, session: Session) -> Sequence[Held]:
        return aside.held(self._directory) if self._files.is_ours else ()

    def set_aside(self, context: SinkContext, session: Session) -> None:
        if self._files.is_ours:
            aside.set_aside(self._directory, context)

    def bring_back(self, context: SinkContext, session: Session) -> None:
        aside.bring_back(self._directory, context)

    def discard(self, context: SinkContext, session: Session) -> None:
        aside.discard(self._directory, context)

    def rewindable_result(self, mode: OutputMode) -> KeptResult:
        why = "" if self._files.is_local else f"'{self.path}' lies where a file cannot be moved in one step"
        return KeptResult(possible=not why, why=why)

    def earliest_batch(self, context: SinkContext, batch: int, session: Session) -> int | None:
        return rewind.WrittenFiles(self._directory).earliest(batch)

    def taken_back(self, context: SinkContext, batch: int, session: Session) -> Sequence[Held]:
        return rewind.taken_back(self._directory, batch)

    def rewind(self, context: SinkContext, batch: int, session: Session) -> None:
        rewind.rewind(self._directory, context, batch)

    def undo_rewind(self, context: SinkContext, batch: int, session: Session) -> None:
        rewind.undo(self._directory, context, batch)

    def forget_rewind(self, context: SinkContext, session: Session) -> None:
        rewind.forget(self._directory, context)

    def foreign_rows(self, frame: DataFrame, context: SinkContext) -> Sequence[Held]:
        if found := list(self.check_result(frame, context)):
            raise SinkError(found)
        self._files.require_written(context)
        return aside.held(self._directory)

    def foreign_batch(self, frame: DataFrame, context: SinkContext) -> int | None:
        last = self._files.last_batch
        return -1 if last is None else last

    def take_over(self, frame: DataFrame, context: SinkContext, batch: int | None) -> None:
        self._files.prepare(frame, context)

    @property
    def swappable(self) -> bool:
        return self._files.is_local

    def beside(self) -> FileSink:
        return replace(self, path=str(aside.beside(Path(self.path))))

    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        directory = self._directory
        new = aside.beside(directory)
        # Spark's log names each file by its whole path; what is not in place yet is read by nobody.
        for place in (new, directory):
            if place == new or aside.is_rebuilt(place, rebuilt):
                rewrite(place / "_spark_metadata", str(new), str(directory))
        aside.swap_in(directory, context, rebuilt)

    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        directory = self._directory
        new = aside.beside(directory)
        aside.swap_out(directory, context, rebuilt)
        rewrite(new / "_spark_metadata", str(directory), str(new))

    @property
    def _directory(self) -> Path:
        """The directory, which can be renamed. Raises SinkError."""
        aside.require_local(self.path)
        return Path(self.path).absolute()

    @property
    def _files(self) -> CommittedFiles:
        return CommittedFiles(path=self.path, format=self.format, options=self.options)
