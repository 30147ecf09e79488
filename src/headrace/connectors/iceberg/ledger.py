"""The ledger of an Iceberg table: one of its properties, which changes in the commit that brings the rows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.connectors.exactly_once import Conflict, KeptLine, TextLedger, plans, require_own_generation
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import SinkContext, SinkLedger
from headrace.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import UpdateSnapshot

PROPERTY = "headrace.ledger"


@dataclass(frozen=True, kw_only=True)
class TableLedger(TextLedger):
    """Whose table it is, which driver may write, and what is in; `project`: the name of that with the query."""

    project: str = ""

    @classmethod
    def of_table(cls, table: Table, context: SinkContext | None = None) -> TableLedger | None:
        """The ledger of `table`; None where no query has written it, or another one than the context's generation."""
        text = table.metadata.properties.get(PROPERTY)
        ledger = None if text is None else cls.loads(text)
        return ledger if context is None or (ledger is not None and ledger.is_of(context)) else None

    @classmethod
    def loads(cls, text: str) -> TableLedger:
        facts = json.loads(text)
        batch, checkpoint = facts.pop("batch"), facts.pop("checkpoint")
        facts["result"] = facts.pop("spark_schema")
        lines = tuple(KeptLine.from_dict(line) for line in facts["lines"])
        if not lines and batch >= 0:
            # Of a table that was taken over: which batch is in is known, and no more of it.
            lines = (KeptLine(batch=batch, checkpoint=checkpoint),)
        return cls(**{**facts, "lines": lines})

    def dumps(self) -> str:
        facts = asdict(self)
        facts["spark_schema"] = facts.pop("result")
        return json.dumps({**facts, "batch": self.batch, "checkpoint": self.checkpoint})

    @classmethod
    def begin(cls, context: SinkContext, result: str, lines: tuple[KeptLine, ...] = ()) -> TableLedger:
        """The ledger of the context's generation, with a new epoch."""
        return cls(
            query=context.query,
            generation=context.generation,
            application=context.application,
            project=context.project,
            epoch=uuid.uuid4().hex,
            result=result,
            lines=lines,
        )

    @property
    def batch(self) -> int:
        """The newest batch that is in; -1: none."""
        return self.lines[-1].batch if self.lines else -1

    @property
    def checkpoint(self) -> str:
        """The id of the checkpoint that it came from."""
        return self.lines[-1].checkpoint if self.lines else ""

    def is_of(self, context: SinkContext) -> bool:
        """Whether the table holds the batches of this generation of a query."""
        whose = (context.query, context.generation, context.application)
        return (self.query, self.generation, self.application) == whose

    def with_batch(self, line: KeptLine) -> TableLedger:
        return replace(self, lines=super().with_batch(line).lines)

    def fenced(self) -> TableLedger:
        """The same with a new epoch, so that an older driver writes nothing more."""
        return replace(self, epoch=uuid.uuid4().hex)


@dataclass(frozen=True, kw_only=True)
class IcebergLedger(SinkLedger):
    """Which batches are in, by the table's ledger; none where the catalog does not answer."""

    place: TableRef

    def last_batch(self, context: SinkContext) -> int | None:
        own = self._own(context)
        return own.last if own is not None and own.checkpoint == Checkpoint(context.checkpoint).id else None

    def checkpoint_id(self, context: SinkContext) -> str | None:
        own = self._own(context)
        return None if own is None else own.checkpoint

    def planned(self, context: SinkContext, first: int) -> Mapping[int, str]:
        own = self._own(context)
        return {} if own is None else plans(context, own.lines, first)

    def _own(self, context: SinkContext) -> TableLedger | None:
        with suppress(SinkError), self.place.translate_errors():
            table = self.place.find()
            return None if table is None else TableLedger.of_table(table, context)
        return None


def own_table(place: TableRef, context: SinkContext) -> tuple[Table, TableLedger] | None:
    """The table with its ledger; None where it is not there, or not of the context's generation."""
    table = place.find()
    ledger = None if table is None else TableLedger.of_table(table, context)
    return None if table is None or ledger is None else (table, ledger)


@contextmanager
def committing(
    table: Table,
    ledger: TableLedger,
    further: Mapping[str, str] | None = None,
    *,
    properties: Mapping[str, str] | None = None,
) -> Iterator[UpdateSnapshot]:
    """What adds a snapshot to the table as `table` knows it, in one commit with the ledger and `further` properties.

    properties: what the snapshot says of itself besides. Raises Conflict where another snapshot has come in between.

    Every change of the ledger is a snapshot, if need be an empty one: the catalog takes a commit only if no other
    snapshot has come in between, and so the ledger that was looked at is the one that is replaced. pyiceberg would by
    itself try again upon the other snapshot, with the old ledger; so it is told not to.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import Table, TableProperties

    alone = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": alone})
    only = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    try:
        with only.transaction() as transaction:
            transaction.set_properties({PROPERTY: ledger.dumps(), **(further or {})})
            told = {name: str(getattr(ledger, name)) for name in ("query", "generation", "batch")}
            said = {f"headrace.{name}": text for name, text in told.items()}
            yield transaction.update_snapshot(snapshot_properties={**said, **(properties or {})})
    except CommitFailedException as error:
        raise Conflict("another writer was quicker") from error


def enter(table: Table, ledger: TableLedger, further: Mapping[str, str] | None = None) -> None:
    """Put another ledger in the place of the table's, without rows. Raises Conflict as `committing`."""
    with committing(table, ledger, further) as update, update.fast_append():
        pass


def require_ours(table: Table, name: str, context: SinkContext) -> None:
    """Raise SinkError where rows of somebody else would be mixed with the result, or replaced by it."""
    ledger = TableLedger.of_table(table)
    if ledger is None:
        if rows_of(table.current_snapshot()) == 0:
            return
        what = f"{name} already holds rows that no query wrote"
    elif ledger.query != context.query:
        what = f"{name} belongs to query '{ledger.query}'"
    elif ledger.application != context.application:
        what = f"{name} belongs to query '{ledger.query}' of another project ('{ledger.project}')"
    else:
        if ledger.batch >= 0 or ledger.generation > context.generation:
            require_own_generation(name, context, ledger.generation)
        return
    raise SinkError(code="HR407", what=what, fix="write to another table, or drop this one")


def rows_of(snapshot: Any) -> int | None:
    """How many rows a snapshot of a table has, one that is not there none; None: it does not tell."""
    if snapshot is None:
        return 0
    told = None if snapshot.summary is None else snapshot.summary["total-records"]
    return int(told) if told else None
