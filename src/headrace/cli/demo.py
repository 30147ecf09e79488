"""`headrace demo DIR`: see everything at work: events, a crash, a restart, and the proof."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.init import command, quoted
from headrace.cli.options import json_option_of_starter, target_option

if TYPE_CHECKING:
    from headrace.cli.view.show import Show


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--seconds", type=click.FloatRange(min=4), help="How long events land [default: 30].")
@target_option
@json_option_of_starter
def demo(directory: Path, seconds: float | None, target: str | None, as_json: bool) -> int:
    """See everything at work: events, a crash, a restart, the proof.

    Writes a project to DIR, lets events land in it, kills the driver in the middle, and takes at most two minutes.
    """
    from headrace.cli.view.show import JsonShow, LiveShow, PlainShow
    from headrace.demo.flow import Pace
    from headrace.demo.flow import demo as play

    pace = None if seconds is None else Pace(seconds=seconds)
    show: Show = JsonShow() if as_json else LiveShow() if LiveShow.fits() else PlainShow()
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with show:
            code = play(directory, show, pace=pace, target=target, as_json=as_json)
    finally:
        signal.signal(signal.SIGTERM, before)
    show.ends(code, next_steps(directory))
    return code


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def next_steps(directory: Path) -> list[str]:
    """The commands to type after the demo."""
    program = command()
    return [
        f"cd {quoted(directory)}",
        f"{program} status",
        f"{program} check",
        f"{program} run          # runs until Ctrl-C",
        f"{program} verify",
    ]
