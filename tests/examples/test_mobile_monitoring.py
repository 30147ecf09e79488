"""The monitoring application: one SQL query, two databases, a late event, and a proof."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, verify

from ..connectors.sql.databases import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.services

HOME = Path(__file__).parents[2] / "examples" / "mobile-monitoring"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str, mariadb_url: str) -> Path:
    monkeypatch.setenv("POSTGRES_URL", postgres_url)
    monkeypatch.setenv("MYSQL_URL", mariadb_url)
    place = tmp_path / "mobile-monitoring"
    shutil.copytree(HOME, place, ignore=shutil.ignore_patterns(".headrace"))
    return place


def counts(database: Database) -> list[str]:
    rows = database.query('SELECT action, hour, "count" FROM action_counts ORDER BY action, hour')
    return [f"{action}|{hour:%Y-%m-%d %H:%M}|{count}" for action, hour, count in rows]


@pytest.mark.capability("MODEL-03")
@pytest.mark.capability("MODEL-04")
@pytest.mark.capability("MODEL-05")
def test_a_late_event_updates_the_row_of_its_hour_in_both_databases(
    root: Path, spark: SparkSession, postgres_url: str, mariadb_url: str
) -> None:
    databases = {
        "counts_in_postgres": Database("postgres", postgres_url),
        "counts_in_mysql": Database("mariadb", mariadb_url),
    }
    late = root / "landing" / "3-until-2-05.json"
    later = late.rename(root / late.name)
    assert run(load(root), spark=spark).exit_code == 0
    for query, database in databases.items():
        assert counts(database) == ["close|2016-07-28 01:00|2", "open|2016-07-28 01:00|3"]
        assert verify(load(root), query, spark=spark).state == "equal"
    later.rename(late)
    assert run(load(root), spark=spark).exit_code == 0
    for query, database in databases.items():
        assert counts(database) == (HOME / "expected" / "action_counts.txt").read_text().splitlines()
        assert [batch for batch, _, _ in database.batches()] == [0, 1, 2]
        verdict = verify(load(root), query, spark=spark)
        assert (verdict.state, verdict.rows_read, verdict.rows_actual) == ("equal", 7, 3)


def test_a_row_that_somebody_changed_is_found(root: Path, spark: SparkSession, postgres_url: str) -> None:
    assert run(load(root), ["counts_in_postgres"], spark=spark).exit_code == 0
    Database("postgres", postgres_url).query("UPDATE action_counts SET count = 5 WHERE action = 'open'")
    verdict = verify(load(root), "counts_in_postgres", spark=spark)
    assert (verdict.state, verdict.different) == ("mismatch", 1)
