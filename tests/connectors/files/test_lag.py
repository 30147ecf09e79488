"""What a directory holds that no batch has taken is reported without a JVM: what waits, and what is left out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from headrace.checkpoint.sources import ReadFile
from headrace.connectors.files import lag as file_lag
from headrace.connectors.files.source import Files
from headrace.connectors.spark_files import paths as file_paths
from headrace.connectors.spark_files.prefix import FileGroup, places
from headrace.contract import SourceBatch, SourcePrefix
from tests.storage.stores import memory_store

pytestmark = pytest.mark.plain
Folder: TypeAlias = tuple[Path, str, Callable[[Path, int], None]]

NOW = 1_700_000_000
DAY = 86_400

CASES: dict[str, tuple[dict[str, Any], Sequence[tuple[str, int]], Sequence[tuple[str, int]], int, list[str]]] = {
    # The options, the files that were read and those that were not with their ages in days; what waits and is reported.
    "any age": ({}, [("a", -10)], [("b", 8), ("c", 9000)], 2, []),
    "a limit": ({"max_file_age": "7d"}, [("a", 0)], [("b", 6), ("c", 8)], 1, ["c' are more than max_file_age (7d)"]),
    "one ahead": ({"max_file_age": "7d"}, [("a", -9000)], [("b", 0)], 0, ["b' are more", "ahead of the clock"]),
    "nothing read yet": ({"max_file_age": "7d"}, [], [("b", 0), ("c", 8)], 2, []),
    "an ignored limit": (
        {"max_file_age": "7d", "latest_first": True, "max_files_per_trigger": 1}, [("a", 0)], [("b", 8)], 1, []
    ),
    "hidden names": (
        {}, [("a", 0)], [("_b.json", 0), (".c.csv.gz", 0), ("d.txt._COPYING_", 0)], 0, [".c.csv.gz', '", "_b.json', '"]
    ),
    "hidden on purpose": ({}, [("a", 0)], [("_SUCCESS", 0), (".a.crc", 0), ("_temporary/b.json", 0)], 0, []),
    "the name of another": ({"file_name_only": True}, [("x/a", 0)], [("y/a", 0)], 0, ["y/a' have the name of a file"]),
    "a key=value directory": ({}, [("a", 0)], [("_day=1/b.json", 0)], 1, []),
    "many": ({"max_file_age": "7d"}, [("a", 0)], [(f"b{i}", 8) for i in range(9)], 0, ["b2' and 6 more are"]),
}  # fmt: skip


@pytest.fixture(params=["disk", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    """Where the files are, how Spark's log names it, and what gives a file a time."""
    if request.param == "disk":
        yield tmp_path, tmp_path.as_uri(), lambda file, seconds: os.utime(file, (seconds,) * 2)
        return
    with memory_store("lag") as (store, root):

        def date(file: Path, seconds: int) -> None:
            inside = str(file).removeprefix(str(root))
            store.files[inside] = (store.files[inside][0], seconds * 1000)

        yield root / "a landing", f"{root}/a%20landing", date


@pytest.mark.parametrize(("options", "taken", "others", "waiting", "reported"), CASES.values(), ids=CASES)
def test_files_that_are_left_out_are_named_and_the_others_wait(
    folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    taken: Sequence[tuple[str, int]],
    others: Sequence[tuple[str, int]],
    waiting: int,
    reported: list[str],
) -> None:
    monkeypatch.setattr(file_lag, "_ON_ITS_WAY_SECONDS", -1)
    (home, uri, date), log = folder, []
    for name, days in (*taken, *others):
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        date(file, NOW - days * DAY)
        log.append(json.dumps({"path": f"{uri}/{name}", "timestamp": (NOW - days * DAY) * 1000, "batchId": 0}))
    source = Files(path=str(home), format="text", **options)
    prefix = SourcePrefix(
        batches=(SourceBatch(batch=0, start=None, end='{"logOffset":0}'),) if taken else (),
        log={0: tuple(log[: len(taken)])},
    )
    backlog, problem = source.lag(prefix), next(source.left_out(prefix), None)
    assert backlog is not None
    assert (backlog.count, backlog.left_out) == (waiting, len(others) - waiting if reported else 0)
    assert (problem is not None) is bool(reported)
    for words in reported:
        assert problem is not None
        assert words in problem.what


@pytest.mark.parametrize(
    ("path", "options", "waiting", "left_out"),
    [
        ("in", {}, 2, 2),
        ("in/*", {}, 3, 1),
        ("in", {"RecursiveFileLookup": "TRUE"}, 4, 0),
    ],
    ids=["a directory", "a pattern", "with what lies below"],
)
def test_files_of_subdirectories_that_spark_does_not_look_into_are_named_and_do_not_wait(
    folder: Folder, path: str, options: dict[str, str], waiting: int, left_out: int
) -> None:
    home = folder[0]
    for name in ("in/a", "in/day=1/b", "in/old/c", "in/old/older/d"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    source = Files(path=f"{home}/{path}", format="text", options=options)
    lag = source.lag(SourcePrefix(batches=()))
    assert lag is not None
    assert (lag.count, lag.left_out) == (waiting, left_out)
    findings = list(source.left_out(SourcePrefix(batches=())))
    assert [finding.code for finding in findings] == ["HR360"] * bool(left_out)
    assert all("/older/d' lie in subdirectories" in finding.what for finding in findings)


def test_a_hidden_file_that_is_on_its_way_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "._events.json").write_text("{}")
    source = Files(path=str(tmp_path), format="json", schema="a INT")
    assert list(source.left_out(SourcePrefix(batches=()))) == []


def test_an_archived_file_is_no_namesake_of_itself(tmp_path: Path) -> None:
    log = json.dumps({"path": (tmp_path / "gone" / "a").as_uri(), "timestamp": NOW * 1000, "batchId": 0})
    (tmp_path / "a").write_text("x")
    source = Files(path=str(tmp_path), format="text", file_name_only=True)
    assert list(source.left_out(SourcePrefix(batches=(), log={0: (log,)}))) == []


@pytest.mark.parametrize(
    ("logged_ms", "is_reported"),
    [(NOW * 1000, False), (NOW * 1000 + 37, False), (NOW * 1000 - 1000, True), (NOW * 1000 + 1037, True)],
    ids=["as it was", "a time in whole seconds", "changed", "changed, in a store"],
)
def test_a_file_that_changed_after_it_was_read_is_named(folder: Folder, logged_ms: int, is_reported: bool) -> None:
    home, uri, date = folder
    home.mkdir(exist_ok=True)
    (home / "a").write_text("x")
    date(home / "a", NOW)
    log = json.dumps({"path": f"{uri}/a", "timestamp": logged_ms, "batchId": 0})
    batch = SourceBatch(batch=0, start=None, end='{"logOffset":0}')
    source, prefix = Files(path=str(home), format="text"), SourcePrefix(batches=(batch,), log={0: (log,)})
    findings = [*source.left_out(prefix), *filter(None, [source.changed(prefix)])]
    assert [(finding.code, finding.severity) for finding in findings] == [
        ("HR326", "warning"),
        ("HR326", "error"),
    ] * is_reported
    assert all(f"'{home / 'a'}'" in finding.what for finding in findings)


@pytest.mark.parametrize(
    ("kept", "is_reported"),
    [
        (ReadFile(modified_ms=NOW * 1000, size_bytes=1), False),
        (ReadFile(modified_ms=NOW * 1000, size_bytes=2), True),
        (ReadFile(modified_ms=NOW * 1000 - 9000, size_bytes=1), True),
    ],
    ids=["mended before its batch came in", "of another size", "of another time"],
)
def test_what_a_batch_has_read_is_known_by_our_own_record(tmp_path: Path, kept: ReadFile, is_reported: bool) -> None:
    (tmp_path / "a").write_text("x")
    os.utime(tmp_path / "a", (NOW, NOW))
    log = json.dumps({"path": (tmp_path / "a").as_uri(), "timestamp": (NOW - 60) * 1000, "batchId": 0})
    batch = SourceBatch(batch=0, start=None, end='{"logOffset":0}')
    prefix = SourcePrefix(batches=(batch,), log={0: (log,)}, read_files=lambda: {str(tmp_path / "a"): kept})
    source = Files(path=str(tmp_path), format="text")
    assert [finding.code for finding in source.left_out(prefix)] == ["HR326"] * is_reported
    assert (source.changed(prefix) is not None) is is_reported
    backlog = source.lag(prefix)
    assert backlog is not None
    assert (backlog.changed, backlog.left_out) == (is_reported, is_reported)


@pytest.mark.parametrize("now", ["content", "another"])
@pytest.mark.parametrize("at", [NOW, NOW + 60], ids=["of its time", "of another time"])
def test_a_small_file_is_known_by_its_content(tmp_path: Path, at: int, now: str) -> None:
    """While a query runs only a file of another time is read again; before a batch is made again every small one is."""
    file = tmp_path / "a"
    file.write_text("content")
    os.utime(file, (NOW, NOW))
    kept = file_paths.with_digest(file_paths.present(str(file)), str(file))
    file.write_text(now)
    os.utime(file, (at, at))
    log = json.dumps({"path": file.as_uri(), "timestamp": NOW * 1000, "batchId": 0})
    batch = SourceBatch(batch=0, start=None, end='{"logOffset":0}')
    prefix = SourcePrefix(batches=(batch,), log={0: (log,)}, read_files=lambda: {str(file): kept})
    source = Files(path=str(tmp_path), format="text")
    refused, lag = source.changed(prefix), source.lag(prefix)
    assert (refused is not None) == (now == "another")
    assert refused is None or (", with other content)" in refused.what) == (at == NOW)
    assert lag is not None
    assert lag.changed == (now == "another" and at != NOW)


def test_a_pattern_in_a_store_finds_what_it_finds_on_a_disk() -> None:
    with memory_store("lag") as (_, root):
        # As Spark, it looks into the directories that match, and no deeper.
        for name in ("2024/a.json", "2025/a.json", "2025/deep/b.json", "other/a.json", "2025/_deep/c.json", "c.json"):
            (root / "in" / name).write_text("{}")

        def waiting(pattern: str) -> int | None:
            lag = Files(path=f"{root}/in/{pattern}", format="json", schema="a INT").lag(SourcePrefix(batches=()))
            return None if lag is None else lag.count

        counts = {pattern: waiting(pattern) for pattern in ("20*", "{2024,other}", "*", "20*/a.json", "none*")}
    assert counts == {"20*": 2, "{2024,other}": 2, "*": 4, "20*/a.json": 2, "none*": 0}
    assert Files(path="gs://bucket/in", format="json", schema="a INT").lag(SourcePrefix(batches=())) is None


def test_what_was_archived_in_a_store_is_found_there() -> None:
    with memory_store("kept") as (_, root):
        for name in ("landing/day=1/a", "landing/day=2/b", "kept/landing/day=1/a"):
            (root / name).write_text("x")
        taken = [(f"{root}/landing/day=1/a", 0), (f"{root}/landing/day=2/b", 1)]
        entries = places(taken, f"{root}/landing/*", f"{root}/kept")
    assert entries == [
        FileGroup(f"{root}/landing", ((taken[1]),)),
        FileGroup(f"{root}/kept/landing", ((f"{root}/kept/landing/day=1/a", 0),)),
    ]
