"""The line that a ledger keeps of a batch, and whether such lines and a checkpoint hold the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import TypeAlias

from headrace.checkpoint import Checkpoint, PlannedBatch, chain_digest, planned_batch
from headrace.checkpoint.identity import differences
from headrace.contract import SinkContext
from headrace.errors import CheckpointBehind, CheckpointError, Finding, PlainData, SinkError
from headrace.storage.remembered import remembering

# What a ledger keeps to plan a batch again, by the batch's number; None: it keeps nothing.
Kept = Callable[[int], str | None]


@dataclass(frozen=True, kw_only=True)
class KeptLine(PlainData):
    """What a ledger keeps of a batch that is in.

    checkpoint: the id of the checkpoint that it came from. digest, chain: of the batch, and of all up to it; None where
    Spark keeps no plan of the batch. planned: the text that the batch can be planned again from; "" where it is kept,
    and was not read with the line.
    """

    batch: int
    checkpoint: str = ""
    digest: str | None = None
    chain: str | None = None
    planned: str | None = None

    @classmethod
    def of(cls, context: SinkContext, batch: int, planned: PlannedBatch | None) -> KeptLine:
        """Return the line of a batch, not yet chained to the line before it.

        planned: what the checkpoint holds of the batch; None without a stream.
        """
        return cls(
            batch=batch,
            checkpoint=Checkpoint(context.checkpoint).id or "",
            digest=None if planned is None else planned.digest(context.roots),
            planned=None if planned is None else planned.dumps(),
        )

    def after(self, before: KeptLine | None) -> KeptLine:
        """Return the line chained to the one before it; without a digest there is nothing to chain."""
        if self.digest is None:
            return self
        return replace(self, chain=chain_digest(before.chain if before else None, self.digest))


@dataclass(frozen=True, kw_only=True)
class CheckpointView:
    """The batches of a checkpoint.

    id: None before the first start. planned, committed: the newest ones. digests: of the batches that Spark still
    keeps, as far as they can be determined. empty: batches that no sink is ever given.
    """

    id: str | None = None
    planned: int | None = None
    committed: int | None = None
    digests: Mapping[int, str] = field(default_factory=dict)
    empty: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Same:
    """The ledger holds the checkpoint's batches, perhaps without the newest."""


@dataclass(frozen=True)
class Ahead:
    """The ledger holds these batches beyond the checkpoint's newest, and can give back what was planned for them."""

    batches: tuple[int, ...]


@dataclass(frozen=True)
class OtherCheckpoint:
    """The lines come from a checkpoint with another id; `id` is None where there is no checkpoint."""

    id: str | None


@dataclass(frozen=True)
class OtherBatch:
    """The checkpoint plans other rows for this batch than those that are in."""

    batch: int


@dataclass(frozen=True)
class BrokenChain:
    """The line of this batch does not follow that of the batch before: lines were changed or taken out."""

    batch: int


@dataclass(frozen=True)
class Behind:
    """The checkpoint has gone past `batch`, which the ledger does not hold; `last` is the newest that it does."""

    batch: int
    last: int | None


@dataclass(frozen=True)
class NotRestorable:
    """The ledger is ahead up to `last`, and cannot give back what was planned for `batch`."""

    batch: int
    last: int


Acceptance: TypeAlias = Same | Ahead | OtherCheckpoint | OtherBatch | BrokenChain | Behind | NotRestorable


def judge(lines: Sequence[KeptLine], here: CheckpointView, *, begun: bool = True) -> Acceptance:
    """Compare `lines`, those of one query's generation in order of their batches, with the checkpoint.

    `lines` may begin anywhere; they must reach to the newest. begun: False where the ledger does not know the
    generation, which each start enters before its first batch is planned: that batch may be in all the same.
    """
    last = lines[-1].batch if lines else -1
    planned = -1 if here.planned is None else here.planned
    if not begun and here.planned is not None:
        return Behind(0, None)
    if lines and here.id != lines[-1].checkpoint:
        return OtherCheckpoint(here.id)
    for before, line in pairwise(lines):
        if line.digest is not None and line.chain != chain_digest(before.chain, line.digest):
            return BrokenChain(line.batch)
    for line in lines:
        if line.digest is not None and here.digests.get(line.batch, line.digest) != line.digest:
            return OtherBatch(line.batch)
    # Spark makes the newest planned batch again, unless it has committed it; all before it must be in.
    needed = max(planned - 1, -1 if here.committed is None else here.committed)
    if lacking := [batch for batch in range(last + 1, needed + 1) if batch not in here.empty]:
        return Behind(lacking[0], last if lines else None)
    if last <= planned:
        return Same()
    by_batch = {line.batch: line for line in lines}
    beyond = tuple(batch for batch in range(planned + 1, last + 1) if batch not in here.empty)
    for batch in beyond:
        if batch not in by_batch or by_batch[batch].planned is None or by_batch[batch].digest is None:
            return NotRestorable(batch, last)
    return Ahead(beyond)


def is_same_batch(line: KeptLine, before: KeptLine | None, digest: str | None) -> bool:
    """Whether a batch with `digest` is the one of `line`; a line without a digest fits every one.

    `before` precedes the line. Where the ledger keeps it no longer, the digest of the batch alone decides.
    """
    if line.digest is None:
        return True
    return line.digest == digest and (before is None or line.chain == chain_digest(before.chain, digest))


def require_own_generation(place: str, context: SinkContext, generation: int, *, kind: str = "table") -> None:
    """Raise for the result of another generation of the context's query: an older one's, or what the storage lost."""
    if generation > context.generation:
        fault = (
            f"{place} holds the result of generation {generation} of '{context.query}', and the storage knows none "
            f"after {context.generation}: it is a copy from before a reset or a rebuild"
        )
        fix = "put the storage of after that back; or restore the sink too, from a copy of the storage's time"
        raise CheckpointError(code="HR410", what=fault, fix=fix)
    if generation < context.generation:
        fault = f"{place} still holds the result of generation {generation} of '{context.query}'"
        raise SinkError(code="HR407", what=fault, fix=f"write to another {kind}, or drop this one")


def require_lines_fit(
    context: SinkContext,
    table: str,
    lines: Sequence[KeptLine],
    *,
    begun: bool = True,
    kind: str = "table",
    here: CheckpointView | None = None,
    kept: Kept | None = None,
) -> None:
    """Raise where batches would be lost, or skipped unread.

    Args:
        table: The name of the result, for messages.
        lines: Those of the query's generation, read after whatever lock keeps other drivers out.
        begun: False where the ledger has lost the generation.
        kind: What `table` is the name of.
        here: The checkpoint, if it was read before the lines.
        kept: What the ledger keeps to plan a batch again, where the lines do not have it.

    Raises:
        CheckpointBehind: Only the newest batches are lost from the checkpoint, and the ledger can give them back.
        CheckpointError: The lines and the checkpoint hold different batches.
    """
    table, here = f"{kind} '{table}'", here or view_of(context)
    acceptance = judge(lines, here, begun=begun)
    match acceptance:
        case Same():
            return
        case Ahead(batches):
            if not context.restoring:
                fault = (
                    f"{table} has batches of query '{context.query}' up to {batches[-1]}, the checkpoint "
                    f"'{context.checkpoint}' only to {batches[0] - 1}: it is an old copy"
                )
                fix = "restore the newest copy of the storage, or reset the query (headrace reset QUERY)"
                raise CheckpointBehind(code="HR410", what=fault, fix=fix)
        case _:
            kept = kept or {line.batch: line.planned for line in lines}.get
            raise CheckpointError(_finding(acceptance, context, table, lines, here, kept))


def view_of(context: SinkContext) -> CheckpointView:
    """Read the batches of the generation's checkpoint; raises CheckpointError if its newest plan cannot be read.

    A remote store is read again, once for each file and in parallel: a driver may hold its lock in the database.
    """
    checkpoint, empty = Checkpoint(context.checkpoint), context.empty_batches
    digests: dict[int, str] = {}
    with remembering(checkpoint.root):
        offsets = checkpoint.offset_numbers()
        for batch in offsets:
            try:
                planned = planned_batch(checkpoint, batch)
            except CheckpointError:
                # An older batch is not made again; what is lost of it is reported by the look at the whole checkpoint.
                if batch == max(offsets):
                    raise
                continue
            if planned is not None:
                digests[batch] = planned.digest(context.roots)
        return CheckpointView(
            id=checkpoint.id,
            planned=max(offsets, default=None),
            committed=max((batch for batch in checkpoint.commit_numbers() if batch not in empty), default=None),
            digests=digests,
            empty=empty,
        )


def _finding(
    acceptance: Acceptance,
    context: SinkContext,
    table: str,
    lines: Sequence[KeptLine],
    here: CheckpointView,
    kept: Kept,
) -> Finding:
    last = lines[-1].batch if lines else None
    newest = here.planned if here.committed is None else here.committed
    reset = "or reset the query (headrace reset QUERY)"
    kind = table.partition(" ")[0]
    match acceptance:
        case OtherCheckpoint(checkpoint_id):
            which = "is a new one" if checkpoint_id is None else "is another one"
            fault = (
                f"{table} has batches 0 to {last} of query '{context.query}', but the checkpoint "
                f"'{context.checkpoint}' {which}: its first batches would be taken for those and skipped"
            )
            return Finding(code="HR410", what=fault, fix=f"restore the former storage, {reset}")
        case OtherBatch(batch):
            committed = here.committed is not None and here.committed >= batch
            return other_batch(context, table, batch, kept(batch), committed=committed)
        case BrokenChain(batch):
            fault = (
                f"the ledger's line of batch {batch} of query '{context.query}' next to {table} does not follow "
                "the line before it: lines were removed or changed by another hand"
            )
            return Finding(code="HR410", what=fault, fix=f"restore the {kind} and its ledger from a copy, {reset}")
        case Behind(batch, None):
            done = "planned" if here.committed is None else "committed"
            fault = (
                f"query '{context.query}' has {done} batch {newest}, but the ledger next to {table} has "
                "no batch of it: the rows written so far are gone, or the sink is a new one"
            )
            return Finding(code="HR410", what=fault, fix=f"put the {kind} and its ledger back, {reset}")
        case Behind(batch, last):
            fault = (
                f"query '{context.query}' has continued to batch {newest}, but {table} has batches only "
                f"up to {last}: the {kind} is an old copy, and batch {batch} would be lost"
            )
            return Finding(
                code="HR410", what=fault, fix=f"restore the newest copy of the {kind} and its ledger, {reset}"
            )
        case NotRestorable(batch, last):
            planned = "none" if here.planned is None else here.planned
            fault = (
                f"{table} has batches of query '{context.query}' up to {last}, the checkpoint "
                f"'{context.checkpoint}' only to {planned}: it is an old copy, and the ledger no longer keeps what was "
                f"planned for batch {batch}"
            )
            return Finding(code="HR410", what=fault, fix=f"restore the newest copy of the storage, {reset}")
        case _:
            raise AssertionError(acceptance)


def other_batch(context: SinkContext, table: str, batch: int, kept: str | None, *, committed: bool) -> Finding:
    """Return the finding of a batch that is in `table` with other rows than this checkpoint plans for it."""
    fault = (
        f"batch {batch} of query '{context.query}' is in {table} with other rows than the checkpoint "
        f"'{context.checkpoint}' plans for it{_show_differences(context, batch, kept)}: two copies of one storage "
        "directory were run"
    )
    kind = table.partition(" ")[0]
    fix = f"run the query from the copy whose batches are in the {kind}"
    if not committed:
        fix += (
            f"; or, to keep this copy, remove '{context.checkpoint / 'offsets' / str(batch)}' and its .crc file, "
            f"and start again: the batch is then planned as it is in the {kind}"
        )
    return Finding(code="HR410", what=fault, fix=fix)


def _show_differences(context: SinkContext, batch: int, kept: str | None) -> str:
    """Return where the two plans differ, as far as both are known."""
    try:
        ours = planned_batch(Checkpoint(context.checkpoint), batch)
        theirs = None if kept is None else PlannedBatch.loads(kept)
    except (CheckpointError, ValueError):
        return ""
    if ours is None or theirs is None:
        return ""
    shown = list(islice(differences(theirs, ours, context.roots), 3))
    return f" ({'; '.join(shown)})" if shown else " (they agree, but the batches before them do not)"


# How many batches can be planned again from the ledger; a power cut seldom takes more from a checkpoint.
KEPT = 10


def misfits(
    context: SinkContext, table: str, read: Callable[[], Sequence[KeptLine] | None], *, kind: str = "table"
) -> Iterator[Finding]:
    """Yield what a start would refuse of the lines that `read` returns; it repairs a checkpoint that is behind.

    A driver may run meanwhile, which writes a batch's line before it commits the batch: so the lines are read last.
    None of them: the ledger has lost the generation.
    """
    if not context.application:
        return
    try:
        here, lines = view_of(context), read()
        require_lines_fit(context, table, lines or (), begun=lines is not None, kind=kind, here=here)
    except CheckpointBehind:
        return
    except CheckpointError as error:
        yield from error.findings


def plans(context: SinkContext, lines: Sequence[KeptLine], first: int) -> dict[int, PlannedBatch]:
    """Return the plans of the batches from `first` on; one whose digest differs from its line's is ignored."""
    kept = {}
    for line in lines:
        if line.batch >= first and line.planned is not None:
            with suppress(ValueError):
                plan = PlannedBatch.loads(line.planned)
                if plan.digest(context.roots) == line.digest:
                    kept[line.batch] = plan
    return kept
