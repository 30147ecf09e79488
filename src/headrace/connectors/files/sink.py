"""Write each batch as files into a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headrace import contract
from headrace.checkpoint.relocation import rewrite
from headrace.connectors.options import no_length
from headrace.connectors.spark_files import aside
from headrace.connectors.spark_files import formats as file_form
from headrace.connectors.spark_files.aside import FilesRewind, local_directory
from headrace.connectors.spark_files.sink_log import CommittedFiles, FilesAdoption, FilesReset, FilesWriter
from headrace.errors import CheckpointError, Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class FileSink(contract.Sink):
    """Files below `path`; Spark's own log there (`_spark_metadata`) says which of them count.

    Source: Structured Streaming guide, "Output Sinks". Exactly once for readers that use Spark, which heed the log;
    others may see files of a batch that was broken off. `retention` (such as `30d`) lets Spark forget files older
    than that. The schema is kept next to the log, so that the result can be read back with its types.

    Values come back as they were: csv doubles quotes and writes NULL as nothing. What a format does not hold is refused
    by its type before the start, or by the value, and then ends the batch.
    """

    path: contract.ProjectPath
    format: Literal["text", "csv", "json", "parquet", "orc"] = "parquet"
    partition_by: Sequence[str] = ()
    retention: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> contract.SinkFacts:
        return contract.SinkFacts(
            modes=frozenset({"append"}),
            transactional=False,
            idempotent=True,
            adds_files=True,
            columns_by_name=self.format not in ("csv", "text"),
            layout_options=("format", "partition_by", "options"),
        )

    def problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        if not self.path or os.path.isfile(self.path):
            fault = f"path is {f'the file {self.path}' if self.path else 'empty'}, and the sink writes a directory"
            yield contract.OptionError(what=fault, fix="name a directory that is the sink's alone")
        yield from no_length("retention", self.retention, "30d or 12h", least_ms=0.001)
        yield from file_form.unknown_options(self.format, self.options)
        if problem := self._files.unreadable():
            yield problem
        yield from super().problems(mode)

    def open(self, frame: DataFrame, context: contract.SinkContext) -> FilesWriter:
        """Keep the schema; refuse a checkpoint whose batches Spark would skip as already written."""
        if findings := list(self.check_result(frame, context)):
            raise SinkError(findings)
        self._files.prepare(frame, context)
        options = {} if self.retention is None else {"retention": self.retention}
        return FilesWriter(files=self._files, partition_by=self.partition_by, options=options)

    @property
    def location(self) -> contract.SinkLocation:
        return contract.SinkLocation(name="", systems=(self.path,), shown=f"directory '{self.path}'")

    def identity(self) -> contract.Identity:
        return {"system": "files", "path": contract.canonical_path(self.path), "format": self.format}

    def check_result(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        yield from file_form.result_findings(frame, self.format, self.partition_by, context.query)

    def refused_values(self, frame: DataFrame) -> Iterator[contract.RefusedValue]:
        return self._files.refused_values(frame, self.partition_by)

    def check_connection(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        try:
            self._files.require_written(context)
        except (CheckpointError, SinkError) as error:
            yield from error.findings

    def read_back(self, spark: SparkSession, context: contract.SinkContext) -> contract.Snapshot:
        return self._files.snapshot(spark, context, self.partition_by)

    @property
    def ledger(self) -> FilesLedger:
        return FilesLedger(files=self._files)

    @property
    def reset(self) -> FilesReset:
        return FilesReset(find=lambda _: self._files, droppable=True)

    @property
    def rewind(self) -> FilesRewind:
        return FilesRewind(path=self.path)

    @property
    def adoption(self) -> FilesAdoption:
        return FilesAdoption(find=self._foreign, takes_over=True, tells_batches=True)

    @property
    def swap(self) -> FilesSwap | None:
        if not self._files.is_local or not Path(self.path).name:
            return None
        return FilesSwap(path=self.path, shadow=replace(self, path=str(aside.place_of_rebuild(Path(self.path)))))

    def _foreign(self, frame: DataFrame, context: contract.SinkContext) -> CommittedFiles:
        """The files that another program's stream has written. Raises SinkError where they do not fit."""
        if findings := list(self.check_result(frame, context)):
            raise SinkError(findings)
        self._files.require_written(context)
        aside.local_directory(self.path)
        return self._files

    @property
    def _files(self) -> CommittedFiles:
        return CommittedFiles(path=self.path, format=self.format, options=self.options)


@dataclass(frozen=True, kw_only=True)
class FilesLedger(contract.SinkLedger):
    """Which batches are in, by Spark's log of the files."""

    files: CommittedFiles

    def last_batch(self, context: contract.SinkContext) -> int | None:
        return self.files.last_batch


@dataclass(frozen=True, kw_only=True)
class FilesSwap(contract.SinkSwap):
    """The directory of a rebuild put in place, and taken back."""

    path: str

    def swap_in(self, context: contract.SinkContext, rebuilt: contract.SinkContext, session: contract.Session) -> None:
        directory = local_directory(self.path)
        new = aside.place_of_rebuild(directory)
        # Spark's log names each file by its whole path; what is not in place yet has no readers.
        for place in (new, directory):
            if place == new or aside.is_rebuilt(place, rebuilt):
                rewrite(place / "_spark_metadata", str(new), str(directory))
        aside.swap_in(directory, context, rebuilt)

    def swap_out(self, context: contract.SinkContext, rebuilt: contract.SinkContext, session: contract.Session) -> None:
        directory = local_directory(self.path)
        new = aside.place_of_rebuild(directory)
        aside.swap_out(directory, context, rebuilt)
        rewrite(new / "_spark_metadata", str(directory), str(new))
