"""Spark's checkpoint directory as a Python value, read without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.entries import CommitEntry, OffsetEntry, StateOperator, state_operator
from headrace.checkpoint.inspection import inspect
from headrace.checkpoint.logs import COMPACT, body, broken, numbered, text_of
from headrace.errors import CheckpointError, Finding

_LOG_VERSIONS = (1,)
_LISTINGS = 5


@dataclass(frozen=True)
class Checkpoint:
    """A query's checkpoint; nothing is cached, so that a running query may be looked at again and again.

    Whatever cannot be read raises CheckpointError, save what Spark purges between a listing and a reading.
    """

    root: Path

    @property
    def id(self) -> str | None:
        """The query's id for life, or None before its first start."""
        file = self.root / "metadata"
        text = text_of(file)
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise broken(file, "it does not hold the query's id") from error

    @property
    def last_batch(self) -> int | None:
        """The newest batch that was planned, done or not."""
        return max(numbered(self.root / "offsets"), default=None)

    @property
    def last_committed(self) -> int | None:
        """The newest batch that Spark has marked as done."""
        return max(numbered(self.root / "commits"), default=None)

    def offset_numbers(self) -> tuple[int, ...]:
        """The batches whose plans Spark still keeps, in order."""
        return tuple(numbered(self.root / "offsets"))

    def commit_numbers(self) -> tuple[int, ...]:
        """The batches whose marks that they are done Spark still keeps, in order."""
        return tuple(numbered(self.root / "commits"))

    def offset(self, batch: int) -> OffsetEntry | None:
        """What was planned for one batch, or None."""
        file = self.root / "offsets" / str(batch)
        text = text_of(file)
        return None if text is None else OffsetEntry.parse(batch, text, file)

    def commit(self, batch: int) -> CommitEntry | None:
        """The mark that one batch is done, or None."""
        file = self.root / "commits" / str(batch)
        text = text_of(file)
        return None if text is None else CommitEntry.parse(batch, text, file)

    def offsets(self) -> dict[int, OffsetEntry]:
        """What was planned for each batch that Spark still keeps, in order."""
        found = ((batch, self.offset(batch)) for batch in numbered(self.root / "offsets"))
        return {batch: entry for batch, entry in found if entry is not None}

    def commits(self) -> dict[int, CommitEntry]:
        """The marks of the batches that are done, as far as Spark still keeps them, in order."""
        found = ((batch, self.commit(batch)) for batch in numbered(self.root / "commits"))
        return {batch: entry for batch, entry in found if entry is not None}

    def source_names(self) -> tuple[str, ...]:
        """The sources that keep a log of their own here."""
        folder = self.root / "sources"
        return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()

    def source_log(self, name: str) -> dict[int, tuple[str, ...]]:
        """The log of a source, by its own numbers, with compacted files unfolded by the batchId of each line.

        File source: one JSON line for each file. Rate source: entry 0 holds its creation time in milliseconds.
        """
        folder = self.root / "sources" / name
        for _ in range(_LISTINGS):
            log = _unfolded(numbered(folder))
            if log is not None:
                return log
        raise CheckpointError(
            Finding(
                code="HR509",
                what=f"the log of source '{name}' lost files while it was read, {_LISTINGS} times in a row",
                fix="try again; if the query is not running, look whether the directory is whole",
            )
        )

    @property
    def is_stateful(self) -> bool:
        """Whether the query keeps state, so that Spark needs every partition of each batch computed."""
        return (self.root / "state").is_dir()

    def state_operators(self) -> tuple[StateOperator, ...]:
        """The query's stateful operators; none before the first batch, or for a query without state."""
        folder = self.root / "state"
        numbers = sorted(numbered(folder))
        found = (state_operator(folder / str(number)) for number in numbers)
        return tuple(operator for operator in found if operator is not None)

    def state_partitions(self) -> int | None:
        """The number of partitions that the state was written with, or None without state."""
        return max((operator.partitions for operator in self.state_operators()), default=None)

    def problems(self, *, partitions: int | None = None) -> Iterator[Finding]:
        """Everything that is wrong or worth knowing; never raises.

        partitions: how many the state has, where that was changed after Spark described it.
        """
        return inspect(self.root, partitions=partitions)


def _unfolded(files: dict[int, Path]) -> dict[int, tuple[str, ...]] | None:
    """The entries from the newest compacted file on; None when a file went away meanwhile."""
    first = max((number for number, file in files.items() if file.name.endswith(COMPACT)), default=-1)
    log: dict[int, list[str]] = {}
    for number, file in files.items():
        if number < first:
            continue
        text = text_of(file)
        if text is None:
            return None
        lines = [line for line in body(file, text, versions=_LOG_VERSIONS)[1] if line]
        if number == first:
            for line in lines:
                log.setdefault(_batch_of(file, line, number), []).append(line)
        else:
            log[number] = lines
    return {number: tuple(lines) for number, lines in sorted(log.items())}


def _batch_of(file: Path, line: str, otherwise: int) -> int:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise broken(file, f"a line is no JSON: {line[:40]!r}") from error
    batch = value.get("batchId", otherwise) if isinstance(value, dict) else otherwise
    return batch if isinstance(batch, int) else otherwise
