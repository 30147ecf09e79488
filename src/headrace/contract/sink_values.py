"""A sink's facts, the context of the query that it writes for, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.errors import Finding, HeadraceError

OutputMode: TypeAlias = Literal["append", "update", "complete"]
OUTPUT_MODES: tuple[OutputMode, ...] = ("append", "update", "complete")
Boundary: TypeAlias = Literal["before-transaction", "inside-transaction", "after-transaction"]


@dataclass(frozen=True, kw_only=True)
class SinkFacts:
    """What a sink promises, where it does not follow from what its class overrides.

    modes: the output modes that it takes.
    transactional: a batch and its ledger row appear together or not at all, and a batch comes in once.
    idempotent: a batch written twice leaves what writing it once leaves.
    durable: what was written outlives the process.
    continuous, real_time: the triggers of these names take it.
    async_progress: progress is not written with each batch, so that some come again after a crash.
    shares_appends: queries in append mode may write to the same place, and the rows of each can be identified.
    adds_files: each batch adds a file or more, one for each task that has rows.
    readable_back: where there is a `read_back`, it works with these options.
    begins_anywhere: a query that wrote elsewhere before may begin to write here with its next batch. So where readers
        take rows as they come, as from a topic (guide: "Recovery Semantics after Changes"). A table or a directory is
        read as the whole result, and would lack what the former place has.
    deletes: in update mode, a row that `DELETE_COLUMN` marks deletes that of its key, in the batch's transaction.
    columns_by_name: the result's columns are taken by their names, so that their order does not count.
    layout_options: those by which readers find and read the rows: a format, directories by columns. Rows that were
        written before a change of one are not what readers then expect.
    """

    modes: frozenset[OutputMode]
    transactional: bool
    idempotent: bool
    durable: bool = True
    continuous: bool = False
    real_time: bool = False
    async_progress: bool = False
    shares_appends: bool = False
    adds_files: bool = False
    readable_back: bool = True
    begins_anywhere: bool = False
    deletes: bool = False
    columns_by_name: bool = True
    layout_options: tuple[str, ...] = ()


def _ignore(*_: Any) -> None:
    """Do nothing: the default of all callbacks."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A record of a query's log, as the sink compares it with the newest change that it has seen.

    number, token: of the record. of: the number of its change's first one. way: `there` makes the change, `back` undoes
    it; with both the sink keeps the mark, in the change's own transaction. `start` and `discard` only compare. tokens:
    those of the log's earlier records by number, which no sink keeps.
    """

    number: int
    token: str
    of: int = 0
    way: Literal["start", "there", "back", "discard"] = "start"
    tokens: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def token_of(self, number: int) -> str | None:
        """The token of the record of this number in the same log; None where the log does not say it."""
        return self.token if number == self.number else self.tokens.get(str(number))


@dataclass(frozen=True, kw_only=True)
class ChangeCounts:
    """What a batch of change data has done to a result.

    inserts, updates, deletes: rows of the result; with intervals, those that are new, changed and no longer there.
    ignored: changes that newer ones had replaced before they came, within their batch too; of a Delta table without the
        deletes among them, which would need another scan of the table. truncates: all that came.
    """

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    ignored: int = 0
    truncates: int = 0


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """The life of a query that a sink writes for.

    query_id, generation: whose batches these are; the id stays when the query is renamed. Without one it is the name.
    query: the name that the query has now, for people.
    mode: the query's output mode.
    checkpoint: the checkpoint directory; its `metadata` file holds the id that the ledger remembers.
    fingerprint: of the query as it runs now, kept in the ledger.
    on_boundary: called at each boundary of a batch; the crash tests stop or kill there.
    on_error: called with an error of the sink's own before it is raised out of a batch; Spark passes on only its text.
    on_warning: called with what a user should know though the batch continues: a failed attempt, quarantined rows.
    on_retry: called with a batch that is tried again, before the pause, and why the sink did not take it; None: its
        rows are to be computed again.
    on_computed: called each time that a batch's rows were computed, with whether to the end: Spark's own count of the
        rows read adds up over all of them. A sink that computes each batch once need not call it.
    on_written: called once a batch is in, with the seconds that the sink itself took, without the rows' computation.
    on_changes: called once a batch of change data is in, with what it did to the result.
    empty_batches: batches of the checkpoint that no sink is ever given: they hold no rows, only state in other
        partitions.
    application, project: whose query it is: an id that the storage directory was given once, and the project's name.
    roots: where the project lies, and where it lay before it was moved.
    before_entering: called before a start is entered into the sink's ledger, which fences older drivers off, and as
        late as can be: raises where another process has taken the query over since.
    before_commit: called before a batch is committed: brings what the checkpoint holds of it to the disk.
    restoring: the checkpoint is behind the sink, and this start makes one batch again that is in.
    mark: the newest record of the query's log that the caller has read; None where there is no log.
    find_lost: called with the sink's mark of a change that the log lacks: returns what the storage has of the change,
        so that it can be entered into the log; None: nothing.
    rebuilds: the generation is made while the one in use runs; the drivers of the two do not fence each other off.
    """

    query: str
    generation: int
    mode: OutputMode
    checkpoint: Path
    fingerprint: str = ""
    on_boundary: Callable[[Boundary, int], None] = _ignore
    on_error: Callable[[HeadraceError], None] = _ignore
    on_warning: Callable[[Finding], None] = _ignore
    on_retry: Callable[[int, Finding | None], None] = _ignore
    on_computed: Callable[[int, bool], None] = _ignore
    on_written: Callable[[int, float], None] = _ignore
    on_changes: Callable[[int, ChangeCounts], None] = _ignore
    empty_batches: frozenset[int] = frozenset()
    application: str = "unnamed"
    project: str = ""
    roots: tuple[Path, ...] = ()
    before_entering: Callable[[], None] = _ignore
    before_commit: Callable[[int], None] = _ignore
    restoring: bool = False
    rebuilds: bool = False
    query_id: str = ""
    mark: Mark | None = None
    find_lost: Callable[[Mark], object] = field(default=_ignore, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.query_id:
            object.__setattr__(self, "query_id", self.query)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a sink holds at one instant: the rows, the last batch among them (None: unknown), the key's columns.

    rejected: the rows of the result that the sink did not take and kept apart, with the schema of `rows`; None: none.
    replayed: the last batch whose late rows were written back; None: none ever were.
    """

    rows: DataFrame
    batch: int | None
    key: tuple[str, ...] = ()
    rejected: DataFrame | None = None
    replayed: int | None = None


@dataclass(frozen=True)
class RefusedValue:
    """Values of one column of a result that fail their batch with HR440, and what to do about them."""

    column: str
    condition: Column
    why: str
    fix: str

    @property
    def what(self) -> str:
        """What is wrong, in a sentence."""
        return f"a value of column '{self.column}' {self.why}"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A few rows for people: values as JSON has them, texts cut to a length that can be read.

    order: what the first ones are, as in `the greatest hour first`; empty: as they come. more: there are others.
    stopped: which other limit than the number of rows ended the answer, as in `stopped after 64 MB`; empty: none.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | bool | None, ...], ...]
    more: bool = False
    order: str = ""
    stopped: str = ""


@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """What a sink's ledger says of a batch that is in: how many rows it wrote, and when."""

    rows: int | None
    committed_at: str | None


@dataclass(frozen=True, kw_only=True)
class Correction:
    """What writing late rows back, or a repair, changes in a result of which a snapshot was taken.

    snapshot: what the correction was computed from; the sink must hold exactly that when it is made.
    rows: with the result's schema; each replaces the row of its key, or is a new one.
    deletes: the key's columns of the rows that the result has no more.
    late: how many rows are written back, those of the batches up to `snapshot.batch`; None: it is a repair.
    """

    snapshot: Snapshot
    rows: DataFrame
    deletes: DataFrame
    late: int | None = None


@dataclass(frozen=True, kw_only=True)
class SinkLocation:
    """Where a sink writes, without secrets: as a checkpoint keeps it, and as people read it.

    name: the table or topic; two names never have the same rows. systems: the servers or the path that hold it. ledger:
    the place itself says whether it has the checkpoint's batches, so that it may lie in another system now. shown: both
    in words.
    """

    name: str
    systems: tuple[str, ...]
    shown: str
    ledger: bool = False


@dataclass(frozen=True, kw_only=True)
class Held:
    """How much of something a generation of a query holds, as in 12 `rows of table 't' in out.db`."""

    count: int
    what: str


@dataclass(frozen=True, kw_only=True)
class KeptResult:
    """Whether a result can stay while its query starts again, and in a sentence why not, or what then happens to it."""

    possible: bool
    why: str


def replaced_result(mode: OutputMode) -> KeptResult:
    """Return what happens to a result whose rows are replaced: all in complete mode, by their key in update mode."""
    if mode == "complete":
        return KeptResult(possible=True, why="its rows stay until the first new batch replaces all of them")
    if mode == "update":
        why = "a row that comes again replaces the one of its key; rows whose keys do not come again stay, and verify "
        return KeptResult(possible=True, why=why + "then reports them")
    return KeptResult(possible=False, why="in append mode its rows would be added to those that are there")
