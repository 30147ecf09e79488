"""The training run of the CDS archive: a small project is checked, run and verified once, as projects are all day."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace import api
from headrace.demo.starter import write_project
from headrace.frames.project_session import session
from headrace.model import AvailableNow
from headrace.spark.jvm.cds import end_with_parent
from headrace.spark.jvm.gateway import JAVA_OPTIONS
from headrace.spark.jvm.session import stop_with_jvm

# What the JVM may take to write the archive.
_MOST_SECONDS = 600
# Next to the starter's query: other formats, a join of streams, and what else many projects use.
_QUERIES = """
import headrace as hr
from pyspark.sql import functions as F

lines = hr.source.files("lines", format="csv", schema="k STRING, at TIMESTAMP, n INT", watermark=("at", "1 hour"))
parts = hr.source.files("parts", format="parquet", schema="k STRING, at TIMESTAMP, n INT", watermark=("at", "1 hour"))

@hr.query(sink=hr.sink.files("joined", format="parquet"))
def joined(events, lines):
    near = F.expr("phone_id = k AND at BETWEEN time - INTERVAL 5 MINUTES AND time")
    return events.dropDuplicatesWithinWatermark(["phone_id", "time"]).join(lines, near)

@hr.query(sink=hr.sink.memory(), mode="complete")
def averages(parts):
    return parts.groupBy("k").agg(F.avg("n"), F.max("at"), F.approx_count_distinct("n"))

@hr.query(sink=hr.sink.console(), mode="update")
def refused(events):
    return events.orderBy("time")
"""


def train(archive: Path) -> None:
    """Run the project in a JVM that writes `archive` at its exit, and wait for the exit."""
    home = Path("training").absolute()
    write_project(home)
    (home / "more.py").write_text(_QUERIES, encoding="utf-8")
    for folder in ("lines", "parts"):
        (home / folder).mkdir()
    (home / "lines" / "1.csv").write_text("p1,2024-01-01T00:00:00,1\n", encoding="utf-8")
    project = api.load(home)
    options = (
        f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off "
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    )
    spark = session(project, overrides={**project.target.spark, JAVA_OPTIONS: options})
    spark.read.csv(str(home / "lines"), schema="k STRING, at TIMESTAMP, n INT").write.parquet(str(home / "parts" / "1"))
    api.check(project, spark=spark)
    queries = [name for name in project.queries if name != "refused"]
    api.run(project, queries, spark=spark, trigger=AvailableNow())
    list(api.verify_each(project, ["action_counts", "joined"], spark=spark))
    stop_with_jvm(spark, _MOST_SECONDS)


if __name__ == "__main__":
    end_with_parent()
    train(Path(sys.argv[1]))
