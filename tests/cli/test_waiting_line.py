"""On a terminal a command that takes long shows what it does."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.demo.starter import write_project
from tests.registered import layout_in
from tests.terminal import Terminal
from tests.waiting import until

pytestmark = pytest.mark.plain
CHECKPOINT = Path(__file__).parent.parent / "checkpoint" / "fixtures" / "rocksdb_few.zip"
# The line is there at once, so that a command that ends quickly shows it too.
AT_ONCE = """
import sys, types
from headrace.cli import output
from headrace.cli.entry import main

Now = lambda _, start: types.SimpleNamespace(start=start, cancel=lambda: None, join=lambda: None)
output.threading = types.SimpleNamespace(Timer=Now)
"""
COMMANDS = AT_ONCE + "for command in sys.argv[1:]: main(command.split())"
WHILE_SPARK_STARTS = """
import sys
from headrace.cli.output import show_waiting
from headrace.spark.jvm.stderr_filter import drop_lines

with show_waiting("starting"), drop_lines():
    sys.stdin.readline()
"""


def python(program: str, *arguments: str, stdout: int | None = None) -> Terminal:
    """A Python program in a terminal of its own."""
    return Terminal([sys.executable, "-c", program, *arguments], stdout=stdout)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path / "phones", event_files=1)
    with zipfile.ZipFile(CHECKPOINT) as archive:
        archive.extractall(layout_in(tmp_path / "phones" / ".headrace", "action_counts").home / "checkpoint")
    (tmp_path / "phones" / "tests" / "action_counts.yml").write_text("tests: [{name: a}, {name: b}]")
    return tmp_path / "phones"


def test_the_line_moves_while_standard_error_holds_lines_back_for_spark(terminals: list[Terminal]) -> None:
    terminals.append(terminal := python(WHILE_SPARK_STARTS))
    until("line of the wait", lambda: "starting 0:00:01" in terminal.text)
    terminal.type("\n")
    terminal.end()
    assert terminal.process.returncode == 0


def test_what_the_project_prints_stays_on_standard_output(terminals: list[Terminal], project: Path) -> None:
    (project / "pipeline.py").write_text("print('of the project')\n" + (project / "pipeline.py").read_text())
    reading, writing = os.pipe()
    terminals.append(terminal := python(COMMANDS, f"inspect checkpoint -C {project}", stdout=writing))
    os.close(writing)
    with open(reading) as piped:
        assert piped.readline() == "of the project\n"
        piped.read()
    assert "of the project" not in terminal.end()


def test_each_command_that_may_take_long_shows_what_it_does(terminals: list[Terminal], project: Path) -> None:
    shown = {
        "inspect checkpoint": "reading the project",
        "inspect checkpoint action_counts": "action_counts: reading its checkpoint",
        "inspect offsets action_counts": "action_counts: reading its checkpoint",
        "inspect watermark action_counts": "action_counts: reading its checkpoint",
        "state show action_counts --batch 99": "action_counts: reading its state",
        "state repartition action_counts 5": "action_counts: writing its state in other partitions",
        "test": "running the tests ━",
        "rewind action_counts --to-batch 99 --yes": "action_counts: rewind",
        "reset action_counts --drop-result --dry-run": "action_counts: looking at what there is",
        "rebuild action_counts --dry-run": "action_counts: looking at what there is",
        "pause action_counts": "action_counts: waiting for the running application",
        "stop": "waiting for the running batches",
        "deploy": "comparing the project with what runs",
    }
    terminals.append(terminal := python(COMMANDS, *(f"{command} -C {project}" for command in shown)))
    text = terminal.end()
    assert [line for line in shown.values() if line not in text] == []


@pytest.mark.parametrize("directory", ["-C {0}", "{0}"], ids=["one project", "several projects"])
def test_the_dashboard_says_that_it_starts_and_then_where_it_is(
    terminals: list[Terminal], project: Path, directory: str
) -> None:
    terminals.append(terminal := python(COMMANDS, f"ui --port 0 {directory.format(project)}"))
    until("link", lambda: "(Ctrl-C ends)" in terminal.text or terminal.process.poll() is not None)
    lines = ("reading the project", "starting the dashboard", "the dashboard of")
    assert [line for line in lines if line not in terminal.text] == []
