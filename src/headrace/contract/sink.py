"""The sink, where a query's result goes; the writer of one start; and what a sink can do beyond writing, as objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.checkpoint.identity import PlannedBatch
from headrace.contract.change_data import ChangeOptions
from headrace.contract.connector import Ability, Connector, OptionError, overrides
from headrace.contract.sink_values import (
    Correction,
    Held,
    KeptResult,
    LedgerLine,
    OutputMode,
    RefusedValue,
    Rows,
    SinkContext,
    SinkFacts,
    SinkLocation,
    Snapshot,
    replaced_result,
)
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Gives a Spark session to a sink that needs one; it is started when it is asked for.
Session: TypeAlias = "Callable[[], SparkSession]"


class Writer(ABC):
    """Takes the batches of one start; it holds what `Sink.open` read, and may change while it writes."""

    def serialize(self, frame: DataFrame) -> DataFrame:
        """Return the result as it is written; called once, before `attach`, with the frame that `open` was given."""
        return frame

    @abstractmethod
    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        """Set format, options or foreachBatch on Spark's writer; mode, trigger and checkpoint are already set."""


class Sink(Connector):
    """Where a query's result goes. To write: `facts` and `open`; with `read_back`, `verify` can prove what is there.

    Sinks that are equal write to the same place, which only one query may do. After a crash at any point, starting
    again must leave the result as if there had been none (if `transactional` or `idempotent` is claimed).

    What it can do beyond that is an object each, or None: `changes`, `ledger`, `corrections`, `answers`, `rename`,
    `rewind` and `swap`. `reset` and `adoption` are always there, since a result that cannot be moved or entered stays
    as it is.
    """

    @property
    @abstractmethod
    def facts(self) -> SinkFacts:
        """What this sink, with its options, promises; a class-level value will do where no option matters."""

    @abstractmethod
    def open(self, frame: DataFrame, context: SinkContext) -> Writer:
        """Prepare to take the batches of `frame`; called once before each start.

        It creates or compares the table and takes the next epoch, which fences off older drivers.

        Args:
            frame: A streaming DataFrame, whose schema is the result's.
            context: The query that it writes for.

        Returns:
            The writer of this start.

        Raises:
            SinkError: The result does not fit what is there, or the system refuses it.
            CheckpointError: The checkpoint does not fit the ledger.
        """

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        """Read the sink's content as whole batches, in one transaction where there are transactions.

        Raises:
            SinkError: It cannot be read back, or the system does not answer.
        """
        message = f"what the sink {type(self).__name__} was given cannot be read back"
        raise SinkError(code="HR402", what=message, fix="use a sink that can be read back, such as files or sqlite")

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        """Yield the faults of the options, for the query's output mode, that can be seen without Spark.

        By default it refuses the modes that the facts do not name.
        """
        if mode not in self.facts.modes:
            message = f"the sink {type(self).__name__} does not take {mode} mode"
            yield OptionError(code="HR403", what=message, fix=f"use mode {' or '.join(sorted(self.facts.modes))}")

    def check_result(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        """Yield what would keep `open` from taking the result `frame`, without asking any system."""
        return iter(())

    def check_connection(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        """Yield what of the system would keep `open` from taking the result; nothing is made or changed there.

        Called by checks, where `check_result` reported no error. A system that does not answer is a warning.
        """
        return iter(())

    def refused_values(self, frame: DataFrame) -> Iterable[RefusedValue]:
        """Return the values of the result `frame` that the sink would change, so that their batch is not written."""
        return ()

    @property
    def location(self) -> SinkLocation | None:
        """The place where the rows outlive a run, from the options alone; None: none.

        It is kept with the checkpoint: a query whose sink has moved is refused.
        """
        return None

    @property
    def changes(self) -> SinkChanges | None:
        """Applies change data; None: rows of the result can be neither replaced in order nor deleted."""
        return None

    @property
    def ledger(self) -> SinkLedger | None:
        """Which batches are in, from the sink itself."""
        return None

    @property
    def corrections(self) -> SinkCorrections | None:
        """Writes late rows back into the result, and corrects wrong rows."""
        return None

    @property
    def answers(self) -> SinkAnswers | None:
        """Reads rows without Spark."""
        return None

    @property
    def rename(self) -> SinkRename | None:
        """Renames the query, or the table."""
        return None

    @property
    def reset(self) -> SinkReset:
        """What happens to the result of a query that starts again; by default it stays."""
        return SinkReset(transactional=self.facts.transactional)

    @property
    def rewind(self) -> SinkRewind | None:
        """Returns the result to the end of an earlier batch."""
        return None

    @property
    def adoption(self) -> SinkAdoption:
        """Continues the result of another program; by default possible where no ledger is needed."""
        return SinkAdoption(transactional=self.facts.transactional)

    @property
    def swap(self) -> SinkSwap | None:
        """Puts a rebuilt result in the place of the one that is there."""
        return None


def readable_back(sink: Sink) -> bool:
    """Return whether `read_back` works with the sink's options."""
    return sink.facts.readable_back and overrides(sink, "read_back")


class CatalogSink(Sink):
    """A sink that writes a table of Spark's own catalog, which the catalog of a session may not know."""

    @property
    @abstractmethod
    def catalog_table(self) -> str: ...

    @abstractmethod
    def register_table(self, frame: DataFrame, *, placeholder: str | None = None) -> None:
        """Enter `catalog_table`, which the session's catalog does not know; called if another query reads the table.

        Its rows are those that the sink has written.

        Args:
            frame: The result that the table is made for.
            placeholder: An empty directory to enter if the sink has written no rows; without it nothing is entered.
        """


class SinkChanges(Ability):
    """Applies change data, so that the result equals the fold of all changes in their order.

    Of two changes the one with the greater sequence is newer; of equal ones that with the later position, and without
    positions that whose row has the greater hash. Every replay, and every batch over the same rows, agrees on that.
    """

    @abstractmethod
    def bind(self, options: ChangeOptions) -> Sink:
        """Return the sink as it applies changes.

        Its `open` takes a frame with the column `CHANGE_COLUMN`, in update mode, and calls `SinkContext.on_changes`
        with the counts of each batch. All its abilities know the columns that it adds to the result; `read_back` gives
        the result's own columns, with those of the interval where it keeps one.
        """


class SinkLedger(Ability):
    """Which batches are in, from the sink itself."""

    @abstractmethod
    def last_batch(self, context: SinkContext) -> int | None:
        """Return the newest batch of the context's checkpoint that is in; None: none is, or it is not known."""

    def read_plans(self, context: SinkContext, first: int) -> Mapping[int, PlannedBatch]:
        """Return what was planned for each batch from `first` on of which the ledger keeps it.

        With it and `last_batch`, a checkpoint that has lost its newest entries is brought to where the sink is.

        Raises:
            CheckpointError: The sink has seen a change of the query that the context's storage has not.
        """
        return {}

    def checkpoint_id(self, context: SinkContext) -> str | None:
        """Return the id of the checkpoint that the newest batch came from; None if it is not known."""
        return None


class SinkCorrections(Ability):
    """Writes rows of the result outside of its batches: late rows, and by `repair` wrong ones."""

    @abstractmethod
    def last(self, context: SinkContext) -> int | None:
        """Return the last batch whose late rows were written back; None: none ever were."""

    @abstractmethod
    def apply(self, correction: Correction, context: SinkContext) -> None:
        """Write `correction` and the batch that it reaches to in one transaction, or nothing.

        Raises:
            SinkError: The sink holds another batch than the snapshot, or another correction came first.
        """

    @property
    def repair(self) -> SinkRepair | None:
        """Corrects wrong rows; None where a row has no key by which it could be replaced."""
        return None


class SinkRepair(Ability):
    """Corrects wrong rows of the result, in one transaction each. No driver runs."""

    @abstractmethod
    def apply(self, correction: Correction, context: SinkContext) -> None:
        """Write `correction`, keep what it replaces, delete what an earlier repair kept, and fence off older drivers.

        Raises:
            SinkError: The sink holds something else than the snapshot.
        """

    @abstractmethod
    def undo(self, context: SinkContext) -> None:
        """Restore what the last repair replaced.

        Raises:
            NothingChanged: There is no repair to undo, or a batch has been written since.
        """


class SinkAnswers(Ability):
    """Reads a few rows without Spark, for the dashboard, while the query runs; read-only, within `seconds`."""

    @abstractmethod
    def ask(self, statement: str, *, limit: int, seconds: float) -> Rows:
        """Return what the system answers to one statement of SQL that may only read.

        Raises:
            SinkError: The system does not answer, or not in time.
        """

    @abstractmethod
    def newest_rows(self, *, limit: int, seconds: float) -> Rows:
        """Return the newest rows of the result, as far as the system knows them.

        Raises:
            SinkError: The system does not answer, or not in time.
        """

    def ledger_lines(self, generation: int, first: int, last: int) -> Mapping[int, LedgerLine] | None:
        """Return what the ledger has of the batches from `first` to `last` that are in; None: there is none to read.

        Raises:
            SinkError: The system does not answer, or not in time.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class SinkRename(Ability):
    """Renames the table of a sink. No driver runs the query.

    After a crash the same method is called again. It raises NothingChanged where nothing was changed.

    former: the sink under the name that its table had before, where its options name one; None: they do not.
    """

    former: Sink | None = None

    @abstractmethod
    def rename_table(self, context: SinkContext, session: Session) -> None:
        """Give the table of `former`, if it is the context's, the name that it has now, with its ledger.

        A table that has its new name already gets its ledger alone.

        Raises:
            NothingChanged: Nothing was changed.
            SinkError: The system refused it.
        """


@dataclass(frozen=True, kw_only=True)
class SinkReset(Ability):
    """What happens to the result when its query starts again; this default leaves it, and cannot move it.

    A reset begins the next generation of a query. `context` names the one that ends; no driver runs it, and none
    starts before all is done. After a crash the same method is called again, and finishes what was begun.

    droppable: the result can be archived. transactional: a ledger says whose it is, which cannot be handed over.
    """

    droppable: bool = False
    transactional: bool = False

    def judge_keeping(self, mode: OutputMode) -> KeptResult:
        """Return what happens to the result if it stays while the query starts again."""
        if self.droppable:
            return replaced_result(mode)
        if self.transactional:
            return KeptResult(possible=False, why="its ledger cannot be handed to another generation of the query")
        why = "what it was given stays there, and the rows are given to it again, in batches numbered from 0 on"
        return KeptResult(possible=True, why=why)

    def row_counts(self, context: SinkContext, session: Session) -> Sequence[Held]:
        """Count what is there of the generation; nothing is changed.

        Raises:
            SinkError: The system cannot be asked.
        """
        return ()

    def hand_over(self, context: SinkContext, generation: int, session: Session) -> None:
        """Make the result, which stays, that of another `generation`, whose first batch comes next.

        Called again with the two numbers exchanged, it must be as before, ledger included.
        """

    def archive(self, context: SinkContext, session: Session) -> None:
        """Move the result and its ledger out of the way, so that the next generation finds nothing there.

        What is not this query's stays where it is.

        Raises:
            NotImplementedError: The sink does not implement it.
        """
        raise NotImplementedError("this sink archives no result")

    def restore(self, context: SinkContext, session: Session) -> None:
        """Return what `archive` has moved to its place.

        Raises:
            SinkError: Rows came to its place meanwhile.
        """

    def discard(self, context: SinkContext, session: Session) -> None:
        """Delete what `archive` has moved, and what a ledger still has of the generation."""


class SinkRewind(Ability):
    """Takes the newest batches off the result again. `context` names the generation, with its checkpoint.

    No driver runs it, and none starts before all is done. After a crash the same method is called again, or the one
    that undoes it.
    """

    def hindrance(self, mode: OutputMode) -> str:
        """Return why the result cannot go back with these options, in a sentence; empty: it can."""
        return ""

    @abstractmethod
    def earliest(self, context: SinkContext, batch: int, session: Session) -> int | None:
        """Return the first batch, from `batch` on, that `go_back` can reach now; None: none.

        Raises:
            SinkError: The system holds something else than what the sink kept.
        """

    @abstractmethod
    def list_taken_back(self, context: SinkContext, batch: int, session: Session) -> Sequence[Held]:
        """Count what `go_back` would change; nothing is changed.

        Raises:
            SinkError: The system cannot be asked.
        """

    @abstractmethod
    def go_back(self, context: SinkContext, batch: int, session: Session) -> None:
        """Return the result and its ledger to the end of `batch`, and fence off older drivers.

        In one transaction, where there are transactions. A result that is there already stays as it is.

        Raises:
            NothingChanged: Nothing was changed.
            SinkError: The system refused it.
        """

    @abstractmethod
    def undo(self, context: SinkContext, batch: int, session: Session) -> None:
        """Undo `go_back` to `batch`; a result that was not rewound stays as it is.

        Raises:
            NothingChanged: Nothing was changed, as when a batch has been written since.
        """

    @abstractmethod
    def forget(self, context: SinkContext, session: Session) -> None:
        """Delete what `undo` would need; called before another rewind as well."""


@dataclass(frozen=True, kw_only=True)
class SinkAdoption(Ability):
    """Adopts a query that ran without Headrace together with the result that it has written.

    This default takes over a result that needs no ledger. `context` names the life that continues it, with a copy of
    its checkpoint; nothing writes meanwhile.

    takes_over: a ledger can be begun, or one that is there continued. transactional: it needs a ledger. tells_batches:
    another program's record may say which batches are in.
    """

    takes_over: bool = False
    transactional: bool = False
    tells_batches: bool = False

    def possible(self, mode: OutputMode) -> KeptResult:
        """Return whether a result that another program wrote can be continued, and what then happens to it."""
        if self.takes_over:
            return KeptResult(possible=True, why="its rows stay, and the next batch is written to them")
        if self.transactional:
            return KeptResult(possible=False, why="a ledger cannot be begun for rows that another program wrote")
        why = "it keeps no record of batches: what it was given stays, and the next batch is given to it"
        return KeptResult(possible=True, why=why)

    def foreign_rows(self, frame: DataFrame, context: SinkContext) -> Sequence[Held]:
        """Count what is there for the result `frame` to continue; nothing is changed.

        Raises:
            SinkError: It cannot be taken over; the error has all the reasons.
        """
        return ()

    def foreign_batch(self, frame: DataFrame, context: SinkContext) -> int | None:
        """Return the last batch of the context's checkpoint that is there by a record of the other program.

        Returns:
            The batch; -1: none is there; None: there is no record.
        """
        return None

    def take_over(self, frame: DataFrame, context: SinkContext, batch: int | None) -> None:
        """Make what is there the result of `context`; called again after a crash, it finds what it has done.

        Args:
            frame: The query's result as a stream, not started; its schema is that of the table.
            context: The generation that takes the result over.
            batch: The last batch that the result has; None: it has none.

        Raises:
            SinkError: The system refused it.
            CheckpointError: The checkpoint does not fit it.
        """


@dataclass(frozen=True, kw_only=True)
class SinkSwap(Ability):
    """A rebuild computes the next generation next to the one that runs on, and then exchanges the two.

    `context` names the one whose result is in place first, `rebuilt` the other. While they are exchanged no driver runs
    either, and none starts before all is done. After a crash the same method is called again, or the one that undoes
    it.

    shadow: the same sink with a place of its own next to this one's.
    """

    shadow: Sink

    @abstractmethod
    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        """Archive the result, as a reset does, and put that of `rebuilt`, which lies next to it, in its place.

        In one step, where the system has one.

        Raises:
            NothingChanged: Nothing was changed.
        """

    @abstractmethod
    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        """Undo `swap_in`: the result of `rebuilt`, which may have grown, returns to its own place."""

    def drop_shadow(self, rebuilt: SinkContext, session: Session) -> None:
        """Delete what a rebuild has written to its own place."""
        place = self.shadow.reset
        place.archive(rebuilt, session)
        place.discard(rebuilt, session)
