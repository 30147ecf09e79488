"""What a source and a sink must offer, and the facts that they declare of themselves.

A connector is a frozen, keyword-only dataclass with its `facts` and the methods of one protocol below.
Checks and guarantees are computed from the facts alone; the conformance suite (`headrace.testing.conformance`) proves
each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from headrace.checkpoint.source_prefix import SourceBatch as SourceBatch
from headrace.checkpoint.source_prefix import SourcePrefix as SourcePrefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from headrace.errors import Finding, HeadraceError

OutputMode: TypeAlias = Literal["append", "update", "complete"]
OUTPUT_MODES: tuple[OutputMode, ...] = ("append", "update", "complete")


@dataclass(frozen=True, kw_only=True)
class OptionError:
    """A fault of a connector's options; the caller adds where it was declared and whose it is."""

    code: str
    what: str
    fix: str = ""
    severity: Literal["error", "warning", "note"] = "error"


# ------------------------------------------------------------------------------------------------ sources


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What a source promises.

    replayable: the same offsets always give the same rows, also in a new process.
    readable_as_batch: `read` works, so that `verify` can ask for a committed prefix.
    rate_limited: a batch's size can be bounded by an option of the source.
    quarantines: rows that do not fit the schema can be set aside (`bad_rows`), counted in each batch's progress under
        the observed metric that `bad_rows_metric` names.
    continuous, real_time: the triggers of these names take it.
    live: it gives only what comes while the query runs: no start can go on from a checkpoint, and a trigger that ends
        by itself finds nothing.
    """

    replayable: bool
    readable_as_batch: bool
    rate_limited: bool = False
    quarantines: bool = False
    continuous: bool = False
    real_time: bool = False
    live: bool = False


def bad_rows_metric(source: str) -> str:
    """The name of the observed metric under which a quarantining source counts its bad rows, as column `rows`."""
    return f"headrace_bad_rows_{source}"


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What a source still holds that no batch has taken yet. `unit` is the field's word: files, rows, records.

    left_out: how many besides no batch will ever take.
    """

    count: int
    unit: str
    bytes: int | None = None
    left_out: int = 0


@runtime_checkable
class Source(Protocol):
    """An unbounded input.

    `problems` is called without a JVM, before start. `stream` is called once for each start of each query that uses
    the source; it must not read data. `read` is called by verify only, in a session of its own.
    """

    @property
    def facts(self) -> SourceFacts:
        """What this source, with its options, promises; a class-level value will do where no option matters."""
        ...

    def problems(self) -> Iterator[OptionError]:
        """Faults of the options that can be seen without Spark."""
        ...

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        """A streaming DataFrame of the source, named `name` for Spark's source evolution."""
        ...

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        """A batch DataFrame of exactly the rows of `prefix.batches`, with the schema of `stream`.

        With `batch_column`, one more column (LONG) of that name, last, tells the batch each row came in.
        Raises SourceError when rows of the prefix are no longer there.
        """
        ...

    def ensure_available(self, prefix: SourcePrefix) -> None:
        """Raise SourceError if rows of `prefix` can be seen, without a JVM, to be no longer there.

        Called before each start with the batches that were planned and not committed: Spark makes them again, and what
        it does not find then is left out of them without a word (files), or lost.
        """
        ...

    def backlog(self, prefix: SourcePrefix) -> Backlog | None:
        """What lies after `prefix`, without a JVM; None where it cannot be told cheaply."""
        ...


@runtime_checkable
class QuarantiningSource(Source, Protocol):
    """A source whose facts say `quarantines`."""

    def bad_rows(self, spark: SparkSession, prefix: SourcePrefix) -> DataFrame | None:
        """The rows of `prefix` that were set aside: (file STRING, record STRING, batch LONG); None: policy is fail."""
        ...


@runtime_checkable
class RemoteSource(Source, Protocol):
    """A source in another system."""

    @property
    def jvm(self) -> tuple[str, ...]:
        """The connectors of Spark that it needs, by their names in `headrace jars list`."""
        ...

    def check_connection(self, spark: SparkSession) -> None:
        """Raise SourceError when the system does not answer or lacks what is to be read; called before each start."""
        ...


@runtime_checkable
class PositionedSource(Source, Protocol):
    """A source that can begin at more than one place."""

    def beginning(self) -> str:
        """Where a query without a checkpoint begins to read, as the end of a sentence: `at the earliest messages`."""
        ...


@runtime_checkable
class CataloguedSource(Source, Protocol):
    """A source that reads a table of Spark's own catalog."""

    @property
    def catalog_table(self) -> str:
        """The table as `database.table`, in lower case."""
        ...


@runtime_checkable
class ContinuousSource(Source, Protocol):
    """A source whose facts say `continuous` or `real_time`."""

    def without_rate_limit(self) -> Source:
        """The same source without a bound on the size of batches, of which there are none."""
        ...

    def parallelism(self, spark: SparkSession) -> int:
        """How many tasks read it all the time; each needs a core of its own."""
        ...


@runtime_checkable
class AilingSource(Source, Protocol):
    """A source that may give no more rows while Spark goes on without a word."""

    def health(self, spark: SparkSession) -> OptionError | None:
        """What keeps a query that has begun its second batch from getting rows; asked about once a second."""
        ...


@runtime_checkable
class SelectiveSource(Source, Protocol):
    """A source that may leave out some of what is in its place."""

    def left_out(self, prefix: SourcePrefix) -> OptionError | None:
        """What lies there and will never be given, without a JVM; asked by `verify`, and from time to time by `run`."""
        ...


# -------------------------------------------------------------------------------------------------- sinks


@dataclass(frozen=True, kw_only=True)
class SinkFacts:
    """What a sink promises.

    modes: the output modes that it takes.
    transactional: a batch and its ledger row appear together or not at all, and a batch comes in once.
    idempotent: a batch written twice leaves what writing it once leaves.
    readable_back: `snapshot` works, so that `verify` can compare.
    durable: what was written outlives the process.
    continuous, real_time: the triggers of these names take it.
    async_progress: progress is written beside the batches, not with each, so that some come again after a crash.
    shares_appends: queries in append mode may write to the same place, and each can be told from the others.
    """

    modes: frozenset[OutputMode]
    transactional: bool
    idempotent: bool
    readable_back: bool
    durable: bool = True
    continuous: bool = False
    real_time: bool = False
    async_progress: bool = False
    shares_appends: bool = False


Boundary: TypeAlias = Literal["before-transaction", "inside-transaction", "after-transaction"]


def _no_boundary(boundary: Boundary, batch: int) -> None:
    """Pass every boundary without a halt."""


def _not_told(fault: HeadraceError) -> None:
    """Tell nobody of a fault; Spark's exception alone carries it."""


def _not_secured(batch: int) -> None:
    """Leave it to the machine when files reach the disk."""


def _not_noted(finding: Finding) -> None:
    """Tell nobody of what went on."""


def _not_counted(batch: int, whole: bool) -> None:
    """Count nothing."""


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """The life of a query that a sink writes for.

    query, generation: whose batches these are.
    mode: the query's output mode.
    checkpoint: the checkpoint directory; its `metadata` file holds the id that the ledger remembers.
    fingerprint: of the query as it runs now, kept in the ledger.
    reached: called at each boundary of a batch; the crash tests halt or kill there.
    failed: called with a fault of the sink's own before it is raised out of a batch; Spark passes on only its text.
    noted: called with what a user should know of though the batch goes on: an attempt that failed, rows set aside.
    computed: called each time that a batch's rows were computed, with whether to the end: Spark's own count of the rows
        read adds up over all of them. A sink that computes each batch once need not call it.
    unseen: batches of the checkpoint that no sink is ever given: they hold no rows, only state in other partitions.
    application, project: whose query it is: an id that the storage directory was given once, and the project's name.
    roots: where the project lies, and where it lay before it was moved.
    secured: called before a batch is committed: brings what the checkpoint holds of it to the disk.
    restoring: the checkpoint is behind the sink, and this start makes one batch again that is in.
    """

    query: str
    generation: int
    mode: OutputMode
    checkpoint: Path
    fingerprint: str = ""
    reached: Callable[[Boundary, int], None] = _no_boundary
    failed: Callable[[HeadraceError], None] = _not_told
    noted: Callable[[Finding], None] = _not_noted
    computed: Callable[[int, bool], None] = _not_counted
    empty_batches: frozenset[int] = frozenset()
    application: str = "unnamed"
    project: str = ""
    roots: tuple[Path, ...] = ()
    secured: Callable[[int], None] = _not_secured
    restoring: bool = False


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a sink holds at one instant: the rows, the last batch among them (None: unknown), the key's columns.

    set_aside: the rows of the result that the sink did not take and kept apart, with the schema of `rows`; None: none.
    replayed: the last batch whose late rows were brought back into the rows; None: none ever were.
    """

    rows: DataFrame
    batch: int | None
    key: tuple[str, ...] = ()
    rejected: DataFrame | None = None
    replayed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Correction:
    """What bringing late rows back changes in a result of which a snapshot was taken.

    snapshot: what the correction was computed from; the sink must hold just that when it is made.
    rows: with the result's schema; each replaces the row of its key, or is a new one.
    gone: the key's columns of the rows that the result has no more.
    late: how many rows are brought back, those of the batches up to `snapshot.batch`.
    """

    snapshot: Snapshot
    rows: DataFrame
    gone: DataFrame
    late: int


@runtime_checkable
class Sink(Protocol):
    """Where a query's result goes.

    `problems` is called without a JVM. `prepare` is called once before each start, with the schema of the result: it
    creates or compares the table, takes the next epoch (fencing off older drivers) and raises SinkError or
    CheckpointError when the batches to come would not fit what is there. `write` attaches the sink to Spark's writer.
    After a crash at any point, starting again must leave the result as if there had been none (if `transactional` or
    `idempotent` is claimed).
    """

    @property
    def facts(self) -> SinkFacts:
        """What this sink, with its options, promises; a class-level value will do where no option matters."""
        ...

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        """Faults of the options, given the query's output mode, that can be seen without Spark."""
        ...

    def prepare(self, frame: DataFrame, run: SinkContext) -> None:
        """Make ready to take the batches of `frame`, a streaming DataFrame; `frame.schema` is the result's schema."""
        ...

    def write(self, writer: DataStreamWriter, run: SinkContext) -> DataStreamWriter:
        """Set format, options or foreachBatch on Spark's writer; mode, trigger and checkpoint are already set."""
        ...

    def snapshot(self, spark: SparkSession, run: SinkContext) -> Snapshot:
        """The sink's content as whole batches, read in one transaction where there are transactions."""
        ...


@dataclass(frozen=True, kw_only=True)
class SinkLocation:
    """Where a sink writes, without secrets: as a checkpoint keeps it, and as people read it.

    name: the table or topic; of two names never the same rows. systems: the servers or the path that hold it. ledger:
    what is there tells by itself whether it has the checkpoint's batches, so that it may lie in another system now.
    shown: both in words.
    """

    name: str
    systems: tuple[str, ...]
    shown: str
    ledger: bool = False


@runtime_checkable
class LocatedSink(Sink, Protocol):
    """A sink whose rows outlive a run in one place."""

    @property
    def location(self) -> SinkLocation:
        """The place, from the options alone."""
        ...


@runtime_checkable
class CheckedSink(Sink, Protocol):
    """A sink that tells before a start whether `prepare` would take a result."""

    def incompatibilities(self, frame: DataFrame, run: SinkContext, *, connect: bool) -> Iterator[Finding]:
        """What would keep `prepare` from taking the batches of `frame`; nothing is made or changed.

        Without `connect` nothing but the result is looked at. A system that does not answer is a warning.
        """
        ...


@runtime_checkable
class CataloguedSink(Sink, Protocol):
    """A sink that writes a table of Spark's own catalog, which other queries may read as a stream."""

    @property
    def catalog_table(self) -> str:
        """The table as `database.table`, in lower case."""
        ...

    def register_table(self, frame: DataFrame, *, placeholder: str | None = None) -> None:
        """Enter the table, which the catalog of the session does not know, as made for the result `frame`.

        Its rows are those that the sink has written. If it has written none: over the empty directory `placeholder`,
        and without one not at all.
        """
        ...


@runtime_checkable
class RestoringSink(Sink, Protocol):
    """A transactional sink whose ledger keeps what was planned for its batches."""

    def last_batch(self, run: SinkContext) -> int | None:
        """The newest batch of the run's checkpoint that is in; None: none is, or it cannot be told now."""
        ...

    def planned(self, run: SinkContext, first: int) -> Mapping[int, str]:
        """What `PlannedBatch.loads` reads, for each batch from `first` on of which it is kept and has its digest."""
        ...


@runtime_checkable
class ReplayingSink(Sink, Protocol):
    """A transactional sink in whose result, if it has a key, late rows can be brought back."""

    def replayed(self, run: SinkContext) -> int | None:
        """The last batch whose late rows were brought back; None: none ever were."""
        ...

    def replay(self, correction: Correction, run: SinkContext) -> None:
        """Write `correction` and the batch that it reaches to in one transaction, or nothing.

        Raises SinkError if the sink holds another batch than the snapshot, or another replay came first.
        """
        ...


@runtime_checkable
class ShapingSink(Sink, Protocol):
    """A sink that writes other columns than the result's. It may name connectors of Spark in `jvm`, as a source may."""

    def shape(self, frame: DataFrame) -> DataFrame:
        """The result as it is written; called before `write`, with the frame that `prepare` was given."""
        ...
