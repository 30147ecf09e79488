"""Processes that die while a command changes what a query has: the next one completes the change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from headrace.spark.jvm.gateway import kill_all
from tests.changes.former_jobs import JOBS, begin, land_more, require_unchanged, table
from tests.starter.test_rename import apply_rename, has_run, name_query, state, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(200)]
ROOT = Path(__file__).parents[2]

RENAME = """
import os, signal
import headrace as hr
from headrace.generations.register import layout_of
from headrace.generations.register import enter_name
project = hr.load({root!r})
query = project.queries["new"]
enter_name(project, query, layout_of(project, query))
os.kill(os.getpid(), signal.SIGKILL)
"""
ADOPT = """
from pathlib import Path
import headrace as hr
from tests.crash.drivers import kill_at_step
hr.adopt(hr.load({root!r}), "totals", Path({checkpoint!r})).apply(reached=kill_at_step({step!r}))
"""


def exit_code_of(script: str) -> int:
    """The exit code of a process of its own, whose JVM goes with it."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environ, start_new_session=True)
    try:
        return process.wait(120)
    finally:
        kill_all(process.pid)


def errors(project: hr.Project, query: str) -> list[str]:
    findings = inspect_checkpoint(project, project.queries[query]).findings
    return [finding.code for finding in findings if finding.severity != "note"][:1]


def test_a_rename_whose_process_is_killed_behind_its_record_is_whole_at_the_next_start(tmp_path: Path) -> None:
    root = tmp_path / "p"
    former = name_query(root, "old")
    has_run(former, "old")
    before = errors(former, "old")
    project = name_query(root, "new", "old")
    assert exit_code_of(RENAME.format(root=str(root))) == -signal.SIGKILL
    assert errors(project, "new") == before
    apply_rename(project, "new")
    assert state(project, "new") == whole("new")


@pytest.mark.long
def test_an_adoption_whose_process_is_killed_is_ended_by_the_same_command(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "p"
    begin(root)
    checkpoint = JOBS["totals"].run(spark, root)
    project = hr.load(root)
    with require_unchanged(checkpoint):
        for step in ("copied", "entered"):
            script = ADOPT.format(root=str(root), checkpoint=str(checkpoint), step=step)
            assert exit_code_of(script) == -signal.SIGKILL
            assert errors(project, "totals") == ["HR581"], step
        assert hr.adopt(project, "totals", checkpoint, spark=spark).apply().plan.continues
    # What was adopted is a query like others: it is renamed, and rebuilt.
    pipeline = root / "pipeline.py"
    text = pipeline.read_text().replace(
        'mode="update")\ndef totals(', 'mode="update", renamed_from="totals")\ndef sums('
    )
    pipeline.write_text(text)
    project = hr.load(root)
    land_more(root)
    assert hr.run(project, ["sums"], trigger=hr.available_now, spark=spark).exit_code == 0
    assert table(root, "totals") == [("a", 7), ("b", 14), ("c", 3)]
    assert hr.verify(project, "sums", spark=spark).state == "equal"
    pipeline.write_text(text.replace('F.sum("amount").alias("total")', 'F.max("amount").cast("long").alias("total")'))
    project = hr.load(root)
    done = hr.rebuild(project, "sums", spark=spark).apply()
    assert (done.done, table(root, "totals")) == ("swapped", [("a", 4), ("b", 9), ("c", 3)])
    assert hr.verify(project, "sums", spark=spark).state == "equal"
    assert hr.rebuild(project, "sums", spark=spark).undo().done == "rolled-back"
    assert table(root, "totals") == [("a", 7), ("b", 14), ("c", 3)]
