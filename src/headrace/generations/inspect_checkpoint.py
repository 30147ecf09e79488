"""All that a query keeps in its storage, without a JVM: what is there, what is wrong or lost, and what helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

from headrace.checkpoint import Archive, Checkpoint, StateOperator
from headrace.checkpoint.directory import Part
from headrace.errors import CheckpointError, Finding, PlainData
from headrace.generations import driver_lock
from headrace.generations.facts import StartFacts, list_faults
from headrace.generations.log import QueryLayout
from headrace.generations.register import layout_of
from headrace.model import Project, Query
from headrace.storage.durable import size_of
from headrace.units import instant


@dataclass(frozen=True, kw_only=True)
class Inspected(PlainData):
    """What the storage of a query holds.

    Attributes:
        checkpoint: The directory of the checkpoint.
        planned: The newest planned batch; None before the first.
        committed: The newest committed batch; None before the first.
        findings: What is wrong with the checkpoint.
        facts: What the checkpoint holds; None before the first batch, or if it cannot be read.
    """

    derived: ClassVar[tuple[str, ...]] = ("usable",)
    query: str
    checkpoint: str
    planned: int | None
    committed: int | None
    findings: Sequence[Finding]
    facts: CheckpointFacts | None = None

    @property
    def usable(self) -> bool:
        """Whether the next start can begin with it."""
        return not any(finding.severity == "error" for finding in self.findings)


def inspect_checkpoint(project: Project, query: Query) -> Inspected:
    """Look at the checkpoint of `query` and at what Headrace keeps with it; nothing is changed."""
    facts = StartFacts.read(project, query)
    layout = facts.layout
    findings = [*list_faults(facts), *_archive_problems(layout)]
    planned = committed = None
    with suppress(CheckpointError):
        planned, committed = facts.last_batch, facts.last_committed
    return Inspected(
        query=query.name,
        checkpoint=str(layout.checkpoint),
        planned=planned,
        committed=committed,
        findings=tuple(findings),
        facts=_checkpoint_facts(facts),
    )


def _archive_problems(layout: QueryLayout) -> Iterator[Finding]:
    """A start continues without its archive; only what was read before can then no longer be verified."""
    try:
        Archive(layout.archive).entries()
    except CheckpointError as error:
        yield from (finding.with_severity("warning") for finding in error.findings)


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
        plain["operators"] = [{**asdict(operator), "stores": list(operator.stores)} for operator in self.operators]
        return plain


def _checkpoint_facts(facts: StartFacts) -> CheckpointFacts | None:
    """The facts of one generation; None before its first batch, and where the checkpoint is too damaged."""
    checkpoint, layout = facts.checkpoint, facts.layout
    try:
        kept, newest, entry = checkpoint.offset_numbers(), facts.last_batch, facts.newest
        if newest is None or entry is None:
            return None
        archived = _archived_batches(layout)
        return CheckpointFacts(
            id=checkpoint.id,
            generation=layout.generation,
            kept=ranges(kept),
            archived=ranges(archived),
            purged=ranges(set(range(newest + 1)) - set(kept)),
            unknown=ranges(set(range(newest + 1)) - set(kept) - set(archived)),
            settings=dict(sorted(entry.conf.items())),
            sources=tuple(map(facts.names.now, entry.offsets)),
            operators=facts.operators,
            sizes_bytes=_sizes(layout),
            set_aside=tuple(dict.fromkeys(directory.generation for directory in layout.record.kept))
            if layout.record
            else (),
        )
    except (CheckpointError, OSError):
        return None


def ranges(numbers: Iterable[int]) -> tuple[Range, ...]:
    ranges: list[Range] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def _archived_batches(layout: QueryLayout) -> tuple[int, ...]:
    try:
        return tuple(Archive(layout.archive).entries())
    except CheckpointError:
        # Reported as a finding.
        return ()


def _sizes(layout: QueryLayout) -> dict[str, int]:
    root = layout.checkpoint
    places = {
        "offsets": root / Part.OFFSETS,
        "commits": root / Part.COMMITS,
        "sources": root / Part.SOURCES,
        "state": root / Part.STATE,
        "archive": layout.archive,
        "tables": layout.tables,
        "quarantine": layout.quarantine,
    }
    sizes = {name: size_of(place) for name, place in places.items()}
    sizes["archive"] += size_of(layout.archive_segments)
    return {name: size for name, size in sizes.items() if size}


@dataclass(frozen=True, kw_only=True)
class StoredStatus(PlainData):
    """What the checkpoint and the lock show of a query.

    Attributes:
        generation: The live generation.
        driver: The process that runs the query; None if none does.
        planned: The newest planned batch.
        committed: The newest committed batch.
        committed_at: When the newest batch was committed.
        watermark: The watermark of the next batch.
        fault: Why nothing more can be read.
    """

    query: str
    generation: int
    driver: str | None = None
    planned: int | None = None
    committed: int | None = None
    committed_at: datetime | None = None
    watermark: datetime | None = None
    fault: Finding | None = None


def stored_status(project: Project, query: Query) -> StoredStatus:
    """The status of one query; raises PlatformError where the storage does not answer."""
    layout = layout_of(project, query)
    checkpoint, driver = Checkpoint(layout.checkpoint), driver_lock.find_driver(project, query)
    try:
        committed = checkpoint.last_committed
        commit = None if committed is None else checkpoint.commit(committed)
        return StoredStatus(
            query=query.name,
            generation=layout.generation,
            driver=driver,
            planned=checkpoint.last_batch,
            committed=committed,
            committed_at=None if committed is None else _time_of(checkpoint, committed),
            watermark=None
            if commit is None or commit.next_watermark_ms <= 0
            else instant(commit.next_watermark_ms / 1000),
        )
    except CheckpointError as error:
        return StoredStatus(query=query.name, generation=layout.generation, driver=driver, fault=error.findings[0])


def _time_of(checkpoint: Checkpoint, batch: int) -> datetime | None:
    try:
        return instant((checkpoint.root / Part.COMMITS / str(batch)).stat().st_mtime)
    except FileNotFoundError:
        return None
