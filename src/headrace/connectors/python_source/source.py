"""Read from a source of the user's own, written in Python by Spark's data source API."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.contract import Failure, Identity, OptionError, ProjectObject, Source, SourceFacts, SourcePrefix
from headrace.errors import SourceError
from headrace.spark import ddl
from headrace.spark.messages.refusals import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Python(Source):
    """Rows that a class of the user's gives: a `pyspark.sql.datasource.DataSource` with `streamReader` or
    `simpleStreamReader`.

    Source: a chapter on user-defined streaming sources, and Spark's own reference of its Python data source API. The
    class is registered with the session when the query is built, and travels to the workers by value. Under the trigger
    available-now a reader that is no `SupportsTriggerAvailableNow` gives one batch; where one comes again, it is that.

    source: in YAML the text `module:Class`, which names it in one of the project's Python files.
    options: what the class finds in `self.options`, as texts.
    schema: a DDL text in place of what the class's own `schema` says.
    replayable: the user's word that the rows between two offsets are always the same, also in a new process; then
        `verify` reads them again through the class.
    """

    place_options: ClassVar[tuple[str, ...]] = ("source",)
    tuning_options: ClassVar[tuple[str, ...]] = ("replayable",)
    failures: ClassVar[tuple[Failure, ...]] = (
        Failure(
            code="HR323",
            pattern=r"\[NOT_IMPLEMENTED\] (?P<method>(?:initial|latest)Offset|partitions|read(?:BetweenOffsets)?) is",
            what="the reader of its Python source has no method {method}",
            fix="write the method in the class that streamReader or simpleStreamReader returns",
        ),
    )
    source: ProjectObject
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    replayable: bool = False

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(replayable=self.replayable)

    @property
    def readable_as_batch(self) -> bool:
        return self.replayable

    def declared_schema(self) -> str | None:
        return self.schema

    def problems(self) -> Iterator[OptionError]:
        given = self.source
        if self.schema is not None:
            yield from ddl.problems(self.schema)
        if isinstance(given, str):
            yield OptionError(
                code="HR415",
                what=f"'{given}' names no class of the project's Python files",
                fix="write module:Class; a file that does not mention headrace is to be listed under `modules`",
            )
            return
        # A project with such a class has imported the module that it comes from.
        above = getattr(sys.modules.get("pyspark.sql.datasource"), "DataSource", None)
        if above is None or not (isinstance(given, type) and issubclass(given, above)):
            fault = f"{getattr(given, '__name__', type(given).__name__)} is not a class of a data source"
            yield OptionError(code="HR415", what=fault, fix="give a subclass of pyspark.sql.datasource.DataSource")
        elif all(vars(above)[method] is _attribute(given, method) for method in ("streamReader", "simpleStreamReader")):
            fault = f"the class {given.__name__} has neither streamReader nor simpleStreamReader, so it gives no stream"
            yield OptionError(code="HR415", what=fault, fix="write one of the two methods; it returns the reader")
        elif self.schema is None and vars(above)["schema"] is _attribute(given, "schema"):
            fault = f"the class {given.__name__} has no method schema, and the source no option `schema`"
            yield OptionError(code="HR415", what=fault, fix="give one of the two")

    def identity(self) -> Identity:
        """The class alone: what its options hold may be secret."""
        return {"system": "python", "class": getattr(self.source, "__qualname__", str(self.source))}

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        from pyspark.errors import PySparkException

        try:
            spark.dataSource.register(self.source)
            reader = spark.readStream.name(name).format(self.source.name()).options(**self.options)
            return (reader if self.schema is None else reader.schema(self.schema)).load()
        except PySparkException as error:
            raise self._fault(_reason(error)) from error
        except Exception as error:
            raise self._fault(f"{type(error).__name__}: {_reason(error)}") from error

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        """The rows between the offsets of each batch, read by the class's own reader on the workers."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType, StructField, StructType

        if prefix.batches and not self.replayable:
            fault = f"the source class {self.source.__name__} does not claim to give the same rows again"
            fix = "set replayable, if the rows between two offsets are always the same"
            raise SourceError(code="HR323", what=fault, fix=fix)
        schema = self.stream(spark, "shape").schema
        spans = [
            (batch.start, batch.end, batch.batch) for batch in prefix.batches if batch.end not in (None, batch.start)
        ]
        number = "__headrace_batch"
        whole = StructType([*schema.fields, StructField(number, LongType())])
        reading = partial(_rows_of, self.source, dict(self.options), schema.json())
        if spans:
            rows = spark.createDataFrame(spark.sparkContext.parallelize(spans, len(spans)).flatMap(reading), whole)
        else:
            rows = spark.createDataFrame([], whole)
        columns = [F.col(f"`{name}`") for name in schema.names]
        return rows.select(*columns, *([] if batch_column is None else [F.col(number).alias(batch_column)]))

    def _fault(self, reason: str) -> SourceError:
        fault = f"the source class {self.source.__name__} cannot be used: {reason}"
        return SourceError(code="HR323", what=fault, fix="correct the class; it is run when the query is built")


def _rows_of(
    source: Any, options: dict[str, str], schema_json: str, span: tuple[str | None, str, int]
) -> Iterator[tuple[Any, ...]]:
    """Read the rows of one batch with the user's class, as Spark does it when a batch comes again."""
    from pyspark.errors import PySparkNotImplementedError
    from pyspark.sql.datasource import CaseInsensitiveDict
    from pyspark.sql.types import StructType

    first, last, batch = span
    schema = StructType.fromJson(json.loads(schema_json))
    made = source(CaseInsensitiveDict(options))
    end = json.loads(last)
    try:
        reader = made.streamReader(schema)
    except PySparkNotImplementedError:
        simple = made.simpleStreamReader(schema)
        start = simple.initialOffset() if first is None else json.loads(first)
        given: Any = simple.readBetweenOffsets(start, end)
    else:
        start = reader.initialOffset() if first is None else json.loads(first)
        given = (row for partition in reader.partitions(start, end) for row in reader.read(partition))
    for item in given:
        # One row, or those of an Arrow batch.
        if hasattr(item, "to_pylist"):
            yield from ((*(row[name] for name in schema.names), batch) for row in item.to_pylist())
        else:
            yield (*item, batch)


def _attribute(cls: type, method: str) -> Any:
    return next(vars(base)[method] for base in cls.__mro__ if method in vars(base))


def _reason(error: Exception) -> str:
    """The exception of the user's that Spark's message ends in, or the message's first line."""
    text = str(error)
    raised = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", text, re.MULTILINE)
    if "Traceback (most recent call last)" in text and raised:
        return f"{raised[-1][0]}: {raised[-1][1]}"
    return first_sentence(error) if text.strip() else "no reason was given"
