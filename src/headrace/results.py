"""What the functions of `headrace` give back, for annotations: each class under its public name."""

from headrace.change.plans import Adoption, AdoptionPlan, ResetPlan, ResetResult, RewindPlan, RewindResult
from headrace.change.rebuild.values import RebuildReport, RebuildResult, RebuildStatus
from headrace.check.result import CheckResult, Guarantee, Link
from headrace.contract import Outcome, QueryState
from headrace.observe.board import OrderAnswer, RunResult
from headrace.observe.history import Event, QueryStatus
from headrace.plan.verdict import Judgement
from headrace.queries.inspect_checkpoint import Inspected, StoredStatus
from headrace.run.handles import ApplicationHandle
from headrace.run.state_store import Repartitioned
from headrace.verify import Difference, Lateness, LateRow, OperatorLateRows, Replayed, Verdict
from headrace.verify.inspect_progress import BatchOffsets, Watermarks
from headrace.verify.inspect_state import StateLook

__all__ = [
    "Adoption",
    "AdoptionPlan",
    "ApplicationHandle",
    "BatchOffsets",
    "CheckResult",
    "Difference",
    "Event",
    "Guarantee",
    "Inspected",
    "Judgement",
    "LateRow",
    "Lateness",
    "Link",
    "OperatorLateRows",
    "OrderAnswer",
    "Outcome",
    "QueryState",
    "QueryStatus",
    "RebuildReport",
    "RebuildResult",
    "RebuildStatus",
    "Repartitioned",
    "Replayed",
    "ResetPlan",
    "ResetResult",
    "RewindPlan",
    "RewindResult",
    "RunResult",
    "StateLook",
    "StoredStatus",
    "Verdict",
    "Watermarks",
]
