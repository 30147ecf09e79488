"""What the tests of this room share: timelines as files, a small SQLite sink, and a run from first file to last."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import model
from headrace.connectors.files.source import Files
from headrace.contract import OutputMode, Sink, SinkContext, SinkFacts, Snapshot, Writer
from headrace.generations.log import QueryLayout
from headrace.model import AvailableNow, Duration, NamedSource, Project, PythonTransform, Query, Transform, Watermark
from headrace.spark.stream.foreach_batch import ForEachBatch
from headrace.starter.start import start
from headrace.verifier.proof import verify
from headrace.verifier.verdict import Verdict
from tests.registered import layout_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "time TIMESTAMP, who STRING, value DOUBLE"
Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Table(Sink):
    """A table of JSON records, upserted by key; each batch and its number in one transaction."""

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset({"append", "update", "complete"}), transactional=True, idempotent=True
    )
    path: Path
    key: tuple[str, ...] = ()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path)
        connection.execute("CREATE TABLE IF NOT EXISTS record (id TEXT UNIQUE, json TEXT)")
        connection.execute("CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE IF NOT EXISTS shape (ddl TEXT)")
        return connection

    def open(self, frame: DataFrame, context: SinkContext) -> Writer:
        with self.connect() as connection:
            connection.execute("DELETE FROM shape")
            connection.execute("INSERT INTO shape VALUES (?)", (frame.schema.json(),))
        return self.writer(context)

    def writer(self, context: SinkContext) -> Writer:
        from pyspark.sql.functions import struct, to_json

        def upsert(rows: DataFrame, number: int) -> None:
            records = [json.loads(row[0]) for row in rows.select(to_json(struct("*"))).collect()]
            with self.connect() as connection:
                if connection.execute("SELECT 1 FROM batch WHERE number = ?", (number,)).fetchone():
                    return
                if context.mode == "complete":
                    connection.execute("DELETE FROM record")
                for record in records:
                    identity = json.dumps([record.get(name) for name in self.key]) if self.key else None
                    connection.execute("INSERT OR REPLACE INTO record VALUES (?, ?)", (identity, json.dumps(record)))
                connection.execute("INSERT INTO batch VALUES (?)", (number,))

        return ForEachBatch(upsert)

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        connection = self.connect()
        schema = StructType.fromJson(json.loads(connection.execute("SELECT ddl FROM shape").fetchone()[0]))
        lines = [row[0] for row in connection.execute("SELECT json FROM record")]
        last = connection.execute("SELECT max(number) FROM batch").fetchone()[0]
        text = spark.createDataFrame([(line,) for line in lines], "json STRING")
        rows = text.select(F.from_json("json", schema).alias("row")).select("row.*")
        return Snapshot(rows=rows, batch=last, key=self.key)

    def edit(self, sql: str, *values: Any) -> int:
        with self.connect() as connection:
            return connection.execute(sql, values).rowcount


@dataclass(frozen=True)
class Scene:
    """A project of one query `q` over the files of one directory."""

    spark: SparkSession
    project: Project
    table: Table

    @property
    def layout(self) -> QueryLayout:
        return layout_in(self.project.storage, "q")

    def run(self) -> None:
        """Run the query over everything that is there, a file a batch."""
        running = start(self.project, self.project.queries["q"], self.spark)
        running.handle.awaitTermination()

    def verify(self) -> Verdict:
        return verify(self.project, "q", spark=self.spark)


def write(folder: Path, batches: Sequence[Sequence[Row]], columns: Sequence[str] = ("time", "who", "value")) -> None:
    """Write one file a batch, in order; a time `12:05` is that of 2024-01-01."""
    folder.mkdir(exist_ok=True)
    begin = len(list(folder.iterdir()))
    for index, rows in enumerate(batches, start=begin):
        path = folder / f"{index:03d}.json"
        records = [{name: _moment(value) for name, value in zip(columns, row, strict=False)} for row in rows]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        os.utime(path, (1_700_000_000 + index,) * 2)


def scene(
    spark: SparkSession,
    home: Path,
    batches: Sequence[Sequence[Row]],
    function: Callable[..., DataFrame] | Transform,
    *,
    mode: OutputMode,
    key: tuple[str, ...] = (),
    delay: str | None = "10 minutes",
    schema: str = SCHEMA,
    columns: Sequence[str] = ("time", "who", "value"),
    others: Sequence[Sequence[Row]] | None = None,
    tables: Mapping[str, model.Table] | None = None,
) -> Scene:
    """A project over `batches`, and over `others` as a second source, that was run to their end."""
    timelines = {"events": batches} if others is None else {"events": batches, "others": others}
    sources = {}
    for name, timeline in timelines.items():
        folder = home / ("landing" if name == "events" else name)
        write(folder, timeline, columns)
        sources[name] = NamedSource(
            name=name,
            kind="files",
            connector=Files(path=str(folder), format="json", schema=schema, max_files_per_trigger=1),
            watermark=Watermark(column="time", delay=Duration.parse(delay)) if delay else None,
        )
    table = Table(path=home / "sink.db", key=key)
    query = Query(
        name="q",
        transform=PythonTransform(function=function, inputs=tuple(sources)) if callable(function) else function,
        sink=table,
        sink_kind="table",
        mode=mode,
        trigger=AvailableNow(),
    )
    project = Project(name="scene", root=home, sources=sources, tables=tables or {}, queries={"q": query})
    made = Scene(spark, project, table)
    made.run()
    return made


def _moment(value: Any) -> Any:
    if isinstance(value, str) and len(value) == 5 and value[2] == ":":
        return f"2024-01-01 {value}:00"
    return value
