"""A transformation applied to its inputs: the same code path for streams, batches and verification.

A catalog in memory forgets its tables with the session, and before the first run there are none. The rows lie in the
table's directory all the same, and what the columns are is reported by the query that writes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.contract import CatalogSink
from headrace.errors import NOWHERE, CheckFailed, Finding, HeadraceError, Where, nearest
from headrace.frames.project_code import send_code
from headrace.model import Counter, NamedSource, Project, PythonTransform, Query, SqlTransform, Table, Transform, View
from headrace.spark.jvm.gateway import working_directory
from headrace.spark.messages.failures import known_failure
from headrace.spark.messages.refusals import finding_of, with_directories
from headrace.spark.plans.source_uses import rename_repeated_sources
from headrace.spark.stream import broadcasts
from headrace.spark.stream.counting import QueryCounter as UncountedCounter
from headrace.user_code import innermost, is_installed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Reader = Callable[[NamedSource], "DataFrame"]
# A session has one set of names, and tables are refreshed while other DataFrames are built.
_NAMES = threading.Lock()


def build(
    project: Project,
    transform: Transform,
    spark: SparkSession,
    read: Reader,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> DataFrame:
    """Return the DataFrame of `transform`, with each source given by `read` and its watermark put on.

    Views are inlined, tables and broadcasts computed, and counters do not count, but for what `given` holds. On a batch
    DataFrame a watermark has no effect (guide: "Handling Late Data and Watermarking"). A stream that is used in several
    places is a source of its own in each. Raises CheckFailed when the user's function or SQL fails or returns no
    DataFrame.
    """
    send_code(project, spark)
    return rename_repeated_sources(spark, _Builder(project, spark, read, given).apply(transform, "result"))


def value_of(project: Project, table: Table, spark: SparkSession, read: Reader, given: Mapping[str, Any]) -> Any:
    """Return the value of a broadcast; otherwise as `build`."""
    send_code(project, spark)
    return _Builder(project, spark, read, given).value(table)


class TableRefused(CheckFailed):
    """A table was computed, and what came out is not what its queries can use."""


class _Builder:
    """Builds each input once."""

    def __init__(self, project: Project, spark: SparkSession, read: Reader, given: Mapping[str, Any]) -> None:
        self.project = project
        self.spark = spark
        self.read = read
        self.declared = {**project.inputs(), **project.counters}
        self.done: dict[str, Any] = dict(given)

    def resolve(self, name: str, where: Where) -> Any:
        if name not in self.done:
            thing = self.declared.get(name)
            if thing is None:
                raise CheckFailed(
                    code="HR204",
                    what=f"no source, table or view is named '{name}'",
                    fix=nearest(name, self.declared),
                    where=where,
                )
            self.done[name] = self.make(thing)
        return self.done[name]

    def make(self, thing: NamedSource | Table | View | Counter) -> Any:
        if isinstance(thing, Counter):
            return UncountedCounter(thing.name, thing.zero, thing.param)
        if isinstance(thing, NamedSource):
            return self.source(thing)
        if isinstance(thing, Table) and thing.broadcast:
            return broadcasts.broadcast(self.spark, self.value(thing), refreshed=thing.name if thing.refresh else None)
        return self.apply(thing.transform, thing.name)

    def value(self, thing: Table) -> Any:
        """Return what the function of a broadcast returns."""
        value = self.apply_by(thing.transform, thing.name, self.call)
        if value is None:
            raise TableRefused(_unusable_broadcast(thing, "its function returned nothing"))
        try:
            broadcasts.digest(value)
        except Exception as error:
            problem = f"its value of type {type(value).__name__} cannot be sent to the workers: {error}"
            raise TableRefused(_unusable_broadcast(thing, problem.split("\n")[0])) from error
        return value

    def source(self, source: NamedSource) -> DataFrame:
        try:
            frame = self.read(source)
        except HeadraceError as error:
            # A connector does not know where it was declared.
            findings = [
                finding.reword(where=source.where) if finding.where == NOWHERE else finding
                for finding in error.findings
            ]
            raise type(error)(findings) from error
        except Exception as error:
            subject = f"source '{source.name}'"
            # What Spark finds in the directory may be what a batch would have ended with.
            of_batch = partial(
                known_failure, str(error), subject=subject, where=source.where, connectors=(source.connector,)
            )
            finding = finding_of(error, where=source.where, subject=subject, otherwise=of_batch)
            raise CheckFailed(finding) from error
        if source.watermark is not None:
            try:
                frame = frame.withWatermark(source.watermark.column, source.watermark.delay.spark_interval)
            except Exception as error:
                raise CheckFailed(finding_of(error, where=source.where, subject=f"source '{source.name}'")) from error
        return frame

    def apply(self, transform: Transform, name: str) -> DataFrame:
        return self.apply_by(transform, name, self.function)  # type: ignore[no-any-return]

    def apply_by(self, transform: Transform, name: str, call: Callable[[PythonTransform, dict[str, Any]], Any]) -> Any:
        inputs = {input_name: self.resolve(input_name, transform.where) for input_name in transform.inputs}
        try:
            if isinstance(transform, SqlTransform):
                return self.sql(transform, inputs)
            return call(transform, inputs)
        except HeadraceError:
            raise
        except Exception as error:
            where = _user_line(error, transform, self.project.root)
            sql, subject = None, "the SQL" if name == "result" else f"the SQL of '{name}'"
            if isinstance(transform, SqlTransform):
                sql = transform.sql
            else:
                subject = f"the function {transform.function.__name__}"
            finding = finding_of(error, where=where, subject=subject, sql=sql)
            raise CheckFailed(
                with_directories(finding, error, self.project.root, working_directory(self.spark))
            ) from error

    def sql(self, transform: SqlTransform, inputs: dict[str, DataFrame]) -> DataFrame:
        with _NAMES:
            for name, frame in inputs.items():
                frame.createOrReplaceTempView(name)
            return self.spark.sql(transform.sql)

    def function(self, transform: PythonTransform, inputs: dict[str, Any]) -> DataFrame:
        from pyspark.sql import DataFrame

        result = self.call(transform, inputs)
        if not isinstance(result, DataFrame):
            raise CheckFailed(
                code="HR211",
                what=f"{transform.function.__name__} returned {type(result).__name__} and not a DataFrame",
                fix="return the DataFrame that the transformation ends in",
                where=transform.where,
            )
        return result

    def call(self, transform: PythonTransform, inputs: dict[str, Any]) -> Any:
        arguments: dict[str, object] = dict(inputs)
        if transform.wants_spark:
            arguments["spark"] = self.spark
        if (place := transform.line_of("writeStream")) is not None:
            # Called, the function would start a stream, in a check as well, of which no run knows.
            raise CheckFailed(
                code="HR213",
                what=f"the function {transform.function.__name__} uses writeStream, by which it would start a stream "
                "itself",
                fix="return the DataFrame: the query has a sink, a mode and a trigger, and starts it",
                where=_place(transform, place),
            )
        return transform.function(**arguments)


def _unusable_broadcast(thing: Table, why: str) -> Finding:
    return Finding(
        code="HR416",
        what=f"the broadcast '{thing.name}' is of no use: {why}",
        fix="return a value of Python's that can be pickled, such as a dict; of a DataFrame, what it collects",
        where=thing.where,
    )


def _user_line(error: BaseException, transform: Transform, root: Path) -> Where:
    """Return the innermost line of the user's files in the trace, or where the transformation was declared."""
    if isinstance(transform, SqlTransform):
        return transform.where
    own = {transform.function.__code__.co_filename} if hasattr(transform.function, "__code__") else set[str]()
    place = innermost(error, lambda file: file in own or (file.startswith(str(root)) and not is_installed(file)))
    return transform.where if place is None else _place(transform, place)


def _place(transform: Transform, line_of_file: tuple[str, int | None]) -> Where:
    """Return a file and a line, with the file as it is named where the transformation was declared."""
    file, line = line_of_file
    if transform.where.file and Path(file).name == Path(transform.where.file).name:
        file = transform.where.file
    return Where(file=file, line=line)


def topological_order(project: Project, queries: Sequence[Query]) -> tuple[Query, ...]:
    """Order queries behind those that write the tables they read; else the order stays."""
    given = {query.name: query for query in queries}
    ordered: dict[str, Query] = {}

    def take(names: Iterable[str]) -> None:
        for name in names:
            if name in given and name not in ordered:
                take(writer.name for writer in project.writers_for(given[name]))
                ordered[name] = given[name]

    take(given)
    return tuple(ordered.values())


def register_written(project: Project, query: Query, spark: SparkSession) -> None:
    """Let the session's catalog know the tables that `query` reads and another query of the project has written."""
    for writer, _ in _unknown_tables(project, query, spark):
        with suppress(HeadraceError):  # The other query's own check reports its fault.
            _register(writer, _result(project, writer, spark))


@contextmanager
def registered_tables(project: Project, query: Query, spark: SparkSession) -> Iterator[None]:
    """Inside, the session's catalog knows each table that `query` reads and another query of the project writes.

    A table that was not written yet is empty. Nothing is left of it afterwards.
    """
    made = []
    with TemporaryDirectory(prefix="headrace-") as empty:
        try:
            for writer, table in _unknown_tables(project, query, spark):
                with suppress(HeadraceError):  # As above.
                    with registered_tables(project, writer, spark):
                        frame = _result(project, writer, spark)
                    place = Path(empty) / table
                    place.mkdir()
                    _register(writer, frame, placeholder=str(place))
                    made.append(table)
            yield
        finally:
            for name in made:
                spark.sql(f"DROP TABLE IF EXISTS {name}")


def _register(writer: Query, frame: DataFrame, *, placeholder: str | None = None) -> None:
    if isinstance(writer.sink, CatalogSink):
        writer.sink.register_table(frame, placeholder=placeholder)


def _unknown_tables(project: Project, query: Query, spark: SparkSession) -> Iterator[tuple[Query, str]]:
    for writer in project.writers_for(query):
        table = writer.sink.catalog_table
        if table is not None and not spark.catalog.tableExists(table):
            yield writer, table


def _result(project: Project, query: Query, spark: SparkSession) -> DataFrame:
    return build(project, query.transform, spark, lambda source: source.connector.stream(spark, source.name))
