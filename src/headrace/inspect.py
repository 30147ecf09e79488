"""`hr.inspect`: four functions that show what a query keeps, and change nothing."""

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
    """Inspect the checkpoint of a query: what it holds and what is wrong with it, without a JVM.

    Args:
        project: The project.
        query: The query.

    Returns:
        The findings, and whether a start can use the checkpoint.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
    """
    from headrace.generations.inspect_checkpoint import inspect_checkpoint

    return inspect_checkpoint(project, project.query(query))


@judge_arguments
def offsets(project: Project, query: str, *, batch: int | None = None) -> results.BatchOffsets:
    """Show which part of each source a batch took, without a JVM.

    Args:
        project: The project.
        query: The query.
        batch: The batch; the newest planned one by default.

    Returns:
        The offsets of each source before and after the batch.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        CheckpointError: The batch is in neither the checkpoint nor the archive.
    """
    from headrace.verifier.inspect_progress import inspect_offsets

    return inspect_offsets(project, project.query(query), batch)


@judge_arguments
def watermark(project: Project, query: str, *, limit: int = 20) -> results.Watermarks:
    """Show how the watermark of a query moved, and what holds it back, without a JVM.

    Args:
        project: The project.
        query: The query.
        limit: The greatest number of batches.

    Returns:
        The watermark of each batch, and of each source.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        CheckpointError: The checkpoint cannot be read.
    """
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
    """Show what a query keeps as state: operators, columns, rows and samples, by Spark's reader.

    Args:
        project: The project.
        query: The query.
        key: Only rows with these values in the key's columns.
        batch: As this batch left it; the newest committed one by default.
        limit: The greatest number of samples.
        spark: A session to work in; without one, a session of the project's target is started.

    Returns:
        The operators of the state.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        CheckpointError: The batch or its state cannot be read.
        PlatformError: Spark cannot be started.
    """
    from headrace.verifier.inspect_state import show_state

    return show_state(project, query, key=key, batch=batch, limit=limit, spark=spark)
