"""The log of a run has one line an event, from every writer, and does not grow without end."""

from __future__ import annotations

import json
import logging
import resource
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.contract import QueryStart
from headrace.export.log import RunLog, SparkLines, lines_of
from headrace.model.operations import Log
from headrace.redaction import remember
from headrace.spark.jvm.stderr_filter import SparkLine
from headrace.user_code import serving
from tests.registered import layout_in

pytestmark = pytest.mark.plain


def lines(storage: Path) -> list[dict[str, Any]]:
    text = (storage / "logs" / "headrace.log").read_text()
    return [{key: value for key, value in json.loads(line).items() if key != "time"} for line in text.splitlines()]


def line(level: str, message: str, query: str | None = None, batch: int | None = None) -> dict[str, Any]:
    return {"level": level, "query": query, "batch": batch, "code": None, "message": message}


def test_what_the_users_code_prints_and_logs_is_there_with_its_query_and_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = RunLog(tmp_path, Log(format="json"))
    with log.capture_user_output():
        print("of no query")
        with serving("totals", 3):
            print("one", "two")
            print("half", end="")
            print(" a line")
            print("careful", file=sys.stderr)
            logging.getLogger("mine").warning("price of %s", "apples")
        with serving("others"):
            print("while the query is built")
        logging.getLogger("mine").error("later")
    print("after the run")
    log.close()
    assert lines(tmp_path) == [
        line("info", "one two", "totals", 3),
        line("info", "half a line", "totals", 3),
        line("warning", "careful", "totals", 3),
        line("warning", "mine: price of apples", "totals", 3),
        line("info", "while the query is built", "others"),
        line("error", "mine: later"),
    ]
    assert capsys.readouterr().out.splitlines()[:2] == ["of no query", "one two"], "it is still printed"


THREAD = "stream execution thread for totals [id = 5f6c, runId = 0a1b]"


@pytest.mark.parametrize(
    ("line_of_spark", "expected"),
    [
        (SparkLine(message="printed by an unknown writer"), line("info", "printed by an unknown writer")),
        (SparkLine(message="mine", query="totals", batch=3), line("info", "mine", "totals", 3)),
        (
            SparkLine(message="it is slow", level="warning", logger="Executor", query="totals"),
            line("warning", "Executor: it is slow", "totals", 4),
        ),
        (SparkLine(message="behind", logger="P", thread=THREAD), line("info", "P: behind", "totals", 4)),
        (
            SparkLine(message="[queryId = 5f6c] [batchId = 2] Lost task 0.0", level="warning", logger="TaskSetManager"),
            line("warning", "TaskSetManager: Lost task 0.0", "totals", 2),
        ),
    ],
    ids=["a line as it is", "of a worker", "of a task", "of the query's thread", "of the scheduler"],
)
def test_a_line_of_spark_has_the_query_and_the_batch_that_it_is_about(
    line_of_spark: SparkLine, expected: dict[str, Any], tmp_path: Path
) -> None:
    layout = layout_in(tmp_path, "totals")
    (layout.checkpoint / "offsets").mkdir(parents=True)
    (layout.checkpoint / "offsets" / "4").touch()
    (layout.checkpoint / "metadata").write_text('{"id": "5f6c"}')
    log = RunLog(tmp_path, Log(format="json"))
    spark_lines = SparkLines(log)
    spark_lines.started(
        QueryStart(query="totals", run_id="r", generation=1, trigger="", mode="", sink="", checkpoint=layout.checkpoint)
    )
    spark_lines.take(SparkLine.read(line_of_spark.line()))
    spark_lines.take(SparkLine(message=" "))
    log.close()
    assert lines(tmp_path) == [expected]


@pytest.mark.parametrize(("ms", "batch"), [(4_999, 4), (5_000, 5), (None, 5)])
def test_a_line_that_is_read_late_is_of_the_batch_in_which_it_was_said(
    ms: int | None, batch: int, tmp_path: Path
) -> None:
    layout = layout_in(tmp_path, "totals")
    (layout.checkpoint / "offsets").mkdir(parents=True)
    for number in (4, 5):
        facts = f'{{"batchWatermarkMs":0,"batchTimestampMs":{number}000,"conf":{{}}}}'
        (layout.checkpoint / "offsets" / str(number)).write_text(f"v1\n{facts}\n{number}")
    log = RunLog(tmp_path, Log(format="json"))
    spark_lines = SparkLines(log)
    start = QueryStart(
        query="totals", run_id="r", generation=1, trigger="", mode="", sink="", checkpoint=layout.checkpoint
    )
    spark_lines.started(start)
    thread = "stream execution thread for totals [id = 5f6c, runId = 1]"
    spark_lines.take(SparkLine(message="slow", level="warning", logger="Reader", thread=thread, ms=ms))
    log.close()
    assert lines(tmp_path) == [line("warning", "Reader: slow", "totals", batch)]


def test_a_marked_line_that_another_one_cut_is_kept_as_it_is() -> None:
    cut = SparkLine(message="one").line()[:-5] + "two\n"
    assert SparkLine.read(cut) == SparkLine(message=cut.rstrip("\n"))


def test_as_text_an_event_is_one_line_without_secrets(tmp_path: Path) -> None:
    remember("swordfish", "${PASSWORD}")
    log = RunLog(tmp_path, Log())
    log.write("error", "refused\nswordfish", query="totals", batch=3, code="HR405")
    log.write("info", "stopping")
    log.close()
    first, second = (tmp_path / "logs" / "headrace.log").read_text().splitlines()
    assert first.split(" ", 1)[1] == r"error   totals/3 HR405 refused\n${PASSWORD}"
    assert second.split(" ", 1)[1] == "info    - stopping"


def test_files_are_rotated_and_for_their_owner_alone(tmp_path: Path) -> None:
    log = RunLog(tmp_path, Log(max_bytes=10_000, keep=2))
    for number in range(1000):
        log.write("info", f"event {number} of many that fill the log", query="totals")
    log.close()
    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == ["headrace.log", "headrace.log.1", "headrace.log.2"]
    assert all(file.stat().st_size <= 10_000 for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert "event 999 " in files[0].read_text()


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_lines_of_one_query_are_found_in_every_file(tmp_path: Path, form: Any) -> None:
    log = RunLog(tmp_path, Log(format=form, max_bytes=300, keep=9))
    for number in range(9):
        log.write("info", f"event {number}", query=("a", "b", None)[number % 3], batch=number)
    log.close()
    assert len(list((tmp_path / "logs").iterdir())) > 1
    assert [line.partition("event ")[2][0] for line in lines_of(tmp_path, "a")] == ["0", "3", "6"]
    assert list(lines_of(tmp_path, "c")) == list(lines_of(tmp_path / "none", "a")) == []


@contextmanager
def no_room(file: Path) -> Iterator[None]:
    """No file of this process becomes larger than this one is, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("lost", [pytest.param("two", id="a line"), pytest.param("2" * 2000, id="rotation as well")])
def test_a_full_disk_loses_lines_but_not_those_that_come_when_there_is_room(tmp_path: Path, lost: str) -> None:
    log = RunLog(tmp_path, Log(format="json", max_bytes=1000))
    log.write("info", "one")
    with no_room(tmp_path / "logs" / "headrace.log"):
        log.write("info", lost)
    log.write("info", "three")
    log.close()
    rotated = (file.read_text().splitlines() for file in sorted((tmp_path / "logs").iterdir(), reverse=True))
    kept_lines = [line for lines in rotated for line in lines]
    # Of the lost line a half may be there.
    assert [json.loads(line)["message"] for line in kept_lines if line.endswith("}")] == ["one", "three"]


def test_a_log_on_a_full_disk_is_closed_without_an_error(tmp_path: Path) -> None:
    log = RunLog(tmp_path, Log(format="json"))
    log.write("info", "one")
    with no_room(tmp_path / "logs" / "headrace.log"):
        log.write("info", "two")
        log.close()
    assert lines(tmp_path) == [line("info", "one")]
