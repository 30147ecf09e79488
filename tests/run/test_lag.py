"""What waits in a query's sources is reported from the checkpoint, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace.api import load
from headrace.model.layout import QueryLayout
from headrace.run.lag import lag, lags

from .projects import write_project

pytestmark = pytest.mark.plain

PAIRS = """
@hr.query(sink=hr.sink.memory())
def pairs(events):
    return events.alias("a").join(events.alias("b"), "name")
"""


def take(root: Path, files: list[Path], **uses: int) -> None:
    """One committed batch in which each use of the source has taken so many of `files`, as Spark writes it."""
    header = {"batchWatermarkMs": 0, "batchTimestampMs": 1700000000000, "conf": {}, "sourceMetadataInfo": {}}
    ends = [f'{name}:{{"logOffset":{number - 1}}}' for name, number in uses.items() if number]
    logs = {
        "offsets/0": "\n".join(["v2", json.dumps(header), *ends]),
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, number in uses.items():
        for at, file in enumerate(files[:number]):
            entry = {"path": f"file://{file}", "timestamp": int(file.stat().st_mtime * 1000), "batchId": at}
            logs[f"sources/{name}/{at}"] = f"v1\n{json.dumps(entry)}"
    for name, text in logs.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("events", "again", "waiting"), [(3, 3, 0), (3, 2, 1), (1, 2, 2)], ids=["all taken", "the second", "the first"]
)
def test_a_source_that_is_used_twice_holds_what_one_of_the_uses_lacks(
    tmp_path: Path, events: int, again: int, waiting: int
) -> None:
    root = write_project(tmp_path / "p", PAIRS, batches=[[{"name": "apple", "amount": 1}]] * 3)
    project = load(root)
    layout = QueryLayout(project.storage, "pairs", 1)
    take(layout.checkpoint, sorted((root / "landing").iterdir()), events=events, events__2=again)
    found = lag(project, project.queries["pairs"], layout)
    assert found is not None
    assert (found.count, found.unit, found.left_out) == (waiting, "files", 0)


def test_after_months_the_newest_batch_tells_it_and_the_long_archive_is_not_read(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", PAIRS, batches=[[{"name": "apple", "amount": 1}]] * 3)
    project = load(root)
    layout = QueryLayout(project.storage, "pairs", 1)
    take(layout.checkpoint, sorted((root / "landing").iterdir()), events=2, events__2=3)
    for log in ("offsets", "commits"):
        (layout.checkpoint / log / "0").rename(layout.checkpoint / log / "86400")
        shutil.copy(layout.checkpoint / log / "86400", layout.checkpoint / log / "86399")
    layout.archive.write_text("no line of an archive\n" * 2)
    found = lags(project, project.queries["pairs"], layout)
    assert {name: each.count for name, each in found.items() if each is not None} == {"events": 1}
