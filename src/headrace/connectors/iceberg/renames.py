"""An Iceberg table brought under a new name, and its ledger under its query's."""

from __future__ import annotations

import uuid
from dataclasses import replace

from headrace.connectors.exactly_once import Conflict, take_epoch
from headrace.connectors.iceberg.batches import committing
from headrace.connectors.iceberg.ledger import PROPERTY, Ledger
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError


def rename_query(place: TableRef, context: SinkContext, former: str) -> None:
    """Let the ledger, if it is that of the query `former`, be the context's, with those of older generations."""
    what = f"others commit to {place} all the time"
    contended = Finding(code="HR453", what=what, fix="let other writers leave pauses; then start again")
    with place.translate_errors():
        take_epoch(lambda: _renamed(place, context, former), contended)


def _renamed(place: TableRef, context: SinkContext, former: str) -> None:
    from pyiceberg.exceptions import CommitFailedException

    table = place.find()
    known = None if table is None else Ledger.of(table)
    if table is None or known is None or known.query != former or known.application not in (context.application, ""):
        return
    # The epoch is drawn anew, so that a driver of the former name writes nothing more.
    taken = replace(known, query=context.query, epoch=uuid.uuid4().hex)
    properties = {name: text for name, text in table.metadata.properties.items() if name.startswith(f"{PROPERTY}.g")}
    kept = {name: replace(Ledger.loads(text), query=context.query).text for name, text in properties.items()}
    try:
        with committing(table, taken, kept) as update, update.fast_append():
            pass
    except CommitFailedException as error:
        raise Conflict("another writer was quicker") from error


def rename_table(place: TableRef, former: str, context: SinkContext) -> None:
    """Let the query's table `former` be called as `place` says, if that is free; its ledger lies in it."""
    old = replace(place, table=former)
    with place.translate_errors():
        there, found = place.find(), old.find()
        known = None if found is None else Ledger.of(found)
        if known is None or not known.is_of(context):
            if there is None:
                what = f"neither {place} nor '{former}', from which it is renamed, is the query's"
                raise SinkError(Finding(code="HR549", what=what, fix="restore the table, or correct its name"))
            return
        if there is not None:
            what = f"{old} cannot be renamed to '{place.table}', which is there as well"
            fix = f"drop or rename the one that is not the result of query '{context.query}', and start again"
            raise SinkError(Finding(code="HR549", what=what, fix=fix))
        catalog, namespace = place.connect(), place.table.rpartition(".")[0]
        if not catalog.namespace_exists(namespace):
            catalog.create_namespace(namespace)
        catalog.rename_table(former, place.table)
