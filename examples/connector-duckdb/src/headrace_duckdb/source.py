"""Read a table of a DuckDB file: the rows that are added to it, as a stream; or all that it has, as a table."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.connectors.python_source.source import Python
from headrace.contract import ProjectPath, Source, SourceFacts, SourcePrefix
from headrace_duckdb import connect, quote


@dataclass(frozen=True, kw_only=True)
class DuckDbTable(Source):
    """The rows of `table` in the order of `order_by`, a column of whole numbers that only grows, as a sequence's.

    Rows are only added, and none is committed after one with a higher number. While another process has the file open
    for writing, no other can read it: writers close it between their transactions.
    """

    facts: ClassVar[SourceFacts] = SourceFacts(replayable=True)
    path: ProjectPath
    table: str
    order_by: str

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        return self._rows().stream(spark, name)

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        return self._rows().read(spark, prefix, batch_column=batch_column)

    def _rows(self) -> Python:
        return Python(source=NewRows, options=vars(self), replayable=True)


class NewRows(DataSource, DataSourceStreamReader):
    """Spark's side of it: an offset is the highest number that was read, and one task reads a batch."""

    def schema(self) -> StructType:
        return from_arrow_schema(self._select("LIMIT 0").schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self

    def initialOffset(self) -> dict[str, Any]:
        return {"last": None}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # Spark takes it without a limit too.
        return dict(self._select("SELECT max({n}) AS last").to_pylist()[0])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((start["last"], end["last"]))]

    def read(self, partition: InputPartition) -> Any:
        yield from self._select("WHERE {n} <= $2 AND ($1 IS NULL OR {n} > $1)", partition.value).to_batches()

    def _select(self, rest: str, values: Any = None) -> Any:
        statement = f"FROM {quote(self.options['table'])} " + rest.format(n=quote(self.options["order_by"]))
        with connect(self.options["path"], read_only=True) as connection:
            return connection.sql(statement, params=values).to_arrow_table()


def table(spark: SparkSession, path: str, name: str) -> DataFrame:
    """All rows that the table has now: a bounded input, to be returned by a function under `@headrace.table`."""
    with connect(path, read_only=True) as connection:
        return spark.createDataFrame(connection.sql(f"FROM {quote(name)}").to_arrow_table())
