"""The checkpoint's files of a batch, on the disk before its sink commits it, where the target asks for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.durability import Durability
from headrace.errors import Finding, PlatformError
from headrace.model import Target
from headrace.storage.location import is_remote


def secured(target: Target, checkpoint: Path) -> Callable[[int], None] | None:
    """What a SinkContext calls before each commit; None where the machine is left to write when it likes."""
    # What HDFS has taken lies on several machines; a file cannot be brought to their disks from here.
    if target.checkpoint_durability != "power_loss" or is_remote(checkpoint):
        return None
    durability = Durability(Checkpoint(checkpoint))

    def sync(batch: int) -> None:
        try:
            durability.sync(batch)
        except OSError as error:
            raise PlatformError(
                Finding(
                    code="HR421",
                    what=f"the checkpoint's files of batch {batch} cannot be brought to the disk: "
                    f"{error.strerror or error}",
                    fix=f"look at the disk of '{checkpoint}'; then start again: the batch is made again",
                )
            ) from error

    return sync
