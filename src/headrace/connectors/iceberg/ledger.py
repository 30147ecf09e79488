"""The ledger of an Iceberg table: one of its properties, which changes in the commit that brings the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.connectors.exactly_once import plans
from headrace.connectors.exactly_once.judgement import KEPT, KeptLine, require_own_generation
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import SinkContext, SinkLedger
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table

PROPERTY = "headrace.ledger"


@dataclass(frozen=True, kw_only=True)
class TableLedger:
    """Whose table it is, which driver may write, and what is in.

    epoch: drawn again by each start. batch: the last one that is in; -1: none yet. checkpoint: the id that Spark gave
    it. spark_schema: the result's, as Spark's JSON. application, project: whose query it is; "" in a ledger of 0.1.0.
    lines: of the newest batches, the oldest first; none of those that 0.1.0 wrote.
    """

    query: str
    generation: int
    epoch: str
    batch: int
    checkpoint: str
    spark_schema: str
    application: str = ""
    project: str = ""
    lines: tuple[KeptLine, ...] = ()

    @classmethod
    def of(cls, table: Table) -> TableLedger | None:
        """The ledger of `table`; None where no query has written it."""
        text = table.metadata.properties.get(PROPERTY)
        return None if text is None else cls.loads(text)

    @classmethod
    def loads(cls, text: str) -> TableLedger:
        """The ledger of a property's value."""
        facts = json.loads(text)
        return cls(**{**facts, "lines": tuple(KeptLine.from_dict(line) for line in facts.get("lines", ()))})

    @property
    def properties(self) -> dict[str, str]:
        """What is to be set on the table."""
        return {PROPERTY: self.text}

    @property
    def text(self) -> str:
        """What `of` reads."""
        return json.dumps(asdict(self))

    @property
    def summary(self) -> dict[str, str]:
        """What a snapshot says of the batch that it is."""
        return {
            "headrace.query": self.query,
            "headrace.generation": str(self.generation),
            "headrace.batch": str(self.batch),
        }

    def is_of(self, context: SinkContext) -> bool:
        """Whether the table holds the batches of this generation of a query, or did before applications had ids."""
        known = self.application in (context.application, "")
        return known and (self.query, self.generation) == (context.query, context.generation)

    @property
    def known(self) -> tuple[KeptLine, ...]:
        """The lines of the newest batches; of one that 0.1.0 wrote no more than its number and checkpoint."""
        if self.lines or self.batch < 0:
            return self.lines
        return (KeptLine(batch=self.batch, checkpoint=self.checkpoint),)

    def with_batch(self, line: KeptLine) -> TableLedger:
        """The ledger once the batch of `line` is in."""
        return replace(self, batch=line.batch, checkpoint=line.checkpoint, lines=(*self.lines, line)[-KEPT:])


@dataclass(frozen=True, kw_only=True)
class IcebergLedger(SinkLedger):
    """Which batches are in, by the table's ledger; none where the catalog does not answer."""

    place: TableRef

    def last_batch(self, context: SinkContext) -> int | None:
        known = self._own(context)
        mine = known is not None and known.checkpoint == Checkpoint(context.checkpoint).id
        return known.batch if known is not None and mine and known.batch >= 0 else None

    def planned(self, context: SinkContext, first: int) -> Mapping[int, str]:
        known = self._own(context)
        return {} if known is None else plans(context, known.lines, first)

    def _own(self, context: SinkContext) -> TableLedger | None:
        with suppress(SinkError), self.place.translate_errors():
            table = self.place.find()
            known = None if table is None else TableLedger.of(table)
            return known if known is not None and known.is_of(context) else None
        return None


def require_ours(table: Table, name: str, context: SinkContext) -> None:
    """Raise SinkError where rows of somebody else would be mixed with the result, or replaced by it."""
    found = TableLedger.of(table)
    if found is not None and found.is_of(context):
        return
    if found is None:
        if _is_empty(table):
            return
        what = f"{name} already holds rows that no query wrote"
    elif found.query != context.query:
        what = f"{name} belongs to query '{found.query}'"
    elif found.application not in (context.application, ""):
        what = f"{name} belongs to query '{found.query}' of another project ('{found.project}')"
    else:
        if found.batch >= 0 or found.generation > context.generation:
            require_own_generation(name, context, found.generation)
        return
    raise SinkError(Finding(code="HR407", what=what, fix="write to another table, or drop this one"))


def _is_empty(table: Table) -> bool:
    """Whether the table has no rows, by its newest snapshot; one that does not tell is taken to have some."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return True
    return snapshot.summary is not None and int(snapshot.summary["total-records"] or "1") == 0
