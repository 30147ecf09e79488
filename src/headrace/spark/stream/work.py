"""What Spark's own status says of a run's work: its executors, and how far the running batches are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from headrace.contract import BatchWork
from headrace.spark.jvm.gateway import gateway_of, java_context, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


# How many executors an application may have that sets no bound, as Spark's ApplicationInfo has it.
UNBOUNDED = 2**31 - 1
# What Spark calls the driver among the executors (SparkContext.DRIVER_IDENTIFIER).
DRIVER = "driver"
_ASKING = "Getting offsets from "


def batch_work(spark: SparkSession, run_id: str, *, seconds: float) -> BatchWork | None:
    """The tasks and rows of the jobs that run for the query's batch now; None while no job does.

    Source: SparkStatusTracker and AppStatusStore, which Spark keeps without its web pages too.
    """
    from py4j.protocol import Py4JError

    tracker = spark.sparkContext.statusTracker()
    tasks_done = tasks = rows = moved = 0
    try:
        running = set(tracker.getJobIdsForGroup(run_id)) & set(tracker.getActiveJobsIds())
        for _, stage in _stages(spark, running):
            tasks += stage.numTasks()
            tasks_done += stage.numCompleteTasks()
            rows += stage.inputRecords()
            # Spark brings these up to date while a task runs, with each heartbeat of its executor.
            moved += stage.inputBytes() + stage.shuffleReadRecords() + stage.shuffleWriteRecords()
    except Py4JError:
        return None  # A job has ended meanwhile, and its stages are forgotten.
    if not running:
        return None
    mark = (*sorted(running), tasks_done, rows, moved)
    return BatchWork(tasks_done=tasks_done, tasks=tasks, rows=rows, seconds=seconds, mark=mark)


def source_being_asked(handle: StreamingQuery) -> str:
    """The source, in Spark's words, that a query asks at this moment for what is new; empty: none.

    Source: MicroBatchExecution.constructNextBatch, which sets this message while it waits for the source.
    """
    from py4j.protocol import Py4JError

    message = ""
    with suppress(Py4JError):
        message = str(handle.status["message"])
    return message.removeprefix(_ASKING) if message.startswith(_ASKING) else ""


def _stages(spark: SparkSession, jobs: Iterable[int]) -> Iterator[tuple[int, Any]]:
    """The number and the last attempt of each stage of these jobs."""
    tracker, store = spark.sparkContext.statusTracker(), java_context(spark).statusStore()
    for job in jobs:
        info = tracker.getJobInfo(job)
        yield from ((number, store.lastStageAttempt(number)) for number in (info.stageIds if info else ()))


def executors(spark: SparkSession) -> frozenset[str]:
    """Where each executor listens; none of a local master, whose tasks the driver runs, or if Spark does not answer."""
    from py4j.protocol import Py4JError

    if (spark.sparkContext.master or "").startswith("local"):
        return frozenset()
    with suppress(Py4JError, OSError, AttributeError):
        return frozenset(listens for name, listens in block_managers(spark) if name != DRIVER)
    return frozenset()


def task_failures(spark: SparkSession) -> tuple[int, int]:
    """How many tasks have failed and how many executors were lost so far; what they had computed is computed again.

    A local master has neither: there a task that fails ends its job.
    """
    from py4j.protocol import Py4JError

    failed = lost = 0
    if not (spark.sparkContext.master or "").startswith("local"):
        with suppress(Py4JError, OSError, AttributeError):
            for executor in _executors(spark, active=False):
                failed, lost = failed + int(executor.failedTasks()), lost + int(not executor.isActive())
    return failed, lost


def block_managers(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """The id of each living executor and where it listens, the driver's among them."""
    return ((str(executor.id()), str(executor.hostPort())) for executor in _executors(spark, active=True))


def _executors(spark: SparkSession, *, active: bool) -> Iterator[Any]:
    """What AppStatusStore.executorList, which Spark keeps with or without its UI, has of each, or of living ones."""
    infos = java_context(spark).statusStore().executorList(active).iterator()
    while infos.hasNext():
        yield infos.next()


def has_work(spark: SparkSession) -> bool:
    """Whether tasks run or wait for an executor; not in a session that has ended."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError, AttributeError):
        return bool(spark.sparkContext.statusTracker().getActiveStageIds())
    return False


def is_forgotten(spark: SparkSession) -> bool:
    """Whether no master of a standalone cluster that can be reached knows the application.

    A master gives an application up when its own connection to the driver breaks, as one that was restarted has, and
    does not notify the driver; Spark then waits for executors without an end. The master is asked for as many executors
    as the session has asked for. Waits for the answer, up to `spark.rpc.askTimeout`.

    Source: SparkContext.requestTotalExecutors; Master.handleRequestExecutors and Master.onDisconnected.
    """
    from py4j.protocol import Py4JJavaError

    if not (spark.sparkContext.master or "").startswith("spark://"):
        return False
    # Dynamic allocation asks again as soon as what it wants changes.
    bounded = spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    context, nowhere = java_context(spark), jvm_of(spark).PythonUtils.toScalaMap({})
    try:
        return not context.requestTotalExecutors(1 if bounded else UNBOUNDED, 0, nowhere)
    except Py4JJavaError:
        # The connection by which the driver knows the master is closed. A session that has ended shows it by itself.
        return not context.isStopped()


def thread_names(spark: SparkSession) -> set[str]:
    """The names of the threads that live in the driver's JVM."""
    return {str(thread.getName()) for thread in jvm_of(spark).java.lang.Thread.getAllStackTraces().keySet()}


def task_skew(spark: SparkSession, run_id: str, *, after: int) -> tuple[float | None, int]:
    """How often the time of its median task the longest one took, in the longest stage of the jobs beyond `after`.

    And the newest of these jobs. None: no stage had several tasks, or Spark does not know it any more.

    Source: AppStatusStore.jobsList, which gives the newest job first, and AppStatusStore.taskSummary.
    """
    from py4j.protocol import Py4JError

    newest, store = after, java_context(spark).statusStore()
    # A stage may be forgotten meanwhile.
    with suppress(Py4JError):
        # A thousand jobs are kept, and each number is a call into the JVM.
        kept = java_context(spark).statusTracker().getJobIdsForGroup(run_id)
        jobs = list(takewhile(lambda job: job > after, kept))
        newest = max(jobs, default=after)
        longest = max(
            (
                (int(stage.executorRunTime()), number, stage.attemptId())
                for number, stage in _stages(spark, jobs)
                if stage.numCompleteTasks() > 1
            ),
            default=None,
        )
        if longest is None:
            return None, newest
        quantiles = gateway_of(spark).new_array(jvm_of(spark).double, 2)
        quantiles[0], quantiles[1] = 0.5, 1.0
        summary = store.taskSummary(longest[1], longest[2], quantiles)
        if not summary.isEmpty():
            times = summary.get().executorRunTime()
            return round(times.apply(1) / max(1.0, times.apply(0)), 1), newest
    return None, newest
