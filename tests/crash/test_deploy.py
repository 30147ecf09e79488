"""Deploys in a row while files land and drivers are killed: no row is lost or doubled, and no old code runs again."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from headrace.api import events, load, running, status
from headrace.control.deploys import DeployResult
from headrace.model import Project
from headrace.spark.jvm.gateway import kill_all
from tests.runner.projects import land, ledger, rows, write_project
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1500)]

PIPELINE = """
events = hr.source.files("landing", format="json", schema="name STRING, amount INT")

@F.udf("int")
def version(amount):
    return {version}

@hr.query(sink=hr.sink.sqlite("steady.db", table="totals", key=["name"]), mode="update", trigger=hr.every("300 ms"))
def steady(events):
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))

@hr.query(sink=hr.sink.sqlite("edited.db", table="copied"), trigger=hr.every("300 ms"), on_change="forward")
def edited(events):
    return events.select("amount", version("amount").alias("version"))
"""

ADDED = """
@hr.query(sink=hr.sink.sqlite("added.db", table="copied"), trigger=hr.every("300 ms"))
def added(events):
    return events.select("amount")
"""


class Load:
    """Lets a file land every third of a second, or after another pause, until it is stopped."""

    def __init__(self, root: Path, *, pause: float = 0.3) -> None:
        self.root, self.pause, self.landed, self._end = root, pause, 0, threading.Event()
        self._thread = threading.Thread(target=self._land, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _land(self) -> None:
        while not self._end.wait(self.pause):
            land(self.root, self.landed, [{"name": f"n{self.landed % 3}", "amount": self.landed}])
            self.landed += 1


class Application:
    """A run in a process of its own, which is started again after each kill."""

    def __init__(self, root: Path) -> None:
        self.root, self.starts = root, 0
        self.start()

    @property
    def project(self) -> Project:
        return load(self.root)

    def start(self) -> None:
        self.starts += 1
        command = [sys.executable, "-m", "headrace", "run", "-C", str(self.root)]
        with (self.root / ".run.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        before = len(ledger(self.root / "steady.db"))
        until("batch of this start", lambda: len(ledger(self.root / "steady.db")) > before)
        until("start of both", lambda: {query.state for query in status(self.project)} == {"running"})

    def kill(self) -> None:
        kill_all(self.process.pid)
        self.process.wait(PATIENCE_SECONDS)

    def deploy(self, version: int, *, kill_after: float | None = None, more: str = "") -> DeployResult:
        """Deploy a version of the code; the driver may be killed so many seconds later."""
        write_project(self.root, PIPELINE.format(version=version) + more)
        killer = None if kill_after is None else threading.Timer(kill_after, self.kill)
        if killer is not None:
            killer.start()
        (result,) = running(self.project).deploy()
        if killer is not None:
            killer.join()
            self.start()
        return result


@contextmanager
def application(root: Path) -> Iterator[Application]:
    made = Application(root)
    try:
        yield made
    finally:
        made.kill()


# In `make test`, test_new_start deploys under load, and tests/runner/test_deploy.py lets a deploy fail.
@pytest.mark.long
@pytest.mark.parametrize("deploys", [1, 10], ids=["one deploy and a kill", "ten deploys and five kills"])
def test_deploys_under_load_lose_and_double_no_row(tmp_path: Path, deploys: int) -> None:
    root, chance = write_project(tmp_path / "p", PIPELINE.format(version=0)), random.Random(deploys)
    landing = Load(root)
    with application(root) as there:
        for version in range(1, deploys + 1):
            kill_after = chance.uniform(0.0, 4.0) if version % 2 else None
            result = there.deploy(version, kill_after=kill_after)
            if kill_after is None:
                assert result.done, result
                assert {step.query: step.action for step in result.steps} == {"steady": "keep", "edited": "restart"}
            newest = landing.landed
            until("row of the new code", lambda newest=newest: newest in versions(root))  # type: ignore[misc]
            assert max(versions(root).values()) == version
        result = there.deploy(deploys, more=ADDED)
        assert result.done, result
        actions = {step.query: step.action for step in result.steps}
        assert actions == {"steady": "keep", "edited": "keep", "added": "start"}
        landing.stop()
        until("last row of the new query", lambda: added_amounts(root) == list(range(landing.landed)))
        until("last row", lambda: len(versions(root)) == landing.landed)
        until("last total", lambda: totals(root) == expected_totals(root))
        started = [event for event in events(there.project, query="steady", limit=1000) if event.kind == "started"]
        assert len(started) == there.starts
    written = versions(root)
    assert sorted(written) == list(range(landing.landed))
    assert [written[amount] for amount in sorted(written)] == sorted(written.values())
    batches = ledger(root / "steady.db")
    assert batches == list(range(len(batches)))


def totals(root: Path) -> list[tuple[str, int]]:
    return rows(root / "steady.db", "SELECT name, amount FROM totals ORDER BY name")


def expected_totals(root: Path) -> list[tuple[str, int]]:
    """The totals as another program computes them."""
    files = f"read_json('{root}/landing/*.json')"
    return duckdb.sql(f"SELECT name, sum(amount)::BIGINT FROM {files} GROUP BY name ORDER BY name").fetchall()


def added_amounts(root: Path) -> list[int]:
    """The amounts that the query that a deploy has added has written."""
    if not ledger(root / "added.db"):
        return []
    return [amount for (amount,) in rows(root / "added.db", "SELECT amount FROM copied ORDER BY amount")]


def versions(root: Path) -> dict[int, int]:
    """The version of the code that has written each amount; a row that is there twice fails."""
    if not ledger(root / "edited.db"):
        return {}
    written = rows(root / "edited.db", "SELECT amount, version FROM copied")
    assert len({amount for amount, _ in written}) == len(written)
    return dict(written)
