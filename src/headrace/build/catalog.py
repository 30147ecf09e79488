"""Tables of Spark's catalog between the queries of a project: one writes what another reads as a stream.

A catalog in memory forgets its tables with the session, and before the first run there are none. The rows lie in the
table's directory all the same, and what the columns are is reported by the query that writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from headrace.build.plan_builder import build
from headrace.errors import HeadraceError
from headrace.model import Project, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def topological_order(project: Project, queries: Sequence[Query]) -> tuple[Query, ...]:
    """`queries`, each behind those that write tables which it reads, and else in the order given."""
    given = {query.name: query for query in queries}
    found: dict[str, Query] = {}

    def take(names: Iterable[str]) -> None:
        for name in names:
            if name in given and name not in found:
                take(writer.name for writer in project.writers_for(given[name]))
                found[name] = given[name]

    take(given)
    return tuple(found.values())


def register_written(project: Project, query: Query, spark: SparkSession) -> None:
    """Let the session's catalog know the tables that `query` reads and another query of the project has written."""
    for writer, _ in _unknown(project, query, spark):
        with suppress(HeadraceError):  # A fault of the other query, of which that one's own check tells.
            writer.sink.register_table(_result(project, writer, spark))


@contextmanager
def registered_tables(project: Project, query: Query, spark: SparkSession) -> Iterator[None]:
    """Inside, the session's catalog knows each table that `query` reads and another query of the project writes.

    A table that was not written yet is empty. Nothing is left of it afterwards.
    """
    made = []
    with TemporaryDirectory(prefix="headrace-") as empty:
        try:
            for writer, table in _unknown(project, query, spark):
                with suppress(HeadraceError):  # As above.
                    with registered_tables(project, writer, spark):
                        frame = _result(project, writer, spark)
                    place = Path(empty) / table
                    place.mkdir()
                    writer.sink.register_table(frame, placeholder=str(place))
                    made.append(table)
            yield
        finally:
            for each in made:
                spark.sql(f"DROP TABLE IF EXISTS {each}")


def _unknown(project: Project, query: Query, spark: SparkSession) -> Iterator[tuple[Query, str]]:
    for writer in project.writers_for(query):
        table = writer.sink.catalog_table
        if table is not None and not spark.catalog.tableExists(table):
            yield writer, table


def _result(project: Project, query: Query, spark: SparkSession) -> DataFrame:
    return build(project, query.transform, spark, lambda source: source.connector.stream(spark, source.name))
