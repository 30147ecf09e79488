"""The rows that a query drops as late, kept as files next to its checkpoint, and the query that brings them to a sink.

What a committed batch dropped never changes. Its file is written once, by the first that finds it missing.
The second query takes it exactly once, by its own checkpoint and its own ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.connectors.files.source import Files
from headrace.contract import Identity, Lag, Sink, Source, SourceFacts, SourcePrefix
from headrace.errors import CheckFailed, Where
from headrace.generations.log import QueryLayout
from headrace.generations.register import layout_of
from headrace.model import AvailableNow, Duration, Every, NamedSource, Once, Project, Query, SqlTransform
from headrace.spark.jvm.settings import WHOLE_JSON_UTC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# What a late row has next to the columns of its source, in the order of `headrace late`.
LATE_COLUMNS = "late_source STRING, late_batch INT, late_watermark TIMESTAMP, late_time TIMESTAMP, late_operator STRING"
LATE_NAMES = tuple(column.split()[0] for column in LATE_COLUMNS.split(", "))
_EVERY = Every(Duration.parse("5 seconds"))


def late_file(layout: QueryLayout, batch: int) -> Path:
    """The file of the rows that a batch dropped; there is none of a batch that dropped none."""
    return layout.late / f"{batch:06d}.jsonl"


def newest_late_batch(layout: QueryLayout) -> int:
    """The newest batch of which late rows are there; -1: of none."""
    return max((int(file.stem) for file in layout.late.glob("*.jsonl") if file.stem.isdigit()), default=-1)


@dataclass(frozen=True, kw_only=True)
class _LateFiles(Files):
    """The files of late rows; their directory comes with the first look at a committed batch."""

    @property
    def _beginning(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class LateRows(Source):
    """The late rows of the newest generation of a query, with the columns of its sources and LATE_COLUMNS.

    A row has NULL in the columns that only other sources have. `project` is the one that declares the query.
    """

    facts: ClassVar[SourceFacts] = SourceFacts(replayable=True, rate_limited=True)
    place_options: ClassVar[tuple[str, ...]] = ("query",)
    tuning_options: ClassVar[tuple[str, ...]] = ("project",)
    query: str
    project: Project = field(repr=False, compare=False)

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        return self._rows(self._files.stream(spark, name))

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        return self._rows(self._files.read(spark, prefix, batch_column=batch_column))

    def identity(self) -> Identity:
        return {**self._files.identity(), "path": self.project_path}

    @property
    def project_path(self) -> str:
        return str(layout_of(self.project, self.project.query(self.query)).late)

    def ensure_available(self, prefix: SourcePrefix) -> None:
        self._files.ensure_available(prefix)

    def lag(self, prefix: SourcePrefix) -> Lag | None:
        return self._files.lag(prefix)

    @property
    def _files(self) -> Files:
        return _LateFiles(path=f"{self.project_path}/*.jsonl", format="text")

    def _rows(self, lines: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        row = F.from_json("value", self._schema(lines.sparkSession), WHOLE_JSON_UTC).alias("row")
        besides = [name for name in lines.columns if name != "value"]
        return lines.select(row, *besides).select("row.*", *besides)

    def _schema(self, spark: SparkSession) -> StructType:
        """The columns of all sources and of a late row's record. Raises CheckFailed where two do not agree."""
        from pyspark.sql.types import StructField, StructType

        query, columns = self.project.query(self.query), StructType.fromDDL(LATE_COLUMNS)
        assert isinstance(columns, StructType), "it is a list of columns"
        own, fields = list(columns), dict[str, StructField]()
        for source in self.project.sources_of(query):
            for column in source.connector.stream(spark, source.name).schema:
                before = fields.setdefault(column.name.lower(), column)
                if column.name in columns.names or before.dataType != column.dataType:
                    fault = f"the late rows of query '{query.name}' fit into no table: source '{source.name}' has the "
                    fault += f"column {column.name} {column.dataType.simpleString()}, and that name is of another one"
                    fix = "give the column another name, or its type in the other source"
                    raise CheckFailed(code="HR268", what=fault, fix=fix, where=query.where)
        return StructType([*fields.values(), *own])


def late_names(query: str) -> tuple[str, str]:
    """The names of the query that brings the late rows of `query` to their sink, and of its source."""
    return f"{query}_late", f"{query}_late_rows"


def with_late_query(project: Project, query: Query, sink: Sink, kind: str, where: Where) -> Project:
    """`project` with the query that brings the late rows of `query` to `sink`, which is of that kind.

    A query that is renamed brings it along, with its source.
    """
    name, rows = late_names(query.name)
    former = [late_names(name) for name in query.renamed_from]
    late = Query(
        name=name,
        transform=SqlTransform(sql=f"SELECT * FROM {rows}", inputs=(rows,), where=where),
        sink=sink,
        sink_kind=kind,
        trigger=query.trigger if isinstance(query.trigger, AvailableNow | Once | Every) else _EVERY,
        where=where,
        description=f"The rows that query '{query.name}' drops as late.",
        sink_where=where,
        renamed_from=tuple(late for late, _ in former),
    )
    connector = LateRows(query=query.name, project=project)
    formers = tuple(rows for _, rows in former)
    source = NamedSource(name=rows, kind="late rows", connector=connector, where=where, renamed_from=formers)
    sources, queries = {**project.sources, rows: source}, {**project.queries, name: late}
    return replace(project, sources=sources, queries=queries)
