"""A query as written against what ran: all that is checked before a start, by a start and by `plan`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from headrace.checkpoint.sources import SourceIds, SourceNames, planned_prefix, source_of
from headrace.checks.analysed import check_analysed
from headrace.checks.structure import check_structure_of
from headrace.checks.triggers import check_live_sources, check_refreshed_tables
from headrace.contract import SourceBatch, SourcePrefix, overrides
from headrace.errors import CheckFailed, CheckpointError, Fenced, Finding, HeadraceError, QueryFailed, SourceError
from headrace.frames.change_frames import QueryResult, build_result
from headrace.frames.plan_builder import Reader, registered_tables
from headrace.frames.project_session import borrow
from headrace.frames.tables import Tables
from headrace.generations.blame import named, with_command
from headrace.generations.facts import StartFacts
from headrace.generations.inspect_checkpoint import require_state, require_usable
from headrace.generations.location import require_same_sink, waiting_renames
from headrace.generations.log import QueryLayout, require_live
from headrace.generations.manifest import QueryForm, QueryRevision
from headrace.generations.manifest import revision as revision_of
from headrace.generations.source_names import list_source_renames
from headrace.model import Continuous, NamedSource, Project, Query, RealTime, Trigger
from headrace.planner.difference import worst
from headrace.planner.ends import compare_settings
from headrace.planner.forming import DeclaredCode, form_of, read_settings
from headrace.planner.verdict import Judgement, check_renamed, judge, list_refusals, list_remarks
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.messages.refusals import finding_of
from headrace.spark.plans.analysed import PlanFacts, plan_facts, plan_text
from headrace.spark.stream.counting import Counting
from headrace.starter.counters import Counters
from headrace.starter.moved_project import require_in_place, unmoved_findings
from headrace.starter.request import Request
from headrace.starter.sink_work import check_sink
from headrace.starter.state_store import compare_state_store, key_order, query_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    spark: SparkSession | None = None,
    connect: bool = True,
) -> list[Judgement]:
    """The judgement of each of `queries` (None: all), in one session; nothing is started or written.

    One that `run` would refuse is `forbidden`, with the findings as its notes. connect: whether its sources and its
    sink are asked; one that does not answer is a note.
    """
    chosen = [query for name, query in project.queries.items() if queries is None or name in queries]
    with borrow(project, spark) as session:
        judgements = []
        for query in chosen:
            facts = StartFacts.read(project, query)
            with apply_settings(session, query_settings(facts, session)):
                judgements.append(_judge(facts, session, connect))
        return judgements


def session_refusals(project: Project, query: Query, spark: SparkSession) -> Iterator[Finding]:
    """Why a session of the user's cannot continue a query: its settings are others than those that its batches had.

    Only what was recorded is read; no plan is made.
    """
    facts = StartFacts.read(project, query)
    if facts.last_committed is None or not facts.revisions or not query.sink.facts.durable:
        return
    with apply_settings(spark, query_settings(facts, spark)):
        before = QueryForm.of(facts.revisions[-1].form or {})
        settings = read_settings(spark, before.settings)
    differences = tuple(compare_settings(before, settings))
    judgement = Judgement(
        query=query.name, verdict=worst(differences), from_batch=facts.next_batch, differences=differences
    )
    yield from list_refusals(query, judgement)


def compare_with_last_run(facts: StartFacts, spark: SparkSession) -> Judgement:
    """Return how a query as written stands to what ran last, whose names may be other ones."""
    tables = registered_tables(facts.project, facts.query, spark)
    with tables, apply_settings(spark, key_order(facts.checkpoint)):
        return _compare_with_last_run(facts, spark)[0]


def _compare_with_last_run(facts: StartFacts, spark: SparkSession) -> tuple[Judgement, DataFrame]:
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
    if now.form is not None:
        former = check_renamed(facts.project, query, QueryForm.of(now.form))
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
        ledger = facts.query.sink.ledger
        last = None if ledger is None else ledger.last_batch(facts.sink_context())
    except HeadraceError:
        return True
    return last is not None and last >= revision.from_batch


def _judge(facts: StartFacts, spark: SparkSession, connect: bool) -> Judgement:
    project, query, first = facts.project, facts.query, 0
    try:
        require_sound(check_structure_of(project, [query.name]))
        if not query.sink.facts.durable:
            return Judgement(query=query.name, verdict="same", from_batch=0)
        first = facts.next_batch
        require_continuable(facts)
        with registered_tables(project, query, spark):
            judgement, frame = _compare_with_last_run(facts, spark)
            notes = [*judgement.notes, *waiting_renames(project, query)]
            for error in list_start_blockers(facts, spark, notes):
                notes += error.findings
            notes += _check_planned(facts)
            notes += _check_sources(facts, spark) if connect else ()
            notes += _of_result(query, frame, facts, calls_distinct=project.calls(query, "distinct"))
            if not _has_refusal(notes):  # What a sink says of another query's checkpoint would mislead.
                notes += check_sink(facts, frame, connect=connect)
            verdict = "forbidden" if _has_refusal(notes) else judgement.verdict
            return replace(judgement, notes=tuple(dict.fromkeys(notes)), verdict=verdict)
    except HeadraceError as error:
        wrong = error.findings
    except Exception as error:
        wrong = (finding_of(error, where=query.where, subject=f"query '{query.name}'"),)
    return Judgement(query=query.name, verdict="forbidden", from_batch=first, notes=tuple(wrong))


def require_continuable(facts: StartFacts) -> None:
    """Raise CheckpointError for what keeps any start from beginning with what is there."""
    require_usable(facts.project, facts.query, facts.layout)
    require_same_sink(facts.project, facts.query, facts.layout)


def list_start_blockers(facts: StartFacts, spark: SparkSession, notes: list[Finding]) -> Iterator[HeadraceError]:
    """Yield why a start is refused whatever its plan is: a start raises the first, and `plan` shows each.

    notes: takes what a user should know though the query starts.
    """
    for check in (_check_trigger, compare_state_store, _check_places):
        try:
            notes += check(facts, spark)
        except HeadraceError as error:
            yield error


def _check_trigger(facts: StartFacts, spark: SparkSession) -> Iterable[Finding]:
    """Check the trigger against the sources and the tables. Raises CheckFailed."""
    project, query = facts.project, facts.query
    begun = facts.begun and query.sink.facts.durable
    require_sound(check_live_sources(project, query, query.trigger, begun=begun))
    require_sound(check_refreshed_tables(project, query, query.trigger))
    return ()


def _check_places(facts: StartFacts, spark: SparkSession) -> Iterable[Finding]:
    """Check the sources' names, and that their files lie where the checkpoint says. Raises CheckpointError."""
    if not facts.lasting:
        return ()
    require_in_place(facts)
    return list_source_renames(facts.project, facts.query, facts.layout)


def _check_planned(facts: StartFacts) -> Iterator[Finding]:
    """Report whether the batch that is planned can be made; a start rewrites the paths of a moved project first."""
    try:
        if not any(True for _ in unmoved_findings(facts)):
            require_planned(facts)
    except HeadraceError as error:
        yield from error.findings


def _check_sources(facts: StartFacts, spark: SparkSession) -> Iterator[Finding]:
    """Report what a start would say of each source; one that does not answer may do so by then."""
    kept = _kept_ids(facts)
    for source in facts.project.sources_of(facts.query):
        try:
            source.connector.check_connection(spark)
            yield from _compare_with_read(facts, source, kept, source.connector.object_ids(spark), spark)
        except HeadraceError as error:
            for finding in error.findings:
                yield (finding if finding.where.file else finding.reword(where=source.where)).with_severity("warning")


def _of_result(query: Query, frame: DataFrame, facts: StartFacts, *, calls_distinct: bool) -> Iterator[Finding]:
    """What a start would refuse of the result, by its plan and its state."""
    plan = plan_facts(frame)
    findings = check_analysed(query, frame, plan, calls_distinct=calls_distinct)
    yield from (finding for finding in findings if finding.severity == "error")
    try:
        if plan.keeps_state:
            require_state(query, facts.checkpoint)
    except CheckpointError as error:
        yield from error.findings


def require_sound(findings: Iterable[Finding]) -> None:
    if errors := [finding for finding in findings if finding.severity == "error"]:
        raise CheckFailed(errors)


def _has_refusal(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _build_over_last_tables(facts: StartFacts, spark: SparkSession, read: Reader) -> QueryResult:
    """Build the result of the query over the tables that it last had."""
    tables = Tables(facts.project, facts.query, facts.layout, spark)
    last = {name: number for name, number in tables.record.latest().items() if name in tables.declared}
    frames = tables.frames({name: number for name, number in last.items() if tables.version(name, number)})
    return build_result(facts.project, facts.query, spark, read, frames)


@dataclass(frozen=True, kw_only=True)
class PreparedQuery:
    """The DataFrame of a query over its sources and these versions of its tables, and what is said of it.

    rows: what its function gives; another DataFrame than what its sink takes where it applies changes.
    fingerprint: changes with what the query means. revision: what the manifest is to say of it; None: it has none.
    code: digests of its code.
    """

    frame: DataFrame
    rows: DataFrame
    fingerprint: str
    revision: QueryRevision | None
    code: DeclaredCode
    plan: PlanFacts
    tables: Tables
    versions: Mapping[str, int]
    counters: Counters
    notes: tuple[Finding, ...]
    streams: Mapping[str, DataFrame]

    def columns(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """The names and types of the columns of each source, and of the result under no name."""
        frames = {**self.streams, "": self.rows}
        return {
            name: tuple((column.name, column.dataType.simpleString()) for column in frame.schema)
            for name, frame in frames.items()
        }


def store_versions(facts: StartFacts, request: Request) -> StoredVersions:
    """Compute and keep the versions of the tables that a start begins with, unless a batch was begun with others."""
    tables = Tables(facts.project, facts.query, facts.layout, request.spark)
    versions = request.versions if request.versions is not None else tables.planned_versions()
    return StoredVersions(tables, *(tables.begin() if versions is None else (versions, ())))


class StoredVersions(NamedTuple):
    """The tables of a query, the versions that a start begins with, and what a user should know of them."""

    tables: Tables
    numbers: Mapping[str, int]
    notes: tuple[Finding, ...]


def prepare(request: Request, facts: StartFacts, versions: StoredVersions) -> PreparedQuery:
    """Build the query and check it; nothing is written.

    Raises where it cannot run, or not over its checkpoint.
    """
    project, query, spark = facts.project, facts.query, request.spark
    counters = _counters(request, facts)
    streams: dict[str, DataFrame] = {}
    given = {**versions.tables.frames(versions.numbers), **counters.counting.handles}
    result = build_result(project, query, spark, reader(spark, query.trigger, streams, facts.names), given)
    frame = result.frame
    plan = plan_facts(frame)
    analysed = tuple(check_analysed(query, frame, plan, calls_distinct=project.calls(query, "distinct")))
    require_sound(analysed)
    revision = current_revision(facts, result.rows, streams) if facts.lasting else None
    changes: tuple[Finding, ...] = ()
    if revision is not None:
        is_renamed = facts.as_it_ran is not query
        compared_by = current_revision(facts, result.rows, streams, as_it_ran=True) if is_renamed else revision
        changes = _require_same_meaning(facts, compared_by)
        revision = replace(revision, continues=is_renamed and not changes)
    if plan.keeps_state:
        require_state(query, facts.checkpoint)
    beginnings = () if facts.begun else _beginnings(project, query, facts.layout.generation)
    return PreparedQuery(
        frame=frame,
        rows=result.rows,
        fingerprint=fingerprint(frame, query) if revision is None else revision.fingerprint,
        revision=revision,
        code=_code_of(facts, revision),
        plan=plan,
        tables=versions.tables,
        versions=versions.numbers,
        counters=counters,
        streams=streams,
        notes=(*beginnings, *versions.notes, *analysed, *changes, *counters.missing(facts.last_committed)),
    )


def _code_of(facts: StartFacts, revision: QueryRevision | None) -> DeclaredCode:
    """Return the digests of a query's code, which a revision has already."""
    if revision is None or revision.form is None:
        return DeclaredCode.of(facts.project, facts.query)
    return DeclaredCode(salt=_salt(facts), pieces=revision.form["pieces"])


def _salt(facts: StartFacts) -> str:
    return "" if facts.register is None else facts.register.application


def current_revision(
    facts: StartFacts, frame: DataFrame, streams: Mapping[str, DataFrame], *, as_it_ran: bool = False
) -> QueryRevision:
    """Return what the manifest would say of a query, whose result is `frame`, if it began to run now.

    streams: what the connectors gave for its sources. as_it_ran: whether its table has the name of the last run.
    """
    query = facts.as_it_ran if as_it_ran else facts.query
    try:
        form = form_of(facts.project, query, frame, salt=_salt(facts), streams=streams, names=facts.names)
    except HeadraceError:
        raise
    except Exception as error:
        # An unknown plan node must not block a start, which says that its changes are not compared.
        form = QueryForm(spark=frame.sparkSession.version, unreadable=f"{type(error).__name__}: {error}"[:200])
    columns = frame.schema.simpleString()
    return revision_of(query, form, fingerprint(frame, query), columns=columns, next_batch=facts.next_batch)


def _require_same_meaning(facts: StartFacts, now: QueryRevision) -> tuple[Finding, ...]:
    """Raise CheckpointError if batches were made by a query that meant something else, or had another name."""
    if (
        not facts.begun
        and now.form is not None
        and (former := tuple(check_renamed(facts.project, facts.query, QueryForm.of(now.form))))
    ):
        raise CheckpointError(former)
    judgement = _judge_revision(facts, now)
    if refused := tuple(list_refusals(facts.query, judgement)):
        raise CheckpointError(refused)
    return tuple(list_remarks(facts.query, judgement))


def _counters(request: Request, facts: StartFacts) -> Counters:
    """The counters that the query's functions ask for, as its committed batches have left them."""
    project, query = facts.project, facts.query
    counting, declared = Counting(request.spark), project.counters_of(query)
    for counter in declared:
        counting.counter(counter.name, counter.zero, counter.param)
    sync = project.target.checkpoint_durability == "power_loss"
    return Counters.open(query, declared, counting, facts.layout if facts.lasting else None, sync=sync)


def require_planned(facts: StartFacts) -> None:
    """Raise SourceError if a batch that was planned and not committed can no longer be made as it was planned."""
    sources = {source.name: source for source in facts.project.sources_of(facts.query)}
    prefixes = planned_prefix(facts.checkpoint, facts.names)
    for name, prefix in prefixes.items() if prefixes is not None else ():
        source = sources[source_of(name)]
        source.connector.ensure_available(prefix)
        problem = source.connector.changed(prefix)
        # A batch that never came in may be made over what is there now, as over a file that was mended.
        if problem is not None and _is_in_sink(facts):
            finding = Finding(code=problem.code, what=problem.what, fix=problem.fix, where=source.where)
            raise SourceError(with_command(facts.query, finding))


def identify_sources(facts: StartFacts, spark: SparkSession) -> tuple[dict[str, dict[str, str]], tuple[Finding, ...]]:
    """Return the ids of the topics and tables that a query reads, by Spark's name of each source, and what differs.

    An error among the findings says that one was created again since it was read. Raises SourceError where a system
    does not answer.
    """
    kept, findings = _kept_ids(facts), list[Finding]()
    for source in facts.project.sources_of(facts.query):
        with named(f"query '{facts.query.name}', source '{source.name}'", source.where):
            now = source.connector.object_ids(spark)
            findings += _compare_with_read(facts, source, kept, now, spark)
        before = kept.get(name := facts.names.in_spark(source.name), {})
        kept[name] = {**before, **{id_of: id_ for id_of, id_ in now.items() if id_ or id_of not in before}}
    return {name: ids for name, ids in kept.items() if ids}, tuple(findings)


def _kept_ids(facts: StartFacts) -> dict[str, dict[str, str]]:
    return SourceIds(facts.layout.home).read() if facts.begun or facts.checkpoint.source_names() else {}


def _compare_with_read(
    facts: StartFacts,
    source: NamedSource,
    kept: Mapping[str, Mapping[str, str]],
    now: Mapping[str, str],
    spark: SparkSession,
) -> Iterator[Finding]:
    """Report a source that is not the one that was read, or no longer reaches as far as the planned batches."""
    name, newest, query = facts.names.in_spark(source.name), facts.newest, facts.query
    problems = list(source.connector.compare_ids(kept.get(name, {}), now))
    if newest is not None and name in newest.offsets and all(problem.severity != "error" for problem in problems):
        reached = SourceBatch(batch=newest.batch, start=None, end=newest.offsets[name])
        problems += filter(None, [source.connector.ends_before(spark, SourcePrefix(batches=(reached,)))])
    for problem in problems:
        fault = f"query '{query.name}', source '{source.name}': {problem.what}"
        finding = Finding(code=problem.code, what=fault, fix=problem.fix, severity=problem.severity, where=source.where)
        yield with_command(query, finding)


def find_outside_change(
    project: Project, query: Query, layout: QueryLayout, spark: SparkSession
) -> HeadraceError | None:
    """Find what was done from outside to a query that runs: another process has changed it, or recreated what it reads.

    The ids of new topics and tables are kept. Raises SourceError where a system does not answer, and CheckpointError.
    """
    try:
        require_live(layout)
    except Fenced as error:
        return error
    if not any(overrides(source.connector, "object_ids") for source in project.sources_of(query)):
        return None
    facts = StartFacts(project=project, query=query, register=None, layout=layout)
    ids, findings = identify_sources(facts, spark)
    if not _has_refusal(findings):
        SourceIds(layout.home).write(ids)
    return next((QueryFailed(finding) for finding in findings if finding.severity == "error"), None)


def _is_in_sink(facts: StartFacts) -> bool:
    """Whether the sink has the newest planned batch already."""
    ledger = facts.query.sink.ledger
    last = None if ledger is None else ledger.last_batch(facts.sink_context())
    return last is not None and facts.last_batch is not None and last >= facts.last_batch


def _beginnings(project: Project, query: Query, generation: int) -> Iterator[Finding]:
    """Where each source begins; a later generation is that of a rebuild or a reset, which says from where."""
    starts = "starts for the first time" if generation == 1 else f"starts generation {generation}"
    for source in project.sources_of(query):
        if position := source.connector.starting_position():
            yield Finding(
                code="HR131",
                what=f"query '{query.name}' {starts}, and its source '{source.name}' begins {position}",
                fix="to begin elsewhere, set starting_offsets before the first start" if generation == 1 else "",
                where=source.where,
            )


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
