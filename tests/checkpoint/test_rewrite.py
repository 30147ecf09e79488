"""A file of Spark's logs is replaced or removed as a whole, and keeps neither an old checksum nor looser rights."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.checkpoint.directory import checksum_of, replace_file

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_is_replaced_with_its_rights_and_without_its_checksum(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "7"
    file.write_text("old")
    file.chmod(mode)
    checksum_of(file).write_bytes(b"crc\0")
    replace_file(file, "new\r\nü")
    assert file.read_bytes() == "new\r\nü".encode()
    assert file.stat().st_mode & 0o777 == mode
    assert [path.name for path in tmp_path.iterdir()] == ["7"]


def test_a_draft_that_a_crash_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".7.headrace").write_text("half of a longer text")
    replace_file(tmp_path / "7", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"7": "new"}


def test_a_file_is_removed_with_its_checksum_and_may_be_gone(tmp_path: Path) -> None:
    file = tmp_path / "7"
    file.write_text("old")
    checksum_of(file).write_bytes(b"crc\0")
    replace_file(file, None)
    replace_file(file, None)
    assert list(tmp_path.iterdir()) == []
