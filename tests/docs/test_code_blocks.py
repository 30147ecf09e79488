"""The code of the documentation: Python compiles, YAML loads, projects hold together, commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from headrace import load
from headrace.checks.structure import check_structure
from headrace.cli.entry import headrace
from tests.docs.blocks import ROOT, Block, blocks, of_language, projects

pytestmark = pytest.mark.plain

KNOWN_LANGUAGES = {"python", "yaml", "sql", "console", "text", "ini", "json", "mermaid"}
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_every_block_names_a_language_that_is_checked_or_needs_no_check() -> None:
    assert [str(block) for block in blocks() if block.language not in KNOWN_LANGUAGES] == []


@pytest.mark.parametrize("block", of_language("python"), ids=str)
def test_a_python_block_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec", dont_inherit=True)


@pytest.mark.parametrize("block", of_language("yaml"), ids=str)
def test_a_yaml_block_loads(block: Block) -> None:
    assert isinstance(yaml.safe_load(block.text), dict)


@pytest.mark.parametrize("name", projects())
def test_a_project_loads_and_has_no_fault(name: str, tmp_path: Path) -> None:
    for block in projects()[name]:
        file = tmp_path / str(block.word("file"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
    project = load(tmp_path, environ={})
    assert project.queries
    assert [str(finding) for finding in check_structure(project)] == []


@pytest.mark.parametrize("block", of_language("console"), ids=str)
def test_every_command_exists_with_its_options(block: Block) -> None:
    commands = list(block.commands())
    assert commands, "a console block without a command"
    for command in commands:
        for words in simple_commands(command):
            require_known(words)


def simple_commands(command: str) -> list[list[str]]:
    """The parts of a shell's line, each as words, without redirections and comments."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.commenters = "#"
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word in ("|", "&", "&&", ";", "||"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [[word for at, word in enumerate(part) if not _redirects(part, at)] for part in parts if part]


def _redirects(words: list[str], at: int) -> bool:
    return words[at] in (">", "<", ">>") or (at > 0 and words[at - 1] in (">", "<", ">>"))


def require_known(words: list[str]) -> None:
    """Fail for a command, an option or a target of make that does not exist."""
    if words[0] == "headrace":
        name, *arguments = words[1:] or ["--help"]
        if name.startswith("-"):
            assert name in ("--help", "-h", "--version")
            return
        command = headrace.commands[name]
        try:
            command.make_context(name, arguments)
        except click.exceptions.Exit:
            assert "--help" in arguments
    elif words[0] == "make":
        assert [word for word in words[1:] if "=" not in word and word not in TARGETS] == []


@pytest.mark.parametrize(
    ("command", "error"),
    [
        pytest.param("headrace rum", KeyError, id="a command"),
        pytest.param("headrace run --availabel-now", click.UsageError, id="an option"),
        pytest.param("cd x && make dmo", AssertionError, id="a target of make"),
    ],
)
def test_a_misspelt_command_would_be_found(command: str, error: type[Exception]) -> None:
    *_, words = simple_commands(command)
    with pytest.raises(error):
        require_known(words)
