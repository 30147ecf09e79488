"""A case for `headrace test`, recorded from the newest batches of a query that runs or has run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.arguments import judge_arguments
from headrace.checkpoint import Checkpoint
from headrace.errors import CheckFailed, ProjectError, nearest
from headrace.frames.plan_builder import registered_tables
from headrace.frames.project_code import send_code
from headrace.frames.project_session import borrow
from headrace.generations.register import layout_of
from headrace.model import Project, Query
from headrace.spark.plans.plan_rewrite import BATCH
from headrace.testing.rows import local_rows
from headrace.testing.schedules import Placed, Row, Schedule, Step
from headrace.testing.timelines import timeline
from headrace.verifier.answer import Prefix, prefix_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_ROWS = 1_000


@judge_arguments
def record_case(
    project: Project, query: str, *, batches: int = 5, mask: Sequence[str] = (), spark: SparkSession | None = None
) -> Path:
    """Write a case below `tests`, with the rows of a query's newest batches and the result of these rows alone.

    Args:
        project: The project.
        query: The name of the query.
        batches: The number of batches.
        mask: Columns whose texts and whole numbers are replaced; equal values stay equal in all of them, as keys need.
        spark: The session; by default the project's own.

    Returns:
        The file of the case.

    Raises:
        ProjectError: The query has no batches, has too many rows, or has values that cannot be masked.
    """
    declared = project.query(query)
    layout = layout_of(project, declared)
    last = Checkpoint(layout.checkpoint).last_committed
    if last is None:
        raise _unfit(declared, "it has committed no batch yet", f"run it: headrace run {query}")
    with borrow(project, spark) as session:
        send_code(project, session)
        steps = _steps(project, declared, prefix_of(project, declared, layout, last), session, batches, mask)
        schedule = Schedule(tuple(steps.values()))
        if not schedule.size:
            raise _unfit(declared, "its batches have no rows", "record it when some have come")
        run = timeline(project, query, spark=session, batch=False, given=schedule.inputs())
        try:
            run.require_batch_answer()
            is_answer = True
        except (AssertionError, CheckFailed):
            is_answer = False
    title = f"{query}: batches {min(steps)} to {max(steps)}, recorded {date.today()}"
    text = schedule.as_yaml(query, (), run.final, name=title, batch=is_answer)
    folder = project.root / "tests"
    folder.mkdir(exist_ok=True)
    names = (f"{query}.yml", *(f"{query}-{number}.yml" for number in range(2, 1000)))
    file = next(folder / name for name in names if not (folder / name).exists())
    head = "# The rows of these batches alone, and what the query makes of them when it begins with no state."
    file.write_text(f"{head}\ntests:\n{text}\n", encoding="utf-8")
    return file


def _steps(
    project: Project, query: Query, prefix: Prefix, spark: SparkSession, most: int, mask: Sequence[str]
) -> Mapping[int, Step]:
    """Return the rows of the newest non-empty batches, by the batch."""
    new = {
        taken_batch.batch
        for source in prefix.sources.values()
        for taken_batch in source.batches
        if taken_batch.end is not None and taken_batch.end != taken_batch.start
    }
    taken = sorted(new)[-most:]
    part = prefix.part(taken[0], prefix.through) if taken else prefix
    rows: dict[int, dict[str, list[Row]]] = {batch: {} for batch in taken}
    columns: dict[str, list[str]] = {}
    with registered_tables(project, query, spark):
        for source in project.sources_of(query) if taken else ():
            frame = source.connector.read(spark, part.sources[source.name], batch_column=BATCH)
            names = columns[source.name] = [name for name in frame.columns if name != BATCH]
            held = frame.orderBy(BATCH).select(BATCH, *[f"`{name}`" for name in names]).limit(MOST_ROWS + 1)
            for batch, *values in local_rows(held):
                rows[batch].setdefault(source.name, []).append(tuple(values))
    if sum(len(held) for given in rows.values() for held in given.values()) > MOST_ROWS:
        problem = f"its newest {len(taken)} batches have more than {MOST_ROWS:,} rows, too many for a case"
        fewer = f"record fewer: --batches {len(taken) // 2}"
        if len(taken) == 1:
            problem, fewer = problem.replace("1 batches have", "batch has"), "bound a batch by its source's rate limit"
        raise _unfit(query, problem, fewer)
    masked = _Masks(query, columns, mask)
    number = count()

    def step(given: Mapping[str, Sequence[Row]]) -> Step:
        return Step(
            {name: tuple(Placed(next(number), masked.of(name, row)) for row in held) for name, held in given.items()}
        )

    return {batch: step(given) for batch, given in rows.items() if given}


class _Masks:
    """What stands in the place of the values of some columns: `m1`, `m2`, ... or 1, 2, ..., as they come."""

    def __init__(self, query: Query, columns: Mapping[str, Sequence[str]], mask: Iterable[str]) -> None:
        self._query, self._columns, self._mask = query, columns, frozenset(mask)
        self._given: dict[Any, int] = {}
        columns_known = {name for names in columns.values() for name in names}
        if unknown := sorted(self._mask - columns_known):
            raise _unfit(query, f"its sources have no column '{unknown[0]}'", nearest(unknown[0], columns_known))

    def of(self, source: str, row: Sequence[Any]) -> Row:
        """Return the row with its masked columns replaced."""
        pairs = zip(self._columns[source], row, strict=True)
        return tuple(self._mask_value(name, value) if name in self._mask else value for name, value in pairs)

    def _mask_value(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            problem = f"column '{name}' holds {type(value).__name__} values, which are not masked"
            raise _unfit(self._query, problem, "mask columns of texts and whole numbers; leave the others out by hand")
        number = self._given.setdefault(value, len(self._given) + 1)
        return f"m{number}" if isinstance(value, str) else number


def _unfit(query: Query, problem: str, fix: str) -> ProjectError:
    return ProjectError(code="HR724", what=f"no case of query '{query.name}': {problem}", fix=fix, where=query.where)
