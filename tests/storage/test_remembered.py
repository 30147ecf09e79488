"""What a start asks of a store: each directory and each small file once; what is written meanwhile is seen."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.checkpoint import Archive, Checkpoint
from headrace.connectors.exactly_once import view_of
from headrace.contract import SinkContext
from headrace.storage import remembered
from headrace.storage.durable import create_file, move, remove_tree, replace_file
from headrace.storage.remembered import remembering
from headrace.storage.remote import RemotePath
from tests.storage.stores import memory_store

pytestmark = pytest.mark.plain


@pytest.fixture
def counted_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RemotePath, Counter[str]]]:
    """A checkpoint of 40 batches, and how often its store was asked for each thing."""
    with memory_store("test") as (store, root):
        for log in ("offsets", "commits"):
            for number in range(40):
                replace_file(root / "checkpoint" / log / str(number), f"{log} {number}")
        replace_file(root / "checkpoint" / "state" / "1.zip", "x" * 100)
        counts: Counter[str] = Counter()
        for verb in ("entry", "listing", "read"):
            monkeypatch.setattr(store, verb, counting(counts, verb, getattr(store, verb)))
        yield root / "checkpoint", counts


def counting(counts: Counter[str], verb: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    active: list[str] = []

    def counted(path: str, *more: Any) -> Any:
        counts[f"{verb} {path.removeprefix('/checkpoint/')}"] += 1
        active.append(path)
        counts[f"most at once: {verb}"] = max(len(active), counts[f"most at once: {verb}"])
        if verb == "read":
            time.sleep(0.002)
        active.remove(path)
        return plain(path, *more)

    return counted


def look_at(checkpoint: RemotePath) -> list[str]:
    texts = []
    for log in ("offsets", "commits"):
        newest = max(int(path.name) for path in (checkpoint / log).iterdir())
        for number in range(newest + 2):
            file = checkpoint / log / str(number)
            if file.exists() and file.is_file():
                texts.append(file.read_text())
    return texts


def test_nothing_is_asked_twice_in_one_look(counted_store: tuple[RemotePath, Counter[str]]) -> None:
    checkpoint, questions = counted_store
    plain = look_at(checkpoint)
    assert questions["entry offsets/7"] >= 2
    with remembering(checkpoint):
        look_at(checkpoint)
        questions.clear()
        assert look_at(checkpoint) == plain
        assert [question for question in questions if "read" in question or "listing" in question] == []
    with remembering(checkpoint):
        questions.clear()
        assert look_at(checkpoint) == plain
    assert questions.pop("most at once: read") > 1
    assert {name: count for name, count in questions.items() if count > 1 and "entry" not in name} == {}
    assert questions["listing offsets"] == questions["read offsets/39"] == 1


def test_another_thread_asks_the_store_itself(counted_store: tuple[RemotePath, Counter[str]]) -> None:
    """As the function of a batch does that Spark has planned while the driver looks at the batches before it."""
    checkpoint, _ = counted_store
    offsets = checkpoint / "offsets"
    with remembering(checkpoint), ThreadPoolExecutor(1) as another:
        assert len(list(offsets.iterdir())) == 40
        another.submit(replace_file, offsets / "40", "new").result()
        assert another.submit((offsets / "40").read_text).result() == "new"
        assert not (offsets / "40").exists()
    assert (offsets / "40").read_text() == "new"


def test_what_was_written_is_seen(
    counted_store: tuple[RemotePath, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, questions = counted_store
    monkeypatch.setattr(remembered, "_SMALL_BYTES", 50)
    with remembering(checkpoint), remembering(checkpoint):
        look_at(checkpoint)
        replace_file(checkpoint / "offsets" / "7", "other")
        assert create_file(checkpoint / "offsets" / "40", "new") is True
        assert create_file(checkpoint / "offsets" / "40", "late") is False
        assert [(checkpoint / "offsets" / name).read_text() for name in ("7", "40")] == ["other", "new"]
        move(checkpoint / "commits", checkpoint / "former")
        assert not (checkpoint / "commits").exists()
        assert (checkpoint / "former" / "3").read_text() == "commits 3"
        remove_tree(checkpoint / "former")
        assert {path.name for path in checkpoint.iterdir()} == {"offsets", "state"}
        with pytest.raises(FileNotFoundError):
            (checkpoint / "former" / "3").read_text()
        with pytest.raises(NotADirectoryError):
            (checkpoint / "offsets" / "7").entries()
        questions.clear()
        assert (checkpoint / "state" / "1.zip").read_bytes() == b"x" * 100
        assert questions["read state/1.zip"] == 1
        # Outside of the directory each read asks the store.
        replace_file(checkpoint.parent / "archive", "a")
        assert (checkpoint.parent / "archive").read_text() == "a"
    replace_file(checkpoint / "offsets" / "7", "after")
    assert (checkpoint / "offsets" / "7").read_text() == "after"


def view(checkpoint: RemotePath) -> int:
    return len(view_of(SinkContext(query="q", generation=1, mode="append", checkpoint=checkpoint)).digests)


def archive(checkpoint: RemotePath) -> int:
    return Archive(checkpoint.parent / "archive.jsonl").catch_up(Checkpoint(checkpoint))


@pytest.mark.parametrize("look", [view, archive])
def test_who_compares_all_batches_reads_each_file_once_and_many_at_once(
    counted_store: tuple[RemotePath, Counter[str]], look: Callable[[RemotePath], int]
) -> None:
    checkpoint, questions = counted_store
    replace_file(checkpoint / "metadata", '{"id": "c"}')
    for number in range(40):
        log = json.dumps({"path": f"file:///in/{number}", "timestamp": 1, "batchId": number})
        replace_file(checkpoint / "sources" / "in" / str(number), f"v1\n{log}")
        facts = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": number, "conf": {}})
        replace_file(checkpoint / "offsets" / str(number), f'v2\n{facts}\nin:{{"logOffset":{number}}}')
        replace_file(checkpoint / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')
    questions.clear()
    assert look(checkpoint) == 40
    assert questions["read offsets/0"] == questions["listing offsets"] == 1
    assert questions.pop("most at once: read") > 1
    asked_again = {name for name, count in questions.items() if count > 1 and "entry" not in name}
    assert {name for name in asked_again if not name.endswith("archive.jsonl")} == set()
