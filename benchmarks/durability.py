"""What it costs that a batch's files of the checkpoint are on the disk before the database commits it."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Side
from benchmarks.processes import HEADRACE, lines_until

TITLE = "checkpoint_durability: power_loss against process, a tiny stateful and a stateless batch, SQLite"
RUNS = 5

_PROJECT = """name: tiny
checkpoint_durability: {durability}
sources:
  numbers:
    rate_micro_batch: {{rows_per_batch: 1000}}
queries:
  counts:
    select: {select}
    mode: {mode}
    sink: {{sqlite: {{path: result.db, table: counts{key}}}}}
targets:
  dev: {{master: "local[2]"}}
"""
_QUERIES = {
    "a stateful batch": {
        "select": "SELECT value % 100 AS key, count(*) AS count FROM numbers GROUP BY value % 100",
        "mode": "update",
        "key": ", key: [key]",
    },
    "a stateless batch": {"select": "SELECT value AS key FROM numbers", "mode": "append", "key": ""},
}


def measure(*, runs: int, quick: bool) -> list[Figure]:
    first, last = (3, 6) if quick else (10, 40)
    figures = []
    for name, query in _QUERIES.items():
        took: dict[str, list[float]] = {"power_loss": [], "process": []}
        for turn in range(runs):
            # What runs second finds a warmer machine, or a busier one.
            for durability in sorted(took, reverse=turn % 2 == 1):
                took[durability].append(_median(durability, query, first, last))
        figures.append(
            Figure(
                name=name,
                ours=Side.of(took["power_loss"]),
                theirs=Side.of(took["process"]),
                against="checkpoint_durability: process",
                unit="ms",
                note=f"triggerExecution, median of the batches {first} to {last} of each run",
            )
        )
    return figures


def _median(durability: str, query: dict[str, str], first: int, last: int) -> float:
    def last_batch(line: str) -> bool:
        event = json.loads(line)
        return bool(event["event"] == "batch" and event["batch"] >= last)

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        place = Path(scratch)
        (place / "headrace.yml").write_text(_PROJECT.format(durability=durability, **query), encoding="utf-8")
        lines = lines_until([*HEADRACE, "run", "--json"], last_batch, cwd=place)
    events = [json.loads(line) for line in lines]
    batches = {event["batch"]: event["duration_ms"] for event in events if "duration_ms" in event}
    return float(statistics.median(batches[batch] for batch in range(first, last + 1)))
