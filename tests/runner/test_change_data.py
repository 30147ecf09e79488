"""Change data from files and Kafka to databases: run, verify, plan; read by clients that are not ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.generations.log import history_file
from headrace.history import History
from headrace.testing import Crash, evaluate, fuzz, timeline

from .projects import land, rows

if TYPE_CHECKING:
    from tests.conftest import Sessions

pytestmark = pytest.mark.spark

SOURCE = """
sources:
  customers:
    files:
      path: landing
      format: json
      max_files_per_trigger: 1
      schema: "id BIGINT, name STRING, city STRING, op STRING, version BIGINT"
queries:
  copy:
    select: SELECT id, name, city FROM customers WHERE city <> 'test'
    trigger: available-now
    sink: {sqlite: {path: out.db, table: customers}}
    cdc: {keys: [id], sequence_by: version, apply_as_deletes: "op = 'D'"%s}
"""
Change = tuple[int | None, str | None, str | None, str, int | None]


def project(root: Path, batches: Sequence[Iterable[Change]], options: str = "", text: str = SOURCE) -> Path:
    """A project that copies customers; each batch is a file of changes (id, name, city, operation, version)."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(f"name: {root.name}\n{text % options}")
    (root / "landing").mkdir(exist_ok=True)
    begun = len(list((root / "landing").iterdir()))
    for number, changes in enumerate(batches):
        land_changes(root, begun + number, changes)
    return root


def land_changes(root: Path, number: int, changes: Iterable[Change]) -> None:
    land(root, number, (dict(zip(("id", "name", "city", "op", "version"), change, strict=True)) for change in changes))


def run(root: Path, spark: SparkSession) -> list[str]:
    """Run the copy to its end and return the codes of what it ended of."""
    result = hr.run(hr.load(root), spark=spark)
    return [outcome.finding.code for outcome in result.outcomes if outcome.finding is not None]


def verdict(root: Path, spark: SparkSession) -> str:
    return hr.verify(hr.load(root), "copy", spark=spark).state


BATCHES: list[list[Change]] = [
    [(1, "Ada", "Paris", "U", 1), (2, "Bob", "Rome", "U", 2), (1, "Ada", "test", "U", 3)],
    # Back from the filter; a delete that knows the key alone; and a change that is older than what is there.
    [(1, "Ada", "Lyon", "U", 5), (2, None, None, "D", 6), (2, "Bob", "Oslo", "U", 4), (3, "Cy", "Bonn", "U", 7)],
    [(1, "old", "Nice", "U", 4), (2, "old", "Bern", "U", 5)],
]


@pytest.mark.capability("CDC-01", "CDC-04")
def test_the_copy_is_the_newest_row_of_each_key_and_verify_says_so(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "shop", BATCHES)
    run(root, spark)
    assert rows(root / "out.db", "SELECT id, name, city FROM customers ORDER BY id") == [
        (1, "Ada", "Lyon"),
        (3, "Cy", "Bonn"),
    ]
    assert verdict(root, spark) == "equal"
    with sqlite3.connect(root / "out.db") as connection:
        connection.execute("UPDATE customers SET city = 'Rome' WHERE id = 1")
    assert verdict(root, spark) == "mismatch"


@pytest.mark.capability("CDC-03")
def test_a_history_has_one_current_row_for_each_key(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "shop", BATCHES, ", stored_as_scd_type: 2, start_column: since, end_column: until")
    run(root, spark)
    assert rows(root / "out.db", "SELECT id, city, since, until FROM customers ORDER BY id, since") == [
        (1, "Paris", 1, 3),
        # Back from the filter, at first by a change that came late.
        (1, "Nice", 4, 5),
        (1, "Lyon", 5, None),
        (2, "Rome", 2, 4),
        (2, "Oslo", 4, 5),
        (2, "Bern", 5, 6),
        (3, "Bonn", 7, None),
    ]
    assert verdict(root, spark) == "equal"


def test_what_a_batch_did_is_in_the_history(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "shop", BATCHES)
    run(root, spark)
    with History.open(history_file(hr.load(root).local_storage), read_only=True) as history:
        counts = [record.changes for record in history.recent("copy", generation=1)]
    assert [(one.inserts, one.updates) for one in counts if one is not None] == [(1, 0), (2, 0), (0, 0)]
    assert counts[-1] is not None
    assert counts[-1].ignored == 2


def test_a_change_without_sequence_is_a_bad_row(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "shop", [[(1, "Ada", "Paris", "U", 1), (2, "Bob", "Rome", "U", None)]])
    assert run(root, spark) == ["HR302"]
    text = SOURCE.replace("format: json", "format: json\n      on_bad_row: quarantine")
    root = project(tmp_path / "careful", [[(1, "Ada", "Paris", "U", 1), (2, "Bob", "Rome", "U", None)]], text=text)
    run(root, spark)
    assert rows(root / "out.db", "SELECT id FROM customers") == [(1,)]
    assert verdict(root, spark) == "equal"


@pytest.mark.capability("CDC-10")
def test_several_columns_are_one_sequence(tmp_path: Path, spark: SparkSession) -> None:
    changes: list[Change] = [(1, "B", "Paris", "U", 1), (1, "A", "Rome", "U", 9), (1, "B", "Oslo", "U", 2)]
    text = SOURCE.replace("sequence_by: version", "sequence_by: 'struct(name, version)'")
    root = project(tmp_path / "shop", [changes[2:], changes[:2]], text=text)
    run(root, spark)
    assert rows(root / "out.db", "SELECT city FROM customers") == [("Oslo",)]
    assert verdict(root, spark) == "equal"


EDITS = {
    "the filter": ("'test'", "'trial'", "forward", "the filter"),
    "a column": ("id, name, city", "id, upper(name) AS name, city", "forward", "column 'name'"),
    "deletes": ("op = 'D'", "op = 'delete'", "forward", "apply_as_deletes"),
    "the sequence": ("sequence_by: version", "sequence_by: id", "rebuild", "sequence_by"),
    "keys": ("keys: [id]", "keys: [id, name]", "rebuild", "keys"),
    "the type": ("sequence_by: version", "sequence_by: version, stored_as_scd_type: 2", "rebuild", "scd_type"),
    "NULL": ("sequence_by: version", "sequence_by: version, ignore_null_updates: true", "forward", "null_updates"),
    "remembered deletes": ("sequence_by: version", "sequence_by: version, keep_deletes: 1 day", "safe", "keep_deletes"),
}


@pytest.fixture(scope="module")
def copied(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that has run over one batch."""
    root = project(tmp_path_factory.mktemp("edits") / "shop", BATCHES[:1])
    assert run(root, sessions.with_connectors(())) == []
    return root


@pytest.mark.capability("CDC-05")
@pytest.mark.parametrize(("old", "new", "worst", "part"), EDITS.values(), ids=EDITS)
def test_an_edit_has_its_verdict(copied: Path, spark: SparkSession, old: str, new: str, worst: str, part: str) -> None:
    text = SOURCE % ""
    assert old in text
    (copied / "headrace.yml").write_text(f"name: {copied.name}\n{text.replace(old, new)}")
    (judgement,) = hr.plan(hr.load(copied), spark=spark)
    assert [difference.verdict for difference in judgement.differences] == [worst], judgement
    assert part in str(judgement.differences[0])


def test_a_start_after_a_change_of_meaning_is_refused(copied: Path, spark: SparkSession) -> None:
    text = (SOURCE % "").replace("sequence_by: version", "sequence_by: id")
    (copied / "headrace.yml").write_text(f"name: {copied.name}\n{text}")
    assert run(copied, spark) == ["HR535"]


@pytest.mark.capability("CDC-06")
def test_a_timeline_of_changes_runs_through_a_crash(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "shop", [])
    read = hr.load(root)
    run_over = timeline(read, "copy", spark=spark, customers=[BATCHES[0], BATCHES[1], Crash(), BATCHES[2]])
    assert sorted((row.id, row.name, row.city) for row in run_over.after(1)) == [(2, "Bob", "Rome")]
    assert sorted((row.id, row.name, row.city) for row in run_over.final) == [(1, "Ada", "Lyon"), (3, "Cy", "Bonn")]
    whole = evaluate(read, "copy", spark=spark, customers=[change for batch in BATCHES for change in batch])
    assert sorted((row.id, row.name, row.city) for row in whole) == [(1, "Ada", "Lyon"), (3, "Cy", "Bonn")]


@pytest.mark.capability("CDC-06")
def test_fuzz_cuts_and_reorders_changes_and_finds_one_table(tmp_path: Path, spark: SparkSession) -> None:
    changes: list[Change] = [(key, "name", "Rome", "U", key) for key in range(1, 6)]
    changes += [(1, None, None, "D", 7), (1, "older", "Oslo", "U", 6), (2, "newer", "Bern", "U", 8)]
    first_batches: set[frozenset[int]] = set()
    result = fuzz(
        hr.load(project(tmp_path / "shop", [])),
        "copy",
        runs=2,
        seed=7,
        seconds=600,
        spark=spark,
        check=lambda run: first_batches.add(frozenset(row.id for row in run.steps[0])),
        customers=changes,
    )
    assert (result.failure, result.unfit, result.compared) == ("", "", True), result.describe()
    assert len(first_batches) > 1
