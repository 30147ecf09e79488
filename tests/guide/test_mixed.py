"""Batch, streaming and interactive queries in one application, as the post that introduced the model shows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, verify
from tests.runner.projects import land, write_project
from tests.runner.test_refresh import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FLEET = """
from pathlib import Path

HOME = Path(__file__).parent

@hr.table
def customers(spark):
    \"\"\"What each customer has spent in the years before: a query of its own over files.\"\"\"
    past = spark.read.csv(str(HOME / "past.csv"), schema="name STRING, year INT, spent INT")
    return past.groupBy("name").agg(F.sum("spent").alias("spent"))

@hr.table
def ranks(spark):
    \"\"\"The same by code for RDDs.\"\"\"
    lines = spark.sparkContext.textFile(str(HOME / "past.csv"))
    spent = lines.map(lambda line: line.split(",")).map(lambda parts: (parts[0], int(parts[2])))
    sums = spent.reduceByKey(lambda one, other: one + other)
    return sums.map(lambda pair: (pair[0], "gold" if pair[1] >= 100 else "grey")).toDF("name STRING, rank STRING")

@hr.view
def known(events, customers, ranks):
    return events.join(customers, "name").join(ranks, "name")

@hr.query(sink=hr.sink.memory(), mode="complete", trigger=hr.every("200 milliseconds"))
def by_rank(known):
    return known.groupBy("rank").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))

@hr.query(sink=hr.sink.table("orders_of_customers"), trigger=hr.every("200 milliseconds"))
def orders(known):
    return known.select("name", "amount", "spent", "rank")
"""
ORDERS = [{"name": "ann", "amount": 1}, {"name": "bob", "amount": 10}, {"name": "eve", "amount": 100}]


@pytest.mark.capability("MODEL-06")
def test_a_stream_reads_the_results_of_batch_queries_and_is_asked_while_it_runs(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = write_project(tmp_path / "p", FLEET, batches=[ORDERS])
    (root / "past.csv").write_text("ann,2024,60\nann,2025,70\nbob,2025,30\n")
    seen: list[tuple[int, ...]] = []

    def ask() -> bool:
        """Ask both results by SQL; True once the last batch is there."""
        totals = {row.rank: (row.orders, row.amount) for row in spark.sql("SELECT * FROM by_rank").collect()}
        spark.sql("REFRESH TABLE orders_of_customers")
        kept = spark.sql("SELECT rank, count(*) AS orders, sum(amount) AS amount FROM orders_of_customers GROUP BY 1")
        rows = {row.rank: (row.orders, row.amount) for row in kept.collect()}
        for answer in (totals, rows):
            # Whole batches: as many orders of the one customer as of the other.
            assert answer in [{}, *({"gold": (n, n), "grey": (n, 10 * n)} for n in range(1, 6))]
        seen.append(tuple(answer.get("gold", (0, 0))[0] for answer in (totals, rows)))
        return seen[-1] == (5, 5)

    try:
        with running(root, spark) as scene:
            scene.wait("tables", lambda: {batch.query for batch in scene.batches} == {"by_rank", "orders"})
            for number in range(1, 5):
                land(root, number, ORDERS)
                ask()
            scene.wait("answer", ask)
            joined = spark.sql(
                "SELECT DISTINCT o.name, o.spent, r.orders FROM orders_of_customers o JOIN by_rank r USING (rank)"
            )
            assert sorted(map(tuple, joined.collect())) == [("ann", 130, 5), ("bob", 30, 5)]
            assert verify(load(root), "orders", spark=spark).state == "equal"
    finally:
        spark.sql("DROP TABLE IF EXISTS orders_of_customers")
    assert len(set(seen)) > 1, "the answers changed while the stream ran"
    assert scene.result is not None
    assert {end.query: end.state for end in scene.result.outcomes} == {"by_rank": "stopped", "orders": "stopped"}
