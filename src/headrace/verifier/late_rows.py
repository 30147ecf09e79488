"""The rows that a query dropped as late: listed, written out, or brought back into the result.

A row is late for a group of event times when the watermark has passed the group's end. Watermarks never go back, so
every later row of that group is late too, and Spark has removed its state: the query writes no row of it any more. So
rows can be brought back into one aggregation by windows or by the event time itself. They cannot where sessions may
merge, where groups of a second operator may still be open, or where a deduplication or a join has no groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.contract import Correction, Snapshot, path_options
from headrace.errors import CheckFailed, Finding, HeadraceError, PlatformError
from headrace.frames.plan_builder import registered_tables
from headrace.frames.project_session import borrow
from headrace.generations.blame import name_command
from headrace.generations.facts import sink_context
from headrace.generations.late_rows import LATE_NAMES, late_file
from headrace.generations.log import QueryLayout
from headrace.generations.register import layout_of
from headrace.model import Project, Query
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.jvm.settings import WHOLE_JSON_UTC
from headrace.starter.request import Reached
from headrace.starter.sink_work import require_stopped
from headrace.starter.state_store import session_settings
from headrace.storage.durable import replacing
from headrace.storage.private import writing_to
from headrace.verifier.answer import BatchAnswer, BatchQuery
from headrace.verifier.comparison import compare, find_corrections, schema_differences
from headrace.verifier.late_and_open import LATE_METRIC, LateInput, count_by_batch, list_late_rows
from headrace.verifier.proof import committed_batch, find_blockers, has_many_rows, report_uncommitted
from headrace.verifier.verdict import Lateness, Replayed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def find_late_rows(
    project: Project,
    query: str,
    *,
    since: int = 0,
    limit: int = 20,
    to: str | os.PathLike[str] | None = None,
    replay: bool = False,
    spark: SparkSession | None = None,
) -> Lateness:
    """Count the rows that `query` dropped as late in the committed batches from `since` on; list the first `limit`.

    `to`: a directory into which each is written once, as its source gave it. `replay`: bring all that are not yet in
    the result back into it, for which the query must not be running. Without both nothing is written, and the query may
    be running. Raises CheckpointError or SourceError when the prefix can no longer be read, and CheckFailed or
    SinkError when rows cannot be brought back or written.
    """
    declared = project.query(query)
    with name_command(declared):
        layout = layout_of(project, declared)
        committed = committed_batch(layout)
        unreadable = tuple(find_blockers(project, declared, layout))
        if not unreadable and committed is None:
            unreadable = (report_uncommitted(declared),)
        if unreadable or committed is None or since > committed:
            return Lateness(query=query, batch=committed, since=since, findings=unreadable)
        directory = None if to is None else create_late_directory(project, declared, to)
        with _prepared_session(project, declared, spark, much=has_many_rows(project, [query])) as spark:
            replay_result = apply_late_rows(project, declared, layout, spark) if replay else None
            late_query = BatchQuery.read_committed(project, declared, layout, spark, committed, since=since)
            answer = late_query.over(replace(late_query.prefix, named=directory is not None)).answer()
            replayed, unknown = _last_replayed(project, declared, layout)
            files = (
                () if directory is None else tuple(write_late_files(answer.late, directory, query, layout.generation))
            )
            return Lateness(
                query=query,
                batch=committed,
                since=since,
                batches=tuple(count for dropped in answer.late for count in count_by_batch(dropped)),
                rows=tuple(list_late_rows(answer.late, limit)),
                replayed=replayed,
                replay=replay_result,
                exported=files,
                findings=(*_findings(declared, answer), *unknown),
            )


@contextmanager
def _prepared_session(
    project: Project, query: Query, spark: SparkSession | None, *, much: bool = False
) -> Iterator[SparkSession]:
    """Yield a session in which the batch query can be built."""
    with (
        borrow(project, spark, much=much) as spark,
        apply_settings(spark, session_settings(project, spark)),
        registered_tables(project, query, spark),
    ):
        yield spark


def _findings(query: Query, answer: BatchAnswer) -> Iterator[Finding]:
    for finding in answer.incomplete:
        yield finding.with_severity("error")
    if not answer.incomplete and not answer.late:
        why = "no state of it is bounded by a watermark" if answer.operators else "it keeps no state"
        if answer.operators and query.mode == "complete":
            why = "complete mode keeps every group"
        yield query.finding("HR690", f"can drop no row as late: {why}")


def _last_replayed(project: Project, query: Query, layout: QueryLayout) -> tuple[int | None, tuple[Finding, ...]]:
    """Return the last batch whose late rows were brought back; a sink that does not answer hides no late row."""
    run = sink_context(project, query, layout)
    try:
        return None if query.sink.corrections is None else query.sink.corrections.last(run), ()
    except HeadraceError as error:
        return None, tuple(finding.with_severity("warning") for finding in error.findings)


def create_late_directory(project: Project, query: Query, to: str | os.PathLike[str]) -> Path:
    """Create the directory that rows of `query` are written to, if it does not exist.

    Raises CheckFailed if a source of the query would read them as new rows, PlatformError if it cannot be created.
    """
    directory = Path(to).resolve()
    for source in project.sources_of(query):
        if any(directory.is_relative_to(place) for place in _directories(source.connector)):
            problem = f"source '{source.name}' of query '{query.name}' reads '{directory}', and would read late rows"
            raise CheckFailed(code="HR663", what=f"{problem} again", fix="name another directory", where=source.where)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(directory, error) from error
    return directory


def write_late_files(late: Iterable[LateInput], home: Path, query: str, generation: int) -> Iterator[Path]:
    """Write each late row once, however many operators dropped it; yield every file that holds some.

    What a committed batch dropped never changes, so an existing file is complete and stays. New files get their names
    only when they are complete.
    """
    rows = _distinct_rows(late)
    ordered = [] if rows is None else rows.orderBy("source", "batch", "number").toLocalIterator(prefetchPartitions=True)
    try:
        for (source, batch), lines in groupby(ordered, key=lambda row: (row["source"], row["batch"])):
            file = home / source / f"{query}-g{generation}-{batch:06d}.json"
            _write_once(file, (row["line"] for row in lines))
            yield file
    except OSError as error:
        raise _unwritable(home, error) from error


def _distinct_rows(late: Iterable[LateInput]) -> DataFrame | None:
    """Return each late row once, as its source gave it; None where none can be dropped."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    columns = ("batch", "watermark", "time", "origin.source", "origin.number", "origin.line")
    frames = [dropped.rows.select(F.lit(dropped.operator).alias("operator"), *columns) for dropped in late]
    firsts = [F.min(name).alias(name) for name in ("line", "watermark", "time", "operator")]
    return reduce(DataFrame.union, frames).groupBy("source", "batch", "number").agg(*firsts) if frames else None


def _write_once(file: Path, lines: Iterable[str]) -> None:
    """Write `lines` into a file unless it exists. Raises OSError."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as out:
            out.writelines(f"{line}\n" for line in lines)


def write_late_rows(project: Project, query: Query, layout: QueryLayout, spark: SparkSession, batches: range) -> None:
    """Write the late rows of `batches`, which are committed, into the files that their query reads.

    Raises CheckFailed if it is not known which were late, CheckpointError or SourceError if the rows can no longer be
    read, and PlatformError if the files cannot be written.
    """
    from pyspark.sql import functions as F

    with _prepared_session(project, query, spark) as spark:
        late_query = BatchQuery.read_committed(project, query, layout, spark, batches[-1], since=batches[0])
        answer = late_query.over(replace(late_query.prefix, named=True)).answer()
        if answer.incomplete:
            raise CheckFailed(answer.incomplete)
        rows = _distinct_rows(answer.late)
        if rows is None:
            return
        about_row = F.to_json(F.struct(*[F.col(name[5:]).alias(name) for name in LATE_NAMES]), WHOLE_JSON_UTC)
        # The two objects become one.
        line = F.concat(F.rtrim(about_row, F.lit("}")), F.lit(","), F.substr("line", F.lit(2)))
        ordered = rows.orderBy("batch", "source", "number").select("batch", line.alias("line"))
        with writing_to(layout.late):
            for batch, lines in groupby(ordered.toLocalIterator(prefetchPartitions=True), key=lambda row: row["batch"]):
                _write_once(late_file(layout, batch), (row["line"] for row in lines))


def _directories(connector: object) -> Iterator[Path]:
    """Return the directories that a connector names in its options."""
    for option in path_options(connector):
        value = getattr(connector, option)
        if isinstance(value, str) and "://" not in value:
            # Of a pattern, the part before its first wildcard.
            parts = Path(value).parts
            plain = next((at for at, part in enumerate(parts) if set(part) & set("*?[{")), len(parts))
            yield Path(*parts[:plain]).resolve()


def _unwritable(home: Path, error: OSError) -> PlatformError:
    problem = f"late rows cannot be written to '{home}': {error.strerror or error}"
    return PlatformError(code="HR663", what=problem, fix="name a directory that can be written")


def apply_late_rows(
    project: Project, query: Query, layout: QueryLayout, spark: SparkSession, *, reached: Reached | None = None
) -> Replayed:
    """Bring every late row of the batches in the sink back into its result, in one transaction of the sink.

    Only a result that is proved right is changed. Called again, or after a crash, this brings back what is still
    missing. Raises CheckFailed or SinkError; then nothing was changed.
    """
    fix = "stop it first, bring late rows back, and start it again; nothing is lost"
    require_stopped(project, query, fix=fix)
    sink = query.sink
    if sink.corrections is None:
        raise _irreplayable(query, f"the sink '{query.sink_kind}' cannot replace single rows")
    run = sink_context(project, query, layout)
    if reached is not None:
        run = replace(run, on_boundary=reached)
    # Before the snapshot: the sink is never behind what was committed earlier.
    committed = committed_batch(layout)
    held = sink.read_back(spark, run)
    if not held.key:
        raise _irreplayable(query, "its sink has no key by which a row could be replaced")
    if held.batch is None or (committed is not None and held.batch < committed):
        raise _refusal(query)
    batch_query = BatchQuery.read_committed(
        project, query, layout, spark, held.batch, key=held.key, replayed=held.replayed
    )
    before = batch_query.answer()
    for reason in _find_obstacles(before, held.key):
        raise _irreplayable(query, reason)
    late = _require_proved(query, before, held)
    if not late:
        return Replayed(late=0, written=0, deleted=0)
    after = replace(batch_query, replayed=held.batch).answer()
    with find_corrections(after.frame, held) as (rows, deletes):
        sink.corrections.apply(Correction(snapshot=held, rows=rows, deletes=deletes, late=late), run)
        return Replayed(late=late, written=rows.count(), deleted=deletes.count())


def _find_obstacles(answer: BatchAnswer, key: tuple[str, ...]) -> Iterator[str]:
    """Return why late rows cannot be brought back for certain."""
    if not answer.operators:
        return
    if len(answer.operators) > 1:
        yield "it has more than one operator with state, and the groups of the next one may still be open"
    operator = answer.operators[0]
    if operator.kind != "Aggregate":
        yield f"{operator.kind} is not an aggregation, so there is no group that the watermark has closed for good"
    if operator.session:
        yield "a late row can make one session of two, and the sink holds both"
    if answer.late and not set(answer.by_time) & set(key):
        yield f"the sink's key ({', '.join(key)}) holds no window or event time, so later rows may replace one another"
    yield from (caveat.what for caveat in answer.caveats)


def _require_proved(query: Query, before: BatchAnswer, held: Snapshot) -> int:
    """Return how many late rows the sink lacks; raise CheckFailed if it does not hold everything else."""
    differing = schema_differences(before.frame.schema, held.rows.schema)
    comparison = None if differing else compare(before.frame, held.rows, held.key, held.rejected)
    if comparison is None or not comparison.equal:
        raise _refusal(query)
    return comparison.sum_observed(LATE_METRIC)


def _refusal(query: Query) -> CheckFailed:
    return CheckFailed(
        code="HR692",
        what=f"the result of query '{query.name}' is not the batch answer, so late rows were not brought back",
        fix=f"see what differs, and fix it first: headrace verify {query.name}",
        where=query.where,
    )


def _irreplayable(query: Query, why: str) -> CheckFailed:
    return CheckFailed(
        code="HR691",
        what=f"late rows of query '{query.name}' cannot be brought back into its result: {why}",
        fix=f"export them and add them where the result is used: headrace late {query.name} --export DIRECTORY",
        where=query.where,
    )
