"""A project of many queries over one directory of events, of which the last ones come too late."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.api import load
from headrace.model import Project
from headrace.starter.start import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "time TIMESTAMP, who STRING, value DOUBLE"

PIPELINE = """
from pathlib import Path

import headrace as hr
from pyspark.sql import functions as F

HERE = Path(__file__).parent
SCHEMA = "time TIMESTAMP, who STRING, value DOUBLE"
FILES = {"path": "landing", "format": "json", "schema": SCHEMA, "max_files_per_trigger": 1}
events = hr.source.files(**FILES, watermark=("time", "10 minutes"))
plain = hr.source.files(**FILES)
cleaned = hr.source.files(**FILES, clean_source="delete", watermark=("time", "10 minutes"))

def table(name, key=("who", "start"), **more):
    return hr.sink.sqlite(path="result.db", table=name, key=key, **more)

def counted(events, *sizes):
    counts = events.groupBy(F.window("time", *(sizes or ("10 minutes",))), "who").agg(
        F.count("*").alias("count"), F.sum("value").alias("total"))
    return counts.select("who", F.col("window.start").alias("start"), "count", "total")

@hr.query(sink=table("updated"), mode="update")
def updated(events):
    return counted(events)

@hr.query(sink=table("appended"), mode="append")
def appended(events):
    return counted(events)

@hr.query(sink=table("sliding"), mode="update")
def sliding(events):
    return counted(events, "20 minutes", "10 minutes")

@hr.query(sink=table("small"), mode="append")
def small(events):
    return counted(events).where("count < 3")

@hr.query(sink=table("complete"), mode="complete")
def complete(events):
    return counted(events)

@hr.query(sink=table("totals", key=("who",)), mode="update")
def totals(plain):
    return plain.groupBy("who").count()

@hr.query(sink=table("passing", key=()), mode="append")
def passing(events):
    return events.select("who", "value")

@hr.query(sink=table("keyless", key=()), mode="append")
def keyless(events):
    return counted(events)

@hr.query(sink=hr.sink.files("out", format="json"), mode="append")
def filed(events):
    return counted(events)

@hr.query(sink=table("sessions"), mode="append")
def sessions(events):
    counts = events.groupBy(F.session_window("time", "5 minutes"), "who").count()
    return counts.select("who", F.col("session_window.start").alias("start"), "count")

@hr.query(sink=table("distinct", key=("who", "time")), mode="append")
def distinct(events):
    return events.dropDuplicates(["who", "time"])

@hr.query(sink=table("chained", key=("start",)), mode="append")
def chained(events):
    small = events.groupBy(F.window("time", "5 minutes"), "who").count()
    large = small.groupBy(F.window(F.window_time("window"), "10 minutes")).agg(F.sum("count").alias("count"))
    return large.select(F.col("window.start").alias("start"), "count")

@hr.query(sink=table("unplaced", key=("who",)), mode="update")
def unplaced(events):
    return events.where("who = 'a'").groupBy(F.window("time", "1 day"), "who").count().select("who", "count")

@hr.query(sink=table("ordered"), mode="append")
def ordered(events):
    firsts = events.groupBy(F.window("time", "10 minutes"), "who").agg(F.first("value").alias("value"))
    return firsts.select("who", F.col("window.start").alias("start"), "value")

@hr.query(sink=table("forgotten"), mode="update")
def forgotten(cleaned):
    return counted(cleaned)
"""

# The watermark passes 12:50 with the second file and holds for the rows of the fourth.
BATCHES: list[list[tuple[str, str]]] = [
    [("12:00", "a"), ("12:01", "a")],
    [("13:00", "a")],
    [("13:00", "b")],
    [("12:05", "a"), ("12:45", "a"), ("12:50", "c"), ("12:55", "a"), ("13:01", "b")],
]


def write_project(root: Path, batches: Sequence[Iterable[tuple[str, str]]] = BATCHES) -> Path:
    """The project in `root`, with a file for each of `batches`; a time `12:05` is that of 2024-01-01."""
    root.mkdir(parents=True)
    (root / "headrace.yml").write_text("name: late\n")
    (root / "pipeline.py").write_text(PIPELINE)
    (root / "landing").mkdir()
    land(root, *batches)
    return root


def land(root: Path, *batches: Iterable[tuple[str, str]]) -> None:
    """Let one file land for each of `batches`, later than those that are there."""
    begin = len(list((root / "landing").iterdir()))
    for index, rows in enumerate(batches, start=begin):
        file = root / "landing" / f"{index:03d}.json"
        records = [{"time": f"2024-01-01T{time}:00Z", "who": who, "value": 1.5} for time, who in rows]
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        os.utime(file, (1_700_000_000 + index,) * 2)


def run(root: Path, query: str, spark: SparkSession) -> Project:
    """Run one query over everything that is there; gives the loaded project."""
    from headrace.model import AvailableNow

    project = load(root)
    running = start(project, project.queries[query], spark, trigger=AvailableNow())
    running.handle.awaitTermination()
    running.handle.exception()
    return project


def read(root: Path, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a SELECT on the result's database."""
    connection = sqlite3.connect(root / "result.db")
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def counts_in(root: Path, table: str) -> dict[tuple[str, str], int]:
    """What a table of counts by name and window holds, the window as the hour and minute of its start."""
    return {
        (who, str(begin)[11:16]): count for who, begin, count in read(root, f"SELECT who, start, count FROM {table}")
    }


def counts(batches: Sequence[Iterable[tuple[str, str]]]) -> dict[tuple[str, str], int]:
    """The batch answer, in plain Python: rows by name and window of ten minutes."""
    return dict(Counter((who, f"{time[:4]}0") for rows in batches for time, who in rows))
