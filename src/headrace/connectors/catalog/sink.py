"""Write each batch into a table of Spark's own catalog."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import unquote

from headrace import contract
from headrace.connectors.catalog.source import ANOTHER_KIND, describe_table
from headrace.connectors.result_findings import findings_of, partition_findings
from headrace.connectors.spark_catalog import no_name, parts_of, quote, require_database
from headrace.connectors.spark_files import aside
from headrace.connectors.spark_files import formats as file_form
from headrace.connectors.spark_files.sink_log import CommittedFiles, FilesAdoption, FilesReset, FilesWriter, nullable
from headrace.errors import CheckpointError, Finding, SinkError
from headrace.spark.messages.refusals import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class TableSink(contract.CatalogSink):
    """Files of a table, named `table` or `database.table`; Spark's log among them says which of them count.

    Source: Structured Streaming guide, "Streaming Table APIs". The table is made if it is not there; if it is, its
    columns, format and partitions must be those of the result. Exactly once for readers that use Spark, as the file
    sink. A session that has read the table sees later batches after `REFRESH TABLE`. Spark's catalog in memory forgets
    its tables with the session; the sink makes its table known again, with all rows, when it starts.
    """

    facts: ClassVar[contract.SinkFacts] = contract.SinkFacts(
        modes=frozenset({"append"}),
        transactional=False,
        idempotent=True,
        adds_files=True,
        layout_options=("format", "partition_by", "options"),
    )
    table: str
    format: Literal["text", "csv", "json", "parquet", "orc"] = "parquet"
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        yield from no_name(self.table)
        yield from super().problems(mode)

    def open(self, frame: DataFrame, context: contract.SinkContext) -> FilesWriter:
        """Make the table, or compare it with the result, and see that its rows are of this query."""
        spark = frame.sparkSession
        self._require_partitions(frame, context)
        require_database(spark, self.table)
        table = self.describe(spark)
        files = self.files_in(spark, table)
        if table is not None:
            self._require_fit(spark, table, frame.schema, context)
        if files.is_local and not files.is_prepared and aside.count_files(Path(files.path)):
            fault = f"'{files.path}', where table '{self.table}' lies, holds files that no stream wrote"
            fix = "write to another table: readers would no longer see those rows"
            raise SinkError(code="HR407", what=fault, fix=fix)
        if table is None:
            directory = files.path if files.is_local and os.path.isdir(files.path) else None
            self._create(spark, frame.schema, directory, files.read_options)
        files.prepare(frame, context)
        # What toTable does for such a table once it is there, but for the start, which is the caller's.
        return FilesWriter(files=self._files(spark), partition_by=self.partition_by)

    @property
    def location(self) -> contract.SinkLocation:
        return contract.SinkLocation(
            name=self.catalog_table, systems=("",), shown=f"table '{self.catalog_table}' of the catalog"
        )

    def identity(self) -> contract.Identity:
        return {"system": "catalog", "table": self.catalog_table, "format": self.format}

    def check_result(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        yield from file_form.result_findings(frame, self.format, self.partition_by, context.query)

    def refused_values(self, frame: DataFrame) -> Iterator[contract.RefusedValue]:
        return self._files(frame.sparkSession).refused_values(frame, self.partition_by)

    def check_connection(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        spark = frame.sparkSession
        try:
            require_database(spark, self.table)
            table = self.describe(spark)
            if table is not None:
                self._require_fit(spark, table, frame.schema, context)
                self.files_in(spark, table).require_written(context)
        except (CheckpointError, SinkError) as error:
            yield from findings_of(error)

    @property
    def catalog_table(self) -> str:
        return contract.canonical_table(self.table)

    def register_table(self, frame: DataFrame, *, placeholder: str | None = None) -> None:
        spark = frame.sparkSession
        require_database(spark, self.table)
        files = self.files_in(spark, None)
        directory = files.path if files.is_local and files.is_prepared else placeholder
        if directory is not None:
            self._create(spark, frame.schema, directory, files.read_options)

    def read_back(self, spark: SparkSession, context: contract.SinkContext) -> contract.Snapshot:
        return self._files(spark).snapshot(spark, context, self.partition_by)

    @property
    def reset(self) -> CatalogReset:
        return CatalogReset(sink=self, find=lambda session: self._files(session()), droppable=True)

    @property
    def adoption(self) -> FilesAdoption:
        return FilesAdoption(find=self._foreign, takes_over=True, tells_batches=True)

    def _foreign(self, frame: DataFrame, context: contract.SinkContext) -> CommittedFiles:
        """The files of a table that another program's stream has written. Raises SinkError where it does not fit."""
        self._require_partitions(frame, context)
        table = self.describe(frame.sparkSession)
        if table is None:
            fault = f"the catalog has no table '{self.table}', which holds what query '{context.query}' has written"
            fix = (
                "name the table that the former job writes to; a catalog in memory knows those of its own session only"
            )
            raise SinkError(code="HR596", what=fault, fix=fix)
        self._require_fit(frame.sparkSession, table, frame.schema, context)
        files = self.files_in(frame.sparkSession, table)
        files.require_written(context)
        return files

    def _files(self, spark: SparkSession) -> CommittedFiles:
        require_database(spark, self.table)
        return self.files_in(spark, self.describe(spark))

    def files_in(self, spark: SparkSession, description: Mapping[str, Any] | None) -> CommittedFiles:
        """The table's directory: where the catalog says, or where it would put it."""
        if description is not None:
            location = str(description["location"])
        else:
            database, table = parts_of(spark, self.table)
            location = f"{spark.catalog.getDatabase(database).locationUri}/{table.lower()}"
        if location.startswith("file:"):
            location = re.sub(r"^file:/+", "/", unquote(location))
        # A table that is there has options of its own, by which others read it.
        new = file_form.EXACT if description is None else file_form.PLAIN
        return CommittedFiles(path=location, format=self.format, options=self.options, form_if_new=new)

    def describe(self, spark: SparkSession) -> Mapping[str, Any] | None:
        """Ask the catalog for the table's description; None if it has no such table. Raises SinkError for a view."""
        if not spark.catalog.tableExists(self.table):
            return None
        description = describe_table(spark, self.table)
        if description is None:
            fault = f"'{self.table}' is a view, into which no stream can write"
            raise SinkError(code="HR419", what=fault, fix="give the table another name")
        if description["provider"] == ANOTHER_KIND:
            fault = f"'{self.table}' is not a table of files in Spark's own catalog"
            fix = "use the sink for its format, or give the table another name"
            raise SinkError(code="HR419", what=fault, fix=fix)
        return description

    def _require_partitions(self, frame: DataFrame, context: contract.SinkContext) -> None:
        if findings := list(partition_findings(self.partition_by, frame.columns, context.query)):
            raise SinkError(findings)

    def _require_fit(
        self, spark: SparkSession, description: Mapping[str, Any], schema: StructType, context: contract.SinkContext
    ) -> None:
        columns = spark.catalog.listColumns(self.table)
        there = [(column.name, column.dataType) for column in columns]
        # The catalog keeps the partition columns last.
        inside = [name for name in schema.names if name not in self.partition_by]
        wanted = [(name, schema[name].dataType.simpleString()) for name in [*inside, *self.partition_by]]
        partitions = [column.name for column in columns if column.isPartition]
        faults = []
        if description["provider"] != self.format:
            faults.append(f"it is of format {description['provider']} and not {self.format}")
        if partitions != list(self.partition_by):
            by = ", ".join(partitions) or "nothing"
            faults.append(f"it is partitioned by {by} and not by {', '.join(self.partition_by) or 'nothing'}")
        if there != wanted:
            has = ", ".join(f"{name} {kind}" for name, kind in there)
            faults.append(
                f"it has the columns {has}, the result {', '.join(f'{name} {kind}' for name, kind in wanted)}"
            )
        if faults:
            fault = f"table '{self.table}' does not fit the result of query '{context.query}': {'; '.join(faults)}"
            raise SinkError(code="HR406", what=fault, fix="change the query or the sink, or use another table")

    def _create(
        self, spark: SparkSession, schema: StructType, directory: str | None, options: Mapping[str, str]
    ) -> None:
        """Make the table; over a directory that this sink has filled before, with its rows."""
        from pyspark.errors import PySparkException

        parts = f" PARTITIONED BY ({', '.join(map(quote, self.partition_by))})" if self.partition_by else ""
        named = ", ".join(f"'{name}' = '{_escape(value)}'" for name, value in options.items())
        table = f"CREATE TABLE {self.table} ({nullable(schema).toDDL()}) USING {self.format}"
        table += (f" OPTIONS ({named})" if named else "") + parts
        try:
            if directory is None:
                spark.sql(table)
                return
            # Over a directory with a stream's log Spark would make the table without its columns.
            with TemporaryDirectory(prefix="headrace-") as empty:
                spark.sql(f"{table} LOCATION '{_escape(empty)}'")
                spark.sql(f"ALTER TABLE {self.table} SET LOCATION '{_escape(directory)}'")
        except PySparkException as error:
            fault = f"no table '{self.table}' can be made for the result of its query: {first_sentence(error)}"
            fix = "change the query's last select, or the sink's format"
            raise SinkError(code="HR404", what=fault, fix=fix) from error


@dataclass(frozen=True, kw_only=True)
class CatalogReset(FilesReset):
    """The directory of a table renamed out of the way, and back; the catalog forgets the table meanwhile."""

    sink: TableSink

    def archive(self, context: contract.SinkContext, session: contract.Session) -> None:
        directory = self.directory(session)
        super().archive(context, session)
        self._forget(session(), directory)

    def restore(self, context: contract.SinkContext, session: contract.Session) -> None:
        directory = self.directory(session)
        if aside.place_aside(directory, context).exists():
            self._forget(session(), directory)
            aside.bring_back(directory, context)

    def _forget(self, spark: SparkSession, directory: Path) -> None:
        """Drop the table, which holds nothing now, from the catalog; the next start makes it, or enters it again.

        A table that somebody has made elsewhere stays in the catalog, which alone knows where it lies.
        """
        if directory == Path(self.sink.files_in(spark, None).path).absolute() and not aside.count_files(directory):
            spark.sql(f"DROP TABLE IF EXISTS {self.sink.table}")


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace("'", "\\'")
