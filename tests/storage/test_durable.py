"""A file is replaced or created as a whole, also by several at once; a directory that refuses is one finding."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import PlatformError
from headrace.storage.disk import DISK, Disk
from headrace.storage.durable import copy_file, create_file, move, publish, replace_file, replacing, size_of, swap
from headrace.storage.private import writing_to
from headrace.storage.store import Store
from tests.storage.stores import MemoryStore, memory_store

pytestmark = pytest.mark.plain


def test_of_several_that_create_a_file_one_does(tmp_path: Path) -> None:
    file, texts = tmp_path / "id", [f"{number}" * 1000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda text: create_file(file, text), texts))
    assert sum(made) == 1
    assert file.read_text() == texts[made.index(True)]
    assert list(tmp_path.iterdir()) == [file]


def test_several_may_replace_a_file_at_once(tmp_path: Path) -> None:
    file, texts = tmp_path / "id", [f"{number}" * 1000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: replace_file(file, text, shared=True), texts))
    assert file.read_text() in texts
    assert list(tmp_path.iterdir()) == [file]


def test_a_draft_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "id"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(file, "\udcff")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("id", "old")]


def test_a_writer_that_fails_on_the_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    with pytest.raises(ZeroDivisionError), replacing(file, private=True) as out:
        out.writelines(f"{1 // number}\n" for number in (1, 0))
    assert list(tmp_path.iterdir()) == []
    with replacing(file, private=True) as out:
        out.writelines(["1\n", "2\n"])
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("1\n2\n", 0o600)


def test_a_directory_is_published_with_what_is_in_it(tmp_path: Path) -> None:
    made = tmp_path / ".1"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "part").write_text("rows")
    publish(made, tmp_path / "1")
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert (tmp_path / "1" / "deep" / "part").read_text() == "rows"


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_disks_answer_as_stores_do(tmp_path: Path, kind: str) -> None:
    store: Store = DISK if kind == "disk" else MemoryStore()
    root = str(tmp_path / "root")
    store.make_directory(f"{root}/deep")
    store.put(f"{root}/b", b"0123")
    assert [store.create(f"{root}/deep/a", data) for data in (b"first", b"second")] == [True, False]
    assert [(entry.name, entry.is_directory) for entry in store.listing(root)] == [("b", False), ("deep", True)]
    assert (sorted(store.names(root)), sorted(store.files_below(root))) == (["b", "deep"], ["b", "deep/a"])
    assert (store.entry(f"{root}/b").size_bytes, store.size_bytes(root), store.size_bytes(f"{root}/gone")) == (4, 9, 0)
    assert (store.read(f"{root}/b", 1, 2), store.read(f"{root}/b", 2), store.read(f"{root}/deep/a")) == (
        b"12",
        b"23",
        b"first",
    )
    store.copy(f"{root}/b", f"{root}/new/b")
    store.link(f"{root}/b", f"{root}/new/c")
    store.move(f"{root}/new", f"{root}/deep/new")
    store.publish(f"{root}/deep", f"{root}/whole")
    assert sorted(store.files_below(root)) == ["b", "whole/a", "whole/new/b", "whole/new/c"]
    for path in (f"{root}/whole", f"{root}/b", f"{root}/b"):
        store.delete(path)
    assert list(store.listing(root)) == []
    for question in (store.entry, store.listing, store.read):
        with pytest.raises(FileNotFoundError):
            question(f"{root}/gone")


def test_a_file_is_copied_out_of_a_store_with_its_time_and_never_moved_there(tmp_path: Path) -> None:
    with memory_store("test") as (store, root):
        replace_file(root / "a", "text")
        copy_file(root / "a", tmp_path / "deep" / "a")
        copy_file(tmp_path / "deep" / "a", root / "b")
        facts = (tmp_path / "deep" / "a").stat()
        assert ((root / "b").read_text(), facts.st_mtime_ns, size_of(root)) == ("text", store.now_ms * 1_000_000, 8)
        with pytest.raises(OSError, match="not in the storage of the other"):
            move(tmp_path / "deep", root / "deep")


@pytest.mark.parametrize("steps", [1, 2])
def test_two_directories_change_their_places(tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other, free = (tmp_path / name for name in ("home", "other", "free"))
    for folder in (home, other):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    if steps == 2:
        monkeypatch.setattr(Disk, "exchange", Store.exchange)
    swap(home, other, free)
    assert (home / "name").read_text() == "other"
    assert ((other if steps == 1 else free) / "name").read_text() == "home"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_directory_that_refuses_is_one_finding(tmp_path: Path) -> None:
    with pytest.raises(PlatformError) as raised, writing_to(tmp_path / "gone"):
        replace_file(tmp_path / "gone" / "file", "text")
    [finding] = raised.value.findings
    assert (finding.code, f"{tmp_path / 'gone'} cannot be written: No such file" in finding.what) == ("HR540", True)


FAULTS = {
    "a full disk": (errno.ENOSPC, "HR541", "make room on that disk"),
    "a quota": (errno.EDQUOT, "HR541", "make room on that disk"),
    "a disk for reading": (errno.EROFS, "HR540", "mount that file system so that it can be written"),
    "a right": (errno.EACCES, "HR540", "give the user that runs Headrace the right"),
}


@pytest.mark.parametrize(("number", "code", "fix"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_written_is_reported_with_what_helps(tmp_path: Path, number: int, code: str, fix: str) -> None:
    with pytest.raises(PlatformError) as raised, writing_to(tmp_path):
        raise OSError(number, os.strerror(number))
    (finding,) = raised.value.findings
    assert (finding.code, finding.fix.startswith(fix)) == (code, True)
