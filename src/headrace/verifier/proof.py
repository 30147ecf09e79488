"""The proof that the sink holds the batch answer over the committed prefix, also where several forms made it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from headrace.build.plan_builder import registered_tables
from headrace.build.project_session import borrowed
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.repartitions import Repartitions
from headrace.contract import Snapshot, readable_back
from headrace.errors import CheckFailed, Finding, HeadraceError
from headrace.history import History
from headrace.history.lag import find_left_out
from headrace.model import Project, Query
from headrace.queries.application import sink_context
from headrace.queries.blame import with_command
from headrace.queries.changes import AdoptionRecord, RebuildRecord, ResetRecord, require_ended
from headrace.queries.layout import QueryLayout, history_file, layout_of
from headrace.queries.rename_record import waiting_renames
from headrace.run.moved_project import not_brought_along
from headrace.run.state_store import session_settings
from headrace.spark.jvm.session_conf import applied
from headrace.spark.plans.determinism import limited
from headrace.verifier import late_and_open
from headrace.verifier.answer import READ, UNTIMED, BatchAnswer, answer, prefix_of
from headrace.verifier.batch_ranges import Range, of_several_forms, ranges, version_ranges
from headrace.verifier.cause import explained
from headrace.verifier.comparison import MOST, Comparison, compare, schema_differences
from headrace.verifier.late_and_open import LATE_METRIC, NEVER, OPEN_METRIC, REPLAYED, REVIVED, Caveat, listed
from headrace.verifier.rerun import Rerun, settings_of
from headrace.verifier.scope import WHOLE, Choice, RowScope
from headrace.verifier.verdict import State, Verdict, blamed_on_the_sink, counted, findings_of

# A JVM with both compilers begins a second later, and reads a row in two thirds of the time.
MANY_ROWS = 1_000_000

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Mend = Callable[[DataFrame, Snapshot], None]


def verify(project: Project, query: str, *, spark: SparkSession | None = None, scope: RowScope = WHOLE) -> Verdict:
    """Compare what the sink of `query` holds with the batch answer over the prefix that it has committed.

    Nothing is written, and the session stays as it was. The query may be running meanwhile. What keeps the verdict
    open, such as a missing file or a damaged checkpoint, is reported by the verdict's findings. Raises ProjectError
    when no query has that name and PlatformError when no session can be started.
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
    """The verdict of each of `queries`, as soon as it is found; see `verify`.

    scope: which rows are compared. mend: called with the rows that a wrong sink must hold, and with what it holds,
    where one form of the query has made all of it.
    """
    with ExitStack() as opened:
        for name in queries:
            begun = time.monotonic()
            declared = project.query(name)
            committed, findings = _prospects(project, declared)
            if findings:
                verdict = Verdict(query=name, batch=committed, state="undecided", findings=findings)
            else:
                spark = spark or opened.enter_context(borrowed(project, much=reads_much(project, queries)))
                with borrowed(project, spark) as session, applied(session, session_settings(project, session)):
                    try:
                        with registered_tables(project, declared, session):
                            verdict = _proved(project, declared, committed, session, scope, mend)
                    except Exception as error:  # What one query cannot be proved for is no trouble of the others.
                        findings = findings_of(declared, error)
                        verdict = Verdict(query=name, batch=committed, state="undecided", findings=findings)
                    with suppress(Exception):  # The verdict is there, whether that can be told or not.
                        never_given = tuple(find_left_out(project, declared, layout_of(project, declared)))
                        verdict = replace(verdict, findings=(*verdict.findings, *never_given))
            yield replace(
                verdict,
                shares=tuple(_shared(project, declared, verdict)),
                scope=str(scope),
                seconds=time.monotonic() - begun,
                findings=tuple(with_command(declared, project.redacted_finding(each)) for each in verdict.findings),
            )


def _shared(project: Project, query: Query, verdict: Verdict) -> Iterator[str]:
    """What a verdict shares with the run that it judges."""
    if verdict.batch is not None:
        yield f"how {' and '.join(repr(source.name) for source in project.sources_of(query))} are read"
        if verdict.rows_untimed:
            yield "what Spark makes of rows without an event time"
        if verdict.rerun:
            yield "Spark's operators with state, and their order of rows"


def reads_much(project: Project, queries: Sequence[str]) -> bool:
    """Whether these queries have taken many rows, by the history; without one it is not known."""
    file = history_file(project.local_storage)
    with suppress(HeadraceError, OSError):
        if file.exists():
            with History.open(file, read_only=True) as history:
                return sum(each.rows_total for each in history.statuses() if each.query in queries) >= MANY_ROWS
    return False


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
    require_ended(layout, ResetRecord, AdoptionRecord)
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
        yield from RebuildRecord.cut_offs(layout)
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


def _proved(
    project: Project, query: Query, committed: int | None, spark: SparkSession, scope: RowScope, mend: Mend | None
) -> Verdict:
    layout = layout_of(project, query)
    run = sink_context(project, query, layout)
    with blamed_on_the_sink(query):
        snapshot = query.sink.read_back(spark, run)
    through = committed if snapshot.batch is None else snapshot.batch
    if through is None:
        return Verdict(query=query.name, batch=None, state="undecided", findings=(uncommitted(query),))
    if committed is not None and through < committed:
        lost = Finding(
            code="HR704",
            what=f"the sink holds batches up to {through}, but batch {committed} was committed: {committed - through} "
            "are lost",
            fix="restore the checkpoint of the same time as the sink, or reset the query (headrace reset QUERY)",
            where=query.where,
        )
        return Verdict(query=query.name, batch=through, state="mismatch", findings=(lost,))
    prefix = replace(prefix_of(project, query, layout, through), traced=scope.since is not None)
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
    only = scope.choice(query, spark, expected, snapshot.key)
    again = Rerun(
        project=project,
        query=query,
        prefix=prefix,
        over=over,
        left_out=Repartitions(layout.repartitions).batches(Checkpoint(layout.checkpoint)),
        conf=settings_of(Checkpoint(layout.checkpoint), through),
    )
    evidence = Evidence(
        query=query,
        batch=through,
        expected=expected,
        snapshot=snapshot,
        again=again,
        spark=spark,
        only=only,
        timed=lambda: answer(
            project, query, replace(prefix, timed=True), spark, over, snapshot.key, replayed=snapshot.replayed
        ),
        mend=mend if len(parts) == 1 else None,
    )
    verdict = verdict_of(evidence)
    if len(parts) > 1 and verdict.state in ("mismatch", "undecided"):
        with blamed_on_the_sink(query, snapshot):
            verdict = verdict_by_ranges(query, verdict, snapshot, parts, answered, only)
    if verdict.state == "mismatch" and not expected.by_function:
        with suppress(Exception):  # As below.
            verdict = replace(verdict, findings=tuple(_advise(query, expected.frame, verdict.findings)))
    if verdict.state == "mismatch" and verdict.differences:
        with suppress(Exception):  # The verdict is there, whether its rows are explained or not.
            named = replace(prefix, named=True, traced=True)
            asked = answer(project, query, named, spark, over, snapshot.key, replayed=snapshot.replayed)
            verdict = replace(verdict, differences=explained(spark, asked, snapshot.key, verdict.differences))
    return verdict


def verdict_by_ranges(
    query: Query,
    verdict: Verdict,
    snapshot: Snapshot,
    parts: Sequence[Range],
    answered: Callable[[Range], BatchAnswer],
    only: Choice,
) -> Verdict:
    """What can be said of a result that several forms made and that is not the answer of the newest one.

    answered: the answer of the query as it is now over the batches of a range. only: takes the rows that are compared.
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
    found = compare(only(rows), only(snapshot.rows), snapshot.key, snapshot.rejected)
    lacking, judged = found.missing + found.different, " and ".join(map(str, own))
    known = tuple(each for each in found.differences if each.kind != "unexpected")
    verdict = replace(_compared(verdict, found), unexpected=0, differences=known)
    if lacking:
        what = f"of what {judged} gave, {lacking} rows are missing in the sink or have other values"
        return replace(verdict, state="mismatch", findings=(wrong(query, what),))
    rest = f", which cannot be computed again; what {judged} gave is all there"
    return replace(verdict, state="undecided", findings=(of_several_forms(query, parts, rest),))


_RANK = "__headrace_rank"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a verdict on `query` up to `batch` is found from: of the rows that `only` takes.

    timed: gives the answer over the rows that have an event time. mend: see `verify_each`.
    """

    query: Query
    batch: int
    expected: BatchAnswer
    snapshot: Snapshot
    again: Rerun
    spark: SparkSession
    only: Choice
    timed: Callable[[], BatchAnswer]
    mend: Mend | None = None

    def compared(self, rows: DataFrame) -> Comparison:
        """The sink against the rows that it must hold."""
        snapshot = self.snapshot
        return compare(self.only(rows), self.only(snapshot.rows), snapshot.key, snapshot.rejected)

    def mended(self, rows: DataFrame) -> None:
        """Let a sink that does not hold these rows be put right, if that was asked for."""
        if self.mend is not None:
            self.mend(self.only(rows), replace(self.snapshot, rows=self.only(self.snapshot.rows)))


def verdict_of(evidence: Evidence) -> Verdict:
    """Compare the sink with the batch answer; where a difference proves nothing, with another run as a stream."""
    query, snapshot, expected = evidence.query, evidence.snapshot, evidence.expected
    if expected.by_function:
        return _by_rerun(evidence, Verdict(query=query.name, batch=evidence.batch, state="undecided"))
    with blamed_on_the_sink(query, snapshot):
        found = evidence.compared(expected.frame)
    verdict = _counted(evidence, found)
    if found.equal:
        never = found.observed(OPEN_METRIC, NEVER)
        lacking = tuple(_left_out_by_spark(query, never, 0, verdict.rows_untimed))
        return replace(verdict, state=_fine(verdict), missing=never, findings=lacking)
    reasons = tuple(_reasons(evidence, found, verdict))
    if not reasons:
        evidence.mended(expected.frame)
        return replace(verdict, state="mismatch", findings=(wrong(query, verdict.why),))
    verdict = replace(verdict, state="undecided", findings=reasons)
    return _by_rerun(evidence, verdict)


def _counted(evidence: Evidence, found: Comparison) -> Verdict:
    late = found.observed(LATE_METRIC)
    verdict = Verdict(
        query=evidence.query.name,
        batch=evidence.batch,
        state="equal",
        rows_read=found.observed(READ),
        rows_untimed=found.observed(READ, UNTIMED),
        rows_open=found.observed(OPEN_METRIC),
        rows_late=late,
        rows_replayed=found.observed(LATE_METRIC, REPLAYED),
        late=tuple(listed(evidence.expected.late, MOST)) if late else (),
    )
    return _compared(verdict, found)


def _compared(verdict: Verdict, found: Comparison) -> Verdict:
    return replace(
        verdict,
        rows_expected=found.rows_expected,
        rows_actual=found.rows_actual,
        rows_set_aside=found.rejected,
        missing=found.missing,
        unexpected=found.unexpected,
        different=found.different,
        differences=found.differences,
    )


def _fine(verdict: Verdict) -> State:
    return "late" if verdict.rows_late else "open" if verdict.rows_open else "equal"


def _reasons(evidence: Evidence, found: Comparison, verdict: Verdict) -> Iterator[Finding]:
    """Why these differences do not prove the sink wrong."""
    query, expected, snapshot = evidence.query, evidence.expected, evidence.snapshot
    proved = expected.inner_joins_alone and (found.unexpected or found.different or not verdict.rows_late)
    for caveat in expected.caveats:
        if isinstance(caveat, Caveat) and caveat.of_held_rows and proved:
            continue
        if isinstance(caveat, Caveat) and caveat.of_equal_rows and not tied(evidence.spark, expected.frame):
            continue
        yield caveat
    if revived := found.observed(LATE_METRIC, REVIVED):
        yield late_and_open.revived_sessions(query, revived)
    # In the other modes a database refuses a second row of one key.
    if snapshot.key and query.mode == "update":
        distinct = evidence.only(expected.frame).select(*[f"`{name}`" for name in snapshot.key]).distinct().count()
        if distinct < found.rows_expected:
            yield late_and_open.unfit_key(query, snapshot.key, found.rows_expected - distinct)


def _by_rerun(evidence: Evidence, undecided: Verdict) -> Verdict:
    """The verdict by another run over the same batches; `undecided`, with the reason, where there can be none."""
    query, snapshot, expected = evidence.query, evidence.snapshot, evidence.expected
    findings = undecided.findings or expected.caveats
    undecided = replace(undecided, findings=findings)
    if not all(isinstance(each, Caveat) and each.settled_by_rerun for each in findings):
        return undecided
    again, key = evidence.again, snapshot.key
    if obstacle := again.obstacle(replayed=snapshot.replayed):
        return replace(undecided, findings=(*findings, obstacle))
    try:
        with again.rows(evidence.spark, key) as rows, blamed_on_the_sink(query, snapshot):
            found = evidence.compared(rows)
            verdict = _compared(replace(undecided, shown_by="rerun", rows_open=0, findings=()), found)
            if expected.by_function:
                verdict = _with_counts_below(evidence, verdict)
            ordered = expected.by_function or any(isinstance(each, Caveat) and each.by_order for each in findings)
            if not found.equal and ordered:
                with again.rows(evidence.spark, key, reordered=True) as other:
                    if not compare(rows, other, key).equal:
                        of = "runs with the rows of a batch in another order differ"
                        reason = late_and_open.order_of_rows(query, of)
                        return replace(verdict, state="undecided", findings=(reason,))
            if not found.equal:
                evidence.mended(rows)
    except CheckFailed as error:
        return replace(undecided, findings=(*findings, *error.findings))
    if found.equal:
        # Outside of the other run's settings, with which a batch query cannot be built.
        verdict = verdict if expected.by_function else _against_batch(evidence, undecided, verdict)
        return replace(verdict, state=_fine(verdict))
    return replace(verdict, state="mismatch", findings=(wrong(query, verdict.why),))


def _against_batch(evidence: Evidence, undecided: Verdict, verdict: Verdict) -> Verdict:
    """A verdict by another run with the rows by which the batch query differs from it, as `undecided` counts them.

    Of what an operator holds back, the rest comes once the watermark is there; what is made of rows without an event
    time never does, and nor does what an operator lets go for another reason.
    """
    caveats = [each for each in undecided.findings if isinstance(each, Caveat)]
    lacking, surplus = undecided.missing, undecided.unexpected
    if any(each.by_order for each in caveats):  # The batch query may choose others of the same rows.
        lacking, surplus = lacking - min(lacking, surplus), surplus - min(lacking, surplus)
    missing = lacking
    if all(each.of_held_rows or each.by_order for each in caveats):
        # What of it is made of rows that have a time may still come.
        timed = evidence.compared(evidence.timed().frame).missing if lacking and verdict.rows_untimed else lacking
        missing = max(0, lacking - timed)
    shown = tuple(each for each in undecided.differences if each.kind != "different")
    return replace(
        verdict,
        rows_open=lacking - missing,
        missing=missing,
        unexpected=surplus,
        differences=shown if missing or surplus else (),
        findings=tuple(_left_out_by_spark(evidence.query, missing, surplus, verdict.rows_untimed)),
    )


def _left_out_by_spark(query: Query, missing: int, surplus: int, untimed: int) -> Iterator[Finding]:
    if missing or surplus:
        counts = ((missing, f"lacks {counted(missing, 'row')}"), (surplus, f"has {counted(surplus, 'row')} more"))
        because = f"; {counted(untimed, 'row')} of its sources have no event time" if untimed else ""
        yield Finding(
            code="HR687",
            what=f"against its batch query, the result of query '{query.name}' "
            f"{' and '.join(words for number, words in counts if number)}, as Spark runs it as a stream{because}",
            fix="give such rows a time where they come from, or filter them out in the query, and rebuild it: "
            f"headrace rebuild {query.name}"
            if untimed
            else "look at the rows below: Spark's operators with state gave them otherwise than a batch does",
            where=query.where,
        )


def _with_counts_below(evidence: Evidence, verdict: Verdict) -> Verdict:
    """The rows that came to a state function, and those that were too late for it: a batch can answer that much."""
    late = sum(each.rows.count() for each in evidence.expected.late)
    rows, untimed = evidence.again.rows_read(evidence.spark)
    return replace(
        verdict,
        rows_read=rows,
        rows_untimed=untimed,
        rows_late=late,
        late=tuple(listed(evidence.expected.late, MOST)) if late else (),
    )


def wrong(query: Query, what: str) -> Finding:
    """The sink holds something else than it must."""
    fix = "look at the rows below; if nothing else writes to the sink, reset the query (headrace reset QUERY)"
    if query.sink.corrections is not None and query.sink.corrections.repair is not None:
        fix = f"look at the rows below; put them right: headrace verify {query.name} --repair"
    return Finding(code="HR712", what=what, fix=fix, where=query.where)


def _advise(query: Query, frame: DataFrame, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings; where no batch can write a row of the answer, with what to do first: a reset would end there."""
    from pyspark.sql import functions as F

    refused = list(query.sink.refused_values(frame))
    flags = frame.select(*[F.max(each.condition) for each in refused]).first() if refused else None
    faults = [each for each, is_there in zip(refused, flags or (), strict=False) if is_there]
    for finding in findings:
        if faults:
            what = f"{finding.what}; {faults[0].what}"
            finding = finding.but(what=what, fix=f"{faults[0].fix}; then reset the query (headrace reset QUERY)")
        yield finding


def tied(spark: SparkSession, frame: DataFrame) -> bool:
    """Whether rows that are equal by the sort order lie on both sides of a limit, or a limit takes rows without order.

    Only a limit right above a sort over all rows is looked into, and it must be the only one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    limit = limited(spark, frame)
    if limit is None:
        return True
    ranked = limit.rows.select(F.rank().over(Window.orderBy(*limit.order)).alias(_RANK))
    return ranked.where(F.col(_RANK) <= limit.most).limit(limit.most + 1).count() > limit.most
