"""The columns that parquet and orc files tell of themselves, asked of the JVM file by file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.contract import OptionError
from headrace.spark.messages.refusals import first_line

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SCHEMAS_KEPT = 1000


@dataclass
class FileColumns:
    """The columns that files tell of themselves; files of one schema share one value."""

    jvm: Any
    known: dict[str, StructType] = field(default_factory=dict)

    # Found once, since each part of a class's name is a question to the JVM.

    @cached_property
    def _path(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path

    @cached_property
    def _input(self) -> Any:
        return self.jvm.org.apache.parquet.hadoop.util.HadoopInputFile

    @cached_property
    def _footer(self) -> Any:
        return self.jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFooterReader

    @cached_property
    def _without_rows(self) -> Any:
        return self.jvm.org.apache.parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS

    def of(self, file: str, format_: str, declared: StructType, conf: Any, sql_conf: Any) -> StructType | OptionError:
        """The columns of a file, or why they cannot be determined."""
        from py4j.protocol import Py4JJavaError

        path = self._path(file)
        try:
            text, convert = (self._orc if format_ == "orc" else self._parquet)(path, conf, sql_conf)
        except Py4JJavaError as error:
            return unreadable(file, format_, _said(error))
        if text not in self.known:
            if len(self.known) >= _SCHEMAS_KEPT:
                self.known.clear()
            try:
                self.known[text] = convert(None)
            except Py4JJavaError:
                # A column that nobody asks for may be of a type that Spark does not have.
                try:
                    return convert({name.lower() for name in declared.names})
                except Py4JJavaError as error:
                    what = f"the file {plain(file)} does not fit: Spark cannot take its columns ({_said(error)})"
                    fix = "rewrite the file with other types; then start again"
                    return OptionError(code="HR308", what=what, fix=fix)
        return self.known[text]

    def _orc(self, path: Any, conf: Any, sql_conf: Any) -> tuple[str, Callable[[set[str] | None], StructType]]:
        orc = self.jvm.org.apache.orc
        reader = orc.OrcFile.createReader(path, orc.OrcFile.readerOptions(conf))
        try:
            schema = reader.getSchema()
        finally:
            reader.close()

        def convert(wanted: set[str] | None) -> StructType:
            shape = schema
            if wanted is not None:
                shape = orc.TypeDescription.createStruct()
                for name, child in zip(schema.getFieldNames(), schema.getChildren(), strict=True):
                    if name.lower() in wanted:
                        shape.addField(name, child.clone())
            return struct(self.jvm.org.apache.spark.sql.execution.datasources.orc.OrcUtils.toCatalystSchema(shape))

        return f"orc {schema.toJson()}", convert

    def _parquet(self, path: Any, conf: Any, sql_conf: Any) -> tuple[str, Callable[[set[str] | None], StructType]]:
        message = (
            self._footer.readFooter(self._input.fromPath(path, conf), self._without_rows).getFileMetaData().getSchema()
        )

        def convert(wanted: set[str] | None) -> StructType:
            shape = message
            if wanted is not None:
                fields = [each for each in message.getFields() if each.getName().lower() in wanted]
                shape = self.jvm.org.apache.parquet.schema.MessageType(message.getName(), fields)
            converter = self.jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter
            return struct(converter(sql_conf).convert(shape))

        return f"parquet {message.toString()}", convert


def unreadable(file: str, format_: str, reason: str) -> OptionError:
    """A file that is not what its source's format says."""
    what = f"the file {plain(file)} cannot be read: it is no {format_} file, or not a whole one ({reason})"
    fix = "put a whole one in its place and start again: the batch is read again from its beginning"
    return OptionError(code="HR304", what=what, fix=fix)


def plain(file: str) -> str:
    """A path as Hadoop writes it, without the scheme of the local file system."""
    return file.removeprefix("file:")


def _said(error: Any) -> str:
    return first_line(error.java_exception.getMessage() or error.java_exception.toString())


def struct(java: Any) -> StructType:
    """A schema of the JVM's as PySpark has it."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(java.json()))
