"""`headrace init NAME`, `demo DIR` and `schema`: a project that runs, one at work, and what an editor checks it by."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
from pathlib import Path

import click

from headrace.cli.options import JSON_HELP, FiniteRange, json_option, target_option
from headrace.cli.output import say_below, say_json, write_line


@click.command()
@click.argument("name", type=click.Path(path_type=Path))
@click.option("--sql", is_flag=True, help="Declare everything in YAML and SQL instead of Python.")
@json_option
def init(name: Path, sql: bool, as_json: bool) -> int:
    """Write a small project that runs into a new directory."""
    from headrace.demo.starter import write_project

    written = write_project(name, form="sql" if sql else "python")
    steps = commands(name, "check", "run --available-now", "verify")
    if as_json:
        say_json({"project": name.resolve(), "files": written, "next": steps})
        return 0
    click.echo(f"a project was written to '{name}': {', '.join(map(str, written))}\nnext:")
    say_below(steps)
    return 0


def commands(directory: Path, *words: str) -> list[str]:
    """Return the commands to type in the project, as they work in this shell."""
    program = _program()
    return [f"cd {shlex.quote(str(directory))}", *(f"{program} {word}" for word in words)]


def _program() -> str:
    """Return how to call headrace from any directory of this shell: by its name when it is on the path."""
    program_here = Path(sys.executable).parent / "headrace"
    program = shutil.which("headrace")
    if program and Path(program).resolve() == program_here.resolve():
        return "headrace"
    return shlex.quote(str(program_here)) if program_here.exists() else f"{shlex.quote(sys.executable)} -m headrace"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR", default=Path("demo"))
@click.option("--seconds", type=FiniteRange(min=4), help="How long events land [default: 30].")
@target_option
# Its lines on stdout are those of the commands that it starts as well.
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def demo(directory: Path, seconds: float | None, target: str | None, as_json: bool) -> int:
    """See everything at work: events, a crash, a restart, the proof.

    Writes a project to DIR (demo), lets events land in it, kills the driver in the middle, and takes about two minutes.
    """
    from headrace.cli.view.show import JsonShow, LiveShow, PlainShow
    from headrace.demo.flow import Pace
    from headrace.demo.flow import demo as play

    pace = None if seconds is None else Pace(seconds=seconds)
    show = JsonShow() if as_json else LiveShow() if LiveShow.fits() else PlainShow()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with show:
            code = play(directory, show, pace=pace, target=target, as_json=as_json)
    finally:
        signal.signal(signal.SIGTERM, before)
    show.end(code, commands(directory, "status", "check", "run          # runs until Ctrl-C", "verify"))
    return code


@click.command()
@json_option
def schema(as_json: bool) -> int:
    """Print the JSON Schema of headrace.yml.

    An editor completes and checks the file by it. It holds the options of every connector that is installed.
    """
    from headrace.loader.schema import schema as made

    write_line(json.dumps(made(), indent=None if as_json else 2))
    return 0
