"""A driver of a query without Spark: its checkpoint is written by hand, its batches are tables of Arrow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.connectors.exactly_once import BatchWriter, Retry
from headrace.connectors.sql.batches import SqlStore
from headrace.connectors.sql.preparation import prepare
from headrace.connectors.sql.result_table import result_table
from headrace.connectors.sql.silence import wait_for_locks
from headrace.connectors.sql.staging import Content, Stage, staging_prefix
from headrace.contract import Boundary, SinkContext
from headrace.errors import Finding

from ..sql.databases import Database

EVERY = [
    pytest.param("sqlite", marks=pytest.mark.plain),
    pytest.param("postgres", marks=pytest.mark.services),
    pytest.param("mariadb", marks=pytest.mark.services),
]
SCHEMA = StructType([StructField("name", StringType()), StructField("total", LongType())])


class Given(Stage):
    """A stage that is given its rows."""

    def reads_little(self, frame: Any) -> bool:
        return False

    def compute_small(self, frame: Any) -> Content | None:
        return None

    def compute_large(self, frame: Any) -> Content:
        return Content(table=frame)


def no_halt(boundary: Boundary, batch: int) -> None:
    """Pass every boundary."""


@dataclass
class Driver:
    """One driver over one storage directory."""

    database: Database
    storage: Path
    query: str = "q"
    table: str = "result"
    application: str = "a"
    project: str = "phones"
    seconds: float = 20.0
    reached: Callable[[Boundary, int], None] = no_halt
    writer: BatchWriter[Any] | None = field(default=None, init=False)
    warnings: list[Finding] = field(default_factory=list, init=False)

    @property
    def run(self) -> SinkContext:
        return SinkContext(
            query=self.query,
            generation=1,
            mode="append",
            checkpoint=self.storage / "checkpoint",
            on_boundary=self.reached,
            on_warning=self.warnings.append,
            application=self.application,
            project=self.project,
        )

    def plan(self, batch: int, files: Sequence[str]) -> None:
        """Write what Spark writes before a batch: the source's log, then the offsets."""
        place = self.storage / "checkpoint"
        for folder in ("offsets", "commits", "sources/in"):
            (place / folder).mkdir(parents=True, exist_ok=True)
        (place / "metadata").write_text(json.dumps({"id": "c"}))
        lines = [json.dumps({"path": f"file:///in/{name}", "timestamp": 1, "batchId": batch}) for name in files]
        (place / "sources" / "in" / str(batch)).write_text("\n".join(["v1", *lines]))
        (place / "offsets" / str(batch)).write_text(f'v2\n{{"batchWatermarkMs":0}}\nin:{{"logOffset":{batch}}}')

    def commit(self, batch: int) -> None:
        """Write what Spark writes after a batch."""
        (self.storage / "checkpoint" / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def start(self) -> Driver:
        """Prepare the sink; raises what it raises."""
        dialect = self.database.sink(key=[]).dialect()
        table = result_table(self.table, (), SCHEMA, self.run)
        ready = wait_for_locks(lambda: prepare(dialect, table, SCHEMA.json(), self.run), dialect, self.run)
        stage = Given(
            dialect=dialect,
            prefix=staging_prefix(self.run, ready.epoch),
            columns=table.columns,
            key=(),
            limits={},
            clustered=False,
            quarantines=False,
            driver_rows=0,
        )
        store = SqlStore(
            dialect=dialect,
            table=table,
            context=self.run,
            epoch=ready.epoch,
            stage=stage,
            retry=Retry(seconds=self.seconds),
        )
        self.writer = BatchWriter(store=store)
        return self

    def write(self, batch: int, files: Sequence[str]) -> None:
        """Plan a batch of one row a file, and give it to the sink."""
        self.plan(batch, files)
        self.give(batch, files)

    def give(self, batch: int, files: Sequence[str]) -> None:
        """Give a batch to the sink, as Spark does."""
        assert self.writer is not None
        self.writer.store.context = replace(self.writer.store.context, on_boundary=self.reached)
        rows: Any = pa.table(
            {"name": pa.array(files, pa.string()), "total": pa.array([batch] * len(files), pa.int64())}
        )
        self.writer(rows, batch)

    def copy(self, storage: Path, **more: Any) -> Driver:
        """A driver over a copy of the storage directory, as from a backup."""
        shutil.copytree(self.storage, storage)
        facts: Mapping[str, Any] = {"query": self.query, "table": self.table, "application": self.application, **more}
        return Driver(self.database, storage, **facts)

    def rows(self) -> list[str]:
        return sorted(name for (name,) in self.database.query(f'SELECT name FROM "{self.table}"'))

    def lines(self) -> list[int]:
        statement = (
            f"SELECT batch FROM _headrace_ledger WHERE application = '{self.application}' AND query = '{self.query}' "
            f"AND table_name = '{self.table}' ORDER BY batch"
        )
        return [batch for (batch,) in self.database.query(statement)]
