"""A table taken over as a query's result: from another program, or from another name of the table.

The ledger is begun with the last batch, or brought under the new name, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint, planned_batch
from headrace.connectors.exactly_once import Admitted, KeptLine
from headrace.connectors.sql.change_rows import table_schema
from headrace.connectors.sql.ledger import Ledger, Owner
from headrace.connectors.sql.result_table import ResultTable, result_table
from headrace.connectors.sql.sink_table import SinkTable
from headrace.connectors.sql.system_tables import LEDGER, TABLES
from headrace.connectors.sql.transactions import open_writer
from headrace.contract import Held, Session, SinkAdoption, SinkContext, SinkRename
from headrace.errors import Finding, NothingChanged, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class TableAdoption(SinkTable, SinkAdoption):
    """A table that another program has written: its rows, and the line by which they are the query's."""

    def foreign_rows(self, frame: DataFrame, context: SinkContext) -> tuple[Held, ...]:
        table = result_table(self.table, self.key, table_schema(None, frame.schema), context)
        with self.open_ledger(context) as ledger:
            table = table.with_real_name(ledger)
            is_kept = not TABLES.missing_columns(ledger.connection, ledger.dialect)
            _require_fit(ledger, table, self.system, table.owner(ledger) if is_kept else None)
            _require_free(ledger, is_kept=not LEDGER.missing_columns(ledger.connection, ledger.dialect))
            return (Held(count=ledger.count_rows(table.name), what=f"rows of table '{table.name}' in {self.system}"),)

    def take_over(self, frame: DataFrame, context: SinkContext, batch: int | None) -> None:
        table = result_table(self.table, self.key, table_schema(None, frame.schema), context)
        line = watermark = None
        if batch is not None:
            planned = planned_batch(Checkpoint(context.checkpoint), batch)
            line = KeptLine.of(context, batch, planned).after(None)
            watermark = None if planned is None else planned.entry.watermark
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            table = table.with_real_name(ledger)
            owner, last = table.owner(ledger), ledger.last()
            if owner is not None and owner.is_of(context) and _is_entered(last, line):
                return
            _require_fit(ledger, table, self.system, owner)
            _require_free(ledger)
            ledger.own(table_schema(None, frame.schema).json())
            if line is not None:
                # Which of the rows that batch has written is not known.
                ledger.add(Admitted(line, watermark), epoch=ledger.epoch(), rows=0, quarantined=0)


def _is_entered(last: KeptLine | None, line: KeptLine | None) -> bool:
    """Whether the ledger ends with `line`, as it does after a crash."""
    if last is None or line is None:
        return False
    return (last.batch, last.checkpoint, last.digest) == (line.batch, line.checkpoint, line.digest)


def _require_fit(ledger: Ledger, table: ResultTable, system: str, owner: Owner | None) -> None:
    context, there = ledger.context, ledger.describe_table(table.name)
    if there is None:
        fault = f"there is no table '{table.name}' in {system}, which holds what query '{context.query}' has written"
        fix = "name the table that the former job writes to, or put it back"
        raise SinkError(code="HR596", what=fault, fix=fix)
    list(table.changes(ledger, there, owner, adds=False))
    if owner is None:
        table.require_same_schema(owner, there.elsewhere)
    elif not owner.is_of(context):
        table.require_ours(ledger, owner, there.elsewhere)
    if findings := list(_foreign_values(ledger, table)):
        raise SinkError(findings)


def _foreign_values(ledger: Ledger, table: ResultTable) -> Iterator[Finding]:
    """Yield the columns whose values are in another form, by which a row that is there would not be found again."""
    dialect = ledger.dialect
    for column in table.columns:
        condition = dialect.foreign_values(column)
        if not condition:
            continue
        name, place = ledger.quote(column.name), ledger.quote(table.name)
        foreign = f"SELECT COUNT(*), MIN({name}) FROM {place} WHERE {name} IS NOT NULL AND ({condition})"
        [(count, first)] = ledger.select(foreign)
        if count:
            yield Finding(
                code="HR596",
                what=f"column '{column.name}' of table '{table.name}' holds values in another form than Headrace "
                f"writes a {column.type.simpleString().upper()} in {dialect.name}, as {first!r}: {count} of its rows "
                "would not be found again",
                fix=f"bring them into that form by UPDATE{_FORMS.get(column.kind, '')}",
            )


_FORMS = {
    "timestamp": ", such as 2026-01-31T08:15:00.000000Z",
    "timestamp_ntz": ", such as 2026-01-31T08:15:00.000000",
    "date": ", such as 2026-01-31",
}


def _require_free(ledger: Ledger, *, is_kept: bool = True) -> None:
    last = ledger.last() if is_kept else None
    if last is not None:
        fault = (
            f"the ledger next to table '{ledger.table}' has batches of query '{ledger.context.query}' already, up to "
            f"{last.batch}"
        )
        fix = "reset the query first (headrace reset QUERY), if the former job is to continue in its place"
        raise SinkError(code="HR580", what=fault, fix=fix)


@dataclass(frozen=True, kw_only=True)
class TableRename(SinkTable, SinkRename):
    """A table under another name; `renamed_from`: what it was called."""

    renamed_from: str = ""

    def rename_table(self, context: SinkContext, session: Session) -> None:
        dialect, name, former = self.dialect(), self.table, self.renamed_from
        cannot, done = (f"table '{former}' {verb} renamed to '{name}'" for verb in ("cannot be", "was"))
        with open_writer(dialect, cannot, done) as (connection, transaction):
            new = Ledger(connection, dialect, context, dialect.real_name(connection, name))
            old = replace(new, table=dialect.real_name(connection, former))
            if old.table == new.table or not new.has_table(LEDGER):
                return
            old.create()
            new.create()
            with transaction.begin(connection, dialect):
                _rename(old, new)


def _rename(old: Ledger, new: Ledger) -> None:
    owner, owner_of_new = old.owner(lock=True), new.owner(lock=True)
    is_old, is_new = old.has_table(old.table), new.has_table(new.table)
    epoch = new.epoch(lock=True) + 1
    if owner is None or not owner.is_of(new.context):
        # Where the database ends a transaction with a rename, the ledger may have come alone.
        if is_new or not is_old or owner_of_new is None or not owner_of_new.is_of(new.context):
            return
    elif is_old and is_new:
        fault = f"table '{old.table}' cannot be renamed to '{new.table}', which is there as well"
        fix = f"drop or rename the one that is not the result of query '{new.context.query}', and start again"
        raise NothingChanged(code="HR549", what=fault, fix=fix)
    elif not is_old and not is_new:
        fault = f"neither table '{new.table}' nor '{old.table}', from which it is renamed, is there"
        raise NothingChanged(code="HR549", what=fault, fix="restore the table from a backup, or correct its name")
    else:
        old.move(new.table)
        new.enter_owner(new.table, owner)
        old.forget_owner(old.table)
    new.enter_epoch(epoch)
    if is_old:
        old.run(f"ALTER TABLE {old.quote(old.table)} RENAME TO {old.quote(new.table)}")
