"""Every sink holds what it claims, shown by real streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from headrace.connectors.catalog.sink import TableSink
from headrace.connectors.console.sink import Console
from headrace.connectors.files.sink import FileSink
from headrace.connectors.foreach.batch_sink import ForeachBatch
from headrace.connectors.foreach.sink import Foreach
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.connectors.memory.sink import Memory
from headrace.connectors.sql.mysql import MySql
from headrace.connectors.sql.postgres import Postgres
from headrace.connectors.sql.sqlite import Sqlite
from headrace.contract import OutputMode, Sink
from headrace.testing.conformance.triggers import SinkTriggers, Word
from tests.connectors.clients import iceberg_rows, parquet_rows
from tests.connectors.iceberg import tables as iceberg_tables
from tests.connectors.sql.databases import Database
from tests.connectors.suites import UpdateSinkConformance, UsualSinkConformance, further_but, only
from tests.rounds import as_long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def take(row: Any) -> None:
    """Ignore a row."""


def take_batch(frame: DataFrame, batch: int) -> None:
    """Ignore a batch."""


class WithoutBroker(UpdateSinkConformance):
    """The suite without real time, in which rows can only come from a broker: test_triggers."""

    @pytest.mark.parametrize("word", ["continuous"])
    def test_it_takes_rows_without_batches_just_where_that_is_claimed(
        self, spark: SparkSession, home: Path, tmp_path: Path, word: Word
    ) -> None:
        super().test_it_takes_rows_without_batches_just_where_that_is_claimed(spark, home, tmp_path, word)


@pytest.mark.spark
class TestConsole(WithoutBroker):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Console()


@pytest.mark.spark
class TestMemory(UsualSinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Memory()


@pytest.mark.spark
class TestFileSink(UsualSinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return FileSink(path=str(home), format="parquet")

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return parquet_rows(str(home / "*.parquet"))


@pytest.mark.spark
class TestForeach(WithoutBroker):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Foreach(function=take)


@pytest.mark.spark
class TestForeachBatch(UpdateSinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return ForeachBatch(function=take_batch, idempotent=True)


@pytest.mark.spark
class TestTableSink(UsualSinkConformance):
    @pytest.fixture(autouse=True)
    def table(self, spark: SparkSession) -> Iterator[None]:
        self.name = f"result_{uuid4().hex}"
        self.place = (spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:") + f"/{self.name}"
        yield
        spark.sql(f"DROP TABLE IF EXISTS {self.name}")

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return TableSink(table=self.name, partition_by=["name"])

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return parquet_rows(f"{self.place}/*/*.parquet")


# tests/connectors/iceberg rebuilds a table and fences an older driver off.
@pytest.mark.spark
@further_but("several", "comes_again", "begins_again", "goes_back", "copy", "takes_rows")
class TestIceberg(UpdateSinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return IcebergSink(table="db.result", catalog=iceberg_tables.properties(home), partition_by=["bucket(2, name)"])

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return iceberg_rows(home / "warehouse" / "db" / "result")


@pytest.mark.spark
class TestSqlite(UpdateSinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Sqlite(path=str(home / "result.db"), table='the "result"', key=["name"])

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return Database("sqlite", str(home / "result.db")).query('SELECT name, total FROM "the ""result"""')

    def make_rewindable(self, home: Path, mode: OutputMode) -> Sink:
        return replace(self.make(home, mode), rewindable="7 days")


@pytest.mark.spark
@further_but("comes_again")
@only("several_batches", "comes_again")
class TestSqliteWithoutKey(UsualSinkConformance):
    """A table without a key differs only in what a batch writes."""

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Sqlite(path=str(home / "result.db"), table="result", key=["name"] if mode == "update" else [])

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return Database("sqlite", str(home / "result.db")).query("SELECT name, total FROM result")


@pytest.mark.services
@further_but("several", "comes_again", "begins_again", "rebuilt", "goes_back", "copy")
class TestPostgres(UpdateSinkConformance):
    @pytest.fixture(autouse=True)
    def database(self, postgres_url: str) -> None:
        self.url = postgres_url

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Postgres(url=self.url, table='the "result"', key=["name"])

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return Database("postgres", self.url).query('SELECT name, total FROM "the ""result"""')

    def make_rewindable(self, home: Path, mode: OutputMode) -> Sink:
        return replace(self.make(home, mode), rewindable="7 days")


@pytest.mark.services
# tests/changes/rebuild/test_databases.py exchanges its tables, and tests/connectors/sql/test_settings.py archives one.
@further_but("several")
class TestMariaDb(UpdateSinkConformance):
    @pytest.fixture(autouse=True)
    def database(self, mariadb_url: str) -> None:
        self.url = mariadb_url

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return MySql(url=self.url, table="the `result`", key=["name"])

    def read_by_client(self, home: Path) -> Iterable[tuple[Any, ...]]:
        return Database("mariadb", self.url).query("SELECT name, total FROM `the ``result```")

    def make_rewindable(self, home: Path, mode: OutputMode) -> Sink:
        return replace(self.make(home, mode), rewindable="7 days")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("honest", "claim"),
    [
        (Memory(), {"continuous": False}),
        (Memory(), {"real_time": True}),
        as_long((Foreach(function=take), {"continuous": False})),
        (ForeachBatch(function=take_batch, idempotent=True), {"continuous": True}),
        (Console(), {"async_progress": True}),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else type(value).__name__,
)
def test_a_sink_that_claims_too_much_or_too_little_of_its_triggers_fails(
    spark: SparkSession, tmp_path: Path, honest: Any, claim: dict[str, bool]
) -> None:
    [word] = claim
    assert getattr(honest.facts, word) is not claim[word]
    lying = type("Lying", (type(honest),), {"facts": replace(honest.facts, **claim)})

    class Suite(SinkTriggers):
        def make(self, home: Path, mode: OutputMode) -> Sink:
            return lying(**{field.name: getattr(honest, field.name) for field in fields(honest) if field.init})

    suite, arguments = Suite(), () if word == "async_progress" else (word,)
    proof: Any = suite.test_it_takes_rows_without_batches_just_where_that_is_claimed
    if word == "async_progress":
        proof = suite.test_progress_is_written_asynchronously_just_where_that_is_claimed
    with pytest.raises(AssertionError):
        proof(spark, tmp_path, tmp_path, *arguments)
