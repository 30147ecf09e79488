"""`headrace service` and `headrace ui`: the systemd unit of a project, what Prometheus needs, and the dashboard."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from headrace.cli.options import ProjectOptions, parse_length, reads_project, usage_error
from headrace.cli.output import amount, show_waiting
from headrace.errors import HeadraceError
from headrace.redaction import KNOWN

if TYPE_CHECKING:
    from headrace.control.board import Board
    from headrace.model import Project
    from headrace.ui.listed import Listed


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the unit into FILE."
)
@click.option("--user", metavar="NAME", help="Whom it runs as [default: whom the project's directory belongs to].")
@click.option(
    "--stop-timeout", metavar="TIME", help="What the running batches may take to finish [default: 5 minutes]."
)
@click.option("--watchdog", metavar="TIME", help="Start it again after so long without work [default: 30 minutes].")
@click.option("--memory", metavar="SIZE", default="90%", help="What it may use, as 16G or a share [default: 90%].")
@click.option("--monitoring", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="See below.")
@reads_project
def service(
    out: Path | None,
    user: str | None,
    stop_timeout: str | None,
    watchdog: str | None,
    memory: str,
    monitoring: Path | None,
    options: ProjectOptions,
) -> int:
    """Write a systemd unit for the project.

    It goes to stdout or to FILE, which systemd's own check judges where there is one. --monitoring writes alert rules
    and a scrape configuration for Prometheus, and a dashboard for Grafana, into DIR.
    """
    from headrace.export.service import PORT, STOP_TIMEOUT, WATCHDOG, systemd_version, unit, unit_name, write_monitoring

    project = options.project()
    stopped = STOP_TIMEOUT if stop_timeout is None else parse_length(stop_timeout, "--stop-timeout")
    watched = WATCHDOG if watchdog is None else parse_length(watchdog, "--watchdog")
    for option, given in (("--stop-timeout", stopped), ("--watchdog", watched)):
        if given.seconds < 1:
            raise usage_error(f"{option} is shorter than one second", 'write for example "10 minutes"')
    if not re.fullmatch(r"[0-9]+[KMGT]?|[0-9]+(\.[0-9]+)?%", memory) or not re.search("[1-9]", memory):
        raise usage_error(f"--memory: '{memory}' is not a size", "write for example 16G or 80%")
    try:
        if monitoring is not None:
            written = write_monitoring(monitoring, project)
            sentence = f"written: {', '.join(map(str, written))}"
            if project.target.operations.metrics is None:
                sentence += f"\nthe service serves no metrics until headrace.yml has them: metrics: {{port: {PORT}}}"
            options.say({"files": written}, lambda: click.echo(sentence))
            return 0
        text = unit(
            project, user=user, stop_timeout=stopped, watchdog=watched, memory=memory, systemd=systemd_version()
        )
        if out is None:
            options.say({"unit": text}, lambda: click.echo(text, nl=False))
            return 0
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"{error.filename or out or monitoring} cannot be written: {error.strerror or error}"
        raise HeadraceError(code="HR877", what=problem, fix="write elsewhere, and move it by sudo") from error
    options.say({"unit": text, "file": out}, lambda: click.echo(_next_steps(out, unit_name(project))))
    return _verify_unit(out)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8470, show_default=True, help="0 takes a free one.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to serve; see below.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name by which a proxy asks. Repeatable.")
@click.option("--certificate", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="For TLS, in PEM.")
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="The certificate's key.")
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@reads_project
def ui(
    port: int,
    address: str,
    names: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
    directories: tuple[Path, ...],
    options: ProjectOptions,
) -> int:
    """Show the project in the browser: state, rates, faults.

    Several DIR are several projects, in a list. The pages read the history, and need neither Spark nor a running
    application. They are served to this machine alone, and ask for the token: that of the variable HEADRACE_UI_TOKEN,
    or one that is made and printed as a part of the link. Any other --address needs HEADRACE_UI_TOKEN, and TLS.
    Ctrl-C ends.
    """
    from headrace.ui.listed import list_projects

    token = _token()
    shown: Project | Sequence[Listed]
    if directories:
        with show_waiting("reading the projects"):
            shown = list_projects(_load_all(directories, options))
        title = f"of {amount(len(shown), 'project')}"
    else:
        shown = options.project()
        title = f"of '{shown.name}'"
    with ExitStack() as start:
        start.enter_context(show_waiting("starting the dashboard"))
        from headrace.ui.server import ServedAddress, serve

        place = ServedAddress(host=address, port=port, names=names, token=token, certificate=certificate, key=key)

        def ready(url: str) -> None:
            start.close()
            sentence = f"the dashboard {title} is at {url} (Ctrl-C ends)"
            options.say({"event": "serving", "url": url}, lambda: click.echo(sentence))

        serve(shown, place, ready)
    return 0


def _load_all(directories: Sequence[Path], options: ProjectOptions) -> list[tuple[Path, Project | HeadraceError]]:
    """Return each project once, or why it cannot be loaded; raises HeadraceError if none can."""
    if options.directory != Path():
        raise usage_error("the projects stand in two places: --project and DIR", "leave one of them out")
    loaded: dict[Path, Project | HeadraceError] = {}
    for directory in (directory.resolve() for directory in directories):
        try:
            loaded[directory] = replace(options, directory=directory).project()
        except HeadraceError as error:
            loaded[directory] = error
    errors = [error for error in loaded.values() if isinstance(error, HeadraceError)]
    if len(errors) == len(loaded):
        raise HeadraceError([finding for error in errors for finding in error.findings])
    return list(loaded.items())


def dashboard(project: Project, port: int | None, board: Board) -> AbstractContextManager[str]:
    """Serve the dashboard during a run, to this machine alone; yields its link. board: of the run."""
    from headrace.ui.server import PORT, ServedAddress, serve_in_background
    from headrace.ui.shown import ShownProject

    shown = ShownProject(project, deployed=lambda: board.project)
    return serve_in_background(shown, ServedAddress(port=PORT if port is None else port, token=_token()))


def _token() -> str:
    """Return the dashboard's token, if one is set; from here on it is never shown."""
    from headrace.ui.server import TOKEN_VARIABLE

    token = os.environ.get(TOKEN_VARIABLE, "")
    if token:
        KNOWN.remember(token)
    return token


def _next_steps(file: Path, name: str) -> str:
    return (
        f"{file} is written; install and start it:\n"
        f"  sudo install -m 644 {quote(str(file))} /etc/systemd/system/{name}.service\n"
        f"  sudo systemctl daemon-reload && sudo systemctl enable --now {name}"
    )


def _verify_unit(file: Path) -> int:
    """Return what systemd says of it; it wants the suffix of a unit."""
    if file.suffix != ".service" or shutil.which("systemd-analyze") is None:
        return 0
    command = ["systemd-analyze", "verify", str(file.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if file.name in line]
    for line in complaints:
        click.echo(line, err=True)
    return 1 if complaints else 0
