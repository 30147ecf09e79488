"""What a query keeps as state is shown, with its columns and samples, for each kind of operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.cli import main
from headrace.errors import HeadraceError
from tests.runner.projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERIES = """
@hr.query(mode="update", sink=hr.sink.sqlite("a.db", table="totals", key=["name"]), trigger=hr.available_now)
def totals(events):
    return events.where("name IS NOT NULL").groupBy("name").agg(F.sum("amount").alias("total"))


@hr.query(mode="append", sink=hr.sink.sqlite("b.db", table="firsts"), trigger=hr.available_now)
def firsts(events):
    return events.dropDuplicates(["name"])


others = hr.source.files("others", format="json", schema="name STRING, weight INT")


@hr.query(mode="append", sink=hr.sink.sqlite("c.db", table="pairs"), trigger=hr.available_now)
def pairs(events, others):
    return events.join(others, "name")


@hr.query(mode="append", sink=hr.sink.sqlite("d.db", table="plain"), trigger=hr.available_now)
def plain(events):
    return events
"""


@pytest.mark.usefixtures("checkpoint_format")
def test_each_operator_is_shown_with_its_parts_columns_and_samples(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(
        tmp_path / "p",
        QUERIES,
        batches=[[{"name": "a", "amount": 1}, {"name": None, "amount": 9}], [{"name": "a", "amount": 2}]],
    )
    (root / "others").mkdir()
    (root / "others" / "0.json").write_text(json.dumps({"name": "a", "weight": 7}) + "\n")
    project = hr.load(root)
    with pytest.raises(HeadraceError, match=r"HR588: .*keeps no state"):
        hr.inspect.state(project, "totals", spark=spark)
    assert hr.run(project, spark=spark).exit_code == 0

    (operator,) = hr.inspect.state(project, "totals", spark=spark).operators
    (part,) = operator.parts
    assert (operator.name, part.key, part.rows) == ("stateStoreSave", "struct<name:string>", 1)
    assert [(row["key"]["name"], row["value"]["sum"]) for row in part.sample] == [("a", 3)]
    before = hr.inspect.state(project, "totals", batch=0, key={"name": "a"}, spark=spark)
    assert [row["value"]["sum"] for row in before.operators[0].parts[0].sample] == [1]
    null = hr.inspect.state(project, "firsts", key={"name": ""}, limit=0, spark=spark).operators[0].parts[0]
    assert (null.rows, null.sample) == (1, ())

    (operator,) = hr.inspect.state(project, "firsts", spark=spark).operators
    assert [(part.rows, part.key) for part in operator.parts] == [(2, "struct<name:string>")]
    (operator,) = hr.inspect.state(project, "pairs", spark=spark).operators
    assert {part.name: part.rows for part in operator.parts} == {"left": 2, "right": 1}
    assert "weight:int" in operator.parts[1].value

    for asked, words in (
        ({"key": {"town": "x"}}, "no key column 'town'"),
        ({"batch": 9}, "batch 9 is not committed"),
    ):
        with pytest.raises(HeadraceError, match=rf"HR588: .*{words}"):
            hr.inspect.state(project, "totals", spark=spark, **asked)  # type: ignore[arg-type]
    with pytest.raises(HeadraceError, match=r"HR588: .*keeps no state"):
        hr.inspect.state(project, "plain", spark=spark)

    capsys.readouterr()
    assert main(["state", "show", "totals", "-C", str(root), "--key", "name=a"]) == 0
    assert "name=a -> sum=3" in capsys.readouterr().out
    assert main(["state", "show", "totals", "-C", str(root), "--key", "a"]) == 2
    assert main(["state", "show", "totals", "-C", str(root), "--json", "--limit", "1"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["operators"]
    assert (shown["partitions"], len(shown["parts"][0]["sample"])) == (2, 1)
