"""Many queries in one application on two cores: what a batch of each costs, and what memory each takes."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import Figure, Side
from benchmarks.memory import Memory, cpu_seconds
from benchmarks.processes import HEADRACE, pass_lines

COUNTS = (1, 10, 50)
STRETCHES = 3

_HEAD = """name: many
sources:
  numbers:
    rate_micro_batch: {rows_per_batch: 1000}
targets:
  dev: {master: "local[2]"}
queries:
"""
_QUERY = """  counts_{n}:
    select: SELECT value % 100 AS key, count(*) AS count FROM numbers GROUP BY value % 100
    mode: update
    sink: {{sqlite: {{path: result_{n}.db, table: counts, key: [key]}}}}
"""


@dataclass(kw_only=True)
class Stretches:
    """What an application of so many queries did and held, stretch by stretch."""

    queries: int
    cpu_ms: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)


def measure(*, quick: bool) -> list[Figure]:
    one, *others = [_application(count, 2 if quick else 8) for count in ((1, 3) if quick else COUNTS)]
    return [figure for many in others for figure in _figures(one, many)]


def _figures(one: Stretches, many: Stretches) -> list[Figure]:
    further = many.queries - 1
    rates = [statistics.median(side.rate) for side in (many, one)]
    figures = [
        Figure(
            name=f"the time of the cores for a batch, with {many.queries} queries in one application",
            ours=Side.of(many.cpu_ms),
            theirs=Side.of(one.cpu_ms),
            against="with one query",
            unit="ms",
            note=f"{rates[0]:.1f} batches a second in all, with one query {rates[1]:.1f}",
        )
    ]
    for key, title in (
        ("python", "the resident memory of the driver's Python"),
        ("jvm", "the resident memory of the driver's JVM"),
        ("heap", "the JVM's heap after a collection"),
    ):
        ours, theirs = (Side.of([getattr(stretch, key) for stretch in side.memory]) for side in (many, one))
        note = f"{(ours.median - theirs.median) / further:.2f} MB for each further query"
        figures.append(
            Figure(
                name=f"{title}, with {many.queries} queries",
                ours=ours,
                theirs=theirs,
                against="with one query",
                unit="MB",
                note=note,
            )
        )
    return figures


def _application(queries: int, seconds: float) -> Stretches:
    stretches = Stretches(queries=queries)
    counted: dict[str, int] = {}
    begun = cpu = batches = 0.0

    def enough(line: str, driver: int) -> bool:
        nonlocal begun, cpu, batches
        event = json.loads(line)
        if event["event"] != "batch":
            return False
        counted[event["query"]] = counted.get(event["query"], 0) + 1
        if len(counted) < queries or min(counted.values()) < 5:
            return False
        if begun == 0.0:
            begun, cpu, batches = time.monotonic(), cpu_seconds(driver), sum(counted.values())
        elif time.monotonic() - begun >= seconds:
            made = sum(counted.values()) - batches
            stretches.cpu_ms.append(1000 * (cpu_seconds(driver) - cpu) / made)
            stretches.rate.append(made / (time.monotonic() - begun))
            # The collection that it asks for belongs to no stretch.
            stretches.memory.append(Memory.of(driver))
            begun, cpu, batches = time.monotonic(), cpu_seconds(driver), sum(counted.values())
        return len(stretches.memory) == STRETCHES

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        text = _HEAD + "".join(_QUERY.format(n=n) for n in range(queries))
        (Path(scratch) / "headrace.yml").write_text(text, encoding="utf-8")
        pass_lines([*HEADRACE, "run", "--json"], enough, cwd=Path(scratch))
    return stretches
