"""Progress written beside the batches: on, told of, and off again over the same checkpoint."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.logs import numbered
from headrace.run.moving import settle
from tests.run.test_continuous import running
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
def test_progress_is_written_beside_the_batches_and_with_them_again(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    source, sink = kafka.make(), kafka.make()
    root = write(tmp_path / "p", url=kafka.url, source=source, sink=sink, options=', async_progress="3s"')
    offsets = root / ".headrace/queries/copied/g1/checkpoint/offsets"
    sent: list[str] = []

    def has_gap() -> bool:
        found = numbered(offsets)
        return len(found) > 1 and max(found) - 1 not in found

    with running(root, "copied", spark) as copied:
        ends = time.monotonic() + 60
        while not has_gap():
            assert time.monotonic() < ends, sorted(numbered(offsets))
            sent.append(f"w{len(sent)}")
            kafka.send(source, sent[-1])
            copied.handle.processAllAvailable()
        batches = copied.handle.lastProgress["batchId"] + 1
    assert len(numbered(offsets)) < batches
    assert "as many as async_progress has not told of" in (
        hr.check(hr.load(root), spark=spark).guarantees["copied"].sentence
    )
    write(root, url=kafka.url, source=source, sink=sink, trigger="available-now")
    sent.append("last")
    kafka.send(source, "last")
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    found = [value for _, value in kafka.read(sink)]
    assert (set(found), found[-1]) == (set(sent), "last")
    assert not has_gap()


@pytest.mark.plain
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
def test_the_gap_is_closed_by_what_is_known_to_be_done(
    tmp_path: Path, offsets: dict[int, str], commits: list[int], after: dict[int, str]
) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for number, text in offsets.items():
        (tmp_path / "offsets" / str(number)).write_text(text)
    for number in commits:
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
    settle(Checkpoint(tmp_path))
    assert {number: file.read_text() for number, file in numbered(tmp_path / "offsets").items()} == after


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("ASYNC-01")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trigger": "available-now"}, "HR266: query 'copied' has async_progress, and it has the trigger "
         "available now"),
        ({"mode": "update", "body": "words.groupBy('value').count().select('value')"},
         "HR266: query 'copied' has async_progress, and it keeps state"),
        ({"trigger": "continuous 1 second"}, "HR261: query 'copied' has the trigger continuous, which the sink kafka "
         "does not take"),
    ],
)  # fmt: skip
def test_what_progress_beside_the_batches_cannot_do_is_refused_before_start(
    kafka: Topics, spark: SparkSession, tmp_path: Path, given: dict[str, str], said: str
) -> None:
    root = write(tmp_path / "p", url=kafka.url, source=kafka.make(), options=', async_progress="1s"', **given)
    findings = hr.check(hr.load(root), spark=spark).findings
    assert said in [f"{finding.code}: {finding.what}" for finding in findings if finding.severity == "error"]
