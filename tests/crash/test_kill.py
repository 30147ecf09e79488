"""However often and wherever the driver is killed, the result is that of the batch query."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, status, verify
from headrace.testing.crash import MOMENTS, Driver, KillAt, Moment, moments

from . import monitoring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


def assert_prefix(root: Path) -> int:
    """The table holds the counts over exactly the files of the batches in the ledger; returns how many batches."""
    batches = monitoring.ledger(root)
    assert batches == list(range(len(batches)))
    files = monitoring.committed_files(root, len(batches) - 1)
    assert monitoring.stored(root) == monitoring.counted(root, files)
    return len(batches)


@pytest.mark.capability("REC-01")
@pytest.mark.capability("MODEL-04")
def test_twenty_kills_at_random_moments_leave_a_prefix_each_time(tmp_path: Path, spark: SparkSession) -> None:
    """A stream that is killed before its first batch is as good as one that was never started."""
    root = monitoring.write_project(tmp_path / "p", files=150, rows=20)
    kills = 0
    for life in moments(20260301, 20, longest=12.0):
        if Driver(root).kill_after(life):
            kills += 1
        else:
            monitoring.write_events(root / "landing", 150 + kills, 20, random.Random(kills))
        if monitoring.ledger(root):
            assert_prefix(root)
            if kills % 4 == 0:
                assert verify(load(root), "action_counts", spark=spark).state == "equal"
    assert kills >= 15
    assert Driver(root).wait() == 0
    assert monitoring.stored(root) == monitoring.counted(root)
    verdict = verify(load(root), "action_counts", spark=spark)
    assert (verdict.state, verdict.rows_actual) == ("equal", len(monitoring.counted(root)))


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_a_boundary_changes_nothing(tmp_path: Path, moment: Moment) -> None:
    """Of the first batch, and of one that follows others."""
    root = monitoring.write_project(tmp_path / "p", files=4, rows=50)
    for batch in (0, 2):
        assert Driver(root, kill=KillAt(moment, batch)).wait() == -9
        written = {"before-transaction": batch, "inside-transaction": batch}.get(moment, batch + 1)
        assert len(monitoring.ledger(root)) >= written
        if moment != "after-commit":
            assert len(monitoring.ledger(root)) == written
    assert Driver(root).wait() == 0
    assert [each.rows_total for each in status(load(root))] == [4 * 50]
    assert monitoring.ledger(root) == [0, 1, 2, 3]
    assert monitoring.stored(root) == monitoring.counted(root)


@pytest.mark.parametrize("mode", ["complete"])
def test_in_complete_mode_a_kill_inside_the_transaction_leaves_the_last_whole_table(tmp_path: Path, mode: str) -> None:
    root = monitoring.write_project(tmp_path / "p", files=4, rows=50, mode=mode)
    assert Driver(root, kill=KillAt("inside-transaction", 2)).wait() == -9
    assert assert_prefix(root) == 2
    assert Driver(root).wait() == 0
    assert monitoring.stored(root) == monitoring.counted(root)


def test_a_second_driver_fences_off_the_first_and_nothing_is_written_twice(tmp_path: Path) -> None:
    root = monitoring.write_project(tmp_path / "p", files=60, rows=20)
    first = Driver(root)
    while len(monitoring.ledger(root)) < 3:
        assert first.process.poll() is None
    second = Driver(root)
    ends = (first.wait(), second.wait())
    assert 1 in ends
    log = (root / ".driver.log").read_text()
    assert "Traceback" not in log
    if 0 not in ends:
        assert Driver(root).wait() == 0
    assert monitoring.ledger(root) == list(range(60))
    assert monitoring.stored(root) == monitoring.counted(root)
