"""The wrong rows of a result put right: written, replaced and deleted by their key, in one transaction of the sink.

No record is kept outside the sink: its transaction is the only step, and what it has replaced is kept by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.changes.change import Change
from headrace.contract import Correction, SinkRepair, Snapshot
from headrace.errors import PlainData
from headrace.model import Project
from headrace.verifier.comparison import find_corrections
from headrace.verifier.proof import verify_each
from headrace.verifier.scope import WHOLE, RowScope
from headrace.verifier.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class RepairPlan(PlainData):
    """What a repair does.

    Attributes:
        written: The number of rows that it writes.
        deleted: The number of rows that it deletes without writing others.
        verdict: What is wrong with the result.
    """

    query: str
    written: int
    deleted: int
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class RepairResult(PlainData):
    """The outcome of a repair.

    Attributes:
        done: What was done.
        plan: The plan that was carried out.
    """

    optional: ClassVar[tuple[str, ...]] = ("plan",)
    query: str
    done: str
    plan: RepairPlan | None = None


class Repair(Change[RepairPlan, RepairResult]):
    """The rows in which a result differs from the batch answer, put right; `scope`: which of them.

    After a crash it was made or not, and the same is called again. `undo` is possible until another batch is in.
    """

    name, _done = "repair", "repaired"
    status = None

    def __init__(
        self, project: Project, query: str, *, scope: RowScope = WHOLE, spark: SparkSession | None = None
    ) -> None:
        super().__init__(project, query, spark=spark)
        self.scope = scope

    def _preview(self) -> RepairPlan:
        return self._repair(lambda correction: None)

    def _make_steps(self, reached: Callable[[str], None]) -> RepairResult:
        def carry_out(correction: Correction) -> None:
            with self.name_sink_faults():
                self._ability().apply(correction, self.context(self.live))
            reached("sink")

        return RepairResult(query=self.query.name, done="repair", plan=self._repair(carry_out))

    def _undone(self, reached: Callable[[str], None]) -> RepairResult:
        with self.name_sink_faults():
            self._ability().undo(self.context(self.live))
        reached("sink")
        return RepairResult(query=self.query.name, done="undo")

    def _discard_steps(self, reached: Callable[[str], None]) -> RepairResult:
        raise self._nothing("what a repair has replaced is deleted by the next one")

    def _repair(self, carry_out: Callable[[Correction], None]) -> RepairPlan:
        """What is wrong, while the sink is as it was found; `carry_out` is given what puts it right."""
        self._ability()
        counts, failed = list[int](), list[Exception]()

        def mend(expected: DataFrame, held: Snapshot) -> None:
            try:
                with find_corrections(expected, held) as (rows, deletes):
                    counts.extend((rows.count(), deletes.count()))
                    carry_out(Correction(snapshot=held, rows=rows, deletes=deletes))
            except Exception as error:  # A verdict would only report it.
                failed.append(error)

        [verdict] = verify_each(self.project, [self.query.name], spark=self.spark, scope=self.scope, mend=mend)
        if failed:
            raise failed[0]
        if verdict.state not in ("mismatch", "undecided"):
            raise self._nothing(f"there is nothing to repair of query '{self.query.name}': {verdict.sentence}")
        if not counts:
            look = f"look at it: headrace verify {self.query.name}; or {self._recompute_advice()}"
            fix = next(
                (finding.fix for finding in verdict.findings if finding.severity == "error" and finding.fix), look
            )
            raise self._refusal(f"it is not known which rows are wrong: {verdict.why}", fix)
        written, deleted = counts
        return RepairPlan(query=self.query.name, written=written, deleted=deleted, verdict=verdict)

    def _ability(self) -> SinkRepair:
        sink = self.query.sink
        repair = None if sink.corrections is None else sink.corrections.repair
        if repair is None:
            keyless = "has no key by which a wrong row could be replaced"
            why = keyless if hasattr(sink, "key") else "cannot replace single rows"
            raise self._refusal(f"its sink '{self.query.sink_kind}' {why}", self._recompute_advice())
        return repair

    def _recompute_advice(self) -> str:
        way = "rebuild" if self.query.sink.swap is not None else "reset"
        return f"compute the result again: headrace {way} {self.query.name}"
