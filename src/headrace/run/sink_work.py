"""One command's work on what a query has written: its sink, the context of a generation, and a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.contract import SinkContext
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.run.application import application, known_facts
from headrace.run.naming import named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SinkWork:
    """changes: whether the command changes anything, so that the storage directory may be given its id."""

    def __init__(self, project: Project, query: Query, spark: SparkSession | None, *, changes: bool) -> None:
        self.project, self.query, self.spark, self.changes = project, query, spark, changes
        self.own_session = False

    def session(self) -> SparkSession:
        """The session, for a sink that needs one, begun when it is asked for."""
        from headrace.build.project_session import session

        if self.spark is None:
            self.spark, self.own_session = session(self.project, purpose="short"), True
        return self.spark

    def close(self) -> None:
        """Stop a session of our own."""
        if self.own_session and self.spark is not None:
            self.spark.stop()

    def context(self, layout: QueryLayout) -> SinkContext:
        """The context of a generation, for the sink."""
        facts = application(self.project).facts() if self.changes else known_facts(self.project)
        return SinkContext(
            query=self.query.name,
            generation=layout.generation,
            mode=self.query.mode,
            checkpoint=layout.checkpoint,
            **facts,
        )

    @contextmanager
    def named(self) -> Iterator[None]:
        """Say of the faults of the sink whose they are."""
        with named(f"the sink of query '{self.query.name}'", self.query.where):
            yield
