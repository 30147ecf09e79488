"""The answer of a query as a batch over rows that a test gives, by the evaluation that `verify` makes."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.arguments import judge_arguments
from headrace.checkpoint import BatchWatermarks
from headrace.contract import SourceBatch, SourcePrefix
from headrace.errors import CheckFailed, ProjectError
from headrace.frames.plan_builder import registered_tables
from headrace.loader.sql import transform as sql_transform
from headrace.model import Project, PythonTransform, Query, Transform
from headrace.spark.jvm.session_conf import apply_settings, borrow, modifiable_settings
from headrace.starter.state_store import session_settings
from headrace.testing.given import GivenRows, Inlet, make_inlets, with_stand_ins
from headrace.testing.given_tables import GivenTables
from headrace.testing.rows import ResultRows, collect_rows
from headrace.testing.spark_session import shared_session
from headrace.verifier.answer import BatchAnswer, BatchQuery, Prefix
from headrace.verifier.batch_ranges import VersionRange, VersionRanges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Before and after every time of a TIMESTAMP: no row is late, and every group is closed.
_NEVER_MS, _AT_LAST_MS = -62_135_596_800_000, 253_402_300_799_000

# For a few rows Spark takes longer to write and compile a program than the rows take without one.
_FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@judge_arguments
def evaluate(
    project: Project,
    query: str,
    *,
    spark: SparkSession | None = None,
    given: Mapping[str, GivenRows] | None = None,
    **inputs: GivenRows,
) -> ResultRows:
    """Answer `query` as a batch over given rows, with all groups closed.

    Nothing is read from the real sources; tables are computed unless they are given.

    Args:
        project: The project of the query.
        query: Its name.
        spark: A session; None: the active one, or a local one for all tests of the process.
        given: The inputs by name, as further keyword arguments are.
        **inputs: Rows by the name of a source or a table: dicts, tuples in the order of the columns, a
            pandas.DataFrame, or the path of a file (JSON lines, .csv with a header, .parquet). Missing columns are
            NULL; a source without rows is empty.

    Returns:
        The rows of the result.

    Raises:
        ProjectError: Rows do not fit, or an input is unknown.
        CheckFailed: The query has no batch form, such as one with a state function: use `timeline`.
    """
    declared = project.query(query)
    rows_of = {**(given or {}), **inputs}
    inputs = {name: rows for name, rows in rows_of.items() if name not in project.tables}
    with tempfile.TemporaryDirectory(prefix="headrace-") as home, open_session(project, spark) as session:
        made = make_inlets(project, declared, {name: [rows] for name, rows in inputs.items()}, session, Path(home))
        for name, rows in inputs.items():
            made[name].put(0, rows, project.root)
        tables = GivenTables(project, declared, session, rows_of.keys() - inputs.keys())
        tables.give(rows_of)
        stand_in = with_stand_ins(tables.project, made)
        prefix = Prefix(
            through=0,
            sources={name: _whole_prefix(inlet) for name, inlet in made.items()},
            watermarks={0: BatchWatermarks(late_ms=_NEVER_MS, evict_ms=_AT_LAST_MS)},
        )
        batch_query = BatchQuery(
            project=stand_in,
            query=declared,
            spark=session,
            prefix=prefix,
            versions=VersionRanges(all=(VersionRange(first=0, last=0, tables={}),)),
            key=key_of(declared),
        )
        with registered_tables(stand_in, declared, session):
            answer = batch_query.answer()
            require_batch_form(declared, answer)
            return collect_rows(answer.frame, batch_query.key)


def describe_sources(
    project: Project, query: str, inputs: Mapping[str, GivenRows], spark: SparkSession | None = None
) -> dict[str, Inlet]:
    """Return the inlets of a query's sources, whose directories are already deleted.

    Args:
        project: The project of the query.
        query: The name of the query.
        inputs: The rows of some sources.
        spark: The session; by default the project's own.

    Returns:
        The inlet of each source, by the source's name.

    Raises:
        ProjectError: `inputs` names something that is not a source of the query.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-") as home, open_session(project, spark) as session:
        batches = {name: [rows] for name, rows in inputs.items()}
        return make_inlets(project, project.query(query), batches, session, Path(home))


@contextmanager
def open_session(project: Project, spark: SparkSession | None) -> Iterator[SparkSession]:
    """Yield a session in which plans can be built as `verify` does; the one given stays as it was."""
    with (
        borrow(spark or shared_session(), shared_session) as session,
        apply_settings(session, {**own_settings(project, session), **session_settings(project, session)}),
    ):
        yield session


def own_settings(project: Project, spark: SparkSession) -> dict[str, str]:
    """Return the project's Spark settings that a running session can take, after those for few rows."""
    own = {key: value for key, value in project.target.spark.items() if key.startswith("spark.sql.")}
    return {**_FEW_ROWS, **modifiable_settings(spark, own)}


def key_of(query: Query) -> tuple[str, ...]:
    """Return the columns that identify a row in the query's sink; none if it has no such option."""
    key: Sequence[str] | str | None = getattr(query.sink, "key", None)
    return (key,) if isinstance(key, str) else tuple(key or ())


def meaning_of(project: Project, query: Query, batch: Callable[..., Any] | str) -> Transform:
    """Return the batch query that a test declares for a query.

    Args:
        project: The project of the query.
        query: The query.
        batch: A function of the query's inputs, or a SELECT.

    Returns:
        The batch query as a transform.

    Raises:
        ProjectError: The SELECT cannot be read, or names no input of the project.
    """
    if callable(batch):
        names = tuple(inspect.signature(batch).parameters)
        inputs = tuple(name for name in names if name != "spark")
        return PythonTransform(function=batch, inputs=inputs, wants_spark="spark" in names, where=query.where)
    transform, findings = sql_transform(batch, query.where, project.inputs())
    if transform is None:
        raise ProjectError(findings)
    return transform


def require_batch_form(query: Query, answer: BatchAnswer) -> None:
    """Refuse a query whose answer a batch cannot give.

    Raises:
        CheckFailed: A function with its own state makes the result (HR722).
    """
    if answer.by_function:
        problem = f"query '{query.name}' has no batch form: a function with a state of its own makes its result"
        fix = (
            "run it over batches, and give its meaning as a batch: timeline(..., batch=FUNCTION), or batch: SELECT ..."
        )
        raise CheckFailed(code="HR722", what=problem, fix=fix, where=query.where)


def _whole_prefix(inlet: Inlet) -> SourcePrefix:
    """Return all files of the directory as one batch, as Spark's file source notes them."""
    lines = tuple(
        json.dumps({"path": file.as_uri(), "timestamp": int(file.stat().st_mtime * 1000), "batchId": 0})
        for file in sorted(inlet.directory.glob("*.txt"))
    )
    end = json.dumps({"logOffset": 0}) if lines else None
    return SourcePrefix(batches=(SourceBatch(batch=0, start=None, end=end),), log={0: lines} if lines else {})
