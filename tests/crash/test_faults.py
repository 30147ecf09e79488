"""What goes wrong around a stream is one sentence with a code; nothing is lost, and the next start continues."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, verify
from headrace.connectors.sql import silence
from headrace.contract import Observer
from headrace.errors import Finding
from tests.registered import layout_in
from tests.runner.projects import land, land_text, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash

TOTALS = """
sink = hr.sink.sqlite("{database}", table="totals", key=["name"]{options})

@hr.query(sink=sink, mode="update", trigger=hr.available_now)
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))
"""
FRUIT = [[{"name": "apple", "amount": 1}], [{"name": "apple", "amount": 3}, {"name": "pear", "amount": 2}]]


class Notes(Observer):
    """Remembers what a run notes."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def note(self, finding: Finding) -> None:
        self.findings.append(finding)


def project(root: Path, *, database: str = "out.db", options: str = "", quarantine: bool = False) -> Path:
    write_project(root, TOTALS.format(database=database, options=options), batches=FRUIT)
    if quarantine:
        text = (root / "pipeline.py").read_text()
        (root / "pipeline.py").write_text(text.replace("schema=", 'on_bad_row="quarantine", schema='))
    return root


def failure_of(root: Path, spark: SparkSession) -> Finding:
    """The finding of a run that is to fail."""
    result = run(load(root), spark=spark)
    assert result.exit_code == 1
    finding = result.outcomes[0].finding
    assert finding is not None
    assert "\n" not in finding.what
    assert finding.fix
    return finding


def totals(root: Path, database: str = "out.db") -> dict[str, int]:
    return dict(rows(root / database, "SELECT name, amount FROM totals"))


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param('{"name": "fig", "amount": 5}\n{"name": "fig", "amo', id="half-written file"),
        pytest.param('{"name": "fig", "amount": 5}\nno JSON at all\n', id="corrupt line", marks=pytest.mark.long),
        pytest.param('{"name": "fig", "amount": "many"}\n', id="value of another type", marks=pytest.mark.long),
    ],
)
def test_a_row_that_does_not_fit_stops_the_query_until_the_file_is_mended(
    tmp_path: Path, spark: SparkSession, broken: str
) -> None:
    root = project(tmp_path / "p")
    file = land_text(root, 2, broken)
    finding = failure_of(root, spark)
    assert (finding.code, file.name in finding.what) == ("HR302", True)
    assert totals(root) == {"apple": 4, "pear": 2}
    land(root, 2, [{"name": "fig", "amount": 5}, {"name": "fig", "amount": 6}])
    assert run(load(root), spark=spark).exit_code == 0
    assert totals(root) == {"apple": 4, "pear": 2, "fig": 11}
    assert verify(load(root), "totals", spark=spark).state == "equal"


def test_a_row_that_does_not_fit_is_set_aside_if_the_project_says_so(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", quarantine=True)
    land_text(root, 2, '{"name": "fig", "amount": 5}\nno JSON at all\n')
    notes = Notes()
    assert run(load(root), spark=spark, reporter=notes).exit_code == 0
    assert totals(root) == {"apple": 4, "pear": 2, "fig": 5}
    assert "HR305" in {finding.code for finding in notes.findings}
    kept = list((root / ".headrace").glob("queries/totals-*/g1.1/quarantine/events/*.jsonl"))
    assert [file.name for file in kept] == ["2.jsonl"]
    assert "no JSON at all" in kept[0].read_text()
    assert verify(load(root), "totals", spark=spark).state == "equal"


def test_rows_set_aside_by_a_driver_that_died_are_written_by_the_next(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", quarantine=True)
    land_text(root, 2, "no JSON at all\n")
    assert run(load(root), spark=spark).exit_code == 0
    home = layout_in(root / ".headrace", "totals").home / "quarantine"
    (home / "events" / "2.jsonl").unlink()
    (home / ".seen").write_text("1")
    assert run(load(root), spark=spark).exit_code == 0
    assert "no JSON at all" in (home / "events" / "2.jsonl").read_text()


def test_a_file_that_vanished_stops_the_query_until_it_is_back(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p")
    assert run(load(root), spark=spark).exit_code == 0
    land(root, 2, [{"name": "fig", "amount": 5}])
    hidden = root / "hidden"

    def hide(boundary: str, batch: int) -> None:
        raise AssertionError("the batch is not to come this far")

    (layout_in(root / ".headrace", "totals").home / "checkpoint" / "commits" / "1").unlink()
    (root / "landing" / "0001.json").rename(hidden)
    database = sqlite3.connect(root / "out.db")
    database.execute("DELETE FROM _headrace_ledger WHERE batch = 1")
    database.commit()
    database.close()
    result = run(load(root), spark=spark, reached=hide)
    finding = result.outcomes[0].finding
    assert finding is not None
    assert finding.code == "HR303", finding
    hidden.rename(root / "landing" / "0001.json")
    assert run(load(root), spark=spark).exit_code == 0
    assert totals(root) == {"apple": 4, "pear": 2, "fig": 5}


def test_a_database_locked_by_another_process_is_reported_and_waited_for(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A start waits for minutes, as long as a server takes to end an older driver's session.
    monkeypatch.setattr(silence, "PATIENCE_SECONDS", 5.0)
    root = project(tmp_path / "p", options=", retry_seconds=2")
    assert run(load(root), spark=spark).exit_code == 0
    land(root, 2, [{"name": "fig", "amount": 5}])
    other = sqlite3.connect(root / "out.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    finding = failure_of(root, spark)
    assert time.monotonic() - begun > 5
    assert (finding.code, "locked by another process" in finding.what) == ("HR405", True)
    other.execute("ROLLBACK")
    other.close()
    assert run(load(root), spark=spark).exit_code == 0
    assert totals(root) == {"apple": 4, "pear": 2, "fig": 5}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 200 kB."""
    if os.geteuid() != 0:
        sentence = "a small file system can be mounted only by root: run the tests as root in a container"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_under_the_sink_stops_the_query_until_there_is_room(
    tmp_path: Path, spark: SparkSession, small_disk: Path
) -> None:
    root = project(tmp_path / "p", database=str(small_disk / "out.db"))
    assert run(load(root), spark=spark).exit_code == 0
    land(root, 2, [{"name": f"a name of some length, number {n}", "amount": n} for n in range(5_000)])
    finding = failure_of(root, spark)
    assert (finding.code, "full" in finding.what) == ("HR405", True)
    assert totals(root, str(small_disk / "out.db")) == {"apple": 4, "pear": 2}
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert run(load(root), spark=spark).exit_code == 0
    assert len(totals(root, str(small_disk / "out.db"))) == 5_002
    assert verify(load(root), "totals", spark=spark).state == "equal"


def test_a_full_disk_under_the_storage_stops_the_query_until_there_is_room(
    tmp_path: Path, spark: SparkSession, small_disk: Path
) -> None:
    root = project(tmp_path / "p")
    (root / "headrace.yml").write_text(f"name: p\nstorage: {small_disk}\n")
    finding = failure_of(root, spark)
    assert finding.code in {"HR540", "HR541", "HR601"}
    assert "space" in finding.what
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert run(load(root), spark=spark).exit_code == 0
    assert totals(root) == {"apple": 4, "pear": 2}
