"""A query's answer is the same however its rows come: tried over random batches, orders, crashes and restarts."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.arguments import judge_arguments
from headrace.errors import CheckFailed, HeadraceError, import_optional
from headrace.model import Project
from headrace.testing.batch_answer import describe_sources
from headrace.testing.events import Refresh
from headrace.testing.given import GivenRows, Inlet, typed_rows
from headrace.testing.rows import ResultRows, describe, differences
from headrace.testing.schedules import Reorder, Row, Schedule, generate_rows, schedules
from headrace.testing.spark_session import shared_session
from headrace.testing.timelines import TimelineRun, timeline

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class FuzzResult:
    """The result of `fuzz`.

    Attributes:
        query: The name of the query.
        seed: Repeats the same runs.
        runs: Over how many schedules the query was run.
        compared: Whether results were compared; a query with a state function that appends is only run.
        unfit: Why there was no run: the query failed over all generated rows.
        failure: What is wrong; empty: nothing.
        schedule: The batches over which it is wrong.
        expected: The rows that should come out; None: those of the batch answer.
        key: The columns that identify a row.
    """

    query: str
    seed: int
    runs: int
    compared: bool = True
    unfit: str = ""
    failure: str = ""
    schedule: Schedule | None = None
    expected: ResultRows | None = None
    key: tuple[str, ...] = ()

    def describe(self, *, yaml: bool = False) -> str:
        """Return the failure, and its batches as a test of Python or YAML."""
        if self.schedule is None:
            return ""
        form = self.schedule.as_yaml if yaml else self.schedule.as_python
        intro = f"found with seed {self.seed} in run {self.runs}; these batches show it:"
        return f"{self.failure}\n{intro}\n\n{form(self.query, self.key, self.expected)}\n"


class _Mistake(NamedTuple):
    text: str
    expected: ResultRows | None = None
    is_error: bool = False


@judge_arguments
def fuzz(
    project: Project,
    query: str,
    *,
    runs: int = 20,
    seed: int | None = None,
    seconds: float = 60.0,
    shrink_seconds: float = 30.0,
    spark: SparkSession | None = None,
    key: Sequence[str] = (),
    compare: bool | None = None,
    batch: str | Callable[..., Any] | None = None,
    sink: Callable[[], Iterable[Any]] | None = None,
    reset: Callable[[], None] | None = None,
    check: Callable[[TimelineRun], None] | None = None,
    given: Mapping[str, GivenRows] | None = None,
    **inputs: GivenRows,
) -> FuzzResult:
    """Run `query` over the same rows again and again, and check that the result is always the same.

    Each run cuts the rows into other batches, in another order as far as the watermark waits for them, with crashes
    and restarts. The result must be that of one batch, or else the batch answer, as `timeline` compares it. A failure
    is made small before it is returned. Without inputs rows are generated from the schemas of the sources; those over
    which one batch fails do not count.

    Args:
        project: The project of the query.
        query: Its name.
        runs: How many runs at most.
        seed: Repeats what another call has drawn.
        seconds: The time after which no run begins.
        shrink_seconds: The time for making a failure small.
        spark: A session; None: the active one, or a local one for all tests of the process.
        key: The columns that identify a row of the result, if the sink does not say.
        compare: Whether results of one batch and of several are compared without a batch answer; None: only in
            complete mode and if a key says which rows replace which.
        batch: What a query with a state function means as a batch, as for `timeline`.
        sink: Keeps the real sink; the function returns the rows that it holds.
        reset: Empties the real sink before each run.
        check: Called with each run; raises AssertionError.
        given: The inputs by name, as further keyword arguments are.
        **inputs: Rows by the name of a source or a table, as for `evaluate`.

    Returns:
        How many runs there were, and the failure.

    Raises:
        ProjectError: Rows do not fit.
        PlatformError: Hypothesis is not installed.
    """
    begun = time.monotonic()
    seed = SystemRandom().randrange(10**6) if seed is None else seed
    rows_of = {**(given or {}), **inputs}
    tables = {name: rows_of.pop(name) for name in project.tables if name in rows_of}
    session = spark or shared_session()
    trials = _Trials(
        run=functools.partial(
            timeline, project, query, spark=session, key=tuple(key), batch=batch or False, sink=sink or False
        ),
        project=project,
        compare=compare,
        real_sink=sink is not None,
        reset=reset,
        check=check,
        tables=tables,
        discards=not rows_of,
    )
    sources = describe_sources(project, query, rows_of, session)
    sources = {name: replace(inlet, raw=inlet.raw and len(inlet.schema) > 1) for name, inlet in sources.items()}
    rows: dict[str, list[Row]] = {
        name: list(held)
        if sources[name].raw
        else [tuple(row.values()) for row in typed_rows(held, sources[name].schema, project.root, sources[name].source)]
        for name, held in rows_of.items()
    }
    failing: tuple[Schedule, _Mistake] | None = None
    tried, reason = 0, ""
    for candidate in _draw_candidates(rows, sources, runs, seed, trials):
        failing = trials.failing(candidate)
        discarded = trials.reason_to_discard(candidate)
        tried, reason = tried + (discarded is None), discarded or reason
        if failing is not None or time.monotonic() - begun > seconds:
            break
    if failing is not None:
        failing = _shrink(trials, failing, until=time.monotonic() + shrink_seconds)
    schedule, mistake = failing or (None, None)
    return FuzzResult(
        query=query,
        seed=seed,
        runs=tried,
        compared=trials.compares,
        unfit="" if tried else reason,
        failure=mistake.text if mistake is not None else "",
        schedule=schedule,
        expected=mistake.expected if mistake is not None else None,
        key=tuple(key),
    )


def fuzzed(query: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test function a check that `fuzz` calls with each run.

    The test takes a `TimelineRun` first; its other arguments are fixtures. It needs the plug-in
    `headrace.testing.plugin`.

    Args:
        query: The name of a query of the fixture `headrace_project`.
        **options: The options and inputs of `fuzz`.

    Returns:
        The decorator.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(test).parameters.values())[1:]
        fixtures = [name for name in ("spark", "headrace_project") if name not in {one.name for one in own}]

        @functools.wraps(test)
        def run_it(**given: Any) -> None:
            project, spark = given["headrace_project"], given["spark"]
            passed = {one.name: given[one.name] for one in own}
            result = fuzz(project, query, spark=spark, check=lambda run: test(run, **passed), **options)
            assert not result.failure, result.describe()
            assert not result.unfit, result.unfit

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [*(one.replace(kind=kind) for one in own), *(inspect.Parameter(name, kind) for name in fixtures)]
        run_it.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        del run_it.__wrapped__
        return run_it

    return decorate


@dataclass
class _Trials:
    """Runs of one query, each over a schedule, with the mistakes of those that were run.

    by_batch: whether a batch answer decides what is right; if not, or if rows of which the first one counts come in
    another order, the result over one batch does. compares: whether anything does. judges_one_batch: whether the result
    over one batch is compared with the batch answer. discards: whether rows over which one batch fails do not count.
    """

    run: Callable[..., TimelineRun]
    project: Project
    compare: bool | None
    real_sink: bool
    reset: Callable[[], None] | None
    check: Callable[[TimelineRun], None] | None
    tables: Mapping[str, Any]
    discards: bool
    by_batch: bool = True
    compares: bool = True
    judges_one_batch: bool = True
    _first_come: bool = False
    _mistakes: dict[str, _Mistake | None] = field(default_factory=dict)
    _over_one_batch: dict[str, TimelineRun] = field(default_factory=dict)

    @property
    def reorder(self) -> Reorder:
        """Which rows may overtake others; a state function may go by the order where no watermark waits."""
        return "none" if self._first_come else "all" if self.by_batch else "waited for"

    def failing(self, schedule: Schedule) -> tuple[Schedule, _Mistake] | None:
        """Return the schedule, or that of all its rows in one batch, with the mistake in its result; None: right."""
        if not schedule.size:
            return None
        for candidate in (schedule.whole, schedule):
            text = repr(candidate)
            if text not in self._mistakes:
                self._mistakes[text] = self._mistake(candidate)
            mistake = self._mistakes[text]
            if mistake is not None:
                return None if self.reason_to_discard(schedule) else (candidate, mistake)
        return None

    def reason_to_discard(self, schedule: Schedule) -> str | None:
        """Return why its generated rows do not fit this query; None: they do."""
        mistake = self._mistakes.get(repr(schedule.whole))
        return mistake.text if self.discards and mistake is not None and mistake.is_error else None

    def _mistake(self, schedule: Schedule) -> _Mistake | None:
        if self.reset is not None:
            self.reset()
        try:
            inputs = schedule.inputs().items()
            run = self.run(given={name: [Refresh(**self.tables), *items] for name, items in inputs})
            if self.check is not None:
                self.check(run)
            whole = repr(schedule.whole)
            if repr(schedule) == whole:
                self._over_one_batch[whole] = run
                if self.judges_one_batch:
                    self._settle(run)
                if self.by_batch and self.judges_one_batch:
                    run.require_batch_answer()
                return None
            expected = self._over_one_batch[whole]
            # After a restart Spark waits for a row of each input before it moves the watermark on: groups stay open.
            differing = differences(expected.final, run.final) if run.watermark == expected.watermark else []
            if differing and self.by_batch:
                run.require_batch_answer()
        except (HeadraceError, AssertionError) as error:
            return _Mistake(self.project.redacted(str(error)), is_error=isinstance(error, HeadraceError))
        if not differing or not self.compares or self._first_come:
            return None
        problem = f"the result of query '{run.query.name}' is not that over one batch (-)"
        return _Mistake(f"{problem}:\n{describe(differing)}", expected.final)

    def _settle(self, run: TimelineRun) -> None:
        """Decide by what results are compared."""
        try:
            self.by_batch = not self.real_sink and run.has_batch_answer
            self._first_come = self.by_batch and run.first_come_first_served
        except CheckFailed:
            self.by_batch = False
        replaces = run.query.mode == "complete" or (run.query.mode == "update" and bool(run.final.key))
        self.compares = self.by_batch or bool(replaces or self.real_sink if self.compare is None else self.compare)


def _shrink(trials: _Trials, failing: tuple[Schedule, _Mistake], until: float) -> tuple[Schedule, _Mistake]:
    """Return a smaller schedule that fails too. Hypothesis would try hundreds, each of which takes a second."""
    smaller = failing[0].smaller()
    trials.judges_one_batch = failing[0] == failing[0].whole
    while time.monotonic() < until and (schedule := next(smaller, None)) is not None:
        smaller_failing = trials.failing(schedule)
        if smaller_failing is not None:
            failing, smaller = smaller_failing, smaller_failing[0].smaller()
    return failing


def _draw_candidates(
    given: Mapping[str, Sequence[Row]], made: Mapping[str, Inlet], runs: int, seed: int, trials: _Trials
) -> Iterator[Schedule]:
    """Yield one batch first, which decides how results are compared, and then what is drawn."""
    import_optional("hypothesis", "Hypothesis, which draws the batches, is not installed", "test")
    from hypothesis import strategies as st

    rows: SearchStrategy[Any] = st.just(given) if given else generate_rows(made)
    yield from [Schedule.of(given)] if given else [drawn.whole for drawn in _draw(rows, made, 3, seed, "none")]
    if any(given.values()) or not given:
        yield from _draw(rows, made, runs, seed, trials.reorder)


def _draw(
    rows: SearchStrategy[Any], made: Mapping[str, Inlet], runs: int, seed: int, reorder: Reorder
) -> list[Schedule]:
    """Draw schedules by Hypothesis, each once; at most `runs`."""
    import hypothesis

    drawn: dict[str, Schedule] = {}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=runs,
        phases=[hypothesis.Phase.generate],
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(schedules(rows, made, reorder))
    def keep(schedule: Schedule) -> None:
        drawn[repr(schedule)] = schedule

    keep()
    return list(drawn.values())
