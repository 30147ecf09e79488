"""How results and findings are written: text for people, in colours on a terminal; JSON alone on stdout for others."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from headrace.errors import Finding
from headrace.redaction import redacted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDTH_WITHOUT_TERMINAL = 200
# A command that ends sooner shows no line that would only flicker.
_SECONDS_UNTIL_SHOWN = 0.5
_COLOUR = {"error": "red", "warning": "yellow", "note": "cyan"}


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """`value` as JSON: times in ISO 8601; NaN and the infinities, which JSON lacks, and anything unknown as texts."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        return json_text(json.loads(json.dumps(value, default=_plain), parse_constant=str), ascii_only=ascii_only)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def say_json(value: Any) -> None:
    """Print a result as one line of JSON on stdout."""
    write_line(redacted(json_text(value, ascii_only="utf" not in (_stream().encoding or "utf").lower())))


def say_finding(finding: Finding, *, err: bool = True) -> None:
    """Print a finding on stderr, or on stdout if findings are the result."""
    mark = "" if finding.severity == "error" else f" ({finding.severity})"
    code = click.style(f"{finding.code}{mark}", fg=_COLOUR[finding.severity], bold=True)
    # Where the terminal's encoding is none, click goes past the standard streams.
    click.echo(redacted(f"{finding.where} {code}: {finding.what}"), err=err)
    if finding.fix:
        click.echo(redacted(f"  {click.style('fix:', bold=True)} {finding.fix}"), err=err)


def say_error(findings: Iterable[Finding], *, exit_code: int, as_json: bool) -> None:
    """Print what ended the command: on stderr, or with --json as one line on stdout."""
    if as_json:
        plain = [finding.as_dict() for finding in findings]
        say_json({"event": "error", "exit_code": exit_code, "findings": plain})
    else:
        for finding in findings:
            say_finding(finding)


def say_below(lines: Iterable[object]) -> None:
    """Print lines that belong to the line before, indented, on stdout."""
    for line in lines:
        click.echo(f"  {line}")


def console_of(**settings: Any) -> Console:
    """Return a console that shows text as it is."""
    from rich.console import Console

    return Console(markup=False, highlight=False, **settings)


def say_table(table: Any) -> None:
    """Print a table on stdout, as wide as the terminal; without one, as wide as it needs."""
    console = console_of()
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    console.print(table)


def open_terminal() -> TextIO | None:
    """Open the terminal of standard error itself: while the JVM starts, standard error passes lines on late."""
    if not sys.stderr.isatty():
        return None
    return open(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace")


@contextmanager
def show_waiting(what: str, *, done: int = 0, total: int = 1) -> Iterator[None]:
    """Show on a terminal's stderr what the block does and for how long, if it lasts; of several steps a bar as well."""
    console = console_of(stderr=True, file=open_terminal())
    if not console.is_terminal or console.is_dumb_terminal:
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = (BarColumn(bar_width=24), MofNCompleteColumn()) if total > 1 else ()
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), *bar, TimeElapsedColumn())
    console.width -= len("^C")  # The terminal writes it behind the line; it must not wrap.
    # What the project prints goes where it would go without the line.
    progress = Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty())
    progress.add_task(what, completed=done, total=total if total > 1 else None)
    start = threading.Timer(_SECONDS_UNTIL_SHOWN, progress.start)
    start.start()
    try:
        yield
    finally:
        start.cancel()
        start.join()
        progress.stop()


def table_of(
    columns: Sequence[str], rows: Iterable[Sequence[Text | str]], *, title: str | None = None, right: Sequence[str] = ()
) -> Table:
    """Rows below the names of their columns, of which those in `right` stand at the right; wide cells are folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def pairs(values: Mapping[str, Any] | None, shown: Callable[[Any], str] = str) -> str:
    """`action=open, hour=3`; a dash where there are none."""
    return ", ".join(f"{name}={shown(value)}" for name, value in values.items()) if values else "-"


def amount(number: int, noun: str) -> str:
    """`1 query`, `2 queries`, `1,000 rows`."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {plural}"


_lock = threading.Lock()
_own: list[TextIO] = []


@contextmanager
def keep_stdout_for_json() -> Iterator[None]:
    """Let what else prints on this process's standard output print on standard error while the block runs.

    That is the project's own code, and the JVM: its warnings, and the batches of Spark's console sink. Where standard
    output is not a file of the process, as in a notebook, it stays as it is.
    """
    if _own or not _is_file(sys.stdout, 1) or not _is_file(sys.stderr, 2):
        yield
        return
    sys.stdout.flush()
    # Of a name that is no UTF-8, a backslash and its code are JSON as well.
    own = open(os.dup(1), "w", encoding=sys.stdout.encoding, errors="backslashreplace")  # noqa: SIM115
    _own.append(own)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        os.dup2(own.fileno(), 1)
        _own.remove(own)
        with suppress(BrokenPipeError):
            own.close()


def write_line(line: str) -> None:
    """Write one whole line, from any thread. Raises BrokenPipeError if the reader has closed the stream."""
    with _lock:
        stream = _stream()
        stream.write(line + "\n")
        stream.flush()


def child_stdout() -> TextIO | None:
    """Return the standard output for another `headrace` process whose lines are this command's as well."""
    return _own[-1] if _own else None


def drop() -> None:
    """Write no more, after a BrokenPipeError: Python is not to try again at its exit what could not be written."""
    with _lock:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _stream().fileno())
        os.close(nowhere)


def _stream() -> TextIO:
    return child_stdout() or sys.stdout


def _is_file(stream: TextIO, number: int) -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return stream.fileno() == number
    return False
