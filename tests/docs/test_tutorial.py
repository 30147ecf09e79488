"""The tutorial, typed as it stands: every command really runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

PAGE = ROOT / "docs" / "tutorial" / "first-stream.md"
MARK = "-- what follows is of command"


def script() -> str:
    """The commands of the page in their order, each marked in the output, and the edits between them."""
    lines = []
    for number, (block, command) in enumerate(steps()):
        lines += [f"echo '{MARK} {number}'", command or f"cat >> {block.word('append')} <<'END'\n\n\n{block.text}END"]
    return "\n".join(lines)


def steps() -> Iterator[tuple[Block, str]]:
    """Each command to be run with its block; an edit of a file has no command."""
    for block in blocks():
        if block.page == PAGE and "run" in block.words:
            yield from ((block, command) for command in block.commands())
        elif block.page == PAGE and block.word("append"):
            yield block, ""


def shown() -> list[list[str]]:
    """What the page shows below each command, a line each."""
    found: list[list[str]] = []
    for block in dict.fromkeys(block for block, _ in steps()):
        if block.word("append"):
            found.append([])
            continue
        for line in block.text.splitlines():
            if line.startswith("$ "):
                found.append([])
            elif line != "...":
                found[-1].append(line)
    return found


def alike(line: str) -> str:
    """The line without what differs from run to run: the number of the last batch, the time and the speed."""
    return re.sub(r"up to batch \d+", "up to batch #", re.sub(r"; .* rows/s$", "; ", line))


def test_the_tutorial_goes_as_it_is_written(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script()],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = [part.splitlines()[1:] for part in done.stdout.split(MARK)[1:]]
    assert len(printed) == len(shown())
    for (_, command), wanted, lines in zip(steps(), shown(), printed, strict=True):
        rest = iter([alike(line) for line in lines])
        for line in wanted:
            assert any(each.startswith(alike(line)) for each in rest), f"$ {command}\n{chr(10).join(lines)}"
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
