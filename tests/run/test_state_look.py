"""The state of a query is shown as Spark's state data source reads it: every operator, both providers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from tests.run.projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
BODY = """
from pyspark.sql.streaming import StatefulProcessor
import pandas as pd

SCHEMA = "name STRING, at TIMESTAMP"
views = hr.source.files("landing", format="json", schema=SCHEMA, watermark=("at", "1 hour"))
clicks = hr.source.files("landing", format="json", schema=SCHEMA, watermark=("at", "1 hour"))

@hr.query(sink=hr.sink.sqlite("out.db", table="counts", key=["name", "start"]), mode="update")
def counts(views):
    return views.groupBy(F.window("at", "1 hour"), "name").count().select("name", "window.start", "count")

@hr.query(sink=hr.sink.sqlite("out.db", table="plain"), mode="append")
def plain(views):
    return views.select("name")
"""
REST = """
@hr.query(sink=hr.sink.sqlite("out.db", table="seen"), mode="append")
def seen(views):
    return views.dropDuplicates(["name"])

@hr.query(sink=hr.sink.sqlite("out.db", table="sessions"), mode="append")
def sessions(views):
    return views.groupBy(F.session_window("at", "5 minutes"), "name").count().select("name", "count")

@hr.query(sink=hr.sink.sqlite("out.db", table="matched"), mode="append")
def matched(views, clicks):
    left, right = views.alias("v"), clicks.alias("c")
    near = F.expr("v.name = c.name AND c.at BETWEEN v.at AND v.at + INTERVAL 10 MINUTES")
    return left.join(right, near).select("v.name")


class Processor(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n LONG")

    def handleInputRows(self, key, rows, timerValues):
        self.total.update((sum(len(frame) for frame in rows),))
        yield pd.DataFrame({"name": [key[0]], "n": [self.total.get()[0]]})

    def close(self):
        pass


@hr.query(sink=hr.sink.sqlite("out.db", table="kept", key=["name"]), mode="update")
def kept(views):
    return views.groupBy("name").transformWithStateInPandas(Processor(), "name STRING, n LONG", "update", "None")
"""
ROWS = [
    {"name": "a", "at": "2026-01-01T00:01:00Z"},
    {"name": "a", "at": "2026-01-01T00:02:00Z"},
    {"name": "b", "at": "2026-01-01T01:01:00Z"},
]


def project_of(root: Path, body: str, provider: str) -> hr.Project:
    write_project(root, body, batches=[ROWS])
    settings = f"targets:\n  dev:\n    state_store: {{provider: {provider}}}\n"
    (root / "headrace.yml").write_text(f"name: {root.name}\n{settings}")
    return hr.load(root)


def told(project: hr.Project, query: str, spark: SparkSession, **asked: Any) -> dict[tuple[str, str], Any]:
    found = hr.show_state(project, query, spark=spark, **asked)
    assert found.sizes_bytes.keys() == {store.operator for store in found.stores}
    assert all(size > 0 for size in found.sizes_bytes.values())
    return {(store.operator_name, store.name): (store.rows, list(store.shown)) for store in found.stores}


def test_every_operator_shows_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    project = project_of(tmp_path / "p", BODY + REST, "rocksdb")
    assert hr.run(project, trigger=hr.available_now, spark=spark).exit_code == 0
    (rows, shown) = told(project, "counts", spark, key={"name": "a"})["stateStoreSave", "default"]
    assert (rows, shown[0]["key"]["name"], shown[0]["value"]) == (1, "a", {"count": 2})
    windowed = told(project, "counts", spark, key={"window.start": "2026-01-01 01:00:00"})
    assert windowed["stateStoreSave", "default"][1][0]["key"]["name"] == "b"
    (rows, shown) = told(project, "seen", spark)["dedupe", "default"]
    assert (rows, sorted(row["key"]["name"] for row in shown)) == (2, ["a", "b"])
    ((_, (rows, _)),) = told(project, "sessions", spark).items()
    assert rows == 2
    sides = told(project, "matched", spark, limit=1)
    assert {name: len(shown) for (_, name), (_, shown) in sides.items()} == {"left side": 1, "right side": 1}
    ((name, (rows, shown)),) = told(project, "kept", spark).items()
    assert (name[1], rows) == ("variable total", 2)
    assert {row["key"]["name"]: row["value"]["n"] for row in shown} == {"a": 2, "b": 1}
    for query, asked, said in (
        ("plain", {}, "it keeps none"),
        ("counts", {"batch": 9}, "batch 9 is not committed"),
        ("counts", {"key": {"nam": "a"}}, "did you mean 'name'"),
    ):
        with pytest.raises(HeadraceError, match=f"HR586.*\n?.*{said}"):
            hr.show_state(project, query, spark=spark, **asked)  # type: ignore[arg-type]


def test_state_in_the_hdfs_store_is_shown_by_the_command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from headrace.cli.entry import main

    project = project_of(tmp_path / "p", BODY, "hdfs")
    assert hr.run(project, ["counts"], trigger=hr.available_now, spark=spark).exit_code == 0
    before = sorted(project.storage.rglob("*"))
    assert main(["state", "show", "counts", "--key", "name=b", "--json", "-C", str(project.root)]) == 0
    (store,) = json.loads(capsys.readouterr().out)["stores"]
    assert (store["rows"], store["shown"][0]["value"]) == (1, {"count": 1})
    assert main(["state", "show", "counts", "--limit", "0", "-C", str(project.root)]) == 0
    assert "operator 0 stateStoreSave, default: 2 rows, " in capsys.readouterr().out
    assert sorted(project.storage.rglob("*")) == before
