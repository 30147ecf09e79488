"""A task that comes to its end after its batch leaves no staging table behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.sql.staging import Stage, Turn

from ..sql.databases import Database, database
from .drivers import Driver

__all__ = ["database"]


@pytest.mark.services
@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_an_attempt_that_outlives_its_batch_drops_what_it_has_staged(database: Database, tmp_path: Path) -> None:
    driver = Driver(database, tmp_path / "a").start()
    assert driver.writer is not None
    store: Any = driver.writer.store
    task = Stage(
        dialect=store.dialect,
        prefix=store.stage.prefix,
        columns=store.stage.columns,
        key=(),
        limits={},
        clustered=False,
        quarantines=False,
        driver_rows=0,
        turn=Turn.of(driver.run, "result", store.epoch, 0),
    )
    rows = pa.record_batch({"c0": pa.array(["late"]), "c1": pa.array([1], pa.int64())})

    def left(task: Stage) -> int:
        reports = [row for batch in task.stage(iter([rows])) for row in batch.to_pylist()]
        assert len(reports) == 1
        return len(database.left_over())

    assert left(task) == 1, "its turn has come"
    driver.write(0, ["f0"])
    assert database.left_over() == []
    assert left(task) == 0, "the batch is in"
    next_one = replace(task, turn=Turn.of(driver.run, "result", store.epoch, 1))
    assert left(next_one) == 1, "its turn has come"
    rebuild = replace(driver.run, rebuilds=True, generation=2)
    assert not Turn.of(rebuild, "result", 0, 0).is_over(store.dialect), "it has epochs and batches of its own"
    driver.copy(tmp_path / "b").start()
    assert left(next_one) == 0, "a newer driver has taken over"
