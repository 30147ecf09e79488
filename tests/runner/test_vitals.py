"""While the tasks of a long batch move, the query counts as one that works."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import Finding
from headrace.runner import batch_records, vitals
from tests.waiting import until

from .projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOW = """
import time

@F.udf("string")
def slowly(name):
    time.sleep(2)
    return name

every = hr.source.files("landing", format="json", schema="name STRING, amount INT")

@hr.query(sink=hr.sink.memory(), mode="append", trigger=hr.every("1 second"))
def names(every):
    return every.repartition(8, "amount").select(slowly("name"))
"""


@pytest.mark.spark
def test_a_first_batch_whose_tasks_end_one_after_another_is_not_silent(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def find_stall(query: str, records: Any, *, silent_seconds: float, trigger_seconds: float) -> Iterator[Finding]:
        if not records:
            seen.append(silent_seconds)
        return iter(())

    monkeypatch.setattr(vitals, "find_stall", find_stall)
    monkeypatch.setattr(vitals, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(batch_records, "LOOK_SECONDS", 0.1)
    root = write_project(tmp_path / "p", SLOW, batches=[[{"name": "apple", "amount": at} for at in range(12)]])
    with hr.start(hr.load(root), spark=spark) as application:
        until("first batch", lambda: bool(application.get("names").lastProgress))
    # Each time that a task has ended it begins again; once it does as Spark reports the start.
    assert sum(after < before for before, after in pairwise(seen)) > 1, seen
