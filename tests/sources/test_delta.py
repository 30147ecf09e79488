"""The Delta source on real tables: prefixes of every shape, changed and vacuumed tables, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest

from headrace.sources.delta import Delta
from headrace.testing.conformance import SourceConformance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

real = [pytest.mark.services, pytest.mark.connectors]


def add(spark: SparkSession, place: str, *ids: int, day: str = "é 1", mode: str = "append") -> None:
    """Add one file with a row for each of `ids`."""
    rows = spark.createDataFrame([(number, f"n{number}", day) for number in ids], "id INT, name STRING, day STRING")
    rows.coalesce(1).write.format("delta").mode(mode).partitionBy("day").save(place)


class TestDelta(SourceConformance):
    pytestmark = real
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def session(self, spark: SparkSession) -> None:
        self.spark = spark

    def place(self, home: Path) -> str:
        return str(home / "a table 100%+é")

    def make(self, home: Path) -> Delta:
        place = self.place(home)
        if not Path(place).exists():
            self.spark.sql(
                f"CREATE TABLE delta.`{place}` (id INT, name STRING, day STRING) USING delta PARTITIONED BY (day)"
            )
        return Delta(path=place, max_files_per_trigger=1, **self.options)

    def feed(self, home: Path, step: int) -> None:
        add(self.spark, self.place(home), step, step + 10, day=f"é {step}")


class TestDeltaFromAVersion(TestDelta):
    options: ClassVar[dict[str, Any]] = {"starting_version": 1}

    def make(self, home: Path) -> Delta:
        if not Path(self.place(home)).exists():
            super().make(home)
            add(self.spark, self.place(home))
        return super().make(home)


class TestDeltaByName(TestDelta):
    @pytest.fixture(autouse=True)
    def name(self, session: None) -> Any:
        self.table = f"events_{uuid4().hex}"
        self.spark.sql(f"CREATE TABLE {self.table} (id INT, name STRING, day STRING) USING delta")
        yield
        self.spark.sql(f"DROP TABLE {self.table}")

    def make(self, home: Path) -> Delta:
        return Delta(table=self.table, max_files_per_trigger=1)

    def feed(self, home: Path, step: int) -> None:
        self.spark.sql(
            f"INSERT INTO {self.table} SELECT /*+ COALESCE(1) */ * FROM VALUES ({step}, 'a', 'x'), ({step}, 'b', 'y')"
        )
