"""What would come of a start, without one: each query as written against what ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.build.plan_builder import build, registered_tables
from headrace.build.project_session import borrowed
from headrace.build.tables import Tables
from headrace.check.analysed import analysed
from headrace.check.structure import concerning
from headrace.errors import CheckFailed, CheckpointError, Finding, HeadraceError
from headrace.model import Project, Query
from headrace.plan.judgement import Judgement, judged, renamed
from headrace.queries.application import known_application
from headrace.queries.checkpoint_look import problems, require_state
from headrace.queries.form import QueryForm
from headrace.queries.home import Home
from headrace.queries.manifest import forms
from headrace.queries.rename_record import kept_in
from headrace.queries.sink_location import require_same_sink
from headrace.queries.source_names import as_it_ran, former_sources
from headrace.run.moved_project import not_brought_along, require_in_place
from headrace.run.part_renames import waiting_renames
from headrace.run.planned import present, reader, require_planned, unfit
from headrace.run.sink_work import of_sink
from headrace.run.state_store import compared, key_order, query_settings
from headrace.spark.jvm.session_conf import applied
from headrace.spark.messages.refusals import finding_of
from headrace.spark.plans.analysed import plan_facts

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
    with borrowed(project, spark) as session:
        found = []
        for query in chosen:
            with applied(session, query_settings(project, query, session)):
                found.append(_judged(project, query, session, connect))
        return found


def judgement_over(project: Project, query: Query, spark: SparkSession, home: Home) -> Judgement:
    """How `query` as written stands to what ran in `home`, which may have another name."""
    with registered_tables(project, query, spark), applied(spark, key_order(home.checkpoint)):
        return _compared(project, query, spark, home)[0]


def _compared(project: Project, query: Query, spark: SparkSession, home: Home) -> tuple[Judgement, DataFrame]:
    """How `query` stands to what ran in `home`, and its result; the tables of the session are registered."""
    streams: dict[str, DataFrame] = {}
    ran, called = as_it_ran(query, home.layout), former_sources(project, query, home.layout)
    frame = _frame(project, query, spark, home, streams)
    if not home.begun and known_application(project) is None:  # Nothing has run here, and a look makes no record.
        return Judgement(query=query.name, verdict="same", from_batch=0), frame
    now = present(project, ran, frame, home, streams, called=called)
    known, begun = forms(home.layout.manifest), home.checkpoint.last_committed is not None
    checkpoint, versions = home.checkpoint.root, home.layout.versions
    judgement = judged(project, query, known, now, begun=begun, checkpoint=checkpoint, versions=versions)
    if home.begun:
        ran_last = known[-1].digest if known else ""
        return replace(judgement, checkpoint=home.checkpoint.id or "", ran=ran_last, written=now.digest), frame
    if home.layout.query == query.name and now.form is not None:  # Else it is renamed from there.
        former = renamed(project, query, QueryForm.of(now.form))
        judgement = replace(judgement, notes=(*judgement.notes, *former))
    return judgement, frame


def _judged(project: Project, query: Query, spark: SparkSession, connect: bool) -> Judgement:
    first = 0
    try:
        home = Home(layout=kept_in(project, query))
        _require_sound(concerning(project, [query.name]))
        if not query.sink.facts.durable:
            return Judgement(query=query.name, verdict="same", from_batch=0)
        committed = home.checkpoint.last_committed
        first = 0 if committed is None else committed + 1
        _require_sound(problems(query, home.layout))
        require_same_sink(project, query, home.layout)
        with registered_tables(project, query, spark):
            found, frame = _compared(project, query, spark, home)
            notes = [*found.notes, *waiting_renames(project, query)]
            notes += _before_start(project, query, spark, home, connect)
            notes += _of_result(query, frame, home, calls_distinct=project.calls(query, "distinct"))
            if not _refused(notes):  # What a sink says of another query's checkpoint would mislead.
                notes += of_sink(project, query, frame, connect=connect)
            verdict = "forbidden" if _refused(notes) else found.verdict
            return replace(found, notes=tuple(dict.fromkeys(notes)), verdict=verdict)
    except HeadraceError as error:
        return _wrong(query, first, error.findings)
    except Exception as error:
        return _wrong(query, first, (finding_of(error, where=query.where, subject=f"query '{query.name}'"),))


def _before_start(project: Project, query: Query, spark: SparkSession, home: Home, connect: bool) -> Iterator[Finding]:
    """What a start would refuse before it looks at the result, by the checks of a start."""
    yield from unfit(project, query, home)
    # A start first brings the paths of a moved project along.
    is_moved = any(True for _ in not_brought_along(project, query))
    for require in (
        lambda: list(compared(project, query, home.checkpoint, home.repartitions, spark)),
        lambda: require_in_place(project, query),
        lambda: None if is_moved else require_planned(project, query, home),
    ):
        try:
            require()
        except HeadraceError as error:
            yield from error.findings
    for source in project.sources_of(query) if connect else ():
        try:
            source.connector.check_connection(spark)
        except HeadraceError as error:
            for finding in error.findings:
                yield (finding if finding.where.file else finding.but(where=source.where)).weighed("warning")


def _of_result(query: Query, frame: DataFrame, home: Home, *, calls_distinct: bool) -> Iterator[Finding]:
    """What a start would refuse of the result, by its plan and its state."""
    facts = plan_facts(frame)
    findings = analysed(query, frame, facts, calls_distinct=calls_distinct)
    yield from (finding for finding in findings if finding.severity == "error")
    try:
        if facts.keeps_state:
            require_state(query, home.checkpoint)
    except CheckpointError as error:
        yield from error.findings


def _require_sound(findings: Iterable[Finding]) -> None:
    if errors := [each for each in findings if each.severity == "error"]:
        raise CheckFailed(errors)


def _refused(findings: Iterable[Finding]) -> bool:
    return any(each.severity == "error" for each in findings)


def _frame(project: Project, query: Query, spark: SparkSession, home: Home, streams: dict[str, DataFrame]) -> DataFrame:
    """The result of the query over the tables that it last had."""
    tables = Tables(project, query, home.layout, spark)
    known = {name: number for name, number in tables.record.latest().items() if name in tables.declared}
    frames = tables.frames({name: number for name, number in known.items() if tables.version(name, number)})
    return build(project, query.transform, spark, reader(spark, query.trigger, streams), frames)


def _wrong(query: Query, first: int, findings: Sequence[Finding]) -> Judgement:
    return Judgement(query=query.name, verdict="forbidden", from_batch=first, notes=tuple(findings))
