"""What the functions of `headrace` give back, for annotations: each class under its public name."""

from headrace.change.plans import Adoption, AdoptionPlan, ResetPlan, ResetResult, RewindPlan, RewindResult
from headrace.change.rebuild.values import RebuildReport, RebuildResult, RebuildStatus
from headrace.check.guarantee import Guarantee, Link
from headrace.check.result import CheckResult
from headrace.contract import Outcome, QueryState
from headrace.observe.history import Event, QueryStatus
from headrace.observe.orders import OrderAnswer
from headrace.plan.judgement import Judgement
from headrace.queries.checkpoint_look import Inspected
from headrace.queries.stored_status import StoredStatus
from headrace.run.handles import ApplicationHandle
from headrace.run.repartition import Repartitioned
from headrace.run.result import RunResult
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
