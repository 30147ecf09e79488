"""A change that a running Python cannot take: the application's own process begins again, and no row is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from headrace.api import events, load, running, status
from headrace.cli import main
from headrace.control.client import find_running
from headrace.spark.jvm.gateway import PROC, descendants, kill_all
from tests.crash.test_deploy import Load
from tests.runner.projects import land, ledger, rows, write_project
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

PIPELINE = """
import os, sys
from pathlib import Path
from pyspark.sql import SparkSession
import shared_by_projects

# All files at once: those that land while a new start is planned are many.
events = hr.source.files("landing", format="json", schema="name STRING, amount INT")
{more}
def note_start(query):
    colour = SparkSession.active().sparkContext.getConf().get("spark.colour")
    with open(Path(__file__).with_name("starts.txt"), "a") as out:
        print(*sys.argv[1:2] or ["test"], query, os.getpid(), colour, shared_by_projects.SIZE, file=out)

@hr.query(sink=hr.sink.sqlite("totals.db", table="totals", key=["name"]), mode="update", trigger=hr.every("300 ms"))
def totals(events):
    note_start("totals")
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))

@hr.query(sink=hr.sink.sqlite("copied.db", table="copied"), trigger=hr.every("300 ms"))
def copied(events):
    note_start("copied")
    return events.select("amount")

@hr.query(sink=hr.sink.sqlite("rested.db", table="copied"), trigger=hr.every("300 ms"))
def rested(events):
    note_start("rested")
    return events.select("amount")
"""
LEFT_OUT = """
@hr.query(sink=hr.sink.sqlite("left_out.db", table="copied"))
def left_out(events):
    return events
"""
FAILS_IN_A_RUN = """
if sys.argv[1:2] == ["run"]:
    raise ValueError("no run of this")
"""


def write(root: Path, *, colour: str, size: str, more: str = "", settings: str = "") -> None:
    write_project(root, PIPELINE.format(more=more))
    (root / "headrace.yml").write_text(f"name: p\nspark: {{spark.colour: {colour}{settings}}}\n")
    library = root.parent / "lib" / "shared_by_projects.py"
    library.parent.mkdir(exist_ok=True)
    library.write_text(f"SIZE = '{size}'\n")


def starts(root: Path) -> list[tuple[str, ...]]:
    """What each start of a query in a run has noted: the query, the process, a setting, a value of the library."""
    lines = [line.split() for line in (root / "starts.txt").read_text().splitlines()]
    return [tuple(words) for command, *words in lines if command == "run"]


@contextmanager
def application(
    root: Path, queries: tuple[str, ...] = ("totals", "copied", "rested")
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root)]
    paths = [str(root.parent / "lib"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with (root / ".run.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environ)
    try:
        until("batches", lambda: all(ledger(root / f"{query}.db") for query in queries))
        yield process
    finally:
        kill_all(process.pid)
        process.wait(PATIENCE_SECONDS)


def states(root: Path) -> dict[str, str]:
    (there,) = find_running(load(root).local_storage)
    return {query: str(state["state"]) for query, state in there.queries.items()}


def zombies(pid: int) -> list[int]:
    """The children of `pid` that have ended, and for which it has not waited.

    Those of its JVM do not count: the shell of Spark's `spark-class` often leaves one when it becomes the JVM.
    """
    return [child for child in descendants(pid) if _state_and_parent(child) == ("Z", str(pid))]


def _state_and_parent(pid: int) -> tuple[str, ...]:
    try:
        return tuple((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2])
    except FileNotFoundError:  # It has ended meanwhile.
        return ()


def test_the_process_begins_again_with_what_it_could_not_take_and_no_row_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "p"
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    write(root, colour="red", size="one", more=LEFT_OUT)
    landing = Load(root)
    with application(root) as process:
        assert main(["pause", "rested", "-C", str(root)]) == 0
        rested = ledger(root / "rested.db")
        first = starts(root)
        assert {words[1:] for words in first} == {(str(process.pid), "red", "one")}
        capsys.readouterr()

        write(root, colour="green", size="three")
        assert main(["deploy", "-C", str(root)]) == 1
        printed = capsys.readouterr()
        assert ("HR854" in printed.err, "headrace deploy --restart" in printed.err) == (True, True)
        assert (states(root)["totals"], starts(root)) == ("running", first)

        assert main(["deploy", "-C", str(root), "--restart"]) == 0
        done = capsys.readouterr().out
        assert ("'spark.colour'" in done, "'shared_by_projects'" in done) == (True, True)
        assert ("totals: runs again" in done, "rested: is paused" in done) == (True, True)
        assert process.poll() is None
        second = starts(root)[len(first) :]
        assert {words[0] for words in second} == {"totals", "copied"}
        assert {words[1:] for words in second} == {(str(process.pid), "green", "three")}
        until("end of all processes of the former start", lambda: zombies(process.pid) == [])
        assert {one.query: one.state for one in status(load(root))}["left_out"] == "removed"

        # What the new start would be refused is named before anything stops.
        write(root, colour="blue", size="three", settings=", spark.driver.memory: many")
        assert main(["deploy", "-C", str(root), "--restart"]) == 1
        refused = capsys.readouterr().err
        assert ("spark.driver.memory" in refused, "nothing was stopped" in refused) == (True, True)
        assert starts(root) == [*first, *second]

        landing.stop()
        until("last row", lambda: len(amounts(root)) == landing.landed)
        until("last total", lambda: totals(root) == expected_totals(root))

        # And what only the new start itself shows is named by it.
        write(root, colour="blue", size="three", more=FAILS_IN_A_RUN)
        assert main(["deploy", "-C", str(root), "--restart"]) == 1
        printed = capsys.readouterr()
        assert ("no run of this" in printed.err, "the application has ended" in printed.err) == (True, True), printed
        assert "was to begin again" in printed.out
        assert process.wait(PATIENCE_SECONDS) != 0
    assert sorted(amounts(root)) == list(range(landing.landed))
    assert ledger(root / "totals.db") == list(range(len(ledger(root / "totals.db"))))
    assert ledger(root / "rested.db") == rested
    write(root, colour="blue", size="three")
    deploys = [event for event in events(load(root), limit=1000) if event.kind == "deployed"]
    assert len(deploys) == 2


HELD = """
import time
from pathlib import Path

HOME = Path(__file__).parent
@F.udf("int")
def held(amount):
    while amount == 1 and not (HOME / "go").exists():
        (HOME / "holds").touch()
        time.sleep(0.05)
    return amount

@hr.query(sink=hr.sink.sqlite("slow.db", table="copied"), trigger=hr.every("300 ms"))
def slow(events):
    return events.select(held("amount").alias("amount"))
"""


# Of one that does not begin again, tests/control/test_new_start.py shows what the deploy says.
@pytest.mark.long
@pytest.mark.parametrize("now", [False, True], ids=["after its batch", "now"])
def test_a_stop_ends_an_application_that_waits_for_its_batch_before_it_begins_again(tmp_path: Path, now: bool) -> None:
    root = write_project(tmp_path / "p", HELD, batches=[[{"name": "a", "amount": 0}]])
    applications, already = running(load(root)), list[str]()
    with application(root, ("slow",)) as process, ThreadPoolExecutor(3) as threads:
        try:
            land(root, 1, [{"name": "a", "amount": 1}])
            until("batch that is held", (root / "holds").exists)
            (root / "headrace.yml").write_text("name: p\nspark: {spark.colour: green}\n")
            deploy = threads.submit(running(load(root)).deploy, restart=True)
            until("stop for the new start", lambda: states(root)["slow"] == "stopping")
            stops = [threads.submit(applications.stop, now=now, notify=already.append) for _ in range(1 if now else 2)]
            if now:
                assert process.wait(PATIENCE_SECONDS) == 0
            else:
                # The second stop is answered that the application is stopping: then the first one has been taken.
                until("word of the stop", lambda: bool(already))
                assert process.poll() is None
        finally:
            (root / "go").touch()
        assert process.wait(PATIENCE_SECONDS) == 0
        (result,) = deploy.result()
        assert [finding.code for finding in result.errors] == ["HR851"]
        assert [stop.result()[0].finding for stop in stops] == [None] * len(stops)
    assert ledger(root / "slow.db") == ([0] if now else [0, 1])
    assert "begins again" not in (root / ".run.log").read_text()


def amounts(root: Path) -> list[int]:
    return [amount for (amount,) in rows(root / "copied.db", "SELECT amount FROM copied")]


def totals(root: Path) -> list[tuple[str, int]]:
    return rows(root / "totals.db", "SELECT name, amount FROM totals ORDER BY name")


def expected_totals(root: Path) -> list[tuple[str, int]]:
    """The totals as another program computes them."""
    files = f"read_json('{root}/landing/*.json')"
    return duckdb.sql(f"SELECT name, sum(amount)::BIGINT FROM {files} GROUP BY name ORDER BY name").fetchall()
