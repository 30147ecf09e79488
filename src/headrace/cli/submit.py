"""`headrace submit`: run queries on a cluster, with the driver here."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

import click

from headrace.cli.command_line import CommandLine
from headrace.cli.options import ProjectOptions, choose_queries, reads_project
from headrace.cli.output import child_stdout
from headrace.errors import EXIT_BROKEN, FINAL_EXIT_CODES, HeadraceError

# A driver that has run so long was fine, and the next pause is the first again.
_FINE_SECONDS, _FIRST_PAUSE, _LONGEST_PAUSE = 300.0, 1.0, 60.0


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("--supervise", is_flag=True, help="Start the driver again when it fails or is killed.")
@click.option("--deploy-mode", type=click.Choice(["client", "cluster"]), default="client", show_default=True)
@reads_project
def submit(queries: tuple[str, ...], supervise: bool, deploy_mode: str, options: ProjectOptions) -> int:
    """Run queries on the target's cluster; 1 when one fails.

    Without a name, all of them. The driver runs here, in client mode: Spark's standalone cluster takes no driver in
    Python. Ctrl-C or SIGTERM lets the running batch finish, and ends what --supervise would start again.
    The exit codes are those of `run`.
    """
    from headrace.cli.run import restart_exit_codes, run

    with restart_exit_codes():
        project = options.project()
    names = choose_queries(project, queries)
    _require_cluster(project.target.master, deploy_mode, project.target.name)
    words = ["run", *names, "-C", str(options.directory), *(["--target", options.target] if options.target else [])]
    words += ["--json"] if options.as_json else []
    if supervise:
        return _supervise([sys.executable, "-m", "headrace", *words])
    code = run.main(words[1:], prog_name="headrace submit", standalone_mode=False, obj=CommandLine.current())
    return int(code or 0)


def _require_cluster(master: str | None, deploy_mode: str, target: str) -> None:
    """Raise for a target without a cluster, and for what its cluster cannot do."""
    if master is None or master.startswith("local"):
        problem = f"the target '{target}' names no cluster" + (f", but {master}" if master else "")
        fix = "name one: targets: {prod: {master: spark://host:7077}}, and --target prod; or use headrace run"
        raise HeadraceError(code="HR827", what=problem, fix=fix)
    if deploy_mode == "cluster" and master.startswith("spark://"):
        raise HeadraceError(
            code="HR828",
            what="Spark's standalone cluster runs no driver in Python, so there is no deploy mode cluster",
            fix="leave --deploy-mode out: the driver runs where you submit it, on any machine that reaches the "
            "cluster; --supervise or a unit of systemd starts it again",
        )


def _supervise(command: Sequence[str]) -> int:
    """Run a command again and again until it ends well or of what starting again would not help, or we are to end."""
    running: list[subprocess.Popen[bytes]] = []
    asked: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        asked.append(number)
        for process in running:
            process.send_signal(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    pause, is_first = _FIRST_PAUSE, True
    try:
        while True:
            begun = time.monotonic()
            # Of a group of its own, so that Ctrl-C reaches it once.
            running[:] = [subprocess.Popen(command, stdout=child_stdout(), start_new_session=True)]
            code = running[0].wait()
            # What a first driver is refused is to be corrected; a later one may come while a cluster is half away.
            if code == 0 or asked or (code in FINAL_EXIT_CODES and (is_first or code != EXIT_BROKEN)):
                return code
            is_first = False
            if time.monotonic() - begun > _FINE_SECONDS:
                pause = _FIRST_PAUSE
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            click.echo(f"the driver {how}; it is started again in {pause:.0f} s", err=True)
            until = time.monotonic() + pause
            while not asked and time.monotonic() < until:
                time.sleep(0.1)
            if asked:
                return code
            pause = min(2 * pause, _LONGEST_PAUSE)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
