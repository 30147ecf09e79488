"""A result table read back as whole batches, and what its ledger keeps of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint, PlannedBatch
from headrace.connectors.exactly_once import KeptLine, LinesLedger, is_applied
from headrace.connectors.exactly_once.lake import no_result
from headrace.connectors.sql.change_rows import HIDDEN
from headrace.connectors.sql.dialect import Dialect, run
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.quarantine import QuarantineTable
from headrace.connectors.sql.sink_table import SinkTable
from headrace.connectors.sql.transactions import open_reader
from headrace.connectors.sql.types import ResultColumn, columns, restore
from headrace.contract import SinkContext, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DatabaseLedger(SinkTable, LinesLedger):
    """The batches that are in, by the ledger next to the table; plans whose digest differs are ignored."""

    def lines(self, context: SinkContext, most: int = 1) -> list[KeptLine]:
        dialect = self.dialect()
        with suppress(*dialect.errors), closing(dialect.connect_to_read()) as connection:
            last = Ledger(connection, dialect, context, self.table).last()
            return [] if last is None else [last]
        return []

    def read_plans(self, context: SinkContext, first: int) -> Mapping[int, PlannedBatch]:
        dialect = self.dialect()
        with open_reader(dialect, f"query '{context.query}'") as connection:
            ledger = Ledger(connection, dialect, context, self.table)
            is_applied(context, ledger.mark())
            return ledger.plans(first)


def snapshot(dialect: Dialect, name: str, key: Sequence[str], spark: SparkSession, context: SinkContext) -> Snapshot:
    """Return the table and its last batch, read in one transaction, with the rows that were quarantined."""
    from pyspark.sql.types import StructType

    with open_reader(dialect, f"query '{context.query}'") as connection:
        run(connection, dialect.begin_read)
        spelled, name = name, dialect.real_name(connection, name)
        ledger = Ledger(connection, dialect, context, name)
        owner, last = ledger.owner_by(spelled), ledger.last()
        if owner is None or not owner.is_of(context):
            raise no_result(f"table '{name}'", context)
        schema = StructType.fromJson(json.loads(owner.schema))
        schema = StructType([field for field in schema.fields if HIDDEN not in field.metadata])
        result_columns, _ = columns(schema)
        shown = ", ".join(dialect.select_expression(column) for column in result_columns)
        rows = restore(spark, dialect.stream(connection, f"SELECT {shown} FROM {dialect.quote(name)}"), schema)
        replayed = ledger.last_replay(Checkpoint(context.checkpoint).id or "")
        aside = [json.loads(text) for text in QuarantineTable.next_to(ledger).rows()]
        run(connection, "COMMIT")
    rejected = restore(spark, [[_values(row, result_columns) for row in aside]], schema) if aside else None
    return Snapshot(
        rows=rows, batch=None if last is None else last.batch, key=tuple(key), rejected=rejected, replayed=replayed
    )


def _values(row: Mapping[str, Any], result_columns: Sequence[ResultColumn]) -> tuple[Any, ...]:
    """Return the values of a row that was kept as JSON."""
    pairs = [(row.get(column.name), column.kind) for column in result_columns]
    return tuple(bytes.fromhex(value) if kind == "binary" and value is not None else value for value, kind in pairs)
