"""Wrong rows of a result table put right in one transaction, which can be undone until another batch is in."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.sql.dialect import OfTable
from headrace.connectors.sql.generations import locked
from headrace.connectors.sql.late_rows import TableLateRows
from headrace.connectors.sql.rewind import Rewinding
from headrace.contract import Correction, SinkContext, SinkRepair
from headrace.errors import NothingChanged


@dataclass(frozen=True, kw_only=True)
class TableRepair(OfTable, SinkRepair):
    """Rows of a table put right by their key; what they replace is kept as a step of the table's earlier rows."""

    def apply(self, correction: Correction, context: SinkContext) -> None:
        writing = TableLateRows(dialect=self.dialect, table=self.table, key=self.key, rewindable=True)
        writing.apply(correction, context)

    def undo(self, context: SinkContext) -> None:
        with locked(self.dialect(), self.table, context) as ledger:
            found, last = Rewinding.of(ledger, self.key, self.table), ledger.last()
            step = (
                None if found is None else next((each for each in found.images.steps() if each.kind == "repair"), None)
            )
            if found is None or step is None:
                what = f"no repair of table '{ledger.table}' is kept that could be undone"
                raise NothingChanged(code="HR583", what=what)
            if last is None or last.batch != step.batch:
                what = f"table '{ledger.table}' has got other batches of query '{context.query}' since its repair"
                fix = "keep the repair: what it has replaced may be wrong for them"
                raise NothingChanged(code="HR583", what=what, fix=fix)
            found.restore([step])
            found.images.forget_repairs()
