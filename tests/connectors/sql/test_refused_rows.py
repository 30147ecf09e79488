"""What a database refuses of a row is final: it is named, or quarantined with the reason; read by plain clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import OutputMode
from headrace.errors import SinkError

from .databases import EVERY, Database, Life, database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]
PATHS = pytest.mark.parametrize("staged", [False, True], ids=["driver", "staged"])
DATABASES = pytest.mark.parametrize("database", EVERY, indirect=True)
NAME = {
    "sqlite": "name TEXT",
    "postgres": "name TEXT",
    "mariadb": "name VARCHAR(60) COLLATE utf8mb4_nopad_bin",
}
Row = tuple[Any, ...]


@pytest.fixture
def context(spark: SparkSession, tmp_path: Path, database: Database) -> Life:
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
    pytest.param(kind, case, id=f"{kind}-{name}", marks=pytest.mark.spark if kind == "sqlite" else pytest.mark.services)
    for name, case in CASES.items()
    for kind in case.tables
]


@PATHS
@pytest.mark.parametrize(("database", "case"), BY_DATABASE, indirect=["database"])
def test_a_row_that_the_database_refuses_is_named_or_quarantined(context: Life, case: Case, staged: bool) -> None:
    context.mode, context.key = case.mode, case.key
    for statement in case.tables[context.database.kind]:
        context.database.query(statement)
    given = context.frame([*case.good, *case.bad], partitions=2 if staged else 0)

    with pytest.raises(SinkError, match="batch 0 of query 'q' was not written") as refused:
        context.begin(staged=staged)(given, 0)
    [finding] = refused.value.findings
    assert (finding.code, finding.passes, "quarantine" in finding.fix) == ("HR408", False, True)
    assert f"refuses the row (name={case.bad[0][0]!r}"[:40] in finding.what or len(case.bad) == 1
    assert "refuses the row (name=" in finding.what
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
