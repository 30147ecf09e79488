"""`headrace ui`: the dashboard in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.options import ProjectOptions, reads_project, ui_token


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8470, show_default=True, help="0 takes a free one.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to serve; see below.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name by which a proxy asks. Repeatable.")
@click.option("--certificate", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="For TLS, in PEM.")
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="The certificate's key.")
@reads_project
def ui(
    port: int, address: str, names: tuple[str, ...], certificate: Path | None, key: Path | None, options: ProjectOptions
) -> int:
    """Show the project in the browser: state, rates, faults.

    The pages read the history, and need neither Spark nor a running application. They are
    served to this machine alone, to whoever has the token: that of the variable HEADRACE_UI_TOKEN, or one that is made
    and printed as a part of the link. Any other --address needs HEADRACE_UI_TOKEN, and TLS.
    Ctrl-C ends.
    """
    from headrace.ui.server import ServedAddress, serve

    token = ui_token()
    project = options.project()
    place = ServedAddress(host=address, port=port, names=names, token=token, certificate=certificate, key=key)

    def ready(url: str) -> None:
        told = f"the dashboard of '{project.name}' is at {url} (Ctrl-C ends)"
        options.say({"event": "serving", "url": url}, lambda: click.echo(told))

    serve(project, place, ready)
    return 0
