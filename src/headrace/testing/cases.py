"""Tests of queries that are written as YAML: the files `tests/*.yml` of a project."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.declare.variables import NoText, read_text
from headrace.errors import NOWHERE, Finding, HeadraceError, PlatformError, ProjectError, Where, first_line, nearest
from headrace.loader import document
from headrace.loader.document import DocumentEntry
from headrace.model import Project
from headrace.testing.batch_answer import describe_sources, evaluate
from headrace.testing.events import (
    Clock,
    Crash,
    CrashBeforeCommit,
    Item,
    Pause,
    Refresh,
    Restart,
    TimelineEvent,
    Watermark,
)
from headrace.testing.fuzzing import fuzz
from headrace.testing.given import typed_rows
from headrace.testing.rows import ResultRows, RowDifference, columns_of, differences
from headrace.testing.timelines import timeline

KEYS = ("name", "query", "given", "batches", "expect", "expect_late", "key", "batch")
_EVENTS = {"crash": Crash, "crash_before_commit": CrashBeforeCommit, "restart": Restart, "pause": Pause}


@dataclass(frozen=True, kw_only=True)
class TestCase:
    """One entry of a file's list `tests`.

    given: the rows of each source, answered as a batch. batches: what comes one after the other: the rows of each
    source, or an event. expect, expect_late: the rows of the result, and those dropped as late; None: not looked at.
    batch: whether the result must be the batch answer, or a SELECT that says what that is. faults: what is wrong with
    the entry; it cannot be run then.
    """

    __test__ = False  # To pytest it would look like a class of tests.
    name: str
    query: str
    given: Mapping[str, Any] = field(default_factory=dict)
    batches: Sequence[Any] | None = None
    expect: Sequence[Any] | None = None
    expect_late: Sequence[Any] | None = None
    key: Sequence[str] = ()
    batch: bool | str = True
    where: Where
    faults: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """How a case went. differences, late: rows that are not as expected; error: what ended it, empty: nothing did."""

    case: TestCase
    key: tuple[str, ...] = ()
    differences: tuple[RowDifference, ...] = ()
    late: tuple[RowDifference, ...] = ()
    error: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether all is as expected."""
        return not (self.differences or self.late or self.error)


def read_cases(project: Project, queries: Sequence[str] = ()) -> list[TestCase]:
    """Read the cases of a project's `tests/*.yml`.

    Args:
        project: The project.
        queries: The queries whose cases are read; none: all.

    Returns:
        The cases, by file and place.

    Raises:
        ProjectError: A case is wrong; all faults are reported at once.
    """
    entries = list_cases(project, queries)
    if faults := [finding for case in entries for finding in case.faults]:
        raise ProjectError(faults)
    return entries


def list_cases(project: Project, queries: Sequence[str]) -> list[TestCase]:
    """Return the cases of these queries, wrong ones and those of unknown queries included."""
    files = sorted(file for file in (project.root / "tests").glob("*.y*ml") if file.suffix in (".yml", ".yaml"))
    entries = [case for file in files for case in _read_file(project, file)]
    return [case for case in entries if not queries or case.query in queries or case.query not in project.queries]


def run_cases(project: Project, queries: Sequence[str] = ()) -> Iterator[CaseResult]:
    """Run each case of a project's `tests/*.yml`.

    Args:
        project: The project.
        queries: The queries whose cases run; none: all.

    Yields:
        The result of each case, as soon as it has run. A wrong case fails and stops no other.
    """
    for case in list_cases(project, queries):
        begun = time.monotonic()
        try:
            if case.faults:
                raise ProjectError(case.faults)
            differing, late, key = _run_case(project, case)
            result = CaseResult(case=case, key=key, differences=tuple(differing), late=tuple(late))
        except HeadraceError as error:
            placed = [
                finding.reword(where=case.where) if finding.where == NOWHERE else finding for finding in error.findings
            ]
            result = CaseResult(case=case, error=project.redacted("\n".join(map(str, placed))))
        except AssertionError as error:
            result = CaseResult(case=case, error=project.redacted(str(error)))
        except Exception as error:
            problem = f"case '{case.name}' broke off: {type(error).__name__}: {first_line(error)}"
            result = CaseResult(case=case, error=project.redacted(str(_wrong(case.where, problem, _LOOK))))
        yield replace(result, seconds=time.monotonic() - begun)


def fuzz_cases(
    project: Project, queries: Sequence[str], *, runs: int, seed: int | None, seconds: float
) -> Iterator[CaseResult]:
    """Fuzz each query, or all, over the rows of each of its cases or over generated ones, and yield the results."""
    for query in queries or project.queries:
        query_cases = [case for case in list_cases(project, [query]) if case.query == query and not case.faults]
        query_cases = query_cases or [TestCase(name="fuzz", query=query, where=project.query(query).where)]
        for query_case in query_cases:
            begun, name = time.monotonic(), "fuzz"
            try:
                share = seconds / len(query_cases)
                batch = query_case.batch if isinstance(query_case.batch, str) else None
                result = fuzz(
                    project,
                    query,
                    runs=runs,
                    seed=seed,
                    seconds=share,
                    key=query_case.key,
                    batch=batch,
                    given=_rows(query_case),
                )
                compared = "" if result.compared else ", which were not compared"
                unfit = (
                    f"; it needs a case, for generated rows fail: {first_line(result.unfit)}" if result.unfit else ""
                )
                name = f"{result.runs} runs with seed {result.seed}{compared}{unfit}"
                failure = result.describe(yaml=True)
            except PlatformError:
                raise
            except HeadraceError as error:
                failure = project.redacted(str(error))
            case = TestCase(name=name, query=query, where=project.query(query).where)
            yield CaseResult(case=case, error=failure, seconds=time.monotonic() - begun)


def _rows(case: TestCase) -> dict[str, Any]:
    """Return the rows of all batches of a case."""
    rows = dict(case.given)
    for name, items in _inputs(case).items():
        rows[name] = [row for batch in items if isinstance(batch, list) for row in batch]
    return rows


def _run_case(project: Project, case: TestCase) -> tuple[list[RowDifference], list[RowDifference], tuple[str, ...]]:
    if case.batches is None:
        rows = evaluate(project, case.query, given=case.given)
        return _with_inputs(project, case, differences(case.expect or (), rows), rows.key), [], rows.key
    run = timeline(project, case.query, key=case.key, batch=case.batch, given=_inputs(case))
    differing = [] if case.expect is None else differences(case.expect, run.final)
    late = [] if case.expect_late is None else _compare_late(case.expect_late, run.late, run.late_schema)
    return _with_inputs(project, case, differing, run.final.key), late, run.final.key


def _with_inputs(
    project: Project, case: TestCase, differing: list[RowDifference], key: Sequence[str]
) -> list[RowDifference]:
    if not (differing and key):
        return differing
    given = {name: rows for name, rows in _rows(case).items() if name not in project.tables}
    rows_of = {
        name: ResultRows(
            [[*row.values()] for row in typed_rows(given.get(name), inlet.schema, project.root, inlet.source)],
            inlet.schema,
        )
        for name, inlet in describe_sources(project, case.query, given).items()
        if not inlet.raw
    }
    return [difference.with_inputs(rows_of, key) for difference in differing]


def _compare_late(expected: Sequence[Any], late: Sequence[Any], schema: Any) -> list[RowDifference]:
    rows = [dict(zip(columns_of(row), row, strict=True)) for row in late]
    return differences(expected, ResultRows([[row.get(name) for name in schema.names] for row in rows], schema))


def _inputs(case: TestCase) -> dict[str, list[Item]]:
    """Return what `timeline` takes: for each source as many batches as there are, and each event behind its batch."""
    steps = [(step, list(_events(step))) for step in case.batches or ()]
    rows = (step for step, events in steps if isinstance(step, dict) and not events)
    sources = dict.fromkeys(name for step in rows for name in step)
    inputs: dict[str, list[Item]] = {name: [] for name in sources}
    for step, events in steps:
        for name, event in events:
            inputs.setdefault(name or next(iter(inputs), ""), []).append(event)
        if isinstance(step, dict) and not events:
            for name in sources:
                inputs[name].append(step.get(name))
        elif not events:
            known_words = f"watermark: {{SOURCE: TIME}}, clock: +TIME, refresh: {{TABLE: ROWS}}, {', '.join(_EVENTS)}"
            fix = f"write rows by their source, or {known_words}"
            raise ProjectError(_wrong(case.where, f"case '{case.name}': {step!r} is neither a batch nor an event", fix))
    return inputs


def _events(step: Any) -> Iterator[tuple[str, TimelineEvent]]:
    """Yield the events that a step is, each with its source where it has one; none for rows."""
    if isinstance(step, str) and step in _EVENTS:
        yield "", _EVENTS[step]()
    elif isinstance(step, dict) and len(step) == 1:
        [(word, value)] = step.items()
        if word == "clock" and isinstance(value, str):
            yield "", Clock(value)
        elif word == "refresh" and isinstance(value, dict):
            yield "", Refresh(**value)
        elif word == "watermark" and isinstance(value, dict):
            yield from ((name, Watermark(str(at))) for name, at in value.items())


def _read_file(project: Project, file: Path) -> Iterator[TestCase]:
    where = Where(file=str(file.relative_to(project.root)))
    nothing = TestCase(name=str(where), query="", where=where)
    try:
        top, faults = document.read(read_text(file), str(where), as_texts=True)
    except NoText as error:
        faults = [_wrong(replace(where, line=error.line), f"it cannot be read: {error}", "save it as UTF-8 text")]
        top = DocumentEntry(value={}, where=where)
    if faults:
        # The entries may lack what is wrong: none of them is run.
        yield replace(nothing, faults=tuple(faults))
        return
    listed = top.value.get("tests") if isinstance(top.value, dict) else None
    if listed is None or not isinstance(listed.value, list):
        fix = "begin it with `tests:`, and give each case a name and a query"
        yield replace(nothing, faults=(_wrong(where, "it has no list 'tests'", fix),))
        return
    for entry in listed.value:
        yield _read_case(project, entry)


def _read_case(project: Project, entry: DocumentEntry) -> TestCase:
    plain, where = entry.plain(), entry.where
    if not isinstance(plain, dict):
        fault = _wrong(
            where, "this entry is not a mapping", "give each case a name, a query, rows, and what is expected"
        )
        return TestCase(name=str(where), query="", where=where, faults=(fault,))
    query = plain.get("query")
    name = str(plain.get("name") or query)
    faults = tuple(_find_faults(project, entry.value, plain, f"case '{name}'", where))  # type: ignore[arg-type]
    if faults:
        return TestCase(name=name, query=query if isinstance(query, str) else "", where=where, faults=faults)
    word = plain.get("batch", "true")
    batch = {"true": True, "false": False}.get(word.lower(), word)
    return TestCase(**{**plain, "name": name, "batch": batch, "where": where})


def _find_faults(
    project: Project, entries: Mapping[str, DocumentEntry], plain: Mapping[str, Any], case: str, where: Where
) -> Iterator[Finding]:
    """Report what is wrong with an entry, each at its own line."""
    for key, entry in entries.items():
        if key not in KEYS:
            yield _wrong(entry.where, f"{case} has an unknown key '{key}'", nearest(key, KEYS))
        elif not isinstance(plain[key], _KINDS[key][0]):
            yield _wrong(entry.where, f"{case}: `{key}` is not {_KINDS[key][1]}", f"write {_KINDS[key][1]}")
    if "query" not in plain or (isinstance(plain["query"], str) and plain["query"] not in project.queries):
        problem = f"{case}: no query is named '{plain.get('query')}'"
        yield _wrong(where, problem, nearest(str(plain.get("query")), project.queries))
    if ("given" in plain) == ("batches" in plain):
        fix = "write `given`, to be answered as a batch, or `batches`, to be run as a stream"
        yield _wrong(where, f"{case} needs one of `given` and `batches`", fix)
    elif "given" in plain and "expect_late" in plain:
        fix = "write the rows under `batches`, which are run as a stream"
        yield _wrong(entries["expect_late"].where, f"{case}: in rows that are `given` at once, none is late", fix)
    if "expect" not in plain and "expect_late" not in plain:
        yield _wrong(where, f"{case} expects nothing", "write the rows of the result under `expect`")
    word = plain.get("batch", "true")
    if isinstance(word, str) and not re.match(r"(true|false)\Z|\s*(select|with|values|from)\b", word, re.IGNORECASE):
        fix = "write true, false, or a SELECT that says what the result is"
        yield _wrong(entries["batch"].where, f"{case}: `batch` is '{word}'", fix)


_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(("name", "query"), (str, "a text")),
    "given": (dict, "a mapping from sources to rows"),
    **dict.fromkeys(("batches", "expect", "expect_late", "key"), (list, "a list")),
    "batch": (str, "true, false or a SELECT"),
}
_LOOK = "correct what the case gives or expects; or, if the query's own code failed, that"


def _wrong(where: Where, problem: str, fix: str) -> Finding:
    return Finding(code="HR721", what=problem, fix=fix, where=where)
