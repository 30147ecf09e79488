"""A declared query started in the user's own session, as in a plain script or a notebook."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.check.triggers import without_supervisor
from headrace.errors import CheckFailed
from headrace.model import Project, Query, Trigger
from headrace.run.running import Running
from headrace.run.start import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start_in_session(
    project: Project, query: Query, spark: SparkSession, *, trigger: Trigger | None = None
) -> StreamingQuery:
    """Start `query` in `spark` and return Spark's StreamingQuery.

    The session has what a checkpoint of Headrace needs for the time of the start only: Spark gives the query a copy of
    the session. Raises as `start`.
    """
    if unfit := tuple(without_supervisor(project, query, trigger or query.trigger)):
        raise CheckFailed(unfit)
    running = start(project, query, spark, trigger=trigger)
    threading.Thread(target=_clean_up_at_end, args=(running,), name=f"end of {query.name}", daemon=True).start()
    return running.handle


def _clean_up_at_end(running: Running) -> None:
    """Wait for the query to end, of which the user's own code may take no notice, and let others run it then."""
    with suppress(Exception):  # What the query or its session ended of is for the handle to say.
        running.handle.awaitTermination()
    running.clean_up()
