"""Show what a query makes of a sample of its real sources, without a checkpoint and without its sink."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.arguments import judge_arguments
from headrace.checkpoint.sources import SourcePrefix
from headrace.errors import CheckFailed, HeadraceError
from headrace.frames.project_session import session as project_session
from headrace.loader import load
from headrace.model import NamedSource, Project
from headrace.registry import known_failures
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.messages.failures import finding_of_message
from headrace.starter.state_store import session_settings
from headrace.testing.batch_answer import evaluate
from headrace.testing.rows import ResultRows, local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How long a source may take to give its sample; one that gives only what comes meanwhile is asked for a shorter time.
PATIENCE_SECONDS, EPHEMERAL_SECONDS, LAST_SECONDS = 120.0, 10.0, 3


@judge_arguments
def preview(
    query: str,
    *,
    project: Project | None = None,
    rows: int = 20,
    sample: int = 1000,
    spark: SparkSession | None = None,
) -> ResultRows:
    """Show what a query makes of the first rows of its sources, as a batch with all groups closed.

    Nothing is written: no checkpoint, no sink. The result is that of the sample alone, not that of the query.

    Args:
        query: The query.
        project: The project; that of the working directory by default.
        rows: The greatest number of rows to return.
        sample: The greatest number of rows to read from each source.
        spark: A session to work in; without one, a session of the project's target is started.

    Returns:
        The first rows of the result.

    Raises:
        CheckFailed: An argument is wrong, no query has that name, or the query has no batch form.
        ProjectError: The project cannot be loaded.
        SourceError: A source cannot be read.
        PlatformError: Spark cannot be started.
    """
    project = load(".") if project is None else project
    declared = project.query(query)
    if rows < 1 or sample < 1:
        raise CheckFailed(code="HR090", what="rows and sample are whole numbers from 1", fix="give larger ones")
    with _session(project, spark) as session, apply_settings(session, session_settings(project, session)):
        given = {source.name: _sample(source, session, sample) for source in project.sources_of(declared)}
        return evaluate(project, query, spark=session, given=given).first(rows)


@contextmanager
def _session(project: Project, spark: SparkSession | None) -> Iterator[SparkSession]:
    if spark is not None:
        yield spark
        return
    own = project_session(project, purpose="reading")
    try:
        yield own
    finally:
        own.stop()


def _sample(source: NamedSource, spark: SparkSession, most: int) -> list[tuple[Any, ...]]:
    """Return the first rows of a source, read as a stream that takes nothing away and is stopped when it has them."""
    taken: list[tuple[Any, ...]] = []

    def take(batch: DataFrame, _number: int) -> None:
        if len(taken) < most:
            taken.extend(local_rows(batch.limit(most - len(taken))))

    connector = source.connector
    ephemeral = connector.facts.ephemeral
    try:
        connector.check_connection(spark)
        frame = connector.since(spark, SourcePrefix(batches=(), log={})).stream(spark, source.name)
        with tempfile.TemporaryDirectory(prefix="headrace-") as place:
            writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", place)
            running = (writer if ephemeral else writer.trigger(availableNow=True)).start()
            end = time.monotonic() + (EPHEMERAL_SECONDS if ephemeral else PATIENCE_SECONDS)
            try:
                while not running.awaitTermination(1) and time.monotonic() < end:
                    if len(taken) >= most or (ephemeral and taken):
                        running.awaitTermination(LAST_SECONDS)  # Stopped within a batch, Spark logs stack traces.
                        break
            finally:
                running.stop()
    except HeadraceError:
        raise
    except Exception as error:
        subject = f"source '{source.name}'"
        raise CheckFailed(
            finding_of_message(
                str(error), subject=subject, where=source.where, connectors=(connector,), installed=known_failures
            )
        ) from error
    return taken
