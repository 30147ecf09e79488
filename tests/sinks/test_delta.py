"""The Delta sink on real tables: each mode, batches that come again, shared tables, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.contract import OutputMode, Sink
from headrace.sinks.delta import DeltaSink
from headrace.testing.conformance import SinkConformance

real = [pytest.mark.services, pytest.mark.connectors]


class TestDeltaSink(SinkConformance):
    pytestmark = real

    def make(self, home: Path, mode: OutputMode) -> Sink:
        return DeltaSink(path=str(home / "a `table`"), key=["name"], partition_by=["name"] if mode == "complete" else [])
