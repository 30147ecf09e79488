"""The files of each batch, looked at on the driver before Spark reads them.

Spark's ORC reader turns a value that does not convert into NULL, its Parquet reader cuts whole numbers that are too
long, a file that has gone is left out, and so is one beside the key=value directories: all without a word. Nothing in
Spark's public interface is called between the planning of a batch and its run; the checks that a session puts on every
analysed plan are, and the plan of a batch names its files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.connectors.files.types import incompatibilities
from headrace.contract import OptionError
from headrace.errors import Finding, SourceError
from headrace.spark.messages import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# An option of no meaning to Spark, by which a relation of ours is known; it holds the names that are NOT NULL.
OPTION = "headraceRequired"
SHAPED = ("parquet", "orc")
_READERS = 8
_SCHEMAS_KEPT = 1000


def look_at_batches(spark: SparkSession) -> None:
    """Have the batches of streams that start in this session from now on looked at; a second call changes nothing."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session that runs a query has a gateway"
    extensions = spark._jsparkSession.extensions()
    if any(known is gateway and looked_at.equals(extensions) for known, looked_at in _looked_at):
        return
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    extensions.injectCheckRule(_ForSession(_Check(gateway.jvm)))
    _looked_at[:] = [(known, each) for known, each in _looked_at if known is gateway]
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
        self.columns = _Columns(jvm)
        # Kept, because each thread has a connection of its own to the JVM.
        self.readers = ThreadPoolExecutor(_READERS)

    def apply(self, plan: Any) -> None:
        # The files of a batch alone may have been planned before the batch that holds them; each look takes time.
        if plan.nodeName() == "LogicalRelation" or not plan.isStreaming():
            return
        leaves = plan.collectLeaves()
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.nodeName() != "LogicalRelation" or not leaf.isStreaming():
                continue
            required = leaf.relation().options().get(OPTION)
            if required.isDefined():
                for problem in self.problems(leaf.relation(), frozenset(json.loads(required.get()))):
                    raise SourceError(Finding(code=problem.code, what=problem.what, fix=problem.fix))

    class Java:
        implements: ClassVar = ["scala.Function1"]

    def problems(self, relation: Any, required: frozenset[str]) -> Iterator[OptionError]:
        """What is wrong with the files of one batch."""
        location = relation.location()
        # A batch may hold nothing of this source, and Spark plans it all the same when it starts again.
        planned = location.rootPaths().mkString("\n").splitlines()
        if location.allFiles().size() != len(planned):
            there = location.allFiles().mkString("\n")
            yield from (_gone(file) for file in planned if f"path={file};" not in there)
        stray = _stray(location.partitionSpec(), planned)
        if stray:
            there = location.allFiles().mkString("\n")
            columns = ", ".join(f"{name}=..." for name in location.partitionSpec().partitionColumns().names())
            empty = {file for file in stray if f"path={file}; isDirectory=false; length=0;" in there}
            yield from (_beside(file, columns) for file in stray if file not in empty)
            planned = [file for file in planned if file not in empty]
        format_ = str(relation.fileFormat().toString()).lower()
        if format_ not in SHAPED:
            return
        declared = _struct(relation.dataSchema())
        state = relation.sparkSession().sessionState()
        conf = state.newHadoopConfWithOptions(relation.options())
        sensitive = state.conf().caseSensitiveAnalysis()

        def judged(file: str) -> OptionError | None:
            found = self.columns.of(file, format_, declared, conf, state.conf())
            if isinstance(found, OptionError):
                return found
            if not found.fields:
                return _unreadable(file, format_, "it holds nothing")
            problem = next(incompatibilities(declared, found, required, format_, case_sensitive=sensitive), None)
            return (
                None
                if problem is None
                else replace(problem, what=f"the file {_plain(file)} does not fit: {problem.what}")
            )

        yield from filter(None, map(judged, planned) if len(planned) < _READERS else self.readers.map(judged, planned))


@dataclass
class _Columns:
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
        """The columns of a file, or why they cannot be told."""
        from py4j.protocol import Py4JJavaError

        path = self._path(file)
        try:
            text, convert = (self._orc if format_ == "orc" else self._parquet)(path, conf, sql_conf)
        except Py4JJavaError as fault:
            return _unreadable(file, format_, _said(fault))
        if text not in self.known:
            if len(self.known) >= _SCHEMAS_KEPT:
                self.known.clear()
            try:
                self.known[text] = convert(None)
            except Py4JJavaError:
                # A column that nobody asks for may be of a type that Spark does not have.
                try:
                    return convert({name.lower() for name in declared.names})
                except Py4JJavaError as fault:
                    what = f"the file {_plain(file)} does not fit: Spark cannot take its columns ({_said(fault)})"
                    fix = "write the file anew with other types; then start again"
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
            return _struct(self.jvm.org.apache.spark.sql.execution.datasources.orc.OrcUtils.toCatalystSchema(shape))

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
            return _struct(converter(sql_conf).convert(shape))

        return f"parquet {message.toString()}", convert


def _stray(spec: Any, planned: list[str]) -> list[str]:
    """Files that lie in none of the key=value directories of their batch; Spark leaves them out."""
    if spec.partitionColumns().isEmpty():
        return []
    parts = spec.partitions()
    places = {parts.apply(number).path().toString() for number in range(parts.size())}
    return [file for file in planned if file.rpartition("/")[0] not in places]


def _beside(file: str, columns: str) -> OptionError:
    what = f"the file {_plain(file)} lies in no directory {columns} as the others of its batch do"
    fix = "copy it into one under another name, leave an empty file in its place, and start again"
    return OptionError(code="HR310", what=what, fix=fix)


def _gone(file: str) -> OptionError:
    fix = "put the file back and start again: the batch is read again from its beginning"
    return OptionError(code="HR303", what=f"a file of the batch has gone: {_plain(file)}", fix=fix)


def _unreadable(file: str, format_: str, reason: str) -> OptionError:
    what = f"the file {_plain(file)} cannot be read: it is no {format_} file, or not a whole one ({reason})"
    fix = "put a whole one in its place and start again: the batch is read again from its beginning"
    return OptionError(code="HR304", what=what, fix=fix)


def _plain(file: str) -> str:
    """A path as Hadoop writes it, without the scheme of the local file system."""
    return file.removeprefix("file:")


def _said(fault: Any) -> str:
    return first_line(fault.java_exception.getMessage() or fault.java_exception.toString())


def _struct(java: Any) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(java.json()))
