"""Set the result of a generation aside, restore, discard or hand it on, or exchange it for a rebuilt one.

A table is set aside by renaming it, which takes no time and no space. The lines of the ledger stay: each names its
generation. An exchange is two renames and the ledger's lines in one transaction. MySQL and MariaDB commit with the
renames, which are one step there; the ledger's lines come after them, so that the next attempt sees a kill in between
and finishes the exchange.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from headrace.connectors.sql.ledger import Ledger, Owner
from headrace.connectors.sql.sink_table import SinkTable
from headrace.connectors.sql.system_tables import LEDGER, QUARANTINE, TABLES, own_name
from headrace.contract import Held, Session, SinkContext, SinkReset, SinkSwap
from headrace.errors import AttemptFailed, NothingChanged


@dataclass(frozen=True, kw_only=True)
class TableReset(SinkTable, SinkReset):
    """A table set aside, brought back, discarded, or handed to the next generation."""

    def row_counts(self, context: SinkContext, session: Session) -> tuple[Held, ...]:
        if not self.is_there:
            return ()
        with self.open_ledger(context) as ledger:
            if not ledger.has_table(TABLES):
                return ()
            owner, held = ledger.owner_by(self.table), []
            if owner is not None and owner.is_of(context) and ledger.has_table(ledger.table):
                rows = f"rows of table '{ledger.table}' in {self.system}"
                held.append(Held(count=ledger.count_rows(ledger.table), what=rows))
            for table, rows in ((LEDGER, "lines of its ledger"), (QUARANTINE, "rows in the sink's quarantine")):
                if count := ledger.count(table):
                    held.append(Held(count=count, what=rows))
            return tuple(held)

    def hand_over(self, context: SinkContext, generation: int, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            owner, mark = ledger.owner_by(self.table), context.mark
            if mark is not None and mark.way == "back" and ledger.last() is not None:
                fault = f"generation {context.generation} of query '{context.query}' has written into table "
                fault += f"'{ledger.table}' by now"
                raise NothingChanged(code="HR583", what=fault, fix="let it continue, or reset it once more")
            if owner is not None and owner.is_of(context):
                ledger.enter_owner(ledger.table, replace(owner, generation=generation))

    def archive(self, context: SinkContext, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            owner, aside = ledger.owner_by(self.table), aside_name(context, self.table)
            if owner is None or not owner.is_of(context):
                return
            # Where a rename ends the transaction, what a crash leaves behind is seen here once more.
            if ledger.has_table(ledger.table):
                ledger.enter_owner(aside, owner)
                ledger.dialect.rename(ledger.connection, ledger.table, aside)
                ledger.continue_change()
            ledger.enter_owner(ledger.table, NO_OWNER)
            if self.table != ledger.table:
                ledger.forget_owner(self.table)

    def restore(self, context: SinkContext, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            aside = aside_name(context, self.table)
            owner = ledger.owner(aside)
            if owner is None:
                return
            if ledger.has_table(aside):
                if ledger.has_table(ledger.table):
                    _drop_empty(ledger, context)
                ledger.dialect.rename(ledger.connection, aside, ledger.table)
                ledger.continue_change()
            ledger.enter_owner(ledger.table, owner)
            ledger.forget_owner(aside)

    def discard(self, context: SinkContext, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            aside = aside_name(context, self.table)
            _require_set_aside(ledger, self.table)
            if ledger.has_table(aside):
                ledger.run(f"DROP TABLE {ledger.quote(aside)}")
            ledger.forget()
            ledger.forget_owner(aside)


def aside_name(context: SinkContext, table: str) -> str:
    """Return the name of the context's generation of the table when it is set aside."""
    return own_name("aside", context, table)


NO_OWNER = Owner(query_id="", query="", generation=0, schema="", application="")


def _drop_empty(ledger: Ledger, context: SinkContext) -> None:
    table, owner = ledger.quote(ledger.table), ledger.owner()
    is_own = owner is None or (owner.application, owner.query_id) == (context.application, context.query_id)
    if not is_own or ledger.select(f"SELECT 1 FROM {table} LIMIT 1"):
        raise NothingChanged(
            code="HR583",
            what=f"table '{ledger.table}' holds rows again, so that the former one cannot be brought back",
            fix="look whose they are; drop the table if they are not needed, and give the command again",
        )
    ledger.run(f"DROP TABLE {table}")


_SUFFIX = "__rebuild"
# Both servers cut or refuse longer names: PostgreSQL at 63 bytes, MySQL at 64 characters.
_LONGEST = 63


def shadow_name(table: str) -> str:
    """Return the name of a rebuild's table until it takes the place of `table`."""
    if len(f"{table}{_SUFFIX}".encode()) <= _LONGEST:
        return f"{table}{_SUFFIX}"
    digest = hashlib.sha256(table.encode()).hexdigest()[:12]
    return f"{table.encode()[:30].decode(errors='ignore')}_{digest}{_SUFFIX}"


@dataclass(frozen=True, kw_only=True)
class TableSwap(SinkTable, SinkSwap):
    """The table of a rebuild put in place, and taken back."""

    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            aside, new = aside_name(context, self.table), self._shadow_ledger(ledger, rebuilt)
            made = new.owner()
            if made is None:
                return
            if ledger.has_table(new.table):
                renames = [(new.table, ledger.table)]
                if ledger.has_table(ledger.table):
                    _require_own(ledger, self.table)
                    renames.insert(0, (ledger.table, aside))
                _rename(ledger, renames)
            former = ledger.owner_by(self.table)
            if former is not None and former.is_of(context):
                ledger.enter_owner(aside, former)
            new.rename_table(ledger.table)
            ledger.enter_owner(ledger.table, made)
            if self.table != ledger.table:
                ledger.forget_owner(self.table)
            new.forget_driver()
            ledger.forget_owner(new.table)

    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            aside, new = aside_name(context, self.table), self._shadow_ledger(ledger, rebuilt)
            there, former = ledger.owner(), ledger.owner(aside)
            made = there if there is not None and there.is_of(rebuilt) else new.owner()
            if made is None:
                return
            if not ledger.has_table(new.table) and ledger.has_table(ledger.table):
                renames = [(ledger.table, new.table)]
                if ledger.has_table(aside):
                    renames.append((aside, ledger.table))
                _rename(ledger, renames)
            replace(new, table=ledger.table).rename_table(new.table)
            new.enter_owner(new.table, made)
            if there is None or not there.is_of(context):
                ledger.enter_owner(ledger.table, former or NO_OWNER)
            ledger.forget_owner(aside)

    def drop_shadow(self, rebuilt: SinkContext, session: Session) -> None:
        with self.lock_ledger(rebuilt, shadow_name(self.table)) as ledger:
            owner = ledger.owner()
            if owner is not None and owner.is_of(rebuilt) and ledger.has_table(ledger.table):
                ledger.run(f"DROP TABLE {ledger.quote(ledger.table)}")
            ledger.forget()
            ledger.forget_driver()
            ledger.forget_owner(ledger.table)

    def _shadow_ledger(self, ledger: Ledger, rebuilt: SinkContext) -> Ledger:
        table = ledger.dialect.real_name(ledger.connection, shadow_name(self.table))
        return replace(ledger, context=rebuilt, table=table)


def _require_own(ledger: Ledger, name: str) -> None:
    """Raise SinkError for a table that is not the generation's."""
    owner = ledger.owner_by(name)
    if owner is None or not owner.is_of(ledger.context):
        fault = f"table '{ledger.table}' is not that of generation {ledger.context.generation} of query "
        fault += f"'{ledger.context.query}', and would be taken from its owner"
        raise NothingChanged(code="HR587", what=fault, fix="look whose it is; or let the query write to another one")


def _require_set_aside(ledger: Ledger, name: str) -> None:
    """Raise NothingChanged where the generation that is to be deleted has the table."""
    owner, context = ledger.owner_by(name), ledger.context
    if owner is not None and owner.is_of(context):
        fault = f"table '{ledger.table}' is that of generation {context.generation} of query '{context.query}', which "
        fault += "would be deleted: the database, or the storage directory, was brought back from a copy"
        raise NothingChanged(code="HR587", what=fault, fix="bring the other one back from a copy of the same time")


def _rename(ledger: Ledger, names: list[tuple[str, str]]) -> None:
    """Rename the tables; the ledger was not written yet, so that a lock that keeps this out leaves all as it was."""
    dialect = ledger.dialect
    try:
        dialect.rename_together(ledger.connection, names)
    except dialect.errors as error:
        if not dialect.waits_for_lock(error):
            raise
        fault = f"the results of query '{ledger.context.query}' cannot be exchanged: {dialect.explain(error).what}"
        fix = "let that transaction end, or end it; then give the command again: nothing was changed"
        raise AttemptFailed(code="HR587", what=fault, fix=fix) from error
    # Where the database has committed by itself, what follows is one step again.
    ledger.continue_change()
