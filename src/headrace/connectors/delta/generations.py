"""A Delta table that becomes another's: set aside, handed on, exchanged, renamed, or taken over from another program.

A table is set aside by renaming its directory, or the table in Spark's catalog; its log goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.connectors.delta import ledger
from headrace.connectors.delta.ledger import FirstVersion, Progress, own_files
from headrace.connectors.delta.log import local
from headrace.connectors.delta.table import DeltaTable, State, named, require_delta
from headrace.connectors.exactly_once import Conflict, Renames, take_epoch
from headrace.connectors.spark_files import aside
from headrace.contract import Held, Session, SinkAdoption, SinkContext, SinkRename, SinkReset, SinkSwap
from headrace.errors import Finding, NothingChanged, SinkError
from headrace.spark.jvm.gateway import java_session, jvm_of
from headrace.spark.messages.refusals import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What is added to the name of a table for the place of a rebuild.
_BESIDE = "__headrace_rebuild"


@dataclass(frozen=True, kw_only=True)
class OfDelta:
    """What is done with a sink's table is done with these.

    find: gives the table, None if there is none. name: for people. path, table: its place; one of the two is given.
    """

    find: Callable[[SparkSession], DeltaTable | None]
    name: str
    path: str | None
    table: str

    def found(self, session: Session) -> DeltaTable | None:
        require_delta(session(), SinkError)
        return self.find(session())


@dataclass(frozen=True, kw_only=True)
class DeltaReset(OfDelta, SinkReset):
    """A table set aside, brought back, discarded, or handed to the next generation."""

    def held(self, context: SinkContext, session: Session) -> tuple[Held, ...]:
        table = self.found(session)
        state = None if table is None else table.now()
        if state is None or ledger.progress(context, state.txn_ids).batch is None:
            return ()
        files = own_files(state, context, self.name)
        rows = (state.rows() if files is None else state.rows_of(files)).count()
        return (Held(count=rows, what=f"rows of {self.name}"),)

    def hand_over(self, context: SinkContext, generation: int, session: Session) -> None:
        table, name = self.found(session), self.name
        what = f"other writers changed {name} again and again"
        contended = Finding(code="HR441", what=what, fix="give the command again when the table is at rest")
        if table is not None:
            take_epoch(lambda: _handed_over(table, name, context, generation), contended)

    def set_aside(self, context: SinkContext, session: Session) -> None:
        table = self.found(session)
        if table is None or not is_own(table.now(), context):
            return
        require_alone(table.now(), self.name, context)
        if self.path is not None:
            aside.set_aside(directory_of(self.path), context)
            _forget(session(), self.path)
        else:
            rename(table, self.table, aside_name(self.table, context))

    def bring_back(self, context: SinkContext, session: Session) -> None:
        there, spark = self.found(session), session()
        if self.path is not None:
            directory = directory_of(self.path)
            if aside.aside(directory, context).exists():
                self._require_empty(there)
                aside.bring_back(directory, context)
                _forget(spark, self.path)
            return
        kept = aside_name(self.table, context)
        if spark.catalog.tableExists(kept):
            self._require_empty(there)
            with _translate_errors(self.table):
                spark.sql(f"DROP TABLE IF EXISTS {self.table}")
                spark.sql(f"ALTER TABLE {kept} RENAME TO {self.table}")
                if there is not None:
                    _forget(spark, there.location)

    def discard(self, context: SinkContext, session: Session) -> None:
        if self.path is not None:
            aside.discard(directory_of(self.path), context)
        else:
            with _translate_errors(self.table):
                session().sql(f"DROP TABLE IF EXISTS {aside_name(self.table, context)}")

    def _require_empty(self, table: DeltaTable | None) -> None:
        if table is not None and table.now().has_rows:
            what = f"{self.name} has rows again, so that the former ones cannot be brought back"
            fix = "look whose they are; move the table away if nobody needs it, and give the command again"
            raise NothingChanged(Finding(code="HR583", what=what, fix=fix))


@dataclass(frozen=True, kw_only=True)
class DeltaSwap(OfDelta, SinkSwap):
    """The table of a rebuild put in place, and taken back."""

    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        table = self.found(session)
        if table is not None:
            require_alone(table.now(), self.name, context)
        if self.path is not None:
            aside.swap_in(directory_of(self.path), context, rebuilt)
            self._forget_both(session(), self.path)
        else:
            renames(session(), self.table, context).swap_in()

    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        self.found(session)
        if self.path is not None:
            aside.swap_out(directory_of(self.path), context, rebuilt)
            self._forget_both(session(), self.path)
        else:
            renames(session(), self.table, context).swap_out()

    @staticmethod
    def _forget_both(spark: SparkSession, path: str) -> None:
        for place in (directory_of(path), aside.beside(directory_of(path))):
            _forget(spark, str(place))


def beside(path: str | None, table: str | None) -> tuple[str | None, str | None]:
    """The path or the table of a rebuild until it is put in place."""
    if path is not None:
        return str(aside.beside(directory_of(path))), None
    return None, f"{table}{_BESIDE}"


def _handed_over(table: DeltaTable, name: str, context: SinkContext, generation: int) -> None:
    txn_ids = table.now().txn_ids
    if ledger.progress(context, txn_ids).batch is None and not ledger.is_handed_over(context, txn_ids):
        return
    known = ledger.progress_of_all(txn_ids).get((context.query, generation))
    if known is not None and known.is_closed:
        what = f"{name} was taken over by a start of generation {context.generation} of query '{context.query}'"
        raise NothingChanged(Finding(code="HR583", what=what, fix="let the new generation continue"))
    ours, theirs = (ledger.handover_mark(context.query, number) for number in (context.generation, generation))
    entered = {theirs: 1} | ({ours: 0} if ours in txn_ids else {})
    if not table.mark(entered, seen={mark: txn_ids[mark] for mark in entered if mark in txn_ids}):
        raise Conflict("another writer was quicker")


def require_alone(state: State, name: str, context: SinkContext) -> None:
    """Raise SinkError where the table has rows of other queries, which cannot be moved with those of this one."""
    known = ledger.progress_of_all(state.txn_ids)
    others = {query for (query, _), each in known.items() if query != context.query and each.batch is not None}
    if others:
        what = f"{name} has rows of query '{min(others)}' too, so that it cannot be set aside for '{context.query}'"
        fix = "let the query write to another table; or delete its rows by SQL, and its lines of the checkpoint by hand"
        raise NothingChanged(Finding(code="HR587", what=what, fix=fix))


def is_own(state: State, context: SinkContext) -> bool:
    """Whether the generation, or one that it continues, has entered itself into the table."""
    return any(query == context.query for query, _ in ledger.progress_of_all(state.txn_ids))


def rename(table: DeltaTable, name: str, other: str) -> None:
    """Let the table `name` of Spark's catalog be called `other`."""
    location = table.location
    with _translate_errors(name):
        table.spark.sql(f"ALTER TABLE {name} RENAME TO {other}")
        _forget(table.spark, location)


def renames(spark: SparkSession, table: str, context: SinkContext) -> Renames:
    """What puts the table of a rebuild in place in Spark's catalog."""

    def rename(old: str, new: str) -> None:
        found, _ = named(spark, old, SinkError)
        with _translate_errors(old):
            spark.sql(f"ALTER TABLE {old} RENAME TO {new}")
        if found is not None:
            _forget(spark, found.location)

    return Renames(
        name=table,
        beside=f"{table}{_BESIDE}",
        aside=aside_name(table, context),
        exists=spark.catalog.tableExists,
        rename=rename,
    )


def aside_name(table: str, context: SinkContext) -> str:
    """What the table is called when it is set aside."""
    return f"{table}__headrace_aside_g{context.generation}"


def directory_of(path: str) -> Path:
    place = local(path)
    if place is None:
        aside.require_local(path)
    return Path(path if place is None else place).absolute()


def _forget(spark: SparkSession, path: str) -> None:
    """Delta keeps what it knows of a table by the table's path."""
    jvm = jvm_of(spark)
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(java_session(spark), jvm.org.apache.hadoop.fs.Path(path))


@contextmanager
def _translate_errors(table: str) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        what = f"the Delta table '{table}' cannot be renamed: {first_sentence(error)}"
        raise NothingChanged(
            Finding(code="HR587", what=what, fix="correct the cause, and give the command again")
        ) from error


@dataclass(frozen=True, kw_only=True)
class DeltaRename(OfDelta, SinkRename):
    """A table under another name, or its ledger under the query's; `renamed_from`: what the table was called."""

    renamed_from: str = ""

    def rename_query(self, context: SinkContext, former: str, session: Session) -> None:
        table, name = self.found(session), self.name
        what = f"other writers changed {name} again and again, so that query '{former}' could not be renamed there"
        contended = Finding(code="HR441", what=what, fix="start again when the table is at rest")
        if table is not None:
            take_epoch(lambda: _renamed(table, name, context, former), contended)

    def rename_table(self, context: SinkContext, session: Session) -> None:
        require_delta(session(), SinkError)
        spark, name, former = session(), self.table, self.renamed_from
        (new, kind), (old, _) = named(spark, name, SinkError), named(spark, former, SinkError)
        if old is None or not ledger.is_known(context, old.now().txn_ids):
            if new is None:
                what = f"the catalog has neither table '{name}' nor the query's '{former}', from which it is renamed"
                fix = f"enter it into the catalog as '{name}': CREATE TABLE {name} USING delta LOCATION its directory"
                raise NothingChanged(Finding(code="HR549", what=what, fix=fix))
            return
        if new is not None or kind:
            what = f"table '{former}' cannot be renamed to '{name}', which is there as well"
            fix = f"drop or rename the one that is not the result of query '{context.query}', and start again"
            raise NothingChanged(Finding(code="HR549", what=what, fix=fix))
        rename(old, former, name)


def _renamed(table: DeltaTable, name: str, context: SinkContext, former: str) -> None:
    txn_ids = table.now().txn_ids
    entered = ledger.renamed(context, former, txn_ids)
    if not entered:
        return
    known = ledger.progress_of_all(txn_ids)
    if any(query == context.query and each.batch is not None for (query, _), each in known.items()):
        what = f"{name} has batches of query '{former}' and of '{context.query}'"
        raise NothingChanged(Finding(code="HR549", what=what, fix="let the query have another name"))
    if not table.mark(entered, seen={mark: txn_ids[mark] for mark in entered if mark in txn_ids}):
        raise Conflict("another writer was quicker")


@dataclass(frozen=True, kw_only=True)
class DeltaAdoption(SinkAdoption):
    """A table that another program has written; `find` gives it for a result, and raises where it does not fit.

    Several of its rows may not share the `key`. Delta's own streaming sink enters each batch under its checkpoint's id.
    """

    find: Callable[[DataFrame, SinkContext], DeltaTable]
    name: str
    key: Sequence[str]

    def foreign_rows(self, frame: DataFrame, context: SinkContext) -> tuple[Held, ...]:
        from pyspark.sql import functions as F

        state, name = self.find(frame, context).now(), self.name
        _require_free(state, name, context)
        rows = state.rows()
        if self.key:
            counted = (
                rows.groupBy(*[F.col(f"`{column}`") for column in self.key])
                .count()
                .where("count > 1")
                .limit(1)
                .collect()
            )
            if counted:
                shown = ", ".join(f"{column} {value!r}" for column, value in zip(self.key, counted[0], strict=False))
                what = f"{name} has {counted[0]['count']} rows with the key {shown}, and a query replaces one"
                raise SinkError(Finding(code="HR596", what=what, fix="delete all but one of them, or name another key"))
        return (Held(count=rows.count(), what=f"rows of {name}"),)

    def foreign_batch(self, frame: DataFrame, context: SinkContext) -> int | None:
        return self.find(frame, context).now().txn_ids.get(Checkpoint(context.checkpoint).id or "")

    def take_over(self, frame: DataFrame, context: SinkContext, batch: int | None) -> None:
        table, name = self.find(frame, context), self.name
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
        ledger.begin_mark(context): FirstVersion(state.version, had_rows=False).number,
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
            raise SinkError(Finding(code="HR580", what=what, fix=fix))
