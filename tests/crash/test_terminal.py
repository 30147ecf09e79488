"""Ctrl-C in a terminal ends a run in a sentence and with its exit code; no process and no hidden cursor is left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.rounds import rounds
from tests.runner.projects import ledger, write_project
from tests.terminal import CTRL_C, Terminal
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

QUERY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="fruit"), trigger=hr.every("200 milliseconds"))
def fruit(events):
    return events
"""


@pytest.mark.parametrize("columns", rounds([80, 40]))
def test_ctrl_c_ends_a_run_after_its_batch(tmp_path: Path, columns: int) -> None:
    root = write_project(tmp_path / "p", QUERY, batches=[[{"name": "apple", "amount": 1}]])
    terminal = Terminal([sys.executable, "-m", "headrace", "run", "-C", str(root)], columns=columns)
    try:
        terminal.await_text("starting Spark (")
        until("result", lambda: ledger(root / "out.db") == [0])
        terminal.await_text("running; Ctrl-C stops")
        terminal.type(CTRL_C)
        *_, last = terminal.end().strip().splitlines()
        assert (terminal.process.returncode, last) == (0, "fruit: stopped after 1 batch with 1 row")
        assert "Traceback" not in terminal.text
        assert terminal.has_cursor
    finally:
        terminal.close()
