"""The driver's memory over many batches: one query at full pace next to one with state, sampled every so often."""

from __future__ import annotations

import csv
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.figures import RESULTS, Figure, Side
from benchmarks.memory import Memory, classes_of
from benchmarks.processes import HEADRACE, pass_lines

TITLE = "the driver's memory over 100,000 batches into a sink that does nothing"
RUNS = 400
CURVE = RESULTS / "lifetime.csv"
GROWN = RESULTS / "lifetime_grown.csv"

_YAML = 'name: lifetime\nmodules: [pipeline.py]\ntargets:\n  dev: {master: "local[2]"}\n'
_PYTHON = """
import headrace as hr

numbers = hr.source.rate_micro_batch(rows_per_batch=10, num_partitions=1)


def nowhere(frame, batch):
    frame.write.format("noop").mode("append").save()


@hr.query(sink=hr.sink.foreach_batch(nowhere))
def plain(numbers):
    return numbers


@hr.query(sink=hr.sink.foreach_batch(nowhere), mode="update", trigger="1 second")
def counted(numbers):
    return numbers.selectExpr("value % 10 AS key").groupBy("key").count()
"""


def measure(*, runs: int, quick: bool) -> list[Figure]:
    """Sample `runs` times, or as often as fits into the minutes that MINUTES says."""
    stride = 20 if quick else 250
    minutes = float(os.environ.get("MINUTES", "600"))
    curve, grown = _curve(max(runs, 8), stride, minutes * 60)
    if not quick:
        _write(CURVE, curve)
        _write(GROWN, grown)
    # The first fifth fills what is bounded: the JIT, the caches, the newest progress of each query.
    rest = curve[len(curve) // 5 :]
    half = len(rest) // 2
    note = f"{curve[-1]['batches']:,} batches in {curve[-1]['seconds'] / 60:.0f} minutes"
    return [
        Figure(
            name=name,
            ours=Side.of([sample[key] for sample in rest[-half:]]),
            theirs=Side.of([sample[key] for sample in rest[:half]]),
            against="the samples of the half before, without the first fifth",
            unit="MB",
            target=1.05,
            note=note,
        )
        for key, name in (
            ("heap", "the JVM's heap after a collection, in the later half"),
            ("jvm", "the JVM's resident memory, in the later half"),
            ("python", "the resident memory of the driver's Python, in the later half"),
        )
    ]


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        written = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        written.writeheader()
        written.writerows(rows)


def _curve(samples: int, stride: int, seconds: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The samples, and the 25 classes of the JVM whose objects have grown most from a fifth of the way to its end."""
    curve: list[dict[str, Any]] = []
    early: dict[str, tuple[int, int]] = {}
    grown: list[dict[str, Any]] = []
    batches, begun = 0, time.monotonic()

    def enough(line: str, driver: int) -> bool:
        nonlocal batches, early, grown
        if len(curve) >= samples or (time.monotonic() > begun + seconds and len(curve) >= 8):
            grown = _grown(early, classes_of(driver))
            return True
        if json.loads(line)["event"] == "batch":
            batches += 1
            if batches % stride == 0:
                passed = time.monotonic() - begun
                curve.append({"batches": batches, "seconds": round(passed), **asdict(Memory.of(driver))})
                if not early and (len(curve) >= samples // 5 or passed > seconds / 5):
                    early = classes_of(driver)
        return False

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        (Path(scratch) / "headrace.yml").write_text(_YAML, encoding="utf-8")
        (Path(scratch) / "pipeline.py").write_text(_PYTHON, encoding="utf-8")
        pass_lines([*HEADRACE, "run", "--json"], enough, cwd=Path(scratch))
    return curve, grown


def _grown(early: dict[str, tuple[int, int]], late: dict[str, tuple[int, int]]) -> list[dict[str, Any]]:
    grown = {
        name: (objects - early.get(name, (0, 0))[0], held - early.get(name, (0, 0))[1])
        for name, (objects, held) in late.items()
    }
    most = sorted(grown, key=lambda name: -grown[name][1])[:25]
    return [{"class": name, "objects": grown[name][0], "bytes": grown[name][1]} for name in most]
