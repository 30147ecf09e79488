"""`headrace explain` and `completion`: what a code means, and how a shell completes commands."""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.shell_completion import get_completion_class

import headrace
from headrace.cli.options import json_option
from headrace.cli.output import console_of, say_json
from headrace.errors import HeadraceError, nearest
from headrace.findings import CATALOGUE


@click.command()
@click.argument("code", metavar="CODE")
@json_option
def explain(code: str, as_json: bool) -> int:
    """Say what a finding means, and what to do about it.

    CODE is that of any message, as HR408. The text is that of the reference of findings.
    """
    name = code.upper() if code.upper().startswith("HR") else f"HR{code}"
    if name not in CATALOGUE:
        problem = f"no finding has the code '{code}'"
        raise HeadraceError(code="HR090", what=problem, fix=f"{nearest(name, CATALOGUE)} See: headrace explain --help")
    entry, text = CATALOGUE[name], text_of(name)
    if as_json:
        say_json({"code": name, "title": entry.title, "severities": entry.severities, "text": text})
        return 0
    title, text = f"{name}: {entry.title} ({' or '.join(entry.severities)})", _for_terminal(text)
    console = console_of()
    if console.is_terminal:
        from rich.markdown import Markdown

        console.print(Markdown(f"### {title}\n\n{text}", hyperlinks=False))
    else:
        click.echo(f"{title}\n\n{text}")
    return 0


def text_of(code: str) -> str:
    """Return what the page of findings says below the heading of a code."""
    package = Path(headrace.__file__).parent
    # A wheel has the page in the package; a checkout among its documentation.
    page = next(
        place
        for place in (package / "findings.md", package.parents[1] / "docs" / "reference" / "findings.md")
        if place.is_file()
    )
    below = re.search(rf"^### {code}\b.*\n((?:(?!##+ ).*\n)*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return below[1].strip() if below else ""


def _for_terminal(text: str) -> str:
    """Return the text without its links, whose pages are not here, and with the sort of each example above it."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"^```(\w+) (wrong|right|message)\b.*$", r"\2:\n\n```\1", text, flags=re.MULTILINE)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print what lets a shell complete commands and options.

    \b
    bash: put into ~/.bashrc:  source <(headrace completion bash)
    zsh:  put into ~/.zshrc:   source <(headrace completion zsh)
    fish: headrace completion fish > ~/.config/fish/completions/headrace.fish
    """
    program = context.find_root().command
    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(program, {}, "headrace", "_HEADRACE_COMPLETE").source())
    return 0
