"""The result of one generation of a query set aside, brought back, discarded, or handed to the next generation.

A table is set aside by renaming it in its catalog; its files stay where they are.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.connectors.exactly_once import Conflict, Renames, take_epoch
from headrace.connectors.iceberg.batches import committing
from headrace.connectors.iceberg.ledger import PROPERTY, Ledger
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import Held, SinkContext
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table


def held(place: TableRef, context: SinkContext) -> tuple[Held, ...]:
    """The rows of the table, if it is the generation's."""
    with place.translate_errors():
        table = _own(place, context)
        current = None if table is None else table.current_snapshot()
        if current is None or current.summary is None:
            return ()
        return (Held(count=int(current.summary["total-records"] or 0), what=f"rows of {place}"),)


def hand_over(place: TableRef, context: SinkContext, generation: int) -> None:
    """Let the table, with its rows, be that of another generation; each keeps its own ledger there."""
    what = f"others commit to {place} all the time"
    fix = "let other writers leave pauses; then give the command again"
    with place.translate_errors():
        contended = Finding(code="HR453", what=what, fix=fix)
        take_epoch(lambda: _handed_over(place, context, generation), contended)


def _handed_over(place: TableRef, context: SinkContext, generation: int) -> None:
    from pyiceberg.exceptions import CommitFailedException

    table = _own(place, context)
    known = None if table is None else Ledger.of(table)
    if table is None or known is None:
        return
    text = table.metadata.properties.get(_kept(generation))
    fresh = replace(known, generation=generation, batch=-1, checkpoint="", lines=())
    taken = replace(fresh if text is None else Ledger.loads(text), epoch=uuid.uuid4().hex)
    try:
        with committing(table, taken, {_kept(context.generation): known.text}) as update, update.fast_append():
            pass
    except CommitFailedException as error:
        raise Conflict("another writer was quicker") from error


def set_aside(place: TableRef, context: SinkContext) -> None:
    """Give the table, if it is the generation's, a name of its own."""
    with place.translate_errors():
        if _own(place, context) is not None:
            place.connect().rename_table(place.table, aside_name(place, context))


def bring_back(place: TableRef, context: SinkContext) -> None:
    """Give the table its name again; one without batches that a later generation has made in its place is dropped."""
    with place.translate_errors():
        catalog, kept = place.connect(), aside_name(place, context)
        if not catalog.table_exists(kept):
            return
        newer = place.find()
        if newer is not None:
            ledger, current = Ledger.of(newer), newer.current_snapshot()
            rows = current is not None and (current.summary is None or current.summary["total-records"] != "0")
            if ledger is None or ledger.query != context.query or ledger.batch >= 0 or rows:
                what = f"{place} has rows again, so that the former ones cannot be brought back"
                fix = "look whose they are; drop the table if nobody needs it, and give the command again"
                raise SinkError(Finding(code="HR583", what=what, fix=fix))
            catalog.drop_table(place.table)
        catalog.rename_table(kept, place.table)


def discard(place: TableRef, context: SinkContext) -> None:
    """Drop the table that was set aside with its files, or forget the ledger that was handed over."""
    with place.translate_errors():
        catalog, kept = place.connect(), aside_name(place, context)
        if catalog.table_exists(kept):
            catalog.purge_table(kept)
        table = place.find()
        if table is not None and _kept(context.generation) in table.metadata.properties:
            with table.transaction() as transaction:
                transaction.remove_properties(_kept(context.generation))


def swap_in(place: TableRef, context: SinkContext) -> None:
    """Set the table aside, if it is the generation's, and give that of a rebuild its name."""
    with place.translate_errors():
        there = place.find()
        if there is not None and _own(place, context) is None and place.connect().table_exists(name_beside(place)):
            what = f"{place} is not the result of generation {context.generation} of query '{context.query}'"
            raise SinkError(Finding(code="HR587", what=what, fix="look whose it is; or write to another table"))
        _renames(place, context).swap_in()


def swap_out(place: TableRef, context: SinkContext) -> None:
    """Take `swap_in` back."""
    with place.translate_errors():
        _renames(place, context).swap_out()


def name_beside(place: TableRef) -> str:
    """What the table of a rebuild is called until it is put in place."""
    return f"{place.table}__headrace_rebuild"


def _renames(place: TableRef, context: SinkContext) -> Renames:
    catalog = place.connect()

    def rename(old: str, new: str) -> None:
        catalog.rename_table(old, new)

    return Renames(
        name=place.table,
        beside=name_beside(place),
        aside=aside_name(place, context),
        exists=catalog.table_exists,
        rename=rename,
    )


def aside_name(place: TableRef, context: SinkContext) -> str:
    """What the table of the context's generation is called when it is set aside."""
    return f"{place.table}__headrace_aside_g{context.generation}"


def _kept(generation: int) -> str:
    """The property that keeps the ledger of a generation while the table is another's."""
    return f"{PROPERTY}.g{generation}"


def _own(place: TableRef, context: SinkContext) -> Table | None:
    table = place.find()
    known = None if table is None else Ledger.of(table)
    return table if known is not None and known.is_of(context) else None
