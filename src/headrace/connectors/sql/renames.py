"""What a database keeps of a query, or of its table, brought under the new name, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from headrace.checkpoint import Checkpoint
from headrace.connectors.sql.dialect import Connection, Dialect, Transaction, run
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.ledger_tables import LEDGER
from headrace.connectors.sql.staging import drop_staged
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError


def rename_query(dialect: Dialect, name: str, context: SinkContext, former: str) -> None:
    """Let the lines of the query `former`, of all its tables and generations, be those of the context's query.

    The epoch of `former` goes up, so that a driver of that name writes nothing more.
    """
    with _translate_errors(
        dialect, f"the ledger of query '{former}' cannot be given the name '{context.query}'"
    ) as connection:
        if dialect.existing(connection, LEDGER) is None:
            return
        table = dialect.real_name(connection, name)
        old, new = (Ledger(connection, dialect, each, table) for each in (replace(context, query=former), context))
        old.create()
        new.create()
        with Transaction().begin(connection, dialect):
            new.owner(lock=True)
            epoch = max(old.epoch(lock=True), new.epoch(lock=True)) + 1
            if old.has_lines and new.has_lines:
                what = f"the ledger beside table '{table}' has batches of '{former}' and of '{context.query}'"
                fix = f"let the query have another name; or delete the lines of '{context.query}' in {LEDGER}, if "
                raise SinkError(Finding(code="HR549", what=what, fix=f"{fix}nobody needs them"))
            old.rename(context.query, Checkpoint(context.checkpoint).id or "")
            for each in (old, new):
                each.enter_epoch(epoch)
        drop_staged(connection, dialect, old.context, epoch)


def rename_table(dialect: Dialect, name: str, former: str, context: SinkContext) -> None:
    """Let the query's table `former` be called `name`, with its ledger; or the ledger alone, if it is so already."""
    with _translate_errors(dialect, f"table '{former}' cannot be renamed to '{name}'") as connection:
        old, new = (
            Ledger(connection, dialect, context, dialect.real_name(connection, each)) for each in (former, name)
        )
        if old.table == new.table or dialect.existing(connection, LEDGER) is None:
            return
        old.create()
        new.create()
        with Transaction().begin(connection, dialect):
            _rename(dialect, connection, old, new)


def _rename(dialect: Dialect, connection: Connection, old: Ledger, new: Ledger) -> None:
    owner, owner_of_new = old.owner(lock=True), new.owner(lock=True)
    is_old, is_new = (dialect.existing(connection, each.table) is not None for each in (old, new))
    epoch = new.epoch(lock=True) + 1
    if owner is None or not owner.is_of(new.context):
        # Where the database ends a transaction with a rename, the ledger may have come alone.
        if is_new or not is_old or owner_of_new is None or not owner_of_new.is_of(new.context):
            return
    elif is_old and is_new:
        what = f"table '{old.table}' cannot be renamed to '{new.table}', which is there as well"
        fix = f"drop or rename the one that is not the result of query '{new.context.query}', and start again"
        raise SinkError(Finding(code="HR549", what=what, fix=fix))
    elif not is_old and not is_new:
        what = f"neither table '{new.table}' nor '{old.table}', from which it is renamed, is there"
        raise SinkError(Finding(code="HR549", what=what, fix="restore the table from a backup, or correct its name"))
    else:
        old.move(new.table)
        new.enter_owner(new.table, owner)
        old.forget_owner(old.table)
    new.enter_epoch(epoch)
    if is_old:
        run(connection, f"ALTER TABLE {dialect.quote(old.table)} RENAME TO {dialect.quote(new.table)}")


@contextmanager
def _translate_errors(dialect: Dialect, what: str) -> Iterator[Connection]:
    """A connection, whose errors become one sentence."""
    try:
        with closing(dialect.connect()) as connection:
            yield connection
    except dialect.errors as error:
        problem = dialect.explain(error)
        raise SinkError(Finding(code=problem.code, what=f"{what}: {problem.what}", fix=problem.fix)) from None
