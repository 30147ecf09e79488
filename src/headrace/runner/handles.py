"""A running application and its queries as Python objects, with the names that PySpark has for the same things."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.contract import Observer
from headrace.contract.observer import QueryState
from headrace.control.board import Order, Orders, RunResult, Verb, who
from headrace.errors import CheckFailed, HeadraceError, QueryFailed
from headrace.history.lag import SourceLags
from headrace.markup import records
from headrace.model import Project, Trigger
from headrace.runner.late_output import WriteLate
from headrace.runner.stop import StopRequest, stop_on_signals
from headrace.runner.supervise import run
from headrace.spark.jvm.session_conf import in_thread
from headrace.starter.plan import session_refusals

LIVE_SECONDS = 1.0
"""How often a live cell of a notebook is drawn."""

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery


class QueryHandle:
    """A query of a running application; it stays the same over pauses and restarts, each of which has its own `runId`.

    What is Spark's has Spark's name: see pyspark.sql.streaming.StreamingQuery.
    """

    def __init__(self, application: ApplicationHandle, name: str) -> None:
        self._application = application
        self.name = name

    def __repr__(self) -> str:
        return f"<query '{self.name}': {self.state}>"

    @property
    def state(self) -> str:
        """How it stands: waiting, starting, running, waiting for source, waiting for sink, pausing, stopping, paused,
        restarting, finished, stopped or failed."""
        return self._now.state

    @property
    def id(self) -> str:
        """Spark's id of the query, which its checkpoint keeps."""
        return str(self._spark.id)

    @property
    def runId(self) -> str:  # noqa: N802
        """Spark's id of its newest start."""
        return str(self._spark.runId)

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether it runs, or will run again."""
        return not self._now.has_ended

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing at this moment."""
        return dict(self._spark.status)

    @property
    def recentProgress(self) -> Sequence[Any]:  # noqa: N802
        """Spark's reports of the last batches of its newest start."""
        return self._spark.recentProgress

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        """The newest of them; None before the first."""
        return self._spark.lastProgress

    def explain(self, extended: bool = False) -> None:
        """Print the physical plan of its last batch, or all plans."""
        self._spark.explain(extended)

    def exception(self) -> QueryFailed | None:
        """Why it failed, as one finding; None if it did not. While it waits for a restart, what it failed of last."""
        now = self._now
        return QueryFailed(now.cause) if now.cause is not None and now.state in ("failed", "restarting") else None

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for its end, for at most `timeout` seconds; then it says whether it has ended. Raises if it failed."""
        ended = self._application.board.wait(lambda states: states[self.name].has_ended, timeout)
        if ended and self._now.state == "failed" and (error := self.exception()) is not None:
            raise error
        return ended if timeout is not None else None

    def stop(self) -> None:
        """Let its running batch finish, and stop it; the others run on."""
        self._order("stop")

    def pause(self) -> str:
        """Stop it after its running batch until it is resumed; returns what has become of that."""
        return self._order("pause")

    def resume(self) -> str:
        """Start it from its checkpoint after a pause, with all checks of a start."""
        return self._order("resume")

    def restart(self) -> str:
        """Stop it after its running batch, and start it from its checkpoint, as it was loaded."""
        return self._order("restart")

    def _order(self, verb: Verb) -> str:
        order = self._application.orders.give(Order(verb=verb, query=self.name, by=who()))
        answer = order.answer.result()
        if answer.finding is not None:
            raise HeadraceError(answer.finding)
        return answer.said

    @property
    def _now(self) -> QueryState:
        state = self._application.board.get(self.name)
        assert state is not None, "a handle is made of a state"
        return state

    @property
    def _spark(self) -> StreamingQuery:
        """Spark's own handle, waited for while the query starts."""
        self._application.board.wait(lambda states: states[self.name].state not in ("waiting", "starting"))
        live = self._application.board.live(self.name)
        if live is None:
            raise self.exception() or ValueError(f"query '{self.name}' does not run: it is {self.state}")
        handle: StreamingQuery = live.handle
        return handle


class ApplicationHandle:
    """Queries that run in the background; as a context manager it stops them at the end of the block.

    What is Spark's has Spark's name: see pyspark.sql.streaming.StreamingQueryManager.
    """

    def __init__(
        self,
        project: Project,
        spark: SparkSession,
        orders: Orders,
        request: StopRequest,
        result: Future[RunResult],
    ) -> None:
        self._spark, self._request, self._result = spark, request, result
        self.board, self.orders = request.board, orders
        self._lags = SourceLags(project, self.board.projects)
        self._reported: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<application: {', '.join(f'{name} {state.state}' for name, state in self.board.states().items())}>"

    def _repr_html_(self) -> str:
        return records(self._rows(), title="application")

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield how each query stands, with the figures of its newest batch and what its sources still hold."""
        newest = {}
        with suppress(HeadraceError, OSError):  # How the queries stand is shown without a history as well.
            newest = {status.query: status for status in self._lags.statuses()}
        for name, state in self.board.states().items():
            row: dict[str, Any] = {"query": name, "state": state.state}
            if (status := newest.get(name)) is not None and status.batch is not None:
                row |= {
                    "batch": status.batch,
                    "rows": status.rows_total,
                    "rows/s in": f"{status.input_rate or 0:.1f}",
                    "rows/s processed": f"{status.processed_rate or 0:.1f}",
                    "duration": f"{(status.batch_ms or 0) / 1000:.2f} s",
                    "lag": [f"{source} {lag.count:,} {lag.unit}" for source, lag in status.lags.items() if lag],
                }
            yield {**row, "remark": state.trouble or state.step}

    @property
    def active(self) -> list[QueryHandle]:
        """Its queries that have not ended."""
        return [query for query in self.queries if query.isActive]

    @property
    def queries(self) -> list[QueryHandle]:
        """All its queries, also those that have ended."""
        return [QueryHandle(self, name) for name in self.board.states()]

    def get(self, query: str) -> QueryHandle:
        """A query by its name, or by Spark's id of it; raises KeyError."""
        states = self.board.states()
        for name in states:
            live = self.board.live(name)
            if query == name or (live is not None and str(live.handle.id) == query):
                return QueryHandle(self, name)
        raise KeyError(f"no query '{query}'; there are {', '.join(states) or 'none'}")

    def awaitAnyTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until any query has ended since `resetTerminated`; raises why, if one failed. See awaitTermination."""

        def new(states: Mapping[str, QueryState]) -> list[QueryState]:
            return [state for state in states.values() if state.has_ended and state.query not in self._reported]

        ended = self.board.wait(lambda states: bool(new(states)), timeout)
        for standing in new(self.board.states()):
            if standing.state == "failed" and standing.cause is not None:
                raise QueryFailed(standing.cause)
        return ended if timeout is not None else None

    def resetTerminated(self) -> None:  # noqa: N802
        """Forget the queries that have ended, so that `awaitAnyTermination` waits for another one."""
        self._reported = frozenset(name for name, state in self.board.states().items() if state.has_ended)

    def addListener(self, listener: StreamingQueryListener) -> None:  # noqa: N802
        """Let `listener` know when a query of the session starts, makes a batch, is idle or ends."""
        self._spark.streams.addListener(listener)

    def removeListener(self, listener: StreamingQueryListener) -> None:  # noqa: N802
        """Stop informing it."""
        self._spark.streams.removeListener(listener)

    def stop(self, *, now: bool = False) -> RunResult:
        """Stop all queries after their running batches, or at once, and wait for that."""
        self._request.ask_for(now=now)
        return self.wait()

    def wait(self) -> RunResult:
        """Wait until all queries have ended; raises as `headrace.run` does.

        In a notebook the cell shows their rates, lag and batches meanwhile. Interrupting it, or Ctrl-C in a script,
        stops the queries after their running batches; a second time, at once.
        """
        with stop_on_signals(self._request):
            if not self._result.done() and (draw := _live_cell(self)) is not None:
                while not wait_for([self._result], LIVE_SECONDS).done:
                    draw()
                draw()
            return self._result.result()

    def __enter__(self) -> ApplicationHandle:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(HeadraceError):
            self.stop()


def _live_cell(shown: object) -> Callable[[], None] | None:
    """Show an object below the running cell of a notebook, and return what draws it again; None outside of one."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    if getattr(get_ipython(), "kernel", None) is None:  # A terminal cannot draw over what it has printed.
        return None
    handle: Any = display(shown, display_id=True)  # type: ignore[no-untyped-call]
    return lambda: handle.update(shown)


def start_all(
    project: Project,
    queries: Sequence[str] | None,
    spark: SparkSession,
    *,
    trigger: Trigger | None = None,
    reporter: Observer | None = None,
    write_late: WriteLate | None = None,
) -> ApplicationHandle:
    """Run queries of `project` in a thread, in the caller's session; returns once it is known which they are."""
    for query in project.queries.values() if queries is None else map(project.query, queries):
        if refused := tuple(session_refusals(project, query, spark)):
            raise CheckFailed(refused)
    orders, request = Orders(), StopRequest()

    def run_all() -> RunResult:
        return run(
            project,
            queries,
            trigger=trigger,
            spark=spark,
            reporter=reporter,
            stop=request,
            orders=orders,
            write_late=write_late,
        )

    result = in_thread(spark, run_all, request.board.close, name="headrace")
    application = ApplicationHandle(project, spark, orders, request, result)
    with stop_on_signals(request):
        application.board.wait(bool)
    if not application.board.states():
        application.wait()
    return application
