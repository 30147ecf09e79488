"""What a batch leaves behind for good is small, and all else is bounded: the figures of the page "Operate"."""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.archive import KEPT_OPEN, OPEN_LINES
from headrace.contract import BatchRecord
from headrace.export.log import RunLog
from headrace.history import History, store
from headrace.model.operations import Log
from headrace.storage.json_lines import text_of
from tests.checkpoint.test_archive import EVERY
from tests.docs.blocks import ROOT
from tests.history.test_record import text

pytestmark = pytest.mark.plain

A_DAY = 86_400
BATCHES = 400


def size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def measure_archive(root: Path) -> tuple[float, float]:
    """The bytes of a batch in the archive, open and closed, with large numbers as after months."""
    checkpoint, archive = Checkpoint(root / "checkpoint"), Archive(root / "archive.jsonl")
    for folder in ("offsets", "commits"):
        (checkpoint.root / folder).mkdir(parents=True, exist_ok=True)
        (checkpoint.root / folder / "20").write_text(EVERY[folder]["20"])
    archive.catch_up(checkpoint)
    line, jitter = json.loads(archive.path.read_text()), random.Random(1)
    lines = []
    for batch in range(10_000_000, 10_000_000 + OPEN_LINES):
        at = line["timestamp_ms"] + batch * 1000 + jitter.randrange(40)
        times = {"timestamp_ms": at, "watermark_ms": at - 7_200_417, "next_watermark_ms": at - 7_199_417}
        lines.append({**line, **times, "batch": batch, "offsets": {"events": f'{{"logOffset":{batch}}}'}})
        line.pop("conf", None)
    archive.path.write_text(text_of(lines))
    open_bytes = archive.path.stat().st_size / OPEN_LINES
    Archive(archive.path).catch_up(checkpoint)
    assert archive.path.stat().st_size < 2 * KEPT_OPEN * open_bytes
    return open_bytes, size(archive.folder) / (OPEN_LINES - KEPT_OPEN)


def measure_history(root: Path, kept: int) -> tuple[float, float]:
    """The bytes that a batch takes in the history, and the size of the history of one query that is full."""
    record = BatchRecord.parse(text("heard_6"))
    with History.open(root / "history.db") as history:
        run = history.begin_run("counts", pid=os.getpid(), mode="update", trigger="t", sink="s", generation=1)
        for batch in range(kept + BATCHES):
            history.record(run, replace(record, query="counts", batch=batch))
        assert len(history.recent("counts", 10 * kept)) <= kept + store._PRUNE_EVERY
    return len(json.dumps(record.as_dict(), separators=(",", ":"), default=str)), size(root)


def test_what_grows_is_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "history").mkdir()
    open_bytes, archive_bytes = measure_archive(tmp_path)
    monkeypatch.setattr(store, "BATCHES_KEPT", BATCHES)
    record_bytes, history_bytes = measure_history(tmp_path / "history", BATCHES)
    log = RunLog(tmp_path, Log(max_bytes=20_000, keep=2))
    for batch in range(BATCHES):
        log.progressed(replace(BatchRecord.parse(text("heard_6")), batch=10_000_000 + batch))
    log.close()
    assert size(tmp_path / "logs") <= 3 * 20_000
    assert history_bytes < 3 * BATCHES * record_bytes + 100_000, "what is pruned is used again"

    page = (ROOT / "docs/how-to/operate.md").read_text(encoding="utf-8")
    stated = {name: float(value.replace(",", "")) for name, value in re.findall(r"<!-- (\w+) -->([\d,.]+)", page)}
    assert open_bytes * OPEN_LINES / 1e6 == pytest.approx(stated["open_mb"], rel=0.2)
    assert archive_bytes == pytest.approx(stated["archive_bytes"], rel=0.2)
    assert archive_bytes * A_DAY / 1e6 == pytest.approx(stated["archive_day_mb"], rel=0.2)
    assert record_bytes == pytest.approx(stated["record_bytes"], rel=0.2)
