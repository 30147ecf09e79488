"""Every sink holds what it claims, shown by real streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.contract import OutputMode, Sink
from headrace.sinks.console import Console
from headrace.sinks.files import FileSink
from headrace.sinks.memory import Memory
from headrace.sinks.sql.sqlite import Sqlite
from headrace.testing.conformance import SinkConformance

pytestmark = pytest.mark.spark


class TestConsole(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Console()


class TestMemory(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Memory()


class TestFileSink(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return FileSink(path=str(home), format="parquet")


class TestSqlite(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Sqlite(path=str(home / "result.db"), table='the "result"', key=["name"])


class TestSqliteWithoutKey(SinkConformance):
    def make(self, home: Path, mode: OutputMode) -> Sink:
        return Sqlite(path=str(home / "result.db"), table="result", key=["name"] if mode == "update" else [])
