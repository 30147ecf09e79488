"""With `--exit-on-failure` an application ends with the first query that fails, for a supervisor to start all again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr
from headrace.api import load
from tests.runner.projects import write_project
from tests.runner.test_run import FRUIT

pytestmark = pytest.mark.spark

QUERIES = """
@hr.query(sink=hr.sink.sqlite("away/out.db", table="totals", key=["name"]), mode="update",
          trigger=hr.every("1 second"))
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))

@hr.query(sink=hr.sink.sqlite("out.db", table="copied"), trigger=hr.every("1 second"))
def copied(events):
    return events
"""


def test_with_exit_on_failure_the_application_ends_with_the_first_query_that_fails(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", QUERIES, batches=FRUIT)
    (root / "away").write_text("no directory")
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root), "--exit-on-failure"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, "HR861" in done.stderr) == (1, False), done.stderr
    states = {entry.query: entry.state for entry in hr.status(load(root))}
    assert (states["totals"], states["copied"]) == ("failed", "stopped")
