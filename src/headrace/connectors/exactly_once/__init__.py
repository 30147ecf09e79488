"""What every exactly-once sink shares: how a batch is taken, its ledger line, the acceptance of both.

A sink of another distribution may import what is named here, and no more of it.
"""

from headrace.connectors.exactly_once.acceptance import CheckpointView as CheckpointView
from headrace.connectors.exactly_once.acceptance import KeptLine as KeptLine
from headrace.connectors.exactly_once.acceptance import misfits as misfits
from headrace.connectors.exactly_once.acceptance import plans as plans
from headrace.connectors.exactly_once.acceptance import require_lines_fit as require_lines_fit
from headrace.connectors.exactly_once.acceptance import require_own_generation as require_own_generation
from headrace.connectors.exactly_once.acceptance import view_of as view_of
from headrace.connectors.exactly_once.batches import CONTENDED as CONTENDED
from headrace.connectors.exactly_once.batches import Admission as Admission
from headrace.connectors.exactly_once.batches import Admitted as Admitted
from headrace.connectors.exactly_once.batches import BatchStore as BatchStore
from headrace.connectors.exactly_once.batches import BatchWriter as BatchWriter
from headrace.connectors.exactly_once.batches import Conflict as Conflict
from headrace.connectors.exactly_once.batches import Retry as Retry
from headrace.connectors.exactly_once.batches import RowsLost as RowsLost
from headrace.connectors.exactly_once.batches import Standing as Standing
from headrace.connectors.exactly_once.batches import take_epoch as take_epoch
from headrace.connectors.exactly_once.marks import is_applied as is_applied
from headrace.connectors.exactly_once.text_ledger import LinesLedger as LinesLedger
from headrace.connectors.exactly_once.text_ledger import TextLedger as TextLedger
from headrace.connectors.exactly_once.text_ledger import TextStore as TextStore
