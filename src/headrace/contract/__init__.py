"""What a source and a sink must offer, and the facts that they declare of themselves.

A connector is a frozen, keyword-only dataclass that extends `Source` or `Sink`: its fields are its options. It writes
two members and overrides what it can do better than the default. Checks and guarantees are computed from its facts
alone; the conformance suite (`headrace.testing.conformance`) proves each of them.
"""

from headrace.checkpoint.source_prefix import SourceBatch, SourcePrefix
from headrace.contract.connector import Connector, Failure, Jars, overrides
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
from headrace.contract.options import (
    OptionError,
    ProjectObject,
    ProjectPath,
    object_options,
    option_type,
    path_options,
)
from headrace.contract.sink import Session, Sink, Writer
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
    "Boundary",
    "Connector",
    "Correction",
    "Failure",
    "Held",
    "Identity",
    "Jars",
    "KeptResult",
    "Lag",
    "LedgerLine",
    "OptionError",
    "OutputMode",
    "ProjectObject",
    "ProjectPath",
    "Rows",
    "Session",
    "Sink",
    "SinkContext",
    "SinkFacts",
    "SinkLocation",
    "Snapshot",
    "Source",
    "SourceBatch",
    "SourceFacts",
    "SourcePrefix",
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
    "replaced_result",
    "same_place",
]
