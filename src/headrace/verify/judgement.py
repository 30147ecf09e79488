"""The verdict that the batch answer, the sink's rows and, where those do not tell, another run give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.contract import Snapshot
from headrace.errors import CheckFailed, Finding
from headrace.model import Query
from headrace.spark.plans.determinism import limited
from headrace.spark.plans.plan_text import metric, metrics_of
from headrace.verify import late_and_open
from headrace.verify.answer import READ, BatchAnswer
from headrace.verify.comparison import MOST, Comparison, compare
from headrace.verify.late_and_open import LATE_METRIC, OPEN_METRIC, REPLAYED, REVIVED, Caveat, LateInput
from headrace.verify.lateness import listed
from headrace.verify.rerun import Rerun
from headrace.verify.verdict import LateRow, State, Verdict, blamed_on_the_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANK = "__headrace_rank"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a verdict on `query` up to `batch` is found from."""

    query: Query
    batch: int
    expected: BatchAnswer
    snapshot: Snapshot
    again: Rerun
    spark: SparkSession


def verdict_of(evidence: Evidence) -> Verdict:
    """Compare the sink with the batch answer; where a difference proves nothing, with another run as a stream."""
    query, snapshot, expected = evidence.query, evidence.snapshot, evidence.expected
    if expected.by_function:
        return _by_rerun(evidence, Verdict(query=query.name, batch=evidence.batch, state="undecided"))
    with blamed_on_the_sink(query, snapshot):
        found = compare(expected.frame, snapshot.rows, snapshot.key, snapshot.rejected)
    verdict = _counted(evidence, found)
    if found.equal:
        return replace(verdict, state=_fine(verdict))
    reasons = tuple(_reasons(evidence, found, verdict))
    if not reasons:
        return replace(verdict, state="mismatch", findings=(_wrong(query, verdict),))
    verdict = replace(verdict, state="undecided", findings=reasons)
    return _by_rerun(evidence, verdict) if all(map(_is_settled_by_rerun, reasons)) else verdict


def _counted(evidence: Evidence, found: Comparison) -> Verdict:
    counted = {name: metric(found.executed, name) for name in metrics_of(found.executed)}
    late = sum(rows for name, rows in counted.items() if name.startswith(LATE_METRIC))
    verdict = Verdict(
        query=evidence.query.name,
        batch=evidence.batch,
        state="equal",
        rows_read=sum(rows for name, rows in counted.items() if name.startswith(READ)),
        rows_open=sum(rows for name, rows in counted.items() if name.startswith(OPEN_METRIC)),
        rows_late=late,
        rows_replayed=sum(metric(found.executed, name, REPLAYED) for name in counted if name.startswith(LATE_METRIC)),
        late=tuple(_first_late(evidence.expected.late)) if late else (),
    )
    return _with(verdict, found)


def _with(verdict: Verdict, found: Comparison) -> Verdict:
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
    names = [name for name in metrics_of(found.executed) if name.startswith(LATE_METRIC)]
    revived = sum(metric(found.executed, name, REVIVED) for name in names)
    if revived:
        yield late_and_open.revived_sessions(query, revived)
    # In the other modes a database refuses a second row of one key.
    if snapshot.key and query.mode == "update":
        distinct = expected.frame.select(*[f"`{name}`" for name in snapshot.key]).distinct().count()
        if distinct < found.rows_expected:
            yield late_and_open.unfit_key(query, snapshot.key, found.rows_expected - distinct)


def _by_rerun(evidence: Evidence, undecided: Verdict) -> Verdict:
    """The verdict by another run over the same batches; `undecided`, with the reason, where there can be none."""
    query, snapshot, expected = evidence.query, evidence.snapshot, evidence.expected
    findings = undecided.findings or expected.caveats
    undecided = replace(undecided, findings=findings)
    if not all(map(_is_settled_by_rerun, findings)):
        return undecided
    again, key = evidence.again, snapshot.key
    if obstacle := again.obstacle(replayed=snapshot.replayed):
        return replace(undecided, findings=(*findings, obstacle))
    try:
        with again.rows(evidence.spark, key) as rows, blamed_on_the_sink(query, snapshot):
            found = compare(rows, snapshot.rows, key, snapshot.rejected)
            verdict = _with(replace(undecided, rerun=True, findings=()), found)
            if expected.by_function:
                verdict = _with_counts_below(evidence, verdict)
            if found.equal:
                return replace(verdict, rows_open=0, state=_fine(replace(verdict, rows_open=0)))
            by_order = expected.by_function or any(isinstance(each, Caveat) and each.by_order for each in findings)
            if by_order:
                with again.rows(evidence.spark, key, reordered=True) as other:
                    if not compare(rows, other, key).equal:
                        reason = late_and_open.order_of_rows(
                            query, "runs with the rows of a batch in another order differ"
                        )
                        return replace(verdict, state="undecided", findings=(reason,))
    except CheckFailed as error:
        return replace(undecided, findings=(*findings, *error.findings))
    return replace(verdict, state="mismatch", findings=(_wrong(query, verdict),))


def _is_settled_by_rerun(reason: Finding) -> bool:
    return isinstance(reason, Caveat) and reason.settled_by_rerun


def _with_counts_below(evidence: Evidence, verdict: Verdict) -> Verdict:
    """The rows that came to a state function, and those that were too late for it: a batch can answer that much."""
    late = sum(each.rows.count() for each in evidence.expected.late)
    return replace(
        verdict,
        rows_read=evidence.again.rows_read(evidence.spark),
        rows_late=late,
        late=tuple(_first_late(evidence.expected.late)) if late else (),
    )


def _first_late(inputs: tuple[LateInput, ...]) -> Iterator[LateRow]:
    room = MOST
    for each in inputs:
        found = listed(each, room)
        room -= len(found)
        yield from found


def _wrong(query: Query, verdict: Verdict) -> Finding:
    return Finding(
        code="HR712",
        what=verdict.why,
        fix="look at the rows below; if nothing else writes to the sink, reset the query (headrace reset QUERY)",
        where=query.where,
    )


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
