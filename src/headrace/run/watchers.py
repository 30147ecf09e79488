"""Reporters of a run for what watches it: its metrics, its log and its hooks."""

from __future__ import annotations

from headrace.errors import Finding
from headrace.model import Query
from headrace.model.layout import QueryLayout
from headrace.operate.board import Board
from headrace.operate.hooks import Hooks
from headrace.operate.log import RunLog
from headrace.operate.metrics import Metrics
from headrace.progress import BatchRecord
from headrace.run.result import HeldState, Outcome, Silent


class Measured(Silent):
    """Counts the batches."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def progressed(self, record: BatchRecord) -> None:
        self._metrics.taken(record)


class Logged(Silent):
    """Writes what happens into the log of the run."""

    def __init__(self, log: RunLog) -> None:
        self._log = log

    def starting(self, query: Query) -> None:
        self._log.write("info", "starting", query=query.name)

    def started(self, query: Query, layout: QueryLayout) -> None:
        self._log.write("info", f"started, {query.trigger}, {query.mode} mode into {query.sink_kind}", query=query.name)

    def progressed(self, record: BatchRecord) -> None:
        said = f"{record.rows:,} rows in {record.duration_ms:,} ms"
        self._log.write("info", said, query=record.query, batch=record.batch)

    def stopping(self, *, now: bool) -> None:
        self._log.write("info", "stopping at once" if now else "stopping after the running batches")

    def held(self, query: str, state: HeldState, why: str) -> None:
        self._log.write("warning" if state == "restarting" else "info", f"{state}: {why}", query=query)

    def ended(self, outcome: Outcome) -> None:
        if outcome.finding is None:
            self._log.write("info", str(outcome.state), query=outcome.query)
        else:
            self._finding(outcome.finding, outcome.query)

    def note(self, finding: Finding) -> None:
        self._finding(finding, None)

    def _finding(self, finding: Finding, query: str | None) -> None:
        level = "info" if finding.severity == "note" else finding.severity
        said = f"{finding.where}: {finding.what}" + (f" (fix: {finding.fix})" if finding.fix else "")
        self._log.write(level, said, query=query, code=finding.code)


class Hooked(Silent):
    """Tells the hooks of failures, and of the first batch after one."""

    def __init__(self, hooks: Hooks, board: Board) -> None:
        self._hooks, self._board = hooks, board
        self._failed: set[str] = set()

    def progressed(self, record: BatchRecord) -> None:
        if record.query in self._failed:
            self._failed.discard(record.query)
            self._hooks.send("recovery", record.query, batch=record.batch)

    def held(self, query: str, state: HeldState, why: str) -> None:
        if state == "restarting":
            post = self._board.get(query)
            error = post.error if post is not None else None
            self._failure(query, {"finding": error.as_dict() if error else None, "restart": why})

    def ended(self, outcome: Outcome) -> None:
        if outcome.state == "failed":
            finding = outcome.finding.as_dict() if outcome.finding else None
            self._failure(outcome.query, {"finding": finding, "restart": None})

    def _failure(self, query: str, facts: dict[str, object]) -> None:
        self._failed.add(query)
        self._hooks.send("failure", query, **facts)
