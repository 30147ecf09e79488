"""A driver that dies after a table was refreshed: the batch that comes again sees what it saw before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, verify
from headrace.model import AvailableNow
from tests.crash.drivers import Driver, KillAt
from tests.runner.projects import land, ledger, rows, write_project
from tests.runner.test_refresh import BILLS, PRICES, sale, set_prices, uses
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


# In one process, tests/runner/test_refresh.py lets a batch come again over the version that it was begun with.
@pytest.mark.long
@pytest.mark.capability("JOIN-ST-03")
def test_a_kill_inside_the_first_batch_over_a_new_version_changes_nothing(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", PRICES, batches=[sale(1)])
    set_prices(root, apple=10)
    driver = Driver(root, kill=KillAt("inside-transaction", 1))
    try:
        until("batch 0", lambda: ledger(root / "out.db") == [0])
        set_prices(root, apple=20)
        until("a new version", lambda: uses(root) == [(0, 1), (1, 2)])
        land(root, 1, sale(2))
        assert driver.wait() == -9
    finally:
        driver.kill()
    assert rows(root / "out.db", BILLS) == [("apple", 10)]
    set_prices(root, apple=30)
    land(root, 2, sale(3))
    assert run(load(root), spark=spark, trigger=AvailableNow()).exit_code == 0
    assert rows(root / "out.db", BILLS) == [("apple", 10), ("apple", 40), ("apple", 90)]
    assert uses(root) == [(0, 1), (1, 2), (2, 3)]
    assert verify(load(root), "bills", spark=spark).state == "equal"
