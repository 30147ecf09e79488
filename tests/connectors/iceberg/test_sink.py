"""Iceberg tables: written by one query, read by another, and refused where rows would be lost or mixed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.api import check, load, run, verify
from headrace.errors import Finding, HeadraceError
from headrace.generations.facts import sink_context
from headrace.testing.conformance import forget_commit
from tests.connectors.iceberg import tables as iceberg_tables
from tests.registered import layout_in
from tests.runner.projects import land, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FRUIT = [[{"name": "apple", "amount": 1}, {"name": "big pear", "amount": 2}], [{"name": "apple", "amount": 3}]]

PROJECT = """
CATALOG = {CATALOG}


@hr.query(sink=hr.sink.iceberg("db.kept", catalog=CATALOG{OPTIONS}), trigger=hr.available_now)
def keep(events):
    return events.select(
        "name",
        F.col("amount").cast("smallint").alias("amount"),
        F.timestamp_seconds("amount").alias("time"),
        F.struct(F.array("name").alias("names"), F.lit("ü").alias("kind")).alias("inner"),
    )


kept = hr.source.iceberg("db.kept", catalog=CATALOG, max_files_per_trigger=1{SOURCE})


@hr.query(sink=hr.sink.sqlite("out.db", table="sums", key=["name"]), mode="update", trigger=hr.available_now)
def sums(kept):
    return kept.groupBy("name").agg(F.sum("amount").alias("amount"))
"""

YAML = """
name: p
sources:
  events: {iceberg: {table: db.events, catalog: CATALOG, max_files_per_trigger: 1}}
queries:
  totals:
    select: SELECT name, sum(amount) AS amount FROM events GROUP BY name
    mode: complete
    trigger: available-now
    sink: {iceberg: {table: db.totals, catalog: CATALOG}}
"""


def columns(**kinds: Any) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in kinds.items()])


def project(root: Path, options: str = "", source: str = "") -> Path:
    text = PROJECT.replace("{CATALOG}", repr(iceberg_tables.properties(root.parent)))
    return write_project(root, text.replace("{OPTIONS}", options).replace("{SOURCE}", source), batches=FRUIT)


def went_well(root: Path, spark: SparkSession, *queries: str, **more: Any) -> None:
    for query in queries:
        assert [end.finding for end in run(load(root), [query], spark=spark, **more).outcomes] == [None]


def refusal_of(root: Path, spark: SparkSession, query: str) -> Finding:
    try:
        (end,) = run(load(root), [query], spark=spark).outcomes
    except HeadraceError as error:
        (finding,) = error.findings
        return finding
    assert (end.state, end.batches) == ("failed", 0)
    assert end.finding is not None
    assert "\n" not in end.finding.what
    assert end.finding.fix
    return end.finding


def kept_rows(home: Path) -> list[tuple[str, int]]:
    return [(row["name"], row["amount"]) for row in iceberg_tables.content(home, "db.kept")]


def snapshots(home: Path, table: str) -> list[tuple[str, str]]:
    """The kind and the batch of each snapshot."""
    history = iceberg_tables.catalog(home).load_table(table).metadata.snapshots
    return [
        (snapshot.summary.operation.value, snapshot.summary["headrace.batch"])
        for snapshot in history
        if snapshot.summary
    ]


@pytest.mark.long
@pytest.mark.capability("SINK-LAKE-01")
def test_a_table_that_one_query_writes_is_read_by_another(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", ", partition_by=['truncate(1, name)', 'day(time)']")
    went_well(root, spark, "keep", "sums")
    expected = [("apple", 1), ("apple", 3), ("big pear", 2)]
    assert kept_rows(tmp_path) == expected
    files = [path.relative_to(tmp_path / "warehouse") for path in (tmp_path / "warehouse").rglob("*.parquet")]
    assert {part for path in files for part in path.parts if "=" in part} == {
        "name_trunc_1=a",
        "name_trunc_1=b",
        "time_day=1970-01-01",
    }
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2)]
    loaded = load(root)
    land(root, 2, [{"name": "fig", "amount": 5}])
    for query in ("keep", "sums"):
        forget_commit(layout_in(loaded.storage, query).checkpoint)
        went_well(root, spark, query)
    went_well(root, spark, "sums")
    assert kept_rows(tmp_path) == [*expected, ("fig", 5)]
    assert [batch for kind, batch in snapshots(tmp_path, "db.kept") if kind == "append"] == ["-1", "0", "1", "1", "2"]
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2), ("fig", 5)]
    assert [verify(loaded, query, spark=spark).state for query in ("keep", "sums")] == ["equal", "equal"]
    assert [check(loaded, spark=False).guarantees[query].level for query in ("keep", "sums")] == ["exactly once"] * 2


@pytest.mark.long
@pytest.mark.capability("SINK-LAKE-01")
def test_in_complete_mode_each_batch_replaces_all_rows_in_one_commit(tmp_path: Path, spark: SparkSession) -> None:
    root = tmp_path / "p"
    root.mkdir()
    for batch in FRUIT:
        iceberg_tables.add(tmp_path, "db.events", batch, columns(name=pa.string(), amount=pa.int32()))
    (root / "headrace.yml").write_text(YAML.replace("CATALOG", str(iceberg_tables.properties(tmp_path))))
    went_well(root, spark, "totals")
    forget_commit(layout_in(load(root).storage, "totals").checkpoint)
    went_well(root, spark, "totals")
    pears = {"name": "big pear", "amount": 2}
    assert iceberg_tables.content(tmp_path, "db.totals") == [{"name": "apple", "amount": 4}, pears]
    expected = [("append", "-1"), ("append", "0"), ("overwrite", "1"), ("append", "1")]
    assert snapshots(tmp_path, "db.totals") == expected
    assert verify(load(root), "totals", spark=spark).state == "equal"
    table = iceberg_tables.catalog(tmp_path).load_table("db.totals")
    table.append(pa.Table.from_pylist([{"name": "fig", "amount": 9}], schema=table.schema().as_arrow()))
    assert verify(load(root), "totals", spark=spark).state == "mismatch"


@pytest.mark.capability("SINK-LAKE-01")
def test_a_snapshot_between_is_kept_and_an_older_driver_is_not_let_through(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", ", partition_by=['name']")

    def another_writes(boundary: str, batch: int) -> None:
        if (boundary, batch) == ("inside-transaction", 0) and len(others) == 0:
            others.append(batch)
            table = iceberg_tables.catalog(tmp_path).load_table("db.kept")
            other = [{"name": "other", "amount": 7}]
            table.append(pa.Table.from_pylist(other, schema=table.schema().as_arrow()))

    others: list[int] = []
    went_well(root, spark, "keep", reached=another_writes)
    expected = [("apple", 1), ("apple", 3), ("big pear", 2), ("other", 7)]
    assert kept_rows(tmp_path) == expected

    def a_newer_driver_starts(boundary: str, batch: int) -> None:
        if boundary == "inside-transaction":
            query = load(root).queries["keep"]
            context = sink_context(load(root), query, layout_in(load(root).storage, "keep"))
            query.sink.open(keep_frame(), context)

    def keep_frame() -> Any:
        table = iceberg_tables.catalog(tmp_path).load_table("db.kept")
        schema = "name STRING, amount SMALLINT, time TIMESTAMP, inner STRUCT<names: ARRAY<STRING>, kind: STRING>"
        assert table.current_snapshot() is not None
        return spark.createDataFrame([], schema)

    land(root, 2, [{"name": "fig", "amount": 5}])
    (end,) = run(load(root), ["keep"], spark=spark, reached=a_newer_driver_starts).outcomes
    assert end.finding is not None
    assert (end.finding.code, "a newer driver runs query 'keep'" in end.finding.what) == ("HR409", True)
    assert kept_rows(tmp_path) == expected
    went_well(root, spark, "keep")
    assert kept_rows(tmp_path) == sorted([*expected, ("fig", 5)], key=repr)


FITTING = columns(
    name=pa.string(),
    amount=pa.int64(),
    time=pa.timestamp("us", tz="UTC"),
    inner=pa.struct([pa.field("names", pa.list_(pa.string())), pa.field("kind", pa.string())]),
    more=pa.string(),
)


def with_rows(home: Path) -> None:
    iceberg_tables.add(home, "db.kept", [{"name": "x"}], FITTING)


def no_catalog(home: Path) -> None:
    (home / "catalog.db").mkdir()


@pytest.mark.capability("SINK-LAKE-01")
@pytest.mark.parametrize(
    ("made", "options", "code", "says"),
    [
        (FITTING.remove(0), "", "HR406", "it has no column 'name'"),
        (FITTING.set(1, pa.field("amount", pa.string())), "", "HR406", "'amount' is string, and that of the result"),
        (FITTING.set(4, pa.field("more", pa.string(), nullable=False)), "", "HR406", "'more' takes no NULL"),
        (FITTING, ", partition_by=['name']", "HR406", "is partitioned by nothing and not by name"),
        (with_rows, "", "HR407", "already holds rows that no query wrote"),
        (no_catalog, "", "HR405", "table 'db.kept' of the Iceberg catalog 'default' cannot be used"),
        (None, ", partition_by=['nam']", "HR404", "partition_by names nam"),
        (None, ", partition_by=['week(time)']", "HR113", "'week(time)' is neither a column nor a function"),
        (None, ", mode_of_no_kind=1", "HR103", "mode_of_no_kind"),
        (None, "), mode=('update'", "HR255", "update"),
    ],
    ids=["column", "type", "required", "partitions", "rows", "catalog", "misspelt", "function", "option", "mode"],
)
def test_what_does_not_fit_is_refused_before_start(
    tmp_path: Path,
    spark: SparkSession,
    made: pa.Schema | Callable[[Path], None] | None,
    options: str,
    code: str,
    says: str,
) -> None:
    root = project(tmp_path / "p", options)
    if isinstance(made, pa.Schema):
        iceberg_tables.table(tmp_path, "db.kept", made)
    elif made is not None:
        made(tmp_path)
    finding = refusal_of(root, spark, "keep")
    assert finding.code == code
    assert says in finding.what


def test_a_table_with_more_and_wider_columns_is_filled_and_a_null_that_it_refuses_ends_the_batch(
    tmp_path: Path, spark: SparkSession
) -> None:
    iceberg_tables.table(tmp_path, "db.kept", FITTING.set(0, pa.field("name", pa.string(), nullable=False)))
    root = project(tmp_path / "p")
    went_well(root, spark, "keep")
    assert kept_rows(tmp_path) == [("apple", 1), ("apple", 3), ("big pear", 2)]
    assert {row["more"] for row in iceberg_tables.content(tmp_path, "db.kept")} == {None}
    assert verify(load(root), "keep", spark=spark).state == "equal"
    land(root, 2, [{"amount": 5}])
    (end,) = run(load(root), ["keep"], spark=spark).outcomes
    assert end.finding is not None
    assert (end.finding.code, "1 rows have NULL in column 'name'" in end.finding.what) == ("HR440", True)
    assert len(kept_rows(tmp_path)) == 3


@pytest.mark.capability("SINK-LAKE-01")
def test_a_table_that_was_changed_otherwise_than_by_appending_is_reported(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p")
    assert refusal_of(root, spark, "sums").code == "HR332"
    went_well(root, spark, "keep", "sums")
    iceberg_tables.catalog(tmp_path).load_table("db.kept").delete("name = 'apple' and amount = 3")
    (end,) = run(load(root), ["sums"], spark=spark).outcomes
    assert end.finding is not None
    assert (end.finding.code, "\n" in end.finding.what) == ("HR344", False)
    assert "skip_delete_snapshots" in end.finding.fix
    root.joinpath("pipeline.py").write_text(
        root.joinpath("pipeline.py").read_text().replace("CATALOG, max", "CATALOG, skip_delete_snapshots=True, max")
    )
    land(root, 2, [{"name": "fig", "amount": 5}])
    went_well(root, spark, "keep", "sums")
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("apple", 4), ("big pear", 2), ("fig", 5)]


def test_a_batch_whose_snapshots_were_expired_is_refused_before_start(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p")
    went_well(root, spark, "keep", "sums")
    forget_commit(layout_in(load(root).storage, "sums").checkpoint)
    table = iceberg_tables.catalog(tmp_path).load_table("db.kept")
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    went_well(root, spark, "keep")
    table.refresh().maintenance.expire_snapshots().by_ids([table.metadata.snapshots[0].snapshot_id]).commit()
    finding = refusal_of(root, spark, "sums")
    assert (finding.code, "it was expired" in finding.what) == ("HR343", True)


def test_a_partition_takes_every_text_and_no_value_that_is_no_number(tmp_path: Path, spark: SparkSession) -> None:
    root, texts = (
        project(tmp_path / "p", ", partition_by=['name', 'half']"),
        ["", "__HIVE_DEFAULT_PARTITION__", "a/b\n"],
    )
    pipeline = root / "pipeline.py"
    body = pipeline.read_text().replace('"name",\n', '"name", (F.col("amount") / 2).alias("half"),\n', 1)
    pipeline.write_text(body)
    land(root, 2, [{"name": name, "amount": 7} for name in texts])
    went_well(root, spark, "keep")
    assert {name for name, amount in kept_rows(tmp_path) if amount == 7} == set(texts)
    pipeline.write_text(body.replace('F.col("amount") / 2', 'F.lit("NaN").cast("double")'))
    land(root, 3, [{"name": "a", "amount": 8}])
    (end,) = run(load(root), ["keep"], spark=spark, accept_forward=True).outcomes
    assert end.finding is not None
    assert (end.finding.code, "column 'half' is NaN" in end.finding.what) == ("HR440", True)
