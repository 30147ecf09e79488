"""The ledger of a Delta table: which batches of which query are in, kept in the table's own transaction identifiers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.contract import SinkRun
from headrace.errors import CheckpointFault, Finding

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


def checkpoint_id(checkpoint: Path) -> str | None:
    """The id that Spark gave the checkpoint; None before the first start."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as fault:
        what = f"'{checkpoint / 'metadata'}' is not the file that Spark wrote there"
        fix = "restore the checkpoint directory from a copy, or begin the query anew"
        raise CheckpointFault(Finding(code="HR410", what=what, fix=fix)) from fault


def require_match(life: SinkRun, marks: Mapping[str, int], table: str) -> None:
    """Raise CheckpointFault if batches would be skipped that were never written, or are missing already.

    The table may be one batch ahead of Spark's commits and never behind them.
    """
    started, committed = _last(life.checkpoint / "offsets"), _last(life.checkpoint / "commits", life.unseen)
    own = standings(marks).get((life.query, life.generation))
    last = None if own is None else own.batch
    if last is None:
        if committed is not None:
            raise _fault(
                f"query '{life.query}' has committed batch {committed}, but {table} has no batch of it: the rows "
                "written so far are gone, or the table is a new one",
                "put the table back, or begin the query anew",
            )
        return
    found = checkpoint_id(life.checkpoint)
    known = {name.rpartition("/")[2] for name in marks if name.startswith(checkpoint_mark(life, ""))}
    if found is None or (known and found not in known):
        raise _fault(
            f"{table} has batches 0 to {last} of query '{life.query}', but the checkpoint '{life.checkpoint}' "
            f"{'is a new one' if found is None else 'is another one'}: its first batches would be taken for those and "
            "skipped",
            "restore the checkpoint directory, or begin the query anew",
        )
    if started is None or last > started:
        raise _fault(
            f"{table} has batches of query '{life.query}' up to {last}, the checkpoint '{life.checkpoint}' only to "
            f"{'none' if started is None else started}: it is an old copy, and its next batches would be skipped",
            "restore the newest checkpoint directory, or begin the query anew",
        )
    if committed is not None and committed > last:
        raise _fault(
            f"query '{life.query}' has committed batch {committed}, but {table} has batches only up to {last}: it was "
            "set back to an older version",
            "restore the table's newest version, or begin the query anew",
        )


def _fault(what: str, fix: str) -> CheckpointFault:
    return CheckpointFault(Finding(code="HR410", what=what, fix=fix))


def _last(log: Path, unseen: frozenset[int] = frozenset()) -> int | None:
    """The newest entry of one of Spark's logs, but for those of `unseen`."""
    try:
        return max({int(file.name) for file in log.iterdir() if file.name.isdigit()} - unseen, default=None)
    except (FileNotFoundError, NotADirectoryError):
        return None
