"""Write late rows, or a repair, into a result table in one transaction with a line of their own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.connectors.sql.before_images import BeforeImages
from headrace.connectors.sql.dialect import StageError, run
from headrace.connectors.sql.ledger import Ledger, now
from headrace.connectors.sql.quarantine import QuarantineTable
from headrace.connectors.sql.result_table import ResultTable, result_table
from headrace.connectors.sql.rewind import Rewinding
from headrace.connectors.sql.sink_table import SinkTable
from headrace.connectors.sql.staging import Content, RowError, Stage, staging_prefix
from headrace.connectors.sql.system_tables import REPLAYS, make_all
from headrace.connectors.sql.transactions import Transaction, open_reader, open_writer
from headrace.connectors.sql.types import flatten, rows
from headrace.contract import Correction, SinkContext, SinkCorrections, SinkRepair
from headrace.errors import NothingChanged, SinkError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class TableCorrections(SinkTable, SinkCorrections):
    """Late rows brought back into a table; the epoch's lock keeps batches of the query out of the transaction.

    quarantines: a row that the table does not take is kept apart. rewindable: what is replaced is kept.
    """

    quarantines: bool = False
    rewindable: bool = False

    def last(self, context: SinkContext) -> int | None:
        dialect = self.dialect()
        with open_reader(dialect, f"it is not known whether {_outcome(context, late=0)}") as connection:
            return Ledger(connection, dialect, context, self.table).last_replay(Checkpoint(context.checkpoint).id or "")

    @property
    def repair(self) -> TableRepair | None:
        return TableRepair(dialect=self.dialect, table=self.table, key=self.key) if self.key else None

    def apply(self, correction: Correction, context: SinkContext) -> None:
        # A correction replaces rows by their key, whatever the query's own mode is.
        context, late = replace(context, mode="update"), correction.late
        dialect = self.dialect()
        table = result_table(self.table, self.key, correction.rows.schema, context)
        cannot, done = (_outcome(context, late, negated=negated) for negated in (True, False))
        try:
            with open_writer(dialect, cannot, done) as (connection, transaction):
                ledger = Ledger(connection, dialect, context, dialect.real_name(connection, self.table))
                table = table.with_real_name(ledger)
                ledger.create()
                if late is not None:
                    make_all(connection, dialect, [REPLAYS])
                before = BeforeImages.of(ledger, table)
                if self.rewindable:
                    before.make()
                stage = _stage(ledger, table, quarantines=self.quarantines)
                content = stage.compute_large(correction.rows)
                try:
                    _transact(ledger, table, content, correction, before, transaction, keeps=self.rewindable)
                finally:
                    with suppress(*dialect.errors):
                        dialect.drop_staged(connection, [part.name for part in content.all_parts])
        except RowError as error:
            fix = f"{error.fix}; or set on_bad_row to quarantine"
            fix += "" if late is None else "; the late rows can also be exported: --export"
            raise _explain(context, "HR408", str(error), fix, late) from None
        except StageError as error:
            raise _explain(context, error.problem.code, error.problem.what, error.problem.fix, late) from None


def _stage(ledger: Ledger, table: ResultTable, *, quarantines: bool) -> Stage:
    dialect, context = ledger.dialect, ledger.context
    there, owner = ledger.describe_table(table.name), table.owner(ledger)
    list(table.changes(ledger, there, owner, adds=False))
    return Stage(
        dialect=dialect,
        prefix=staging_prefix(context, ledger.epoch()),
        columns=table.columns,
        key=table.key,
        limits=table.limits(there, dialect) if there is not None else {},
        clustered=True,
        quarantines=quarantines,
        driver_rows=dialect.driver_rows,
        widest=dialect.widest(ledger.connection),
    )


def _transact(
    ledger: Ledger,
    table: ResultTable,
    content: Content,
    correction: Correction,
    before: BeforeImages,
    transaction: Transaction,
    *,
    keeps: bool,
) -> None:
    connection, dialect, context = ledger.connection, ledger.dialect, ledger.context
    batch = correction.snapshot.batch
    assert batch is not None, "a correction is computed from batches that were written"
    key = table.key_columns
    deletes = _deleted_keys(correction, table)
    gone = rows(deletes, key, dialect.forms)
    same = " AND ".join(f"{dialect.quote(column.name)} = {dialect.placeholder}" for column in key)
    target = table.target(replaces=True)
    dialect.attach(connection, content.all_parts)
    context.on_boundary("before-transaction", batch)
    with transaction.begin(connection, dialect):
        epoch = ledger.epoch(lock=True)
        _require_unchanged(ledger, correction)
        before.forget_repairs()
        if correction.late is None:
            ledger.enter_epoch(epoch + 1)
        if keeps:
            step = before.begin(batch, "repair" if correction.late is None else "correction")
            before.keep_keys(step, deletes)
            before.keep_content(step, content)
        for values in gone:
            run(connection, f"DELETE FROM {dialect.quote(table.name)} WHERE {same}", values)
        if content.table.num_rows:
            dialect.write(connection, target, content.table)
        if content.parts:
            dialect.merge(connection, target, content.parts)
        quarantine = QuarantineTable.next_to(ledger)
        bad = quarantine.add(batch, content.bad) + quarantine.merge(batch, content.bad_parts)
        context.on_boundary("inside-transaction", batch)
        if correction.late is not None:
            whose = (*ledger.life, ledger.table, Checkpoint(context.checkpoint).id or "", batch)
            ledger.enter(REPLAYS, *whose, correction.late, content.rows, len(gone), bad, now())
    context.on_boundary("after-transaction", batch)


def _require_unchanged(ledger: Ledger, correction: Correction) -> None:
    last, context = ledger.last(), ledger.context
    batch, replayed = None if last is None else last.batch, ledger.last_replay(Checkpoint(context.checkpoint).id or "")
    if (batch, replayed) != (correction.snapshot.batch, correction.snapshot.replayed):
        same = replayed == correction.snapshot.replayed
        fault = "a batch was written meanwhile" if same else "another replay was done"
        raise _explain(context, "HR693", fault, "let nothing else write, and give the command again", correction.late)


def _deleted_keys(correction: Correction, table: ResultTable) -> pa.Table:
    """Return the keys of the rows that the result no longer has."""
    columns = table.key_columns
    return flatten(correction.deletes.select(*[f"`{column.name}`" for column in columns]), columns).toArrow()


def _outcome(context: SinkContext, late: int | None, *, negated: bool = False) -> str:
    """Return a sentence about the correction; late: None for a repair."""
    rows, done = ("wrong", "put right") if late is None else ("late", "brought back")
    return f"{rows} rows of query '{context.query}' were {'not ' if negated else ''}{done}"


def _explain(context: SinkContext, code: str, fault: str, fix: str, late: int | None) -> SinkError:
    return SinkError(code=code, what=f"{_outcome(context, late, negated=True)}: {fault}", fix=fix)


@dataclass(frozen=True, kw_only=True)
class TableRepair(SinkTable, SinkRepair):
    """Rows of a table put right by their key; what they replace is kept as a step of the table's earlier rows."""

    def apply(self, correction: Correction, context: SinkContext) -> None:
        corrections = TableCorrections(dialect=self.dialect, table=self.table, key=self.key, rewindable=True)
        corrections.apply(correction, context)

    def undo(self, context: SinkContext) -> None:
        with self.lock_ledger(context) as ledger:
            rewinding, last = Rewinding.of(ledger, self.key, self.table), ledger.last()
            steps = () if rewinding is None else rewinding.images.steps()
            step = next((step for step in steps if step.kind == "repair"), None)
            if rewinding is None or step is None:
                fault = f"no repair of table '{ledger.table}' is kept that could be undone"
                raise NothingChanged(code="HR583", what=fault)
            if last is None or last.batch != step.batch:
                fault = f"table '{ledger.table}' has got other batches of query '{context.query}' since its repair"
                fix = "keep the repair: what it has replaced may be wrong for them"
                raise NothingChanged(code="HR583", what=fault, fix=fix)
            rewinding.restore([step])
            rewinding.images.forget_repairs()
