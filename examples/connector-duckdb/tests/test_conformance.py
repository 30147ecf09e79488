"""What the distribution says of its connectors, proved by the suite that Headrace ships."""

from pathlib import Path

import duckdb
import pytest
from headrace_duckdb.sink import DuckDb
from headrace_duckdb.source import DuckDbTable, table
from pyspark.sql import SparkSession

from headrace.contract import OutputMode
from headrace.testing.conformance import SinkConformance, SourceConformance

pytest_plugins = ["headrace.testing.plugin"]


class TestDuckDb(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> DuckDb:
        return DuckDb(path=str(home / "result.duckdb"), table="the result", key=["name"])


class TestDuckDbTable(SourceConformance):
    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
            connection.execute("CREATE TABLE orders (id BIGINT, item VARCHAR, price DECIMAL(9, 2), sold TIMESTAMP)")
        return tmp_path

    def make(self, home: Path) -> DuckDbTable:
        return DuckDbTable(path=str(home / "shop.duckdb"), table="orders", order_by="id")

    def feed(self, home: Path, step: int) -> None:
        with duckdb.connect(str(home / "shop.duckdb")) as connection:
            for number in (2 * step, 2 * step + 1):
                row = [number, f"é{number}", number / 4, f"2024-01-01 00:00:0{step}.123456"]
                connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", row)

    def test_the_same_rows_are_a_table(self, spark: SparkSession, home: Path) -> None:
        self.feed(home, 0)
        rows = table(spark, str(home / "shop.duckdb"), "orders").select("id", "item").collect()
        assert rows == [(0, "é0"), (1, "é1")]
