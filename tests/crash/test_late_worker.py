"""A Python worker that does not connect in time, as on a machine that is loaded, is a fault that passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner.projects import ledger, rows, write_project
from tests.runner.test_run import FRUIT

pytestmark = pytest.mark.crash

QUERY = """
@F.udf("int")
def same(amount):
    return amount

@hr.query(sink=hr.sink.sqlite("out.db", table="copied"), trigger=hr.every("1 second"))
def copied(events):
    return events.select("name", same("amount").alias("amount"))
"""
# Without its daemon Spark starts each worker by itself, and waits ten seconds for it.
SETTINGS = """
name: p
spark:
  spark.python.use.daemon: "false"
  spark.python.worker.reuse: "true"
  spark.default.parallelism: "1"
"""
# The first worker begins when Spark has given it up.
PYTHON = """#!/bin/sh
case "$*" in *worker*) mkdir "{mark}" 2>/dev/null && sleep 20;; esac
exec "{python}" "$@"
"""


@pytest.mark.long
def test_a_worker_that_connects_too_late_is_reported_and_its_batch_is_tried_again(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", QUERY, batches=FRUIT)
    (root / "headrace.yml").write_text(SETTINGS)
    python, mark = tmp_path / "python", tmp_path / "was-late"
    python.write_text(PYTHON.format(mark=mark, python=sys.executable))
    python.chmod(0o755)
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root), "--available-now"]
    environ = {**os.environ, "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    log = (root / ".headrace" / "logs" / "headrace.log").read_text()
    assert mark.is_dir()
    assert done.returncode == 0, done.stdout + done.stderr
    late = r"HR411 .*: a Python worker of Spark was started and did not connect in time; batch 0 is tried again in "
    assert re.search(late, log), log
    assert "Spark died" not in log
    assert rows(root / "out.db", "SELECT name, amount FROM copied ORDER BY amount") == [
        ("apple", 1),
        ("pear", 2),
        ("apple", 3),
    ]
    assert ledger(root / "out.db") == [0, 1]
