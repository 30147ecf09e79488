"""`headrace explain` shows the page of findings; a shell completes commands by `headrace completion`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.findings import CODES
from tests.conftest import ROOT

pytestmark = pytest.mark.plain

PAGE = (ROOT / "docs" / "reference" / "findings.md").read_text()


def explain(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explain", *arguments]) == 0
    return capsys.readouterr().out


def test_each_code_is_explained_with_its_fix_and_without_the_next_one(capsys: pytest.CaptureFixture[str]) -> None:
    for code in CODES:
        lines = explain(code.code, "--json", capsys=capsys)
        facts = json.loads(lines)
        assert facts["text"] in PAGE
        assert re.search(r"^Fix: ", facts["text"], re.MULTILINE), code
        assert "\n### " not in facts["text"]
        assert facts["title"] == code.title


@pytest.mark.parametrize("code", ["HR408", "hr408", "408"])
def test_a_code_is_written_as_one_likes(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(code, capsys=capsys).startswith("HR408: ")


def test_an_example_says_what_it_is_and_links_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    for code in ("HR203", "HR408"):
        text = explain(code, capsys=capsys)
        assert not re.search(r"\]\(|^```\w+ ", text, re.MULTILINE)
        assert re.search(r"^(wrong|message):$", text, re.MULTILINE)


def test_an_unknown_code_gets_the_nearest_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "HR4080"]) == 2
    shown = capsys.readouterr().err
    assert "HR090: no finding has the code 'HR4080'" in shown
    assert "'HR408'" in shown


ASK_BASH = """
source <("$HEADRACE" completion bash)
COMP_WORDS=("$HEADRACE" {words}); COMP_CWORD={number}
_headrace_completion "$HEADRACE"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ASK_ZSH = """
compdef() {{ true }}
compadd() {{ print -rl -- $completions }}
_describe() {{ print -rl -- $completions_with_descriptions }}
eval "$("$HEADRACE" completion zsh)"
words=("$HEADRACE" {words}); CURRENT=$(( {number} + 1 ))
_headrace_completion
"""
ASK_FISH = """
eval "$HEADRACE" completion fish | source
complete -C "headrace {line}"
"""


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (["ver"], {"verify"}),
        (["change", "re"], {"resume"}),
        (["run", "--available"], {"--available-now"}),
        (["completion", "f"], {"fish"}),
    ],
    ids=["a command", "a command of a group", "an option", "a value"],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell: str, words: list[str], proposed: set[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = {"bash": ASK_BASH, "zsh": ASK_ZSH, "fish": ASK_FISH}[shell]
    asked = script.format(words=" ".join(words), number=len(words), line=" ".join(words))
    program = Path(sys.executable).parent / "headrace"
    environ = {**os.environ, "HEADRACE": str(program), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([shell, "-c", asked], env=environ, capture_output=True, text=True, check=True)
    assert proposed <= {re.split(r"[:\t]", line)[0] for line in done.stdout.split("\n")}, done.stderr
