"""A query that was rewound reads again what came later, and ends in the batch answer; a killed rewind is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.checkpoint import Checkpoint
from tests.changes.test_rewind import at, codes, make_project, state
from tests.registered import layout_in
from tests.rounds import as_long
from tests.runner.projects import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
import headrace as hr
from pyspark.sql import functions as F

SCHEMA = "name STRING, amount INT, time TIMESTAMP"

def landed(place):
    given = {"format": "json", "max_files_per_trigger": 1, "schema": SCHEMA}
    return hr.source.files(place, watermark=("time", "5 seconds"), **given)

events, clicks = landed("landing"), landed("clicks")

def kept(table, *key):
    return hr.sink.sqlite("out.db", table=table, key=list(key), rewindable="7 days")

@hr.query(sink=kept("totals", "name"), mode="update")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.sqlite("out.db", table="everything", rewindable="7 days"), mode="complete")
def everything(events):
    return events.groupBy("name").agg(F.count("*").alias("rows"))

@hr.query(sink=kept("windows", "start", "name"), mode="append")
def windows(events):
    counts = events.groupBy("name", F.window("time", "10 seconds")).count()
    return counts.select("name", F.col("window.start").alias("start"), "count")

@hr.query(sink=kept("once", "name", "amount"), mode="append")
def once(events):
    return events.dropDuplicatesWithinWatermark(["name", "amount"]).select("name", "amount")

@hr.query(sink=kept("joined", "name", "amount", "clicked"), mode="append")
def joined(events, clicks):
    near = "c.name = e.name AND c.time BETWEEN e.time AND e.time + INTERVAL 20 SECONDS"
    pairs = events.alias("e").join(clicks.alias("c"), F.expr(near))
    return pairs.select("e.name", "e.amount", F.col("c.amount").alias("clicked"))

@hr.query(sink=hr.sink.files("out", format="json", partition_by=["name"]), mode="append")
def copies(events):
    return events.select("name", "amount")
"""
FILES = 6
ALL = ("totals", "everything", "windows", "once", "joined", "copies")


def land(root: Path, number: int) -> None:
    """One file in each source, ten seconds after the one before, with a row that comes late."""
    for place, shift in (("landing", 0), ("clicks", 3)):
        (root / place).mkdir(parents=True, exist_ok=True)
        given = [
            {
                "name": name,
                "amount": number * 10 + at,
                "time": f"2024-01-01 00:{number // 6:02}:{number % 6}{at + shift}",
            }
            for at, name in enumerate("abc")
        ]
        late = {"name": "late", "amount": number, "time": "2024-01-01 00:00:00"}
        file = root / place / f"{number}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in [*given, late]))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


@pytest.mark.spark
@pytest.mark.capability("REC-09")
@pytest.mark.usefixtures("checkpoint_format")
@pytest.mark.parametrize(
    "names", [("totals", "windows", "copies"), as_long((ALL,))], ids=["some queries", "all queries"]
)
def test_a_rewound_query_ends_in_the_batch_answer(spark: SparkSession, tmp_path: Path, names: tuple[str, ...]) -> None:
    root = tmp_path / "p"
    for number in range(FILES):
        land(root, number)
    (root / "headrace.yml").write_text("name: p\n")
    (root / "pipeline.py").write_text(PIPELINE)

    def run() -> hr.Project:
        project = hr.load(root)
        result = hr.run(project, names, trigger=hr.available_now, spark=spark)
        assert [(outcome.state, outcome.finding) for outcome in result.outcomes if outcome.state != "finished"] == []
        return project

    def held() -> dict[str, list[Any]]:
        tables = [name for name in names if name != "copies"]
        answers = {name: rows(root / "out.db", f"SELECT * FROM {name} ORDER BY 1, 2") for name in tables}
        copies = spark.read.json(str(root / "out")).select("name", "amount")
        return {**answers, "copies": sorted(map(tuple, copies.collect()))}

    def wrong(project: hr.Project) -> dict[str, str]:
        """The results that are not the batch answer, for another reason than late rows or groups still open."""
        verdicts = {name: hr.verify(project, name, spark=spark).state for name in names}
        return {name: state for name, state in verdicts.items() if state not in ("equal", "late", "open")}

    def late(project: hr.Project) -> int:
        return sum(batch.rows for batch in hr.late(project, "windows", spark=spark).batches)

    project = run()
    whole = held()
    dropped = late(project)
    for query in names:
        plan = hr.rewind(project, query, to_batch=2, spark=spark).plan
        assert (plan.batch, plan.lost) == (2, ())
        assert plan.held
        assert hr.rewind(project, query, to_batch=2, spark=spark).apply().batch == 2
    shorter = held()
    assert [name for name in whole if shorter[name] == whole[name]] == []
    assert wrong(project) == {}
    assert {entry.batch for entry in hr.status(project) if entry.query in names} == {2}
    assert late(project) == 0 < dropped
    # What came later is read again, in batches of the same numbers.
    project = run()
    assert held() == whole
    assert late(project) == dropped
    # A query without state reaches back as far as its archive; and a rewind is taken back.
    checkpoint = Checkpoint(layout_in(project.storage, "copies").checkpoint)
    for number in range(3):
        for log in ("offsets", "commits"):
            for file in (checkpoint.root / log).glob(f"*{number}*"):
                file.unlink() if file.name in (str(number), f".{number}.crc") else None
    assert hr.rewind(project, "copies", to_batch=1, spark=spark).apply().batch == 1
    assert hr.verify(project, "copies", spark=spark).state == "equal"
    hr.rewind(project, "copies", spark=spark).undo()
    assert held() == whole
    hr.rewind(project, "copies", to_batch=0, spark=spark).apply()
    land(root, FILES)
    project = run()
    assert len(held()["copies"]) == 4 * (FILES + 1)
    assert wrong(project) == {}


KILLED = """
import os, signal, sys
import headrace as hr

def reached(step):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

project = hr.load(sys.argv[1])
if sys.argv[3] == "undo":
    hr.rewind(project, "totals").undo(reached=reached)
else:
    hr.rewind(project, "totals", to_batch=1).apply(reached=reached)
"""


@pytest.mark.plain
def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")

    def killed(step: str, way: str) -> None:
        command = [sys.executable, "-c", KILLED, str(project.root), step, way]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert codes(project) == ["HR581"]

    killed("sink", "rewind")
    hr.rewind(project, "totals", to_batch=1).apply()
    assert (state(project), codes(project)) == (at(1), [])
    killed("sink", "undo")
    hr.rewind(project, "totals").undo()
    assert (state(project), codes(project)) == (at(2), [])
    killed("made", "rewind")
    killed("history", "rewind")
    hr.rewind(project, "totals").undo()
    assert (state(project), codes(project)) == (at(2), [])
