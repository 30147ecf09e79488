"""Options that commands share, and what they mean."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.output import keep_stdout_for_json, say_json, show_waiting
from headrace.errors import Finding, HeadraceError, nearest
from headrace.storage.location import scheme_of
from headrace.units import Duration

if TYPE_CHECKING:
    from headrace.model import Project

F = TypeVar("F", bound=Callable[..., Any])
JSON_HELP = "Results as JSON on stdout."


def json_option(command: F) -> F:
    """`--json`: nothing but the command's own lines is on stdout then."""
    return click.option("--json", "as_json", is_flag=True, callback=_alone, help=JSON_HELP)(command)


def _alone(context: click.Context, _parameter: click.Parameter, as_json: bool) -> bool:
    if as_json:
        context.with_resource(keep_stdout_for_json())
    return as_json


def target_option(command: F) -> F:
    """`--target`."""
    return click.option("--target", metavar="NAME", help="The target of the project to use [default: dev].")(command)


@dataclass(frozen=True)
class ProjectOptions:
    """What a command that reads a project was given: `-C`/`--project`, `--target` and `--json`."""

    directory: Path
    target: str | None
    as_json: bool = False

    def project(self, *, may_lack_variables: bool = False) -> Project:
        """Return the project; raises ProjectError."""
        with show_waiting("reading the project"):
            from headrace.loader import load

            return load(self.directory, target=self.target, may_lack_variables=may_lack_variables)

    def with_query(self, query: str, *, may_lack_variables: bool = False) -> tuple[Project, str]:
        """Return the project and the name of one of its queries; raises HeadraceError for one that is not declared."""
        project = self.project(may_lack_variables=may_lack_variables)
        return project, choose_queries(project, [query])[0]

    def say(self, facts: object, show: Callable[[], object]) -> None:
        """Print `facts` as JSON with `--json`; else call `show`, which prints them for people."""
        if self.as_json:
            say_json(facts)
        else:
            show()


def as_object(kind: type[Any], command: Callable[..., int]) -> Callable[..., int]:
    """`command` with the options that the dataclass `kind` names as one argument, `options`."""
    names = [field.name for field in fields(kind)]

    @wraps(command)
    def with_object(**given: Any) -> int:
        place = Path(os.path.expanduser(given["directory"]))
        root = place if place.is_dir() else place.parent
        is_project = place.is_dir() or (place.is_file() and place.suffix in (".yml", ".yaml", ".py"))
        if is_project and root.resolve() != Path().resolve():
            # What was given on the command line starts from the shell's directory.
            given = {name: absolute_path(value) for name, value in given.items()}
            click.get_current_context().with_resource(_in_directory(root))
        return command(options=kind(**{name: given.pop(name) for name in names if name in given}), **given)

    return with_object


class PathOrUrl(str):
    """A path, or the URL of a store, that was given on the command line."""


def absolute_path(value: Any) -> Any:
    """Return a path that starts from the working directory, wherever that is later; another value as it is."""
    if isinstance(value, PathOrUrl) and scheme_of(value) is None and not value.startswith("file:"):
        return os.path.abspath(os.path.expanduser(value))
    return Path(os.path.expanduser(value)).absolute() if isinstance(value, Path) else value


@contextmanager
def _in_directory(root: Path) -> Iterator[None]:
    """Let relative paths in functions of a project start from its directory, as those of its sources and sinks do.

    What Python is to import from the shell's directory, here and in Spark's workers, is still found.
    """
    shell = os.getcwd()
    sys.path[:] = map(os.path.abspath, sys.path)
    if given := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, given.split(os.pathsep)))
    with suppress(PermissionError):  # The load reports it.
        os.chdir(root)
    try:
        yield
    finally:
        os.chdir(shell)


def reads_project(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of `ProjectOptions`."""
    return with_project(json_option(as_object(ProjectOptions, command)))


def with_project(command: F) -> F:
    """`-C`/`--project` and `--target`."""
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


def choose_queries(project: Project, names: Sequence[str]) -> list[str]:
    """Return the queries that were named, or all; raises HeadraceError for a name that is not declared."""
    if unknown := [name for name in names if name not in project.queries]:
        whats = [f"there is no query '{name}' in the project '{project.name}'" for name in unknown]
        fixes = [nearest(name, project.queries) for name in unknown]
        raise HeadraceError(
            [Finding(code="HR091", what=problem, fix=fix) for problem, fix in zip(whats, fixes, strict=True)]
        )
    return list(dict.fromkeys(names)) or list(project.queries)


def parse_instant(text: str | None, option: str) -> datetime | None:
    """Return the time that was given; one without a zone is in UTC."""
    if text is None:
        return None
    try:
        # Python 3.10 does not read the Z.
        time = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        raise usage_error(f"{option}: '{text}' is not a time", "write it as 2024-05-01T00:00:00Z") from None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


class FiniteRange(click.FloatRange):
    """A number within limits: NaN is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"'{value}' is not a number of this range", param, ctx)
        return number


def parse_length(text: str, option: str, fix: str = 'write for example "10 minutes"') -> Duration:
    """Return the length of time that was given."""
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise usage_error(f"{option}: {error}", fix) from error


def usage_error(what: str, fix: str) -> HeadraceError:
    """Return the error for options that have no meaning together."""
    return HeadraceError(code="HR090", what=what, fix=fix)
