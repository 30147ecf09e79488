"""Write each batch as files into a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.contract import OutputMode, Problem, SinkFacts, SinkRun, Snapshot
from headrace.errors import CheckpointFault, Finding, SinkFault, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

FORMATS = ("text", "csv", "json", "parquet", "orc")
SCHEMA_FILE = "_headrace_schema.json"
# Spark writes milliseconds by default, and would drop the microseconds of a timestamp without a word.
_WHOLE_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True, kw_only=True)
class FileSink:
    """Files below `path`; Spark's own log there (`_spark_metadata`) says which of them count.

    Source: Structured Streaming guide, "Output Sinks". Exactly once for readers that use Spark, which heed the log;
    others may see files of a batch that was broken off. `retention` (such as `30d`) lets Spark forget files older
    than that. The schema is kept beside the log, so that the result can be read back with its types.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset({"append"}), transactional=False, idempotent=True, readable_back=True
    )
    path: str = field(metadata={"path": True})
    format: Literal["text", "csv", "json", "parquet", "orc"] = "parquet"
    partition_by: Sequence[str] = ()
    retention: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def problems(self, mode: OutputMode) -> Iterator[Problem]:
        if self.format not in FORMATS:
            what = f"'{self.format}' is no format of the file sink"
            yield Problem(code="HR401", what=what, fix=nearest(self.format, FORMATS))
        if mode not in self.facts.modes:
            yield Problem(
                code="HR403",
                what=f"the file sink does not take {mode} mode: a file that is written cannot be changed",
                fix="use mode append, with a watermark if the query aggregates, or a database sink",
            )

    def prepare(self, frame: DataFrame, run: SinkRun) -> None:
        """Keep the schema; refuse a checkpoint whose batches Spark would skip as already written."""
        missing = [name for name in self.partition_by if name not in frame.columns]
        if missing:
            what = f"partition_by names {', '.join(missing)}, which the result of query '{run.query}' does not have"
            raise SinkFault(Finding(code="HR404", what=what, fix=nearest(missing[0], frame.columns)))
        written = self._last_batch()
        started = max((int(file.name) for file in run.checkpoint.glob("offsets/[0-9]*")), default=-1)
        if written is not None and written > started:
            what = (
                f"the files in '{self.path}' go up to batch {written}, the checkpoint of query '{run.query}' only to "
                f"{started if started >= 0 else 'none'}: Spark would skip the batches between as already written"
            )
            fix = f"restore the checkpoint '{run.checkpoint}', or write to an empty directory"
            raise CheckpointFault(Finding(code="HR410", what=what, fix=fix))
        if self._is_local:
            self._keep_schema(frame.schema.json())
        if run.unseen:
            _enter_empty(frame, f"{self.path}/_spark_metadata", sorted(run.unseen))

    def write(self, writer: DataStreamWriter, run: SinkRun) -> DataStreamWriter:
        writer = writer.format(self.format).options(**self._options()).option("path", self.path)
        if self.retention is not None:
            writer = writer.option("retention", self.retention)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def snapshot(self, spark: SparkSession, run: SinkRun) -> Snapshot:
        """The files that Spark's log names; read again if a batch was added meanwhile."""
        from pyspark.sql.types import StructType

        reader = spark.read.format(self.format).options(**self._options())
        if not self._is_local:
            return Snapshot(rows=reader.load(self.path), batch=None)
        while True:
            batch = self._last_batch()
            if batch is None:
                what = f"nothing has been written to '{self.path}' yet"
                raise SinkFault(Finding(code="HR402", what=what, fix=f"run query '{run.query}' first"))
            schema = StructType.fromJson(json.loads((Path(self.path) / SCHEMA_FILE).read_text()))
            rows = reader.schema(_nullable(schema)).load(self.path).select(*[f"`{name}`" for name in schema.names])
            if self._last_batch() == batch:
                return Snapshot(rows=rows, batch=batch)

    def _options(self) -> dict[str, str]:
        return {**(_WHOLE_TIMES if self.format in ("csv", "json") else {}), **self.options}

    @property
    def _is_local(self) -> bool:
        return "://" not in self.path

    def _last_batch(self) -> int | None:
        """The last batch in Spark's log of this directory."""
        names = (file.name.removesuffix(".compact") for file in Path(self.path).glob("_spark_metadata/[0-9]*"))
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _keep_schema(self, schema: str) -> None:
        home = Path(self.path)
        try:
            home.mkdir(parents=True, exist_ok=True)
            unfinished = home / f"{SCHEMA_FILE}.new"
            unfinished.write_text(schema)
            os.replace(unfinished, home / SCHEMA_FILE)
        except OSError as fault:
            what = f"'{self.path}' cannot be written: {fault.strerror}"
            raise SinkFault(Finding(code="HR405", what=what, fix="make the directory writable")) from fault


def _enter_empty(frame: DataFrame, log: str, batches: Sequence[int]) -> None:
    """Enter batches without files into Spark's log, which may have no gaps when it is compacted."""
    jvm, gateway = frame.sparkSession._jvm, frame.sparkSession.sparkContext._gateway
    assert jvm is not None, "a streaming session has a JVM"
    assert gateway is not None, "a streaming session has a gateway"
    sinks = jvm.org.apache.spark.sql.execution.streaming.sinks
    none = getattr(jvm, "scala.Option").apply(None)
    written = sinks.FileStreamSinkLog(1, frame.sparkSession._jsparkSession, log, none)
    for batch in batches:
        last = written.getLatestBatchId()
        if last.isDefined() and last.get() < batch:
            written.add(batch, gateway.new_array(sinks.SinkFileStatus, 0))


def _nullable(schema: StructType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(part.name, part.dataType, True) for part in schema.fields])
