"""Paths beyond this machine: the methods of local ones, files that are whole, one creator, one driver."""

from __future__ import annotations

import getpass
import io
import os
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from headrace.checkpoint.archive import close, segments
from headrace.checkpoint.directory import numbered_files
from headrace.errors import PlatformError
from headrace.generations import driver_lock
from headrace.storage import hdfs, json_lines, location, remote, s3
from headrace.storage.durable import copy_file, create_file, move, publish, remove_tree, replace_file, size_of, swap
from headrace.storage.hdfs import Hdfs
from headrace.storage.remote import RemotePath
from headrace.storage.s3 import S3
from headrace.storage.store import forget, keep, silent
from services import HdfsServer, S3Server
from services.proxy import Proxy
from tests.storage.stores import MemoryStore, memory_store, new_bucket
from tests.waiting import until

KINDS = [
    pytest.param("memory", marks=pytest.mark.plain),
    pytest.param("hdfs", marks=pytest.mark.services),
    pytest.param("s3a", marks=pytest.mark.services),
]


@pytest.fixture(autouse=True)
def _no_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that are left behind are not renewed in stores that are gone."""
    monkeypatch.setattr(driver_lock, "RENEW_SECONDS", 3600.0)


@pytest.fixture
def root(request: pytest.FixtureRequest) -> Iterator[RemotePath]:
    """A directory of a store of the kind."""
    if request.param == "memory":
        with memory_store("test") as (_, place):
            yield place / "a b"
        return
    if request.param == "s3a":
        bucket = new_bucket(request.getfixturevalue("s3_server"))
        keep("s3a", bucket.name, lambda: S3.of(bucket.name, bucket.settings()))
        place = RemotePath(f"s3a://{bucket.name}/{request.node.name} %41")
    else:
        server: HdfsServer = request.getfixturevalue("hdfs_server")
        authority = server.url().partition("://")[2]
        keep("hdfs", authority, lambda: Hdfs(authority, server.web_address, getpass.getuser()))
        place = RemotePath(f"{server.url()}/{request.node.name} %41")
    yield place
    remove_tree(place)


@pytest.fixture
def memory() -> Iterator[tuple[MemoryStore, RemotePath]]:
    with memory_store("test") as store:
        yield store


EACH = pytest.mark.parametrize("root", KINDS, indirect=True)


@pytest.mark.plain
def test_a_remote_path_is_spelled_as_spark_spells_it() -> None:
    path = RemotePath("hdfs://name:9000/lake") / "g1" / "offsets"
    assert str(path) == f"{path}" == "hdfs://name:9000/lake/g1/offsets"
    assert (path.parent.name, path.name, path.with_name("commits").name) == ("g1", "offsets", "commits")
    assert str(path.relative_to(RemotePath("hdfs://name:9000/lake"))) == "g1/offsets"
    assert {path, RemotePath(str(path))} == {path}
    assert isinstance(path / "0", Path)
    with pytest.raises(TypeError, match="not a path of this machine"):
        os.stat(path)


@EACH
def test_files_are_put_and_listed_as_on_a_disk(root: RemotePath) -> None:
    assert numbered_files(root / "offsets") == {}
    for name in ("10", "9", ".9.crc", "sub/x"):
        replace_file(root / "offsets" / name, name)
    assert list(numbered_files(root / "offsets")) == [9, 10]
    assert [path.name for path in root.glob("off*/[0-9]*")] == ["10", "9"]
    assert sorted(path.name for path in root.rglob("*")) == [".9.crc", "10", "9", "offsets", "sub", "x"]
    assert [(root / name).is_dir() for name in ("offsets", "offsets/9", "gone")] == [True, False, False]
    assert ((root / "offsets/10").stat().st_size, size_of(root / "offsets")) == (2, 14)
    assert [path.name for path in (root / "offsets" / "sub").iterdir()] == ["x"]
    for missing in (root / "gone", root / "offsets" / "gone"):
        with pytest.raises(FileNotFoundError):
            missing.read_text()
    with pytest.raises(NotADirectoryError):
        (root / "offsets" / "9").entries()
    replace_file(root / "offsets" / "9", "nine\r\nlines")
    assert (root / "offsets" / "9").read_text() == "nine\nlines"
    remove_tree(root / "offsets")
    remove_tree(root / "offsets")
    assert not (root / "offsets").exists()


@EACH
def test_a_large_file_is_copied_in_parts(root: RemotePath, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 11 + b"the last part"
    (root / "sst").write_bytes(content)
    (tmp_path / "sst").write_bytes(content)
    for name in ("_COPY_BYTES", "_COPY_PART_BYTES", "_LARGE_BYTES"):
        monkeypatch.setattr(s3, name, 5 << 20)  # S3 takes no smaller part but for the last.
    monkeypatch.setattr(hdfs, "_PIECE_BYTES", 3 << 20)
    store, longest, read = type(root._store), 0, type(root._store).read
    if isinstance(root._store, S3):
        ask = root._store._ask

        def refuse(verb: str, **options: Any) -> Any:
            """S3's answer to a copy of more than 5 GiB, which the server of the tests does not give."""
            if verb == "copy_object":
                raise OSError(5, "The specified copy source is larger than the maximum allowable size (InvalidRequest)")
            return ask(verb, **options)

        monkeypatch.setattr(root._store, "_ask", refuse)

    def measured(*arguments: Any) -> bytes:
        nonlocal longest
        data = read(*arguments)
        longest = max(longest, len(data))
        return data

    monkeypatch.setattr(store, "read", measured)
    copy_file(root / "sst", root / "copies/a b")
    copy_file(tmp_path / "sst", root / "copies/from disk")
    if store is not MemoryStore:
        assert longest <= 5 << 20
    monkeypatch.setattr(store, "read", read)
    assert [path.read_bytes() == content for path in sorted((root / "copies").iterdir())] == [True, True]


@pytest.mark.plain
def test_stores_of_two_projects_are_reached_by_the_settings_of_each() -> None:
    mine, other = ({"spark.hadoop.fs.s3a.access.key": key} for key in ("mine", "other"))
    storage = location.locate(Path("/p"), "s3a://my-lake/headrace", mine)
    location.reach(["s3a://my-input/files", "/local", "s3a:///no-bucket"], mine)
    location.locate(Path("/q"), "s3a://their-lake/headrace", other)
    try:
        keys = [path._store._fs.key for path in (storage, location.place("s3a://my-input/files/a.json"))]  # type: ignore[attr-defined]
        assert keys == ["mine", "mine"]
        location.reach(["s3a://my-input/files"], other)
        assert location.place("s3a://my-input/files")._store._fs.key == "other"  # type: ignore[attr-defined]
    finally:
        for bucket in ("my-lake", "my-input", "their-lake"):
            forget("s3a", bucket)


@EACH
def test_of_a_large_file_only_parts_are_fetched(root: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    with io.BytesIO() as packed:
        with zipfile.ZipFile(packed, "w") as archive:
            for name in "abc":
                archive.writestr(name, name * 10_000)
        (root / "large.zip").write_bytes(packed.getvalue())
    fetched, read = [], type(root._store).read
    monkeypatch.setattr(remote, "_WHOLE_BYTES", 1000)
    monkeypatch.setattr(remote, "_PART_BYTES", 1000)

    def counted(*arguments: Any) -> bytes:
        fetched.append(len(data := read(*arguments)))
        return data

    monkeypatch.setattr(type(root._store), "read", counted)
    with (root / "large.zip").open("rb") as opened, zipfile.ZipFile(opened) as archive:
        assert archive.read("b") == b"b" * 10_000
    assert 10_000 < sum(fetched) < 20_000


@EACH
def test_of_several_that_create_a_file_one_does(root: RemotePath) -> None:
    texts = [f"{number}" * 1000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda text: create_file(root / "id", text), texts))
    assert sum(made) == 1
    assert (root / "id").read_text() == texts[made.index(True)]
    assert [path.name for path in root.iterdir()] == ["id"]


@EACH
def test_directories_are_moved_to_a_free_name_alone(root: RemotePath) -> None:
    replace_file(root / "g1" / "checkpoint" / "metadata", "{}")
    move(root / "g1", root / "g2")
    assert (root / "g2" / "checkpoint" / "metadata").read_text() == "{}"
    replace_file(root / "g1" / "metadata", "")
    for step in (move, publish):
        with pytest.raises(FileExistsError):
            step(root / "g2", root / "g1")
    with pytest.raises(FileNotFoundError):
        move(root / "g3", root / "g4")
    swap(root / "g1", root / "g2", root / "g3")
    assert [(root / name / "metadata").exists() for name in ("g1", "g2", "g3")] == [False, False, True]


@EACH
def test_lines_are_added_and_closed_into_compressed_files(root: RemotePath) -> None:
    file, folder = root / "archive.jsonl", root / "archive"
    json_lines.append(file, [{"batch": number} for number in range(290)])
    json_lines.append(file, [{"batch": number} for number in range(290, 300)])
    assert len(json_lines.read(file)) == 300
    assert close(file, folder, 300) == 201
    (closed,) = segments(folder)
    assert [line["batch"] for line in (*closed.lines(), *json_lines.read(file)[1:])] == list(range(300))


@EACH
def test_one_driver_has_the_lease(root: RemotePath) -> None:
    folder = root / "lease"

    def taken(number: int) -> driver_lock.Lease | None:
        try:
            return driver_lock.take_lease(folder, str(number))
        except driver_lock.LeaseHeld:
            return None

    with ThreadPoolExecutor(6) as pool:
        (first,) = filter(None, pool.map(taken, range(6)))
    assert driver_lock.lease_holder(folder) is not None, "its record is whole as soon as it is there"
    assert taken(7) is None
    first.release()
    assert driver_lock.lease_holder(folder) is None
    second = taken(8)
    assert second is not None
    assert [file.name for file in folder.iterdir() if file.suffix == ".json"] == ["000002.json"]
    second.release()


@pytest.mark.plain
def test_a_lease_ends_with_its_process_or_with_its_silence(
    memory: tuple[MemoryStore, RemotePath], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of this machine is seen to be gone; of another one only its silence is known."""
    made, root = memory
    folder, host = root / "lease", driver_lock.socket.gethostname()
    first = driver_lock.take_lease(folder, "first")
    with monkeypatch.context() as patch:
        patch.setattr(driver_lock.socket, "gethostname", lambda: "elsewhere")
        made.now_ms += int(driver_lock.LEASE_SECONDS * 1000)
        with pytest.raises(driver_lock.LeaseHeld) as held:
            driver_lock.take_lease(folder, "early")
        assert (held.value.holder.host, held.value.seconds) == (host, driver_lock.LEASE_SECONDS)  # type: ignore[union-attr]
        made.now_ms += 1
        assert first.is_held
        driver_lock.take_lease(folder, "late").release()
    assert not first.is_held, "it was silent for too long"
    driver_lock.take_lease(folder, "again")
    with monkeypatch.context() as patch:
        patch.setattr(driver_lock, "birth", lambda pid: None)
        driver_lock.take_lease(folder, "after its death").release()


@pytest.mark.plain
@pytest.mark.parametrize("lost", ["release", "answer"])
def test_a_lease_that_its_own_process_has_lost_is_taken_again_at_once(
    memory: tuple[MemoryStore, RemotePath], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The store was away when the record was to be released, or when its creation was to be answered."""
    made, root = memory
    folder = root / f"lost-{lost}"
    create = MemoryStore.create

    def away(store: MemoryStore, path: str, data: bytes) -> bool:
        if lost == "answer":
            create(store, path, data)
        raise silent("memory", "Connection refused")

    if lost == "release":
        first = driver_lock.take_lease(folder, "first")
        with monkeypatch.context() as patch:
            patch.setattr(MemoryStore, "create", away)
            first.release()
    else:
        with monkeypatch.context() as patch:
            patch.setattr(MemoryStore, "create", away)
            with pytest.raises(PlatformError):
                driver_lock.take_lease(folder, "first")
    assert list(made.files) == [f"/lost-{lost}/000001.json"]
    held = driver_lock.take_lease(folder, "again")
    with pytest.raises(driver_lock.LeaseHeld):
        driver_lock.take_lease(folder, "a second time")
    held.release()


@pytest.mark.plain
def test_a_lease_is_held_though_the_store_goes_away_while_it_is_taken(
    memory: tuple[MemoryStore, RemotePath], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its record is there: the lease before it is removed with the next one, and no reader waits in vain."""
    made, root = memory
    folder = root / "lease"

    def away(store: MemoryStore, *path: object) -> None:
        raise silent("memory", "Connection refused")

    driver_lock.take_lease(folder, "1").release()
    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "delete", away)
        held = driver_lock.take_lease(folder, "2")
    assert {"/lease/000001.json", "/lease/000002.json"} < set(made.files)
    with pytest.raises(driver_lock.LeaseHeld):
        driver_lock.take_lease(folder, "3")
    held.release()
    create = MemoryStore.create

    def created(store: MemoryStore, path: str, data: bytes) -> bool:
        if path.endswith("/000003.json"):
            monkeypatch.setattr(MemoryStore, "listing", away)
        return create(store, path, data)

    listing = MemoryStore.listing
    monkeypatch.setattr(MemoryStore, "create", created)
    with pytest.raises(PlatformError):
        driver_lock.take_lease(folder, "3")
    monkeypatch.setattr(MemoryStore, "listing", listing)
    monkeypatch.setattr(driver_lock.socket, "gethostname", lambda: "elsewhere")
    driver_lock.take_lease(folder, "4").release()
    assert sorted(made.files) == ["/lease/000004.free", "/lease/000004.json"]


@pytest.mark.plain
def test_a_lease_is_renewed_while_its_process_lives(
    memory: tuple[MemoryStore, RemotePath], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, root = memory
    monkeypatch.setattr(driver_lock, "RENEW_SECONDS", 0.01)
    held = driver_lock.take_lease(root / "lease", "now")
    made.now_ms += int(driver_lock.LEASE_SECONDS * 2000)
    until("sign of life", lambda: "/lease/000001.alive" in made.files, pause=0.01)
    with pytest.raises(driver_lock.LeaseHeld):
        driver_lock.take_lease(root / "lease", "other")
    held.release()


@pytest.mark.plain
def test_a_record_that_comes_too_late_is_taken_back(
    memory: tuple[MemoryStore, RemotePath], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow starter has seen record 1 alone; meanwhile 2 was taken, and removed by the holder of 3."""
    _, root = memory
    folder = root / "lease"
    driver_lock.take_lease(folder, "1").release()
    read_numbers, readings = driver_lock.numbers_in, []

    def slow(place: Path) -> list[int]:
        numbers = read_numbers(place)
        if not readings:
            readings.append(numbers)
            driver_lock.take_lease(place, "2").release()
            driver_lock.take_lease(place, "3")
        return numbers

    monkeypatch.setattr(driver_lock, "numbers_in", slow)
    with pytest.raises(driver_lock.LeaseHeld):
        driver_lock.take_lease(folder, "late")
    assert readings == [[1]]
    assert read_numbers(folder) == [3]


@pytest.mark.services
def test_hdfs_refuses_with_a_sentence_and_finds_an_answer_that_was_lost(
    hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, web = hdfs_server.url().partition("://")[2], hdfs_server.web_address
    with pytest.raises(PlatformError) as refused:
        Hdfs(authority, web, "nobody").put("/not/mine", b"")
    assert refused.value.findings[0].code == "HR833"
    made, lost = Hdfs(authority, web, getpass.getuser()), []
    asked = made._web._call

    def deaf(verb: str, **options: Any) -> Any:
        answer = asked(verb, **options)
        if verb in ("RENAME", "CREATE", "DELETE") and lost.count(verb) == 0:
            lost.append(verb)
            raise requests.ConnectionError("the answer is lost")
        return answer

    monkeypatch.setattr(hdfs, "_PAUSES", (0.0,))
    monkeypatch.setattr(made._web, "_call", deaf)
    assert made.create("/lost/one", b"1") is True
    assert made.create("/lost/one", b"2") is False
    lost.clear()
    made.put("/lost/one", b"3")
    assert (made.read("/lost/one"), [entry.name for entry in made.listing("/lost")]) == (b"3", ["one"])
    made.delete("/lost")
    assert lost == ["CREATE", "RENAME", "DELETE"]


@pytest.mark.services
def test_s3_refuses_with_a_sentence_and_finds_an_answer_that_was_lost(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = new_bucket(s3_server)
    for name, wrong, code in (
        (bucket.name, {"secret.key": "wrong"}, "HR833"),
        (bucket.name, {"access.key": "nobody"}, "HR833"),
        ("no-such-bucket", {}, "HR836"),
    ):
        with pytest.raises(PlatformError) as refused:
            S3.of(name, bucket.settings(name, **wrong)).put("/file", b"")
        assert (refused.value.findings[0].code, name in str(refused.value)) == (code, True)
    with Proxy(s3_server.port, word=f"PUT /{bucket.name}/lost".encode()) as proxy:
        made = S3.of(bucket.name, bucket.settings(endpoint=f"http://127.0.0.1:{proxy.port}"))
        made.require_conditional("/")
        proxy.swallow_commit_answer()
        assert made.create("/lost", b"1") is True
        assert made.create("/lost", b"2") is False
        proxy.swallow_commit_answer()
        made.put("/lost", b"3")
        assert (made.read("/lost"), proxy.commits) == (b"3", 5)


@pytest.mark.services
def test_a_directory_of_s3_whose_move_is_cut_off_lacks_what_comes_last(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = new_bucket(s3_server)
    made = S3.of(bucket.name, bucket.settings())
    names = ("_version.json", "b.json", "part/0", "part/1")
    for name in names:
        made.put(f"/.1/{name}", name.encode())
    asked, left = made._ask, [3]

    def cut_off(verb: str, **options: Any) -> Any:
        if verb == "copy_object":
            left[0] -= 1
            if left[0] < 0:
                raise ConnectionError("the process dies here")
        return asked(verb, **options)

    with monkeypatch.context() as patch:
        patch.setattr(made, "_ask", cut_off)
        with pytest.raises(ConnectionError):
            made.move("/.1", "/1", last=("_version.json",))
    assert not made._is_there("/1/_version.json")
    with pytest.raises(FileExistsError):
        made.move("/.1", "/1")
    made.move("/.1", "/2", last=("_version.json",))
    assert {name: made.read(f"/2/{name}") for name in names} == {name: name.encode() for name in names}
    assert not made._is_there("/.1")


@pytest.mark.plain
def test_a_name_node_that_has_just_been_started_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Hdfs("name:9000", "name:9870", "me")
    messages = ["No active and not excluded nodes contain this block", "Namenode is in startup mode"]

    def answer(verb: str, **options: Any) -> None:
        if messages:
            raise RuntimeError(messages.pop())

    monkeypatch.setattr(hdfs, "_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(made._web, "_call", answer)
    made.delete("/x")
    assert messages == []
