"""Tables of Spark's catalog: written by one query, read by another, and refused where rows would be lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

import pytest

from headrace.api import check, late, load, run, verify
from headrace.connectors.catalog.sink import TableSink
from headrace.connectors.catalog.source import CatalogTable
from headrace.contract import OUTPUT_MODES, BatchRecord
from headrace.errors import Finding, SourceError
from headrace.model import Duration, Every, Project
from headrace.runner.stop import StopRequest
from headrace.testing.conformance import NAME, forget_commit
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import land, rows, write_project
from tests.runner.test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FRUIT = [[{"name": "apple", "amount": 1}, {"name": "big pear", "amount": 2}], [{"name": "apple", "amount": 3}]]

PROJECT = """
@hr.query(sink=hr.sink.table("TABLE", OPTIONS), trigger=hr.available_now)
def keep(events):
    return events.select("name", "amount", F.lit("ü").alias("kind"))


kept = hr.source.table("TABLE", max_files_per_trigger=1)


@hr.query(sink=hr.sink.sqlite("out.db", table="sums", key=["name"]), mode="update", trigger=hr.available_now)
def sums(kept):
    return kept.groupBy("name").agg(F.sum("amount").alias("amount"))
"""


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    name = f"kept_{uuid4().hex}"
    yield name
    for kind in ("TABLE", "VIEW"):
        if spark.catalog.tableExists(name) and (spark.catalog.getTable(name).tableType == "VIEW") == (kind == "VIEW"):
            spark.sql(f"DROP {kind} {name}")
    shutil.rmtree(directory(spark, name), ignore_errors=True)


def directory(spark: SparkSession, table: str) -> Path:
    return Path(unquote(spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:")) / table


def project(root: Path, table: str, options: str = "format='parquet'") -> Path:
    return write_project(root, PROJECT.replace("TABLE", table).replace("OPTIONS", options), batches=FRUIT)


def test_a_table_in_a_directory_that_looks_like_a_pattern_is_refused(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    """Spark would read each file of a batch once for each of them; of other patterns it makes no table at all."""
    (tmp_path / "kept}").mkdir()
    spark.sql(f"CREATE TABLE {table} (name STRING) USING parquet LOCATION '{tmp_path / 'kept}'}'")
    with pytest.raises(SourceError, match=r"HR332: the directory of table .* Spark takes it for a pattern"):
        CatalogTable(table=table).stream(spark, NAME)


def test_a_partition_that_looks_like_a_pattern_is_read_once(spark: SparkSession, table: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE {table} (name STRING, kind STRING) USING parquet PARTITIONED BY (kind)")
    spark.sql(f"INSERT INTO {table} VALUES ('apple', 'a}}'), ('pear', 'b}}'), ('plum', 'c')")
    taken: list[object] = []
    stream = CatalogTable(table=table).stream(spark, NAME)
    writer = stream.writeStream.foreachBatch(lambda frame, _: taken.extend(row.name for row in frame.collect()))
    writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert sorted(taken) == ["apple", "pear", "plum"]


def content(spark: SparkSession, table: str) -> list[tuple[object, ...]]:
    spark.catalog.refreshTable(table)
    return sorted(map(tuple, spark.table(table).select("name", "amount", "kind").collect()))


@pytest.mark.capability("SINK-TABLE-01")
@pytest.mark.capability("SRC-TABLE-01")
@pytest.mark.parametrize(
    "options",
    rounds(["format='csv', partition_by=['kind', 'name']", "format='parquet'"]),
    ids=["csv by two", "parquet"],
)
def test_a_table_that_one_query_writes_is_read_by_another(
    tmp_path: Path, spark: SparkSession, table: str, options: str
) -> None:
    root = project(tmp_path / "p", table, options)
    loaded = load(root)
    expected: list[tuple[object, ...]] = [("apple", 1, "ü"), ("apple", 3, "ü"), ("big pear", 2, "ü")]
    for query in ("keep", "sums"):
        assert [end.finding for end in run(loaded, [query], spark=spark).outcomes] == [None]
    assert content(spark, table) == expected
    partitions = [column.name for column in spark.catalog.listColumns(table) if column.isPartition]
    assert partitions == (["kind", "name"] if "csv" in options else [])
    files = [file.relative_to(directory(spark, table)) for file in directory(spark, table).rglob("part-*.*")]
    assert {unquote(str(file.parent)) for file in files} == (
        {"kind=ü/name=apple", "kind=ü/name=big pear"} if partitions else {"."}
    )
    assert {file.suffix for file in files} == {".csv" if partitions else ".parquet"}
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2)]
    land(root, 2, [{"name": "fig", "amount": 5}])
    forget_commit(layout_in(loaded.storage, "keep").checkpoint)
    for query in ("keep", "sums"):
        assert [end.finding for end in run(loaded, [query], spark=spark).outcomes] == [None]
    assert content(spark, table) == sorted([*expected, ("fig", 5, "ü")])
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2), ("fig", 5)]
    assert [verify(loaded, query, spark=spark).state for query in ("keep", "sums")] == ["equal", "equal"]
    assert [check(loaded, spark=False).guarantees[query].level for query in ("keep", "sums")] == ["exactly once"] * 2


@pytest.mark.capability("SINK-TABLE-01")
def test_a_table_that_the_catalog_has_forgotten_is_found_again_with_its_rows(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    root = project(tmp_path / "p", table, "partition_by=['name']")
    loaded = load(root)
    assert run(loaded, ["keep"], spark=spark).exit_code == 0
    home = directory(spark, table)
    home.rename(home.with_name("aside"))
    spark.sql(f"DROP TABLE {table}")
    home.with_name("aside").rename(home)
    assert verify(loaded, "keep", spark=spark).state == "equal"
    assert not spark.catalog.tableExists(table)
    assert [end.finding for end in run(loaded, ["sums"], spark=spark).outcomes] == [None]
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2)]
    land(root, 2, [{"name": "fig", "amount": 5}])
    for query in ("keep", "sums"):
        assert [end.finding for end in run(loaded, [query], spark=spark).outcomes] == [None]
    assert len(content(spark, table)) == 4
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2), ("fig", 5)]


@pytest.mark.capability("SRC-TABLE-01")
@pytest.mark.capability("SINK-TABLE-01")
@pytest.mark.parametrize("partition_by", rounds([["kind"], []]), ids=["by kind", "whole"])
def test_check_and_verify_know_a_table_by_the_query_that_writes_it(
    tmp_path: Path, spark: SparkSession, table: str, partition_by: list[str]
) -> None:
    """Before the table exists, and after the catalog has forgotten it; neither leaves anything behind."""
    loaded = load(project(tmp_path / "p", table, f"partition_by={partition_by}"))
    before = check(loaded, ["sums"], spark=spark)
    assert [str(finding) for finding in before.errors] == []
    assert before.guarantees["sums"].proven
    assert not spark.catalog.tableExists(table)
    assert not directory(spark, table).exists()
    assert_one_run_takes_rows_through(loaded, ["keep", "sums"], spark)
    home = directory(spark, table)
    home.rename(home.with_name("aside"))
    spark.sql(f"DROP TABLE {table}")
    home.with_name("aside").rename(home)
    assert check(loaded, ["sums"], spark=spark).errors == ()
    assert verify(loaded, "sums", spark=spark).state == "equal"
    assert late(loaded, "sums", spark=spark).rows == ()
    assert not spark.catalog.tableExists(table)
    assert len(list(home.rglob("part-*"))) == 2


@pytest.mark.capability("SRC-TABLE-01")
def test_a_fault_of_the_query_that_writes_is_reported_as_its_own(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    root = project(tmp_path / "p", table)
    text = (root / "pipeline.py").read_text()
    (root / "pipeline.py").write_text(text.replace('select("name"', 'select("nam"'))
    errors_by_code = {finding.code: str(finding) for finding in check(load(root), spark=spark).errors}
    assert set(errors_by_code) == {"HR214", "HR332"}
    assert "nam" in errors_by_code["HR214"]


def assert_one_run_takes_rows_through(project: Project, queries: list[str], spark: SparkSession) -> None:
    """Run both queries together: the one that reads the table begins once the other has ended."""
    recorder = Recorder()
    result = run(project, queries, spark=spark, reporter=recorder)
    assert [(end.query, end.state, end.rows) for end in result.outcomes] == [(name, "finished", 3) for name in queries]
    assert [record.query for record in recorder.all(BatchRecord)] == ["keep", "keep", "sums", "sums"]
    assert rows(project.root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2)]


# test_check_and_verify has the writer first.
@pytest.mark.capability("SRC-TABLE-01")
def test_one_run_takes_rows_through_two_queries_in_whatever_order_they_stand(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    assert_one_run_takes_rows_through(load(project(tmp_path / "p", table)), ["sums", "keep"], spark)


@pytest.mark.capability("SRC-TABLE-01")
def test_of_streams_without_an_end_the_reader_does_not_wait(tmp_path: Path, spark: SparkSession, table: str) -> None:
    root = project(tmp_path / "p", table)
    stop = StopRequest()

    def reached(boundary: str, batch: int) -> None:
        if (boundary, batch) == ("after-transaction", 1):
            stop.ask()

    result = run(
        load(root), ["sums", "keep"], spark=spark, trigger=Every(Duration.parse("1 second")), stop=stop, reached=reached
    )
    assert [(end.query, end.state) for end in result.outcomes] == [("sums", "stopped"), ("keep", "stopped")]
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2)]


@pytest.mark.capability("SRC-TABLE-01")
def test_a_reader_goes_on_with_what_is_there_when_the_writer_fails(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    root = project(tmp_path / "p", table)
    assert run(load(root), ["keep"], spark=spark).exit_code == 0
    (root / "pipeline.py").write_text((root / "pipeline.py").read_text().replace('select("name"', 'select("nam"'))
    keep, sums = run(load(root), ["keep", "sums"], spark=spark).outcomes
    assert (keep.state, sums.state, sums.rows) == ("failed", "finished", 3)


@pytest.mark.plain
def test_a_query_that_reads_what_it_writes_is_refused(tmp_path: Path) -> None:
    text = """
events = hr.source.table("{first}")
others = hr.source.table("b")


@hr.query(sink=hr.sink.table("A"))
def one(events):
    return events


@hr.query(sink=hr.sink.table("spark_catalog.default.b"))
def two(events):
    return events


@hr.query(sink=hr.sink.table("c"))
def three(others):
    return others
"""
    round_trip = load(write_project(tmp_path / "p", text.format(first="default.a"), batches=[]))
    findings = [(finding.code, finding.what) for finding in check(round_trip, spark=False).errors]
    assert findings == [("HR267", "query 'one' reads what it writes")]
    longer = load(write_project(tmp_path / "q", text.format(first="c"), batches=[]))
    findings = [(finding.code, finding.what) for finding in check(longer, spark=False).errors]
    assert findings == [
        ("HR267", "query 'two' reads what it writes, by way of three"),
        ("HR267", "query 'three' reads what it writes, by way of two"),
    ]
    assert check(load(write_project(tmp_path / "r", text.format(first="z"), batches=[])), spark=False).errors == ()


@pytest.mark.capability("SINK-TABLE-01")
@pytest.mark.parametrize(
    ("made", "options", "code", "says"),
    [
        ("CREATE TABLE {} (name STRING, amount INT) USING parquet", "", "HR406", "it has the columns name string"),
        ("CREATE TABLE {} (name STRING, amount LONG, kind STRING) USING parquet", "", "HR406", "amount bigint"),
        ("CREATE TABLE {} (name STRING, amount INT, kind STRING) USING json", "", "HR406", "it is of format json"),
        (
            "CREATE TABLE {} (name STRING, amount INT, kind STRING) USING parquet PARTITIONED BY (kind)",
            "partition_by=['name']",
            "HR406",
            "it is partitioned by kind and not by name",
        ),
        (
            "CREATE TABLE {} USING parquet AS SELECT 'x' AS name, 1 AS amount, 'y' AS kind",
            "",
            "HR407",
            "holds files that no stream wrote",
        ),
        ("CREATE VIEW {} AS SELECT 1 AS a", "", "HR419", "is a view"),
        ("", "partition_by=['nam']", "HR404", "partition_by names nam"),
        ("", "partition_by=['name', 'amount', 'kind']", "HR404", "names every column"),
        ("", "format='text'", "HR404", "no table"),
    ],
    ids=["columns", "type", "format", "partitions", "other rows", "view", "misspelt", "all", "text"],
)
def test_a_table_that_does_not_fit_is_refused_before_start(
    tmp_path: Path, spark: SparkSession, table: str, made: str, options: str, code: str, says: str
) -> None:
    if made:
        spark.sql(made.format(table))
    finding = refusal_of(project(tmp_path / "p", table, options), spark, "keep")
    assert finding.code == code
    assert says in finding.what
    assert finding.fix


def refusal_of(root: Path, spark: SparkSession, query: str) -> Finding:
    (end,) = run(load(root), [query], spark=spark).outcomes
    assert (end.state, end.batches) == ("failed", 0)
    assert end.finding is not None
    assert "\n" not in end.finding.what
    return end.finding


def test_what_a_crash_in_the_first_batch_left_behind_does_not_count(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    root = project(tmp_path / "p", table)
    for file in (root / "landing").iterdir():
        file.rename(root / file.name)
    assert run(load(root), ["keep"], spark=spark).exit_code == 0
    (directory(spark, table) / "part-00000-broken.snappy.parquet").write_text("cut off")
    land(root, 5, FRUIT[1])
    assert [end.finding for end in run(load(root), ["keep"], spark=spark).outcomes] == [None]
    assert content(spark, table) == [("apple", 3, "ü")]


def test_an_old_checkpoint_is_refused(tmp_path: Path, spark: SparkSession, table: str) -> None:
    root = project(tmp_path / "p", table)
    loaded = load(root)
    assert run(loaded, ["keep"], spark=spark).exit_code == 0
    shutil.rmtree(layout_in(loaded.storage, "keep").home)
    assert refusal_of(root, spark, "keep").code == "HR410"


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [("nowhere.t", "HR419", "no database 'nowhere'"), ("lake.db.t", "HR113", "not a valid name of a table")],
)
def test_a_name_outside_the_catalog_is_refused(
    tmp_path: Path, spark: SparkSession, name: str, code: str, says: str
) -> None:
    root = project(tmp_path / "p", name)
    if code == "HR113":
        assert [(problem.code, says in problem.what) for problem in TableSink(table=name).problems("append")] == [
            (code, True)
        ]
        assert {"HR113"} == {finding.code for finding in check(load(root), spark=False).errors}
    else:
        finding = refusal_of(root, spark, "keep")
        assert (finding.code, says in finding.what) == (code, True)


@pytest.mark.capability("SRC-TABLE-01")
@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("", "the catalog has no table"),
        ("CREATE VIEW {} AS SELECT 1 AS a", "is a view"),
        ("CREATE TABLE {} (path STRING, length LONG) USING binaryFile", "is of format binaryfile"),
    ],
    ids=["missing", "view", "format"],
)
def test_what_cannot_be_read_as_a_stream_is_refused(
    tmp_path: Path, spark: SparkSession, table: str, made: str, says: str
) -> None:
    if made:
        spark.sql(made.format(table))
    finding = refusal_of(project(tmp_path / "p", table), spark, "sums")
    assert finding.code == "HR332"
    assert says in finding.what.lower()


def test_the_options_of_the_format_reach_reader_and_verify(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (a INT, b STRING) USING csv OPTIONS (sep '|')")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'x,y')")
    assert CatalogTable(table=table).stream(spark, NAME).dtypes == [("a", "int"), ("b", "string")]
    assert list(CatalogTable(table=table, options={"path": "x"}, max_files_per_trigger=0).problems()) != []
    description = CatalogTable(table=table)._describe(spark)
    assert description["storage_properties"] == {"sep": "|"}


def test_faults_of_the_sinks_options_are_reported() -> None:
    codes = [[problem.code for problem in TableSink(table="a b").problems(mode)] for mode in OUTPUT_MODES]
    assert codes == [["HR113"], ["HR113", "HR403"], ["HR113", "HR403"]]


LASTING = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
import headrace as hr

root = Path(sys.argv[1])
settings = {
    "spark.sql.catalogImplementation": "hive", "spark.sql.warehouse.dir": str(root / "warehouse"),
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={root}/metastore;create=true",
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def make(*names):
    spark.sql("CREATE TABLE given (name STRING) USING parquet")
    for name in names:
        spark.sql(f"INSERT INTO given VALUES ('{name}')")

def run():
    [outcome] = hr.run(hr.load(root), spark=spark).outcomes
    print("OUTCOME", outcome.state, outcome.finding.code if outcome.finding else "", flush=True)

make("a", "b")
run()
spark.sql("INSERT INTO given VALUES ('c')")
run()
time.sleep(1.1)  # The catalog counts whole seconds.
spark.sql("DROP TABLE given")
make("d")
run()
"""


@pytest.mark.long
def test_a_table_of_a_lasting_catalog_that_was_dropped_and_created_is_refused(tmp_path: Path) -> None:
    body = """
given = hr.source.table("given")


@hr.query(sink=hr.sink.sqlite("out.db", table="kept"), mode="append", trigger=hr.available_now)
def kept(given):
    return given
"""
    root = write_project(tmp_path / "p", body)
    ended = subprocess.run([sys.executable, "-c", LASTING, root], capture_output=True, text=True, timeout=300, cwd=root)
    outcomes = [line for line in ended.stdout.splitlines() if line.startswith("OUTCOME")]
    assert outcomes == ["OUTCOME finished ", "OUTCOME finished ", "OUTCOME failed HR346"], ended.stderr[-2000:]
    assert rows(root / "out.db", "SELECT name FROM kept ORDER BY name") == [("a",), ("b",), ("c",)]
