"""What a query dropped as late, answered from its batches' offsets and watermarks and not from Spark's counter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.build.catalog import registered_tables
from headrace.build.project_session import borrowed
from headrace.contract import SinkContext
from headrace.errors import Finding, HeadraceError
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.run.application import known_facts
from headrace.run.naming import commanded
from headrace.verify import export
from headrace.verify.answer import Answer, answer
from headrace.verify.late_rows import counts, listed
from headrace.verify.lateness import Lateness
from headrace.verify.prefix import prefix_of, since_batch
from headrace.verify.proof import blockers, committed_batch, declared_query, layout_of, uncommitted
from headrace.verify.replay import apply_late_rows
from headrace.verify.verdict import LateRow
from headrace.verify.version_ranges import version_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def late(
    project: Project,
    query: str,
    *,
    since: int = 0,
    limit: int = 20,
    to: str | os.PathLike[str] | None = None,
    replay: bool = False,
    spark: SparkSession | None = None,
) -> Lateness:
    """The rows that `query` dropped as late in the committed batches from `since` on, with the first `limit` of them.

    `to`: a directory into which they are written, once each, as their sources gave them. `replay`: all that were not
    brought back yet are brought back into the result, for which the query must not be running. Without both nothing is
    written, and the query may be running. Raises CheckpointError or SourceError when the prefix can no longer be read,
    and CheckFailed or SinkError when rows cannot be brought back or written.
    """
    declared = declared_query(project, query)
    with commanded(declared):
        return _late(project, declared, since=since, limit=limit, to=to, replay=replay, spark=spark)


def _late(
    project: Project,
    declared: Query,
    *,
    since: int,
    limit: int,
    to: str | os.PathLike[str] | None,
    replay: bool,
    spark: SparkSession | None,
) -> Lateness:
    query, layout = declared.name, layout_of(project, declared)
    committed = committed_batch(layout)
    unreadable = tuple(blockers(project, declared, layout))
    if not unreadable and committed is None:
        unreadable = (uncommitted(declared),)
    if unreadable or committed is None or since > committed:
        return Lateness(query=query, batch=committed, since=since, findings=unreadable)
    directory = None if to is None else export.directory(project, declared, to)
    with borrowed(project, spark) as spark, registered_tables(project, declared, spark):
        done = apply_late_rows(project, declared, layout, spark) if replay else None
        prefix = since_batch(prefix_of(project, declared, layout, committed), since)
        over = version_ranges(project, declared, layout, committed, spark)
        asked = answer(project, declared, replace(prefix, named=directory is not None), spark, over)
        replayed, unknown = _replayed(project, declared, layout)
        files = () if directory is None else tuple(export.written(asked.late, directory, query, layout.generation))
        return Lateness(
            query=query,
            batch=committed,
            since=since,
            batches=tuple(each for dropped in asked.late for each in counts(dropped)),
            rows=tuple(_first(asked, limit)),
            replayed=replayed,
            replay=done,
            exported=files,
            findings=(*_findings(declared, asked), *unknown),
        )


def _first(asked: Answer, limit: int) -> Iterator[LateRow]:
    room = limit
    for dropped in asked.late:
        found = listed(dropped, room)
        room -= len(found)
        yield from found


def _findings(query: Query, asked: Answer) -> Iterator[Finding]:
    for finding in asked.incomplete:
        yield finding.weighed("error")
    if not asked.incomplete and not asked.late:
        yield Finding(
            code="HR690",
            what=f"query '{query.name}' can drop no row as late: {_why(query, asked)}",
            where=query.where,
        )


def _why(query: Query, asked: Answer) -> str:
    if not asked.operators:
        return "it keeps no state"
    if query.mode == "complete":
        return "complete mode keeps every group"
    return "no state of it is bounded by a watermark"


def _replayed(project: Project, query: Query, layout: QueryLayout) -> tuple[int | None, tuple[Finding, ...]]:
    """The last batch whose late rows were brought back; a sink that does not answer hides no late row."""
    run = SinkContext(
        query=query.name,
        generation=layout.generation,
        mode=query.mode,
        checkpoint=layout.checkpoint,
        **known_facts(project),
    )
    try:
        return query.sink.last_correction(run), ()
    except HeadraceError as error:
        return None, tuple(finding.weighed("warning") for finding in error.findings)
