"""A Delta table brought under a new name, and what it keeps of a query under the query's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.connectors.delta import ledger
from headrace.connectors.delta.generations import rename
from headrace.connectors.delta.table import DeltaTable, named
from headrace.connectors.exactly_once import Conflict, take_epoch
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rename_query(table: DeltaTable, name: str, context: SinkContext, former: str) -> None:
    """Let the transaction identifiers of the query `former`, of all generations, be those of the context's query."""
    what = f"other writers changed {name} again and again, so that query '{former}' could not be renamed there"
    contended = Finding(code="HR441", what=what, fix="start again when the table is at rest")
    take_epoch(lambda: _renamed(table, name, context, former), contended)


def _renamed(table: DeltaTable, name: str, context: SinkContext, former: str) -> None:
    txn_ids = table.now().txn_ids
    entered = ledger.renamed(context, former, txn_ids)
    if not entered:
        return
    known = ledger.progress_of_all(txn_ids)
    if any(query == context.query and each.batch is not None for (query, _), each in known.items()):
        what = f"{name} has batches of query '{former}' and of '{context.query}'"
        raise SinkError(Finding(code="HR549", what=what, fix="let the query have another name"))
    if not table.mark(entered, seen={mark: txn_ids[mark] for mark in entered if mark in txn_ids}):
        raise Conflict("another writer was quicker")


def rename_table(spark: SparkSession, name: str, former: str, context: SinkContext) -> None:
    """Let the query's table `former` of Spark's catalog be called `name`, if that is free."""
    (new, kind), (old, _) = named(spark, name, SinkError), named(spark, former, SinkError)
    if old is None or not ledger.is_known(context, old.now().txn_ids):
        if new is None:
            what = f"the catalog has neither table '{name}' nor the query's '{former}', from which it is renamed"
            fix = f"enter it into the catalog as '{name}': CREATE TABLE {name} USING delta LOCATION its directory"
            raise SinkError(Finding(code="HR549", what=what, fix=fix))
        return
    if new is not None or kind:
        what = f"table '{former}' cannot be renamed to '{name}', which is there as well"
        fix = f"drop or rename the one that is not the result of query '{context.query}', and start again"
        raise SinkError(Finding(code="HR549", what=what, fix=fix))
    rename(old, former, name)
