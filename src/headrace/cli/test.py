"""`headrace test`: the cases of tests/*.yml."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click

from headrace.cli.options import FiniteRange, ProjectOptions, choose_queries, reads_project, usage_error
from headrace.cli.output import amount, pairs, say_error, say_json, say_table, show_waiting, table_of
from headrace.errors import Finding, HeadraceError, ProjectError

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.testing.cases import CaseResult
    from headrace.testing.rows import ResultRow, RowDifference

_LOOK_SECONDS = 0.5
_MOST_KEYS, _MOST_INPUTS = 20, 10


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the results as JUnit XML too.")
@click.option("--fuzz", "runs", type=click.IntRange(1), metavar="N", help="Run each query over its rows N times more.")
@click.option("--seed", type=int, help="Repeat what --fuzz drew with this number.")
@click.option(
    "--seconds", type=FiniteRange(0, min_open=True), help="Begin no run of a query after these [default: 60]."
)
@click.option("--watch", is_flag=True, help="Run again each time that a file of the project changes.")
@click.option(
    "--record", metavar="QUERY", help="Write a case of what a query has read lately, in place of running any."
)
@click.option("--batches", type=click.IntRange(1), help="How many batches to record [default: 5].")
@click.option("--mask", metavar="COLUMN,...", help="Columns of which other values are recorded.")
@reads_project
def test(
    options: ProjectOptions, *, watch: bool, record: str | None, batches: int | None, mask: str | None, **asked: Any
) -> int:
    """Run the cases of tests/*.yml; 1 unless each is as expected.

    Sources and sinks are replaced: no database and no broker is needed. With --json each case is a line. With --fuzz
    the rows of the cases, or generated ones, come in random batches and orders, with crashes and restarts, and what
    comes out must not change. With --record the rows of a query's newest batches become a case, with what the query
    makes of them alone; --mask replaces values, equal ones by equal ones.
    """
    runs = asked["runs"]
    _require_partner("--record", record, {"--batches": batches, "--mask": mask})
    _require_partner("--fuzz", runs, {"--seed": asked["seed"], "--seconds": asked["seconds"]})
    if record is not None:
        others = {"--watch": watch, "--fuzz": runs, "--junit": asked["junit"], "QUERY": asked["queries"]}
        for option in (name for name, value in others.items() if value):
            raise usage_error(f"--record runs no case, so {option} has no use", f"leave {option} out, or --record")
        columns = [] if mask is None else mask.split(",")
        if not all(columns):
            raise usage_error(
                f"--mask: '{mask}' names no column, or an empty one", "write for example --mask name,city"
            )
        from headrace.testing.recording import record_case

        project, query = options.with_query(record)
        with show_waiting(f"{query}: reading its newest batches"):
            file = record_case(project, query, batches=batches or 5, mask=columns)
        options.say({"file": str(file)}, lambda: click.echo(f"recorded: {file}"))
        return 0
    # Where Hypothesis keeps what it learns, which would be below the working directory.
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(tempfile.gettempdir()) / "headrace-hypothesis"))
    if not watch:
        return _run_tests(options, **asked)
    for _ in watch_files(options.directory):
        try:
            _run_tests(options, **asked)
        except HeadraceError as error:
            say_error(error.findings, exit_code=error.exit_code, as_json=options.as_json)
        click.echo("watching for changes; Ctrl-C ends", err=True)
    return 0


def _require_partner(option: str, given: object, needing: Mapping[str, object]) -> None:
    """Refuse options that mean nothing without another one."""
    for name, value in needing.items():
        if value is not None and given is None:
            raise usage_error(f"{name} has no use without {option}", f"give {option} too, or leave {name} out")


def _require_writable(junit: Path) -> None:
    if junit.is_dir() or not os.access(junit if junit.exists() else junit.parent, os.W_OK):
        why = "it is a directory" if junit.is_dir() else "there is no right to write there, or no such directory"
        raise usage_error(f"--junit: {junit} cannot be written: {why}", "name a file in a directory that there is")


def _run_tests(
    options: ProjectOptions,
    queries: Sequence[str],
    junit: Path | None,
    runs: int | None,
    seed: int | None,
    seconds: float | None,
) -> int:
    from headrace.testing.cases import fuzz_cases, list_cases, run_cases

    project = options.project(may_lack_variables=True)
    names = choose_queries(project, queries) if queries else ()
    if junit is not None:
        _require_writable(junit)
    limit = 60.0 if seconds is None else seconds
    fuzzed = fuzz_cases(project, names, runs=runs, seed=seed, seconds=limit) if runs else ()
    results: list[CaseResult] = []
    total = 1 if runs else len(list_cases(project, names))
    remaining = chain(run_cases(project, names), fuzzed)
    while True:
        with show_waiting("running the tests", done=len(results), total=total):
            result = next(remaining, None)
        if result is None:
            break
        results.append(result)
        _say(result, as_json=options.as_json)
    if junit is not None:
        junit.write_bytes(_junit(project.name, results))
    untested = sorted(set(names) - {result.case.query for result in results})
    if untested or not results:
        problem = f"no case of {', '.join(untested) or 'any query'} in tests/*.yml"
        fix = "write one, as docs/tutorial/test-a-query.md shows, or record one: headrace test --record QUERY"
        raise ProjectError(Finding(code="HR723", what=f"nothing was tested: {problem}", fix=fix))
    failed = sum(not result.passed for result in results)
    if not options.as_json:
        click.echo(f"{amount(len(results), 'case')}, {failed} failed")
    return 1 if failed else 0


def watch_files(root: Path) -> Iterator[None]:
    """Once, and then each time that a file of the project has changed."""
    before: dict[str, int] = {}
    while True:
        now = dict(_written_times(root))
        if now != before:
            before = now
            yield
        else:
            time.sleep(_LOOK_SECONDS)


def _written_times(root: Path) -> Iterator[tuple[str, int]]:
    """When each file was written that a test may depend on: code, SQL and YAML, and all files of `tests`."""
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith((".", "__pycache__"))]
        of_tests = "tests" in Path(folder).relative_to(root).parts
        for name in files:
            if of_tests or name.endswith((".py", ".sql", ".yml", ".yaml")):
                with suppress(OSError):
                    yield os.path.join(folder, name), os.stat(os.path.join(folder, name)).st_mtime_ns


def _say(result: CaseResult, *, as_json: bool) -> None:
    case = result.case
    if as_json:
        line = {
            "case": case.name,
            "query": case.query,
            "file": case.where.file,
            "line": case.where.line,
            "passed": result.passed,
        }
        rows = {"differences": _plain(result.differences), "late": _plain(result.late), "error": result.error}
        return say_json({**line, "seconds": result.seconds, **rows})
    word = click.style("passed", fg="green") if result.passed else click.style("failed", fg="red")
    click.echo(f"{word} {case.query}: {case.name} ({result.seconds:.1f} s)")
    if not result.passed:
        click.echo(f"  {case.where}")
    if result.error:
        click.echo(f"  {result.error}")
    if result.differences:
        say_table(_table("rows of the result", result.differences, result.key))
        for difference in result.differences[:_MOST_KEYS]:
            _say_inputs(difference)
    if result.late:
        say_table(_table("late rows", result.late, ()))
    return None


def _table(title: str, differing: Sequence[RowDifference], key: Sequence[str]) -> Table:
    """Return the rows that differ, by key; of a row that is there with other values only those."""
    from rich.text import Text

    def row(difference: RowDifference) -> tuple[Text | str, ...]:
        kind = "missing" if difference.actual is None else "unexpected" if difference.expected is None else "different"
        expected, actual = map(pairs, difference.sides(key))
        return kind, pairs(difference.identity(key)), Text(expected, style="green"), Text(actual, style="red")

    return table_of(("row", "key", "expected", "is"), map(row, differing), title=f"{title} that differ")


def _say_inputs(difference: RowDifference) -> None:
    for source, (shared, rows) in difference.inputs.items():
        head = f"{'rows' if rows else 'no row'} of '{source}' with {pairs(dict(shared))}"
        click.echo(f"  {click.style(head, bold=True)}")
        for row in rows[:_MOST_INPUTS]:
            click.echo(f"    {row!r}")
        if len(rows) > _MOST_INPUTS:
            click.echo(f"    and {len(rows) - _MOST_INPUTS:,} more")


def _plain(differing: Sequence[RowDifference]) -> list[dict[str, Any]]:
    from headrace.testing.rows import columns_of

    def values(row: ResultRow | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(columns_of(row), row, strict=True))

    return [
        {
            "expected": values(difference.expected),
            "actual": values(difference.actual),
            "inputs": {name: [values(row) for row in inputs.rows] for name, inputs in difference.inputs.items()},
        }
        for difference in differing
    ]


def _junit(project: str, results: Sequence[CaseResult]) -> bytes:
    failed = sum(not result.passed for result in results)
    counts = {"name": project, "tests": str(len(results)), "failures": str(failed)}
    suite = ElementTree.Element("testsuite", {**counts, "time": f"{sum(result.seconds for result in results):.3f}"})
    for result in results:
        named = {"classname": result.case.query, "name": result.case.name, "file": str(result.case.where.file)}
        case = ElementTree.SubElement(suite, "testcase", {**named, "time": f"{result.seconds:.3f}"})
        if not result.passed:
            lines = [
                f"- {difference.expected!r}\n+ {difference.actual!r}"
                for difference in (*result.differences, *result.late)
            ]
            message = result.error or "rows are not as expected"
            ElementTree.SubElement(case, "failure", message=message).text = "\n".join(lines)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
