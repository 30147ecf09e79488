"""One life of a streaming query into the sink that is tested, by plain PySpark: `python query.py SCENE.json`.

It runs in a process of its own, perhaps of another environment, so this file is run by its path and imports nothing of
Headrace, but for Headrace's own sinks. A user's sink is a file that defines `SINK`, a `TestedSink` of `query`.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = 150  # of each input file; Spark gives a Python worker 100 at once


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Where one life of the query reads and writes, and what is to befall it.

    home: has input and table. storage: has the checkpoint. url: of a database or Kafka. fault: `do` (kill, fail, race
    or meet) at the row `id`, once: `mark` is the file that says that it has been, `other` that of the other driver.
    `mark`.attempts has a line for each attempt of a task that has come to the row: its stage, partition and number.
    """

    sink: str
    home: str
    storage: str
    checkpoint: str
    answer: str
    url: str
    files: int
    fault: dict[str, Any]
    settings: dict[str, str]
    reads: bool

    @property
    def table(self) -> str:
        return f"{self.home}/table"

    @property
    def name(self) -> str:
        """A name for a table or a topic that no other trial has."""
        return "r" + re.sub(r"\W+", "_", self.home)[-50:].lower()


Rows: TypeAlias = "DataFrame | list[tuple[Any, ...]]"
Start: TypeAlias = "Callable[[SparkSession, Scene], StreamingQuery]"
Read: TypeAlias = "Callable[[SparkSession, Scene], Rows]"


@dataclass(frozen=True)
class TestedSink:
    """A sink: how a query into it is started, how its rows are read, and what its documentation promises.

    promise: what (`NONE` if its documentation has no word of it), in which words, where. settings: of the session;
    `{home}` is the directory of the trial. coordinates: of its jars; `{spark}`, `{scala}`: versions. alone: no jars
    that they ask for. needs: what `url` has to be. checkpoint: where it is in the storage.
    """

    start: Start
    read: Read
    title: str
    promise: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)
    coordinates: Sequence[str] = ()
    alone: bool = False
    needs: str = ""
    checkpoint: str = "checkpoint"


def value(number: int) -> str:
    """The function for rows: gives a row its value, and lets the fault happen while the row is being written.

    It closes over nothing, so that it is the same code in each life.
    """
    if number % ROWS == 0:
        time.sleep(0.15)  # A kill at a log entry comes before the batch is written.
    fault: dict[str, Any] = json.loads(os.environ["SINKS_FAULT"])
    if not fault or number != fault["id"]:
        return f"v{number}"
    from pyspark import TaskContext

    task = TaskContext.get()
    attempts, until = f"{fault['mark']}.attempts", time.monotonic() + 40
    with open(attempts, "a") as file:
        file.write(f"{task.stageId()} {task.partitionId()} {task.attemptNumber()}\n" if task else "")
    # Both attempts go on at once, so that each may come to its end before the other is stopped.
    while fault["do"] == "race" and len(Path(attempts).read_text().splitlines()) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    if os.path.exists(fault["mark"]):
        return f"v{number}"
    open(fault["mark"], "a").close()
    time.sleep(0.5 if fault["do"] != "race" else 0)  # The rows before are with the sink by then.
    if fault["do"] == "kill":
        os.killpg(int(os.environ["SINKS_DRIVER"]), signal.SIGKILL)
        time.sleep(60)
    elif fault["do"] == "fail":
        raise RuntimeError("this attempt of the task fails on purpose")
    while fault["do"] == "meet" and not os.path.exists(fault["other"]) and time.monotonic() < until:
        time.sleep(0.01)
    return f"v{number}"


def frame(spark: SparkSession, scene: Scene, *, complete: bool = False) -> DataFrame:
    """The query: each row of the input with its value. complete: by an aggregation of all rows so far."""
    from pyspark.sql import functions as F

    stream = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", scene.files).json(f"{scene.home}/input")
    stream = stream.groupBy("id").count() if complete else stream
    return stream.select("id", F.udf(value, "string")("id").alias("value"))


def writer(rows: DataFrame, scene: Scene) -> DataStreamWriter:
    """The query's writer with its checkpoint; it takes all input there is, batch by batch."""
    return rows.writeStream.option("checkpointLocation", scene.checkpoint).trigger(availableNow=True)


def by_format(name: str, **options: str) -> tuple[Start, Read]:
    """A sink that is a format and writes into a directory."""

    def start(spark: SparkSession, scene: Scene) -> StreamingQuery:
        return writer(frame(spark, scene), scene).format(name).options(**options).start(scene.table)

    return start, lambda spark, scene: spark.read.format(name).load(scene.table)


def by_table(using: str, path: str = "") -> tuple[Start, Read]:
    """A sink that is a table of the catalog `lake`. path: where it is, for one that is written by its path."""

    def start(spark: SparkSession, scene: Scene) -> StreamingQuery:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
        spark.sql(f"CREATE TABLE IF NOT EXISTS lake.db.result (id BIGINT, value STRING) USING {using}")
        begun = writer(frame(spark, scene), scene).outputMode("append")
        return begun.format(using).start(f"{scene.home}/{path}") if path else begun.toTable("lake.db.result")

    return start, lambda spark, scene: spark.table("lake.db.result")


def by_batch(write: Callable[[DataFrame, int, Scene], None], *, complete: bool = False) -> Start:
    """A foreachBatch of the user's."""

    def start(spark: SparkSession, scene: Scene) -> StreamingQuery:
        rows = frame(spark, scene, complete=complete)
        begun = writer(rows, scene).outputMode("complete" if complete else "append")
        return begun.foreachBatch(lambda batch, number: write(batch, number, scene)).start()

    return start


def jdbc(scene: Scene) -> dict[str, str]:
    """Options of Spark's JDBC reader and writer; without a URL the database is Derby's, which PySpark brings along."""
    parts = urlsplit(scene.url)
    options = {"user": parts.username, "password": parts.password, "sslmode": "disable"}
    words = "&".join(f"{key}={text}" for key, text in options.items() if text)
    derby = f"jdbc:derby:;databaseName={scene.home}/derby;create=true"
    place = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
    postgres = {"url": f"jdbc:postgresql://{place}?{words}", "driver": "org.postgresql.Driver"}
    return {"dbtable": scene.name, **(postgres if scene.url else {"url": derby})}


def by_jdbc(mode: str) -> Callable[[DataFrame, int, Scene], None]:
    return lambda batch, number, scene: batch.write.format("jdbc").options(**jdbc(scene)).mode(mode).save()


def from_jdbc(spark: SparkSession, scene: Scene) -> Rows:
    return spark.read.format("jdbc").options(**jdbc(scene)).load().toDF("id", "value")


def upsert(batch: DataFrame, number: int, scene: Scene) -> None:
    url, table = scene.url, scene.name

    def write(rows: Any) -> None:
        import psycopg

        insert = f"INSERT INTO {table} VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value"
        with psycopg.connect(url, sslmode="disable") as connection:
            connection.cursor().executemany(insert, [tuple(row) for row in rows])

    ask(url, f"CREATE TABLE IF NOT EXISTS {table} (id BIGINT PRIMARY KEY, value TEXT)")
    batch.foreachPartition(write)


def ask(url: str, statement: Any) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(url, sslmode="disable") as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def from_postgres(spark: SparkSession, scene: Scene) -> Rows:
    return ask(scene.url, f"SELECT id, value FROM {scene.name}")


def to_delta(batch: DataFrame, number: int, scene: Scene) -> None:
    batch.write.format("delta").mode("append").save(scene.table)


def to_delta_once(batch: DataFrame, number: int, scene: Scene) -> None:
    once = {"txnAppId": scene.name, "txnVersion": str(number)}
    batch.write.format("delta").options(**once).mode("append").save(scene.table)


def to_kafka(spark: SparkSession, scene: Scene) -> StreamingQuery:
    from confluent_kafka.admin import AdminClient, NewTopic

    # It has to outlive the request; the topic may be there from an earlier life.
    admin = AdminClient({"bootstrap.servers": scene.url})
    admin.create_topics([NewTopic(scene.name, 2)])[scene.name].exception(30)
    rows = frame(spark, scene).selectExpr("CAST(id AS STRING) AS key", "value")
    options = {"kafka.bootstrap.servers": scene.url, "topic": scene.name}
    return writer(rows, scene).format("kafka").options(**options).start()


def from_kafka(spark: SparkSession, scene: Scene) -> Rows:
    options = {"kafka.bootstrap.servers": scene.url, "subscribe": scene.name}
    rows = spark.read.format("kafka").options(**options).load()
    return rows.selectExpr("CAST(CAST(key AS STRING) AS BIGINT) AS id", "CAST(value AS STRING) AS value")


def by_headrace(sink: Callable[[Any, Scene], Any]) -> Start:
    """A sink of Headrace, in the session of the query."""

    def start(spark: SparkSession, scene: Scene) -> StreamingQuery:
        from pyspark.sql import functions as F

        import headrace as hr

        valued = F.udf(value, "string")
        options: Any = {"format": "json", "schema": "id BIGINT", "max_files_per_trigger": scene.files}
        events = hr.source.files(f"{scene.home}/input", **options)  # noqa: F841 - found by its name

        @hr.query(sink=sink(hr, scene), mode="append")
        def result(events: DataFrame) -> DataFrame:
            return events.select("id", valued("id").alias("value"))

        return result.start(spark, trigger="available-now", root=scene.storage)

    return start


def from_sqlite(spark: SparkSession, scene: Scene) -> Rows:
    import sqlite3

    with sqlite3.connect(f"{scene.home}/r.db") as connection:
        return connection.execute("SELECT id, value FROM result").fetchall()


EXACTLY, AT_LEAST, NONE = "exactly-once", "at-least-once", "nothing"
HUDI = {"hoodie.table.name": "result", "hoodie.datasource.write.recordkey.field": "id"}
_delta = by_format("delta")[1]
# How each is started and read; the rest of them is in the catalogue.
WAYS: dict[str, tuple[Start, Read]] = {
    "files": by_format("parquet"),
    "kafka": (to_kafka, from_kafka),
    "delta": by_format("delta"),
    "iceberg": by_table("iceberg"),
    "paimon": by_table("paimon", "warehouse/db.db/result"),
    "hudi": by_format("hudi", **HUDI, **{"hoodie.datasource.write.operation": "insert"}),
    "jdbc-append": (by_batch(by_jdbc("append")), from_jdbc),
    "jdbc-overwrite": (by_batch(by_jdbc("overwrite"), complete=True), from_jdbc),
    "jdbc-upsert": (by_batch(upsert), from_postgres),
    "foreach-batch-delta": (by_batch(to_delta), _delta),
    "foreach-batch-delta-txn": (by_batch(to_delta_once), _delta),
    "headrace-files": (by_headrace(lambda hr, to: hr.sink.files(to.table)), by_format("parquet")[1]),
    "headrace-sqlite": (by_headrace(lambda hr, to: hr.sink.sqlite(f"{to.home}/r.db", table="result")), from_sqlite),
    "headrace-delta": (by_headrace(lambda hr, to: hr.sink.delta(to.table)), _delta),
    "headrace-postgres": (
        by_headrace(lambda hr, to: hr.sink.postgres(f"{to.url}?sslmode=disable", table=to.name)),
        from_postgres,
    ),
}
_catalogue = json.loads(Path(__file__).with_name("catalogue.json").read_text(encoding="utf-8"))
SINKS = {name: TestedSink(*WAYS[name], **_catalogue[name]) for name in WAYS}


def sink_of(name: str) -> TestedSink:
    """The sink of that name, or `SINK` of a user's file; raises KeyError."""
    if not name.endswith(".py"):
        return SINKS[name]
    sys.modules.setdefault("query", sys.modules[__name__])
    sink: TestedSink = runpy.run_path(name)["SINK"]
    return sink


def sentence(error: Exception) -> str:
    """What an exception says: the code of a finding or of Spark's, or the first words of what ended the query.

    A path or a URL in them is only of the machine of the trial: it reads PATH.
    """
    ended = re.search(r"terminated with exception: (.*)", str(error))
    lines = str(error).splitlines() or [type(error).__name__]
    # py4j names the call first, and the exception of the JVM in the next line.
    called = lines[0].startswith("An error occurred while calling") and len(lines) > 1
    text = ended[1] if ended else re.sub(r"^: (?:[\w.$]+: )?", "", lines[called])
    code = re.search(r"\bHR\d{3}\b", str(error)) or re.search(r"(?<=\[)[A-Z][A-Z0-9_.]{8,}(?=\])", text)
    masked = re.sub(r"(?<![\w/])(?:[a-z][\w.+-]*:)*/[^\s'\",;()]+", "PATH", text)
    return code[0] if code else re.sub(r"[|`]| SQLSTATE.*", "", masked)[:80]


def main(path: str) -> int:
    """Let the query run to the end of its input, and write the answer: the fault that ended it, the rows."""
    from pyspark.sql import SparkSession

    scene = Scene(**json.loads(Path(path).read_text()))
    sink, error, rows = sink_of(scene.sink), "", []
    builder: Any = SparkSession.builder
    workers = {"SINKS_FAULT": json.dumps(scene.fault), "SINKS_DRIVER": str(os.getpgrp())}
    settings = {**scene.settings, **{f"spark.executorEnv.{name}": text for name, text in workers.items()}}
    spark: SparkSession = builder.config(map=settings).getOrCreate()
    try:
        sink.start(spark, scene).awaitTermination()
    except Exception as failure:
        error = sentence(failure)
        print(failure, file=sys.stderr)
    try:
        result = sink.read(spark, scene) if scene.reads else []
        rows = [tuple(row) for row in (result if isinstance(result, list) else result.select("id", "value").collect())]
    except Exception as failure:
        error = error or f"the result cannot be read: {sentence(failure)}"
        print(failure, file=sys.stderr)
    Path(f"{scene.answer}.part").write_text(json.dumps({"error": error, "rows": rows}))
    os.rename(f"{scene.answer}.part", scene.answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
