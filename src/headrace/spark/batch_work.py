"""How far the running batches are, as Spark's own status of jobs and stages tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class BatchWork:
    """How far a running batch is: Spark's tasks that are done and that are known of, and the rows that they have read.

    A task's rows count when it is done. A batch can be several jobs of Spark, one after another; the tasks are those of
    the job that runs.
    """

    tasks_done: int
    tasks: int
    rows: int
    seconds: float


def batch_work(spark: SparkSession, run_id: str, *, seconds: float) -> BatchWork | None:
    """The tasks and rows of the jobs that run for the query's batch now; None while no job does.

    Source: SparkStatusTracker and AppStatusStore, which Spark keeps without its web pages too.
    """
    from py4j.protocol import Py4JError

    tracker = spark.sparkContext.statusTracker()
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    tasks_done = tasks = rows = 0
    try:
        running = set(tracker.getJobIdsForGroup(run_id)) & set(tracker.getActiveJobsIds())
        for job in running:
            info = tracker.getJobInfo(job)
            for stage_id in info.stageIds if info else ():
                stage = store.lastStageAttempt(stage_id)
                tasks += stage.numTasks()
                tasks_done += stage.numCompleteTasks()
                rows += stage.inputRecords()
    except Py4JError:
        return None  # A job has ended meanwhile, and its stages are forgotten.
    return BatchWork(tasks_done=tasks_done, tasks=tasks, rows=rows, seconds=seconds) if running else None
