"""Print each batch on the driver's terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.contract import OUTPUT_MODES, OptionError, OutputMode, SinkContext, SinkFacts, Snapshot
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, kw_only=True)
class Console:
    """The first `num_rows` rows of every batch, cut after 20 characters if `truncate`.

    Source: Structured Streaming guide, "Output Sinks". A batch that is replayed is printed again.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset(OUTPUT_MODES),
        transactional=False,
        idempotent=False,
        readable_back=False,
        durable=False,
        continuous=True,
        real_time=True,
    )
    num_rows: int = 20
    truncate: bool = True

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        if self.num_rows <= 0:
            yield OptionError(code="HR401", what=f"num_rows is {self.num_rows}", fix="give a number above 0")

    def prepare(self, frame: DataFrame, run: SinkContext) -> None:
        """Nothing has to be ready."""

    def write(self, writer: DataStreamWriter, run: SinkContext) -> DataStreamWriter:
        return writer.format("console").option("numRows", self.num_rows).option("truncate", self.truncate)

    def snapshot(self, spark: SparkSession, run: SinkContext) -> Snapshot:
        what = "what the console sink printed cannot be read back"
        raise SinkError(
            Finding(code="HR402", what=what, fix="use a sink that can be read back, such as files or sqlite")
        )
