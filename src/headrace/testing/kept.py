"""A sink that keeps a query's result in the process of a test, each batch with its line of the ledger or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.connectors.exactly_once import BatchWriter, TextLedger, TextStore
from headrace.contract import OUTPUT_MODES, Sink, SinkContext, SinkFacts, Snapshot
from headrace.testing.rows import ResultRows, local_rows, without_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass
class _Content:
    """The rows by their key, or by their number where there is none, and the ledger."""

    rows: dict[str, Sequence[Any]] = field(default_factory=dict)
    ledger: str | None = None


@dataclass(kw_only=True)
class Place:
    """What outlives the drivers of a test: the committed content, and the columns."""

    content: _Content = field(default_factory=_Content)
    schema: StructType | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept(Sink):
    """A table in memory; in update mode a row replaces the one of its `key`, and without a key it is added."""

    facts: ClassVar[SinkFacts] = SinkFacts(modes=frozenset(OUTPUT_MODES), transactional=True, idempotent=True)
    key: tuple[str, ...] = ()
    place: Place = field(default_factory=Place)

    def open(self, frame: DataFrame, context: SinkContext) -> BatchWriter[list[tuple[Any, ...]]]:
        store = _Store(self, context, frame.columns)
        with store.transaction() as content:
            ledger = TextLedger.start(content.ledger, context, store.name, frame.schema.json())
            context.before_entering()
            content.ledger = ledger.dumps()
        store.epoch, self.place.schema = ledger.epoch, frame.schema
        return BatchWriter(store=store)

    def rows(self) -> ResultRows:
        """Return the committed rows."""
        from pyspark.sql.types import StructType

        return ResultRows(self.place.content.rows.values(), self.place.schema or StructType(), self.key)

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        from pyspark.sql import functions as F

        content, schema = self.place.content, self.place.schema
        assert schema is not None, "it was opened"
        bare: Any = without_zone(schema)
        rows = spark.createDataFrame([tuple(row) for row in content.rows.values()], bare)
        typed = rows.select(*[F.col(f"`{column.name}`").cast(column.dataType).alias(column.name) for column in schema])
        ledger = TextLedger.of(content.ledger, context, _Store.name)
        return Snapshot(rows=typed, batch=ledger.last, key=self.key)


class _Store(TextStore["list[tuple[Any, ...]]", _Content]):
    """The table as one driver writes it."""

    name = "result"

    def __init__(self, sink: Kept, context: SinkContext, columns: Sequence[str]) -> None:
        self.context = context
        self._place = sink.place
        self._by = [columns.index(name) for name in sink.key] if context.mode == "update" else []

    @contextmanager
    def transaction(self) -> Iterator[_Content]:
        draft = copy(self._place.content)
        draft.rows = dict(draft.rows)
        yield draft
        self._place.content = draft

    def ledger(self, connection: _Content) -> str | None:
        return connection.ledger

    def enter(self, connection: _Content, text: str) -> None:
        connection.ledger = text

    def compute(self, frame: DataFrame, batch: int) -> list[tuple[Any, ...]]:
        with self.computing(batch):
            return local_rows(frame)

    def write(self, connection: _Content, rows: list[tuple[Any, ...]]) -> None:
        if self.context.mode == "complete":
            connection.rows.clear()
        for row in rows:
            identity = repr([row[at] for at in self._by]) if self._by else str(len(connection.rows))
            connection.rows[identity] = row
