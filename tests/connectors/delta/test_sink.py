"""The Delta sink on real tables: each mode, batches that come again, shared tables, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest

import headrace as hr
from headrace.checks.structure import check_structure
from headrace.connectors.catalog.sink import TableSink
from headrace.connectors.catalog.source import CatalogTable
from headrace.connectors.delta.sink import DeltaSink
from headrace.connectors.delta.source import Delta
from headrace.contract import OutputMode, Sink, SinkContext
from headrace.control.board import RunResult
from headrace.errors import Fenced, Finding, SinkError, SourceError
from headrace.testing.conformance import forget_commit
from tests.connectors.clients import delta_rows
from tests.connectors.suites import UpdateSinkConformance, UsualSinkConformance, further_but, only
from tests.rounds import rounds
from tests.runner.projects import land, write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

real = [pytest.mark.services, pytest.mark.connectors]


# test_changes fences an older driver off, returns to earlier batches, and rebuilds a table and undoes that.
@further_but("several", "comes_again", "begins_again")
class TestDeltaSink(UpdateSinkConformance):
    pytestmark = real
    # A version is restored by its files, whatever mode wrote it; TestNamedDeltaSink and test_changes have MERGE.
    rewound: ClassVar[tuple[OutputMode, ...]] = ("append",)

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return DeltaSink(
            path=str(home / "a `table`"), key=["name"], partition_by=["name"] if mode == "complete" else []
        )

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return delta_rows(str(home / "a `table`"))


@pytest.mark.long
@only("begins_again", "rebuilt", "goes_back")
class TestNamedDeltaSink(UsualSinkConformance):
    """A table of Spark's catalog differs from a path only in how it is renamed."""

    pytestmark = real

    @pytest.fixture(autouse=True)
    def table(self, spark: SparkSession) -> Iterator[None]:
        self.name = f"result_{uuid4().hex}"
        yield
        spark.sql(f"DROP TABLE IF EXISTS {self.name}")

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return DeltaSink(table=self.name, key=["name"])


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "mode", "code", "words"),
    [
        ({}, "append", "HR113", "neither path nor table is given"),
        ({"path": "p", "table": "t"}, "append", "HR113", "path and table are both given"),
        ({"table": "a b"}, "append", "HR113", "'a b' is not a valid name of a table"),
        ({"path": "p"}, "update", "HR403", "needs a key"),
        ({"path": "p", "key": ["a", "a"]}, "update", "HR113", "key names a column twice"),
        ({"path": "p", "partition_by": ["a", "a"]}, "append", "HR113", "partition_by names a column twice"),
    ],
)
def test_a_wrong_option_is_reported_without_spark(
    options: dict[str, Any], mode: OutputMode, code: str, words: str
) -> None:
    [problem] = DeltaSink(**options).problems(mode)
    assert problem.code == code
    assert words in problem.what
    assert problem.fix


APPEND = """
@hr.query(sink=hr.sink.delta("out", partition_by=["name"]), mode="append", trigger="available-now")
def {name}(events):
    return events.where("amount {which} 5")
"""
TOTALS = """
@hr.query(sink=hr.sink.delta("out", key=["name"]), mode="{mode}", trigger="available-now")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""


@pytest.mark.plain
@pytest.mark.parametrize(("mode", "codes"), [("append", []), ("complete", ["HR259"])])
def test_only_queries_that_append_share_a_table(tmp_path: Path, mode: str, codes: list[str]) -> None:
    body = APPEND.format(name="small", which="<=") + APPEND.format(name="large", which=">")
    project = hr.load(write_project(tmp_path / "p", body.replace('"append"', f'"{mode}"')))
    assert [finding.code for finding in check_structure(project) if finding.severity == "error"] == codes


def run(root: Path, spark: SparkSession) -> RunResult:
    return hr.run(hr.load(root), spark=spark)


def finding(result: RunResult, query: str = "") -> Finding:
    [finding] = [outcome.finding for outcome in result.outcomes if not query or outcome.query == query]
    assert finding is not None
    return finding


def table(spark: SparkSession, root: Path) -> DataFrame:
    return spark.read.format("delta").load(str(root / "out"))


def content(spark: SparkSession, root: Path) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, table(spark, root).collect()), key=repr)


def versions(root: Path) -> int:
    return len(list((root / "out" / "_delta_log").glob("*.json")))


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SINK-LAKE-01")
@pytest.mark.parametrize("mode", rounds(["complete", "update"]))
def test_totals_are_replaced_once_and_verified(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    root = write_project(tmp_path / "p", TOTALS.format(mode=mode))
    land(root, 0, [{"name": "a", "amount": 1}, {"name": None, "amount": 2}])
    land(root, 1, [{"name": "a", "amount": 10}, {"name": "b", "amount": 3}])
    assert run(root, spark).exit_code == 0
    totals = [("a", 11), ("b", 3), (None, 2)]
    assert content(spark, root) == totals
    # The crash between Delta's commit and Spark's: the batch comes again, and so does nothing else.
    before = versions(root)
    [checkpoint] = (root / ".headrace").rglob("checkpoint")
    assert forget_commit(checkpoint) == 1
    assert run(root, spark).exit_code == 0
    assert content(spark, root) == totals
    # The new driver's epoch is the only new version.
    assert versions(root) == before + 1
    assert hr.verify(hr.load(root), "totals", spark=spark).state == "equal"
    spark.sql(f"UPDATE delta.`{root / 'out'}` SET total = 12 WHERE name = 'a'")
    wrong = hr.verify(hr.load(root), "totals", spark=spark)
    assert (wrong.state, wrong.different) == ("mismatch", 1)


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SINK-LAKE-01")
def test_several_queries_append_to_one_table_and_each_is_verified(spark: SparkSession, tmp_path: Path) -> None:
    body = APPEND.format(name="small", which="<=") + APPEND.format(name="large", which=">")
    root = write_project(tmp_path / "p", body)
    # What lay there before is no query's result.
    spark.sql("SELECT 'old' AS name, 0 AS amount").write.format("delta").partitionBy("name").save(str(root / "out"))
    land(root, 0, [{"name": "a", "amount": 1}, {"name": "a", "amount": 2}, {"name": "b", "amount": 9}])
    assert run(root, spark).exit_code == 0
    assert content(spark, root) == [("a", 1), ("a", 2), ("b", 9), ("old", 0)]
    project = hr.load(root)
    verdicts = [hr.verify(project, name, spark=spark) for name in ("small", "large")]
    assert [(verdict.state, verdict.rows_actual) for verdict in verdicts] == [("equal", 2), ("equal", 1)]
    # A query that replaces rows takes no table that others write to.
    body = TOTALS.format(mode="complete").replace('"out"', f'"{root / "out"}"')
    other = write_project(tmp_path / "q", body.replace('.alias("total")', '.cast("int").alias("amount")'))
    land(other, 0, [{"name": "c", "amount": 1}])
    refused = finding(run(other, spark))
    assert (refused.code, "already holds the result of query 'large'" in refused.what) == ("HR407", True)
    assert len(content(spark, root)) == 4
    # A row that no batch brought is found.
    table(spark, root).where("amount = 1").write.format("delta").mode("append").save(str(root / "out"))
    wrong = hr.verify(project, "small", spark=spark)
    assert (wrong.state, wrong.unexpected) == ("mismatch", 1)
    # Files that hold rows of both look alike.
    spark.sql(f"UPDATE delta.`{root / 'out'}` SET name = 'x'")
    mixed = hr.verify(project, "small", spark=spark)
    assert (mixed.state, "put rows of several writers into the same files" in mixed.why) == ("undecided", True)


@pytest.mark.services
@pytest.mark.connectors
def test_what_does_not_fit_is_refused_and_a_start_after_it_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", APPEND.format(name="small", which="<="))
    land(root, 0, [{"name": "a", "amount": 1}])
    assert run(root, spark).exit_code == 0
    pipeline, first = root / "pipeline.py", (root / "pipeline.py").read_text()
    out = f"delta.`{root / 'out'}`"

    spark.sql(f"ALTER TABLE {out} ADD CONSTRAINT small CHECK (amount < 3)")
    land(root, 1, [{"name": "b", "amount": 4}])
    broken = finding(run(root, spark))
    assert (broken.code, "batch 1 of query 'small' was not written: CHECK constraint small" in broken.what) == (
        "HR440",
        True,
    )
    spark.sql(f"ALTER TABLE {out} DROP CONSTRAINT small")

    accepting = first.replace("@hr.query(", '@hr.query(on_change="forward", ')
    pipeline.write_text(accepting.replace('where("amount <= 5")', 'selectExpr("name", "amount", "1 AS more")'))
    assert finding(run(root, spark)).what.endswith("it has no column 'more'")
    pipeline.write_text(pipeline.read_text().replace('["name"]', '["name"], on_schema_change="add"'))
    assert run(root, spark).exit_code == 0
    assert content(spark, root) == [("a", 1, None), ("b", 4, 1)]

    [checkpoint] = (root / ".headrace").rglob("checkpoint")
    checkpoint.rename(checkpoint.with_name("kept"))
    lost = finding(run(root, spark))
    assert (lost.code, "is a new one" in lost.what) == ("HR410", True)
    shutil.rmtree(checkpoint, ignore_errors=True)
    checkpoint.with_name("kept").rename(checkpoint)
    assert run(root, spark).exit_code == 0


@pytest.mark.services
@pytest.mark.connectors
def test_a_new_generation_takes_the_table_once_its_rows_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    def frame() -> DataFrame:
        return spark.readStream.name("r").schema("name STRING").json(str(tmp_path))

    def context(generation: int) -> SinkContext:
        checkpoint = tmp_path / f"g{generation}" / "checkpoint"
        return SinkContext(query="q", generation=generation, mode="append", checkpoint=checkpoint)

    sink, old = DeltaSink(path=str(tmp_path / "out")), context(1)
    rows = spark.createDataFrame([("a",)], "name STRING")
    older = sink.open(frame(), old)
    older(rows, 0)
    with pytest.raises(SinkError, match="still holds the result of generation 1 of 'q'"):
        sink.open(frame(), context(2))
    spark.sql(f"DELETE FROM delta.`{tmp_path / 'out'}`")
    newer = sink.open(frame(), context(2))
    with pytest.raises(Fenced, match="a newer generation"):
        older(rows, 1)
    newer(rows, 0)
    snapshot = sink.read_back(spark, context(2))
    assert (snapshot.rows.collect(), snapshot.batch) == ([("a",)], 0)


@pytest.mark.services
@pytest.mark.connectors
def test_names_of_other_things_are_refused_and_faults_of_a_batch_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.readStream.name("r").schema("name STRING").json(str(tmp_path))
    noted: list[Finding] = []
    context = SinkContext(query="q", generation=1, mode="update", checkpoint=tmp_path / "c", on_warning=noted.append)
    name = f"result_{uuid4().hex}"
    spark.sql(f"CREATE TABLE {name}_p USING parquet AS SELECT 1 AS a")
    spark.sql(f"CREATE VIEW {name}_v AS SELECT 1 AS a")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").touch()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"table": f"{name}_p"}, "HR419: .* is a table of format parquet and no Delta table"),
        ({"table": f"{name}_v"}, "HR419: .* is a view and no Delta table"),
        ({"table": f"nowhere.{name}"}, "HR419: the catalog has no database 'nowhere'"),
        ({"path": str(tmp_path / "files")}, "HR407: .* holds files that are no Delta table"),
        ({"table": name, "key": ["nam"]}, "HR404: key names nam, which the result of query 'q' does not have"),
        ({"table": name, "partition_by": ["name"]}, "HR404: partition_by names every column"),
    ]
    for options, sentence in refused:
        with pytest.raises(SinkError, match=sentence):
            DeltaSink(**options).open(frame, context)
    for suffix in ("p", "v"):
        with pytest.raises(SourceError, match=r"HR332: .* and no Delta table"):
            Delta(table=f"{name}_{suffix}").stream(spark, "events")
    sink = DeltaSink(table=name, key=["name"])
    batches = sink.open(frame, context)
    with pytest.raises(SinkError, match=r"HR419: .* is not a table of files"):
        TableSink(table=name).open(frame, context)
    with pytest.raises(SourceError, match=r"HR332: .* which this source does not read"):
        CatalogTable(table=name).stream(spark, "events")
    rows = spark.createDataFrame([("a",), (None,)], "name STRING")
    with pytest.raises(SinkError, match=r"HR408: .*: 2 rows share the key name = None"):
        batches(rows.union(rows.where("name IS NULL")), 0)

    write, conflicts = batches.store._write, [Exception("[DELTA_CONCURRENT_APPEND] Transaction conflict detected.")] * 2

    def late(*given: Any) -> None:
        if conflicts:
            raise conflicts.pop()
        write(*given)

    monkeypatch.setattr(batches.store, "_write", late)
    monkeypatch.setattr(batches.store, "pauses", lambda: iter([0.0] * 7))
    batches(rows, 0)
    batches(rows, 1)
    assert [finding.code for finding in noted] == ["HR411", "HR411"]
    snapshot = sink.read_back(spark, context)
    assert (sorted(snapshot.rows.collect(), key=repr), snapshot.batch) == ([("a",), (None,)], 1)
    conflicts += [Exception("[DELTA_CONCURRENT_APPEND] Transaction conflict detected.")] * 8
    with pytest.raises(SinkError, match="HR441: batch 2 of query 'q' was not written: Transaction conflict detected"):
        batches(rows, 2)
    for kind, other in (("TABLE", name), ("TABLE", f"{name}_p"), ("VIEW", f"{name}_v")):
        spark.sql(f"DROP {kind} {other}")
