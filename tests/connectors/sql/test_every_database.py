"""Every database keeps every type, takes every mode, few rows and many, and names every row that it does not take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import functions as F

from headrace.connectors.sql.ledger import Ledger
from headrace.contract import OutputMode
from headrace.errors import CheckpointError, Fenced, SinkError

from .databases import EVERY, EVERY_WITHOUT_SPARK, MOSTLY_SQLITE, Database, Life, database
from .fed import LifeWithoutSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]
ARROW = pytest.mark.parametrize("database", EVERY_WITHOUT_SPARK, indirect=True)
SPARK = pytest.mark.parametrize("database", EVERY, indirect=True)
SPARK_ONCE = pytest.mark.parametrize("database", MOSTLY_SQLITE, indirect=True)

PATHS = pytest.mark.parametrize("staged", [False, True], ids=["driver", "staged"])


def by_paths(databases: Sequence[Any]) -> pytest.MarkDecorator:
    """Let a test take both paths, with PostgreSQL and MariaDB one of them in `make test`."""
    cases = []
    for given in databases:
        for staged, path in ((False, "driver"), (True, "staged")):
            [kind] = given.values
            further = [] if kind == "sqlite" or staged is (kind == "postgres") else [pytest.mark.long]
            cases.append(pytest.param(kind, staged, id=f"{path}-{kind}", marks=[*given.marks, *further]))
    return pytest.mark.parametrize(("database", "staged"), cases, indirect=["database"])


ARROW_BY_PATHS, SPARK_BY_PATHS = by_paths(EVERY_WITHOUT_SPARK), by_paths(EVERY)


@pytest.fixture
def context(tmp_path: Path, database: Database) -> Life:
    """A life without Spark: the database does the same."""
    return LifeWithoutSpark(cast("SparkSession", None), tmp_path, database)


@pytest.fixture
def in_spark(spark: SparkSession, tmp_path: Path, database: Database) -> Life:
    return Life(spark, tmp_path, database)


TYPES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768],
    "INT": [-(2**31)],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [0.1, 3.4e38],
    "DOUBLE": [0.1, 1e300, 5e-324, 0.30000000000000004],
    "DECIMAL(15,4)": [Decimal("12345678901.2345"), Decimal("-0.0001"), Decimal("10.0000")],
    "DECIMAL(15,15)": [Decimal("0.000000000000001")],
    "DECIMAL(38,10)": [Decimal("1234567890123456789012345678.0123456789"), Decimal("0.0000000001")],
    "STRING": ["", "é\n'\"\t\\N\\", "12", "NaN", "🎈", "a ", "a", "A"],
    "BINARY": [bytearray(b"\x00\xff\\"), bytearray(b"")],
    "DATE": [date(1000, 1, 1), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(2024, 2, 29, 23, 59, 59, 123456), datetime(1900, 1, 1)],
    "TIMESTAMP_NTZ": [datetime(2024, 2, 29, 23, 59, 59, 1)],
    "ARRAY<STRUCT<x: INT, t: TIMESTAMP>>": [[{"x": None, "t": datetime(2024, 1, 1, 0, 0, 0, 1)}], []],
    "MAP<STRING, ARRAY<DOUBLE>>": [{"k": [1.5, None]}],
    "STRUCT<d: DECIMAL(38,10), b: BINARY, n: STRUCT<s: STRING>>": [
        {"d": Decimal("1234567890123456789012345678.0123456789"), "b": bytearray(b"\x00"), "n": None}
    ],
}


# What SQLite alone takes.
OF_SQLITE: dict[str, list[Any]] = {
    "FLOAT": [math.inf, math.nan],
    "DOUBLE": [math.inf, -math.inf, math.nan],
    "STRING": ["a\0b"],
    "DATE": [date(1, 1, 1)],
}


def comparable(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "not a number"
    if hasattr(value, "asDict"):
        return comparable(value.asDict())
    if isinstance(value, dict):
        return {name: comparable(inner) for name, inner in value.items()}
    return [comparable(inner) for inner in value] if isinstance(value, list) else value


@SPARK
@PATHS
def test_a_value_of_every_type_comes_back_as_it_was(in_spark: Life, staged: bool) -> None:
    more = OF_SQLITE if in_spark.database.kind == "sqlite" else {}
    given = {declared: [*values, *more.get(declared, []), None] for declared, values in TYPES.items()}
    longest = max(map(len, given.values()))
    columns = [[*values, *[None] * (longest - len(values))] for values in given.values()]
    in_spark.schema = "id INT, " + ", ".join(f"c{at} {declared}" for at, declared in enumerate(given))
    in_spark.key, in_spark.mode = (), "append"
    frame = in_spark.frame(list(zip(range(longest), *columns, strict=True)))
    in_spark.begin(staged=staged)(frame, 0)
    back = in_spark.sink.read_back(in_spark.spark, in_spark.run).rows
    assert back.dtypes == frame.dtypes
    rows_back, wanted = back.orderBy("id").collect(), frame.orderBy("id").collect()
    for at, declared in enumerate(given):
        assert [comparable(row[at + 1]) for row in rows_back] == [comparable(row[at + 1]) for row in wanted], declared
    assert [row.id for row in rows_back] == list(range(longest))
    assert in_spark.database.left_over() == []


@ARROW_BY_PATHS
def test_a_number_that_is_none_comes_back_or_is_refused_by_name(context: Life, staged: bool) -> None:
    context.schema, context.key, context.mode = "id INT, v DOUBLE", (), "append"
    writer, given = context.begin(staged=staged), [(1, math.nan), (2, math.inf), (3, -math.inf), (4, 0.5)]
    if context.database.kind == "mariadb":
        for row in given[:3]:
            with pytest.raises(SinkError, match=rf"batch 0.*column 'v' takes neither NaN nor infinity.*id={row[0]}"):
                writer(context.frame([row, given[3]]), 0)
        assert context.rows() == []
    else:
        writer(context.frame(given), 0)
        # SQLite keeps NaN as a text.
        assert repr([(number, float(value)) for number, value in context.rows()]) == repr(given)


@ARROW_BY_PATHS
@pytest.mark.capability("SINK-SQL-01")
def test_update_replaces_by_key_append_adds_and_complete_replaces_all(context: Life, staged: bool) -> None:
    batches = [[("a", 1), ("b", 1)], [("b", 2), ("c", 3)], [("d", None)]]
    ends: dict[OutputMode, list[tuple[Any, ...]]] = {
        "update": [("a", 1), ("b", 2), ("c", 3), ("d", None)],
        "append": [("a", 1), ("b", 1), ("b", 2), ("c", 3), ("d", None)],
        "complete": [("d", None)],
    }
    for mode, expected in ends.items():
        context.mode, context.query, context.options = mode, f"q_{mode}", {"table": f"result_{mode}"}
        context.key = ("name",) if mode == "update" else ()
        writer = context.begin(staged=staged)
        for batch, rows in enumerate(batches):
            writer(context.frame(rows, partitions=2 if staged else 0), batch)
        assert context.rows() == sorted(expected, key=repr)
        lines = context.database.query(f"SELECT batch FROM _headrace_ledger WHERE query = '{context.query}'")
        assert sorted(lines) == [(0,), (1,), (2,)]
    assert context.database.left_over() == []


@SPARK_BY_PATHS
def test_many_rows_of_many_partitions_are_all_there_and_replaced(in_spark: Life, staged: bool) -> None:
    in_spark.schema = "name STRING, at TIMESTAMP, total BIGINT"
    in_spark.key = ("name", "at")
    writer = in_spark.begin(staged=staged)
    for batch, (first, last) in enumerate([(0, 12_000), (8_000, 20_000)]):
        frame = in_spark.spark.range(first, last, 1, 7).selectExpr(
            "concat('n', id % 1000) name", "timestamp_millis(id * 1000) at", f"id + {batch} total"
        )
        writer(frame, batch)
    [(count, total)] = in_spark.database.query("SELECT count(*), sum(total) FROM result")
    assert (count, int(total)) == (20_000, sum(range(20_000)) + 12_000)
    assert in_spark.database.batches() == [(0, 12_000, 0), (1, 12_000, 0)]
    assert in_spark.database.left_over() == []


@SPARK_ONCE
def test_a_large_batch_goes_by_the_executors_and_a_small_one_by_the_driver(
    in_spark: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = ways_taken(monkeypatch)
    writer = in_spark.begin()
    for batch, rows in enumerate([100, 100, 60_000, 60_000, 100, 100]):
        writer(in_spark.spark.range(0, rows, 1, 2).selectExpr("concat('n', id) name", f"id + {batch} total"), batch)
    assert ways == ["small 0", "small 0", "small None", "large 2", "large 2", "large 0", "small 0"]
    assert [rows for _, rows, _ in in_spark.database.batches()] == [100, 100, 60_000, 60_000, 100, 100]
    assert in_spark.database.query("SELECT count(*), sum(total) FROM result") == [
        (60_000, sum(range(60_000)) + 60_000 * 3 + 200)
    ]


@SPARK_ONCE
@pytest.mark.parametrize(
    ("mode", "rows", "way"),
    [
        pytest.param("update", 100, "small 0", id="few rows"),
        pytest.param("update", 150_000, "large", id="many rows"),
        pytest.param("complete", 100, "large 0", id="a whole result, whatever the batch read"),
    ],
)
def test_the_first_batch_goes_by_the_driver_if_it_reads_little(
    in_spark: Life, monkeypatch: pytest.MonkeyPatch, mode: OutputMode, rows: int, way: str
) -> None:
    ways, in_spark.mode = ways_taken(monkeypatch), mode
    frame = in_spark.spark.range(0, rows, 1, 2).selectExpr("concat('n', id % 5) name", "id total")
    in_spark.begin()(frame.where("total < 5"), 0)
    assert len(ways) == 1
    assert ways[0].startswith(way)
    assert in_spark.rows() == [(f"n{number}", number) for number in range(5)]


@SPARK_ONCE
@pytest.mark.parametrize(("groups", "ways"), [(5, ["small"]), (150_000, ["large"])])
def test_the_first_batch_of_an_aggregate_goes_by_the_driver_if_its_shuffle_holds_little(
    in_spark: Life, monkeypatch: pytest.MonkeyPatch, groups: int, ways: list[str]
) -> None:
    taken, in_spark.mode = ways_taken(monkeypatch), "update"
    # Names that no shuffle compresses.
    name = F.md5((F.col("id") % groups).cast("string")).alias("name")
    frame = in_spark.spark.range(0, 150_000, 1, 2).groupBy(name)
    in_spark.begin()(frame.agg(F.count("*").alias("total")), 0)
    assert [way.partition(" ")[0] for way in taken] == ways
    assert in_spark.database.query("SELECT count(*), sum(total) FROM result") == [(groups, 150_000)]


@SPARK_ONCE
def test_what_fails_before_the_shuffle_of_a_first_batch_is_reported_and_nothing_is_written(in_spark: Life) -> None:
    in_spark.mode = "update"
    name = F.expr("CASE WHEN id = 7 THEN raise_error('not this row') ELSE string(id % 5) END").alias("name")
    frame = in_spark.spark.range(0, 150_000, 1, 2).groupBy(name).agg(F.count("*").alias("total"))
    with pytest.raises(Exception, match="not this row"):
        in_spark.begin()(frame, 0)
    assert in_spark.database.query("SELECT count(*) FROM result") == [(0,)]


@SPARK_ONCE
def test_a_few_wide_rows_go_by_the_executors_too(in_spark: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ways_taken(monkeypatch)
    in_spark.schema = "name STRING, body STRING"
    writer = in_spark.begin()
    for batch, width in enumerate([10, 100_000, 100_000, 10, 10]):
        writer(
            in_spark.spark.range(0, 200, 1, 2).selectExpr("concat('n', id) name", f"repeat('x', {width}) body"), batch
        )
    assert ways == ["small 0", "small 0", "large 2", "large 0", "small 0"]
    assert in_spark.database.query("SELECT count(*), sum(length(body)) FROM result") == [(200, 200 * 10)]


def ways_taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes how each batch is computed, and in how many staging tables."""
    from headrace.connectors.sql.staging import Stage

    ways: list[str] = []
    small, large = Stage.compute_small, Stage.compute_large

    def note(way: str, method: Any) -> Any:
        def called(stage: Stage, frame: Any) -> Any:
            content = method(stage, frame)
            ways.append(f"{way} {None if content is None else len(content.parts)}")
            return content

        return called

    monkeypatch.setattr(Stage, "compute_small", note("small", small))
    monkeypatch.setattr(Stage, "compute_large", note("large", large))
    return ways


@ARROW_BY_PATHS
def test_a_result_of_keys_alone_is_written_again_without_a_fault(context: Life, staged: bool) -> None:
    context.schema = "name STRING"
    writer = context.begin(staged=staged)
    for batch, (first, last) in enumerate([(0, 3_000), (2_000, 5_000)]):
        writer(context.frame([(f"n{number}",) for number in range(first, last)]), batch)
    assert context.database.query("SELECT count(*) FROM result") == [(5_000,)]
    assert context.database.batches() == [(0, 3_000, 0), (1, 3_000, 0)]


SWALLOWS = {
    "sqlite": ["CREATE TRIGGER s BEFORE INSERT ON result WHEN new.total = 2 BEGIN SELECT RAISE(IGNORE); END"],
    "postgres": [
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.total = 2 THEN RETURN NULL; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER s BEFORE INSERT ON result FOR EACH ROW EXECUTE FUNCTION f()",
    ],
}


@ARROW_BY_PATHS
@pytest.mark.parametrize("mode", ["append", "update"])
def test_rows_that_are_left_out_by_a_trigger_end_the_batch(context: Life, mode: OutputMode, staged: bool) -> None:
    if context.database.kind not in SWALLOWS:
        pytest.skip("its triggers can leave out no row without an error")
    context.mode, context.key = mode, () if mode == "append" else ("name",)
    writer = context.begin(staged=staged)
    for statement in SWALLOWS[context.database.kind]:
        context.database.query(statement)
    with pytest.raises(
        SinkError, match=r"batch 0.*\d rows were given to table 'result', and only \d came in"
    ) as raised:
        writer(context.frame([("a", 1), ("b", 2), ("c", 3)]), 0)
    assert [finding.code for finding in raised.value.findings] == ["HR406"]
    assert context.database.query("SELECT count(*) FROM result") == [(0,)]
    assert (context.database.batches(), context.noted, context.database.left_over()) == ([], [], [])


ROW_FAULTS = (
    ([("a", 1), (None, 2)], r"batch 0 of query 'q'.*column 'name' of the key is NULL.*total=2"),
    ([("a", 1), ("b", 1), ("a", 2)], r"batch 0.*share the key \(name\).*name='a'"),
)


@ARROW_BY_PATHS
@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_a_row_without_a_key_of_its_own_is_named(context: Life, mode: OutputMode, staged: bool) -> None:
    context.mode = mode
    writer = context.begin(staged=staged)
    for rows, message in ROW_FAULTS:
        with pytest.raises(SinkError, match=message):
            writer(context.frame(rows, partitions=3), 0)
        assert context.database.query("SELECT count(*) FROM result") == [(0,)]
        assert context.database.left_over() == []
        finding = context.errors.pop().findings[0]
        assert (finding.code, "groups by" in finding.fix) == ("HR408", False)
        assert ("identify a row of the result" in finding.fix) is ("share the key" in finding.what)


@ARROW_BY_PATHS
def test_appending_a_key_that_is_there_is_named(context: Life, staged: bool) -> None:
    context.mode = "append"
    writer = context.begin(staged=staged)
    writer(context.frame([("a", 1)]), 0)
    with pytest.raises(SinkError, match=r"batch 1.*\(name='a', total=5\).*already holds"):
        writer(context.frame([("b", 1), ("a", 5)]), 1)
    assert context.rows() == [("a", 1)]
    assert context.database.left_over() == []


@SPARK_BY_PATHS
def test_rows_that_do_not_fit_are_set_aside_in_the_same_transaction_and_counted(in_spark: Life, staged: bool) -> None:
    in_spark.mode, in_spark.options = "append", {"on_bad_row": "quarantine"}
    writer = in_spark.begin(staged=staged)
    writer(in_spark.frame([("a", 1), (None, 2), ("b", 3), ("b", 4)], partitions=2), 0)
    writer(in_spark.frame([("a", 5), ("c", 6)]), 1)
    assert in_spark.rows() == [("a", 1), ("c", 6)]
    assert in_spark.database.batches() == [(0, 1, 3), (1, 1, 1)]
    aside = in_spark.database.query("SELECT batch, reason FROM _headrace_quarantine ORDER BY batch, reason")
    assert [(batch, "NULL" in reason, "share" in reason, "already" in reason) for batch, reason in aside] == [
        (0, False, True, False),
        (0, False, True, False),
        (0, True, False, False),
        (1, False, False, True),
    ]
    rejected = in_spark.sink.read_back(in_spark.spark, in_spark.run).rejected
    assert rejected is not None
    assert sorted(map(tuple, rejected.collect()), key=repr) == [("a", 5), ("b", 3), ("b", 4), (None, 2)]
    assert [finding.code for finding in in_spark.noted] == ["HR412", "HR412"]


@ARROW_BY_PATHS
def test_a_value_that_is_too_long_or_out_of_range_is_named_or_set_aside(context: Life, staged: bool) -> None:
    collation = " COLLATE utf8mb4_nopad_bin" if context.database.kind == "mariadb" else ""
    number = "BIGINT" if context.database.kind == "sqlite" else "SMALLINT"
    context.database.query(f"CREATE TABLE result (name VARCHAR(3){collation} PRIMARY KEY, total {number})")
    long, wide = ("abcd", 1), ("a", 40_000)
    writer = context.begin(staged=staged)
    if context.database.kind == "sqlite":
        # Its columns have neither a length nor a range.
        writer(context.frame([long, wide]), 0)
        assert context.rows() == [wide, long]
        return
    for row, reason in ((long, "takes at most 3 characters"), (wide, "from -32768 to 32767")):
        with pytest.raises(SinkError, match=f"batch 0.*{reason}.*name='{row[0]}'"):
            writer(context.frame([row, ("x", 1)]), 0)
    context.options = {"on_bad_row": "quarantine"}
    context.begin(staged=staged)(context.frame([long, wide, ("x", 1)]), 0)
    assert context.rows() == [("x", 1)]
    assert context.database.batches() == [(0, 1, 2)]


@SPARK_ONCE
def test_a_batch_in_the_ledger_is_skipped_without_being_computed(in_spark: Life) -> None:

    writer = in_spark.begin()
    writer(in_spark.frame([("a", 1)]), 0)
    writer(in_spark.frame([("b", 9)]).select("name", F.raise_error("computed").cast("bigint").alias("total")), 0)
    assert in_spark.rows() == [("a", 1)]
    assert in_spark.boundaries == [("before-transaction", 0), ("inside-transaction", 0), ("after-transaction", 0)]


@ARROW_BY_PATHS
def test_a_fault_at_any_boundary_leaves_the_whole_batch_or_nothing(context: Life, staged: bool) -> None:
    from dataclasses import replace

    context.checkpoint("first", offsets=0, commits=-1)
    for boundary, expected in (
        ("before-transaction", []),
        ("inside-transaction", []),
        ("after-transaction", [("a", 1)]),
    ):
        writer = context.begin(staged=staged)

        def reached(here: str, batch: int, boundary: str = boundary) -> None:
            if here == boundary:
                raise RuntimeError(boundary)

        writer.store.context = replace(context.run, on_boundary=reached)
        with pytest.raises(RuntimeError, match=boundary):
            writer(context.frame([("a", 1)]), 0)
        assert context.rows() == expected
    context.begin(staged=staged)(context.frame([("a", 7)]), 0)
    assert context.rows() == [("a", 1)]
    assert context.database.left_over() == []


@ARROW
def test_an_older_driver_is_fenced_off(context: Life) -> None:
    older, newer = context.begin(), context.begin()
    newer(context.frame([("a", 1)]), 0)
    with pytest.raises(Fenced, match="a newer driver runs query 'q'"):
        older(context.frame([("b", 1)]), 1)
    assert [type(fault) for fault in context.errors] == [Fenced]
    assert context.rows() == [("a", 1)]


@ARROW
def test_a_column_that_the_table_lacks_is_refused_or_added_as_a_nullable_one(context: Life) -> None:
    context.begin()(context.frame([("a", 1)]), 0)
    context.schema = "name STRING, total BIGINT, mean DOUBLE"
    context.checkpoint("", offsets=0, commits=0)
    with pytest.raises(SinkError, match=r"no column 'mean'[\s\S]*set on_schema_change to add"):
        context.begin()
    context.options = {"on_schema_change": "add"}
    context.begin()(context.frame([("b", 2, 0.5)]), 1)
    assert context.rows() == [("a", 1, None), ("b", 2, 0.5)]


@ARROW_BY_PATHS
def test_columns_are_added_with_the_first_batch_and_not_by_a_start_that_writes_nothing(
    context: Life, staged: bool
) -> None:
    context.begin()(context.frame([("a", 1)]), 0)
    context.schema = "name STRING, total BIGINT, mean DOUBLE, note STRING"
    context.checkpoint("", offsets=0, commits=0)
    context.options = {"on_schema_change": "add"}
    writer = context.begin(staged=staged)
    assert context.rows() == [("a", 1)]
    with pytest.raises(Exception, match="mean"):
        context.database.query("SELECT mean FROM result")
    context.begin(staged=staged)
    with pytest.raises(Fenced):
        writer(context.frame([("b", 2, 0.5, "x")]), 1)
    assert context.rows() == [("a", 1)]
    writer = context.begin(staged=staged)
    writer(context.frame([("b", 2, 0.5, "x")]), 1)
    writer(context.frame([("c", 3, 0.5, "x")]), 2)
    assert context.rows() == [("a", 1, None, None), ("b", 2, 0.5, "x"), ("c", 3, 0.5, "x")]


@ARROW
def test_a_checkpoint_of_another_life_is_refused(context: Life) -> None:
    context.checkpoint("first", offsets=0, commits=-1)
    context.begin()(context.frame([("a", 1)]), 0)
    context.checkpoint("second", offsets=0, commits=-1)
    with pytest.raises(CheckpointError, match="is another one"):
        context.begin()


@ARROW
def test_the_ledger_has_the_watermark_and_the_time(context: Life) -> None:
    context.checkpoint("first", offsets=0, commits=-1)
    (context.run.checkpoint / "offsets" / "0").write_text('v2\n{"batchWatermarkMs":0,"batchTimestampMs":1}\ne:0')
    later = 'v2\n{"batchWatermarkMs":1767225600000,"batchTimestampMs":2}\ne:1'
    writer = context.begin()
    writer(context.frame([("a", 1)]), 0)
    (context.run.checkpoint / "offsets" / "1").write_text(later)
    writer(context.frame([("a", 2)]), 1)
    entries = context.database.query("SELECT batch, watermark, committed_at FROM _headrace_ledger ORDER BY batch")
    assert [(batch, watermark) for batch, watermark, _ in entries] == [(0, None), (1, "2026-01-01T00:00:00.000Z")]
    assert all(datetime.fromisoformat(at).tzinfo is not None for _, _, at in entries)


class Killed(BaseException):
    """The process is gone."""


@ARROW
def test_a_table_that_is_renamed_has_its_ledger_wherever_the_rename_is_cut_off(
    context: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed behind the first statement, behind the second, and so on, ended, and renamed back."""
    context.checkpoint("first", offsets=0, commits=-1)
    context.options = {"table": "old"}
    older = context.begin()
    older(context.frame([("a", 1)]), 0)
    behind, is_whole, database = 1, False, context.database
    there = database.sink(table="new", renamed_from="old", key=context.key)
    back = database.sink(table="old", renamed_from="new", key=context.key)
    while not is_whole:
        with monkeypatch.context() as patch:
            _kill(patch, behind)
            try:
                there.rename.rename_table(context.run, _no_session)
                is_whole = True
            except Killed:
                behind += 1
        for sink in (there, there, *(() if is_whole else (back,))):
            sink.rename.rename_table(context.run, _no_session)
            assert database.query(f"SELECT name, total FROM {sink.table}") == [("a", 1)], behind
            assert database.query("SELECT table_name, batch FROM _headrace_ledger") == [(sink.table, 0)], behind
            with pytest.raises(Exception, match=sink.renamed_from):
                database.query(f"SELECT * FROM {sink.renamed_from}")
    assert behind > 8
    context.options = {"table": "new"}
    context.checkpoint("first", offsets=1, commits=0)
    with pytest.raises((Fenced, SinkError)):
        older(context.frame([("z", 9)]), 1)
    context.begin()(context.frame([("a", 2)]), 1)
    assert context.rows() == [("a", 2)]


def _kill(patch: pytest.MonkeyPatch, behind: int) -> None:
    """End the process behind a statement that changes something."""
    left = [behind]

    def count(made: Any) -> Any:
        def run(*given: Any) -> None:
            made(*given)
            left[0] -= 1
            if not left[0]:
                raise Killed

        return run

    patch.setattr(Ledger, "run", count(Ledger.run))


def _no_session() -> Any:
    raise AssertionError("a database needs no session")


@SPARK
def test_names_are_quoted_always(in_spark: Life) -> None:
    in_spark.schema, in_spark.key = '`group by` INT, `a"b.c` INT, `x%s y` STRING', ("group by",)
    in_spark.options = {"table": 'select "x"; --'}
    for batch, staged in enumerate((False, True)):
        in_spark.begin(staged=staged)(in_spark.frame([(batch, 2, "%s")]), batch)
        in_spark.checkpoint("", offsets=batch, commits=batch)
    assert in_spark.rows() == [(0, 2, "%s"), (1, 2, "%s")]
