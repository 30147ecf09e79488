"""The tutorial, typed as it stands: every command really runs, and prints what the page says.

What needs Spark and is waited for runs in the session of the tests; the driver that is killed is a process, and so is
whatever else a shell does.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli import main
from tests import in_session
from tests.docs.blocks import ROOT, Block, blocks, not_printed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "tutorial" / "first-stream.md"
MARK = "-- what follows is of command"
WITH_SPARK = ("headrace check", "headrace run --available-now", "headrace verify")
# Of half a minute in which events land, the stream needs no more than until it has written some.
LONG, SHORT = "--seconds 30", "--seconds 2"
WRITTEN = (
    "for i in $(seq 600); do [ $(ls .headrace/queries/*/g1.1/checkpoint/commits | grep -c '^[0-9]') -gt 3 ] && break; "
    "sleep 0.1; done"
)


def shell_input(block: Block, command: str) -> str:
    """What a shell is given for a step of the page."""
    if not command:
        return f"cat >> {block.word('append')} <<'END'\n\n\n{block.text}END"
    return f"{command.replace(LONG, SHORT)}\n{WRITTEN}" if LONG in command else command


def in_shell(steps: list[str], place: Path) -> tuple[list[list[str]], Path]:
    """What each of the steps prints, and the directory that they end in."""
    script = "\n".join(f"echo '{MARK}'\n{step}" for step in [*steps, "pwd"])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=place,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    *printed, [last] = [part.splitlines()[1:] for part in done.stdout.split(MARK)[1:]]
    return printed, Path(last)


def steps() -> Iterator[tuple[Block, str]]:
    """Each command to be run with its block; an edit of a file has no command."""
    for block in blocks():
        if block.page == PAGE and "run" in block.words:
            yield from ((block, command) for command in block.commands())
        elif block.page == PAGE and block.word("append"):
            yield block, ""


def shown_lines() -> list[list[str]]:
    """What the page shows below each command, a line each."""
    groups: list[list[str]] = []
    for block in dict.fromkeys(block for block, _ in steps()):
        if block.word("append"):
            groups.append([])
            continue
        for line in block.text.splitlines():
            if line.startswith("$ "):
                groups.append([])
            else:
                groups[-1].append(line)
    return groups


def alike(line: str) -> str:
    """The line without what differs from run to run: the number of the last batch, the time and the speed."""
    return re.sub(r"up to batch \d+", "up to batch #", re.sub(r"; .* rows/s$", "; ", line))


def test_the_tutorial_goes_as_it_is_written(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_session.lend(spark, monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert any(LONG in command for _, command in steps())
    printed: list[list[str]] = []
    for lent, group in groupby(steps(), key=lambda step: step[1] in WITH_SPARK):
        if lent:
            for _, command in group:
                capsys.readouterr()
                assert main(shlex.split(command)[1:]) == 0, command
                printed.append("".join(capsys.readouterr()).splitlines())
        else:
            output, place = in_shell([shell_input(*step) for step in group], Path.cwd())
            printed += output
            monkeypatch.chdir(place)
    assert len(printed) == len(shown_lines())
    for (_, command), wanted, lines in zip(steps(), shown_lines(), printed, strict=True):
        missing = not_printed(map(alike, wanted), list(map(alike, lines)))
        assert missing is None, f"{missing} is not there:\n$ {command}\n{chr(10).join(lines)}"
    assert "killed" in "\n".join(printed[commands().index("headrace status") + 2])
    sample = next(block for block in blocks() if block.page == PAGE and block.language == "json")
    assert (
        sample.text
        == (tmp_path / "phones/landing/events/events-000000.json").read_text(encoding="utf-8")[: len(sample.text)]
    )
    pipeline = tmp_path / "phones" / "pipeline.py"
    first = next(block for block in blocks() if block.page == PAGE and block.word("file") == "pipeline.py")
    assert pipeline.read_text(encoding="utf-8").startswith(first.text)
    for name in ("headrace.yml", "queries/action_counts.sql"):
        block = next(block for block in blocks() if block.page == PAGE and block.word("file") == name)
        written = (tmp_path / "phones-sql" / name).read_text(encoding="utf-8")
        assert written.endswith(block.text)


def commands() -> list[str]:
    """The commands of the page, an empty text for an edit."""
    return [command for _, command in steps()]
