"""Tests of queries that are written as YAML: the files `tests/*.yml` of a project."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from headrace.errors import HeadraceError, PlatformError, ProjectError, Where, first_line, nearest
from headrace.model import Project
from headrace.testing.batch_answer import evaluate, reading
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
from headrace.testing.given import inlets
from headrace.testing.rows import ResultRows, RowDifference, columns_of, differences
from headrace.testing.timelines import timeline

KEYS = ("name", "query", "given", "batches", "expect", "expect_late", "key", "batch")
_EVENTS = {"crash": Crash, "crash_before_commit": CrashBeforeCommit, "restart": Restart, "pause": Pause}


@dataclass(frozen=True, kw_only=True)
class TestCase:
    """One entry of a file's list `tests`.

    given: the rows of each source, answered as a batch. batches: what comes one after the other: the rows of each
    source, or an event. expect, expect_late: the rows of the result, and those dropped as late; None: not looked at.
    batch: whether the result must be the batch answer, or a SELECT that says what that is.
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


class _TextLoader(yaml.SafeLoader):
    """YAML whose plain scalars stay texts, but for NULL: `12:14` is a time here, not a number of seconds."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [pair for pair in pairs if pair[0] in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def cases(project: Project, queries: Sequence[str] = ()) -> list[TestCase]:
    """The cases of a project's `tests/*.yml`, of these queries or of all. Raises ProjectError for a wrong one."""
    files = sorted(file for file in (project.root / "tests").glob("*.y*ml") if file.suffix in (".yml", ".yaml"))
    found = [case for file in files for case in _of_file(project, file)]
    return [case for case in found if not queries or case.query in queries]


def run_cases(project: Project, queries: Sequence[str] = ()) -> Iterator[CaseResult]:
    """The result of each of `cases`, as soon as it is there."""
    for case in cases(project, queries):
        begun = time.monotonic()
        try:
            differing, late, key = _run(project, case)
            found = CaseResult(case=case, key=key, differences=tuple(differing), late=tuple(late))
        except (HeadraceError, AssertionError) as error:
            found = CaseResult(case=case, error=project.redacted(str(error)))
        yield CaseResult(**{**vars(found), "seconds": time.monotonic() - begun})


def fuzz_cases(
    project: Project, queries: Sequence[str], *, runs: int, seed: int | None, seconds: float
) -> Iterator[CaseResult]:
    """How `fuzz` went for each query, or for all, over the rows of each of its cases, or over generated ones."""
    for query in queries or project.queries:
        known = cases(project, [query]) or [TestCase(name="fuzz", query=query, where=project.query(query).where)]
        for each in known:
            begun, name = time.monotonic(), "fuzz"
            try:
                share, batch = seconds / len(known), each.batch if isinstance(each.batch, str) else None
                result = fuzz(
                    project, query, runs=runs, seed=seed, seconds=share, key=each.key, batch=batch, given=_rows(each)
                )
                compared = "" if result.compared else ", which were not compared"
                unfit = (
                    f"; it needs a case, for generated rows fail: {first_line(result.unfit)}" if result.unfit else ""
                )
                name = f"{result.runs} runs with seed {result.seed}{compared}{unfit}"
                failure = result.described(yaml=True)
            except PlatformError:
                raise
            except HeadraceError as error:
                failure = project.redacted(str(error))
            case = TestCase(name=name, query=query, where=project.query(query).where)
            yield CaseResult(case=case, error=failure, seconds=time.monotonic() - begun)


def _rows(case: TestCase) -> dict[str, Any]:
    """The rows of all batches of a case."""
    rows = dict(case.given)
    for name, items in _inputs(case).items():
        rows[name] = [row for batch in items if isinstance(batch, list) for row in batch]
    return rows


def _run(project: Project, case: TestCase) -> tuple[list[RowDifference], list[RowDifference], tuple[str, ...]]:
    if case.batches is None:
        rows = evaluate(project, case.query, given=case.given)
        return _with_inputs(project, case, differences(case.expect or (), rows), rows.key), [], rows.key
    run = timeline(project, case.query, key=case.key, batch=case.batch, given=_inputs(case))
    differing = [] if case.expect is None else differences(case.expect, run.final)
    late = [] if case.expect_late is None else _late(case.expect_late, run.late, run.late_schema)
    return _with_inputs(project, case, differing, run.final.key), late, run.final.key


def _with_inputs(
    project: Project, case: TestCase, found: list[RowDifference], key: Sequence[str]
) -> list[RowDifference]:
    if not (found and key):
        return found
    given = {name: rows for name, rows in _rows(case).items() if name not in project.tables}
    with reading(project, None) as session, tempfile.TemporaryDirectory(prefix="headrace-") as home:
        batches = {name: [rows] for name, rows in given.items()}
        made = inlets(project, project.query(case.query), batches, session, Path(home))
    rows_of = {
        name: ResultRows([[*row.values()] for row in inlet.plain_rows(given.get(name), project.root)], inlet.schema)
        for name, inlet in made.items()
        if not inlet.raw
    }
    return [each.with_inputs(rows_of, key) for each in found]


def _late(expected: Sequence[Any], late: Sequence[Any], schema: Any) -> list[RowDifference]:
    rows = [dict(zip(columns_of(row), row, strict=True)) for row in late]
    return differences(expected, ResultRows([[row.get(name) for name in schema.names] for row in rows], schema))


def _inputs(case: TestCase) -> dict[str, list[Item]]:
    """What `timeline` takes: for each source as many batches as there are, and each event behind its batch."""
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
            known = f"watermark: {{SOURCE: TIME}}, clock: +TIME, refresh: {{TABLE: ROWS}}, {', '.join(_EVENTS)}"
            fix = f"write rows by their source, or {known}"
            raise _wrong(case.where, f"case '{case.name}': {step!r} is no batch and no event", fix)
    return inputs


def _events(step: Any) -> Iterator[tuple[str, TimelineEvent]]:
    """The events that a step is, each with its source where it has one; none for rows."""
    if isinstance(step, str) and step in _EVENTS:
        yield "", _EVENTS[step]()
    elif isinstance(step, dict) and len(step) == 1:
        [(word, told)] = step.items()
        if word == "clock" and isinstance(told, str):
            yield "", Clock(told)
        elif word == "refresh" and isinstance(told, dict):
            yield "", Refresh(**told)
        elif word == "watermark" and isinstance(told, dict):
            yield from ((name, Watermark(at)) for name, at in told.items())


def _of_file(project: Project, file: Path) -> Iterator[TestCase]:
    where = Where(file=str(file.relative_to(project.root)))
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), _TextLoader)
    except (OSError, yaml.YAMLError) as error:
        raise _wrong(where, f"it cannot be read: {error}", "correct the file") from error
    entries = document.get("tests") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _wrong(where, "it has no list 'tests'", "begin it with `tests:`, and give each case a name and a query")
    for entry in entries:
        yield _case(project, entry, where)


def _case(project: Project, entry: dict[str, Any], where: Where) -> TestCase:
    name = str(entry.get("name") or entry.get("query"))
    unknown = next((key for key in entry if key not in KEYS), None)
    if unknown is not None:
        raise _wrong(where, f"case '{name}' has an unknown key '{unknown}'", nearest(str(unknown), KEYS))
    if entry.get("query") not in project.queries:
        what = f"case '{name}': no query is named '{entry.get('query')}'"
        raise _wrong(where, what, nearest(str(entry.get("query")), project.queries))
    if ("given" in entry) == ("batches" in entry):
        fix = "write `given`, to be answered as a batch, or `batches`, to be run as a stream"
        raise _wrong(where, f"case '{name}' needs one of `given` and `batches`", fix)
    if "expect" not in entry and "expect_late" not in entry:
        raise _wrong(where, f"case '{name}' expects nothing", "write the rows of the result under `expect`")
    for key, kind in (("given", dict), ("batches", list), ("expect", list), ("expect_late", list), ("key", list)):
        if not isinstance(entry.get(key, kind()), kind):
            shape = "a mapping from sources to rows" if kind is dict else "a list"
            raise _wrong(where, f"case '{name}': `{key}` is no {kind.__name__}", f"write {shape}")
    word = str(entry.get("batch", "true"))
    batch = {"true": True, "false": False}.get(word.lower(), word)
    return TestCase(**cast("dict[str, Any]", {**entry, "name": name, "batch": batch, "where": where}))


def _wrong(where: Where, what: str, fix: str) -> ProjectError:
    return ProjectError(code="HR721", what=what, fix=fix, where=where)
