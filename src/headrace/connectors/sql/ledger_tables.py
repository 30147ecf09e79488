"""The tables of the ledger: their columns and keys, and how those of Headrace 0.1.0 are taken over."""

from __future__ import annotations

from headrace.connectors.sql.system_tables import OwnColumn, OwnTable

LEDGER = "_headrace_ledger"
EPOCHS = "_headrace_epochs"
TABLES = "_headrace_tables"
REPLAYS = "_headrace_replays"
QUARANTINE = "_headrace_quarantine"
BEFORE = "_headrace_before"

# The application of lines that Headrace 0.1.0 wrote, until the first start takes them over.
UNCLAIMED = ""

EPOCHS_FORM = OwnTable(
    EPOCHS,
    (OwnColumn("application", "text"), OwnColumn("query", "text"), OwnColumn("epoch", "number")),
    key=("application", "query"),
)
LEDGER_FORM = OwnTable(
    LEDGER,
    (
        OwnColumn("application", "text"),
        OwnColumn("query", "text"),
        OwnColumn("generation", "number"),
        OwnColumn("table_name", "text"),
        OwnColumn("batch", "number"),
        OwnColumn("epoch", "number"),
        OwnColumn("checkpoint", "text"),
        OwnColumn("row_count", "number"),
        OwnColumn("quarantined", "number", nullable=True),
        OwnColumn("watermark", "text", nullable=True),
        OwnColumn("fingerprint", "text"),
        OwnColumn("committed_at", "text"),
        OwnColumn("digest", "text", nullable=True),
        OwnColumn("chain", "text", nullable=True),
        OwnColumn("planned", "long text", nullable=True),
    ),
    key=("application", "query", "generation", "table_name", "batch"),
)
TABLES_FORM = OwnTable(
    TABLES,
    (
        OwnColumn("table_name", "text"),
        OwnColumn("application", "text"),
        OwnColumn("project", "text"),
        OwnColumn("query", "text"),
        OwnColumn("generation", "number"),
        OwnColumn("spark_schema", "long text"),
    ),
    key=("table_name",),
)
QUARANTINE_FORM = OwnTable(
    QUARANTINE,
    (
        OwnColumn("application", "text"),
        OwnColumn("query", "text"),
        OwnColumn("generation", "number"),
        OwnColumn("batch", "number"),
        OwnColumn("table_name", "text"),
        OwnColumn("reason", "long text"),
        OwnColumn("row_values", "long text"),
    ),
    key=(),
)
# Made when late rows are brought back for the first time; most results never have any.
REPLAYS_FORM = OwnTable(
    REPLAYS,
    (
        OwnColumn("application", "text"),
        OwnColumn("query", "text"),
        OwnColumn("generation", "number"),
        OwnColumn("table_name", "text"),
        OwnColumn("checkpoint", "text"),
        OwnColumn("batch", "number"),
        OwnColumn("late_rows", "number"),
        OwnColumn("rows_written", "number"),
        OwnColumn("rows_deleted", "number"),
        OwnColumn("quarantined", "number"),
        OwnColumn("replayed_at", "text"),
    ),
    key=("application", "query", "generation", "table_name", "checkpoint", "batch"),
)
# Made for the first sink that keeps what a rewind needs. images: the table of the rows that were there before.
BEFORE_FORM = OwnTable(
    BEFORE,
    (
        OwnColumn("application", "text"),
        OwnColumn("query", "text"),
        OwnColumn("generation", "number"),
        OwnColumn("table_name", "text"),
        OwnColumn("images", "text"),
        OwnColumn("step", "number"),
        OwnColumn("batch", "number"),
        OwnColumn("kind", "text"),
        OwnColumn("whole", "number"),
        OwnColumn("void", "number"),
        OwnColumn("at", "text"),
    ),
    key=("application", "query", "generation", "table_name", "step"),
)

# The epochs first: an older driver holds its epoch's lock before it wants the ledger, and would be crossed otherwise.
FORMS = (EPOCHS_FORM, LEDGER_FORM, TABLES_FORM, QUARANTINE_FORM)
