"""Keep the result in the driver's memory, as a table that SQL can ask while the stream runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.contract import OptionError, OutputMode, SinkContext, SinkFacts, Snapshot
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A temporary view named after the query, gone with the session.

    Source: Structured Streaming guide, "Output Sinks". Update mode is left out: Spark would append every update as a
    row of its own. In append mode Spark cannot go on from a checkpoint, because what was there before is gone.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset({"append", "complete"}),
        transactional=False,
        idempotent=False,
        readable_back=True,
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

    def prepare(self, frame: DataFrame, run: SinkContext) -> None:
        """Refuse, as Spark would later and less clearly, to append to rows that are gone."""
        if run.mode == "append" and any(run.checkpoint.glob("offsets/[0-9]*")):
            what = f"query '{run.query}' has run before, and the rows that its memory sink held are gone"
            fix = f"delete the checkpoint '{run.checkpoint}' to begin again, or use mode complete or a durable sink"
            raise SinkError(Finding(code="HR403", what=what, fix=fix))

    def write(self, writer: DataStreamWriter, run: SinkContext) -> DataStreamWriter:
        return writer.format("memory").queryName(run.query)

    def snapshot(self, spark: SparkSession, run: SinkContext) -> Snapshot:
        if not spark.catalog.tableExists(run.query):
            what = f"this session holds no table '{run.query}': a memory sink lives in the session that filled it"
            raise SinkError(Finding(code="HR402", what=what, fix="read it in the session that runs the query"))
        return Snapshot(rows=spark.table(f"`{run.query}`"), batch=None)
