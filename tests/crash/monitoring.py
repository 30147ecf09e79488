"""The monitoring project that the crash tests run: events as files, counted per action and hour into SQLite."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.registered import layout_in
from tests.runner import projects

START = datetime(2026, 3, 1, tzinfo=timezone.utc)
ACTIONS = ("open", "close", "click", "buy", "share")

PIPELINE = """
import headrace as hr
from pyspark.sql import DataFrame, functions as F

events = hr.source.files("landing", format="json", max_files_per_trigger={files_a_batch},
                         schema="phone_id STRING, time TIMESTAMP, action STRING")


@hr.query(sink=hr.sink.sqlite("result.db", table="action_counts", key=["action", "hour"]), mode="{mode}",
          trigger=hr.available_now)
def action_counts(events: DataFrame) -> DataFrame:
    return (events.groupBy("action", F.window("time", "1 hour")).count()
                  .select("action", F.col("window.start").alias("hour"), "count"))
"""


def write_project(root: Path, *, files: int, rows: int, mode: str = "update", files_a_batch: int = 1) -> Path:
    """Write the project with `files` files of `rows` events each; the same every time."""
    landing = root / "landing"
    landing.mkdir(parents=True)
    (root / "headrace.yml").write_text("name: monitoring\n")
    (root / "pipeline.py").write_text(PIPELINE.format(mode=mode, files_a_batch=files_a_batch))
    chance = random.Random(7)
    for number in range(files):
        write_events(landing, number, rows, chance)
    return root


def write_events(landing: Path, number: int, rows: int, chance: random.Random) -> None:
    """Let one file of events land."""
    lines = [
        json.dumps(
            {
                "phone_id": f"p{chance.randrange(100)}",
                "time": (START + timedelta(seconds=chance.randrange(24 * 3600))).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "action": chance.choice(ACTIONS),
            }
        )
        for _ in range(rows)
    ]
    draft = landing / f".{number:04d}"
    draft.write_text("\n".join(lines) + "\n")
    draft.rename(landing / f"{number:04d}.json")


def count_events(root: Path, files: Collection[str] | None = None) -> Counter[tuple[str, str]]:
    """The true result: events per action and hour, counted here in Python, over all files or the named ones."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in sorted((root / "landing").glob("*.json")):
        if files is None or path.name in files:
            for line in path.read_text().splitlines():
                event = json.loads(line)
                counts[event["action"], event["time"][:13]] += 1
    return counts


def stored_counts(root: Path) -> Counter[tuple[str, str]]:
    """What the sink's table holds, by action and hour."""
    connection = sqlite3.connect(f"file:{root / 'result.db'}?mode=ro", uri=True)
    try:
        rows = connection.execute('SELECT action, hour, "count" FROM action_counts').fetchall()
    finally:
        connection.close()
    return Counter({(action, str(hour)[:13].replace(" ", "T")): count for action, hour, count in rows})


def ledger(root: Path) -> list[int]:
    """The batches that the sink has written, in order."""
    return projects.ledger(root / "result.db")


def committed_files(root: Path, through: int, query: str = "action_counts") -> list[str]:
    """The files of batches 0 to `through`, as the checkpoint names them; each batch has one at least, none comes twice.

    A driver that died between Spark's two logs leaves a file in the source's log that no batch names yet; the next
    batch then takes it together with the next file. Source: FileStreamSource.fetchMaxOffset.
    """
    from headrace.checkpoint import Archive, Checkpoint, committed_prefix
    from headrace.checkpoint.sources import SourceNames
    from headrace.connectors.spark_files import prefix as file_prefix

    layout = layout_in(root / ".headrace", query)
    checkpoint, names = Checkpoint(layout.checkpoint), SourceNames.same("events")
    prefixes = committed_prefix(checkpoint, Archive(layout.archive), names, through)
    files = file_prefix.files(prefixes["events"])
    names = [Path(file).name for file, _ in files]
    assert {batch for _, batch in files} == set(range(through + 1))
    assert len(names) == len(set(names))
    return names
