"""What a source, a sink and an observer must offer, and the facts that connectors declare of themselves.

A connector is a frozen, keyword-only dataclass that extends `Source` or `Sink`: its fields are its options. It writes
two members and overrides what it can do better than the default. Checks and guarantees are computed from its facts
alone; the conformance suite (`headrace.testing.conformance`) proves each of them.
"""

from headrace.checkpoint.prefix import SourceBatch, SourcePrefix
from headrace.contract.batch_record import BatchRecord, OperatorProgress, SourceProgress
from headrace.contract.connector import Ability, Connector, Failure, Jars, overrides, without_values
from headrace.contract.identity import (
    Identity,
    canonical_address,
    canonical_path,
    canonical_server,
    canonical_servers,
    canonical_table,
    is_loopback,
    same_place,
)
from headrace.contract.observer import BatchWork, Columns, Observed, Observer, Outcome, OutcomeState, QueryStart
from headrace.contract.options import OptionError, ProjectObject, ProjectPath, object_options, option_type, path_options
from headrace.contract.query_state import QueryState
from headrace.contract.sink import (
    CatalogSink,
    Session,
    Sink,
    SinkAdoption,
    SinkAnswers,
    SinkLateRows,
    SinkLedger,
    SinkRename,
    SinkReset,
    SinkRewind,
    SinkSwap,
    Writer,
    readable_back,
)
from headrace.contract.sink_values import (
    OUTPUT_MODES,
    Boundary,
    Correction,
    Held,
    KeptResult,
    LedgerLine,
    OutputMode,
    Rows,
    SinkContext,
    SinkFacts,
    SinkLocation,
    Snapshot,
    replaced_result,
)
from headrace.contract.source import Source
from headrace.contract.source_values import Lag, SourceFacts, bad_rows_metric

__all__ = [
    "OUTPUT_MODES",
    "Ability",
    "BatchRecord",
    "BatchWork",
    "Boundary",
    "CatalogSink",
    "Columns",
    "Connector",
    "Correction",
    "Failure",
    "Held",
    "Identity",
    "Jars",
    "KeptResult",
    "Lag",
    "LedgerLine",
    "Observed",
    "Observer",
    "OperatorProgress",
    "OptionError",
    "Outcome",
    "OutcomeState",
    "OutputMode",
    "ProjectObject",
    "ProjectPath",
    "QueryStart",
    "QueryState",
    "Rows",
    "Session",
    "Sink",
    "SinkAdoption",
    "SinkAnswers",
    "SinkContext",
    "SinkFacts",
    "SinkLateRows",
    "SinkLedger",
    "SinkLocation",
    "SinkRename",
    "SinkReset",
    "SinkRewind",
    "SinkSwap",
    "Snapshot",
    "Source",
    "SourceBatch",
    "SourceFacts",
    "SourcePrefix",
    "SourceProgress",
    "Writer",
    "bad_rows_metric",
    "canonical_address",
    "canonical_path",
    "canonical_server",
    "canonical_servers",
    "canonical_table",
    "is_loopback",
    "object_options",
    "option_type",
    "overrides",
    "path_options",
    "readable_back",
    "replaced_result",
    "same_place",
    "without_values",
]
