"""Files in Spark: local ones without a process for each, literal paths, and what its own formats and logs take.

Where Hadoop finds no native library, and Spark brings none, it starts `chmod` for each file that it makes, and for the
checksum of each: some milliseconds a time, many times in a tiny batch. The library hadoop-bare-naked-local-fs asks Java
instead. It is used where its jar is here, in sessions that run on this machine alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import Finding, PlatformError
from headrace.spark.jvm import jars
from headrace.spark.jvm.gateway import execution_of, gateway_of, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIBRARY = "local-files"
SETTING = "spark.hadoop.fs.file.impl"
FILE_SYSTEM = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
# The driver's file system is asked for before `spark.jars` are there.
CLASS_PATH = "spark.driver.extraClassPath"
# What Hadoop's file patterns give a meaning. Source: org.apache.hadoop.fs.GlobPattern.
_MEANINGFUL = re.compile(r"([\\{}\[\]*?])")


def jar() -> Path | None:
    """The library's jar, if it is here."""
    library = jars.find(jars.known_connectors()[LIBRARY])
    return library[0] if library and not re.search(r"[\s:]", str(library[0])) else None


def settings(own: Mapping[str, str]) -> dict[str, str]:
    """What a local session needs for it, with its `own` settings; nothing without the jar, or with another choice."""
    if jar() is None or SETTING in own:
        return {}
    return {SETTING: FILE_SYSTEM, **class_path_settings(own)}


def class_path_settings(own: Mapping[str, str]) -> dict[str, str]:
    """The library first on the driver's class path, where a CDS archive has it; it is not used by that alone."""
    file, further = jar(), own.get(CLASS_PATH)
    return {} if file is None else {CLASS_PATH: f"{file}:{further}" if further else str(file)}


def ensure() -> None:
    """Fetch the jar if it is not here; where it is not to be had, one sentence goes to stderr."""
    if jars.find(jars.known_connectors()[LIBRARY]) is not None:
        return
    try:
        jars.install(jars.known_connectors()[LIBRARY], jars.cache())
    except PlatformError as error:
        message = f"each file of a checkpoint takes some milliseconds longer: {error.findings[0].what}"
        print(Finding(code="HR003", what=message), file=sys.stderr)


def escape_pattern(path: str) -> str:
    """`path` as a reader of Spark has to be given it to read that very path."""
    return _MEANINGFUL.sub(r"\\\1", path)


def can_hold_column(frame: DataFrame, column: str, file_format: str) -> bool:
    """Whether files of a format of Spark's can hold a column of `frame`; `file_format`: as `csv.CSVFileFormat`."""
    from pyspark.errors import PySparkException

    jvm = jvm_of(frame.sparkSession)
    sources = jvm.org.apache.spark.sql.execution.datasources
    package, _, name = file_format.partition(".")
    one = jvm.org.apache.spark.sql.types.StructType().add(execution_of(frame).analyzed().schema().apply(column))
    try:
        sources.DataSourceUtils.verifySchema(getattr(getattr(sources, package), name)(), one, False)
    except PySparkException:
        return False
    return True


def enter_empty(spark: SparkSession, log: str, batches: Sequence[int]) -> Iterator[int]:
    """Enter batches without files into the log of Spark's file sink; yields each that it did not have, once entered."""
    jvm = jvm_of(spark)
    sinks = jvm.org.apache.spark.sql.execution.streaming.sinks
    none = getattr(jvm, "scala.Option").apply(None)
    written = sinks.FileStreamSinkLog(1, java_session(spark), log, none)
    for batch in batches:
        last = written.getLatestBatchId()
        if last.isDefined() and last.get() < batch:
            written.add(batch, gateway_of(spark).new_array(sinks.SinkFileStatus, 0))
            yield batch


def first_missing(spark: SparkSession, directory: Any, paths: Iterable[str]) -> str:
    """The first of `paths`, as a table's log writes them, that is not a file; "": all are there.

    directory: that of the table, a Path of Hadoop's, against which relative ones are resolved.
    """
    jvm = jvm_of(spark)
    system = directory.getFileSystem(java_session(spark).sessionState().newHadoopConf())
    for path in paths:
        uri = jvm.java.net.URI(path)
        whole = jvm.org.apache.hadoop.fs.Path(uri) if uri.isAbsolute() else None
        if not system.exists(whole or jvm.org.apache.hadoop.fs.Path(directory, jvm.org.apache.hadoop.fs.Path(uri))):
            return path
    return ""
