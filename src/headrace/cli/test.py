"""`headrace test`: the cases of tests/*.yml."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click

from headrace.cli.options import ProjectOptions, chosen, reads_project
from headrace.cli.output import counted, say_json, say_table

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.testing.cases import CaseResult
    from headrace.testing.rows import ResultRow, RowDifference


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the results as JUnit XML too.")
@click.option("--fuzz", "runs", type=click.IntRange(1), metavar="N", help="Run each query over its rows N times more.")
@click.option("--seed", type=int, help="Repeat what --fuzz drew with this number.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Begin no run of a query after these.")
@reads_project
def test(
    queries: tuple[str, ...],
    junit: Path | None,
    runs: int | None,
    seed: int | None,
    seconds: float,
    options: ProjectOptions,
) -> int:
    """Run the cases of tests/*.yml; 1 when a result is not as expected.

    Sources and sinks are replaced: no database and no broker is needed. With --json each case is a line. With --fuzz
    the rows of the cases, or generated ones, come in random batches and orders, with crashes and restarts, and what
    comes out must not change.
    """
    from headrace.testing.cases import fuzz_cases, run_cases

    project = options.project(may_lack_variables=True)
    names = chosen(project, queries) if queries else ()
    # Where Hypothesis keeps what it learns, which would be below the working directory.
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(tempfile.gettempdir()) / "headrace-hypothesis"))
    fuzzed = fuzz_cases(project, names, runs=runs, seed=seed, seconds=seconds) if runs else ()
    results = []
    for result in chain(run_cases(project, names), fuzzed):
        results.append(result)
        _say(result, as_json=options.as_json)
    if junit is not None:
        junit.write_bytes(_junit(project.name, results))
    failed = sum(not result.passed for result in results)
    if not options.as_json:
        click.echo(f"{counted(len(results), 'case')}, {failed} failed" if results else "no case in tests/*.yml")
    return 1 if failed or not results else 0


def _say(result: CaseResult, *, as_json: bool) -> None:
    case = result.case
    if as_json:
        line = {"case": case.name, "query": case.query, "file": case.where.file, "passed": result.passed}
        rows = {"differences": _plain(result.differences), "late": _plain(result.late), "error": result.error}
        return say_json({**line, "seconds": result.seconds, **rows})
    word = click.style("passed", fg="green") if result.passed else click.style("failed", fg="red")
    click.echo(f"{word} {case.query}: {case.name} ({result.seconds:.1f} s)")
    if result.error:
        click.echo(f"  {result.error}")
    if result.differences:
        say_table(_table("rows of the result", result.differences, result.key))
    if result.late:
        say_table(_table("late rows", result.late, ()))
    return None


def _table(title: str, differing: Sequence[RowDifference], key: Sequence[str]) -> Table:
    """The rows that differ, by key; of a row that is there with other values only those."""
    from rich import box
    from rich.table import Table

    table = Table(title=f"{title} that differ", box=box.SIMPLE_HEAD)
    for column in ("row", "key", "expected", "is"):
        table.add_column(column, overflow="fold")
    for each in differing:
        kind = "missing" if each.actual is None else "unexpected" if each.expected is None else "different"
        expected, actual = each.sides(key)
        table.add_row(kind, _text(each.identity(key)), _text(expected), _text(actual))
    return table


def _text(values: dict[str, Any] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) if values else "-"


def _plain(differing: Sequence[RowDifference]) -> list[dict[str, Any]]:
    from headrace.testing.rows import columns_of

    def values(row: ResultRow | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(columns_of(row), row, strict=True))

    return [{"expected": values(each.expected), "actual": values(each.actual)} for each in differing]


def _junit(project: str, results: Sequence[CaseResult]) -> bytes:
    failed = sum(not result.passed for result in results)
    counts = {"name": project, "tests": str(len(results)), "failures": str(failed)}
    suite = ElementTree.Element("testsuite", {**counts, "time": f"{sum(each.seconds for each in results):.3f}"})
    for result in results:
        named = {"classname": result.case.query, "name": result.case.name, "file": str(result.case.where.file)}
        case = ElementTree.SubElement(suite, "testcase", {**named, "time": f"{result.seconds:.3f}"})
        if not result.passed:
            lines = [f"- {each.expected!r}\n+ {each.actual!r}" for each in (*result.differences, *result.late)]
            message = result.error or "rows are not as expected"
            ElementTree.SubElement(case, "failure", message=message).text = "\n".join(lines)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
