"""What the functions of `headrace` give back, for annotations: each class under its public name."""

from headrace.change.adopt import Adopt, Adoption, AdoptionPlan
from headrace.change.change import Change
from headrace.change.comparison import RebuildReport
from headrace.change.rebuild import Rebuild, RebuildPlan, RebuildResult
from headrace.change.repair import Repair, RepairPlan, RepairResult
from headrace.change.reset import Reset, ResetPlan, ResetResult
from headrace.change.rewind import Rewind, RewindPlan, RewindResult
from headrace.change.shadow import RebuildStatus
from headrace.check.result import CheckResult, Guarantee, Link
from headrace.contract import Outcome, QueryState
from headrace.observe.board import OrderAnswer, RunResult
from headrace.observe.control_client import RunningApplications
from headrace.observe.history import Event, QueryStatus
from headrace.plan.verdict import Judgement
from headrace.queries.changes import ChangeStatus
from headrace.queries.inspect_checkpoint import Inspected, StoredStatus
from headrace.run.handles import ApplicationHandle
from headrace.run.state_store import Repartitioned
from headrace.verify import Difference, InputRow, Lateness, LateRow, OperatorLateRows, Replayed, Verdict
from headrace.verify.inspect_progress import BatchOffsets, Watermarks
from headrace.verify.inspect_state import StateLook

__all__ = [
    "Adopt",
    "Adoption",
    "AdoptionPlan",
    "ApplicationHandle",
    "BatchOffsets",
    "Change",
    "ChangeStatus",
    "CheckResult",
    "Difference",
    "Event",
    "Guarantee",
    "InputRow",
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
    "Rebuild",
    "RebuildPlan",
    "RebuildReport",
    "RebuildResult",
    "RebuildStatus",
    "Repair",
    "RepairPlan",
    "RepairResult",
    "Repartitioned",
    "Replayed",
    "Reset",
    "ResetPlan",
    "ResetResult",
    "Rewind",
    "RewindPlan",
    "RewindResult",
    "RunResult",
    "RunningApplications",
    "StateLook",
    "StoredStatus",
    "Verdict",
    "Watermarks",
]
