"""Rows of the user's data lie where only their owner may read them, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.entry import write_crash_log
from headrace.history import History
from headrace.storage import private
from headrace.storage.private import LOCAL_DIRECTORIES, LOCAL_SETTING, local_directories, make_private
from tests.registered import layout_in

pytestmark = pytest.mark.plain


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def mode(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


def test_a_new_storage_is_for_its_owner_alone(tmp_path: Path) -> None:
    storage = tmp_path / "a" / "storage"
    make_private(storage)
    History.open(storage / "history.db").close()
    write_crash_log(ValueError(), [], near=tmp_path / "a")
    assert (mode(storage), mode(storage / "history.db")) == (0o700, 0o600)
    assert mode(storage.parent) == 0o777  # not ours


def test_a_storage_of_an_earlier_version_is_tightened(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    home = layout_in(storage, "q").folder / "g1"
    (home / "checkpoint").mkdir(parents=True)
    for file in (storage / "history.db", storage / "history.db-wal", home / "archive.jsonl"):
        file.touch()
    make_private(storage)
    paths = [storage, *(path for path in storage.rglob("*"))]
    assert [path for path in paths if mode(path) & 0o077] == []


def test_a_directory_of_others_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").touch()
    everybodys = tmp_path / "everybodys"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    for place in (tmp_path, everybodys):
        before = mode(place)
        make_private(place)
        assert mode(place) == before


def test_a_crash_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / ".headrace").mkdir()
    write_crash_log(ValueError(), [], near=tmp_path)
    [file] = (tmp_path / ".headrace").iterdir()
    assert mode(file) == 0o600


def test_the_umask_is_read_and_stays() -> None:
    for mask in (0o027, 0o002):
        os.umask(mask)
        assert private.umask() == mask
        assert os.umask(mask) == mask


@pytest.mark.parametrize("by_environment", [True, False], ids=["environment", "setting"])
def test_spark_gets_private_directories_in_the_places_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    monkeypatch.setattr(private, "_made", [])  # Those of the session that the tests share stay.
    wanted = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    conf = {LOCAL_SETTING: str(tmp_path / "c") if by_environment else wanted}
    directories = local_directories(conf, {LOCAL_DIRECTORIES: wanted} if by_environment else {}).split(",")
    assert [str(Path(directory).parent) for directory in directories] == wanted.split(",")
    assert [mode(Path(directory)) for directory in directories] == [0o700, 0o700]
    private.discard_local_directories()
    assert not any(Path(directory).exists() for directory in directories)
