"""An archive of many batches lies in closed files, and a start reads the newest alone."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint import archive as module
from headrace.checkpoint.archive import Segment, segments
from headrace.errors import CheckpointError
from tests.checkpoint.test_archive import put

pytestmark = pytest.mark.plain
OPEN, KEPT = 12, 7


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_LINES", OPEN)
    monkeypatch.setattr(module, "KEPT_OPEN", KEPT)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive.jsonl")


def run(checkpoint: Checkpoint, archive: Archive, batches: range) -> None:
    for batch in batches:
        put(checkpoint.root, batch)
        archive.catch_up(checkpoint)


@pytest.fixture
def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which closed files are read."""
    names: list[str] = []
    lines = Segment.lines

    def noted(segment: Segment):  # type: ignore[no-untyped-def]
        names.append(segment.file.name)
        return lines(segment)

    monkeypatch.setattr(Segment, "lines", noted)
    return names


def test_all_batches_are_found_in_the_closed_files_and_the_open_one(checkpoint: Checkpoint, archive: Archive) -> None:
    run(checkpoint, archive, range(27))
    assert len(segments(archive.folder)) > 3
    assert len(archive.path.read_bytes().splitlines()) <= OPEN
    entries = Archive(archive.path).entries()
    assert list(entries) == list(range(27))
    assert {batch: entries[batch] for batch in range(21, 27)} == checkpoint.offsets()
    assert entries[0].conf == entries[26].conf != {}
    assert archive.size() == 27 + 1


def test_a_start_reads_no_closed_file(checkpoint: Checkpoint, archive: Archive, opened_files: list[str]) -> None:
    run(checkpoint, archive, range(26))
    put(checkpoint.root, 26)
    assert Archive(archive.path).catch_up(checkpoint) == 1
    assert opened_files == []
    assert list(archive.entries(19)) == list(range(19, 27))
    assert len(opened_files) < 3 < len(segments(archive.folder))


def test_a_rewind_behind_closed_files_makes_their_later_batches_void(checkpoint: Checkpoint, archive: Archive) -> None:
    run(checkpoint, archive, range(26))
    archive.void_after(3)
    assert list(archive.entries()) == [0, 1, 2, 3]
    assert list(archive.entries(3)) == [3]
    for file in checkpoint.root.glob("*/*"):
        file.unlink()
    writer = Archive(archive.path)
    for batch in range(2, 26):
        put(checkpoint.root, batch, changed=True)
        writer.catch_up(checkpoint)
        kept = list(Archive(archive.path).entries())
        assert (writer.gaps, kept) == ([], list(range(batch + 1))) or batch < 4
    assert archive.entries()[20].offsets == {"events": '{"logOffset":100020}'}


def test_a_crash_between_any_two_steps_of_closing_loses_nothing(
    checkpoint: Checkpoint, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    run(checkpoint, archive, range(OPEN - 1))
    for step in ("publish", "replace_file"):
        with monkeypatch.context() as patched:
            patched.setattr(module, step, kill)
            put(checkpoint.root, archive.entries().__len__())
            with pytest.raises(Killed):
                archive.catch_up(checkpoint)
        count = len(list(archive.entries()))
        assert list(archive.entries()) == list(range(count))
        archive = Archive(archive.path)
    run(checkpoint, archive, range(count, 24))
    assert list(archive.entries()) == list(range(24))
    assert [segment.number for segment in segments(archive.folder)] == list(range(1, len(segments(archive.folder)) + 1))


def test_a_long_archive_of_an_earlier_version_is_closed_at_the_first_start(
    checkpoint: Checkpoint, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(module, "OPEN_LINES", 1_000)
        run(checkpoint, archive, range(26))
    before = archive.entries()
    with archive.path.open("ab") as file:
        file.write(b'{"batch":26,"wat')
    put(checkpoint.root, 26)
    assert Archive(archive.path).catch_up(checkpoint) == 1
    assert [(segment.number, segment.first, segment.last) for segment in segments(archive.folder)] == [(1, 0, 18)]
    assert list(archive.entries().items())[:-1] == list(before.items())
    assert list(archive.entries()) == list(range(27))


def test_without_the_open_file_the_closed_ones_are_known_and_the_next_follow_on(
    checkpoint: Checkpoint, archive: Archive
) -> None:
    run(checkpoint, archive, range(20))
    archive.path.unlink()
    closed = segments(archive.folder)[-1]
    assert list(archive.entries()) == list(range(closed.last + 1))
    writer = Archive(archive.path)
    writer.catch_up(checkpoint)
    assert json.loads(archive.path.read_text().splitlines()[0]) == {"segment": closed.number + 1}
    assert list(archive.entries()) == [*range(closed.last + 1), *checkpoint.offsets()]
    assert [gap.code for gap in writer.gaps] == ["HR522"]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"no archive", id="no gzip"),
        pytest.param(gzip.compress(b'{"batch":0')[:-9], id="cut off"),
        pytest.param(gzip.compress(b"{]\n"), id="no JSON"),
    ],
)
def test_a_damaged_closed_file_is_named(checkpoint: Checkpoint, archive: Archive, damage: bytes) -> None:
    run(checkpoint, archive, range(20))
    file = segments(archive.folder)[0].file
    file.write_bytes(damage)
    with pytest.raises(CheckpointError, match=rf"{file.name}:1 HR523"):
        archive.entries()
    assert Archive(archive.path).catch_up(checkpoint) == 0, "what is needed is not damaged"
