"""Delta and Iceberg tables: copies of a storage, drivers at once and old ledgers lose and double no row."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.delta import sink as delta
from headrace.connectors.delta.sink import DeltaSink
from headrace.connectors.exactly_once import acceptance
from headrace.connectors.exactly_once.acceptance import KeptLine
from headrace.connectors.iceberg import sink as iceberg
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.contract import Boundary, SinkContext
from headrace.errors import CheckpointBehind, CheckpointError, Fenced, SinkError
from tests.connectors.iceberg import tables as iceberg_tables

from .drivers import SCHEMA, Driver, no_halt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKES = [
    pytest.param("delta", marks=[pytest.mark.services, pytest.mark.connectors]),
    pytest.param("iceberg", marks=pytest.mark.spark),
]
each_lake = pytest.mark.parametrize("lake", LAKES)


@dataclass
class LakeDriver:
    """One driver over one storage directory, which writes a table of a lake; its checkpoint is written by hand."""

    lake: str
    home: Path
    storage: Path
    spark: SparkSession
    application: str = "a"
    reached: Callable[[Boundary, int], None] = no_halt
    restoring: bool = False
    take: Callable[[Any, int], None] | None = field(default=None, init=False)

    plan = Driver.plan
    commit = Driver.commit

    @property
    def sink(self) -> Any:
        if self.lake == "delta":
            return DeltaSink(path=str(self.home / "table"))
        return IcebergSink(table="db.result", catalog=iceberg_tables.properties(self.home))

    @property
    def run(self) -> SinkContext:
        return SinkContext(
            query="q",
            query_id=f"q of {self.application}",
            generation=1,
            mode="append",
            checkpoint=self.storage / "checkpoint",
            on_boundary=lambda boundary, batch: self.reached(boundary, batch),
            application=self.application,
            restoring=self.restoring,
        )

    def frame(self, batch: int, files: Sequence[str]) -> Any:
        return self.spark.createDataFrame([(name, batch) for name in files], SCHEMA)

    def start(self) -> LakeDriver:
        opened = self.sink.open(self.frame(0, []), self.run)
        opened.attach(SimpleNamespace(foreachBatch=lambda take: setattr(self, "take", take)))
        return self

    def give(self, batch: int, files: Sequence[str]) -> None:
        assert self.take is not None
        self.take(self.frame(batch, files), batch)

    def write(self, batch: int, files: Sequence[str]) -> None:
        self.plan(batch, files)
        self.give(batch, files)

    def copy(self, name: str) -> LakeDriver:
        storage = self.storage.with_name(name)
        shutil.copytree(self.storage, storage)
        return LakeDriver(self.lake, self.home, storage, self.spark)

    def rows(self) -> list[str]:
        return sorted(row.name for row in self.sink.read_back(self.spark, self.run).rows.collect())


@pytest.fixture
def first(request: pytest.FixtureRequest, lake: str, tmp_path: Path) -> LakeDriver:
    """A driver that has written batch 0."""
    spark = request.getfixturevalue("spark")
    driver = LakeDriver(lake, tmp_path, tmp_path / "a", spark)
    driver.plan(0, ["f0"])
    driver.start().give(0, ["f0"])
    driver.commit(0)
    return driver


@each_lake
def test_a_batch_of_a_copy_is_neither_taken_for_ones_own_nor_skipped(first: LakeDriver) -> None:
    copy = first.copy("b").start()
    first.plan(1, ["f1"])
    copy.write(1, ["f1", "f2", "f3"])
    with pytest.raises(Fenced):
        first.give(1, ["f1"])
    with pytest.raises(CheckpointError, match=r"HR410.*batch 1 of query 'q' is in table .* with other rows") as raised:
        first.start()
    assert "3 files (f1, f2, f3) against 1 files (f1)" in raised.value.findings[0].what
    copy.write(2, ["f4"])
    copy.plan(2, ["f5"])
    with pytest.raises(CheckpointError, match="HR410"):
        copy.give(2, ["f5"])
    assert copy.rows() == ["f0", "f1", "f2", "f3", "f4"]


@each_lake
def test_a_start_sees_what_is_committed_between_its_look_and_its_epoch(
    first: LakeDriver, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = first.copy("b")
    copy.plan(1, ["f1", "f2"])
    looks: list[int] = []

    def look(run: SinkContext, table: str, lines: Sequence[KeptLine], **more: bool) -> None:
        acceptance.require_lines_fit(run, table, lines, **more)
        looks.append(len(looks))
        if len(looks) == 1:
            first.write(1, ["f1"])

    monkeypatch.setattr({"delta": delta, "iceberg": iceberg}[lake], "require_lines_fit", look)
    with pytest.raises(CheckpointError, match="HR410"):
        copy.start()
    first.write(2, ["f2"])
    assert first.rows() == ["f0", "f1", "f2"], "the start that did not fit has fenced no driver off"


@each_lake
def test_a_driver_in_its_transaction_is_fenced_off_by_a_newer_one(first: LakeDriver) -> None:
    copy = first.copy("b")

    def newer(boundary: Boundary, batch: int) -> None:
        if boundary == "before-transaction":
            copy.start()

    first.reached = newer
    with pytest.raises(Fenced):
        first.write(1, ["f1"])
    copy.write(1, ["f1", "f2"])
    assert copy.rows() == ["f0", "f1", "f2"]


@each_lake
def test_what_a_checkpoint_has_lost_is_kept_with_the_rows(first: LakeDriver) -> None:
    first.write(1, ["f1"])
    first.write(2, [])
    sink: Any = first.sink
    checkpoint = first.storage / "checkpoint"
    for number in (1, 2):
        for place in ("offsets", "sources/in"):
            (checkpoint / place / str(number)).unlink()
    assert sink.ledger.last_batch(first.run) == 2
    plans = sink.ledger.read_plans(first.run, 1)
    assert [plans[number].batch for number in sorted(plans)] == [1, 2]
    with pytest.raises(CheckpointBehind, match="has batches of query 'q' up to 2"):
        first.start()
    first.plan(1, ["f1"])
    first.restoring = True
    first.start().give(1, ["f1"])
    first.restoring = False
    first.plan(2, [])
    first.start().give(2, [])
    first.write(3, ["f3"])
    assert first.rows() == ["f0", "f1", "f3"]


@pytest.mark.parametrize("lake", LAKES[:1])
def test_a_clone_has_the_rows_and_no_ledger_and_is_refused(first: LakeDriver) -> None:
    first.plan(1, ["f1"])
    clone = LakeDriver(first.lake, first.home / "other", first.storage, first.spark)
    first.spark.sql(f"CREATE TABLE delta.`{clone.home}/table` SHALLOW CLONE delta.`{first.home}/table`")
    assert clone.sink.rewind.earliest(clone.run, 0, lambda: first.spark) is None
    with pytest.raises(CheckpointError, match=r"HR410.*has no batch|HR410.*no batch of it"):
        clone.start()
    first.give(1, ["f1"])
    assert first.rows() == ["f0", "f1"]


@each_lake
def test_a_query_of_another_project_does_not_get_the_table_for_its_name(first: LakeDriver) -> None:
    other = LakeDriver(first.lake, first.home, first.storage, first.spark, application="o")
    with pytest.raises(SinkError, match=r"HR407.*of another project"):
        other.start()
