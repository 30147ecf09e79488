"""What a source, a sink and an observer must offer, and the facts that connectors declare of themselves.

A connector is a frozen, keyword-only dataclass that extends `Source` or `Sink`: its fields are its options. It writes
two members and overrides what it can do better than the default. Checks and guarantees are computed from its facts
alone; the conformance suite (`headrace.testing.conformance`) proves each of them.
"""

from headrace.checkpoint.prefix import SourceBatch as SourceBatch
from headrace.checkpoint.prefix import SourcePrefix as SourcePrefix
from headrace.contract.batch_record import BatchRecord as BatchRecord
from headrace.contract.batch_record import Leap as Leap
from headrace.contract.batch_record import OperatorProgress as OperatorProgress
from headrace.contract.batch_record import SourceProgress as SourceProgress
from headrace.contract.connector import Ability as Ability
from headrace.contract.connector import Connector as Connector
from headrace.contract.connector import Failure as Failure
from headrace.contract.connector import Jars as Jars
from headrace.contract.connector import OptionError as OptionError
from headrace.contract.connector import ProjectObject as ProjectObject
from headrace.contract.connector import ProjectPath as ProjectPath
from headrace.contract.connector import object_options as object_options
from headrace.contract.connector import option_type as option_type
from headrace.contract.connector import overrides as overrides
from headrace.contract.connector import path_options as path_options
from headrace.contract.connector import without_values as without_values
from headrace.contract.identity import Identity as Identity
from headrace.contract.identity import canonical_address as canonical_address
from headrace.contract.identity import canonical_path as canonical_path
from headrace.contract.identity import canonical_server as canonical_server
from headrace.contract.identity import canonical_servers as canonical_servers
from headrace.contract.identity import canonical_table as canonical_table
from headrace.contract.identity import is_loopback as is_loopback
from headrace.contract.identity import same_place as same_place
from headrace.contract.observer import BatchWork as BatchWork
from headrace.contract.observer import Columns as Columns
from headrace.contract.observer import Observed as Observed
from headrace.contract.observer import Observer as Observer
from headrace.contract.observer import Outcome as Outcome
from headrace.contract.observer import OutcomeState as OutcomeState
from headrace.contract.observer import QueryStart as QueryStart
from headrace.contract.observer import QueryState as QueryState
from headrace.contract.sink import CatalogSink as CatalogSink
from headrace.contract.sink import Session as Session
from headrace.contract.sink import Sink as Sink
from headrace.contract.sink import SinkAdoption as SinkAdoption
from headrace.contract.sink import SinkAnswers as SinkAnswers
from headrace.contract.sink import SinkCorrections as SinkCorrections
from headrace.contract.sink import SinkLedger as SinkLedger
from headrace.contract.sink import SinkRename as SinkRename
from headrace.contract.sink import SinkRepair as SinkRepair
from headrace.contract.sink import SinkReset as SinkReset
from headrace.contract.sink import SinkRewind as SinkRewind
from headrace.contract.sink import SinkSwap as SinkSwap
from headrace.contract.sink import Writer as Writer
from headrace.contract.sink import readable_back as readable_back
from headrace.contract.sink_values import OUTPUT_MODES as OUTPUT_MODES
from headrace.contract.sink_values import Boundary as Boundary
from headrace.contract.sink_values import Correction as Correction
from headrace.contract.sink_values import Held as Held
from headrace.contract.sink_values import KeptResult as KeptResult
from headrace.contract.sink_values import LedgerLine as LedgerLine
from headrace.contract.sink_values import Mark as Mark
from headrace.contract.sink_values import OutputMode as OutputMode
from headrace.contract.sink_values import RefusedValue as RefusedValue
from headrace.contract.sink_values import Rows as Rows
from headrace.contract.sink_values import SinkContext as SinkContext
from headrace.contract.sink_values import SinkFacts as SinkFacts
from headrace.contract.sink_values import SinkLocation as SinkLocation
from headrace.contract.sink_values import Snapshot as Snapshot
from headrace.contract.sink_values import replaced_result as replaced_result
from headrace.contract.source import Lag as Lag
from headrace.contract.source import Source as Source
from headrace.contract.source import SourceFacts as SourceFacts
from headrace.contract.source import bad_rows_metric as bad_rows_metric
