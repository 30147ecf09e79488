"""Where Spark keeps what in the checkpoint directory of a query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

OFFSETS, COMMITS, SOURCES, STATE = "offsets", "commits", "sources", "state"
_DESCRIPTIONS = ("_metadata", "v2")


def id_file(root: Path) -> Path:
    """Holds the query's id for life."""
    return root / "metadata"


def offsets_folder(root: Path) -> Path:
    """What each batch reads, in a file with the batch's number for its name."""
    return root / OFFSETS


def offsets_file(root: Path, batch: int) -> Path:
    return offsets_folder(root) / str(batch)


def commits_folder(root: Path) -> Path:
    """The marks of the batches that are done, in files named as those of the offsets."""
    return root / COMMITS


def commit_file(root: Path, batch: int) -> Path:
    return commits_folder(root) / str(batch)


def sources_folder(root: Path) -> Path:
    """The logs of those sources that keep one, by the source's name."""
    return root / SOURCES


def source_folder(root: Path, name: str) -> Path:
    return sources_folder(root) / name


def state_folder(root: Path) -> Path:
    """The state of each stateful operator, by the operator's number."""
    return root / STATE


def operator_folder(root: Path, number: int) -> Path:
    return state_folder(root) / str(number)


def operator_descriptions(root: Path) -> Iterator[Path]:
    """The files in which Spark describes the stateful operators, with absolute paths."""
    for file in state_folder(root).glob("/".join(("*", *_DESCRIPTIONS, "*"))):
        if not file.name.startswith("."):
            yield file


def is_description(inside: Path) -> bool:
    """Whether a path within a checkpoint lies where those files do."""
    return inside.parts[:1] == (STATE,) and inside.parts[2:4] == _DESCRIPTIONS
