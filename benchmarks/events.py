"""Events of a mobile application for the headline job, the same on every machine, and the answer to expect."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.jvm import cds

ACTIONS = ("open", "click", "scroll", "search", "close")
PHONES = 10_000
HOURS = 24
DISORDER_MS = 5 * 60 * 1000
START_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z
_FORM = 1  # counts up when the events change

Counts = dict[tuple[str, str], int]


@dataclass(frozen=True)
class Events:
    """A directory of JSON files, oldest first, and the count of each action in each hour (`2024-01-01T07`)."""

    directory: Path
    counts: Counts

    @property
    def megabytes(self) -> float:
        return sum(path.stat().st_size for path in self.directory.glob("*.json")) / 1e6


def events(number: int, *, files: int) -> Events:
    """`number` events in `files` files, made once and kept in the cache directory."""
    home = cds.cache().parent / "benchmarks" / f"events-{_FORM}-{number}-{files}"
    if not (home / "counts.json").exists():
        part = home.with_name(f"{home.name}.part{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        _make(part, number, files)
        shutil.rmtree(home, ignore_errors=True)
        part.rename(home)
    counts = json.loads((home / "counts.json").read_text(encoding="utf-8"))
    return Events(home / "landing", {(action, hour): count for action, hour, count in counts})


def _make(home: Path, number: int, files: int) -> None:
    landing = home / "landing"
    landing.mkdir(parents=True)
    chance = np.random.default_rng(20240101)
    counts: dict[tuple[int, int], int] = {}
    for file, span in enumerate(np.array_split(np.arange(number), files)):
        # Events arrive in order but for up to five minutes that each was on its way.
        ms = span * (HOURS * 3_600_000) // number - chance.integers(0, DISORDER_MS, len(span))
        ms = np.maximum(ms, 0)
        action = chance.integers(0, len(ACTIONS), len(span))
        phone = chance.integers(0, PHONES, len(span))
        path = landing / f"events-{file:02d}.json"
        path.write_bytes(_lines(ms, action, phone))
        os.utime(path, (START_MS // 1000 + file, START_MS // 1000 + file))
        groups, sizes = np.unique(action * HOURS + ms // 3_600_000, return_counts=True)
        for group, size in zip(groups.tolist(), sizes.tolist(), strict=True):
            counts[divmod(group, HOURS)] = counts.get(divmod(group, HOURS), 0) + size
    answer = [[ACTIONS[action], f"2024-01-01T{hour:02d}", count] for (action, hour), count in sorted(counts.items())]
    (home / "counts.json").write_text(json.dumps(answer), encoding="utf-8")


def _lines(ms: np.ndarray, action: np.ndarray, phone: np.ndarray) -> bytes:
    times = pc.strftime(pa.array(START_MS + ms, pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%S")
    phones = pc.utf8_lpad(pa.array(phone).cast(pa.string()), 6, padding="0")
    actions = pc.take(pa.array(ACTIONS), pa.array(action))
    lines = pc.binary_join_element_wise(
        '{"phone_id":"phone-', phones, '","time":"', times, 'Z","action":"', actions, '"}', ""
    )
    return ("\n".join(lines.to_pylist()) + "\n").encode()
