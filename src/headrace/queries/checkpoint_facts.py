"""What a query keeps in its storage, as facts: batches, settings that stay, sizes, state; without a JVM."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from headrace.checkpoint import Archive, Checkpoint, StateOperator
from headrace.errors import CheckpointError
from headrace.queries.layout import QueryLayout, generations_set_aside
from headrace.storage.remote import RemotePath

# The first and the last of batches that follow each other.
Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class CheckpointFacts:
    """What is there of a query's batches, and what they are made with.

    kept, archived: batches whose offsets Spark's checkpoint, and the archive, have. purged: those that Spark has taken
    out of its checkpoint. unknown: those that neither has any more. settings: what the checkpoint pins, as the newest
    batch was planned with. sources: by their names there. sizes_bytes: by place. set_aside: generations that resets
    keep.
    """

    id: str | None
    generation: int
    kept: tuple[Range, ...]
    archived: tuple[Range, ...]
    purged: tuple[Range, ...]
    unknown: tuple[Range, ...]
    settings: Mapping[str, str]
    sources: tuple[str, ...]
    operators: tuple[StateOperator, ...]
    sizes_bytes: Mapping[str, int]
    set_aside: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """The facts as plain data, for `--json`."""
        plain = asdict(self)
        plain["operators"] = [{**asdict(each), "stores": list(each.stores)} for each in self.operators]
        return plain


def checkpoint_facts(layout: QueryLayout) -> CheckpointFacts | None:
    """The facts of one generation; None before its first batch, and where the checkpoint is too damaged to tell."""
    checkpoint = Checkpoint(layout.checkpoint)
    try:
        kept, newest = checkpoint.offset_numbers(), checkpoint.last_batch
        entry = None if newest is None else checkpoint.offset(newest)
        if newest is None or entry is None:
            return None
        archived = _archived(layout)
        return CheckpointFacts(
            id=checkpoint.id,
            generation=layout.generation,
            kept=ranges(kept),
            archived=ranges(archived),
            purged=ranges(set(range(newest + 1)) - set(kept)),
            unknown=ranges(set(range(newest + 1)) - set(kept) - set(archived)),
            settings=dict(sorted(entry.conf.items())),
            sources=tuple(entry.offsets),
            operators=checkpoint.state_operators(),
            sizes_bytes=_sizes(layout),
            set_aside=tuple(generations_set_aside(layout.storage, layout.query)),
        )
    except (CheckpointError, OSError):
        return None


def ranges(numbers: Iterable[int]) -> tuple[Range, ...]:
    """The numbers as ranges, in order."""
    found: list[Range] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def _archived(layout: QueryLayout) -> tuple[int, ...]:
    try:
        return tuple(Archive(layout.archive).entries())
    except CheckpointError:
        # Told as a finding.
        return ()


def _sizes(layout: QueryLayout) -> dict[str, int]:
    root = layout.checkpoint
    places = {
        "offsets": root / "offsets",
        "commits": root / "commits",
        "sources": root / "sources",
        "state": root / "state",
        "archive": layout.archive,
        "tables": layout.tables,
        "quarantine": layout.quarantine,
    }
    sizes = {name: size_of(place) for name, place in places.items()}
    sizes["archive"] += size_of(Archive(layout.archive).folder)
    return {name: size for name, size in sizes.items() if size}


def size_of(place: Path) -> int:
    """The bytes of a file, or of all files below a directory; what goes away meanwhile has none."""
    if isinstance(place, RemotePath):
        return place.size_bytes()
    files = [place] if place.is_file() else [Path(home) / name for home, _, names in os.walk(place) for name in names]
    total = 0
    for file in files:
        try:
            total += os.lstat(file).st_size
        except OSError:
            continue
    return total
