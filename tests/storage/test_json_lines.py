"""A file of JSON lines survives a process that ends in the middle of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.storage.json_lines import DamagedLine, append, read

pytestmark = pytest.mark.plain

# What a crash may leave, with what is read of it, and what the file holds after {"n": 3} was added.
LEFT = {
    "nothing": (b"", [], b'{"n":3}\n'),
    "whole lines": (b'{"n":1}\n', [{"n": 1}], b'{"n":1}\n{"n":3}\n'),
    "a part of the last line": (b'{"n":1}\n{"n":', [{"n": 1}], b'{"n":1}\n{"n":3}\n'),
    "a part of the only line": (b'{"n', [], b'{"n":3}\n'),
    "zeros in place of the last line": (b'{"n":1}\n\0\0\0\n', [{"n": 1}], b'{"n":1}\n{"n":3}\n'),
    "a line without its end": (b'{"n":1}\n{"n":2}', [{"n": 1}, {"n": 2}], b'{"n":1}\n{"n":2}\n{"n":3}\n'),
}


@pytest.mark.parametrize(("left", "read_back", "after"), LEFT.values(), ids=LEFT)
def test_what_a_crash_cuts_off_is_left_out_and_then_taken_away(
    tmp_path: Path, left: bytes, read_back: list[object], after: bytes
) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(left)
    assert read(file) == read_back
    append(file, [{"n": 3}])
    assert file.read_bytes() == after
    assert read(file) == [*read_back, {"n": 3}]


def test_a_file_that_is_not_there_is_empty_and_is_made(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    assert read(file) == []
    append(file, [1, 2], sync=False)
    assert read(file) == [1, 2]


@pytest.mark.parametrize(
    ("content", "line"), [(b'1\n{"n":\n2\n', 2), (b"1\n\n2\n", 2), (b"1\n\xff\n", 2), (b"\xff", 1)]
)
def test_a_line_that_no_crash_leaves_is_reported_by_its_number(tmp_path: Path, content: bytes, line: int) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(content)
    with pytest.raises(DamagedLine) as caught:
        read(file)
    assert caught.value.number == line


def test_lines_that_are_no_json_can_be_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b'1\n{"n":\n2\n')
    assert read(file, skip="any") == [1, 2]


def test_a_file_that_is_always_replaced_whole_has_no_line_that_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b'1\n{"n":')
    with pytest.raises(DamagedLine):
        read(file, skip="none")
