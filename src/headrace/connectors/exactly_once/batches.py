"""One batch, one transaction, whatever the store: fence off, skip or write, and try again where that can help.

A connector implements `BatchStore`; `BatchWriter` is what Spark's foreachBatch calls.
"""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Generic, TypeAlias, TypeVar

from headrace.checkpoint import Checkpoint, planned_batch
from headrace.connectors.exactly_once.acceptance import KeptLine, is_same_batch, other_batch
from headrace.contract import SinkContext, Writer
from headrace.errors import CheckpointError, Fenced, Finding, HeadraceError, NothingChanged
from headrace.spark.messages.failures import worker_fault
from headrace.spark.stream.foreach_batch import compute_all, for_each_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Rows = TypeVar("Rows")
Entered = TypeVar("Entered")
FIRST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The state of one batch in a store's ledger.

    newer: the driver that has taken the query over, in words; "" while it is this one's turn. is_in: whether the store
    has a batch of this number. own: its line, None where the ledger keeps it no longer. before: the line of the newest
    batch before it, as far as it is known.
    """

    newer: str = ""
    is_in: bool = False
    own: KeptLine | None = None
    before: KeptLine | None = None


@dataclass(frozen=True)
class Admitted:
    """What a ledger keeps of a batch that may come in: its line, and the watermark in force during it, in ISO 8601."""

    line: KeptLine
    watermark: str | None = None


# Judges a standing: gives what is to be entered with the rows, or None where this very batch is in. Raises Fenced, and
# CheckpointError where another batch of its number is in.
Admission: TypeAlias = Callable[[Standing], Admitted | None]


class Conflict(Exception):
    """Another writer was quicker; no row of the batch is in."""


class RowsLost(Exception):
    """What was computed of a batch is no longer there; it must be computed again."""


class BatchStore(ABC, Generic[Rows]):
    """A table that takes a batch's rows and the ledger's line of it together, or neither; for one start of a query.

    `Rows` is what `compute` leaves for `commit`, perhaps for several attempts of it.
    """

    context: SinkContext
    # The table's name in messages, and what it is a name of.
    name: str
    kind: ClassVar[str] = "table"

    def begin(self, frame: DataFrame, batch: int) -> None:
        """Prepare an attempt; the session of `frame` is the query's own."""

    @abstractmethod
    def standing(self, batch: int) -> Standing:
        """Read the ledger; called before each attempt."""

    @abstractmethod
    def kept_plan(self, batch: int) -> str | None:
        """Return the text that the ledger keeps to plan a batch again."""

    @abstractmethod
    def compute(self, frame: DataFrame, batch: int) -> Rows:
        """Compute the rows; nothing that a reader sees is changed."""

    @abstractmethod
    def commit(self, rows: Rows, batch: int, admit: Admission) -> None:
        """Write the rows and the ledger's line together, or neither.

        `admit` must be asked about the very state of the ledger that the commit replaces: under the lock of its
        transaction, or with a commit that fails if the ledger was changed meanwhile. Where it gives None, nothing is
        written.
        """

    def release(self, rows: Rows | None, error: Exception | None) -> None:
        """Give up what `compute` has left: the batch is in (`error` is None), failed, or is to be computed again."""

    def disconnect(self) -> None:
        """Close a connection on which an attempt has failed."""

    def pauses(self) -> Iterator[float]:
        """Yield the seconds before each further attempt."""
        return CONTENDED.pauses()

    def is_transient(self, error: Exception) -> bool:
        """Whether the batch may be tried again: none of its rows are in, or the ledger shows that they are."""
        return isinstance(error, Conflict | RowsLost) or worker_fault(str(error)) is not None

    def explain(self, error: Exception, batch: int) -> Exception:
        """Return a fault of the store's as a SinkError; one of Spark's or of Headrace as it is."""
        return error

    def fate(self, batch: int, *, is_in_doubt: bool) -> str:
        """Return the start of a failed batch's message; `is_in_doubt`: the answer to a commit is not known."""
        which = f"batch {batch} of query '{self.context.query}'"
        return f"it is not known whether {which} was written" if is_in_doubt else f"{which} was not written"

    @contextmanager
    def computing(self, batch: int) -> Iterator[None]:
        """Report that the rows are computed, and whether to their end: a batch may be computed more than once."""
        whole = False
        try:
            yield
            whole = True
        finally:
            self.context.on_computed(batch, whole)


@dataclass
class _Work(Generic[Rows]):
    """The batch at hand, from one attempt to the next; computed: how many seconds its rows took to be computed."""

    entry: Admitted | None = None
    rows: Rows | None = None
    is_done: bool = False
    computed: float = 0.0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count how long the rows are computed."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.computed += time.monotonic() - begun


@dataclass(kw_only=True)
class BatchWriter(Writer, Generic[Rows]):
    """Takes the batches of one start of a query, for Spark's foreachBatch."""

    store: BatchStore[Rows]

    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        return for_each_batch(stream_writer, self)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        pauses: Iterator[float] | None = None
        work, begun = _Work[Rows](), time.monotonic()
        while True:
            try:
                self._take(frame, batch, work)
                return self.store.context.on_written(batch, time.monotonic() - begun - work.computed)
            except Exception as error:
                if pauses is None:
                    pauses = self.store.pauses()
                pause = next(pauses, None) if self.store.is_transient(error) and not work.is_done else None
                if not work.is_done and (pause is None or work.rows is None or isinstance(error, RowsLost)):
                    self.store.release(work.rows, error)
                    work.rows = None
                self.store.disconnect()
                fault = self.store.explain(error, batch)
                if pause is None:
                    if isinstance(fault, HeadraceError):
                        self.store.context.on_error(fault)
                    if fault is error:
                        raise
                    raise fault from None
                self._warn_of_retry(fault, batch, pause, is_sinks=not isinstance(error, RowsLost))
                time.sleep(pause)

    def _take(self, frame: DataFrame, batch: int, work: _Work[Rows]) -> None:
        store, context = self.store, self.store.context

        def admit(standing: Standing) -> Admitted | None:
            return self._admit(standing, batch, work)

        store.begin(frame, batch)
        if admit(store.standing(batch)) is None:
            if work.rows is None and Checkpoint(context.checkpoint).is_stateful:
                # Spark commits the state of a batch only if every partition of it is computed.
                with work.computing(), store.computing(batch):
                    compute_all(frame)
        else:
            if work.rows is None:
                with work.computing():
                    work.rows = store.compute(frame, batch)
            context.before_commit(batch)
            context.on_boundary("before-transaction", batch)
            store.commit(work.rows, batch, admit)
            work.is_done = True
            context.on_boundary("after-transaction", batch)
        work.is_done = True
        store.release(work.rows, None)

    def _admit(self, standing: Standing, batch: int, work: _Work[Rows]) -> Admitted | None:
        context = self.store.context
        if standing.newer:
            fault = f"a newer driver runs query '{context.query}' ({standing.newer}); this one writes nothing more"
            fix = "let only one driver run the query; this one has stopped"
            raise Fenced(code="HR409", what=fault, fix=fix)
        if work.entry is None:
            planned = planned_batch(Checkpoint(context.checkpoint), batch)
            line = KeptLine.of(context, batch, planned)
            work.entry = Admitted(line, None if planned is None else planned.entry.watermark)
        if not standing.is_in:
            return replace(work.entry, line=work.entry.line.after(standing.before))
        if standing.own is not None and not is_same_batch(standing.own, standing.before, work.entry.line.digest):
            table, kept = f"{self.store.kind} '{self.store.name}'", self.store.kept_plan(batch)
            raise CheckpointError(other_batch(context, table, batch, kept, committed=False))
        return None

    def _warn_of_retry(self, error: Exception, batch: int, pause: float, *, is_sinks: bool) -> None:
        cause = error.findings[0] if isinstance(error, HeadraceError) else None
        fault = f"{cause.what if cause else worker_fault(str(error))}; batch {batch} is tried again in {pause:.1f} s"
        fix = "nothing, if the next batches come in"
        self.store.context.on_retry(batch, cause if is_sinks else None)
        self.store.context.on_warning(Finding(code="HR411", what=fault, fix=fix))


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Pauses that double from one to the next, until the time or the attempts are used up.

    seconds: all pauses together. attempts: with the first one. longest_seconds: of a pause. uneven: each pause is cut
    by chance, since two that were in each other's way would meet again if both waited alike.
    """

    seconds: float = math.inf
    attempts: float = math.inf
    longest_seconds: float = 10.0
    uneven: bool = False
    clock: Callable[[], float] = lambda: time.monotonic()

    def pauses(self) -> Iterator[float]:
        """Yield the seconds before each further attempt."""
        ends, attempt, pause = self.clock() + self.seconds, 1, FIRST_PAUSE_SECONDS
        while attempt < self.attempts and self.clock() + pause <= ends:
            yield pause * random.uniform(0.5, 1.0) if self.uneven else pause
            attempt, pause = attempt + 1, min(2 * pause, self.longest_seconds)


# Where others commit to the same table.
CONTENDED = Retry(attempts=8, longest_seconds=5.0, uneven=True)


def take_epoch(
    enter: Callable[[], Entered],
    contended: Finding,
    *,
    fault: type[HeadraceError] = NothingChanged,
    retry: Retry = CONTENDED,
    sleep: Callable[[float], None] = time.sleep,
) -> Entered:
    """Return what `enter` returns; it is called again while other writers are quicker, then `fault` is raised.

    `enter` looks at the table as it is now, compares its ledger with the checkpoint and commits the next epoch upon
    that very state, or raises Conflict: a batch that comes in between is seen by the next call.
    """
    pauses = retry.pauses()
    while True:
        try:
            return enter()
        except Conflict:
            pause = next(pauses, None)
        if pause is None:
            raise fault(contended)
        sleep(pause)
