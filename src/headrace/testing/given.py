"""Rows that a test gives, as files that stand in the place of the real sources."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.connectors.files.source import NO_AGE_LIMIT, Files
from headrace.connectors.spark_files import prefix as file_prefix
from headrace.contract import CHANGE_COLUMN, SourceFacts, SourcePrefix
from headrace.errors import ProjectError, nearest
from headrace.frames.plan_builder import registered_tables
from headrace.frames.project_code import send_code
from headrace.model import NamedSource, Project, Query, SqlTransform, Table, View
from headrace.storage.durable import move
from headrace.testing.values import json_value, plain_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Dicts, tuples, a pandas.DataFrame, the path of a file (.json, .jsonl, .csv with a header, .parquet); None: no rows.
GivenRows: TypeAlias = Any
_MARK, _MARKED = "_headrace_mark", "_with_marks"


@dataclass(frozen=True, kw_only=True)
class Given(Files):
    """JSON lines that a test has written, with the columns of the source in whose place they stand."""

    columns: str

    @property
    def facts(self) -> SourceFacts:  # type: ignore[override]
        """Its rows are changes if those of the source are."""
        columns = self._schema(None).names
        return SourceFacts(replayable=True, rate_limited=True, change_data=CHANGE_COLUMN in columns)

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        reader = spark.readStream.name(name).format("json").option("maxFileAge", NO_AGE_LIMIT)
        return reader.option("mode", "FAILFAST").schema(self._schema(spark)).load(self.path)

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        taken = file_prefix.files(prefix)
        if not taken:
            return file_prefix.empty_frame(spark, self._schema(spark), batch_column, None)
        reader = spark.read.format("json").option("mode", "FAILFAST").schema(self._schema(spark))
        return file_prefix.frame(reader, file_prefix.places(taken, self.path, None), batch_column, None)

    def _schema(self, spark: SparkSession | None) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.columns))


@dataclass(frozen=True, kw_only=True)
class Inlet:
    """The directory that stands in the place of one source.

    raw: the source is one of files, and its batches are the lines of such files, read by the source's own rules.
    marked: it has rows by which the watermark moves alone, which a view takes out again.
    """

    source: NamedSource
    schema: StructType
    directory: Path
    raw: bool = False
    marked: bool = False

    @property
    def hidden(self) -> str:
        """The name of the source below the view."""
        return f"{self.source.name}{_MARKED}"

    @property
    def view(self) -> View | None:
        """The view of its name, without the rows that move the watermark; None where there are none.

        The condition names the event time, or Spark would look at it before it looks at the watermark.
        """
        if not self.marked or self.source.watermark is None:
            return None
        columns = ", ".join(f"`{name}`" for name in self.schema.names)
        seen = f"`{_MARK}` IS NULL OR `{self.source.watermark.column}` IS NULL"
        sql = f"SELECT {columns} FROM `{self.hidden}` WHERE {seen}"
        return View(name=self.source.name, transform=SqlTransform(sql=sql, inputs=(self.hidden,)))

    @property
    def stand_in(self) -> NamedSource:
        """The source as it reads the directory."""
        if self.raw:
            own = cast(Files, self.source.connector)
            return replace(self.source, connector=replace(own, path=str(self.directory), clean_source="off"))
        columns = self.schema.jsonValue()
        if self.marked:
            mark = {"name": _MARK, "type": "boolean", "nullable": True, "metadata": {}}
            columns = {**columns, "fields": [*columns["fields"], mark]}
        given = Given(path=str(self.directory), format="json", columns=json.dumps(columns))
        return replace(self.source, name=self.hidden if self.marked else self.source.name, connector=given)

    def put(self, number: int, rows: GivenRows, root: Path) -> int:
        """Write a batch as one file, at once.

        Returns:
            The number of rows.

        Raises:
            ProjectError: A row does not fit the schema.
        """
        lines = (
            rows
            if self.raw
            else (json.dumps(json_value(row)) for row in typed_rows(rows, self.schema, root, self.source))
        )
        return self._write(number, lines)

    def mark(self, number: int, time: datetime) -> int:
        """Write a row that moves the watermark to `time` and that no query sees.

        Args:
            number: The number of the batch.
            time: The watermark after the row.

        Returns:
            The number of rows written.

        Raises:
            ProjectError: The source declares no watermark, or is given as lines.
        """
        if self.source.watermark is None or self.raw:
            problem = (
                f"source '{self.source.name}' declares no watermark" if not self.raw else "lines have no watermark"
            )
            raise ProjectError(code="HR721", what=problem, fix="leave Watermark(...) out", where=self.source.where)
        late = time + timedelta(seconds=self.source.watermark.delay.seconds)
        return self._write(number, [json.dumps({self.source.watermark.column: json_value(late), _MARK: True})])

    def _write(self, number: int, given: Iterable[str]) -> int:
        lines = list(given)
        if lines:
            hidden = self.directory / f".{number:06d}"
            hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            # By its time Spark reads the older of two files first.
            os.utime(hidden, (1_700_000_000 + number,) * 2)
            move(hidden, self.directory / f"{number:06d}.txt")
        return len(lines)


def typed_rows(rows: GivenRows, schema: StructType, root: Path, of: NamedSource | Table) -> Iterator[dict[str, Any]]:
    """Convert given rows to Python's values.

    Args:
        rows: The rows, or the name of their file.
        schema: The columns of the input.
        root: The directory that a file's name starts from.
        of: The source or table that gets the rows.

    Yields:
        Each row, with all columns of the schema.

    Raises:
        ProjectError: A row does not fit the schema.
    """
    for row in _rows(rows, root, of):
        record = _record(row, schema.names, of)
        values = {}
        for field in schema:
            try:
                values[field.name] = plain_value(record.get(field.name), field.dataType)
            except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
                problem = (
                    f"{record[field.name]!r} is not of type {field.dataType.simpleString()} for column '{field.name}'"
                )
                raise _unfit(of, problem, f"correct the row {row!r}") from error
        yield values


def _record(row: Any, names: Sequence[str], of: NamedSource | Table) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        unknown = next((name for name in row if name not in names), None)
        if unknown is not None:
            raise _unfit(of, f"it has no column '{unknown}'", nearest(str(unknown), names))
        return row
    if isinstance(row, str) or not isinstance(row, Sequence):
        row = (row,)
    if len(row) > len(names):
        problem = f"the row {row!r} has {len(row)} values for {len(names)} columns"
        raise _unfit(of, problem, f"give values for ({', '.join(names)}), or a dict")
    return dict(zip(names, row, strict=False))


def make_inlets(
    project: Project,
    query: Query,
    batches: Mapping[str, Sequence[GivenRows]],
    spark: SparkSession,
    home: Path,
    *,
    marked: Collection[str] = (),
) -> dict[str, Inlet]:
    """Create a directory for the rows of each source of a query.

    Args:
        project: The project of the query.
        query: The query.
        batches: The rows of each source, by batch.
        spark: The session.
        home: The directory below which they are created.
        marked: The sources whose watermark is moved alone.

    Returns:
        The inlet of each source, by the source's name.

    Raises:
        ProjectError: `batches` names something that is not a source of the query.
    """
    sources = {source.name: source for source in project.sources_of(query)}
    for name in batches:
        if name not in sources:
            problem = f"query '{query.name}' reads no source '{name}'"
            raise ProjectError(code="HR721", what=problem, fix=nearest(name, sources), where=query.where)
    send_code(project, spark)  # A source of the project's own is asked for its columns in a process of Python.
    made = {}
    with registered_tables(project, query, spark):
        for name, source in sources.items():
            given = [rows for rows in batches.get(name, ()) if rows is not None]
            directory = home / "sources" / name
            directory.mkdir(parents=True)
            made[name] = Inlet(
                source=source,
                schema=schema_of(source, spark),
                directory=directory,
                raw=is_raw(source, given),
                marked=name in marked,
            )
    return made


def schema_of(source: NamedSource, spark: SparkSession) -> StructType:
    """Return the columns of a source without reading it; the declared ones if its system is not available."""
    from pyspark.sql.types import StructType

    declared = source.connector.declared_schema()
    if declared is None:
        return source.connector.stream(spark, source.name).schema
    if not isinstance(source.connector, Files):
        with suppress(Exception):
            return source.connector.stream(spark, source.name).schema
    return cast(StructType, StructType.fromDDL(declared))


def with_stand_ins(project: Project, made: Mapping[str, Inlet]) -> Project:
    """Return the project with the directories in the place of its sources."""
    sources = {name: source for name, source in project.sources.items() if name not in made}
    stand_ins = [inlet.stand_in for inlet in made.values()]
    views = {inlet.view.name: inlet.view for inlet in made.values() if inlet.view is not None}
    return replace(
        project,
        sources={**sources, **{source.name: source for source in stand_ins}},
        views={**project.views, **views},
    )


def is_raw(source: NamedSource, batches: Sequence[GivenRows]) -> bool:
    """Whether the batches are lines of the source's files."""
    if not isinstance(source.connector, Files) or source.connector.format not in ("json", "csv", "text"):
        return False
    rows = [row for rows in batches if isinstance(rows, list | tuple) for row in rows]
    return bool(rows) and all(isinstance(row, str) for row in rows)


def _rows(rows: GivenRows, root: Path, of: NamedSource | Table) -> Iterable[Any]:
    if rows is None:
        return ()
    if isinstance(rows, str | os.PathLike):
        return _read_file(root / rows, of)
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        return cast("list[dict[str, Any]]", rows.to_dict("records"))
    return cast("Iterable[Any]", rows)


def _read_file(file: Path, of: NamedSource | Table) -> list[dict[str, Any]]:
    try:
        if file.suffix == ".parquet":
            import pyarrow.parquet

            return cast("list[dict[str, Any]]", pyarrow.parquet.read_table(file).to_pylist())
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".csv":
            rows = csv.DictReader(text.splitlines())
            return [{name: value or None for name, value in row.items()} for row in rows]
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        problem = f"its rows cannot be read from '{file}': {error}"
        raise _unfit(of, problem, "give a file of JSON lines, a .csv with a header or a .parquet") from error


def _unfit(of: NamedSource | Table, problem: str, fix: str) -> ProjectError:
    word = of.word if isinstance(of, Table) else "source"
    return ProjectError(code="HR720", what=f"{word} '{of.name}': {problem}", fix=fix, where=of.where)
