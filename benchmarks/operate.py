"""What watching costs: history, metrics and open pages next to a batch, a page of a long history, and many queries."""

from __future__ import annotations

from benchmarks import operate_many, operate_pages, operate_watching
from benchmarks.figures import Figure

TITLE = "watching: history, metrics and open pages next to a batch of 0.2 s; a page of a long history; 50 queries"
# Pairs of blocks of batches; what is not in pairs takes a part of them.
RUNS = 24


def measure(*, runs: int, quick: bool) -> list[Figure]:
    return [
        *operate_watching.measure(runs=max(runs, 4), quick=quick),
        *operate_pages.measure(runs=max(3, runs // 4), quick=quick),
        *operate_many.measure(quick=quick),
    ]
