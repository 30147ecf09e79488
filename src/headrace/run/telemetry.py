"""Reporters of a run that feed OpenTelemetry's collector and OpenLineage."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from headrace.errors import Finding
from headrace.model import Query
from headrace.model.layout import QueryLayout
from headrace.model.project import Project
from headrace.operate.board import Board
from headrace.operate.datasets import datasets
from headrace.operate.lineage import Columns, Lineage, Start
from headrace.operate.otlp import Otlp
from headrace.progress import BatchRecord
from headrace.run.result import HeldState, Outcome, Silent


class Sent(Silent):
    """Sends batches by OTLP."""

    def __init__(self, otlp: Otlp) -> None:
        self._otlp = otlp

    def progressed(self, record: BatchRecord) -> None:
        self._otlp.taken(record)


class Traced(Silent):
    """Reports each start of a query and its end to OpenLineage; a restart is a run of its own."""

    def __init__(self, lineage: Lineage, project: Project, board: Board) -> None:
        self._lineage, self._project, self._board = lineage, project, board
        self._starts: dict[str, Start] = {}

    def started(self, query: Query, layout: QueryLayout) -> None:
        self._end(query.name, None)
        post = self._board.get(query.name)
        if post is None or post.handle is None:
            return
        columns: Mapping[str, Columns] = {}
        with suppress(Exception):  # the query has ended, or its session
            columns = post.columns()
        reads = {
            dataset: source.name
            for source in self._project.sources_of(query)
            for dataset in datasets(source.connector.identity())
        }
        start = Start(
            query=query.name,
            run_id=str(post.handle.runId),
            description=query.description,
            reads=reads,
            inputs={dataset: columns.get(name, ()) for dataset, name in reads.items()},
            outputs=dict.fromkeys(datasets(query.sink.identity()), columns.get("", ())),
        )
        self._starts[query.name] = start
        self._lineage.send("START", start)

    def progressed(self, record: BatchRecord) -> None:
        start = self._starts.get(record.query)
        if start is None:
            return
        for source in record.sources:
            start.rows[source.name] = start.rows.get(source.name, 0) + source.rows
        if start.due():
            self._lineage.send("RUNNING", start)

    def held(self, query: str, state: HeldState, why: str) -> None:
        post = self._board.get(query)
        self._end(query, post.error if post is not None and state == "restarting" else None)

    def ended(self, outcome: Outcome) -> None:
        self._end(outcome.query, outcome.finding if outcome.state == "failed" else None)

    def _end(self, query: str, error: Finding | None) -> None:
        start = self._starts.pop(query, None)
        if start is not None:
            self._lineage.send("COMPLETE" if error is None else "FAIL", start, error)
