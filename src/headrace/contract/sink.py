"""The sink, where a query's result goes; the writer of one start; and what a sink can do beyond writing, as objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

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
    """What takes the batches of one start; it holds what `Sink.open` found out, and may change while it writes."""

    def serialize(self, frame: DataFrame) -> DataFrame:
        """The result as it is written; called once, before `attach`, with the frame that `open` was given."""
        return frame

    @abstractmethod
    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        """Set format, options or foreachBatch on Spark's writer; mode, trigger and checkpoint are already set."""


class Sink(Connector):
    """Where a query's result goes. To write: `facts` and `open`; with `read_back`, `verify` can prove what is there.

    Sinks that are equal write to the same place, which only one query may do. After a crash at any point, starting
    again must leave the result as if there had been none (if `transactional` or `idempotent` is claimed).

    What it can do beyond that is an object each, or None: `ledger`, `corrections`, `answers`, `rename`, `rewind`
    and `swap`. `reset` and `adoption` are always there, since a result that nobody can move or enter stays as it is.
    """

    @property
    @abstractmethod
    def facts(self) -> SinkFacts:
        """What this sink, with its options, promises; a class-level value will do where no option matters."""

    @abstractmethod
    def open(self, frame: DataFrame, context: SinkContext) -> Writer:
        """Make ready to take the batches of `frame`, a streaming DataFrame; `frame.schema` is the result's schema.

        Called once before each start: it creates or compares the table, takes the next epoch (fencing off older
        drivers) and raises SinkError or CheckpointError when the batches to come would not fit what is there.
        """

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        """The sink's content as whole batches, read in one transaction where there are transactions."""
        what = f"what the sink {type(self).__name__} was given cannot be read back"
        raise SinkError(code="HR402", what=what, fix="use a sink that can be read back, such as files or sqlite")

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        """Faults of the options, given the query's output mode, that can be seen without Spark.

        By default it refuses the modes that the facts do not name.
        """
        if mode not in self.facts.modes:
            what = f"the sink {type(self).__name__} does not take {mode} mode"
            yield OptionError(code="HR403", what=what, fix=f"use mode {' or '.join(sorted(self.facts.modes))}")

    def check_result(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        """What of the result `frame` would keep `open` from taking it, told without asking any system."""
        return iter(())

    def check_connection(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        """What of the system would keep `open` from taking the result; nothing is made or changed there.

        Called by checks, where `check_result` found no error. A system that does not answer is a warning.
        """
        return iter(())

    def refused_values(self, frame: DataFrame) -> Iterable[RefusedValue]:
        """The values of the result `frame` that the sink would change, so that their batch is not written."""
        return ()

    @property
    def location(self) -> SinkLocation | None:
        """The place where the rows outlive a run, from the options alone; None: none.

        It is kept beside the checkpoint: a query whose sink has moved is refused.
        """
        return None

    @property
    def ledger(self) -> SinkLedger | None:
        """Which batches are in, as the sink itself tells."""
        return None

    @property
    def corrections(self) -> SinkCorrections | None:
        """Late rows brought back into the result, and wrong rows put right."""
        return None

    @property
    def answers(self) -> SinkAnswers | None:
        """A look at the rows without Spark."""
        return None

    @property
    def rename(self) -> SinkRename | None:
        """The query, or the table, under another name."""
        return None

    @property
    def reset(self) -> SinkReset:
        """What becomes of the result of a query that begins anew; by default it stays."""
        return SinkReset(transactional=self.facts.transactional)

    @property
    def rewind(self) -> SinkRewind | None:
        """The result as it was at the end of an earlier batch."""
        return None

    @property
    def adoption(self) -> SinkAdoption:
        """The result of another program continued; by default it can be where no ledger is needed."""
        return SinkAdoption(transactional=self.facts.transactional)

    @property
    def swap(self) -> SinkSwap | None:
        """A rebuilt result in the place of the one that is there."""
        return None


def readable_back(sink: Sink) -> bool:
    """Whether `read_back` works with the sink's options."""
    return sink.facts.readable_back and overrides(sink, "read_back")


class CatalogSink(Sink):
    """A sink that writes a table of Spark's own catalog, which the catalog of a session may have forgotten."""

    @property
    @abstractmethod
    def catalog_table(self) -> str: ...

    @abstractmethod
    def register_table(self, frame: DataFrame, *, placeholder: str | None = None) -> None:
        """Enter `catalog_table`, which the catalog of the session does not know, as made for the result `frame`.

        Its rows are those that the sink has written. If it has written none: over the empty directory `placeholder`,
        and without one not at all. Called if another query reads the table.
        """


class SinkLedger(Ability):
    """Which batches are in, as the sink itself tells."""

    @abstractmethod
    def last_batch(self, context: SinkContext) -> int | None:
        """The newest batch of the context's checkpoint that is in; None: none is, or it is not known."""

    def planned(self, context: SinkContext, first: int) -> Mapping[int, str]:
        """What `PlannedBatch.loads` reads, for each batch from `first` on of which the ledger keeps it.

        With it and `last_batch`, a checkpoint that has lost its newest entries is brought to where the sink is.
        """
        return {}

    def checkpoint_id(self, context: SinkContext) -> str | None:
        """The id of the checkpoint that the newest batch came from; None: it is not known."""
        return None


class SinkCorrections(Ability):
    """Rows of the result written anew beside its batches: late rows brought back, and by `repair` wrong ones."""

    @abstractmethod
    def last(self, context: SinkContext) -> int | None:
        """The last batch whose late rows were brought back; None: none ever were."""

    @abstractmethod
    def apply(self, correction: Correction, context: SinkContext) -> None:
        """Write `correction` and the batch that it reaches to in one transaction, or nothing.

        Raises SinkError if the sink holds another batch than the snapshot, or another correction came first.
        """

    @property
    def repair(self) -> SinkRepair | None:
        """What puts wrong rows right; None where a row has no key by which it could be replaced."""
        return None


class SinkRepair(Ability):
    """Wrong rows of the result put right, in one transaction each. No driver runs."""

    @abstractmethod
    def apply(self, correction: Correction, context: SinkContext) -> None:
        """Write `correction`, keep what it replaces, and of no earlier repair, and fence older drivers off.

        Raises SinkError if the sink holds something else than the snapshot.
        """

    @abstractmethod
    def undo(self, context: SinkContext) -> None:
        """Bring back what the last repair replaced; raises NothingChanged if there is none, or a batch is in since."""


class SinkAnswers(Ability):
    """A look without Spark, for the dashboard, while the query runs: read-only, a few rows, within `seconds`.

    Each raises SinkError with one sentence where the system does not answer so.
    """

    @abstractmethod
    def ask(self, statement: str, *, limit: int, seconds: float) -> Rows:
        """What the system answers to one statement of SQL that may only read."""

    @abstractmethod
    def newest_rows(self, *, limit: int, seconds: float) -> Rows:
        """The newest rows of the result, as far as the system can tell."""

    def ledger_lines(self, query: str, generation: int, first: int, last: int) -> Mapping[int, LedgerLine] | None:
        """What the ledger says of the batches from `first` to `last` that are in; None: there is none to read."""
        return None


@dataclass(frozen=True, kw_only=True)
class SinkRename(Ability):
    """Another name, for a sink that keeps that of the query. No driver runs under either name.

    After a crash the same is called again. Each raises NothingChanged where nothing was changed.

    former: the sink under the name that its table had before, where its options tell one; None: they do not.
    """

    former: Sink | None = None

    @abstractmethod
    def rename_query(self, context: SinkContext, former: str, session: Session) -> None:
        """Let the result that the query `former` has written, and its ledger, be those of the context's query.

        A driver of `former` that was cut off may write nothing more.
        """

    def rename_table(self, context: SinkContext, session: Session) -> None:
        """Let the table of `former`, if it is the context's, have the name that it has now, with its ledger.

        A table that has its new name already gets its ledger alone.
        """


@dataclass(frozen=True, kw_only=True)
class SinkReset(Ability):
    """What becomes of the result of a query that begins anew; as it is here, it stays, and nothing can move it.

    A reset begins the next generation of a query. `context` names the one that ends; no driver runs it, and none
    starts before all is done. After a crash the same is called again, and ends what was begun.

    droppable: the result can be set aside. transactional: a ledger says whose it is, which cannot be handed over.
    """

    droppable: bool = False
    transactional: bool = False

    def kept(self, mode: OutputMode) -> KeptResult:
        """What becomes of the result if it stays while the query begins anew."""
        if self.droppable:
            return replaced_result(mode)
        if self.transactional:
            return KeptResult(possible=False, why="its ledger cannot be handed to another generation of the query")
        why = "what it was given stays there, and the rows are given to it again, in batches numbered from 0 on"
        return KeptResult(possible=True, why=why)

    def held(self, context: SinkContext, session: Session) -> Sequence[Held]:
        """What is there of the generation, counted; nothing is changed. Raises SinkError if it cannot be asked."""
        return ()

    def hand_over(self, context: SinkContext, generation: int, session: Session) -> None:
        """Let the result, which stays, be that of another `generation`, whose first batch comes next.

        Called back with the two numbers exchanged, it must be as before, ledger included.
        """

    def set_aside(self, context: SinkContext, session: Session) -> None:
        """Move the result and its ledger out of the way, so that the next generation finds nothing there.

        What is not this query's stays where it is.
        """
        raise NotImplementedError("this sink sets no result aside")

    def bring_back(self, context: SinkContext, session: Session) -> None:
        """Put what `set_aside` has moved where it was; raises SinkError if rows came to its place meanwhile."""

    def discard(self, context: SinkContext, session: Session) -> None:
        """Delete what `set_aside` has moved, and what a ledger still has of the generation."""


class SinkRewind(Ability):
    """The newest batches taken off the result again. `context` names the generation, with its checkpoint.

    No driver runs it, and none starts before all is done. After a crash the same is called again, or the one that
    takes it back.
    """

    def hindrance(self, mode: OutputMode) -> str:
        """Why the result cannot go back with these options, in a sentence; empty: it can."""
        return ""

    @abstractmethod
    def earliest(self, context: SinkContext, batch: int, session: Session) -> int | None:
        """The first batch, from `batch` on, that `go_back` can reach now; None: none.

        Raises SinkError, where something else than what is kept is in the way.
        """

    @abstractmethod
    def taken_back(self, context: SinkContext, batch: int, session: Session) -> Sequence[Held]:
        """What `go_back` would change, counted; nothing is changed. Raises SinkError if it cannot be asked."""

    @abstractmethod
    def go_back(self, context: SinkContext, batch: int, session: Session) -> None:
        """Let the result and its ledger be as they were at the end of `batch`, and fence older drivers off.

        In one transaction, where there are transactions. A result that is there already stays as it is. Raises
        NothingChanged if nothing was changed.
        """

    @abstractmethod
    def undo(self, context: SinkContext, batch: int, session: Session) -> None:
        """Take `go_back` to `batch` back; a result that was not rewound stays as it is.

        Raises NothingChanged if nothing was changed, as when a batch came in since.
        """

    @abstractmethod
    def forget(self, context: SinkContext, session: Session) -> None:
        """Delete what `undo` would need; called before another rewind as well."""


@dataclass(frozen=True, kw_only=True)
class SinkAdoption(Ability):
    """A query that ran without Headrace adopted together with the result that it has written.

    As it is here, it takes a result over that needs no ledger. `context` names the life that continues it, with a copy
    of its checkpoint; nothing writes meanwhile.

    takes_over: a ledger can be begun, or what there is continued. transactional: it needs a ledger. tells_batches:
    another program's record may tell which batches are in.
    """

    takes_over: bool = False
    transactional: bool = False
    tells_batches: bool = False

    def possible(self, mode: OutputMode) -> KeptResult:
        """Whether a result that another program wrote can be continued, and what then becomes of it."""
        if self.takes_over:
            return KeptResult(possible=True, why="its rows stay, and the next batch is written to them")
        if self.transactional:
            return KeptResult(possible=False, why="a ledger cannot be begun for rows that another program wrote")
        why = "it keeps no record of batches: what it was given stays, and the next batch is given to it"
        return KeptResult(possible=True, why=why)

    def foreign_rows(self, frame: DataFrame, context: SinkContext) -> Sequence[Held]:
        """What is there for the result `frame` to continue, counted; nothing is changed.

        Raises SinkError with all that keeps it from being taken over.
        """
        return ()

    def foreign_batch(self, frame: DataFrame, context: SinkContext) -> int | None:
        """The last batch of the context's checkpoint that is there by a record of the other program; -1: none is.

        None: no record tells.
        """
        return None

    def take_over(self, frame: DataFrame, context: SinkContext, batch: int | None) -> None:
        """Let what is there be the result of `context`, which has its batches up to `batch`; None: none of them.

        Called again after a crash, it finds what it has done. Raises SinkError or CheckpointError.
        """


@dataclass(frozen=True, kw_only=True)
class SinkSwap(Ability):
    """A rebuild computes the next generation beside the one that goes on, and then exchanges the two.

    `context` names the one whose result is in place first, `rebuilt` the other. While they are exchanged no driver runs
    either, and none starts before all is done. After a crash the same is called again, or the one that takes it back.

    beside: the same sink with a place of its own beside this one's.
    """

    beside: Sink

    @abstractmethod
    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        """Set the result aside, as a reset does, and let that of `rebuilt`, which lies beside, take its place.

        In one step, where the system has one. Raises NothingChanged if nothing was changed.
        """

    @abstractmethod
    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        """Take `swap_in` back: the result of `rebuilt`, which may have grown, lies beside again."""

    def drop_beside(self, rebuilt: SinkContext, session: Session) -> None:
        """Delete what a rebuild has written beside."""
        place = self.beside.reset
        place.set_aside(rebuilt, session)
        place.discard(rebuilt, session)
