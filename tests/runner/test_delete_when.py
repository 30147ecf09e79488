"""A table of open orders shrinks: `delete_when` run, verified, planned and tested; read by sqlite3."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.testing import Crash, evaluate, timeline

from .projects import land, rows

if TYPE_CHECKING:
    from tests.conftest import Sessions

pytestmark = pytest.mark.spark

PROJECT = """
name: orders
sources:
  events:
    files: {path: landing, format: json, max_files_per_trigger: 1, schema: "id BIGINT, amount BIGINT, done BOOLEAN"}
queries:
  open_orders:
    select: SELECT id, sum(amount) AS amount, bool_or(done) AS closed FROM events GROUP BY id
    mode: update
    delete_when: %s
    trigger: available-now
    sink: {sqlite: {path: out.db, table: open_orders, key: [id]}}
"""
BATCHES = (
    [(1, 10, False), (2, 20, False), (3, 30, None)],
    [(1, 5, True), (2, 2, False), (4, 40, True)],
)
OPEN_ROWS = [(2, 22), (3, 30)]
OPEN = "SELECT id, amount FROM open_orders ORDER BY id"


def project(root: Path, condition: str = "closed", text: str = PROJECT) -> Path:
    (root / "landing").mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(text % condition)
    for number, batch in enumerate(BATCHES):
        if not (root / "landing" / f"{number:04d}.json").exists():
            land(root, number, ({"id": id_, "amount": amount, "done": done} for id_, amount, done in batch))
    return root


@pytest.fixture(scope="module")
def ran(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose query has run over both batches."""
    root = project(tmp_path_factory.mktemp("delete") / "orders")
    result = hr.run(hr.load(root), spark=sessions.with_connectors(()))
    assert [outcome.finding for outcome in result.outcomes] == [None]
    return root


@pytest.mark.capability("CDC-07")
def test_closed_orders_leave_the_table_and_verify_knows_it(ran: Path, spark: SparkSession) -> None:
    assert rows(ran / "out.db", OPEN) == OPEN_ROWS
    assert hr.verify(hr.load(ran), "open_orders", spark=spark).state == "equal"
    with sqlite3.connect(ran / "out.db") as connection:
        connection.execute("INSERT INTO open_orders (id, amount, closed) VALUES (1, 15, true)")
    assert hr.verify(hr.load(ran), "open_orders", spark=spark).state == "mismatch"
    with sqlite3.connect(ran / "out.db") as connection:
        connection.execute("DELETE FROM open_orders WHERE id = 1")


@pytest.mark.parametrize("condition", ["amount > 20", None])
def test_an_edit_of_the_condition_is_forward(ran: Path, spark: SparkSession, condition: str | None) -> None:
    project(ran, str(condition), PROJECT if condition else PROJECT.replace("    delete_when: %s\n", "%.0s"))
    try:
        (judgement,) = hr.plan(hr.load(ran), spark=spark)
    finally:
        project(ran)
    assert [difference.verdict for difference in judgement.differences] == ["forward"], judgement
    assert "delete_when" in str(judgement.differences[0])


def test_a_condition_over_a_column_that_is_not_there_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    result = hr.run(hr.load(project(tmp_path / "orders", "is_closed")), spark=spark)
    (finding,) = [outcome.finding for outcome in result.outcomes]
    assert "delete_when of query 'open_orders'" in str(finding)
    assert "is_closed" in str(finding)


def test_the_test_kit_deletes_and_its_batch_answer_too(tmp_path: Path, spark: SparkSession) -> None:
    loaded = hr.load(project(tmp_path / "orders"))
    run_over = timeline(loaded, "open_orders", spark=spark, events=[BATCHES[0], Crash(), BATCHES[1]])
    assert sorted((row.id, row.amount) for row in run_over.after(1)) == [(1, 10), (2, 20), (3, 30)]
    whole = evaluate(loaded, "open_orders", spark=spark, events=[row for batch in BATCHES for row in batch])
    assert sorted((row.id, row.amount) for row in run_over.final) == OPEN_ROWS
    assert sorted((row.id, row.amount) for row in whole) == OPEN_ROWS
