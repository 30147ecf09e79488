"""The rows of a batch, computed before its transaction: few through the driver, many by the executors in parallel.

A partition of few rows comes to the driver as it is. One of many is written by its own task into a staging table of
its own, and the driver gets the table's name: only the driver's transaction reads it. So the driver's memory does not
grow with the batch, and an attempt of a task that fails leaves nothing that could be taken for a result.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.connectors.sql.dialect import Connection, Dialect
from headrace.connectors.sql.staging_task import COLUMNS, DRIVER_BYTES, Content, RowError, StageTask, content_of
from headrace.connectors.sql.system_tables import OWN_PREFIX
from headrace.connectors.sql.types import flat
from headrace.contract import SinkContext
from headrace.spark.plans.analysed import analysed_plan
from headrace.spark.plans.plan_text import is_clustered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = [
    "DRIVER_BYTES",
    "TINY_BYTES",
    "Content",
    "RowError",
    "Stage",
    "drop_staged",
    "estimated_bytes",
    "staging_prefix",
]

# A batch that Spark takes for no larger is tried through the driver; if it has many rows all the same, it is computed
# once more.
TINY_BYTES = 1 << 20
_ROW_BITS = (1 << 33) - 1
_AT = "_headrace_at"


class Stage(StageTask):
    """Computes the rows of a batch, in the driver or by tasks."""

    def reads_little(self, frame: DataFrame) -> bool:
        """Whether a batch is tiny by what Spark knows of its files."""
        return estimated_bytes(frame) <= TINY_BYTES

    def small(self, frame: DataFrame) -> Content | None:
        """The batch through the driver; None when a partition has too many rows. Nothing of it is written.

        Spark computes every partition to its end, as it must for its state, but gives no more rows of each than fit.
        """
        # In SQL, since each function called in Python is some calls into the JVM; a tiny batch has no time for them.
        counted = flat(frame, self.columns).selectExpr("*", f"monotonically_increasing_id() & {_ROW_BITS}L AS {_AT}")
        table = counted.where(f"{_AT} <= {self.driver_rows}").toArrow()
        if table.num_rows and _largest(table.column(_AT)) >= self.driver_rows:
            return None
        table, bad = self.sifted(table.drop_columns([_AT]))
        return Content(table=table, bad=tuple(bad))

    def large(self, frame: DataFrame) -> Content:
        """The batch written by the executors; raises StageError or RowError."""
        local = str(frame.sparkSession.sparkContext.master).startswith("local")
        if self.dialect.needs_shared_disk and not local:
            whole = replace(self, driver_rows=_ROW_BITS).small(frame)
            if whole is not None:
                return whole
        empty = _empty(flat(frame, self.columns))
        # Spark's mapInArrow takes no column with a dot in its name.
        frame = flat(frame, self.columns).toDF(*[f"c{at}" for at in range(len(self.columns))])
        key = [f"c{at}" for at, column in enumerate(self.columns) if column.name in self.key]
        if self.clustered and not is_clustered(frame, key):
            frame = frame.repartition(*key)
        if self.dialect.most_parts is not None:
            frame = frame.coalesce(self.dialect.most_parts)
        if self.key and (self.dialect.wants_sorted or self.clustered):
            frame = frame.sortWithinPartitions(*[f"c{self.names.index(name)}" for name in self.key])
        # On this machine alone, no attempt outlives its batch.
        task = replace(self, turn=None) if local else self
        reports = frame.mapInArrow(task.stage, COLUMNS).toArrow().to_pylist()
        return content_of(reports, empty)


def drop_staged(connection: Connection, dialect: Dialect, context: SinkContext, epoch: int) -> None:
    """Drop the staging tables of this driver and of older ones; those of a newer one are not ours to drop."""
    prefix = _staging(context)
    old = [name for name in dialect.staged(connection, prefix) if _epoch_of(name.removeprefix(prefix)) <= epoch]
    dialect.drop_staged(connection, old)


def staging_prefix(context: SinkContext, epoch: int) -> str:
    """How the names of the staging tables of one driver begin."""
    return f"{_staging(context)}{epoch}_"


def _staging(context: SinkContext) -> str:
    whose = f"{context.application}\n{context.query}\n{context.generation}"
    return f"{OWN_PREFIX}s_{hashlib.sha256(whose.encode()).hexdigest()[:10]}_"


def _epoch_of(rest: str) -> int:
    epoch = rest.partition("_")[0]
    return int(epoch) if epoch.isdigit() else 0


def _largest(column: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.max(column).as_py())


def _empty(frame: DataFrame) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC").empty_table()


def estimated_bytes(frame: DataFrame) -> int:
    """How many bytes Spark takes a batch for, by the sizes of its files; of other systems, more than there can be."""
    return int(analysed_plan(frame).stats().sizeInBytes())
