"""The log of a run has one line an event, whoever it comes from, and does not grow without end."""

from __future__ import annotations

import json
import logging
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.model.operations import Log
from headrace.operate.log import RunLog
from headrace.redaction import remember
from headrace.user_code import serving

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
    with log.taking_user_output():
        print("of nobody")
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
    assert capsys.readouterr().out.splitlines()[:2] == ["of nobody", "one two"], "it is still printed"


def test_lines_of_spark_keep_their_level_and_those_of_workers_are_taken_as_they_are(tmp_path: Path) -> None:
    log = RunLog(tmp_path, Log(format="json"))
    log.spark_line("12:00:01 WARN TaskSetManager: Lost task 0.0\n")
    log.spark_line("printed in a worker\n")
    log.spark_line("\n")
    log.close()
    assert lines(tmp_path) == [line("warning", "TaskSetManager: Lost task 0.0"), line("info", "printed in a worker")]


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
