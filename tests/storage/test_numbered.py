"""Records with numbers: the greatest number is the newest, and of two writers of one number the first counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.storage import numbered

pytestmark = pytest.mark.plain


def test_the_newest_record_has_the_greatest_number(tmp_path: Path) -> None:
    assert numbered.newest_in(tmp_path / "none") is None
    for name in ("999999.json", "1000000.json", "000007.json", "0000x8.json", "2000000.free"):
        (tmp_path / name).write_text("{}")
    newest = numbered.newest_in(tmp_path)
    assert newest is not None
    assert newest.name == "1000000.json"
    assert numbered.numbers_in(tmp_path) == [7, 999_999, 1_000_000]


def test_a_number_is_written_once(tmp_path: Path) -> None:
    assert numbered.create(tmp_path, 8, {"of": "the first"})
    assert not numbered.create(tmp_path, 8, {"of": "the second"})
    assert json.loads(numbered.file_of(tmp_path, 8).read_text())["of"] == "the first"
