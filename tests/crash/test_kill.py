"""However often and wherever the driver is killed, the result is that of the batch query."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, status, verify
from tests.crash.drivers import MOMENTS, Driver, KillAt, Moment, moments
from tests.registered import layout_in
from tests.rounds import rounds
from tests.waiting import until

from . import monitoring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `make soak` has many.
KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))
pytestmark = [pytest.mark.crash, pytest.mark.timeout(600 + 60 * KILLS)]


def assert_prefix(root: Path) -> int:
    """The table holds the counts over exactly the files of the batches in the ledger; returns how many batches."""
    batches = monitoring.ledger(root)
    assert batches == list(range(len(batches)))
    files = monitoring.committed_files(root, len(batches) - 1)
    assert monitoring.stored_counts(root) == monitoring.count_events(root, files)
    return len(batches)


def await_batches(driver: Driver, offsets: Path, count: int) -> None:
    """Wait until so many batches are planned."""

    def are_planned() -> bool:
        assert driver.process.poll() is None
        return len(list(offsets.glob("[0-9]*"))) >= count

    until(f"{count} batches", are_planned, pause=0.01)


# The first batch, whose transaction makes the table, and three that follow others. Before its transaction a batch has
# written as much as inside it: nothing.
KILLED_AT: list[tuple[Moment, int]] = [
    ("inside-transaction", 0),
    ("after-transaction", 1),
    ("after-commit", 2),
    ("before-transaction", 4),
]


@pytest.mark.long
@pytest.mark.capability("REC-01")
@pytest.mark.capability("MODEL-04")
def test_kills_at_random_moments_leave_a_prefix_each_time(tmp_path: Path, spark: SparkSession) -> None:
    """A random time after a batch that follows another is planned; before the first, nothing has begun."""
    root = monitoring.write_project(tmp_path / "p", files=20 + 10 * KILLS, rows=20)
    offsets = layout_in(root / ".headrace", "action_counts").checkpoint / "offsets"
    for life in moments(20260301, KILLS, longest=1.5):
        planned = len(list(offsets.glob("[0-9]*")))
        driver = Driver(root)
        await_batches(driver, offsets, planned + 2)
        time.sleep(life)
        driver.kill()
        assert assert_prefix(root) > 0
    assert verify(load(root), "action_counts", spark=spark).state == "equal"
    assert run(load(root), spark=spark).exit_code == 0
    assert monitoring.stored_counts(root) == monitoring.count_events(root)
    verdict = verify(load(root), "action_counts", spark=spark)
    assert (verdict.state, verdict.rows_actual) == ("equal", len(monitoring.count_events(root)))


@pytest.mark.capability("REC-01")
@pytest.mark.parametrize("kills", rounds([2, 4]))
def test_a_kill_at_any_boundary_changes_nothing(tmp_path: Path, spark: SparkSession, kills: int) -> None:
    """Of the first batch, and of those that follow others: one project dies at each in turn."""
    root = monitoring.write_project(tmp_path / "p", files=6, rows=50)
    assert {moment for moment, _ in KILLED_AT} == set(MOMENTS)
    for moment, batch in KILLED_AT[:kills]:
        assert Driver(root, kill=KillAt(moment, batch)).wait() == -9
        written = {"before-transaction": batch, "inside-transaction": batch}.get(moment, batch + 1)
        assert len(monitoring.ledger(root)) >= written
        if moment != "after-commit":
            assert len(monitoring.ledger(root)) == written
    assert run(load(root), spark=spark).exit_code == 0
    assert [entry.rows_total for entry in status(load(root))] == [6 * 50]
    assert assert_prefix(root) >= 5  # A driver that dies as it plans a batch leaves its file to the next.
    assert monitoring.stored_counts(root) == monitoring.count_events(root)


@pytest.mark.long
def test_in_complete_mode_a_kill_inside_the_transaction_leaves_the_last_whole_table(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = monitoring.write_project(tmp_path / "p", files=4, rows=50, mode="complete")
    assert Driver(root, kill=KillAt("inside-transaction", 2)).wait() == -9
    assert assert_prefix(root) == 2
    assert run(load(root), spark=spark).exit_code == 0
    assert monitoring.stored_counts(root) == monitoring.count_events(root)


def test_a_second_driver_fences_off_the_first_and_nothing_is_written_twice(tmp_path: Path) -> None:
    """The first has more to do than the second needs for its start."""
    root = monitoring.write_project(tmp_path / "p", files=30, rows=20)
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
    assert monitoring.ledger(root) == list(range(30))
    assert monitoring.stored_counts(root) == monitoring.count_events(root)
