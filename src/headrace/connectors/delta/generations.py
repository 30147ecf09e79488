"""A Delta table that becomes another's, or what it was: set aside, handed on, renamed, taken over, brought back.

A table is set aside by renaming its directory, or the table in Spark's catalog; its log goes with it. It is brought
back to an earlier batch by its own versions: the number of the query goes up with the driver's epoch, so that Delta
takes the batches again and nothing more from an older driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.connectors.delta import ledger
from headrace.connectors.delta import table as delta_tables
from headrace.connectors.delta.batches import find_shared_key
from headrace.connectors.delta.ledger import FirstVersion, Progress, own_rows, own_state
from headrace.connectors.delta.table import DeltaPlace, DeltaTable, LogCutError, State, forget
from headrace.connectors.exactly_once import lake
from headrace.connectors.spark_files import aside
from headrace.contract import Held, Session, SinkAdoption, SinkContext, SinkRename, SinkReset, SinkSwap
from headrace.errors import AttemptFailed, NothingChanged, SinkError
from headrace.spark.jvm.hadoop_files import first_missing
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.messages.refusals import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class DeltaReset(SinkReset):
    """A table set aside, brought back, discarded, or handed to the next generation."""

    place: DeltaPlace

    def row_counts(self, context: SinkContext, session: Session) -> tuple[Held, ...]:
        own = own_state(self.place, session(), context)
        if own is None:
            return ()
        rows = own_rows(own[0], context, str(self.place)).count()
        return (Held(count=rows, what=f"rows of {self.place}"),)

    def hand_over(self, context: SinkContext, generation: int, session: Session) -> None:
        table = self.place.find(session())
        if table is not None:
            lake.among_writers(str(self.place), lambda: self._enter_handover(table.now(), context, generation))

    def _enter_handover(self, state: State, context: SinkContext, generation: int) -> None:
        txn_ids = state.txn_ids
        if ledger.progress(context, txn_ids).batch is None and not ledger.is_handed_over(context, txn_ids):
            return
        next_one = ledger.progress_of_all(txn_ids).get((context.query_id, generation))
        if next_one is not None and next_one.is_closed:
            fault = f"{self.place} was taken over by a start of generation {context.generation} of '{context.query}'"
            raise NothingChanged(code="HR583", what=fault, fix="let the new generation continue")
        ours = ledger.own_mark(context, ledger.HANDOVER)
        theirs = ledger.app(context.query_id, generation, ledger.HANDOVER)
        state.enter({theirs: 1} | ({ours: 0} if ours in txn_ids else {}))

    def archive(self, context: SinkContext, session: Session) -> None:
        path, name, table = self.place.path, self.place.text, self.place.find(session())
        if table is None or not any(
            query_id == context.query_id for query_id, _ in ledger.progress_of_all(table.now().txn_ids)
        ):
            return
        require_alone(table.now(), str(self.place), context)
        if path is not None:
            aside.set_aside(aside.local_directory(path), context)
            forget(session(), path)
        else:
            rename(session(), name, lake.name_aside(name, context))

    def restore(self, context: SinkContext, session: Session) -> None:
        path, name, spark = self.place.path, self.place.text, session()
        there = self.place.find(spark)
        if path is not None:
            directory = aside.local_directory(path)
            if aside.place_aside(directory, context).exists():
                self._require_empty(there)
                aside.bring_back(directory, context)
                forget(spark, path)
            return
        kept = lake.name_aside(name, context)
        if spark.catalog.tableExists(kept):
            self._require_empty(there)
            with _translate_errors(name):
                spark.sql(f"DROP TABLE IF EXISTS {name}")
                spark.sql(f"ALTER TABLE {kept} RENAME TO {name}")
                if there is not None:
                    forget(spark, there.location)

    def discard(self, context: SinkContext, session: Session) -> None:
        if self.place.path is not None:
            aside.discard(aside.local_directory(self.place.path), context)
        else:
            with _translate_errors(self.place.text):
                session().sql(f"DROP TABLE IF EXISTS {lake.name_aside(self.place.text, context)}")

    def _require_empty(self, table: DeltaTable | None) -> None:
        if table is not None and table.now().has_rows:
            fault = f"{self.place} has rows again, so that the former ones cannot be brought back"
            fix = "look whose they are; move the table away if it is not needed, and give the command again"
            raise NothingChanged(code="HR583", what=fault, fix=fix)


@dataclass(frozen=True, kw_only=True)
class DeltaSwap(SinkSwap):
    """The table of a rebuild put in place, and taken back."""

    place: DeltaPlace

    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        table = self.place.find(session())
        if table is not None:
            require_alone(table.now(), str(self.place), context)
        self._exchange(context, rebuilt, session(), back=False)

    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        self.place.find(session())
        self._exchange(context, rebuilt, session(), back=True)

    def _exchange(self, context: SinkContext, rebuilt: SinkContext, spark: SparkSession, *, back: bool) -> None:
        path, exists, name_as = self.place.path, spark.catalog.tableExists, partial(rename, spark)
        if path is None:
            names = lake.Renames(table=self.place.text, context=context, exists=exists, rename=name_as)
            return names.swap_out() if back else names.swap_in()
        directory = aside.local_directory(path)
        if back:
            aside.swap_out(directory, context, rebuilt)
        else:
            aside.swap_in(directory, context, rebuilt)
        for place in (directory, aside.place_of_rebuild(directory)):
            forget(spark, str(place))


def require_alone(state: State, name: str, context: SinkContext) -> None:
    """Raise NothingChanged where the table has rows of other queries, which cannot be moved with those of this one."""
    progress = ledger.progress_of_all(state.txn_ids)
    others = {
        ledger.label(query_id, generation, state.txn_ids)
        for (query_id, generation), own in progress.items()
        if query_id != context.query_id and own.batch is not None
    }
    if others:
        fault = f"{name} has rows of query '{min(others)}' too, so that it cannot be set aside for '{context.query}'"
        fix = "let the query write to another table; or delete its rows by SQL, and its lines of the checkpoint by hand"
        raise NothingChanged(code="HR587", what=fault, fix=fix)


def rename(spark: SparkSession, name: str, other: str) -> None:
    """Rename a table of Spark's catalog to `other`."""
    table, _ = delta_tables.find_by_name(spark, name, SinkError)
    location = None if table is None else table.location
    with _translate_errors(name):
        spark.sql(f"ALTER TABLE {name} RENAME TO {other}")
        if location is not None:
            forget(spark, location)


@contextmanager
def _translate_errors(table: str) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        fault = f"the Delta table '{table}' cannot be renamed: {first_sentence(error)}"
        raise AttemptFailed(code="HR587", what=fault, fix="correct the cause, and give the command again") from error


@dataclass(frozen=True, kw_only=True)
class DeltaRename(SinkRename):
    """A table under another name; `renamed_from`: what it was called."""

    place: DeltaPlace
    renamed_from: str = ""

    def rename_table(self, context: SinkContext, session: Session) -> None:
        delta_tables.require_delta(session(), SinkError)
        spark, name, former = session(), self.place.text, self.renamed_from
        new, kind = delta_tables.find_by_name(spark, name, SinkError)
        old, _ = delta_tables.find_by_name(spark, former, SinkError)
        if old is None or ledger.own_mark(context) not in old.now().txn_ids:
            if new is None:
                fault = f"the catalog has neither table '{name}' nor the query's '{former}', from which it is renamed"
                fix = f"enter it into the catalog as '{name}': CREATE TABLE {name} USING delta LOCATION its directory"
                raise NothingChanged(code="HR549", what=fault, fix=fix)
            return
        if new is not None or kind:
            fault = f"table '{former}' cannot be renamed to '{name}', which is there as well"
            fix = f"drop or rename the one that is not the result of query '{context.query}', and start again"
            raise NothingChanged(code="HR549", what=fault, fix=fix)
        rename(spark, former, name)


@dataclass(frozen=True, kw_only=True)
class DeltaAdoption(SinkAdoption):
    """A table that another program has written; `find` gives it for a result, and raises where it does not fit.

    Several of its rows may not share the `key`. Delta's own streaming sink enters each batch under its checkpoint's id.
    """

    find: Callable[[DataFrame, SinkContext], DeltaTable]
    name: str
    key: Sequence[str]

    def foreign_rows(self, frame: DataFrame, context: SinkContext) -> tuple[Held, ...]:
        state = self.find(frame, context).now()
        self._require_free(state, context)
        rows = state.rows()
        if self.key and (shared := find_shared_key(rows, self.key)):
            fault = f"{self.name} has {shared[0]} rows with the key {shared[1]}, and a query replaces one"
            raise SinkError(code="HR596", what=fault, fix="delete all but one of them, or name another key")
        return (Held(count=rows.count(), what=f"rows of {self.name}"),)

    def foreign_batch(self, frame: DataFrame, context: SinkContext) -> int | None:
        return self.find(frame, context).now().txn_ids.get(Checkpoint(context.checkpoint).id or "")

    def take_over(self, frame: DataFrame, context: SinkContext, batch: int | None) -> None:
        table = self.find(frame, context)
        lake.among_writers(self.name, lambda: self._enter_adoption(table.now(), context, batch))

    def _enter_adoption(self, state: State, context: SinkContext, batch: int | None) -> None:
        mark = ledger.own_mark(context, ledger.CHECKPOINT, Checkpoint(context.checkpoint).id or "")
        own = ledger.progress(context, state.txn_ids)
        if own.batch == batch and mark in state.txn_ids:
            return
        self._require_free(state, context)
        # All rows that are there count as the query's.
        begun = FirstVersion(state.version, had_rows=False)
        state.enter(ledger.start_marks(context, Progress(own.epoch + 1, batch), begun) | {mark: 1})

    def _require_free(self, state: State, context: SinkContext) -> None:
        """Raise SinkError where batches of a query of Headrace are in the table."""
        handed_over = ledger.is_handed_over(context, state.txn_ids)
        for (query_id, generation), own in ledger.progress_of_all(state.txn_ids).items():
            is_own = handed_over and (query_id, generation) != (context.query_id, context.generation)
            if own.batch is not None and not is_own:
                query = ledger.label(query_id, generation, state.txn_ids)
                fault = f"{self.name} has batches of generation {generation} of query '{query}' already, up to "
                fault += str(own.batch)
                fix = "reset that query first (headrace reset QUERY), if the former job is to continue in its place"
                raise SinkError(code="HR580", what=fault, fix=fix)


@dataclass(frozen=True, kw_only=True)
class DeltaRewind(lake.VersionRewind[tuple[State, Progress], State]):
    """A table brought back to an earlier batch; the version that it had ends as the table's own rules say."""

    place: DeltaPlace

    def current(self, context: SinkContext, session: Session) -> tuple[State, Progress] | None:
        return own_state(self.place, session(), context)

    def last(self, present: tuple[State, Progress]) -> int:
        batch = present[1].batch
        return -1 if batch is None else batch

    def reach(self, present: tuple[State, Progress], context: SinkContext, batch: int) -> lake.Reached[State]:
        state, own = present
        passed = own.batch
        for commit, number in ledger.newest_first(state, context):
            if number is None:
                if commit.new or commit.takes_rows:
                    why = f"another writer has changed it after batch {batch}, in version {commit.version}"
                    return lake.Reached(earliest=passed, why=why)
            elif number == batch:
                try:
                    version = state.table.at(commit.version)
                except LogCutError:
                    break
                if missing := _missing(version, state):
                    return lake.Reached(earliest=passed, why=f"its file {missing} was removed, as VACUUM does")
                return lake.Reached(version=version)
            elif number < batch:
                break
            else:
                passed = number
        return lake.Reached(earliest=passed, why=f"its log no longer has the version of batch {batch}")

    def count(self, present: tuple[State, Progress], version: State | None) -> int:
        return (version or present[0]).rows().count()

    def restore(self, present: tuple[State, Progress], version: State, context: SinkContext, batch: int) -> None:
        state, own = present
        # 0 is that of a rewind that was taken back.
        _commit(state, version, context, Progress(own.epoch + 1, batch), before=state.version + 1)

    def is_rewound(self, present: tuple[State, Progress], context: SinkContext, batch: int) -> bool:
        return present[0].txn_ids.get(ledger.own_mark(context, ledger.REWOUND), 0) > 0 and self.last(present) >= batch

    def bring_back(self, present: tuple[State, Progress], context: SinkContext, batch: int) -> None:
        state, own = present
        fault, fix = "", "run the query: it reads the removed batches again"
        try:
            former = state.table.at(state.txn_ids[ledger.own_mark(context, ledger.REWOUND)] - 1)
            if missing := _missing(former, state):
                fault = f"{self.name} cannot be brought back: its file {missing} was removed, as VACUUM does"
        except LogCutError:
            fault = f"the log of {self.name} no longer has the version that it had before it went back to batch {batch}"
        if fault:
            raise NothingChanged(code="HR583", what=fault, fix=fix)
        reached = ledger.progress(context, former.txn_ids)
        _commit(state, former, context, Progress(own.epoch + 1, reached.batch), before=0)

    def forget_former(self, context: SinkContext, session: Session) -> None:
        table, mark = self.place.find(session()), ledger.own_mark(context, ledger.REWOUND)
        if table is not None and (state := table.now()).txn_ids.get(mark):
            state.enter({mark: 0})


def _commit(state: State, former: State, context: SinkContext, wanted: Progress, *, before: int) -> None:
    """Bring `former` back. Raises Conflict."""
    note = {
        "query": context.query,
        "generation": context.generation,
        "batch": wanted.batch,
        ledger.RESTORES: former.version,
    }
    marks = {ledger.own_mark(context): wanted.number, ledger.own_mark(context, ledger.REWOUND): before}
    with apply_settings(state.table.spark, {delta_tables.NOTE: json.dumps(note)}):
        state.restore(former, marks)


def _missing(former: State, now: State) -> str:
    """A file of `former` that the table no longer has; "": all are there."""
    removed = sorted(path for path, _ in former.actions.keys() - now.actions.keys())
    return first_missing(now.table.spark, now.table.log.dataPath(), removed)
