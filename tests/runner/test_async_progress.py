"""Asynchronous progress: on, reported, and off again over the same checkpoint."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.directory import numbered_files
from headrace.checkpoint.handover import fill_gap, move
from headrace.errors import CheckpointError
from tests.registered import layout_in
from tests.runner.test_continuous import running
from tests.servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """
import headrace as hr

words = hr.source.kafka({url!r}, subscribe={source!r}, value="text", starting_offsets="earliest")


@hr.query(sink=hr.sink.kafka({url!r}, topic={sink!r}, value="raw"{options}), trigger={trigger!r}, mode={mode!r})
def copied(words):
    return {body}
"""


def write(root: Path, *, url: str = "x:1", source: str = "s", sink: str = "t", options: str = "",
          trigger: str = "default", mode: str = "append", body: str = "words") -> Path:  # fmt: skip
    root.mkdir(exist_ok=True)
    (root / "headrace.yml").write_text("name: p\n")
    text = PROJECT.format(url=url, source=source, sink=sink, options=options, trigger=trigger, mode=mode, body=body)
    (root / "pipeline.py").write_text(text)
    return root


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("ASYNC-01")
@pytest.mark.capability("ASYNC-02")
def test_progress_is_written_asynchronously_and_with_the_batches_again(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    source, sink = kafka.make(), kafka.make()
    root = write(tmp_path / "p", url=kafka.url, source=source, sink=sink, options=', async_progress="3s"')
    offsets = layout_in(root / ".headrace", "copied").home / "checkpoint/offsets"
    sent: list[str] = []

    def has_gap() -> bool:
        numbers = numbered_files(offsets)
        return len(numbers) > 1 and max(numbers) - 1 not in numbers

    with running(root, "copied", spark) as copied:
        ends = time.monotonic() + 60
        while not has_gap():
            assert time.monotonic() < ends, sorted(numbered_files(offsets))
            sent.append(f"w{len(sent)}")
            kafka.send(source, sent[-1])
            copied.handle.processAllAvailable()
        batches = copied.handle.lastProgress["batchId"] + 1
    assert len(numbered_files(offsets)) < batches
    assert "as many as async_progress has not recorded" in (
        hr.check(hr.load(root), spark=spark).guarantees["copied"].sentence
    )
    write(root, url=kafka.url, source=source, sink=sink, trigger="available-now")
    sent.append("last")
    kafka.send(source, "last")
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    values = [value for _, value in kafka.read(sink)]
    assert (set(values), values[-1]) == (set(sent), "last")
    assert not has_gap()


def logs(root: Path, offsets: dict[int, str], commits: list[int]) -> Checkpoint:
    """A checkpoint of batches, each read up to the offset that its letter stands for."""
    for folder in ("offsets", "commits"):
        (root / folder).mkdir(parents=True)
    for number, end in offsets.items():
        (root / "offsets" / str(number)).write_text(f"v2\n{{}}\nwords:{end}")
    for number in commits:
        (root / "commits" / str(number)).write_text("v1\n{}")
    return Checkpoint(root)


@pytest.mark.plain
@pytest.mark.parametrize("recorded", [True, None], ids=["recorded", "of Headrace 0.1.0"])
@pytest.mark.parametrize(
    ("offsets", "commits", "after"),
    [
        ({0: "a", 4: "b", 9: "c"}, [0, 4, 9], {0: "a", 4: "b", 8: "c", 9: "c"}),
        ({0: "a", 4: "b", 9: "c"}, [0, 4], {0: "a", 4: "b", 8: "b", 9: "c"}),
        ({0: "a", 1: "b", 2: "c"}, [0, 1], {0: "a", 1: "b", 2: "c"}),
        ({0: "a"}, [], {0: "a"}),
        ({}, [], {}),
    ],
    ids=["committed", "planned", "no gap", "one", "none"],
)
def test_the_gap_of_async_progress_is_closed_by_what_is_known_to_be_done(
    tmp_path: Path, recorded: bool | None, offsets: dict[int, str], commits: list[int], after: dict[int, str]
) -> None:
    checkpoint = logs(tmp_path, offsets, commits)
    assert list(fill_gap(checkpoint, None, written_async=recorded)) == []
    assert {batch: entry.offsets["words"] for batch, entry in checkpoint.offsets().items()} == after


@pytest.mark.plain
@pytest.mark.parametrize(
    ("commits", "stateful", "recorded"),
    [([0, 1, 2], False, True), ([0, 1], True, True), ([0, 1], False, False), ([0, 1, 2, 3], True, None)],
    ids=["a commit without offsets", "with state", "an exactly-once sink", "all committed"],
)
def test_a_gap_that_async_progress_did_not_leave_is_refused(
    tmp_path: Path, commits: list[int], stateful: bool, recorded: bool | None
) -> None:
    checkpoint = logs(tmp_path, {0: "a", 1: "b", 3: "d"}, commits)
    if stateful:
        (tmp_path / "state").mkdir()
    with pytest.raises(CheckpointError) as caught:
        list(fill_gap(checkpoint, Archive(tmp_path / "archive.jsonl"), written_async=recorded))
    assert [finding.code for finding in caught.value.findings] == ["HR514"]
    assert sorted(numbered_files(tmp_path / "offsets")) == [0, 1, 3]


@pytest.mark.plain
def test_offsets_that_the_archive_has_are_written_again(tmp_path: Path) -> None:
    checkpoint = logs(tmp_path, {0: "a", 1: "b", 2: "c"}, [0, 1, 2])
    archive = Archive(tmp_path / "archive.jsonl")
    archive.catch_up(checkpoint)
    whole = checkpoint.offsets()
    (tmp_path / "offsets" / "1").unlink()
    assert [finding.code for finding in fill_gap(checkpoint, archive, written_async=False)] == ["HR459"]
    assert checkpoint.offsets() == whole


@pytest.mark.plain
@pytest.mark.parametrize("done", [0, 1, 2], ids=["nothing", "the planned batch taken back", "the older one written"])
def test_a_move_between_ways_of_execution_that_was_cut_off_is_done_again(tmp_path: Path, done: int) -> None:
    whole, cut = (logs(tmp_path / name, {0: "1", 1: "2", 2: "3", 3: "4"}, [0, 1, 2]) for name in ("whole", "cut"))
    move(whole, ["words"], continuous=True)
    assert {number: text for number, text in texts(whole).items() if number} == {1: "v1\n\n2", 2: "v1\n\n3"}
    offsets = tmp_path / "cut" / "offsets"
    if done > 0:
        (offsets / "3").unlink()
    if done > 1:
        (offsets / "1").write_text(texts(whole)[1])
    move(cut, ["words"], continuous=True)
    assert texts(cut) == texts(whole)


def texts(checkpoint: Checkpoint) -> dict[int, str]:
    return {number: file.read_text() for number, file in numbered_files(checkpoint.root / "offsets").items()}


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("ASYNC-01")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"trigger": "available-now"}, "HR266: query 'copied' has async_progress, and it has the trigger "
         "available now"),
        ({"mode": "update", "body": "words.groupBy('value').count().select('value')"},
         "HR266: query 'copied' has async_progress, and it keeps state"),
        ({"trigger": "continuous 1 second"}, "HR261: query 'copied' has the trigger continuous, which the sink kafka "
         "does not take"),
    ],
)  # fmt: skip
def test_what_asynchronous_progress_cannot_do_is_refused_before_start(
    kafka: Topics, spark: SparkSession, tmp_path: Path, given: dict[str, str], words: str
) -> None:
    root = write(tmp_path / "p", url=kafka.url, source=kafka.make(), options=', async_progress="1s"', **given)
    findings = hr.check(hr.load(root), spark=spark).findings
    assert words in [f"{finding.code}: {finding.what}" for finding in findings if finding.severity == "error"]
