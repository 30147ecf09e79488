"""Read the rows of a table of Spark's own catalog as they are added."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.connectors.options import not_above_zero, spark_options
from headrace.connectors.spark_catalog import no_name
from headrace.connectors.spark_files import paths as file_paths
from headrace.connectors.spark_files import prefix as file_prefix
from headrace.contract import Identity, OptionError, Source, SourceFacts, SourcePrefix, canonical_table
from headrace.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("text", "csv", "json", "parquet", "orc")
ANOTHER_KIND = "another kind"
_OURS = {"path", "basepath", "maxfilespertrigger", "cleansource", "sourcearchivedir"}


@dataclass(frozen=True, kw_only=True)
class CatalogTable(Source):
    """Read the files of a table in one of Spark's file formats, each once, oldest first.

    Source: Structured Streaming guide, "Streaming Table APIs". Of a table that a stream writes only the files of whole
    batches are read. A table is a stream as long as rows are only added: rows that are overwritten or deleted were
    given already, and what replaces them is given as new. Spark's catalog in memory forgets its tables with the
    session.

    options: those of Spark's reader for the table's format.
    """

    tuning_options: ClassVar[tuple[str, ...]] = ("max_files_per_trigger",)
    facts: ClassVar[SourceFacts] = SourceFacts(replayable=True, rate_limited=True)
    table: str
    max_files_per_trigger: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def catalog_table(self) -> str:
        return canonical_table(self.table)

    def identity(self) -> Identity:
        return {"system": "catalog", "table": self.catalog_table}

    def problems(self) -> Iterator[OptionError]:
        yield from no_name(self.table)
        yield from not_above_zero(self, "max_files_per_trigger")
        for option in self.options:
            if option.lower() in _OURS:
                fix = "use the source's own field, or source.files for the table's directory"
                yield OptionError(what=f"options may not set '{option}'", fix=fix)

    def object_ids(self, spark: SparkSession) -> dict[str, str]:
        """When a table was made, by a catalog that lasts; one in memory makes it in each session."""
        if spark.conf.get("spark.sql.catalogImplementation") != "hive" or not spark.catalog.tableExists(self.table):
            return {}
        made = self._describe(spark).get("created_time")
        return {self.table: str(made)} if made else {}

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        self._describe(spark)
        options = {**self.options, **spark_options(self, "max_files_per_trigger")}
        return spark.readStream.name(name).options(**options).table(self.table)

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        """The files that Spark's log of the source names, by the table's format, schema and directory."""
        description = self._describe(spark)
        schema = spark.readStream.name("shape").table(self.table).schema
        taken = file_prefix.files(prefix)
        if not taken:
            return file_prefix.empty_frame(spark, schema, batch_column, None)
        reader = spark.read.format(str(description["provider"])).schema(schema)
        reader = reader.options(**{**description.get("storage_properties", {}), **self.options})
        places = file_prefix.places(taken, str(description["location"]), None)
        return file_prefix.frame(reader, places, batch_column, None)

    def mismatch(self, prefix: SourcePrefix) -> str:
        # Only the catalog knows where the files of the table lie, and it can be asked in a session only.
        return file_prefix.mismatch(prefix, "/")

    def ensure_available(self, prefix: SourcePrefix) -> None:
        file_prefix.places(file_prefix.files(prefix), "", None)

    def changed(self, prefix: SourcePrefix) -> OptionError | None:
        return file_prefix.find_change(prefix)

    def left_out(self, prefix: SourcePrefix) -> Iterator[OptionError]:
        with suppress(SourceError):  # `read` reports what the log lacks.
            yield from file_prefix.warn_of_changes(prefix)

    def _describe(self, spark: SparkSession) -> Mapping[str, Any]:
        """Ask the catalog for the table's description. Raises SourceError where it cannot be read as a stream."""
        if not spark.catalog.tableExists(self.table):
            raise SourceError(
                code="HR332",
                what=f"the catalog has no table '{self.table}'",
                fix="make it, or run the query that writes it, in the same run or before; a catalog in memory forgets "
                "tables of other programs with the session, one with spark.sql.catalogImplementation: hive does not",
            )
        description = describe_table(spark, self.table)
        if description is None:
            fault = f"'{self.table}' is a view, and views of the catalog cannot be read as a stream"
            fix = "declare the tables below it as sources, and write its SELECT as a view of the project"
            raise SourceError(code="HR332", what=fault, fix=fix)
        if description.get("provider") not in FORMATS:
            fault = f"table '{self.table}' is of format {description.get('provider')}, which this source does not read"
            fix = f"use the source for that format; this one reads {', '.join(FORMATS)}"
            raise SourceError(code="HR332", what=fault, fix=fix)
        location = file_paths.from_log(str(description.get("location", "")))
        if file_paths.is_glob(location) or "\\" in location:
            raise SourceError(
                code="HR332",
                what=f"the directory of table '{self.table}', {location}, holds one of {{}}[]*? or a backslash: Spark "
                "takes it for a pattern, and would leave out rows or read them twice",
                fix="keep the table, or the project, in a directory without these characters",
            )
        return description


def describe_table(spark: SparkSession, table: str) -> Mapping[str, Any] | None:
    """Ask the catalog for the description of a table that it has; None: it is a view."""
    from pyspark.errors import AnalysisException

    if spark.catalog.getTable(table).tableType not in ("MANAGED", "EXTERNAL"):
        return None
    try:
        description: Mapping[str, Any] = json.loads(spark.sql(f"DESCRIBE EXTENDED {table} AS JSON").collect()[0][0])
        return description
    except AnalysisException:
        # Tables of another catalog's own kind, as of Delta Lake, are not described so.
        return {"provider": ANOTHER_KIND}
