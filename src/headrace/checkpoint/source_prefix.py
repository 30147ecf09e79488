"""What a source has given to the committed batches of a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class SourceBatch:
    """One batch's share of a source: the JSON offsets between which its rows lie.

    `start` is None where the source had given nothing yet; `start == end` where the batch has no data of it.
    """

    batch: int
    start: str | None
    end: str | None


@dataclass(frozen=True, kw_only=True)
class SourcePrefix:
    """A committed prefix of one source, as Spark's checkpoint tells it.

    batches: in order of their ids, without gaps as far as the checkpoint and its archive reach.
    log: the source's own metadata log (`<checkpoint>/sources/<name>/<id>`), id to lines, version line left out;
        compacted files are already unfolded (file source: one JSON line for each file, with path, timestamp, batchId).
    """

    batches: tuple[SourceBatch, ...]
    log: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
