"""The result of one generation of a query set aside, brought back, discarded, or handed to the next generation.

A table is set aside by renaming it, which takes no time and no space. The lines of the ledger stay: each names its
generation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from headrace.connectors.sql.dialect import Dialect, Transaction, rows_of, run
from headrace.connectors.sql.ledger import Ledger, Owner
from headrace.connectors.sql.ledger_tables import LEDGER, LEDGER_FORM, QUARANTINE, TABLES, UNCLAIMED
from headrace.connectors.sql.system_tables import OWN_PREFIX
from headrace.contract import Held, SinkContext
from headrace.errors import Finding, SinkError


def held(dialect: Dialect, name: str, system: str, context: SinkContext) -> tuple[Held, ...]:
    """The rows of the table, and what Headrace's own tables have of the generation."""
    with translate_errors(dialect, context), closing(dialect.connect_to_read()) as connection:
        if dialect.existing(connection, TABLES) is None:
            return ()
        ledger = Ledger(connection, dialect, context, dialect.real_name(connection, name))
        # Of a ledger of Headrace 0.1.0, which the next start takes over, no more than the table is told.
        known = not LEDGER_FORM.missing_columns(connection, dialect)
        owner = owner_of(ledger, name) if known else None
        ours = not known or (owner is not None and owner.is_of(context))
        found = []
        if ours and dialect.existing(connection, ledger.table) is not None:
            [(rows,)] = rows_of(connection, f"SELECT COUNT(*) FROM {dialect.quote(ledger.table)}")
            found.append(Held(count=int(rows), what=f"rows of table '{ledger.table}' in {system}"))
        for table, of in ((LEDGER, "lines of its ledger"), (QUARANTINE, "rows in the sink's quarantine")):
            if known and (count := ledger.count(table)):
                found.append(Held(count=count, what=of))
        return tuple(found)


def hand_over(dialect: Dialect, name: str, context: SinkContext, generation: int) -> None:
    """Let the table, with its rows, be that of another generation."""
    with locked(dialect, name, context) as ledger:
        owner = owner_of(ledger, name)
        if owner is not None and owner.is_of(context):
            ledger.enter_owner(ledger.table, replace(owner, generation=generation))


def set_aside(dialect: Dialect, name: str, context: SinkContext) -> None:
    """Give the table, if it is the generation's, a name of its own."""
    with locked(dialect, name, context) as ledger:
        owner, aside = owner_of(ledger, name), aside_name(context, name)
        if owner is None or not owner.is_of(context):
            return
        # Where a rename ends the transaction, what a crash leaves behind is found here once more.
        if dialect.existing(ledger.connection, ledger.table) is not None:
            ledger.enter_owner(aside, owner)
            dialect.rename(ledger.connection, ledger.table, aside)
        ledger.enter_owner(ledger.table, NOBODY)
        if name != ledger.table:
            ledger.forget_owner(name)


def bring_back(dialect: Dialect, name: str, context: SinkContext) -> None:
    """Give the table its name again; an empty one that a later generation has made in its place is dropped."""
    with locked(dialect, name, context) as ledger:
        connection, aside = ledger.connection, aside_name(context, name)
        owner = ledger.owner(aside)
        if owner is None:
            return
        if dialect.existing(connection, aside) is not None:
            if dialect.existing(connection, ledger.table) is not None:
                _drop_empty(ledger, context)
            dialect.rename(connection, aside, ledger.table)
        ledger.enter_owner(ledger.table, owner)
        ledger.forget_owner(aside)


def discard(dialect: Dialect, name: str, context: SinkContext) -> None:
    """Drop the table that was set aside, and delete what Headrace's own tables have of the generation."""
    with locked(dialect, name, context) as ledger:
        aside = aside_name(context, name)
        if dialect.existing(ledger.connection, aside) is not None:
            run(ledger.connection, f"DROP TABLE {dialect.quote(aside)}")
        ledger.forget()
        ledger.forget_owner(aside)


def aside_name(context: SinkContext, table: str) -> str:
    """What the table of the context's generation is called when it is set aside, in whatever case it is written."""
    whose = f"{context.application}/{context.query}/{table.lower()}"
    return f"{OWN_PREFIX}aside_{hashlib.sha256(whose.encode()).hexdigest()[:16]}_g{context.generation}"


NOBODY = Owner(query="", generation=0, schema="", application=UNCLAIMED)


def owner_of(ledger: Ledger, name: str) -> Owner | None:
    """Whose result the table holds; once it was entered as the sink spells it."""
    return ledger.owner() or ledger.owner(name)


def _drop_empty(ledger: Ledger, context: SinkContext) -> None:
    connection, table = ledger.connection, ledger.dialect.quote(ledger.table)
    owner = ledger.owner()
    mine = owner is None or (owner.application, owner.query) == (context.application, context.query)
    if not mine or list(rows_of(connection, f"SELECT 1 FROM {table} LIMIT 1")):
        raise SinkError(
            Finding(
                code="HR583",
                what=f"table '{ledger.table}' holds rows again, so that the former one cannot be brought back",
                fix="look whose they are; drop the table if nobody needs it, and give the command again",
            )
        )
    run(connection, f"DROP TABLE {table}")


@contextmanager
def locked(dialect: Dialect, name: str, context: SinkContext, *, refused: str = "HR587") -> Iterator[Ledger]:
    """The ledger in one transaction, into which no batch of the query comes; an older driver writes nothing more.

    refused: the code of an error that has changed nothing.
    """
    transaction = Transaction()
    try:
        with closing(dialect.connect()) as connection:
            ledger = Ledger(connection, dialect, context, dialect.real_name(connection, name))
            ledger.create()
            with transaction.begin(connection, dialect):
                ledger.owner(lock=True)
                ledger.enter_epoch(ledger.epoch(lock=True) + 1)
                yield ledger
    except dialect.errors as error:
        unchanged = dialect.transactional_ddl and not transaction.is_in_doubt
        raise explained(dialect, context, error, code=refused if unchanged else "") from None


@contextmanager
def translate_errors(dialect: Dialect, context: SinkContext) -> Iterator[None]:
    """Tell an error of the database in one sentence."""
    try:
        yield
    except dialect.errors as error:
        raise explained(dialect, context, error) from None


def explained(dialect: Dialect, context: SinkContext, error: Exception, *, code: str = "") -> SinkError:
    """The error in one sentence; `code` says that nothing was changed."""
    problem = dialect.explain(error)
    what = f"the result of query '{context.query}' cannot be looked at or moved: {problem.what}"
    return SinkError(Finding(code=code or problem.code, what=what, fix=problem.fix))
