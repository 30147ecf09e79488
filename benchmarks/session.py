"""From the start of `python script` to the end of the second trivial job."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Side
from benchmarks.processes import BASELINES, seconds_to_line
from headrace.spark.jvm import cds
from headrace.spark.jvm.preconditions import require_java

TITLE = "the start of a session, to the end of the second trivial job"
RUNS = 7
TARGET = 0.55


def measure(*, runs: int, quick: bool) -> list[Figure]:
    if cds.make(require_java()) is None:
        raise SystemExit("benchmarks: without a CDS archive the session of an installation is not what is measured")
    ours = Path(__file__).parent / "session_ours.py"
    sides = {
        "stream": (sys.executable, ours, "stream"),
        "short": (sys.executable, ours, "short"),
        "default": (sys.executable, BASELINES / "session_default.py"),
    }
    to_job: dict[str, list[float]] = {name: [] for name in sides}
    to_end: dict[str, list[float]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(0 if quick else -1, runs):  # the first round only fills the disk cache
            for name, command in sides.items():
                job, end = seconds_to_line(command, "done", cwd=Path(scratch))
                if turn >= 0:
                    to_job[name].append(job)
                    to_end[name].append(end)
    against = "SparkSession.builder.master('local[2]').getOrCreate()"
    names = {"stream": "a session that runs streams", "short": "a session of a short command (check, verify)"}
    return [
        Figure(
            name=f"{title}, to the end of the second trivial job",
            ours=Side.of(to_job[name]),
            theirs=Side.of(to_job["default"]),
            against=against,
            unit="s",
            target=TARGET,
        )
        for name, title in names.items()
    ] + [
        Figure(
            name=f"{title}, the whole process",
            ours=Side.of(to_end[name]),
            theirs=Side.of(to_end["default"]),
            against=against,
            unit="s",
        )
        for name, title in names.items()
    ]
