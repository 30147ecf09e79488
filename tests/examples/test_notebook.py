"""The notebook among the examples, run from its first cell to its last, shows what is kept in it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
# What differs from run to run: times, durations, ids, and where the notebook was run.
CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d+\S*?(?=[<'\s]|$)|\b[\d,]+\.\d+\b|0x[0-9a-f]+"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b[0-9a-f]{16}\b|(?:/[\w.-]+)+/phones\b"
)


def outputs(cell: Any) -> list[str]:
    """What a reader sees of a cell: what it printed, without Spark's log, and its result in each form."""
    printed = "".join(
        output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout"
    )
    results = [output.data for output in cell.outputs if "data" in output]
    shown = [printed, *(f"{kind}: {text}" for data in results for kind, text in sorted(data.items()))]
    return [CHANGING.sub("...", text) for text in shown]


def test_the_notebook_runs_and_shows_what_is_kept_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    kept = nbformat.read(NOTEBOOK, as_version=4)
    made = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(made, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for before, after in zip(kept.cells, made.cells, strict=True):
        if before.cell_type == "code":
            assert outputs(after) == outputs(before), before.source
    html = "".join(text for cell in made.cells if cell.cell_type == "code" for text in outputs(cell))
    assert html.count('class="headrace"') >= 7
    assert "<script" not in html
