"""The log of a query's generations: of several writers one counts, and no older record takes the newest one's place."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import CheckpointError, HeadraceError, LeaseLost
from headrace.generations.log import Directory, LogRecord, append, as_facts, begin, read_log, remove_unreachable

pytestmark = pytest.mark.plain


def test_a_log_begins_with_the_first_generation_by_any_writer(tmp_path: Path) -> None:
    assert read_log(tmp_path) is None
    with ThreadPoolExecutor(8) as pool:
        records = set(pool.map(lambda _: begin(tmp_path).token, range(40)))
    assert len(records) == 1
    facts = json.loads((tmp_path / "log" / "000001.json").read_text())
    assert (facts["kind"], facts["live"], facts["following"], facts["number"]) == ("begun", "g1.1", 2, 1)


def test_of_two_that_have_read_one_record_the_second_writes_nothing(tmp_path: Path) -> None:
    read = begin(tmp_path)
    first = append(
        tmp_path, "q", replace(read, kind="intent", change="reset", of=0, target=Directory(generation=2, made=2))
    )
    with pytest.raises(LeaseLost, match=r"HR526.*its log has record 2"):
        append(tmp_path, "q", replace(read, kind="intent", change="rewind", of=0))
    assert read_log(tmp_path) == first
    assert (first.number, first.of, first.is_between, str(first.target)) == (2, 2, True, "g2.2")


def test_a_change_keeps_the_number_of_its_first_record_and_the_change_before_it(tmp_path: Path) -> None:
    reset = append(tmp_path, "q", replace(begin(tmp_path), kind="done", change="reset", of=0, facts={"former": "g1.1"}))
    begun = replace(reset, kind="intent", change="rewind", of=0, begun="", before=as_facts(reset))
    done = append(tmp_path, "q", replace(append(tmp_path, "q", begun), kind="done"))
    assert (done.number, done.of, done.settled) == (4, 3, done)
    undone = append(tmp_path, "q", replace(done, kind="undone"))
    assert undone.settled == reset
    discarded = append(tmp_path, "q", replace(undone, kind="discarded", before=None))
    assert (discarded.settled, discarded.current) == (None, None)


def damage_log(folder: Path) -> None:
    (folder / "log" / "000002.json").write_text("{")


def of_a_later_version(folder: Path) -> None:
    facts = json.loads((folder / "log" / "000001.json").read_text())
    (folder / "log" / "000002.json").write_text(json.dumps({**facts, "form": 2}))


def with_a_strange_directory(folder: Path) -> None:
    facts = json.loads((folder / "log" / "000001.json").read_text())
    (folder / "log" / "000002.json").write_text(json.dumps({**facts, "live": "g1"}))


def gone(folder: Path) -> None:
    (folder / "log" / "000001.json").unlink()
    (folder / "g1.1").mkdir()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_log, "000002.json"),
        (of_a_later_version, "it has form 2, which a later version has written"),
        (with_a_strange_directory, "'g1' is not a directory of a generation"),
        (gone, "it is not there, and g1.1 is"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_log_that_cannot_be_read_is_refused_and_none_older_is_used(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    begin(tmp_path)
    damage(tmp_path)
    with pytest.raises(CheckpointError, match="HR584") as raised:
        read_log(tmp_path)
    assert words in str(raised.value)
    with pytest.raises(HeadraceError, match="HR584"):
        begin(tmp_path)


def test_only_directories_that_nothing_leads_to_are_deleted_and_none_of_a_later_record(tmp_path: Path) -> None:
    for name in ("g1.1", "g1.2", "g1.3", "g2.4", "g2.9", "late"):
        (tmp_path / name).mkdir()
    record = LogRecord(number=5, live=Directory(generation=1, made=3), kept=(Directory(),), building=None)
    remove_unreachable(tmp_path, record)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "log") == ["g1.1", "g1.3", "g2.9", "late"]
