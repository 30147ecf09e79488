"""`hr.inspect`: four looks at what a query keeps, which change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.arguments import judge_arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace import results
    from headrace.model import Project

__all__ = ["checkpoint", "offsets", "state", "watermark"]


@judge_arguments
def checkpoint(project: Project, query: str) -> results.Inspected:
    """What the checkpoint of `query` holds and what is wrong with it, without a JVM."""
    from headrace.queries.inspect_checkpoint import inspect_checkpoint

    return inspect_checkpoint(project, project.query(query))


@judge_arguments
def offsets(project: Project, query: str, *, batch: int | None = None) -> results.BatchOffsets:
    """What `batch` of `query` (None: the newest planned one) takes of each source, without a JVM."""
    from headrace.verifier.inspect_progress import inspect_offsets

    return inspect_offsets(project, project.query(query), batch)


@judge_arguments
def watermark(project: Project, query: str, *, limit: int = 20) -> results.Watermarks:
    """How the watermark of `query` moved in the last `limit` batches, and what holds it back, without a JVM."""
    from headrace.verifier.inspect_progress import inspect_watermark

    return inspect_watermark(project, project.query(query), limit=limit)


@judge_arguments
def state(
    project: Project,
    query: str,
    *,
    key: Mapping[str, str] | None = None,
    batch: int | None = None,
    limit: int = 5,
    spark: SparkSession | None = None,
) -> results.StateLook:
    """What `query` keeps as state: operators, columns, rows and samples, by Spark's reader.

    key: only rows with these values in the key's columns. batch: the one that left it (None: the newest committed).
    """
    from headrace.verifier.inspect_state import show_state

    return show_state(project, query, key=key, batch=batch, limit=limit, spark=spark)
