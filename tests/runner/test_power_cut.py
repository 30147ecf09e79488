"""What a power cut takes from a checkpoint comes back from the sink's ledger, and the result is exact."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.directory import numbered_files
from headrace.checkpoint.state_files import version_of
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.jvm.settings import CHECKPOINT_FORMAT
from tests.registered import layout_in
from tests.rounds import rounds

from .projects import land, ledger, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUERIES = """
@hr.query(sink=hr.sink.sqlite("copied.db", table="copied"))
def copied(events):
    return events


@hr.query(sink=hr.sink.sqlite("totals.db", table="totals", key=["name"]), mode="update")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""
BATCHES = 5
COMPACT_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"


def content(number: int) -> list[dict[str, object]]:
    return [{"name": name, "amount": 10**number} for name in ("a", f"b{number}")]


@pytest.fixture(scope="module", params=rounds(["2", "1"]), ids=["format-2", "format-1"])
def project(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    root = tmp_path_factory.mktemp(f"power-{request.param}-")
    return write_project(root / "p", QUERIES, batches=[content(number) for number in range(BATCHES)])


@pytest.fixture
def written(project: Path, spark: SparkSession) -> Iterator[Path]:
    """A project whose queries have made their batches; each test gets it as it was then."""
    kept = project.parent / "kept"
    spark.conf.set(COMPACT_INTERVAL, "2")
    if not kept.exists():
        with apply_settings(spark, {CHECKPOINT_FORMAT: project.parent.name.split("-")[1]}):
            run(project, spark)
        kept.mkdir()
        shutil.copytree(project / ".headrace", kept / ".headrace")
        for name in ("copied.db", "totals.db"):
            # What SQLite has committed may lie in the log next to the file.
            with closing(sqlite3.connect(project / name)) as source, closing(sqlite3.connect(kept / name)) as copy:
                source.backup(copy)
    shutil.rmtree(project / ".headrace")
    for file in (*project.glob("*.db*"), *(project / "landing").glob(f"{BATCHES:04d}*")):
        file.unlink()
    shutil.copytree(kept / ".headrace", project / ".headrace")
    for name in ("copied.db", "totals.db"):
        shutil.copy(kept / name, project / name)
    yield project
    spark.conf.unset(COMPACT_INTERVAL)


def run(project: Path, spark: SparkSession) -> None:
    result = hr.run(hr.load(project), trigger=hr.available_now, spark=spark)
    assert [outcome.state for outcome in result.outcomes] == ["finished", "finished"], [
        str(outcome.finding) for outcome in result.outcomes
    ]


def take(file: Path) -> None:
    """Remove a file with its checksum."""
    for path in (file, file.with_name(f".{file.name}.crc")):
        path.unlink(missing_ok=True)


def empty(file: Path) -> None:
    """What a file system with delayed allocation leaves of a file after a power cut."""
    file.write_bytes(b"")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def newest(checkpoint: Path, lost: int, *logs: str) -> Iterator[Path]:
    for log in logs:
        folder = checkpoint / log
        if log == "state":
            for file in folder.glob("*/*/*.changelog"):
                # Version N is what batch N begins with.
                if (version_of(file.name) or 0) > BATCHES - lost:
                    yield file
        else:
            yield from (file for number, file in numbered_files(folder).items() if number >= BATCHES - lost)


ALL = ("commits", "offsets", "sources/events", "state")
DAMAGES: dict[str, Callable[[Path], object]] = {
    "the last batch": lambda place: [take(file) for file in newest(place, 1, *ALL)],
    "the last two batches": lambda place: [take(file) for file in newest(place, 2, *ALL)],
    "the last two batches, emptied": lambda place: [empty(file) for file in newest(place, 2, *ALL)],
    "the state of the last two": lambda place: [take(file) for file in newest(place, 2, "state")],
    "the offsets of the last, not its commit": lambda place: [take(file) for file in newest(place, 1, "offsets")],
    "the offsets and source logs of the last two": lambda place: [
        take(file) for file in newest(place, 2, "offsets", "sources/events")
    ],
    "the commits and state of the last two": lambda place: [
        take(file) for file in newest(place, 2, "commits", "state")
    ],
}


@pytest.mark.parametrize("damage", rounds(DAMAGES.values()), ids=DAMAGES)
def test_a_restart_gives_the_exact_result(written: Path, spark: SparkSession, damage: Callable[[Path], object]) -> None:
    for query in ("copied", "totals"):
        damage(layout_in(written / ".headrace", query).checkpoint)
    land(written, BATCHES, content(BATCHES))
    run(written, spark)
    expected = [row for number in range(BATCHES + 1) for row in content(number)]
    copied = rows(written / "copied.db", "SELECT name, amount FROM copied ORDER BY amount, name")
    assert copied == sorted([(row["name"], row["amount"]) for row in expected], key=lambda row: (row[1], row[0]))
    totals = dict(rows(written / "totals.db", "SELECT name, total FROM totals"))
    assert totals == {
        "a": sum(10**number for number in range(BATCHES + 1)),
        **{f"b{number}": 10**number for number in range(BATCHES + 1)},
    }
    assert ledger(written / "copied.db") == ledger(written / "totals.db") == list(range(BATCHES + 1))
    files = [
        json.loads(line)["path"].rpartition("/")[2]
        for lines in Checkpoint(layout_in(written / ".headrace", "totals").checkpoint).source_log("events").values()
        for line in lines
    ]
    assert files == [f"{number:04d}.json" for number in range(BATCHES + 1)]
