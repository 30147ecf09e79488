"""What a cluster costs and how it grows, what remote storage costs a tiny batch, and what partitions and state cost."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import scale_cluster, scale_costs, scale_stores
from benchmarks.figures import Figure

TITLE = (
    "a cluster of 1 and 2 workers against local[1] and local[2]; storage on HDFS and S3; partitions and rows of state"
)
RUNS = 3


def measure(*, runs: int, quick: bool) -> list[Figure]:
    figures = scale_cluster.measure(runs=runs, quick=quick)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=Path.cwd()) as place:
        scratch = Path(place)
        with scale_stores.open_stores(scratch) as stores:
            figures += scale_stores.measure(stores, scratch, runs=runs, quick=quick)
            with scale_costs.session(scratch) as spark:
                figures += scale_costs.asynchronous(spark, stores, runs=runs, quick=quick)
                figures += scale_costs.partitions(spark, scratch, runs=runs, quick=quick)
                figures += scale_costs.state_rows(spark, scratch, runs=runs, quick=quick)
    return figures
