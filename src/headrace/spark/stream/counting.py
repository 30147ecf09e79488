"""Counters that the tasks of a streaming query add to, and what of it counts for a batch.

An accumulator of Spark's counts again what is computed again: a stage after a lost shuffle, the sample before a sort,
a batch that a sink computes twice, a function that the optimizer has put into a plan in two places. So what a task adds
is kept apart here by where it was added, and of each piece of work that was done more than once one time counts.

Spark merges the updates of a task into the driver's value before it takes the task for done (DAGScheduler): when a job
has ended, all that its tasks have added is there. Tasks that failed send nothing.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import CheckFailed
from headrace.spark.jvm.gateway import java_context

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

BATCH, EXECUTION = "streaming.sql.batchId", "spark.sql.execution.id"
# How long the list of a stage's RDDs may take to come: Spark fills it while the tasks run.
_PATIENCE_SECONDS = 2.0


class Added(NamedTuple):
    """Where a value was added.

    execution: the action of Spark that its batch was computed for. attempt: of the task. site: the place in the user's
    code. runner: the Python process that ran it for one operator of the plan.
    """

    batch: int
    execution: int
    stage: int
    partition: int
    attempt: int
    site: str
    runner: str


@dataclass
class Sum:
    """What was added at one place by one task, in how many calls."""

    calls: int
    value: Any


class Adding:
    """Adds numbers."""

    def zero(self, value: Any) -> Any:
        return type(value)()

    def addInPlace(self, one: Any, other: Any) -> Any:  # noqa: N802
        return one + other


def add_up(param: Any, one: Any, other: Any) -> Any:
    """The sum of two values, as `param` adds them; None adds numbers."""
    return (param or Adding()).addInPlace(one, other)


class Updates(dict[Added, Sum]):
    """What tasks have added; sent from a worker with the classes of the user's that it holds."""

    def __init__(self, sums: Mapping[Added, Sum] | None = None) -> None:
        super().__init__(sums or {})
        self.runner = uuid.uuid4().hex

    def __reduce__(self) -> Any:
        from pyspark import cloudpickle

        return _updates, (cloudpickle.dumps(dict(self)),)  # type: ignore[no-untyped-call]


def _updates(pickled: bytes) -> Updates:
    import pickle

    return Updates(pickle.loads(pickled))


class _Union:
    """Puts the updates of tasks side by side; an AccumulatorParam."""

    def zero(self, value: Updates) -> Updates:
        return Updates()

    def addInPlace(self, one: Updates, other: Updates) -> Updates:  # noqa: N802
        one.update(other)
        return one


class QueryCounter:
    """What a query's function gets for the name of a counter: functions for rows `add` to it.

    Without an accumulator nothing is counted: `check` and `verify` compute rows that no batch is made of.
    """

    def __init__(self, name: str, zero: Any, param: Any, accumulator: Accumulator[Updates] | None = None) -> None:
        self.name = name
        self._zero = zero
        self._param = param or Adding()
        self._accumulator = accumulator
        self._sums: dict[CodeType, Sum] = {}

    def add(self, term: Any) -> None:
        """Count `term` in the batch that is being computed. Raises CheckFailed in the driver."""
        code = sys._getframe(1).f_code
        total = self._sums.get(code) or self._begin(code)
        total.calls += 1
        total.value = self._param.addInPlace(total.value, term)

    def _begin(self, code: CodeType) -> Sum:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            message = f"the counter '{self.name}' is added to in the driver, where no row of a batch is counted"
            fix = "add to it inside a function for rows, such as a UDF; the driver may use a variable of its own"
            raise CheckFailed(code="HR802", what=message, fix=fix)
        total = Sum(0, self._param.zero(self._zero))
        batch = context.getLocalProperty(BATCH)
        if self._accumulator is not None and batch is not None:
            updates = self._accumulator._value
            key = Added(
                batch=int(batch),
                execution=int(context.getLocalProperty(EXECUTION) or -1),
                stage=context.stageId(),
                partition=context.partitionId(),
                attempt=context.taskAttemptId(),
                site=f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}",
                runner=updates.runner,
            )
            total = updates.setdefault(key, total)
        self._sums[code] = total
        return total

    def __reduce__(self) -> Any:
        return QueryCounter, (self.name, self._zero, self._param, self._accumulator)


class Counting:
    """The counters of one start of a query, and what was added to them in its batches."""

    def __init__(self, spark: SparkSession) -> None:
        self.handles: dict[str, QueryCounter] = {}
        self._spark = spark
        self._accumulators: dict[str, Accumulator[Updates]] = {}

    def counter(self, name: str, zero: Any, param: Any) -> None:
        made = self._spark.sparkContext.accumulator(Updates(), _Union())  # type: ignore[arg-type]
        self._accumulators[name] = made
        self.handles[name] = QueryCounter(name, zero, param, made)

    def of_batch(self, batch: int) -> dict[str, Any]:
        """What counts of `batch`, by the counter's name; what was not added to is left out."""
        values_by_name = {}
        for name, accumulator in self._accumulators.items():
            added = {key: value for key, value in list(accumulator._value.items()) if key.batch == batch}
            if added:
                param = self.handles[name]._param
                zero = param.zero(self.handles[name]._zero)
                values = (total.value for total in counted_sums(added, self._relate))
                values_by_name[name] = reduce(param.addInPlace, values, zero)
        return values_by_name

    def forget(self, through: int) -> None:
        """Let go of what was added in the batches up to `through`."""
        for accumulator in self._accumulators.values():
            for key in [key for key in list(accumulator._value) if key.batch <= through]:
                accumulator._value.pop(key, None)

    def close(self) -> None:
        """Count no more."""
        from pyspark.accumulators import _accumulatorRegistry

        for accumulator in self._accumulators.values():
            _accumulatorRegistry.pop(accumulator.aid, None)

    def _relate(self, stages: Iterable[int]) -> dict[int, int]:
        """For each stage the first one that computes some RDD of it too: both do the same work."""
        groups: dict[int, int] = {}
        rdds: dict[int, set[int]] = {}
        for stage in sorted(stages):
            rdds[stage] = self._rdds(stage)
            groups[stage] = next(
                (groups[other] for other in rdds if other != stage and rdds[other] & rdds[stage]), stage
            )
        return groups

    def _rdds(self, stage: int) -> set[int]:
        """The RDDs that a stage computes; none if Spark has forgotten it."""
        from py4j.protocol import Py4JJavaError

        store = java_context(self._spark).statusStore()
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                ids = store.lastStageAttempt(stage).rddIds()
                return {int(ids.apply(number)) for number in range(ids.size())}
            except Py4JJavaError:
                if time.monotonic() > until:
                    return set()
                time.sleep(0.02)


def counted_sums(added: Mapping[Added, Sum], related: Callable[[Iterable[int]], Mapping[int, int]]) -> Iterator[Sum]:
    """The sums of one batch that count, of each piece of work one.

    Of a task's attempts the last one. Of stages that compute the same RDD, of operators that call the same place of the
    code, and of actions that compute the same batch, the one with the most calls: one that looked at a part of the rows
    alone, as for a sample, made fewer. `related` gives for each stage one that stands for all that do the same work.
    """
    actions: dict[int, list[Sum]] = {}
    for execution in sorted({key.execution for key in added}):
        own = {key: value for key, value in added.items() if key.execution == execution}
        stages = {key.stage for key in own}
        groups = related(stages) if len(stages) > 1 else {stage: stage for stage in stages}
        last: dict[tuple[int, int], int] = {}
        for key in own:
            last[key.stage, key.partition] = max(last.get((key.stage, key.partition), -1), key.attempt)
        best: dict[tuple[int, int, str], Sum] = {}
        for key, value in sorted(own.items(), key=lambda pair: (pair[0].stage, pair[0].attempt)):
            if key.attempt == last[key.stage, key.partition]:
                work = (groups[key.stage], key.partition, key.site)
                if work not in best or value.calls >= best[work].calls:
                    best[work] = value
        actions[execution] = list(best.values())
    chosen = max(
        actions, key=lambda execution: (sum(value.calls for value in actions[execution]), execution), default=None
    )
    yield from actions[chosen] if chosen is not None else ()
