"""The archive keeps every committed batch, through purging, crashes and rewinds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.checkpoint import Archive, Checkpoint
from headrace.errors import CheckpointError, PlatformError

pytestmark = pytest.mark.plain
EVERY: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "fixtures" / "named" / "every_batch.json").read_text()
)
RETAINED = 5


def put(root: Path, batch: int, *, commit: bool = True, changed: bool = False) -> None:
    """Let the real batch of that number happen, as Spark writes and purges."""
    for folder in ("offsets", "commits") if commit else ("offsets",):
        (root / folder).mkdir(parents=True, exist_ok=True)
        text = EVERY[folder][str(batch)]
        if changed:
            text = text.replace('"logOffset":', '"logOffset":1000')
        (root / folder / str(batch)).write_text(text)
        for old in (root / folder).iterdir():
            if int(old.name) <= batch - RETAINED - 1:
                old.unlink()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive.jsonl")


def test_it_outlives_sparks_retention(checkpoint: Checkpoint, archive: Archive) -> None:
    for batch in range(27):
        put(checkpoint.root, batch)
        assert archive.catch_up(checkpoint) == 1
    assert list(checkpoint.offsets()) == [21, 22, 23, 24, 25, 26]
    entries = archive.entries()
    assert list(entries) == list(range(27))
    assert entries[0].offsets == {"events": '{"logOffset":0}'}
    assert {batch: entries[batch] for batch in range(21, 27)} == checkpoint.offsets()
    assert archive.batches()[25].next_watermark_ms == entries[26].watermark_ms
    assert archive.gaps == []


def test_it_takes_many_batches_at_once_and_none_twice(checkpoint: Checkpoint, archive: Archive) -> None:
    for batch in range(4):
        put(checkpoint.root, batch)
    assert archive.catch_up(checkpoint) == 4
    assert archive.catch_up(checkpoint) == 0
    assert Archive(archive.path).catch_up(checkpoint) == 0
    for batch in range(4, 7):
        put(checkpoint.root, batch)
    assert archive.catch_up(checkpoint) == 3
    assert len(archive.path.read_bytes().splitlines()) == 7


def test_a_batch_that_is_not_committed_waits(checkpoint: Checkpoint, archive: Archive) -> None:
    assert archive.catch_up(checkpoint) == 0
    put(checkpoint.root, 0, commit=False)
    assert archive.catch_up(checkpoint) == 0
    put(checkpoint.root, 0)
    assert archive.catch_up(checkpoint) == 1
    put(checkpoint.root, 1, commit=False)
    assert archive.catch_up(checkpoint) == 0
    assert list(archive.entries()) == [0]


def test_what_was_purged_unseen_is_a_gap(checkpoint: Checkpoint, archive: Archive) -> None:
    put(checkpoint.root, 0)
    archive.catch_up(checkpoint)
    for batch in range(1, 12):
        put(checkpoint.root, batch)
    assert archive.catch_up(checkpoint) == 6
    assert list(archive.entries()) == [0, *range(6, 12)]
    assert [finding.code for finding in archive.gaps] == ["HR522"]
    assert "batches 1 to 5" in archive.gaps[0].what


@pytest.mark.parametrize("same_instance", [True, False], ids=["seen at once", "seen at the next start"])
def test_after_a_rewind_the_later_line_counts(checkpoint: Checkpoint, archive: Archive, same_instance: bool) -> None:
    for batch in range(6):
        put(checkpoint.root, batch)
    archive.catch_up(checkpoint)
    for batch in (3, 4, 5):
        for folder in ("offsets", "commits"):
            (checkpoint.root / folder / str(batch)).unlink()
    writer = archive if same_instance else Archive(archive.path)
    assert writer.catch_up(checkpoint) == 0
    assert list(archive.entries()) == [0, 1, 2]
    put(checkpoint.root, 3, changed=True)
    assert writer.catch_up(checkpoint) == 1
    assert archive.entries()[3].offsets == {"events": '{"logOffset":10003}'}
    assert list(archive.entries()) == [0, 1, 2, 3]


def test_a_rewind_that_has_caught_up_again_is_seen_at_the_next_start(checkpoint: Checkpoint, archive: Archive) -> None:
    for batch in range(5):
        put(checkpoint.root, batch)
    archive.catch_up(checkpoint)
    for batch in (3, 4):
        put(checkpoint.root, batch, changed=True)
    assert Archive(archive.path).catch_up(checkpoint) == 2
    assert archive.entries() == checkpoint.offsets()


def test_an_archive_torn_at_any_byte_heals(checkpoint: Checkpoint, archive: Archive) -> None:
    for batch in range(3):
        put(checkpoint.root, batch)
    archive.catch_up(checkpoint)
    whole = archive.path.read_bytes()
    for length in range(len(whole)):
        archive.path.write_bytes(whole[:length])
        # A line that lacks nothing but its end is whole.
        complete = whole[: length + 1].count(b"\n")
        assert list(archive.entries()) == list(range(complete))
        assert Archive(archive.path).catch_up(checkpoint) == 3 - complete
        assert archive.entries() == checkpoint.offsets()
        assert len(archive.path.read_bytes().splitlines()) == 3


def test_a_last_line_of_zeros_is_torn_too(checkpoint: Checkpoint, archive: Archive) -> None:
    put(checkpoint.root, 0)
    archive.catch_up(checkpoint)
    with archive.path.open("ab") as file:
        file.write(b"\0" * 40 + b"\n")
    put(checkpoint.root, 1)
    assert Archive(archive.path).catch_up(checkpoint) == 1
    assert list(archive.entries()) == [0, 1]


def test_damage_in_the_middle_is_reported_with_its_line(checkpoint: Checkpoint, archive: Archive) -> None:
    for batch in range(3):
        put(checkpoint.root, batch)
    archive.catch_up(checkpoint)
    lines = archive.path.read_bytes().splitlines(keepends=True)
    archive.path.write_bytes(lines[0] + b"{]\n" + lines[2])
    with pytest.raises(CheckpointError, match=r"archive\.jsonl:2 HR523"):
        archive.entries()


def test_an_archive_that_cannot_be_written_is_a_finding(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    put(checkpoint.root, 0)
    with pytest.raises(PlatformError, match=r"HR540: the archive of batches .* cannot be written"):
        Archive(tmp_path / "file" / "archive.jsonl").catch_up(checkpoint)


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count how often a log's directory is listed."""
    count, scandir = [0], os.scandir

    def counted(folder: Path):  # type: ignore[no-untyped-def]
        count[0] += 1
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", counted)
    return lambda: count[0]


def test_a_batch_costs_no_listing_once_it_is_under_way(
    checkpoint: Checkpoint, archive: Archive, listings: Callable[[], int]
) -> None:
    put(checkpoint.root, 0)
    archive.catch_up(checkpoint)
    before = listings()
    for batch in range(1, 27):
        put(checkpoint.root, batch)
        assert archive.catch_up(checkpoint) == 1
        assert archive.catch_up(checkpoint) == 0
    assert listings() == before
