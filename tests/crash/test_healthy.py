"""A healthy project on a machine that others use as well gives no warning.

`HEALTHY_MINUTES=20 pytest tests/crash/test_healthy.py` watches it for as long; without, for half a minute.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.api import load, status

MINUTES = float(os.environ.get("HEALTHY_MINUTES", "0.5"))
pytestmark = [pytest.mark.crash, pytest.mark.timeout(int(MINUTES * 60) + 600)]

PIPELINE = """
import headrace as hr
from pyspark.sql import functions as F

SCHEMA = "id BIGINT, time TIMESTAMP, action STRING"
events = hr.source.files("events", format="json", schema=SCHEMA, watermark=("time", "10 seconds"))
others = hr.source.files("others", format="csv", schema=SCHEMA, max_files_per_trigger=5)


def sink(table, *key):
    return hr.sink.sqlite("result.db", table=table, key=list(key))


@hr.table(refresh=hr.every("1 minute"))
def names(spark):
    return spark.createDataFrame([("open", "opened"), ("close", "closed")], "action STRING, name STRING")


@hr.query(sink=sink("counts", "action", "start"), mode="update", trigger=hr.every("1 second"))
def counts(events):
    windows = events.groupBy("action", F.window("time", "10 seconds")).count()
    return windows.select("action", F.col("window.start").alias("start"), "count")


@hr.query(sink=sink("once", "id"), mode="append", trigger=hr.every("5 seconds"))
def once(events):
    return events.dropDuplicatesWithinWatermark(["id"])


@hr.query(sink=sink("named"), mode="append", trigger=hr.every("2 seconds"))
def named(others, names):
    return others.join(names, "action").select("id", "name")
"""
QUERIES = {"counts", "once", "named"}
# What a neighbour does: it uses a core, and the disk now and then.
NEIGHBOUR = """
import tempfile, time
while True:
    until = time.monotonic() + 2
    while time.monotonic() < until:
        sum(range(10_000))
    with tempfile.TemporaryFile() as file:
        file.write(bytes(20_000_000))
"""


def land(root: Path, number: int) -> None:
    """One file for each source, with the events of this moment."""
    now = datetime.now(timezone.utc).isoformat()
    rows = [{"id": number * 100 + at, "time": now, "action": ("open", "close")[at % 2]} for at in range(50)]
    lines = {
        "events": "".join(json.dumps(row) + "\n" for row in rows),
        "others": "".join(",".join(map(str, row.values())) + "\n" for row in rows),
    }
    for place, text in lines.items():
        draft = root / place / f".{number:06d}"
        draft.write_text(text)
        draft.rename(draft.with_name(f"{number:06d}"))


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Others who use the machine."""
    running = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.long
def test_a_healthy_project_on_a_loaded_machine_gives_no_warning(tmp_path: Path) -> None:
    # pytest would end this process as one that hangs.
    faulthandler.cancel_dump_traceback_later()
    root = tmp_path / "p"
    for place in ("events", "others"):
        (root / place).mkdir(parents=True)
    (root / "headrace.yml").write_text("name: healthy\n")
    (root / "pipeline.py").write_text(PIPELINE)
    events: list[dict[str, Any]] = []
    log = (tmp_path / "log").open("w")
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root), "--json"]
    with neighbours(os.cpu_count() or 1), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as running:
        assert running.stdout is not None
        lines = iter(running.stdout.readline, b"")
        heard = threading.Thread(
            target=lambda: events.extend(json.loads(line) for line in lines if line.startswith(b"{")), daemon=True
        )
        heard.start()
        # The minutes count from the first batches on: a machine may take long to start Spark.
        number, until = 0, float("inf")
        while time.monotonic() < until:
            assert running.poll() is None, (tmp_path / "log").read_text()[-3000:]
            if until == float("inf") and {event.get("query") for event in events if "batch" in event} == QUERIES:
                until = time.monotonic() + 60 * MINUTES
            land(root, number)
            number += 1
            time.sleep(0.5)
        hr.running(load(root)).stop()
        running.wait(120)
        heard.join(30)
    findings = [event["finding"] for event in events if event.get("finding")]
    assert [f"{finding['code']}: {finding['what']}" for finding in findings if finding["severity"] != "note"] == []
    entries = status(load(root))
    assert {entry.query for entry in entries} == QUERIES
    for entry in entries:
        assert entry.rows_total + 50 * sum(lag.count for lag in entry.lags.values() if lag) == 50 * number, entry
