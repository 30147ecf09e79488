"""What every exactly-once sink shares: how a batch is taken, its ledger line, the acceptance of both.

A sink of another distribution may import what is named here, and no more of it.
"""

from headrace.connectors.exactly_once.acceptance import (
    BatchLine,
    CheckpointView,
    KeptLine,
    misfits,
    plans,
    require_fit,
    require_lines_fit,
    require_own_generation,
    view_of,
)
from headrace.connectors.exactly_once.batches import (
    CONTENDED,
    Admission,
    Admitted,
    BatchStore,
    BatchWriter,
    Conflict,
    Retry,
    RowsLost,
    Standing,
    take_epoch,
)
from headrace.connectors.exactly_once.text_ledger import TextLedger, TextStore

__all__ = [
    "CONTENDED",
    "Admission",
    "Admitted",
    "BatchLine",
    "BatchStore",
    "BatchWriter",
    "CheckpointView",
    "Conflict",
    "KeptLine",
    "Retry",
    "RowsLost",
    "Standing",
    "TextLedger",
    "TextStore",
    "misfits",
    "plans",
    "require_fit",
    "require_lines_fit",
    "require_own_generation",
    "take_epoch",
    "view_of",
]
