"""What a database refuses of a row is final: it is named, or quarantined with the reason; read by plain clients."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from headrace.connectors.exactly_once import Retry
from headrace.contract import OutputMode
from headrace.errors import SinkError
from headrace.findings import CATALOGUE
from services import MariaDbServer
from tests.rounds import rounds

from .databases import EVERY_WITHOUT_SPARK, Database, Life, database
from .fed import LifeWithoutSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]
PATHS = pytest.mark.parametrize("staged", [False, True], ids=["driver", "staged"])
DATABASES = pytest.mark.parametrize("database", EVERY_WITHOUT_SPARK, indirect=True)
NAME = {
    "sqlite": "name TEXT",
    "postgres": "name TEXT",
    "mariadb": "name VARCHAR(60) COLLATE utf8mb4_nopad_bin",
}
Row = tuple[Any, ...]


@pytest.fixture
def context(tmp_path: Path, database: Database) -> Life:
    """A life without Spark: the database refuses the same."""
    return LifeWithoutSpark(cast("SparkSession", None), tmp_path, database)


@pytest.fixture
def in_spark(spark: SparkSession, tmp_path: Path, database: Database) -> Life:
    return Life(spark, tmp_path, database)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table that refuses `bad` and takes `good`, by database; how the database says it, in a pattern."""

    tables: Mapping[str, Sequence[str]]
    words: str
    good: Sequence[Row] = (("a", 1), ("b", 2), ("c", 3))
    bad: Sequence[Row] = (("x", -1), ("y", -2))
    mode: OutputMode = "append"
    key: tuple[str, ...] = ()


def everywhere(columns: str, *after: str) -> dict[str, list[str]]:
    return {kind: [f"CREATE TABLE result ({name}{columns})", *after] for kind, name in NAME.items()}


POSITIVE = everywhere(" PRIMARY KEY, total BIGINT, CONSTRAINT positive CHECK (total > 0)")
RAISES = {
    "sqlite": [
        "CREATE TRIGGER t AFTER INSERT ON result WHEN new.total < 0 BEGIN SELECT RAISE(ABORT, 'not below zero'); END"
    ],
    "postgres": [
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.total < 0 THEN RAISE 'not below zero'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER t BEFORE INSERT ON result FOR EACH ROW EXECUTE FUNCTION f()",
    ],
    "mariadb": [
        "CREATE TRIGGER t AFTER INSERT ON result FOR EACH ROW IF NEW.total < 0 THEN "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not below zero'; END IF"
    ],
}
CASES = {
    "CHECK, append": Case(tables=POSITIVE, words="positive|total > 0"),
    "CHECK, update": Case(tables=POSITIVE, words="positive|total > 0", mode="update", key=("name",)),
    "CHECK, complete": Case(tables=POSITIVE, words="positive|total > 0", mode="complete", key=("name",)),
    "another unique index": Case(
        tables=everywhere(" PRIMARY KEY, total BIGINT UNIQUE"),
        words="(?i)unique|duplicate",
        good=(("a", 1), ("b", 2)),
        bad=(("x", 1),),
    ),
    "another unique index, update": Case(
        tables={
            kind: statements
            for kind, statements in everywhere(" PRIMARY KEY, total BIGINT UNIQUE").items()
            if kind != "mariadb"  # There the index is refused before the start.
        },
        words="(?i)unique",
        good=(("a", 1), ("b", 2)),
        bad=(("x", 1),),
        mode="update",
        key=("name",),
    ),
    "a trigger": Case(
        tables={kind: [*statements, *RAISES[kind]] for kind, statements in everywhere(", total BIGINT").items()},
        words="not below zero",
    ),
    "no partition": Case(
        tables={
            "postgres": [
                "CREATE TABLE result (name TEXT, total BIGINT) PARTITION BY RANGE (total)",
                "CREATE TABLE result_1 PARTITION OF result FOR VALUES FROM (0) TO (100)",
            ],
            "mariadb": [
                f"CREATE TABLE result ({NAME['mariadb']}, total BIGINT) "
                "PARTITION BY LIST (total) (PARTITION p VALUES IN (1, 2, 3))"
            ],
        },
        words="(?i)no partition|table has no partition",
    ),
    "exclusion": Case(
        tables={"postgres": ["CREATE TABLE result (name TEXT, total BIGINT, EXCLUDE USING btree (total WITH =))"]},
        words="exclusion constraint",
        good=(("a", 1), ("b", 2)),
        bad=(("x", 1),),
    ),
    "checked at COMMIT": Case(
        tables={
            "postgres": ["CREATE TABLE result (name TEXT, total BIGINT UNIQUE DEFERRABLE INITIALLY DEFERRED)"],
        },
        words="unique constraint",
        good=(("a", 1), ("b", 2)),
        bad=(("x", 1),),
    ),
    "too large for the index": Case(
        tables={"postgres": ["CREATE TABLE result (name TEXT, total BIGINT)", "CREATE INDEX i ON result (name)"]},
        words="index row",
        bad=(("".join(f"{number * 7919 % 65_536:04x}" for number in range(20_000)), 1),),
    ),
    "STRICT": Case(
        tables={"sqlite": ["CREATE TABLE result (name TEXT, total INT, CHECK (typeof(name) = 'text')) STRICT"]},
        words="CHECK",
        bad=((None, 1),),
    ),
}
BY_DATABASE = [
    pytest.param(kind, case, id=f"{kind}-{name}", marks=pytest.mark.plain if kind == "sqlite" else pytest.mark.services)
    for name, case in CASES.items()
    for kind in case.tables
]
# By one of both ways; by the other in `make test-long`.
BY_PATH = [
    pytest.param(*case.values, staged, id=f"{case.id}-{way}", marks=[*case.marks, *further])
    for at, case in enumerate(BY_DATABASE)
    for staged, way in ((False, "driver"), (True, "staged"))
    for further in ([] if staged is bool(at % 2) else [pytest.mark.long],)
]


@pytest.mark.parametrize(("database", "case", "staged"), BY_PATH, indirect=["database"])
def test_a_row_that_the_database_refuses_is_named_or_quarantined(context: Life, case: Case, staged: bool) -> None:
    context.mode, context.key = case.mode, case.key
    for statement in case.tables[context.database.kind]:
        context.database.query(statement)
    given = context.frame([*case.good, *case.bad], partitions=2 if staged else 0)

    with pytest.raises(SinkError, match="batch 0 of query 'q' was not written") as refused:
        context.begin(staged=staged)(given, 0)
    [finding] = refused.value.findings
    assert (finding.code, finding.passes, "quarantine" in finding.fix) == ("HR408", False, True)
    assert any(f"refuses the row (name={name!r}"[:40] in finding.what for name, _ in case.bad)
    assert context.database.query("SELECT count(*) FROM result") == [(0,)]
    assert [entry.code for entry in context.noted] == []

    context.options = {"on_bad_row": "quarantine"}
    context.begin(staged=staged)(given, 0)
    rows = context.database.query("SELECT name, total FROM result")
    assert len(rows) == len(case.good)
    assert {total for _, total in rows} == {total for _, total in case.good}
    assert context.database.batches() == [(0, len(case.good), len(case.bad))]
    reasons = [reason for (reason,) in context.database.query("SELECT reason FROM _headrace_quarantine")]
    assert len(reasons) == len(case.bad)
    assert all(re.search(case.words, reason) for reason in reasons), reasons
    assert context.database.left_over() == []


@DATABASES
@PATHS
def test_few_refused_rows_among_many_are_found_without_trying_each(context: Life, staged: bool) -> None:
    context.database.query(POSITIVE[context.database.kind][0])
    context.options, context.mode, context.key = {"on_bad_row": "quarantine"}, "append", ()
    writer = context.begin(staged=staged)
    tried: list[int] = []
    kind = type(writer.store.dialect)
    write = kind.write_rows

    def count(dialect: Any, connection: Any, target: Any, given: Any) -> None:
        tried.append(len(given))
        write(dialect, connection, target, given)

    kind.write_rows = count  # type: ignore[method-assign]
    try:
        totals = (-number if number in (17, 4711) else number + 1 for number in range(5_000))
        writer(context.frame([(f"n{at}", total) for at, total in enumerate(totals)], partitions=2), 0)
    finally:
        kind.write_rows = write  # type: ignore[method-assign]
    assert len(tried) < 70
    assert context.database.query("SELECT count(*), min(total) FROM result") == [(4_998, 1)]
    assert sorted(context.database.query("SELECT row_values FROM _headrace_quarantine")) == [
        ('{"name": "n17", "total": -17}',),
        ('{"name": "n4711", "total": -4711}',),
    ]
    assert context.database.batches() == [(0, 4_998, 2)]


@DATABASES
@PATHS
def test_keys_that_are_there_and_refused_rows_of_one_batch_are_all_quarantined(context: Life, staged: bool) -> None:
    context.database.query(POSITIVE[context.database.kind][0])
    context.options, context.mode = {"on_bad_row": "quarantine"}, "append"
    context.begin(staged=staged)(context.frame([("a", 1)]), 0)
    context.checkpoint("", offsets=0, commits=0)
    context.begin(staged=staged)(context.frame([("a", 5), ("b", 2), ("x", -1), (None, 3)], partitions=2), 1)
    assert sorted(context.database.query("SELECT name, total FROM result")) == [("a", 1), ("b", 2)]
    assert context.database.batches() == [(0, 1, 0), (1, 1, 3)]
    assert context.database.query("SELECT count(*) FROM _headrace_quarantine") == [(3,)]
    assert context.database.left_over() == []


PARENT = {
    kind: [
        f"CREATE TABLE parent ({name} PRIMARY KEY)",
        f"CREATE TABLE result ({name}, total BIGINT, FOREIGN KEY (name) REFERENCES parent (name))",
        "INSERT INTO parent VALUES ('a')",
    ]
    for kind, name in NAME.items()
}
SERVERS = pytest.mark.parametrize(
    "database", [pytest.param(kind, marks=pytest.mark.services) for kind in ("postgres", "mariadb")], indirect=True
)


@SERVERS
@pytest.mark.parametrize("staged", rounds([True, False]), ids=["staged", "driver"])
def test_a_parent_row_is_waited_for_and_then_the_row_is_refused(context: Life, staged: bool) -> None:
    for statement in PARENT[context.database.kind]:
        context.database.query(statement)
    context.mode, context.key, context.options = "append", (), {"retry_seconds": 1.0}
    given = context.frame([("a", 1), ("b", 2)])
    with pytest.raises(SinkError, match=r"refuses the row \(name='b', total=2\): .*foreign key") as refused:
        context.begin(staged=staged)(given, 0)
    assert (refused.value.findings[0].code, refused.value.findings[0].passes) == ("HR408", False)
    assert {entry.code for entry in context.noted} == {"HR411"}
    assert context.database.left_over() == []

    context.options["on_bad_row"] = "quarantine"
    context.begin(staged=staged)(given, 0)
    assert context.database.query("SELECT name, total FROM result") == [("a", 1)]
    assert context.database.batches() == [(0, 1, 1)]

    context.checkpoint("", offsets=0, commits=0)
    writer = context.begin(staged=staged)
    writer.store.retry = Retry(seconds=60)
    late = threading.Timer(1.5, lambda: context.database.query("INSERT INTO parent VALUES ('c')"))
    late.start()
    writer(context.frame([("c", 3)]), 1)
    late.join()
    assert context.database.batches() == [(0, 1, 1), (1, 1, 0)]


@SERVERS
def test_a_row_is_quarantined_though_its_parent_comes_later_in_the_batch(context: Life) -> None:
    """Each half of a batch is tried by itself: a row waits for a parent that is in the other half."""
    name = NAME[context.database.kind]
    reference = "FOREIGN KEY (boss) REFERENCES result (name)"
    boss = name.replace("name ", "boss ", 1)
    check = "CHECK (total > 0)"
    context.database.query(f"CREATE TABLE result ({name} PRIMARY KEY, {boss}, total BIGINT {check}, {reference})")
    context.schema = "name STRING, boss STRING, total BIGINT"
    context.mode, context.key, context.options = "append", (), {"on_bad_row": "quarantine"}
    context.begin()(context.frame([("a", "d", 1), ("b", "a", 1), ("x", None, -1), ("d", None, 1)]), 0)
    assert sorted(context.database.query("SELECT name FROM result")) == [("a",), ("b",), ("d",)]
    assert context.database.batches() == [(0, 3, 1)]


@DATABASES
def test_a_key_that_is_removed_before_the_first_commit_is_refused_with_the_statement(context: Life) -> None:
    """The table keeps the key that it was made with; what a plan asks and what a start does agree."""
    context.mode = "update"
    context.begin()
    context.mode, context.key = "append", ()
    findings = list(context.sink.check_connection(context.frame([]), context.run))
    with pytest.raises(SinkError, match="the key \\(name\\), and the sink has no key") as refused:
        context.begin()
    assert [(entry.code, entry.what) for entry in findings] == [
        (entry.code, entry.what) for entry in refused.value.findings
    ]
    assert refused.value.findings[0].code == "HR406"
    statement = re.search(r"DROP TABLE \S+(?=,)", refused.value.findings[0].fix)
    assert statement is not None
    context.database.query(statement[0])
    assert list(context.sink.check_connection(context.frame([]), context.run)) == []
    context.begin()(context.frame([("a", 1), ("a", 2)]), 0)
    assert context.database.query("SELECT count(*) FROM result") == [(2,)]


@DATABASES
def test_a_table_that_another_program_made_keeps_its_own_key(context: Life) -> None:
    context.database.query(f"CREATE TABLE result ({NAME[context.database.kind]} PRIMARY KEY, total BIGINT)")
    context.mode, context.key = "append", ()
    context.begin()
    context.begin()(context.frame([("a", 1)]), 0)
    assert context.database.query("SELECT name, total FROM result") == [("a", 1)]


@pytest.mark.services
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@PATHS
def test_a_time_before_year_1_is_named_or_quarantined(in_spark: Life, staged: bool) -> None:
    in_spark.schema, in_spark.mode, in_spark.key = "day DATE, at TIMESTAMP_NTZ", "append", ()
    given = in_spark.spark.sql(
        "SELECT make_date(-4, 1, 1) day, NULL::TIMESTAMP_NTZ at UNION ALL "
        "SELECT DATE'0001-01-01', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
    )
    with pytest.raises(SinkError, match="column 'day' takes times from 0001-01-01") as refused:
        in_spark.begin(staged=staged)(given, 0)
    assert refused.value.findings[0].code == "HR408"
    in_spark.options = {"on_bad_row": "quarantine"}
    in_spark.begin(staged=staged)(given, 0)
    assert in_spark.database.query("SELECT day::text, at::text FROM result") == [
        ("0001-01-01", "9999-12-31 23:59:59.999999")
    ]
    assert in_spark.database.batches() == [(0, 1, 1)]


@pytest.fixture
def small_packets(mariadb_server: MariaDbServer) -> Iterator[MariaDbServer]:
    """A server that takes statements of 1 MB."""
    mariadb_server.execute("SET GLOBAL max_allowed_packet = 1048576")
    yield mariadb_server
    mariadb_server.execute("SET GLOBAL max_allowed_packet = DEFAULT, GLOBAL local_infile = DEFAULT")


@pytest.mark.services
@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@PATHS
def test_a_value_that_no_statement_can_hold_is_staged_or_refused(
    in_spark: Life, small_packets: MariaDbServer, staged: bool
) -> None:
    in_spark.schema, in_spark.mode, in_spark.key = "name STRING, body STRING", "append", ()
    wide = in_spark.spark.sql("SELECT 'a' name, repeat('xy', 1200000) body UNION ALL SELECT 'b', repeat(\"'\", 600000)")
    in_spark.begin(staged=staged)(wide, 0)
    sizes = "SELECT name, length(body) FROM result ORDER BY name"
    assert in_spark.database.query(sizes) == [("a", 2_400_000), ("b", 600_000)]

    small_packets.execute("SET GLOBAL local_infile = 0")
    in_spark.checkpoint("", offsets=0, commits=0)
    with pytest.raises(SinkError, match="max_allowed_packet is 1048576") as refused:
        in_spark.begin(staged=staged)(wide, 1)
    assert (refused.value.findings[0].code, refused.value.findings[0].passes) == ("HR408", False)
    assert in_spark.database.query(sizes) == [("a", 2_400_000), ("b", 600_000)]


@pytest.mark.plain
def test_what_is_no_database_is_final(tmp_path: Path) -> None:
    (tmp_path / "result.db").write_text("no database" * 100)
    dialect = Database("sqlite", str(tmp_path / "result.db")).sink().dialect()
    with pytest.raises(dialect.errors) as refused:
        dialect.connect()
    problem = dialect.explain(refused.value)
    assert (problem.code, CATALOGUE[problem.code].passes, problem.fix) == ("HR425", "never", "name another file")
