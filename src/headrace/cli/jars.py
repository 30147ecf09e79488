"""`headrace jars`: the jars that Spark's connectors need, here or fetched."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.options import json_option
from headrace.cli.output import say_json, show_waiting


@click.group()
def jars() -> None:
    """List and fetch the jars of Spark's connectors."""


@jars.command("list")
@json_option
def list_command(as_json: bool) -> int:
    """Say which connectors there are, and which are here."""
    from headrace.registry import declared_jars
    from headrace.spark.jvm.jars import find, known_connectors

    every = {**known_connectors(), **declared_jars()}
    files_of = {name: find(connector) for name, connector in every.items()}
    if as_json:
        say_json({name: None if files is None else [str(file) for file in files] for name, files in files_of.items()})
        return 0
    for name, files in files_of.items():
        coordinates = ", ".join(every[name].coordinates)
        click.echo(f"{name}  {'here' if files is not None else 'not here'}  {coordinates}")
    return 0


@jars.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1, metavar="[NAME]...")
def fetch(directory: Path, names: tuple[str, ...]) -> int:
    """Fetch connectors into DIRECTORY, all or those named, for a machine without a network."""
    from headrace.registry import declared_jars
    from headrace.spark.jvm.jars import DIRECTORIES_VARIABLE, choose, install, known_connectors

    every = {**known_connectors(), **declared_jars()}
    chosen = list(choose(names or tuple(every), every))
    for done, connector in enumerate(chosen):
        with show_waiting(f"fetching {connector.name}", done=done, total=len(chosen)):
            files = install(connector, directory.absolute())
        click.echo(f"{connector.name}: {len(files)} jars")
    click.echo(f"on the machine without a network: export {DIRECTORIES_VARIABLE}={directory.absolute()}")
    return 0
