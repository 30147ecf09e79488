"""A table that another program has written gets a ledger in each database, and takes the batches that follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import HeadraceError

from .databases import EVERY, Database, Life, database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]


@pytest.mark.parametrize("database", EVERY, indirect=True)
def test_a_foreign_table_is_taken_over_once_and_continues(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(spark, tmp_path, database)
    life.checkpoint("the former job", offsets=2, commits=2)
    frame = life.frame([])
    with pytest.raises(HeadraceError, match="there is no table 'result'"):
        life.sink.adoption.take_over(frame, life.run, 2)
    database.query('CREATE TABLE "result" ("name" VARCHAR(99) NOT NULL, "total" VARCHAR(99))')
    with pytest.raises(HeadraceError, match="HR406"):
        life.sink.adoption.foreign_rows(frame, life.run)
    database.query('DROP TABLE "result"')
    binary = " CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin" if database.kind == "mariadb" else ""
    database.query(f'CREATE TABLE "result" ("name" VARCHAR(99){binary} PRIMARY KEY, "total" BIGINT)')
    database.query("INSERT INTO \"result\" VALUES ('a', 1), ('b', 2)")
    assert [held.count for held in life.sink.adoption.foreign_rows(frame, life.run)] == [2]
    with pytest.raises(HeadraceError, match="HR410"):
        life.begin()
    for _ in range(2):
        life.sink.adoption.take_over(frame, life.run, 2)
    assert database.batches() == [(2, 0, 0)]
    with pytest.raises(HeadraceError, match="HR580"):
        life.sink.adoption.take_over(frame, life.run, 1)
    life.checkpoint("the former job", offsets=3, commits=2)
    life.begin()(life.frame([("b", 5), ("c", 6)]), 3)
    assert life.rows() == [("a", 1), ("b", 5), ("c", 6)]
    assert database.batches() == [(2, 0, 0), (3, 2, 0)]


@pytest.mark.parametrize("database", EVERY, indirect=True)
def test_a_table_without_a_batch_is_taken_over_with_none(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(spark, tmp_path, database, key=(), mode="append")
    life.checkpoint("the former job", offsets=0, commits=-1)
    database.query('CREATE TABLE "result" ("name" TEXT, "total" BIGINT)')
    for _ in range(2):
        life.sink.adoption.take_over(life.frame([]), life.run, None)
    assert database.batches() == []
    life.begin()(life.frame([("a", 1)]), 0)
    assert (life.rows(), database.batches()) == ([("a", 1)], [(0, 1, 0)])
