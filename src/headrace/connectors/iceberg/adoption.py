"""An Iceberg table that another program has written, taken over as a query's result."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.connectors.exactly_once import Conflict, take_epoch
from headrace.connectors.iceberg.batches import committing
from headrace.connectors.iceberg.ledger import Ledger
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import Held, SinkContext
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql.types import StructType

# What Iceberg's own streaming sink for Spark says in each snapshot. Source: SparkWrite of Iceberg.
_QUERY, _BATCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


def foreign_rows(table: Table, place: TableRef, context: SinkContext) -> tuple[Held, ...]:
    """The rows of the table. Raises SinkError where a query of Headrace has written them."""
    _require_free(table, place, context)
    current = table.current_snapshot()
    if current is None:
        return (Held(count=0, what=f"rows of {place}"),)
    told = None if current.summary is None else current.summary["total-records"]
    count = int(told) if told is not None else table.scan().count()
    return (Held(count=count, what=f"rows of {place}"),)


def foreign_batch(table: Table, context: SinkContext) -> int | None:
    """The last batch of the former job; Iceberg's own streaming sink enters each with the id of its checkpoint."""
    identity = Checkpoint(context.checkpoint).id
    batches = [
        int(each.summary[_BATCH] or -1)
        for each in table.snapshots()
        if each.summary is not None and identity and each.summary[_QUERY] == identity
    ]
    return max(batches, default=None)


def take_over(place: TableRef, schema: StructType, context: SinkContext, batch: int | None) -> None:
    """Enter whose the table is, and that `batch` is in, in one snapshot; what is entered already stays."""
    what = f"others commit to {place} all the time"
    fix = "let other writers leave pauses; then give the command again"
    contended = Finding(code="HR453", what=what, fix=fix)
    take_epoch(lambda: _entered(place, schema, context, batch), contended)


def _entered(place: TableRef, schema: StructType, context: SinkContext, batch: int | None) -> None:
    from pyiceberg.exceptions import CommitFailedException

    table = place.open()
    _require_free(table, place, context)
    identity = "" if batch is None else Checkpoint(context.checkpoint).id or ""
    last, there = -1 if batch is None else batch, Ledger.of(table)
    if there is not None and there.is_of(context) and (there.batch, there.checkpoint) == (last, identity):
        return
    entered = Ledger(
        query=context.query,
        generation=context.generation,
        epoch=uuid.uuid4().hex,
        batch=last,
        checkpoint=identity,
        spark_schema=schema.json(),
        application=context.application,
        project=context.project,
    )
    try:
        with committing(table, entered) as update, update.fast_append():
            pass
    except CommitFailedException as error:
        raise Conflict("another writer was quicker") from error


def _require_free(table: Table, place: TableRef, context: SinkContext) -> None:
    """Raise SinkError where batches of a query of Headrace are in the table."""
    found = Ledger.of(table)
    identity = Checkpoint(context.checkpoint).id
    if found is None or found.batch < 0 or (found.is_of(context) and found.checkpoint == identity):
        return
    what = f"{place} has batches of generation {found.generation} of query '{found.query}' already, up to {found.batch}"
    fix = "reset that query first (headrace reset QUERY), if the former job is to continue in its place"
    raise SinkError(Finding(code="HR595", what=what, fix=fix))
