"""The notebook among the examples shows what is kept in it; in its kernel, an interrupt ends a run after its batch."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
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


# A project whose batch has begun when there is a file `begun`, and ends when there is a file `go`.
SLOW = """
import time
from pathlib import Path

import headrace as hr
from pyspark.sql import functions as F

HERE = str(Path(__file__).parent)
numbers = hr.source.files("landing", format="json", schema="n INT")


@F.udf("int")
def slow(n):
    Path(HERE, "begun").touch()
    while not Path(HERE, "go").exists():
        time.sleep(0.05)
    return n


@hr.query(sink=hr.sink.files("out", format="json"))
def slowly(numbers):
    return numbers.select(slow("n").alias("n"))
"""
RUN_SLOWLY = """
with hr.start(hr.load("slow"), spark=spark) as application:
    result = application.wait()
print(*(outcome.state for outcome in result.outcomes))
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Any, Path]:
    """The cells of the notebook after a run, one more whose kernel was interrupted in its batch, and its project."""
    place = tmp_path_factory.mktemp("notebook")
    slow = place / "slow"
    (slow / "landing").mkdir(parents=True)
    (slow / "landing" / "0.json").write_text('{"n": 7}')
    (slow / "headrace.yml").write_text("name: slow\n")
    (slow / "pipeline.py").write_text(SLOW)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.insert(-1, nbformat.v4.new_code_cell(RUN_SLOWLY))
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(place)}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        asyncio.run(run(client, slow))
    interrupted = notebook.cells.pop(-2)
    return notebook.cells, interrupted, slow


async def run(client: Any, slow: Path) -> None:
    """Run all cells; interrupt the last but one in its batch, which may end once its live cell shows that it stops."""
    async with client.async_setup_kernel():
        for number, cell in enumerate(client.nb.cells):
            running = asyncio.create_task(client.async_execute_cell(cell, number))
            if cell.source == RUN_SLOWLY:
                await until(running, cell, lambda _: (slow / "begun").exists())
                await client.km.interrupt_kernel()
                await until(running, cell, lambda shown: "stopping" in shown)
                (slow / "go").touch()
            await running


async def until(running: asyncio.Task[Any], cell: Any, holds: Callable[[str], bool]) -> None:
    """Wait until something holds of what a cell shows, or it has ended."""
    while not running.done() and not holds("".join(outputs(cell))):
        await asyncio.sleep(0.05)


def test_the_notebook_runs_and_shows_what_is_kept_in_it(cells: tuple[list[Any], Any, Path]) -> None:
    kept = nbformat.read(NOTEBOOK, as_version=4)
    for before, after in zip(kept.cells, cells[0], strict=True):
        if before.cell_type == "code":
            assert outputs(after) == outputs(before), before.source
    html = "".join(text for cell in cells[0] if cell.cell_type == "code" for text in outputs(cell))
    assert html.count('class="headrace"') >= 7
    assert "<script" not in html


def test_an_interrupt_stops_the_queries_after_their_batch(cells: tuple[list[Any], Any, Path]) -> None:
    _, interrupted, slow = cells
    printed, *shown = outputs(interrupted)
    assert printed == "stopped\n"
    assert [json.loads(line) for file in (slow / "out").glob("part-*.json") for line in file.open()] == [{"n": 7}]
    (table,) = [html for html in shown if html.startswith("text/html")]
    assert re.findall(r"<td[^>]*>(?:<span[^>]*>)?([^<]*)", table)[:4] == ["slowly", "stopped", "0", "1"]
    assert {"rows/s in", "rows/s processed", "duration", "lag"} <= set(re.findall("<th[^>]*>([^<]*)", table))
