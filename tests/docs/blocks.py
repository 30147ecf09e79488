"""The code blocks of the documentation, as its pages write them.

The words after a block's language say what is done with it: `project=NAME file=PATH` writes it into the project NAME,
which is then loaded and checked; `run` lets the commands of a console block really run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One code block: where it begins, its language, what is to be done with it, and its text."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def word(self, name: str) -> str | None:
        """The value of the word `name=value`."""
        return next((word.partition("=")[2] for word in self.words if word.startswith(f"{name}=")), None)

    def commands(self) -> Iterator[str]:
        """The commands of a console block, without the prompt and what is printed; a line's end may be escaped."""
        lines = iter(self.text.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command = command[:-1] + next(lines).strip()
                yield command


def not_printed(shown: Iterable[str], printed: Sequence[str]) -> str | None:
    """The first line that a page shows and a command does not print there: a page that leaves lines out says `...`."""
    at, may_be_later = 0, True
    for line in shown:
        if line == "...":
            may_be_later = True
            continue
        position = next((number for number in range(at, len(printed)) if printed[number].startswith(line)), None)
        if position is None or (position > at and not may_be_later):
            return line
        at, may_be_later = position + 1, False
    return None


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


@cache
def blocks() -> tuple[Block, ...]:
    """Every code block of every page."""
    page_blocks = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            language, *words = shlex.split(match["info"]) or [""]
            line = text.count("\n", 0, match.start()) + 1
            page_blocks.append(Block(page=page, line=line, language=language, words=tuple(words), text=match["text"]))
    return tuple(page_blocks)


def of_language(*languages: str) -> list[Block]:
    """The blocks in one of `languages`."""
    return [block for block in blocks() if block.language in languages]


def projects() -> dict[str, list[Block]]:
    """The blocks that make up each project."""
    projects: dict[str, list[Block]] = {}
    for block in blocks():
        if name := block.word("project"):
            projects.setdefault(name, []).append(block)
    return projects
