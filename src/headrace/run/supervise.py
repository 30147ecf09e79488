"""A run of a project: what is chosen and fit to run, in a session that ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.check.structure import concerning, structure
from headrace.contract import Observer
from headrace.errors import CheckFailed, Finding, ProjectError, nearest
from headrace.model import Project, Query, Trigger
from headrace.observe.board import Board
from headrace.observe.orders import Orders
from headrace.plan.saved import SavedPlan
from headrace.queries.driver_lock import require_one_free
from headrace.run.controlled import controlled
from headrace.run.plan import plan
from headrace.run.result import RunResult
from headrace.run.running import Reached
from headrace.run.stop import StopRequest, end_jvm, end_process, stop_on_signals
from headrace.run.supervision import Supervision
from headrace.storage.private import make_private

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
    board: Board | None = None,
    orders: Orders | None = None,
) -> RunResult:
    """Run queries of `project` until they end or are asked to stop; a query that fails does not stop the others.

    `trigger` overrides what the queries declare. SIGINT or SIGTERM, or `stop.ask()`, lets running batches finish; a
    second one stops now. board, orders: by which other threads see and control it. Raises ProjectError or CheckFailed
    when nothing could be started for a fault of the project, and CheckpointError when `saved`, a plan, is not what
    would be found now.
    """
    chosen = _chosen(project, queries)
    found = concerning(project, queries) if queries else structure(project)
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        raise CheckFailed(errors)
    from headrace.build.project_session import session

    require_one_free(project, chosen)
    own = spark is None
    with suppress(OSError):  # reported when the first query starts
        make_private(project.local_storage)
    request, board, orders = StopRequest() if stop is None else stop, board or Board(), orders or Orders()
    with controlled(project, board, orders, request, reporter or Observer(), owns_process=own) as all_reporters:
        spark = spark or session(project, preparing=lambda step: all_reporters.preparing(project.redacted(step), None))
        # Not before: PySpark sets its own handler of SIGINT with the session. A process with a session of its own is
        # ours to end.
        supervision = None
        with stop_on_signals(request, end_now=end_process if own else None):
            try:
                if saved is not None:
                    saved.require(plan(project, [query.name for query in chosen], spark=spark))
                supervision = Supervision(
                    project, spark, all_reporters, request, reached, board=board, orders=orders, owns_process=own
                )
                return supervision.run(chosen, trigger)
            finally:
                if supervision is not None and supervision.left_behind:
                    end_jvm()  # Spark would wait for what hangs.
                elif own:
                    spark.stop()


def _chosen(project: Project, names: Sequence[str] | None) -> tuple[Query, ...]:
    unknown = [
        Finding(code="HR091", what=f"no query is named '{name}'", fix=nearest(name, project.queries))
        for name in names or ()
        if name not in project.queries
    ]
    if unknown:
        raise ProjectError(unknown)
    chosen = tuple(project.queries[name] for name in names) if names else tuple(project.queries.values())
    if not chosen:
        raise ProjectError(
            Finding(
                code="HR128",
                what=f"the project '{project.name}' declares no query, so there is nothing to run",
                fix="declare one in headrace.yml or with @hr.query in a Python file, or begin with: headrace init NAME",
                where=project.target.where,
            )
        )
    return chosen
