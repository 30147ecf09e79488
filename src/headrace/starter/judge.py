"""How a query as written stands to what ran last."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.checkpoint.sources import SourceNames
from headrace.errors import CheckpointError, Finding, HeadraceError
from headrace.frames.change_frames import QueryResult, build_result
from headrace.frames.plan_builder import Reader, registered_tables
from headrace.frames.tables import Tables
from headrace.generations.facts import StartFacts
from headrace.generations.manifest import QueryForm, QueryRevision
from headrace.generations.manifest import revision as revision_of
from headrace.model import Continuous, NamedSource, Query, RealTime, Trigger
from headrace.planner.forming import form_of
from headrace.planner.verdict import Judgement, check_renamed, judge, list_refusals, list_remarks
from headrace.spark.plans.analysed import plan_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def require_same_result(facts: StartFacts, spark: SparkSession) -> None:
    """Raise as `require_same_meaning`, before the names that are declared now are given to what ran last."""
    streams: dict[str, DataFrame] = {}
    with registered_tables(facts.project, facts.query, spark):
        result = _build_over_last_tables(facts, spark, reader(spark, facts.query.trigger, streams, facts.names))
        require_same_meaning(facts, current_revision(facts, result.rows, streams, as_it_ran=True))


def compare_result(facts: StartFacts, spark: SparkSession) -> tuple[Judgement, DataFrame]:
    """Return how a query stands to what ran last, and its result; the tables of the session are registered."""
    query = facts.query
    streams: dict[str, DataFrame] = {}
    result = _build_over_last_tables(facts, spark, reader(spark, query.trigger, streams, facts.names))
    if not facts.begun and facts.register is None:  # Nothing has run here, and a look makes no record.
        return Judgement(query=query.name, verdict="same", from_batch=0), result.frame
    now = current_revision(facts, result.rows, streams, as_it_ran=True)
    judgement = _judge_revision(facts, now)
    if facts.begun:
        digest, checkpoint = facts.revisions[-1].digest if facts.revisions else "", facts.checkpoint.id or ""
        return replace(judgement, checkpoint=checkpoint, ran=digest, written=now.digest), result.frame
    if now.parsed_form is not None:
        former = check_renamed(facts.project, query, now.parsed_form)
        judgement = replace(judgement, notes=(*judgement.notes, *former))
    return judgement, result.frame


def _judge_revision(facts: StartFacts, now: QueryRevision) -> Judgement:
    """Compare what is to run with the last form that ran.

    A batch that was planned and not committed is made again by the query as it is now, so that a form that has made no
    other batch has left nothing behind.
    """
    revisions = facts.revisions
    while len(revisions) > 1 and not _has_made_batch(facts, revisions[-1]):
        revisions = revisions[:-1]
    return judge(
        facts.project,
        facts.query,
        revisions,
        now,
        begun=facts.last_committed is not None,
        names=facts.names,
        checkpoint=facts.checkpoint.root,
        versions=facts.layout.versions,
    )


def _has_made_batch(facts: StartFacts, revision: QueryRevision) -> bool:
    """Whether a form of the query has made a batch that is committed, or that its sink has or may have."""
    if revision.from_batch < facts.next_batch:
        return True
    try:
        return facts.last_in_sink is not None and facts.last_in_sink >= revision.from_batch
    except HeadraceError:
        return True


def _build_over_last_tables(facts: StartFacts, spark: SparkSession, read: Reader) -> QueryResult:
    """Build the result of the query over the tables that it last had."""
    tables = Tables(facts.project, facts.query, facts.layout, spark)
    last = {name: number for name, number in tables.record.latest().items() if name in tables.declared}
    frames = tables.frames({name: number for name, number in last.items() if tables.version(name, number)})
    return build_result(facts.project, facts.query, spark, read, frames)


def current_revision(
    facts: StartFacts, frame: DataFrame, streams: Mapping[str, DataFrame], *, as_it_ran: bool = False
) -> QueryRevision:
    """Return what the manifest would say of a query, whose result is `frame`, if it began to run now.

    streams: what the connectors gave for its sources. as_it_ran: whether its table has the name of the last run.
    """
    query = facts.as_it_ran if as_it_ran else facts.query
    try:
        form = form_of(facts.project, query, frame, salt=facts.salt, streams=streams, names=facts.names)
    except HeadraceError:
        raise
    except Exception as error:
        # An unknown plan node must not block a start, which says that its changes are not compared.
        form = QueryForm(spark=frame.sparkSession.version, unreadable=f"{type(error).__name__}: {error}"[:200])
    columns = frame.schema.simpleString()
    return revision_of(query, form, fingerprint(frame, query), columns=columns, next_batch=facts.next_batch)


def require_same_meaning(facts: StartFacts, now: QueryRevision) -> tuple[Finding, ...]:
    """Raise CheckpointError if batches were made by a query that meant something else, or had another name."""
    if (
        not facts.begun
        and now.parsed_form is not None
        and (former := tuple(check_renamed(facts.project, facts.query, now.parsed_form)))
    ):
        raise CheckpointError(former)
    judgement = _judge_revision(facts, now)
    if refused := tuple(list_refusals(facts.query, judgement)):
        raise CheckpointError(refused)
    return tuple(list_remarks(facts.query, judgement))


def reader(
    spark: SparkSession, trigger: Trigger, streams: dict[str, DataFrame], names: SourceNames | None = None
) -> Reader:
    """What gives each source's stream, and keeps it in `streams`; names: of the sources, None: none was renamed.

    Without batches there is none that a rate limit could bound.
    """

    def stream(source: NamedSource) -> DataFrame:
        connector = source.connector
        if isinstance(trigger, (Continuous, RealTime)):
            connector = connector.without_rate_limit()
        streams[source.name] = connector.stream(spark, names.in_spark(source.name) if names else source.name)
        return streams[source.name]

    return stream


def fingerprint(frame: DataFrame, query: Query) -> str:
    """Sixteen hexadecimal digits that change when the query's plan (normalised by Spark), schema or mode changes.

    They may change with Spark's version too, which may write the same plan otherwise.
    """
    return hashlib.sha256(f"{query.mode}\n{frame.schema.json()}\n{plan_text(frame)}".encode()).hexdigest()[:16]
