"""A Delta table that another program has written, taken over as a query's result."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.checkpoint import Checkpoint
from headrace.connectors.delta import ledger
from headrace.connectors.delta.ledger import Beginning, Progress
from headrace.connectors.delta.table import DeltaTable, State
from headrace.connectors.exactly_once import Conflict, take_epoch
from headrace.contract import Held, SinkContext
from headrace.errors import Finding, SinkError


def foreign_rows(state: State, name: str, key: Sequence[str], context: SinkContext) -> tuple[Held, ...]:
    """The rows of the table. Raises SinkError where a query has written them, or several share the key."""
    from pyspark.sql import functions as F

    _require_free(state, name, context)
    rows = state.rows()
    if key:
        counted = rows.groupBy(*[F.col(f"`{column}`") for column in key]).count().where("count > 1").limit(1).collect()
        if counted:
            shown = ", ".join(f"{column} {value!r}" for column, value in zip(key, counted[0], strict=False))
            what = f"{name} has {counted[0]['count']} rows with the key {shown}, and a query replaces one"
            raise SinkError(Finding(code="HR596", what=what, fix="delete all but one of them, or name another key"))
    return (Held(count=rows.count(), what=f"rows of {name}"),)


def foreign_batch(state: State, context: SinkContext) -> int | None:
    """The last batch of the former job; Delta's own streaming sink enters each under the id of its checkpoint."""
    return state.txn_ids.get(Checkpoint(context.checkpoint).id or "")


def take_over(table: DeltaTable, name: str, context: SinkContext, batch: int | None) -> None:
    """Enter whose the table is, and that `batch` is in, in one version; what is entered already stays."""
    what = f"other writers changed {name} again and again"
    contended = Finding(code="HR441", what=what, fix="give the command again when the table is at rest")
    take_epoch(lambda: _entered(table, name, context, batch), contended)


def _entered(table: DeltaTable, name: str, context: SinkContext, batch: int | None) -> None:
    state = table.now()
    txn_ids, identity = state.txn_ids, Checkpoint(context.checkpoint).id or ""
    own = ledger.progress(context, txn_ids)
    if own.batch == batch and ledger.checkpoint_mark(context, identity) in txn_ids:
        return
    _require_free(state, name, context)
    entered = {
        ledger.app(context.query, context.generation): Progress(own.epoch + 1, batch).number,
        # All rows that are there count as the query's.
        ledger.begin_mark(context): Beginning(state.version, had_rows=False).number,
        ledger.checkpoint_mark(context, identity): 1,
        ledger.application_mark(context, context.application): 1,
    }
    if context.mode != "append":
        entered[ledger.exclusive_mark(context.query, context.generation)] = 1
    if not table.mark(entered, seen={mark: txn_ids[mark] for mark in entered if mark in txn_ids}):
        raise Conflict("another writer was quicker")


def _require_free(state: State, name: str, context: SinkContext) -> None:
    """Raise SinkError where batches of a query of Headrace are in the table."""
    handed_over = ledger.is_handed_over(context, state.txn_ids)
    for (query, generation), each in ledger.progress_of_all(state.txn_ids).items():
        if each.batch is not None and not (handed_over and (query, generation) != (context.query, context.generation)):
            what = f"{name} has batches of generation {generation} of query '{query}' already, up to {each.batch}"
            fix = "reset that query first (headrace reset QUERY), if the former job is to continue in its place"
            raise SinkError(Finding(code="HR595", what=what, fix=fix))
