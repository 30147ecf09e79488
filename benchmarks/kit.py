"""Tests of a streaming query by the test kit: cases of five batches, one after the other in one session."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

from benchmarks.figures import Figure, Side
from benchmarks.processes import lines_of

TITLE = "a hundred cases of five batches by the test kit, in one session"
RUNS = 3
CASES = 100


def measure(*, runs: int, quick: bool) -> list[Figure]:
    """Each run is a process of its own; the start of its session does not count, the first and slowest case does."""
    script = Path(__file__).with_name("kit_cases.py")
    cases = 5 if quick else CASES
    ours: list[list[float]] = []
    plain: list[list[float]] = []
    for _ in range(runs):
        lines = lines_of((sys.executable, script, str(cases)), cwd=Path.cwd())
        pairs = [tuple(map(float, line.split())) for line in lines]
        assert len(pairs) == cases
        ours.append([case for case, _ in pairs])
        plain.append([batch for _, batch in pairs])
    against = "the same query over the same rows as one plain batch, collected"
    return [
        Figure(
            name="a case of five batches, with its batch answer",
            ours=Side.of([*chain(*ours)]),
            theirs=Side.of([*chain(*plain)]),
            against=against,
            unit="s",
            target=2.0,
            target_of="ours",
        ),
        Figure(
            name=f"{cases} such cases in one session",
            ours=Side.of(list(map(sum, ours))),
            theirs=Side.of(list(map(sum, plain))),
            against=against,
            unit="s",
            target=120.0,
            target_of="ours",
        ),
    ]
