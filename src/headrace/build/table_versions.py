"""The record of which versions of its tables a query used, each with its first batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from headrace.storage import json_lines
from headrace.storage.faults import writing_to


@dataclass(frozen=True, kw_only=True)
class Use:
    """From batch `from_batch` on, until another line says otherwise, these versions by the table's name."""

    from_batch: int
    versions: Mapping[str, int]
    at: str


@dataclass(frozen=True)
class TableVersions:
    """An append-only file; one process writes, any may read.

    A line is written before Spark is started over the versions that it names. So a batch that was planned was planned
    after its line, and a line that a crash cut off has no batch.
    """

    path: Path

    def uses(self) -> list[Use]:
        """Every whole line, oldest first."""
        return list(_parsed(json_lines.read(self.path, skip="any")))

    def in_force(self, batch: int) -> dict[str, int]:
        """The versions that `batch` is or was made with; of two lines the later counts, as after a rewind."""
        return in_force(self.uses(), batch)

    def latest(self) -> dict[str, int]:
        """The version of each table that was used last."""
        found: dict[str, int] = {}
        for use in self.uses():
            found.update(use.versions)
        return found

    def enter(self, from_batch: int, versions: Mapping[str, int]) -> bool:
        """Write that batches from `from_batch` on are made with `versions`; False where that is known."""
        if self.in_force(from_batch) == versions:
            return False
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with writing_to(self.path.parent):
            json_lines.append(self.path, [asdict(Use(from_batch=from_batch, versions=dict(versions), at=at))])
        return True


def in_force(uses: Sequence[Use], batch: int) -> dict[str, int]:
    """The versions that the last of `uses` for `batch` names."""
    return next((dict(use.versions) for use in reversed(uses) if use.from_batch <= batch), {})


def _parsed(lines: list[Any]) -> Iterator[Use]:
    for line in lines:
        with suppress(TypeError):
            yield Use(**line)
