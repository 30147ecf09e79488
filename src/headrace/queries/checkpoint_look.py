"""One look at all that a query keeps in its storage, without a JVM: what is wrong, what is lost, and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.handover import gap_before_newest
from headrace.checkpoint.repartitions import Repartitions
from headrace.errors import CheckpointError, Finding, Where
from headrace.model import Project, Query
from headrace.queries.changes import cut_off, require_adopted, require_rewound, require_whole
from headrace.queries.checkpoint_facts import CheckpointFacts, checkpoint_facts
from headrace.queries.layout import QueryLayout, latest_generation
from headrace.queries.manifest import forms, written_async
from headrace.queries.naming import with_command
from headrace.queries.rename_record import unfinished
from headrace.queries.source_names import unfinished_sources


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """What was found in a query's storage; the newest planned and the newest committed batch, None before the first.

    facts: what is there; None before the first batch, or where it cannot be read.
    """

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

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return {
            "query": self.query,
            "checkpoint": self.checkpoint,
            "planned": self.planned,
            "committed": self.committed,
            "usable": self.usable,
            "findings": [finding.as_dict() for finding in self.findings],
            "facts": None if self.facts is None else self.facts.as_dict(),
        }


def inspect_checkpoint(project: Project, query: Query) -> Inspected:
    """Look at the checkpoint of `query` and at what Headrace keeps beside it; nothing is changed."""
    layout = QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))
    checkpoint = Checkpoint(layout.checkpoint)
    findings = [*problems(query, layout), *_archive_problems(layout)]
    planned = committed = None
    if not any(finding.code == "HR501" for finding in findings):
        planned, committed = checkpoint.last_batch, checkpoint.last_committed
    return Inspected(
        query=query.name,
        checkpoint=str(layout.checkpoint),
        planned=planned,
        committed=committed,
        findings=tuple(findings),
        facts=checkpoint_facts(layout),
    )


def require_usable(query: Query, layout: QueryLayout) -> None:
    """Raise CheckpointError with everything that keeps the next start from beginning with what is there."""
    errors = [finding for finding in problems(query, layout) if finding.severity == "error"]
    if errors:
        raise CheckpointError(errors)


def require_state(query: Query, checkpoint: Checkpoint) -> None:
    """Raise CheckpointError if `query`, which keeps state, has committed batches and no state."""
    committed = checkpoint.last_committed
    if committed is not None and not checkpoint.state_operators():
        raise CheckpointError(
            Finding(
                code="HR527",
                where=Where(file=str(checkpoint.root / "state")),
                what=f"query '{query.name}' keeps state, and its checkpoint has none after batch {committed}: the "
                "directory was lost, or the query kept no state before",
                fix="restore the directory from a backup, or undo the change, or reset the query (headrace reset "
                "QUERY)",
            )
        )


def problems(query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """What is wrong with the checkpoint, and with the records beside it that a start needs; never raises."""
    checkpoint, partitions = Checkpoint(layout.checkpoint), None
    between = list(_cut_off(query, layout))
    yield from between
    try:
        yield from unfinished(layout)
        yield from unfinished_sources(layout)
    except CheckpointError as error:
        yield from error.findings
    if between:
        # A part of the directory may lie under another name, which whoever ends that command brings together.
        return
    try:
        partitions = Repartitions(layout.repartitions).partitions(checkpoint)
    except CheckpointError as error:
        # What is wrong inside the checkpoint is reported below, with all else.
        yield from (finding for finding in error.findings if finding.code == "HR556")
    found = list(checkpoint.problems(partitions=partitions))
    beside = gap = None
    try:
        forms(layout.manifest)
        beside = written_async(layout.manifest, query.sink)
    except CheckpointError as error:
        yield from error.findings
    try:
        if not any(finding.code == "HR501" for finding in found):
            gap = gap_before_newest(checkpoint, Archive(layout.archive), written_async=beside)
    except CheckpointError:
        pass  # What cannot be read was found already.
    for finding in found:
        if isinstance(gap, Finding) and finding.where == gap.where:
            continue
        yield with_command(query, finding)
    if isinstance(gap, Finding):
        yield with_command(query, gap)


def _cut_off(query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """Which command was moving or copying the directory."""
    for require in (require_whole, require_rewound, require_adopted):
        try:
            require(layout)
        except CheckpointError as error:
            yield from (with_command(query, finding) for finding in error.findings)
    try:
        yield from cut_off(layout.storage, layout.query)
    except CheckpointError as error:
        yield from error.findings


def _archive_problems(layout: QueryLayout) -> Iterator[Finding]:
    """A start continues without its archive; only what was read before can then no longer be verified."""
    try:
        Archive(layout.archive).entries()
    except CheckpointError as error:
        yield from (finding.weighed("warning") for finding in error.findings)
