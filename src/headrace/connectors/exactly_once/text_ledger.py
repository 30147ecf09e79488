"""A whole ledger as one text, for a store that keeps it with the rows and replaces it in the rows' transaction."""

from __future__ import annotations

import json
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.checkpoint import Checkpoint, PlannedBatch
from headrace.connectors.exactly_once.acceptance import KEPT, KeptLine, plans, require_lines_fit, require_own_generation
from headrace.connectors.exactly_once.batches import Admission, BatchStore, Standing
from headrace.connectors.exactly_once.lake import no_result
from headrace.contract import SinkContext, SinkLedger
from headrace.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_Ledger = TypeVar("_Ledger", bound="TextLedger")
Rows = TypeVar("Rows")
Connection = TypeVar("Connection")


@dataclass(frozen=True, kw_only=True)
class TextLedger:
    """The owner of a table, the driver that may write it, and the batches that are in.

    query, project: the names that the query and its project had at its last start.
    epoch: drawn again by each start. result: the schema, as Spark's JSON. lines: of the newest batches, oldest first.
    """

    query_id: str
    query: str
    generation: int
    application: str
    epoch: str
    result: str
    project: str = ""
    lines: tuple[KeptLine, ...] = ()

    @classmethod
    def loads(cls: type[_Ledger], text: str) -> _Ledger:
        """Return the ledger that `dumps` made the text of. Raises SinkError for one of version 0.1.0."""
        facts = json.loads(text)
        if "query_id" not in facts:  # That version knew a query by its name alone.
            fault = f"its ledger, of query '{facts.get('query')}', was written by version 0.1.0, whose form is not read"
            raise SinkError(
                code="HR407", what=fault, fix="write to another place; or drop this result, and start again"
            )
        return cls(**{**facts, "lines": tuple(KeptLine.from_dict(line) for line in facts["lines"])})

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def start(
        cls, text: str | None, context: SinkContext, table: str, result: str, *, kind: str = "table"
    ) -> TextLedger:
        """Return the ledger with the epoch of a new driver, after `text`; None: the table has none yet.

        Raises SinkError where the table holds the result of another owner, and CheckpointError where its batches are
        not those of the checkpoint.
        """
        former = None if text is None else cls.of(text, context, table, kind=kind)
        lines = () if former is None else former.lines
        require_lines_fit(context, table, lines, begun=former is not None, kind=kind)
        if former is not None and json.loads(former.result) != json.loads(result):
            fault = f"{kind} '{table}' was made for a result with other columns"
            raise SinkError(code="HR406", what=fault, fix=f"change the query back, or write to another {kind}")
        return cls.begin(context, result, lines)

    @classmethod
    def begin(cls: type[_Ledger], context: SinkContext, result: str, lines: tuple[KeptLine, ...] = ()) -> _Ledger:
        """Return the ledger of the context's generation, with a new epoch."""
        return cls(
            query_id=context.query_id,
            query=context.query,
            generation=context.generation,
            application=context.application,
            project=context.project,
            epoch=uuid.uuid4().hex,
            result=result,
            lines=lines,
        )

    @classmethod
    def of(cls, text: str | None, context: SinkContext, table: str, *, kind: str = "table") -> TextLedger:
        """Return the ledger of the context's query; raises SinkError where the table has none, or another owner's."""
        if text is None:
            raise no_result(f"{kind} '{table}'", context, kind=kind)
        ledger = cls.loads(text)
        if not ledger.is_of(context):
            if (ledger.query_id, ledger.application) == (context.query_id, context.application):
                require_own_generation(f"{kind} '{table}'", context, ledger.generation, kind=kind)
            fault = f"{kind} '{table}' holds the result of query '{ledger.query}', generation {ledger.generation}"
            fault += "" if ledger.application == context.application else ", of another project"
            raise SinkError(code="HR407", what=fault, fix=f"write to another {kind}, or drop this one")
        return ledger

    def is_of(self, context: SinkContext) -> bool:
        """Whether the table holds the batches of this generation of a query."""
        whose = (context.query_id, context.generation, context.application)
        return (self.query_id, self.generation, self.application) == whose

    @property
    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.result))

    @property
    def last(self) -> int | None:
        return self.lines[-1].batch if self.lines else None

    def standing(self, batch: int, epoch: str) -> Standing:
        """Return the state of a batch, for the driver that has drawn `epoch`."""
        return Standing(
            newer="" if epoch == self.epoch else f"epoch {self.epoch[:8]}, this one has {epoch[:8]}",
            is_in=self.last is not None and batch <= self.last,
            own=next((line for line in self.lines if line.batch == batch), None),
            before=next((line for line in reversed(self.lines) if line.batch < batch), None),
        )

    def kept_plan(self, batch: int) -> str | None:
        """Return the text to plan a batch again from."""
        return next((line.planned for line in self.lines if line.batch == batch), None)

    @property
    def checkpoint(self) -> str:
        """The id of the checkpoint that the newest batch came from."""
        return self.lines[-1].checkpoint if self.lines else ""

    def with_batch(self: _Ledger, line: KeptLine) -> _Ledger:
        """Return the ledger as it is after the batch of `line` has been written."""
        return replace(self, lines=(*self.lines, line)[-KEPT:])


class LinesLedger(SinkLedger):
    """Which batches are in, by the lines of the newest ones."""

    @abstractmethod
    def lines(self, context: SinkContext, most: int = KEPT) -> Sequence[KeptLine]:
        """Read the lines, oldest first, the newest `most` at least; none where the ledger cannot be seen."""

    def last_batch(self, context: SinkContext) -> int | None:
        lines = self.lines(context, 1)
        return lines[-1].batch if lines and lines[-1].checkpoint == Checkpoint(context.checkpoint).id else None

    def checkpoint_id(self, context: SinkContext) -> str | None:
        lines = self.lines(context, 1)
        return lines[-1].checkpoint if lines else None

    def read_plans(self, context: SinkContext, first: int) -> Mapping[int, PlannedBatch]:
        return plans(context, self.lines(context), first)


class TextStore(BatchStore[Rows], Generic[Rows, Connection]):
    """A table in a store with transactions, in which its rows and its ledger, one text, change together."""

    epoch: str

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Connection]:
        """Return a transaction: committed at the end, rolled back by an exception."""

    @abstractmethod
    def ledger(self, connection: Connection) -> str | None:
        """Return the text that the transaction sees; of two transactions that change it, one must fail."""

    @abstractmethod
    def enter(self, connection: Connection, text: str) -> None:
        """Replace the ledger's text."""

    @abstractmethod
    def write(self, connection: Connection, rows: Rows) -> None:
        """Write the rows of a batch, as the context's mode says."""

    def standing(self, batch: int) -> Standing:
        with self.transaction() as connection:
            return self._own_ledger(connection).standing(batch, self.epoch)

    def kept_plan(self, batch: int) -> str | None:
        with self.transaction() as connection:
            return self._own_ledger(connection).kept_plan(batch)

    def commit(self, rows: Rows, batch: int, admit: Admission) -> None:
        with self.transaction() as connection:
            ledger = self._own_ledger(connection)
            admitted = admit(ledger.standing(batch, self.epoch))
            if admitted is not None:
                self.write(connection, rows)
                self.enter(connection, ledger.with_batch(admitted.line).dumps())
                self.context.on_boundary("inside-transaction", batch)

    def _own_ledger(self, connection: Connection) -> TextLedger:
        return TextLedger.of(self.ledger(connection), self.context, self.name)
