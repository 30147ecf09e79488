"""Tests of queries that are written as YAML: the files `tests/*.yml` of a project."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from headrace.errors import Finding, HeadraceError, PlatformError, ProjectError, Where, first_line, nearest
from headrace.model import Project
from headrace.testing.batch_answer import evaluate
from headrace.testing.fuzzing import fuzz
from headrace.testing.rows import ResultRows, RowDifference, columns_of, differences
from headrace.testing.timelines import Crash, CrashBeforeCommit, Item, Restart, TimelineEvent, Watermark, timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = ("name", "query", "given", "batches", "expect", "expect_late", "key", "batch")
_EVENTS = {"crash": Crash, "crash_before_commit": CrashBeforeCommit, "restart": Restart}


@dataclass(frozen=True, kw_only=True)
class TestCase:
    """One entry of a file's list `tests`.

    given: the rows of each source, answered as a batch. batches: what comes one after the other: the rows of each
    source, or an event. expect, expect_late: the rows of the result, and those dropped as late; None: not looked at.
    """

    __test__ = False  # To pytest it would look like a class of tests.
    name: str
    query: str
    given: Mapping[str, Any] = field(default_factory=dict)
    batches: Sequence[Any] | None = None
    expect: Sequence[Any] | None = None
    expect_late: Sequence[Any] | None = None
    key: Sequence[str] = ()
    batch: bool = True
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


def run_cases(
    project: Project, queries: Sequence[str] = (), *, spark: SparkSession | None = None
) -> Iterator[CaseResult]:
    """The result of each of `cases`, as soon as it is there."""
    for case in cases(project, queries):
        begun = time.monotonic()
        try:
            differing, late, key = _run(project, case, spark)
            found = CaseResult(case=case, key=key, differences=tuple(differing), late=tuple(late))
        except (HeadraceError, AssertionError) as error:
            found = CaseResult(case=case, error=project.redacted(str(error)))
        yield CaseResult(**{**vars(found), "seconds": time.monotonic() - begun})


def fuzz_cases(
    project: Project, queries: Sequence[str], *, runs: int, seed: int | None, seconds: float
) -> Iterator[CaseResult]:
    """How `fuzz` went for each query, or for all, over the rows of each of its cases, or over generated ones."""
    for query in queries or project.queries:
        inputs = [(_rows(case), case.key) for case in cases(project, [query])] or [({}, ())]
        for rows, key in inputs:
            begun, name = time.monotonic(), "fuzz"
            try:
                share = seconds / len(inputs)
                result = fuzz(project, query, runs=runs, seed=seed, seconds=share, key=key, given=rows)
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


def _run(
    project: Project, case: TestCase, spark: SparkSession | None
) -> tuple[list[RowDifference], list[RowDifference], tuple[str, ...]]:
    if case.batches is None:
        rows = evaluate(project, case.query, spark=spark, **case.given)
        return differences(case.expect or (), rows), [], rows.key
    given = _inputs(case)
    run = timeline(project, case.query, spark=spark, key=case.key, batch=case.batch, given=given)
    differing = [] if case.expect is None else differences(case.expect, run.final)
    late = [] if case.expect_late is None else _late(case.expect_late, run.late, run.late_schema)
    return differing, late, run.final.key


def _late(expected: Sequence[Any], late: Sequence[Any], schema: Any) -> list[RowDifference]:
    rows = [dict(zip(columns_of(row), row, strict=True)) for row in late]
    return differences(expected, ResultRows([[row.get(name) for name in schema.names] for row in rows], schema))


def _inputs(case: TestCase) -> dict[str, list[Item]]:
    """What `timeline` takes: for each source as many batches as there are, and each event behind its batch."""
    sources = list(dict.fromkeys(name for step in case.batches or () if isinstance(step, dict) for name in step))
    sources = [name for name in sources if name != "watermark"]
    inputs: dict[str, list[Item]] = {name: [] for name in sources}
    for step in case.batches or ():
        event: TimelineEvent | None = None
        if isinstance(step, str) and step in _EVENTS and sources:
            inputs[sources[0]].append(_EVENTS[step]())
        elif isinstance(step, dict) and list(step) == ["watermark"] and isinstance(step["watermark"], dict):
            for name, at in step["watermark"].items():
                event = Watermark(at)
                inputs.setdefault(name, []).append(event)
        elif isinstance(step, dict):
            for name in sources:
                inputs[name].append(step.get(name))
        else:
            fix = f"write rows by their source, {{watermark: {{SOURCE: TIME}}}}, or {', '.join(_EVENTS)}"
            raise _wrong(case.where, f"case '{case.name}': {step!r} is no batch and no event", fix)
    return inputs


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
    batch = str(entry.get("batch", "true")).lower() != "false"
    return TestCase(**cast("dict[str, Any]", {**entry, "name": name, "batch": batch, "where": where}))


def _wrong(where: Where, what: str, fix: str) -> ProjectError:
    return ProjectError(Finding(code="HR721", what=what, fix=fix, where=where))
