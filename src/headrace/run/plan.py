"""The plan of a query as written against what ran: all that is looked at before a start, with one or without."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.prefix import planned_prefix
from headrace.checkpoint.source_ids import SourceIds
from headrace.checkpoint.sources import SourceNames, source_of
from headrace.checks.analysed import check_analysed
from headrace.checks.structure import check_structure_of
from headrace.checks.triggers import check_cores, check_live_sources, check_refreshed_tables
from headrace.contract import SourceBatch, SourcePrefix
from headrace.errors import CheckFailed, CheckpointError, Finding, HeadraceError, SourceError
from headrace.frames.change_frames import QueryResult, build_result
from headrace.frames.plan_builder import Reader, register_written, registered_tables
from headrace.frames.project_session import borrow
from headrace.frames.tables import Tables
from headrace.model import Continuous, NamedSource, Project, Query, RealTime, Trigger
from headrace.planner.difference import worst
from headrace.planner.ends import compare_settings
from headrace.planner.forming import form_of, read_settings
from headrace.planner.verdict import Judgement, check_renamed, judge, list_refusals, list_remarks
from headrace.queries.blame import named, with_command
from headrace.queries.form import QueryForm
from headrace.queries.identity import register_project, sink_context
from headrace.queries.inspect_checkpoint import problems, require_state
from headrace.queries.layout import QueryLayout, layout_of
from headrace.queries.location import Home, as_it_ran, require_same_sink, waiting_renames
from headrace.queries.manifest import QueryRevision, forms
from headrace.queries.manifest import revision as revision_of
from headrace.queries.register import read_register
from headrace.queries.source_names import list_source_renames, read_source_names
from headrace.run.counters import Counters
from headrace.run.moved_project import bring_along, not_brought_along, require_in_place
from headrace.run.query_run import Request
from headrace.run.sink_work import of_sink
from headrace.run.state_store import compared, key_order, query_settings
from headrace.spark.jvm.session_conf import ONE_AT_A_TIME, apply_settings
from headrace.spark.messages.refusals import finding_of
from headrace.spark.plans.analysed import PlanFacts, plan_facts, plan_text
from headrace.spark.stream.counting import Counting

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
        found = []
        for query in chosen:
            with apply_settings(session, query_settings(project, query, session)):
                found.append(_judged(project, query, session, connect))
        return found


def session_refusals(project: Project, query: Query, spark: SparkSession) -> Iterator[Finding]:
    """Why a session of the user's cannot continue a query: its settings are others than those that its batches had.

    Only what was recorded is read; no plan is made.
    """
    layout = layout_of(project, query)
    committed, ran = Checkpoint(layout.checkpoint).last_committed, forms(layout.manifest)
    if committed is None or not ran or not query.sink.facts.durable:
        return
    with apply_settings(spark, query_settings(project, query, spark)):
        before = QueryForm.of(ran[-1].form or {})
        settings = read_settings(spark, before.settings)
    differences = tuple(compare_settings(before, settings))
    judgement = Judgement(
        query=query.name, verdict=worst(differences), from_batch=committed + 1, differences=differences
    )
    yield from list_refusals(query, judgement)


def judgement_over(project: Project, query: Query, spark: SparkSession, home: Home) -> Judgement:
    """How `query` as written stands to what ran in `home`, which may have another name."""
    with registered_tables(project, query, spark), apply_settings(spark, key_order(home.checkpoint)):
        return _compared(project, query, spark, home)[0]


def _compared(project: Project, query: Query, spark: SparkSession, home: Home) -> tuple[Judgement, DataFrame]:
    """How `query` stands to what ran in `home`, and its result; the tables of the session are registered."""
    streams: dict[str, DataFrame] = {}
    ran, names = as_it_ran(query, home.layout), read_source_names(project, query, home.layout)
    result = _result(project, query, spark, home, reader(spark, query.trigger, streams, names))
    frame = result.frame
    if not home.begun and read_register(project.storage) is None:  # Nothing has run here, and a look makes no record.
        return Judgement(query=query.name, verdict="same", from_batch=0), frame
    now = present(project, ran, result.rows, home, streams, names=names)
    known, begun = forms(home.layout.manifest), home.checkpoint.last_committed is not None
    checkpoint, versions = home.checkpoint.root, home.layout.versions
    judgement = judge(project, query, known, now, begun=begun, names=names, checkpoint=checkpoint, versions=versions)
    if home.begun:
        ran_last = known[-1].digest if known else ""
        return replace(judgement, checkpoint=home.checkpoint.id or "", ran=ran_last, written=now.digest), frame
    if now.form is not None:
        former = check_renamed(project, query, QueryForm.of(now.form))
        judgement = replace(judgement, notes=(*judgement.notes, *former))
    return judgement, frame


def _judged(project: Project, query: Query, spark: SparkSession, connect: bool) -> Judgement:
    first = 0
    try:
        home = Home(layout=layout_of(project, query))
        _require_sound(check_structure_of(project, [query.name]))
        if not query.sink.facts.durable:
            return Judgement(query=query.name, verdict="same", from_batch=0)
        committed = home.checkpoint.last_committed
        first = 0 if committed is None else committed + 1
        _require_sound(problems(project, query, home.layout))
        require_same_sink(project, query, home.layout)
        with registered_tables(project, query, spark):
            found, frame = _compared(project, query, spark, home)
            notes = [*found.notes, *waiting_renames(project, query)]
            notes += list_source_renames(project, query, home.layout)
            notes += _before_start(project, query, spark, home, connect)
            notes += _of_result(query, frame, home, calls_distinct=project.calls(query, "distinct"))
            if not _refused(notes):  # What a sink says of another query's checkpoint would mislead.
                notes += of_sink(project, query, frame, connect=connect)
            verdict = "forbidden" if _refused(notes) else found.verdict
            return replace(found, notes=tuple(dict.fromkeys(notes)), verdict=verdict)
    except HeadraceError as error:
        wrong = error.findings
    except Exception as error:
        wrong = (finding_of(error, where=query.where, subject=f"query '{query.name}'"),)
    return Judgement(query=query.name, verdict="forbidden", from_batch=first, notes=tuple(wrong))


def _before_start(project: Project, query: Query, spark: SparkSession, home: Home, connect: bool) -> Iterator[Finding]:
    """What a start would refuse before it looks at the result, by the checks of a start."""
    yield from unfit(project, query, home)
    # A start first brings the paths of a moved project along.
    is_moved = any(True for _ in not_brought_along(project, query))
    names = read_source_names(project, query, home.layout)
    for require in (
        lambda: list(compared(project, query, home.checkpoint, home.repartitions, spark)),
        lambda: require_in_place(project, query),
        lambda: None if is_moved else require_planned(project, query, home, names),
    ):
        try:
            require()
        except HeadraceError as error:
            yield from error.findings
    kept, reached = _kept_ids(home), _reached(home)
    for source in project.sources_of(query) if connect else ():
        try:
            source.connector.check_connection(spark)
            now = source.connector.object_ids(spark)
            yield from _compare_with_read(query, source, names, kept, now, reached, spark)
        except HeadraceError as error:
            for finding in error.findings:
                yield (finding if finding.where.file else finding.reword(where=source.where)).with_severity("warning")


def _of_result(query: Query, frame: DataFrame, home: Home, *, calls_distinct: bool) -> Iterator[Finding]:
    """What a start would refuse of the result, by its plan and its state."""
    facts = plan_facts(frame)
    findings = check_analysed(query, frame, facts, calls_distinct=calls_distinct)
    yield from (finding for finding in findings if finding.severity == "error")
    try:
        if facts.keeps_state:
            require_state(query, home.checkpoint)
    except CheckpointError as error:
        yield from error.findings


def _require_sound(findings: Iterable[Finding]) -> None:
    if errors := [finding for finding in findings if finding.severity == "error"]:
        raise CheckFailed(errors)


def _refused(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _result(project: Project, query: Query, spark: SparkSession, home: Home, read: Reader) -> QueryResult:
    """The result of the query over the tables that it last had."""
    tables = Tables(project, query, home.layout, spark)
    known = {name: number for name, number in tables.record.latest().items() if name in tables.declared}
    frames = tables.frames({name: number for name, number in known.items() if tables.version(name, number)})
    return build_result(project, query, spark, read, frames)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The DataFrame of a query over its sources and these versions of its tables, and what is said of it.

    rows: what its function gives; another DataFrame than what its sink takes where it applies changes.
    source_ids: of the topics and tables that it reads, by source and name.
    fingerprint: changes with what the query means. revision: what the manifest is to say of it; None: it has none.
    """

    frame: DataFrame
    rows: DataFrame
    fingerprint: str
    revision: QueryRevision | None
    facts: PlanFacts
    names: SourceNames
    tables: Tables
    versions: Mapping[str, int]
    counters: Counters
    source_ids: Mapping[str, Mapping[str, str]]
    notes: tuple[Finding, ...]
    streams: Mapping[str, DataFrame]

    def columns(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """The names and types of the columns of each source, and of the result under no name."""
        frames = {**self.streams, "": self.rows}
        return {
            name: tuple((each.name, each.dataType.simpleString()) for each in frame.schema)
            for name, frame in frames.items()
        }


def planned(request: Request, home: Home) -> Planned:
    """Build the query and check it; raises where it cannot run, or not over its checkpoint."""
    project, query, spark = request.project, request.query, request.spark
    if home.repartitions.cut_off(home.checkpoint) is None:
        home.repartitions.forget_unbegun(home.checkpoint)
    kept = list(compared(project, query, home.checkpoint, home.repartitions, spark))
    names = read_source_names(project, query, home.layout)
    if home.lasting:
        kept += list_source_renames(project, query, home.layout)
        with ONE_AT_A_TIME:
            kept += bring_along(project, query)
        require_planned(project, query, home, names)
    for source in project.sources_of(query):
        with named(f"query '{query.name}', source '{source.name}'", source.where):
            source.connector.check_connection(spark)
    ids, met = identified(project, query, home, names, spark) if home.lasting else ({}, ())
    _require_sound(met)
    request.begin("making its plan")
    _require_sound(check_cores(project, query, spark))
    with ONE_AT_A_TIME:
        register_written(project, query, spark)
    tables = Tables(project, query, home.layout, spark)
    known = request.versions if request.versions is not None else tables.planned_versions()
    versions, told = tables.begin() if known is None else (known, ())
    counters = _counters(request, home)
    streams: dict[str, DataFrame] = {}
    given = {**tables.frames(versions), **counters.counting.handles}
    result = build_result(project, query, spark, reader(spark, query.trigger, streams, names), given)
    frame = result.frame
    facts = plan_facts(frame)
    noted = tuple(check_analysed(query, frame, facts, calls_distinct=project.calls(query, "distinct")))
    _require_sound(noted)
    revision = present(project, query, result.rows, home, streams, names=names) if home.lasting else None
    changes: tuple[Finding, ...] = ()
    if revision is not None:
        ran = as_it_ran(query, home.layout)
        is_renamed = ran is not query
        compared_by = present(project, ran, result.rows, home, streams, names=names) if is_renamed else revision
        changes = _unchanged(project, query, home, names, compared_by)
        revision = replace(revision, continues=is_renamed and not changes)
    if facts.keeps_state:
        require_state(query, home.checkpoint)
    beginnings = () if home.begun else _beginnings(project, query, home.layout.generation)
    return Planned(
        frame=frame,
        rows=result.rows,
        fingerprint=fingerprint(frame, query) if revision is None else revision.fingerprint,
        revision=revision,
        facts=facts,
        names=names,
        tables=tables,
        versions=versions,
        counters=counters,
        streams=streams,
        source_ids=ids,
        notes=(*beginnings, *met, *kept, *told, *noted, *changes, *counters.missing(home.checkpoint.last_committed)),
    )


def present(
    project: Project,
    query: Query,
    frame: DataFrame,
    home: Home,
    streams: Mapping[str, DataFrame],
    *,
    names: SourceNames | None = None,
) -> QueryRevision:
    """What the manifest would say of `query`, whose result is `frame`, if it began to run now.

    streams: what the connectors gave for its sources. names: of its sources; None: none was renamed.
    """
    committed = home.checkpoint.last_committed
    try:
        salt = register_project(project).application
        form = form_of(project, query, frame, salt=salt, streams=streams, names=names)
    except HeadraceError:
        raise
    except Exception as error:
        # A node that nobody has met must keep no query from running; it is told that its changes are not compared.
        form = QueryForm(spark=frame.sparkSession.version, unreadable=f"{type(error).__name__}: {error}"[:200])
    return revision_of(
        query,
        form,
        fingerprint(frame, query),
        columns=frame.schema.simpleString(),
        next_batch=0 if committed is None else committed + 1,
    )


def unfit(project: Project, query: Query, home: Home) -> Iterator[Finding]:
    """Why the query cannot start with its trigger, its sources and its tables, whatever its plan is."""
    yield from check_live_sources(project, query, query.trigger, begun=home.begun and query.sink.facts.durable)
    yield from check_refreshed_tables(project, query, query.trigger)


def _unchanged(
    project: Project, query: Query, home: Home, names: SourceNames, now: QueryRevision
) -> tuple[Finding, ...]:
    """Raise CheckpointError if batches were made by a query that meant something else, or had another name."""
    if (
        not home.begun
        and now.form is not None
        and (former := tuple(check_renamed(project, query, QueryForm.of(now.form))))
    ):
        raise CheckpointError(former)
    # What was planned and not committed is made again by the query as it is now.
    begun = home.checkpoint.last_committed is not None
    checkpoint, versions = home.checkpoint.root, home.layout.versions
    ran = forms(home.layout.manifest)
    judgement = judge(project, query, ran, now, begun=begun, names=names, checkpoint=checkpoint, versions=versions)
    if refused := tuple(list_refusals(query, judgement)):
        raise CheckpointError(refused)
    return tuple(list_remarks(query, judgement))


def _counters(request: Request, home: Home) -> Counters:
    """The counters that the query's functions ask for, as its committed batches have left them."""
    project, query = request.project, request.query
    counting, declared = Counting(request.spark), project.counters_of(query)
    for counter in declared:
        counting.counter(counter.name, counter.zero, counter.param)
    sync = project.target.checkpoint_durability == "power_loss"
    return Counters.opened(query, declared, counting, home.layout if home.lasting else None, sync=sync)


def require_planned(project: Project, query: Query, home: Home, names: SourceNames) -> None:
    """Raise SourceError if a batch that was planned and not committed can no longer be made as it was planned."""
    sources = {source.name: source for source in project.sources_of(query)}
    prefixes = planned_prefix(home.checkpoint, names)
    for name, prefix in prefixes.items() if prefixes is not None else ():
        source = sources[source_of(name)]
        source.connector.ensure_available(prefix)
        problem = source.connector.changed(prefix)
        # A batch that never came in may be made over what is there now, as over a file that was mended.
        if problem is not None and _is_in(project, query, home):
            found = Finding(code=problem.code, what=problem.what, fix=problem.fix, where=source.where)
            raise SourceError(with_command(query, found))


def identified(
    project: Project, query: Query, home: Home, names: SourceNames, spark: SparkSession
) -> tuple[dict[str, dict[str, str]], tuple[Finding, ...]]:
    """The ids of the topics and tables that the query reads, by Spark's name of each source, and what differs from
    those that it has read so far.

    An error among the findings says that one was created again. Raises SourceError where a system does not answer.
    """
    kept, reached, met = _kept_ids(home), _reached(home), list[Finding]()
    for source in project.sources_of(query):
        with named(f"query '{query.name}', source '{source.name}'", source.where):
            now = source.connector.object_ids(spark)
            met += _compare_with_read(query, source, names, kept, now, reached, spark)
        before = kept.get(name := names.in_spark(source.name), {})
        kept[name] = {**before, **{name: id_ for name, id_ in now.items() if id_ or name not in before}}
    return {name: ids for name, ids in kept.items() if ids}, tuple(met)


def _kept_ids(home: Home) -> dict[str, dict[str, str]]:
    return SourceIds(home.layout.home).read() if home.begun or home.checkpoint.source_names() else {}


def _reached(home: Home) -> dict[str, SourcePrefix]:
    """How far each source was read, or is to be read by the batch that is planned."""
    last = home.checkpoint.last_batch
    entry = None if last is None else home.checkpoint.offset(last)
    if entry is None:
        return {}
    shares = {name: SourceBatch(batch=entry.batch, start=None, end=end) for name, end in entry.offsets.items()}
    return {name: SourcePrefix(batches=(share,)) for name, share in shares.items()}


def _compare_with_read(
    query: Query,
    source: NamedSource,
    names: SourceNames,
    kept: Mapping[str, Mapping[str, str]],
    now: Mapping[str, str],
    reached: Mapping[str, SourcePrefix],
    spark: SparkSession,
) -> Iterator[Finding]:
    """What is to be said of a source that is not the one that was read, or no longer reaches as far."""
    name = names.in_spark(source.name)
    problems = list(source.connector.compare_ids(kept.get(name, {}), now))
    if name in reached and all(problem.severity != "error" for problem in problems):
        problems += filter(None, [source.connector.ends_before(spark, reached[name])])
    for problem in problems:
        fault = f"query '{query.name}', source '{source.name}': {problem.what}"
        found = Finding(code=problem.code, what=fault, fix=problem.fix, severity=problem.severity, where=source.where)
        yield with_command(query, found)


def find_recreated(project: Project, query: Query, layout: QueryLayout, spark: SparkSession) -> Finding | None:
    """That a topic or a table was created again while the query runs; the ids of new ones are kept.

    Raises SourceError where a system does not answer, and CheckpointError.
    """
    ids, met = identified(project, query, Home(layout=layout), read_source_names(project, query, layout), spark)
    if not _refused(met):
        SourceIds(layout.home).write(ids)
    return next((finding for finding in met if finding.severity == "error"), None)


def _is_in(project: Project, query: Query, home: Home) -> bool:
    """Whether the sink has the newest planned batch already."""
    planned = home.checkpoint.last_batch
    context = sink_context(project, query, home.layout)
    last = None if query.sink.ledger is None else query.sink.ledger.last_batch(context)
    return last is not None and planned is not None and last >= planned


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
