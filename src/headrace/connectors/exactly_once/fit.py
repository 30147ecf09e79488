"""The findings for a user whose ledger and checkpoint hold different batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from headrace.checkpoint import Checkpoint, PlannedBatch, planned_batch
from headrace.checkpoint.identity import differences
from headrace.connectors.exactly_once.judgement import (
    Ahead,
    Behind,
    BrokenChain,
    CheckpointView,
    Judgement,
    Line,
    NotRestorable,
    OtherBatch,
    OtherCheckpoint,
    Same,
    judge,
    view,
)
from headrace.contract import SinkContext
from headrace.errors import CheckpointBehind, CheckpointError, Finding, SinkError

# What a ledger keeps to plan a batch again, by the batch's number; None: it keeps nothing.
Kept = Callable[[int], str | None]


def require_own_generation(place: str, context: SinkContext, found: int, *, kind: str = "table") -> None:
    """Raise for the result of another generation of the context's query: an older one's, or what the storage lost."""
    if found > context.generation:
        what = (
            f"{place} holds the result of generation {found} of '{context.query}', and the storage knows none after "
            f"{context.generation}: it is a copy from before a reset or a rebuild"
        )
        fix = "put the storage of after that back; or restore the sink too, from a copy of the storage's time"
        raise CheckpointError(Finding(code="HR410", what=what, fix=fix))
    if found < context.generation:
        what = f"{place} still holds the result of generation {found} of '{context.query}'"
        raise SinkError(Finding(code="HR407", what=what, fix=f"write to another {kind}, or drop this one"))


def require_fit(
    context: SinkContext,
    table: str,
    lines: Sequence[Line],
    here: CheckpointView,
    kept: Kept,
    *,
    begun: bool = True,
    kind: str = "table",
) -> None:
    """Raise CheckpointError where batches would be lost, or skipped unread.

    CheckpointBehind, where only the newest are lost from the checkpoint and the ledger can give them back; a start that
    makes them again passes. `here` is the view of the checkpoint, taken after whatever lock keeps other drivers out.
    begun: False where the ledger has lost the generation. kind: what `table` is the name of.
    """
    table = f"{kind} '{table}'"
    judgement = judge(lines, here, begun=begun)
    match judgement:
        case Same():
            return
        case Ahead(batches):
            if not context.restoring:
                raise _behind(context, table, batches)
        case _:
            raise CheckpointError(_finding(judgement, context, table, lines, here, kept))


def view_of(context: SinkContext) -> CheckpointView:
    """What the life's checkpoint says of its batches now."""
    return view(Checkpoint(context.checkpoint), empty=context.empty_batches, roots=context.roots)


def _behind(context: SinkContext, table: str, batches: Sequence[int]) -> CheckpointBehind:
    """The fault of a checkpoint that has lost `batches`, or has never had them."""
    what = (
        f"{table} has batches of query '{context.query}' up to {batches[-1]}, the checkpoint "
        f"'{context.checkpoint}' only to {batches[0] - 1}: it is an old copy"
    )
    fix = "restore the newest checkpoint directory, or reset the query (headrace reset QUERY)"
    return CheckpointBehind(Finding(code="HR410", what=what, fix=fix))


def other_batch(
    context: SinkContext, table: str, batch: int, kept: str | None, *, kind: str = "table"
) -> CheckpointError:
    """The fault of a batch that is in with other rows than this checkpoint plans for it."""
    return CheckpointError(_other_batch(context, f"{kind} '{table}'", batch, kept, committed=False))


def _finding(
    judgement: Judgement, context: SinkContext, table: str, lines: Sequence[Line], here: CheckpointView, kept: Kept
) -> Finding:
    last = lines[-1].batch if lines else None
    anew = "or reset the query (headrace reset QUERY)"
    kind = table.partition(" ")[0]
    match judgement:
        case OtherCheckpoint(found):
            which = "is a new one" if found is None else "is another one"
            what = (
                f"{table} has batches 0 to {last} of query '{context.query}', but the checkpoint "
                f"'{context.checkpoint}' {which}: its first batches would be taken for those and skipped"
            )
            return Finding(code="HR410", what=what, fix=f"restore the checkpoint directory, {anew}")
        case OtherBatch(batch):
            committed = here.committed is not None and here.committed >= batch
            return _other_batch(context, table, batch, kept(batch), committed=committed)
        case BrokenChain(batch):
            what = (
                f"the ledger's line of batch {batch} of query '{context.query}' beside {table} does not follow "
                "the line before it: lines were removed or changed by another hand"
            )
            return Finding(code="HR457", what=what, fix=f"restore the {kind} and its ledger from a copy, {anew}")
        case Behind(batch, None):
            done = "planned" if here.committed is None else "committed"
            what = (
                f"query '{context.query}' has {done} batch {_newest(here)}, but the ledger beside {table} has "
                "no batch of it: the rows written so far are gone, or the sink is a new one"
            )
            return Finding(code="HR410", what=what, fix=f"put the {kind} and its ledger back, {anew}")
        case Behind(batch, last):
            what = (
                f"query '{context.query}' has continued to batch {_newest(here)}, but {table} has batches only "
                f"up to {last}: the {kind} is an old copy, and batch {batch} would be lost"
            )
            return Finding(code="HR410", what=what, fix=f"restore the newest copy of the {kind} and its ledger, {anew}")
        case NotRestorable(batch, last):
            planned = "none" if here.planned is None else here.planned
            what = (
                f"{table} has batches of query '{context.query}' up to {last}, the checkpoint "
                f"'{context.checkpoint}' only to {planned}: it is an old copy, and the ledger no longer keeps what was "
                f"planned for batch {batch}"
            )
            return Finding(code="HR410", what=what, fix=f"restore the newest checkpoint directory, {anew}")
        case _:
            raise AssertionError(judgement)


def _newest(here: CheckpointView) -> int | None:
    return here.planned if here.committed is None else here.committed


def _other_batch(context: SinkContext, table: str, batch: int, kept: str | None, *, committed: bool) -> Finding:
    what = (
        f"batch {batch} of query '{context.query}' is in {table} with other rows than the checkpoint "
        f"'{context.checkpoint}' plans for it{_shown(context, batch, kept)}: two copies of one storage "
        "directory were run"
    )
    kind = table.partition(" ")[0]
    fix = f"run the query from the copy whose batches are in the {kind}"
    if not committed:
        fix += (
            f"; or, to keep this copy, remove '{context.checkpoint / 'offsets' / str(batch)}' and its .crc file, "
            f"and start again: the batch is then planned as it is in the {kind}"
        )
    return Finding(code="HR456", what=what, fix=fix)


def _shown(context: SinkContext, batch: int, kept: str | None) -> str:
    """Where the two plans differ, as far as both are known."""
    try:
        ours = planned_batch(Checkpoint(context.checkpoint), batch)
        theirs = None if kept is None else PlannedBatch.loads(kept)
    except (CheckpointError, ValueError):
        return ""
    if ours is None or theirs is None:
        return ""
    found = list(islice(differences(theirs, ours, context.roots), 3))
    return f" ({'; '.join(found)})" if found else " (they agree, but the batches before them do not)"
