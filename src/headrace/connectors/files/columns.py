"""The columns that parquet and orc files tell of themselves, asked of the JVM file by file, and whether they fit.

A file fits if its columns can be taken for the declared ones without losing a value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.contract import OptionError
from headrace.errors import first_line
from headrace.spark.ddl import type_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SCHEMAS_KEPT = 1000
# What a whole number of each type takes: digits in a decimal.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_WHOLE = tuple(_DIGITS)
# Other pairs that lose nothing: (in the file, declared). Parquet has no type of its own for many of them.
_FITS = {("float", "double"), ("void", "void"), *((whole, "double") for whole in _WHOLE[:3])}
_FITS_PARQUET = {
    ("binary", "string"),
    ("string", "binary"),
    ("timestamp_ntz", "timestamp"),
    ("timestamp", "timestamp_ntz"),
}


@dataclass
class FileColumns:
    """The columns that files tell of themselves; files of one schema share one value."""

    jvm: Any
    known: dict[str, StructType] = field(default_factory=dict)

    @cached_property
    def _classes(self) -> tuple[Any, Any, Any, Any]:
        """Found once, since each part of a class's name is a question to the JVM."""
        apache = self.jvm.org.apache
        footers = apache.spark.sql.execution.datasources.parquet.ParquetFooterReader
        without_rows = apache.parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS
        return apache.hadoop.fs.Path, apache.parquet.hadoop.util.HadoopInputFile, footers, without_rows

    def of(self, file: str, format_: str, declared: StructType, conf: Any, sql_conf: Any) -> StructType | OptionError:
        """The columns of a file, or why they cannot be determined."""
        from py4j.protocol import Py4JJavaError

        path = self._classes[0](file)
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
        _, inputs, footers, without_rows = self._classes
        message = footers.readFooter(inputs.fromPath(path, conf), without_rows).getFileMetaData().getSchema()

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


def incompatibilities(
    declared: StructType, found: StructType, required: frozenset[str], format_: str, *, case_sensitive: bool
) -> Iterator[OptionError]:
    """What is wrong with a file of the columns `found`: HR308 for a type, HR308 for what is not there.

    A column that the file lacks is NULL in each of its rows; that is allowed unless it is declared NOT NULL, or the
    file has none of the declared columns at all. Columns that are not declared are left out.
    """
    key: Callable[[str], str] = str if case_sensitive else str.lower
    known = {key(column.name): column for column in found.fields}
    if found.fields and all(name.startswith("_col") for name in found.names) and format_ == "orc":
        # Hive wrote no names, and Spark goes by position.
        known = {key(want.name): have for want, have in zip(declared.fields, found.fields, strict=False)}
    there = [column for column in declared.fields if key(column.name) in known]
    for column in there:
        of_file = known[key(column.name)].dataType
        for path, have, want in _differences(column.name, of_file, column.dataType, format_):
            what = f"its column '{path}' is {have}, and the schema says {want}"
            fix = f"rewrite the file with {path} as {want}, or correct the schema; then start again"
            yield OptionError(code="HR308", what=what, fix=fix)
    not_there = [column.name for column in declared.fields if column not in there]
    missing = [name for name in not_there if name in required]
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        what = f"it lacks {named}, which the schema says is NOT NULL"
        fix = "rewrite the file with it, or leave out NOT NULL; then start again"
        yield OptionError(code="HR308", what=what, fix=fix)
    elif declared.fields and not there:
        has = ", ".join(found.names[:8]) + (", ..." if len(found.names) > 8 else "")
        what = f"it has none of the columns of the schema but {has or 'none at all'}"
        fix = "correct the schema, or put a file of this schema in its place; then start again"
        yield OptionError(code="HR308", what=what, fix=fix)


def _differences(path: str, found: DataType, declared: DataType, format_: str) -> Iterator[tuple[str, str, str]]:
    """Where the types differ in earnest: the place in the column, the type in the file and the declared one."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(found, StructType) and isinstance(declared, StructType):
        known = {column.name.lower(): column for column in found.fields}
        for column in declared.fields:
            if column.name.lower() in known:
                of_file = known[column.name.lower()].dataType
                yield from _differences(f"{path}.{column.name}", of_file, column.dataType, format_)
    elif isinstance(found, ArrayType) and isinstance(declared, ArrayType):
        yield from _differences(f"{path}[]", found.elementType, declared.elementType, format_)
    elif isinstance(found, MapType) and isinstance(declared, MapType):
        yield from _differences(f"{path}.key", found.keyType, declared.keyType, format_)
        yield from _differences(f"{path}.value", found.valueType, declared.valueType, format_)
    elif not _fits(found, declared, format_):
        yield path, type_name(found), type_name(declared)


def _fits(found: DataType, declared: DataType, format_: str) -> bool:
    from pyspark.sql.types import CharType, DecimalType, NullType, StringType, VarcharType

    texts = (StringType, VarcharType, CharType)
    if found == declared or isinstance(found, NullType) or (isinstance(found, texts) and isinstance(declared, texts)):
        return True
    have, want = found.simpleString(), declared.simpleString()
    if have in _WHOLE and want in _WHOLE:
        return _WHOLE.index(have) <= _WHOLE.index(want)
    if isinstance(declared, DecimalType):
        whole = declared.precision - declared.scale
        if isinstance(found, DecimalType):
            return found.scale <= declared.scale and found.precision - found.scale <= whole
        return have in _WHOLE and _DIGITS[have] <= whole
    return (have, want) in _FITS or (format_ == "parquet" and (have, want) in _FITS_PARQUET)
