"""Before a batch is committed, all that it is made from is on the disk, and nothing else is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.durability import Durability

pytestmark = pytest.mark.plain


def put(root: Path, *names: str) -> None:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("v1\n")


@pytest.fixture
def synced_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is brought to the disk, in order: "everything", or a file or directory of the checkpoint."""
    paths: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        paths.append(os.path.relpath(place, tmp_path / "c"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


def test_the_files_of_a_batch_are_synced_with_their_names(tmp_path: Path, synced_paths: list[str]) -> None:
    tmp_path /= "c"
    put(tmp_path, "metadata", "offsets/0", "sources/events/0", "state/0/0/1.changelog")
    durability = Durability(Checkpoint(tmp_path))
    durability.sync(0)
    assert sorted(synced_paths[:4]) == ["metadata", "offsets/0", "sources/events/0", "state/0/0/1.changelog"]
    assert {".", "..", "../..", "offsets", "sources", "state/0"} <= set(synced_paths[4:])
    synced_paths.clear()
    put(tmp_path, "commits/0", "commits/.0.crc", "offsets/1", "sources/events/1", "sources/events/2.compact")
    put(tmp_path, "state/0/1/1.changelog", "state/0/1/left/1.delta", "state/0/1/2.changelog", "offsets/0")
    durability.sync(1)
    files = ["commits/.0.crc", "commits/0", "offsets/1", "sources/events/1", "sources/events/2.compact"]
    files += [f"state/0/{name}" for name in ("0/1.changelog", "1/1.changelog", "1/left/1.delta")]
    folders = ["commits", "offsets", "sources/events", "state/0/0", "state/0/1", "state/0/1/left"]
    assert sorted(synced_paths[: len(files)]) == files
    assert sorted(synced_paths[len(files) :]) == folders, "the names after what they name"
    synced_paths.clear()
    put(tmp_path, "offsets/2", "commits/1")
    durability.sync(2)
    assert sorted(synced_paths) == [
        "commits",
        "commits/1",
        "offsets",
        "offsets/2",
        "state/0/1",
        "state/0/1/2.changelog",
    ]


def test_of_several_attempts_the_files_that_the_commit_names_are_synced(
    tmp_path: Path, synced_paths: list[str]
) -> None:
    tmp_path /= "c"
    put(tmp_path, "offsets/0", *(f"state/0/{partition}/1_{id_}.changelog" for partition in (0, 1) for id_ in "ab"))
    durability = Durability(Checkpoint(tmp_path))
    durability.sync(0)
    put(tmp_path, "commits/0", "offsets/1")
    (tmp_path / "commits/0").write_text('v2\n{"stateUniqueIds":{"0":[["a"],["b"]]}}')
    synced_paths.clear()
    durability.sync(1)
    assert [name for name in sorted(synced_paths) if "changelog" in name] == [
        "state/0/0/1_a.changelog",
        "state/0/1/1_b.changelog",
    ]


def test_what_spark_removes_meanwhile_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "offsets/0", "offsets/1")
    durability = Durability(Checkpoint(tmp_path))
    durability.sync(0)
    monkeypatch.setattr(durability, "_files", lambda batch: [tmp_path / "gone" / "1"])
    durability.sync(1)
