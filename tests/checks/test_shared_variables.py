"""Broadcasts and counters that are asked for where they are of no use are found without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.api import load
from headrace.checks.structure import check_structure
from headrace.errors import CheckFailed, ProjectError
from headrace.spark.stream.counting import QueryCounter

pytestmark = pytest.mark.plain

BASE = """
import headrace as hr

events = hr.source.rate(rows_per_second=5)
count = hr.counter()


@hr.broadcast
def names():
    return {"a": 1}


@hr.query(sink=hr.sink.files("out"))
def q(events, names, count):
    return events
"""
FAULTS = {
    "nothing": ("", "", []),
    "a SELECT of a broadcast": ("", "views: {v: SELECT * FROM names}", ["HR256", "HR800"]),
    "a SELECT of a counter": ("", "views: {v: SELECT * FROM count}", ["HR256", "HR800"]),
    "a table that counts": ("@hr.table\ndef t(count): pass", "", ["HR256", "HR802"]),
    "a broadcast of a stream": ("@hr.broadcast\ndef t(events): pass", "", ["HR253", "HR256"]),
    "a trigger without batches": (
        "@hr.query(sink=hr.sink.console(), trigger=hr.continuous('1 second'))\ndef c(events, count): pass",
        "",
        ["HR263", "HR802"],
    ),
    "an unused counter": ("more = hr.counter()", "", ["HR256"]),
    "names that differ by case": ("Count = hr.counter()", "", ["HR109", "HR256"]),
    "a broadcast that is refreshed too often": (
        "@hr.broadcast(refresh='100 milliseconds')\ndef b(): pass",
        "",
        ["HR113", "HR256"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_had_is_found(tmp_path: Path, name: str) -> None:
    python, yaml, codes = FAULTS[name]
    (tmp_path / "pipeline.py").write_text(f"{BASE}\n\n{python}\n")
    (tmp_path / "headrace.yml").write_text(f"name: p\n{yaml}\n")
    assert sorted(finding.code for finding in check_structure(load(tmp_path, environ={}))) == codes


@pytest.mark.parametrize(
    "declared",
    ["hr.counter([])", "hr.counter(True)", "hr.counter([], param=list)", "hr.counter(param=object())"],
)
def test_a_counter_that_cannot_add_is_refused(tmp_path: Path, declared: str) -> None:
    (tmp_path / "pipeline.py").write_text(f"{BASE}\n\nwrong = {declared}\n")
    with pytest.raises(ProjectError) as caught:
        load(tmp_path, environ={})
    assert [finding.code for finding in caught.value.findings] == ["HR801"]


def test_a_counter_without_a_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(f"{BASE}\n\ncount.add(1)\n")
    with pytest.raises(ProjectError, match="HR802"):
        load(tmp_path, environ={})
    with pytest.raises(CheckFailed, match="HR802"):
        QueryCounter("count", 0, None).add(1)
