"""How long a verdict takes, compared with the plain batch query over the same files.

Of 600,000 events in one session, its start apart; of 5 million as the whole process of each side.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import headrace as hr
from benchmarks import headline
from benchmarks.events import events
from benchmarks.figures import Figure, Side
from benchmarks.processes import BASELINES, HEADRACE, seconds
from headrace.spark.jvm.session import start

TITLE = "headrace verify, compared with the plain batch query"
RUNS = 7
WHOLE_RUNS = 3
EVENTS = 600_000
FILES = 12
SCHEMA = "phone_id STRING, time TIMESTAMP, action STRING"

PIPELINE = f'''"""Three results of one source: few groups, many groups, and every tenth row."""

import headrace as hr
from pyspark.sql import functions as F

events = hr.source.files("LANDING", format="json", schema="{SCHEMA}", watermark=("time", "10 minutes"))


@hr.query(sink=hr.sink.sqlite("result.db", table="few", key=["action", "hour"]), mode="update")
def few_groups(events):
    counts = events.groupBy("action", F.window("time", "1 hour")).count()
    return counts.select("action", F.col("window.start").alias("hour"), "count")


@hr.query(sink=hr.sink.sqlite("result.db", table="many", key=["phone_id", "action"]), mode="update")
def many_groups(events):
    return events.groupBy("phone_id", "action").count()


@hr.query(sink=hr.sink.files("clicks", format="parquet"))
def rows(events):
    return events.where("action = 'click'").select("phone_id", "time")
'''
NAMES = {
    "few_groups": "120 groups in SQLite",
    "many_groups": "50,000 groups in SQLite",
    "rows": "every fifth row in parquet files",
}


def measure(*, runs: int, quick: bool) -> list[Figure]:
    made = events(50_000 if quick else EVENTS, files=4 if quick else FILES)
    spark = start(master="local[2]", purpose="short", name="verify")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            home = Path(scratch)
            (home / "headrace.yml").write_text("name: verified\n", encoding="utf-8")
            (home / "pipeline.py").write_text(PIPELINE.replace("LANDING", str(made.directory)), encoding="utf-8")
            project = hr.load(home)
            hr.run(project, trigger=hr.available_now, spark=spark)

            def verify(name: str) -> None:
                state = hr.verify(project, name, spark=spark).state
                assert state in ("equal", "late", "open"), state

            def query(name: str) -> None:
                landed = spark.read.schema(SCHEMA).json(str(made.directory))
                function = project.queries[name].transform.function  # type: ignore[union-attr]
                function(landed).write.format("noop").mode("overwrite").save()

            figures = [_figure(words, name, verify, query, runs) for name, words in NAMES.items()]
    finally:
        spark.stop()
    return [*figures, _whole(min(runs, WHOLE_RUNS), quick=quick)]


def _whole(runs: int, *, quick: bool) -> Figure:
    """The command, with the start of its session, against a script that answers the same."""
    count, files = (headline.FEW_EVENTS, headline.FEW_FILES) if quick else (headline.EVENTS, headline.FILES)
    made = events(count, files=files)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "headrace.yml").write_text(headline.project(made, ""), encoding="utf-8")
        seconds([*HEADRACE, "run"], cwd=Path(scratch))
        for _ in range(runs):
            ours.append(seconds([*HEADRACE, "verify"], cwd=Path(scratch)))
            theirs.append(seconds([sys.executable, BASELINES / "verify_batch.py", made.directory]))
    return Figure(
        name=f"headrace verify, the whole process, {count:,} events",
        ours=Side.of(ours),
        theirs=Side.of(theirs),
        against="a script of the plain batch query with two partitions",
        unit="s",
        target=None if quick else 1.5,
        target_of="ratio",
    )


def _figure(words: str, name: str, ours: Callable[[str], None], theirs: Callable[[str], None], runs: int) -> Figure:
    took: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(-1, runs):  # the first round only warms up
        for side, call in (("ours", ours), ("theirs", theirs)):
            begun = time.monotonic()
            call(name)
            if turn >= 0:
                took[side].append(time.monotonic() - begun)
    return Figure(
        name=f"headrace verify, {words}",
        ours=Side.of(took["ours"]),
        theirs=Side.of(took["theirs"]),
        against="the plain batch query in the same session",
        unit="s",
        target=1.5,
        target_of="ratio",
    )
