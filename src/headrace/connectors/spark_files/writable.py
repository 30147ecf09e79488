"""Which columns of a result Spark's own file formats can write, as Spark itself says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.connectors.not_asked import twice
from headrace.contract import SinkContext
from headrace.errors import Finding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CLASSES = {
    "csv": "CSVFileFormat",
    "json": "JsonFileFormat",
    "orc": "OrcFileFormat",
    "parquet": "ParquetFileFormat",
    "text": "TextFileFormat",
}


def unwritable(frame: DataFrame, format: str, partition_by: Sequence[str], run: SinkContext) -> Iterator[Finding]:
    """What of the result files of `format` cannot hold; Spark would say so in the first batch."""
    for what in twice(frame.columns):
        yield _finding(run, what, "rename one of the two in the query's last select")
    inside = [part for part in frame.schema.fields if part.name not in partition_by]
    for part in inside:
        if not _is_supported(frame, format, part.name):
            what = f"column '{part.name}' is {part.dataType.simpleString()}, which files of {format} cannot hold"
            yield _finding(run, what, "cast it to another type in the query's last select")
    if format == "text" and len(inside) != 1:
        what = (
            f"a file of text holds one column, and there are {len(inside)}: {', '.join(part.name for part in inside)}"
        )
        yield _finding(run, what, "join them to one text by concat_ws, or choose another format")


def _is_supported(frame: DataFrame, format: str, column: str) -> bool:
    from pyspark.errors import PySparkException

    jvm: Any = frame.sparkSession._jvm
    sources = jvm.org.apache.spark.sql.execution.datasources
    one = jvm.org.apache.spark.sql.types.StructType().add(frame._jdf.schema().apply(column))
    try:
        sources.DataSourceUtils.verifySchema(getattr(getattr(sources, format), _CLASSES[format])(), one, False)
    except PySparkException:
        return False
    return True


def _finding(run: SinkContext, what: str, fix: str) -> Finding:
    return Finding(code="HR404", what=f"the result of query '{run.query}': {what}", fix=fix)
