"""The verdict on a result by what it is compared with: the batch answer, another run, or the answers of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from headrace.contract import Snapshot
from headrace.errors import CheckFailed, Finding
from headrace.model import Query
from headrace.spark.plans.determinism import find_limit
from headrace.verifier import late_and_open
from headrace.verifier.answer import READ, UNTIMED, BatchAnswer, BatchQuery
from headrace.verifier.batch_ranges import Range, report_several_forms
from headrace.verifier.comparison import MOST, Comparison, compare
from headrace.verifier.late_and_open import LATE_METRIC, NEVER, OPEN_METRIC, REPLAYED, REVIVED, Caveat, list_late_rows
from headrace.verifier.rerun import Rerun
from headrace.verifier.scope import RowFilter
from headrace.verifier.verdict import State, Verdict, blame_the_sink, count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Mend = Callable[[DataFrame, Snapshot], None]

_RANK = "__headrace_rank"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the verdict on the result of a query follows from.

    in_scope: takes the rows that are compared. mend: see `verify_each`.
    """

    batch_query: BatchQuery
    expected: BatchAnswer
    snapshot: Snapshot
    rerun: Rerun
    in_scope: RowFilter
    mend: Mend | None = None

    @property
    def query(self) -> Query:
        return self.batch_query.query

    def verdict(self) -> Verdict:
        """Compare the sink with the batch answer; where a difference proves nothing, with another run as a stream."""
        undecided = Verdict(query=self.query.name, batch=self.batch_query.prefix.through, state="undecided")
        if self.expected.by_function:
            return self._by_rerun(undecided)
        with blame_the_sink(self.query, self.snapshot):
            comparison = self._compare(self.expected.frame)
        verdict = replace(
            with_counts(undecided, comparison),
            rows_read=comparison.sum_observed(READ),
            rows_untimed=comparison.sum_observed(READ, UNTIMED),
            rows_open=comparison.sum_observed(OPEN_METRIC),
            rows_replayed=comparison.sum_observed(LATE_METRIC, REPLAYED),
        )
        verdict = self._with_late_rows(verdict, comparison.sum_observed(LATE_METRIC))
        if comparison.equal:
            never = comparison.sum_observed(OPEN_METRIC, NEVER)
            findings = tuple(_report_differences_by_spark(self.query, never, 0, verdict.rows_untimed))
            return replace(verdict, state=_state_of_equal(verdict), missing=never, findings=findings)
        if reasons := tuple(self._reasons(comparison, verdict)):
            return self._by_rerun(replace(verdict, findings=reasons))
        self._mend(self.expected.frame)
        return replace(verdict, state="mismatch", findings=(report_mismatch(self.query, verdict.why),))

    def _compare(self, rows: DataFrame) -> Comparison:
        """Compare the sink with the rows that it must hold."""
        snapshot = self.snapshot
        return compare(self.in_scope(rows), self.in_scope(snapshot.rows), snapshot.key, snapshot.rejected)

    def _mend(self, rows: DataFrame) -> None:
        """Repair a sink that does not hold these rows, if that is asked for."""
        if self.mend is not None:
            self.mend(self.in_scope(rows), replace(self.snapshot, rows=self.in_scope(self.snapshot.rows)))

    def _with_late_rows(self, verdict: Verdict, late: int) -> Verdict:
        rows = tuple(list_late_rows(self.expected.late, MOST)) if late else ()
        return replace(verdict, rows_late=late, late=rows)

    def _reasons(self, comparison: Comparison, verdict: Verdict) -> Iterator[Finding]:
        """Return why these differences do not prove the sink wrong."""
        query, expected, key = self.query, self.expected, self.snapshot.key
        has_surplus = comparison.unexpected or comparison.different
        is_proof = expected.inner_joins_alone and (has_surplus or not verdict.rows_late)
        for caveat in expected.caveats:
            if isinstance(caveat, Caveat) and caveat.of_held_rows and is_proof:
                continue
            if (
                isinstance(caveat, Caveat)
                and caveat.of_equal_rows
                and not has_ties(self.batch_query.spark, expected.frame)
            ):
                continue
            yield caveat
        if revived := comparison.sum_observed(LATE_METRIC, REVIVED):
            yield late_and_open.doubt(
                query,
                f"{revived} rows in time for a session of their own may have missed one that was closed already",
                "allow more delay in the source's watermark; compare the differing sessions below by hand",
            )
        # In the other modes a database refuses a second row of one key.
        if key and query.mode == "update":
            distinct = self.in_scope(expected.frame).select(*[f"`{name}`" for name in key]).distinct().count()
            if shared := comparison.rows_expected - distinct:
                yield Finding(
                    code="HR709",
                    what=f"{shared} rows of query '{query.name}' share their key ({', '.join(key)}) with another row "
                    "of the answer",
                    fix="choose columns as the sink's key that identify a row of the result",
                    where=query.where,
                )

    def _by_rerun(self, undecided: Verdict) -> Verdict:
        """Return the verdict by another run over the same batches; `undecided`, with why, if none is possible."""
        query, expected, rerun = self.query, self.expected, self.rerun
        findings = undecided.findings or expected.caveats
        undecided = replace(undecided, findings=findings)
        if not all(isinstance(finding, Caveat) and finding.settled_by_rerun for finding in findings):
            return undecided
        if obstacle := rerun.obstacle():
            return replace(undecided, findings=(*findings, obstacle))
        by_order = expected.by_function or any(isinstance(caveat, Caveat) and caveat.by_order for caveat in findings)
        try:
            with rerun.rows() as rows, blame_the_sink(query, self.snapshot):
                comparison = self._compare(rows)
                verdict = with_counts(replace(undecided, shown_by="rerun", rows_open=0, findings=()), comparison)
                if expected.by_function:
                    verdict = self._with_counts_below(verdict)
                if not comparison.equal and by_order:
                    with rerun.rows(reordered=True) as other_rows:
                        if not compare(rows, other_rows, self.snapshot.key).equal:
                            runs = "runs with the rows of a batch in another order differ"
                            return replace(
                                verdict, state="undecided", findings=(late_and_open.report_order_of_rows(query, runs),)
                            )
                if not comparison.equal:
                    self._mend(rows)
        except CheckFailed as error:
            return replace(undecided, findings=(*findings, *error.findings))
        if comparison.equal:
            # Outside of the other run's settings, with which a batch query cannot be built.
            verdict = verdict if expected.by_function else self._against_batch(undecided, verdict)
            return replace(verdict, state=_state_of_equal(verdict))
        return replace(verdict, state="mismatch", findings=(report_mismatch(query, verdict.why),))

    def _against_batch(self, undecided: Verdict, verdict: Verdict) -> Verdict:
        """Add to a verdict by another run the rows by which the batch query, as in `undecided`, differs from it.

        Of what an operator holds back, the rest comes once the watermark is there; what is made of rows without an
        event time never does, and nor does what an operator lets go for another reason.
        """
        caveats = [finding for finding in undecided.findings if isinstance(finding, Caveat)]
        lacking, surplus = undecided.missing, undecided.unexpected
        if any(caveat.by_order for caveat in caveats):  # The batch query may choose others of the same rows.
            lacking, surplus = lacking - min(lacking, surplus), surplus - min(lacking, surplus)
        missing = lacking
        if all(caveat.of_held_rows or caveat.by_order for caveat in caveats):
            # What of it is made of rows that have a time may still come.
            still_open = lacking
            if lacking and verdict.rows_untimed:
                timed = self.batch_query.over(replace(self.batch_query.prefix, timed=True))
                still_open = self._compare(timed.answer().frame).missing
            missing = max(0, lacking - still_open)
        shown = tuple(difference for difference in undecided.differences if difference.kind != "different")
        return replace(
            verdict,
            rows_open=lacking - missing,
            missing=missing,
            unexpected=surplus,
            differences=shown if missing or surplus else (),
            findings=tuple(_report_differences_by_spark(self.query, missing, surplus, verdict.rows_untimed)),
        )

    def _with_counts_below(self, verdict: Verdict) -> Verdict:
        """Count the rows that came to a state function, and those too late for it: a batch can answer that much."""
        rows, untimed = self.rerun.count_rows_read()
        verdict = replace(verdict, rows_read=rows, rows_untimed=untimed)
        return self._with_late_rows(verdict, sum(dropped.rows.count() for dropped in self.expected.late))

    def verdict_by_ranges(self, verdict: Verdict, parts: Sequence[Range]) -> Verdict:
        """Judge a result that several forms made and that is not the answer of the newest one.

        What the newest form gave in its own batches must be there.
        """
        query, snapshot, prefix = self.query, self.snapshot, self.batch_query.prefix
        own = [part for part in parts if part.newest]
        if query.mode == "update":
            # A later batch may have replaced what an earlier one gave.
            own = own[-1:]
        answers: list[BatchAnswer] = []
        if query.mode != "complete":
            answers = [self.batch_query.over(prefix.part(part.first, part.last)).answer() for part in own]
        if not answers or any(answer.operators for answer in answers):
            because = ", and its state carries from batch to batch, so that no range can be judged by itself"
            return replace(verdict, state="undecided", findings=(report_several_forms(query, parts, because),))
        rows: DataFrame = reduce(lambda one, other: one.unionByName(other), (answer.frame for answer in answers))
        comparison = compare(self.in_scope(rows), self.in_scope(snapshot.rows), snapshot.key, snapshot.rejected)
        lacking, judged = comparison.missing + comparison.different, " and ".join(map(str, own))
        differences = tuple(difference for difference in comparison.differences if difference.kind != "unexpected")
        verdict = replace(with_counts(verdict, comparison), unexpected=0, differences=differences)
        if lacking:
            problem = f"of what {judged} gave, {lacking} rows are missing in the sink or have other values"
            return replace(verdict, state="mismatch", findings=(report_mismatch(query, problem),))
        rest = f", which cannot be computed again; what {judged} gave is all there"
        return replace(verdict, state="undecided", findings=(report_several_forms(query, parts, rest),))


def with_counts(verdict: Verdict, comparison: Comparison) -> Verdict:
    """Return the verdict with the counts of a comparison."""
    return replace(
        verdict,
        rows_expected=comparison.rows_expected,
        rows_actual=comparison.rows_actual,
        rows_set_aside=comparison.rejected,
        missing=comparison.missing,
        unexpected=comparison.unexpected,
        different=comparison.different,
        differences=comparison.differences,
    )


def _state_of_equal(verdict: Verdict) -> State:
    return "late" if verdict.rows_late else "open" if verdict.rows_open else "equal"


def _report_differences_by_spark(query: Query, missing: int, surplus: int, untimed: int) -> Iterator[Finding]:
    """Report what a stream lacks for good, or has more, although another run as a stream gives the same."""
    if missing or surplus:
        counts = ((missing, f"lacks {count_text(missing, 'row')}"), (surplus, f"has {count_text(surplus, 'row')} more"))
        because = f"; {count_text(untimed, 'row')} of its sources have no event time" if untimed else ""
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


def report_mismatch(query: Query, problem: str) -> Finding:
    """Return the finding for a sink that does not hold what it must."""
    fix = "look at the rows below; if nothing else writes to the sink, reset the query (headrace reset QUERY)"
    if query.sink.corrections is not None and query.sink.corrections.repair is not None:
        fix = f"look at the rows below; put them right: headrace verify {query.name} --repair"
    return Finding(code="HR712", what=problem, fix=fix, where=query.where)


def has_ties(spark: SparkSession, frame: DataFrame) -> bool:
    """Whether rows that are equal by the sort order lie on both sides of a limit, or a limit takes rows without order.

    Only a limit right above a sort over all rows is looked into, and it must be the only one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    limit = find_limit(spark, frame)
    if limit is None:
        return True
    ranked = limit.rows.select(F.rank().over(Window.orderBy(*limit.order)).alias(_RANK))
    return ranked.where(F.col(_RANK) <= limit.most).limit(limit.most + 1).count() > limit.most
