"""The line that a ledger keeps of a batch, and the ledgers that are no table: a few such lines beside the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace.checkpoint import Checkpoint, PlannedBatch, chained
from headrace.connectors.exactly_once.judgement import BatchLine, CheckpointView, require_fit, view_of
from headrace.contract import SinkContext
from headrace.errors import CheckpointBehind, CheckpointError, Finding

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
    def of(cls, context: SinkContext, batch: int, planned: PlannedBatch | None) -> KeptLine:
        """The line of a batch that is `planned` so, not yet chained to the line before it; None: without a stream."""
        return cls(
            batch=batch,
            checkpoint=Checkpoint(context.checkpoint).id or "",
            digest=None if planned is None else planned.digest(context.roots),
            planned=None if planned is None else planned.dumps(),
        )

    def after(self, before: BatchLine | None) -> KeptLine:
        """The line chained to the one before it; without a digest there is nothing to chain."""
        if self.digest is None:
            return self
        return replace(self, chain=chained(before.chain if before else None, self.digest))

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> KeptLine:
        """The line that `as_dict` was taken of; other facts are left out."""
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        return cls(**{"checkpoint": "", **known})

    def as_dict(self) -> dict[str, Any]:
        """The line as plain data."""
        return asdict(self)

    @property
    def line(self) -> BatchLine:
        """The line as it is judged."""
        return BatchLine(
            batch=self.batch,
            checkpoint=self.checkpoint,
            digest=self.digest,
            chain=self.chain,
            restorable=self.planned is not None,
        )


def require_lines_fit(
    context: SinkContext, table: str, lines: Sequence[KeptLine], *, begun: bool = True, kind: str = "table"
) -> None:
    """Raise CheckpointError where `lines` and the checkpoint hold different batches.

    CheckpointBehind, where only the newest are lost from the checkpoint and the lines can give them back. begun: False
    where the ledger has lost the generation. kind: what `table` is the name of.
    """
    _require_lines_fit(context, table, lines, view_of(context), begun, kind)


def misfits(
    context: SinkContext, table: str, read: Callable[[], Sequence[KeptLine] | None], *, kind: str = "table"
) -> Iterator[Finding]:
    """What a start would refuse of the lines that `read` gives; a checkpoint that is behind it mends by itself.

    A driver may run meanwhile, which writes a batch's line before it commits the batch: so the lines are read last.
    None of them: the ledger has lost the generation.
    """
    if not context.application:
        return
    try:
        here, lines = view_of(context), read()
        _require_lines_fit(context, table, lines or (), here, lines is not None, kind)
    except CheckpointBehind:
        return
    except CheckpointError as error:
        yield from error.findings


def _require_lines_fit(
    context: SinkContext, table: str, lines: Sequence[KeptLine], here: CheckpointView, begun: bool, kind: str
) -> None:
    texts = {line.batch: line.planned for line in lines}
    require_fit(context, table, [line.line for line in lines], here, texts.get, begun=begun, kind=kind)


def plans(context: SinkContext, lines: Sequence[KeptLine], first: int) -> dict[int, str]:
    """What each batch from `first` on can be planned again from, where the text still has the line's digest."""
    found = {}
    for line in lines:
        if line.batch >= first and line.planned is not None:
            with suppress(ValueError):
                if PlannedBatch.loads(line.planned).digest(context.roots) == line.digest:
                    found[line.batch] = line.planned
    return found
