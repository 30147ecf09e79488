"""The files that the sides of `scale` read: rows of very many groups, and tiny ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20260401
START_US = 1_704_067_200_000_000  # 2024-01-01T00:00:00Z
TINY_ROWS, TINY_KEYS = 1_000, 100


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Rows of which seven of ten begin a group; the others fall on numbers that have been."""

    files: Sequence[Path]
    rows: int
    groups: int

    @classmethod
    def make(cls, home: Path, rows: int, *, files: int) -> Groups:
        home.mkdir(parents=True)
        chance = np.random.default_rng(SEED)
        value = np.arange(rows)
        been = chance.integers(0, np.maximum(value, 1))
        number = np.where(value % 10 < 7, value, been // 10 * 10 + been % 7)
        # All within one hour, later from file to file.
        time = START_US + value * (50 * 60_000_000 // rows)
        made = []
        for at, span in enumerate(np.array_split(value, files)):
            made.append(home / f"{at}.parquet")
            part = slice(span[0], span[-1] + 1)
            columns = {"time": pa.array(time[part], pa.timestamp("us", "UTC")), "number": pa.array(number[part])}
            pq.write_table(pa.table(columns), made[-1])
        return cls(files=made, rows=rows, groups=len(np.unique(number)))


def tiny_files(home: Path, count: int) -> list[Path]:
    """Files of a thousand rows, of a hundred keys each."""
    home.mkdir(parents=True)
    made = [home / f"{number}.parquet" for number in range(count)]
    for path in made:
        write_numbers(path, range(TINY_ROWS), keys=TINY_KEYS)
    return made


def write_numbers(path: Path, span: range, *, keys: int | None = None) -> None:
    """A file of numbers in the column `value`; below `keys`, if given."""
    values = np.arange(span.start, span.stop)
    pq.write_table(pa.table({"value": pa.array(values if keys is None else values % keys)}), path)
