"""The result of a generation set aside, brought back, discarded, handed on, or exchanged for a rebuilt one.

A table is set aside by renaming it, which takes no time and no space. The lines of the ledger stay: each names its
generation. An exchange is two renames and the ledger's lines in one transaction. MySQL and MariaDB commit with the
renames, which are one step there; the ledger's lines come after them, so that a kill in between is seen and ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace

from headrace.connectors.sql.dialect import Connection, Dialect, rows_of, run
from headrace.connectors.sql.ledger import Ledger, Owner
from headrace.connectors.sql.system_tables import LEDGER, QUARANTINE, TABLES, own_name
from headrace.connectors.sql.transactions import OfTable, Transaction, explained, reading
from headrace.contract import Held, Session, SinkContext, SinkReset, SinkSwap
from headrace.errors import NothingChanged


@dataclass(frozen=True, kw_only=True)
class TableReset(OfTable, SinkReset):
    """A table set aside, brought back, discarded, or handed to the next generation."""

    def row_counts(self, context: SinkContext, session: Session) -> tuple[Held, ...]:
        if not self.is_there:
            return ()
        dialect = self.dialect()
        with looking(dialect, context) as connection:
            if dialect.existing(connection, TABLES) is None:
                return ()
            ledger = Ledger(connection, dialect, context, dialect.real_name(connection, self.table))
            owner = owner_of(ledger, self.table)
            found = []
            if owner is not None and owner.is_of(context) and dialect.existing(connection, ledger.table) is not None:
                [(rows,)] = rows_of(connection, f"SELECT COUNT(*) FROM {dialect.quote(ledger.table)}")
                found.append(Held(count=int(rows), what=f"rows of table '{ledger.table}' in {self.system}"))
            for table, of in ((LEDGER, "lines of its ledger"), (QUARANTINE, "rows in the sink's quarantine")):
                if count := ledger.count(table):
                    found.append(Held(count=count, what=of))
            return tuple(found)

    def hand_over(self, context: SinkContext, generation: int, session: Session) -> None:
        with locked(self.dialect(), self.table, context) as ledger:
            owner = owner_of(ledger, self.table)
            if owner is not None and owner.is_of(context):
                ledger.enter_owner(ledger.table, replace(owner, generation=generation))

    def archive(self, context: SinkContext, session: Session) -> None:
        dialect, name = self.dialect(), self.table
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

    def restore(self, context: SinkContext, session: Session) -> None:
        dialect, name = self.dialect(), self.table
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

    def discard(self, context: SinkContext, session: Session) -> None:
        dialect = self.dialect()
        with locked(dialect, self.table, context) as ledger:
            aside = aside_name(context, self.table)
            _require_set_aside(ledger, self.table)
            if dialect.existing(ledger.connection, aside) is not None:
                run(ledger.connection, f"DROP TABLE {dialect.quote(aside)}")
            ledger.forget()
            ledger.forget_owner(aside)


def aside_name(context: SinkContext, table: str) -> str:
    """What the table of the context's generation is called when it is set aside."""
    return own_name("aside", context, table)


NOBODY = Owner(query="", generation=0, schema="", application="")


def owner_of(ledger: Ledger, name: str) -> Owner | None:
    """Whose result the table holds; once it was entered as the sink spells it."""
    return ledger.owner() or ledger.owner(name)


def _drop_empty(ledger: Ledger, context: SinkContext) -> None:
    connection, table = ledger.connection, ledger.dialect.quote(ledger.table)
    owner = ledger.owner()
    mine = owner is None or (owner.application, owner.query) == (context.application, context.query)
    if not mine or list(rows_of(connection, f"SELECT 1 FROM {table} LIMIT 1")):
        raise NothingChanged(
            code="HR583",
            what=f"table '{ledger.table}' holds rows again, so that the former one cannot be brought back",
            fix="look whose they are; drop the table if nobody needs it, and give the command again",
        )
    run(connection, f"DROP TABLE {table}")


@contextmanager
def locked(dialect: Dialect, name: str, context: SinkContext) -> Iterator[Ledger]:
    """The ledger in one transaction, into which no batch of the query comes; an older driver writes nothing more."""
    transaction, whose = Transaction(), f"the result of query '{context.query}'"
    try:
        with closing(dialect.connect()) as connection:
            ledger = Ledger(connection, dialect, context, dialect.real_name(connection, name))
            ledger.create()
            with transaction.begin(connection, dialect):
                ledger.owner(lock=True)
                ledger.enter_epoch(ledger.epoch(lock=True) + 1)
                yield ledger
    except dialect.errors as error:
        failure = explained(dialect, error, f"{whose} cannot be moved", transaction, f"{whose} was moved")
        unchanged = dialect.transactional_ddl and not transaction.is_in_doubt
        raise (NothingChanged(replace(failure.findings[0], code="HR587")) if unchanged else failure) from None


def looking(dialect: Dialect, context: SinkContext) -> AbstractContextManager[Connection]:
    """A connection that looks at what is there."""
    return reading(dialect, f"the result of query '{context.query}' cannot be looked at")


_SUFFIX = "__rebuild"
# Both servers cut or refuse longer names: PostgreSQL at 63 bytes, MySQL at 64 characters.
_LONGEST = 63


def name_beside(table: str) -> str:
    """What the table of a rebuild is called until it takes the place of `table`."""
    if len(f"{table}{_SUFFIX}".encode()) <= _LONGEST:
        return f"{table}{_SUFFIX}"
    digest = hashlib.sha256(table.encode()).hexdigest()[:12]
    return f"{table.encode()[:30].decode(errors='ignore')}_{digest}{_SUFFIX}"


@dataclass(frozen=True, kw_only=True)
class TableSwap(OfTable, SinkSwap):
    """The table of a rebuild put in place, and taken back."""

    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        dialect, name = self.dialect(), self.table
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

    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        dialect, name = self.dialect(), self.table
        with locked(dialect, name, context) as ledger:
            connection, aside = ledger.connection, aside_name(context, name)
            new = Ledger(connection, dialect, rebuilt, dialect.real_name(connection, name_beside(name)))
            there, kept = ledger.owner(), ledger.owner(aside)
            made = there if there is not None and there.is_of(rebuilt) else new.owner()
            if made is None:
                return
            if (
                dialect.existing(connection, new.table) is None
                and dialect.existing(connection, ledger.table) is not None
            ):
                renames = [(ledger.table, new.table)]
                if dialect.existing(connection, aside) is not None:
                    renames.append((aside, ledger.table))
                _renamed(ledger, renames)
            Ledger(connection, dialect, rebuilt, ledger.table).rename_table(new.table)
            new.enter_owner(new.table, made)
            if there is None or not there.is_of(context):
                ledger.enter_owner(ledger.table, kept or NOBODY)
            ledger.forget_owner(aside)

    def drop_beside(self, rebuilt: SinkContext, session: Session) -> None:
        dialect = self.dialect()
        with locked(dialect, name_beside(self.table), rebuilt) as ledger:
            owner = ledger.owner()
            if (
                owner is not None
                and owner.is_of(rebuilt)
                and dialect.existing(ledger.connection, ledger.table) is not None
            ):
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
        raise NothingChanged(code="HR587", what=what, fix="look whose it is; or let the query write to another one")


def _require_set_aside(ledger: Ledger, name: str) -> None:
    """Raise NothingChanged where the generation that is to be deleted has the table."""
    owner, context = owner_of(ledger, name), ledger.context
    if owner is not None and owner.is_of(context):
        what = f"table '{ledger.table}' is that of generation {context.generation} of query '{context.query}', which "
        what += "would be deleted: the database, or the storage directory, was brought back from a copy"
        raise NothingChanged(code="HR587", what=what, fix="bring the other one back from a copy of the same time")


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
        raise NothingChanged(code="HR587", what=what, fix=fix) from error
    if not dialect.transactional_ddl:
        # The database has committed by itself; what follows is one step again.
        run(ledger.connection, dialect.begin_write)
