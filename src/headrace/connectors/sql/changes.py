"""The batches of one start of a query that applies changes to a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace

from headrace.connectors.exactly_once import Admission
from headrace.connectors.exactly_once.changes import WHOLE_ROWS_FIX, lacking_value
from headrace.connectors.sql.batches import SqlStore
from headrace.connectors.sql.change_intervals import IntervalMerge
from headrace.connectors.sql.change_memory import ChangeMemory
from headrace.connectors.sql.change_merge import ChangeMerge, LackingValueError, RowMerge
from headrace.connectors.sql.change_rows import ChangeForm, ChangeStage
from headrace.connectors.sql.dialect import Connection
from headrace.connectors.sql.limits import BadRow
from headrace.connectors.sql.quarantine import QuarantineTable
from headrace.connectors.sql.staging import Content
from headrace.contract import ChangeCounts
from headrace.errors import SinkError

_QUARANTINE_FIX = "; or set on_bad_row to quarantine, and such rows are quarantined"


@dataclass(kw_only=True)
class ChangeStore(SqlStore):
    """A table of a database as one start of a query applies changes to it."""

    form: ChangeForm
    _counts: ChangeCounts | None = field(default=None, init=False, repr=False)

    def commit(self, rows: Content, batch: int, admit: Admission) -> None:
        self._counts = None
        super().commit(rows, batch, admit)
        if self._counts is not None:
            self.context.on_changes(batch, self._counts)

    def _commit(self, rows: Content, batch: int, admit: Admission) -> None:
        try:
            super()._commit(rows, batch, admit)
        except LackingValueError as error:
            fault = lacking_value(str(error), f"table '{self.name}'")
            fix = f"{WHOLE_ROWS_FIX}{'' if self.form.has_intervals else _QUARANTINE_FIX}"
            raise SinkError(self._finding("HR297", batch, fault, fix)) from error

    def _write(self, connection: Connection, batch: int, content: Content) -> tuple[int, int]:
        ledger = self._ledger()
        quarantine = QuarantineTable.next_to(ledger)
        bad = quarantine.add(batch, content.bad) + quarantine.merge(batch, content.bad_parts)
        images = self._before() if self.rewindable_seconds else None
        merge = self._merge(content, batch)
        if images is not None:
            merge = replace(merge, images=images, step=images.begin(batch, "batch"))
        refused = 0

        def quarantine_new(rows: Iterable[BadRow]) -> int:
            nonlocal refused
            given = 0
            for given, row in enumerate(rows, 1):  # noqa: B007
                refused += quarantine.add(batch, quarantine.unknown([row]))
            return given

        if self.stage.quarantines:
            merge = replace(merge, on_bad=quarantine_new, by_rows=self._is_refused, awaits=not self._has_waited)
        self._counts = merge.merge()
        if images is not None:
            images.purge()
        return max(0, content.changes.given - bad - refused), bad + refused

    def _shared_key(self, content: Content) -> tuple[str, str] | None:
        """Return None: of the changes of a key one is written."""
        return None

    def _search(self, rows: Content, on_bad: Callable[[Iterable[BadRow]], int]) -> None:
        replace(self._merge(rows, self._batch), on_bad=on_bad, by_rows=True).merge()

    def _merge(self, content: Content, batch: int) -> ChangeMerge:
        memory = ChangeMemory.of(self._ledger())
        if self.form.has_intervals:
            return IntervalMerge(table=self.table, form=self.form, memory=memory, batch=batch, content=content)
        # What a rewind brings back may have come as late after its delete as any other change.
        seconds = self.form.options.keep_deletes + self.rewindable_seconds
        return RowMerge(table=self.table, form=self.form, memory=memory, batch=batch, content=content, seconds=seconds)


def change_store(store: SqlStore, form: ChangeForm) -> ChangeStore:
    """Return the store of a table for changes."""
    limits = {
        name: replace(limit, required=limit.required and name in form.key) for name, limit in store.stage.limits.items()
    }
    given = {item.name: getattr(store.stage, item.name) for item in fields(store.stage)}
    changed = {"columns": form.columns, "key": form.key, "limits": limits, "clustered": True, "form": form}
    stage = ChangeStage(**{**given, **changed})
    kept = {item.name: getattr(store, item.name) for item in fields(store) if item.init}
    return ChangeStore(**{**kept, "stage": stage, "form": form})
