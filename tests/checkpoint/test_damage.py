"""Every kind of file of a real checkpoint, damaged in every way: a start is refused for it, or does not need it."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.directory import checksum_of
from headrace.checkpoint.problems import list_problems
from headrace.checkpoint.state_files import version_of
from headrace.errors import Finding

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent / "fixtures"
DAMAGES = ("missing", "empty", "cut", "garbage")
FINE = (None,) * 4

# What is reported of a damaged file: missing, empty, cut, garbage; None: the start continues, and needs no word.
CODES: dict[str, tuple[str | None, ...]] = {
    "metadata": ("HR503",) * 4,
    "newest commit": (None, "HR503", "HR503", "HR503"),
    "older commit": (None, "HR503", "HR503", "HR503"),
    "newest offsets, committed": ("HR514", "HR503", "HR503", "HR503"),
    "newest offsets, planned": (None, "HR503", "HR503", "HR503"),
    "offsets before": ("HR514", "HR503", "HR503", "HR503"),
    "older offsets": (None, "HR503", "HR503", "HR503"),
    "source log in use": ("HR509", "HR503", "HR503", "HR503"),
    "source log before the compacted one": FINE,
    "state in use": ("HR516",) * 4,
    "newest snapshot": (None, "HR516", "HR516", "HR516"),  # Spark takes the one before, and the changes since.
    "state not in use": FINE,
    "operator": ("HR516", "HR503", "HR503", "HR503"),
    "schema": (None, "HR516", "HR516", "HR516"),
    # Hadoop reads a file without checksums, or with a file of checksums that it does not know, as it is.
    "checksums in use": (None, None, "any", None),
    "checksums not in use": (None, None, None, None),
}


def unpack(name: str, place: Path, *, planned: bool) -> Path:
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        archive.extractall(place)
    if planned:
        newest = place / "commits" / str(Checkpoint(place).last_committed)
        newest.unlink()
        checksum_of(newest).unlink()
    return place


def kind_of(root: Path, file: Path, *, planned: bool) -> str:
    checkpoint, inside = Checkpoint(root), file.relative_to(root)
    if file.suffix == ".crc":
        kind = kind_of(root, file.with_name(file.name[1:-4]), planned=planned)
        return "checksums in use" if "not in use" not in kind and "before the" not in kind else "checksums not in use"
    last, done = checkpoint.last_batch, checkpoint.last_committed
    assert last is not None
    if inside.name == "metadata" and len(inside.parts) == 1:
        return "metadata"
    if inside.parts[0] == "commits":
        return "newest commit" if int(file.name) == done else "older commit"
    if inside.parts[0] == "offsets":
        if int(file.name) == last:
            return "newest offsets, planned" if planned else "newest offsets, committed"
        return "offsets before" if int(file.name) == last - 1 else "older offsets"
    if inside.parts[0] == "sources":
        compacted = max((int(path.stem) for path in file.parent.glob("*.compact")), default=0)
        return "source log before the compacted one" if int(file.stem) < compacted else "source log in use"
    if "_metadata" in inside.parts:
        return file.name if file.name == "schema" else "operator"
    if file not in state_in_use(root, last if planned else last + 1):
        return "state not in use"
    return "newest snapshot" if file.suffix in (".zip", ".snapshot") else "state in use"


def state_in_use(root: Path, version: int) -> set[Path]:
    """By Spark's rule: the newest snapshot up to the version, what it is made of, and the changes that follow it."""
    used: set[Path] = set()
    for partition in (0, 1):
        store = root / "state" / "0" / str(partition)
        files = [file for file in store.iterdir() if version_of(file.name) and is_named(root, partition, file)]
        by_version = [(version_of(file.name) or 0, file) for file in files if not file.name.startswith(".")]
        snapshots = {number: file for number, file in by_version if file.suffix in (".zip", ".snapshot")}
        base = max((number for number in snapshots if number <= version), default=0)
        if base:
            used.add(snapshots[base])
        if base and snapshots[base].suffix == ".zip":
            names = zipfile.ZipFile(snapshots[base]).read("metadata").decode()
            used |= {part for part in (store / "SSTs").glob("*.sst") if part.name in names}
        used |= {file for number, file in by_version if base < number <= version and file not in snapshots.values()}
    return used


def is_named(root: Path, partition: int, file: Path) -> bool:
    """Whether a file of the state is of an attempt that the commit names, as far as it names any and is there."""
    commit = Checkpoint(root).commit((version_of(file.name) or 0) - 1)
    ids = commit.state_ids[0][partition] if commit is not None and commit.state_ids else frozenset()
    return not ids or any(id_ in file.name for id_ in ids)


def damage_each_way(file: Path) -> Iterator[str]:
    """Damage `file` in each way, one after the other, and fix it at the end."""
    whole = file.read_bytes()
    for damage in DAMAGES:
        if damage == "missing":
            file.unlink()
        else:
            garbage = (b"\x07garbage" * (len(whole) // 8 + 1))[: len(whole)]
            file.write_bytes({"empty": b"", "cut": whole[: -max(len(whole) // 3, 1)], "garbage": garbage}[damage])
        yield damage
    file.write_bytes(whole)


def damages_of(root: Path) -> list[Finding]:
    """The errors that refuse a start, but for an archive that would help."""
    return [finding for finding in list_problems(Checkpoint(root), written_async=False) if finding.severity == "error"]


@pytest.mark.parametrize("planned", [False, True], ids=["stopped", "killed in a batch"])
@pytest.mark.parametrize(
    "name", ["rocksdb_few", "rocksdb_many", "rocksdb2_few", "rocksdb2_many", "hdfs_few", "hdfs_many"]
)
def test_each_damaged_file_is_reported_once_or_not_needed(tmp_path: Path, name: str, planned: bool) -> None:
    root = unpack(name, tmp_path / "checkpoint", planned=planned)
    assert damages_of(root) == []
    wrong, seen = [], set()
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        kind = kind_of(root, file, planned=planned)
        seen.add(kind)
        for damage in damage_each_way(file):
            expected = CODES[kind][DAMAGES.index(damage)]
            if (name[:8], kind, damage, planned) == ("rocksdb2", "newest commit", "missing", True):
                expected = "HR516"  # It says which files of the state count.
            findings = damages_of(root)
            codes = {finding.code for finding in findings}
            right = codes <= {"HR503", "HR516"} if expected == "any" else codes == {expected} - {None}
            # One finding a damage; a part that several snapshots share is reported by each.
            if not right or (len(findings) > 1 and len({finding.where for finding in findings}) < len(findings)):
                wrong.append((str(file.relative_to(root)), kind, damage, [str(finding) for finding in findings]))
    assert wrong == []
    assert {"metadata", "offsets before", "state in use", "operator", "schema", "source log in use"} <= seen


@pytest.mark.parametrize(
    ("store", "version", "says"),
    [
        ("rocksdb_few", 3, "delete commits/2 and commits/.2.crc"),
        ("rocksdb_few", 2, "restore it from a backup"),
        ("rocksdb2_few", 3, "delete commits/2 and commits/.2.crc"),
        ("rocksdb2_few", 2, "restore it from a backup"),
        ("hdfs_few", 3, "delete commits/2 and commits/.2.crc"),
    ],
)
def test_the_newest_state_is_made_again_by_the_batch_that_made_it(
    tmp_path: Path, store: str, version: int, says: str
) -> None:
    root = unpack(store, tmp_path / "checkpoint", planned=False)
    kind = "changelog" if store.startswith("rocksdb") else "delta"
    (file,) = (file for file in state_in_use(root, 3) if file.match(f"0/1/{version}[._]*{kind}"))
    file.write_bytes(b"")
    (finding,) = damages_of(root)
    assert finding.fix.startswith(says)
    if says.startswith("delete"):
        for name in ("2", ".2.crc"):
            (root / "commits" / name).unlink()
        assert damages_of(root) == []


def test_a_damaged_snapshot_is_left_out_where_the_changes_reach_back_to_the_one_before(tmp_path: Path) -> None:
    root = unpack("hdfs_many", tmp_path / "checkpoint", planned=False)
    store = root / "state" / "0" / "0"
    newest = max(store.glob("*.snapshot"), key=lambda file: int(file.stem))
    newest.write_bytes(newest.read_bytes()[:10])
    (finding,) = damages_of(root)
    assert finding.fix.startswith("delete it and")
    newest.unlink()
    checksum_of(newest).unlink()
    assert damages_of(root) == []


@pytest.mark.parametrize("lost", ["state/0/1", "state/0/0/SSTs", "sources"])
def test_a_lost_directory_is_reported(tmp_path: Path, lost: str) -> None:
    root = unpack("rocksdb_many", tmp_path / "checkpoint", planned=False)
    shutil.rmtree(root / lost)
    assert {finding.code for finding in damages_of(root)} == {"HR509" if lost == "sources" else "HR516"}


def test_a_cut_file_without_its_checksum_is_found_by_its_form(tmp_path: Path) -> None:
    for store, file in (("rocksdb_few", "3.changelog"), ("hdfs_few", "3.delta")):
        root = unpack(store, tmp_path / store, planned=False)
        state = root / "state" / "0" / "0" / file
        checksum_of(state).unlink()
        assert damages_of(root) == []
        state.write_bytes(state.read_bytes()[:-9])
        assert [finding.code for finding in damages_of(root)] == ["HR516"]
