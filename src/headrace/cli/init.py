"""`headrace init NAME`: write a project that runs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from headrace.cli.options import json_option
from headrace.cli.output import say_json


@click.command()
@click.argument("name", type=click.Path(path_type=Path))
@click.option("--sql", is_flag=True, help="Declare everything in YAML and SQL instead of Python.")
@json_option
def init(name: Path, sql: bool, as_json: bool) -> int:
    """Write a small project that runs into a new directory."""
    from headrace.demo.starter import write_project

    written = write_project(name, form="sql" if sql else "python")
    steps = next_steps(name)
    if as_json:
        say_json({"project": name.resolve(), "files": written, "next": steps})
        return 0
    click.echo(f"a project was written to '{name}': " + ", ".join(str(path) for path in written))
    click.echo("next:")
    for step in steps:
        click.echo(f"  {step}")
    return 0


def next_steps(directory: Path) -> list[str]:
    """The commands to type next, as they work in this shell."""
    program = command()
    return [f"cd {quoted(directory)}", *(f"{program} {rest}" for rest in ("check", "run --available-now", "verify"))]


def command() -> str:
    """How to call headrace from any directory of this shell: by its name when it is on the path."""
    beside = Path(sys.executable).parent / "headrace"
    found = shutil.which("headrace")
    if found and Path(found).resolve() == beside.resolve():
        return "headrace"
    return quoted(beside) if beside.exists() else f"{quoted(Path(sys.executable))} -m headrace"


def quoted(path: Path) -> str:
    """`path` as a shell takes it."""
    import shlex

    return shlex.quote(str(path))
