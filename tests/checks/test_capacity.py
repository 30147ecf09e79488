"""Many small files, and state that fills the memory, are reported by what can be known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.checks.result import HeldState, check_memory, check_small_files, size_text
from headrace.connectors.files.sink import FileSink
from headrace.connectors.sql.sqlite import Sqlite
from headrace.contract import Sink
from headrace.model import AvailableNow, Default, Duration, Every, PythonTransform, Query, Trigger

pytestmark = pytest.mark.plain

GIB = 1024**3


def query(sink: Sink, trigger: Trigger) -> Query:
    return Query(
        name="q",
        transform=PythonTransform(function=lambda: None, inputs=()),
        sink=sink,
        sink_kind="files",
        trigger=trigger,
    )


def every(text: str) -> Every:
    return Every(Duration.parse(text))


FILES = FileSink(path="out")
FOLDERS = FileSink(path="out", partition_by=("day", "country"))
# A sink, a trigger, how many tasks write; what is said.
WRITTEN: dict[str, tuple[Sink, Trigger, int, str | None]] = {
    "often, by many": (
        FILES,
        every("10 seconds"),
        8,
        "may write 69,120 files a day: a batch every 10 seconds, and 8 tasks",
    ),
    "often, by one": (FILES, every("10 seconds"), 1, None),
    "very often": (
        FILES,
        every("5 seconds"),
        1,
        "17,280 files a day: a batch every 5 seconds, and each batch writes a file",
    ),
    "seldom": (FILES, every("1 hour"), 200, None),
    "at once": (
        FILES,
        Default(),
        4,
        "a batch follows the other as soon as there are rows, and 4 tasks write each batch",
    ),
    "at once, by one": (FILES, Default(), 1, None),
    "into folders": (FOLDERS, Default(), 1, "a file for each value of day, country"),
    "a run that ends": (FILES, AvailableNow(), 200, None),
    "no files": (Sqlite(path="o.db", table="t"), every("1 second"), 200, None),
}


@pytest.mark.parametrize(("sink", "trigger", "tasks", "words"), WRITTEN.values(), ids=WRITTEN)
def test_a_sink_that_gets_very_many_files_is_reported(
    sink: Sink, trigger: Trigger, tasks: int, words: str | None
) -> None:
    findings = list(check_small_files(query(sink, trigger), tasks=tasks))
    assert [(finding.code, str(words) in finding.what) for finding in findings] == (
        [] if words is None else [("HR646", True)]
    )


HELD = HeldState(batch=41, rows=1_234_567, bytes=3 * GIB)
# What was held, whether it lies in memory, how much of that there is; whether it is too much.
MEMORY: dict[str, tuple[HeldState | None, dict[str, Any], bool]] = {
    "more than half": (HELD, {"in_memory": True, "memory_bytes": 4 * GIB}, True),
    "less": (HELD, {"in_memory": True, "memory_bytes": 16 * GIB}, False),
    "on disk": (HELD, {"in_memory": False, "memory_bytes": 4 * GIB}, False),
    "not known": (HeldState(batch=1, rows=5, bytes=None), {"in_memory": True, "memory_bytes": 1}, False),
    "never ran": (None, {"in_memory": True, "memory_bytes": 1}, False),
}


@pytest.mark.parametrize(("held", "memory", "reported"), MEMORY.values(), ids=MEMORY)
def test_state_that_takes_most_of_the_memory_is_reported(
    held: HeldState | None, memory: dict[str, Any], reported: bool
) -> None:
    findings = list(check_memory(query(FILES, Default()), held, **memory))
    assert [finding.code for finding in findings] == (["HR647"] if reported else [])
    if reported:
        assert (
            "held 1,234,567 rows in 3.0 GiB of memory after batch 41, and Spark has 4.0 GiB of it" in findings[0].what
        )


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 bytes"), (2048, "2 KiB"), (5 * 1024**2, "5 MiB"), (3 * GIB // 2, "1.5 GiB")]
)
def test_a_size_is_shown_in_the_unit_that_fits(count: int, text: str) -> None:
    assert size_text(count) == text


def test_what_was_held_when_a_query_last_ran_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from headrace.cli import main
    from headrace.contract import BatchRecord
    from headrace.history import History

    (tmp_path / "headrace.yml").write_text(
        "sources: {events: {rate: {}}}\nqueries: {q: {select: SELECT * FROM events, sink: console}}\n"
    )
    (tmp_path / ".headrace").mkdir()
    progress = (
        '{"id": "i", "runId": "r", "name": "q", "batchId": 41, "timestamp": "2026-01-01T00:00:00.000Z", "sources": [], '
        '"stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 2048, "customMetrics": {}}]}'
    )
    with History.open(tmp_path / ".headrace" / "history.db") as history:
        run = history.begin_run("q", pid=1, mode="append", trigger="default", sink="console", generation=1)
        history.record(run, BatchRecord.parse(progress))
    assert main(["check", "-C", str(tmp_path), "--no-spark"]) == 0
    assert "  held: 7 rows in 2 KiB of memory after batch 41\n" in capsys.readouterr().out
