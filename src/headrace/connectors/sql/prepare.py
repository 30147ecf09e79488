"""Make a database table ready for a query's batches, and read it back as whole batches."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.connectors.exactly_once import CheckpointView, Line, Retry, require_fit, view_of
from headrace.connectors.sql.before_images import BeforeImages
from headrace.connectors.sql.dialect import Connection, Dialect, Transaction, run
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.ledger_tables import LEDGER_FORM, UNCLAIMED
from headrace.connectors.sql.limits import Limit
from headrace.connectors.sql.quarantine import Quarantine
from headrace.connectors.sql.result_table import ResultTable, require_columns
from headrace.connectors.sql.staging import drop_staged
from headrace.connectors.sql.types import ResultColumn, columns, restore
from headrace.contract import SinkContext, Snapshot
from headrace.errors import Finding, HeadraceError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


CONTENDED_SECONDS = 20.0


def result_table(name: str, key: Sequence[str], schema: StructType, context: SinkContext) -> ResultTable:
    """The table for a result of `schema`; raises SinkError with every column that does not fit."""
    known, refused = columns(schema)
    wrong = [*refused, *require_columns(schema.names, key)]
    if wrong:
        fix = "change the query's last select"
        raise SinkError(
            [Finding(code="HR404", what=f"the result of query '{context.query}': {what}", fix=fix) for what in wrong]
        )
    return ResultTable(name=name, key=tuple(key), columns=known)


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A table that is ready to take batches: the epoch of this driver, and what each column takes.

    widened: the result's schema, if columns are to be added with the first batch; None: the table has all of them.
    """

    table: ResultTable
    epoch: int
    limits: Mapping[str, Limit]
    widened: str | None = None


def prepare(
    dialect: Dialect,
    table: ResultTable,
    schema: str,
    context: SinkContext,
    *,
    adds: bool = False,
    rewindable: bool = False,
) -> Ready:
    """Make the table and the ledger ready, and take the next epoch.

    If anything does not fit, nothing is changed and an older driver is not disturbed. Where another start was in the
    way, as one that makes the same tables, it is tried again. Raises SinkError, CheckpointError.
    """
    pauses = Retry(seconds=CONTENDED_SECONDS, uneven=True).pauses()
    while True:
        try:
            with closing(dialect.connect()) as connection:
                known = table.as_known(connection, dialect)
                ready = _prepared(connection, dialect, known, schema, context, adds=adds)
                if rewindable:
                    BeforeImages.of(connection, dialect, context, known).make()
                return ready
        except _Renamed:
            continue
        except dialect.errors as error:
            # How long a lock is waited for is the caller's to say.
            again = dialect.is_contended(error) and not dialect.waits_for_lock(error)
            pause = next(pauses, None) if again else None
            if pause is None:
                raise _explained(dialect, error, context) from None
            time.sleep(pause)


class _Renamed(Exception):
    """Another start has made the table meanwhile, under another spelling of its name."""


def _prepared(
    connection: Connection, dialect: Dialect, table: ResultTable, schema: str, context: SinkContext, *, adds: bool
) -> Ready:
    ledger = Ledger(connection, dialect, context, table.name)
    ledger.create()
    with Transaction().begin(connection, dialect):
        changes, epoch = _locked(ledger, table, adds=adds)
        for change in changes:
            run(connection, change)
        if changes and not dialect.transactional_ddl:
            # The database has committed by itself; what was found before may have changed since.
            run(connection, dialect.begin_write)
            _, epoch = _locked(ledger, table, adds=adds)
        # Columns are added with the first batch, so that a start that comes to nothing leaves the table as it was.
        there, owner = dialect.existing(connection, table.name), ledger.owner() or table.owner(ledger)
        added = table.additions(there, dialect) if adds and there is not None else []
        ledger.own(owner.schema if added and owner is not None and owner.schema else schema)
        ledger.enter_epoch(epoch + 1)
    limits = table.limits(there, dialect) if there is not None else {}
    drop_staged(connection, dialect, context, epoch + 1)
    return Ready(table=table, epoch=epoch + 1, limits=limits, widened=schema if added else None)


def _locked(ledger: Ledger, table: ResultTable, *, adds: bool) -> tuple[list[str], int]:
    """What must be changed before the query's batches fit, and the newest epoch; raises when they cannot fit.

    Both rows are locked first. An older driver's batch has then ended, no other can begin, and all that is read here
    stays as it is until the commit.
    """
    connection, dialect, context = ledger.connection, ledger.dialect, ledger.context
    owner, epoch = ledger.owner(lock=True) or table.owner(ledger), ledger.epoch(lock=True)
    if dialect.real_name(connection, table.spelled or table.name) != table.name:
        raise _Renamed
    here = view_of(context)
    lines = ledger.lines(min(here.digests, default=0))
    if not lines and owner is not None and owner.application == UNCLAIMED and owner.is_of(context):
        lines = _taken_over(ledger, here)
    require_fit(context, table.name, lines, here, ledger.planned)
    there = dialect.existing(connection, table.name)
    changes = list(table.changes(there, dialect, context, owner, adds=adds))
    if there is not None:
        table.require_ours(connection, dialect, context, owner, there.elsewhere)
    return changes, epoch


def _taken_over(ledger: Ledger, here: CheckpointView) -> list[Line]:
    """The lines of Headrace 0.1.0; those of this checkpoint become the life's own."""
    lines = ledger.lines(claimed=False)
    if lines and here.id == lines[-1].checkpoint:
        ledger.take_over(here.id)
    return lines


def last_batch(dialect: Dialect, name: str, context: SinkContext) -> int | None:
    """The newest batch of the life's checkpoint that is in; None also where the database does not tell."""
    with suppress(*dialect.errors), closing(dialect.connect_to_read()) as connection:
        last = Ledger(connection, dialect, context, name).last()
        if last is not None and last.checkpoint == Checkpoint(context.checkpoint).id:
            return last.batch
    return None


def planned(dialect: Dialect, name: str, context: SinkContext, first: int) -> dict[int, str]:
    """What the ledger keeps to plan the batches from `first` on again; a text that has not its digest is left out."""
    try:
        with closing(dialect.connect_to_read()) as connection:
            return dict(Ledger(connection, dialect, context, name).plans(first))
    except dialect.errors as error:
        raise _explained(dialect, error, context) from None


def snapshot(dialect: Dialect, name: str, key: Sequence[str], spark: SparkSession, context: SinkContext) -> Snapshot:
    """The table and its last batch, read in one transaction, with the rows that were quarantined."""
    from pyspark.sql.types import StructType

    try:
        with closing(dialect.connect_to_read()) as connection:
            run(connection, dialect.begin_read)
            spelled, name = name, dialect.real_name(connection, name)
            ledger = Ledger(connection, dialect, context, name)
            require_claimed(connection, dialect, name, context)
            owner, last = ledger.owner() or ledger.owner(spelled), ledger.last()
            if owner is None or not owner.is_of(context):
                what = f"table '{name}' holds no result of generation {context.generation} of query '{context.query}'"
                raise SinkError(Finding(code="HR402", what=what, fix=f"run query '{context.query}' first"))
            schema = StructType.fromJson(json.loads(owner.schema))
            known, _ = columns(schema)
            shown = ", ".join(dialect.readable(column) for column in known)
            rows = restore(spark, dialect.stream(connection, f"SELECT {shown} FROM {dialect.quote(name)}"), schema)
            replayed = ledger.replayed(Checkpoint(context.checkpoint).id or "")
            aside = [json.loads(text) for text in Quarantine(connection, dialect, context, name).rows()]
            run(connection, "COMMIT")
    except dialect.errors as error:
        raise _explained(dialect, error, context) from None
    rejected = restore(spark, [[_values(row, known) for row in aside]], schema) if aside else None
    return Snapshot(
        rows=rows, batch=None if last is None else last.batch, key=tuple(key), rejected=rejected, replayed=replayed
    )


def require_claimed(connection: Connection, dialect: Dialect, name: str, context: SinkContext) -> None:
    """Raise SinkError where the ledger is still that of Headrace 0.1.0; only a start takes it over."""
    missing = LEDGER_FORM.missing_columns(connection, dialect)
    if len(missing) < len(LEDGER_FORM.columns) and any(not column.nullable for column in missing):
        what = f"the ledger beside table '{name}' was written by Headrace 0.1.0"
        raise SinkError(
            Finding(code="HR402", what=what, fix=f"run query '{context.query}' first: the start takes it over")
        )


def _values(row: Mapping[str, Any], known: Sequence[ResultColumn]) -> tuple[Any, ...]:
    """The values of a row that was kept as JSON."""
    return tuple(
        bytes.fromhex(row[column.name])
        if column.kind == "binary" and row[column.name] is not None
        else row[column.name]
        for column in known
    )


def _explained(dialect: Dialect, error: Exception, context: SinkContext) -> HeadraceError:
    problem = dialect.explain(error)
    return SinkError(Finding(code=problem.code, what=f"query '{context.query}': {problem.what}", fix=problem.fix))
