"""What was running, from which batch on: one line for each form that a generation of a query has had."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headrace.contract import Sink
from headrace.errors import CheckpointError, Finding, Where
from headrace.model import Query
from headrace.model.layout import QueryLayout
from headrace.run.naming import reset_command
from headrace.storage import json_lines
from headrace.storage.faults import writing_to


@dataclass(frozen=True, kw_only=True)
class QueryRevision:
    """One form of a query: its fingerprint, the first batch that it made, when that began, and with which versions.

    async_progress: whether it wrote its progress beside its batches; None: written by Headrace 0.1.0, which kept no
    record of it.
    shape: changes with the mode and the result's columns, and not with Spark; None: written by Headrace 0.1.0.
    """

    fingerprint: str
    from_batch: int
    at: str
    headrace: str
    spark: str
    async_progress: bool | None = None
    shape: str | None = None

    def is_entered_by(self, other: QueryRevision) -> bool:
        """Whether `other` says all of this form but when it began."""
        return replace(other, from_batch=self.from_batch, at=self.at, headrace=self.headrace) == self


def forms(path: Path) -> list[QueryRevision]:
    """The forms so far, oldest first; a line that a crash cut off is left out.

    Raises CheckpointError for a file that no crash leaves behind.
    """
    try:
        return list(_parsed(json_lines.read(path, skip="any")))
    except (OSError, json_lines.DamagedLine) as error:
        raise CheckpointError(
            Finding(
                code="HR515",
                where=Where(file=str(path)),
                what=f"the record of what the query was cannot be read: {error}",
                fix="restore it from a backup; or move it away, if the query is what it was: a new one is begun",
            )
        ) from error


def written_async(path: Path, sink: Sink) -> bool | None:
    """Whether the last run wrote its progress beside its batches; None where nothing tells."""
    if sink.facts.transactional or sink.facts.idempotent:
        return False
    known = forms(path)
    return known[-1].async_progress if known else None


def enter(
    layout: QueryLayout, query: Query, fingerprint: str, *, columns: str, next_batch: int, spark: str
) -> Iterator[Finding]:
    """Enter the form that is to run if it is not the last one, and say so where batches were made by another.

    columns: the result's names and types, which every version of Spark writes alike.
    """
    known = forms(layout.manifest)
    form = QueryRevision(
        fingerprint=fingerprint,
        from_batch=next_batch,
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        headrace=version("headrace"),
        spark=spark,
        async_progress=query.sink.facts.async_progress,
        shape=hashlib.sha256(f"{query.mode}\n{columns}".encode()).hexdigest()[:16],
    )
    if known and form.is_entered_by(known[-1]):
        return
    with writing_to(layout.home):
        json_lines.append(layout.manifest, [asdict(form)])
    if known and next_batch > 0:
        yield from _compared(query, known[-1], form)


def _compared(query: Query, before: QueryRevision, now: QueryRevision) -> Iterator[Finding]:
    """What the two forms say about a result that holds rows of both."""
    if before.fingerprint == now.fingerprint:
        return
    past = f"up to batch {now.from_batch - 1}"
    tells = f"`headrace verify {query.name}` tells whether the result is that of the query as it is now"
    if before.spark == now.spark or (before.shape is not None and before.shape != now.shape):
        yield Finding(
            code="HR545",
            what=f"query '{query.name}' is not what it was {past}: the result may mix meanings",
            fix=f"if it means something else now, reset the query ({reset_command(query)}); {tells}",
            where=query.where,
        )
    else:
        yield Finding(
            code="HR445",
            what=f"query '{query.name}' ran on Spark {before.spark} {past} and runs on {now.spark}, and the two write "
            "its plan differently: whether the query itself was changed meanwhile was not compared",
            fix=f"nothing, if it was not; {tells}",
            where=query.where,
        )


def _parsed(lines: list[Any]) -> Iterator[QueryRevision]:
    for line in lines:
        with suppress(TypeError):
            yield QueryRevision(**line)
