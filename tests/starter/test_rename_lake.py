"""A query and its table in a lake are renamed: the next batch follows, and an older driver writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import headrace as hr
from headrace.contract import SinkContext
from headrace.errors import SinkError
from headrace.generations.facts import sink_context
from headrace.testing.conformance import forget_commit
from tests.connectors.iceberg import tables as iceberg_tables
from tests.registered import latest_generation, layout_in
from tests.runner.projects import land, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]
BODY = """
@hr.query(sink=hr.sink.{sink}{mode}{former})
def {name}(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""


@pytest.mark.long
def test_a_lake_follows_a_rename(spark: SparkSession, tmp_path: Path) -> None:
    table = f"t{uuid4().hex[:8]}"
    properties = repr(iceberg_tables.properties(tmp_path))
    lakes = {
        "iceberg": lambda name, former: f'iceberg("db.{name}"{former}, catalog={properties}), mode="complete"',
        "delta": lambda name, former: f'delta(table="{table}_{name}"{former}, key=["name"]), mode="update"',
        "path": lambda name, former: 'delta("lake", key=["name"]), mode="update"',
    }
    try:
        for kind, sink in lakes.items():
            _follow(spark, tmp_path / kind, kind, table if kind == "delta" else "db.", sink)
    finally:
        for name in ("old", "new"):
            spark.sql(f"DROP TABLE IF EXISTS {table}_{name}")


def _follow(spark: SparkSession, root: Path, kind: str, prefix: str, sink: Any) -> None:
    def project(name: str, former: str = "", former_table: str = "") -> hr.Project:
        text = BODY.format(sink=sink(name, former_table), mode="", former=former, name=name)
        return hr.load(write_project(root, text))

    def went_well(current: hr.Project) -> None:
        result = hr.run(current, trigger=hr.available_now, spark=spark)
        assert [outcome.finding for outcome in result.outcomes] == [None], result

    write_project(root, "", batches=[[{"name": "a", "amount": 1}], [{"name": "b", "amount": 2}]])
    first = project("old")
    went_well(first)
    older = first.queries["old"]
    frame = spark.readStream.name("any").schema("name STRING, total LONG").json(str(root / "landing"))
    context = _context(first, older)
    writer = older.sink.open(frame, context)
    # The crash between the lake's commit and Spark's.
    assert forget_commit(context.checkpoint) == 1
    land(root, 2, [{"name": "a", "amount": 10}])
    separator = "_" if prefix.startswith("t") else ""
    renamed = project("new", ', renamed_from="old"', f', renamed_from="{prefix}{separator}old"')
    for again in range(2):
        went_well(renamed)
        query = renamed.queries["new"]
        snapshot = query.sink.read_back(spark, _context(renamed, query))
        assert (snapshot.batch, sorted(map(tuple, snapshot.rows.collect()))) == (2, [("a", 11), ("b", 2)]), again
    assert hr.verify(renamed, "new", spark=spark).state == "equal"
    # Batches of before the rename can still be planned again.
    assert min(query.sink.ledger.read_plans(_context(renamed, query), 0)) == 0
    # An older driver of the old name writes nothing more, wherever it looks.
    store = writer.store  # type: ignore[attr-defined]
    try:
        store.begin(spark.range(1), 3)
        assert store.standing(3).newer
    except SinkError:
        assert kind != "path"  # Its table has another name, and nothing is found under the old one.


def _context(project: hr.Project, query: Any) -> SinkContext:
    layout = layout_in(project.storage, query.name, latest_generation(layout_in(project.storage, query.name)))
    return sink_context(project, query, layout)
