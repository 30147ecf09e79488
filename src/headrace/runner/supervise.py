"""A run of a project, which other terminals see and control, in a session that ends with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from headrace.checks.structure import check_structure_of, no_query
from headrace.contract import Observer
from headrace.control.board import Board, Orders, RunResult
from headrace.control.deploys import DeployRequest
from headrace.control.new_start import NewStart
from headrace.control.server import ControlServer
from headrace.errors import CheckFailed, Finding, HeadraceError, ProjectError
from headrace.export.hooks import Hooks
from headrace.export.lineage import Lineage
from headrace.export.log import RunLog, SparkLines
from headrace.export.metrics import MetricsObserver, require
from headrace.export.observers import EventLines, Observers
from headrace.export.otlp import Otlp
from headrace.export.service import Notifier
from headrace.export.serving import url_address
from headrace.generations.driver_lock import require_one_free
from headrace.generations.log import history_file
from headrace.history import History
from headrace.history.lag import SourceLags
from headrace.model import Project, Query, Trigger
from headrace.model.operations import Log
from headrace.planner.saved import SavedPlan
from headrace.runner.late_output import WriteLate
from headrace.runner.loaded_files import LoadedFiles
from headrace.runner.stop import StopRequest, end_jvm, end_process, stop_on_signals
from headrace.runner.supervision import Supervision
from headrace.runner.watch import Watcher
from headrace.spark.jvm.stderr_filter import taps
from headrace.starter.plan import plan
from headrace.starter.request import Reached
from headrace.storage.private import FULL, make_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    trigger: Trigger | None = None,
    spark: SparkSession | None = None,
    reporter: Observer | None = None,
    reached: Reached | None = None,
    stop: StopRequest | None = None,
    saved: SavedPlan | None = None,
    orders: Orders | None = None,
    write_late: WriteLate | None = None,
    watch: DeployRequest | None = None,
) -> RunResult:
    """Run queries of `project` until they end or are asked to stop; a query that fails does not stop the others.

    write_late: by which late rows are kept for the queries that take them, which then run too. Without it they wait.

    watch: the deploy that each save of the project's files asks for.

    `trigger` overrides what the queries declare. SIGINT or SIGTERM, or `stop.ask()`, lets running batches finish; a
    second one stops now. orders: by which other threads control it. Raises ProjectError or CheckFailed
    when nothing could be started for a fault of the project, and CheckpointError when `saved`, a plan, is not what
    would be found now.
    """
    chosen, files = _chosen(project, queries), LoadedFiles(project)
    watcher = None if watch is None else Watcher(project.root, files, watch)
    if write_late is not None and saved is None:
        names = {query.name for query in chosen}
        chosen += tuple(project.queries[main.late] for main in chosen if main.late and main.late not in names)
    findings = check_structure_of(project, queries or list(project.queries))
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise CheckFailed(errors)
    from headrace.frames.project_session import session

    require_one_free(project, chosen)
    own = spark is None
    with suppress(OSError):  # reported when the first query starts
        make_private(project.local_storage)
    request, orders = StopRequest() if stop is None else stop, orders or Orders()
    with control_run(project, orders, request, reporter or Observer(), owns_process=own) as all_reporters:
        if spark is None:
            ends = all((trigger or query.trigger).ends for query in chosen)
            spark = session(
                project,
                purpose="backlog" if ends else "stream",
                preparing=lambda step: all_reporters.preparing(project.redacted(step), None),
            )
        # Not before: PySpark sets its own handler of SIGINT with the session. A process with a session of its own is
        # ours to end.
        supervision = None
        with stop_on_signals(request, end_now=end_process if own else None):
            try:
                if saved is not None:
                    saved.require(plan(project, [query.name for query in chosen], spark=spark))
                supervision = Supervision(
                    project,
                    spark,
                    all_reporters,
                    request,
                    reached,
                    orders=orders,
                    owns_process=own,
                    write_late=write_late,
                    only=queries or None,
                    files=files,
                )
                if watcher is not None:
                    watcher.start(supervision.deployer, orders)
                return supervision.run(chosen, trigger)
            finally:
                if watcher is not None:
                    watcher.close()
                if supervision is not None and supervision.left_behind:
                    end_jvm()  # Spark would wait for what hangs.
                elif own:
                    spark.stop()


def _chosen(project: Project, names: Sequence[str] | None) -> tuple[Query, ...]:
    chosen = tuple(map(project.query, names)) if names else tuple(project.queries.values())
    if not chosen:
        raise ProjectError([no_query(project)])
    return chosen


# How long the main thread may take to hear a signal, while it may hang.
_HEARD_SECONDS = 1.0


@contextmanager
def control_run(
    project: Project, orders: Orders, request: StopRequest, reporter: Observer, *, owns_process: bool
) -> Iterator[Observer]:
    """Listen on the project's socket, serve its metrics and let all who observe the run hear of it.

    Without a socket the run is as it was, after one warning. Raises PlatformError where metrics cannot be served.
    """

    def stop(now: bool) -> bool:
        with stopping:  # Two that come at the same time would ask twice, which means now.
            # What stops to begin again has not been asked to end.
            heard = 0 if request.new_start is not None else request.heard
            by_signal = owns_process and signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN, None)
            # A signal more than two ends the process at once, so one that drains already is asked once more.
            for _ in range(max(1, 2 - heard) if now else int(not heard)):
                if by_signal and in_main_thread:
                    _ask_by_signal(request)
                else:
                    request.ask()
        return heard > 0

    def begin_again(connection: int, deploy: DeployRequest) -> None:
        request.begin_again(NewStart.of_board(board, connection, accept_forward=deploy.accept_forward))

    board, stopping = request.board, threading.Lock()
    in_main_thread = threading.current_thread() is threading.main_thread()
    observers, operations = Observers(reporter), project.target.operations
    with ExitStack() as stack:
        stack.callback(observers.close)
        _serve_metrics(project, board, observers, stack)
        if operations.telemetry.openlineage:
            observers.add(Lineage(project.name, version("pyspark"), observers.report))
        if owns_process:
            observers.add(Notifier(board, begins_again=lambda: request.new_start is not None))
        _log(project, observers, stack)
        if operations.hooks:
            observers.add(Hooks(operations.hooks, project.name, observers.report))
        observers.install(project)
        try:
            server = ControlServer(
                project.local_storage,
                project=project.name,
                board=board,
                orders=orders,
                stop=stop,
                owns_process=owns_process,
                begin_again=begin_again,
            )
        except OSError as error:
            reporter.note(_no_socket(error))
        else:
            stack.callback(server.close)
            observers.add(EventLines(server.publish))
        yield observers

    for finding in observers.take_undelivered():
        reporter.note(finding)


def _ask_by_signal(request: StopRequest) -> None:
    """Ask by SIGTERM: what hangs is ended by who counts the signals. Two at the same time would count as one."""
    before, ends = (request.heard, request.new_start), time.monotonic() + _HEARD_SECONDS
    os.kill(os.getpid(), signal.SIGTERM)
    while (request.heard, request.new_start) == before and time.monotonic() < ends:
        time.sleep(0.01)


def _serve_metrics(project: Project, board: Board, observers: Observers, stack: ExitStack) -> None:
    operations = project.target.operations
    settings = operations.metrics
    if settings is None and not operations.telemetry.otlp:
        return
    lags = SourceLags(project, board.projects)
    metrics = MetricsObserver(project.name, board, lambda: _verdicts(project), lags.of)
    observers.add(metrics)
    if operations.telemetry.otlp:
        observers.add(Otlp(metrics, observers.report))
    if settings is None:
        return
    for module in ("starlette", "uvicorn"):
        require(module)
    from headrace.export.metrics_server import serve_metrics

    port = stack.enter_context(serve_metrics(settings, board, metrics))
    if not settings.port:
        fault = f"metrics are served at http://{url_address(settings.address, port)}/metrics"
        observers.note(Finding(code="HR886", what=fault))


def _log(project: Project, observers: Observers, stack: ExitStack) -> None:
    """Write the log, whose default is plain text; without it the run is as it was, after one warning."""
    try:
        log = RunLog(project.local_storage, project.target.operations.log or Log())
    except OSError as error:
        fault = f"the log cannot be written: {error.filename}: {error.strerror or error}"
        fix = "make room on that disk" if error.errno in FULL else "give the right to write into the storage directory"
        observers.note(Finding(code="HR544", what=fault, fix=fix))
        return
    observers.add(log)
    stack.enter_context(log.capture_user_output())
    spark_lines = SparkLines(log)
    observers.add(spark_lines)
    taps.append(spark_lines.take)
    stack.callback(taps.remove, spark_lines.take)


def _verdicts(project: Project) -> Mapping[str, Mapping[str, Any]]:
    """The newest verdicts; metrics do without them where the history cannot be read."""
    with suppress(HeadraceError), History.open(history_file(project.local_storage), read_only=True) as history:
        return history.verdicts()
    return {}


def _no_socket(error: OSError) -> Finding:
    return Finding(
        code="HR856",
        what=f"the socket by which other terminals reach this run cannot be made: {error.strerror or error}",
        fix="stop it by Ctrl-C or SIGTERM, and look at it by headrace status; give the right to write into the "
        "storage directory for the rest",
    )
