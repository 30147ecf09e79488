"""What MySQL and MariaDB alone do: replace by any unique index, round floats, keep booleans as bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import SinkError

from .databases import Database, Life, database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]
pytestmark = [pytest.mark.services, pytest.mark.parametrize("database", ["mariadb"], indirect=True)]


@pytest.fixture
def context(spark: SparkSession, tmp_path: Path, database: Database) -> Life:
    return Life(spark, tmp_path, database)


def test_a_table_where_a_row_could_replace_another_key_is_refused(context: Life) -> None:
    context.database.query("CREATE TABLE result (name VARCHAR(20) COLLATE utf8mb4_nopad_bin PRIMARY KEY, total BIGINT)")
    context.database.query("CREATE UNIQUE INDEX other ON result (total)")
    with pytest.raises(SinkError) as raised:
        context.begin()
    [finding] = raised.value.findings
    assert finding.code == "HR406"
    assert "its unique index on (total) would let a row replace one with another key" in finding.what
    context.database.query("DROP INDEX other ON result")
    context.database.query("CREATE UNIQUE INDEX other ON result (total, name)")
    writer = context.begin()
    writer(context.frame([("a", 1)]), 0)
    writer(context.frame([("a", 2), ("b", 2)]), 1)
    assert [tuple(row) for row in context.rows()] == [("a", 2), ("b", 2)]


def test_a_float_in_the_key_is_the_same_key_on_both_ways(context: Life) -> None:
    context.schema, context.key = "name FLOAT, total BIGINT", ("name",)
    writer = context.begin()
    writer(context.frame([(0.1, 1), (3.4e38, 1), (16777216.0, 1)]), 0)
    writer.store.stage = replace(writer.store.stage, driver_rows=0)
    writer(context.frame([(0.1, 2), (3.4e38, 2), (16777216.0, 2)]), 1)
    assert context.database.query("SELECT count(*), sum(total) FROM result") == [(3, 6)]
    assert {row[1] for row in context.rows()} == {2}


@pytest.mark.parametrize("staged", [False, True], ids=["driver", "staged"])
def test_a_boolean_in_a_bit_is_read_as_it_was(context: Life, staged: bool) -> None:
    context.schema, context.key = "name STRING, there BOOLEAN", ("name",)
    context.database.query(
        "CREATE TABLE result (name VARCHAR(20) COLLATE utf8mb4_nopad_bin PRIMARY KEY, there BIT(1) NULL)"
    )
    context.begin(staged=staged)(context.frame([("a", True), ("b", False), ("c", None)]), 0)
    assert context.rows() == [("a", True), ("b", False), ("c", None)]
