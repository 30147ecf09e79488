"""A sink's table with its ledger: to look at, or locked to be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.transactions import Transaction, explain_failure, open_reader
from headrace.contract import SinkContext
from headrace.errors import AttemptFailed


@dataclass(frozen=True, kw_only=True)
class SinkTable:
    """The base of each thing that can be done with a sink's table.

    dialect: gives the database's own ways. system: where it is, for people. is_there: there may be such a database.
    """

    dialect: Callable[[], Dialect]
    table: str
    key: Sequence[str] = ()
    system: str = ""
    is_there: bool = True

    @contextmanager
    def open_ledger(self, context: SinkContext) -> Iterator[Ledger]:
        """Open the table's ledger to look at it and at the table."""
        dialect = self.dialect()
        with open_reader(dialect, f"the result of query '{context.query}' cannot be looked at") as connection:
            yield Ledger(connection, dialect, context, dialect.real_name(connection, self.table))

    @contextmanager
    def lock_ledger(self, context: SinkContext, table: str = "") -> Iterator[Ledger]:
        """Open the ledger in one transaction that no batch of the query comes into; an older driver writes no more.

        table: another one than the sink's.
        """
        with self._lock_ledger(context, table) as (ledger, _):
            yield ledger

    @contextmanager
    def change_ledger(self, context: SinkContext) -> Iterator[Ledger | None]:
        """Do the same for the context's change, and keep its mark; None: there is nothing more to do."""
        with self._lock_ledger(context, "") as (ledger, is_due):
            yield ledger if is_due else None

    @contextmanager
    def _lock_ledger(self, context: SinkContext, table: str) -> Iterator[tuple[Ledger, bool]]:
        dialect, transaction, whose = self.dialect(), Transaction(), f"the result of query '{context.query}'"
        try:
            with closing(dialect.connect()) as connection:
                ledger = Ledger(connection, dialect, context, dialect.real_name(connection, table or self.table))
                ledger.create()
                with transaction.begin(connection, dialect):
                    ledger.owner(lock=True)
                    ledger.epoch(lock=True)
                    yield ledger, ledger.begin_change()
        except dialect.errors as error:
            failure = explain_failure(dialect, error, f"{whose} cannot be moved", transaction, f"{whose} was moved")
            unchanged = dialect.transactional_ddl and not transaction.is_in_doubt
            raise (AttemptFailed(replace(failure.findings[0], code="HR587")) if unchanged else failure) from None
