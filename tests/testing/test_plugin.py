"""The fixtures of the plug-in, as a project's own tests use them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.testing import Crash, TimelineRun
from headrace.testing.plugin import timeline
from tests.docs.blocks import ROOT

__all__ = ["timeline"]
LINES = "name: own\nsources: {lines: {files: {path: landing, format: text}}}\n"


@pytest.fixture(name="headrace_project")
def of_the_examples() -> hr.Project:
    return hr.load(ROOT / "examples" / "mobile-monitoring")


@pytest.mark.spark
def test_a_late_open_updates_its_hour(timeline: Callable[..., TimelineRun]) -> None:
    run = timeline(
        "counts_in_postgres",
        events=[
            [("phone1", "01:10", "open"), ("phone2", "01:58", "open")],
            Crash(),
            [("phone3", "01:58", "open")],
        ],
    )
    assert run.after(1)["open", "01:00"].count == 2
    assert run.final == run.batch
    assert run.late == []


@pytest.mark.plain
def test_the_project_is_the_nearest_one_above_the_test(tmp_path: Path) -> None:
    query = "queries: {all: {select: SELECT value FROM lines, sink: {postgres: {url: '${NOT_SET}', table: t}}}}\n"
    (tmp_path / "headrace.yml").write_text(LINES + query)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_own.py").write_text(
        "pytest_plugins = ['headrace.testing.plugin']\n"
        "def test_own(headrace_project):\n"
        "    assert (headrace_project.name, list(headrace_project.queries)) == ('own', ['all'])\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 passed" in done.stdout, done.stdout
