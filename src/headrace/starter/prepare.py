"""All of a start before its sink: what there is checked, sources asked, tables computed, and the plan built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.checkpoint.directory import Part
from headrace.checkpoint.sources import planned_prefix, source_of
from headrace.checks.analysed import check_analysed
from headrace.checks.triggers import check_cores, check_live_sources, check_refreshed_tables
from headrace.contract import SourceBatch, SourcePrefix
from headrace.errors import CheckFailed, CheckpointError, Finding, HeadraceError, SourceError, Where
from headrace.frames.change_frames import build_result
from headrace.frames.plan_builder import register_written
from headrace.frames.tables import Tables
from headrace.generations.blame import attribute_errors, with_command
from headrace.generations.facts import StartFacts, require_usable
from headrace.generations.manifest import QueryRevision
from headrace.model import NamedSource, Query
from headrace.planner.forming import DeclaredCode
from headrace.spark.jvm.session_conf import ONE_AT_A_TIME
from headrace.spark.plans.analysed import PlanFacts, plan_facts
from headrace.spark.stream.counting import Counting
from headrace.starter.counters import Counters
from headrace.starter.judge import current_revision, fingerprint, reader, require_same_meaning
from headrace.starter.recovery import require_in_place, rewrite_moved_paths
from headrace.starter.rename import list_source_renames, require_same_sink
from headrace.starter.request import Request
from headrace.starter.state_store import compare_state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class PreparedQuery:
    """The DataFrame of a query over its sources and these versions of its tables, and what is said of it.

    rows: what its function gives; another DataFrame than what its sink takes where it applies changes.
    fingerprint: changes with what the query means. revision: what the manifest is to say of it; None: it has none.
    code: digests of its code. source_ids: of the topics and tables that it reads, by source and name.
    """

    frame: DataFrame
    rows: DataFrame
    fingerprint: str
    revision: QueryRevision | None
    code: DeclaredCode
    plan: PlanFacts
    tables: Tables
    versions: Mapping[str, int]
    source_ids: Mapping[str, Mapping[str, str]]
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


def prepare(request: Request, facts: StartFacts) -> PreparedQuery:
    """Check what is there and build the query; what is written leaves an older driver undisturbed.

    Raises what `plan` reports.
    """
    checked = _check(request, facts)
    ids, differences = _check_sources(facts, request.spark)
    request.preparing("making its plan")
    tables, versions, notes = _prepare_tables(request, facts)
    project, query, spark = facts.project, facts.query, request.spark
    counters = _counters(request, facts)
    streams: dict[str, DataFrame] = {}
    given = {**tables.frames(versions), **counters.counting.handles}
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
        changes = require_same_meaning(facts, compared_by)
        revision = replace(revision, continues=is_renamed and not changes)
    if plan.keeps_state:
        require_state(facts)
    beginnings = () if facts.begun else _beginnings(query, facts.sources, facts.layout.generation)
    return PreparedQuery(
        frame=frame,
        rows=result.rows,
        fingerprint=fingerprint(frame, query) if revision is None else revision.fingerprint,
        revision=revision,
        code=_code_of(facts, revision),
        plan=plan,
        tables=tables,
        versions=versions,
        source_ids=ids,
        counters=counters,
        streams=streams,
        notes=(
            *beginnings,
            *notes,
            *analysed,
            *changes,
            *counters.notes,
            *differences,
            *checked,
        ),
    )


def _check(request: Request, facts: StartFacts) -> list[Finding]:
    """Check what is there, then write what a start writes before its plan; return what a user should know.

    Raises what `plan` reports.
    """
    notes: list[Finding] = []
    if facts.lasting:
        require_continuable(facts)
    for error in list_start_blockers(facts, request.spark, notes):
        raise error
    if facts.lasting:
        with ONE_AT_A_TIME:
            notes += rewrite_moved_paths(facts)
        require_planned(facts)
    return notes


def _check_sources(
    facts: StartFacts, spark: SparkSession
) -> tuple[Mapping[str, Mapping[str, str]], tuple[Finding, ...]]:
    """Ask each source; return the ids of what they read, and how that differs from what was read."""
    for source in facts.sources:
        with attribute_errors(facts.query, source):
            source.connector.check_connection(spark)
    ids, differences = identify_sources(facts, spark) if facts.lasting else ({}, ())
    require_sound(differences)
    return ids, differences


def _prepare_tables(request: Request, facts: StartFacts) -> tuple[Tables, Mapping[str, int], tuple[Finding, ...]]:
    """Make ready the tables that the plan is built over: these, their versions, and what a user should know of them.

    New versions are computed and kept, unless a batch was begun with others.
    """
    require_sound(check_cores(facts.project, facts.query, request.spark))
    with ONE_AT_A_TIME:
        register_written(facts.project, facts.query, request.spark)
    tables = Tables(facts.project, facts.query, facts.layout, request.spark)
    versions = request.versions if request.versions is not None else tables.planned_versions()
    return (tables, *(tables.begin() if versions is None else (versions, ())))


def require_sound(findings: Iterable[Finding]) -> None:
    if errors := [finding for finding in findings if finding.severity == "error"]:
        raise CheckFailed(errors)


def require_continuable(facts: StartFacts) -> None:
    """Raise CheckpointError for what keeps any start from beginning with what is there."""
    require_usable(facts)
    require_same_sink(facts)


def require_state(facts: StartFacts) -> None:
    """Raise CheckpointError if the query, which keeps state, has committed batches and no state."""
    committed = facts.last_committed
    if committed is not None and not facts.operators:
        raise CheckpointError(
            code="HR527",
            where=Where(file=str(facts.checkpoint.root / Part.STATE)),
            what=f"query '{facts.query.name}' keeps state, and its checkpoint has none after batch {committed}: the "
            "directory was lost, or the query kept no state before",
            fix="restore the directory from a backup, or undo the change, or reset the query (headrace reset QUERY)",
        )


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


def _code_of(facts: StartFacts, revision: QueryRevision | None) -> DeclaredCode:
    """Return the digests of a query's code, which a revision has already."""
    if revision is None or revision.form is None:
        return DeclaredCode.of(facts.project, facts.query)
    return DeclaredCode(salt=facts.salt, pieces=revision.form["pieces"], form=revision.digest)


def _counters(request: Request, facts: StartFacts) -> Counters:
    """The counters that the query's functions ask for, as its committed batches have left them."""
    project, query = facts.project, facts.query
    counting, declared = Counting(request.spark), project.counters_of(query)
    for counter in declared:
        counting.counter(counter.name, counter.zero, counter.param)
    sync = project.target.checkpoint_durability == "power_loss"
    path = facts.layout.counters if facts.lasting else None
    counters = Counters(query=query, declared=declared, counting=counting, path=path, sync=sync)
    return counters.resume(facts.last_committed)


def require_planned(facts: StartFacts) -> None:
    """Raise SourceError if a batch that was planned and not committed can no longer be made as it was planned."""
    sources = {source.name: source for source in facts.sources}
    prefixes = planned_prefix(facts.checkpoint, facts.names)
    for name, prefix in prefixes.items() if prefixes is not None else ():
        source = sources[source_of(name)]
        source.connector.ensure_available(prefix)
        problem = source.connector.changed(prefix)
        # A batch that never came in may be made over what is there now, as over a file that was mended.
        if problem is not None and facts.is_in_sink:
            finding = Finding(code=problem.code, what=problem.what, fix=problem.fix, where=source.where)
            raise SourceError(with_command(facts.query, finding))


def identify_sources(
    facts: StartFacts, spark: SparkSession
) -> tuple[dict[str, Mapping[str, str]], tuple[Finding, ...]]:
    """Return the ids of the topics and tables that a query reads, by Spark's name of each source, and what differs.

    An error among the findings says that one was created again since it was read. Raises SourceError where a system
    does not answer.
    """
    kept, findings = dict(facts.source_ids), list[Finding]()
    for source in facts.sources:
        with attribute_errors(facts.query, source):
            now = source.connector.object_ids(spark)
            findings += compare_with_read(facts, source, kept, now, spark)
        before = kept.get(name := facts.names.in_spark(source.name), {})
        kept[name] = {**before, **{id_of: id_ for id_of, id_ in now.items() if id_ or id_of not in before}}
    return {name: ids for name, ids in kept.items() if ids}, tuple(findings)


def compare_with_read(
    facts: StartFacts,
    source: NamedSource,
    kept: Mapping[str, Mapping[str, str]],
    now: Mapping[str, str],
    spark: SparkSession,
) -> Iterator[Finding]:
    """Report a source that is not the one that was read, or no longer reaches as far as the planned batches."""
    name, newest, query = facts.names.in_spark(source.name), facts.newest, facts.query
    reached = None
    if newest is not None and name in newest.offsets:
        end = SourceBatch(batch=newest.batch, start=None, end=newest.offsets[name])
        reached = SourcePrefix(batches=(end,))
    for problem in source.connector.list_changes(spark, kept.get(name, {}), now, reached):
        fault = f"query '{query.name}', source '{source.name}': {problem.what}"
        finding = Finding(code=problem.code, what=fault, fix=problem.fix, severity=problem.severity, where=source.where)
        yield with_command(query, finding)


def _beginnings(query: Query, sources: Sequence[NamedSource], generation: int) -> Iterator[Finding]:
    """Where each source begins; a later generation is that of a rebuild or a reset, which says from where."""
    starts = "starts for the first time" if generation == 1 else f"starts generation {generation}"
    for source in sources:
        if position := source.connector.starting_position():
            yield Finding(
                code="HR131",
                what=f"query '{query.name}' {starts}, and its source '{source.name}' begins {position}",
                fix="to begin elsewhere, set starting_offsets before the first start" if generation == 1 else "",
                where=source.where,
            )
