"""The proof of prefix integrity: the sink holds the batch answer over the committed prefix of the sources."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.repartitions import Repartitions
from headrace.contract import SinkRun, Snapshot
from headrace.errors import CheckFailed, Finding, ProjectError, nearest
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout, latest_generation
from headrace.run.catalog import all_known
from headrace.run.session import session
from headrace.verify import doubts
from headrace.verify.answer import (
    LATE_METRIC,
    OPEN_METRIC,
    REPLAYED,
    REVIVED,
    Answer,
    LateInput,
    answer,
    metric,
    metrics_of,
)
from headrace.verify.comparison import MOST, Comparison, compare, schema_differences
from headrace.verify.late_rows import listed
from headrace.verify.prefix import READ, prefix_of
from headrace.verify.stretches import stretches
from headrace.verify.verdict import LateRow, State, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(project: Project, query: str, *, spark: SparkSession | None = None) -> Verdict:
    """Compare what the sink of `query` holds with the batch answer over the prefix that it has committed.

    Nothing is written. The query may be running meanwhile. Raises SourceFault or CheckpointFault when the prefix can no
    longer be read, and whatever HeadraceError the query's own function raises.
    """
    begun = time.monotonic()
    declared = declared_query(project, query)
    layout = layout_of(project, declared)
    # Before the snapshot: the sink is never behind what was committed earlier.
    committed = committed_batch(layout)
    unreadable = (*_unreadable_sink(declared), *obstacles(project, declared, layout))
    if unreadable:
        return Verdict(query=query, batch=committed, state="undecided", findings=unreadable)
    spark = spark or session(project, purpose="short")
    with all_known(project, declared, spark):
        verdict = _proved(project, declared, layout, committed, spark)
    return replace(verdict, seconds=time.monotonic() - begun)


def declared_query(project: Project, name: str) -> Query:
    """The query of this name; raises ProjectError when there is none."""
    if name in project.queries:
        return project.queries[name]
    raise ProjectError(
        Finding(code="HR700", what=f"no query is named '{name}'", fix=nearest(name, project.queries)),
    )


def layout_of(project: Project, query: Query) -> QueryLayout:
    """Where the newest generation of a query lies."""
    return QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))


def committed_batch(layout: QueryLayout) -> int | None:
    """The newest committed batch that a sink was given."""
    checkpoint = Checkpoint(layout.checkpoint)
    committed, unseen = checkpoint.last_committed, Repartitions(layout.repartitions).batches(checkpoint)
    while committed is not None and committed in unseen:
        committed = committed - 1 if committed else None
    return committed


def _unreadable_sink(query: Query) -> Iterator[Finding]:
    if not query.sink.facts.readable_back:
        yield Finding(
            code="HR703",
            what=f"the sink '{query.sink_kind}' of query '{query.name}' cannot be read back",
            fix="write to a sink that can, such as a database or files",
            where=query.where,
        )


def obstacles(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """What keeps the committed prefix from being read, as far as it is seen from the start."""
    for source in project.sources_of(query):
        if not source.connector.facts.readable_as_batch:
            yield Finding(
                code="HR702",
                what=f"the source '{source.name}' ({source.kind}) does not keep what it has given",
                fix="read from a source that keeps its rows, such as files or Kafka",
                where=source.where,
            )
    if Checkpoint(layout.checkpoint).last_batch is None:
        yield Finding(
            code="HR701",
            what=f"query '{query.name}' has no checkpoint yet",
            fix=f"run it first: headrace run {query.name}",
            where=query.where,
        )


def uncommitted(query: Query) -> Finding:
    """There is a checkpoint, and no batch in it that is done."""
    return Finding(
        code="HR701",
        what=f"query '{query.name}' has not committed a batch yet",
        fix="wait for its first batch",
        where=query.where,
    )


def _proved(project: Project, query: Query, layout: QueryLayout, committed: int | None, spark: SparkSession) -> Verdict:
    run = SinkRun(query=query.name, generation=layout.generation, mode=query.mode, checkpoint=layout.checkpoint)
    snapshot = query.sink.snapshot(spark, run)
    through = committed if snapshot.batch is None else snapshot.batch
    if through is None:
        return Verdict(query=query.name, batch=None, state="undecided", findings=(uncommitted(query),))
    if committed is not None and through < committed:
        return Verdict(query=query.name, batch=through, state="wrong", findings=(_lost(query, through, committed),))
    prefix = prefix_of(project, query, layout, through)
    try:
        over = stretches(project, query, layout, through, spark)
    except CheckFailed as fault:
        return Verdict(query=query.name, batch=through, state="undecided", findings=fault.findings)
    expected = answer(project, query, prefix, spark, over, snapshot.key, replayed=snapshot.replayed)
    differing = schema_differences(expected.frame.schema, snapshot.rows.schema)
    if differing:
        finding = Finding(
            code="HR711",
            what="; ".join(differing),
            fix="the sink's table was made for another form of the query: undo the change, or begin the query anew",
            where=query.where,
        )
        return Verdict(query=query.name, batch=through, state="wrong", findings=(finding,))
    found = compare(expected.frame, snapshot.rows, snapshot.key, snapshot.set_aside)
    return _judged(query, through, expected, snapshot, found)


def _judged(query: Query, through: int, expected: Answer, snapshot: Snapshot, found: Comparison) -> Verdict:
    counted = {name: metric(found.executed, name) for name in metrics_of(found.executed)}
    late = sum(rows for name, rows in counted.items() if name.startswith(LATE_METRIC))
    replayed = sum(metric(found.executed, name, REPLAYED) for name in counted if name.startswith(LATE_METRIC))
    pending = sum(rows for name, rows in counted.items() if name.startswith(OPEN_METRIC))
    verdict = Verdict(
        query=query.name,
        batch=through,
        state="equal",
        rows_read=sum(rows for name, rows in counted.items() if name.startswith(READ)),
        rows_expected=found.rows_expected,
        rows_actual=found.rows_actual,
        rows_pending=pending,
        rows_late=late,
        rows_replayed=replayed,
        rows_set_aside=found.set_aside,
        missing=found.missing,
        unexpected=found.unexpected,
        different=found.different,
        differences=found.differences,
        late=tuple(_first_late(expected.late)) if late else (),
    )
    if found.equal:
        state: State = "late" if late else "pending" if pending else "equal"
        return replace(verdict, state=state)
    reasons = (*expected.doubts, *_doubts_of_rows(query, expected, snapshot, found))
    if reasons:
        return replace(verdict, state="undecided", findings=reasons)
    return replace(verdict, state="wrong", findings=(_wrong(query, verdict),))


def _doubts_of_rows(query: Query, expected: Answer, snapshot: Snapshot, found: Comparison) -> Iterator[Finding]:
    """The doubts that only the rows themselves can raise."""
    names = [name for name in metrics_of(found.executed) if name.startswith(LATE_METRIC)]
    revived = sum(metric(found.executed, name, REVIVED) for name in names)
    if revived:
        yield doubts.revived_sessions(query, revived)
    # In the other modes a database refuses a second row of one key.
    if snapshot.key and query.mode == "update":
        distinct = expected.frame.select(*[f"`{name}`" for name in snapshot.key]).distinct().count()
        if distinct < found.rows_expected:
            yield doubts.unfit_key(query, snapshot.key, found.rows_expected - distinct)


def _first_late(inputs: tuple[LateInput, ...]) -> Iterator[LateRow]:
    room = MOST
    for each in inputs:
        found = listed(each, room)
        room -= len(found)
        yield from found


def _lost(query: Query, held: int, committed: int) -> Finding:
    return Finding(
        code="HR704",
        what=f"the sink holds batches up to {held}, but batch {committed} was committed: {committed - held} are lost",
        fix="restore the checkpoint of the same time as the sink, or begin the query anew",
        where=query.where,
    )


def _wrong(query: Query, verdict: Verdict) -> Finding:
    return Finding(
        code="HR712",
        what=verdict.why,
        fix="look at the rows below; if nothing else writes to the sink, begin the query anew",
        where=query.where,
    )
