"""The proof that the sink holds the batch answer over the committed prefix, also where several forms made it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.handover import Repartitions
from headrace.contract import readable_back
from headrace.errors import CheckFailed, Finding, HeadraceError
from headrace.frames.plan_builder import registered_tables
from headrace.frames.project_session import borrow
from headrace.generations.blame import with_command
from headrace.generations.facts import StartFacts, sink_context
from headrace.generations.log import QueryLayout, history_file, require_ended
from headrace.generations.register import layout_of
from headrace.history.lag import find_left_out
from headrace.history.store import History
from headrace.model import Project, Query
from headrace.spark.jvm.session_conf import apply_settings
from headrace.starter.recovery import unmoved_findings
from headrace.starter.rename import waiting_renames
from headrace.starter.state_store import session_settings
from headrace.verifier.answer import BatchQuery
from headrace.verifier.batch_ranges import ranges_of, report_several_forms
from headrace.verifier.cause import explain
from headrace.verifier.comparison import schema_differences
from headrace.verifier.evidence import Evidence
from headrace.verifier.rerun import Rerun, settings_of
from headrace.verifier.scope import WHOLE, RowScope
from headrace.verifier.verdict import State, Verdict, blame_the_sink, findings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.verifier.evidence import Mend

# A JVM with both compilers begins a second later, and reads a row in two thirds of the time.
MANY_ROWS = 1_000_000


def verify(project: Project, query: str, *, spark: SparkSession | None = None, scope: RowScope = WHOLE) -> Verdict:
    """Compare what the sink of `query` holds with the batch answer over the prefix that it has committed.

    Nothing is written, and the session stays as it was. The query may be running. The verdict's findings report what
    keeps it undecided, such as a missing file or a damaged checkpoint. Raises ProjectError when no query has that name
    and PlatformError when no session can be started.
    """
    return next(verify_each(project, [query], spark=spark, scope=scope))


def verify_each(
    project: Project,
    queries: Sequence[str],
    *,
    spark: SparkSession | None = None,
    scope: RowScope = WHOLE,
    mend: Mend | None = None,
) -> Generator[Verdict, None, None]:
    """Yield the verdict of each query as soon as it is there; see `verify`.

    scope: which rows are compared. mend: called with the rows that a wrong sink must hold, and with what it holds, if
    one form of the query has made all of it.
    """
    with ExitStack() as opened:
        for name in queries:
            begun = time.monotonic()
            declared = project.query(name)
            committed, findings = _find_obstacles(project, declared)
            if findings:
                verdict = Verdict(query=name, batch=committed, state="undecided", findings=findings)
            else:
                spark = spark or opened.enter_context(borrow(project, much=has_many_rows(project, queries)))
                with borrow(project, spark) as session, apply_settings(session, session_settings(project, session)):
                    try:
                        with registered_tables(project, declared, session):
                            verdict = _prove(project, declared, committed, session, scope, mend)
                    except Exception as error:  # It must not keep the other queries from being verified.
                        sources = [source.connector for source in project.sources_of(declared)]
                        findings = findings_of(declared, error, sources)
                        verdict = Verdict(query=name, batch=committed, state="undecided", findings=findings)
                    with suppress(Exception):  # The verdict stands, whether this can be added or not.
                        unread = tuple(find_left_out(project, declared, layout_of(project, declared)))
                        verdict = replace(verdict, findings=(*verdict.findings, *unread))
            shown = (project.redacted_finding(finding) for finding in verdict.findings)
            yield replace(
                verdict,
                shares=tuple(_shared_parts(project, declared, verdict)),
                scope=str(scope),
                seconds=time.monotonic() - begun,
                findings=tuple(with_command(declared, finding) for finding in shown),
            )


def _shared_parts(project: Project, query: Query, verdict: Verdict) -> Iterator[str]:
    """Return what a verdict shares with the run that it judges, so that a fault of it would be in both."""
    if verdict.batch is not None:
        yield f"how {' and '.join(repr(source.name) for source in project.sources_of(query))} are read"
        if verdict.rows_untimed:
            yield "what Spark makes of rows without an event time"
        if verdict.shown_by == "rerun":
            yield "Spark's operators with state, and their order of rows"


def has_many_rows(project: Project, queries: Sequence[str]) -> bool:
    """Whether these queries have read many rows, by the history; False without one."""
    file = history_file(project.local_storage)
    with suppress(HeadraceError, OSError):
        if file.exists():
            with History.open(file, read_only=True) as history:
                return sum(status.rows_total for status in history.statuses() if status.query in queries) >= MANY_ROWS
    return False


def _find_obstacles(project: Project, query: Query) -> tuple[int | None, tuple[Finding, ...]]:
    """Return the last committed batch, and what keeps the verdict undecided as far as is seen without Spark."""
    unreadable = tuple(_check_sink(query))
    try:
        layout = layout_of(project, query)
        # Before the snapshot: the sink is never behind what was committed earlier.
        committed, ledger = committed_batch(layout), query.sink.ledger
        blockers = (*unreadable, *find_blockers(project, query, layout))
        if not blockers and committed is None and ledger is not None:
            last = ledger.last_batch(sink_context(project, query, layout))
            blockers = () if last is not None else (report_uncommitted(query),)
        return committed, blockers
    except Exception as error:
        # As above.
        return None, (*unreadable, *findings_of(query, error))


def committed_batch(layout: QueryLayout) -> int | None:
    """Return the newest committed batch that a sink has received."""
    checkpoint = Checkpoint(layout.checkpoint)
    committed, empty_batches = checkpoint.last_committed, Repartitions(layout.repartitions).batches(checkpoint)
    while committed is not None and committed in empty_batches:
        committed = committed - 1 if committed else None
    return committed


def _check_sink(query: Query) -> Iterator[Finding]:
    if not readable_back(query.sink):
        problem = f"the sink '{query.sink_kind}' of query '{query.name}' cannot be read back"
        fix = "write to a sink that can, such as a database or files"
        yield Finding(code="HR402", what=problem, fix=fix, where=query.where)


def find_blockers(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """Report what keeps the committed prefix from being read, as far as is seen without Spark.

    Raises CheckpointError while a reset or an adoption is unfinished: the checkpoint and the result may not fit.
    """
    require_ended(layout)
    for source in project.sources_of(query):
        yield from source.connector.lacking
        if not source.connector.readable_as_batch:
            yield Finding(
                code="HR702",
                what=f"the source '{source.name}' ({source.kind}) does not keep what it has given",
                fix="read from a source that keeps its rows, such as files or Kafka",
                where=source.where,
            )
    if Checkpoint(layout.checkpoint).last_batch is None:
        yield query.finding("HR701", "has no checkpoint yet", f"run it first: headrace run {query.name}")
    else:
        yield from unmoved_findings(StartFacts.read(project, query))
        for finding in waiting_renames(project, query):
            # Until then there is nothing under the new names.
            yield finding.reword(fix=f"run it first, which renames it: headrace run {query.name}")


def report_uncommitted(query: Query) -> Finding:
    """Return the finding for a query whose checkpoint has no committed batch."""
    return query.finding("HR701", "has not committed a batch yet", "wait for its first batch")


def _prove(
    project: Project, query: Query, committed: int | None, spark: SparkSession, scope: RowScope, mend: Mend | None
) -> Verdict:
    layout = layout_of(project, query)
    with blame_the_sink(query):
        snapshot = query.sink.read_back(spark, sink_context(project, query, layout))
    through = committed if snapshot.batch is None else snapshot.batch
    if through is None:
        return Verdict(query=query.name, batch=None, state="undecided", findings=(report_uncommitted(query),))
    if committed is not None and through < committed:
        lost = Finding(
            code="HR704",
            what=f"the sink holds batches up to {through}, but batch {committed} was committed: {committed - through} "
            "are lost",
            fix="restore the checkpoint of the same time as the sink, or reset the query (headrace reset QUERY)",
            where=query.where,
        )
        return Verdict(query=query.name, batch=through, state="mismatch", findings=(lost,))
    try:
        batch_query = BatchQuery.read_committed(
            project, query, layout, spark, through, key=snapshot.key, replayed=snapshot.replayed
        )
    except CheckFailed as error:
        return Verdict(query=query.name, batch=through, state="undecided", findings=error.findings)
    batch_query = batch_query.over(replace(batch_query.prefix, traced=scope.since is not None))
    parts, expected = ranges_of(layout, through), batch_query.answer()
    if differing := schema_differences(expected.frame.schema, snapshot.rows.schema):
        finding = Finding(
            code="HR711",
            what="; ".join(differing),
            fix="the sink's table was made for another form of the query: undo the change, or reset the query "
            "(headrace reset QUERY)",
            where=query.where,
        )
        state: State = "mismatch" if len(parts) == 1 else "undecided"
        several = () if len(parts) == 1 else (report_several_forms(query, parts),)
        return Verdict(query=query.name, batch=through, state=state, findings=(*several, finding))
    checkpoint = Checkpoint(layout.checkpoint)
    evidence = Evidence(
        batch_query=batch_query,
        expected=expected,
        snapshot=snapshot,
        rerun=Rerun(
            batch_query=batch_query,
            left_out=Repartitions(layout.repartitions).batches(checkpoint),
            conf=settings_of(checkpoint, through),
        ),
        in_scope=scope.row_filter(batch_query, expected),
        mend=mend if len(parts) == 1 else None,
    )
    verdict = evidence.verdict()
    if len(parts) > 1 and verdict.state in ("mismatch", "undecided"):
        with blame_the_sink(query, snapshot):
            verdict = evidence.verdict_by_ranges(verdict, parts)
    if verdict.state == "mismatch" and not expected.by_function:
        with suppress(Exception):  # The verdict stands, whether advice can be added or not.
            verdict = replace(verdict, findings=tuple(_with_advice(query, expected.frame, verdict.findings)))
    if verdict.state == "mismatch" and verdict.differences:
        with suppress(Exception):  # The verdict stands, whether its rows can be explained or not.
            verdict = replace(verdict, differences=explain(batch_query, verdict.differences))
    return verdict


def _with_advice(query: Query, frame: DataFrame, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Add to the findings what to do first where no batch can write a row of the answer: a reset would fail there."""
    from pyspark.sql import functions as F

    refused = list(query.sink.refused_values(frame))
    flags = frame.select(*[F.max(fault.condition) for fault in refused]).first() if refused else None
    faults = [fault for fault, is_there in zip(refused, flags or (), strict=False) if is_there]
    for finding in findings:
        if faults:
            problem = f"{finding.what}; {faults[0].what}"
            finding = finding.reword(what=problem, fix=f"{faults[0].fix}; then reset the query (headrace reset QUERY)")
        yield finding
