"""Late rows brought back into the result of a query whose groups are closed for good once a row of them came late.

A row is late for a group of event times when the watermark has passed the group's end. Watermarks never go back, so
every later row of that group is late too, and Spark has let its state go: the query writes no row of it any more. That
holds for one aggregation by windows or by the event time itself. Sessions grow together, groups of a second operator
may still be open, and a deduplication or a join has no groups: there rows are not brought back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.contract import Correction, SinkContext, Snapshot
from headrace.errors import CheckFailed, Finding
from headrace.model import Project, Query
from headrace.queries.application import known_facts
from headrace.queries.layout import QueryLayout
from headrace.run.query_run import Reached
from headrace.run.sink_work import require_stopped
from headrace.spark.plans.plan_text import metric, metrics_of
from headrace.verify.answer import BatchAnswer, answer, prefix_of
from headrace.verify.comparison import compare, schema_differences
from headrace.verify.late_and_open import LATE_METRIC
from headrace.verify.lateness import Replayed
from headrace.verify.proof import committed_batch
from headrace.verify.version_ranges import version_ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def apply_late_rows(
    project: Project, query: Query, layout: QueryLayout, spark: SparkSession, *, reached: Reached | None = None
) -> Replayed:
    """Bring every late row of the batches in the sink back into its result, in one transaction of the sink.

    Only a result that is proved right is changed. Called again, or after a crash, it brings back what is still missing.
    Raises CheckFailed or SinkError; then nothing was changed.
    """
    require_stopped(
        project, query, code="HR558", fix="stop it first, bring late rows back, and start it again; nothing is lost"
    )
    sink = query.sink
    if (late_rows := sink.late_rows) is None:
        raise _impossible(query, f"the sink '{query.sink_kind}' cannot replace single rows")
    run = SinkContext(
        query=query.name,
        generation=layout.generation,
        mode=query.mode,
        checkpoint=layout.checkpoint,
        **known_facts(project),
    )
    if reached is not None:
        run = replace(run, on_boundary=reached)
    # Before the snapshot: the sink is never behind what was committed earlier.
    committed = committed_batch(layout)
    held = sink.read_back(spark, run)
    if not held.key:
        raise _impossible(query, "its sink has no key by which a row could be replaced")
    if held.batch is None or (committed is not None and held.batch < committed):
        raise _unproved(query)
    prefix = prefix_of(project, query, layout, held.batch)
    over = version_ranges(project, query, layout, held.batch, spark)
    before = answer(project, query, prefix, spark, over, held.key, replayed=held.replayed)
    for reason in _reasons(query, before, held.key):
        raise _impossible(query, reason)
    late = _proved(query, before, held)
    if not late:
        return Replayed(late=0, written=0, deleted=0)
    after = answer(project, query, prefix, spark, over, held.key, replayed=held.batch).frame
    changed, gone = _changes(after, held)
    changed, gone = changed.persist(), gone.persist()
    try:
        correction = Correction(snapshot=held, rows=changed, deletes=gone, late=late)
        late_rows.apply(correction, run)
        return Replayed(late=late, written=changed.count(), deleted=gone.count())
    finally:
        changed.unpersist()
        gone.unpersist()


def _reasons(query: Query, asked: BatchAnswer, key: tuple[str, ...]) -> Iterator[str]:
    """Why late rows cannot be brought back for certain."""
    if not asked.operators:
        return
    if len(asked.operators) > 1:
        yield "it has more than one operator with state, and the groups of the next one may still be open"
    (operator, *_) = asked.operators
    if operator.kind != "Aggregate":
        yield f"{operator.kind} is no aggregation, so there is no group that the watermark has closed for good"
    if operator.session:
        yield "a late row can make one session of two, and the sink holds both"
    if asked.late and not set(asked.by_time) & set(key):
        yield f"the sink's key ({', '.join(key)}) holds no window or event time, so later rows may replace one another"
    yield from (caveat.what for caveat in asked.caveats)


def _proved(query: Query, before: BatchAnswer, held: Snapshot) -> int:
    """How many late rows the sink lacks; raises CheckFailed if it does not hold everything else."""
    differing = schema_differences(before.frame.schema, held.rows.schema)
    found = None if differing else compare(before.frame, held.rows, held.key, held.rejected)
    if found is None or not found.equal:
        raise _unproved(query)
    names = [name for name in metrics_of(found.executed) if name.startswith(LATE_METRIC)]
    return sum(metric(found.executed, name) for name in names)


def _changes(after: DataFrame, held: Snapshot) -> tuple[DataFrame, DataFrame]:
    """The rows of the answer that the sink does not hold, and the keys that it holds and the answer does not."""
    names, key = after.columns, list(held.key)
    sinks = held.rows if held.rejected is None else held.rows.unionByName(held.rejected)
    known = sinks.select(_text(names).alias("known"))
    changed = after.withColumn("__headrace_text", _text(names))
    changed = changed.join(known, changed["__headrace_text"] == known["known"], "left_anti").drop("__headrace_text")
    keys = after.select(_text(key).alias("known"))
    gone = held.rows.withColumn("__headrace_text", _text(key))
    gone = gone.join(keys, gone["__headrace_text"] == keys["known"], "left_anti").select(*[f"`{name}`" for name in key])
    return changed, gone


def _text(names: list[str]) -> Column:
    """Columns as one text, in which equal values, NULL among them, are equal."""
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*[F.col(f"`{name}`") for name in names]), {"ignoreNullFields": "false"})


def _unproved(query: Query) -> CheckFailed:
    return CheckFailed(
        Finding(
            code="HR692",
            what=f"the result of query '{query.name}' is not the batch answer, so late rows were not brought back",
            fix=f"see what differs, and fix it first: headrace verify {query.name}",
            where=query.where,
        )
    )


def _impossible(query: Query, why: str) -> CheckFailed:
    return CheckFailed(
        Finding(
            code="HR691",
            what=f"late rows of query '{query.name}' cannot be brought back into its result: {why}",
            fix=f"export them and add them where the result is used: headrace late {query.name} --export DIRECTORY",
            where=query.where,
        )
    )
