"""A run that other terminals see and control, as long as it lasts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any

from headrace.errors import Finding, HeadraceError
from headrace.history import History
from headrace.model import Project
from headrace.model.layout import history_file
from headrace.model.operations import Log
from headrace.operate.address import asked_at
from headrace.operate.board import Board
from headrace.operate.control_server import ControlServer
from headrace.operate.hooks import Hooks
from headrace.operate.lineage import Lineage
from headrace.operate.log import RunLog
from headrace.operate.metrics import Metrics
from headrace.operate.metrics_server import MetricsServer
from headrace.operate.orders import Orders
from headrace.operate.otlp import Otlp
from headrace.run.event_lines import EventLines
from headrace.run.reporters import Reporters
from headrace.run.result import Reporter
from headrace.run.spark_lines import SparkLines
from headrace.run.stop import StopRequest
from headrace.run.telemetry import Sent, Traced
from headrace.run.watchers import Hooked, Logged, Measured
from headrace.spark.stderr_filter import taps

# How long the main thread may take to hear a signal, while it may hang.
_HEARD_SECONDS = 1.0


@contextmanager
def controlled(
    project: Project, board: Board, orders: Orders, request: StopRequest, reporter: Reporter, *, owns_process: bool
) -> Iterator[Reporter]:
    """Listen on the project's socket, serve its metrics and tell its hooks; the reporter that is given tells them all.

    Without a socket the run is as it was, after one warning. Raises PlatformError where metrics cannot be served.
    """

    def stop(now: bool) -> bool:
        with stopping:  # Two that come at the same time would ask twice, which means now.
            already = request.heard > 0
            by_signal = owns_process and signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN, None)
            # A signal more than two ends the process at once, so one that drains already is asked once more.
            for _ in range(max(1, 2 - request.heard) if now else int(not already)):
                if by_signal and in_main_thread:
                    _ask_by_signal(request)
                else:
                    request.ask()
        return already

    stopping = threading.Lock()
    in_main_thread = threading.current_thread() is threading.main_thread()
    reporters: list[Reporter] = [reporter]
    later: SimpleQueue[Finding] = SimpleQueue()
    with ExitStack() as stack:
        _serve_metrics(project, board, reporters, stack, later.put)
        if project.target.operations.telemetry.openlineage:
            lineage = Lineage(project.name, version("pyspark"), later.put)
            stack.callback(lineage.close)
            reporters.append(Traced(lineage, project, board))
        _log(project, reporters, stack)
        if project.target.operations.hooks:
            hooks = Hooks(project.target.operations.hooks, project.name, later.put)
            stack.callback(hooks.close)
            reporters.append(Hooked(hooks, board))
        try:
            server = ControlServer(
                project.local_storage,
                project=project.name,
                board=board,
                orders=orders,
                stop=stop,
                owns_process=owns_process,
            )
        except OSError as error:
            reporter.note(_no_socket(error))
        else:
            stack.callback(server.close)
            reporters.append(EventLines(server.tell))
        yield Reporters(reporters, later)

    while not later.empty():
        reporter.note(later.get())


def _ask_by_signal(request: StopRequest) -> None:
    """Ask by SIGTERM: what hangs is ended by who counts the signals. Two at the same time would count as one."""
    before, ends = request.heard, time.monotonic() + _HEARD_SECONDS
    os.kill(os.getpid(), signal.SIGTERM)
    while request.heard == before and time.monotonic() < ends:
        time.sleep(0.01)


def _serve_metrics(
    project: Project, board: Board, reporters: list[Reporter], stack: ExitStack, report: Callable[[Finding], None]
) -> None:
    operations = project.target.operations
    settings = operations.metrics
    if settings is None and not operations.telemetry.otlp:
        return
    metrics = Metrics(project.name, board, lambda: _verdicts(project))
    reporters.append(Measured(metrics))
    if operations.telemetry.otlp:
        otlp = Otlp(metrics, report)
        stack.callback(otlp.close)
        reporters.append(Sent(otlp))
    if settings is None:
        return
    server = MetricsServer(settings, board, metrics)
    stack.callback(server.close)
    if not settings.port:
        what = f"metrics are served at http://{asked_at(settings.address, server.port)}/metrics"
        reporters[0].note(Finding(code="HR876", what=what))


def _log(project: Project, reporters: list[Reporter], stack: ExitStack) -> None:
    """Write the log, whose default is plain text; without it the run is as it was, after one warning."""
    try:
        log = RunLog(project.local_storage, project.target.operations.log or Log())
    except OSError as error:
        what = f"the log cannot be written: {error.filename}: {error.strerror or error}"
        reporters[0].note(Finding(code="HR878", what=what, fix="give the right to write into the storage directory"))
        return
    stack.callback(log.close)
    reporters.append(Logged(log))
    stack.enter_context(log.taking_user_output())
    spark_lines = SparkLines(log)
    reporters.append(spark_lines)
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
