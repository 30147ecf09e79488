"""What every exactly-once sink shares: whether its ledger and the checkpoint tell of the same batches."""

from headrace.connectors.exactly_once.fit import behind, other_batch, require_fit, view_of
from headrace.connectors.exactly_once.judgement import (
    Ahead,
    Behind,
    BrokenChain,
    CheckpointView,
    Judgement,
    Line,
    NotRestorable,
    OtherBatch,
    OtherCheckpoint,
    Same,
    is_same_batch,
    judge,
    view,
)

__all__ = [
    "Ahead",
    "Behind",
    "BrokenChain",
    "CheckpointView",
    "Judgement",
    "Line",
    "NotRestorable",
    "OtherBatch",
    "OtherCheckpoint",
    "Same",
    "behind",
    "is_same_batch",
    "judge",
    "other_batch",
    "require_fit",
    "view",
    "view_of",
]
