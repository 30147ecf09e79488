"""The lines of a ledger that has no table of its own: each a few values that are kept with the commit of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from headrace.checkpoint import Checkpoint, PlannedBatch, chained, planned_batch
from headrace.connectors.exactly_once.checkpoint_match import checkpoint_id
from headrace.connectors.exactly_once.fit import behind, other_batch, require_fit, view_of
from headrace.connectors.exactly_once.judgement import Line, is_same_batch
from headrace.contract import SinkContext

# How many batches can be planned again from the ledger; a power cut seldom takes more from a checkpoint.
KEPT = 10


@dataclass(frozen=True, kw_only=True)
class KeptLine:
    """What is kept of a batch. planned: the text that it can be planned again from."""

    batch: int
    checkpoint: str
    digest: str | None = None
    chain: str | None = None
    planned: str | None = None

    @classmethod
    def of(cls, context: SinkContext, batch: int, before: KeptLine | None) -> KeptLine:
        """The line of a batch that the checkpoint plans, after the line `before`."""
        found = planned_batch(Checkpoint(context.checkpoint), batch)
        digest = None if found is None else found.digest(context.roots)
        return cls(
            batch=batch,
            checkpoint=checkpoint_id(context.checkpoint) or "",
            digest=digest,
            chain=None if digest is None else chained(before.chain if before else None, digest),
            planned=None if found is None else found.dumps(),
        )

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> KeptLine:
        """The line that `as_dict` was taken of; other facts are left out, and what 0.1.0 did not keep is None."""
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        return cls(**{"checkpoint": "", **known})

    def as_dict(self) -> dict[str, Any]:
        """The line as plain data."""
        return asdict(self)

    @property
    def line(self) -> Line:
        """The line as it is judged."""
        return Line(
            batch=self.batch,
            checkpoint=self.checkpoint,
            digest=self.digest,
            chain=self.chain,
            restorable=self.planned is not None,
        )


def require_lines_fit(context: SinkContext, table: str, lines: Sequence[KeptLine]) -> None:
    """Raise CheckpointError where `lines` and the checkpoint do not tell of the same batches.

    CheckpointBehind, where only the newest are lost from the checkpoint and the lines can give them back.
    """
    texts = {line.batch: line.planned for line in lines}
    if ahead := require_fit(context, table, [line.line for line in lines], view_of(context), texts.get):
        raise behind(context, table, ahead)


def require_same(context: SinkContext, table: str, lines: Sequence[KeptLine], batch: int) -> None:
    """Raise CheckpointError where the batch of this number that is in is not the one that the checkpoint plans."""
    own = next((line for line in lines if line.batch == batch), None)
    found = planned_batch(Checkpoint(context.checkpoint), batch)
    if own is None or own.digest is None or found is None:
        return
    before = [line for line in lines if line.batch < batch]
    same = (
        is_same_batch(own.line, before[-1].line, found.digest(context.roots))
        if before
        else own.digest == found.digest(context.roots)
    )
    if not same:
        raise other_batch(context, table, batch, own.planned)


def plans(context: SinkContext, lines: Sequence[KeptLine], first: int) -> dict[int, str]:
    """What each batch from `first` on can be planned again from, where the text still has the line's digest."""
    found = {}
    for line in lines:
        if line.batch >= first and line.planned is not None:
            with suppress(ValueError):
                if PlannedBatch.loads(line.planned).digest(context.roots) == line.digest:
                    found[line.batch] = line.planned
    return found
