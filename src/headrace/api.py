"""Everything that the command line can do, as functions; each imports what it needs when it is called."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.arguments import judge_arguments
from headrace.errors import HeadraceError
from headrace.markup import Listing
from headrace.model import Project, Query, Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace import results
    from headrace.changes.adopt import PlannedIs
    from headrace.contract import Observer
    from headrace.control.board import Board
    from headrace.generations.changes import Choice
    from headrace.runner.stop import StopRequest
    from headrace.starter.request import Reached
    from headrace.verifier.scope import RowScope


@judge_arguments
def load(
    path: str | os.PathLike[str] = ".",
    *,
    target: str | None = None,
    environ: Mapping[str, str] | None = None,
    may_lack_variables: bool = False,
) -> Project:
    """Read the project in a directory, or in one Python file.

    Args:
        path: The directory, or the Python file.
        target: The target to use: `dev` by default.
        environ: The variables to use in place of the process's own.
        may_lack_variables: Whether a source, a sink or a Spark setting may name a variable that is not set. It then
            raises only when it is used, so that `status`, `stop` and the like need no passwords.

    Returns:
        The project, frozen.

    Raises:
        CheckFailed: An argument has a wrong form.
        ProjectError: The files or declarations are wrong; it has a finding for each fault.
    """
    from headrace.loader import load as load_project

    return load_project(os.fspath(path), target=target, environ=environ, may_lack_variables=may_lack_variables)


@judge_arguments
def check(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    spark: SparkSession | bool | None = None,
    connect: bool = True,
    whole: bool = True,
) -> results.CheckResult:
    """Check the project before anything is started, and compute the guarantee of each query that passes.

    The structure is checked without a JVM. Spark then analyses each query whose structure is correct, and sources and
    sinks are asked, read-only, whether they hold what is read and would take the result.

    Args:
        project: The project.
        queries: The queries to check; all by default.
        spark: A session to use; False leaves Spark out; without one, a session is started.
        connect: Whether to ask databases and other systems.
        whole: Whether to report what is wrong with other queries.

    Returns:
        The findings, and the guarantee and the state of each query.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        PlatformError: Spark cannot be started.
    """
    from headrace.starter.checks import check as check_project

    return check_project(project, queries, spark=spark, connect=connect, whole=whole)


@judge_arguments
def run(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    trigger: Trigger | None = None,
    spark: SparkSession | None = None,
    reporter: Observer | None = None,
    reached: Reached | None = None,
    stop: StopRequest | None = None,
    accept_forward: bool = False,
    verify_every: float | None = None,
    verify_parts: int = 1,
    watch: bool = False,
) -> results.RunResult:
    """Run queries until they end or are asked to stop.

    Args:
        project: The project.
        queries: The queries to run; all by default.
        trigger: A trigger that replaces the declared ones.
        spark: A session to work in; without one, a session of the project's target is started.
        reporter: An observer of the run.
        reached: A function that is called at each step of a batch, for tests.
        stop: A request by which another thread stops the run.
        accept_forward: Whether a query resumes after a change that affects only new rows, as with `on_change: forward`.
        verify_every: Verify the queries that have made batches, each time after so many seconds.
        verify_parts: Verify one of so many parts of the keys each time, in turn.
        watch: Whether each save of the project's files is deployed to this run.

    Returns:
        How each query ended.

    Raises:
        CheckFailed: An argument is wrong, or a check refuses every query.
        ProjectError: A declaration is wrong.
        PlatformError: Spark or the storage cannot be used.
        CheckpointError: The checkpoint of a query cannot be read or does not fit it.
    """
    from headrace.control.deploys import DeployRequest
    from headrace.runner.stop import StopRequest
    from headrace.runner.supervise import run as run_project
    from headrace.verifier.late_rows import write_late_rows

    stop = StopRequest() if stop is None else stop
    if verify_every is not None:
        reporter = _with_verdicts(project, stop.board, reporter, verify_every, verify_parts)

    if accept_forward:
        accepting = {name: replace(query, on_change="forward") for name, query in project.queries.items()}
        project = replace(project, queries=accepting)
    return run_project(
        project,
        queries,
        trigger=trigger,
        spark=spark,
        reporter=reporter,
        reached=reached,
        stop=stop,
        write_late=write_late_rows,
        watch=DeployRequest(accept_forward=accept_forward) if watch else None,
    )


def _with_verdicts(project: Project, board: Board, reporter: Observer | None, seconds: float, parts: int) -> Observer:
    """Add an observer that verifies the queries during their run."""
    from headrace.export.observers import Observers
    from headrace.verifier.periodic import PeriodicVerifier
    from headrace.verifier.proof import verify as proved

    observers = Observers(*([] if reporter is None else [reporter]))

    def verify(query: str, spark: SparkSession, scope: RowScope) -> results.Verdict:
        return proved(board.projects.get(query, project), query, spark=spark, scope=scope)

    observers.add(
        PeriodicVerifier(seconds, verify, partial(_record_and_publish, project), observers.report, parts=parts)
    )
    return observers


@judge_arguments
def plan(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    spark: SparkSession | None = None,
    connect: bool = True,
    save: str | os.PathLike[str] | None = None,
) -> list[results.Judgement]:
    """Compare queries as written with those that ran; nothing is started or changed.

    Args:
        project: The project.
        queries: The queries to compare; all by default.
        spark: A session to work in; without one, a session of the project's target is started.
        connect: Whether to ask sources and sinks if their systems hold what the checkpoint says.
        save: A file to keep the plan in, for `apply`.

    Returns:
        The judgement on each query.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        HeadraceError: `save` cannot be written.
        PlatformError: Spark cannot be started.
    """
    from headrace.generations.register import register_project
    from headrace.planner.saved import save as save_plan
    from headrace.starter.plan import plan as plan_project

    judgements = Listing(plan_project(project, queries, spark=spark, connect=connect))
    if save is not None:
        save_plan(Path(save), project, register_project(project).application, judgements)
    return judgements


@judge_arguments
def apply(
    project: Project,
    file: str | os.PathLike[str],
    *,
    trigger: Trigger | None = None,
    spark: SparkSession | None = None,
    reporter: Observer | None = None,
    reached: Reached | None = None,
    stop: StopRequest | None = None,
) -> results.RunResult:
    """Run the queries of a saved plan, if it still holds; what it found to affect only new rows is accepted.

    Args:
        project: The project.
        file: What `plan(save=...)` has written.
        trigger: A trigger that replaces the declared ones.
        spark: A session to work in; without one, a session of the project's target is started.
        reporter: An observer of the run.
        reached: A function that is called at each step of a batch, for tests.
        stop: A request by which another thread stops the run.

    Returns:
        How each query ended.

    Raises:
        CheckFailed: An argument is wrong, or a check refuses every query.
        HeadraceError: The file is not a plan of this project.
        CheckpointError: The plan does not hold any more.
        PlatformError: Spark or the storage cannot be used.
    """
    from headrace.generations.register import read_register
    from headrace.planner.saved import read
    from headrace.runner.supervise import run as run_project
    from headrace.verifier.late_rows import write_late_rows

    saved, register = read(Path(file)), read_register(project.storage)
    saved.require_project(project, register.application if register else "")
    return run_project(
        saved.accepting(project),
        list(saved.queries),
        trigger=trigger,
        spark=spark,
        reporter=reporter,
        reached=reached,
        stop=stop,
        saved=saved,
        write_late=write_late_rows,
    )


@judge_arguments
def repartition(
    project: Project, query: str, partitions: int, *, spark: SparkSession | None = None
) -> results.Repartitioned:
    """Give the state of a query another number of partitions.

    Args:
        project: The project.
        query: A query that is not running.
        partitions: The new number.
        spark: A session to work in; without one, a session of the project's target is started.

    Returns:
        The former number and the new one.

    Raises:
        CheckFailed: An argument is wrong, or a driver is running the query.
        CheckpointError: The checkpoint or its state cannot be read.
    """
    from headrace.changes.repartition import repartition as repartition_query

    return repartition_query(project, query, partitions, spark=spark)


@judge_arguments
def reset(
    project: Project, query: str, *, result: Choice | None = None, spark: SparkSession | None = None
) -> results.Reset:
    """Return a query to its beginning: the next start reads its sources from the start.

    Nothing changes until `apply()`. `undo()` restores everything until the query plans a batch.

    Args:
        project: The project.
        query: A query that is not running.
        result: `drop` archives the rows of the sink too; `keep` leaves them where rows that come again replace them.
        spark: A session, for a sink that needs one.

    Returns:
        The change, with `plan`, `apply`, `undo` and `discard`.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
    """
    from headrace.changes.reset import Reset

    return Reset(project, query, result=result, spark=spark)


@judge_arguments
def rewind(
    project: Project,
    query: str,
    *,
    to_batch: int | None = None,
    to_time: datetime | None = None,
    spark: SparkSession | None = None,
) -> results.Rewind:
    """Return a query's checkpoint, ledger and result to the end of an earlier batch.

    Nothing changes until `apply()`. `undo()` restores everything until the query plans a batch.

    Args:
        project: The project.
        query: A query that is not running.
        to_batch: A committed batch that the sink can still restore.
        to_time: Choose the last batch that was planned up to this time, in place of `to_batch`.
        spark: A session, for a sink that needs one.

    Returns:
        The change, with `plan`, `apply`, `undo` and `discard`.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
    """
    from headrace.changes.rewind import Rewind

    return Rewind(project, query, to_batch=to_batch, to_time=to_time, spark=spark)


@judge_arguments
def adopt(
    project: Project,
    query: str,
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    sources: Mapping[str, str] | None = None,
    planned: PlannedIs | None = None,
    spark: SparkSession | None = None,
) -> results.Adopt:
    """Continue a job of plain PySpark from its checkpoint, as a query that has never run.

    Nothing changes until `apply()`, which copies the checkpoint and takes over the rows that the job has written. A
    reset takes it back.

    Args:
        project: The project.
        query: A query that has never run.
        checkpoint: The `checkpointLocation` of the job; not needed to finish an adoption that was cut off.
        sources: For each source its number or name in that checkpoint, where that is ambiguous.
        planned: Whether the rows of a batch that was planned and not committed are `written` or `not-written`.
        spark: A session, for a sink that needs one.

    Returns:
        The change, with `plan` and `apply`.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
    """
    from headrace.changes.adopt import Adopt

    return Adopt(project, query, checkpoint, sources=sources, planned=planned, spark=spark)


@judge_arguments
def rebuild(
    project: Project,
    query: str,
    *,
    since: datetime | None = None,
    accept_partial: bool = False,
    spark: SparkSession | None = None,
) -> results.Rebuild:
    """Recompute the result of a query from its sources, and exchange it with the former result.

    Nothing changes until `apply(approve=, wait=, reporter=, notify=)`. Meanwhile the query may run as it was. The new
    result is verified and compared with the former one; `approve` gets the report, and says whether to exchange them.
    The query must be stopped for the exchange, which `wait` waits for. `undo()` restores the former result; `discard()`
    deletes the rebuilt one, or after the exchange the former one.

    Args:
        project: The project.
        query: The query.
        since: Read only what came from this time on; it has a time zone.
        accept_partial: Whether to begin although the sources no longer hold all that the query has read.
        spark: A session to work in; without one, a session of the project's target is started.

    Returns:
        The change, with `plan`, `apply`, `resume`, `undo` and `discard`.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
    """
    from headrace.changes.rebuild import Rebuild

    return Rebuild(project, query, since=since, accept_partial=accept_partial, spark=spark)


@judge_arguments
def change(project: Project, query: str, *, spark: SparkSession | None = None) -> results.Change[Any, Any] | None:
    """Find the unfinished change of a query, or else the last one that can be undone or discarded.

    Args:
        project: The project.
        query: The query.
        spark: A session, for a sink that needs one.

    Returns:
        The change, or None if there is none.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        CheckpointError: The record of a change cannot be read.
    """
    from headrace.changes.pending import changes

    return next(iter(changes(project, query, spark=spark)), None)


@judge_arguments
def repair(
    project: Project, query: str, *, keys: Sequence[Mapping[str, str]] = (), spark: SparkSession | None = None
) -> results.Repair:
    """Correct the wrong rows of a query's result.

    Nothing changes until `apply()`, which verifies the result and writes the differences in one transaction of the
    sink's database. `undo()` restores the former rows until the query writes a batch.

    Args:
        project: The project.
        query: A query that is not running.
        keys: Only rows with these values, as in `verify`.
        spark: A session to work in; without one, a session of the project's target is started.

    Returns:
        The change, with `plan`, `apply` and `undo`.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
    """
    from headrace.changes.repair import Repair
    from headrace.verifier.scope import RowScope

    return Repair(project, query, scope=RowScope(keys=tuple(keys)), spark=spark)


@judge_arguments
def verify(
    project: Project,
    query: str,
    *,
    keys: Sequence[Mapping[str, str]] = (),
    since_batch: int | None = None,
    part: tuple[int, int] | None = None,
    spark: SparkSession | None = None,
) -> results.Verdict:
    """Compare what a sink holds with the batch query over the committed prefix of its inputs.

    The history keeps a verdict on the whole result, if the project has one.

    Args:
        project: The project.
        query: The query.
        keys: Only rows that have all values of one of these: columns of the result and texts.
        since_batch: Only rows that the input of later batches has touched.
        part: (3, 10) compares the third of ten parts of the keys.
        spark: A session to work in; without one, a session of the project's target is started.

    Returns:
        The verdict, with the rows that differ.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        CheckpointError: The checkpoint cannot be read.
        PlatformError: Spark cannot be started.
    """
    return next(verify_each(project, [query], keys=keys, since_batch=since_batch, part=part, spark=spark))


@judge_arguments
def verify_each(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    keys: Sequence[Mapping[str, str]] = (),
    since_batch: int | None = None,
    part: tuple[int, int] | None = None,
    spark: SparkSession | None = None,
) -> Generator[results.Verdict, None, None]:
    """Verify several queries in one session; see `verify`.

    Args:
        project: The project.
        queries: The queries; all by default.
        keys: As in `verify`.
        since_batch: As in `verify`.
        part: As in `verify`.
        spark: A session to work in; without one, a session of the project's target is started.

    Yields:
        The verdict of each query, as soon as it is known.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        CheckpointError: A checkpoint cannot be read.
        PlatformError: Spark cannot be started.
    """
    from headrace.verifier.proof import verify_each as proved
    from headrace.verifier.scope import RowScope

    scope = RowScope(keys=tuple(keys), since=since_batch, part=part)
    for verdict in proved(project, list(project.queries) if queries is None else queries, spark=spark, scope=scope):
        yield _record_and_publish(project, verdict) if scope.whole else verdict


def _record_and_publish(project: Project, verdict: results.Verdict) -> results.Verdict:
    """Record a verdict, and publish it to hooks and installed observers; add a finding for each that did not get it."""
    from headrace.export.hooks import Hooks
    from headrace.export.observers import Observers
    from headrace.generations.log import history_file
    from headrace.history import History

    if project.local_storage.is_dir():
        # A verdict counts also when it cannot be recorded.
        with suppress(HeadraceError), History.open(history_file(project.local_storage)) as history:
            history.record_verdict(verdict.query, json.dumps(verdict.as_dict(), default=str, ensure_ascii=False))
            history.note("verdict", verdict.query, None, {"verdict": verdict.state, "sentence": verdict.sentence})
    observers, hooks = Observers(), project.target.operations.hooks
    observers.install(project)
    if hooks:
        observers.add(Hooks(hooks, project.name, observers.report))
    observers.verdict(verdict.query, verdict.as_dict())
    observers.close()
    return replace(verdict, findings=(*verdict.findings, *observers.take_undelivered()))


@judge_arguments
def late(
    project: Project,
    query: str,
    *,
    since_batch: int = 0,
    limit: int = 20,
    export: str | os.PathLike[str] | None = None,
    replay: bool = False,
    spark: SparkSession | None = None,
) -> results.Lateness:
    """Count and list the rows that a query dropped as late.

    Args:
        project: The project.
        query: The query.
        since_batch: Only this batch and later ones.
        limit: The greatest number of rows to list.
        export: A directory to write the rows into, as their sources gave them.
        replay: Whether to apply the rows to the result of the query, which must not be running.
        spark: A session to work in; without one, a session of the project's target is started.

    Returns:
        The counts by operator and batch, and the rows.

    Raises:
        CheckFailed: An argument has a wrong form, or no query has that name.
        CheckpointError: The checkpoint cannot be read.
        SinkError: The sink cannot take the rows.
    """
    from headrace.verifier.late_rows import find_late_rows

    return find_late_rows(project, query, since=since_batch, limit=limit, to=export, replay=replay, spark=spark)


@judge_arguments
def status(project: Project) -> list[results.QueryStatus]:
    """Read the state of each query that was ever run, from the history, without a JVM.

    The sources are asked for their lag, for some seconds at most; `lags` and `backlog` of a status hold it.

    Args:
        project: The project.

    Returns:
        A status for each query.

    Raises:
        CheckFailed: `project` is not a project.
        CheckpointError: The history is damaged or of a newer version.
        PlatformError: The history cannot be read.
    """
    from headrace.history.lag import SourceLags

    return Listing(SourceLags(project).statuses())


@judge_arguments
def stored_status(project: Project) -> list[results.StoredStatus]:
    """Read the state of each query from the storage alone, without the history and without a JVM, on any machine.

    Args:
        project: The project.

    Returns:
        A status for each query whose sink keeps its result.

    Raises:
        CheckFailed: `project` is not a project.
    """
    from headrace.generations.inspect_checkpoint import stored_status as of_one

    return [of_one(project, query) for query in project.queries.values() if query.sink.facts.durable]


@judge_arguments
def start(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    spark: SparkSession,
    trigger: Trigger | None = None,
    reporter: Observer | None = None,
) -> results.ApplicationHandle:
    """Run queries in the background, in your own session.

    The handle has each query by its name, with what Spark's StreamingQuery has, and `pause`, `resume` and `restart`; a
    query that fails does not stop the others. A `with` block stops all at its end.

    Args:
        project: The project.
        queries: The queries; all by default.
        spark: The session.
        trigger: A trigger that replaces the declared ones.
        reporter: An observer of the run.

    Returns:
        The handle of the application.

    Raises:
        CheckFailed: An argument is wrong, or a check refuses every query.
        CheckpointError: The checkpoint of a query cannot be read or does not fit it.
        PlatformError: The storage cannot be used.
    """
    from headrace.runner.handles import start_all as start_project
    from headrace.verifier.late_rows import write_late_rows

    return start_project(project, queries, spark, trigger=trigger, reporter=reporter, write_late=write_late_rows)


@judge_arguments
def running(project: Project) -> results.RunningApplications:
    """Find the running applications of a project, in any process, to stop, control, change and follow them.

    Its methods look for applications when they are called, and raise HeadraceError (HR850) if none takes the order.

    Args:
        project: The project.

    Returns:
        The applications.

    Raises:
        CheckFailed: `project` is not a project.
    """
    from headrace.control.client import RunningApplications

    return RunningApplications(project.local_storage, project)


@judge_arguments
def events(project: Project, *, query: str | None = None, limit: int = 100) -> list[results.Event]:
    """Read the newest events from the history: starts, pauses, restarts, findings and ends.

    Args:
        project: The project.
        query: Only events of this query.
        limit: The greatest number of events.

    Returns:
        The events in order; empty without a history.

    Raises:
        CheckFailed: An argument has a wrong form.
        CheckpointError: The history is damaged or of a newer version.
    """
    from headrace.generations.log import history_file
    from headrace.history import History

    file = history_file(project.local_storage)
    if not file.exists():
        return []
    with History.open(file, read_only=True) as history:
        return Listing(history.events(limit, query=query))


@judge_arguments
def start_query(
    project: Project, query: Query, spark: SparkSession, *, trigger: Trigger | None = None
) -> StreamingQuery:
    """Start one query in your own session.

    Args:
        project: The project.
        query: The query.
        spark: The session.
        trigger: A trigger that replaces the declared one.

    Returns:
        Spark's StreamingQuery.

    Raises:
        CheckFailed: An argument is wrong, or a check refuses the query.
        CheckpointError: The checkpoint cannot be read or does not fit the query.
    """
    from headrace.starter.start import start_in_session

    return start_in_session(project, query, spark, trigger=trigger)
