"""A figure of a benchmark: both sides, run by run, and the ratio that the target is about."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from headrace.spark.jvm.preconditions import require_java

Unit = Literal["s", "ms", "MB", "share", "batches", "files", "requests", "bytes", "nodes", "listeners"]

RESULTS = Path(__file__).parent / "results"
_NO_COMMIT = "none"


class Skipped(Exception):
    """A benchmark cannot run here; the message says why, in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one side took in each run, in the order of the runs."""

    runs: tuple[float, ...]

    @classmethod
    def of(cls, runs: Sequence[float]) -> Side:
        return cls(runs=tuple(round(value, 4) for value in runs))

    @property
    def median(self) -> float:
        return round(statistics.median(self.runs), 4)

    def as_dict(self) -> dict[str, Any]:
        return {"median": self.median, "min": min(self.runs), "max": max(self.runs), "runs": list(self.runs)}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One comparison. `target` bounds the ratio, or our own median where `target_of` says so; None: only shown."""

    name: str
    against: str
    ours: Side
    theirs: Side
    unit: Unit
    target: float | None = None
    target_of: Literal["ratio", "ours"] = "ratio"
    note: str = ""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of each pair that ran one after the other."""
        return tuple(round(a / b, 4) for a, b in zip(self.ours.runs, self.theirs.runs, strict=True))

    @property
    def ratio(self) -> float:
        """The median of the ratios of the pairs that ran one after the other."""
        return round(statistics.median(a / b for a, b in zip(self.ours.runs, self.theirs.runs, strict=True)), 4)

    @property
    def ratio_of_medians(self) -> float:
        return round(self.ours.median / self.theirs.median, 4)

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return (self.ratio if self.target_of == "ratio" else self.ours.median) <= self.target

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ratio": self.ratio,
            "ratio_is": "median of pairwise ratios",
            "ratios": self.ratios,
            "ratio_of_medians": self.ratio_of_medians,
            "target": self.target,
            "target_of": self.target_of,
            "met": self.met,
            "against": self.against,
            "unit": self.unit,
            "runs": len(self.ours.runs),
            "ours": self.ours.as_dict(),
            "theirs": self.theirs.as_dict(),
            "note": self.note,
        }

    def __str__(self) -> str:
        sides = f"{self.ours.median:g} {self.unit} against {self.theirs.median:g} {self.unit} ({self.against})"
        if self.target is None:
            return f"{self.name}: ratio {self.ratio:g}; {sides}"
        of = "" if self.target_of == "ratio" else f" {self.unit} for ours"
        verdict = "met" if self.met else "MISSED"
        return f"{self.name}: ratio {self.ratio:g}, target {self.target:g}{of} {verdict}; {sides}"


@dataclass(frozen=True)
class Versions:
    """What was measured on."""

    python: str
    java: str
    pyspark: str
    headrace: str

    @classmethod
    def here(cls) -> Versions:
        return cls(platform.python_version(), require_java().version, version("pyspark"), version("headrace"))


def commit() -> str:
    """The commit that is measured, with `-dirty` where a file that Git knows is not as it says; `none` without Git.

    The results of another benchmark are not what is measured.
    """
    git = ["git", "-C", str(RESULTS.parent.parent)]
    results = f":!{RESULTS.relative_to(RESULTS.parent.parent)}"
    asked = ([*git, "rev-parse", "--short=12", "HEAD"], [*git, "status", "--porcelain", "-uno", "--", ".", results])
    try:
        head, changed = (
            subprocess.run(command, check=True, capture_output=True, text=True).stdout for command in asked
        )
        return head.strip() + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return _NO_COMMIT


# The one that the modules of this process were loaded from.
COMMIT = commit()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write(name: str, title: str, figures: Sequence[Figure], *, quick: bool) -> Path:
    """Write the figures of a benchmark; a quick run goes next to the real one, and is not kept in the repository."""
    path = RESULTS / (f"{name}.quick.json" if quick else f"{name}.json")
    path.parent.mkdir(exist_ok=True)
    content = {
        "benchmark": name,
        "title": title,
        "quick": quick,
        "versions": asdict(Versions.here()),
        "commit": COMMIT,
        "cores": cores(),
        "figures": [figure.as_dict() for figure in figures],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
