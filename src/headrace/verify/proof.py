"""The proof that the sink holds the batch answer over the committed prefix, also where several forms made it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from headrace.build.plan_builder import registered_tables
from headrace.build.project_session import borrowed
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.repartitions import Repartitions
from headrace.contract import SinkContext, readable_back
from headrace.errors import CheckFailed, Finding, ProjectError, nearest
from headrace.model import Project, Query
from headrace.observe.lag import left_out
from headrace.plan.comparison import compare as compare_forms
from headrace.plan.difference import worst
from headrace.queries.application import known_facts
from headrace.queries.blame import with_command
from headrace.queries.changes import cut_off, require_adopted, require_whole
from headrace.queries.form import QueryForm
from headrace.queries.layout import QueryLayout, latest_generation
from headrace.queries.manifest import QueryRevision, forms
from headrace.queries.rename_record import waiting_renames
from headrace.run.moved_project import not_brought_along
from headrace.run.state_store import session_settings
from headrace.spark.jvm.session_conf import applied
from headrace.verify.answer import BatchAnswer, answer, prefix_of
from headrace.verify.comparison import compare, schema_differences
from headrace.verify.judgement import Evidence, verdict_of
from headrace.verify.rerun import Rerun, settings_of
from headrace.verify.verdict import State, Verdict, blamed_on_the_sink, findings_of
from headrace.verify.version_ranges import version_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.contract import Snapshot


def verify(project: Project, query: str, *, spark: SparkSession | None = None) -> Verdict:
    """Compare what the sink of `query` holds with the batch answer over the prefix that it has committed.

    Nothing is written, and the session stays as it was. The query may be running meanwhile. What keeps the verdict
    open, such as a missing file or a damaged checkpoint, is reported by the verdict's findings. Raises ProjectError
    when no query has that name and PlatformError when no session can be started.
    """
    return next(verify_each(project, [query], spark=spark))


def verify_each(
    project: Project, queries: Sequence[str], *, spark: SparkSession | None = None
) -> Generator[Verdict, None, None]:
    """The verdict of each of `queries`, as soon as it is found; see `verify`."""
    with ExitStack() as opened:
        for name in queries:
            begun = time.monotonic()
            declared = declared_query(project, name)
            committed, findings = _prospects(project, declared)
            if findings:
                verdict = Verdict(query=name, batch=committed, state="undecided", findings=findings)
            else:
                spark = spark or opened.enter_context(borrowed(project))
                with borrowed(project, spark) as session, applied(session, session_settings(project, session)):
                    verdict = _guarded(project, declared, committed, session)
                    verdict = replace(verdict, findings=(*verdict.findings, *_left_out(project, declared)))
            yield replace(
                verdict,
                seconds=time.monotonic() - begun,
                findings=tuple(with_command(declared, project.redacted_finding(each)) for each in verdict.findings),
            )


def _prospects(project: Project, query: Query) -> tuple[int | None, tuple[Finding, ...]]:
    """The last committed batch, and what is known without Spark to keep the verdict open."""
    unreadable = tuple(_unreadable_sink(query))
    try:
        layout = layout_of(project, query)
        # Before the snapshot: the sink is never behind what was committed earlier.
        committed = committed_batch(layout)
        return committed, (*unreadable, *blockers(project, query, layout))
    except Exception as error:
        # What one query cannot be verified for is no trouble of the others.
        return None, (*unreadable, *findings_of(query, error))


def _left_out(project: Project, query: Query) -> tuple[Finding, ...]:
    """What its sources hold and will never give, which no comparison could show."""
    try:
        return tuple(left_out(project, query, layout_of(project, query)))
    except Exception:  # The verdict is there.
        return ()


def _guarded(project: Project, query: Query, committed: int | None, spark: SparkSession) -> Verdict:
    """The verdict on one query; what it cannot be proved for is no trouble of the others."""
    try:
        with registered_tables(project, query, spark):
            return _proved(project, query, layout_of(project, query), committed, spark)
    except Exception as error:
        findings = findings_of(query, error)
        return Verdict(query=query.name, batch=committed, state="undecided", findings=findings)


def declared_query(project: Project, name: str) -> Query:
    """The query of this name; raises ProjectError when there is none."""
    if name in project.queries:
        return project.queries[name]
    raise ProjectError(
        Finding(code="HR091", what=f"no query is named '{name}'", fix=nearest(name, project.queries)),
    )


def layout_of(project: Project, query: Query) -> QueryLayout:
    """Where the newest generation of a query lies."""
    return QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))


def committed_batch(layout: QueryLayout) -> int | None:
    """The newest committed batch that a sink was given."""
    checkpoint = Checkpoint(layout.checkpoint)
    committed, empty_batches = checkpoint.last_committed, Repartitions(layout.repartitions).batches(checkpoint)
    while committed is not None and committed in empty_batches:
        committed = committed - 1 if committed else None
    return committed


def _unreadable_sink(query: Query) -> Iterator[Finding]:
    if not readable_back(query.sink):
        yield Finding(
            code="HR402",
            what=f"the sink '{query.sink_kind}' of query '{query.name}' cannot be read back",
            fix="write to a sink that can, such as a database or files",
            where=query.where,
        )


def blockers(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """What keeps the committed prefix from being read, as far as it is seen from the start.

    Raises CheckpointError while a reset or an adoption is cut off: the checkpoint and the result may not fit.
    """
    require_whole(layout)
    require_adopted(layout)
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
        yield Finding(
            code="HR701",
            what=f"query '{query.name}' has no checkpoint yet",
            fix=f"run it first: headrace run {query.name}",
            where=query.where,
        )
    else:
        yield from cut_off(layout.storage, query.name)
        yield from not_brought_along(project, query)
        for found in waiting_renames(project, query):
            # Whoever only reads would look under names at which nothing is yet.
            yield found.but(fix=f"run it first, which renames it: headrace run {query.name}")


def uncommitted(query: Query) -> Finding:
    """There is a checkpoint, and no batch in it that is done."""
    return Finding(
        code="HR701",
        what=f"query '{query.name}' has not committed a batch yet",
        fix="wait for its first batch",
        where=query.where,
    )


def _proved(project: Project, query: Query, layout: QueryLayout, committed: int | None, spark: SparkSession) -> Verdict:
    run = SinkContext(
        query=query.name,
        generation=layout.generation,
        mode=query.mode,
        checkpoint=layout.checkpoint,
        **known_facts(project),
    )
    with blamed_on_the_sink(query):
        snapshot = query.sink.read_back(spark, run)
    through = committed if snapshot.batch is None else snapshot.batch
    if through is None:
        return Verdict(query=query.name, batch=None, state="undecided", findings=(uncommitted(query),))
    if committed is not None and through < committed:
        return Verdict(query=query.name, batch=through, state="mismatch", findings=(_lost(query, through, committed),))
    prefix = prefix_of(project, query, layout, through)
    try:
        over = version_ranges(project, query, layout, through, spark)
    except CheckFailed as error:
        return Verdict(query=query.name, batch=through, state="undecided", findings=error.findings)
    parts = ranges(layout, through)

    def answered(part: Range) -> BatchAnswer:
        return answer(project, query, prefix.part(part.first, part.last), spark, over, snapshot.key)

    expected = answer(project, query, prefix, spark, over, snapshot.key, replayed=snapshot.replayed)
    differing = schema_differences(expected.frame.schema, snapshot.rows.schema)
    if differing:
        finding = Finding(
            code="HR711",
            what="; ".join(differing),
            fix="the sink's table was made for another form of the query: undo the change, or reset the query "
            "(headrace reset QUERY)",
            where=query.where,
        )
        state: State = "mismatch" if len(parts) == 1 else "undecided"
        several = () if len(parts) == 1 else (of_several_forms(query, parts),)
        return Verdict(query=query.name, batch=through, state=state, findings=(*several, finding))
    again = Rerun(
        project=project,
        query=query,
        prefix=prefix,
        over=over,
        left_out=Repartitions(layout.repartitions).batches(Checkpoint(layout.checkpoint)),
        conf=settings_of(Checkpoint(layout.checkpoint), through),
    )
    verdict = verdict_of(
        Evidence(query=query, batch=through, expected=expected, snapshot=snapshot, again=again, spark=spark)
    )
    if len(parts) > 1 and verdict.state in ("mismatch", "undecided"):
        with blamed_on_the_sink(query, snapshot):
            return verdict_by_ranges(query, verdict, snapshot, parts, answered)
    return verdict


def _lost(query: Query, held: int, committed: int) -> Finding:
    return Finding(
        code="HR704",
        what=f"the sink holds batches up to {held}, but batch {committed} was committed: {committed - held} are lost",
        fix="restore the checkpoint of the same time as the sink, or reset the query (headrace reset QUERY)",
        where=query.where,
    )


@dataclass(frozen=True, kw_only=True)
class Range:
    """The batches `first` to `last`; newest: the form that ran last made them, now or at an earlier time."""

    first: int
    last: int
    newest: bool

    def __str__(self) -> str:
        return f"batch {self.first}" if self.first == self.last else f"batches {self.first} to {self.last}"


def ranges(layout: QueryLayout, through: int) -> tuple[Range, ...]:
    """The ranges of the batches 0 to `through`, by the manifest; one, where the query was never changed."""
    known = [each for each in forms(layout.manifest) if each.from_batch <= through]
    if not known:
        return (Range(first=0, last=through, newest=True),)
    found: list[Range] = []
    for index, form in enumerate(known):
        first = form.from_batch if found else 0
        last = known[index + 1].from_batch - 1 if index + 1 < len(known) else through
        if last < first:
            continue
        newest = means_the_same(_continued(known, index), known[-1])
        if found and found[-1].newest and newest:
            first = found.pop().first
        found.append(Range(first=first, last=last, newest=newest))
    return tuple(found)


def _continued(known: Sequence[QueryRevision], index: int) -> QueryRevision:
    """The last of the forms that differ from this one by names of sources alone."""
    while index + 1 < len(known) and known[index + 1].continues:
        index += 1
    return known[index]


def means_the_same(one: QueryRevision, other: QueryRevision) -> bool:
    """Whether two forms are one query; an older version kept only a digest of its plan, as its Spark wrote it."""
    if one.form is not None and other.form is not None:
        try:
            forms_of_both = QueryForm.of(one.form), QueryForm.of(other.form)
        except (TypeError, KeyError, ValueError):
            return False  # Of a newer version, or damaged: nothing is proved by it.
        if not any(each.unreadable for each in forms_of_both):
            return worst(compare_forms(*forms_of_both)) in ("same", "safe")
    by_spark = one.spark != other.spark and one.shape is not None and one.shape == other.shape
    return one.fingerprint == other.fingerprint or by_spark


def verdict_by_ranges(
    query: Query,
    verdict: Verdict,
    snapshot: Snapshot,
    parts: Sequence[Range],
    answered: Callable[[Range], BatchAnswer],
) -> Verdict:
    """What can be said of a result that several forms made and that is not the answer of the newest one.

    answered: the answer of the query as it is now over the batches of a range.
    """
    own = [each for each in parts if each.newest]
    if query.mode == "update":
        # A later batch may have replaced what an earlier one gave.
        own = own[-1:]
    answers = [] if query.mode == "complete" else [answered(each) for each in own]
    if not answers or any(each.operators for each in answers):
        because = ", and its state carries from batch to batch, so that no range can be judged by itself"
        return replace(verdict, state="undecided", findings=(of_several_forms(query, parts, because),))
    rows: DataFrame = reduce(lambda one, other: one.unionByName(other), (each.frame for each in answers))
    found = compare(rows, snapshot.rows, snapshot.key, snapshot.rejected)
    lacking, judged = found.missing + found.different, " and ".join(map(str, own))
    verdict = replace(
        verdict,
        rows_expected=found.rows_expected,
        rows_actual=found.rows_actual,
        rows_set_aside=found.rejected,
        missing=found.missing,
        different=found.different,
        unexpected=0,
        differences=tuple(each for each in found.differences if each.kind != "unexpected"),
    )
    if lacking:
        return replace(verdict, state="mismatch", findings=(_lacking(query, lacking, judged),))
    rest = f", which cannot be computed again; what {judged} gave is all there"
    return replace(verdict, state="undecided", findings=(of_several_forms(query, parts, rest),))


def of_several_forms(query: Query, parts: Sequence[Range], rest: str = "") -> Finding:
    """That some batches were made by another form of the query; `rest`: what follows from it."""
    older = " and ".join(str(each) for each in parts if not each.newest)
    return Finding(
        code="HR650",
        what=f"{older} of query '{query.name}' were made by another form of it{rest}",
        fix="reset the query (headrace reset QUERY), which reads its sources again, if all rows are to mean the same",
        where=query.where,
    )


def _lacking(query: Query, rows: int, judged: str) -> Finding:
    return Finding(
        code="HR712",
        what=f"of what {judged} gave, {rows} rows are missing in the sink or have other values",
        fix="look at the rows below; if nothing else writes to the sink, reset the query (headrace reset QUERY)",
        where=query.where,
    )
