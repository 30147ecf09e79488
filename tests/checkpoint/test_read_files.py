"""What files were when they were read: kept in lines, the newest of which counts, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.checkpoint import sources
from headrace.checkpoint.sources import ReadFile, ReadFiles
from headrace.errors import CheckpointError
from tests.storage.stores import memory_store

pytestmark = pytest.mark.plain
SECOND = 1_700_000_000_000
OLD, NEW = ReadFile(modified_ms=SECOND, size_bytes=3), ReadFile(modified_ms=SECOND + 5, size_bytes=4, etag="e")


def lines(home: Path) -> list[int]:
    return [len(part.read_text().splitlines()) for part in sorted(home.glob("read_files-*.jsonl"))]


def test_the_newest_line_of_a_file_counts_in_whichever_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_PART_LINES", 2)
    record = ReadFiles(tmp_path)
    assert record.read() == {}
    record.keep({"/in/a": OLD, "/in/b": OLD})
    record.keep({"/in/b": OLD, "/in/a": NEW})
    assert record.read() == {"/in/a": NEW, "/in/b": OLD}
    assert lines(tmp_path) == [2, 1]
    ReadFiles(tmp_path).keep({"/in/c": NEW})
    ReadFiles(tmp_path).keep({"/in/d": NEW})
    assert lines(tmp_path) == [2, 2, 1]
    assert list(record.read()) == ["/in/a", "/in/b", "/in/c", "/in/d"]


def test_what_a_crash_cuts_off_is_not_known_and_harms_no_other_line(tmp_path: Path) -> None:
    ReadFiles(tmp_path).keep({"/in/a": OLD})
    (part,) = tmp_path.iterdir()
    part.write_text(part.read_text() + '{"path":"/in/b","modif')
    assert ReadFiles(tmp_path).read() == {"/in/a": OLD}
    ReadFiles(tmp_path).keep({"/in/c": NEW})
    assert ReadFiles(tmp_path).read() == {"/in/a": OLD, "/in/c": NEW}
    part.write_text('{"file":"/in/a"}\n')
    with pytest.raises(CheckpointError, match="HR523"):
        ReadFiles(tmp_path).read()


def test_the_files_of_a_moved_directory_are_known_at_both_places(tmp_path: Path) -> None:
    ReadFiles(tmp_path).keep({"/p/in/a": NEW, "/pp/in/b": OLD})
    for _ in range(2):
        ReadFiles(tmp_path).note_move("/p", "/q")
    assert ReadFiles(tmp_path).read() == {"/p/in/a": NEW, "/pp/in/b": OLD, "/q/in/a": NEW}


def test_the_record_may_be_in_a_store() -> None:
    with memory_store("record") as (_, root):
        ReadFiles(root).keep({"s3a://b/in/a": OLD})
        ReadFiles(root).keep({"s3a://b/in/a": NEW})
        assert ReadFiles(root).read() == {"s3a://b/in/a": NEW}


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (ReadFile(modified_ms=SECOND + 37), True),
        (ReadFile(modified_ms=SECOND + 1), True),
        (ReadFile(modified_ms=SECOND + 1037), False),
        (ReadFile(modified_ms=SECOND, size_bytes=4), False),
        (ReadFile(modified_ms=SECOND, size_bytes=3, etag="f"), False),
        (ReadFile(modified_ms=SECOND + 9000, size_bytes=3, etag="e"), True),
    ],
    ids=["a time in whole seconds", "rounded", "later", "of another size", "of another ETag", "put again as it was"],
)
def test_one_content_differs_from_another(other: ReadFile, is_same: bool) -> None:
    file = ReadFile(modified_ms=SECOND, size_bytes=3, etag="e")
    assert (file.is_same(other), other.is_same(file)) == (is_same, is_same)
