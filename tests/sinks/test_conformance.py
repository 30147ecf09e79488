"""Every sink holds what it claims, shown by real streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.contract import OutputMode, Sink
from headrace.sinks.console import Console
from headrace.sinks.files import FileSink
from headrace.sinks.memory import Memory
from headrace.sinks.sql.mysql import MySql
from headrace.sinks.sql.postgres import Postgres
from headrace.sinks.sql.sqlite import Sqlite
from headrace.testing.conformance import SinkConformance


@pytest.mark.spark
class TestConsole(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Console()


@pytest.mark.spark
class TestMemory(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Memory()


@pytest.mark.spark
class TestFileSink(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return FileSink(path=str(home), format="parquet")


@pytest.mark.spark
class TestSqlite(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Sqlite(path=str(home / "result.db"), table='the "result"', key=["name"])


@pytest.mark.spark
class TestSqliteWithoutKey(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Sqlite(path=str(home / "result.db"), table="result", key=["name"] if mode == "update" else [])


@pytest.mark.services
class TestPostgres(SinkConformance):
    @pytest.fixture(autouse=True)
    def database(self, postgres_url: str) -> None:
        self.url = postgres_url

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Postgres(url=self.url, table='the "result"', key=["name"])


@pytest.mark.services
class TestMariaDb(SinkConformance):
    @pytest.fixture(autouse=True)
    def database(self, mariadb_url: str) -> None:
        self.url = mariadb_url

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return MySql(url=self.url, table="the `result`", key=["name"])
