"""`headrace cluster`: Spark's standalone cluster on this machine, for trying a project on one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli.options import F, ProjectOptions, json_option, reads_project, with_project
from headrace.cli.output import say_json, say_table, show_waiting


def home_option(command: F) -> F:
    """`--home`, the directory of the cluster."""
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Where the cluster keeps its logs and its record [default: HEADRACE_CLUSTER, or ~/.local/state].",
    )(command)


@click.group()
def cluster() -> None:
    """Start and stop a cluster on this machine.

    It is Spark's own, standalone, for trying and for tests. A target with its master runs the same project there. The
    cluster asks who it is: a driver of the same user on this machine finds the secret by itself.
    """


@cluster.command()
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="How many workers.")
@click.option("--cores", type=click.IntRange(1), default=1, show_default=True, help="Cores of each worker.")
@click.option("--memory", default="1g", show_default=True, help="Memory that each worker gives to executors.")
@click.option("--masters", type=click.IntRange(1, 5), default=1, show_default=True, help="Masters; one leads.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=7077, show_default=True, help="Of the first master.")
@click.option("--web-port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Of its page.")
@home_option
@json_option
def start(home: Path | None, as_json: bool, **asked: Any) -> int:
    """Start a cluster, or what has died of the one that there is.

    With more than one master, a ZooKeeper chooses which one leads; a single one that was killed continues with what it
    knew. What was asked for at the first start counts until the cluster is stopped.
    """
    from headrace.cluster.control import start as start_cluster

    place = _home(home)
    with show_waiting("starting the cluster"):
        made = start_cluster(place, **asked)
    return _show(place, as_json=as_json, more=f"in headrace.yml:  targets: {{cluster: {{master: '{made.url}'}}}}")


@cluster.command()
@home_option
@json_option
def status(home: Path | None, as_json: bool) -> int:
    """Show masters, workers and applications; 1 when something has died or no master leads."""
    return _show(_home(home), as_json=as_json)


@cluster.command()
@click.argument("name", required=False, metavar="[EXECUTOR]")
@click.option("--query", metavar="NAME", help="Print the lines of the project's log that are of this query.")
@with_project
@home_option
def logs(name: str | None, query: str | None, directory: Path, target: str | None, home: Path | None) -> int:
    """Print what an executor, a worker or a master has printed; without a name, list them.

    EXECUTOR is a name of the list; a number alone is an executor of the newest application. With --query, what the
    driver has logged of a query, on whichever cluster it runs.
    """
    from headrace.cluster.daemons import find_log
    from headrace.cluster.daemons import logs as known

    if query is not None:
        from headrace.export.log import lines_of

        project, query = ProjectOptions(directory, target).with_query(query)
        for line in lines_of(project.local_storage, query):
            click.echo(line)
        return 0
    if name is None:
        for log in known(_home(home)):
            click.echo(f"{log.name}  {log.bytes:,} bytes")
        return 0
    for file in find_log(_home(home), name).files:
        click.echo(file.read_text(encoding="utf-8", errors="replace"), nl=False)
    return 0


@cluster.command()
@click.argument("packages", nargs=-1, metavar="[PACKAGE]...")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("workers.tar.gz"), show_default=True
)
@click.option("--lock", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Take versions from it.")
@reads_project
def pack(packages: tuple[str, ...], out: Path, lock: Path | None, options: ProjectOptions) -> int:
    """Pack the packages that workers need and whose Python lacks.

    That is what the project's sources and sinks import there, each PACKAGE that functions of the project import, and
    what these need: the versions that are installed here, or those of a lock file, which pip fetches. A target with
    worker_packages: FILE sends the archive to its executors.
    """
    from headrace.cluster.pack import pack as make
    from headrace.frames.project_session import worker_packages

    project = options.project()
    with show_waiting("packing"):
        made = make(out, sorted({*worker_packages(project), *packages}), lock=lock)
    sentence = (
        f"{made.file}: {len(made.packages)} packages for Python {made.python} on {made.machine}, "
        f"{made.bytes / (1 << 20):,.0f} MB\nin headrace.yml, at the target:  worker_packages: {made.file}"
    )
    facts = {"file": made.file, "packages": dict(made.packages), "python": made.python, "machine": made.machine}
    options.say(facts, lambda: click.echo(sentence))
    return 0


@cluster.command()
@home_option
def stop(home: Path | None) -> int:
    """End the cluster; its logs stay."""
    from headrace.cluster.control import stop as stop_cluster

    ended = stop_cluster(_home(home))
    click.echo(f"ended: {', '.join(ended)}" if ended else "no cluster was running")
    return 0


def _home(given: Path | None) -> Path:
    from headrace.cluster.daemons import default_home

    return default_home() if given is None else given.absolute()


def _show(home: Path, *, as_json: bool, more: str = "") -> int:
    from dataclasses import asdict

    from headrace.cli.view.tables import Fitting
    from headrace.cluster.control import status as status_of

    state = status_of(home)
    if as_json:
        say_json(asdict(state))
        return 0 if state.is_whole else 1
    table = Fitting("what", "state", "page", "cores", "memory")
    for master in state.masters:
        table.add(master.url, master.state, master.web, "", "")
    for worker in state.workers:
        memory = f"{worker.memory_used_mb:,} of {worker.memory_mb:,} MB"
        table.add(worker.name, worker.state, worker.web, f"{worker.cores_used} of {worker.cores}", memory)
    for application in state.applications:
        table.add(f"{application.id}: {application.name}", application.state, "", str(application.cores), "")
    say_table(table)
    for name, process in state.processes.items():
        click.echo(f"{name} is process {process}")
    for name in state.dead:
        click.echo(f"{name} has died; headrace cluster start brings it back")
    if more:
        click.echo(more)
    return 0 if state.is_whole else 1
