"""What a query dropped as late, from its batches' offsets and watermarks, and those rows written out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.build.plan_builder import registered_tables
from headrace.build.project_session import borrowed
from headrace.contract import SinkContext, path_options
from headrace.errors import CheckFailed, Finding, HeadraceError, PlatformError
from headrace.model import Project, Query
from headrace.queries.application import known_facts
from headrace.queries.blame import commanded
from headrace.queries.layout import QueryLayout
from headrace.run.state_store import session_settings
from headrace.spark.jvm.session_conf import applied
from headrace.storage.durable import replacing
from headrace.verify.answer import BatchAnswer, answer, prefix_of, since_batch
from headrace.verify.late_and_open import LateInput
from headrace.verify.lateness import Lateness, counts, listed
from headrace.verify.proof import blockers, committed_batch, declared_query, layout_of, uncommitted
from headrace.verify.replay import apply_late_rows
from headrace.verify.verdict import LateRow
from headrace.verify.version_ranges import version_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    directory = None if to is None else late_directory(project, declared, to)
    with (
        borrowed(project, spark) as spark,
        applied(spark, session_settings(project, spark)),
        registered_tables(project, declared, spark),
    ):
        done = apply_late_rows(project, declared, layout, spark) if replay else None
        prefix = since_batch(prefix_of(project, declared, layout, committed), since)
        over = version_ranges(project, declared, layout, committed, spark)
        asked = answer(project, declared, replace(prefix, named=directory is not None), spark, over)
        replayed, unknown = _replayed(project, declared, layout)
        files = () if directory is None else tuple(late_files(asked.late, directory, query, layout.generation))
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


def _first(asked: BatchAnswer, limit: int) -> Iterator[LateRow]:
    room = limit
    for dropped in asked.late:
        found = listed(dropped, room)
        room -= len(found)
        yield from found


def _findings(query: Query, asked: BatchAnswer) -> Iterator[Finding]:
    for finding in asked.incomplete:
        yield finding.weighed("error")
    if not asked.incomplete and not asked.late:
        yield Finding(
            code="HR690",
            what=f"query '{query.name}' can drop no row as late: {_why(query, asked)}",
            where=query.where,
        )


def _why(query: Query, asked: BatchAnswer) -> str:
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
        return None if query.sink.late_rows is None else query.sink.late_rows.last(run), ()
    except HeadraceError as error:
        return None, tuple(finding.weighed("warning") for finding in error.findings)


def late_directory(project: Project, query: Query, to: str | os.PathLike[str]) -> Path:
    """The directory that rows of `query` may be written to; made if it is not there.

    Raises CheckFailed where a source of the query would take them for new rows, PlatformError if it cannot be made.
    """
    found = Path(to).resolve()
    for source in project.sources_of(query):
        if any(found.is_relative_to(place) for place in _places(source.connector)):
            raise CheckFailed(
                Finding(
                    code="HR695",
                    what=f"source '{source.name}' of query '{query.name}' reads '{found}', and would read its late "
                    "rows again",
                    fix="name another directory",
                    where=source.where,
                )
            )
    try:
        found.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(found, error) from error
    return found


def late_files(late: Iterable[LateInput], home: Path, query: str, generation: int) -> Iterator[Path]:
    """Write each late row once, however many operators dropped it; yields every file that holds rows of them.

    What a committed batch dropped never changes, so a file that is there already is whole and stays. Others appear
    under their names only when they are whole.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    frames = [dropped.rows.select("batch", "origin.source", "origin.number", "origin.line") for dropped in late]
    if not frames:
        return
    rows: DataFrame = reduce(DataFrame.union, frames).groupBy("source", "batch", "number").agg(F.first("line"))
    ordered = rows.orderBy("source", "batch", "number").toLocalIterator(prefetchPartitions=True)
    try:
        for (source, batch), lines in groupby(ordered, key=lambda row: (row["source"], row["batch"])):
            file = home / source / f"{query}-g{generation}-{batch:06d}.json"
            if not file.exists():
                file.parent.mkdir(exist_ok=True)
                with replacing(file) as out:
                    out.writelines(f"{row[3]}\n" for row in lines)
            yield file
    except OSError as error:
        raise _unwritable(home, error) from error


def _places(connector: object) -> Iterator[Path]:
    """The directories that a connector names in its options."""
    for option in path_options(connector):
        value = getattr(connector, option)
        if isinstance(value, str) and "://" not in value:
            # Of a pattern, the part that every match begins with.
            parts = Path(value).parts
            plain = next((at for at, part in enumerate(parts) if set(part) & set("*?[{")), len(parts))
            yield Path(*parts[:plain]).resolve()


def _unwritable(home: Path, error: OSError) -> PlatformError:
    what = f"late rows cannot be written to '{home}': {error.strerror or error}"
    return PlatformError(Finding(code="HR694", what=what, fix="name a directory that can be written"))
