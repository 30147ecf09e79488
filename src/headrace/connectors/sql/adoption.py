"""A table that another program has written, taken over as a query's result: its ledger is begun with the last batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from headrace.checkpoint import Checkpoint, planned_batch
from headrace.connectors.exactly_once import Admitted, KeptLine, Line
from headrace.connectors.sql.dialect import Connection, Dialect, rows_of
from headrace.connectors.sql.generations import locked, translate_errors
from headrace.connectors.sql.ledger import Entry, Ledger, Owner
from headrace.connectors.sql.ledger_tables import LEDGER_FORM, TABLES_FORM
from headrace.connectors.sql.result_table import ResultTable
from headrace.contract import Held, SinkContext
from headrace.errors import Finding, SinkError


def foreign_rows(dialect: Dialect, table: ResultTable, system: str, context: SinkContext) -> tuple[Held, ...]:
    """The rows of the table. Raises SinkError where it is missing, does not fit, or belongs to a query."""
    with translate_errors(dialect, context), closing(dialect.connect_to_read()) as connection:
        table = table.as_known(connection, dialect)
        ledger = Ledger(connection, dialect, context, table.name)
        owner = None if TABLES_FORM.missing_columns(connection, dialect) else table.owner(ledger)
        _require_fit(connection, dialect, table, system, context, owner)
        _require_free(ledger, context, known=not LEDGER_FORM.missing_columns(connection, dialect))
        [(rows,)] = rows_of(connection, f"SELECT COUNT(*) FROM {dialect.quote(table.name)}")
        return (Held(count=int(rows), what=f"rows of table '{table.name}' in {system}"),)


def take_over(
    dialect: Dialect, table: ResultTable, schema: str, system: str, context: SinkContext, batch: int | None
) -> None:
    """Enter whose the table is, and that `batch` is in, in one transaction; what is entered already stays."""
    line = None
    watermark = None
    if batch is not None:
        planned = planned_batch(Checkpoint(context.checkpoint), batch)
        line = KeptLine.of(context, batch, planned).after(None)
        watermark = None if planned is None else planned.entry.watermark
    with locked(dialect, table.name, context) as ledger:
        connection = ledger.connection
        table = table.as_known(connection, dialect)
        owner, last = table.owner(ledger), ledger.last()
        if owner is not None and owner.is_of(context) and _is_entered(last, line):
            return
        _require_fit(connection, dialect, table, system, context, owner)
        _require_free(ledger, context)
        ledger.own(schema)
        if line is not None:
            # Which of the rows that batch has written nobody knows.
            ledger.add(Entry(batch=Admitted(line, watermark), epoch=ledger.epoch(), rows=0, quarantined=0))


def _is_entered(last: Line | None, line: KeptLine | None) -> bool:
    """Whether the ledger ends with `line`, as it does after a crash."""
    if last is None or line is None:
        return False
    return (last.batch, last.checkpoint, last.digest) == (line.batch, line.checkpoint, line.digest)


def _require_fit(
    connection: Connection,
    dialect: Dialect,
    table: ResultTable,
    system: str,
    context: SinkContext,
    owner: Owner | None,
) -> None:
    there = dialect.existing(connection, table.name)
    if there is None:
        what = f"there is no table '{table.name}' in {system}, which holds what query '{context.query}' has written"
        fix = "name the table that the former job writes to, or put it back"
        raise SinkError(Finding(code="HR596", what=what, fix=fix))
    list(table.changes(there, dialect, context, owner, adds=False))
    if owner is None:
        table.require_here(owner, there.elsewhere)
    elif not owner.is_of(context):
        table.require_ours(connection, dialect, context, owner, there.elsewhere)
    if findings := list(_foreign_values(connection, dialect, table)):
        raise SinkError(findings)


def _foreign_values(connection: Connection, dialect: Dialect, table: ResultTable) -> Iterator[Finding]:
    """The columns whose values are in another form, by which a row that is there would not be found again."""
    for column in table.columns:
        condition = dialect.foreign_values(column)
        if not condition:
            continue
        name, place = dialect.quote(column.name), dialect.quote(table.name)
        found = f"SELECT COUNT(*), MIN({name}) FROM {place} WHERE {name} IS NOT NULL AND ({condition})"
        [(count, first)] = rows_of(connection, found)
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


def _require_free(ledger: Ledger, context: SinkContext, *, known: bool = True) -> None:
    last = ledger.last() if known else None
    if last is not None:
        what = (
            f"the ledger beside table '{ledger.table}' has batches of query '{context.query}' already, up to "
            f"{last.batch}"
        )
        fix = "reset the query first (headrace reset QUERY), if the former job is to continue in its place"
        raise SinkError(Finding(code="HR595", what=what, fix=fix))
