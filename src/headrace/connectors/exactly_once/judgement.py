"""Whether a ledger's lines and a checkpoint hold the same batches, judged over plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.identity import chained, planned_batch
from headrace.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a ledger keeps of a batch that is in.

    checkpoint: the id of the checkpoint that it came from. digest, chain: of the batch, and of all up to it; None where
    Spark keeps no plan of the batch. restorable: the line holds all that is needed to plan the batch again.
    """

    batch: int
    checkpoint: str
    digest: str | None = None
    chain: str | None = None
    restorable: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckpointView:
    """What a checkpoint says of its batches.

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
    """The ledger holds the checkpoint's batches, but perhaps the newest."""


@dataclass(frozen=True)
class Ahead:
    """The ledger holds these batches beyond the checkpoint's newest, and can give back what was planned for them."""

    batches: tuple[int, ...]


@dataclass(frozen=True)
class OtherCheckpoint:
    """The lines come from a checkpoint with another id; `found` is None where there is no checkpoint."""

    found: str | None


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


Judgement: TypeAlias = Same | Ahead | OtherCheckpoint | OtherBatch | BrokenChain | Behind | NotRestorable


def judge(lines: Sequence[Line], here: CheckpointView, *, begun: bool = True) -> Judgement:
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
        if line.digest is not None and line.chain != chained(before.chain, line.digest):
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
    known = {line.batch: line for line in lines}
    beyond = tuple(batch for batch in range(planned + 1, last + 1) if batch not in here.empty)
    for batch in beyond:
        if batch not in known or not known[batch].restorable or known[batch].digest is None:
            return NotRestorable(batch, last)
    return Ahead(beyond)


def is_same_batch(line: Line, before: Line | None, digest: str | None) -> bool:
    """Whether a batch with `digest` is the one of `line`; a line without a digest cannot tell.

    `before` precedes the line. Where the ledger keeps it no longer, the digest of the batch alone tells.
    """
    if line.digest is None:
        return True
    return line.digest == digest and (before is None or line.chain == chained(before.chain, digest))


def view(checkpoint: Checkpoint, *, empty: frozenset[int] = frozenset(), roots: Sequence[Path] = ()) -> CheckpointView:
    """What `checkpoint` says of its batches; raises CheckpointError when the newest planned one cannot be read."""
    offsets, commits = checkpoint.offset_numbers(), checkpoint.commit_numbers()
    digests: dict[int, str] = {}
    for batch in offsets:
        try:
            found = planned_batch(checkpoint, batch)
        except CheckpointError:
            # An older batch is not made again; what is lost of it is reported by the look at the whole checkpoint.
            if batch == max(offsets):
                raise
            continue
        if found is not None:
            digests[batch] = found.digest(roots)
    return CheckpointView(
        id=checkpoint.id,
        planned=max(offsets, default=None),
        committed=max((batch for batch in commits if batch not in empty), default=None),
        digests=digests,
        empty=empty,
    )
