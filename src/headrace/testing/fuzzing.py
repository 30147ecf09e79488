"""A query's answer is the same however its rows come: tried over random batches, orders, crashes and restarts."""

from __future__ import annotations

import functools
import inspect
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from headrace.errors import CheckFailed, HeadraceError, imported
from headrace.model import Project
from headrace.testing.batch_answer import reading
from headrace.testing.given import GivenRows, Inlet, inlets
from headrace.testing.rows import ResultRows, described, differences
from headrace.testing.schedules import Reorder, Row, Schedule, schedules
from headrace.testing.spark_session import shared_session
from headrace.testing.timelines import TimelineRun, timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS, SECONDS = 20, 60.0


@dataclass(frozen=True, kw_only=True)
class FuzzResult:
    """What came of it. runs: how often the query was run beside its runs over one batch each; 0: nothing was drawn.

    compared: whether results were compared; a query with a state function that appends is only run. failure: what is
    wrong, empty: nothing; schedule: the batches over which it is, and expected the rows that are to come out, None:
    those of the batch answer.
    """

    query: str
    seed: int
    runs: int
    seconds: float
    compared: bool = True
    failure: str = ""
    schedule: Schedule | None = None
    expected: ResultRows | None = None

    def described(self, *, yaml: bool = False) -> str:
        """The failure, and its batches as a test of Python or YAML."""
        if self.schedule is None:
            return ""
        form = self.schedule.as_yaml if yaml else self.schedule.as_python
        found = f"found with seed {self.seed} after {self.runs} runs; these batches show it:"
        return f"{self.failure}\n{found}\n\n{form(self.query, self.expected)}\n"


@dataclass(frozen=True)
class _Mistake:
    text: str
    expected: ResultRows | None = None
    is_error: bool = False


def fuzz(
    project: Project,
    query: str,
    *,
    runs: int = RUNS,
    seed: int | None = None,
    seconds: float = SECONDS,
    spark: SparkSession | None = None,
    key: Sequence[str] = (),
    compare: bool | None = None,
    sink: Callable[[], Iterable[Any]] | None = None,
    reset: Callable[[], None] | None = None,
    check: Callable[[TimelineRun], None] | None = None,
    **inputs: GivenRows,
) -> FuzzResult:
    """Run `query` over the rows of `inputs` again and again, and look whether it always gives the same.

    Each run cuts the rows into other batches, in another order as far as the watermark waits for them, with crashes
    and restarts. The result must be that of one batch, or else the batch answer, as `timeline` compares it. A failure
    is made small before it is told.

    runs, seconds: how many runs, and the time after which none begins. seed: repeats what was drawn. compare: results
    of one batch and of several are compared where there is no batch answer; by itself only in complete mode and where
    a key tells which rows replace which. sink: the real sink is kept, and what it holds is what this function gives;
    `reset` empties it before each run. check: looks at each run, and raises AssertionError.

    Raises ProjectError for rows that do not fit, PlatformError where Hypothesis is not installed.
    """
    begun = time.monotonic()
    seed = SystemRandom().randrange(10**6) if seed is None else seed
    trials = _Trials(project, query, spark or shared_session(), tuple(key), compare, sink, reset, check)
    made = _inlets(project, query, trials.spark, inputs)
    rows = {name: _plain_rows(made[name], given, project.root) for name, given in inputs.items()}
    failing = trials.failing(Schedule.of(rows))
    tried = 0
    for schedule in () if failing else _drawn(rows, made, runs, seed, trials.reorder):
        if time.monotonic() - begun > seconds:
            break
        tried += 1
        failing = trials.failing(schedule)
        if failing is not None:
            break
    if failing is not None:
        failing = _shrunk(trials, failing, until=time.monotonic() + seconds / 2)
    return FuzzResult(
        query=query,
        seed=seed,
        runs=tried,
        seconds=time.monotonic() - begun,
        compared=trials.compares,
        failure=failing[1].text if failing else "",
        schedule=failing[0] if failing else None,
        expected=failing[1].expected if failing else None,
    )


def fuzzed(query: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test that `fuzz` runs: it takes a run first, looks at it, and is called for each; other arguments are fixtures.

    It needs the plug-in `headrace.testing.plugin`. The options and the inputs are those of `fuzz`.
    """

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(test).parameters.values())[1:]
        fixtures = [name for name in ("spark", "headrace_project") if name not in {one.name for one in own}]

        @functools.wraps(test)
        def run_it(**given: Any) -> None:
            project, spark = given["headrace_project"], given["spark"]
            passed = {one.name: given[one.name] for one in own}
            result = fuzz(project, query, spark=spark, check=lambda run: test(run, **passed), **options)
            assert not result.failure, result.described()

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [*(one.replace(kind=kind) for one in own), *(inspect.Parameter(name, kind) for name in fixtures)]
        run_it.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        del run_it.__wrapped__
        return run_it

    return decorated


class _Trials:
    """Runs of one query, each over a schedule; what was run once is known.

    by_batch: whether a batch answer tells what is right; where it does not, or where rows of which the first one counts
    come in another order, one batch does. compares: whether anything does. judges_one_batch: whether the result over
    one batch is compared with the batch answer.
    """

    def __init__(
        self,
        project: Project,
        query: str,
        spark: SparkSession,
        key: tuple[str, ...],
        compare: bool | None,
        sink: Callable[[], Iterable[Any]] | None,
        reset: Callable[[], None] | None,
        check: Callable[[TimelineRun], None] | None,
    ) -> None:
        self.project, self.query, self.spark = project, query, spark
        self.by_batch = self.compares = self.judges_one_batch = True
        self._first_come = False
        self._key, self._compare, self._sink, self._reset, self._check = key, compare, sink, reset, check
        self._mistakes: dict[str, _Mistake | None] = {}
        self._finals: dict[str, ResultRows] = {}

    @property
    def reorder(self) -> Reorder:
        """Which rows may overtake others; a state function may go by the order where no watermark waits."""
        return "none" if self._first_come else "all" if self.by_batch else "waited for"

    def failing(self, schedule: Schedule) -> tuple[Schedule, _Mistake] | None:
        """The schedule with what is wrong with its result, or that of all its rows in one batch; None: nothing is."""
        if not schedule.size:
            return None
        for candidate in (schedule.whole, schedule):
            text = repr(candidate)
            if text not in self._mistakes:
                self._mistakes[text] = self._mistake(candidate)
            mistake = self._mistakes[text]
            if mistake is not None:
                return candidate, mistake
        return None

    def _mistake(self, schedule: Schedule) -> _Mistake | None:
        if self._reset is not None:
            self._reset()
        try:
            run = timeline(
                self.project,
                self.query,
                spark=self.spark,
                key=self._key,
                batch=False,
                sink=self._sink or False,
                given=schedule.inputs(),
            )
            if self._check is not None:
                self._check(run)
            whole = repr(schedule.whole)
            if repr(schedule) == whole:
                self._finals[whole] = run.final
                if self.judges_one_batch:
                    self._settle(run)
                if self.by_batch and self.judges_one_batch:
                    run.require_batch_answer()
                return None
            found = differences(self._finals[whole], run.final)
            if found and self.by_batch:
                run.require_batch_answer()
        except (HeadraceError, AssertionError) as error:
            return _Mistake(self.project.redacted(str(error)), is_error=isinstance(error, HeadraceError))
        if not found or not self.compares or self._first_come:
            return None
        what = f"the result of query '{self.query}' is not that over one batch (-)"
        return _Mistake(f"{what}:\n{described(found)}", self._finals[whole])

    def _settle(self, run: TimelineRun) -> None:
        """Find out by what results are compared."""
        try:
            self.by_batch = self._sink is None and run.has_batch_answer
        except CheckFailed:
            self.by_batch = False
        replaces = run.query.mode == "complete" or (run.query.mode == "update" and bool(run.final.key))
        self.compares = self.by_batch or (
            replaces or self._sink is not None if self._compare is None else self._compare
        )


def _shrunk(trials: _Trials, failing: tuple[Schedule, _Mistake], until: float) -> tuple[Schedule, _Mistake]:
    """A smaller schedule that fails too. Hypothesis would try hundreds, each of which takes a second here."""
    smaller = failing[0].smaller()
    trials.judges_one_batch = failing[0] == failing[0].whole
    while time.monotonic() < until:
        schedule = next(smaller, None)
        if schedule is None:
            break
        found = trials.failing(schedule)
        if found is not None:
            failing = found
            smaller = found[0].smaller()
    return failing


def _drawn(
    rows: Mapping[str, Sequence[Row]], made: Mapping[str, Inlet], runs: int, seed: int, reorder: Reorder
) -> list[Schedule]:
    """Schedules by Hypothesis, each once; at most `runs`."""
    imported("hypothesis", "Hypothesis, which draws the batches, is not installed", "test")
    import hypothesis
    from hypothesis import strategies as st

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
    @hypothesis.given(schedules(st.just(rows), made, reorder))
    def keep(schedule: Schedule) -> None:
        drawn[repr(schedule)] = schedule

    keep()
    return list(drawn.values())


def _inlets(project: Project, query: str, spark: SparkSession, inputs: Mapping[str, GivenRows]) -> dict[str, Inlet]:
    """What is known of the query's sources. Raises ProjectError where `inputs` name something else."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as home, reading(project, spark):
        batches = {name: [given] for name, given in inputs.items()}
        made = inlets(project, project.query(query), batches, spark, Path(home))
    return {name: replace(inlet, raw=inlet.raw and len(inlet.schema) > 1) for name, inlet in made.items()}


def _plain_rows(inlet: Inlet, given: GivenRows, root: Path) -> list[Row]:
    return list(given) if inlet.raw else [tuple(row.values()) for row in inlet.plain_rows(given, root)]
