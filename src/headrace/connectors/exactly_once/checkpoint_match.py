"""Whether a checkpoint and a ledger tell of the same batches."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from headrace.contract import SinkContext
from headrace.errors import CheckpointError, Finding


class LastBatch(Protocol):
    """What a ledger says of the last batch that is in."""

    @property
    def batch(self) -> int: ...

    @property
    def checkpoint(self) -> str: ...


def checkpoint_id(checkpoint: Path) -> str | None:
    """The id that Spark gave the checkpoint; None before the first start."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as fault:
        what = f"'{checkpoint / 'metadata'}' is not the file that Spark wrote there"
        fix = "restore the checkpoint directory from a copy, or begin the query anew"
        raise CheckpointError(Finding(code="HR410", what=what, fix=fix)) from fault


def watermark_of(checkpoint: Path, batch: int) -> str | None:
    """The watermark that is in force during `batch`, as Spark's offset log has it: ISO 8601 in UTC, or None."""
    try:
        for line in (checkpoint / "offsets" / str(batch)).read_text().splitlines():
            if line.startswith("{") and "batchWatermarkMs" in line:
                milliseconds = int(json.loads(line)["batchWatermarkMs"])
                return _iso(milliseconds) if milliseconds > 0 else None
    except (OSError, ValueError, KeyError):
        return None
    return None


def _iso(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_stateful(checkpoint: Path) -> bool:
    """Whether the query keeps state, so that each of its batches must be computed even if its rows are not needed."""
    return (checkpoint / "state").is_dir()


def require_match(context: SinkContext, last: LastBatch | None, table: str) -> None:
    """Raise CheckpointError if batches would be skipped that were never written, or are missing already.

    The ledger may be one batch ahead of Spark's commits and never behind them, since a batch is in the ledger before
    Spark commits it.
    """
    started, committed = (
        _last(context.checkpoint / "offsets"),
        _last(context.checkpoint / "commits", context.empty_batches),
    )
    if last is None:
        if committed is not None:
            raise _fault(
                f"query '{context.query}' has committed batch {committed}, but the ledger beside table '{table}' has "
                "no batch of it: the rows written so far are gone, or the sink is a new one",
                "put the table and its ledger back, or begin the query anew",
            )
        return
    found = checkpoint_id(context.checkpoint)
    if found != last.checkpoint:
        which = "is a new one" if found is None else "is another one"
        raise _fault(
            f"table '{table}' has batches 0 to {last.batch} of query '{context.query}', but the checkpoint "
            f"'{context.checkpoint}' {which}: its first batches would be taken for those and skipped",
            "restore the checkpoint directory, or begin the query anew",
        )
    if started is None or last.batch > started:
        raise _fault(
            f"table '{table}' has batches of query '{context.query}' up to {last.batch}, the checkpoint "
            f"'{context.checkpoint}' only to {'none' if started is None else started}: it is an old copy, and its next "
            "batches would be skipped",
            "restore the newest checkpoint directory, or begin the query anew",
        )
    if committed is not None and committed > last.batch:
        raise _fault(
            f"query '{context.query}' has committed batch {committed}, but table '{table}' has batches only up to "
            f"{last.batch}: the table is an old copy",
            "restore the newest copy of the table and its ledger, or begin the query anew",
        )


def _fault(what: str, fix: str) -> CheckpointError:
    return CheckpointError(Finding(code="HR410", what=what, fix=fix))


def _last(log: Path, empty_batches: frozenset[int] = frozenset()) -> int | None:
    """The newest entry of one of Spark's logs, but for those of `empty_batches`."""
    try:
        return max({int(file.name) for file in log.iterdir() if file.name.isdigit()} - empty_batches, default=None)
    except (FileNotFoundError, NotADirectoryError):
        return None
