"""Options that commands share, and what they mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.json_stdout import json_alone
from headrace.errors import Finding, HeadraceError, nearest
from headrace.redaction import KNOWN

if TYPE_CHECKING:
    from headrace.model import Project

F = TypeVar("F", bound=Callable[..., Any])
_JSON_HELP = "Results as JSON on stdout."


def json_option(command: F) -> F:
    """`--json`: nothing but the command's own lines is on stdout then."""
    return click.option("--json", "as_json", is_flag=True, callback=_alone, help=_JSON_HELP)(command)


def json_option_of_starter(command: F) -> F:
    """`--json` of a command that starts others, whose lines on stdout are its own as well."""
    return click.option("--json", "as_json", is_flag=True, help=_JSON_HELP)(command)


def _alone(context: click.Context, _parameter: click.Parameter, as_json: bool) -> bool:
    if as_json:
        context.with_resource(json_alone())
    return as_json


def target_option(command: F) -> F:
    """`--target`."""
    return click.option("--target", metavar="NAME", help="The target of the project to use [default: dev].")(command)


def project_options(command: F) -> F:
    """`-C`/`--project`, `--target` and `--json`, for every command that reads a project."""
    return project_directory(json_option(command))


def project_directory(command: F) -> F:
    """`-C`/`--project` and `--target`, of a command whose output is what others have written."""
    directory = click.option(
        "-C",
        "--project",
        "directory",
        type=click.Path(path_type=Path),
        default=Path(),
        metavar="DIR",
        help="The project's directory [default: the current one].",
    )
    return directory(target_option(command))


def ui_token() -> str:
    """The dashboard's token, if one is set; from here on it is never shown."""
    from headrace.ui.server import TOKEN_VARIABLE

    token = os.environ.get(TOKEN_VARIABLE, "")
    if token:
        KNOWN.remember(token)
    return token


def chosen(project: Project, names: Sequence[str]) -> list[str]:
    """The queries that were named, or all; raises HeadraceError for a name that is not declared."""
    unknown = [name for name in names if name not in project.queries]
    if unknown:
        raise HeadraceError(
            [
                Finding(
                    code="HR091",
                    what=f"there is no query '{name}' in the project '{project.name}'",
                    fix=nearest(name, project.queries),
                )
                for name in unknown
            ]
        )
    return list(dict.fromkeys(names)) or list(project.queries)


def instant(text: str | None, option: str) -> datetime | None:
    """The time that was given; one without a zone is in UTC."""
    if text is None:
        return None
    try:
        # Python 3.10 does not read the Z.
        found = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        fix = "write it as 2024-05-01T00:00:00Z"
        raise HeadraceError(code="HR090", what=f"{option}: '{text}' is no time", fix=fix) from None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
