"""Jobs of plain PySpark that write into tables by foreachBatch, as they are before they are adopted.

Under Spark 4.1.1, with the repository and its `src` on PYTHONPATH, `python -m tests.changes.former_jobs` makes an
archive of those that it can run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.checkpoint.relocation import rewrite
from headrace.spark.jvm.session_conf import apply_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "name STRING, at TIMESTAMP, amount INT"
STORES = "org.apache.spark.sql.execution.streaming.state."
PLAIN = {
    "spark.sql.streaming.stateStore.providerClass": f"{STORES}HDFSBackedStateStoreProvider",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    "spark.sql.shuffle.partitions": "2",
}
NAMED = {
    **PLAIN,
    "spark.sql.streaming.stateStore.providerClass": f"{STORES}RocksDBStateStoreProvider",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
PIPELINE = """
import headrace as hr
from pyspark.sql import functions as F
from tests.changes.former_jobs import Visits

SCHEMA = "name STRING, at TIMESTAMP, amount INT"
events = hr.source.files("events", format="json", max_files_per_trigger=1, schema=SCHEMA, watermark=("at", "1 hour"))
others = hr.source.files("others", format="json", max_files_per_trigger=1, schema=SCHEMA)

@hr.query(sink=hr.sink.sqlite("out.db", table="copies"))
def copies(events):
    return events.where("amount > 1").select("name", "amount")

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.sqlite("out.db", table="hours", key=["start"]), mode="update")
def hours(events):
    return events.groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("n")).select("window.start", "n")

@hr.query(sink=hr.sink.sqlite("out.db", table="both", key=["name"]), mode="update")
def both(others, events):
    return others.drop("at").unionByName(events.drop("at")).groupBy("name").agg(F.max("amount").alias("most"))

dated = hr.source.files("others", format="json", max_files_per_trigger=1, schema=SCHEMA, watermark=("at", "1 hour"))

@hr.query(sink=hr.sink.sqlite("out.db", table="joined"))
def joined(events, dated):
    right = dated.select(F.col("name").alias("other"), F.col("at").alias("since"), F.col("amount").alias("price"))
    bound = F.expr("name = other AND at BETWEEN since AND since + INTERVAL 1 HOUR")
    return events.join(right, bound).select("name", "price")

@hr.query(sink=hr.sink.sqlite("out.db", table="visits", key=["name"]), mode="update")
def visits(events):
    return events.groupBy("name").transformWithStateInPandas(Visits(), "name STRING, visits INT", "update", "none")
"""


class Visits(StatefulProcessor):
    """Counts rows in a state variable of its own, as the other one is there to make two."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "n INT")
        self.days = handle.getMapState("days", "day STRING", "n INT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        import pandas as pd

        before = self.seen.get() if self.seen.exists() else None
        seen = (before[0] if before else 0) + sum(len(row) for row in rows)
        self.seen.update((seen,))
        yield pd.DataFrame({"name": [key[0]], "visits": [seen]})

    def close(self) -> None:
        """Nothing is open."""


def land(root: Path, folder: str, number: int, *rows: tuple[str, str, int]) -> None:
    """Let one file land, a second after the one before."""
    file = root / folder / f"{number}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"name": name, "at": f"2026-01-01T{at}:00Z", "amount": amount}) for name, at, amount in rows]
    file.write_text("\n".join(lines))
    os.utime(file, (1_700_000_000 + number,) * 2)


def begin(root: Path) -> None:
    """The project, and two files in each directory."""
    root.mkdir(parents=True)
    (root / "headrace.yml").write_text("name: former\n")
    (root / "pipeline.py").write_text(PIPELINE)
    land(root, "events", 0, ("a", "08:10", 1), ("b", "08:20", 5))
    land(root, "events", 1, ("a", "09:10", 2), ("c", "08:50", 3))
    land(root, "others", 0, ("a", "08:00", 7))
    land(root, "others", 1, ("d", "08:00", 4))


def land_more(root: Path) -> None:
    """One file more in each."""
    land(root, "events", 2, ("a", "10:10", 4), ("b", "09:30", 9))
    land(root, "others", 2, ("c", "08:00", 8))


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job in plain PySpark: its table, its settings, and what it makes of its streams."""

    table: str
    create: str
    settings: dict[str, str]
    frame: Callable[[SparkSession, Path], DataFrame]
    mode: str = "update"

    def run(self, spark: SparkSession, root: Path, place: Path | None = None) -> Path:
        """Run it over what is there; its checkpointLocation, which `place` may name."""
        place = place or root / "former" / self.table
        with closing(sqlite3.connect(root / "out.db")) as database, database:
            database.execute(self.create)

        def write(batch: DataFrame, number: int) -> None:
            rows = [tuple(row) for row in batch.collect()]
            marks = ", ".join("?" * len(batch.columns))
            with closing(sqlite3.connect(root / "out.db")) as database, database:
                verb = "INSERT" if self.mode == "append" else "INSERT OR REPLACE"
                database.executemany(f"{verb} INTO {self.table} VALUES ({marks})", rows)

        with apply_settings(spark, self.settings):
            writer = self.frame(spark, root).writeStream.outputMode(self.mode).foreachBatch(write)
            query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
        query.awaitTermination()
        return place


def stream(spark: SparkSession, root: Path, folder: str, name: str | None = None) -> DataFrame:
    reader = spark.readStream.format("json").schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return (reader if name is None else reader.name(name)).load(str(root / folder))


def _copies(spark: SparkSession, root: Path) -> DataFrame:
    return stream(spark, root, "events").where("amount > 1").select("name", "amount")


def _totals(spark: SparkSession, root: Path) -> DataFrame:
    from pyspark.sql import functions as F

    events = stream(spark, root, "events").withWatermark("at", "1 hour")
    return events.groupBy("name").agg(F.sum("amount").alias("total"))


def _hours(spark: SparkSession, root: Path) -> DataFrame:
    from pyspark.sql import functions as F

    events = stream(spark, root, "events", "events").withWatermark("at", "1 hour")
    counted = events.groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("n"))
    return counted.select(F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("start"), "n")


def _both(spark: SparkSession, root: Path) -> DataFrame:
    from pyspark.sql import functions as F

    events = stream(spark, root, "events").withWatermark("at", "1 hour").drop("at")
    united = events.unionByName(stream(spark, root, "others").drop("at"))
    return united.groupBy("name").agg(F.max("amount").alias("most"))


def _join(spark: SparkSession, root: Path) -> DataFrame:
    from pyspark.sql import functions as F

    events, dated = (stream(spark, root, folder).withWatermark("at", "1 hour") for folder in ("events", "others"))
    right = dated.select(F.col("name").alias("other"), F.col("at").alias("since"), F.col("amount").alias("price"))
    bound = F.expr("name = other AND at BETWEEN since AND since + INTERVAL 1 HOUR")
    return events.join(right, bound).select("name", "price")


def _visits(spark: SparkSession, root: Path) -> DataFrame:
    events = stream(spark, root, "events").withWatermark("at", "1 hour")
    return events.groupBy("name").transformWithStateInPandas(Visits(), "name STRING, visits INT", "update", "none")


JOBS = {
    "copies": Job(
        table="copies",
        create="CREATE TABLE copies (name TEXT, amount INTEGER)",
        settings=PLAIN,
        frame=_copies,
        mode="append",
    ),
    "totals": Job(
        table="totals",
        create="CREATE TABLE totals (name TEXT PRIMARY KEY, total INTEGER)",
        settings=PLAIN,
        frame=_totals,
    ),
    "hours": Job(
        table="hours",
        create="CREATE TABLE hours (start TEXT PRIMARY KEY, n INTEGER)",
        settings=NAMED,
        frame=_hours,
    ),
    "both": Job(
        table="both",
        create="CREATE TABLE both (name TEXT PRIMARY KEY, most INTEGER)",
        settings=PLAIN,
        frame=_both,
    ),
    "joined": Job(
        table="joined",
        create="CREATE TABLE joined (name TEXT, price INTEGER)",
        settings=PLAIN,
        frame=_join,
        mode="append",
    ),
    "visits": Job(
        table="visits",
        create="CREATE TABLE visits (name TEXT PRIMARY KEY, visits INTEGER)",
        settings={**PLAIN, "spark.sql.streaming.stateStore.providerClass": f"{STORES}RocksDBStateStoreProvider"},
        frame=_visits,
    ),
}


ARCHIVE = Path(__file__).parent / "written-by-4.1.1.tar.xz"
OLDER = ("copies", "totals", "both")
_MADE_IN = Path("/tmp/former-jobs/p")


def unpack(root: Path) -> None:
    """The project of the archive in `root`, as if the jobs had run there."""
    root.mkdir(parents=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    for log in root.glob("former/*/sources/*"):
        rewrite(log, str(_MADE_IN), str(root))
    (root / "pipeline.py").write_text(PIPELINE)


def main() -> None:
    """Make the archive."""
    from pyspark.sql import SparkSession

    shutil.rmtree(_MADE_IN, ignore_errors=True)
    begin(_MADE_IN)
    spark = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    for name in OLDER:
        JOBS[name].run(spark, _MADE_IN)
    spark.stop()
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        archive.add(_MADE_IN, arcname=".", filter=_plain)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without whose files they are here."""
    info.uname, info.gname, info.uid, info.gid = "", "", 0, 0
    return info


def digests(folder: Path) -> dict[str, str]:
    """Every file below a directory by its content, its time and its rights."""
    contents = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            facts = file.stat()
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            contents[str(file.relative_to(folder))] = f"{content} {facts.st_mtime_ns} {facts.st_mode}"
    return contents


@contextmanager
def require_unchanged(folder: Path) -> Iterator[None]:
    """Fail if anything below a directory is another afterwards."""
    before = digests(folder)
    assert before, "there is something"
    yield
    assert digests(folder) == before


def table(root: Path, name: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(root / "out.db")) as database:
        return database.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()


if __name__ == "__main__":
    main()
