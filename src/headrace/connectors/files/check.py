"""The files of each batch, looked at on the driver before Spark reads them.

Spark's ORC reader turns a value that does not convert into NULL, its Parquet reader cuts whole numbers that are too
long, a file that is gone is left out, and so is one outside the key=value directories; a name that looks like a pattern
has all files of the batch read twice: all silently. Nothing in Spark's public interface is called between the planning
of a batch and its run; the checks that a session puts on every analysed plan are, and the plan of a batch names its
files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.checkpoint.sources import READ_FILES, ReadFile, ReadFiles
from headrace.connectors.spark_files import paths as file_paths
from headrace.contract import OptionError
from headrace.errors import SourceError, first_line
from headrace.spark.ddl import type_name
from headrace.spark.jvm.gateway import gateway_with_callbacks, java_session
from headrace.storage.location import place
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

# An option of no meaning to Spark, by which a relation of ours is known; it holds the names that are NOT NULL.
OPTION = "headraceRequired"
SHAPED = ("parquet", "orc")
_READERS = 8
_SCHEMAS_KEPT = 1000
# What a whole number of each type takes: digits in a decimal.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_WHOLE = tuple(_DIGITS)
# Other pairs that lose nothing: (in the file, declared). Parquet has no type of its own for many of them.
_FITS = {("float", "double"), ("void", "void"), *((whole, "double") for whole in _WHOLE[:3])}
_FITS_PARQUET = {("binary", "string"), ("string", "binary")}
# Spark reads the one as if it were the other in UTC, whatever the session's zone; a local time is what pandas writes.
_FITS_IN_UTC = {("timestamp_ntz", "timestamp"), ("timestamp", "timestamp_ntz")}
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
# How Hadoop writes the status of a file; that of S3 ends with `eTag=...`, or with `[eTag='...'` where it has locations.
_STATUS = re.compile(
    r"path=(.*); isDirectory=false; length=(\d+);.*? modification_time=(\d+);(?:.*[ \[]eTag='?\"?([^\s\"',]+))?"
)


def look_at_batches(spark: SparkSession) -> None:
    """Have the batches of streams that start in this session from now on looked at; a second call changes nothing."""
    gateway, extensions = gateway_with_callbacks(spark), java_session(spark).extensions()
    if any(owner is gateway and rules.equals(extensions) for owner, rules in _looked_at):
        return
    extensions.injectCheckRule(_ForSession(_Check(gateway.jvm)))
    _looked_at[:] = [(owner, rules) for owner, rules in _looked_at if owner is gateway]
    _looked_at.append((gateway, extensions))


# The sessions that have the check, each with the JVM that it lives in.
_looked_at: list[tuple[Any, Any]] = []


class _ForSession:
    """Spark's `SparkSession => LogicalPlan => Unit`."""

    def __init__(self, check: _Check) -> None:
        self.check = check

    def apply(self, session: Any) -> _Check:
        return self.check

    class Java:
        implements: ClassVar = ["scala.Function1"]


class _Check:
    """Spark's `LogicalPlan => Unit`; it raises for a batch that is not to run, and Spark's message shows the fault."""

    def __init__(self, jvm: Any) -> None:
        self.columns = FileColumns(jvm)
        self.session_conf = jvm.org.apache.spark.sql.internal.SQLConf.get
        self.records: dict[str, ReadFiles] = {}
        # Kept, because each thread has a connection of its own to the JVM.
        self.readers = ThreadPoolExecutor(_READERS)

    def apply(self, plan: Any) -> None:
        read: dict[str, ReadFile] = {}
        for relation, required in _batches(plan):
            batch = _Batch(relation.location())
            if len(set(batch.planned)) < len(batch.planned):
                _read_once(batch.location)
                batch = _Batch(batch.location)
            for problem in self.problems(batch, relation, required):
                raise SourceError(code=problem.code, what=problem.what, fix=problem.fix)
            files = {file_paths.local(path): file for path, file in batch.files.items()}
            read.update((path, file_paths.with_digest(file, path)) for path, file in files.items())
        if read:
            self._keep(read)

    class Java:
        implements: ClassVar = ["scala.Function1"]

    def _keep(self, read: Mapping[str, ReadFile]) -> None:
        """Record what the files of a batch are, next to the archive of its query. Raises PlatformError."""
        # In a callback the session of the stream is the active one.
        home = str(self.session_conf().getConfString(READ_FILES, ""))
        if home:
            record = self.records.setdefault(home, ReadFiles(place(home)))
            with writing_to(record.home):
                record.keep(read)

    def problems(self, batch: _Batch, relation: Any, required: frozenset[str]) -> Iterator[OptionError]:
        """Find what is wrong with the files of one batch: those that are gone, lie elsewhere, or hold other columns."""
        if named := [file for file in batch.planned if ":" in file.rpartition("/")[2]]:
            skips = relation.options().get("ignoreCorruptFiles")
            if not (skips.isDefined() and str(skips.get()).lower() == "true"):
                yield from map(_file_with_colon, named)
        yield from map(_gone_file, batch.gone_files())
        yield from (_stray_file(file, batch.directories) for file in batch.stray())
        format_ = str(relation.fileFormat().toString()).lower()
        if format_ in SHAPED:
            judge = self._judge(relation, format_, required)
            whole = [file for file in batch.planned if not batch.is_empty_stray(file)]
            yield from filter(None, map(judge, whole) if len(whole) < _READERS else self.readers.map(judge, whole))

    def _judge(self, relation: Any, format_: str, required: frozenset[str]) -> Callable[[str], OptionError | None]:
        """Return the function that compares the columns of a file with those that the source declares."""
        declared = struct(relation.dataSchema())
        state = relation.sparkSession().sessionState()
        conf, sql_conf = state.newHadoopConfWithOptions(relation.options()), state.conf()
        sensitive, in_utc = sql_conf.caseSensitiveAnalysis(), str(sql_conf.sessionLocalTimeZone()) in _UTC

        def judge_file(file: str) -> OptionError | None:
            columns = self.columns.of(file, format_, declared, conf, sql_conf)
            if isinstance(columns, OptionError):
                return columns
            if not columns.fields:
                return unreadable(file, format_, "it holds nothing")
            problems = incompatibilities(declared, columns, required, format_, case_sensitive=sensitive, in_utc=in_utc)
            problem = next(problems, None)
            return problem and replace(problem, what=f"the file {plain(file)} does not fit: {problem.what}")

        return judge_file


def _batches(plan: Any) -> Iterator[tuple[Any, frozenset[str]]]:
    """The relations of a stream's batch that a files source of ours made, each with the names that are NOT NULL."""
    # The files of a batch alone may have been planned before the batch that holds them; each look takes time.
    # First what most plans are not: each question is a call into the JVM, several times a batch.
    if not plan.isStreaming() or plan.nodeName() == "LogicalRelation":
        return
    leaves = plan.collectLeaves()
    for leaf in map(leaves.apply, range(leaves.size())):
        if leaf.nodeName() == "LogicalRelation" and leaf.isStreaming():
            relation = leaf.relation()
            required = relation.options().get(OPTION)
            if required.isDefined():
                yield relation, frozenset(json.loads(required.get()))


@dataclass(frozen=True)
class _Batch:
    """The files that Spark planned for one source of one batch, and those of them that are there."""

    location: Any

    @cached_property
    def planned(self) -> list[str]:
        """Their paths; none where the batch holds nothing of this source and is planned again by a start."""
        return str(self.location.rootPaths().mkString("\n")).splitlines()

    @cached_property
    def files(self) -> dict[str, ReadFile]:
        """The files that exist, by their paths, as Spark has listed them; in one question to the JVM."""
        statuses = _STATUS.findall(self._listed.mkString("\n"))
        return {
            path: ReadFile(modified_ms=int(time), size_bytes=int(size), etag=None if tag in ("", "null") else tag)
            for path, size, time, tag in statuses
        }

    @cached_property
    def _listed(self) -> Any:
        return self.location.allFiles()

    def gone_files(self) -> list[str]:
        """Return the files that no longer exist."""
        if self._listed.size() == len(self.planned):
            return []
        return [file for file in self.planned if file not in self.files]

    @cached_property
    def _outside(self) -> frozenset[str]:
        """The files in none of the key=value directories of the batch."""
        spec = self.location.partitionSpec()
        if spec.partitionColumns().isEmpty():
            return frozenset()
        parts = spec.partitions()
        inside = {parts.apply(number).path().toString() for number in range(parts.size())}
        return frozenset(file for file in self.planned if file.rpartition("/")[0] not in inside)

    def stray(self) -> list[str]:
        """Return the files with rows outside of the key=value directories; Spark leaves them out."""
        return [file for file in self.planned if file in self._outside and not self.is_empty_stray(file)]

    def is_empty_stray(self, file: str) -> bool:
        """Whether a file lies outside of the key=value directories and holds nothing that could be left out."""
        return file in self._outside and file in self.files and self.files[file].size_bytes == 0

    @property
    def directories(self) -> str:
        """How the directories of the batch are named."""
        return ", ".join(f"{name}=..." for name in self.location.partitionSpec().partitionColumns().names())


def _read_once(location: Any) -> None:
    """Have each file of a batch read once.

    Where a name looks like a pattern (one of {}[]*? or a backslash), Spark does not expand it, as the file source asks
    for; but it puts all paths of the batch in its place (DataSource.checkAndGlobPathIfNecessary), so that a batch with
    two such names has the rows of each file three times. The list of a batch's paths can be set by reflection alone.
    """
    paths = location.rootPaths()
    distinct = paths.distinct()
    if distinct.size() == paths.size():
        return
    listed = location.getClass()
    while listed is not None:
        members = [member for member in listed.getDeclaredFields() if member.getName() == "rootPaths"]
        if members:
            members[0].setAccessible(True)
            members[0].set(location, distinct)
            break
        listed = listed.getSuperclass()
    if location.rootPaths().size() != distinct.size():
        fault = "a name of a file in the batch holds one of {}[]*? or a backslash, and Spark would read files twice"
        fix = "set max_files_per_trigger to 1, and start again"
        raise SourceError(code="HR304", what=fault, fix=fix)


def _file_with_colon(file: str) -> OptionError:
    return OptionError(
        code="HR304",
        what=f"the name '{file.rpartition('/')[2]}' of a file holds a colon, which Hadoop takes for the end of a "
        f"scheme: Spark cannot read {plain(file)}",
        fix="copy it there under another name, start once with the source's option ignoreCorruptFiles: true, which "
        "leaves it out, and then without that option",
    )


def _stray_file(file: str, columns: str) -> OptionError:
    fault = f"the file {plain(file)} lies in no directory {columns} as the others of its batch do"
    fix = "copy it into one under another name, leave an empty file in its place, and start again"
    return OptionError(code="HR310", what=fault, fix=fix)


def _gone_file(file: str) -> OptionError:
    fix = "put the file back and start again: the batch is read again from its beginning"
    return OptionError(code="HR303", what=f"a file of the batch is gone: {plain(file)}", fix=fix)


@dataclass
class FileColumns:
    """The columns that files declare; files of one schema share one value."""

    jvm: Any
    schemas: dict[str, StructType] = field(default_factory=dict)

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
        from pyspark.errors import PySparkException

        path = self._classes[0](file)
        try:
            text, convert = (self._orc if format_ == "orc" else self._parquet)(path, conf, sql_conf)
        except Py4JJavaError as error:
            return unreadable(file, format_, _reason(error))
        if text not in self.schemas:
            if len(self.schemas) >= _SCHEMAS_KEPT:
                self.schemas.clear()
            try:
                self.schemas[text] = convert(None)
            except (Py4JJavaError, PySparkException):
                # A column that is not read may be of a type that Spark does not have.
                try:
                    return convert({name.lower() for name in declared.names})
                except (Py4JJavaError, PySparkException) as error:
                    fault = f"the file {plain(file)} does not fit: Spark cannot take its columns ({_reason(error)})"
                    fix = "rewrite the file with other types; then start again"
                    return OptionError(code="HR308", what=fault, fix=fix)
        return self.schemas[text]

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
                fields = [column for column in message.getFields() if column.getName().lower() in wanted]
                shape = self.jvm.org.apache.parquet.schema.MessageType(message.getName(), fields)
            converter = self.jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter
            return struct(converter(sql_conf).convert(shape))

        return f"parquet {message.toString()}", convert


def unreadable(file: str, format_: str, reason: str) -> OptionError:
    """A file that is not what its source's format says."""
    article = "an" if format_[0] in "aox" else "a"
    fault = f"the file {plain(file)} cannot be read: it is not {article} {format_} file, or not a whole one ({reason})"
    fix = "put a whole one in its place and start again: the batch is read again from its beginning"
    return OptionError(code="HR304", what=fault, fix=fix)


def plain(file: str) -> str:
    """A path as Hadoop writes it, without the scheme of the local file system."""
    return file.removeprefix("file:")


def _reason(error: Any) -> str:
    java = getattr(error, "java_exception", None)
    return first_line(str(error) if java is None else java.getMessage() or java.toString())


def struct(java: Any) -> StructType:
    """A schema of the JVM's as PySpark has it."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(java.json()))


def incompatibilities(
    declared: StructType,
    in_file: StructType,
    required: frozenset[str],
    format_: str,
    *,
    case_sensitive: bool,
    in_utc: bool = True,
) -> Iterator[OptionError]:
    """Find what is wrong with a file of the columns `in_file`: HR308 for a type and for a missing column.

    A column that the file lacks is NULL in each of its rows; that is allowed unless it is declared NOT NULL, or the
    file has none of the declared columns at all. Columns that are not declared are left out.
    """
    key: Callable[[str], str] = str if case_sensitive else str.lower
    by_name = {key(column.name): column for column in in_file.fields}
    if in_file.fields and all(name.startswith("_col") for name in in_file.names) and format_ == "orc":
        # Hive wrote no names, and Spark goes by position.
        by_name = {key(want.name): have for want, have in zip(declared.fields, in_file.fields, strict=False)}
    also = _FITS_PARQUET | (_FITS_IN_UTC if in_utc else set()) if format_ == "parquet" else set()
    there = [column for column in declared.fields if key(column.name) in by_name]
    for column in there:
        of_file = by_name[key(column.name)].dataType
        for path, have, want in _differences(column.name, of_file, column.dataType, also):
            fault = f"its column '{path}' is {have}, and the schema says {want}"
            fix = f"rewrite the file with {path} as {want}, or correct the schema; then start again"
            yield OptionError(code="HR308", what=fault, fix=fix)
    not_there = [column.name for column in declared.fields if column not in there]
    missing = [name for name in not_there if name in required]
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        fault = f"it lacks {named}, which the schema says is NOT NULL"
        fix = "rewrite the file with it, or leave out NOT NULL; then start again"
        yield OptionError(code="HR308", what=fault, fix=fix)
    elif declared.fields and not there:
        has = ", ".join(in_file.names[:8]) + (", ..." if len(in_file.names) > 8 else "")
        fault = f"it has none of the columns of the schema but {has or 'none at all'}"
        fix = "correct the schema, or put a file of this schema in its place; then start again"
        yield OptionError(code="HR308", what=fault, fix=fix)


def _differences(
    path: str, in_file: DataType, declared: DataType, also: AbstractSet[tuple[str, str]]
) -> Iterator[tuple[str, str, str]]:
    """Find the types that do not fit: the place in the column, the type in the file and the declared one.

    also: pairs of types that fit in files of the format.
    """
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(in_file, StructType) and isinstance(declared, StructType):
        by_name = {column.name.lower(): column for column in in_file.fields}
        for column in declared.fields:
            if column.name.lower() in by_name:
                of_file = by_name[column.name.lower()].dataType
                yield from _differences(f"{path}.{column.name}", of_file, column.dataType, also)
    elif isinstance(in_file, ArrayType) and isinstance(declared, ArrayType):
        yield from _differences(f"{path}[]", in_file.elementType, declared.elementType, also)
    elif isinstance(in_file, MapType) and isinstance(declared, MapType):
        yield from _differences(f"{path}.key", in_file.keyType, declared.keyType, also)
        yield from _differences(f"{path}.value", in_file.valueType, declared.valueType, also)
    elif not _fits(in_file, declared, also):
        yield path, type_name(in_file), type_name(declared)


def _fits(actual: DataType, declared: DataType, also: AbstractSet[tuple[str, str]]) -> bool:
    from pyspark.sql.types import CharType, DecimalType, NullType, StringType, VarcharType

    texts = (StringType, VarcharType, CharType)
    if (
        actual == declared
        or isinstance(actual, NullType)
        or (isinstance(actual, texts) and isinstance(declared, texts))
    ):
        return True
    have, want = actual.simpleString(), declared.simpleString()
    if have in _WHOLE and want in _WHOLE:
        return _WHOLE.index(have) <= _WHOLE.index(want)
    if isinstance(declared, DecimalType):
        whole = declared.precision - declared.scale
        if isinstance(actual, DecimalType):
            return actual.scale <= declared.scale and actual.precision - actual.scale <= whole
        return have in _WHOLE and _DIGITS[have] <= whole
    return (have, want) in _FITS or (have, want) in also
