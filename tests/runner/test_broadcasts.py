"""A value of Python's that rows are looked up in: sent once, refreshed as tables are, part of what a query means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, plan, run, verify
from headrace.spark.stream import broadcasts

from .projects import land, rows, write_project
from .test_refresh import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """
import json
from pathlib import Path

HOME = Path(__file__).parent


class Price:
    def __init__(self, cents):
        self.cents = cents


@hr.table
def listed(spark):
    return spark.read.json(str(HOME / "prices.json"))


@hr.broadcast
def prices(listed):
    return {row["name"]: Price(row["cents"]) for row in listed.collect()}


@hr.broadcast(refresh=hr.every("1 second"))
def names():
    return json.loads((HOME / "names.json").read_text())


def worth(events, prices):
    cents = F.udf(lambda name, amount: amount * prices.value[name].cents, "int")
    return events.select("name", cents("name", "amount").alias("cents"))


bills = hr.query(sink=hr.sink.sqlite("out.db", table="bills"), trigger=hr.available_now, name="bills")(worth)


@hr.query(sink=hr.sink.sqlite("out.db", table="named"), trigger=hr.every("200 milliseconds"))
def named(events, names):
    return events.select(F.udf(lambda name: names.value[name])("name").alias("name"))
"""
EVENTS = [{"name": "apple", "amount": 2}]
NAMED = "SELECT name FROM named ORDER BY rowid"


def price(root: Path, cents: int) -> None:
    (root / "prices.json").write_text(json.dumps({"name": "apple", "cents": cents}))


def call(root: Path, name: str) -> None:
    (root / "names.json").write_text(json.dumps({"apple": name}))


@pytest.mark.spark
@pytest.mark.capability("RDD-07")
def test_rows_are_looked_up_and_another_value_is_a_change_of_the_query(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", PROJECT, batches=[EVENTS])
    price(root, 5)
    assert [
        str(outcome.finding) for outcome in run(load(root), ["bills"], spark=spark).outcomes if outcome.finding
    ] == []
    assert rows(root / "out.db", "SELECT * FROM bills") == [("apple", 10)]
    assert verify(load(root), "bills", spark=spark).exit_code == 0

    def verdict() -> str:
        return plan(load(root), ["bills"], spark=spark)[0].verdict

    assert verdict() == "same"
    price(root, 6)
    assert verdict() == "forward", "rows from now on get another price"
    price(root, 5)
    file = root / "pipeline.py"
    file.write_text(file.read_text().replace('Price(row["cents"])', 'Price(cents=int(row["cents"]))'))
    assert verdict() in ("same", "safe"), "the same value, however it is computed"
    file.write_text(file.read_text().replace("for row in listed.collect()}", "for row in listed.collect()} and listed"))
    assert [error.code for error in check(load(root), ["bills"], spark=spark, whole=False).errors] == ["HR416"]


@pytest.mark.spark
def test_a_running_query_continues_with_a_refreshed_value(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", PROJECT, batches=[EVENTS])
    call(root, "malus")
    with running(root, spark, queries=["named"]) as scene:
        scene.wait_for_batch(0)
        call(root, "Malus domestica")
        findings = scene.wait_for_findings("HR560")
        assert (
            findings[0].what == "broadcast 'names' of query 'named' has changed: from batch 1 on its version 2 counts"
        )
        land(root, 1, EVENTS)
        scene.wait_for_batch(1)
    assert rows(root / "out.db", NAMED) == [("malus",), ("Malus domestica",)]
    assert verify(load(root), "named", spark=spark).exit_code == 0, "each batch is proved with the value of its time"
    assert plan(load(root), ["named"], spark=spark)[0].verdict == "same"


@pytest.mark.plain
def test_a_value_is_known_again_whatever_the_order_of_its_parts() -> None:
    one = {"a": {1, 2, 3}, "b": [1, 2.0, None], 3: ("x", b"y")}
    same = {3: ("x", b"y"), "b": [1, 2.0, None], "a": {3, 2, 1}}
    assert broadcasts.digest(one) == broadcasts.digest(same)
    others = [{**one, "b": [2.0, 1, None]}, {**one, "a": [1, 2, 3]}, {**one, 3: ("x", "y")}, {**one, "b": [1, 2, None]}]
    assert broadcasts.digest(one) not in {broadcasts.digest(other) for other in others}
