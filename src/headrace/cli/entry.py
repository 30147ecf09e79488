"""The command `headrace`: its group of commands, and how each error becomes a sentence.

An unforeseen error leaves a crash log, so that it can be reported.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from headrace import __version__
from headrace.cli.change import adopt, change, rebuild, reset, rewind
from headrace.cli.check import check
from headrace.cli.cluster import cluster
from headrace.cli.command_line import CommandLine
from headrace.cli.control import pause, restart, resume, stop
from headrace.cli.deploy import deploy
from headrace.cli.doctor import doctor
from headrace.cli.explain import completion, explain
from headrace.cli.init import demo, init, schema
from headrace.cli.inspect import inspect, state
from headrace.cli.jars import jars
from headrace.cli.output import say_error
from headrace.cli.preview import preview
from headrace.cli.run import apply, plan, run
from headrace.cli.service import service, ui
from headrace.cli.status import status
from headrace.cli.submit import submit
from headrace.cli.test import test
from headrace.cli.verify import late, verify
from headrace.errors import Finding, HeadraceError, nearest
from headrace.redaction import RedactingStream, redacted, standard_streams
from headrace.storage.private import FULL, unwritable

# How messages name the kinds of numbers that click has.
_NUMBERS = {
    "integer": "a whole number",
    "integer range": "a whole number",
    "float": "a number",
    "float range": "a number",
}

# Whose versions a crash log names.
PACKAGES = ("headrace", "pyspark", "pyarrow", "pandas", "click", "rich")

COMMANDS: tuple[click.Command, ...] = (
    init,
    demo,
    doctor,
    check,
    preview,
    test,
    plan,
    apply,
    run,
    deploy,
    status,
    ui,
    stop,
    pause,
    resume,
    restart,
    verify,
    late,
    inspect,
    state,
    rebuild,
    rewind,
    reset,
    adopt,
    change,
    service,
    cluster,
    submit,
    jars,
    schema,
    explain,
    completion,
)


class Commands(click.Group):
    """A group that lists its commands in the order in which a newcomer needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which they were added."""
        return list(self.commands)


@click.group(
    cls=Commands,
    commands=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 fine, 1 a finding or a failed query, 2 used wrongly or broken.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, given: _show_versions(context) if given else None,
    help="Show the versions of Headrace, Spark and Java, and the jars that are here.",
)
@click.pass_context
def headrace(context: click.Context) -> None:
    """Write the batch query, run it as a stream, and prove that the result is right."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _show_versions(context: click.Context) -> None:
    from headrace.spark.jvm.jars import list_installed
    from headrace.spark.jvm.preconditions import require_java

    try:
        java = require_java()
        shown = f"Java {java.version} ({java.home})"
    except HeadraceError as error:
        shown = f"no Java: {error.findings[0].what}"
    click.echo(f"headrace, version {__version__}\nSpark {_version('pyspark')}, {shown}")
    click.echo(f"jars: {', '.join(list_installed()) or 'none'}")
    context.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; it raises nothing but SystemExit."""
    line = CommandLine.of_process() if arguments is None else None
    given = list(sys.argv[1:] if arguments is None else arguments)
    with standard_streams(out=RedactingStream(sys.stdout), err=RedactingStream(sys.stderr)):
        try:
            return _run(given, line, as_json="--json" in given)
        except BrokenPipeError:
            # The reader of our output has closed it, as `head` does; Python must not complain again at its exit.
            sys.stdout = open("/dev/null", "w")  # noqa: SIM115
            return 0


def _run(given: list[str], line: CommandLine | None, *, as_json: bool) -> int:
    try:
        if any("\0" in argument for argument in given):
            raise HeadraceError(code="HR090", what="an argument holds a null character", fix="write it without")
        colour = False if os.environ.get("NO_COLOR") else None
        code: Any = headrace.main(given, prog_name="headrace", standalone_mode=False, color=colour, obj=line)
        if line is not None:
            line.end()
    except HeadraceError as error:
        ended = error
    except click.UsageError as error:
        ended = HeadraceError(_usage_finding(error, given))
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        say_error((), exit_code=130, as_json=as_json)
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            ended = unwritable(str(error.filename or "a file"), error)
        elif isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            problem = f"the name of a file is too long: {str(error.filename)[:40]}..."
            ended = HeadraceError(code="HR090", what=problem, fix="name a shorter one")
        else:
            ended = HeadraceError(write_crash_log(error, given, near=Path.cwd()))
    else:
        return code if isinstance(code, int) else 0
    say_error(ended.findings, exit_code=ended.exit_code, as_json=as_json)
    if line is not None and line.answer is not None:
        line.answer.fail(ended.findings)
    return ended.exit_code


def write_crash_log(error: BaseException, arguments: Sequence[str], *, near: Path) -> Finding:
    """Write the crash log below `near`, or in the temporary directory, and say where it is."""
    text = redacted("\n".join(_lines(error, arguments)))
    name = f"headrace-crash-{datetime.now(timezone.utc):%Y%m%dT%H%M%S%fZ}.log"
    path = _write_near(near, name, text)
    kept = f"the crash log is '{path}'" if path else "no crash log could be written"
    return Finding(
        code="HR999",
        what=f"an error that Headrace did not foresee, {type(error).__name__}; {kept}",
        fix="report it to Headrace's maintainers with that file, which holds no data and no settings; then try again",
    )


def _lines(error: BaseException, arguments: Sequence[str]) -> list[str]:
    return [
        f"command: headrace {' '.join(arguments)}",
        f"python: {sys.version.split()[0]} on {platform.platform()}",
        *(f"{package}: {_version(package)}" for package in PACKAGES),
        "",
        "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _write_near(near: Path, name: str, text: str) -> Path | None:
    for directory in (near / ".headrace", Path(tempfile.gettempdir())):
        path = directory / name
        try:
            if directory.is_dir():
                path.touch(mode=0o600)
                path.write_text(text, encoding="utf-8", errors="backslashreplace")
                return path
        except OSError:
            continue
    return None


def _usage_finding(error: click.UsageError, given: Sequence[str]) -> Finding:
    command = error.ctx.command_path if error.ctx else "headrace"
    if command == "headrace" and given and given[0] in headrace.commands:
        command = f"headrace {given[0]}"
    here = error.ctx.command if error.ctx else headrace
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and isinstance(here, click.Group):
        problem = f"{command} needs a command: {', '.join(here.commands)}"
        return Finding(code="HR090", what=problem, fix=f"see: {command} --help")
    wrong = re.match(r"No such command (['\"])(.+?)\1\.", error.format_message())
    if wrong and isinstance(here, click.Group):
        problem = f"{'there is' if here is headrace else f'{command} has'} no command '{wrong[2]}'"
        return Finding(code="HR090", what=problem, fix=nearest(wrong[2], here.commands))
    if isinstance(error, click.NoSuchOption) and here is headrace:
        owners = [owner.name for owner in COMMANDS if any(error.option_name in option.opts for option in owner.params)]
        if owners:
            meant = next((word for word in given if word in owners), owners[0])
            problem = f"the option '{error.option_name}' stands before the command"
            return Finding(code="HR090", what=problem, fix=f"put it behind: headrace {meant} {error.option_name} ...")
    if isinstance(error, click.BadParameter) and error.param is not None and _NUMBERS.get(error.param.type.name):
        takes = _NUMBERS[error.param.type.name]
        least = getattr(error.param.type, "min", None)
        takes += f" from {least}" if least is not None else ""
        most = getattr(error.param.type, "max", None)
        takes += f" to {most}" if most is not None else ""
        name = error.param.opts[-1] if isinstance(error.param, click.Option) else str(error.param.human_readable_name)
        value = re.search(r"'([^']*)' is not|(-?[\d.]+) is not", error.message)
        problem = f"{name} takes {takes}" + (f", and is '{value[1] or value[2]}'" if value else "")
        return Finding(code="HR090", what=problem, fix=f"write one; see: {command} --help")
    if isinstance(error, click.NoSuchOption):
        problem = f"there is no option '{error.option_name}'"
        near = nearest(error.option_name, error.possibilities or ())
        near = near if "?" in near else _place_advice(error.option_name)
    else:
        # Of an argument that is missing, click lists the choices below; they stand in its name as well.
        problem, near = error.format_message().partition(" Choose from:")[0].rstrip("."), ""
    fix = f"{near} See: {command} --help" if near else f"see: {command} --help"
    return Finding(code="HR090", what=problem[:1].lower() + problem[1:], fix=fix)


def _place_advice(option: str) -> str:
    """Where a word stands that was given as an option: a command of `headrace change`, or the commands that have it."""
    if option.lstrip("-") in change.commands:
        return f"it is a command: headrace change {option.lstrip('-')} QUERY."
    owners = [str(command.name) for command in COMMANDS if any(option in part.opts for part in command.params)]
    return f"it is an option of headrace {' and '.join(owners)}." if 0 < len(owners) < 3 else ""
