"""The ledger of a Delta table: which batches of which query are in, kept in the table's own transaction identifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.contract import SinkRun
from headrace.sinks import checkpoint_match
from headrace.sinks.checkpoint_match import checkpoint_id

PREFIX = "headrace/"
_EPOCH = 1 << 32
_LAST_EPOCH = (1 << 31) - 1


@dataclass(frozen=True)
class Standing:
    """How far one generation of a query has come: its driver's epoch and its last batch (None: none yet).

    Both are one number, the epoch first, since Delta takes no write whose number is not above the last one: neither a
    batch that is in already, nor any batch of an older driver.
    """

    epoch: int
    batch: int | None

    @property
    def number(self) -> int:
        return self.epoch * _EPOCH + (0 if self.batch is None else self.batch + 1)

    @property
    def is_closed(self) -> bool:
        """Whether a later generation has taken its place."""
        return self.epoch == _LAST_EPOCH

    def closed(self) -> Standing:
        """The same with an epoch that no driver comes after."""
        return Standing(_LAST_EPOCH, self.batch)


def standing(number: int) -> Standing:
    """What a number of the ledger means."""
    epoch, after = divmod(number, _EPOCH)
    return Standing(epoch, after - 1 if after else None)


def app(query: str, generation: int) -> str:
    """The transaction identifier of a generation of a query."""
    return f"{PREFIX}{query}/{generation}"


def checkpoint_mark(life: SinkRun, checkpoint: str) -> str:
    """The identifier that remembers the checkpoint of a generation."""
    return f"{app(life.query, life.generation)}/checkpoint/{checkpoint}"


def begin_mark(life: SinkRun) -> str:
    """The identifier that remembers the version at which a generation came to a table."""
    return f"{app(life.query, life.generation)}/begin"


def alone_mark(query: str, generation: int) -> str:
    """The identifier of a generation that changes or replaces rows, and so shares its table with nobody."""
    return f"{app(query, generation)}/alone"


def standings(marks: Mapping[str, int]) -> dict[tuple[str, int], Standing]:
    """Every generation of every query that the table knows."""
    found = {}
    for name, number in marks.items():
        parts = name.split("/")
        if len(parts) == 3 and name.startswith(PREFIX) and parts[2].isdigit():
            found[parts[1], int(parts[2])] = standing(number)
    return found


@dataclass(frozen=True)
class _LastBatch:
    batch: int
    checkpoint: str


def require_match(life: SinkRun, marks: Mapping[str, int], table: str) -> None:
    """Raise CheckpointFault if batches would be skipped that were never written, or are missing already."""
    own = standings(marks).get((life.query, life.generation))
    last = None
    if own is not None and own.batch is not None:
        mine = checkpoint_id(life.checkpoint) or ""
        known = {name.rpartition("/")[2] for name in marks if name.startswith(checkpoint_mark(life, ""))} or {mine}
        last = _LastBatch(own.batch, mine if mine in known else min(known))
    checkpoint_match.require_match(life, last, table)
