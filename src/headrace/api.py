"""What the command line can do, as functions; each loads what it needs only when it is called."""

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
from headrace.model import Project, Query, Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace import results
    from headrace.change.adopt import PlannedIs
    from headrace.contract import Observer
    from headrace.queries.changes import Choice
    from headrace.run.query_run import Reached
    from headrace.run.stop import StopRequest
    from headrace.verifier.scope import RowScope


@judge_arguments
def load(
    path: str | os.PathLike[str] = ".",
    *,
    target: str | None = None,
    environ: Mapping[str, str] | None = None,
    may_lack_variables: bool = False,
) -> Project:
    """Read the project in the directory (or the one Python file) `path`, seen from `target`.

    Raises ProjectError with every fault that was found. may_lack_variables: a source, a sink or a setting of Spark
    whose variable is not set raises it only when it is used, so that `status`, `stop` and the like need no passwords.
    """
    from headrace.load import load as load_project

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
    """Check `project` before anything is started, and compute the guarantee of each query that is not refused.

    The structure is checked without a JVM; each query whose own structure holds is analysed by Spark in `spark`, or in
    a session made for it, and its sources and its sink are asked, read-only, whether they have what is read and would
    take the result. `spark=False` leaves Spark out, `connect=False` databases and other systems, `whole=False` what is
    wrong with other queries.
    """
    from headrace.run.checks import check as check_project

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
) -> results.RunResult:
    """Run queries of `project` until they end or are asked to stop. See `headrace.run.supervise.run`.

    accept_forward: queries whose change only rows from now on follow resume, as with `on_change: forward`.
    verify_every: after so many seconds each time, the queries that have made batches are verified beside them.
    verify_parts: each time one of so many parts of their keys, in turn.
    """
    from headrace.run.supervise import run as run_project
    from headrace.verifier.late_rows import write_late_rows

    if verify_every is not None:
        reporter = _with_verdicts(project, reporter, verify_every, verify_parts)

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
    )


def _with_verdicts(project: Project, reporter: Observer | None, seconds: float, parts: int) -> Observer:
    """The observer of a run, and one that verifies its queries during it."""
    from headrace.export.observers import Observers
    from headrace.verifier.periodic import PeriodicVerifier
    from headrace.verifier.proof import verify as proved

    observers = Observers(*([] if reporter is None else [reporter]))

    def verify(query: str, spark: SparkSession, scope: RowScope) -> results.Verdict:
        return proved(project, query, spark=spark, scope=scope)

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
    """What each of `queries` (None: all) as written would change of the one that ran; nothing is started or changed.

    connect: whether sources and sinks are asked, which tells whether their systems hold what the checkpoint says. save:
    a file to keep it in, for `apply`; raises HeadraceError where it cannot be written.
    """
    from headrace.planner.saved import save as save_plan
    from headrace.queries.application import application
    from headrace.run.plan import plan as plan_project

    judgements = plan_project(project, queries, spark=spark, connect=connect)
    if save is not None:
        save_plan(Path(save), project, application(project).id, judgements)
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
    """Run the queries of the plan in `file`, if what it found is what is found now; `forward` is accepted as planned.

    Raises HeadraceError where the file is no plan of this project, and CheckpointError where it does not hold any more.
    """
    from headrace.planner.saved import read
    from headrace.queries.application import known_application
    from headrace.run.supervise import run as run_project
    from headrace.verifier.late_rows import write_late_rows

    saved, known = read(Path(file)), known_application(project)
    saved.require_project(project, known.id if known else "")
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
    """Bring the state of `query`, which must not be running, into `partitions` partitions."""
    from headrace.run.state_store import repartition as repartition_query

    return repartition_query(project, query, partitions, spark=spark)


@judge_arguments
def reset(
    project: Project, query: str, *, result: Choice | None = None, spark: SparkSession | None = None
) -> results.Reset:
    """The change that lets `query`, which must not be running, read its sources from the beginning.

    Nothing is done before its `apply`. result: `drop` sets the sink's rows aside too, `keep` lets them stay where rows
    that come again replace them. `undo` brings everything back as long as no batch was planned since. The session is
    only for a sink that needs one.
    """
    from headrace.change.reset import Reset

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
    """The change that brings `query`, which must not be running, back to the end of a batch, with its result.

    Nothing is done before its `apply`. to_time: to the last batch that was planned up to then. `undo` brings everything
    back as long as no batch was planned since.
    """
    from headrace.change.rewind import Rewind

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
    """The change that lets `query`, which has never run, continue a job of plain PySpark from its checkpointLocation.

    Nothing is done before its `apply`, which copies the checkpoint, and makes the rows that the job has written those
    of the query. checkpoint: it may be left out where an adoption was cut off. sources: by a source's name, its number
    or name in that checkpoint, where that is not clear. planned: whether the rows of a batch that was planned and not
    committed are `written` or `not-written`. A reset takes it back.
    """
    from headrace.change.adopt import Adopt

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
    """The change that recomputes the result of `query` from its sources beside the one in use, and exchanges the two.

    Nothing is done before its `apply(approve=, wait=, reporter=, notify=)`. The query may run meanwhile, as it was.
    When the new generation has caught up it is verified and compared with the former one; `approve` is given what was
    found, and says whether to exchange them. The query must then be stopped, which `wait` waits for. since: read only
    what came from a time on, which has a zone. accept_partial: begin although the sources no longer hold all that the
    query has read. `undo` brings the former generation back; `discard` deletes the rebuilt one, or after the exchange
    the former one.
    """
    from headrace.change.rebuild import Rebuild

    return Rebuild(project, query, since=since, accept_partial=accept_partial, spark=spark)


@judge_arguments
def change(project: Project, query: str, *, spark: SparkSession | None = None) -> results.Change[Any, Any] | None:
    """The change of `query` that was begun last and can be ended, undone or discarded; None where there is none.

    One that a crash has cut off comes first. What else is kept comes once that is discarded or undone.
    """
    from headrace.change.pending import changes

    return next(iter(changes(project, query, spark=spark)), None)


@judge_arguments
def repair(
    project: Project, query: str, *, keys: Sequence[Mapping[str, str]] = (), spark: SparkSession | None = None
) -> results.Repair:
    """The change that puts the wrong rows of the result of `query`, which must not be running, right.

    Nothing is done before its `apply`, which verifies the result and writes what differs in one transaction of the
    sink's database. keys: see `verify`. `undo` brings what was there before back as long as no batch has come in since.
    """
    from headrace.change.repair import Repair
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
    """Compare what the sink of `query` holds with the batch query over the committed prefix of its inputs.

    keys: only the rows that have all values of one of these, columns of the result and texts. since_batch: only the
    rows that input of later batches has touched. part: (3, 10) compares the third of ten parts of the keys. The history
    keeps a verdict on the whole result, if the project has one.
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
    """The verdict of each of `queries` (None: all), in one session, as soon as it is found; see `verify`."""
    from headrace.verifier.proof import verify_each as proved
    from headrace.verifier.scope import RowScope

    scope = RowScope(keys=tuple(keys), since=since_batch, part=part)
    for verdict in proved(project, list(project.queries) if queries is None else queries, spark=spark, scope=scope):
        yield _record_and_publish(project, verdict) if scope.whole else verdict


def _record_and_publish(project: Project, verdict: results.Verdict) -> results.Verdict:
    """Keep a verdict, tell it to the project's hooks and to installed observers, and say which did not get it."""
    from headrace.export.hooks import Hooks
    from headrace.export.observers import Observers
    from headrace.history import History
    from headrace.queries.layout import history_file

    if project.local_storage.is_dir():
        # A verdict is worth no less because it cannot be kept.
        with suppress(HeadraceError), History.open(history_file(project.local_storage)) as history:
            history.record_verdict(verdict.query, json.dumps(verdict.as_dict(), default=str, ensure_ascii=False))
            history.note("verdict", verdict.query, None, {"verdict": verdict.state, "sentence": verdict.sentence})
    told, hooks = Observers(), project.target.operations.hooks
    told.install(project)
    if hooks:
        told.add(Hooks(hooks, project.name, told.report))
    told.verdict(verdict.query, verdict.as_dict())
    told.close()
    return replace(verdict, findings=(*verdict.findings, *told.undelivered()))


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
    """Count the rows that `query` dropped as late, and list them, at most `limit`.

    since_batch: only this batch and later ones. export: write the rows into this directory, as their sources gave them.
    replay: bring the rows back into the result of `query`, which must not be running.
    """
    from headrace.verifier.late_rows import find_late_rows

    return find_late_rows(project, query, since=since_batch, limit=limit, to=export, replay=replay, spark=spark)


@judge_arguments
def status(project: Project) -> list[results.QueryStatus]:
    """The state of each query that was ever run, from the history store, without a JVM.

    What its sources still hold is asked of them, for some seconds at most; `lags` and `backlog` of a status have it.
    """
    from headrace.history.lag import SourceLags

    return SourceLags(project).statuses()


@judge_arguments
def stored_status(project: Project) -> list[results.StoredStatus]:
    """How each query stands by its storage alone, without the history and without a JVM, from any machine."""
    from headrace.queries.inspect_checkpoint import stored_status as of_one

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
    """Run queries of `project` (None: all) in the background, in the user's own session.

    The handle has each query by its name, with what Spark's StreamingQuery has, and `pause`, `resume` and `restart`; a
    query that fails does not stop the others. In a `with` block all are stopped at its end. Raises as `run`.
    """
    from headrace.run.handles import start_all as start_project
    from headrace.verifier.late_rows import write_late_rows

    return start_project(project, queries, spark, trigger=trigger, reporter=reporter, write_late=write_late_rows)


@judge_arguments
def running(project: Project) -> results.RunningApplications:
    """The applications of `project` that run, in other processes too: to stop them, and to control and follow them.

    Its methods look for them when they are called, and raise HeadraceError (HR850) where none could take the order.
    """
    from headrace.control.client import RunningApplications

    return RunningApplications(project.local_storage)


@judge_arguments
def events(project: Project, *, query: str | None = None, limit: int = 100) -> list[results.Event]:
    """The newest events of the project's queries, or of `query`: starts, pauses, restarts, findings and ends.

    At most `limit` of them, without a JVM.
    """
    from headrace.history import History
    from headrace.queries.layout import history_file

    file = history_file(project.local_storage)
    if not file.exists():
        return []
    with History.open(file, read_only=True) as history:
        return history.events(limit, query=query)


@judge_arguments
def start_query(
    project: Project, query: Query, spark: SparkSession, *, trigger: Trigger | None = None
) -> StreamingQuery:
    """Start one query in the user's own session; returns Spark's StreamingQuery."""
    from headrace.run.start import start_in_session

    return start_in_session(project, query, spark, trigger=trigger)
