"""What verify says of queries over tables that changed between their batches."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import check, load, run, verify
from headrace.frames import tables
from headrace.frames.tables import TableVersions
from headrace.model import Project
from tests.registered import layout_in
from tests.runner.projects import keep, land, restore, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import Sessions

pytestmark = pytest.mark.spark

SHOP = """
from pathlib import Path

HOME = Path(__file__).parent

def sqlite(name, *key):
    return hr.sink.sqlite(str(HOME / "out.db"), table=name, key=list(key))

@hr.table(refresh="1 hour")
def prices(spark):
    rate = int((HOME / "rate.txt").read_text())
    return spark.createDataFrame([("apple", 10 * rate), ("pear", 20 * rate)], "name STRING, price INT")

@hr.table
def names(spark):
    return spark.createDataFrame([("apple", "Apple"), ("pear", "Pear")], "name STRING, title STRING")

@hr.query(sink=sqlite("joined"), trigger=hr.available_now)
def joined(events, prices, names):
    return events.join(prices, "name").join(names, "name", "left").selectExpr("title", "amount", "price")

@hr.query(sink=sqlite("newest", "name"), mode="update", trigger=hr.available_now)
def newest(events, prices):
    return events.join(prices, "name", "left").select("name", "amount", "price")

@hr.query(sink=sqlite("totals", "name"), mode="update", trigger=hr.available_now)
def totals(events, prices, names):
    cost = F.sum(F.col("amount") * F.col("price")).alias("cost")
    return events.join(prices, "name").groupBy("name").agg(cost).join(names, "name")

@hr.query(sink=sqlite("all_totals", "name"), mode="complete", trigger=hr.available_now)
def all_totals(events, prices):
    return events.groupBy("name").agg(F.sum("amount").alias("amount")).join(prices, "name", "left")

@hr.query(sink=sqlite("late_join", "name"), mode="update", trigger=hr.available_now)
def late_join(events, prices):
    return events.groupBy("name").agg(F.sum("amount").alias("amount")).join(prices, "name", "left")

IN_SQL
"""
IN_SQL = """
  in_sql:
    select: SELECT name, amount FROM events WHERE name IN (SELECT name FROM dear)
    trigger: available-now
    sink: {sqlite: {path: out.db, table: in_sql}}
tables:
  dear: {select: SELECT name FROM prices WHERE price > 15, refresh: {every: 90 minutes}}
"""
QUERIES = ("joined", "newest", "totals", "all_totals", "in_sql")


def set_rate(root: Path, rate: int) -> None:
    (root / "rate.txt").write_text(str(rate))


def sale(name: str, amount: int) -> list[dict[str, Any]]:
    return [{"name": name, "amount": amount}]


def shop(root: Path, spark: SparkSession, *queries: str) -> Project:
    """A project that ran twice, with the rates 1 and 2, and made two batches each time."""
    write_project(root, SHOP.replace("IN_SQL", ""), batches=[sale("apple", 1), sale("pear", 1)])
    (root / "headrace.yml").write_text("name: shop\nqueries:" + IN_SQL)
    set_rate(root, 1)
    assert run(load(root), queries, spark=spark).exit_code == 0
    set_rate(root, 2)
    land(root, 2, sale("apple", 2))
    land(root, 3, sale("pear", 2))
    assert run(load(root), queries, spark=spark).exit_code == 0
    return load(root)


@pytest.fixture(scope="module")
def ran(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop after its two runs."""
    root = tmp_path_factory.mktemp("shop") / "p"
    shop(root, sessions.with_connectors(()), *QUERIES, "late_join")
    return keep(root)


@pytest.fixture
def root(ran: Path) -> Path:
    """The shop as it was after its two runs."""
    return restore(ran)


@pytest.mark.capability("JOIN-ST-03", "JOIN-ST-01")
def test_each_batch_is_proved_over_the_tables_of_its_time(root: Path, spark: SparkSession) -> None:
    project = load(root)
    assert project.tables["dear"].refresh is not None
    assert project.tables["dear"].refresh.seconds == 5400

    def content(name: str) -> list[tuple[Any, ...]]:
        return sorted(rows(root / "out.db", f"SELECT * FROM {name}"))

    assert content("joined") == [("Apple", 1, 10), ("Apple", 2, 20), ("Pear", 1, 20), ("Pear", 2, 40)]
    assert content("newest") == [("apple", 2, 20), ("pear", 2, 40)]
    assert content("totals") == [("apple", 50, "Apple"), ("pear", 100, "Pear")]
    assert content("all_totals") == [("apple", 3, 20), ("pear", 3, 40)]
    assert content("in_sql") == [("apple", 2), ("pear", 1), ("pear", 2)]
    record = TableVersions(layout_in(project.storage, "in_sql").table_record)
    assert [(use.from_batch, dict(use.versions)) for use in record.uses()] == [
        (0, {"prices": 1, "dear": 1}),
        (2, {"prices": 2, "dear": 2}),
    ]
    # What the tables are now is not asked: the prices of the batches count.
    set_rate(root, 9)
    verdicts = {name: verify(project, name, spark=spark) for name in QUERIES}
    assert {name: verdict.state for name, verdict in verdicts.items()} == dict.fromkeys(QUERIES, "equal")
    assert verdicts["joined"].rows_read == 4


@pytest.mark.capability("JOIN-ST-03")
def test_a_wrong_row_is_found_and_what_cannot_be_decided_is_not_called_wrong(root: Path, spark: SparkSession) -> None:
    project = load(root)
    with sqlite3.connect(root / "out.db") as connection:
        connection.execute("UPDATE joined SET price = 20 WHERE title = 'Apple' AND amount = 1")
        connection.execute("UPDATE late_join SET price = 10 WHERE name = 'apple'")
    connection.close()
    verdict = verify(project, "joined", spark=spark)
    assert (verdict.state, verdict.missing + verdict.unexpected + 2 * verdict.different) == ("mismatch", 2)
    unsure = verify(project, "late_join", spark=spark)
    assert (unsure.state, [finding.code for finding in unsure.findings]) == ("undecided", ["HR706"])

    layout = layout_in(project.storage, "joined")
    first = layout.table_record.read_text().splitlines()[0]
    layout.table_record.write_text(layout.table_record.read_text().replace(first + "\n", first[:20] + "\n"))
    unknown = verify(project, "joined", spark=spark)
    assert (unknown.state, [finding.code for finding in unknown.findings]) == ("undecided", ["HR706"])
    assert "up to 1" in unknown.findings[0].what
    layout.table_record.write_text(first + "\n" + layout.table_record.read_text())
    shutil.rmtree(layout.tables / "prices" / "1")
    gone = verify(project, "joined", spark=spark)
    assert (gone.state, [finding.code for finding in gone.findings]) == ("undecided", ["HR563"])
    assert "batches 0 to 1" in gone.findings[0].what


@pytest.mark.long
def test_batches_over_a_table_with_other_columns_are_not_called_wrong(root: Path, spark: SparkSession) -> None:
    code = (root / "pipeline.py").read_text()
    changed = code.replace("price INT", "cost INT").replace('"amount", "price"', '"amount", "cost AS price"')
    (root / "pipeline.py").write_text(changed)
    land(root, 4, sale("apple", 5))
    project = load(root)
    assert run(project, ["joined"], spark=spark, accept_forward=True).exit_code == 0
    verdict = verify(project, "joined", spark=spark)
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR650"])
    # Of an older version no forms are known, and the table alone decides.
    layout_in(project.storage, "joined").manifest.unlink()
    verdict = verify(project, "joined", spark=spark)
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR567"])
    assert (verdict.rows_expected, verdict.rows_actual) == (5, 5)


def test_a_table_is_known_again_whatever_the_order_of_its_rows(spark: SparkSession) -> None:
    def of(*values: str) -> str:
        text = ", ".join(values)
        return tables.digest(spark.sql(f"SELECT * FROM VALUES {text} AS t(a, b, c)"))

    digest = of("(1, NULL, map('x', timestamp'2026-01-01 00:00:00.000001'))", "(2, 3, NULL)")
    assert digest == of("(2, 3, NULL)", "(1, NULL, map('x', timestamp'2026-01-01 00:00:00.000001'))")
    others = [
        of("(1, NULL, map('x', timestamp'2026-01-01 00:00:00.000002'))", "(2, 3, NULL)"),
        of("(NULL, 1, map('x', timestamp'2026-01-01 00:00:00.000001'))", "(2, 3, NULL)"),
        of("(1, NULL, map('x', timestamp'2026-01-01 00:00:00.000001'))", *["(2, 3, NULL)"] * 2),
        of("(2, 3, NULL)"),
    ]
    assert len({digest, *others}) == 5


def test_only_the_newest_versions_are_kept(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "KEPT", 0)
    project = shop(tmp_path / "p", spark, "joined")
    kept = layout_in(project.storage, "joined").tables
    assert sorted(str(path.relative_to(kept)) for path in kept.glob("*/*")) == ["prices/2"]
    assert verify(project, "joined", spark=spark).state == "undecided"
    assert [finding.code for finding in check(project, spark=spark).findings if finding.severity == "error"] == []
