"""The sink, where a query's result goes, and the writer, which takes the batches of one start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from headrace.contract.connector import Connector, overrides
from headrace.contract.options import OptionError
from headrace.contract.sink_values import (
    Correction,
    Held,
    KeptResult,
    LedgerLine,
    OutputMode,
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

    layout_options: those by which readers find and read the rows: a format, directories by columns. Rows that were
        written before a change of one are not what readers then expect.
    """

    layout_options: ClassVar[tuple[str, ...]] = ()

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

    # -------------------------------------------------------------------------------------------- before a start

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

    @property
    def location(self) -> SinkLocation | None:
        """The place where the rows outlive a run, from the options alone; None: none.

        It is kept beside the checkpoint: a query whose sink has moved is refused.
        """
        return None

    def register_table(self, frame: DataFrame, *, placeholder: str | None = None) -> None:
        """Enter `catalog_table`, which the catalog of the session does not know, as made for the result `frame`.

        Its rows are those that the sink has written. If it has written none: over the empty directory `placeholder`,
        and without one not at all. Called for a sink that has a `catalog_table`, if another query reads it.
        """

    @property
    def begins_anywhere(self) -> bool:
        """Whether a query that wrote elsewhere before may begin to write here with its next batch.

        So where readers take rows as they come, as from a topic (guide: "Recovery Semantics after Changes"). A table or
        a directory is read as the whole result, and would lack what the former place has.
        """
        return False

    @property
    def columns_by_name(self) -> bool:
        """Whether the sink takes the result's columns by their names, so that their order does not count."""
        return True

    # -------------------------------------------------------------------------------------------- what it holds

    @property
    def readable_back(self) -> bool:
        """Whether `read_back` works with these options; by default, whether there is one."""
        return overrides(self, "read_back")

    @property
    def correctable(self) -> bool:
        """Whether late rows can be brought back; by default, whether there is an `apply_correction`."""
        return overrides(self, "apply_correction")

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        """The sink's content as whole batches, read in one transaction where there are transactions."""
        what = f"what the sink {type(self).__name__} was given cannot be read back"
        raise SinkError(
            Finding(code="HR402", what=what, fix="use a sink that can be read back, such as files or sqlite")
        )

    def last_batch(self, context: SinkContext) -> int | None:
        """The newest batch of the context's checkpoint that is in, by the ledger; None: none is, or it is not known."""
        return None

    def planned(self, context: SinkContext, first: int) -> Mapping[int, str]:
        """What `PlannedBatch.loads` reads, for each batch from `first` on of which the ledger keeps it.

        With it and `last_batch`, a checkpoint that has lost its newest entries is brought to where the sink is.
        """
        return {}

    def last_correction(self, context: SinkContext) -> int | None:
        """The last batch whose late rows were brought back; None: none ever were."""
        return None

    def apply_correction(self, correction: Correction, context: SinkContext) -> None:
        """Write `correction` and the batch that it reaches to in one transaction, or nothing.

        Raises SinkError if the sink holds another batch than the snapshot, or another correction came first.
        """
        raise NotImplementedError(f"{type(self).__name__} brings no late rows back")

    # ----------------------------------------------------------------------------------- a look without Spark

    # For the dashboard, while the query runs: read-only, a few rows, within `seconds`. Each raises SinkError with one
    # sentence where the system does not answer so.

    @property
    def answers(self) -> bool:
        """Whether the system answers SQL by itself; by default, whether there is an `ask`."""
        return overrides(self, "ask")

    def ask(self, statement: str, *, limit: int, seconds: float) -> Rows:
        """What the system answers to one statement of SQL that may only read."""
        raise NotImplementedError(f"{type(self).__name__} answers no SQL")

    def newest_rows(self, *, limit: int, seconds: float) -> Rows | None:
        """The newest rows of the result, as far as the system can tell; None: only Spark can read them."""
        return None

    def ledger_lines(self, query: str, generation: int, first: int, last: int) -> Mapping[int, LedgerLine] | None:
        """What the ledger says of the batches from `first` to `last` that are in; None: there is none to read."""
        return None

    # ------------------------------------------------------------------------------------------- another name

    def rename_query(self, context: SinkContext, former: str, session: Session) -> None:
        """Let the result that the query `former` has written, and its ledger, be those of the context's query.

        For a sink that keeps the query's name. No driver runs either of them; after a crash it is called again, and a
        driver of `former` that was cut off may write nothing more. Raises SinkError with HR549 where nothing was
        changed.
        """

    @property
    def former(self) -> Sink | None:
        """The sink under the name that its table had before, where its options tell one; None: they do not."""
        return None

    def rename_table(self, context: SinkContext, session: Session) -> None:
        """Let the table of `former`, if it is the context's, have the name that it has now, with its ledger.

        A table that has its new name already gets its ledger alone. No driver runs the query; after a crash it is
        called again. Raises SinkError with HR549 where nothing was changed.
        """

    # ---------------------------------------------------------------------------------------- beginning anew

    # A reset begins the next generation of a query. `context` names the one that ends; no driver runs it, and none
    # starts before all is done. After a crash the same member is called again, and ends what was begun.

    @property
    def droppable(self) -> bool:
        """Whether a result can be set aside; by default, whether there is a `set_aside`."""
        return overrides(self, "set_aside")

    def kept_result(self, mode: OutputMode) -> KeptResult:
        """What becomes of the result if it stays while the query begins anew.

        By default it can stay where no ledger says whose it is, or where the ledger is handed over.
        """
        if overrides(self, "hand_over"):
            return replaced_result(mode)
        if self.facts.transactional:
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
        raise NotImplementedError(f"{type(self).__name__} sets no result aside")

    def bring_back(self, context: SinkContext, session: Session) -> None:
        """Put what `set_aside` has moved where it was; raises SinkError if rows came to its place meanwhile."""

    def discard(self, context: SinkContext, session: Session) -> None:
        """Delete what `set_aside` has moved, and what a ledger still has of the generation."""

    # --------------------------------------------------------------------------------------------- rewinding

    # A rewind takes the newest batches off the result again. `context` names the generation, with its checkpoint; no
    # driver runs it, and none starts before all is done. After a crash the same member is called again, or the one that
    # takes it back.

    def rewindable_result(self, mode: OutputMode) -> KeptResult:
        """Whether the result can go back to an earlier batch; else, in a sentence, why not.

        By default it can where there is a `rewind`.
        """
        why = "" if overrides(self, "rewind") else f"what the sink {type(self).__name__} was given stays there"
        return KeptResult(possible=not why, why=why)

    def earliest_batch(self, context: SinkContext, batch: int, session: Session) -> int | None:
        """The first batch, from `batch` on, that `rewind` can go back to now; None: none.

        Raises SinkError, where something else than what is kept is in the way.
        """
        return None

    def taken_back(self, context: SinkContext, batch: int, session: Session) -> Sequence[Held]:
        """What `rewind` would change, counted; nothing is changed. Raises SinkError if it cannot be asked."""
        return ()

    def rewind(self, context: SinkContext, batch: int, session: Session) -> None:
        """Let the result and its ledger be as they were at the end of `batch`, and fence older drivers off.

        In one transaction, where there are transactions. A result that is there already stays as it is. Raises
        SinkError with HR655 or HR656 if nothing was changed.
        """
        raise NotImplementedError(f"{type(self).__name__} goes back to no earlier batch")

    def undo_rewind(self, context: SinkContext, batch: int, session: Session) -> None:
        """Take `rewind` to `batch` back; a result that was not rewound stays as it is.

        Raises SinkError with HR652 or HR656 if nothing was changed, as when a batch came in since.
        """
        raise NotImplementedError(f"{type(self).__name__} goes back to no earlier batch")

    def forget_rewind(self, context: SinkContext, session: Session) -> None:
        """Delete what `undo_rewind` would need; called before another rewind as well."""

    # ---------------------------------------------------------------------------------------------- adopting

    # A query that ran without Headrace is adopted together with the result that it has written. `context` names the
    # life that continues it, with a copy of its checkpoint; nothing writes meanwhile.

    @property
    def tells_batches(self) -> bool:
        """Whether another program's record may tell which batches are in; by default, if `foreign_batch` is there."""
        return overrides(self, "foreign_batch")

    def adoptable(self, mode: OutputMode) -> KeptResult:
        """Whether a result that another program wrote can be continued, and what then becomes of it.

        By default it can where no ledger is needed, or where `take_over` begins one.
        """
        if overrides(self, "take_over"):
            return KeptResult(possible=True, why="its rows stay, and the next batch is written to them")
        if self.facts.transactional:
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

    # ---------------------------------------------------------------------------------------- rebuilding

    # A rebuild computes the next generation beside the one that goes on, and then exchanges the two. `context` names
    # the one whose result is in place first, `rebuilt` the other. While they are exchanged no driver runs either, and
    # none starts before all is done. After a crash the same member is called again, or the one that takes it back.

    @property
    def swappable(self) -> bool:
        """Whether a rebuilt result can take the place of the one that is there; by default, if there is a `swap_in`."""
        return overrides(self, "swap_in")

    def beside(self) -> Sink:
        """The same sink with a place of its own beside this one's."""
        raise NotImplementedError(f"{type(self).__name__} has no place beside its own")

    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        """Set the result aside, as `set_aside` does, and let that of `rebuilt`, which lies beside, take its place.

        In one step, where the system has one. Raises SinkError with HR587 if nothing was changed.
        """
        raise NotImplementedError(f"{type(self).__name__} exchanges no results")

    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        """Take `swap_in` back: the result of `rebuilt`, which may have grown, lies beside again."""
        raise NotImplementedError(f"{type(self).__name__} exchanges no results")

    def drop_beside(self, rebuilt: SinkContext, session: Session) -> None:
        """Delete what a rebuild has written beside."""
        place = self.beside()
        place.set_aside(rebuilt, session)
        place.discard(rebuilt, session)
