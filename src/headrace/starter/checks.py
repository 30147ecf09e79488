"""A project checked as far as it can be before start: its structure, each query's analysed plan, and its sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.checks.analysed import check_analysed, describe_state
from headrace.checks.closures import (
    Changed,
    Watched,
    check_driver_variables,
    check_side_effects,
    find_changed_variables,
    watch_building,
)
from headrace.checks.locations import check_speculation, check_state_partitions, find_conflicts
from headrace.checks.result import CheckResult, HeldState, check_memory, check_small_files, compute_guarantee
from headrace.checks.state_bounds import StateBound
from headrace.checks.structure import check_structure, check_structure_of
from headrace.checks.user_functions import Asked, check_calls, find_calls, is_users
from headrace.declare.faults import display_path
from headrace.errors import CheckpointError, Finding, HeadraceError, Where
from headrace.frames.change_frames import build_result
from headrace.frames.plan_builder import registered_tables
from headrace.generations.facts import StartFacts
from headrace.generations.log import history_file
from headrace.history import History
from headrace.model import NamedSource, Project, PythonTransform, Query, View
from headrace.model.state_store import PROVIDER_KEY, PROVIDERS
from headrace.registry import known_failures
from headrace.spark.jvm.session_conf import (
    all_settings,
    apply_settings,
    default_partitions,
    executor_memory,
    is_cluster,
)
from headrace.spark.messages.failures import finding_of_message
from headrace.spark.plans.analysed import PlanFacts, plan_facts
from headrace.starter.plan import session_refusals
from headrace.starter.sink_work import check_sink
from headrace.starter.state_store import session_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    spark: SparkSession | bool | None = None,
    connect: bool = True,
    whole: bool = True,
) -> CheckResult:
    """Every finding about `project` and the guarantee of each of `queries` (None: all) that is not refused.

    `spark`: a session, None for one made for it, False for the structure alone. `connect`: whether databases and other
    systems are asked if they have what is read and would take the results. `whole`: whether the shape of the rest of
    the project is looked at too, with that of `queries`. A query whose own structure is wrong is not analysed; it
    keeps no other from being so.
    """
    chosen = [query for name, query in project.queries.items() if queries is None or name in queries]
    conflicts = tuple(find_conflicts(project))
    everything = queries is None or whole
    findings = list(
        check_structure(project) if everything else check_structure_of(project, queries or (), conflicts=conflicts)
    )
    sound = [
        query for query in chosen if not _has_refusal(check_structure_of(project, [query.name], conflicts=conflicts))
    ]
    plans: dict[str, Plan] = {}
    held = _read_held(project)
    if spark is not False and sound:
        findings += _analyse(project, sound, None if spark is True else spark, plans, held, connect)
    guarantees = {
        query.name: compute_guarantee(project, query, plans[query.name].facts if query.name in plans else None)
        for query in sound
        if spark is False or query.name in plans
    }
    return CheckResult(
        findings=tuple(map(project.redacted_finding, findings)),
        guarantees=guarantees,
        states={name: plan.states for name, plan in plans.items()},
        held={name: state for name, state in held.items() if name in guarantees},
        no_rewind=dict(_no_rewind(query for query in sound if query.name in guarantees)),
    )


_Found = TypeVar("_Found", Asked, Changed)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was read off the plan of a query that is not refused."""

    facts: PlanFacts
    states: tuple[StateBound, ...]


def _has_refusal(findings: Iterator[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _analyse(
    project: Project,
    queries: Sequence[Query],
    spark: SparkSession | None,
    plans: dict[str, Plan],
    held: Mapping[str, HeldState],
    connect: bool,
) -> list[Finding]:
    from headrace.frames.project_session import session

    own = spark is None
    spark = spark or session(project, purpose="short")
    try:
        with apply_settings(spark, session_settings(project, spark)):
            findings = list(_of_sources(project, queries, spark)) if connect else []
            for query in () if own else queries:
                findings += _of_session(project, query, spark)
            streams: dict[str, DataFrame] = {}
            for query in queries:
                findings += _analyse_query(project, query, spark, plans, held, connect, streams)
            return findings
    finally:
        if own:
            spark.stop()


def _of_session(project: Project, query: Query, spark: SparkSession) -> list[Finding]:
    try:
        return list(session_refusals(project, query, spark))
    except (HeadraceError, TypeError, KeyError, ValueError):
        return []  # What was recorded cannot be read, which `plan` and a start say.


def _analyse_query(
    project: Project,
    query: Query,
    spark: SparkSession,
    plans: dict[str, Plan],
    held: Mapping[str, HeldState],
    connect: bool,
    streams: dict[str, DataFrame],
) -> Iterator[Finding]:
    """What is wrong with one query; `plans` gets it if nothing is. Queries share the `streams` of their sources."""
    states: tuple[StateBound, ...] = ()

    def read(source: NamedSource) -> DataFrame:
        if source.name not in streams:
            streams[source.name] = source.connector.stream(spark, source.name)
        return streams[source.name]

    try:
        with registered_tables(project, query, spark):
            seen = Watched()
            try:
                with watch_building(lambda: all_settings(spark), project.modules, is_users) as seen:
                    frame = build_result(project, query, spark, read).frame
            finally:
                _set_back(spark, seen)
                # Made under settings of the query's functions, or of a table that is registered for it alone.
                if seen.settings or project.writers_for(query):
                    streams.clear()
            executed = frozenset(seen.executed)
            asked = _of_functions(project, query, lambda function: find_calls(function, is_users, executed))
            facts = plan_facts(frame)
            findings = list(check_analysed(query, frame, facts, calls_distinct=project.calls(query, "distinct")))
            if not _has_refusal(iter(findings)):
                states, notes = describe_state(query, frame, facts)
                findings += _capacity(query, spark, facts, held.get(query.name))
                findings += (*notes, *check_calls(query, asked), *check_side_effects(query, seen, asked))
                changed = _of_functions(
                    project, query, lambda function: find_changed_variables(function, is_users, executed)
                )
                findings += check_driver_variables(query, changed)
                findings += _check_sink(project, query, frame, connect)
    except HeadraceError as error:
        yield from error.findings
        return
    except Exception as error:
        # What Spark says of one query must not hide what is to be said of the others.
        yield finding_of_message(
            str(error),
            subject=f"query '{query.name}'",
            where=query.where,
            connectors=project.connectors_of(query),
            installed=known_failures,
        )
        return
    if not _has_refusal(iter(findings)):
        more = [f"{call.function} calls {call.call}" for call in asked if not call.at_build]
        plans[query.name] = Plan(facts=replace(facts, indeterminate=(*facts.indeterminate, *more)), states=states)
    yield from findings


def _of_functions(
    project: Project, query: Query, look: Callable[[Callable[..., Any]], Iterable[_Found]]
) -> tuple[_Found, ...]:
    """What `look` finds in the Python functions of a query, and of the views that it reads, each once."""
    views = (thing.transform for thing in project.upstream(query.transform) if isinstance(thing, View))
    functions = [part.function for part in chain([query.transform], views) if isinstance(part, PythonTransform)]
    reads = (part for function in functions for part in look(function))
    return tuple(dict.fromkeys(replace(part, where=_show_place(part.where)) for part in reads))


def _check_sink(project: Project, query: Query, frame: DataFrame, connect: bool) -> Iterator[Finding]:
    try:
        yield from check_sink(StartFacts.read(project, query), frame, connect=connect)
    except CheckpointError as error:
        yield from error.findings


def _show_place(where: Where) -> Where:
    return replace(where, file=display_path(where.file)) if where.file else where


def _set_back(spark: SparkSession, seen: Watched) -> None:
    """A check leaves the session as it was, and judges each query without what the others set."""
    for name, (value, _) in seen.settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def _no_rewind(queries: Iterable[Query]) -> Iterator[tuple[str, str]]:
    """The queries that cannot be rewound although an option of their sinks would let them."""
    for query in queries:
        rewind = query.sink.rewind if hasattr(query.sink, "rewindable") else None
        if rewind is not None and (why := rewind.hindrance(query.mode)):
            yield query.name, f"its sink cannot go back: {why}; declare rewindable: 7 days on it"


def _read_held(project: Project) -> dict[str, HeldState]:
    """What the state of each query came to in its newest batch, where the history has it."""
    file = history_file(project.local_storage)
    if not file.exists():
        return {}
    try:
        with History.open(file, read_only=True) as history:
            statuses = history.statuses()
    except HeadraceError:
        return {}
    return {
        status.query: HeldState(batch=status.batch, rows=status.state_rows, bytes=status.state_bytes)
        for status in statuses
        if status.batch is not None and (status.state_rows is not None or status.state_bytes is not None)
    }


def _capacity(query: Query, spark: SparkSession, facts: PlanFacts, held: HeldState | None) -> Iterator[Finding]:
    """How many files and how much memory the query may take."""
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions", "1") or 1)
    if is_cluster(spark):
        cores = default_partitions(spark)
        yield from check_state_partitions(query, partitions=partitions, cores=cores, keeps_state=facts.keeps_state)
        speculative = str(spark.conf.get("spark.speculation", "false")).lower() == "true"
        yield from check_speculation(query, speculative=speculative, keeps_state=facts.keeps_state)
    yield from check_small_files(query, tasks=partitions if facts.keeps_state else 1)
    in_memory = spark.conf.get(PROVIDER_KEY, None) != PROVIDERS["rocksdb"]
    yield from check_memory(query, held, in_memory=in_memory, memory_bytes=executor_memory(spark))


def _of_sources(project: Project, queries: Sequence[Query], spark: SparkSession) -> Iterator[Finding]:
    """Whether what the queries are to read is there, each source asked once."""
    sources = {source.name: source for query in queries for source in project.sources_of(query)}
    for name, source in sources.items():
        try:
            source.connector.check_connection(spark)
        except HeadraceError as error:
            for finding in error.findings:
                where = finding.where if finding.where.file else source.where
                yield finding.reword(what=f"source '{name}': {finding.what}", where=where)
