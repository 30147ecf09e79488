"""One command's work on what a query has written: its sink, the context of a generation, and a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.contract import SinkContext
from headrace.contract.observer import RUNNING
from headrace.errors import CheckFailed, CheckpointError, Finding
from headrace.generations.blame import attribute_errors, with_command
from headrace.generations.facts import StartFacts, sink_context
from headrace.generations.log import QueryLayout, history_file
from headrace.history import History
from headrace.model import Project, Query
from headrace.starter.rename import table_before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


STOP_FIRST = "stop it first, by Ctrl-C or SIGTERM: its running batch finishes, and nothing is lost"


def ignore(step: str) -> None:
    """Ignore a step."""


class SinkWork:
    """changes: whether the command changes anything, so that the storage directory may be given its id."""

    def __init__(self, project: Project, query: Query, spark: SparkSession | None, *, changes: bool) -> None:
        self.project, self.query, self.spark, self.changes = project, query, spark, changes
        self.own_session = False

    def session(self) -> SparkSession:
        """The session, for a sink that needs one, begun when it is asked for."""
        from headrace.frames.project_session import session

        if self.spark is None:
            self.spark, self.own_session = session(self.project, purpose="short"), True
        return self.spark

    def close(self) -> None:
        """Stop a session of our own."""
        if self.own_session and self.spark is not None:
            self.spark.stop()
            self.spark, self.own_session = None, False

    def context(self, layout: QueryLayout) -> SinkContext:
        """The context of a generation, for the sink."""
        return sink_context(self.project, self.query, layout)

    @contextmanager
    def name_sink_faults(self) -> Iterator[None]:
        """Say of the faults of the sink whose they are."""
        with attribute_errors(self.query):
            yield


def check_sink(facts: StartFacts, frame: DataFrame, *, connect: bool) -> Iterator[Finding]:
    """Report whether the sink would take the next batch of the result `frame`; a start would say the same.

    connect: whether its system is asked, which changes nothing there; else the columns alone are looked at.
    """
    query = facts.query
    try:
        context = facts.run
        findings = list(query.sink.check_result(frame, context))
        if connect and not any(finding.severity == "error" for finding in findings):
            sink = table_before(facts.project, query, facts.layout) or query.sink
            findings += sink.check_connection(frame, context)
    except CheckpointError as error:
        findings = list(error.findings)
    for finding in findings:
        yield with_command(query, finding if finding.where.file else finding.reword(where=query.where))


def require_stopped(project: Project, query: Query, *, code: str = "HR526", fix: str = STOP_FIRST) -> None:
    """Raise CheckFailed with finding `code` if the history says that `query` is running."""
    if not history_file(project.local_storage).exists():
        return
    with History.open(history_file(project.local_storage), read_only=True) as history:
        own = [status for status in history.statuses() if status.query == query.name]
    running = next((status for status in own if status.state in ("starting", *RUNNING)), None)
    if running is not None:
        raise CheckFailed(query.finding(code, f"is {running.state} in process {running.pid}", fix))
