"""The ledger of a Delta table: which batches of which query are in, kept in the table's own transaction identifiers.

Delta keeps one number for each identifier, and its versions' notes. `Progress` and `FirstVersion` pack into
one number how far a query is, and at which version it came to the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.connectors.delta.log import Commit
from headrace.connectors.delta.table import DeltaPlace, LogCutError, State
from headrace.connectors.exactly_once import KeptLine, LinesLedger
from headrace.connectors.exactly_once.acceptance import KEPT
from headrace.contract import SinkContext
from headrace.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX = "headrace/"
# The key in the note of a version that says which earlier version it has restored.
RESTORES = "restores"
# What identifiers remember of a generation: the version at which it came to the table, that it changes or replaces rows
# and so shares the table with no other query, that it continues the result of an older one (1 while it does), each name
# that its query had (with the epoch of the last start by that name), each of its applications and checkpoints, and the
# version of the table before the last rewind.
BEGIN, ALONE, HANDOVER, NAMED = "begin", "alone", "handover", "named"
APPLICATION, CHECKPOINT, REWOUND = "application", "checkpoint", "rewound"
_EPOCH = 1 << 32
_LAST_EPOCH = (1 << 31) - 1
# Other writers' versions that may lie between two batches, all together.
_LOOKED_BACK = 1_000


@dataclass(frozen=True)
class Progress:
    """How far one generation of a query has come: its driver's epoch and its last batch (None: none yet).

    Both are one number, the epoch first, since Delta takes no write whose number is not above the last one: neither a
    batch that is in already, nor any batch of an older driver.
    """

    epoch: int
    batch: int | None

    @classmethod
    def of(cls, number: int) -> Progress:
        """Unpack a number of the ledger."""
        epoch, batches = divmod(number, _EPOCH)
        return cls(epoch, batches - 1 if batches else None)

    @property
    def number(self) -> int:
        batches = 0 if self.batch is None else self.batch + 1
        return self.epoch * _EPOCH + batches

    @property
    def is_closed(self) -> bool:
        """Whether a later generation has taken its place."""
        return self.epoch == _LAST_EPOCH

    def close(self) -> Progress:
        """Return the progress with the last epoch, so that no driver comes after it."""
        return Progress(_LAST_EPOCH, self.batch)


NOT_BEGUN = Progress(0, None)


@dataclass(frozen=True)
class FirstVersion:
    """The version of the table at which a generation came to it, and whether the table had rows then.

    One number: twice the version, and one more for rows.
    """

    version: int
    had_rows: bool

    @classmethod
    def of(cls, number: int) -> FirstVersion:
        """Unpack a number of the ledger; a table that was made for the query has 0 too."""
        version, had_rows = divmod(number, 2)
        return cls(version, bool(had_rows))

    @property
    def number(self) -> int:
        return 2 * self.version + int(self.had_rows)


def app(query_id: str, generation: int, *remembered: str) -> str:
    """The transaction identifier of a generation of a query, or of something that is remembered of it."""
    return "/".join((f"{PREFIX}{query_id}", str(generation), *remembered))


def own_mark(context: SinkContext, *remembered: str) -> str:
    """The transaction identifier of the context's generation."""
    return app(context.query_id, context.generation, *remembered)


def is_handed_over(context: SinkContext, txn_ids: Mapping[str, int]) -> bool:
    """Whether the rows of an older generation are those of this one."""
    return txn_ids.get(own_mark(context, HANDOVER)) == 1


def recall_names(context: SinkContext, kind: str, txn_ids: Mapping[str, int]) -> set[str]:
    """All names that are remembered of the generation as `kind`."""
    prefix = own_mark(context, kind, "")
    return {name.removeprefix(prefix) for name in txn_ids if name.startswith(prefix)}


def label(query_id: str, generation: int, txn_ids: Mapping[str, int]) -> str:
    """The name that a query had at its last start; its id for one that version 0.1.0 wrote, which kept none."""
    prefix = app(query_id, generation, NAMED, "")
    named = {name.removeprefix(prefix): epoch for name, epoch in txn_ids.items() if name.startswith(prefix)}
    return max(named, key=lambda name: named[name], default=query_id)


def start_marks(context: SinkContext, reached: Progress, begun: FirstVersion | None) -> dict[str, int]:
    """Return the marks that a generation enters at its start; `begun`: when it comes to the table, if it does."""
    entered = {own_mark(context): reached.number, own_mark(context, APPLICATION, context.application): 1}
    entered[own_mark(context, NAMED, context.query)] = reached.epoch
    if begun is not None:
        entered[own_mark(context, BEGIN)] = begun.number
    if context.mode != "append":
        entered[own_mark(context, ALONE)] = 1
    return entered


def progress_of_all(txn_ids: Mapping[str, int]) -> dict[tuple[str, int], Progress]:
    """Every generation of every query that the table knows, by the query's id and the number."""
    progress = {}
    for name, number in txn_ids.items():
        parts = name.split("/")
        if len(parts) == 3 and name.startswith(PREFIX) and parts[2].isdigit():
            progress[parts[1], int(parts[2])] = Progress.of(number)
    return progress


def progress(context: SinkContext, txn_ids: Mapping[str, int]) -> Progress:
    """How far the generation has come in the table."""
    return progress_of_all(txn_ids).get((context.query_id, context.generation), NOT_BEGUN)


def own_state(place: DeltaPlace, spark: SparkSession, context: SinkContext) -> tuple[State, Progress] | None:
    """The table as it is now, and how far the generation has come in it; None where it has no batch there."""
    table = place.find(spark)
    if table is None:
        return None
    state = table.now()
    own = progress(context, state.txn_ids)
    return None if own.batch is None else (state, own)


def newest_first(state: State, context: SinkContext) -> Iterator[tuple[Commit, int | None]]:
    """The versions from the newest back, each with the life's batch that it is marked with; None: with none.

    What a rewind has taken off is passed over.
    """
    own = own_mark(context)
    at: int | None = state.version
    while at is not None:
        version, at = at, None
        for commit in state.table.newest_first(version):
            mark = commit.txn_ids.get(own)
            yield commit, None if mark is None else Progress.of(mark).batch
            if mark is not None and RESTORES in commit.note:
                at = int(commit.note[RESTORES])
                break


def lines(state: State, context: SinkContext, most: int = KEPT) -> list[KeptLine]:
    """Read the lines of the generation's newest batches, oldest first, each from the note of its own version.

    Versions come and go; where the log no longer has that of the newest batch, its number and checkpoint are all.
    """
    txn_ids = state.txn_ids
    own = progress(context, txn_ids)
    if own.batch is None:
        return []
    kept: list[KeptLine] = []
    for looked, (commit, batch) in enumerate(newest_first(state, context)):
        if looked >= _LOOKED_BACK or len(kept) == most:
            break
        # The mark of a start repeats the batch, and has no note, as that of a rewind has no line.
        if batch is None or RESTORES in commit.note or commit.note.get("batch") != batch:
            continue
        line = KeptLine.from_dict(commit.note)
        if line.digest is None:
            break
        kept.insert(0, line)
    if not kept or kept[-1].batch != own.batch:
        mine = Checkpoint(context.checkpoint).id or ""
        ids = recall_names(context, CHECKPOINT, txn_ids) or {mine}
        return [KeptLine(batch=own.batch, checkpoint=mine if mine in ids else min(ids))]
    return kept


def own_rows(state: State, context: SinkContext, name: str) -> DataFrame:
    """The rows of `state` without those of other queries and of the time before.

    What neither Headrace nor the table's past explains counts as the query's, so that verify finds it. Raises SinkError
    where rows of others were rewritten together with the query's, or the table's log no longer says whose they are.
    """
    txn_ids = state.txn_ids
    begun = FirstVersion.of(txn_ids.get(own_mark(context, BEGIN), 0))
    progress = progress_of_all(txn_ids)
    others = [key for key, other in progress.items() if key[0] != context.query_id and other.batch is not None]
    if not others and not begun.had_rows:
        return state.rows()
    try:
        strangers = {add["path"] for add in state.table.at(begun.version).files()} if begun.had_rows else set()
        commits = state.table.commits(begun.version + 1, state.version)
    except LogCutError as cut:
        fault = f"{name} has rows of others too, and its log no longer has {cut}, which said whose rows are whose"
        fix = "let the table keep its log for longer (delta.logRetentionDuration), and give each query one of its own"
        raise SinkError(code="HR402", what=fault, fix=fix) from None
    strangers = _follow_strangers(strangers, commits.values(), own_mark(context), name)
    return state.rows_of(add for add in state.files() if add["path"] not in strangers)


def _follow_strangers(strangers: set[str], commits: Iterable[Commit], own: str, name: str) -> set[str]:
    """The files of others than `own`, through every version that added to them or rewrote them."""
    for commit in commits:
        writers = {app for app in commit.txn_ids if app.startswith(PREFIX)}
        removed = {remove["path"] for remove in commit.removes}
        foreign = removed & strangers
        if own in writers:
            continue
        if foreign and foreign != removed:
            fault = f"version {commit.version} of {name} put rows of several writers into the same files"
            fix = "give each query a table of its own; verify can then identify its rows"
            raise SinkError(code="HR402", what=fault, fix=fix)
        if writers or foreign:
            strangers |= {add["path"] for add in commit.adds}
    return strangers


@dataclass(frozen=True, kw_only=True)
class DeltaLedger(LinesLedger):
    """Which batches are in, by the table's own log; `seen` gives the table as it is, None where it cannot be seen."""

    seen: Callable[[], State | None]

    def lines(self, context: SinkContext, most: int = KEPT) -> list[KeptLine]:
        state = self.seen()
        return [] if state is None else lines(state, context, most)
