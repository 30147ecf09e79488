"""The commands as processes of their own, on the project that `init` writes."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import load, run
from headrace.cli import main
from headrace.demo.starter import write_project
from headrace.model import AvailableNow
from tests.rounds import rounds
from tests.waiting import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 3000


def headrace(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def result(project: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(project / "result.db") as database:
        return database.execute("SELECT action, hour, count FROM action_counts ORDER BY hour, action").fetchall()


# tests/docs/test_tutorial.py types these commands for both forms.
@pytest.mark.long
def test_both_forms_run_to_the_same_result_and_it_is_proved(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "python")]) == 0
    code, lines = headrace("run", "-C", str(tmp_path / "python"), "--available-now")
    assert code == 0
    before = ("state", "preparing", "working")
    assert next(line["event"] for line in lines if line["event"] not in before) == "started"
    assert lines[-1]["event"] == "result"
    assert sum(line["rows"] for line in lines if line["event"] == "batch") == ROWS
    assert main(["init", str(tmp_path / "sql"), "--sql"]) == 0
    assert run(load(tmp_path / "sql"), trigger=AvailableNow(), spark=spark).outcomes[0].rows == ROWS
    assert sum(count for _, _, count in result(tmp_path / "python")) == ROWS
    assert result(tmp_path / "python") == result(tmp_path / "sql")

    capsys.readouterr()
    assert main(["verify", "-C", str(tmp_path / "python"), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["state"], verdict["rows_read"]) == ("equal", ROWS)
    assert verdict["sentence"] == "correct: equal to the batch query over the same input"

    capsys.readouterr()
    assert main(["status", "-C", str(tmp_path / "python"), "--json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)["queries"]
    assert (status["state"], status["rows_total"], status["verdict"]["state"]) == ("finished", ROWS, "equal")

    # What a change of the query means is shown before it runs.
    file = next((tmp_path / "sql").rglob("*.sql"))
    text = file.read_text()
    changes = {"-- counts\n" + text: ("same", 0), text.replace("count(*)", "count(action)"): ("rebuild", 1)}
    for changed, (verdict, code) in changes.items():
        file.write_text(changed)
        capsys.readouterr()
        assert main(["plan", "-C", str(tmp_path / "sql"), "--json", "--detailed-exitcode"]) == code
        (entry,) = json.loads(capsys.readouterr().out)["queries"]
        assert (entry["query"], entry["verdict"]) == ("action_counts", verdict)
    assert {difference["part"] for difference in entry["differences"]} == {
        "values of the aggregation",
        "column 'count'",
    }


SLOW = """
import time
from pathlib import Path

import headrace as hr
from pyspark.sql import functions as F

numbers = hr.source.rate_micro_batch(rows_per_batch=200, num_partitions=2)
AT_WORK = Path(__file__).with_name("at-work")


def slowly(value):
    AT_WORK.touch()
    time.sleep(1)
    return value


@hr.query(sink=SINK)
def slow(numbers):
    return numbers.select(F.udf(slowly, "LONG")("value").alias("value"))
"""


# tests/crash/test_stop.py asks a run twice that hangs.
@pytest.mark.long
@pytest.mark.parametrize(
    "sink",
    ['hr.sink.sqlite("result.db", table="slow")', "hr.sink.foreach_batch(lambda f, b: f.count())"],
    ids=["sqlite", "foreach_batch"],
)
def test_a_run_that_is_asked_twice_breaks_its_batch_off_and_says_nothing_of_it(tmp_path: Path, sink: str) -> None:
    (tmp_path / "headrace.yml").write_text("name: slow\n")
    (tmp_path / "pipeline.py").write_text(SLOW.replace("SINK", sink))
    files = tmp_path / "out.log", tmp_path / "err.log"
    with files[0].open("wb") as stdout, files[1].open("wb") as stderr:
        command = [sys.executable, "-m", "headrace", "run", "-C", str(tmp_path), "--json"]
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
    try:
        until("row of the batch", lambda: (tmp_path / "at-work").exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        until("word of the stop", lambda: '"stopping"' in files[0].read_text() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
    out, err = (file.read_text() for file in files)
    last = json.loads(out.splitlines()[-1])
    assert last["event"] == "result", (out, err)
    (outcome,) = last["outcomes"]
    assert (process.returncode, outcome["state"], outcome["finding"], outcome["batches"]) == (0, "stopped", None, 0)
    assert re.findall(r".*(?:Exception|Error|ERROR|^\s+at ).*", err, re.MULTILINE) == []


@pytest.mark.parametrize("number", rounds([signal.SIGTERM, signal.SIGINT]), ids=["SIGTERM", "Ctrl-C"])
def test_a_run_that_is_asked_to_stop_finishes_its_batch_and_gives_its_result(
    number: signal.Signals, tmp_path: Path
) -> None:
    """The whole process group gets the signal, as from a terminal and from `timeout`."""
    write_project(tmp_path / "phones", event_files=1)
    with (tmp_path / "phones" / "pipeline.py").open("a") as code:
        code.write("import os\nprint('of Python')\nos.system('echo of a child')\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", "-C", str(tmp_path / "phones"), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if [line["event"] for line in lines].count("batch") == 1 and lines[-1]["event"] == "batch":
            os.killpg(process.pid, number)
    assert process.wait(60) == 0
    (outcome,) = lines[-1]["outcomes"]
    assert (lines[-1]["event"], outcome["state"], outcome["rows"]) == ("result", "stopped", 1000)
    # What the project prints, the programs that it starts and the JVM do not stand between the lines.
    assert process.stderr is not None
    assert {"of Python", "of a child"} <= set(process.stderr.read().splitlines())
