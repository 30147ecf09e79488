"""`headrace schema`: the JSON Schema of headrace.yml, for editors."""

from __future__ import annotations

import json

import click

from headrace.cli.options import json_option


@click.command()
@json_option
def schema(as_json: bool) -> int:
    """Print the JSON Schema of headrace.yml.

    An editor completes and checks the file by it. It holds the options of every connector that is installed.
    """
    from headrace.load.schema import schema as made

    click.echo(json.dumps(made(), indent=None if as_json else 2))
    return 0
