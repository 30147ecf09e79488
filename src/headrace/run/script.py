"""A declared query started in the user's own session, as in a plain script or a notebook."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.check.refresh import without_supervisor
from headrace.errors import CheckFailed
from headrace.model import Project, Query, Trigger
from headrace.run.running import Running
from headrace.run.start import start
from headrace.spark.session_conf import applied
from headrace.spark.settings import FILE_MANAGER, LOCAL_FILE_MANAGER, ROCKSDB, UNFINISHED_REPARTITION, is_local
from headrace.spark.versions import require_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Settings of a session, not of the application, without which a checkpoint of Headrace cannot be begun.
NEEDED = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    UNFINISHED_REPARTITION: "false",
}


def start_in_session(
    project: Project, query: Query, spark: SparkSession, *, trigger: Trigger | None = None
) -> StreamingQuery:
    """Start `query` in `spark` and return Spark's StreamingQuery.

    The session has the settings in NEEDED, without which a checkpoint could not be read by `headrace` later, for the
    time of the start only: Spark gives the query a copy of the session. Raises as `start`.
    """
    if unfit := tuple(without_supervisor(project, query, trigger or query.trigger)):
        raise CheckFailed(unfit)
    require_version(spark.version)
    needed = dict(NEEDED)
    if is_local(spark.sparkContext.master or "") and spark.conf.get(FILE_MANAGER, None) is None:
        needed[FILE_MANAGER] = LOCAL_FILE_MANAGER
    with applied(spark, needed):
        running = start(project, query, spark, trigger=trigger)
    threading.Thread(target=_clean_up_at_end, args=(running,), name=f"end of {query.name}", daemon=True).start()
    return running.handle


def _clean_up_at_end(running: Running) -> None:
    """Wait for the query to end, of which the user's own code may take no notice, and let others run it then."""
    with suppress(Exception):  # What the query or its session ended of is for the handle to say.
        running.handle.awaitTermination()
    running.clean_up()
