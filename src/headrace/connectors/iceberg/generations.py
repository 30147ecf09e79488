"""A table that becomes another's: set aside, handed on, exchanged, renamed, or taken over from another program.

A table is set aside by renaming it in its catalog; its files stay where they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.connectors.exactly_once import Conflict, Renames, take_epoch
from headrace.connectors.iceberg.batches import committing
from headrace.connectors.iceberg.ledger import PROPERTY, TableLedger
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import Held, Session, SinkAdoption, SinkContext, SinkRename, SinkReset, SinkSwap
from headrace.errors import Finding, NothingChanged, SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class IcebergReset(SinkReset):
    """A table set aside, brought back, discarded, or handed to the next generation; each keeps its own ledger."""

    place: TableRef

    def held(self, context: SinkContext, session: Session) -> tuple[Held, ...]:
        place = self.place
        with place.translate_errors():
            table = _own(place, context)
            current = None if table is None else table.current_snapshot()
            if current is None or current.summary is None:
                return ()
            return (Held(count=int(current.summary["total-records"] or 0), what=f"rows of {place}"),)

    def hand_over(self, context: SinkContext, generation: int, session: Session) -> None:
        place = self.place
        what = f"others commit to {place} all the time"
        fix = "let other writers leave pauses; then give the command again"
        with place.translate_errors():
            contended = Finding(code="HR441", what=what, fix=fix)
            take_epoch(lambda: _handed_over(place, context, generation), contended)

    def set_aside(self, context: SinkContext, session: Session) -> None:
        place = self.place
        with place.translate_errors():
            if _own(place, context) is not None:
                place.connect().rename_table(place.table, aside_name(place, context))

    def bring_back(self, context: SinkContext, session: Session) -> None:
        place = self.place
        with place.translate_errors():
            catalog, kept = place.connect(), aside_name(place, context)
            if not catalog.table_exists(kept):
                return
            newer = place.find()
            if newer is not None:
                ledger, current = TableLedger.of(newer), newer.current_snapshot()
                rows = current is not None and (current.summary is None or current.summary["total-records"] != "0")
                if ledger is None or ledger.query != context.query or ledger.batch >= 0 or rows:
                    what = f"{place} has rows again, so that the former ones cannot be brought back"
                    fix = "look whose they are; drop the table if nobody needs it, and give the command again"
                    raise NothingChanged(Finding(code="HR583", what=what, fix=fix))
                catalog.drop_table(place.table)
            catalog.rename_table(kept, place.table)

    def discard(self, context: SinkContext, session: Session) -> None:
        place = self.place
        with place.translate_errors():
            catalog, kept = place.connect(), aside_name(place, context)
            if catalog.table_exists(kept):
                catalog.purge_table(kept)
            table = place.find()
            if table is not None and _kept(context.generation) in table.metadata.properties:
                with table.transaction() as transaction:
                    transaction.remove_properties(_kept(context.generation))


@dataclass(frozen=True, kw_only=True)
class IcebergSwap(SinkSwap):
    """The table of a rebuild put in place, and taken back."""

    place: TableRef

    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        place = self.place
        with place.translate_errors():
            there = place.find()
            if there is not None and _own(place, context) is None and place.connect().table_exists(name_beside(place)):
                what = f"{place} is not the result of generation {context.generation} of query '{context.query}'"
                raise NothingChanged(
                    Finding(code="HR587", what=what, fix="look whose it is; or write to another table")
                )
            _renames(place, context).swap_in()

    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        with self.place.translate_errors():
            _renames(self.place, context).swap_out()


def _handed_over(place: TableRef, context: SinkContext, generation: int) -> None:
    from pyiceberg.exceptions import CommitFailedException

    table = _own(place, context)
    known = None if table is None else TableLedger.of(table)
    if table is None or known is None:
        return
    text = table.metadata.properties.get(_kept(generation))
    fresh = replace(known, generation=generation, batch=-1, checkpoint="", lines=())
    taken = replace(fresh if text is None else TableLedger.loads(text), epoch=uuid.uuid4().hex)
    try:
        with committing(table, taken, {_kept(context.generation): known.text}) as update, update.fast_append():
            pass
    except CommitFailedException as error:
        raise Conflict("another writer was quicker") from error


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
    known = None if table is None else TableLedger.of(table)
    return table if known is not None and known.is_of(context) else None


@dataclass(frozen=True, kw_only=True)
class IcebergRename(SinkRename):
    """A table under another name, or its ledger under the query's; `renamed_from`: what the table was called."""

    place: TableRef
    renamed_from: str = ""

    def rename_query(self, context: SinkContext, former: str, session: Session) -> None:
        place = self.place
        what = f"others commit to {place} all the time"
        contended = Finding(code="HR441", what=what, fix="let other writers leave pauses; then start again")
        with place.translate_errors():
            take_epoch(lambda: _renamed(place, context, former), contended)

    def rename_table(self, context: SinkContext, session: Session) -> None:
        place, former = self.place, self.renamed_from
        old = replace(place, table=former)
        with place.translate_errors():
            there, found = place.find(), old.find()
            known = None if found is None else TableLedger.of(found)
            if known is None or not known.is_of(context):
                if there is None:
                    what = f"neither {place} nor '{former}', from which it is renamed, is the query's"
                    raise NothingChanged(Finding(code="HR549", what=what, fix="restore the table, or correct its name"))
                return
            if there is not None:
                what = f"{old} cannot be renamed to '{place.table}', which is there as well"
                fix = f"drop or rename the one that is not the result of query '{context.query}', and start again"
                raise NothingChanged(Finding(code="HR549", what=what, fix=fix))
            catalog, namespace = place.connect(), place.table.rpartition(".")[0]
            if not catalog.namespace_exists(namespace):
                catalog.create_namespace(namespace)
            catalog.rename_table(former, place.table)


def _renamed(place: TableRef, context: SinkContext, former: str) -> None:
    from pyiceberg.exceptions import CommitFailedException

    table = place.find()
    known = None if table is None else TableLedger.of(table)
    if table is None or known is None or known.query != former or known.application not in (context.application, ""):
        return
    # The epoch is drawn anew, so that a driver of the former name writes nothing more.
    taken = replace(known, query=context.query, epoch=uuid.uuid4().hex)
    properties = {name: text for name, text in table.metadata.properties.items() if name.startswith(f"{PROPERTY}.g")}
    kept = {name: replace(TableLedger.loads(text), query=context.query).text for name, text in properties.items()}
    try:
        with committing(table, taken, kept) as update, update.fast_append():
            pass
    except CommitFailedException as error:
        raise Conflict("another writer was quicker") from error


# What Iceberg's own streaming sink for Spark says in each snapshot. Source: SparkWrite of Iceberg.
_QUERY, _BATCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


@dataclass(frozen=True, kw_only=True)
class IcebergAdoption(SinkAdoption):
    """A table that another program has written; `find` gives it for a result, and raises where it does not fit."""

    place: TableRef
    find: Callable[[DataFrame, SinkContext], Table]

    def foreign_rows(self, frame: DataFrame, context: SinkContext) -> tuple[Held, ...]:
        place = self.place
        with place.translate_errors():
            table = self.find(frame, context)
            _require_free(table, place, context)
            current = table.current_snapshot()
            if current is None:
                return (Held(count=0, what=f"rows of {place}"),)
            told = None if current.summary is None else current.summary["total-records"]
            count = int(told) if told is not None else table.scan().count()
            return (Held(count=count, what=f"rows of {place}"),)

    def foreign_batch(self, frame: DataFrame, context: SinkContext) -> int | None:
        with self.place.translate_errors():
            table = self.find(frame, context)
            identity = Checkpoint(context.checkpoint).id
            batches = [
                int(each.summary[_BATCH] or -1)
                for each in table.snapshots()
                if each.summary is not None and identity and each.summary[_QUERY] == identity
            ]
            return max(batches, default=None)

    def take_over(self, frame: DataFrame, context: SinkContext, batch: int | None) -> None:
        place = self.place
        with place.translate_errors():
            self.find(frame, context)
            what = f"others commit to {place} all the time"
            fix = "let other writers leave pauses; then give the command again"
            contended = Finding(code="HR441", what=what, fix=fix)
            take_epoch(lambda: _entered(place, frame.schema, context, batch), contended)


def _entered(place: TableRef, schema: StructType, context: SinkContext, batch: int | None) -> None:
    from pyiceberg.exceptions import CommitFailedException

    table = place.open()
    _require_free(table, place, context)
    identity = "" if batch is None else Checkpoint(context.checkpoint).id or ""
    last, there = -1 if batch is None else batch, TableLedger.of(table)
    if there is not None and there.is_of(context) and (there.batch, there.checkpoint) == (last, identity):
        return
    entered = TableLedger(
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
    found = TableLedger.of(table)
    identity = Checkpoint(context.checkpoint).id
    if found is None or found.batch < 0 or (found.is_of(context) and found.checkpoint == identity):
        return
    what = f"{place} has batches of generation {found.generation} of query '{found.query}' already, up to {found.batch}"
    fix = "reset that query first (headrace reset QUERY), if the former job is to continue in its place"
    raise SinkError(Finding(code="HR580", what=what, fix=fix))
