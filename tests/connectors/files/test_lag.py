"""What a directory holds that no batch has taken is reported without a JVM: what waits, and what is left out."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.files import lag as file_lag
from headrace.connectors.files.source import Files
from headrace.contract import SourcePrefix

pytestmark = pytest.mark.plain

NOW = 1_700_000_000
DAY = 86_400

CASES: dict[str, tuple[dict[str, Any], Sequence[tuple[str, int]], Sequence[tuple[str, int]], int, list[str]]] = {
    # The options, the files that were read and those that were not with their ages in days; what waits and is reported.
    "any age": ({}, [("a", -10)], [("b", 8), ("c", 9000)], 2, []),
    "a limit": ({"max_file_age": "7d"}, [("a", 0)], [("b", 6), ("c", 8)], 1, ["c' are more than max_file_age (7d)"]),
    "one ahead": ({"max_file_age": "7d"}, [("a", -9000)], [("b", 0)], 0, ["b' are more", "ahead of the clock"]),
    "nothing read yet": ({"max_file_age": "7d"}, [], [("b", 0), ("c", 8)], 2, []),
    "an ignored limit": (
        {"max_file_age": "7d", "latest_first": True, "max_files_per_trigger": 1}, [("a", 0)], [("b", 8)], 1, []
    ),
    "hidden names": (
        {}, [("a", 0)], [("_b.json", 0), (".c.csv.gz", 0), ("d.txt._COPYING_", 0)], 0, [".c.csv.gz', '", "_b.json', '"]
    ),
    "hidden on purpose": ({}, [("a", 0)], [("_SUCCESS", 0), (".a.crc", 0), ("_temporary/b.json", 0)], 0, []),
    "the name of another": ({"file_name_only": True}, [("x/a", 0)], [("y/a", 0)], 0, ["y/a' have the name of a file"]),
    "a key=value directory": ({}, [("a", 0)], [("_day=1/b.json", 0)], 1, []),
    "many": ({"max_file_age": "7d"}, [("a", 0)], [(f"b{i}", 8) for i in range(9)], 0, ["b2' and 6 more are"]),
}  # fmt: skip


@pytest.mark.parametrize(("options", "taken", "others", "waiting", "told"), CASES.values(), ids=CASES)
def test_files_that_are_left_out_are_named_and_the_others_wait(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    taken: Sequence[tuple[str, int]],
    others: Sequence[tuple[str, int]],
    waiting: int,
    told: list[str],
) -> None:
    monkeypatch.setattr(file_lag, "_ON_ITS_WAY_SECONDS", -1)
    log = []
    for name, days in (*taken, *others):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        os.utime(file, (NOW - days * DAY,) * 2)
        log.append(json.dumps({"path": file.as_uri(), "timestamp": (NOW - days * DAY) * 1000, "batchId": 0}))
    source = Files(path=str(tmp_path), format="text", **options)
    prefix = SourcePrefix(batches=(), log={0: tuple(log[: len(taken)])})
    backlog, problem = source.lag(prefix), source.left_out(prefix)
    assert backlog is not None
    assert (backlog.count, backlog.left_out) == (waiting, len(others) - waiting if told else 0)
    assert (problem is not None) is bool(told)
    for words in told:
        assert problem is not None
        assert words in problem.what


def test_a_hidden_file_that_is_on_its_way_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "._events.json").write_text("{}")
    source = Files(path=str(tmp_path), format="json", schema="a INT")
    assert source.left_out(SourcePrefix(batches=())) is None


def test_an_archived_file_is_no_namesake_of_itself(tmp_path: Path) -> None:
    log = json.dumps({"path": (tmp_path / "gone" / "a").as_uri(), "timestamp": NOW * 1000, "batchId": 0})
    (tmp_path / "a").write_text("x")
    source = Files(path=str(tmp_path), format="text", file_name_only=True)
    assert source.left_out(SourcePrefix(batches=(), log={0: (log,)})) is None
