"""Keep the result in the driver's memory, as a table that SQL can ask while the stream runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.checkpoint import Checkpoint
from headrace.contract import OptionError, OutputMode, Sink, SinkContext, SinkFacts, Snapshot, Writer
from headrace.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, kw_only=True)
class Memory(Sink):
    """Keep the result in a temporary view, named after the query and gone with the session.

    Source: Structured Streaming guide, "Output Sinks". Update mode is left out: Spark would append every update as a
    row of its own. In append mode Spark cannot resume from a checkpoint, because what was there before is gone.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset({"append", "complete"}),
        transactional=False,
        idempotent=False,
        durable=False,
        continuous=True,
    )

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        if mode not in self.facts.modes:
            yield OptionError(
                code="HR403",
                what=f"the memory sink does not take {mode} mode: every update would become a row of its own",
                fix="use mode complete",
            )

    def open(self, frame: DataFrame, context: SinkContext) -> MemoryWriter:
        """Refuse, as Spark would later and less clearly, to append to rows that are gone."""
        if context.mode == "append" and Checkpoint(context.checkpoint).last_batch is not None:
            fault = f"query '{context.query}' has run before, and the rows that its memory sink held are gone"
            fix = f"delete the checkpoint '{context.checkpoint}' to begin again, or use mode complete or a durable sink"
            raise SinkError(code="HR403", what=fault, fix=fix)
        return MemoryWriter(context.query)

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        if not spark.catalog.tableExists(context.query):
            fault = f"this session holds no table '{context.query}': a memory sink lives in the session that filled it"
            raise SinkError(code="HR402", what=fault, fix="read it in the session that runs the query")
        return Snapshot(rows=spark.table(f"`{context.query}`"), batch=None)


@dataclass(frozen=True)
class MemoryWriter(Writer):
    """Spark's own memory sink, whose table is named after the query."""

    query: str

    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        return stream_writer.format("memory").queryName(self.query)
