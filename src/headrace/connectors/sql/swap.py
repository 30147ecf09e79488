"""A rebuilt result that takes the place of the one in use, and is taken back: two renames and the ledger's lines.

All of it is one transaction. MySQL and MariaDB commit with the renames, which are one step there; the ledger's lines
come after them, so that a kill in between is seen by them and ended.
"""

from __future__ import annotations

import hashlib

from headrace.connectors.sql.dialect import Dialect, run
from headrace.connectors.sql.generations import NOBODY, aside_name, locked, owner_of
from headrace.connectors.sql.ledger import Ledger
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError

_SUFFIX = "__rebuild"
# Both servers cut or refuse longer names: PostgreSQL at 63 bytes, MySQL at 64 characters.
_LONGEST = 63


def name_beside(table: str) -> str:
    """What the table of a rebuild is called until it takes the place of `table`."""
    if len(f"{table}{_SUFFIX}".encode()) <= _LONGEST:
        return f"{table}{_SUFFIX}"
    digest = hashlib.sha256(table.encode()).hexdigest()[:12]
    return f"{table.encode()[:30].decode(errors='ignore')}_{digest}{_SUFFIX}"


def swap_in(dialect: Dialect, name: str, context: SinkContext, rebuilt: SinkContext) -> None:
    """Set the table of `context` aside, and give that of `rebuilt` its name."""
    with locked(dialect, name, context) as ledger:
        connection, aside = ledger.connection, aside_name(context, name)
        new = Ledger(connection, dialect, rebuilt, dialect.real_name(connection, name_beside(name)))
        made = new.owner()
        if made is None:
            return
        if dialect.existing(connection, new.table) is not None:
            renames = [(new.table, ledger.table)]
            if dialect.existing(connection, ledger.table) is not None:
                _require_own(ledger, name)
                renames.insert(0, (ledger.table, aside))
            _renamed(ledger, renames)
        former = owner_of(ledger, name)
        if former is not None and former.is_of(context):
            ledger.enter_owner(aside, former)
        new.rename_table(ledger.table)
        ledger.enter_owner(ledger.table, made)
        if name != ledger.table:
            ledger.forget_owner(name)
        new.forget_driver()
        ledger.forget_owner(new.table)


def swap_out(dialect: Dialect, name: str, context: SinkContext, rebuilt: SinkContext) -> None:
    """Give the table of `rebuilt` the name that it had beside, and the other one its own again."""
    with locked(dialect, name, context) as ledger:
        connection, aside = ledger.connection, aside_name(context, name)
        new = Ledger(connection, dialect, rebuilt, dialect.real_name(connection, name_beside(name)))
        there, kept = ledger.owner(), ledger.owner(aside)
        made = there if there is not None and there.is_of(rebuilt) else new.owner()
        if made is None:
            return
        if dialect.existing(connection, new.table) is None and dialect.existing(connection, ledger.table) is not None:
            renames = [(ledger.table, new.table)]
            if dialect.existing(connection, aside) is not None:
                renames.append((aside, ledger.table))
            _renamed(ledger, renames)
        Ledger(connection, dialect, rebuilt, ledger.table).rename_table(new.table)
        new.enter_owner(new.table, made)
        if there is None or not there.is_of(context):
            ledger.enter_owner(ledger.table, kept or NOBODY)
        ledger.forget_owner(aside)


def drop_beside(dialect: Dialect, name: str, rebuilt: SinkContext) -> None:
    """Drop the table of a rebuild that came to nothing, and delete what the ledger has of it."""
    with locked(dialect, name_beside(name), rebuilt) as ledger:
        owner = ledger.owner()
        if owner is not None and owner.is_of(rebuilt) and dialect.existing(ledger.connection, ledger.table) is not None:
            run(ledger.connection, f"DROP TABLE {dialect.quote(ledger.table)}")
        ledger.forget()
        ledger.forget_driver()
        ledger.forget_owner(ledger.table)


def _require_own(ledger: Ledger, name: str) -> None:
    """Raise SinkError for a table that is not the generation's."""
    owner = owner_of(ledger, name)
    if owner is None or not owner.is_of(ledger.context):
        what = f"table '{ledger.table}' is not that of generation {ledger.context.generation} of query "
        what += f"'{ledger.context.query}', and would be taken from its owner"
        raise SinkError(Finding(code="HR587", what=what, fix="look whose it is; or let the query write to another one"))


def _renamed(ledger: Ledger, names: list[tuple[str, str]]) -> None:
    """Rename the tables; nothing of the ledger was written before, so that one who is kept out has changed nothing."""
    dialect = ledger.dialect
    try:
        dialect.rename_together(ledger.connection, names)
    except dialect.errors as error:
        if not dialect.waits_for_lock(error):
            raise
        what = f"the results of query '{ledger.context.query}' cannot be exchanged: {dialect.explain(error).what}"
        fix = "let that transaction end, or end it; then give the command again: nothing was changed"
        raise SinkError(Finding(code="HR587", what=what, fix=fix)) from error
    if not dialect.transactional_ddl:
        # The database has committed by itself; what follows is one step again.
        run(ledger.connection, dialect.begin_write)
