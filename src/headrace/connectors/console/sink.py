"""Print each batch on the driver's terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.contract import OUTPUT_MODES, OptionError, OutputMode, Sink, SinkContext, SinkFacts, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, kw_only=True)
class Console(Sink):
    """Print the first `num_rows` rows of every batch, cut after 20 characters if `truncate`.

    Source: Structured Streaming guide, "Output Sinks". A batch that is replayed is printed again.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset(OUTPUT_MODES),
        transactional=False,
        idempotent=False,
        durable=False,
        continuous=True,
        real_time=True,
    )
    num_rows: int = 20
    truncate: bool = True

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        if self.num_rows <= 0:
            yield OptionError(what=f"num_rows is {self.num_rows}", fix="give a number above 0")

    def open(self, frame: DataFrame, context: SinkContext) -> ConsoleWriter:
        return ConsoleWriter(self)


@dataclass(frozen=True)
class ConsoleWriter(Writer):
    """Spark's own console sink."""

    sink: Console

    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        options = {"numRows": self.sink.num_rows, "truncate": self.sink.truncate}
        return stream_writer.format("console").options(**options)
